//! Reading the seal key again while a store is open.
//!
//! A node that was offline while the seal was changed has no key that opens the store. The seal key in the node's
//! configuration may open the store, because the key file may contain the new key by now. Only one attempt to read that
//! key runs at a time, and a failed attempt is not repeated for [`FAILURE_CACHE_TIME`], so that many requests do not
//! overload a device.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

use crate::error::{Error, Kind, Result};
use crate::storage::backend::Fact;
use crate::storage::seal::{DataKeyRing, SealKeyOrigin, root};

/// Time after a failed attempt during which later requests get the same error without another attempt.
const FAILURE_CACHE_TIME: Duration = Duration::from_secs(2);
/// Maximum time that a request waits for an attempt; the attempt itself continues.
const UNSEAL_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct SealReopener {
    source: Arc<SealKeyOrigin>,
    last: Mutex<Option<UnsealAttempt>>,
}

#[derive(Clone)]
struct UnsealAttempt {
    started: Instant,
    outcome: Shared<BoxFuture<'static, Result<()>>>,
}

impl SealReopener {
    pub(super) fn new(source: SealKeyOrigin) -> Self {
        Self { source: Arc::new(source), last: Mutex::default() }
    }

    /// Unwraps the root key in these facts with the configured seal key and adds it to the ring. If an attempt is in
    /// progress, waits for it.
    ///
    /// # Errors
    /// `Invalid` when the store has another seal; the errors of the file or device; `Unavailable` on timeout.
    pub(super) async fn open(&self, ring: &Arc<DataKeyRing>, facts: &[Fact]) -> Result<()> {
        let outcome = self.current_or_new_attempt(ring, facts).outcome;
        let answer = tokio::time::timeout(UNSEAL_TIMEOUT, outcome).await;
        answer.unwrap_or_else(|late| {
            Err(Error::unavailable("seal: the seal key did not unwrap the root key of the store in time", late))
        })
    }

    /// Returns the attempt in progress, or the last one if it failed recently; else starts an attempt.
    fn current_or_new_attempt(&self, ring: &Arc<DataKeyRing>, facts: &[Fact]) -> UnsealAttempt {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = &*last {
            let holds = match attempt.outcome.peek() {
                None => true,
                Some(Ok(())) => false,
                // After an error of the device (`BadGateway`), no attempt is ever repeated, because a hardware token
                // locks itself after a few wrong PINs.
                Some(Err(error)) => error.kind() == Kind::BadGateway || attempt.started.elapsed() < FAILURE_CACHE_TIME,
            };
            if holds {
                return attempt.clone();
            }
        }
        // A separate task, so that the attempt continues when the request ends.
        let task = tokio::spawn(unseal(Arc::clone(&self.source), Arc::clone(ring), facts.to_vec()));
        let outcome = async move { task.await.unwrap_or_else(|error| Err(Error::internal(error))) }.boxed().shared();
        last.insert(UnsealAttempt { started: Instant::now(), outcome }).clone()
    }
}

