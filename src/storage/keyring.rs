//! The storage of the keyring: the data keys, the number of values that each has sealed, and the resealing of values
//! that older keys have sealed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::documents::{Document, DocumentWrite};
use crate::error::{Kind, Result};
use crate::keyring::store::{DataKey, KeyringStore, ResealOutcome, rotation_settings_key};
use crate::keys::store::KeyStore;
use crate::sql::{SqlError, SqlRow, SqlSession, SqlValue};
use crate::storage::keys::{KEY_PROPAGATION_TIME, StoreKeys};
use crate::storage::reseal::{self, ResealProgress, ResealStep};
use crate::storage::session::StoreSessions;

const SELECT_RECORDED_USE: &str = "SELECT sealed FROM data_key_use WHERE term = $1";
const ADD_USE: &str = "INSERT INTO data_key_use (term, sealed) VALUES ($1, $2)
    ON CONFLICT (term) DO UPDATE SET sealed = data_key_use.sealed + excluded.sealed RETURNING sealed";

pub(super) struct DataKeys {
    keys: Arc<StoreKeys>,
    sessions: StoreSessions,
    documents: Arc<dyn KeyStore>,
    /// `true` if several nodes may use the store.
    shared: bool,
    /// The last term for which this process has begun a pass of resealing.
    tried_term: AtomicU32,
    /// The last term for which this process gave up resealing, because the remaining old values do not decrypt.
    given_up_term: AtomicU32,
}

impl DataKeys {
    pub(super) fn new(
        keys: Arc<StoreKeys>,
        sessions: StoreSessions,
        documents: Arc<dyn KeyStore>,
        shared: bool,
    ) -> Self {
        Self { keys, sessions, documents, shared, tried_term: AtomicU32::new(0), given_up_term: AtomicU32::new(0) }
    }

    /// Counts the stored values that are sealed with older data keys.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn count_old_values(&self) -> Result<u64> {
        let (term, _, _) = self.keys.current_key_status().await?;
        reseal::count_old_values(&self.sessions, term).await
    }

    async fn run_reseal_step(&self) -> Result<ResealOutcome> {
        let (term, created_at, _) = self.keys.current_key_status().await?;
        if term == 1 || self.given_up_term.load(Ordering::Relaxed) == term {
            return Ok(ResealOutcome::Done);
        }
        if self.shared && self.keys.now() < created_at + KEY_PROPAGATION_TIME {
            return Ok(ResealOutcome::Later);
        }
        let stored = reseal::read_progress(&self.sessions).await?;
        let Some(progress) = stored.as_deref().and_then(ResealProgress::read).filter(|progress| progress.term == term)
        else {
            // After a change of the seal, the new root key is stored for other nodes, sealed with an earlier data key.
            // This root key reveals the newest data key, so it must be removed before resealing begins.
            if !self.keys.end_handover().await? {
                return Ok(ResealOutcome::Later);
            }
            // If several nodes do this concurrently, only one of them stores this progress and begins the count.
            reseal::store_progress(&self.sessions, stored, ResealProgress::new(term)).await?;
            return Ok(ResealOutcome::More);
        };
        let stored = stored.unwrap_or_default();
        match progress.next_step() {
            ResealStep::Nothing => Ok(ResealOutcome::Done),
            ResealStep::Count => self.count_next_page(progress, stored).await,
            ResealStep::Seal => {
                let sealed = reseal::reseal_page(&self.keys, &self.sessions, self.shared, progress, stored).await?;
                if sealed > 0 {
                    tracing::debug!(term, values = sealed, "stored values resealed");
                }
                Ok(ResealOutcome::More)
            }
        }
    }

    /// Counts the old values of another page. After the last page, begins a pass of resealing if any are left.
    async fn count_next_page(&self, progress: ResealProgress, stored: Vec<u8>) -> Result<ResealOutcome> {
        let term = progress.term;
        let is_again = progress.left.is_some();
        let progress = reseal::count_page(&self.sessions, progress).await?;
        let Some(left) = progress.complete_count() else {
            reseal::store_progress(&self.sessions, Some(stored), progress).await?;
            return Ok(ResealOutcome::More);
        };
        let resealed_nothing = is_again && progress.sealed == 0;
        let given_up =
            left > 0 && resealed_nothing && progress.passed == 0 && self.tried_term.load(Ordering::Relaxed) == term;
        let next = if given_up { progress.give_up(left) } else { progress.start_pass(left) };
        reseal::store_progress(&self.sessions, Some(stored), next).await?;
        self.tried_term.store(term, Ordering::Relaxed);
        if left == 0 {
            tracing::info!(term, "all stored values are sealed with the newest data key");
            return Ok(ResealOutcome::Done);
        }
        if given_up {
            tracing::error!(
                term,
                left,
                "stored values cannot be decrypted and stay sealed with earlier data keys; see the earlier warnings"
            );
            self.given_up_term.store(term, Ordering::Relaxed);
            return Ok(ResealOutcome::Done);
        }
        // If a whole pass skipped rows and resealed none, other transactions lock the remaining rows.
        Ok(if resealed_nothing && progress.passed > 0 { ResealOutcome::Later } else { ResealOutcome::More })
    }
}

