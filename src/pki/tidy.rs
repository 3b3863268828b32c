//! Tidy: removal of what has expired, in small steps that nobody notices.
//!
//! A run is asked for ([`Authority::tidy`]) or starts by itself ([`Engine::tidy_due`], as
//! `config/auto-tidy` says). A mount has one run at a time, whatever the number of nodes: its turn is a
//! row that counts for a limited time and that every step of the run renews, together with what the step
//! removes ([`run`]). A certificate that is revoked and has not expired is never removed, nor is its
//! revocation: only rows whose end of validity is past by a buffer of at least a second are looked at.
//! Whether a certificate has expired is read from its row, not from its DER.
//!
//! Fields are in [`config`], what a run reports in [`report`]. Called by the handlers of `tidy`,
//! `tidy-status`, `tidy-cancel` and `config/auto-tidy`, and by the composition root.

pub mod config;
pub mod report;
mod run;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub use self::config::{AutoTidy, Config, Task};
use self::report::{Report, micros};
use self::run::{Run, TURN};
use super::actor::Planned;
use super::store::{PkiOutcome, PkiWrite, TidyRow};
use super::{Authority, Engine};
use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use crate::telemetry;

/// Tries to begin a run while others begin and end.
const BEGIN_TRIES: usize = 5;
/// After a failure to look whether a run is due: no other look within this time.
const QUIET: Duration = Duration::from_secs(60);

/// Words from the server to a run.
#[derive(Default)]
struct Signals {
    wake: Notify,
    stopping: AtomicBool,
}

impl Signals {
    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// What this node knows of the tidying of a mount.
pub(super) struct Tidying {
    background: Handle,
    /// When the mount was opened here.
    opened_at: Time,
    /// Where in the range of the start-up delays this node has its first run, 0 to 255.
    share: u8,
    /// From when on the next automatic run is reckoned, as far as it was read; epoch microseconds.
    reckoned_from: AtomicI64,
    /// No look before this; epoch microseconds.
    quiet_until: AtomicI64,
    run: Mutex<Option<(Arc<Signals>, JoinHandle<()>)>>,
}

impl Tidying {
    pub(super) fn new(background: Handle, opened_at: Time) -> Self {
        Self {
            background,
            opened_at,
            share: crate::random::bytes::<1>()[0],
            reckoned_from: AtomicI64::new(i64::MIN),
            quiet_until: AtomicI64::new(i64::MIN),
            run: Mutex::default(),
        }
    }

    /// Whether, as far as this node knows, a run is due.
    fn may_be_due(&self, config: &AutoTidy, now: Time) -> bool {
        let delay = config.min_startup_backoff
            + (config.max_startup_backoff - config.min_startup_backoff) * u64::from(self.share) / 255;
        config.enabled
            && now - self.opened_at >= Duration::from_secs(delay)
            && micros(now) >= self.quiet_until.load(Ordering::Relaxed)
            && is_due(self.reckoned_from.load(Ordering::Relaxed), config.interval, now)
    }

    fn begun(&self, signals: Arc<Signals>, task: JoinHandle<()>) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some((signals, task));
    }

    /// Wakes the run of this node, if there is one.
    fn wake(&self) {
        if let Some((signals, _)) = &*self.run.lock().unwrap_or_else(PoisonError::into_inner) {
            signals.wake.notify_one();
        }
    }

    /// Ends the run of this node after the step that it is at.
    async fn stop(&self) {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((signals, task)) = run {
            signals.stopping.store(true, Ordering::Relaxed);
            signals.wake.notify_one();
            let _ = task.await;
        }
    }
}

/// Whether so many seconds have passed since then.
fn is_due(since: i64, interval: u64, now: Time) -> bool {
    let interval = i64::try_from(interval).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    micros(now) >= since.saturating_add(interval)
}

