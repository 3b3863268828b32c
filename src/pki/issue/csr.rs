//! Checks of the key that a certificate certifies, and of the CSR that proves possession of this key.

use crate::error::{Error, Result};
use crate::pki::mount::role::{Role, RoleKeys};
use crate::x509::algorithm::KeyKind;
use crate::x509::csr::Csr;
use crate::x509::oid;
use crate::x509::public_key::PublicKey;
use crate::x509::raw_extension::{self, RawExtension, grants_ocsp_signing};
use crate::x509::usage::OCSP_SIGNING;
use crate::x509::weak_key;

/// Reason for rejecting a CA certificate with the extended key usage OCSPSigning. Callers prepend the field's name.
pub(crate) const CA_WITH_OCSP_SIGNING_REASON: &str = "OCSPSigning, which lets its holder sign OCSP \
    responses for the issuer (RFC 6960 4.2.2.2); a CA needs no OCSPSigning for responses about its own certificates";

/// Returns the start of an error text if the certificate would have the extended key usage OCSPSigning. The text names
/// the source of the usage: the CSR's extKeyUsage if it is in `copied`, else the field `ext_key_usage`.
pub(crate) fn ocsp_signing_source(copied: &[RawExtension], requested: &[Vec<u8>]) -> Option<&'static str> {
    match raw_extension::find_extension(copied, oid::EXT_KEY_USAGE) {
        Some(_) => grants_ocsp_signing(copied).then_some("csr: extKeyUsage has"),
        None => requested.iter().any(|oid| oid == OCSP_SIGNING).then_some("ext_key_usage: the request has"),
    }
}

/// Checks that the role permits the type and size of the key in a `sign` request. RSA below 2048 bits is rejected for
/// every role.
pub(crate) fn check_key_against_role(role: &Role, kind: KeyKind) -> Result<()> {
    let key_type = role.keys.key_type();
    if role.keys != RoleKeys::Any && key_type != kind.name() {
        return Err(Error::invalid(format!("csr: role requires keys of type {key_type}")));
    }
    let wanted = role.keys.bits().max(min_key_bits(kind));
    if kind != KeyKind::Ed25519 && kind.bits() < wanted {
        return Err(Error::invalid(format!("csr: role requires a minimum of an {wanted}-bit key")));
    }
    Ok(())
}

/// Returns the minimum size in bits of certified keys of this type, for every role.
fn min_key_bits(kind: KeyKind) -> u32 {
    match kind {
        KeyKind::Rsa { .. } => 2048,
        KeyKind::Ec(_) => 224,
        KeyKind::Ed25519 => 0,
    }
}

/// Verifies a CSR's signature and checks the strength of its key, for endpoints that have no key rules of their own.
///
/// # Errors
/// `Invalid` naming `csr` and the rule.
pub(crate) fn verify(csr: &Csr) -> Result<()> {
    check_key_strength("csr", &csr.key)?;
    csr.verify()
}

/// Rejects keys below the minimum size and keys with known weaknesses. `what` names the field in errors.
///
/// # Errors
/// `Invalid` naming field and rule.
pub(crate) fn check_key_strength(what: &str, key: &PublicKey) -> Result<()> {
    let smallest = min_key_bits(key.kind());
    if key.kind().bits() < smallest {
        return Err(Error::invalid(format!("{what}: keys of this type need at least {smallest} bits")));
    }
    weak_key::reject(what, key)
}
