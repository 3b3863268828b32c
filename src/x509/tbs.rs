//! Putting a certificate together: pieces → to-be-signed bytes → (a signature from wherever the key
//! lives) → the certificate. Nothing is parsed or encoded twice on the way.

use super::algorithm::SignatureAlgorithm;
use super::pieces::{Extensions, Name};
use super::serial::Serial;
use super::time;
use super::writer::{BIT_STRING, SEQUENCE, Writer, build, context_constructed, tlv_len};
use crate::clock::Time;

/// A certificate to be signed (RFC 5280 4.1.2), version 3.
pub struct CertificateTbs<'a> {
    /// The certificate's serial number.
    pub serial: &'a Serial,
    /// What it will be signed with.
    pub algorithm: SignatureAlgorithm,
    /// The issuer certificate's subject, byte for byte.
    pub issuer: &'a Name,
    /// Start of validity.
    pub not_before: Time,
    /// End of validity, inclusive.
    pub not_after: Time,
    /// The subject.
    pub subject: &'a Name,
    /// The whole SubjectPublicKeyInfo.
    pub spki: &'a [u8],
    /// In their order; empty ones are skipped.
    pub extensions: &'a [&'a Extensions],
}

/// `[0] { INTEGER 2 }`: version 3.
const VERSION_3: [u8; 5] = [0xa0, 3, 2, 1, 2];

impl CertificateTbs<'_> {
    /// The bytes to sign.
    pub fn encode(&self) -> Vec<u8> {
        let (issuer, subject) = (self.issuer.as_der(), self.subject.as_der());
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

/// `[tag] EXPLICIT Extensions`, absent without extensions.
pub(crate) fn write_extensions(w: &mut Writer, tag: u8, extensions: &[&Extensions]) {
    let len: usize = extensions.iter().map(|e| e.as_der().len()).sum();
    if len == 0 {
        return;
    }
    w.header(context_constructed(tag), tlv_len(len));
    w.header(SEQUENCE, len);
    extensions.iter().for_each(|extension| w.raw(extension.as_der()));
}

/// `SEQUENCE { tbs, algorithm, BIT STRING signature }`: the outer shape of certificates, CRLs and
/// requests alike.
pub fn signed(tbs: &[u8], algorithm: SignatureAlgorithm, signature: &[u8]) -> Vec<u8> {
    let algorithm = algorithm.der();
    let len = tbs.len() + algorithm.len() + tlv_len(signature.len() + 1);
    let mut w = Writer::with_capacity(tlv_len(len));
    w.header(SEQUENCE, len);
    w.raw(tbs);
    w.raw(algorithm);
    w.header(BIT_STRING, signature.len() + 1);
    w.raw(&[0]);
    w.raw(signature);
    w.finish()
}
