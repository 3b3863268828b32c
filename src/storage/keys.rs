//! The data keys of an open store: their creation, loading and rotation, and the replacement of the seal key.

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

/// Maximum number of attempts at a change of the keys that conflicts with changes by other nodes.
const MAX_CHANGE_ATTEMPTS: usize = 5;
/// Age from which all nodes are assumed to know a data key. Nodes read the change log every second, and no write that
/// still uses an older key takes longer than this.
pub(super) const KEY_PROPAGATION_TIME: Duration = Duration::from_secs(30);
/// Age of a seal from which all running nodes are assumed to have loaded its root key, because they read the keys every
/// ten seconds.
const HANDOVER_TIME: Duration = Duration::from_secs(60);
/// Error of a node that no longer has a key that opens the store.
const SEAL_CHANGED: &str = "seal: the seal was changed while this node was offline, and the configured seal does not \
                            open the store; configure the current one";

pub(super) struct StoreKeys {
    ring: Arc<DataKeyRing>,
    commits: commit::CommitHandle,
    reader: Arc<dyn StoreReader>,
    clock: Clock,
    /// The seal with which the store was opened.
    opening_seal: SealInfo,
    /// Reads the seal key again from its source, after another node has changed the seal.
    reopener: SealReopener,
    /// `true` if several nodes may use the store.
    shared: bool,
}

fn creation_fact_name(term: u32) -> String {
    format!("data-key-made/{term}")
}

/// Returns the fact that records when the data key of a term was created, in epoch seconds.
fn creation_fact(term: u32, at: Time) -> Fact {
    (creation_fact_name(term), at.unix_timestamp().to_string().into_bytes())
}

fn creation_time(facts: &[Fact], term: u32) -> Option<Time> {
    let (_, recorded) = facts.iter().find(|(name, _)| *name == creation_fact_name(term))?;
    Time::from_unix_timestamp(std::str::from_utf8(recorded).ok()?.parse().ok()?).ok()
}

