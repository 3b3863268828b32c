//! One build of a mount's CRLs, off the control actor's thread, and what is told of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::Semaphore;

use super::panicked;
use crate::documents::MountId;
use crate::error::Result;
use crate::pki::crl::{Builder, Built, Wanted};
use crate::pki::view::View;
use crate::telemetry;

/// A pause between two builds is this share of what the earlier one took, and at most so long.
const PAUSE_SHARE: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// When the next build of a mount may begin. Whoever was answered by a build comes back at once, a few
/// milliseconds apart: without a pause the first one would get a build of its own, and all others
/// would wait for it and for theirs. A list that is quickly built has hardly any pause.
#[derive(Default)]
pub(super) struct Pace(Option<Instant>);

impl Pace {
    /// A build that took so long has ended at `now`.
    pub(super) fn ended(&mut self, now: Instant, took: Duration) {
        self.0 = Some(now + (took / PAUSE_SHARE).min(LONGEST_PAUSE));
    }

    /// How long the next one has to wait; none when it may begin.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.0.map(|from| from.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }
}

/// Builds off the actor's thread; the builder comes back whatever happens.
pub(super) async fn run_build(
    mut builder: Builder,
    view: Arc<View>,
    wanted: Wanted,
    builds: Arc<Semaphore>,
) -> (Builder, Result<Built>, Duration) {
    let _place = builds.acquire_owned().await;
    let started = Instant::now();
    let (handle, mount) = (tokio::runtime::Handle::current(), view.mount);
    let (builder, result) = tokio::task::spawn_blocking(move || {
        let build = AssertUnwindSafe(builder.build(&view, wanted)).catch_unwind();
        let result = handle.block_on(build).unwrap_or_else(|_| {
            builder.reset();
            Err(panicked())
        });
        (builder, result)
    })
    .await
    .expect("a build catches its own panics");
    let took = started.elapsed();
    record_build(mount, &result, took);
    (builder, result, took)
}

/// Counts a build that made something, or failed; most ticks find nothing to do.
fn record_build(mount: MountId, result: &Result<Built>, took: Duration) {
    let (outcome, failure) = match result {
        Ok(Built { failure: None, made: 0, .. }) => return,
        Ok(Built { failure: None, .. }) => ("done", None),
        Ok(Built { failure: Some(error), .. }) | Err(error) => ("failed", Some(error)),
    };
    metrics::histogram!(telemetry::PKI_CRL_BUILD_SECONDS).record(took.as_secs_f64());
    metrics::counter!(telemetry::PKI_CRL_BUILDS, "result" => outcome).increment(1);
    if let Some(error) = failure {
        let mount = mount.0;
        tracing::error!(mount, %error, cause = ?std::error::Error::source(error), "CRL build failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_builds_is_a_share_of_the_earlier_one_and_no_more() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let mut pace = Pace::default();
        assert_eq!(pace.wait(now), None, "the first one begins at once");
        pace.ended(now, ms(40));
        assert_eq!(pace.wait(now), Some(ms(10)));
        assert_eq!(pace.wait(now + ms(4)), Some(ms(6)));
        assert_eq!(pace.wait(now + ms(10)), None);
        pace.ended(now, ms(4000));
        assert_eq!(pace.wait(now), Some(LONGEST_PAUSE));
    }
}
