//! Strict, bounded parsing of imported PEM text: CA certificates, private keys and CRLs. The number of PEM blocks is
//! limited by [`pem::MAX_BLOCKS`], because each key is validated and each certificate is compared with every issuer.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::keys::local::PrivateKey;
use crate::pki::check::ca_request::check_ca_key;
use crate::pki::check::ca_request::check_subject;
use crate::x509::certificate::Certificate;
use crate::x509::{pem, profile, weak_key};

/// Maximum length of an imported PEM text in bytes. A long chain with large keys needs about a tenth of it.
const MAX_BUNDLE_TEXT_BYTES: usize = 512 * 1024;
/// Minimum length in bytes of a PEM text with certificates. A shorter text is usually a file name sent by mistake.
const MIN_CERTIFICATE_TEXT_BYTES: usize = 75;
const MIN_KEY_TEXT_BYTES: usize = 64;

/// Controls whether an endpoint accepts private keys in an imported PEM text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PrivateKeyAcceptance {
    /// The text may contain certificates, CRLs and private keys.
    Allowed,
    /// The text may contain certificates and CRLs; a private key is an error.
    Refused,
}

/// The parsed contents of an imported PEM text: CA certificates and private keys in text order, without duplicates, and
/// CRLs.
#[derive(Default)]
pub(crate) struct CaBundle {
    pub(crate) certificates: Vec<Certificate>,
    pub(crate) keys: Vec<Arc<PrivateKey>>,
    /// CRLs in text order, not parsed yet.
    pub(crate) crls: Vec<BundledCrl>,
}

/// A CRL in an imported PEM text.
pub(crate) struct BundledCrl {
    /// Index of the PEM block that contains the CRL, from 0.
    pub(crate) block: usize,
    /// DER encoding of the CRL.
    pub(crate) der: Vec<u8>,
}

impl CaBundle {
    /// Parses `text`, the value of the request field `field`. Skips EC parameters, which some tools write next to keys.
    ///
    /// # Errors
    /// `Invalid` in these cases. The error names the field, the PEM block and the rule, and never quotes the text.
    /// - The text has an invalid length.
    /// - The text has no PEM block, or has a malformed, encrypted or unknown block.
    /// - A private key is invalid or not allowed.
    /// - [`check_certificate`] rejects a certificate.
    pub(crate) fn parse(field: &str, text: &str, private_keys: PrivateKeyAcceptance) -> Result<Self> {
        let mut bundle = Self::default();
        for (index, (label, content)) in
            parse_pem_blocks(field, text, MIN_CERTIFICATE_TEXT_BYTES)?.into_iter().enumerate()
        {
            let at = |e: Error| Error::invalid(format!("{field}: block {index}: {}", e.text()));
            if pem::is_private_key(&label) {
                if private_keys == PrivateKeyAcceptance::Refused {
                    return Err(Error::invalid(format!("{field}: private keys are not accepted here")));
                }
                bundle.add_key(read_key(&label, &content).map_err(at)?);
            } else if label == "CERTIFICATE" {
                let certificate = Certificate::parse_untrusted(&content).and_then(check_certificate).map_err(at)?;
                bundle.add_certificate(certificate);
            } else if label == pem::CRL_LABEL {
                bundle.crls.push(BundledCrl { block: index, der: content.to_vec() });
            } else if !is_skipped_label(&label) {
                return Err(Error::invalid(format!("{field}: block {index}: {}", unsupported_block_reason(&label))));
            }
        }
        if bundle.certificates.is_empty() && bundle.keys.is_empty() {
            return Err(Error::invalid(format!("{field}: no data: neither a certificate nor a private key")));
        }
        Ok(bundle)
    }

    fn add_key(&mut self, key: PrivateKey) {
        if self.keys.iter().all(|known| known.public() != key.public()) {
            self.keys.push(Arc::new(key));
        }
    }

    fn add_certificate(&mut self, certificate: Certificate) {
        if self.certificates.iter().all(|known| known.der() != certificate.der()) {
            self.certificates.push(certificate);
        }
    }
}

