//! Tidy: removal of what has expired, in small steps that nobody notices.
//!
//! A run is asked for ([`Authority::tidy`]) or starts by itself ([`Engine::tidy_due`], as
//! `config/auto-tidy` says). A mount has one run at a time, whatever the number of nodes: its turn is a
//! row that counts for a limited time and that every step of the run renews, together with what the step
//! removes (`run`). A certificate that is revoked and has not expired is never removed, nor is its
//! revocation: only rows whose end of validity is past by a buffer of at least a second are looked at. A revocation stays
//! until it was on a complete CRL that was issued after that end (RFC 5280 3.3); a run that finds some that were on none
//! makes one first. However a run ends, the lists are made of what it has left.
//! Whether a certificate has expired is read from its row, not from its DER.
//!
//! What it is to do is in the [settings](crate::pki::mount::settings::tidy), what a run reports in [`report`].
//! Called by the handlers of `tidy`, `tidy-status`, `tidy-cancel` and `config/auto-tidy`, and by the
//! composition root.

pub mod report;
mod run;

use std::sync::Arc;
use std::time::Duration;

use self::report::Report;
use self::run::{Run, TURN};
use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::pki::actor::Planned;
use crate::pki::engine::tidying::{Signals, is_due};
use crate::pki::engine::{Authority, Engine};
use crate::pki::mount::settings::tidy::{AutoTidy, Config};
use crate::pki::store::{PkiOutcome, PkiWrite, TidyRow};
use crate::telemetry;

/// Tries to begin a run while others begin and end.
const BEGIN_TRIES: usize = 5;
/// After a failure to look whether a run is due: no other look within this time.
const QUIET: Duration = Duration::from_secs(60);

/// The number of a run, another for each: a run whose turn lapsed must not take the next one's for its own.
/// Never zero, which is that of none.
fn run_id() -> i64 {
    (i64::from_le_bytes(crate::random::bytes()) & i64::MAX).max(1)
}

/// How far tidying is in a mount.
pub struct Status {
    /// The last run, or the one under way.
    pub report: Option<Report>,
    /// How many certificates and revocations are stored, where the settings want that counted.
    pub stored: Option<(u64, u64)>,
}

/// Why a run begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Asked,
    Due { interval: u64 },
}

impl Authority {
    /// Begins a run, unless one is under way; whether it did. The run outlives the caller.
    ///
    /// # Errors
    /// `Invalid` naming the rule that the configuration breaks; `Unavailable` or `Busy` from storage.
    pub async fn tidy(self: &Arc<Self>, config: Config) -> Result<bool> {
        let config = config.checked()?;
        // A task of its own: a caller that leaves must not separate the turn from whoever uses it.
        let authority = Arc::clone(self);
        let begin = async move { authority.begin_tidy(config, Why::Asked).await };
        self.tidying().spawn(begin).await.map_err(Error::internal)?
    }

    async fn begin_tidy(self: &Arc<Self>, config: Config, why: Why) -> Result<bool> {
        for _ in 0..BEGIN_TRIES {
            let now = self.tools().clock.now();
            let (seen, last) = self.last_tidy(now).await?;
            if last.as_ref().is_some_and(Report::is_under_way) {
                return Ok(false);
            }
            if let (Why::Due { interval }, Some(last)) = (why, &last)
                && !is_due(last.reckoned_from(), interval, now)
            {
                return Ok(false);
            }
            let report = Report::begin(config.clone(), now, last.as_ref());
            let id = run_id();
            let row = TidyRow {
                mount: self.mount(),
                run: id,
                valid_until: (now + TURN).unix_timestamp(),
                cancelled: false,
                report: report.bytes(),
            };
            let begin = PkiWrite::TidyBegin { row, seen, now: now.unix_timestamp() };
            if self.tools().store.commit(vec![begin]).await?.contains(&PkiOutcome::Changed(1)) {
                self.start_tidy(id, report);
                return Ok(true);
            }
            // Another one was first.
        }
        Err(Error::new(Kind::Busy, "tidy: other runs begin and end at this moment"))
    }

