//! Leases: ending a lease revokes its certificate.
//!
//! A role with `generate_lease` stores a lease with every certificate. A lease ends when it is revoked by id or prefix,
//! or when its token ends. The expiry of the certificate or the removal of the mount ends it without a revocation.
//! Ending has two idempotent steps, so that a crash loses nothing: the lease is marked, which hides it; then one commit
//! revokes the certificate and removes the lease. [`Engine::sweep_leases`] completes marked leases on any node.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::revoke;
use crate::documents::{MountId, PathScope};
use crate::error::{Error, Result};
use crate::pki::engine::{Authority, Engine};
use crate::pki::store::{LeaseRange, LeaseRow, PkiOutcome, PkiStore, PkiWrite};
use crate::telemetry;

/// Maximum number of leases that are marked as ending, or removed after expiry, in one commit.
const LEASES_PER_COMMIT: u32 = 500;
/// Maximum number of leases whose certificates are revoked in one commit.
const REVOKED_LEASES_PER_COMMIT: u32 = 100;
/// Maximum length of a lease id, which is a path followed by a random part.
const MAX_LEASE_ID_BYTES: usize = 4096;
/// Exclusive upper bound of all lease ids, which are printable ASCII.
const LEASE_IDS_END: &str = "\u{7f}";

/// Returns `true` if a text can be a lease id or its prefix.
fn is_lease_id(text: &str) -> bool {
    text.len() <= MAX_LEASE_ID_BYTES && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Returns the exclusive lower and upper bounds of the lease ids below a path.
fn lease_id_bounds_below(prefix: &str) -> (String, String) {
    match prefix.trim_end_matches('/') {
        "" => (String::new(), LEASE_IDS_END.to_owned()),
        // '0' follows '/' in ASCII.
        path => (format!("{path}/"), format!("{path}0")),
    }
}

/// Returns the range of the leases of a scope between two ids. It excludes the mounts in `scope.left_out`, which were
/// moved.
fn lease_range(scope: &PathScope, after: String, below: String) -> LeaseRange {
    let excluded_mounts = scope.left_out.iter().map(|(mount, _)| *mount).collect();
    LeaseRange { mount: scope.mount, excluded_mounts, after, below }
}

/// Lists the keys directly below a path in byte order. A key is the random part of a lease id, or a path segment with a
/// trailing `/`.
pub struct LeaseKeys {
    scopes: Vec<PathScope>,
    store: Arc<dyn PkiStore>,
}

/// Keys with their positions, and the position at which the next page starts. The position of a lease is its id
/// relative to the listed path. The position of a segment is the upper bound of the lease ids below it.
pub type LeasePage = (Vec<(String, String)>, Option<String>);

impl LeaseKeys {
    /// Returns up to `max` keys above `from`, and the start of the next page unless this page is certainly the last. A
    /// page before the last may be empty.
    ///
    /// # Errors
    /// `Unavailable` from storage.
    pub fn page(&self, from: &str, max: u32) -> BoxFuture<'static, Result<LeasePage>> {
        let scopes = self.scopes.clone();
        let store = Arc::clone(&self.store);
        let from = from.to_owned();
        async move {
            let mut keys = BTreeMap::new();
            let mut next: Option<String> = None;
            for scope in &scopes {
                let (found, more) = list_scope_keys(&*store, scope, &from, max).await?;
                keys.extend(found);
                // `more` is the end of this scope's page; the scope may have further keys after it. So the combined
                // list is complete only up to the lowest page end of all scopes.
                next = [next, more].into_iter().flatten().min();
            }
            let known = |position: &String| next.as_ref().is_none_or(|next| position <= next);
            let mut keys: Vec<(String, String)> = keys.into_iter().filter(|(position, _)| known(position)).collect();
            if keys.len() > max as usize {
                keys.truncate(max as usize);
                next = keys.last().map(|(position, _)| position.clone());
            }
            Ok((keys, next))
        }
        .boxed()
    }
}

async fn list_scope_keys(store: &dyn PkiStore, scope: &PathScope, from: &str, max: u32) -> Result<LeasePage> {
    let (start, end) = lease_id_bounds_below(&scope.stored);
    if !scope.shown.is_empty() {
        let segment = scope.shown.split('/').next().unwrap_or_default();
        let position = lease_id_bounds_below(segment).1;
        let exists = *from < *position && !store.lease_ids(lease_range(scope, start, end), 1).await?.is_empty();
        return Ok((exists.then(|| (position, format!("{segment}/"))).into_iter().collect(), None));
    }
    let found = store.lease_ids(lease_range(scope, format!("{start}{from}"), end), max).await?;
    let mut keys = Vec::new();
    let mut reached = from.to_owned();
    for id in &found {
        let rest = &id[start.len()..];
        let (position, key) = match rest.split_once('/') {
            None => (rest.to_owned(), rest.to_owned()),
            Some((segment, _)) => (lease_id_bounds_below(segment).1, format!("{segment}/")),
        };
        reached = reached.max(position.clone());
        keys.push((position, key));
    }
    Ok((keys, (found.len() == max as usize).then_some(reached)))
}

