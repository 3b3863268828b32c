//! Whose turn it is to make a key that is not there.
//!
//! Nodes that share a store share devices and services, too. Two of them that look for a key at the same moment both
//! find none, and a module or a key store may take both keys that they make. So what may make a key is asked for by
//! one at a time, over all nodes: its turn is a lease, a document that says when it ends, written by compare-and-set.
//! Who makes a key looks for it again first. A turn that is not given back ends by itself after [`LEASE`]; nodes'
//! clocks differ by much less.
//!
//! The document stays, so that its version only grows: a node that was paused takes nothing back from another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::documents::{DocumentKey, DocumentWrite, SYSTEM};
use crate::error::{Error, Kind, Result};
use crate::keys::actor::Limits;
use crate::keys::store::KeyStore;
use crate::turns::Caller;

/// The kind of the documents; the name is the digest of the place, hexadecimal.
const KIND: &str = "managed-key-turn";
/// How long a turn lasts that nobody gives back; longer than a call to a device may take.
const LEASE: Duration = Duration::from_secs(60);
/// How long a turn is waited for. Less than a request may take, so that whoever waits hears why.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks whether a turn has ended.
const POLL: Duration = Duration::from_millis(100);

/// The turns of one node.
pub(super) struct Turns {
    store: Arc<dyn KeyStore>,
    clock: Clock,
    patience: Duration,
}

/// What is stored of a turn.
#[derive(Serialize, Deserialize)]
struct Lease {
    /// Seconds since 1970; 0 where it was given back.
    ends: i64,
}

/// A turn that was taken.
struct Turn {
    name: String,
    version: u64,
}

impl Turns {
    pub(super) fn new(store: Arc<dyn KeyStore>, clock: Clock) -> Arc<Self> {
        Arc::new(Self { store, clock, patience: PATIENCE })
    }

