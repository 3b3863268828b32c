//! An issuer as what signs: with its key, its chain and everything that is encoded beforehand.

use std::sync::Arc;

use super::issuer::{Issuer, Key};
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
    /// Its chain, itself first.
    pub chain: Vec<Arc<Issuer>>,
    /// How many authorities may follow below it, by its own path length and those above it; `None` is any
    /// number.
    pub path_length: Option<u32>,
    /// Pre-encoded extensions, and what wires keep with them; the error is what an attempt to issue
    /// answers (URLs that cannot be expanded, name constraints that cannot be read).
    pub pieces: Result<Pieces, String>,
}

impl Signer {
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
