//! Keys of certificates that are revoked because the key is compromised.

use crate::error::Result;
use crate::pki::compromised::{Added, KeyHash, MAX_KEYS};
use crate::pki::engine::Authority;
use crate::x509::certificate::Certificate;
use crate::x509::serial::Serial;

/// Puts the key of a certificate on the list of compromised keys; a warning when that is full. Nothing is known of the key
/// of a certificate that is not here.
pub(super) async fn list_key(authority: &Authority, serial: Serial, der: &[u8]) -> Result<Option<String>> {
    let Ok(certificate) = Certificate::parse(der) else { return Ok(None) };
    let hash = KeyHash::of(certificate.key());
    let added = authority.tools().compromised.add(hash, "revocation", serial.to_string()).await?;
    let full = || {
        format!(
            "the list of compromised keys has its most entries ({MAX_KEYS}): the key of {serial} may be certified again"
        )
    };
    Ok((added == Added::Full).then(full))
}