    /// Asks for what may make the key at `place` when it is nobody else's turn, and goes on when nobody waits for the
    /// answer any more. At `None` no key is made: that has no turn.
    ///
    /// # Errors
    /// Those of `ask`; `Unavailable` when others were making it all the time, and those of the store.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        place: Option<String>,
        ask: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let Some(place) = place else { return ask.await };
        let (turns, (answer, answered)) = (Arc::clone(self), oneshot::channel());
        let ask = Caller::current().must_run().scope(ask);
        tokio::spawn(async move {
            let outcome = match turns.take(&place).await {
                Ok(turn) if answer.is_closed() => return turns.give_back(turn).await,
                Ok(turn) => turns.during(turn, ask).await,
                Err(error) => Err(error),
            };
            // Whoever asked may have left.
            let _ = answer.send(outcome);
        });
        answered.await.map_err(Error::internal)?
    }

    async fn during<T>(&self, turn: Turn, ask: impl Future<Output = Result<T>>) -> Result<T> {
        let since = Instant::now();
        let outcome = ask.await;
        // A call beyond its time may be making the key still.
        if since.elapsed() < Limits::default().call_timeout {
            self.give_back(turn).await;
        }
        outcome
    }

    async fn take(&self, place: &str) -> Result<Turn> {
        // Few documents, however many places there are: two places that share one wait for each other.
        let name = format!("{:02x}", digest::digest(&digest::SHA256, place.as_bytes()).as_ref()[0]);
        let since = Instant::now();
        loop {
            if let Some(turn) = self.attempt(&name).await? {
                return Ok(turn);
            }
            if since.elapsed() >= self.patience {
                let text = "the managed key is being made by another request or node, try again shortly";
                return Err(Error::new(Kind::Unavailable, text));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn attempt(&self, name: &str) -> Result<Option<Turn>> {
        let stored = self.store.documents(KIND).await?.into_iter().find(|document| document.key.name == name);
        let lease = stored.as_ref().and_then(|document| serde_json::from_slice::<Lease>(&document.body).ok());
        let (version, ends) = (stored.map_or(0, |document| document.version), lease.map_or(0, |lease| lease.ends));
        let now = self.clock.now().unix_timestamp();
        if ends > now {
            return Ok(None);
        }
        match self.write(name, version, now + LEASE.as_secs().cast_signed()).await {
            Ok(()) => Ok(Some(Turn { name: name.to_owned(), version: version + 1 })),
            Err(error) if error.kind() == Kind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn give_back(&self, turn: Turn) {
        if let Err(error) = self.write(&turn.name, turn.version, 0).await {
            tracing::debug!("the turn of a managed key ends by itself: {error}");
        }
    }

    async fn write(&self, name: &str, expected: u64, ends: i64) -> Result<()> {
        let key = DocumentKey { mount: SYSTEM, kind: KIND, name: name.to_owned() };
        let body = serde_json::to_vec(&Lease { ends }).map_err(Error::internal)?;
        self.store.commit(vec![DocumentWrite { key, expected, body: Some(body) }]).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::super::memory::Memory;
    use super::*;

    fn clock() -> Clock {
        Clock::manual(crate::clock::parse_rfc3339("now", "2030-01-01T00:00:00Z").unwrap())
    }

    fn node(store: &Arc<Memory>, clock: &Clock) -> Arc<Turns> {
        let patience = Duration::from_millis(200);
        Arc::new(Turns { store: store.clone(), clock: clock.clone(), patience })
    }

    fn place() -> Option<String> {
        Some("place".to_owned())
    }

    #[tokio::test]
    async fn one_of_all_nodes_asks_at_a_time_and_each_does() {
        let (store, clock) = (Arc::new(Memory::default()), clock());
        let nodes = [Turns::new(store.clone(), clock.clone()), Turns::new(store, clock)];
        let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let (inside, done) = (Arc::clone(&inside), Arc::clone(&done));
            async move {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                tokio::time::sleep(Duration::from_millis(5)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                Ok(done.fetch_add(1, Ordering::SeqCst))
            }
        };
        let all = join_all((0..6).map(|n| nodes[n % 2].run(place(), ask()))).await;
        assert!(all.iter().all(Result::is_ok), "{all:?}");
        assert_eq!(done.load(Ordering::SeqCst), 6);
    }

    #[tokio::test]
    async fn a_turn_that_is_not_given_back_ends_after_a_minute_and_is_not_given_back_later() {
        let (store, clock) = (Arc::new(Memory::default()), clock());
        let (one, other) = (node(&store, &clock), node(&store, &clock));
        let lost = one.take("place").await.unwrap();
        let refused = other.run(place(), async { Ok(()) }).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.text().contains("is being made by another"), "{refused}");
        other.run(Some("elsewhere".to_owned()), async { Ok(()) }).await.unwrap();
        other.run(None, async { Ok(()) }).await.unwrap();
        clock.advance(LEASE - Duration::from_secs(1));
        assert!(other.attempt(&lost.name).await.unwrap().is_none());
        clock.advance(Duration::from_secs(1));
        let next = other.take("place").await.unwrap();
        one.give_back(lost).await;
        assert!(one.attempt(&next.name).await.unwrap().is_none(), "it is not the other's to give back");
        other.give_back(next).await;
        one.run(place(), async { Ok(()) }).await.unwrap();
    }

    #[tokio::test]
    async fn what_was_begun_goes_on_without_its_caller_and_gives_its_turn_back() {
        let (store, clock) = (Arc::new(Memory::default()), clock());
        let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let node = Turns::new(store.clone(), clock.clone());
        let ask = {
            let (begun, done) = (Arc::clone(&begun), Arc::clone(&done));
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(done.fetch_add(1, Ordering::SeqCst))
            }
        };
        let left = tokio::time::timeout(Duration::from_millis(20), node.run(place(), ask)).await;
        assert!(left.is_err() && begun.load(Ordering::SeqCst) == 1);
        node.run(place(), async { Ok(()) }).await.unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 1, "nobody had a turn before it was done");
    }
}
