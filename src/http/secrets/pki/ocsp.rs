//! OCSP over HTTP (RFC 6960 appendix A, RFC 5019): without authentication, in DER.
//!
//! A POST body is the request. A valid request with another media type is rejected with 415; a missing media type is
//! accepted. The path of a GET contains the request in base64: percent-encoded or not, with `/` and `+`, a space for
//! `+`, padded or not. All responses are an OCSPResponse: 200, 400 malformedRequest, 401 unauthorized, 503 tryLater,
//! 500 internalError. Responses to GET that may be cached have caching headers until their nextUpdate, and support
//! conditional requests.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::{Kind, Result};
use crate::http::refusal_delay;
use crate::http::secrets::handler_response::{CacheValidators, HandlerResponse};
use crate::http::secrets::path;
use crate::http::secrets::render::conditional::http_date;
use crate::http::secrets::route::Call;
use crate::pki::engine::ocsp_cache::OcspTimes;
use crate::pki::revocation::ocsp::{self, OcspOutcome, OcspReply};
use crate::x509::ocsp::{MAX_REQUEST_BYTES, OcspRequest};

/// Maximum size of a POST body, in bytes.
pub(super) const MAX_BODY_BYTES: usize = MAX_REQUEST_BYTES;
/// Maximum length of a request in a path, in bytes: base64, possibly with percent-encoding.
pub(super) const MAX_ENCODED_REQUEST_BYTES: usize = MAX_REQUEST_BYTES * 4;

const REQUEST_MEDIA_TYPE: &str = "application/ocsp-request";
const RESPONSE_MEDIA_TYPE: &str = "application/ocsp-response";
const UNPADDED_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) async fn post(call: Call) -> Result<HandlerResponse> {
    let foreign = !call.media_type.is_empty() && !call.media_type.eq_ignore_ascii_case(REQUEST_MEDIA_TYPE);
    if foreign && OcspRequest::parse(&call.body).is_ok() {
        return Ok(render(&OcspReply::failure(OcspOutcome::MalformedRequest)).with_status(415));
    }
    Ok(render(&respond(&call, &call.body).await?))
}

pub(super) async fn get(call: Call) -> Result<HandlerResponse> {
    let answered = match decode_request_in_path(&call.body) {
        Some(request) => respond(&call, &request).await?,
        None => OcspReply::failure(OcspOutcome::MalformedRequest),
    };
    let answer = render(&answered);
    Ok(match answered.cacheable_times {
        Some(OcspTimes { this_update, next_update: Some(next_update), .. }) => {
            let now = call.state.engine.now().unix_timestamp();
            add_caching_headers(answer, &answered.der, this_update, next_update, now)
        }
        _ => answer,
    })
}

/// Decodes the OCSP request that a path contains in base64.
fn decode_request_in_path(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() > MAX_ENCODED_REQUEST_BYTES {
        return None;
    }
    let plain = path::decode_bytes(text).map(|octet| octet.map(|(octet, _)| if octet == b' ' { b'+' } else { octet }));
    UNPADDED_BASE64.decode(plain.collect::<Option<Vec<u8>>>()?).ok()
}

/// Responds to an OCSP request. `tryLater` is delayed like other refusals for lack of capacity.
async fn respond(call: &Call, request: &[u8]) -> Result<OcspReply> {
    let answered = evaluate(call, request).await?;
    if answered.outcome == OcspOutcome::TryLater {
        refusal_delay::wait(Kind::Busy).await;
    }
    Ok(answered)
}

async fn evaluate(call: &Call, request: &[u8]) -> Result<OcspReply> {
    // A response contains times. OCSP needs no token, so the pipeline has not checked the clock.
    if let Err(error) = call.state.clock.require_synchronized() {
        return Ok(OcspReply::from_error(&error));
    }
    match call.authority().await {
        // Unified paths serve this cluster's own data, if unified CRLs are enabled.
        Ok(authority)
            if call.route.pattern.starts_with("unified-") && !authority.view().crl_config.value.unified_crl =>
        {
            Ok(OcspReply::failure(OcspOutcome::Unauthorized))
        }
        Ok(authority) => Ok(ocsp::handle_request(&authority, request).await),
        Err(error) if error.kind() == Kind::NotFound => Err(error),
        Err(error) => Ok(OcspReply::from_error(&error)),
    }
}

fn render(answered: &OcspReply) -> HandlerResponse {
    ocsp::count_reply(answered);
    let status = match answered.outcome {
        OcspOutcome::Successful => 200,
        OcspOutcome::MalformedRequest => 400,
        OcspOutcome::Unauthorized => 401,
        OcspOutcome::InternalError => 500,
        OcspOutcome::TryLater => 503,
    };
    let mut answer = HandlerResponse::raw(RESPONSE_MEDIA_TYPE, answered.der.clone()).with_status(status);
    if answered.outcome == OcspOutcome::TryLater {
        answer.headers.push(("retry-after", "1".to_owned()));
    }
    answer
}

/// Adds caching headers (RFC 5019 6.2): the response may be cached until nextUpdate, and revalidated by entity tag. Its
/// date is not used as a validator, because two nodes may give different responses within one second.
fn add_caching_headers(
    answer: HandlerResponse,
    der: &[u8],
    this_update: i64,
    next_update: i64,
    now: i64,
) -> HandlerResponse {
    let left = u64::try_from(next_update - now).unwrap_or(0);
    let mut answer = answer.with_validators(CacheValidators::of(der, None, left));
    answer.headers.extend([
        ("cache-control", format!("max-age={left}, public, no-transform, must-revalidate")),
        ("last-modified", http_date(this_update)),
        ("expires", http_date(next_update)),
    ]);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ocsp_path_base64_is_read_in_every_spelling() {
        let der = [0xfb, 0xff, 0xbe, 0xff, 0xff, 0x3e, 1];
        for text in ["+/++//8+AQ==", "+/++//8+AQ", "%2B%2f++//8%2BAQ%3D%3D", " /  //8 AQ==", "%20/++//8+AQ=="] {
            assert_eq!(decode_request_in_path(text.as_bytes()).as_deref(), Some(&der[..]), "{text}");
        }
        for text in ["a", "a*==", "%2", "%zz", "-_--__8-AQ==", "AQ===", "\u{e4}", "AQ==/AQ=="] {
            assert_eq!(decode_request_in_path(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode_request_in_path(&vec![b'A'; MAX_ENCODED_REQUEST_BYTES + 4]), None);
    }

    proptest! {
        #[test]
        fn ocsp_path_of_any_text_does_not_panic(text in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_request_in_path(&text);
        }

        #[test]
        fn ocsp_request_in_a_path_reads_back(der in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(decode_request_in_path(UNPADDED_BASE64.encode(&der).as_bytes()), Some(der));
        }
    }
}
