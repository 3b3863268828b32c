//! Which role a request names, which issuer signs for it, and whether that one may.

use std::sync::Arc;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::keys::Signers;
use crate::pki::mount::issuer::Key;
use crate::pki::mount::profile::RoleEntry;
use crate::pki::mount::signer::Signer;
use crate::pki::mount::view::View;
use crate::x509::usage::KeyUsage;

/// The role that a request names.
pub(crate) fn role(view: &View, name: &str) -> Result<Arc<RoleEntry>> {
    view.role(name).cloned().ok_or_else(|| Error::invalid(format!("unknown role: {name}")))
}

/// The issuer that a request selects.
pub(crate) fn signer(view: &View, reference: &str) -> Result<Arc<Signer>> {
    view.signer(reference).cloned().ok_or_else(|| {
        Error::invalid(if reference.eq_ignore_ascii_case("default") {
            "issuer_ref: no default issuer configured".to_owned()
        } else {
            "issuer_ref: issuer not found".to_owned()
        })
    })
}

/// That whoever signs for the issuer that a request selects would take one signature more: before anything is checked or
/// made for what would be refused in the end. A flood of requests for a slow device costs the other mounts little so.
///
/// # Errors
/// `Busy` when it would not; those of [`Signers::signer`].
pub(crate) fn require_room(view: &View, reference: &str, signers: &dyn Signers) -> Result<()> {
    let key = view.signer(reference).and_then(|signer| signer.key.as_ref());
    match key.and_then(|key| key.signing.managed()) {
        Some(key) => signers.signer(key)?.require_room(),
        None => Ok(()),
    }
}

/// The key of an issuer that may sign certificates now: it is here, its usage allows it, and its
/// certificate is neither revoked nor expired, and a chain above it verifies.
pub(crate) fn usable_key(signer: &Signer, now: Time) -> Result<Arc<Key>> {
    let record = &signer.issuer.record;
    let refuse = |why: &str| Err(Error::invalid(format!("issuer_ref: issuer may not issue certificates: {why}")));
    let Some(key) = &signer.key else { return refuse("its private key is not in this mount") };
    if record.revoked_at.is_some() {
        return refuse("it is revoked");
    }
    if !record.usage.issuing {
        return refuse("its usage lacks issuing-certificates");
    }
    let certificate = &signer.issuer.certificate;
    // RFC 5280 6.1.4 (n): what it would sign, nobody would accept.
    if certificate.key_usage().is_some_and(|usage| !usage.contains(KeyUsage::CERT_SIGN)) {
        return refuse("its certificate's keyUsage lacks keyCertSign");
    }
    if certificate.not_after() <= now.unix_timestamp() {
        return refuse("it is expired");
    }
    if let Some(refusal) = signer.paths.refusal() {
        return Err(Error::invalid(refusal.to_owned()));
    }
    Ok(Arc::clone(key))
}

/// How many authorities may follow below one that this issuer signs; `None` is any number.
///
/// # Errors
/// `Invalid` when the issuer may sign none.
pub(crate) fn below(signer: &Signer) -> Result<Option<u32>> {
    match signer.path_length {
        Some(0) => {
            Err(Error::invalid("issuer_ref: issuer cannot sign further CAs: its path length is 0 (RFC 5280 4.2.1.9)"))
        }
        limit => Ok(limit.map(|n| n - 1)),
    }
}
