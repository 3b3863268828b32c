//! An open store of any engine. It passes the writes of the domains to the commit actor, and unseals the rows that the
//! domains read. Each engine implements the store traits of the domains for the [`Store`] with its reader.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use crate::clock::Clock;
use crate::documents::{Document, MountId};
use crate::error::{Error, Result};
use crate::storage::backend::{StoreBackend, StoreReader, UnitOutcomes, WriteUnit};
use crate::storage::keys::StoreKeys;
use crate::storage::restore_facts::crl_floor;
use crate::storage::seal::{SealKey, client_value_context};
use crate::storage::{commit, documents};

/// The reader of an engine, the commit actor of its writer, and the data keys.
pub(super) struct Store<R> {
    pub(super) reader: R,
    pub(super) commits: commit::CommitHandle,
    pub(super) keys: Arc<StoreKeys>,
    clock: Clock,
}

/// A write of a domain, which is converted to its stored form and becomes part of a unit.
pub(super) trait DomainWrite: Sized {
    /// The outcome of one write.
    type Outcome: Send + 'static;

    /// Converts the write to its stored form: seals bodies and rounds times.
    fn prepare(&mut self, keys: &Arc<StoreKeys>) -> Result<()>;

    fn unit(writes: Vec<Self>, clock: &Clock) -> WriteUnit;

    /// Returns the outcomes of the writes of a unit; `None` if they belong to another domain.
    fn outcomes(outcomes: UnitOutcomes) -> Option<Vec<Self::Outcome>>;
}

/// A row with a sealed body. The body decrypts only together with the other columns of its row.
pub(super) trait SealedRow: Send + 'static {
    /// Returns the associated data of the body.
    fn context(&self) -> Vec<u8>;

    fn body(&mut self) -> &mut Vec<u8>;

    fn seal(&mut self, keys: &Arc<StoreKeys>) -> Result<()> {
        let context = self.context();
        let plain = std::mem::take(self.body());
        *self.body() = keys.seal(&context, plain)?;
        Ok(())
    }

    fn open(&mut self, keys: &StoreKeys) -> Result<()> {
        let context = self.context();
        let sealed = std::mem::take(self.body());
        *self.body() = keys.open(&context, &sealed)?;
        Ok(())
    }
}

/// Implements [`SealedRow`] for a row with a field `body`. The closure returns the associated data of a row.
macro_rules! sealed_row {
    ($row:ty, $context:expr) => {
        impl $crate::storage::store::SealedRow for $row {
            fn context(&self) -> Vec<u8> {
                let context: fn(&Self) -> Vec<u8> = $context;
                context(self)
            }

            fn body(&mut self) -> &mut Vec<u8> {
                &mut self.body
            }
        }
    };
}
pub(super) use sealed_row;

impl<R: StoreReader + Clone> Store<R> {
    /// Starts the commit actor of a writer with a limit of `queue` units, and loads the data keys. `shared` is `true`
    /// if several nodes may use the store.
    ///
    /// # Errors
    /// `Unavailable` when no thread can be started; the errors of [`StoreKeys::load`].
    pub(super) async fn open(
        writer: impl StoreBackend,
        reader: R,
        queue: usize,
        seal_key: &SealKey,
        clock: Clock,
        shared: bool,
    ) -> Result<Self> {
        let commits = commit::CommitHandle::start(writer, queue.max(1))?;
        match StoreKeys::load(commits.clone(), Arc::new(reader.clone()), seal_key, clock.clone(), shared).await {
            Ok(keys) => Ok(Self { reader, commits, keys: Arc::new(keys), clock }),
            Err(error) => {
                // Releases the lock on the data folder, so that the store can be opened again.
                reader.close();
                let _ = commits.stop().await;
                Err(error)
            }
        }
    }

    /// Commits writes as one unit. The call itself submits the unit, so dropping the returned future does not cancel
    /// the commit.
    pub(super) fn submit<W: DomainWrite>(&self, mut writes: Vec<W>) -> BoxFuture<'static, Result<Vec<W::Outcome>>> {
        if let Err(error) = writes.iter_mut().try_for_each(|write| write.prepare(&self.keys)) {
            return ready(Err(error)).boxed();
        }
        let submitted = self.commits.submit(W::unit(writes, &self.clock));
        async move {
            let outcomes = W::outcomes(submitted.outcome().await?);
            outcomes.ok_or_else(|| Error::internal("defect: the storage backend returned outcomes of another domain"))
        }
        .boxed()
    }

    pub(super) fn open_documents(
        &self,
        mount: MountId,
        kind: Option<&'static str>,
    ) -> BoxFuture<'static, Result<Vec<Document>>> {
        let keys = self.keys.clone();
        let found = self.reader.documents(mount, kind);
        async move { documents::open(&keys, mount, found.await?).await }.boxed()
    }

    /// Returns the number above which all new CRL numbers must be, because the store was restored; 0 if it never was.
    pub(super) fn restored_crl_floor(&self) -> BoxFuture<'static, Result<u64>> {
        let facts = self.reader.facts();
        async move { Ok(crl_floor(&facts.await?)) }.boxed()
    }

    /// Seals a value that is sent to a client instead of being stored. `what` names the kind of value.
    pub(super) fn seal_for_client(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>> {
        self.keys.seal(&client_value_context(what), plain)
    }

    /// Decrypts a value from [`Self::seal_for_client`]; `None` for any other value.
    pub(super) fn open_from_client(
        &self,
        what: &'static str,
        sealed: Vec<u8>,
    ) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        let keys = self.keys.clone();
        async move {
            keys.load_missing_keys(std::iter::once(&sealed[..])).await?;
            Ok(keys.open(&client_value_context(what), &sealed).ok())
        }
        .boxed()
    }

    /// Unseals the bodies of the rows that a read returns. A body that does not decrypt becomes empty.
    pub(super) fn open_readable_rows<T: SealedRow>(
        &self,
        found: BoxFuture<'static, Result<Vec<T>>>,
    ) -> BoxFuture<'static, Result<Vec<T>>> {
        let keys = self.keys.clone();
        async move {
            let mut rows = found.await?;
            for row in &mut rows {
                keys.load_missing_keys(std::iter::once(&row.body()[..])).await?;
                let _ = row.open(&keys);
            }
            Ok(rows)
        }
        .boxed()
    }

    /// Unseals the body of the row that a read returns; fails if it does not decrypt.
    pub(super) fn open_row<T: SealedRow>(
        &self,
        found: BoxFuture<'static, Result<Option<T>>>,
    ) -> BoxFuture<'static, Result<Option<T>>> {
        let keys = self.keys.clone();
        async move {
            let Some(mut row) = found.await? else { return Ok(None) };
            keys.load_missing_keys(std::iter::once(&row.body()[..])).await?;
            row.open(&keys)?;
            Ok(Some(row))
        }
        .boxed()
    }
}