impl StoreKeys {
    /// Loads the root key and data keys of a store, or creates those of a new store.
    ///
    /// # Errors
    /// `Invalid` for the wrong seal key; the errors of the device that holds the key, and of the store.
    pub(super) async fn load(
        commits: commit::CommitHandle,
        reader: Arc<dyn StoreReader>,
        seal_key: &SealKey,
        clock: Clock,
        shared: bool,
    ) -> Result<Self> {
        let facts = reader.facts().await?;
        let ring = match open_ring(seal_key, &facts).await? {
            Some(ring) => ring,
            None => {
                let (ring, facts) = create_keys(seal_key, clock.now()).await?;
                let facts = facts.into_iter().map(FactWrite::new).collect();
                match commits.submit(WriteUnit::Facts(facts)).outcome().await {
                    Ok(_) => ring,
                    // Another node has just created the first keys; this node uses them too.
                    Err(error) if error.kind() == Kind::Conflict => {
                        open_ring(seal_key, &reader.facts().await?).await?.ok_or(error)?
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let ring = Arc::new(ring);
        let opening_seal = seal_key.describe();
        let reopener = SealReopener::new(seal_key.origin());
        Ok(Self { ring, commits, reader, clock, opening_seal, reopener, shared })
    }

    /// Returns the term and creation time of the current data key, and the known number of values that it has sealed.
    /// If the creation time was never recorded, records the current time.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn current_key_status(&self) -> Result<(u32, Time, u64)> {
        let (facts, _) = self.read_facts().await?;
        let (term, sealed) = self.ring.current_term_and_uses();
        if let Some(created_at) = creation_time(&facts, term) {
            return Ok((term, created_at, sealed));
        }
        let created_at = self.clock.now();
        match self.write_facts(vec![FactWrite::new(creation_fact(term, created_at))]).await {
            // Another node has just recorded the creation time.
            Err(error) if error.kind() == Kind::Conflict => Ok((term, created_at, sealed)),
            other => other.map(|()| (term, created_at, sealed)),
        }
    }

    /// Returns a description of the seal that the store has now.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn seal_status(&self) -> Result<SealInfo> {
        Ok(root::stored_seal(&self.reader.facts().await?)?.unwrap_or_else(|| self.opening_seal.clone()))
    }

    /// Returns a challenge that only a holder of the seal key can answer, and the expected response.
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

    /// Seals a body for the row that `context` identifies. If the data key is used up, starts its rotation in the
    /// background.
    pub(super) fn seal(self: &Arc<Self>, context: &[u8], body: Vec<u8>) -> Result<Vec<u8>> {
        if self.ring.must_request_rotation()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let keys = self.clone();
            let (worn, _) = self.ring.current_term_and_uses();
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

    /// Decrypts a sealed value of the row that `context` identifies. Its data key must be loaded
    /// ([`Self::load_missing_keys`]).
    pub(super) fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        self.ring.open(context, sealed)
    }

    /// Loads new data keys if one of the values is sealed with a key that this node does not know, because another node
    /// has rotated the data key.
    pub(super) async fn load_missing_keys(&self, mut sealed: impl Iterator<Item = &[u8]>) -> Result<()> {
        if sealed.any(|body| !self.ring.has_key_of(body)) { self.load_new_keys().await } else { Ok(()) }
    }

    /// Loads the data keys that the store contains now.
    ///
    /// # Errors
    /// The errors of the store; `Unavailable` when the root key has changed and this node's seal does not open it.
    pub(super) async fn load_new_keys(&self) -> Result<()> {
        self.read_facts().await.map(drop)
    }

    /// As [`StoreKeys::load_new_keys`], after a failover that may have lost the latest writes, among them a data key.
    pub(super) async fn reload_after_loss(&self) -> Result<()> {
        self.read_facts_with(DataKeyRing::reload_after_loss).await.map(drop)
    }

    /// Reads the facts of the store and loads new keys. Returns the facts with the root key that wraps their data keys.
    async fn read_facts(&self) -> Result<(Vec<Fact>, Arc<RootKey>)> {
        self.read_facts_with(DataKeyRing::load_new_keys).await
    }

    async fn read_facts_with(
        &self,
        load_new_keys: fn(&DataKeyRing, &[Fact]) -> Result<Arc<RootKey>>,
    ) -> Result<(Vec<Fact>, Arc<RootKey>)> {
        let facts = self.reader.facts().await?;
        if let Ok(root) = load_new_keys(&self.ring, &facts) {
            return Ok((facts, root));
        }
        // The facts were possibly read before a change of the seal. If another task has loaded the new root key since
        // then, that key cannot unwrap the data keys in these old facts. Read the facts again.
        let facts = self.reader.facts().await?;
        match load_new_keys(&self.ring, &facts) {
            Ok(root) => return Ok((facts, root)),
            Err(error) if error.kind() != Kind::Invalid => return Err(error),
            Err(_) => {}
        }
        // This node was offline during the change of the seal, and the store no longer contains the new root key for
        // running nodes.
        let opened = self.reopener.open(&self.ring, &facts).await;
        // The error is not `Invalid`, because the client's request is not at fault.
        let root = opened
            .and_then(|()| load_new_keys(&self.ring, &facts))
            .map_err(|error| Error::unavailable(SEAL_CHANGED, error))?;
        Ok((facts, root))
    }

    /// Creates a data key, which seals all later values. Does not create one if a data key with a higher term than
    /// `from` exists already. Returns the current term. Uses the root key in memory, not the seal key.
    ///
    /// # Errors
    /// `Busy` when other nodes keep changing the keys; the errors of the store.
    pub(super) async fn rotate(&self, from: u32) -> Result<u32> {
        for _ in 0..MAX_CHANGE_ATTEMPTS {
            let (facts, root) = self.read_facts().await?;
            let (term, _) = self.ring.current_term_and_uses();
            if term > from {
                return Ok(term);
            }
            let new = self.ring.create_data_key(&root, term)?;
            let unchanged = FactWrite::if_unchanged(&facts, root::SEAL_FACT, None);
            // `end_token_upgrade` may rewrap the data keys concurrently, and the new key must be wrapped in the same
            // way.
            let wrapped_alike = FactWrite::if_unchanged(&facts, &seal::data_key_fact_name(term.into()), None);
            let made = creation_fact(new.term, self.clock.now());
            let mut writes = vec![unchanged, wrapped_alike, FactWrite::new(new.fact.clone()), FactWrite::new(made)];
            writes.extend(self.handover_end_write(&facts)?);
            match self.write_facts(writes).await {
                Ok(()) => return Ok(self.ring.adopt_data_key(new)),
                // Another node has added a key or changed the seal; try again.
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Kind::Busy, "data keys: concurrent modification; retry"))
    }

    /// After a change of the seal, removes the new root key that is stored for running nodes (the handover), after they
    /// have had time to load it. Returns `true` if the store contains no such key any more.
    ///
    /// # Errors
    /// `Conflict` for a concurrent change of the keys; the errors of the store.
    pub(super) async fn end_handover(&self) -> Result<bool> {
        let facts = self.reader.facts().await?;
        if !seal::has_root_key_handover(&facts) {
            return Ok(true);
        }
        let Some(end) = self.handover_end_write(&facts)? else { return Ok(false) };
        self.write_facts(vec![FactWrite::if_unchanged(&facts, root::SEAL_FACT, None), end]).await?;
        Ok(true)
    }

    /// Returns the write that removes the handed over root key ([`Self::end_handover`]); `None` if there is no such
    /// key, or if other nodes may still need it.
    fn handover_end_write(&self, facts: &[Fact]) -> Result<Option<FactWrite>> {
        let since = root::stored_seal(facts)?.and_then(|seal| seal.since);
        // The absolute difference is compared, because a wrong clock may have recorded a time in the future.
        let is_new = since.is_some_and(|since| (self.clock.now() - since).unsigned_abs() < HANDOVER_TIME);
        let ends = seal::has_root_key_handover(facts) && !(self.shared && is_new);
        Ok(ends.then(|| FactWrite::if_unchanged(facts, HANDOVER_FACT, Some(Vec::new()))))
    }

    /// Replaces the seal key: creates a new root key, wraps it with the new seal key, and wraps all data keys with the
    /// new root key. The data keys stay the same, so running nodes continue. The new root key is stored for these
    /// nodes, sealed with the current data key, which they know.
    ///
    /// # Errors
    /// `Busy` while some node may not know the newest data key; `Conflict` when other nodes keep changing the keys; the
    /// errors of the device and of the store. After an error nothing has changed.
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
        self.require_key_known_to_all_nodes(&facts, term)?;
        let (root, generation) = (root::generate_root_key(), root::root_key_generation(&facts)? + 1);
        let record = root::wrap_root(seal, self.ring.installation_id(), &root, self.clock.now(), generation).await?;
        let mut writes = vec![
            FactWrite::if_unchanged(&facts, root::SEAL_FACT, Some(record)),
            // This condition fails if a newer data key was added, because that key would still be wrapped with the
            // previous root key.
            FactWrite { name: seal::data_key_fact_name(u64::from(term) + 1), expected: None, value: None },
        ];
        // Every holder of the current data key can decrypt the handed over root key, so it is stored only if other
        // nodes need it.
        if self.shared {
            let handover = self.ring.seal(HANDOVER_FACT.as_bytes(), root.expose().to_vec())?;
            writes.push(FactWrite::if_unchanged(&facts, HANDOVER_FACT, Some(handover)));
        } else if seal::has_root_key_handover(&facts) {
            writes.push(FactWrite::if_unchanged(&facts, HANDOVER_FACT, Some(Vec::new())));
        }
        let root = Arc::new(RootKey::new(&root, generation)?);
        writes.extend(self.rewrap(&before, &root, self.ring.wrapping(), &facts)?);
        self.write_facts(writes).await?;
        self.ring.adopt_root(&root);
        self.seal_status().await
    }

    /// Returns the writes that rewrap the data keys. Each key is unwrapped with the root key `from`, and wrapped with
    /// the root key `to` and with `wrapping` in the associated data.
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

    /// Returns `true` if this node knows that all API tokens have a seal and that tokens without one are rejected.
    pub(super) fn are_tokens_sealed(&self) -> bool {
        self.ring.wrapping() == DataKeyWrapping::TokensSealed
    }

    /// Records that all API tokens have a seal, so that tokens without one are rejected from now on. The record is part
    /// of the wrapping of the data keys, and this wrapping cannot be changed without the seal.
    ///
    /// # Errors
    /// `Conflict` when other nodes keep changing the keys; the errors of the store.
    pub(super) async fn end_token_upgrade(&self) -> Result<()> {
        self.change_wrapping(DataKeyWrapping::TokensSealed).await
    }

    /// Restores the state of a store written by a version before schema 14, in which API tokens may have no seal.
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
                FactWrite { name: seal::data_key_fact_name(u64::from(newest) + 1), expected: None, value: None },
            ];
            writes.extend(self.rewrap(&root, &root, wrapping, &facts)?);
            match self.write_facts(writes).await {
                Ok(()) => return self.load_new_keys().await,
                // Another node has made this change, added a key, or changed the seal; try again.
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Kind::Conflict, "data keys: concurrent modification by other nodes; retry"))
    }

    /// Checks that all nodes know the data key of `term`, which will seal the next root key for them; `Busy` if the key
    /// is too new. The first data key is always known, because it was created with the store.
    fn require_key_known_to_all_nodes(&self, facts: &[Fact], term: u32) -> Result<()> {
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
    let Some(installation) = seal::stored_installation_id(facts)? else { return Ok(None) };
    let root = root::unwrap_root(seal_key, &installation, facts).await;
    root.and_then(|root| DataKeyRing::load(&root, installation, facts))
        .map(Some)
        .map_err(|error| seal::with_other_keys(seal_key, error))
}

