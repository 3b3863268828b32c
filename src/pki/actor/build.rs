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

/// Builds off the actor's thread; the builder comes back whatever happens.
pub(super) async fn run_build(
    mut builder: Builder,
    view: Arc<View>,
    wanted: Wanted,
    builds: Arc<Semaphore>,
) -> (Builder, Result<Built>) {
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
    record_build(mount, &result, started.elapsed());
    (builder, result)
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
