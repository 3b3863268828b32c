//! The data keys of an open store: made when it is new, found when it is not, and changed when one is worn; and the
//! change of the seal around them.

use std::sync::Arc;

use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;
use crate::storage::backend::{Fact, FactWrite, Reader, Unit};
use crate::storage::commit;
use crate::storage::seal::{self, About, HANDOVER, Question, Ring, SealKey, root};

/// How often a change of the seal is begun again because a data key was added meanwhile.
const AGAIN: usize = 5;

/// A store's data keys, and where they are kept.
pub(super) struct Keys {
    ring: Ring,
    commits: commit::Handle,
    reader: Arc<dyn Reader>,
    clock: Clock,
    /// The seal that the store was opened with.
    about: About,
}

/// The name of the fact that says when a term was made.
fn made_name(term: u32) -> String {
    format!("data-key-made/{term}")
}

/// That fact: epoch seconds, as text.
fn made(term: u32, at: Time) -> Fact {
    (made_name(term), at.unix_timestamp().to_string().into_bytes())
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
        Ok(Self { ring, commits, reader, clock, about: seal_key.about() })
    }

    /// The key that seals at present: its term, when it was made, and how much it has sealed as far as is known here.
    /// When the making was not noted it is noted now.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn status(&self) -> Result<(u32, Time, u64)> {
        let facts = self.reader.meta().await?;
        self.ring.learn(&facts)?;
        let (term, sealed) = self.ring.current();
        let noted = facts.iter().find(|(name, _)| *name == made_name(term));
        let noted = noted.and_then(|(_, at)| std::str::from_utf8(at).ok()?.parse().ok());
        if let Some(made_at) = noted.and_then(|seconds| Time::from_unix_timestamp(seconds).ok()) {
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
        let facts = self.reader.meta().await?;
        self.ring.learn(&facts)?;
        self.ring.question(&facts)
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
            let keys = self.clone();
            runtime.spawn(async move {
                match keys.rotate().await {
                    Ok(term) => tracing::info!(term, "data key rotated"),
                    Err(error) => tracing::warn!(%error, "data key not rotated"),
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
    pub(super) async fn learn(&self) -> Result<()> {
        self.ring.learn(&self.reader.meta().await?)
    }

    /// Adds a data key that seals everything from now on; returns its term. Needs no seal: the root key is here.
    ///
    /// # Errors
    /// `Conflict` when another rotation came first; its key is in use then.
    pub(super) async fn rotate(&self) -> Result<u32> {
        let facts = self.reader.meta().await?;
        self.ring.learn(&facts)?;
        let new = self.ring.new_term()?;
        let made = made(new.term, self.clock.now());
        let unchanged = FactWrite::over(&facts, root::SEAL, None);
        let writes = vec![unchanged, FactWrite::new(new.fact.clone()), FactWrite::new(made)];
        match self.change(writes).await {
            Ok(()) => Ok(self.ring.adopt(new)),
            Err(error) => {
                if error.kind() == Kind::Conflict {
                    self.learn().await?;
                }
                Err(error)
            }
        }
    }

    /// Seals the store by another key: a new root key that the seal wraps, and with it all data keys wrapped anew.
    /// Data keys do not change, so nodes that run go on, and take the root key over when a data key is added.
    ///
    /// # Errors
    /// Those of a device, and of the store; nothing was changed then.
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
        let facts = self.reader.meta().await?;
        self.ring.learn(&facts)?;
        let root = root::new();
        let record = root::wrapped(seal, self.ring.installation(), &root, self.clock.now()).await?;
        let handover = self.ring.seal(HANDOVER.as_bytes(), root.expose().to_vec())?;
        let mut writes = vec![
            FactWrite::over(&facts, root::SEAL, Some(record)),
            FactWrite::over(&facts, HANDOVER, Some(handover)),
            // Without a newer one, which would be wrapped by the root key before.
            FactWrite { name: self.ring.next_name(), expected: None, value: None },
        ];
        let rewrapped = self.ring.rewrapped(&root, &facts)?.into_iter();
        writes.extend(rewrapped.map(|(name, before, after)| FactWrite {
            name,
            expected: Some(before),
            value: Some(after),
        }));
        self.change(writes).await?;
        self.learn().await?;
        self.seal_status().await
    }

    async fn change(&self, writes: Vec<FactWrite>) -> Result<()> {
        self.commits.submit(Unit::Facts(writes)).outcome().await.map(drop)
    }
}

/// The ring of a store that has one.
async fn open(seal_key: &SealKey, facts: &[Fact]) -> Result<Option<Ring>> {
    let Some(installation) = seal::installation(facts)? else { return Ok(None) };
    let root = root::opened(seal_key, &installation, facts).await?;
    Ring::load(&root, installation, facts).map(Some)
}

/// The ring of a new store, and the facts that it begins with.
async fn create(seal_key: &SealKey, now: Time) -> Result<(Ring, Vec<Fact>)> {
    let installation = crate::random::uuid();
    let (root, record): (Secret, _) = match seal_key.bytes() {
        Some(bytes) => (bytes.clone(), None),
        None => {
            let root = root::new();
            let record = root::wrapped(seal_key, &installation, &root, now).await?;
            (root, Some(record))
        }
    };
    let (ring, mut facts) = Ring::create(&root, installation)?;
    facts.push(made(ring.current().0, now));
    facts.extend(record.map(|record| (root::SEAL.to_owned(), record)));
    Ok((ring, facts))
}
