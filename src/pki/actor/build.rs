//! One build of a mount's CRLs, off the control actor's thread, and what is told of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::Semaphore;

use super::panicked;
use crate::documents::MountId;
use crate::error::Result;
use crate::pki::check::blocking::{self, Outside};
use crate::pki::crl::{Builder, Built, WantedCrls};
use crate::pki::mount::view::View;
use crate::telemetry;

/// The pause between two builds, in shares of what the earlier one took: at least, and after the last one
/// who came.
const LEAST_SHARE: u32 = 4;
const QUIET_SHARE: u32 = 8;
/// A build that took longer, such as the first one after a start, counts as this for the pause.
const LONGEST: Duration = Duration::from_millis(100);

/// Revocations that are under way: their records are being stored, then they want a build.
#[derive(Clone, Default)]
pub(super) struct Arrivals(Arc<AtomicUsize>);

impl Arrivals {
    /// One more, until what this gives is dropped.
    pub(super) fn announce(&self) -> Coming {
        self.0.fetch_add(1, Ordering::Relaxed);
        Coming(Arc::clone(&self.0))
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A revocation under way; dropped when it has come to the control actor, or will not.
pub struct Coming(Arc<AtomicUsize>);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When the next build of a mount may begin. Whoever was answered by a build comes back at once, one after
/// the other: without a pause the first one would get a build of its own, and all others would wait for it
/// and then for theirs. So a build waits for those who are under way and for those who keep coming, and never
/// longer than the build took that they would wait for otherwise. A list that is quickly built has hardly
/// any pause, and who comes alone waits for nobody.
#[derive(Default)]
pub(super) struct Pace {
    /// Who is under way.
    arrivals: Arrivals,
    /// When the last build ended, and how long it took.
    last: Option<(Instant, Duration)>,
    /// When the first one came who waits now, and the last one.
    first: Option<Instant>,
    came: Option<Instant>,
}

impl Pace {
    pub(super) fn of(arrivals: Arrivals) -> Self {
        Self { arrivals, ..Self::default() }
    }

    /// A build that took so long has ended at `now`.
    pub(super) fn ended(&mut self, now: Instant, took: Duration) {
        self.last = Some((now, took.min(LONGEST)));
    }

    /// Somebody wants a build.
    pub(super) fn came(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.came = Some(now);
    }

    /// A build begins, for all who came.
    pub(super) fn began(&mut self) {
        self.first = None;
    }

    /// How long the next one has to wait; none when it may begin.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let (ended, took) = self.last?;
        let from = if self.arrivals.any() {
            self.first.map_or(ended, |first| first.max(ended)) + took
        } else {
            let quiet = self.came.map_or(ended, |came| came + took / QUIET_SHARE);
            quiet.clamp(ended + took / LEAST_SHARE, ended + took)
        };
        Some(from.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }
}

/// Builds off the actor's thread; the builder comes back whatever happens.
pub(super) async fn run_build(
    mut builder: Builder,
    view: Arc<View>,
    wanted: WantedCrls,
    builds: Arc<Semaphore>,
) -> (Builder, Result<Built>, Duration) {
    let mount = view.mount;
    let work = |outside: Outside| async move {
        let started = Instant::now();
        let build = AssertUnwindSafe(builder.build(&view, wanted, &outside)).catch_unwind();
        let result = build.await.unwrap_or_else(|_| {
            builder.reset();
            Err(panicked())
        });
        (builder, result, started.elapsed())
    };
    let done = blocking::run(Some(builds), work).await;
    let (builder, result, took) = done.expect("a build catches its own panics");
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
    if let Some(why) = failure.and_then(telemetry::outage::told) {
        tracing::error!(mount = telemetry::mount_path(mount.0), "a CRL was not built: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_waits_for_those_who_keep_coming_and_not_longer_than_the_last_one_took() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let mut pace = Pace::default();
        pace.came(now);
        assert_eq!(pace.wait(now), None, "the first one begins at once");
        pace.ended(now, ms(40));
        assert_eq!(pace.wait(now), Some(ms(10)));
        pace.came(now + ms(4));
        assert_eq!(pace.wait(now + ms(4)), Some(ms(6)), "nobody came after");
        assert_eq!(pace.wait(now + ms(10)), None);
        pace.came(now + ms(9));
        assert_eq!(pace.wait(now + ms(10)), Some(ms(4)));
        pace.came(now + ms(38));
        assert_eq!(pace.wait(now + ms(39)), Some(ms(1)), "they have waited enough");
        assert_eq!(pace.wait(now + ms(40)), None);
        pace.came(now + ms(1000));
        assert_eq!(pace.wait(now + ms(1000)), None, "somebody comes alone");
        pace.ended(now, ms(4000));
        assert_eq!(pace.wait(now), Some(LONGEST));
    }

    #[test]
    fn a_build_waits_for_revocations_under_way_and_not_longer_than_the_last_one_took() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let mut pace = Pace::default();
        let (one, other) = (pace.arrivals.announce(), pace.arrivals.announce());
        pace.came(now);
        assert_eq!(pace.wait(now), None, "there was no build before");
        pace.began();
        pace.ended(now, ms(40));
        pace.came(now + ms(5));
        drop(one);
        assert_eq!(pace.wait(now + ms(20)), Some(ms(25)));
        assert_eq!(pace.wait(now + ms(45)), None, "they have waited enough");
        drop(other);
        assert_eq!(pace.wait(now + ms(20)), None, "all are there");
        let _late = pace.arrivals.announce();
        pace.began();
        pace.came(now + ms(1000));
        assert_eq!(pace.wait(now + ms(1000)), Some(ms(40)), "long after the last build, too");
    }
}
