//! The data keys of an open store: made when it is new, found when it is not, and changed when one is worn.

use std::sync::Arc;

use crate::auth::store::DataKey;
use crate::clock::{Clock, Time};
use crate::error::{Kind, Result};
use crate::storage::backend::{Fact, Reader, Unit};
use crate::storage::commit;
use crate::storage::seal::{Ring, SealKey};

/// A store's data keys, and where they are kept.
pub(super) struct Keys {
    ring: Ring,
    commits: commit::Handle,
    reader: Arc<dyn Reader>,
    clock: Clock,
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
    /// `Invalid` for the wrong seal key, and those of the store.
    pub(super) async fn load(
        commits: commit::Handle,
        reader: Arc<dyn Reader>,
        seal_key: &SealKey,
        clock: Clock,
    ) -> Result<Self> {
        if let Some(ring) = Ring::load(seal_key, &reader.meta().await?)? {
            return Ok(Self { ring, commits, reader, clock });
        }
        let (ring, mut facts) = Ring::create(seal_key)?;
        facts.push(made(ring.current().0, clock.now()));
        let ring = match commits.submit(Unit::Facts(facts)).outcome().await {
            Ok(_) => ring,
            // Another node made the first keys at the same time: those count.
            Err(error) if error.kind() == Kind::Conflict => {
                Ring::load(seal_key, &reader.meta().await?)?.ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        Ok(Self { ring, commits, reader, clock })
    }

    /// The key that seals at present. Of one whose making was not noted it is noted now.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn status(&self) -> Result<DataKey> {
        let facts = self.reader.meta().await?;
        self.ring.learn(&facts)?;
        let (term, sealed) = self.ring.current();
        let noted = facts.iter().find(|(name, _)| *name == made_name(term));
        let noted = noted.and_then(|(_, at)| std::str::from_utf8(at).ok()?.parse().ok());
        if let Some(made_at) = noted.and_then(|seconds| Time::from_unix_timestamp(seconds).ok()) {
            return Ok(DataKey { term, made_at, sealed });
        }
        let made_at = self.clock.now();
        match self.commits.submit(Unit::Facts(vec![made(term, made_at)])).outcome().await {
            // Another node was first, by a moment.
            Err(error) if error.kind() == Kind::Conflict => Ok(DataKey { term, made_at, sealed }),
            other => other.map(|_| DataKey { term, made_at, sealed }),
        }
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
        if sealed.any(|body| !self.ring.has_key_of(body)) {
            self.ring.learn(&self.reader.meta().await?)?;
        }
        Ok(())
    }

    /// Adds a data key that seals everything from now on; returns its term.
    ///
    /// # Errors
    /// `Conflict` when another rotation came first; its key is in use then.
    pub(super) async fn rotate(&self) -> Result<u32> {
        let new = self.ring.new_term()?;
        let facts = vec![new.fact.clone(), made(self.ring.current().0 + 1, self.clock.now())];
        match self.commits.submit(Unit::Facts(facts)).outcome().await {
            Ok(_) => Ok(self.ring.adopt(new)),
            Err(error) => {
                if error.kind() == Kind::Conflict {
                    self.ring.learn(&self.reader.meta().await?)?;
                }
                Err(error)
            }
        }
    }
}