/// Parses a PEM text that contains exactly one private key; skips EC parameters.
///
/// # Errors
/// As [`CaBundle::parse`], and `Invalid` if the text contains any other PEM block.
pub(crate) fn parse_key(field: &str, text: &str) -> Result<PrivateKey> {
    let mut blocks = parse_pem_blocks(field, text, MIN_KEY_TEXT_BYTES)?;
    blocks.retain(|(label, _)| !is_skipped_label(label));
    match blocks.as_slice() {
        [(label, content)] if pem::is_private_key(label) => {
            read_key(label, content).map_err(|e| Error::invalid(format!("{field}: {}", e.text())))
        }
        [(label, _)] => Err(Error::invalid(format!("{field}: {}", unsupported_block_reason(label)))),
        _ => Err(Error::invalid(format!("{field}: must be exactly one private key and nothing else"))),
    }
}

type PemBlock = (String, Zeroizing<Vec<u8>>);

fn parse_pem_blocks(field: &str, text: &str, min_bytes: usize) -> Result<Vec<PemBlock>> {
    if text.len() < min_bytes {
        return Err(Error::invalid(format!("{field}: provided data is too short; was a path passed?")));
    }
    if text.len() > MAX_BUNDLE_TEXT_BYTES {
        return Err(Error::invalid(format!("{field}: longer than {} KiB", MAX_BUNDLE_TEXT_BYTES / 1024)));
    }
    let blocks = pem::parse_blocks(text).map_err(|e| Error::invalid(format!("{field}: {}", e.text())))?;
    let blocks: Vec<PemBlock> = blocks.into_iter().map(|(label, content)| (label, Zeroizing::new(content))).collect();
    if blocks.is_empty() {
        return Err(Error::invalid(format!("{field}: no data: no PEM block")));
    }
    Ok(blocks)
}

fn is_skipped_label(label: &str) -> bool {
    label == "EC PARAMETERS"
}

/// Returns the reason for rejecting a PEM block. The block's label is caller input and is not quoted.
fn unsupported_block_reason(label: &str) -> &'static str {
    match label {
        "ENCRYPTED PRIVATE KEY" => "encrypted private keys are not supported: decrypt the key first",
        "CERTIFICATE" | pem::CRL_LABEL => "not a private key",
        _ => "unsupported PEM block type",
    }
}

fn read_key(label: &str, content: &[u8]) -> Result<PrivateKey> {
    let key = PrivateKey::from_block(label, content)?;
    check_ca_key("private key", key.kind())?;
    weak_key::reject("private key", key.public())?;
    Ok(key)
}

/// Checks that an imported certificate can become an issuer. It must be a CA certificate with non-empty subject and
/// issuer names and an acceptable key. A subject key identifier must not be empty. The signature algorithm must be
/// acceptable, unless the certificate is self-issued.
///
/// # Errors
/// `Invalid` naming the rule.
fn check_certificate(certificate: Certificate) -> Result<Certificate> {
    if !certificate.is_ca() {
        return Err(Error::invalid("refusing to import non-CA certificate: basicConstraints must have cA TRUE"));
    }
    check_subject("certificate", certificate.subject())?;
    // The subject becomes the issuer name of every certificate that this CA signs.
    profile::validate_directory_name(certificate.subject().as_der())
        .map_err(|e| e.into_error("certificate: subject"))?;
    if certificate.issuer().has_no_text() {
        return Err(Error::invalid("certificate: its issuer's name is empty (RFC 5280 4.1.2.4)"));
    }
    if certificate.subject_key_id().is_some_and(<[u8]>::is_empty) {
        return Err(Error::invalid("certificate: subjectKeyIdentifier: must not be empty (RFC 5280 4.2.1.2)"));
    }
    check_ca_key("certificate", certificate.key().kind())?;
    weak_key::reject("certificate", certificate.key())?;
    // Verifiers ignore the signature of a root; `ca_profile` warns if its algorithm is weak.
    if !certificate.names_itself_as_issuer() {
        certificate.check_algorithm()?;
    }
    Ok(certificate)
}

#[cfg(test)]
mod tests;
