//! The pause before a refusal for want of room.
//!
//! Whoever is refused at once and asks again at once is refused thousands of times a second, and what there is room
//! for gets the processor that these refusals leave. So they are answered after a pause, which holds nothing but
//! the connection, or the stream, that they are for.

use std::time::Duration;

use crate::error::Kind;

/// Short beside the second that `Retry-After` asks for.
const PAUSE: Duration = Duration::from_millis(25);

/// To be waited for before a refusal of this kind is answered.
pub(super) async fn before(refusal: Kind) {
    if refusal == Kind::Busy {
        tokio::time::sleep(PAUSE).await;
    }
}
