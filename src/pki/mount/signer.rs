//! An issuer as what signs: with its key, its chain and everything that is encoded beforehand.

use std::sync::Arc;

use super::issuer::{Issuer, Key};
use super::profile::Pieces;
use crate::error::{Error, Result};
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
