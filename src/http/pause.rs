//! The pause before a refusal for want of room.
//!
//! Whoever is refused at once and asks again at once is refused thousands of times a second, and what there is room
//! for gets the processor that these refusals leave. So they are answered after a pause, which holds nothing but
//! the connection, or the stream, that they are for. It is not the same for all of them: those who came at once would
//! come back at once, and whoever stands behind such a wave would wait for all of it. Each request that waits for its
//! refusal makes the pause of the next one longer, so that the number of refusals in a second has a limit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::Kind;
use crate::random;

/// The shortest pause; the longest is short beside the second that `Retry-After` asks for.
const LEAST: Duration = Duration::from_millis(10);
/// What it is longer by, so many times as a random octet says: up to 20 ms.
const STEP: Duration = Duration::from_micros(80);

/// What each other refusal that waits adds to a pause: there are at most about 2,000 refusals in a second.
const PER_REFUSAL: Duration = Duration::from_micros(500);
/// Refusals that count for that.
const MAX_COUNTED: u32 = 1_000;

/// Refusals of the process that wait.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// A refusal that waits.
struct Waiting;

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// To be waited for before a refusal of this kind is answered.
pub(super) async fn before(refusal: Kind) {
    let least = match refusal {
        Kind::Busy => {
            let [steps] = random::unlike();
            LEAST + STEP * steps.into()
        }
        Kind::Quota => Duration::ZERO,
        _ => return,
    };
    let others = WAITING.fetch_add(1, Ordering::Relaxed);
    let _waiting = Waiting;
    let pause = least + longer_by(others);
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

/// What a pause is longer by when so many other refusals wait.
fn longer_by(others: u32) -> Duration {
    PER_REFUSAL * others.min(MAX_COUNTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_refusals_that_wait_and_stay_below_a_second() {
        let longest = LEAST + STEP * u32::from(u8::MAX) + longer_by(u32::MAX);
        assert!(longer_by(0).is_zero() && longer_by(900) >= Duration::from_millis(400));
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }

    #[actix_web::test]
    async fn a_refusal_that_is_not_waited_for_any_more_counts_no_more() {
        let mut pause = Box::pin(before(Kind::Busy));
        assert!(futures_util::poll!(&mut pause).is_pending());
        assert!(WAITING.load(Ordering::Relaxed) > 0);
        drop(pause);
        tokio::time::timeout(Duration::from_secs(10), before(Kind::Quota)).await.unwrap();
    }
}
