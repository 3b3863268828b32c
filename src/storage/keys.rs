//! The data keys of an open store: made when it is new, found when it is not, and changed when one is worn; and the
//! change of the seal around them.

mod again;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;
use crate::storage::backend::{Fact, FactWrite, Reader, Unit};
use crate::storage::commit;
use crate::storage::seal::{self, About, HANDOVER, Question, Ring, Root, SealKey, Wrapping, root};
use crate::telemetry;
use again::Again;

/// How often a change of the keys is begun again because others changed them meanwhile.
const AGAIN: usize = 5;
/// With several nodes, the age of a data key at which all of them know it: what they read of the change log is never older
/// than seconds, and no write of theirs is longer under way than this.
pub(super) const KNOWN: Duration = Duration::from_secs(30);
/// With several nodes, the age of a seal at which all that run have taken its root key over: they look every ten seconds.
const TAKEN: Duration = Duration::from_secs(60);
/// What a node says that knows no key of what the store has by now.
const LOST: &str = "seal: the store was sealed anew while this node was away, and the seal of its configuration does not \
                    open it so far; give the node the one that the store has now";

/// A store's data keys, and where they are kept.
pub(super) struct Keys {
    ring: Arc<Ring>,
    commits: commit::Handle,
    reader: Arc<dyn Reader>,
    clock: Clock,
    /// The seal that the store was opened with.
    about: About,
    /// The same, or what is in its place by now.
    again: Again,
    /// Whether other nodes may use the same store.
    shared: bool,
}

/// The name of the fact that says when a term was made.
fn made_name(term: u32) -> String {
    format!("data-key-made/{term}")
}

/// That fact: epoch seconds, as text.
fn made(term: u32, at: Time) -> Fact {
    (made_name(term), at.unix_timestamp().to_string().into_bytes())
}

/// When a term was made, if that was noted.
fn made_at(facts: &[Fact], term: u32) -> Option<Time> {
    let (_, noted) = facts.iter().find(|(name, _)| *name == made_name(term))?;
    Time::from_unix_timestamp(std::str::from_utf8(noted).ok()?.parse().ok()?).ok()
}

impl Keys {
    /// The keys of a store; a new store gets its first ones.
    ///
    /// # Errors
    /// `Invalid` for the wrong seal key, those of a device that holds it, and those of the store.
    pub(super) async fn load(
        commits: commit::Handle,
        reader: Arc<dyn Reader>,
        seal_key: &SealKey,
        clock: Clock,
        shared: bool,
    ) -> Result<Self> {
        let facts = reader.meta().await?;
        let ring = match open(seal_key, &facts).await? {
            Some(ring) => ring,
            None => {
                let (ring, facts) = create(seal_key, clock.now()).await?;
                let facts = facts.into_iter().map(FactWrite::new).collect();
                match commits.submit(Unit::Facts(facts)).outcome().await {
                    Ok(_) => ring,
                    // Another node made the first keys at the same time: those count.
                    Err(error) if error.kind() == Kind::Conflict => {
                        open(seal_key, &reader.meta().await?).await?.ok_or(error)?
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let (ring, about, again) = (Arc::new(ring), seal_key.about(), Again::new(seal_key.source()));
        Ok(Self { ring, commits, reader, clock, about, again, shared })
    }

    /// The key that seals at present: its term, when it was made, and how much it has sealed as far as is known here.
    /// When the making was not noted it is noted now.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn status(&self) -> Result<(u32, Time, u64)> {
        let (facts, _) = self.read().await?;
        let (term, sealed) = self.ring.current();
        if let Some(made_at) = made_at(&facts, term) {
            return Ok((term, made_at, sealed));
        }
        let made_at = self.clock.now();
        match self.change(vec![FactWrite::new(made(term, made_at))]).await {
            // Another node was first, by a moment.
            Err(error) if error.kind() == Kind::Conflict => Ok((term, made_at, sealed)),
            other => other.map(|()| (term, made_at, sealed)),
        }
    }

    /// The seal of the store.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn seal_status(&self) -> Result<About> {
        Ok(root::stored(&self.reader.meta().await?)?.unwrap_or_else(|| self.about.clone()))
    }

    /// A question that whoever has the seal can answer, and its answer.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn seal_question(&self) -> Result<(Question, Secret)> {
        let (facts, root) = self.read().await?;
        self.ring.question(&root, &facts)
    }

    /// The ring, for those who count.
    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The time.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Seals a body for the row that `context` names. A key that is worn is changed meanwhile.
    pub(super) fn seal(self: &Arc<Self>, context: &[u8], body: Vec<u8>) -> Result<Vec<u8>> {
        if self.ring.asks_for_rotation()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (keys, (worn, _)) = (self.clone(), self.ring.current());
            runtime.spawn(async move {
                match keys.rotate(worn).await {
                    Ok(term) => tracing::info!(term, "data key rotated"),
                    Err(error) => telemetry::not_done("data key not rotated", &error),
                }
            });
        }
        self.ring.seal(context, body)
    }

