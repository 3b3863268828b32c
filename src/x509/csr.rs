//! Certification requests (PKCS #10, RFC 2986). Strings are validated; subject, key and extension values keep their
//! bytes.
//!
//! The signature is verified separately, after all cheaper checks. The caller decides which parts of a request are
//! copied into a certificate.

pub use super::general_name::{OtherNameValue, ParsedSans};
use super::name::{self, Attribute};
use super::pieces::{Extensions, Name};
use super::public_key::PublicKey;
use super::raw_extension::{self, find_extension};
pub use super::raw_extension::{BasicConstraints, RawExtension};
use super::reader::{DerError, DerReader, DerResult};
use super::signed::SignedDer;
use super::usage::KeyUsage;
use super::writer::{SEQUENCE, SET, build, context_constructed};
use super::{extension, general_name, oid, pem};
use crate::error::{Error, Result};

const MAX_CSR_ATTRIBUTES: usize = 100;

/// A parsed certification request. Parsing does not verify its signature; see [`Csr::verify`].
#[derive(Clone, Debug)]
pub struct Csr {
    /// The subject, with its original bytes.
    pub subject: Name,
    /// The public key, with its original bytes.
    pub key: PublicKey,
    /// The extensions of the extensionRequest attribute, in order. They are encoded again as DER, which has no explicit
    /// `critical FALSE`.
    pub extensions: Vec<RawExtension>,
    /// OIDs (DER content bytes) of the other attributes, in order, without duplicates. Their values are ignored.
    pub other_attributes: Vec<Vec<u8>>,
    signed: SignedDer,
    sans: ParsedSans,
    basic_constraints: Option<BasicConstraints>,
    key_usage: Option<KeyUsage>,
}

impl Csr {
    /// Reads the first PEM block of `text`, labelled `CERTIFICATE REQUEST` or `NEW CERTIFICATE REQUEST`.
    ///
    /// # Errors
    /// `Invalid`, naming the rule, for a text without a PEM block, malformed DER, an unsupported public key, duplicate
    /// extensions or invalid characters in names. Also `Invalid` when the text is longer than 64 KiB, or the request
    /// exceeds the limits on attributes, extensions and names. Key sizes are not checked.
    pub fn from_pem(text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            return Err(Error::invalid("csr: must not be empty"));
        }
        if text.len() > pem::MAX_TEXT_BYTES {
            return Err(Error::invalid("csr: longer than 64 KiB"));
        }
        let no_data = |problem: &str| Error::invalid(format!("csr: contains no data: {problem}"));
        match pem::parse_first_block(text).map_err(|e| no_data(e.text()))? {
            Some((label, der)) if matches!(&label[..], "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST") => {
                Self::from_der(&der)
            }
            Some((label, _)) => Err(no_data(&format!("the PEM block is {label:?}, not \"CERTIFICATE REQUEST\""))),
            None => Err(no_data("not a PEM block \"CERTIFICATE REQUEST\"")),
        }
    }

    /// Reads one certification request in DER.
    ///
    /// # Errors
    /// As [`Csr::from_pem`].
    pub fn from_der(der: &[u8]) -> Result<Self> {
        let signed = SignedDer::read(der.to_vec()).map_err(csr_error)?;
        let fields = CsrFields::read(signed.fields()).map_err(csr_error)?;
        let key = PublicKey::parse(fields.spki).map_err(|e| Error::invalid(format!("csr: {}", e.text())))?;
        let (extensions, other_attributes) = fields.attributes().map_err(csr_error)?;
        name::check_strings(fields.subject).map_err(csr_error)?;
        let sans = match find_extension(&extensions, oid::SUBJECT_ALT_NAME) {
            Some(extension) => {
                general_name::check_alt_names_size(&extension.value).map_err(csr_error)?;
                ParsedSans::read(&extension.value).map_err(csr_error)?
            }
            None => ParsedSans::default(),
        };
        Ok(Self {
            subject: Name::from_der(fields.subject).map_err(csr_error)?,
            key,
            basic_constraints: raw_extension::basic_constraints(&extensions).map_err(csr_error)?,
            key_usage: raw_extension::key_usage(&extensions).map_err(csr_error)?,
            extensions,
            other_attributes,
            sans,
            signed,
        })
    }

    /// Verifies the self-signature. This is the most expensive check, so callers run it last.
    ///
    /// # Errors
    /// `Invalid` when the signature is wrong or its algorithm is not accepted.
    pub fn verify(&self) -> Result<()> {
        let verified = self.signed.verify(&self.key);
        verified.map_err(|e| Error::invalid(format!("csr: request signature invalid: {}", e.text())))
    }

    /// The request in DER.
    pub fn der(&self) -> &[u8] {
        self.signed.der()
    }

    /// Returns the subject alternative names; empty if the extension is absent.
    ///
    /// # Errors
    /// Never: names are validated when the request is read.
    pub fn sans(&self) -> Result<ParsedSans> {
        Ok(self.sans.clone())
    }

    /// The requested basicConstraints extension; `None` if it is absent.
    pub fn basic_constraints(&self) -> Option<BasicConstraints> {
        self.basic_constraints
    }

    /// `true` if the request asks for a CA certificate (basicConstraints with cA TRUE).
    pub fn is_ca_request(&self) -> bool {
        self.basic_constraints.is_some_and(|constraints| constraints.ca)
    }

    /// The requested keyUsage extension; `None` if it is absent.
    pub fn key_usage(&self) -> Option<KeyUsage> {
        self.key_usage
    }

    /// The requested extension with this OID (DER content bytes).
    pub fn extension(&self, oid: &[u8]) -> Option<&RawExtension> {
        find_extension(&self.extensions, oid)
    }

    /// The subject's common name, the last one if there are several, or an empty string.
    pub fn common_name(&self) -> String {
        self.subject.common_name()
    }

    /// Returns all values of a subject attribute, in order.
    ///
    /// # Errors
    /// `Invalid` when a value is not a character string.
    pub fn subject_values(&self, attribute: Attribute) -> Result<Vec<String>> {
        self.subject.values(attribute)
    }
}

