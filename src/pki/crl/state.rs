//! State of one issuer group in the CRL builder: entries, published CRLs and due times. Does no I/O.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entries::CrlEntries;
use super::guard::{self, CrlSummary};
use super::list::PublishedCrl;
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::pki::mount::settings::crl::CrlConfig;
use crate::telemetry;

/// Without `auto_rebuild`, a CRL is renewed this long before its nextUpdate. If a sixth of its lifetime is shorter,
/// that period applies instead.
const RENEW_BEFORE: Duration = Duration::from_secs(12 * 3600);
/// A CRL is renewed at least this long before its nextUpdate, because a build takes time. Below six minutes of
/// lifetime, a sixth of the lifetime applies instead.
const MIN_REMAINING_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of seconds by which thisUpdate of a CRL may be ahead of this node's clock. A larger difference means
/// that a clock was wrong, and that relying parties would reject the CRL.
const MAX_CLOCK_AHEAD_SECONDS: i64 = 120;

#[derive(Default)]
pub(super) struct CrlGroupState {
    /// Entries of all revocations up to the sequence number `covers`. The next complete CRL contains these entries and
    /// `new_entries`.
    pub(super) entries: CrlEntries,
    /// Entries that are not on the published complete CRL.
    pub(super) new_entries: CrlEntries,
    /// Highest sequence number of a revocation that was read for the group.
    pub(super) last_sequence: u64,
    /// Revocation time of the earliest revocation that is on no CRL yet.
    pub(super) waiting_since: Option<Time>,
    pub(super) complete: Option<Arc<PublishedCrl>>,
    pub(super) delta: Option<Arc<PublishedCrl>>,
    /// Highest sequence number of a revocation on the delta CRL or on its base CRL.
    pub(super) delta_last_sequence: u64,
    /// Entries of the published complete CRL.
    pub(super) complete_entries: CrlEntries,
    pub(super) covers: u64,
    /// `true` if the published CRL no longer matches this state, so that a new CRL is due under any settings.
    pub(super) stale: bool,
    /// `true` if, since the last publication, the entries were read again and not only extended.
    pub(super) rebuilt: bool,
    /// `true` if `rebuilt` is set because an operator changed issuers, so that entries may have moved to other CRLs.
    pub(super) moved: bool,
    /// Number of a stored complete CRL that could not be rebuilt; the builder does not try it again.
    pub(super) unreproducible_number: u64,
    /// End of the back-off after a failed build, and the error of that build.
    pub(super) backoff: Option<(Instant, Error)>,
}

impl CrlGroupState {
    pub(super) fn number(&self) -> u64 {
        self.delta.iter().chain(&self.complete).map(|list| list.number).max().unwrap_or(0)
    }

    /// Returns `true` if the group has any revocation to list.
    pub(super) fn has_entries(&self) -> bool {
        !self.entries.is_empty() || !self.new_entries.is_empty()
    }

    /// Drops all entries; the builder then reads them again. `moved` is `true` if entries may have moved to other CRLs.
    pub(super) fn drop_entries(&mut self, moved: bool) {
        self.entries = CrlEntries::default();
        self.new_entries = CrlEntries::default();
        self.last_sequence = 0;
        self.waiting_since = None;
        self.stale = true;
        self.rebuilt = true;
        self.moved |= moved;
    }

    /// Returns the sequence number up to which `entries` has all revocations; later ones are in `new_entries`.
    pub(super) fn read_up_to(&self) -> u64 {
        // Dropped entries are read again from the beginning and then count as new.
        if self.rebuilt { 0 } else { self.covers }
    }

    /// Drops the new entries, because the builder has read them again.
    pub(super) fn drop_new_entries(&mut self) {
        self.new_entries = CrlEntries::default();
        self.last_sequence = 0;
    }

    /// Returns `true` if a complete CRL is due. `wanted` is `true` if one was requested, and `issuers` is `true` if a
    /// revoked issuer is not listed yet. A published CRL with a number up to `floor` does not count, because relying
    /// parties may have seen a higher number elsewhere.
    pub(super) fn is_complete_crl_due(
        &self,
        config: &CrlConfig,
        wanted: bool,
        issuers: bool,
        floor: u64,
        now: i64,
    ) -> bool {
        let Some(complete) = self.complete.as_ref().filter(|list| list.number > floor) else { return true };
        let by_revocation = !config.auto_rebuild && !config.disable && (issuers || !self.new_entries.is_empty());
        // thisUpdate is legitimately ahead of this node's clock if a node with a fast clock recorded a listed
        // revocation.
        let ahead = complete.this_update
            > self.complete_entries.latest_revocation().unwrap_or(i64::MIN).max(now + MAX_CLOCK_AHEAD_SECONDS);
        wanted || self.stale || by_revocation || ahead || now >= renewal_time(config, complete)
    }

