//! Builds the CRLs of one mount: reads new revocations, decides which CRLs are due, signs and records them.
//!
//! A failed build leaves the published CRLs unchanged; the next build retries.

mod drafts;
mod listed;
pub(super) mod verify;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::drafts::{crl_row, delta_group_id, draft_crl, rebuild_stored_crl};
use super::batch::CrlEntryBatch;
use super::entries::CrlEntries;
use super::groups::{GroupLayout, IssuerGroup, issuer_groups};
use super::guard;
use super::incoming::{GroupRevocations, RevocationsByList};
use super::list::CrlHeader;
use super::state::{CrlGroupState, renewal_time};
use super::summary::MountCrlMetrics;
use super::{FailedGroups, GroupCrls, MountCrls};
use crate::clock::Clock;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result, Warnings};
use crate::keys::signing::Signers;
use crate::pki::check::blocking::SignatureWaiter;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::view::MountView;
use crate::pki::store::{CrlRow, PkiStore, PkiWrite, StoredRevocation};

const REVOCATIONS_PER_PAGE: u32 = 10_000;
/// Maximum number of attempts to publish a CRL. An attempt fails if another node takes the CRL number first.
const MAX_NUMBER_ATTEMPTS: usize = 50;

/// If an unreachable signer delays a group's build by at least `BACKOFF_MIN_DURATION`, the group is not built again for
/// `BACKOFF_FACTOR` times that delay.
const BACKOFF_MIN_DURATION: Duration = Duration::from_secs(1);
const BACKOFF_FACTOR: u32 = 4;

/// Work requested from a CRL build in addition to the CRLs that are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrlBuildRequest {
    /// Build every complete CRL, even if it is not due.
    pub complete: bool,
    /// Build every delta CRL, where delta CRLs are enabled.
    pub delta: bool,
    /// Read all revocations again, because some were removed from storage.
    pub reload: bool,
    /// With `reload`: an operator reassigned revocations to other issuers, so entries move to other CRLs.
    pub moved: bool,
    /// Adopt CRLs that other nodes published.
    pub follow: bool,
    /// Drop all state and read everything from storage again, because storage lost data that was already read.
    pub from_storage: bool,
}

impl CrlBuildRequest {
    /// Requests only the CRLs that are due.
    pub const DUE: Self =
        Self { complete: false, delta: false, reload: false, moved: false, follow: false, from_storage: false };

    /// Requests the work of both requests.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            complete: self.complete || other.complete,
            delta: self.delta || other.delta,
            reload: self.reload || other.reload,
            moved: self.moved || other.moved,
            follow: self.follow || other.follow,
            from_storage: self.from_storage || other.from_storage,
        }
    }
}

/// Builds the CRLs of one mount.
pub struct CrlBuilder {
    mount: MountId,
    store: Arc<dyn PkiStore>,
    signers: Arc<dyn Signers>,
    clock: Clock,
    layout: Arc<GroupLayout>,
    /// Every revocation up to this sequence number was read.
    loaded: u64,
    /// Highest value of `loaded`. If rows were removed, a reload may end lower, but no CRL may cover less than before.
    reached: u64,
    /// `true` if the issuers of some revocations are unknown.
    orphans: bool,
    states: HashMap<String, CrlGroupState>,
    /// `true` once the builder has read the stored CRLs.
    restored: bool,
    /// New CRL numbers must exceed this one: clients may have seen higher numbers than a restored backup contains.
    floor: u64,
    /// Every revocation up to this sequence number is on the CRLs of the last build without a failure.
    covers: u64,
}

/// Result of a CRL build.
#[derive(Default)]
pub struct CrlBuildResult {
    /// The CRLs to publish.
    pub crls: MountCrls,
    /// Number of CRLs that were built.
    pub built_lists: usize,
    /// Metrics of the complete CRLs.
    pub summary: MountCrlMetrics,
    /// Time of the next check for due CRLs, epoch seconds; `None` without CRLs.
    pub next_check: Option<i64>,
    /// Warnings about issuers that cannot have a CRL.
    pub warnings: Warnings,
    /// Error of a group whose CRLs could not be built; CRLs of other groups may have been built.
    pub failure: Option<Error>,
}

struct StoredGroupCrls {
    complete: CrlRow,
    delta: Option<CrlRow>,
}

