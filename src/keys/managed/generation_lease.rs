//! A cluster-wide lease for generating a missing key.
//!
//! Nodes that share a store share devices and services. Two nodes that look for a key at the same time both find none,
//! and the backend may accept both keys that they generate. So a call that may generate a key holds a lease: a document
//! with its expiry, written by compare-and-set. The holder looks for the key once more before it generates one. A lease
//! that is not released expires after [`LEASE_LIFETIME`], which is much longer than the clock difference of nodes. The
//! document is never deleted, so its version only grows: a node that was paused cannot release the lease of another
//! node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::documents::{DocumentKey, DocumentWrite, SYSTEM_MOUNT};
use crate::error::{Error, Kind, Result};
use crate::keys::actor::SignerLimits;
use crate::keys::store::KeyStore;
use crate::rationing::QueueCaller;

/// Document kind. The document name is the first byte of the SHA-256 of the location, in hexadecimal.
const DOCUMENT_KIND: &str = "managed-key-turn";
/// Lifetime of a lease that is not released; longer than a call to a device may take.
const LEASE_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum wait for the lease. Shorter than the request timeout, so that the caller gets this error
/// and not that timeout.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of the checks for an expired lease.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Acquires and releases the leases of all locations for this node.
pub(super) struct GenerationLeases {
    store: Arc<dyn KeyStore>,
    clock: Clock,
    acquire_timeout: Duration,
}

#[derive(Serialize, Deserialize)]
struct GenerationLeaseRecord {
    /// Unix time of expiry in seconds; 0 after the release.
    ends: i64,
}

/// A lease that this node holds.
struct HeldGenerationLease {
    name: String,
    version: u64,
}

impl GenerationLeases {
    pub(super) fn new(store: Arc<dyn KeyStore>, clock: Clock) -> Arc<Self> {
        Arc::new(Self { store, clock, acquire_timeout: ACQUIRE_TIMEOUT })
    }