fn csr_error(e: DerError) -> Error {
    e.into_error("csr")
}

/// The fields of a CertificationRequestInfo.
struct CsrFields<'a> {
    subject: &'a [u8],
    spki: &'a [u8],
    attributes: DerReader<'a>,
}

impl<'a> CsrFields<'a> {
    fn read(mut fields: DerReader<'a>) -> DerResult<Self> {
        if fields.unsigned()? != [0] {
            return Err(DerError("the version of a request must be 0 (RFC 2986 4.1)"));
        }
        let subject = fields.expect(SEQUENCE)?.raw;
        let spki = fields.expect(SEQUENCE)?.raw;
        // RFC 2986 requires the field `attributes` even if it is empty; some clients omit it.
        let attributes = fields.optional(context_constructed(0))?.map_or(DerReader::new(&[]), |set| set.reader());
        fields.done()?;
        Ok(Self { subject, spki, attributes })
    }

    /// Returns the extensions of the extensionRequest attribute (RFC 2985 5.4.2), and the OIDs of the other attributes,
    /// such as a challenge password. The values of those attributes are ignored.
    fn attributes(&self) -> DerResult<(Vec<RawExtension>, Vec<Vec<u8>>)> {
        let mut attributes = self.attributes;
        let mut others: Vec<Vec<u8>> = Vec::new();
        let mut found = None;
        let mut count = 0;
        while !attributes.is_empty() {
            count += 1;
            if count > MAX_CSR_ATTRIBUTES {
                return Err(DerError("more than 100 attributes in a request"));
            }
            let mut attribute = attributes.sequence()?;
            let identifier = attribute.oid()?;
            let mut values = attribute.expect(SET)?.reader();
            attribute.done()?;
            if identifier != oid::EXTENSION_REQUEST {
                if others.iter().all(|known| known != identifier) {
                    others.push(identifier.to_vec());
                }
                continue;
            }
            let extensions = values.sequence()?;
            if !values.is_empty() {
                return Err(DerError("the extensionRequest attribute has more than one value (RFC 2985 5.4.2)"));
            }
            if found.replace(extensions).is_some() {
                return Err(DerError("the extensionRequest attribute appears twice"));
            }
        }
        let mut all = RawExtension::read_bounded(found.unwrap_or(DerReader::new(&[])))?;
        // The extensions may be copied into a certificate, which must be DER.
        all.iter_mut().for_each(|e| e.raw = extension::extension(&e.oid, e.critical, &e.value));
        Ok((all, others))
    }
}

/// Encodes a CertificationRequestInfo to be signed (RFC 2986 4.1). `spki` is an encoded SubjectPublicKeyInfo.
/// [`super::tbs::encode_signed`] adds the signature.
pub fn encode_request_info(subject: &Name, spki: &[u8], extensions: &Extensions) -> Vec<u8> {
    let subject = subject.as_der();
    let requested = extensions.as_der();
    build(SEQUENCE, subject.len() + spki.len() + requested.len() + 52, |w| {
        w.integer(0);
        w.raw(subject);
        w.raw(spki);
        w.nest(context_constructed(0), |w| {
            if extensions.is_empty() {
                return;
            }
            w.nest(SEQUENCE, |w| {
                w.oid(oid::EXTENSION_REQUEST);
                w.nest(SET, |w| w.tlv(SEQUENCE, requested));
            });
        });
    })
}

#[cfg(test)]
mod tests;