impl CrlBuilder {
    /// Creates a builder that has not read anything from storage.
    pub fn new(mount: MountId, store: Arc<dyn PkiStore>, signers: Arc<dyn Signers>, clock: Clock) -> Self {
        Self {
            mount,
            store,
            signers,
            clock,
            layout: Arc::default(),
            loaded: 0,
            reached: 0,
            orphans: false,
            states: HashMap::new(),
            restored: false,
            floor: 0,
            covers: 0,
        }
    }

    /// Drops all entries from memory; the next build reads the revocations again and compares them with the published
    /// CRLs.
    pub fn reset(&mut self) {
        self.drop_entries(false);
    }

    fn drop_entries(&mut self, moved: bool) {
        self.loaded = 0;
        self.states.values_mut().for_each(|state| state.drop_entries(moved));
    }

    /// Drops all state but keeps the highest CRL number, because clients may have seen CRLs that are no longer stored.
    fn restart_from_storage(&mut self) {
        let published = self.states.values().map(CrlGroupState::number).max().unwrap_or(0);
        let store = Arc::clone(&self.store);
        let signers = Arc::clone(&self.signers);
        let new = Self::new(self.mount, store, signers, self.clock.clone());
        // One less than the number of the last published CRL, so that this CRL is adopted if it is still stored.
        *self = Self { floor: published.saturating_sub(1), ..new };
    }

    /// Builds the CRLs that are due by the settings or requested by `wanted`. A group that fails keeps its published
    /// CRLs and does not block other groups. While the build waits for a signer, `waiter` frees the thread.
    ///
    /// # Errors
    /// `Unavailable` when the revocations cannot be read; the published CRLs remain.
    pub async fn build(
        &mut self,
        view: &MountView,
        wanted: CrlBuildRequest,
        waiter: &SignatureWaiter,
    ) -> Result<CrlBuildResult> {
        if wanted.from_storage {
            self.restart_from_storage();
        }
        let groups = issuer_groups(view);
        self.adopt_layout(GroupLayout::new(view, &groups), &groups);
        if wanted.reload && self.restored {
            self.drop_entries(wanted.moved);
        }
        if !self.restored {
            self.floor = self.store.crl_floor().await?.max(self.floor);
        }
        self.load(view, &groups, wanted.follow).await?;
        let mut built = CrlBuildResult::default();
        let mut failed = Vec::new();
        for group in &groups {
            match self.build_group(view, group, wanted, waiter).await {
                Ok(made) => built.built_lists += made,
                Err(error) => {
                    failed.push(group.id.clone());
                    built.failure = Some(error);
                }
            }
            self.report_group(view, group, &mut built);
        }
        let could_be_made = groups.iter().filter(|group| !failed.contains(&group.id));
        if view.crl_config.value.disable || !self.has_unlisted_revocations(could_be_made) {
            built.crls.loaded_sequence = self.loaded;
            self.covers = if failed.is_empty() { self.loaded } else { self.covers };
        }
        built.crls.covered_sequence = self.covers;
        built.crls.removable = self.removable_revocations(view, &groups);
        built.crls.failed_groups =
            (!failed.is_empty()).then(|| FailedGroups { layout: Arc::clone(&self.layout), groups: failed });
        Ok(built)
    }