    /// Opens what was sealed for the row that `context` names, by a key that is known here.
    pub(super) fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        self.ring.open(context, sealed)
    }

    /// Looks for new data keys when one of the values is sealed with a key that is not known here: another
    /// node has rotated.
    pub(super) async fn follow(&self, mut sealed: impl Iterator<Item = &[u8]>) -> Result<()> {
        if sealed.any(|body| !self.ring.has_key_of(body)) { self.learn().await } else { Ok(()) }
    }

    /// Takes over the data keys that are stored by now.
    ///
    /// # Errors
    /// Those of the store; `Unavailable` when this node does not know the root key any more, and has no seal for it.
    pub(super) async fn learn(&self) -> Result<()> {
        self.read().await.map(drop)
    }

    /// As [`Keys::learn`], of a store that has lost what was stored last.
    pub(super) async fn learn_anew(&self) -> Result<()> {
        self.read_by(Ring::learn_anew).await.map(drop)
    }

    /// The facts of the store, and the root key that they are wrapped by; what is new in them is taken over.
    async fn read(&self) -> Result<(Vec<Fact>, Arc<Root>)> {
        self.read_by(Ring::learn).await
    }

    async fn read_by(&self, learn: fn(&Ring, &[Fact]) -> Result<Arc<Root>>) -> Result<(Vec<Fact>, Arc<Root>)> {
        let facts = self.reader.meta().await?;
        if let Ok(root) = learn(&self.ring, &facts) {
            return Ok((facts, root));
        }
        // They may be from before a change of the seal that was learned of meanwhile.
        let facts = self.reader.meta().await?;
        match learn(&self.ring, &facts) {
            Ok(root) => return Ok((facts, root)),
            Err(error) if error.kind() != Kind::Invalid => return Err(error),
            Err(_) => {}
        }
        // The seal was changed, and what was left for this node is gone: it was away for too long.
        let opened = self.again.open(&self.ring, &facts).await;
        // Nobody's request is wrong.
        let root = opened.and_then(|()| learn(&self.ring, &facts)).map_err(|error| Error::unavailable(LOST, error))?;
        Ok((facts, root))
    }

    /// Adds a data key after that of the term `from`, which seals everything from now on; returns its term, or that of
    /// a later one which others have added. Needs no seal: the root key is here.
    ///
    /// # Errors
    /// `Busy` when others change the keys all the time; those of the store.
    pub(super) async fn rotate(&self, from: u32) -> Result<u32> {
        for _ in 0..AGAIN {
            let (facts, root) = self.read().await?;
            let (term, _) = self.ring.current();
            if term > from {
                return Ok(term);
            }
            let new = self.ring.new_term(&root, term)?;
            let unchanged = FactWrite::over(&facts, root::SEAL, None);
            // Wrapped as the one before, which may be changed by `end_token_upgrade` at the same moment.
            let wrapped_alike = FactWrite::over(&facts, &seal::term_name(term.into()), None);
            let made = made(new.term, self.clock.now());
            let mut writes = vec![unchanged, wrapped_alike, FactWrite::new(new.fact.clone()), FactWrite::new(made)];
            writes.extend(self.handover_ends(&facts)?);
            match self.change(writes).await {
                Ok(()) => return Ok(self.ring.adopt(new)),
                // Another key was added, or the seal was changed.
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Kind::Busy, "data keys: others change them all the time; try again"))
    }

    /// Takes away the root key that was left for nodes that run, once they have had the time to take it over; whether
    /// there is none any more.
    ///
    /// # Errors
    /// `Conflict` when others changed the keys meanwhile; those of the store.
    pub(super) async fn end_handover(&self) -> Result<bool> {
        let facts = self.reader.meta().await?;
        if !seal::is_handed_over(&facts) {
            return Ok(true);
        }
        let Some(end) = self.handover_ends(&facts)? else { return Ok(false) };
        self.change(vec![FactWrite::over(&facts, root::SEAL, None), end]).await?;
        Ok(true)
    }

    /// What takes the root key away that was left for nodes that run, if it may go.
    fn handover_ends(&self, facts: &[Fact]) -> Result<Option<FactWrite>> {
        let since = root::stored(facts)?.and_then(|seal| seal.since);
        // One of the future is of a clock that was wrong.
        let is_new = since.is_some_and(|since| (self.clock.now() - since).unsigned_abs() < TAKEN);
        let ends = seal::is_handed_over(facts) && !(self.shared && is_new);
        Ok(ends.then(|| FactWrite::over(facts, HANDOVER, Some(Vec::new()))))
    }

    /// Seals the store by another key: a new root key that the seal wraps, and with it all data keys wrapped anew.
    /// Data keys do not change, so nodes that run go on. They take the root key over when they look next: it is left for
    /// them under the data key in use, which all of them know.
    ///
    /// # Errors
    /// `Busy` while a data key is so new that a node may not know it; those of a device, and of the store. Nothing was
    /// changed then.
    pub(super) async fn change_seal(&self, seal: &SealKey) -> Result<About> {
        for _ in 0..AGAIN {
            match self.change_seal_once(seal).await {
                Err(error) if error.kind() == Kind::Conflict => {}
                done => return done,
            }
        }
        Err(Error::new(Kind::Conflict, "seal: the data keys are changed by others all the time; try again"))
    }

    async fn change_seal_once(&self, seal: &SealKey) -> Result<About> {
        let (facts, before) = self.read().await?;
        let term = seal::newest_term(&facts);
        self.refuse_unknown(&facts, term)?;
        let (root, generation) = (root::new(), root::generation(&facts)? + 1);
        let record = root::wrapped(seal, self.ring.installation(), &root, self.clock.now(), generation).await?;
        let mut writes = vec![
            FactWrite::over(&facts, root::SEAL, Some(record)),
            // Without a newer one, which would be wrapped by the root key before.
            FactWrite { name: seal::term_name(u64::from(term) + 1), expected: None, value: None },
        ];
        // Who has the data key can open it, so it is there only where somebody needs it.
        if self.shared {
            let handover = self.ring.seal(HANDOVER.as_bytes(), root.expose().to_vec())?;
            writes.push(FactWrite::over(&facts, HANDOVER, Some(handover)));
        } else if seal::is_handed_over(&facts) {
            writes.push(FactWrite::over(&facts, HANDOVER, Some(Vec::new())));
        }
        let root = Arc::new(Root::new(&root, generation)?);
        writes.extend(self.rewrapped(&before, &root, self.ring.wrapping(), &facts)?);
        self.change(writes).await?;
        self.ring.meet(&root);
        self.seal_status().await
    }

    /// The writes that wrap the data keys by `to`, in this way.
    fn rewrapped(&self, from: &Root, to: &Root, wrapping: Wrapping, facts: &[Fact]) -> Result<Vec<FactWrite>> {
        let rewrapped = self.ring.rewrapped(from, to, wrapping, facts)?.into_iter();
        let write = |(name, before, after)| FactWrite { name, expected: Some(before), value: Some(after) };
        Ok(rewrapped.map(write).collect())
    }

    /// Returns `true` if API tokens without a seal are refused for good, as far as is known here.
    pub(super) fn are_tokens_sealed(&self) -> bool {
        self.ring.wrapping() == Wrapping::TokensSealed
    }

    /// Records that the API tokens of earlier versions are sealed: from now on those without a seal are refused. It is
    /// recorded in the wrapping of the data keys, which cannot be changed without the seal.
    ///
    /// # Errors
    /// `Conflict` when others change the keys all the time; those of the store.
    pub(super) async fn end_token_upgrade(&self) -> Result<()> {
        self.wrap_in(Wrapping::TokensSealed).await
    }

    /// As a version before schema 14 leaves the data keys.
    #[cfg(test)]
    pub(super) async fn begin_token_upgrade(&self) -> Result<()> {
        self.wrap_in(Wrapping::TokensMayBeBare).await
    }

    async fn wrap_in(&self, wrapping: Wrapping) -> Result<()> {
        for _ in 0..AGAIN {
            let (facts, root) = self.read().await?;
            let newest = seal::newest_term(&facts);
            let mut writes = vec![
                FactWrite::over(&facts, root::SEAL, None),
                FactWrite { name: seal::term_name(u64::from(newest) + 1), expected: None, value: None },
            ];
            writes.extend(self.rewrapped(&root, &root, wrapping, &facts)?);
            match self.change(writes).await {
                Ok(()) => return self.learn().await,
                // Another node does the same, added a key, or changed the seal.
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Kind::Conflict, "data keys: other nodes changed them at each attempt; try again"))
    }

    /// That every node knows the data key of this term, under which the next root key is left for it. The first one is
    /// as old as the store.
    fn refuse_unknown(&self, facts: &[Fact], term: u32) -> Result<()> {
        let age = made_at(facts, term).map(|made_at| (self.clock.now() - made_at).unsigned_abs());
        match age {
            Some(age) if self.shared && term > 1 && age < KNOWN => Err(Error::new(
                Kind::Busy,
                format!(
                    "seal: a data key was made a moment ago, which not every node knows yet; try again in {} seconds",
                    (KNOWN - age).as_secs() + 1
                ),
            )),
            _ => Ok(()),
        }
    }

    async fn change(&self, writes: Vec<FactWrite>) -> Result<()> {
        self.commits.submit(Unit::Facts(writes)).outcome().await.map(drop)
    }
}

