//! Assembly of certificates: encoded pieces are joined to the to-be-signed bytes, callers have them signed, and the
//! signature is appended. Nothing is parsed or encoded twice.

use super::algorithm::SignatureAlgorithm;
use super::pieces::{Extensions, Name};
use super::serial::Serial;
use super::time;
use super::writer::{DerWriter, SEQUENCE, build, context_constructed, tlv_len};
use crate::clock::Time;

/// A certificate to be signed (RFC 5280 4.1.2), version 3.
pub struct CertificateTbs<'a> {
    /// The certificate's serial number.
    pub serial: &'a Serial,
    /// The signature algorithm.
    pub algorithm: SignatureAlgorithm,
    /// The issuer certificate's subject, with its original bytes.
    pub issuer: &'a Name,
    /// Start of validity.
    pub not_before: Time,
    /// End of validity, inclusive.
    pub not_after: Time,
    /// The subject.
    pub subject: &'a Name,
    /// The encoded SubjectPublicKeyInfo.
    pub spki: &'a [u8],
    /// The extensions, in order. Empty ones are skipped.
    pub extensions: &'a [&'a Extensions],
}

/// `[0] { INTEGER 2 }`: version 3.
const VERSION_3: [u8; 5] = [0xa0, 3, 2, 1, 2];

impl CertificateTbs<'_> {
    /// Returns the bytes to sign.
    pub fn encode(&self) -> Vec<u8> {
        let issuer = self.issuer.as_der();
        let subject = self.subject.as_der();
        let fixed = issuer.len() + subject.len() + self.spki.len();
        let extensions: usize = self.extensions.iter().map(|e| e.as_der().len()).sum();
        build(SEQUENCE, fixed + extensions + 160, |w| {
            w.raw(&VERSION_3);
            w.unsigned(self.serial.octets());
            w.raw(self.algorithm.der());
            w.raw(issuer);
            w.nest(SEQUENCE, |w| {
                time::write(w, self.not_before);
                time::write(w, self.not_after);
            });
            w.raw(subject);
            w.raw(self.spki);
            write_extensions(w, 3, self.extensions);
        })
    }
}

/// Writes `[tag] EXPLICIT Extensions`, or nothing if there are no extensions.
pub(crate) fn write_extensions(w: &mut DerWriter, tag: u8, extensions: &[&Extensions]) {
    let len: usize = extensions.iter().map(|e| e.as_der().len()).sum();
    if len == 0 {
        return;
    }
    w.header(context_constructed(tag), tlv_len(len));
    w.header(SEQUENCE, len);
    extensions.iter().for_each(|extension| w.raw(extension.as_der()));
}

/// Encodes `SEQUENCE { tbs, algorithm, BIT STRING signature }`, the structure of certificates, CRLs and requests.
pub fn encode_signed(tbs: &[u8], algorithm: SignatureAlgorithm, signature: &[u8]) -> Vec<u8> {
    let algorithm = algorithm.der();
    let len = tbs.len() + algorithm.len() + tlv_len(signature.len() + 1);
    let mut w = DerWriter::with_capacity(tlv_len(len));
    w.header(SEQUENCE, len);
    w.raw(tbs);
    w.raw(algorithm);
    w.bit_string(signature);
    w.finish()
}