    fn has_unlisted_revocations<'g>(&self, mut groups: impl Iterator<Item = &'g IssuerGroup>) -> bool {
        groups.any(|group| {
            let state = self.states.get(&group.id);
            group.signer.is_some() && state.is_some_and(|state| !state.new_entries.is_empty())
        })
    }

    /// Adopts a new assignment of revocations to groups. If entries move to other CRLs, all revocations are read again.
    fn adopt_layout(&mut self, layout: GroupLayout, groups: &[IssuerGroup]) {
        if !layout.is_compatible_with(&self.layout, self.orphans) {
            self.drop_entries(true);
            // The state of a removed group keeps its CRL number in case the group returns.
            let gone = |id: &String| groups.iter().all(|group| group.id != *id);
            self.states
                .iter_mut()
                .filter(|(id, _)| gone(id))
                .for_each(|(_, s)| s.complete_entries = CrlEntries::default());
        }
        self.layout = Arc::new(layout);
    }

    /// Reads new revocations. On the first call, and with `follow`, also reads the stored CRLs.
    async fn load(&mut self, view: &MountView, groups: &[IssuerGroup], follow: bool) -> Result<()> {
        let rows = if follow || !self.restored { self.store.crls(self.mount).await? } else { Vec::new() };
        let (mut stored, rewound) = self.find_newer_crls(groups, rows);
        let limits = |group: &str| {
            let lists = stored.get(group)?;
            Some(RevocationsByList::new(lists.complete.covers, lists.delta.as_ref().map_or(0, |row| row.covers)))
        };
        let mut incoming: HashMap<String, RevocationsByList> =
            groups.iter().map(|g| (g.id.clone(), limits(&g.id).unwrap_or_default())).collect();
        self.read_revocations(&mut incoming, &rewound).await?;
        // All revocations that a published CRL covers count as read. If storage lacks one, it was removed later.
        let covered =
            stored.values().map(|lists| lists.complete.covers.max(lists.delta.as_ref().map_or(0, |d| d.covers)));
        self.loaded = covered.max().unwrap_or(0).max(self.loaded).max(self.reached);
        self.reached = self.loaded;
        for group in groups {
            let sorted = incoming.remove(&group.id).unwrap_or_default().sorted();
            match (stored.remove(&group.id), &group.rebuild_issuer) {
                (Some(lists), Some(signer)) => self.adopt_stored_crls(view, group, signer, lists, sorted),
                _ => self.add_revocations(group, sorted),
            }
        }
        self.restored = true;
        Ok(())
    }

    /// Returns two maps by group id. The first has the stored CRLs that are newer than those of this builder. The
    /// second has the groups of which this builder read more revocations than the newer CRL covers. Its value is the
    /// sequence number after which the revocations of the group are read again.
    fn find_newer_crls(
        &self,
        groups: &[IssuerGroup],
        rows: Vec<CrlRow>,
    ) -> (HashMap<String, StoredGroupCrls>, HashMap<String, u64>) {
        let mut rows: HashMap<String, CrlRow> = rows.into_iter().map(|row| (row.group.clone(), row)).collect();
        let mut newer = HashMap::new();
        let mut rewound = HashMap::new();
        for group in groups {
            let delta = rows.remove(&delta_group_id(&group.id));
            let Some(complete) = rows.remove(&group.id) else { continue };
            if let Some(state) = self.states.get(&group.id) {
                let number = complete.number.max(delta.as_ref().map_or(0, |row| row.number));
                let unreproducible_number = state.stale && complete.number == state.unreproducible_number;
                if group.rebuild_issuer.is_none()
                    || unreproducible_number
                    || number <= state.number()
                    || complete.covers < state.covers
                {
                    continue;
                }
                let same = state.complete.as_ref().is_some_and(|list| list.number == complete.number);
                let covered = delta.as_ref().filter(|_| same).map_or(complete.covers, |row| row.covers);
                if state.last_sequence > covered {
                    rewound.insert(group.id.clone(), state.read_up_to());
                }
            }
            newer.insert(group.id.clone(), StoredGroupCrls { complete, delta });
        }
        (newer, rewound)
    }

    /// Reads all pages of new revocations, and for `rewound` groups also older ones. Fetches the next page while the
    /// current one is encoded. The builder's state changes only if all reads succeed.
    async fn read_revocations(
        &mut self,
        incoming: &mut HashMap<String, RevocationsByList>,
        rewound: &HashMap<String, u64>,
    ) -> Result<()> {
        let ask = |after: u64| tokio::spawn(self.store.revocations(self.mount, after, REVOCATIONS_PER_PAGE));
        let mut loaded = self.loaded;
        let mut orphans = self.loaded > 0 && self.orphans;
        let mut next = ask(rewound.values().copied().min().unwrap_or(loaded).min(loaded));
        loop {
            let page: Vec<StoredRevocation> = next.await.map_err(Error::internal)??;
            let Some(last) = page.last() else { break };
            let last = last.sequence;
            let full = page.len() == REVOCATIONS_PER_PAGE as usize;
            next = if full { ask(last) } else { tokio::spawn(async { Ok(Vec::new()) }) };
            for revocation in &page {
                let (group, orphan) = self.layout.group(revocation);
                orphans |= orphan;
                let Some(group) = group else { continue };
                let read_to = rewound.get(group).copied().unwrap_or(self.loaded);
                if let Some(incoming) = incoming.get_mut(group).filter(|_| revocation.sequence > read_to) {
                    incoming.add(revocation);
                }
            }
            loaded = loaded.max(last);
        }
        for group in rewound.keys() {
            self.states.entry(group.clone()).or_default().drop_new_entries();
        }
        (self.loaded, self.orphans) = (loaded, orphans);
        Ok(())
    }

    /// Adds revocations to the new entries of a group. Used if no newer CRL of the group is adopted from storage.
    fn add_revocations(&mut self, group: &IssuerGroup, sorted: GroupRevocations) {
        let state = self.states.entry(group.id.clone()).or_default();
        state.new_entries = state.new_entries.union(&sorted.complete).union(&sorted.delta).union(&sorted.later);
        state.last_sequence = state.last_sequence.max(sorted.last);
        if self.restored {
            let both = state.waiting_since.into_iter().chain(sorted.oldest);
            state.waiting_since = both.min();
        }
    }

    /// Rebuilds and adopts the stored CRLs of a group, after a start or after another node published them. If that
    /// fails, new CRLs become due.
    fn adopt_stored_crls(
        &mut self,
        view: &MountView,
        group: &IssuerGroup,
        signer: &IssuerSigner,
        stored: StoredGroupCrls,
        sorted: GroupRevocations,
    ) {
        let issuers = self.unlisted_revoked_issuers(group, &[&sorted.complete]);
        let disabled = view.crl_config.value.disable;
        let floor = self.floor.max(group.floor);
        let none_if_disabled = |entries: &CrlEntries| if disabled { CrlEntries::default() } else { entries.clone() };
        let state = self.states.entry(group.id.clone()).or_default();
        let StoredGroupCrls { complete: row, delta } = stored;
        let delta_last = delta.as_ref().map_or(row.covers, |delta| delta.covers.max(row.covers));
        let mut fresh = sorted.delta.clone();
        if state.complete.as_ref().is_some_and(|list| list.number == row.number) {
            // Only the delta CRL is new. Entries that were dropped from memory have been read again.
            state.entries = state.entries.union(&sorted.complete);
            fresh = state.new_entries.union(&fresh);
        } else {
            let entries = state.entries.union(&state.new_entries).union(&sorted.complete).with_batch(issuers);
            let listed = none_if_disabled(&entries);
            // A CRL from before a restore or an import may have successors that are not stored here.
            let is_last = row.number > floor;
            let rebuilt = is_last.then(|| rebuild_stored_crl(view, signer, &listed, &row, None)).flatten();
            let Some(complete) = rebuilt else {
                let number = row.number;
                if is_last {
                    tracing::warn!(group = %group.id, number, "stored CRL cannot be rebuilt; a new one is published");
                } else {
                    tracing::info!(
                        group = %group.id, number,
                        "stored CRL is from before a restore or an import; a new one with a higher number is published"
                    );
                }
                (state.stale, state.unreproducible_number) = (true, number);
                return self.add_revocations(group, sorted);
            };
            state.complete = Some(complete);
            state.covers = row.covers;
            state.entries = entries;
            state.complete_entries = listed;
            state.rebuilt = false;
            state.moved = false;
        }
        state.delta = delta
            .and_then(|delta| rebuild_stored_crl(view, signer, &none_if_disabled(&fresh), &delta, Some(row.number)));
        state.delta_last_sequence = delta_last;
        state.stale = state.rebuilt || state.delta.is_none();
        state.new_entries = fresh.union(&sorted.later);
        state.last_sequence = state.last_sequence.max(sorted.last);
        state.waiting_since = sorted.oldest.filter(|_| self.restored);
    }

    /// Returns entries for the group's revoked issuers that have no entry in its state or in `newer`. Entries made from
    /// revocation rows take precedence, because the rows hold more data.
    fn unlisted_revoked_issuers(&self, group: &IssuerGroup, newer: &[&CrlEntries]) -> CrlEntryBatch {
        let state = self.states.get(&group.id);
        let lists = || state.into_iter().flat_map(|s| [&s.entries, &s.new_entries]).chain(newer.iter().copied());
        let mut batch = CrlEntryBatch::default();
        for row in self.layout.revoked_issuers(&group.id) {
            if !lists().any(|entries| entries.contains(&row.serial)) {
                batch.add(row);
            }
        }
        batch
    }

    /// Builds the CRLs of a group that are due and returns their number. During back-off, returns the group's last
    /// error immediately unless `wanted` requests complete or delta CRLs, because another attempt would delay the
    /// mount's other groups.
    async fn build_group(
        &mut self,
        view: &MountView,
        group: &IssuerGroup,
        wanted: CrlBuildRequest,
        waiter: &SignatureWaiter,
    ) -> Result<usize> {
        let Some(signer) = &group.signer else { return Ok(0) };
        let config = &view.crl_config.value;
        let now = self.clock.now().unix_timestamp();
        let issuers = !self.unlisted_revoked_issuers(group, &[]).is_empty();
        let state = self.states.entry(group.id.clone()).or_default();
        let from_storage = wanted.complete || (wanted.reload && state.rebuilt);
        let complete = state.is_complete_crl_due(config, from_storage, issuers, group.floor, now);
        if !complete && !state.is_delta_crl_due(config, wanted.delta, now) {
            return Ok(0);
        }
        if let Some((until, error)) = state.backoff.as_ref().filter(|_| !(wanted.complete || wanted.delta))
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let begun = Instant::now();
        let made = match complete {
            true => self.publish_complete_crl(view, group, signer, waiter).await.map(|()| 2),
            false => self.publish_delta_crl(view, group, signer, waiter).await.map(|()| 1),
        };
        let took = begun.elapsed();
        let state = self.states.entry(group.id.clone()).or_default();
        // If a complete CRL could not be built, it stays due.
        state.stale |= complete && made.is_err();
        let away =
            made.as_ref().err().filter(|error| error.kind() == Kind::Unavailable && took >= BACKOFF_MIN_DURATION);
        state.backoff = away.map(|error| (Instant::now() + took * BACKOFF_FACTOR, error.clone()));
        made
    }

    async fn publish_complete_crl(
        &mut self,
        view: &MountView,
        group: &IssuerGroup,
        signer: &IssuerSigner,
        waiter: &SignatureWaiter,
    ) -> Result<()> {
        let config = &view.crl_config.value;
        let mut number = self.states.entry(group.id.clone()).or_default().number().max(self.floor).max(group.floor) + 1;
        for _ in 0..MAX_NUMBER_ATTEMPTS {
            let issuers = self.unlisted_revoked_issuers(group, &[]);
            let state = self.states.entry(group.id.clone()).or_default();
            let entries = state.entries.union(&state.new_entries).with_batch(issuers);
            let listed = if config.disable { CrlEntries::default() } else { entries.clone() };
            guard::check_entry_limit(config, &listed)?;
            let now = self.clock.synchronized_now()?.unix_timestamp();
            state.check_next_complete_crl(number, self.loaded, &listed, now, config.disable)?;
            // thisUpdate must not precede that of the previous CRL, whether this mount or another system published it.
            let floor = self.floor.max(group.floor);
            let last = match &state.complete {
                Some(last) if last.number > floor => Some(last.this_update.min(now)),
                None if floor == 0 => None,
                _ => Some(now),
            };
            let header =
                CrlHeader::new(number, None, now, config.expiry().as_secs(), listed.latest_revocation().max(last));
            let complete = draft_crl(view, signer, &listed, header)?;
            let delta = draft_crl(view, signer, &CrlEntries::default(), CrlHeader { base: Some(number), ..header })?;
            let complete = complete.sign(signer, &*self.signers, waiter).await?;
            let delta = delta.sign(signer, &*self.signers, waiter).await?;
            let rows = [&complete, &delta].map(|signed| crl_row(signed, self.mount, group, self.loaded));
            match self.store.commit(rows.map(PkiWrite::Crl).into()).await {
                Ok(_) => {
                    state.publish(complete.finish(), delta.finish(), entries, listed, self.loaded);
                    state.record_publish_delay(self.clock.now());
                    return Ok(());
                }
                // Another node took the number first. The next CRL must include the revocations on that node's CRL.
                Err(e) if e.kind() == Kind::Conflict => {
                    let stored = self.adopt_newer_crls(view, group, number, e).await?;
                    let state = self.states.entry(group.id.clone()).or_default();
                    if !state.stale && state.new_entries.is_empty() && state.number() >= stored {
                        state.record_publish_delay(self.clock.now());
                        return Ok(());
                    }
                    // The adopted CRL may have a higher number than `stored`.
                    number = stored.max(state.number()) + 1;
                }
                Err(e) => return Err(e),
            }
        }
        Err(crl_number_conflict_error())
    }

    async fn publish_delta_crl(
        &mut self,
        view: &MountView,
        group: &IssuerGroup,
        signer: &IssuerSigner,
        waiter: &SignatureWaiter,
    ) -> Result<()> {
        let config = &view.crl_config.value;
        let mut number = self.states.entry(group.id.clone()).or_default().number() + 1;
        for _ in 0..MAX_NUMBER_ATTEMPTS {
            let state = self.states.entry(group.id.clone()).or_default();
            let Some(base) = state.complete.clone() else { return Ok(()) };
            let now = self.clock.synchronized_now()?.unix_timestamp();
            // thisUpdate must not precede that of the base CRL.
            let latest = state.new_entries.latest_revocation().max(Some(base.this_update));
            let header = CrlHeader::new(number, Some(base.number), now, config.expiry().as_secs(), latest);
            let delta = draft_crl(view, signer, &state.new_entries, header)?;
            let delta = delta.sign(signer, &*self.signers, waiter).await?;
            let row = crl_row(&delta, self.mount, group, self.loaded);
            match self.store.commit(vec![PkiWrite::Crl(row)]).await {
                Ok(_) => {
                    state.delta = Some(Arc::new(delta.finish()));
                    state.delta_last_sequence = state.last_sequence;
                    state.record_publish_delay(self.clock.now());
                    return Ok(());
                }
                // Another node took the number first. Its CRLs may already have all new entries.
                Err(e) if e.kind() == Kind::Conflict => {
                    let stored = self.adopt_newer_crls(view, group, number, e).await?;
                    let state = self.states.entry(group.id.clone()).or_default();
                    if state.stale {
                        return self.publish_complete_crl(view, group, signer, waiter).await;
                    }
                    if state.number() >= stored && !state.has_unlisted_revocation() {
                        return Ok(());
                    }
                    number = stored.max(state.number()) + 1;
                }
                Err(e) => return Err(e),
            }
        }
        Err(crl_number_conflict_error())
    }

    /// Adopts the CRLs of the node that took `number` first; returns the group's highest stored CRL number.
    ///
    /// # Errors
    /// `error` when no other node took the number; those of the store.
    async fn adopt_newer_crls(
        &mut self,
        view: &MountView,
        group: &IssuerGroup,
        number: u64,
        error: Error,
    ) -> Result<u64> {
        let stored = self.highest_stored_number(group).await?;
        if stored < number {
            // There is no number conflict: the mount is gone, or the CRL would cover less than the stored CRL.
            return Err(error);
        }
        self.load(view, &issuer_groups(view), true).await?;
        Ok(stored)
    }

    async fn highest_stored_number(&self, group: &IssuerGroup) -> Result<u64> {
        let rows = self.store.crls(self.mount).await?;
        let delta = delta_group_id(&group.id);
        let numbers = rows.iter().filter(|r| r.group == group.id || r.group == delta).map(|r| r.number);
        Ok(numbers.max().unwrap_or(0))
    }

    fn report_group(&self, view: &MountView, group: &IssuerGroup, built: &mut CrlBuildResult) {
        let state = self.states.get(&group.id);
        let has_entries =
            || state.is_some_and(CrlGroupState::has_entries) || self.layout.revoked_issuers(&group.id).next().is_some();
        built.warnings.extend(group.missing_signer_warning(has_entries));
        let Some(state) = state else { return };
        let Some(complete) = &state.complete else { return };
        let config = &view.crl_config.value;
        let renewal = group.signer.as_ref().map(|_| renewal_time(config, complete));
        built.summary = built.summary.combined_with(MountCrlMetrics::of(complete, renewal));
        if group.signer.is_some() {
            let now = self.clock.now().unix_timestamp();
            let backoff = state
                .backoff
                .as_ref()
                .map_or(0, |(until, _)| now + until.saturating_duration_since(Instant::now()).as_secs() as i64);
            let look = state.next_check(config, now).map(|look| look.max(backoff));
            built.next_check = built.next_check.into_iter().chain(look).min();
        }
        let lists = GroupCrls { complete: Arc::clone(complete), delta: state.delta.clone() };
        built.crls.by_issuer.extend(group.issuers.iter().map(|issuer| (issuer.clone(), lists.clone())));
    }
}

fn crl_number_conflict_error() -> Error {
    Error::new(Kind::Busy, "other nodes took the CRL number repeatedly; retry")
}

#[cfg(test)]
mod tests;
