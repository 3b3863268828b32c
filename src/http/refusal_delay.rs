//! Delays before refusals for lack of capacity (503 and 429).
//!
//! Without a delay, clients that retry immediately would be refused thousands of times a second and use up the
//! processor. A delayed refusal occupies only its connection or stream. The delay before a 503 is random, so that
//! clients do not retry simultaneously. Each pending refusal of a caller lengthens the caller's next delay, which
//! limits the refusals per second and caller.

use std::sync::LazyLock;
use std::time::Duration;

use crate::error::Kind;
use crate::random;
use crate::rationing::{Budget, CallerId, QueueCaller, Reservation};

/// Shortest delay before a 503. It is short compared with the one second that `Retry-After` asks for.
const MIN_BUSY_DELAY: Duration = Duration::from_millis(10);
/// Unit of the random part of the delay before a 503: 0 to 255 units, at most about 20 ms.
const BUSY_DELAY_STEP: Duration = Duration::from_micros(80);

/// Added to the delay for each pending refusal of the caller, who therefore gets at most about 2,000 refusals per
/// second.
const DELAY_PER_PENDING_REFUSAL: Duration = Duration::from_micros(500);
/// Maximum number of pending refusals that lengthen a delay.
const MAX_COUNTED_REFUSALS: usize = 1_000;

/// The pending refusals, one unit each. This budget only counts: its capacity is never reached.
static PENDING_REFUSALS: LazyLock<Budget<CallerId>> = LazyLock::new(|| Budget::new(usize::MAX));

/// Delays a refusal of the kind `refusal` to the [current caller](QueueCaller::current).
pub(super) async fn wait(refusal: Kind) {
    let least = match refusal {
        Kind::Busy => {
            let [steps] = random::unique_bytes();
            MIN_BUSY_DELAY + BUSY_DELAY_STEP * steps.into()
        }
        Kind::Quota => Duration::ZERO,
        _ => return,
    };
    let caller = QueueCaller::current().caller_id();
    let others = PENDING_REFUSALS.reserved_by(&caller);
    let _pending = Reservation::reserve_unchecked(&PENDING_REFUSALS, caller, 1);
    let pause = least + delay_for_pending(others);
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

fn delay_for_pending(others: usize) -> Duration {
    DELAY_PER_PENDING_REFUSAL * others.min(MAX_COUNTED_REFUSALS) as u32
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn refusal_delay_grows_with_waiting_refusals_below_a_second() {
        let longest = MIN_BUSY_DELAY + BUSY_DELAY_STEP * u32::from(u8::MAX) + delay_for_pending(usize::MAX);
        assert!(delay_for_pending(0).is_zero() && delay_for_pending(900) >= Duration::from_millis(400));
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }

    #[actix_web::test]
    async fn refusal_delay_counts_only_waiting_refusals_of_the_caller() {
        let [one, other] = [QueueCaller::with_token("one"), QueueCaller::with_token("other")];
        let counted = |caller: QueueCaller| PENDING_REFUSALS.reserved_by(&caller.caller_id());
        let mut pause = Box::pin(one.scope(wait(Kind::Busy)));
        assert!(futures_util::poll!(&mut pause).is_pending());
        assert_eq!((counted(one), counted(other)), (1, 0));
        let at_once = Box::pin(other.scope(wait(Kind::Quota))).now_or_never();
        assert!(at_once.is_some(), "another caller's refusals make no pause");
        drop(pause);
        assert_eq!((counted(one), counted(other)), (0, 0), "a refusal whose client has left counts no more");
    }
}
