//! Executes one tidy run.
//!
//! Each step is one unit of writes: it renews the run's lease, which fails if another run has taken over, and removes a
//! limited number of rows. Progress is only in the rows themselves, so the next run continues an interrupted one.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::time::{sleep, timeout};

use super::report::{TidyCounts, TidyReport, TidyRunState};
use crate::error::{Error, Kind, Result};
use crate::pki::actor::PlannedChange;
use crate::pki::engine::Authority;
use crate::pki::engine::tidy_controller::{TidySignals, epoch_micros};
use crate::pki::mount::issuer::Issuer;
use crate::pki::mount::profile::certificate_pem;
use crate::pki::mount::settings::tidy::TidyTask;
use crate::pki::mount::view::MountView;
use crate::pki::store::{PkiOutcome, PkiWrite, RemovableRevocations, Removal, RemovalResult, StoredRevocation};
use crate::telemetry;
use crate::x509::certificate::Certificate;
use crate::x509::serial::Serial;

/// Maximum number of rows that a step visits. A step occupies the store's single writer for a few milliseconds.
const MAX_ROWS_PER_STEP: u32 = 250;
/// Minimum pause between two steps, so that issuing certificates takes precedence.
const MIN_STEP_PAUSE: Duration = Duration::from_millis(10);
/// Maximum sum of the configured pauses for the rows of one step.
const MAX_STEP_PAUSE: Duration = Duration::from_secs(1);
/// Validity of the run's lease after each renewal.
pub(super) const RUN_LEASE_DURATION: Duration = Duration::from_secs(60);
/// Maximum time between two renewals of the run's lease.
const MAX_RENEWAL_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of attempts, one per second, to commit a step while the store's queue is full.
const MAX_BUSY_ATTEMPTS: u32 = 60;
/// Maximum number of attempts to store the end of the run.
const MAX_RECORD_END_ATTEMPTS: u32 = 5;

enum TidyEarlyEnd {
    Cancelled,
    Failed(Error),
}

impl From<Error> for TidyEarlyEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type TidyStepResult<T> = std::result::Result<T, TidyEarlyEnd>;

pub(super) struct TidyRun {
    pub(super) authority: Arc<Authority>,
    pub(super) id: i64,
    pub(super) report: TidyReport,
    pub(super) signals: Arc<TidySignals>,
    /// `true` if revocations were removed or changed, so CRLs must be rebuilt.
    pub(super) revocations_changed: bool,
    /// `true` if revocations were assigned to another issuer and thus to another CRL.
    pub(super) revocations_moved: bool,
}

impl TidyRun {
    pub(super) async fn execute(mut self) {
        let started = Instant::now();
        metrics::gauge!(telemetry::PKI_TIDY_RUNNING).increment(1);
        let done = catch_panic(self.run_tasks()).await;
        // Rebuild CRLs even after a failure, because removed revocations remain on the CRLs until then.
        let done = done.and(catch_panic(self.rebuild_crls()).await);
        let now = self.authority.deps().clock.now();
        self.report.message = None;
        self.report.finished = Some(epoch_micros(now));
        let result = match done {
            Ok(()) => {
                self.report.state = TidyRunState::Finished;
                self.report.last_success = self.report.finished;
                metrics::gauge!(telemetry::PKI_TIDY_LAST_SUCCESS).set(now.unix_timestamp() as f64);
                "done"
            }
            Err(TidyEarlyEnd::Cancelled) => {
                self.report.state = TidyRunState::Cancelled;
                "cancelled"
            }
            Err(TidyEarlyEnd::Failed(error)) => {
                if let Some(why) = telemetry::outage::describe_for_log(&error) {
                    tracing::warn!(mount = self.mount_path(), "a tidy run failed: {why}");
                }
                self.report.state = TidyRunState::Error;
                self.report.error = Some(error.text().to_owned());
                "failed"
            }
        };
        self.record_end().await;
        let took = started.elapsed();
        metrics::gauge!(telemetry::PKI_TIDY_RUNNING).decrement(1);
        metrics::histogram!(telemetry::PKI_TIDY_SECONDS).record(took.as_secs_f64());
        metrics::counter!(telemetry::PKI_TIDY_RUNS, "result" => result).increment(1);
        let mount = self.mount_path();
        let seconds = took.as_secs_f64();
        let TidyCounts { certificates, revocations, missing_issuers, metadata, issuers } = self.report.counts;
        tracing::info!(
            mount,
            result,
            seconds,
            certificates,
            revocations,
            missing_issuers,
            metadata,
            issuers,
            "a tidy run ended"
        );
    }

    fn mount_path(&self) -> String {
        telemetry::mount_path(self.authority.mount().0)
    }

