//! The keyring's store: the data keys in use, how much they have sealed, and what earlier ones sealed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::documents::{Document, DocumentWrite};
use crate::error::{Kind, Result};
use crate::keyring::store::{DataKey, KeyringStore, Step, settings_key};
use crate::keys::store::KeyStore;
use crate::sql::{Failure, Row, Session, Value};
use crate::storage::keys::{KNOWN, Keys};
use crate::storage::reseal::{self, Progress};
use crate::storage::session::Sessions;

const NOTED: &str = "SELECT sealed FROM data_key_use WHERE term = $1";
const ADD: &str = "INSERT INTO data_key_use (term, sealed) VALUES ($1, $2)
    ON CONFLICT (term) DO UPDATE SET sealed = data_key_use.sealed + excluded.sealed RETURNING sealed";

/// The data keys of a store, as the keyring sees them.
pub(super) struct DataKeys {
    keys: Arc<Keys>,
    sessions: Sessions,
    documents: Arc<dyn KeyStore>,
    /// Whether other nodes use the same store.
    shared: bool,
    /// The term for which this process has tried.
    tried: AtomicU32,
    /// And the one for which nothing came of it: what is left does not open.
    given_up: AtomicU32,
}

impl DataKeys {
    pub(super) fn new(keys: Arc<Keys>, sessions: Sessions, documents: Arc<dyn KeyStore>, shared: bool) -> Self {
        Self { keys, sessions, documents, shared, tried: AtomicU32::new(0), given_up: AtomicU32::new(0) }
    }

    /// How many stored values are sealed with earlier keys, counted now.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn count_older(&self) -> Result<u64> {
        let (term, _, _) = self.keys.status().await?;
        reseal::count(&self.sessions, term).await
    }

    async fn step(&self) -> Result<Step> {
        let (term, made_at, _) = self.keys.status().await?;
        if term == 1 || self.given_up.load(Ordering::Relaxed) == term {
            return Ok(Step::Done);
        }
        if self.shared && self.keys.now() < made_at + KNOWN {
            return Ok(Step::Later);
        }
        let stored = reseal::progress(&self.sessions).await?;
        let Some(progress) = stored.as_deref().and_then(Progress::read).filter(|progress| progress.term == term) else {
            // What is said to be sealed with the newest key is not to be had with an earlier one, by no way.
            if !self.keys.end_handover().await? {
                return Ok(Step::Later);
            }
            return self.begin(term, stored, None).await;
        };
        if progress.left == 0 {
            return Ok(Step::Done);
        }
        if progress.has_ended() {
            return self.begin(term, stored, Some(progress)).await;
        }
        let next = reseal::page(&self.keys, &self.sessions, progress, stored.unwrap_or_default()).await?;
        if next > 0 {
            tracing::debug!(term, values = next, "stored values sealed again");
        }
        Ok(Step::More)
    }

    /// Counts what there is to do, and begins with it; after a run (`ended`) that left something, once more.
    async fn begin(&self, term: u32, stored: Option<Vec<u8>>, ended: Option<Progress>) -> Result<Step> {
        let left = reseal::count(&self.sessions, term).await?;
        if let Some(ended) = ended
            && left > 0
            && ended.sealed == 0
            && self.tried.load(Ordering::Relaxed) == term
        {
            tracing::error!(term, left, "stored values cannot be sealed again: they do not open");
            self.given_up.store(term, Ordering::Relaxed);
            return Ok(Step::Done);
        }
        self.tried.store(term, Ordering::Relaxed);
        reseal::store(&self.sessions, stored, Progress::new(term, left)).await?;
        if left == 0 {
            tracing::info!(term, "all stored values are sealed with the newest data key");
        }
        Ok(if left == 0 { Step::Done } else { Step::More })
    }
}

/// The number that a text answers; 0 without one.
fn one<'s>(
    session: &'s mut dyn Session,
    sql: &'static str,
    values: Vec<Value>,
) -> LocalBoxFuture<'s, Result<i64, Failure>> {
    async move {
        let mut rows = session.query(sql, &values).await?;
        rows.first_mut().map_or(Ok(0), Row::get)
    }
    .boxed_local()
}

impl KeyringStore for DataKeys {
    fn status(&self) -> LocalBoxFuture<'_, Result<DataKey>> {
        async move {
            let (term, made_at, sealed) = self.keys.status().await?;
            let progress = reseal::progress(&self.sessions).await?.as_deref().and_then(Progress::read);
            let older = progress.filter(|progress| progress.term == term).map(|progress| progress.left);
            let older = if term == 1 { Some(0) } else { older };
            Ok(DataKey { term, made_at, sealed, older })
        }
        .boxed_local()
    }

    fn rotate(&self, from: u32) -> LocalBoxFuture<'_, Result<u32>> {
        self.keys.rotate(from).boxed_local()
    }

    /// Takes over what the others have noted, too; writes when there is something to add.
    fn note_use(&self) -> LocalBoxFuture<'_, Result<()>> {
        async move {
            let ring = self.keys.ring();
            let (term, unnoted) = ring.unnoted();
            let (of, added) = (i64::from(term), i64::try_from(unnoted).unwrap_or(i64::MAX));
            let noted = match added {
                0 => self.sessions.read("data_key_use", move |session| one(session, NOTED, vec![of.into()])).await,
                _ => {
                    let values = move || vec![of.into(), added.into()];
                    self.sessions.write("data_key_use", move |session| one(session, ADD, values())).await
                }
            };
            ring.set_noted(term, u64::try_from(noted?).unwrap_or_default(), unnoted);
            Ok(())
        }
        .boxed_local()
    }

    fn settings(&self) -> LocalBoxFuture<'_, Result<Option<Document>>> {
        async move {
            let (key, found) = (settings_key(), self.documents.documents(settings_key().kind).await?);
            Ok(found.into_iter().find(|document| document.key == key))
        }
        .boxed_local()
    }

    fn write_settings(&self, write: DocumentWrite) -> LocalBoxFuture<'_, Result<()>> {
        self.documents.commit(vec![write]).boxed_local()
    }

    fn re_seal(&self) -> LocalBoxFuture<'_, Result<Step>> {
        async move {
            match self.step().await {
                Err(error) if error.kind() == Kind::Conflict => Ok(Step::Later),
                step => step,
            }
        }
        .boxed_local()
    }
}
