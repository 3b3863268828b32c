//! OCSPRequest (RFC 6960 4.1.1), with strict parsing.
//!
//! Rejected: versions above 1, no or too many certificates, unknown hashes, nonces of invalid length, unknown
//! critical extensions, duplicates and trailing data. The requestor's name and signature are parsed but ignored,
//! because the responder answers every client.

use super::{CertId, MAX_CERTIFICATES_PER_REQUEST, MAX_REQUEST_BYTES, NONCE_LENGTHS};
use crate::error::Result;
use crate::x509::oid;
use crate::x509::raw_extension::ExtensionRef;
use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::writer::{INTEGER, OCTET_STRING, SEQUENCE, context_constructed};

/// A parsed OCSP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspRequest<'a> {
    /// The requested certificates, in order; at least one.
    pub certificates: Vec<CertId<'a>>,
    /// The nonce (RFC 9654 2.1).
    pub nonce: Option<&'a [u8]>,
}

impl<'a> OcspRequest<'a> {
    /// Reads one OCSP request in DER.
    ///
    /// # Errors
    /// `Invalid`, naming the rule.
    pub fn parse(der: &'a [u8]) -> Result<Self> {
        Self::read(der).map_err(|e| e.into_error("ocsp request"))
    }

    fn read(der: &'a [u8]) -> DerResult<Self> {
        if der.len() >= MAX_REQUEST_BYTES {
            return Err(DerError("must be shorter than 2048 octets"));
        }
        let mut outer = DerReader::read_single(der, SEQUENCE)?.reader();
        let mut fields = outer.sequence()?;
        outer.optional_explicit(0, SEQUENCE)?;
        outer.done()?;
        // Version 1 is the default (RFC 6960 4.1.1); some clients encode it explicitly.
        if fields.optional_explicit(0, INTEGER)?.is_some_and(|version| version.content != [0]) {
            return Err(DerError("the version must be 1 (RFC 6960 4.1.1)"));
        }
        if let Some(name) = fields.optional(context_constructed(1))? {
            DerReader::read_to_end(name.content, DerReader::any)?;
        }
        let certificates = read_certificates(fields.sequence()?)?;
        let extensions = read_extensions(&mut fields, 2, &[oid::OCSP_NONCE])?;
        let nonce = extensions.first().map(|nonce| read_nonce(nonce.value)).transpose()?;
        fields.done()?;
        Ok(Self { certificates, nonce })
    }
}

fn read_certificates(mut list: DerReader<'_>) -> DerResult<Vec<CertId<'_>>> {
    let mut certificates = Vec::with_capacity(1);
    while !list.is_empty() {
        if certificates.len() == MAX_CERTIFICATES_PER_REQUEST {
            return Err(DerError("must not ask for more than 32 certificates"));
        }
        let mut one = list.sequence()?;
        certificates.push(CertId::next(&mut one)?);
        read_extensions(&mut one, 0, &[])?;
        one.done()?;
    }
    if certificates.is_empty() {
        Err(DerError("must ask for a certificate (RFC 6960 4.1.1)"))
    } else {
        Ok(certificates)
    }
}

fn read_nonce(value: &[u8]) -> DerResult<&[u8]> {
    let octets = DerReader::read_single(value, OCTET_STRING)?.content;
    if !NONCE_LENGTHS.contains(&octets.len()) {
        return Err(DerError("the nonce must have 1 to 128 octets (RFC 9654 2.1)"));
    }
    Ok(octets)
}

/// Reads `[n] EXPLICIT Extensions` and returns the `known` ones. Others are ignored, or rejected if critical (RFC 6960
/// 4.4).
fn read_extensions<'a>(fields: &mut DerReader<'a>, n: u8, known: &[&[u8]]) -> DerResult<Vec<ExtensionRef<'a>>> {
    let Some(list) = fields.optional_explicit(n, SEQUENCE)? else { return Ok(Vec::new()) };
    if list.content.is_empty() {
        return Err(DerError("the list of extensions is empty (RFC 5280 4.1)"));
    }
    let mut extensions = ExtensionRef::list(list.reader(), usize::MAX)?;
    let is_known = |extension: &ExtensionRef<'_>| known.contains(&extension.oid);
    if extensions.iter().any(|extension| extension.critical == Some(true) && !is_known(extension)) {
        return Err(DerError("a critical extension is not supported (RFC 6960 4.4)"));
    }
    extensions.retain(is_known);
    Ok(extensions)
}
