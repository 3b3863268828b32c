//! The data keys of an open store: made when it is new, found when it is not, and changed when one is worn.

use std::sync::Arc;

use crate::error::{Kind, Result};
use crate::storage::backend::{Reader, Unit};
use crate::storage::commit;
use crate::storage::seal::{Ring, SealKey};

/// A store's data keys, and where they are kept.
pub(super) struct Keys {
    ring: Ring,
    commits: commit::Handle,
    reader: Arc<dyn Reader>,
}

impl Keys {
    /// The keys of a store; a new store gets its first ones.
    ///
    /// # Errors
    /// `Invalid` for the wrong seal key, and those of the store.
    pub(super) async fn load(commits: commit::Handle, reader: Arc<dyn Reader>, seal_key: &SealKey) -> Result<Self> {
        if let Some(ring) = Ring::load(seal_key, &reader.meta().await?)? {
            return Ok(Self { ring, commits, reader });
        }
        let (ring, facts) = Ring::create(seal_key)?;
        let ring = match commits.submit(Unit::Facts(facts)).outcome().await {
            Ok(_) => ring,
            // Another node made the first keys at the same time: those count.
            Err(error) if error.kind() == Kind::Conflict => {
                Ring::load(seal_key, &reader.meta().await?)?.ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        Ok(Self { ring, commits, reader })
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
        match self.commits.submit(Unit::Facts(vec![new.fact.clone()])).outcome().await {
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
