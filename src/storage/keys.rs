//! The data keys of an open store: their creation, loading and rotation, and the change of the seal key.

mod seal_reopener;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;
use crate::storage::backend::{Fact, FactWrite, StoreReader, WriteUnit};
use crate::storage::commit;
use crate::storage::seal::{
    self, DataKeyRing, DataKeyWrapping, HANDOVER_FACT, RootKey, SealChallenge, SealInfo, SealKey, root,
};
use crate::telemetry;
use seal_reopener::SealReopener;

/// Maximum number of attempts at a change of the keys, when other nodes change them concurrently.
const MAX_CHANGE_ATTEMPTS: usize = 5;
/// Age at which all nodes know a data key. They read the change log every few seconds, and no write takes longer than
/// this.
pub(super) const KEY_PROPAGATION_TIME: Duration = Duration::from_secs(30);
/// Age of a seal at which all running nodes have taken over its root key: they check every ten seconds.
const HANDOVER_TIME: Duration = Duration::from_secs(60);
/// Error of a node that knows no current key of the store.
const SEAL_CHANGED: &str = "seal: the seal was changed while this node was offline, and the configured seal does not \
                            open the store; configure the current one";

pub(super) struct StoreKeys {
    ring: Arc<DataKeyRing>,
    commits: commit::CommitHandle,
    reader: Arc<dyn StoreReader>,
    clock: Clock,
    /// The seal with which the store was opened.
    opening_seal: SealInfo,
    /// Reads the seal key again from its source.
    reopener: SealReopener,
    /// `true` if other nodes may use the same store.
    shared: bool,
}

fn creation_fact_name(term: u32) -> String {
    format!("data-key-made/{term}")
}

/// The fact that records when a term was created: epoch seconds as text.
fn creation_fact(term: u32, at: Time) -> Fact {
    (creation_fact_name(term), at.unix_timestamp().to_string().into_bytes())
}

fn creation_time(facts: &[Fact], term: u32) -> Option<Time> {
    let (_, recorded) = facts.iter().find(|(name, _)| *name == creation_fact_name(term))?;
    Time::from_unix_timestamp(std::str::from_utf8(recorded).ok()?.parse().ok()?).ok()
}

impl StoreKeys {
    /// Loads the keys of a store, or creates the first ones of a new store.
    ///
    /// # Errors
    /// `Invalid` for the wrong seal key; the errors of its device and of the store.
    pub(super) async fn load(
        commits: commit::CommitHandle,
        reader: Arc<dyn StoreReader>,
        seal_key: &SealKey,
        clock: Clock,
        shared: bool,
    ) -> Result<Self> {
        let facts = reader.meta().await?;
        let ring = match open_ring(seal_key, &facts).await? {
            Some(ring) => ring,
            None => {
                let (ring, facts) = create_keys(seal_key, clock.now()).await?;
                let facts = facts.into_iter().map(FactWrite::new).collect();
                match commits.submit(WriteUnit::Facts(facts)).outcome().await {
                    Ok(_) => ring,
                    // Another node has created the first keys concurrently, which are used instead.
                    Err(error) if error.kind() == Kind::Conflict => {
                        open_ring(seal_key, &reader.meta().await?).await?.ok_or(error)?
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let ring = Arc::new(ring);
        let opening_seal = seal_key.about();
        let reopener = SealReopener::new(seal_key.source());
        Ok(Self { ring, commits, reader, clock, opening_seal, reopener, shared })
    }

    /// The current data key: its term, creation time, and the number of values that it has sealed as far as known. A
    /// missing creation time is recorded as now.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn status(&self) -> Result<(u32, Time, u64)> {
        let (facts, _) = self.read_facts().await?;
        let (term, sealed) = self.ring.current();
        if let Some(created_at) = creation_time(&facts, term) {
            return Ok((term, created_at, sealed));
        }
        let created_at = self.clock.now();
        match self.write_facts(vec![FactWrite::new(creation_fact(term, created_at))]).await {
            // Another node has recorded the creation time first.
            Err(error) if error.kind() == Kind::Conflict => Ok((term, created_at, sealed)),
            other => other.map(|()| (term, created_at, sealed)),
        }
    }

    /// The current seal of the store.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn seal_status(&self) -> Result<SealInfo> {
        Ok(root::stored_seal(&self.reader.meta().await?)?.unwrap_or_else(|| self.opening_seal.clone()))
    }

    /// Creates a challenge that only a holder of the seal key can answer, and its response.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn seal_challenge(&self) -> Result<(SealChallenge, Secret)> {
        let (facts, root) = self.read_facts().await?;
        self.ring.create_challenge(&root, &facts)
    }

    pub(super) fn ring(&self) -> &DataKeyRing {
        &self.ring
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Seals a body for the row that `context` identifies. Rotates a used-up data key in the background.
    pub(super) fn seal(self: &Arc<Self>, context: &[u8], body: Vec<u8>) -> Result<Vec<u8>> {
        if self.ring.needs_rotation()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let keys = self.clone();
            let (worn, _) = self.ring.current();
            runtime.spawn(async move {
                match keys.rotate(worn).await {
                    Ok(term) => tracing::info!(term, "data key rotated"),
                    Err(error) => telemetry::warn_task_failed(
                        "the used-up data key could not be replaced; retried after more writes",
                        &error,
                    ),
                }
            });
        }
        self.ring.seal(context, body)
    }

    /// Decrypts a sealed value of the row that `context` identifies. Its data key must be loaded ([`Self::follow`]).
    pub(super) fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        self.ring.open(context, sealed)
    }