    pub(super) fn is_delta_crl_due(&self, config: &CrlConfig, wanted: bool, now: i64) -> bool {
        let on = config.enable_delta && !config.disable;
        on && (wanted || (self.has_unlisted_revocation() && now >= self.delta_crl_due_at(config)))
    }

    /// Returns `true` if a revocation, or the amended reason of a revocation, is on neither the complete nor the delta
    /// CRL.
    pub(super) fn has_unlisted_revocation(&self) -> bool {
        !self.new_entries.is_empty() && self.last_sequence > self.delta_last_sequence
    }

    /// Returns when the next delta CRL is due, epoch seconds.
    pub(super) fn delta_crl_due_at(&self, config: &CrlConfig) -> i64 {
        let interval = config.delta_rebuild_interval().as_secs() as i64;
        self.delta.as_ref().map_or(0, |delta| delta.made_at + interval)
    }

    /// Returns the time of the next check for due CRLs, epoch seconds. Without `auto_rebuild`, revocations trigger
    /// earlier builds.
    pub(super) fn next_check(&self, config: &CrlConfig, now: i64) -> Option<i64> {
        let complete = self.complete.as_ref()?;
        let delta = (config.enable_delta && !config.disable).then(|| match self.delta_crl_due_at(config) {
            past if past <= now => now + (config.delta_rebuild_interval().as_secs() as i64).max(1),
            time => time,
        });
        delta.into_iter().chain([renewal_time(config, complete)]).min()
    }

    pub(super) fn check_next_complete_crl(
        &self,
        number: u64,
        covers: u64,
        entries: &CrlEntries,
        now: i64,
        disabled: bool,
    ) -> Result<()> {
        let Some(complete) = &self.complete else { return Ok(()) };
        let explanation = match (disabled, self.moved) {
            (true, _) => Some("disable"),
            (false, true) => Some("issuers"),
            (false, false) => None,
        };
        let last = CrlSummary { number: complete.number, covers: self.covers, entries: &self.complete_entries };
        guard::check_next_crl(&last, &CrlSummary { number, covers, entries }, self.rebuilt, now, explanation)
    }

    pub(super) fn publish(
        &mut self,
        complete: PublishedCrl,
        delta: PublishedCrl,
        entries: CrlEntries,
        listed: CrlEntries,
        covers: u64,
    ) {
        self.complete = Some(Arc::new(complete));
        self.delta = Some(Arc::new(delta));
        self.entries = entries;
        self.complete_entries = listed;
        self.covers = covers;
        self.new_entries = CrlEntries::default();
        self.delta_last_sequence = self.last_sequence;
        self.stale = false;
        self.rebuilt = false;
        self.moved = false;
    }

    /// Records the publish delay as a metric: the time from the oldest revocation that was just listed until `now`.
    pub(super) fn record_publish_delay(&mut self, now: Time) {
        if let Some(since) = self.waiting_since.take() {
            metrics::histogram!(telemetry::PKI_CRL_PUBLISH_SECONDS).record((now - since).as_seconds_f64().max(0.0));
        }
    }
}

/// Returns when a complete CRL must be renewed, epoch seconds.
pub(super) fn renewal_time(config: &CrlConfig, list: &PublishedCrl) -> i64 {
    let lifetime = Duration::from_secs((list.next_update - list.made_at).max(0) as u64);
    let before = if config.auto_rebuild { config.auto_rebuild_grace_period() } else { RENEW_BEFORE.min(lifetime / 6) };
    // The period is at most three quarters of the lifetime, because a grace period longer than the lifetime must not
    // make every new CRL due immediately.
    let before = before.max(MIN_REMAINING_LIFETIME.min(lifetime / 6)).min(lifetime / 2 + lifetime / 4);
    list.next_update - before.as_secs() as i64
}
