//! Pending keys: keys that were generated at a cloud service and that the service does not list yet. Each has a stored
//! document.
//!
//! A record is written before the generation and removed when the service lists the key or refuses to generate it.
//! After a crash in between, the record remains and blocks generation at that location for [`MAX_PENDING_TIME`].

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM_MOUNT};
use crate::error::{Error, Kind, Result};
use crate::keys::store::{KeyStore, PendingKeys};

/// Document kind. The document name is the hexadecimal SHA-256 of the location.
const DOCUMENT_KIND: &str = "managed-key-pending";
/// Maximum time until the service lists a generated key; an older record is ignored.
const MAX_PENDING_TIME: Duration = Duration::from_secs(600);

#[derive(Clone)]
pub(super) struct StoredPendingKeys {
    store: Arc<dyn KeyStore>,
    clock: Clock,
}

#[derive(Serialize, Deserialize)]
struct PendingKeyRecord {
    /// Unix time in seconds at which the generation began.
    generated_at: i64,
}

impl StoredPendingKeys {
    pub(super) fn new(store: Arc<dyn KeyStore>, clock: Clock) -> Self {
        Self { store, clock }
    }

    async fn find_stored(&self, key: &DocumentKey) -> Result<Option<Document>> {
        Ok(self.store.documents(DOCUMENT_KIND).await?.into_iter().find(|document| document.key == *key))
    }

    async fn record(&self, key: DocumentKey) -> Result<bool> {
        let stored = self.find_stored(&key).await?;
        let now = self.clock.now().unix_timestamp();
        let pending =
            stored.as_ref().and_then(|document| serde_json::from_slice::<PendingKeyRecord>(&document.body).ok());
        if pending.is_some_and(|pending| now - pending.generated_at < MAX_PENDING_TIME.as_secs().cast_signed()) {
            return Ok(false);
        }
        let body = serde_json::to_vec(&PendingKeyRecord { generated_at: now }).map_err(Error::internal)?;
        let expected = stored.map_or(0, |document| document.version);
        match self.store.commit(vec![DocumentWrite { key, expected, body: Some(body) }]).await {
            Ok(()) => Ok(true),
            // Another node is generating the key.
            Err(error) if error.kind() == Kind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn remove(&self, key: DocumentKey) -> Result<()> {
        let Some(stored) = self.find_stored(&key).await? else { return Ok(()) };
        self.store.commit(vec![DocumentWrite { key, expected: stored.version, body: None }]).await
    }
}

impl PendingKeys for StoredPendingKeys {
    fn record_generation(&self, location: &str) -> BoxFuture<'static, Result<bool>> {
        let this = self.clone();
        let key = document_key(location);
        async move { this.record(key).await }.boxed()
    }

    fn remove_record(&self, location: &str) -> BoxFuture<'static, ()> {
        let this = self.clone();
        let key = document_key(location);
        async move {
            if let Err(error) = this.remove(key).await {
                tracing::debug!("the record of a generated key was not removed; it expires by itself: {error}");
            }
        }
        .boxed()
    }
}

fn document_key(location: &str) -> DocumentKey {
    let digest = digest::digest(&digest::SHA256, location.as_bytes());
    let name = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    DocumentKey { mount: SYSTEM_MOUNT, kind: DOCUMENT_KIND, name }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryKeyStore;
    use super::*;

    #[tokio::test]
    async fn pending_key_blocks_all_nodes_for_ten_minutes_or_to_its_end() {
        let store = Arc::new(MemoryKeyStore::default());
        let clock = Clock::manual(crate::clock::parse_rfc3339("now", "2030-01-01T00:00:00Z").unwrap());
        let [one, other] = [(); 2].map(|()| StoredPendingKeys::new(store.clone(), clock.clone()));
        assert!(one.record_generation("place").await.unwrap());
        assert!(!one.record_generation("place").await.unwrap() && !other.record_generation("place").await.unwrap());
        assert!(other.record_generation("elsewhere").await.unwrap());
        other.remove_record("place").await;
        assert!(one.record_generation("place").await.unwrap());
        clock.advance(MAX_PENDING_TIME);
        assert!(other.record_generation("place").await.unwrap());
        *store.commit_failure.lock().unwrap() = Some(false);
        assert_eq!(one.record_generation("third").await.unwrap_err().kind(), Kind::Unavailable);
        one.remove_record("place").await;
        *store.commit_failure.lock().unwrap() = None;
        assert!(!one.record_generation("place").await.unwrap());
    }
}