async fn unseal(source: Arc<SealKeyOrigin>, ring: Arc<DataKeyRing>, facts: Vec<Fact>) -> Result<()> {
    let seal = tokio::task::spawn_blocking(move || source.read()).await.map_err(Error::internal)??;
    let root = root::unwrap_root(&seal, ring.installation_id(), &facts).await?;
    ring.unseal(&root, &facts)?;
    tracing::warn!("the seal was changed while this node was offline; reopened with the {}", seal.describe());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::{join_all, ready};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::clock::Time;
    use crate::keys::store::SealDevice;
    use crate::secret::Secret;
    use crate::storage::seal::SealKey;

    /// A device that unwraps a root key when its semaphore has a permit.
    struct FakeSealDevice {
        opens: AtomicUsize,
        unwrap_permits: Arc<Semaphore>,
        answer: Result<Secret>,
    }

    impl FakeSealDevice {
        fn new(answer: Result<Secret>, permits: usize) -> Arc<Self> {
            Arc::new(Self { opens: AtomicUsize::new(0), unwrap_permits: Arc::new(Semaphore::new(permits)), answer })
        }

        fn open_count(&self) -> usize {
            self.opens.load(Ordering::Relaxed)
        }
    }

    impl SealDevice for FakeSealDevice {
        fn kind(&self) -> &'static str {
            "device"
        }

        fn mechanism(&self) -> &'static str {
            "none"
        }

        fn key(&self) -> String {
            "key".to_owned()
        }

        fn wrap(&self, _: &str, root: Secret) -> BoxFuture<'static, Result<Vec<u8>>> {
            ready(Ok(root.expose().to_vec())).boxed()
        }

        fn unwrap(&self, _: &str, wrapped: Vec<u8>) -> BoxFuture<'static, Result<Secret>> {
            self.opens.fetch_add(1, Ordering::Relaxed);
            let unwrap_permits = self.unwrap_permits.clone();
            let answer = self.answer.clone();
            async move {
                let _permit = unwrap_permits.acquire().await;
                answer.map(|_| Secret::new(wrapped))
            }
            .boxed()
        }
    }

    /// Returns a ring with an outdated root key, and facts whose root key the device can unwrap.
    async fn outdated_ring(device: &Arc<FakeSealDevice>) -> (SealReopener, Arc<DataKeyRing>, Vec<Fact>) {
        let seal = SealKey::in_device(device.clone());
        let [before, after] = [root::generate_root_key(), root::generate_root_key()];
        let (ring, _) = DataKeyRing::create(&before, "one".to_owned()).unwrap();
        let (_, mut facts) = DataKeyRing::create(&after, "one".to_owned()).unwrap();
        let opens = SealKey::in_device(FakeSealDevice::new(Ok(root::generate_root_key()), 1));
        let record = root::wrap_root(&opens, "one", &after, Time::UNIX_EPOCH, 1).await.unwrap();
        facts.push((root::SEAL_FACT.to_owned(), record));
        (SealReopener::new(seal.origin()), Arc::new(ring), facts)
    }

    #[tokio::test]
    async fn concurrent_callers_share_one_attempt_to_open_the_seal() {
        let device = FakeSealDevice::new(Ok(root::generate_root_key()), 1);
        let (again, ring, facts) = outdated_ring(&device).await;
        assert!(ring.load_new_keys(&facts).is_err());
        for outcome in join_all((0..10).map(|_| again.open(&ring, &facts))).await {
            outcome.unwrap();
        }
        assert!(ring.load_new_keys(&facts).is_ok());
        assert_eq!(device.open_count(), 1);
    }

    #[tokio::test]
    async fn slow_device_times_out_and_its_result_is_used_later() {
        let device = FakeSealDevice::new(Ok(root::generate_root_key()), 0);
        let (again, ring, facts) = outdated_ring(&device).await;
        let error = again.open(&ring, &facts).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.text()),
            (Kind::Unavailable, "seal: the seal key did not unwrap the root key of the store in time")
        );
        device.unwrap_permits.add_permits(1);
        again.open(&ring, &facts).await.unwrap();
        assert!(ring.load_new_keys(&facts).is_ok());
        assert_eq!(device.open_count(), 1);
    }

    #[tokio::test]
    async fn unavailable_device_is_retried_later_and_a_refusal_is_not() {
        for (kind, opens) in [(Kind::Unavailable, 2), (Kind::BadGateway, 1)] {
            let device = FakeSealDevice::new(Err(Error::new(kind, "seal: none")), 1);
            let (again, ring, facts) = outdated_ring(&device).await;
            for _ in 0..3 {
                assert_eq!(again.open(&ring, &facts).await.unwrap_err().kind(), kind);
            }
            assert_eq!(device.open_count(), 1, "{kind:?}");
            if let Some(attempt) = again.last.lock().unwrap().as_mut() {
                attempt.started -= FAILURE_CACHE_TIME;
            }
            assert_eq!(again.open(&ring, &facts).await.unwrap_err().kind(), kind);
            assert_eq!(device.open_count(), opens, "{kind:?}");
            assert!(ring.load_new_keys(&facts).is_err());
        }
    }
}