/// Runs a query for a single number and returns it; 0 if the query finds no row.
fn query_number<'s>(
    session: &'s mut dyn SqlSession,
    sql: &'static str,
    values: Vec<SqlValue>,
) -> LocalBoxFuture<'s, Result<i64, SqlError>> {
    async move {
        let mut rows = session.query(sql, &values).await?;
        rows.first_mut().map_or(Ok(0), SqlRow::get)
    }
    .boxed_local()
}

impl KeyringStore for DataKeys {
    fn status(&self) -> LocalBoxFuture<'_, Result<DataKey>> {
        async move {
            let (term, created_at, sealed) = self.keys.current_key_status().await?;
            let progress = reseal::read_progress(&self.sessions).await?.as_deref().and_then(ResealProgress::read);
            let older = progress.filter(|progress| progress.term == term).and_then(|progress| progress.left);
            let older = if term == 1 { Some(0) } else { older };
            Ok(DataKey { term, created_at, sealed, older })
        }
        .boxed_local()
    }

    fn rotate(&self, from: u32) -> LocalBoxFuture<'_, Result<u32>> {
        self.keys.rotate(from).boxed_local()
    }

    /// Increases the stored count of the data key by the number of values that this process has sealed since the last
    /// call, and reads the total of all nodes. Writes nothing if that number is 0.
    fn record_use(&self) -> LocalBoxFuture<'_, Result<()>> {
        async move {
            let ring = self.keys.ring();
            let (term, unrecorded_uses) = ring.unrecorded_uses();
            let of = i64::from(term);
            let added = i64::try_from(unrecorded_uses).unwrap_or(i64::MAX);
            let recorded_uses = match added {
                0 => {
                    self.sessions
                        .read("data_key_use", move |session| {
                            query_number(session, SELECT_RECORDED_USE, vec![of.into()])
                        })
                        .await
                }
                _ => {
                    let values = move || vec![of.into(), added.into()];
                    self.sessions.write("data_key_use", move |session| query_number(session, ADD_USE, values())).await
                }
            };
            ring.set_recorded_uses(term, u64::try_from(recorded_uses?).unwrap_or_default(), unrecorded_uses);
            Ok(())
        }
        .boxed_local()
    }

    fn settings(&self) -> LocalBoxFuture<'_, Result<Option<Document>>> {
        async move {
            let key = rotation_settings_key();
            let found = self.documents.documents(rotation_settings_key().kind).await?;
            Ok(found.into_iter().find(|document| document.key == key))
        }
        .boxed_local()
    }

    fn write_settings(&self, write: DocumentWrite) -> LocalBoxFuture<'_, Result<()>> {
        self.documents.commit(vec![write]).boxed_local()
    }

    fn re_seal(&self) -> LocalBoxFuture<'_, Result<ResealOutcome>> {
        async move {
            match self.run_reseal_step().await {
                Err(error) if error.kind() == Kind::Conflict => Ok(ResealOutcome::Later),
                step => step,
            }
        }
        .boxed_local()
    }
}
