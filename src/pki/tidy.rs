//! Removes expired data in small steps that do not delay other requests.
//!
//! A run is requested ([`Authority::tidy`]) or starts automatically ([`Engine::start_due_tidy_runs`]). Each mount has
//! one run at a time across all nodes; a lease row, which every step renews, ensures this. A row is removed when a
//! safety buffer has passed since the notAfter in the row (not in the DER); revoked certificates have a buffer of their
//! own. A revocation remains until a complete CRL issued after its certificate expired has listed it (RFC 5280 3.3); if
//! necessary the run builds such a CRL first. A run that removed revocations ends by rebuilding the CRLs, even if it
//! failed.

pub mod report;
mod run;

use std::sync::Arc;
use std::time::Duration;

use self::report::TidyReport;
use self::run::{RUN_LEASE_DURATION, TidyRun};
use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::pki::actor::PlannedChange;
use crate::pki::engine::tidy_controller::{TidySignals, is_due};
use crate::pki::engine::{Authority, Engine};
use crate::pki::mount::settings::tidy::{AutoTidyConfig, TidyConfig};
use crate::pki::store::{PkiOutcome, PkiWrite, TidyRow};
use crate::telemetry;

/// Maximum number of attempts to start a run while runs on other nodes start and end.
const MAX_BEGIN_ATTEMPTS: usize = 5;
/// Pause before the next attempt after a due run could not be started.
const TIDY_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Returns a random positive id (0 means no run). Because ids differ, a run whose lease expired cannot renew the lease
/// of the next run.
fn random_run_id() -> i64 {
    (i64::from_le_bytes(crate::random::bytes()) & i64::MAX).max(1)
}

/// Tidy status of a mount.
pub struct TidyStatus {
    /// Report of the current or last run.
    pub report: Option<TidyReport>,
    /// Numbers of stored certificates and revocations, if the settings enable `maintain_stored_certificate_counts`.
    pub stored: Option<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TidyRunCause {
    Requested,
    Due { interval: u64 },
}

impl Authority {
    /// Starts a tidy run; returns `false` if another run is active. The run outlives the request.
    ///
    /// # Errors
    /// `Invalid` naming the rule that the configuration breaks; `Unavailable` or `Busy` from storage.
    pub async fn tidy(self: &Arc<Self>, config: TidyConfig) -> Result<bool> {
        let config = config.checked()?;
        // Runs as a task of its own, so that a client disconnect does not leave a lease without its run.
        let authority = Arc::clone(self);
        let begin = async move { authority.begin_tidy(config, TidyRunCause::Requested).await };
        self.tidy_controller().spawn(begin).await.map_err(Error::internal)?
    }

    async fn begin_tidy(self: &Arc<Self>, config: TidyConfig, why: TidyRunCause) -> Result<bool> {
        for _ in 0..MAX_BEGIN_ATTEMPTS {
            let now = self.deps().clock.now();
            let (seen, last) = self.last_tidy(now).await?;
            if last.as_ref().is_some_and(TidyReport::is_running) {
                return Ok(false);
            }
            if let (TidyRunCause::Due { interval }, Some(last)) = (why, &last)
                && !is_due(last.interval_start(), interval, now)
            {
                return Ok(false);
            }
            let report = TidyReport::begin(config.clone(), now, last.as_ref());
            let id = random_run_id();
            let row = TidyRow {
                mount: self.mount(),
                run: id,
                valid_until: (now + RUN_LEASE_DURATION).unix_timestamp(),
                cancelled: false,
                report: report.bytes(),
            };
            let begin = PkiWrite::TidyBegin { row, seen, now: now.unix_timestamp() };
            if self.deps().store.commit(vec![begin]).await?.contains(&PkiOutcome::Changed(1)) {
                self.start_tidy(id, report);
                return Ok(true);
            }
            // Another run started first, so read the state again and retry.
        }
        Err(Error::new(Kind::Busy, "tidy: other runs are starting and ending; retry"))
    }

    fn start_tidy(self: &Arc<Self>, id: i64, report: TidyReport) {
        let signals = Arc::new(TidySignals::default());
        let authority = Arc::clone(self);
        let own = Arc::clone(&signals);
        let run = TidyRun { authority, id, report, signals: own, revocations_changed: false, revocations_moved: false };
        self.tidy_controller().set_run(signals, self.tidy_controller().spawn(run.execute()));
    }