/// The number of a run, another for each: a run whose turn lapsed must not take the next one's for its own.
/// Never zero, which is that of none.
fn run_id() -> i64 {
    (i64::from_le_bytes(crate::random::bytes()) & i64::MAX).max(1)
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
    /// `Unavailable` or `Busy` from storage.
    pub async fn tidy(self: &Arc<Self>, config: Config) -> Result<bool> {
        // A task of its own: a caller that leaves must not separate the turn from whoever uses it.
        let authority = Arc::clone(self);
        let begin = async move { authority.begin_tidy(config, Why::Asked).await };
        self.tidying.background.spawn(begin).await.map_err(Error::internal)?
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
        self.tidying.begun(signals, self.tidying.background.spawn(run.carry_out()));
    }

    /// The number and the report of the last run, or the one under way.
    async fn last_tidy(&self, now: Time) -> Result<(i64, Option<Report>)> {
        let Some(row) = self.tools().store.tidy(self.mount()).await? else { return Ok((0, None)) };
        let report = Report::read(&row, now)?;
        self.tidying.reckoned_from.store(report.reckoned_from(), Ordering::Relaxed);
        Ok((row.run, Some(report)))
    }

    /// The members of `tidy-status`, but for the mount's own.
    ///
    /// # Errors
    /// `Unavailable` from storage.
    pub async fn tidy_status(&self) -> Result<Map<String, Value>> {
        let (_, report) = self.last_tidy(self.tools().clock.now()).await?;
        let mut members = report::status(report.as_ref());
        if self.view().auto_tidy.value.maintain_counts {
            let (certificates, revocations) = self.tools().store.counts(self.mount()).await?;
            members.insert("current_cert_store_count".to_owned(), json!(certificates));
            members.insert("current_revoked_cert_count".to_owned(), json!(revocations));
        }
        Ok(members)
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
        self.tidying.wake();
        Ok(asked)
    }
}

/// Writes `config/auto-tidy`; members that are absent stay.
///
/// # Errors
/// `Invalid` naming the field and the rule.
pub async fn write_config(authority: &Authority, fields: &Fields) -> Result<()> {
    let fields = fields.clone();
    authority
        .change(move |view| {
            let mut next = view.clone();
            let writes = vec![next.set_auto_tidy(view.auto_tidy.value.merged(&fields)?)];
            Ok((Planned { view: next, writes, crls: false }, ()))
        })
        .await
}

impl Engine {
    /// Begins the runs that are due by `config/auto-tidy`. To be called every second or so.
    pub async fn tidy_due(&self) {
        let now = self.tools.clock.now();
        for authority in self.all() {
            let view = authority.view();
            let config = &view.auto_tidy.value;
            if !authority.tidying.may_be_due(config, now) {
                continue;
            }
            let why = Why::Due { interval: config.interval };
            if let Err(error) = authority.begin_tidy(config.what.clone(), why).await {
                authority.tidying.quiet_until.store(micros(now + QUIET), Ordering::Relaxed);
                tracing::warn!(mount = authority.mount().0, %error, "tidy is due and cannot begin");
            }
        }
    }

    /// Publishes how much is stored, of the mounts whose `config/auto-tidy` wants that.
    pub async fn publish_counts(&self) {
        let (mut certificates, mut revocations) = (0, 0);
        for authority in self.all().filter(|a| a.view().auto_tidy.value.publish_counts) {
            match self.tools.store.counts(authority.mount()).await {
                Ok(counts) => {
                    certificates += counts.0;
                    revocations += counts.1;
                }
                // The last numbers stay.
                Err(error) => return tracing::warn!(%error, "the stored certificates cannot be counted"),
            }
        }
        metrics::gauge!(telemetry::PKI_STORED_CERTIFICATES).set(certificates as f64);
        metrics::gauge!(telemetry::PKI_STORED_REVOCATIONS).set(revocations as f64);
    }

    /// Ends the runs of this server after the steps that they are at.
    pub async fn stop_tidying(&self) {
        for authority in self.all() {
            authority.tidying.stop().await;
        }
    }

    fn all(&self) -> impl Iterator<Item = Arc<Authority>> + use<> {
        self.authorities.load().values().cloned().collect::<Vec<_>>().into_iter()
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

    #[tokio::test]
    async fn a_run_is_due_after_the_delay_of_the_start_and_the_interval() {
        let opened = Time::UNIX_EPOCH + Duration::from_secs(10_000);
        let mut tidying = Tidying::new(Handle::current(), opened);
        let config = AutoTidy {
            enabled: true,
            interval: 100,
            min_startup_backoff: 5,
            max_startup_backoff: 15,
            ..AutoTidy::default()
        };
        let after = |seconds| opened + Duration::from_secs(seconds);
        for (share, delay) in [(0, 5), (255, 15)] {
            tidying.share = share;
            assert!(!tidying.may_be_due(&config, after(delay - 1)) && tidying.may_be_due(&config, after(delay)));
        }
        assert!(!tidying.may_be_due(&AutoTidy { enabled: false, ..config.clone() }, after(999)));
        tidying.reckoned_from.store(micros(after(20)), Ordering::Relaxed);
        assert!(!tidying.may_be_due(&config, after(119)) && tidying.may_be_due(&config, after(120)));
        tidying.quiet_until.store(micros(after(200)), Ordering::Relaxed);
        assert!(!tidying.may_be_due(&config, after(199)) && tidying.may_be_due(&config, after(200)));
    }
}