    /// Loads new data keys if one of the values is sealed with an unknown key, because another node has rotated.
    pub(super) async fn follow(&self, mut sealed: impl Iterator<Item = &[u8]>) -> Result<()> {
        if sealed.any(|body| !self.ring.has_key_of(body)) { self.learn().await } else { Ok(()) }
    }

    /// Loads the data keys that are stored now.
    ///
    /// # Errors
    /// The errors of the store; `Unavailable` when the root key has changed and this node's seal does not open it.
    pub(super) async fn learn(&self) -> Result<()> {
        self.read_facts().await.map(drop)
    }

    /// As [`StoreKeys::learn`], for a store that has lost its latest writes.
    pub(super) async fn reload_after_loss(&self) -> Result<()> {
        self.read_facts_with(DataKeyRing::reload_after_loss).await.map(drop)
    }

    /// Reads the facts of the store, and returns them with the root key that wraps their data keys. Loads new keys.
    async fn read_facts(&self) -> Result<(Vec<Fact>, Arc<RootKey>)> {
        self.read_facts_with(DataKeyRing::learn).await
    }

    async fn read_facts_with(
        &self,
        learn: fn(&DataKeyRing, &[Fact]) -> Result<Arc<RootKey>>,
    ) -> Result<(Vec<Fact>, Arc<RootKey>)> {
        let facts = self.reader.meta().await?;
        if let Ok(root) = learn(&self.ring, &facts) {
            return Ok((facts, root));
        }
        // The facts may predate a change of the seal that this node has learned of since.
        let facts = self.reader.meta().await?;
        match learn(&self.ring, &facts) {
            Ok(root) => return Ok((facts, root)),
            Err(error) if error.kind() != Kind::Invalid => return Err(error),
            Err(_) => {}
        }
        // The seal was changed while this node was away, and the store no longer has the new root key for running
        // nodes.
        let opened = self.reopener.open(&self.ring, &facts).await;
        // Not `Invalid`, because the request is not at fault.
        let root =
            opened.and_then(|()| learn(&self.ring, &facts)).map_err(|error| Error::unavailable(SEAL_CHANGED, error))?;
        Ok((facts, root))
    }

