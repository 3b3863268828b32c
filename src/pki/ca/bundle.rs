//! Texts that are imported: PEM blocks of CA certificates and private keys, read strictly and within
//! limits before anything of them is looked up or stored. There are at most [`pem::MAX_BLOCKS`], because each
//! key is checked number by number, each certificate against every issuer.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::keys::local::PrivateKey;
use crate::pki::check::ca_request::check_key;
use crate::pki::check::ca_request::check_subject;
use crate::x509::certificate::Certificate;
use crate::x509::{pem, profile, weak_key};

/// Longest text, in octets: a long chain with large keys is a tenth of it.
const MAX_TEXT: usize = 512 * 1024;
/// Shortest text that can hold a certificate; anything shorter is usually a file name.
const SHORTEST: usize = 75;
/// Shortest text that can hold a private key.
const SHORTEST_KEY: usize = 64;

/// Whether an endpoint takes private keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PrivateKeys {
    /// Certificates and keys.
    Allowed,
    /// Certificates only.
    Refused,
}

/// CA certificates and keys, in the order of the text, each once.
#[derive(Default)]
pub(crate) struct Bundle {
    pub(crate) certificates: Vec<Certificate>,
    pub(crate) keys: Vec<Arc<PrivateKey>>,
    /// CRLs, which are not read yet.
    pub(crate) lists: Vec<BundledCrl>,
}

/// A CRL of a text.
pub(crate) struct BundledCrl {
    /// Which block of the text it is, from 0.
    pub(crate) block: usize,
    /// Its DER.
    pub(crate) der: Vec<u8>,
}

impl Bundle {
    /// Reads `text`, the value of `field`. EC parameters, which tools write next to keys, are skipped.
    ///
    /// # Errors
    /// `Invalid` naming the field, the block and the rule, and never quoting the text: too short or too
    /// long, no block, broken or encrypted blocks, other blocks, a private key
    /// that is not allowed or not valid, a certificate that [`check_certificate`] refuses.
    pub(crate) fn parse(field: &str, text: &str, private_keys: PrivateKeys) -> Result<Self> {
        let mut bundle = Self::default();
        for (index, (label, content)) in blocks(field, text, SHORTEST)?.into_iter().enumerate() {
            let at = |e: Error| Error::invalid(format!("{field}: block {index}: {}", e.text()));
            if pem::is_private_key(&label) {
                if private_keys == PrivateKeys::Refused {
                    return Err(Error::invalid(format!("{field}: private keys are not taken here")));
                }
                bundle.add_key(read_key(&label, &content).map_err(at)?);
            } else if label == "CERTIFICATE" {
                let certificate = Certificate::submitted(&content).and_then(check_certificate).map_err(at)?;
                bundle.add_certificate(certificate);
            } else if label == pem::CRL {
                bundle.lists.push(BundledCrl { block: index, der: content.to_vec() });
            } else if !is_skipped(&label) {
                return Err(Error::invalid(format!("{field}: block {index}: {}", other_block(&label))));
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

/// Reads a text with exactly one private key.
///
/// # Errors
/// As [`Bundle::parse`]; `Invalid` also for anything beside the key but EC parameters.
pub(crate) fn parse_key(field: &str, text: &str) -> Result<PrivateKey> {
    let mut blocks = blocks(field, text, SHORTEST_KEY)?;
    blocks.retain(|(label, _)| label != "EC PARAMETERS");
    match blocks.as_slice() {
        [(label, content)] if pem::is_private_key(label) => {
            read_key(label, content).map_err(|e| Error::invalid(format!("{field}: {}", e.text())))
        }
        [(label, _)] => Err(Error::invalid(format!("{field}: {}", other_block(label)))),
        _ => Err(Error::invalid(format!("{field}: must be exactly one private key and nothing else"))),
    }
}

type Block = (String, Zeroizing<Vec<u8>>);

fn blocks(field: &str, text: &str, shortest: usize) -> Result<Vec<Block>> {
    if text.len() < shortest {
        return Err(Error::invalid(format!("{field}: provided data is too short; was a path passed?")));
    }
    if text.len() > MAX_TEXT {
        return Err(Error::invalid(format!("{field}: longer than {} KiB", MAX_TEXT / 1024)));
    }
    let blocks = pem::blocks(text).map_err(|e| Error::invalid(format!("{field}: {}", e.text())))?;
    let blocks: Vec<Block> = blocks.into_iter().map(|(label, content)| (label, Zeroizing::new(content))).collect();
    if blocks.is_empty() {
        return Err(Error::invalid(format!("{field}: no data: no PEM block")));
    }
    Ok(blocks)
}

fn is_skipped(label: &str) -> bool {
    label == "EC PARAMETERS"
}

/// Why a block is refused. The label is the caller's text: it is not quoted.
fn other_block(label: &str) -> &'static str {
    match label {
        "ENCRYPTED PRIVATE KEY" => "encrypted private keys are not supported: decrypt the key first",
        "CERTIFICATE" | pem::CRL => "not a private key",
        _ => "a PEM block of a type that is not taken here",
    }
}

fn read_key(label: &str, content: &[u8]) -> Result<PrivateKey> {
    let key = PrivateKey::from_block(label, content)?;
    check_key("private key", key.kind())?;
    weak_key::refuse("private key", key.public())?;
    Ok(key)
}

/// A certificate may be an issuer when it is a CA's, with a subject, a key that CAs may have, a key identifier
/// that says something where it has one, and, unless it is its own issuer, a signature algorithm that this server
/// accepts.
///
/// # Errors
/// `Invalid` naming the rule.
fn check_certificate(certificate: Certificate) -> Result<Certificate> {
    if !certificate.is_ca() {
        return Err(Error::invalid("refusing to import non-CA certificate: basicConstraints must have cA TRUE"));
    }
    check_subject("certificate", certificate.subject())?;
    // It becomes the issuer's name of everything that is signed by it.
    profile::name(certificate.subject().as_der()).map_err(|e| e.of("certificate: subject"))?;
    if certificate.issuer().is_nameless() {
        return Err(Error::invalid("certificate: its issuer's name is empty (RFC 5280 4.1.2.4)"));
    }
    if certificate.subject_key_id().is_some_and(<[u8]>::is_empty) {
        return Err(Error::invalid("certificate: subjectKeyIdentifier: must not be empty (RFC 5280 4.2.1.2)"));
    }
    check_key("certificate", certificate.key().kind())?;
    weak_key::refuse("certificate", certificate.key())?;
    // Nobody relies on the signature of a root: `readable` tells of it.
    if !certificate.is_own_issuer() {
        certificate.check_algorithm()?;
    }
    Ok(certificate)
}

#[cfg(test)]
mod tests;
