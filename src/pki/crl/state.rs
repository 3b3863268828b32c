//! What the builder keeps of one group of issuers: its entries, its published lists, and when the next ones
//! are due. Only the builder asks; nothing here reads or writes storage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entries::Entries;
use super::guard::{self, Edition};
use super::list::Published;
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::pki::mount::settings::crl::CrlConfig;
use crate::telemetry;

/// Without `auto_rebuild` a CRL is built again when less than this, or a sixth of its life, is left, so
/// that lists never lapse unattended.
const RENEW_BEFORE: Duration = Duration::from_secs(12 * 3600);
/// The least that is left when a CRL is built again, if its life allows: a build takes time.
const LEAST_LEFT: Duration = Duration::from_secs(60);
/// How far the time of a list may be ahead of this node's clock: nodes' clocks differ a little. One that is further
/// ahead was signed by a clock that was wrong, or is now; whoever reads it would not take it yet.
const AHEAD: i64 = 120;

/// The lists and entries of one group.
#[derive(Default)]
pub(super) struct GroupState {
    /// What the next complete CRL begins with: everything up to `covers`.
    pub(super) entries: Entries,
    /// What came after.
    pub(super) fresh: Entries,
    /// The highest sequence in `fresh`.
    pub(super) fresh_last: u64,
    /// When the first of those that are on no list yet was revoked.
    pub(super) waiting_since: Option<Time>,
    pub(super) complete: Option<Arc<Published>>,
    pub(super) delta: Option<Arc<Published>>,
    /// The highest sequence of the delta CRL, and of the complete one that it adds to.
    pub(super) delta_last: u64,
    /// What is on the published complete CRL, and the sequence that it covers.
    pub(super) listed: Entries,
    pub(super) covers: u64,
    /// The published CRL does not fit the state any more: a new one is due whatever the settings say.
    pub(super) stale: bool,
    /// The entries were sorted out anew since the last publication, not added to.
    pub(super) rebuilt: bool,
    /// … because the operator changed issuers.
    pub(super) moved: bool,
    /// The stored complete CRL that could not be made again.
    pub(super) unmade: u64,
    /// Until when nobody tries to make its lists again, and why they could not be made.
    pub(super) rests: Option<(Instant, Error)>,
}

impl GroupState {
    pub(super) fn number(&self) -> u64 {
        self.delta.iter().chain(&self.complete).map(|list| list.number).max().unwrap_or(0)
    }

    /// Whether somebody's revocation belongs on its lists.
    pub(super) fn has_entries(&self) -> bool {
        !self.entries.is_empty() || !self.fresh.is_empty()
    }

    /// Lets go of all entries; they are read again.
    pub(super) fn forget(&mut self, moved: bool) {
        self.entries = Entries::default();
        self.fresh = Entries::default();
        self.fresh_last = 0;
        self.waiting_since = None;
        self.stale = true;
        self.rebuilt = true;
        self.moved |= moved;
    }
}

impl GroupState {
    /// Up to which revocation its entries were read, without those that are fresh.
    pub(super) fn listed_to(&self) -> u64 {
        // What was let go of is read again from the beginning, and is fresh then.
        if self.rebuilt { 0 } else { self.covers }
    }

    /// Lets go of what is fresh; it was read again.
    pub(super) fn rewind(&mut self) {
        self.fresh = Entries::default();
        self.fresh_last = 0;
    }

    /// Who knows a list from elsewhere takes none with a number that is not above `floor`.
    pub(super) fn complete_due(&self, config: &CrlConfig, wanted: bool, issuers: bool, floor: u64, now: i64) -> bool {
        let Some(complete) = self.complete.as_ref().filter(|list| list.number > floor) else { return true };
        let by_revocation = !config.auto_rebuild && !config.disable && (issuers || !self.fresh.is_empty());
        // A list of revocations that were made by a clock that was ahead is not older than these.
        let ahead = complete.this_update > self.listed.latest_revocation().unwrap_or(i64::MIN).max(now + AHEAD);
        wanted || self.stale || by_revocation || ahead || now >= renewal(config, complete)
    }

    pub(super) fn delta_due(&self, config: &CrlConfig, wanted: bool, now: i64) -> bool {
        let on = config.enable_delta && !config.disable;
        on && (wanted || (self.has_news() && now >= self.delta_time(config)))
    }

    /// Whether something was revoked that is on no list, or for a reason that is on none.
    pub(super) fn has_news(&self) -> bool {
        !self.fresh.is_empty() && self.fresh_last > self.delta_last
    }

    /// When the delta CRL has its next turn, epoch seconds.
    pub(super) fn delta_time(&self, config: &CrlConfig) -> i64 {
        let interval = config.delta_rebuild_interval().as_secs() as i64;
        self.delta.as_ref().map_or(0, |delta| delta.made_at + interval)
    }

    /// When to look again, epoch seconds. Revocations of a mount that builds by the timer come in unseen.
    pub(super) fn next_look(&self, config: &CrlConfig, now: i64) -> Option<i64> {
        let complete = self.complete.as_ref()?;
        let delta = (config.enable_delta && !config.disable).then(|| match self.delta_time(config) {
            past if past <= now => now + (config.delta_rebuild_interval().as_secs() as i64).max(1),
            time => time,
        });
        delta.into_iter().chain([renewal(config, complete)]).min()
    }

    /// Holds the next complete CRL against the published one.
    pub(super) fn guard(&self, number: u64, covers: u64, entries: &Entries, now: i64, disabled: bool) -> Result<()> {
        let Some(complete) = &self.complete else { return Ok(()) };
        let asked = match (disabled, self.moved) {
            (true, _) => Some("disable"),
            (false, true) => Some("issuers"),
            (false, false) => None,
        };
        let last = Edition { number: complete.number, covers: self.covers, entries: &self.listed };
        guard::check(&last, &Edition { number, covers, entries }, self.rebuilt, now, asked)
    }

    pub(super) fn publish(
        &mut self,
        complete: Published,
        delta: Published,
        entries: Entries,
        listed: Entries,
        covers: u64,
    ) {
        self.complete = Some(Arc::new(complete));
        self.delta = Some(Arc::new(delta));
        self.entries = entries;
        self.listed = listed;
        self.covers = covers;
        self.fresh = Entries::default();
        self.delta_last = self.fresh_last;
        self.stale = false;
        self.rebuilt = false;
        self.moved = false;
    }

    /// Records how long the revocations that are on a list now were on none.
    pub(super) fn tell_delay(&mut self, now: Time) {
        if let Some(since) = self.waiting_since.take() {
            metrics::histogram!(telemetry::PKI_CRL_PUBLISH_SECONDS).record((now - since).as_seconds_f64().max(0.0));
        }
    }
}

/// When a complete CRL is built again, epoch seconds.
pub(super) fn renewal(config: &CrlConfig, list: &Published) -> i64 {
    let life = Duration::from_secs((list.next_update - list.made_at).max(0) as u64);
    let before = if config.auto_rebuild { config.auto_rebuild_grace_period() } else { RENEW_BEFORE.min(life / 6) };
    // Shorter settings than the list was made under must not make it due for ever.
    let before = before.max(LEAST_LEFT.min(life / 6)).min(life / 2 + life / 4);
    list.next_update - before.as_secs() as i64
}
