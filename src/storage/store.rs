//! One open store, of whatever engine: the way of a domain's writes to the commit actor, and of what is sealed
//! back out. An engine implements the domains' own store traits for the [`Store`] that holds its reader.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use crate::clock::Clock;
use crate::documents::{Document, MountId};
use crate::error::{Error, Result};
use crate::storage::backend::{Backend, Outcomes, Reader, Unit};
use crate::storage::keys::Keys;
use crate::storage::restored::crl_floor;
use crate::storage::seal::{SealKey, held_context};
use crate::storage::{commit, documents};

/// An engine's reader beside the commit actor of its writer, and the data keys of both.
pub(super) struct Store<R> {
    /// Reads, which never queue behind a commit.
    pub(super) reader: R,
    pub(super) commits: commit::Handle,
    pub(super) keys: Arc<Keys>,
    clock: Clock,
}

/// A write of a domain: what is done to it before it is stored, and how a unit of them travels.
pub(super) trait DomainWrite: Sized {
    /// What becomes of one.
    type Outcome: Send + 'static;

    /// Brings it into the form that is stored: bodies sealed, times as they will be read back.
    fn prepare(&mut self, keys: &Arc<Keys>) -> Result<()>;

    /// A unit of them.
    fn unit(writes: Vec<Self>, clock: &Clock) -> Unit;

    /// What became of a unit of them; `None` when that is another domain's.
    fn outcomes(outcomes: Outcomes) -> Option<Vec<Self::Outcome>>;
}

/// A row with a body that is sealed to what else is in the row.
pub(super) trait SealedRow: Send + 'static {
    /// The associated data: what the body belongs to.
    fn context(&self) -> Vec<u8>;

    /// The body.
    fn body(&mut self) -> &mut Vec<u8>;

    /// Seals the body.
    fn seal(&mut self, keys: &Arc<Keys>) -> Result<()> {
        let context = self.context();
        let plain = std::mem::take(self.body());
        *self.body() = keys.seal(&context, plain)?;
        Ok(())
    }

    /// Opens the body, by a key that is known here.
    fn open(&mut self, keys: &Keys) -> Result<()> {
        let context = self.context();
        let sealed = std::mem::take(self.body());
        *self.body() = keys.open(&context, &sealed)?;
        Ok(())
    }
}

impl<R: Reader + Clone> Store<R> {
    /// Starts the commit actor of a writer, with room for `queue` units, and loads the data keys. `shared` says whether
    /// other nodes may use the same store.
    ///
    /// # Errors
    /// `Unavailable` when no thread can be had, and those of [`Keys::load`].
    pub(super) async fn open(
        writer: impl Backend,
        reader: R,
        queue: usize,
        seal_key: &SealKey,
        clock: Clock,
        shared: bool,
    ) -> Result<Self> {
        let commits = commit::Handle::start(writer, queue.max(1))?;
        match Keys::load(commits.clone(), Arc::new(reader.clone()), seal_key, clock.clone(), shared).await {
            Ok(keys) => Ok(Self { reader, commits, keys: Arc::new(keys), clock }),
            Err(error) => {
                // Lets go of the folder, so that the next attempt finds it free.
                reader.close();
                let _ = commits.stop().await;
                Err(error)
            }
        }
    }

    /// Commits a unit. It is submitted by the call itself: whoever drops the future later does not take it
    /// back.
    pub(super) fn submit<W: DomainWrite>(&self, mut writes: Vec<W>) -> BoxFuture<'static, Result<Vec<W::Outcome>>> {
        if let Err(error) = writes.iter_mut().try_for_each(|write| write.prepare(&self.keys)) {
            return ready(Err(error)).boxed();
        }
        let submitted = self.commits.submit(W::unit(writes, &self.clock));
        async move {
            let outcomes = W::outcomes(submitted.outcome().await?);
            outcomes.ok_or_else(|| Error::internal("the backend answered another write"))
        }
        .boxed()
    }

    /// The documents of a mount, of one kind or of all, opened.
    pub(super) fn open_documents(
        &self,
        mount: MountId,
        kind: Option<&'static str>,
    ) -> BoxFuture<'static, Result<Vec<Document>>> {
        let (keys, found) = (self.keys.clone(), self.reader.documents(mount, kind));
        async move { documents::open(&keys, mount, found.await?).await }.boxed()
    }

    /// The CRL number of the last restore.
    pub(super) fn restored_crl_floor(&self) -> BoxFuture<'static, Result<u64>> {
        let facts = self.reader.meta();
        async move { Ok(crl_floor(&facts.await?)) }.boxed()
    }

    /// Seals what is given away and not kept.
    pub(super) fn seal_held(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>> {
        self.keys.seal(&held_context(what), plain)
    }

    /// Opens what was sealed so; `None` for what was not.
    pub(super) fn open_held(&self, what: &'static str, sealed: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        let keys = self.keys.clone();
        async move {
            keys.follow(std::iter::once(&sealed[..])).await?;
            Ok(keys.open(&held_context(what), &sealed).ok())
        }
        .boxed()
    }

    /// The rows that a read finds, with their bodies opened; a row whose body does not open has an empty body.
    pub(super) fn open_readable_rows<T: SealedRow>(
        &self,
        found: BoxFuture<'static, Result<Vec<T>>>,
    ) -> BoxFuture<'static, Result<Vec<T>>> {
        let keys = self.keys.clone();
        async move {
            let mut rows = found.await?;
            for row in &mut rows {
                keys.follow(std::iter::once(&row.body()[..])).await?;
                // A body that does not open stays empty.
                let _ = row.open(&keys);
            }
            Ok(rows)
        }
        .boxed()
    }

    /// The row that a read finds, with its body opened.
    pub(super) fn open_row<T: SealedRow>(
        &self,
        found: BoxFuture<'static, Result<Option<T>>>,
    ) -> BoxFuture<'static, Result<Option<T>>> {
        let keys = self.keys.clone();
        async move {
            let Some(mut row) = found.await? else { return Ok(None) };
            keys.follow(std::iter::once(&row.body()[..])).await?;
            row.open(&keys)?;
            Ok(Some(row))
        }
        .boxed()
    }
}
