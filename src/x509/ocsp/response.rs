//! Encoding of OCSPResponse and BasicOCSPResponse (RFC 6960 4.2.1).
//!
//! The responder is identified by its subject, because some verifiers, such as GnuTLS, find the signer by subject
//! only. The response contains no certificates, because the issuer itself signs.

use crate::x509::extension::extension;
use crate::x509::oid;
use crate::x509::pieces::Name;
use crate::x509::tbs::write_extensions;
use crate::x509::time;
use crate::x509::writer::{
    DerWriter, ENUMERATED, OCTET_STRING, SEQUENCE, build, context, context_constructed, tlv_len,
};

/// The status of a certificate (CertStatus, RFC 6960 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OcspCertStatus {
    /// The certificate was issued and is not revoked.
    Good,
    /// The certificate is revoked.
    Revoked {
        /// Time of the revocation, epoch seconds.
        at: i64,
        /// Reason code (RFC 5280 5.3.1); `None` for unspecified.
        reason: Option<u8>,
    },
    /// The certificate is unknown to this server.
    Unknown,
}

/// The status of one requested certificate.
pub struct SingleResponse<'a> {
    /// The CertID of the request, with its original bytes.
    pub cert_id: &'a [u8],
    /// The status.
    pub status: OcspCertStatus,
}

/// A response to be signed (ResponseData, RFC 6960 4.2.1).
pub struct ResponseData<'a> {
    /// The subject of the issuer that signs.
    pub responder: &'a Name,
    /// producedAt, and thisUpdate of every certificate: epoch seconds.
    pub produced_at: i64,
    /// nextUpdate, epoch seconds; `None` if newer information is always available.
    pub next_update: Option<i64>,
    /// The statuses of the requested certificates, in the order of the request.
    pub responses: &'a [SingleResponse<'a>],
    /// The nonce of the request (RFC 9654 2.1), which the response repeats.
    pub nonce: Option<&'a [u8]>,
}

impl ResponseData<'_> {
    /// Returns the bytes to sign.
    pub fn encode(&self) -> Vec<u8> {
        let ids: usize = self.responses.iter().map(|r| r.cert_id.len() + 96).sum();
        build(SEQUENCE, ids + self.responder.as_der().len() + 256, |w| {
            w.nest(context_constructed(1), |w| w.raw(self.responder.as_der()));
            write_time(w, self.produced_at);
            w.nest(SEQUENCE, |w| self.responses.iter().for_each(|single| self.write_single(w, single)));
            let nonce = self.nonce.map(|octets| {
                let value = build(OCTET_STRING, octets.len() + 4, |w| w.raw(octets));
                extension(oid::OCSP_NONCE, false, &value)
            });
            write_extensions(w, 1, &[&nonce.unwrap_or_default()]);
        })
    }

    fn write_single(&self, w: &mut DerWriter, single: &SingleResponse<'_>) {
        w.nest(SEQUENCE, |w| {
            w.raw(single.cert_id);
            match single.status {
                OcspCertStatus::Good => w.tlv(context(0), &[]),
                OcspCertStatus::Unknown => w.tlv(context(2), &[]),
                OcspCertStatus::Revoked { at, reason } => w.nest(context_constructed(1), |w| {
                    write_time(w, at);
                    // RFC 5280 5.3.1: the reason unspecified is omitted.
                    if let Some(code) = reason.filter(|&code| code != 0) {
                        w.explicit(0, ENUMERATED, |w| w.raw(&[code]));
                    }
                }),
            }
            write_time(w, self.produced_at);
            if let Some(next) = self.next_update {
                w.nest(context_constructed(0), |w| write_time(w, next));
            }
        });
    }
}

fn write_time(w: &mut DerWriter, at: i64) {
    time::write_generalized(w, time::from_epoch(at));
}

/// Wraps a BasicOCSPResponse, which is a [signed](crate::x509::tbs::encode_signed) [`ResponseData`], in an
/// OCSPResponse.
pub fn encode_successful(basic: &[u8]) -> Vec<u8> {
    build(SEQUENCE, tlv_len(basic.len()) + 32, |w| {
        w.tlv(ENUMERATED, &[0]);
        w.explicit(0, SEQUENCE, |w| {
            w.oid(oid::OCSP_BASIC);
            w.tlv(OCTET_STRING, basic);
        });
    })
}

/// Encodes an OCSPResponse that has only a status (RFC 6960 4.2.1). The status must not be 0 (successful).
pub fn encode_failure(status: u8) -> [u8; 5] {
    [SEQUENCE, 3, ENUMERATED, 1, status]
}
