//! Runs one build of a mount's CRLs off the control actor's thread, and decides when the build may start.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::Semaphore;

use super::panic_error;
use crate::documents::MountId;
use crate::error::Result;
use crate::pki::check::blocking::{self, SignatureWaiter};
use crate::pki::crl::{CrlBuildRequest, CrlBuildResult, CrlBuilder};
use crate::pki::mount::view::MountView;
use crate::telemetry;

/// The minimum pause between two CRL builds is the duration of the last build divided by this.
const MIN_PAUSE_DIVISOR: u32 = 4;
/// A CRL build starts only after an interval without new requests. The length of that interval is the duration of the
/// last build divided by this.
const QUIET_PAUSE_DIVISOR: u32 = 8;
/// Upper limit of the build duration from which pauses are computed, because the first build after a start takes much
/// longer than later builds.
const MAX_COUNTED_BUILD_DURATION: Duration = Duration::from_millis(100);

/// Number of revocations that are being stored and will then request a CRL build.
#[derive(Clone, Default)]
pub(super) struct PendingRevocations(Arc<AtomicUsize>);

impl PendingRevocations {
    pub(super) fn announce(&self) -> PendingRevocation {
        self.0.fetch_add(1, Ordering::Relaxed);
        PendingRevocation(Arc::clone(&self.0))
    }

    fn has_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A revocation that is being stored. Dropped when the control actor receives the build request, or when the revocation
/// fails; until then the next CRL build may wait for it.
pub struct PendingRevocation(Arc<AtomicUsize>);

impl Drop for PendingRevocation {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Decides when the next build of a mount may start.
///
/// Callers that revoke in a loop send their next request right after a build. Without a pause, the first of them would
/// get a build of its own, and all others would wait for that build and then for their own. A build therefore waits for
/// announced revocations and for requests that keep arriving, but never longer than the last build took.
#[derive(Default)]
pub(super) struct BuildThrottle {
    pending_revocations: PendingRevocations,
    /// End and duration of the last build.
    last_build: Option<(Instant, Duration)>,
    /// Arrival of the first waiting request.
    first_request: Option<Instant>,
    latest_request: Option<Instant>,
}

impl BuildThrottle {
    pub(super) fn of(pending_revocations: PendingRevocations) -> Self {
        Self { pending_revocations, ..Self::default() }
    }

    pub(super) fn record_end(&mut self, now: Instant, took: Duration) {
        self.last_build = Some((now, took.min(MAX_COUNTED_BUILD_DURATION)));
    }

    pub(super) fn record_request(&mut self, now: Instant) {
        self.first_request.get_or_insert(now);
        self.latest_request = Some(now);
    }

    pub(super) fn record_start(&mut self) {
        self.first_request = None;
    }

    /// Returns the remaining pause before the next build, or `None` if it may start now.
    pub(super) fn remaining_pause(&self, now: Instant) -> Option<Duration> {
        let (ended, took) = self.last_build?;
        let from = if self.pending_revocations.has_any() {
            self.first_request.map_or(ended, |first| first.max(ended)) + took
        } else {
            let quiet = self.latest_request.map_or(ended, |came| came + took / QUIET_PAUSE_DIVISOR);
            quiet.clamp(ended + took / MIN_PAUSE_DIVISOR, ended + took)
        };
        Some(from.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }
}

/// Runs a CRL build on a blocking thread. Returns the builder (even if the build panics), the result, and the duration.
pub(super) async fn run_build(
    mut builder: CrlBuilder,
    view: Arc<MountView>,
    wanted: CrlBuildRequest,
    builds: Arc<Semaphore>,
) -> (CrlBuilder, Result<CrlBuildResult>, Duration) {
    let mount = view.mount;
    let work = |waiter: SignatureWaiter| async move {
        let started = Instant::now();
        let build = AssertUnwindSafe(builder.build(&view, wanted, &waiter)).catch_unwind();
        let result = build.await.unwrap_or_else(|_| {
            builder.reset();
            Err(panic_error())
        });
        (builder, result, started.elapsed())
    };
    let done = blocking::run(Some(builds), work).await;
    let (builder, result, took) = done.expect("a CRL build catches its own panics");
    record_build(mount, &result, took);
    (builder, result, took)
}

/// Records metrics of a build that built a CRL or failed. Most periodic builds have nothing to do and are not counted.
fn record_build(mount: MountId, result: &Result<CrlBuildResult>, took: Duration) {
    let (outcome, failure) = match result {
        Ok(CrlBuildResult { failure: None, built_lists: 0, .. }) => return,
        Ok(CrlBuildResult { failure: None, .. }) => ("done", None),
        Ok(CrlBuildResult { failure: Some(error), .. }) | Err(error) => ("failed", Some(error)),
    };
    metrics::histogram!(telemetry::PKI_CRL_BUILD_SECONDS).record(took.as_secs_f64());
    metrics::counter!(telemetry::PKI_CRL_BUILDS, "result" => outcome).increment(1);
    if let Some(why) = failure.and_then(telemetry::outage::describe_for_log) {
        tracing::error!(mount = telemetry::mount_path(mount.0), "a CRL was not built: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crl_build_waits_for_new_requests_up_to_the_last_duration() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let mut throttle = BuildThrottle::default();
        throttle.record_request(now);
        assert_eq!(throttle.remaining_pause(now), None, "the first one begins at once");
        throttle.record_end(now, ms(40));
        assert_eq!(throttle.remaining_pause(now), Some(ms(10)));
        throttle.record_request(now + ms(4));
        assert_eq!(throttle.remaining_pause(now + ms(4)), Some(ms(6)), "no later request");
        assert_eq!(throttle.remaining_pause(now + ms(10)), None);
        throttle.record_request(now + ms(9));
        assert_eq!(throttle.remaining_pause(now + ms(10)), Some(ms(4)));
        throttle.record_request(now + ms(38));
        assert_eq!(throttle.remaining_pause(now + ms(39)), Some(ms(1)), "the longest pause is over");
        assert_eq!(throttle.remaining_pause(now + ms(40)), None);
        throttle.record_request(now + ms(1000));
        assert_eq!(throttle.remaining_pause(now + ms(1000)), None, "a single request");
        throttle.record_end(now, ms(4000));
        assert_eq!(throttle.remaining_pause(now), Some(MAX_COUNTED_BUILD_DURATION));
    }

    #[test]
    fn crl_build_waits_for_revocations_up_to_the_last_duration() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let mut throttle = BuildThrottle::default();
        let one = throttle.pending_revocations.announce();
        let other = throttle.pending_revocations.announce();
        throttle.record_request(now);
        assert_eq!(throttle.remaining_pause(now), None, "there was no build before");
        throttle.record_start();
        throttle.record_end(now, ms(40));
        throttle.record_request(now + ms(5));
        drop(one);
        assert_eq!(throttle.remaining_pause(now + ms(20)), Some(ms(25)));
        assert_eq!(throttle.remaining_pause(now + ms(45)), None, "the longest pause is over");
        drop(other);
        assert_eq!(throttle.remaining_pause(now + ms(20)), None, "all are there");
        let _late = throttle.pending_revocations.announce();
        throttle.record_start();
        throttle.record_request(now + ms(1000));
        assert_eq!(throttle.remaining_pause(now + ms(1000)), Some(ms(40)), "long after the last build, too");
    }
}