    async fn run_tasks(&mut self) -> TidyStepResult<()> {
        let config = self.report.config.clone();
        let has = |task| config.tasks.contains(&task);
        let before = self.cutoff_before_start(config.safety_buffer);
        let revoked_before = self.cutoff_before_start(config.revoked_safety_buffer_seconds());
        if has(TidyTask::Certificates) {
            self.set_step("removing expired certificates");
            self.remove_in_steps(|last| Removal::Certificates { before, revoked_before, after: last }).await?;
        }
        if has(TidyTask::Unreadable) {
            self.set_step("looking for certificates that cannot be read");
            self.remove_unreadable_certificates(revoked_before).await?;
        }
        if has(TidyTask::Revocations) {
            self.set_step("removing expired revocations");
            self.remove_revocations(revoked_before).await?;
        }
        if has(TidyTask::Associations) {
            self.set_step("looking for the issuers of revocations");
            self.assign_missing_issuers().await?;
        }
        if has(TidyTask::Metadata) {
            self.set_step("removing metadata of expired certificates");
            self.remove_in_steps(|_| Removal::Metadata { before }).await?;
        }
        if has(TidyTask::Issuers) {
            self.set_step("removing expired issuers");
            self.remove_issuers(self.cutoff_before_start(config.issuer_safety_buffer)).await?;
        }
        if self.revocations_changed {
            self.set_step("building CRLs");
            self.commit_step(Vec::new).await?;
        }
        Ok(())
    }

    /// Rebuilds the CRLs if revocations changed. Skipped if the server is stopping, because it reads all revocations at
    /// its next start.
    async fn rebuild_crls(&self) -> TidyStepResult<()> {
        if !self.revocations_changed || self.signals.is_stopping() {
            return Ok(());
        }
        self.authority.reload_revocations(self.revocations_moved).await?;
        Ok(())
    }

    /// Removes revocations of certificates that expired before `before`, if a CRL issued after the expiry has listed
    /// them (RFC 5280 3.3).
    async fn remove_revocations(&mut self, before: i64) -> TidyStepResult<()> {
        let store = Arc::clone(&self.authority.deps().store);
        let mount = self.authority.mount();
        let crl_built =
            match store.has_unlisted_revocations(mount, before, self.authority.removable_revocations()).await? {
                true => {
                    self.commit_step(Vec::new).await?;
                    self.authority.publish_complete_crls().await
                }
                false => Ok(()),
            };
        let listed = self.authority.removable_revocations();
        let listed = RemovableRevocations { before: before.min(listed.before), ..listed };
        let removed = self.remove_in_steps(|_| Removal::Revocations(listed)).await;
        // A failed write may nevertheless have removed rows.
        self.revocations_changed |= matches!(removed, Err(TidyEarlyEnd::Failed(_)));
        removed?;
        // If the CRL build failed, only revocations on earlier CRLs were removed, and a later run removes the others.
        crl_built.map_err(TidyEarlyEnd::from)
    }

    fn set_step(&mut self, what: &str) {
        self.report.message = Some(format!("Tidying: {what}"));
    }

    /// Returns the time (epoch seconds) that is `buffer` seconds before the start of the run.
    fn cutoff_before_start(&self, buffer: u64) -> i64 {
        self.report.started.div_euclid(1_000_000).saturating_sub_unsigned(buffer)
    }

    /// Returns the maximum number of rows in a step, such that the configured pauses for them take at most one second.
    fn rows_per_step(&self) -> u32 {
        let page =
            u32::try_from(self.report.config.page_size).ok().filter(|size| *size > 0).unwrap_or(MAX_ROWS_PER_STEP);
        let pause = self.report.config.pause().as_nanos().max(1);
        let paused = u32::try_from(MAX_STEP_PAUSE.as_nanos() / pause).unwrap_or(MAX_ROWS_PER_STEP).max(1);
        page.min(MAX_ROWS_PER_STEP).min(paused)
    }

    async fn remove_in_steps(&mut self, what: impl Fn(Option<(i64, Serial)>) -> Removal) -> TidyStepResult<()> {
        let mount = self.authority.mount();
        let limit = self.rows_per_step();
        let mut last = None;
        loop {
            let started = Instant::now();
            let removed = self.commit_step(|| vec![PkiWrite::Remove { mount, what: what(last), limit }]).await?;
            last = removed.last;
            if removed.visited < limit {
                return Ok(());
            }
            self.pause(removed.visited, started.elapsed()).await?;
        }
    }