/// The ring of a store that has one.
async fn open(seal_key: &SealKey, facts: &[Fact]) -> Result<Option<Ring>> {
    let Some(installation) = seal::installation(facts)? else { return Ok(None) };
    let root = root::opened(seal_key, &installation, facts).await;
    root.and_then(|root| Ring::load(&root, installation, facts))
        .map(Some)
        .map_err(|error| seal::unopened(seal_key, error))
}

/// The seal of a store whose facts these are, and its data keys, when `seal_key` opens them; `None` for a store without
/// any.
///
/// # Errors
/// `Invalid` when it does not, and those of a device.
pub(super) async fn about(seal_key: &SealKey, facts: &[Fact]) -> Result<Option<(About, Ring)>> {
    let Some(ring) = open(seal_key, facts).await? else { return Ok(None) };
    Ok(Some((root::stored(facts)?.unwrap_or_else(|| seal_key.about()), ring)))
}

/// The ring of a new store, and the facts that it begins with.
async fn create(seal_key: &SealKey, now: Time) -> Result<(Ring, Vec<Fact>)> {
    let installation = crate::random::uuid();
    let (root, record): (Secret, _) = match seal_key.bytes() {
        Some(bytes) => (bytes.clone(), None),
        None => {
            let root = root::new();
            let record = root::wrapped(seal_key, &installation, &root, now, 0).await?;
            (root, Some(record))
        }
    };
    let (ring, mut facts) = Ring::create(&root, installation)?;
    facts.push(made(ring.current().0, now));
    facts.extend(record.map(|record| (root::SEAL.to_owned(), record)));
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

    /// Gives facts that were read earlier, while it has some.
    struct Late<R> {
        reader: R,
        facts: Mutex<Vec<Vec<Fact>>>,
    }

    impl<R: Reader> Reader for Late<R> {
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
    async fn a_key_is_made_although_the_seal_was_changed_a_moment_before() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, pool) = embedded::open(dir.path(), Time::UNIX_EPOCH).unwrap();
        let commits = commit::Handle::start(writer, 10).unwrap();
        let (seal, next, clock) = (SealKey::random(), SealKey::random(), Clock::system());
        let late = Arc::new(Late { reader: pool.clone(), facts: Mutex::default() });
        let slow = Keys::load(commits.clone(), late.clone(), &seal, clock.clone(), true).await.unwrap();
        let other = Keys::load(commits.clone(), Arc::new(pool.clone()), &seal, clock.clone(), true).await.unwrap();
        let before = pool.meta().await.unwrap();
        other.change_seal(&next).await.unwrap();
        // Read before the change, and written after it.
        late.facts.lock().unwrap().push(before.clone());
        assert_eq!(slow.rotate(1).await.unwrap(), 2);
        // Read before what has been learned since.
        late.facts.lock().unwrap().push(before);
        assert_eq!(slow.rotate(2).await.unwrap(), 3);
        assert_eq!(other.rotate(1).await.unwrap(), 3, "there is a later one");
        let again = Keys::load(commits, Arc::new(pool), &next, clock, true).await.unwrap();
        assert_eq!(again.status().await.unwrap().0, 3);
    }
}
