//! Verification of every signature before the caller gets it. It detects faulty devices, induced faults, and keys that
//! were replaced in the backend.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::backend::{Answer, Request};
use super::link::{Link, unexpected};
use super::waiting::Rank;
use crate::error::{Error, Kind, Result};
use crate::keys::signer::{Input, Known, RemoteSigner, Verified, Wants};
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::public_key::PublicKey;

pub(super) struct Signer {
    link: Link,
    key: Arc<Known>,
}

impl Signer {
    pub(super) fn new(link: Link, key: Known) -> Self {
        Self { link, key: Arc::new(key) }
    }
}

impl RemoteSigner for Signer {
    fn public(&self) -> &PublicKey {
        &self.key.public
    }

    fn wants(&self, algorithm: SignatureAlgorithm) -> Result<Wants> {
        let kind = self.key.public.kind();
        if !algorithm.fits(kind) {
            let (name, key, bits) = (algorithm.name(), kind.name(), kind.bits());
            return Err(Error::invalid(format!(
                "signature algorithm: {name} does not fit an {key} key of {bits} bits"
            )));
        }
        self.link.line().backend().wants(kind, algorithm)
    }

    fn require_room(&self) -> Result<()> {
        let line = self.link.line();
        line.require_room().inspect_err(|error| line.meter().failed(error.kind()))
    }

    fn sign(&self, algorithm: SignatureAlgorithm, input: Input) -> BoxFuture<'static, Result<Verified>> {
        self.signed(algorithm, input, Rank::First)
    }

    fn sign_last(&self, algorithm: SignatureAlgorithm, input: Input) -> BoxFuture<'static, Result<Verified>> {
        self.signed(algorithm, input, Rank::Last)
    }
}

impl Signer {
    fn signed(&self, algorithm: SignatureAlgorithm, input: Input, rank: Rank) -> BoxFuture<'static, Result<Verified>> {
        let fits = self.wants(algorithm).and_then(|wants| check(wants, algorithm, &input));
        let (link, key) = (self.link.clone(), Arc::clone(&self.key));
        async move {
            fits?;
            let input = Arc::new(input);
            let request = Request::Sign { algorithm, input: Arc::clone(&input), key: Arc::clone(&key) };
            match link.ask(request, rank).await? {
                Answer::Signature(signature) => match Verified::new(&key.public, algorithm, &input, signature) {
                    Ok(verified) => Ok(verified),
                    Err(_) => Err(wrong(&link, &key.public).await),
                },
                Answer::Changed => Err(changed(&link)),
                _ => Err(unexpected()),
            }
        }
        .boxed()
    }
}

/// Rejects input of the wrong kind. Also rejects a digest of the wrong length, because some PKCS #11 modules sign it.
pub(super) fn check(wants: Wants, algorithm: SignatureAlgorithm, input: &Input) -> Result<()> {
    match (wants, input) {
        (Wants::Message, Input::Message(_)) => Ok(()),
        (Wants::Digest, Input::Digest(digest))
            if algorithm.hash().is_some_and(|hash| digest.len() == hash.octets() as usize) =>
        {
            Ok(())
        }
        (Wants::Digest, Input::Digest(digest)) => Err(Error::invalid(format!(
            "digest: {} octets are not the length of a digest for {}",
            digest.len(),
            algorithm.name()
        ))),
        (Wants::Digest, _) => Err(Error::invalid("signing input: the key signs digests, not messages")),
        (Wants::Message, _) => Err(Error::invalid("signing input: the key signs messages, not digests")),
    }
}

/// Returns the error for a wrong signature, after a check whether the backend has another key.
async fn wrong(link: &Link, key: &PublicKey) -> Error {
    link.line().meter().wrong();
    match link.key(false).await {
        Ok(now) if now.public != *key => changed(link),
        _ => {
            tracing::error!(key = link.line().name(), "a signature of a managed key does not verify");
            Error::new(Kind::BadGateway, "the backend of the managed key returned a wrong signature")
        }
    }
}

fn changed(link: &Link) -> Error {
    link.line().meter().changed();
    tracing::error!(key = link.line().name(), "there is another key in the place of a managed key");
    Error::new(Kind::BadGateway, "managed key changed in backend")
}
