//! The pause before a refusal for want of room.
//!
//! Whoever is refused at once and asks again at once is refused thousands of times a second, and what there is room
//! for gets the processor that these refusals leave. So they are answered after a pause, which holds nothing but
//! the connection, or the stream, that they are for. It is not the same for all of them: those who came at once would
//! come back at once, and whoever stands behind such a wave would wait for all of it.

use std::time::Duration;

use crate::error::Kind;
use crate::random;

/// The shortest pause; the longest is short beside the second that `Retry-After` asks for.
const LEAST: Duration = Duration::from_millis(10);
/// What it is longer by, so many times as a random octet says: up to 20 ms.
const STEP: Duration = Duration::from_micros(80);

/// To be waited for before a refusal of this kind is answered.
pub(super) async fn before(refusal: Kind) {
    if refusal == Kind::Busy {
        let [steps] = random::unlike();
        tokio::time::sleep(LEAST + STEP * steps.into()).await;
    }
}
