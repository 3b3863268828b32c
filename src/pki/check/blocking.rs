//! Long work, such as building a CRL, that may wait for a signer. It runs on a blocking thread. While the work waits
//! for a [signature](SignatureWaiter), it holds neither the thread nor a permit, so that a hanging signer does not
//! block other work.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::error::{Error, Result};
use crate::keys::signing::SignatureFuture;
use crate::rationing::cpu;

/// A signature to wait for, and the channel for its result.
type PendingSignature = (SignatureFuture, oneshot::Sender<Result<Vec<u8>>>);

/// Lets work on a blocking thread wait for signatures without occupying the thread.
pub struct SignatureWaiter(mpsc::UnboundedSender<PendingSignature>);

impl SignatureWaiter {
    /// Waits for a signature; the calling work is suspended and its thread released.
    ///
    /// # Errors
    /// Those of the signer.
    pub(crate) async fn wait(&self, signature: SignatureFuture) -> Result<Vec<u8>> {
        let (reply, answer) = oneshot::channel();
        // Cannot fail: `run` owns the receiver as long as the work exists.
        let _ = self.0.send((signature, reply));
        answer.await.map_err(Error::internal)?
    }
}

/// Progress of the work on its thread: the final result, or a signature that the work waits for.
enum BlockingProgress<W, T> {
    Done(T),
    Suspended(W, mpsc::UnboundedReceiver<PendingSignature>, PendingSignature),
}

/// Runs work to completion on blocking threads, each with a permit of `permits`, or in the CPU queue if `permits` is
/// `None`. Every wait other than [`SignatureWaiter::wait`] blocks the thread, so work in the CPU queue must not read
/// from storage.
///
/// # Errors
/// `Internal` when the work panics; `Busy` when the caller's share of the CPU queue is full.
pub(crate) async fn run<W, T>(permits: Option<Arc<Semaphore>>, work: impl FnOnce(SignatureWaiter) -> W) -> Result<T>
where
    W: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let (requests, mut pending) = mpsc::unbounded_channel();
    let mut work = Box::pin(work(SignatureWaiter(requests)));
    loop {
        let permit = match &permits {
            Some(permits) => Some(Arc::clone(permits).acquire_owned().await),
            None => None,
        };
        let handle = Handle::current();
        let step = move || {
            let _permit = permit;
            handle.block_on(async move {
                let signature = tokio::select! {
                    biased;
                    done = &mut work => return BlockingProgress::Done(done),
                    Some(signature) = pending.recv() => signature,
                };
                BlockingProgress::Suspended(work, pending, signature)
            })
        };
        let done = match &permits {
            Some(_) => tokio::task::spawn_blocking(step).await.map_err(Error::internal)?,
            None => cpu::run(step).await?,
        };
        match done {
            BlockingProgress::Done(done) => return Ok(done),
            BlockingProgress::Suspended(back, more, (signature, reply)) => {
                let _ = reply.send(signature.await);
                work = back;
                pending = more;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn wait_for_a_signature_releases_the_permit_to_other_work() {
        let permits = Arc::new(Semaphore::new(1));
        let (answer, signature) = oneshot::channel();
        let signature = signature.map(|answer: Result<Vec<u8>, _>| answer.map_err(Error::internal)).boxed();
        let waits = run(Some(Arc::clone(&permits)), |waiter| async move { waiter.wait(signature).await });
        let waits = tokio::spawn(waits);
        for n in 0..20 {
            let done = run(Some(Arc::clone(&permits)), |_| async move { n });
            let done = tokio::time::timeout(Duration::from_secs(10), done).await;
            assert_eq!(done.expect("the permit is free").unwrap(), n);
        }
        assert!(!waits.is_finished());
        answer.send(vec![7]).unwrap();
        assert_eq!(waits.await.unwrap().unwrap().unwrap(), [7]);
        assert_eq!(permits.available_permits(), 1);
    }

    #[tokio::test]
    async fn blocking_work_waits_repeatedly_and_a_panic_is_an_error() {
        let signature = |n: u8| async move { Ok(vec![n]) }.boxed();
        let work = move |waiter: SignatureWaiter| async move {
            let mut all = Vec::new();
            for n in 0..3 {
                all.extend(waiter.wait(signature(n)).await?);
            }
            Ok::<_, Error>(all)
        };
        assert_eq!(run(None, work).await.unwrap().unwrap(), [0, 1, 2]);
        let broken = run(None, |_| async { panic!("a defect") }).await;
        assert_eq!(broken.unwrap_err().kind(), crate::error::Kind::Internal);
    }
}