    /// Adds a data key after the term `from`, which seals all later values. Returns its term, or a later one that
    /// another node has added. Uses the root key in memory, not the seal.
    ///
    /// # Errors
    /// `Busy` when concurrent changes of the keys persist; the errors of the store.
    pub(super) async fn rotate(&self, from: u32) -> Result<u32> {
        for _ in 0..MAX_CHANGE_ATTEMPTS {
            let (facts, root) = self.read_facts().await?;
            let (term, _) = self.ring.current();
            if term > from {
                return Ok(term);
            }
            let new = self.ring.new_term(&root, term)?;
            let unchanged = FactWrite::if_unchanged(&facts, root::SEAL_FACT, None);
            // `end_token_upgrade` may change the wrapping concurrently, and the new key must have the same.
            let wrapped_alike = FactWrite::if_unchanged(&facts, &seal::term_name(term.into()), None);
            let made = creation_fact(new.term, self.clock.now());
            let mut writes = vec![unchanged, wrapped_alike, FactWrite::new(new.fact.clone()), FactWrite::new(made)];
            writes.extend(self.handover_end_write(&facts)?);
            match self.write_facts(writes).await {
                Ok(()) => return Ok(self.ring.adopt(new)),
                // A key was added, or the seal was changed.
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Kind::Busy, "data keys: concurrent modification; retry"))
    }

    /// Removes the new root key that a change of the seal left for running nodes, once they had time to load it.
    /// Returns `true` if none is left.
    ///
    /// # Errors
    /// `Conflict` for a concurrent change of the keys; the errors of the store.
    pub(super) async fn end_handover(&self) -> Result<bool> {
        let facts = self.reader.meta().await?;
        if !seal::is_handed_over(&facts) {
            return Ok(true);
        }
        let Some(end) = self.handover_end_write(&facts)? else { return Ok(false) };
        self.write_facts(vec![FactWrite::if_unchanged(&facts, root::SEAL_FACT, None), end]).await?;
        Ok(true)
    }

    /// The write that ends the handover (see [`Self::end_handover`]), if it may end.
    fn handover_end_write(&self, facts: &[Fact]) -> Result<Option<FactWrite>> {
        let since = root::stored_seal(facts)?.and_then(|seal| seal.since);
        // A time in the future was written by a wrong clock.
        let is_new = since.is_some_and(|since| (self.clock.now() - since).unsigned_abs() < HANDOVER_TIME);
        let ends = seal::is_handed_over(facts) && !(self.shared && is_new);
        Ok(ends.then(|| FactWrite::if_unchanged(facts, HANDOVER_FACT, Some(Vec::new()))))
    }

    /// Changes the seal key: creates a new root key and wraps all data keys with it. The data keys stay the same, so
    /// running nodes continue. The new root key is stored for them, sealed with the current data key, which all of them
    /// know.
    ///
    /// # Errors
    /// `Busy` while a node may not know the newest data key; `Conflict` when concurrent changes of the keys persist;
    /// the errors of device and store. Nothing is changed then.
    pub(super) async fn change_seal(&self, seal: &SealKey) -> Result<SealInfo> {
        for _ in 0..MAX_CHANGE_ATTEMPTS {
            match self.change_seal_once(seal).await {
                Err(error) if error.kind() == Kind::Conflict => {}
                done => return done,
            }
        }
        Err(Error::new(Kind::Conflict, "seal: concurrent modification of the data keys; retry"))
    }

    async fn change_seal_once(&self, seal: &SealKey) -> Result<SealInfo> {
        let (facts, before) = self.read_facts().await?;
        let term = seal::newest_term(&facts);
        self.require_known_key(&facts, term)?;
        let (root, generation) = (root::generate(), root::generation(&facts)? + 1);
        let record = root::wrap_root(seal, self.ring.installation(), &root, self.clock.now(), generation).await?;
        let mut writes = vec![
            FactWrite::if_unchanged(&facts, root::SEAL_FACT, Some(record)),
            // A newer data key would still be wrapped with the previous root key.
            FactWrite { name: seal::term_name(u64::from(term) + 1), expected: None, value: None },
        ];
        // Any holder of the data key can open the handover, so it exists only if other nodes need it.
        if self.shared {
            let handover = self.ring.seal(HANDOVER_FACT.as_bytes(), root.expose().to_vec())?;
            writes.push(FactWrite::if_unchanged(&facts, HANDOVER_FACT, Some(handover)));
        } else if seal::is_handed_over(&facts) {
            writes.push(FactWrite::if_unchanged(&facts, HANDOVER_FACT, Some(Vec::new())));
        }
        let root = Arc::new(RootKey::new(&root, generation)?);
        writes.extend(self.rewrap(&before, &root, self.ring.wrapping(), &facts)?);
        self.write_facts(writes).await?;
        self.ring.adopt_root(&root);
        self.seal_status().await
    }

