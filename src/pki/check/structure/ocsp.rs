//! Checks of the ResponseData of OCSP responses, parsed from the exact bytes to be signed.

use std::sync::Arc;

use super::{ParsedExtensions, ensure};
use crate::error::Result;
use crate::x509::ocsp::{CertId, IssuerHashes, MAX_CERTIFICATES_PER_REQUEST, NONCE_LENGTHS};
use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::writer::{ENUMERATED, GENERALIZED_TIME, OCTET_STRING, SEQUENCE, context, context_constructed};
use crate::x509::{oid, time};

/// Checks ResponseData (RFC 6960 4.2.1). `signer` contains the hashes of the issuer that signs the response, with one
/// entry per encoding of the issuer's name.
///
/// # Errors
/// `Invalid`, naming the rule and its source.
pub(crate) fn lint_ocsp_response(data: &[u8], signer: &[Arc<IssuerHashes>]) -> Result<()> {
    let check = || {
        let answer = ParsedResponseData::read(data, signer)?;
        OCSP_RESPONSE_CHECKS.iter().try_for_each(|check| check(&answer))
    };
    check().map_err(|e: DerError| e.into_error("ocsp response"))
}

struct ParsedResponseData<'a> {
    signer: &'a [Arc<IssuerHashes>],
    /// ResponderID: the tag and the content of the chosen alternative.
    responder: (u8, &'a [u8]),
    produced_at: i64,
    singles: Vec<ParsedSingleResponse<'a>>,
    extensions: ParsedExtensions<'a>,
}

/// A parsed SingleResponse.
struct ParsedSingleResponse<'a> {
    id: CertId<'a>,
    status: u8,
    /// Revocation reason, if given.
    reason: Option<&'a [u8]>,
    this_update: i64,
    next_update: Option<i64>,
}

impl<'a> ParsedResponseData<'a> {
    fn read(data: &'a [u8], signer: &'a [Arc<IssuerHashes>]) -> DerResult<Self> {
        let mut fields = DerReader::read_single(data, SEQUENCE)?.reader();
        let responder = fields.any()?;
        let produced_at = read_generalized_time(&mut fields)?;
        let mut list = fields.sequence()?;
        let mut singles = Vec::with_capacity(1);
        while !list.is_empty() {
            singles.push(ParsedSingleResponse::next(&mut list)?);
        }
        let extensions = match fields.optional(context_constructed(1))? {
            Some(explicit) => ParsedExtensions::read(DerReader::read_single(explicit.content, SEQUENCE)?.reader())?,
            None => ParsedExtensions(Vec::new()),
        };
        fields.done()?;
        Ok(Self { signer, responder: (responder.tag, responder.content), produced_at, singles, extensions })
    }
}

impl<'a> ParsedSingleResponse<'a> {
    fn next(list: &mut DerReader<'a>) -> DerResult<Self> {
        let mut fields = list.sequence()?;
        let id = CertId::next(&mut fields)?;
        let status = fields.any()?;
        let reason = match status.tag {
            REVOKED_TAG => parse_revoked_info(status.reader())?,
            _ => ensure(status.content.is_empty(), "a good or unknown status must have no content (RFC 6960 4.2.1)")
                .map(|()| None)?,
        };
        let this_update = read_generalized_time(&mut fields)?;
        let next_update = match fields.optional(context_constructed(0))? {
            Some(explicit) => {
                let mut inner = explicit.reader();
                let at = read_generalized_time(&mut inner)?;
                inner.done()?;
                Some(at)
            }
            None => None,
        };
        fields.done()?;
        Ok(Self { id, status: status.tag, reason, this_update, next_update })
    }
}

/// Parses RevokedInfo and returns the content of its revocationReason, if present.
fn parse_revoked_info(mut fields: DerReader<'_>) -> DerResult<Option<&[u8]>> {
    read_generalized_time(&mut fields)?;
    let reason = match fields.optional(context_constructed(0))? {
        Some(explicit) => Some(DerReader::read_single(explicit.content, ENUMERATED)?.content),
        None => None,
    };
    fields.done()?;
    Ok(reason)
}

/// RFC 6960 4.2.2.1 requires GeneralizedTime for every year.
fn read_generalized_time(fields: &mut DerReader<'_>) -> DerResult<i64> {
    let mut ahead = *fields;
    let form = ahead.any()?.tag == GENERALIZED_TIME;
    ensure(form, "a time of a response must be GeneralizedTime (RFC 6960 4.2.2.1)")?;
    time::read(fields)
}

const GOOD_TAG: u8 = context(0);
const REVOKED_TAG: u8 = context_constructed(1);
const UNKNOWN_TAG: u8 = context(2);

