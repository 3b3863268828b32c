//! The signer actor: one per managed key. It owns the places at the key's backend, `max_parallel` of them,
//! and a bounded line of jobs in front; it never exceeds the one or the other, and never works for a caller
//! who has left or whose time is up.
//!
//! It is no actix actor. A message to a mailbox, from there to the thread of a session and back again,
//! would be three hops for a signature; here the job goes into the line by the caller itself, the thread of
//! a session takes it from there, and answers the caller: one hop there, one back. The line and the places
//! are one state behind one lock (`line`), held for a few operations on a queue and never while anything is
//! awaited, encoded or signed.
//!
//! | backend | a place is | a call beyond its time |
//! |---|---|---|
//! | [`Backend::Blocking`] (PKCS #11) | a thread of its own, named by the key, with one session; started on demand, gone after a minute without work | its caller is answered 503; the place is taken until the thread returns |
//! | [`Backend::Async`] (cloud services) | a task of the caller's runtime | is dropped with its connection |
//!
//! A job has one time limit, from its submission to its answer, so that a caller hears within it whatever
//! happens: the wait in the line counts.
//!
//! What signs is verified where it is waited for (`verified`): every signature, with the public key that the
//! signer was made for, before anybody gets it. A configuration that has been written again is handed to
//! [`SignerActor::configure`]: calls under way end on what they began with, every later one is made with the
//! new one, and the cap holds across both.
//!
//! The handle is cheap to clone. With the last one the line is closed and the places end.

mod backend;
mod line;
mod link;
mod measure;
mod tasks;
mod threads;
mod verified;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

pub use self::backend::{Answer, AsyncBackend, Backend, BlockingBackend, Lane, Request};
pub use self::line::Limits;
use self::line::Line;
use self::link::Link;
pub use self::measure::Meter;
use self::waiting::Rank;
use super::signer::{Input, Known, RemoteSigner, Wants};
use super::test_sign::TestSign;
use crate::error::{Error, Kind, Result};
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::public_key::PublicKey;

/// Bytes of a message that is signed as a test.
const TEST_BYTES: usize = 64;

/// The way to a key's actor; clones share it.
#[derive(Clone)]
pub struct SignerActor(Link);

impl SignerActor {
    /// An actor for the managed key `name`, which is also the label of its metrics. No place is taken before
    /// there is a job. `max_parallel` counts as at least 1.
    pub fn start(name: &str, backend: Backend, max_parallel: usize, limits: Limits) -> Self {
        let start = match backend {
            Backend::Blocking(_) => threads::start,
            Backend::Async(_) => tasks::start,
        };
        Self(Link::new(Line::new(name, backend, start, max_parallel, limits)))
    }

    /// The name of the key.
    pub fn name(&self) -> &str {
        self.0.line().name()
    }

    /// Takes over a configuration that was written again: the backend of every job from now on, and how many
    /// places there are.
    ///
    /// # Errors
    /// `Internal` when the backend is of the other kind: that is another actor.
    pub fn configure(&self, backend: Backend, max_parallel: usize) -> Result<()> {
        self.0.line().configure(backend, max_parallel)
    }

    /// Keeps public keys of certificates, one of which may belong to the key: for a device that does not give the public
    /// part itself. What a signature does not verify under is not taken for it.
    pub fn offer(&self, candidates: &[PublicKey]) {
        self.0.line().backend().offer(candidates);
    }

    /// The key, looked up in the backend. With `create`, a key that is not there is made first where
    /// its configuration allows that; one that is there is used.
    ///
    /// # Errors
    /// `Invalid` when there is no such key, or not one that can be used; else as [`RemoteSigner::sign`].
    pub async fn key(&self, create: bool) -> Result<Known> {
        self.0.key(create).await
    }

    /// Signs random octets as asked for and verifies the signature; makes the key where that is allowed.
    ///
    /// # Errors
    /// `Invalid` with the class of the cause in front (`configuration`, `verification`), `Busy` and
    /// `Unavailable` with `backend`.
    pub async fn test_sign(&self, test: TestSign) -> Result<()> {
        match self.0.ask(Request::TestSign(test), Rank::Look).await {
            Ok(Answer::Tested) => Ok(()),
            Ok(Answer::Wrong) => {
                self.0.line().meter().wrong();
                Err(Error::invalid("verification: the test signature does not verify"))
            }
            Ok(_) => Err(link::unexpected()),
            Err(error) => Err(classed(error)),
        }
    }

    /// Signs random bytes with `key`, which a mount took into use and which the configuration may not name any more, and
    /// verifies the signature.
    ///
    /// # Errors
    /// As [`SignerActor::test_sign`].
    pub async fn test_key(&self, key: Known) -> Result<()> {
        let signer = self.signer(key);
        let kind = signer.public().kind();
        let algorithm = SignatureAlgorithm::all_for(kind).find(|algorithm| signer.wants(*algorithm).is_ok());
        let of_mount =
            |error: Error| classed(error.within("the key that a mount uses, which is not the one named now"));
        let algorithm = algorithm.ok_or_else(|| of_mount(Error::invalid("supports no algorithm")))?;
        let message = crate::random::bytes::<TEST_BYTES>();
        let input = match (signer.wants(algorithm).map_err(of_mount)?, algorithm.hash()) {
            (Wants::Digest, Some(hash)) => Input::Digest(hash.digest(&message).as_ref().to_vec()),
            _ => Input::Message(message.to_vec()),
        };
        signer.sign(algorithm, input).await.map(drop).map_err(of_mount)
    }

    /// Signs for `key`, which [`SignerActor::key`] gave now or when the key was taken into use.
    pub fn signer(&self, key: Known) -> Arc<dyn RemoteSigner> {
        Arc::new(verified::Signer::new(self.0.clone(), key))
    }

    /// Refuses new jobs, ends those that wait, and gives back the places. What is not done after `limit` is
    /// answered with `Unavailable`. Safe to repeat.
    pub async fn stop(&self, limit: Duration) {
        self.0.line().close();
        self.0.line().ended(limit).await;
    }
}

/// The error of a test signature: what the configuration is to blame for is the caller's to mend.
fn classed(error: Error) -> Error {
    match error.kind() {
        Kind::Invalid | Kind::BadGateway => Error::invalid(format!("configuration: {}", error.text())),
        Kind::Busy | Kind::Unavailable => error.within("backend"),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