impl Engine {
    /// Returns a lease that is neither expired nor marked as ending. `id` is its original id, or its id under the
    /// current path of the mount.
    ///
    /// # Errors
    /// `Unavailable` from storage.
    pub async fn lease(&self, id: &str, scopes: &[PathScope]) -> Result<Option<LeaseRow>> {
        let now = self.deps().clock.now().unix_timestamp();
        Ok(self.stored_lease(id, scopes).await?.filter(|lease| now < lease.expires_at))
    }

    /// Like [`Engine::lease`], but also returns an expired lease.
    async fn stored_lease(&self, id: &str, scopes: &[PathScope]) -> Result<Option<LeaseRow>> {
        let original = PathScope::of(id);
        let searched = std::iter::once(&original).chain(scopes).filter(|scope| scope.shown.is_empty());
        for scope in searched.filter(|scope| !scope.stored.is_empty() && is_lease_id(&scope.stored)) {
            let lease = self.deps().store.lease(scope.stored.clone()).await?;
            if let Some(lease) = lease.filter(|lease| scope.mount.is_none_or(|mount| lease.mount == mount)) {
                return Ok(Some(lease));
            }
        }
        Ok(None)
    }

    /// Returns a [`LeaseKeys`] for the keys directly below a path, and the position at which the keys after `after`
    /// start. Returns `None` for an invalid path.
    pub fn lease_keys(&self, scopes: Vec<PathScope>, after: &str) -> Option<(LeaseKeys, String)> {
        if !is_lease_id(after) || scopes.iter().any(|scope| !is_lease_id(&scope.stored)) {
            return None;
        }
        // If `after` is a segment, it was already listed, so everything below it is skipped.
        let from = if after.ends_with('/') { lease_id_bounds_below(after).1 } else { after.to_owned() };
        Some((LeaseKeys { scopes, store: Arc::clone(&self.deps().store) }, from))
    }

    /// Revokes a lease, if it exists, and its certificate. Without `wait`, only marks the lease as ending; a sweep
    /// revokes it soon.
    ///
    /// # Errors
    /// `Unavailable` or `Busy` from storage; with `wait`, also when no CRL can be built. Sweeps retry leases that are
    /// marked.
    pub async fn revoke_lease(self: &Arc<Self>, id: &str, scopes: &[PathScope], wait: bool) -> Result<()> {
        if id.is_empty() || !is_lease_id(id) {
            return Ok(());
        }
        let lease = self.stored_lease(id, scopes).await?;
        let (id, mount) = lease.map_or((id.to_owned(), None), |lease| (lease.id, Some(lease.mount)));
        self.deps().store.commit(vec![PkiWrite::LeasesMark(vec![id.clone()])]).await?;
        // These exclusive bounds enclose the id: '!' is the lowest printable character.
        self.end_marked_leases(&id[..id.len() - 1], &format!("{id}!"), mount, wait).await
    }

    /// Revokes all leases below a path, or the single lease with this id; `wait` as for [`Engine::revoke_lease`].
    ///
    /// # Errors
    /// As [`Engine::revoke_lease`].
    pub async fn revoke_leases(self: &Arc<Self>, prefix: &str, scopes: &[PathScope], wait: bool) -> Result<()> {
        if !is_lease_id(prefix) {
            return Ok(());
        }
        if self.stored_lease(prefix, scopes).await?.is_some() {
            return self.revoke_lease(prefix, scopes, wait).await;
        }
        for scope in scopes {
            let (mut after, end) = lease_id_bounds_below(&scope.stored);
            loop {
                let ids =
                    self.deps().store.lease_ids(lease_range(scope, after, end.clone()), LEASES_PER_COMMIT).await?;
                let Some(last) = ids.last() else { break };
                after = last.clone();
                self.deps().store.commit(vec![PkiWrite::LeasesMark(ids)]).await?;
            }
        }
        for scope in scopes {
            // The range includes the prefix itself, which may be the id of a lease that an earlier call marked.
            let path = &scope.stored;
            let end = lease_id_bounds_below(&scope.stored).1;
            let after = path.get(..path.len().saturating_sub(1)).unwrap_or_default();
            self.end_marked_leases(after, &end, None, wait).await?;
        }
        Ok(())
    }

    /// Revokes the leases that are marked as ending and whose ids are between `after` and `below`. Without `wait`,
    /// wakes the sweep instead.
    async fn end_marked_leases(
        self: &Arc<Self>,
        after: &str,
        below: &str,
        mount: Option<MountId>,
        wait: bool,
    ) -> Result<()> {
        if !wait {
            self.wake_lease_sweep();
            return Ok(());
        }
        // Runs as a task of its own, so that a client disconnect does not leave revocations without their CRLs.
        let engine = Arc::clone(self);
        let after = after.to_owned();
        let below = below.to_owned();
        tokio::spawn(async move { engine.revoke_marked(&after, &below, mount).await }).await.map_err(Error::internal)?
    }