    /// The writes that rewrap the data keys from one root key to the other, with `wrapping` in the associated data.
    fn rewrap(
        &self,
        from: &RootKey,
        to: &RootKey,
        wrapping: DataKeyWrapping,
        facts: &[Fact],
    ) -> Result<Vec<FactWrite>> {
        let rewrapped = self.ring.rewrap(from, to, wrapping, facts)?.into_iter();
        let write = |(name, before, after)| FactWrite { name, expected: Some(before), value: Some(after) };
        Ok(rewrapped.map(write).collect())
    }

    /// `true` if API tokens without a seal are rejected, as far as this node knows.
    pub(super) fn are_tokens_sealed(&self) -> bool {
        self.ring.wrapping() == DataKeyWrapping::TokensSealed
    }

    /// Records that the API tokens of earlier versions are sealed: tokens without a seal are rejected from now on. The
    /// record is part of the wrapping of the data keys, which cannot be changed without the seal.
    ///
    /// # Errors
    /// `Conflict` when concurrent changes of the keys persist; the errors of the store.
    pub(super) async fn end_token_upgrade(&self) -> Result<()> {
        self.change_wrapping(DataKeyWrapping::TokensSealed).await
    }

    /// Restores the state that a version before schema 14 leaves.
    #[cfg(test)]
    pub(super) async fn begin_token_upgrade(&self) -> Result<()> {
        self.change_wrapping(DataKeyWrapping::TokensMayBeUnsealed).await
    }

    async fn change_wrapping(&self, wrapping: DataKeyWrapping) -> Result<()> {
        for _ in 0..MAX_CHANGE_ATTEMPTS {
            let (facts, root) = self.read_facts().await?;
            let newest = seal::newest_term(&facts);
            let mut writes = vec![
                FactWrite::if_unchanged(&facts, root::SEAL_FACT, None),
                FactWrite { name: seal::term_name(u64::from(newest) + 1), expected: None, value: None },
            ];
            writes.extend(self.rewrap(&root, &root, wrapping, &facts)?);
            match self.write_facts(writes).await {
                Ok(()) => return self.learn().await,
                // Another node does the same, added a key, or changed the seal.
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Kind::Conflict, "data keys: concurrent modification by other nodes; retry"))
    }

    /// Rejects a change of the seal while a node may not know the data key of this term, under which the next root key
    /// is handed over. The first data key is always known, because it was created with the store.
    fn require_known_key(&self, facts: &[Fact], term: u32) -> Result<()> {
        let age = creation_time(facts, term).map(|created_at| (self.clock.now() - created_at).unsigned_abs());
        match age {
            Some(age) if self.shared && term > 1 && age < KEY_PROPAGATION_TIME => Err(Error::new(
                Kind::Busy,
                format!(
                    "seal: some nodes may not know the newest data key yet; retry in {} seconds",
                    (KEY_PROPAGATION_TIME - age).as_secs() + 1
                ),
            )),
            _ => Ok(()),
        }
    }

    async fn write_facts(&self, writes: Vec<FactWrite>) -> Result<()> {
        self.commits.submit(WriteUnit::Facts(writes)).outcome().await.map(drop)
    }
}