const OCSP_RESPONSE_CHECKS: &[fn(&ParsedResponseData<'_>) -> DerResult<()>] = &[
    rfc6960_4_2_1_responder_id,
    rfc6960_4_2_1_responses,
    rfc6960_4_2_1_cert_status,
    rfc6960_4_2_2_1_times,
    rfc6960_4_2_2_2_authorized_responder,
    rfc6960_4_4_extensions,
    rfc9654_2_1_nonce,
];

fn rfc6960_4_2_1_responder_id(answer: &ParsedResponseData<'_>) -> DerResult<()> {
    let (tag, content) = answer.responder;
    let own = tag == context_constructed(1) && answer.signer.iter().any(|signer| signer.matches_name(content));
    ensure(own, "the responder must name itself by the signer's subject (RFC 6960 4.2.1)")
}

fn rfc6960_4_2_1_responses(answer: &ParsedResponseData<'_>) -> DerResult<()> {
    let some = (1..=MAX_CERTIFICATES_PER_REQUEST).contains(&answer.singles.len());
    ensure(some, "a response must cover 1 to 32 certificates (RFC 6960 4.2.1)")
}

fn rfc6960_4_2_1_cert_status(answer: &ParsedResponseData<'_>) -> DerResult<()> {
    let known = answer.singles.iter().all(|s| matches!(s.status, GOOD_TAG | REVOKED_TAG | UNKNOWN_TAG));
    ensure(known, "a status must be good, revoked or unknown (RFC 6960 4.2.1)")?;
    let written = answer.singles.iter().filter_map(|s| s.reason).all(|r| matches!(r, [1..=6 | 8..=10]));
    ensure(written, "the revocation reason is not one of RFC 5280 5.3.1")
}

fn rfc6960_4_2_2_1_times(answer: &ParsedResponseData<'_>) -> DerResult<()> {
    let known = answer.singles.iter().all(|s| s.this_update <= answer.produced_at);
    ensure(known, "thisUpdate must not lie after producedAt (RFC 6960 2.4)")?;
    let later = answer.singles.iter().all(|s| s.next_update.is_none_or(|next| s.this_update < next));
    ensure(later, "nextUpdate must lie after thisUpdate (RFC 6960 4.2.2.1)")
}

/// The signer may report only on certificates that it issued. The status of every other certificate must be unknown.
fn rfc6960_4_2_2_2_authorized_responder(answer: &ParsedResponseData<'_>) -> DerResult<()> {
    let is_signer = |id: &CertId<'_>| answer.signer.iter().any(|signer| signer.for_hash(id.hash) == id.issuer_hashes());
    let own = |s: &ParsedSingleResponse<'_>| s.status == UNKNOWN_TAG || is_signer(&s.id);
    ensure(
        answer.singles.iter().all(own),
        "the signer is not the issuer of a certificate with a known status (RFC 6960 4.2.2.2)",
    )
}

fn rfc6960_4_4_extensions(answer: &ParsedResponseData<'_>) -> DerResult<()> {
    answer.extensions.check_no_encoded_defaults()?;
    answer.extensions.check_no_duplicates()?;
    let only_nonce = answer.extensions.0.iter().all(|e| e.oid == oid::OCSP_NONCE && e.critical.is_none());
    ensure(only_nonce, "the only extension of a response must be the nonce, not critical (RFC 6960 4.4)")
}

fn rfc9654_2_1_nonce(answer: &ParsedResponseData<'_>) -> DerResult<()> {
    let Some(nonce) = answer.extensions.find(oid::OCSP_NONCE) else { return Ok(()) };
    let octets = DerReader::read_single(nonce.value, OCTET_STRING)?.content;
    ensure(NONCE_LENGTHS.contains(&octets.len()), "the nonce must have 1 to 128 octets (RFC 9654 2.1)")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::x509::ocsp::{CertIdHash, OcspCertStatus, ResponseData, SingleResponse};
    use crate::x509::pieces::Name;
    use crate::x509::writer::{INTEGER, NULL, build};

    const NAME: &[u8] = &[SEQUENCE, 0];
    const KEY: &[u8] = b"a key";
    const REVOCATION: OcspCertStatus = OcspCertStatus::Revoked { at: 1_700_000_000, reason: Some(1) };

    fn cert_id(hash: CertIdHash, name: &[u8]) -> Vec<u8> {
        build(SEQUENCE, 128, |w| {
            w.nest(SEQUENCE, |w| {
                w.oid(hash.oid());
                w.tlv(NULL, &[]);
            });
            w.tlv(OCTET_STRING, hash.digest(name).as_ref());
            w.tlv(OCTET_STRING, hash.digest(KEY).as_ref());
            w.tlv(INTEGER, &[7]);
        })
    }

    struct OcspResponseCase {
        cert_id: Vec<u8>,
        status: OcspCertStatus,
        count: usize,
        responder: &'static [u8],
        next_update: Option<i64>,
        nonce: Option<Vec<u8>>,
    }

    impl Default for OcspResponseCase {
        fn default() -> Self {
            Self {
                cert_id: cert_id(CertIdHash::Sha1, NAME),
                status: OcspCertStatus::Good,
                count: 1,
                responder: NAME,
                next_update: Some(1_800_000_001),
                nonce: Some(vec![1; 16]),
            }
        }
    }

    fn signer() -> [Arc<IssuerHashes>; 1] {
        [Arc::new(IssuerHashes::new(&Name::from_der(NAME).unwrap(), KEY))]
    }

    fn encoded(case: &OcspResponseCase) -> Vec<u8> {
        let one = || SingleResponse { cert_id: &case.cert_id, status: case.status };
        let responses: Vec<_> = (0..case.count).map(|_| one()).collect();
        ResponseData {
            responder: &Name::from_der(case.responder).unwrap(),
            produced_at: 1_800_000_000,
            next_update: case.next_update,
            responses: &responses,
            nonce: case.nonce.as_deref(),
        }
        .encode()
    }

    #[test]
    fn valid_ocsp_responses_pass() {
        for hash in CertIdHash::ALL {
            for status in [
                OcspCertStatus::Good,
                OcspCertStatus::Unknown,
                REVOCATION,
                OcspCertStatus::Revoked { at: 0, reason: None },
            ] {
                for (count, nonce) in [(1, None), (32, Some(vec![1; 128]))] {
                    let cert_id = cert_id(hash, NAME);
                    let case = OcspResponseCase {
                        cert_id,
                        status,
                        count,
                        nonce,
                        next_update: None,
                        ..OcspResponseCase::default()
                    };
                    lint_ocsp_response(&encoded(&case), &signer()).unwrap();
                }
            }
        }
        let of_another = OcspResponseCase {
            cert_id: cert_id(CertIdHash::Sha1, b"other"),
            status: OcspCertStatus::Unknown,
            ..OcspResponseCase::default()
        };
        lint_ocsp_response(&encoded(&of_another), &signer()).unwrap();
    }

    #[test]
    fn each_ocsp_rule_refuses_its_violation() {
        let reason = |code| OcspCertStatus::Revoked { at: 0, reason: Some(code) };
        let other = || cert_id(CertIdHash::Sha1, b"other");
        let cases = [
            (
                OcspResponseCase { responder: &[SEQUENCE, 2, 5, 0], ..OcspResponseCase::default() },
                "by the signer's subject",
            ),
            (OcspResponseCase { count: 0, ..OcspResponseCase::default() }, "must cover 1 to 32 certificates"),
            (OcspResponseCase { count: 33, ..OcspResponseCase::default() }, "must cover 1 to 32 certificates"),
            (OcspResponseCase { status: reason(7), ..OcspResponseCase::default() }, "reason"),
            (OcspResponseCase { status: reason(11), ..OcspResponseCase::default() }, "reason"),
            (OcspResponseCase { next_update: Some(1_800_000_000), ..OcspResponseCase::default() }, "nextUpdate"),
            (OcspResponseCase { cert_id: other(), ..OcspResponseCase::default() }, "not the issuer"),
            (
                OcspResponseCase { cert_id: other(), status: REVOCATION, ..OcspResponseCase::default() },
                "not the issuer",
            ),
            (OcspResponseCase { nonce: Some(vec![1; 129]), ..OcspResponseCase::default() }, "RFC 9654"),
            (OcspResponseCase { nonce: Some(Vec::new()), ..OcspResponseCase::default() }, "RFC 9654"),
        ];
        for (case, text) in cases {
            let error = lint_ocsp_response(&encoded(&case), &signer()).unwrap_err();
            assert!(error.text().contains(text), "{text}: {error}");
        }
        assert!(lint_ocsp_response(&[encoded(&OcspResponseCase::default()), vec![0]].concat(), &signer()).is_err());
    }

    proptest! {
        #[test]
        fn damaged_ocsp_responses_do_not_panic(at in any::<usize>(), byte in any::<u8>()) {
            let mut data = encoded(&OcspResponseCase { status: REVOCATION, ..OcspResponseCase::default() });
            let at = at % data.len();
            data[at] = byte;
            let _ = lint_ocsp_response(&data, &signer());
        }
    }
}