    /// Revokes the certificates of leases that are marked as ending or whose tokens ended, and removes leases of
    /// expired certificates. Called periodically; an interruption is harmless.
    ///
    /// # Errors
    /// `Unavailable` from storage, or when a certificate could not be revoked; the next call retries.
    pub async fn sweep_leases(&self) -> Result<()> {
        let store = &self.deps().store;
        while store.mark_leases_of_ended_tokens(LEASES_PER_COMMIT).await? == LEASES_PER_COMMIT {}
        let revoked = self.revoke_marked("", LEASE_IDS_END, None).await;
        let now = self.deps().clock.synchronized_now()?.unix_timestamp();
        loop {
            let swept = store.sweep_leases(now, LEASES_PER_COMMIT).await?;
            metrics::counter!(telemetry::PKI_LEASES_ENDED, "result" => "expired").increment(u64::from(swept));
            if swept < LEASES_PER_COMMIT {
                return revoked;
            }
        }
    }

    /// Revokes the certificates of the leases that are marked as ending and whose ids are between `after` and `below`,
    /// then builds the CRLs once. Also waits for the CRLs of `mount`, because a concurrent sweep may have ended the
    /// caller's lease.
    async fn revoke_marked(&self, after: &str, below: &str, mount: Option<MountId>) -> Result<()> {
        let mut after = after.to_owned();
        let open = mount.and_then(|mount| Some((mount, self.authority(mount).ok()?)));
        let mut changed = BTreeMap::from_iter(open);
        let mut outcome = Ok(());
        loop {
            let page = self.deps().store.ending_leases(after, below.to_owned(), REVOKED_LEASES_PER_COMMIT).await?;
            let Some(last) = page.last() else { break };
            after = last.id.clone();
            let mut by_mount: BTreeMap<MountId, Vec<LeaseRow>> = BTreeMap::new();
            page.into_iter().for_each(|lease| by_mount.entry(lease.mount).or_default().push(lease));
            for (mount, leases) in by_mount {
                // A failing mount does not block the others.
                match self.end_leases(mount, leases).await {
                    Ok(Some(authority)) => drop(changed.insert(mount, authority)),
                    Ok(None) => {}
                    Err(error) => outcome = Err(error),
                }
            }
        }
        for authority in changed.into_values() {
            outcome =
                authority.publish_revocations(u64::MAX, authority.announce_revocation()).await.map(drop).and(outcome);
        }
        outcome
    }

    /// Revokes the certificates of these leases and removes the leases, in one commit. Returns the mount if its CRLs
    /// must be built.
    async fn end_leases(&self, mount: MountId, leases: Vec<LeaseRow>) -> Result<Option<Arc<Authority>>> {
        // The store returns only leases of existing mounts, but this node may not have opened a new mount yet.
        self.open(mount).await?;
        let authority = self.authority(mount)?;
        let mut unit = Vec::with_capacity(leases.len() + 1);
        for lease in &leases {
            unit.extend(revoke::revocation_of_lease(&authority, lease.serial).await?.map(PkiWrite::Revocation));
        }
        unit.push(PkiWrite::LeasesEnd(leases.into_iter().map(|lease| lease.id).collect()));
        let mut revoked = 0;
        let outcomes = self.deps().store.commit(unit).await;
        // Invalidate cached OCSP responses even after a failure, because the revocations may be stored.
        self.ocsp_cache().record_revocation();
        for outcome in outcomes? {
            match outcome {
                PkiOutcome::Revoked { fresh, .. } => revoked += u64::from(fresh),
                PkiOutcome::Changed(count) => {
                    let ended = metrics::counter!(telemetry::PKI_LEASES_ENDED, "result" => "revoked");
                    ended.increment(u64::from(count));
                }
                PkiOutcome::Done
                | PkiOutcome::SerialTaken
                | PkiOutcome::TidyRenewed { .. }
                | PkiOutcome::Removed(_) => {}
            }
        }
        metrics::counter!(telemetry::PKI_REVOCATIONS).increment(revoked);
        Ok((revoked > 0).then_some(authority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::issue::side_effects::new_lease_id;

    #[test]
    fn lease_bounds_contain_exactly_the_ids_below_a_path() {
        let within = |prefix: &str, id: &str| {
            let (start, end) = lease_id_bounds_below(prefix);
            id > start.as_str() && id < end.as_str()
        };
        for prefix in ["", "/", "pki", "pki/", "pki/issue", "pki/issue/web", "pki/issue/web/"] {
            assert!(within(prefix, "pki/issue/web/zzzz"), "{prefix}");
        }
        for prefix in ["pk", "pki2", "pki/issue/we", "pki/issue/web2", "pki/issue/web/zzzz", "pki/sign"] {
            assert!(!within(prefix, "pki/issue/web/zzzz"), "{prefix}");
        }
    }

    #[test]
    fn lease_id_is_a_path_and_a_random_part() {
        let id = new_lease_id("pki/issue/web");
        let random = id.strip_prefix("pki/issue/web/").unwrap();
        assert!(random.len() == 24 && random.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
        assert!(
            is_lease_id(&id)
                && !is_lease_id("ä")
                && !is_lease_id("a b")
                && !is_lease_id("a\0")
                && !is_lease_id(&"a".repeat(5000))
        );
    }
}
