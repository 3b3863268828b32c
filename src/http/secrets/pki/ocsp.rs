//! OCSP over HTTP (RFC 6960 appendix A, RFC 5019): open to everyone, DER in and out.
//!
//! POST has the request as its body; a body of another media type that could be one is refused with
//! 415 (none at all is taken). GET has it in base64 behind the path, as it was sent: percent-encoded or
//! not, with `/` and `+` in it, a blank for `+`, padded or not. Whatever happens the body is an
//! OCSPResponse. Statuses: 200, 400 malformedRequest, 401 unauthorized, 503 tryLater, 500 internalError.
//! Answers to GET that anybody may keep say so, until their nextUpdate.

use std::time::{Duration, UNIX_EPOCH};

use actix_web::http::header::HttpDate;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::{Kind, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::path;
use crate::http::secrets::route::Call;
use crate::pki::ocsp::{self, Answered, Outcome, Times};
use crate::x509::ocsp::{MAX_REQUEST, Request};

/// Octets of a POST that are read.
pub(super) const MAX_BODY: usize = MAX_REQUEST;
/// Characters of a GET that are read: base64, each perhaps as three.
pub(super) const MAX_TEXT: usize = MAX_REQUEST * 4;

const REQUEST: &str = "application/ocsp-request";
const RESPONSE: &str = "application/ocsp-response";
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) async fn post(call: Call) -> Result<Answer> {
    let foreign = !call.media_type.is_empty() && !call.media_type.eq_ignore_ascii_case(REQUEST);
    if foreign && Request::parse(&call.body).is_ok() {
        return Ok(rendered(&Answered::failure(Outcome::MalformedRequest)).with_status(415));
    }
    Ok(rendered(&answered(&call, &call.body).await?))
}

pub(super) async fn get(call: Call) -> Result<Answer> {
    let answered = match decoded(&call.body) {
        Some(request) => answered(&call, &request).await?,
        None => Answered::failure(Outcome::MalformedRequest),
    };
    let mut answer = rendered(&answered);
    if let Some(times) = answered.lasting {
        let now = call.state.engine.now().unix_timestamp();
        answer.headers.extend(caching(&answered.der, times, now));
    }
    Ok(answer)
}

/// The DER of a request in base64, as a path has it.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let plain = path::octets(text).map(|octet| octet.map(|(octet, _)| if octet == b' ' { b'+' } else { octet }));
    BASE64.decode(plain.collect::<Option<Vec<u8>>>()?).ok()
}

async fn answered(call: &Call, request: &[u8]) -> Result<Answered> {
    match call.authority().await {
        // Unified data is this server's own; it is there when it is switched on.
        Ok(authority)
            if call.route.pattern.starts_with("unified-") && !authority.view().crl_config.value.unified_crl =>
        {
            Ok(Answered::failure(Outcome::Unauthorized))
        }
        Ok(authority) => Ok(ocsp::answer(&authority, request).await),
        Err(error) if error.kind() == Kind::NotFound => Err(error),
        Err(error) => Ok(Answered::failed(&error)),
    }
}

fn rendered(answered: &Answered) -> Answer {
    ocsp::count(answered);
    let status = match answered.outcome {
        Outcome::Successful => 200,
        Outcome::MalformedRequest => 400,
        Outcome::Unauthorized => 401,
        Outcome::InternalError => 500,
        Outcome::TryLater => 503,
    };
    let mut answer = Answer::raw(RESPONSE, answered.der.clone()).with_status(status);
    if answered.outcome == Outcome::TryLater {
        answer.headers.push(("retry-after", "1".to_owned()));
    }
    answer
}

/// RFC 5019 6.2: good until nextUpdate; none for an answer without one.
fn caching(der: &[u8], times: Times, now: i64) -> Vec<(&'static str, String)> {
    let Some(next) = times.next_update else { return Vec::new() };
    let date = |at: i64| HttpDate::from(UNIX_EPOCH + Duration::from_secs(u64::try_from(at).unwrap_or(0))).to_string();
    let tag: String = digest(&SHA256, der).as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
    vec![
        ("cache-control", format!("max-age={}, public, no-transform, must-revalidate", (next - now).max(0))),
        ("etag", format!("\"{tag}\"")),
        ("last-modified", date(times.this_update)),
        ("expires", date(next)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base64_of_a_path_is_read_in_every_spelling() {
        let der = [0xfb, 0xff, 0xbe, 0xff, 0xff, 0x3e, 1];
        for text in ["+/++//8+AQ==", "+/++//8+AQ", "%2B%2f++//8%2BAQ%3D%3D", " /  //8 AQ==", "%20/++//8+AQ=="] {
            assert_eq!(decoded(text.as_bytes()).as_deref(), Some(&der[..]), "{text}");
        }
        for text in ["a", "a*==", "%2", "%zz", "-_--__8-AQ==", "AQ===", "\u{e4}", "AQ==/AQ=="] {
            assert_eq!(decoded(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decoded(&vec![b'A'; MAX_TEXT + 4]), None);
    }

    proptest! {
        #[test]
        fn any_path_is_decoded_or_refused(text in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decoded(&text);
        }

        #[test]
        fn requests_read_back(der in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(decoded(BASE64.encode(&der).as_bytes()), Some(der));
        }
    }
}
