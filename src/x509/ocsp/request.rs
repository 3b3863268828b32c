//! OCSPRequest (RFC 6960 4.1.1), with strict parsing.
//!
//! Rejected: versions above 1, no or too many certificates, unknown hashes, nonces of invalid length, unknown
//! critical extensions, duplicates and trailing data. The requestor's name and signature are parsed but ignored,
//! because the responder serves everyone.

use super::{CertId, MAX_CERTIFICATES, MAX_REQUEST_BYTES, NONCE_LENGTHS};
use crate::error::Result;
use crate::x509::oid;
use crate::x509::raw_extension::ExtensionRef;
use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::writer::{INTEGER, OCTET_STRING, SEQUENCE, context_constructed};

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspRequest<'a> {
    /// The requested certificates, in order; at least one.
    pub certificates: Vec<CertId<'a>>,
    /// The nonce (RFC 9654 2.1).
    pub nonce: Option<&'a [u8]>,
}

impl<'a> OcspRequest<'a> {
    /// Reads one request in DER.
    ///
    /// # Errors
    /// `Invalid`, naming the rule.
    pub fn parse(der: &'a [u8]) -> Result<Self> {
        Self::read(der).map_err(|e| e.of("ocsp request"))
    }

    fn read(der: &'a [u8]) -> DerResult<Self> {
        if der.len() >= MAX_REQUEST_BYTES {
            return Err(DerError("must be shorter than 2048 octets"));
        }
        let mut outer = DerReader::only(der, SEQUENCE)?.reader();
        let mut fields = outer.sequence()?;
        if let Some(signature) = outer.optional(context_constructed(0))? {
            DerReader::only(signature.content, SEQUENCE)?;
        }
        outer.done()?;
        // Version 1 is the default (RFC 6960 4.1.1); some clients encode it explicitly.
        if let Some(version) = fields.optional(context_constructed(0))?
            && DerReader::only(version.content, INTEGER)?.content != [0]
        {
            return Err(DerError("the version must be 1 (RFC 6960 4.1.1)"));
        }
        if let Some(name) = fields.optional(context_constructed(1))? {
            let mut name = name.reader();
            name.any()?;
            name.done()?;
        }
        let certificates = read_certificates(fields.sequence()?)?;
        let nonce = match fields.optional(context_constructed(2))? {
            Some(explicit) => read_nonce(explicit.content)?,
            None => None,
        };
        fields.done()?;
        Ok(Self { certificates, nonce })
    }
}

fn read_certificates(mut list: DerReader<'_>) -> DerResult<Vec<CertId<'_>>> {
    let mut certificates = Vec::with_capacity(1);
    while !list.is_empty() {
        if certificates.len() == MAX_CERTIFICATES {
            return Err(DerError("must not ask for more than 32 certificates"));
        }
        let mut one = list.sequence()?;
        certificates.push(CertId::next(&mut one)?);
        if let Some(explicit) = one.optional(context_constructed(0))? {
            read_extensions(explicit.content, |_| Ok(false))?;
        }
        one.done()?;
    }
    if certificates.is_empty() {
        Err(DerError("must ask for a certificate (RFC 6960 4.1.1)"))
    } else {
        Ok(certificates)
    }
}

fn read_nonce(extensions: &[u8]) -> DerResult<Option<&[u8]>> {
    let mut nonce = None;
    read_extensions(extensions, |extension| {
        if extension.oid != oid::OCSP_NONCE {
            return Ok(false);
        }
        let octets = DerReader::only(extension.value, OCTET_STRING)?.content;
        if !NONCE_LENGTHS.contains(&octets.len()) {
            return Err(DerError("the nonce must have 1 to 128 octets (RFC 9654 2.1)"));
        }
        nonce = Some(octets);
        Ok(true)
    })?;
    Ok(nonce)
}

/// Reads an `Extensions` SEQUENCE without duplicates (RFC 5280 4.2). Extensions for which `take` returns `false` are
/// ignored, or rejected if critical (RFC 6960 4.4).
fn read_extensions<'a>(
    extensions: &'a [u8],
    mut take: impl FnMut(&ExtensionRef<'a>) -> DerResult<bool>,
) -> DerResult<()> {
    let mut list = DerReader::only(extensions, SEQUENCE)?.reader();
    if list.is_empty() {
        return Err(DerError("the list of extensions is empty (RFC 5280 4.1)"));
    }
    let mut seen: Vec<&[u8]> = Vec::new();
    while !list.is_empty() {
        let extension = ExtensionRef::next(&mut list)?;
        if seen.contains(&extension.oid) {
            return Err(DerError("an extension appears twice (RFC 5280 4.2)"));
        }
        seen.push(extension.oid);
        if !take(&extension)? && extension.critical == Some(true) {
            return Err(DerError("a critical extension is not understood (RFC 6960 4.4)"));
        }
    }
    Ok(())
}
