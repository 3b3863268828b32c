//! Selection of the role and issuer of a request, and checks that the issuer may sign.

use std::sync::Arc;

use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::keys::Signers;
use crate::pki::mount::issuer::MountKey;
use crate::pki::mount::profile::EncodedRole;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::view::MountView;
use crate::x509::usage::KeyUsage;

/// Finds the role with this name.
pub(crate) fn find_role<'v>(view: &'v MountView, name: &str) -> Result<&'v EncodedRole> {
    view.role(name).map(|entry| &**entry).ok_or_else(|| Error::invalid(format!("unknown role: {name}")))
}

/// Finds the issuer with this reference: its id, its name, or `default`.
pub(crate) fn find_signer(view: &MountView, reference: &str) -> Result<Arc<IssuerSigner>> {
    view.signer(reference).cloned().ok_or_else(|| {
        Error::invalid(if reference.eq_ignore_ascii_case("default") {
            "issuer_ref: no default issuer configured".to_owned()
        } else {
            "issuer_ref: issuer not found".to_owned()
        })
    })
}

/// Checks that the signer of the selected issuer's key has capacity for another signature. This precedes other work, so
/// that many requests for a slow signing device cost the server little.
///
/// # Errors
/// `Busy` when the signer has no capacity; those of [`Signers::signer`].
pub(crate) fn require_signer_capacity(view: &MountView, reference: &str, signers: &dyn Signers) -> Result<()> {
    let key = view.signer(reference).and_then(|signer| signer.key.as_ref());
    match key.and_then(|key| key.signing.managed()) {
        Some(key) => signers.signer(key)?.require_capacity(),
        None => Ok(()),
    }
}

/// Returns the issuer's key and the current time, if the issuer may sign certificates now: its key is in the mount, its
/// usage allows it, its certificate is neither revoked nor expired, and at least one chain verifies.
///
/// # Errors
/// `Invalid` naming the reason; those of [`Clock::synchronized_now`].
pub(crate) fn usable_key(signer: &IssuerSigner, clock: &Clock) -> Result<(Arc<MountKey>, Time)> {
    let now = clock.synchronized_now()?;
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
    // RFC 5280 6.1.4 (n): verifiers would reject certificates that this issuer signs.
    if certificate.key_usage().is_some_and(|usage| !usage.contains(KeyUsage::CERT_SIGN)) {
        return refuse("its certificate's keyUsage lacks keyCertSign");
    }
    if certificate.not_after() <= now.unix_timestamp() {
        return refuse("it is expired");
    }
    if let Some(refusal) = signer.paths.rejection_reason() {
        return Err(Error::invalid(refusal.to_owned()));
    }
    Ok((Arc::clone(key), now))
}

/// Returns the maximum number of CAs below a CA that this issuer signs; `None` is unlimited.
///
/// # Errors
/// `Invalid` when the issuer may not sign CAs.
pub(crate) fn remaining_path_length(signer: &IssuerSigner) -> Result<Option<u32>> {
    match signer.path_length {
        Some(0) => {
            Err(Error::invalid("issuer_ref: issuer cannot sign further CAs: its path length is 0 (RFC 5280 4.2.1.9)"))
        }
        limit => Ok(limit.map(|n| n - 1)),
    }
}