    /// Commits the renewal of the run's lease and `writes` in one unit, and counts removed rows. Returns an error if
    /// the run was cancelled.
    async fn commit_step(&mut self, writes: impl Fn() -> Vec<PkiWrite>) -> TidyStepResult<RemovalResult> {
        self.authority.deps().clock.require_synchronized()?;
        for _ in 0..MAX_BUSY_ATTEMPTS {
            let unit = std::iter::once(self.renew_lease(Some(RUN_LEASE_DURATION))).chain(writes()).collect();
            match self.authority.deps().store.commit(unit).await {
                Ok(outcomes) => return self.count_removed(outcomes),
                Err(error) if error.kind() == Kind::Busy && !self.signals.is_stopping() => {
                    self.wait(Duration::from_secs(1)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(TidyEarlyEnd::Failed(Error::new(Kind::Busy, "the queue of the store remained full")))
    }

    fn renew_lease(&self, lasts: Option<Duration>) -> PkiWrite {
        let now = self.authority.deps().clock.now();
        PkiWrite::TidyRenew {
            mount: self.authority.mount(),
            run: self.id,
            valid_until: lasts.map_or(0, |duration| (now + duration).unix_timestamp()),
            report: self.report.bytes(),
        }
    }

    fn count_removed(&mut self, outcomes: Vec<PkiOutcome>) -> TidyStepResult<RemovalResult> {
        let mut sum = RemovalResult::default();
        let mut cancelled = self.signals.is_stopping();
        for outcome in outcomes {
            match outcome {
                PkiOutcome::TidyRenewed { cancelled: is_cancelled } => cancelled |= is_cancelled,
                PkiOutcome::Removed(removed) => sum = removed,
                _ => {}
            }
        }
        let counts = &mut self.report.counts;
        counts.certificates += u64::from(sum.certificates);
        counts.revocations += u64::from(sum.revocations);
        counts.metadata += u64::from(sum.metadata);
        self.revocations_changed |= sum.revocations > 0;
        for (kind, count) in
            [("certificate", sum.certificates), ("revocation", sum.revocations), ("metadata", sum.metadata)]
        {
            count_tidied(kind, u64::from(count));
        }
        match cancelled {
            true if self.signals.is_stopping() => {
                Err(TidyEarlyEnd::Failed(Error::new(Kind::Unavailable, "the server stopped during the run")))
            }
            true => Err(TidyEarlyEnd::Cancelled),
            false => Ok(sum),
        }
    }

    /// Pauses for the configured time per visited row, at least as long as the step took, and renews the lease
    /// meanwhile.
    async fn pause(&mut self, visited: u32, worked: Duration) -> TidyStepResult<()> {
        let mut left = self.report.config.pause().saturating_mul(visited).max(worked).max(MIN_STEP_PAUSE);
        while !left.is_zero() {
            let part = left.min(MAX_RENEWAL_INTERVAL);
            let woken = self.wait_or_wake(part).await;
            left -= part;
            if woken || !left.is_zero() {
                self.commit_step(Vec::new).await?;
            }
        }
        Ok(())
    }

    async fn wait(&self, time: Duration) {
        self.wait_or_wake(time).await;
    }

    async fn wait_or_wake(&self, time: Duration) -> bool {
        if time <= MIN_STEP_PAUSE {
            sleep(time).await;
            return self.signals.is_stopping();
        }
        timeout(time, self.signals.wake.notified()).await.is_ok()
    }

    /// Removes certificates whose DER cannot be parsed. Reads all certificates, without occupying the store's single
    /// writer.
    async fn remove_unreadable_certificates(&mut self, revoked_before: i64) -> TidyStepResult<()> {
        let mount = self.authority.mount();
        let limit = self.rows_per_step();
        let mut after = None;
        loop {
            let started = Instant::now();
            let page = self.authority.deps().store.certificates(mount, after, limit).await?;
            let full = page.len() == limit as usize;
            after = page.last().map(|(serial, _)| *serial);
            let unreadable = |page: Vec<(Serial, Vec<u8>)>| {
                page.into_iter().filter(|(_, der)| Certificate::parse(der).is_err()).map(|(serial, _)| serial).collect()
            };
            let serials: Vec<Serial> =
                tokio::task::spawn_blocking(move || unreadable(page)).await.map_err(Error::internal)?;
            for serial in &serials {
                tracing::warn!(mount = self.mount_path(), %serial, "a stored certificate cannot be read and is removed");
            }
            let what = (!serials.is_empty()).then_some(Removal::Named { serials, revoked_before });
            let removal = |what| PkiWrite::Remove { mount, what, limit };
            self.commit_step(|| what.clone().map(removal).into_iter().collect()).await?;
            if !full {
                return Ok(());
            }
            self.pause(limit, started.elapsed()).await?;
        }
    }

    /// Finds the issuers of revocations whose recorded issuer is missing in the mount, and assigns the revocations to
    /// them.
    async fn assign_missing_issuers(&mut self) -> TidyStepResult<()> {
        let mount = self.authority.mount();
        let limit = self.rows_per_step();
        let mut after = 0;
        loop {
            let started = Instant::now();
            let view = self.authority.view();
            let page = self.authority.deps().store.revocations(mount, after, limit).await?;
            let full = page.len() == limit as usize;
            after = page.last().map_or(after, |revocation| revocation.sequence);
            let missing: Vec<_> = page.into_iter().filter(|r| view.signer(&r.row.issuer).is_none()).collect();
            self.report.counts.missing_issuers += missing.len() as u64;
            let found = self.find_issuers(view, missing).await?;
            self.revocations_changed |= !found.is_empty();
            self.revocations_moved |= !found.is_empty();
            let write = |(serial, issuer): &(_, String)| PkiWrite::RevocationIssuer {
                mount,
                serial: *serial,
                issuer: issuer.clone(),
            };
            self.commit_step(|| found.iter().map(write).collect()).await?;
            if !full {
                return Ok(());
            }
            self.pause(limit, started.elapsed()).await?;
        }
    }

    async fn find_issuers(
        &self,
        view: Arc<MountView>,
        missing: Vec<StoredRevocation>,
    ) -> Result<Vec<(Serial, String)>> {
        let mount = self.authority.mount();
        let mut ders = Vec::with_capacity(missing.len());
        for revocation in missing {
            let serial = revocation.row.serial;
            let stored = self.authority.deps().store.certificate(mount, serial).await?;
            ders.extend(stored.map(|stored| (serial, stored.row.der)));
        }
        let find = move || {
            let of = |(serial, der): (Serial, Vec<u8>)| {
                let issuer = view.find_signing_issuer(&Certificate::parse(&der).ok()?)?;
                Some((serial, issuer.record.id.clone()))
            };
            ders.into_iter().filter_map(of).collect()
        };
        tokio::task::spawn_blocking(find).await.map_err(Error::internal)
    }

    /// Removes issuers that expired before `before`, except the default issuer and revoked issuers that no CRL has
    /// listed after their expiry.
    async fn remove_issuers(&mut self, before: i64) -> TidyStepResult<()> {
        self.commit_step(Vec::new).await?;
        let is_removable = move |view: &MountView, issuer: &Issuer, listed: i64| {
            let record = &issuer.record;
            let end = issuer.certificate.not_after();
            let is_unlisted = record.revoked_at.is_some() && end >= listed;
            end < before && !is_unlisted && !view.is_default_issuer(&record.id)
        };
        let view = self.authority.view();
        let listed = self.authority.removable_revocations().before;
        let unlisted =
            view.signers().any(|s| is_removable(&view, &s.issuer, i64::MAX) && !is_removable(&view, &s.issuer, listed));
        let crl_built = if unlisted { self.authority.publish_complete_crls().await } else { Ok(()) };
        let now = self.authority.deps().clock.now().unix_timestamp();
        let listed = self.authority.removable_revocations().before;
        let plan = move |view: &MountView| {
            let mut next = view.clone();
            let mut ended = Vec::new();
            for signer in view.signers() {
                let record = &signer.issuer.record;
                if is_removable(view, &signer.issuer, listed) {
                    let pem = certificate_pem(&signer.issuer);
                    tracing::info!(issuer = %record.id, name = %record.name, %pem, "an expired issuer is removed");
                    ended.push(record.id.clone());
                }
            }
            let writes = next.remove_issuers(&ended, now);
            // CRLs are rebuilt only once, at the end of the run.
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, ended.len() as u64))
        };
        let removed: u64 = self.authority.change(plan).await?;
        self.report.counts.issuers += removed;
        self.revocations_changed |= removed > 0;
        count_tidied("issuer", removed);
        crl_built.map_err(TidyEarlyEnd::from)
    }

    /// Stores the final report and releases the run's lease. If that fails, the lease expires by itself.
    async fn record_end(&self) {
        for _ in 0..MAX_RECORD_END_ATTEMPTS {
            match self.authority.deps().store.commit(vec![self.renew_lease(None)]).await {
                Err(error) if matches!(error.kind(), Kind::Busy | Kind::Unavailable) && !self.signals.is_stopping() => {
                    sleep(Duration::from_secs(1)).await;
                }
                Err(error) => return telemetry::warn_task_failed("the end of a tidy run was not recorded", &error),
                Ok(_) => return,
            }
        }
    }
}

async fn catch_panic(part: impl Future<Output = TidyStepResult<()>>) -> TidyStepResult<()> {
    let done = AssertUnwindSafe(part).catch_unwind().await;
    done.unwrap_or_else(|_| Err(TidyEarlyEnd::Failed(Error::internal("a panic was caught in a tidy run"))))
}

fn count_tidied(kind: &'static str, count: u64) {
    metrics::counter!(telemetry::PKI_TIDIED, "kind" => kind).increment(count);
}
