//! Properties of a CA certificate that make some verifiers reject every path through it. They cause warnings, not
//! errors, because the caller may use other verifiers.

use crate::x509::general_name::{DNS_NAME, IP_ADDRESS, RFC822_NAME, URI_NAME};
use crate::x509::oid;
use crate::x509::profile;
use crate::x509::raw_extension::RawExtension;
use crate::x509::reader::{DerReader, DerResult};
use crate::x509::writer::SEQUENCE;

/// Returns a warning for each extension of a CA certificate that some verifiers reject.
pub(crate) fn verifier_warnings<'a>(
    extensions: impl Iterator<Item = &'a RawExtension>,
) -> impl Iterator<Item = String> {
    extensions.filter(|extension| extension.critical).filter_map(verifier_warning)
}

fn verifier_warning(critical: &RawExtension) -> Option<String> {
    let is_known =
        critical.oid != oid::PRECERTIFICATE_POISON && profile::find_certificate_extension(&critical.oid).is_some();
    let why = if !is_known {
        format!(
            "the extension {} is critical; verifiers that do not support it reject the certificate (RFC 5280 4.2)",
            oid::oid_text(&critical.oid)
        )
    } else if critical.oid == oid::NAME_CONSTRAINTS && constrains_unsupported_names(&critical.value).unwrap_or(false) {
        "nameConstraints are critical and constrain other names than dNSName, iPAddress, rfc822Name and URI, which Go \
         refuses (RFC 5280 4.2.1.10)"
            .to_owned()
    } else if critical.oid == oid::NAME_CONSTRAINTS && has_dotted_host(&critical.value).unwrap_or(false) {
        "nameConstraints have a dNSName that begins with a dot, which the verifier of Python's cryptography refuses \
         (RFC 5280 4.2.1.10)"
            .to_owned()
    } else {
        return None;
    };
    Some(format!("{why}; certificates below this CA may not verify"))
}

/// `true` if name constraints have a dNSName that begins with a dot.
fn has_dotted_host(value: &[u8]) -> DerResult<bool> {
    let mut sides = DerReader::read_single(value, SEQUENCE)?.reader();
    while !sides.is_empty() {
        let mut side = sides.any()?.reader();
        while !side.is_empty() {
            let base = side.sequence()?.any()?;
            if base.tag == DNS_NAME && base.content.starts_with(b".") {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// `true` if name constraints have a subtree of a name type that Go does not support.
fn constrains_unsupported_names(value: &[u8]) -> DerResult<bool> {
    let mut sides = DerReader::read_single(value, SEQUENCE)?.reader();
    while !sides.is_empty() {
        let mut side = sides.any()?.reader();
        while !side.is_empty() {
            if ![DNS_NAME, RFC822_NAME, IP_ADDRESS, URI_NAME].contains(&side.sequence()?.any()?.tag) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