    /// Runs `work`, which may generate the key at `location`, while this node holds the lease of `location`. Once
    /// started, `work` continues even if the caller leaves. Without `location` no key can be generated, and no lease is
    /// needed.
    ///
    /// # Errors
    /// Those of `work`; `Unavailable` when the lease does not become free in time; those of the store.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        location: Option<String>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let Some(location) = location else { return work.await };
        let leases = Arc::clone(self);
        let (answer, answered) = oneshot::channel();
        let work = QueueCaller::current().must_run().scope(work);
        tokio::spawn(async move {
            let outcome = match leases.acquire(&location).await {
                Ok(lease) if answer.is_closed() => return leases.release(lease).await,
                Ok(lease) => leases.run_with_lease(lease, work).await,
                Err(error) => Err(error),
            };
            // Sending fails if the caller has left.
            let _ = answer.send(outcome);
        });
        answered.await.map_err(Error::internal)?
    }

    async fn run_with_lease<T>(&self, lease: HeldGenerationLease, work: impl Future<Output = Result<T>>) -> Result<T> {
        let since = Instant::now();
        let outcome = work.await;
        // A call that has timed out may still be generating the key, so its lease stays until it expires.
        if since.elapsed() < SignerLimits::default().call_timeout {
            self.release(lease).await;
        }
        outcome
    }

    async fn acquire(&self, location: &str) -> Result<HeldGenerationLease> {
        // One byte of the hash, so there are at most 256 documents. Locations that share a document wait for each
        // other.
        let name = format!("{:02x}", digest::digest(&digest::SHA256, location.as_bytes()).as_ref()[0]);
        let since = Instant::now();
        loop {
            if let Some(lease) = self.try_acquire(&name).await? {
                return Ok(lease);
            }
            if since.elapsed() >= self.acquire_timeout {
                let text = "another request or node is generating the managed key; retry shortly";
                return Err(Error::new(Kind::Unavailable, text));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn try_acquire(&self, name: &str) -> Result<Option<HeldGenerationLease>> {
        let stored = self.store.documents(DOCUMENT_KIND).await?.into_iter().find(|document| document.key.name == name);
        let lease =
            stored.as_ref().and_then(|document| serde_json::from_slice::<GenerationLeaseRecord>(&document.body).ok());
        let version = stored.map_or(0, |document| document.version);
        let ends = lease.map_or(0, |lease| lease.ends);
        let now = self.clock.now().unix_timestamp();
        if ends > now {
            return Ok(None);
        }
        match self.write(name, version, now + LEASE_LIFETIME.as_secs().cast_signed()).await {
            Ok(()) => Ok(Some(HeldGenerationLease { name: name.to_owned(), version: version + 1 })),
            Err(error) if error.kind() == Kind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn release(&self, lease: HeldGenerationLease) {
        if let Err(error) = self.write(&lease.name, lease.version, 0).await {
            tracing::debug!("the lease for generating a managed key was not released; it expires by itself: {error}");
        }
    }

    async fn write(&self, name: &str, expected: u64, ends: i64) -> Result<()> {
        let key = DocumentKey { mount: SYSTEM_MOUNT, kind: DOCUMENT_KIND, name: name.to_owned() };
        let body = serde_json::to_vec(&GenerationLeaseRecord { ends }).map_err(Error::internal)?;
        self.store.commit(vec![DocumentWrite { key, expected, body: Some(body) }]).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::super::memory::MemoryKeyStore;
    use super::*;

    fn clock() -> Clock {
        Clock::manual(crate::clock::parse_rfc3339("now", "2030-01-01T00:00:00Z").unwrap())
    }

    fn node(store: &Arc<MemoryKeyStore>, clock: &Clock) -> Arc<GenerationLeases> {
        let acquire_timeout = Duration::from_millis(200);
        Arc::new(GenerationLeases { store: store.clone(), clock: clock.clone(), acquire_timeout })
    }

    fn location() -> Option<String> {
        Some("location".to_owned())
    }

    #[tokio::test]
    async fn generation_runs_on_one_node_at_a_time() {
        let store = Arc::new(MemoryKeyStore::default());
        let clock = clock();
        let nodes = [GenerationLeases::new(store.clone(), clock.clone()), GenerationLeases::new(store, clock)];
        let inside = Arc::new(AtomicUsize::new(0));
        let done = Arc::new(AtomicUsize::new(0));
        let work = || {
            let inside = Arc::clone(&inside);
            let done = Arc::clone(&done);
            async move {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                tokio::time::sleep(Duration::from_millis(5)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                Ok(done.fetch_add(1, Ordering::SeqCst))
            }
        };
        let all = join_all((0..6).map(|n| nodes[n % 2].run(location(), work()))).await;
        assert!(all.iter().all(Result::is_ok), "{all:?}");
        assert_eq!(done.load(Ordering::SeqCst), 6);
    }

    #[tokio::test]
    async fn unreleased_lease_expires_and_is_not_released_later() {
        let store = Arc::new(MemoryKeyStore::default());
        let clock = clock();
        let first_node = node(&store, &clock);
        let second_node = node(&store, &clock);
        let unreleased = first_node.acquire("location").await.unwrap();
        let refused = second_node.run(location(), async { Ok(()) }).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.text().contains("is generating the managed key"), "{refused}");
        second_node.run(Some("elsewhere".to_owned()), async { Ok(()) }).await.unwrap();
        second_node.run(None, async { Ok(()) }).await.unwrap();
        clock.advance(LEASE_LIFETIME - Duration::from_secs(1));
        assert!(second_node.try_acquire(&unreleased.name).await.unwrap().is_none());
        clock.advance(Duration::from_secs(1));
        let next = second_node.acquire("location").await.unwrap();
        first_node.release(unreleased).await;
        assert!(first_node.try_acquire(&next.name).await.unwrap().is_none(), "a lease of another node is not released");
        second_node.release(next).await;
        first_node.run(location(), async { Ok(()) }).await.unwrap();
    }

    #[tokio::test]
    async fn cancelled_caller_leaves_generation_running_to_its_release() {
        let store = Arc::new(MemoryKeyStore::default());
        let clock = clock();
        let begun = Arc::new(AtomicUsize::new(0));
        let done = Arc::new(AtomicUsize::new(0));
        let node = GenerationLeases::new(store.clone(), clock.clone());
        let work = {
            let begun = Arc::clone(&begun);
            let done = Arc::clone(&done);
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(done.fetch_add(1, Ordering::SeqCst))
            }
        };
        let left = tokio::time::timeout(Duration::from_millis(20), node.run(location(), work)).await;
        assert!(left.is_err() && begun.load(Ordering::SeqCst) == 1);
        node.run(location(), async { Ok(()) }).await.unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 1, "no lease was taken before it was done");
    }
}