/// Opens the data keys in these facts with `seal_key`. Returns a description of the seal and the data keys; `None` for
/// a new store.
///
/// # Errors
/// `Invalid` when the key does not open them; the errors of the device that holds the key.
pub(super) async fn describe_seal(seal_key: &SealKey, facts: &[Fact]) -> Result<Option<(SealInfo, DataKeyRing)>> {
    let Some(ring) = open_ring(seal_key, facts).await? else { return Ok(None) };
    Ok(Some((root::stored_seal(facts)?.unwrap_or_else(|| seal_key.describe()), ring)))
}

async fn create_keys(seal_key: &SealKey, now: Time) -> Result<(DataKeyRing, Vec<Fact>)> {
    let installation = crate::random::uuid();
    let (root, record): (Secret, _) = match seal_key.bytes() {
        Some(bytes) => (bytes.clone(), None),
        None => {
            let root = root::generate_root_key();
            let record = root::wrap_root(seal_key, &installation, &root, now, 0).await?;
            (root, Some(record))
        }
    };
    let (ring, mut facts) = DataKeyRing::create(&root, installation)?;
    facts.push(creation_fact(ring.current_term_and_uses().0, now));
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

    /// A reader that first returns outdated facts from a queue, and then those of the store.
    struct StaleFactsReader<R> {
        reader: R,
        facts: Mutex<Vec<Vec<Fact>>>,
    }

    impl<R: StoreReader> StoreReader for StaleFactsReader<R> {
        fn facts(&self) -> BoxFuture<'static, Result<Vec<Fact>>> {
            match self.facts.lock().unwrap().pop() {
                Some(facts) => ready(Ok(facts)).boxed(),
                None => self.reader.facts(),
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
        let before = pool.facts().await.unwrap();
        other.change_seal(&next).await.unwrap();
        // A read returns facts from before the change of the seal, and a write uses these facts after the change.
        late.facts.lock().unwrap().push(before.clone());
        assert_eq!(slow.rotate(1).await.unwrap(), 2);
        // A read returns facts that are older than the keys that the node knows.
        late.facts.lock().unwrap().push(before);
        assert_eq!(slow.rotate(2).await.unwrap(), 3);
        assert_eq!(other.rotate(1).await.unwrap(), 3, "there is a later one");
        let again = StoreKeys::load(commits, Arc::new(pool), &next, clock, true).await.unwrap();
        assert_eq!(again.current_key_status().await.unwrap().0, 3);
    }
}