async fn open_ring(seal_key: &SealKey, facts: &[Fact]) -> Result<Option<DataKeyRing>> {
    let Some(installation) = seal::installation(facts)? else { return Ok(None) };
    let root = root::unwrap_root(seal_key, &installation, facts).await;
    root.and_then(|root| DataKeyRing::load(&root, installation, facts))
        .map(Some)
        .map_err(|error| seal::with_other_keys(seal_key, error))
}

/// Opens the data keys in these facts with `seal_key`, and describes the seal; `None` for a new store.
///
/// # Errors
/// `Invalid` when the key does not open them; the errors of a device.
pub(super) async fn describe_seal(seal_key: &SealKey, facts: &[Fact]) -> Result<Option<(SealInfo, DataKeyRing)>> {
    let Some(ring) = open_ring(seal_key, facts).await? else { return Ok(None) };
    Ok(Some((root::stored_seal(facts)?.unwrap_or_else(|| seal_key.about()), ring)))
}

async fn create_keys(seal_key: &SealKey, now: Time) -> Result<(DataKeyRing, Vec<Fact>)> {
    let installation = crate::random::uuid();
    let (root, record): (Secret, _) = match seal_key.bytes() {
        Some(bytes) => (bytes.clone(), None),
        None => {
            let root = root::generate();
            let record = root::wrap_root(seal_key, &installation, &root, now, 0).await?;
            (root, Some(record))
        }
    };
    let (ring, mut facts) = DataKeyRing::create(&root, installation)?;
    facts.push(creation_fact(ring.current().0, now));
    facts.extend(record.map(|record| (root::SEAL_FACT.to_owned(), record)));
    Ok((ring, facts))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;
    use futures_util::future::{BoxFuture, ready};

    use super::*;
    use crate::documents::MountId;
    use crate::storage::backend::SealedDocument;
    use crate::storage::embedded;

    /// Returns queued outdated facts first.
    struct StaleFactsReader<R> {
        reader: R,
        facts: Mutex<Vec<Vec<Fact>>>,
    }

    impl<R: StoreReader> StoreReader for StaleFactsReader<R> {
        fn meta(&self) -> BoxFuture<'static, Result<Vec<Fact>>> {
            match self.facts.lock().unwrap().pop() {
                Some(facts) => ready(Ok(facts)).boxed(),
                None => self.reader.meta(),
            }
        }

        fn documents(
            &self,
            mount: MountId,
            kind: Option<&'static str>,
        ) -> BoxFuture<'static, Result<Vec<SealedDocument>>> {
            self.reader.documents(mount, kind)
        }

        fn close(&self) {
            self.reader.close();
        }
    }

    #[tokio::test]
    async fn data_key_is_created_right_after_a_seal_change() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, pool) = embedded::open(dir.path(), Time::UNIX_EPOCH).unwrap();
        let commits = commit::CommitHandle::start(writer, 10).unwrap();
        let seal = SealKey::random();
        let next = SealKey::random();
        let clock = Clock::system();
        let late = Arc::new(StaleFactsReader { reader: pool.clone(), facts: Mutex::default() });
        let slow = StoreKeys::load(commits.clone(), late.clone(), &seal, clock.clone(), true).await.unwrap();
        let other = StoreKeys::load(commits.clone(), Arc::new(pool.clone()), &seal, clock.clone(), true).await.unwrap();
        let before = pool.meta().await.unwrap();
        other.change_seal(&next).await.unwrap();
        // Facts from before the change, used for a write after it.
        late.facts.lock().unwrap().push(before.clone());
        assert_eq!(slow.rotate(1).await.unwrap(), 2);
        // Facts from before the keys that the node has learned since.
        late.facts.lock().unwrap().push(before);
        assert_eq!(slow.rotate(2).await.unwrap(), 3);
        assert_eq!(other.rotate(1).await.unwrap(), 3, "there is a later one");
        let again = StoreKeys::load(commits, Arc::new(pool), &next, clock, true).await.unwrap();
        assert_eq!(again.status().await.unwrap().0, 3);
    }
}
