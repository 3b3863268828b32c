//! An issuer as what signs: with its key, its chain and everything that is encoded beforehand.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::issuer::{Issuer, Key};
use super::paths::Paths;
use super::profile::Pieces;
use crate::error::{Error, Result};
use crate::keys::signing::{ManagedKey, Signers, SigningKey};
use crate::x509::algorithm::SignatureAlgorithm;

/// An issuer with everything that issuing from it needs, worked out once per change.
pub struct Signer {
    /// The issuer.
    pub issuer: Arc<Issuer>,
    /// Its key, when the mount holds it.
    pub key: Option<Arc<Key>>,
    /// Its certification paths.
    pub paths: Paths,
    /// How many authorities may follow below it, by its own path length and those above it; `None` is any
    /// number.
    pub path_length: Option<u32>,
    /// Pre-encoded extensions; the error is what an attempt to issue answers (URLs that cannot be expanded).
    pub pieces: Result<Pieces, String>,
}

impl Signer {
    /// The chain that is served at a time (epoch seconds), itself first.
    pub fn chain(&self, now: i64) -> &[Arc<Issuer>] {
        self.paths.at(now).map_or(&[], |path| &path.served)
    }

    /// Advice when every path demands a certificate policy that is not among these (DER content octets).
    pub(crate) fn policy_advice(&self, policies: impl FnOnce() -> BTreeSet<Vec<u8>>) -> Option<String> {
        let mut demands = self.paths.standing().map(|path| path.policy.as_ref());
        let first = demands.next()??;
        if self.paths.standing().any(|path| path.policy.is_none()) {
            return None;
        }
        let own = policies();
        let is_met = self.paths.standing().filter_map(|path| path.policy.as_ref()).any(|demand| demand.is_met_by(&own));
        (!is_met).then(|| first.advice())
    }

    /// The pieces of its certificates.
    ///
    /// # Errors
    /// `Invalid` with the reason why nothing can be issued.
    pub fn pieces(&self) -> Result<&Pieces> {
        self.pieces.as_ref().map_err(|text| Error::invalid(text.clone()))
    }
}

/// The algorithm of an issuer's CRLs: its own setting, else what its key implies.
pub(crate) fn revocation_algorithm(signer: &Signer) -> Result<SignatureAlgorithm> {
    let setting = &signer.issuer.record.revocation_signature_algorithm;
    match SignatureAlgorithm::parse_name(setting) {
        Some(algorithm) => Ok(algorithm),
        None => SignatureAlgorithm::for_issuer(signer.issuer.certificate.key().kind(), 0, false),
    }
}

/// The first algorithm of certificates that a managed key signs with: the one that its kind implies, where its signer
/// does that. Asks no device.
///
/// # Errors
/// `Invalid` when it signs with none, and why not with the first; those of [`Signers::signer`].
pub(crate) fn first_algorithm(key: &ManagedKey, signers: &dyn Signers) -> Result<SignatureAlgorithm> {
    let (kind, signer) = (key.public.kind(), signers.signer(key)?);
    let implied = SignatureAlgorithm::for_issuer(kind, 0, false)?;
    let Err(refusal) = signer.wants(implied) else { return Ok(implied) };
    let all = [false, true].into_iter().flat_map(|pss| [256, 384, 512].map(|bits| (bits, pss)));
    all.filter_map(|(bits, pss)| SignatureAlgorithm::for_issuer(kind, bits, pss).ok())
        .find(|algorithm| signer.wants(*algorithm).is_ok())
        .ok_or(refusal)
}

/// The setting for the algorithm of CRLs and OCSP answers that stands for none: empty, but of a managed key that
/// does not sign with what its kind implies, the [first](first_algorithm) that it signs with.
pub(crate) fn unchosen_revocation_algorithm(key: &SigningKey, signers: &dyn Signers) -> String {
    let Some(key) = key.managed() else { return String::new() };
    let implied = SignatureAlgorithm::for_issuer(key.public.kind(), 0, false).ok();
    // Whether the mount may use the key just now is asked for every signature.
    let first = first_algorithm(key, signers).ok().filter(|first| Some(*first) != implied);
    first.map(|algorithm| algorithm.name().to_owned()).unwrap_or_default()
}