    fn start_tidy(self: &Arc<Self>, id: i64, report: Report) {
        let signals = Arc::new(Signals::default());
        let (authority, own) = (Arc::clone(self), Arc::clone(&signals));
        let run = Run { authority, id, report, signals: own, revocations_changed: false, revocations_moved: false };
        self.tidying().begun(signals, self.tidying().spawn(run.carry_out()));
    }

    /// The number and the report of the last run, or the one under way.
    async fn last_tidy(&self, now: Time) -> Result<(i64, Option<Report>)> {
        let Some(row) = self.tools().store.tidy(self.mount()).await? else { return Ok((0, None)) };
        let report = Report::read(&row, now)?;
        self.tidying().reckon_from(report.reckoned_from());
        Ok((row.run, Some(report)))
    }

    /// How far tidying is.
    ///
    /// # Errors
    /// `Unavailable` from storage.
    pub async fn tidy_status(&self) -> Result<Status> {
        let (_, report) = self.last_tidy(self.tools().clock.now()).await?;
        let stored = match self.view().auto_tidy.value.maintain_counts {
            true => Some(self.tools().store.counts(self.mount()).await?),
            false => None,
        };
        Ok(Status { report, stored })
    }

    /// Asks the run under way to end after the step that it is at, wherever it runs; false when there is
    /// none.
    ///
    /// # Errors
    /// `Unavailable` from storage.
    pub async fn tidy_cancel(&self) -> Result<bool> {
        let now = self.tools().clock.now().unix_timestamp();
        let cancel = PkiWrite::TidyCancel { mount: self.mount(), now };
        let asked = self.tools().store.commit(vec![cancel]).await?.contains(&PkiOutcome::Changed(1));
        self.tidying().wake();
        Ok(asked)
    }
}

/// Writes `config/auto-tidy`: what `merge` makes of what stands.
///
/// # Errors
/// What `merge` refuses; `Invalid` naming the field and the rule.
pub async fn write_config(
    authority: &Authority,
    merge: impl Fn(&AutoTidy) -> Result<AutoTidy> + Send + 'static,
) -> Result<()> {
    authority
        .change(move |view| {
            let mut next = view.clone();
            let writes = vec![next.set_auto_tidy(merge(&view.auto_tidy.value)?.checked()?)];
            Ok((Planned { view: next, writes, crls: false }, ()))
        })
        .await
}

impl Engine {
    /// Begins the runs that are due by `config/auto-tidy`. To be called every second or so.
    pub async fn tidy_due(&self) {
        let Ok(now) = self.tools().clock.agreed_now() else { return };
        for authority in self.authorities() {
            let view = authority.view();
            let config = &view.auto_tidy.value;
            if !authority.tidying().may_be_due(config, now) {
                continue;
            }
            let why = Why::Due { interval: config.interval };
            if let Err(error) = authority.begin_tidy(config.what.clone(), why).await {
                authority.tidying().quiet_until(now + QUIET);
                if let Some(why) = telemetry::outage::told(&error) {
                    let mount = telemetry::mount_path(authority.mount().0);
                    tracing::warn!(mount, "tidy is due and cannot begin: {why}");
                }
            }
        }
    }

    /// Publishes how much is stored, of the mounts whose `config/auto-tidy` wants that.
    pub async fn publish_counts(&self) {
        let (mut certificates, mut revocations) = (0, 0);
        for authority in self.authorities().filter(|a| a.view().auto_tidy.value.publish_counts) {
            match self.tools().store.counts(authority.mount()).await {
                Ok(counts) => {
                    certificates += counts.0;
                    revocations += counts.1;
                }
                // The last numbers stay.
                Err(error) => return telemetry::not_done("the stored certificates cannot be counted", &error),
            }
        }
        metrics::gauge!(telemetry::PKI_STORED_CERTIFICATES).set(certificates as f64);
        metrics::gauge!(telemetry::PKI_STORED_REVOCATIONS).set(revocations as f64);
    }

    /// Ends the runs of this server after the steps that they are at.
    pub async fn stop_tidying(&self) {
        for authority in self.authorities() {
            authority.tidying().stop().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_number_of_its_own() {
        let ids: std::collections::BTreeSet<i64> = (0..1000).map(|_| run_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| *id > 0));
    }
}
