//! The pause before a refusal for want of room.
//!
//! A client that is refused at once and asks again at once is refused thousands of times a second, and the requests for
//! which there is room get what these refusals leave of the processor. So a refusal is answered after a pause, which
//! holds nothing but its connection or stream. The pause is random: clients that came at once would otherwise come back
//! at once. Each refusal of a caller that waits makes the next pause of that caller longer, so that the number of
//! refusals in a second has a limit for each caller.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Kind;
use crate::random;
use crate::turns::{Asker, Caller};

/// The shortest pause; the longest is short beside the second that `Retry-After` asks for.
const LEAST: Duration = Duration::from_millis(10);
/// Unit of the random part: 0 to 255 of them, up to 20 ms.
const STEP: Duration = Duration::from_micros(80);

/// Added for each other waiting refusal of the caller, who therefore gets at most about 2,000 refusals per second.
const PER_REFUSAL: Duration = Duration::from_micros(500);
/// Refusals that count for that.
const MAX_COUNTED: u32 = 1_000;

/// Refusals of the process that wait, by caller. A caller without any has no entry.
static WAITING: LazyLock<Mutex<HashMap<Asker, u32>>> = LazyLock::new(Mutex::default);

/// A refusal that waits.
struct Waiting(Asker);

impl Waiting {
    /// One more of this caller, and how many others of the caller wait.
    fn of(caller: Asker) -> (Self, u32) {
        let mut waiting = waiting();
        let count = waiting.entry(caller).or_default();
        *count += 1;
        (Self(caller), *count - 1)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = waiting();
        if let Some(count) = waiting.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.0);
            }
        }
    }
}

fn waiting() -> MutexGuard<'static, HashMap<Asker, u32>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// To be waited for before a refusal of this kind is answered to the [current caller](Caller::current).
pub(super) async fn before(refusal: Kind) {
    let least = match refusal {
        Kind::Busy => {
            let [steps] = random::unlike();
            LEAST + STEP * steps.into()
        }
        Kind::Quota => Duration::ZERO,
        _ => return,
    };
    let (_waiting, others) = Waiting::of(Caller::current().asker());
    let pause = least + longer_by(others);
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

/// The part of a pause that grows with the number of waiting refusals of the caller.
fn longer_by(others: u32) -> Duration {
    PER_REFUSAL * others.min(MAX_COUNTED)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn pauses_grow_with_the_refusals_that_wait_and_stay_below_a_second() {
        let longest = LEAST + STEP * u32::from(u8::MAX) + longer_by(u32::MAX);
        assert!(longer_by(0).is_zero() && longer_by(900) >= Duration::from_millis(400));
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }

    #[actix_web::test]
    async fn only_refusals_of_the_caller_that_wait_count() {
        let [one, other] = [Caller::with_token("one"), Caller::with_token("other")];
        let counted = |caller: Caller| waiting().get(&caller.asker()).copied();
        let mut pause = Box::pin(one.scope(before(Kind::Busy)));
        assert!(futures_util::poll!(&mut pause).is_pending());
        assert_eq!((counted(one), counted(other)), (Some(1), None));
        let at_once = Box::pin(other.scope(before(Kind::Quota))).now_or_never();
        assert!(at_once.is_some(), "another caller's refusals make no pause");
        drop(pause);
        assert_eq!((counted(one), counted(other)), (None, None), "a refusal whose client has left counts no more");
    }
}
