//! Checks imported CA certificates against the profile of certificates that this server signs, except for rules that
//! common verifiers do not enforce on CA certificates. A verifier that cannot parse a CA certificate rejects every
//! certificate below that CA.

use crate::error::{Error, Result, Warnings};
use crate::pki::check::interoperability;
use crate::pki::mount::signatures;
use crate::pki::mount::view::MountView;
use crate::x509::certificate::Certificate;
use crate::x509::oid;
use crate::x509::profile::{self, ExtensionProfile};
use crate::x509::reader::{DerReader, DerResult, check_der};
use crate::x509::writer::{SEQUENCE, build};

/// Profile rules that Go, OpenSSL and `cryptography` do not enforce on CA certificates. A violation of these rules only
/// causes a warning.
const TOLERATED_RULES: [&str; 30] = [
    "must not be empty (RFC 5280 4.2.1.2)",
    "must not be empty (RFC 5280 4.2.1.4)",
    "must not be empty (RFC 5280 4.2.1.5)",
    "must not be empty (RFC 5280 4.2.1.6)",
    "must not be empty (RFC 5280 4.2.1.8)",
    "must not be empty (RFC 5280 4.2.1.13)",
    "must not be empty (RFC 5280 4.2.2.1)",
    "must be critical (RFC 5280 4.2, 5.2, 5.3)",
    "must not end in zero bits (X.690 11.2.2)",
    "has undefined bits (RFC 5280 4.2.1.3, 4.2.1.13)",
    "the reasons of a distribution point are empty (RFC 5280 4.2.1.13)",
    "anyPolicy must not be mapped (RFC 5280 4.2.1.5)",
    "policyQualifiers are empty (RFC 5280 4.2.1.4)",
    "a policy qualifier is neither cPSuri nor userNotice (RFC 5280 4.2.1.4)",
    "the text of a notice has a type that RFC 5280 4.2.1.4 does not permit",
    "the text of a notice must have 1 to 200 characters (RFC 5280 4.2.1.4)",
    "a dNSName is not a host name (RFC 5280 4.2.1.6)",
    "an rfc822Name is not a mailbox (RFC 5280 4.2.1.6)",
    "an SmtpUTF8Mailbox is not a UTF8String (RFC 9598 3)",
    "an SmtpUTF8Mailbox is not a mailbox (RFC 9598 3)",
    "an SmtpUTF8Mailbox has an ASCII local part; use an rfc822Name (RFC 9598 3)",
    "an SRVName is not an IA5String (RFC 4985 2)",
    "an SRVName must be _service.host (RFC 4985 2)",
    "a URI is not absolute (RFC 5280 4.2.1.6)",
    "a URI has no usable host (RFC 5280 4.2.1.6)",
    "a name is empty (RFC 5280 4.2.1.6)",
    "a directoryName is empty (RFC 5280 4.2.1.6)",
    "a subtree is not a host name or domain (RFC 5280 4.2.1.10)",
    "a name contains control characters",
    INVALID_URI_RULE,
];
/// A rule that is tolerated except in subjectAltName. URIs with spaces in directory paths are common, and Go rejects
/// such URIs only in subjectAltName.
const INVALID_URI_RULE: &str = "a URI has a character or a % that URIs must not contain (RFC 3986 2)";

/// Checks a CA certificate against the profile; returns warnings about unusual contents that verifiers accept. `others`
/// are certificates whose keys may have signed `certificate`.
///
/// # Errors
/// `Invalid` naming the extension or field and the rule, if some verifiers would reject every certificate below this
/// CA.
pub(super) fn check_ca_profile<'a>(
    certificate: &Certificate,
    others: impl Iterator<Item = &'a Certificate>,
) -> Result<Vec<String>> {
    check_self_issued_signature(certificate, others)?;
    certificate.check_unique_ids().map_err(|e| e.into_error("certificate: unique identifier"))?;
    let mut unusual = Vec::new();
    if let Err(weak) = certificate.check_algorithm() {
        unusual.push(format!(
            "certificate: the self-signature: {}; imported, because verifiers do not check the signature of a root \
             that they trust",
            weak.text()
        ));
    }
    for extension in certificate.extensions() {
        let Some(known) = profile::find_certificate_extension(&extension.oid) else { continue };
        let of = "certificate";
        for held in [known.validate_critical(of, extension.critical), known.validate_value(of, &extension.value)] {
            match held {
                Err(error) if is_tolerated_violation(&extension.oid, error.text()) => {
                    validate_each_element(&known, &extension.oid, &extension.value)?;
                    unusual.push(error.text().to_owned());
                }
                held => held?,
            }
        }
    }
    if certificate.subject().has_empty_value() {
        unusual.push("certificate: subject: an attribute's value is empty (RFC 5280 A.1)".to_owned());
    }
    unusual.extend(path_problems(certificate));
    Ok(unusual)
}