    /// Returns the id and report of the current or last run; id 0 and no report if there was none.
    async fn last_tidy(&self, now: Time) -> Result<(i64, Option<TidyReport>)> {
        let Some(row) = self.deps().store.tidy(self.mount()).await? else { return Ok((0, None)) };
        let report = TidyReport::read(&row, now)?;
        self.tidy_controller().set_interval_start(report.interval_start());
        Ok((row.run, Some(report)))
    }

    /// Returns the tidy status of the mount.
    ///
    /// # Errors
    /// `Unavailable` from storage.
    pub async fn tidy_status(&self) -> Result<TidyStatus> {
        let (_, report) = self.last_tidy(self.deps().clock.now()).await?;
        let stored = match self.view().auto_tidy.value.maintain_stored_certificate_counts {
            true => Some(self.deps().store.counts(self.mount()).await?),
            false => None,
        };
        Ok(TidyStatus { report, stored })
    }

    /// Requests the active run of the mount, on any node, to stop after its current step; returns `false` if there is
    /// none.
    ///
    /// # Errors
    /// `Unavailable` from storage.
    pub async fn tidy_cancel(&self) -> Result<bool> {
        let now = self.deps().clock.now().unix_timestamp();
        let cancel = PkiWrite::TidyCancel { mount: self.mount(), now };
        let requested = self.deps().store.commit(vec![cancel]).await?.contains(&PkiOutcome::Changed(1));
        self.tidy_controller().wake();
        Ok(requested)
    }
}

/// Replaces the settings `config/auto-tidy` with those that `merge` returns for the current settings.
///
/// # Errors
/// Those of `merge`; `Invalid` naming the field and the rule.
pub async fn write_config(
    authority: &Authority,
    merge: impl Fn(&AutoTidyConfig) -> Result<AutoTidyConfig> + Send + 'static,
) -> Result<()> {
    authority
        .change(move |view| {
            let mut next = view.clone();
            let writes = vec![next.set_auto_tidy(merge(&view.auto_tidy.value)?.checked()?)];
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, ()))
        })
        .await
}

impl Engine {
    /// Starts the runs that are due by `config/auto-tidy`. Called about every second.
    pub async fn start_due_tidy_runs(&self) {
        let Ok(now) = self.deps().clock.synchronized_now() else { return };
        for authority in self.authorities() {
            let view = authority.view();
            let config = &view.auto_tidy.value;
            if !authority.tidy_controller().may_be_due(config, now) {
                continue;
            }
            let why = TidyRunCause::Due { interval: config.interval_duration };
            if let Err(error) = authority.begin_tidy(config.run_config.clone(), why).await {
                authority.tidy_controller().suppress_until(now + TIDY_RETRY_DELAY);
                if let Some(why) = telemetry::outage::describe_for_log(&error) {
                    let mount = telemetry::mount_path(authority.mount().0);
                    tracing::warn!(mount, "an automatic tidy run is due but cannot start: {why}");
                }
            }
        }
    }

    /// Publishes the numbers of stored certificates and revocations as metrics, for mounts with
    /// `publish_stored_certificate_count_metrics`.
    pub async fn publish_row_counts(&self) {
        let mut certificates = 0;
        let mut revocations = 0;
        for authority in
            self.authorities().filter(|a| a.view().auto_tidy.value.publish_stored_certificate_count_metrics)
        {
            match self.deps().store.counts(authority.mount()).await {
                Ok(counts) => {
                    certificates += counts.0;
                    revocations += counts.1;
                }
                // After an error the metrics keep their last values.
                Err(error) => return telemetry::warn_task_failed("the stored certificates cannot be counted", &error),
            }
        }
        metrics::gauge!(telemetry::PKI_STORED_CERTIFICATES).set(certificates as f64);
        metrics::gauge!(telemetry::PKI_STORED_REVOCATIONS).set(revocations as f64);
    }

    /// Stops the tidy runs of this node after their current steps, and waits for their end.
    pub async fn stop_tidy_runs(&self) {
        for authority in self.authorities() {
            authority.tidy_controller().stop().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tidy_runs_have_unique_numbers() {
        let ids: std::collections::BTreeSet<i64> = (0..1000).map(|_| random_run_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| *id > 0));
    }
}
