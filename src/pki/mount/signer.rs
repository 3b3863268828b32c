//! An issuer ready to sign: with its key, its chains and its pre-encoded extensions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::issuer::{Issuer, MountKey};
use super::paths::CertificationPaths;
use super::profile::EncodedIssuerParts;
use crate::error::{Error, Result};
use crate::keys::signing::{ManagedKey, Signers, SigningKey};
use crate::x509::algorithm::SignatureAlgorithm;

/// An issuer with everything that signing needs, computed once per change of the mount.
pub struct IssuerSigner {
    /// The issuer: its stored record and its parsed certificate.
    pub issuer: Arc<Issuer>,
    /// The issuer's private key, if the mount has it.
    pub key: Option<Arc<MountKey>>,
    /// Certification paths of the issuer.
    pub paths: CertificationPaths,
    /// Maximum number of CAs below the issuer, by its own path length and those of the CAs above it; `None` is
    /// unlimited.
    pub path_length: Option<u32>,
    /// Pre-encoded extensions, or the reason why this issuer cannot issue anything (URLs that cannot be expanded).
    pub encoded_parts: Result<EncodedIssuerParts, String>,
}

impl IssuerSigner {
    /// Returns the chain to serve at a time (epoch seconds); the issuer comes first.
    pub fn chain(&self, now: i64) -> &[Arc<Issuer>] {
        self.paths.served_at(now).map_or(&[], |path| &path.served)
    }

    /// Returns a warning if every path requires certificate policies and `policies` (OIDs in DER contents) meet none of
    /// these requirements.
    pub(crate) fn policy_warning(&self, policies: impl FnOnce() -> BTreeSet<Vec<u8>>) -> Option<String> {
        let mut demands = self.paths.accepted_paths().map(|path| path.policy.as_ref());
        let first = demands.next()??;
        if self.paths.accepted_paths().any(|path| path.policy.is_none()) {
            return None;
        }
        let own = policies();
        let is_met =
            self.paths.accepted_paths().filter_map(|path| path.policy.as_ref()).any(|demand| demand.is_met_by(&own));
        (!is_met).then(|| first.unmet_warning())
    }

    /// Returns the pre-encoded extensions of the issuer's certificates.
    ///
    /// # Errors
    /// `Invalid` with the reason why the issuer cannot issue anything.
    pub fn encoded_parts(&self) -> Result<&EncodedIssuerParts> {
        self.encoded_parts.as_ref().map_err(|text| Error::invalid(text.clone()))
    }
}

/// Returns the signature algorithm of an issuer's CRLs and OCSP responses: the issuer's setting, else the default of
/// its key.
pub(crate) fn revocation_algorithm(signer: &IssuerSigner) -> Result<SignatureAlgorithm> {
    let setting = &signer.issuer.record.revocation_signature_algorithm;
    match SignatureAlgorithm::parse_name(setting) {
        Some(algorithm) => Ok(algorithm),
        None => SignatureAlgorithm::for_issuer(signer.issuer.certificate.key().kind(), 0, false),
    }
}

/// Selects the algorithm that a key signs with, by hash size and scheme. If a managed key supports only some
/// algorithms, these determine what the request leaves open: the hash if `bits` is 0, and the scheme unless `pss` is
/// set. Does not call the key's backend.
///
/// # Errors
/// `Invalid` for a hash size other than 256, 384 or 512 bits, for a P-224 key, and when the key supports no matching
/// algorithm; those of [`Signers::signer`].
pub(crate) fn requested_algorithm(
    key: &SigningKey,
    signers: &dyn Signers,
    bits: u32,
    pss: bool,
) -> Result<SignatureAlgorithm> {
    let wanted = SignatureAlgorithm::for_issuer(key.kind(), bits, pss)?;
    let Some(key) = key.managed() else { return Ok(wanted) };
    let is_open = |algorithm: SignatureAlgorithm| match algorithm {
        SignatureAlgorithm::RsaPkcs1(_) if pss => false,
        _ => bits == 0 || algorithm.hash() == wanted.hash(),
    };
    supported_algorithm(key, signers, wanted, is_open)
}

/// Like [`requested_algorithm`], for a certificate that is signed again: prefers the algorithm of its old signature.
///
/// # Errors
/// As [`requested_algorithm`].
pub(crate) fn preferred_algorithm(
    key: &SigningKey,
    signers: &dyn Signers,
    preferred: Option<SignatureAlgorithm>,
) -> Result<SignatureAlgorithm> {
    let kind = key.kind();
    let wanted = match preferred.filter(|algorithm| algorithm.is_usual_for(kind)) {
        Some(algorithm) => algorithm,
        None => SignatureAlgorithm::for_issuer(kind, 0, false)?,
    };
    match key.managed() {
        Some(key) => supported_algorithm(key, signers, wanted, |_| true),
        None => Ok(wanted),
    }
}

/// Returns the algorithm `wanted` if the key supports it, else the key's first algorithm that `is_open` accepts.
fn supported_algorithm(
    key: &ManagedKey,
    signers: &dyn Signers,
    wanted: SignatureAlgorithm,
    is_open: impl Fn(SignatureAlgorithm) -> bool,
) -> Result<SignatureAlgorithm> {
    let signer = signers.signer(key)?;
    let Err(refusal) = signer.input_kind(wanted) else { return Ok(wanted) };
    let all = SignatureAlgorithm::all_for(key.public.kind());
    let supported: Vec<SignatureAlgorithm> = all.filter(|algorithm| signer.input_kind(*algorithm).is_ok()).collect();
    if let Some(algorithm) = supported.iter().find(|algorithm| is_open(**algorithm)) {
        return Ok(*algorithm);
    }
    let names: Vec<&str> = supported.iter().map(|algorithm| algorithm.name()).collect();
    Err(if names.is_empty() {
        refusal
    } else {
        Error::invalid(format!("{}; the key supports {}", refusal.text(), names.join(", ")))
    })
}

/// Returns the default certificate algorithm of a managed key: the default of its kind if the key supports that, else
/// the first algorithm that the key supports. Does not call the key's backend.
///
/// # Errors
/// `Invalid` with the reason when the key supports no algorithm; those of [`Signers::signer`].
pub(crate) fn first_supported_algorithm(key: &ManagedKey, signers: &dyn Signers) -> Result<SignatureAlgorithm> {
    let implied = SignatureAlgorithm::for_issuer(key.public.kind(), 0, false)?;
    supported_algorithm(key, signers, implied, |_| true)
}

/// Returns the default of an issuer's setting for the algorithm of CRLs and OCSP responses. This default is usually
/// empty. If a managed key does not support the default algorithm of its kind, it is the
/// [first](first_supported_algorithm) algorithm that the key supports.
pub(crate) fn default_revocation_algorithm(key: &SigningKey, signers: &dyn Signers) -> String {
    let Some(key) = key.managed() else { return String::new() };
    let implied = SignatureAlgorithm::for_issuer(key.public.kind(), 0, false).ok();
    // Ignore errors: every signature checks again whether the mount may use the key.
    let first = first_supported_algorithm(key, signers).ok().filter(|first| Some(*first) != implied);
    first.map(|algorithm| algorithm.name().to_owned()).unwrap_or_default()
}