/// Returns warnings about contents of a CA certificate that verifiers may not be able to read. Used when an existing CA
/// certificate is signed again with its contents unchanged.
pub fn profile_warnings(certificate: &Certificate) -> Warnings {
    match check_ca_profile(certificate, std::iter::empty()) {
        Err(error) => Warnings::from(vec![format!("{}; certificates below it may not verify", error.text())]),
        Ok(unusual) => unusual.into(),
    }
}

/// Returns reasons why verifiers may reject certification paths through a CA certificate although they can parse it.
fn path_problems(certificate: &Certificate) -> impl Iterator<Item = String> {
    let is_inverted = certificate.validity_range().is_empty();
    let inverted = is_inverted.then(|| "notAfter is before notBefore: certificates below it may not verify".to_owned());
    let extensions = interoperability::verifier_warnings(certificate.extensions().iter());
    inverted.into_iter().chain(extensions).map(|why| format!("certificate: {why}"))
}

/// Applies [`check_ca_profile`] to issuers that have just been linked to their private key. An issuer without a key
/// only completes chains, so its import accepted profile violations with a warning.
///
/// # Errors
/// As [`check_ca_profile`], naming the issuer.
pub(super) fn check_linked_issuers(next: &MountView, linked: &[String]) -> Result<()> {
    for signer in linked.iter().filter_map(|id| next.signer(id)) {
        let parents = next.parents(&signer.issuer.record.id).iter().filter_map(|id| next.signer(id));
        let parents = parents.map(|parent| &parent.issuer.certificate);
        let what = format!("the key belongs to issuer {}, whose certificate is not accepted", signer.issuer.record.id);
        check_ca_profile(&signer.issuer.certificate, parents).map_err(|e| e.within(&what))?;
    }
    Ok(())
}

/// Validates each element of a list-valued extension separately, because validation of the whole value stops at the
/// first violation.
fn validate_each_element(known: &ExtensionProfile, oid: &[u8], value: &[u8]) -> Result<()> {
    let of = "certificate";
    known.with_field_name(of, check_der(value))?;
    let each = known.with_field_name(of, split_elements(oid, value))?;
    let refused = each
        .iter()
        .find_map(|alone| known.validate_value(of, alone).err().filter(|e| !is_tolerated_violation(oid, e.text())));
    refused.map_or(Ok(()), Err)
}

/// Splits an extension's value into values with one element each: the elements of a list, or the subtrees of
/// nameConstraints.
fn split_elements(oid: &[u8], value: &[u8]) -> DerResult<Vec<Vec<u8>>> {
    let Ok(list) = DerReader::read_single(value, SEQUENCE) else { return Ok(Vec::new()) };
    let mut list = list.reader();
    let mut each = Vec::new();
    while !list.is_empty() {
        let one = list.any()?;
        if oid != oid::NAME_CONSTRAINTS {
            each.push(build(SEQUENCE, one.raw.len(), |w| w.raw(one.raw)));
            continue;
        }
        let mut subtrees = one.reader();
        while !subtrees.is_empty() {
            let subtree = subtrees.any()?;
            each.push(build(SEQUENCE, subtree.raw.len(), |w| w.nest(one.tag, |w| w.raw(subtree.raw))));
        }
    }
    Ok(each)
}

fn is_tolerated_violation(oid: &[u8], text: &str) -> bool {
    TOLERATED_RULES
        .iter()
        .any(|rule| text.ends_with(rule) && (*rule != INVALID_URI_RULE || oid != oid::SUBJECT_ALT_NAME))
}

/// Checks that a self-issued certificate was signed by its own key or by the key of one of `others` (RFC 5280 3.2).
/// Skips certificates whose key identifiers name another signer.
fn check_self_issued_signature<'a>(
    certificate: &Certificate,
    mut others: impl Iterator<Item = &'a Certificate>,
) -> Result<()> {
    let by = |other: &Certificate| signatures::certifies(other, certificate);
    if !certificate.names_itself_as_issuer() || certificate.certifies_itself() || others.any(by) {
        return Ok(());
    }
    Err(Error::invalid("certificate: the certificate is self-issued, but its signature does not verify (RFC 5280 3.2)"))
}

#[cfg(test)]
mod tests;
