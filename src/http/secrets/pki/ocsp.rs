//! OCSP over HTTP (RFC 6960 appendix A, RFC 5019): without authentication, in DER.
//!
//! POST has the request as its body. A valid request with another media type is rejected with 415; a missing media type
//! is accepted. GET has the request in base64 in the path, percent-encoded or not, with `/` and `+`, a space for `+`,
//! padded or not. All responses are an OCSPResponse: 200, 400 malformedRequest, 401 unauthorized, 503 tryLater, 500
//! internalError. Cacheable responses to GET have caching headers until their nextUpdate, and support conditional
//! requests.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::{Kind, Result};
use crate::http::pause;
use crate::http::secrets::answer::{Answer, Validators};
use crate::http::secrets::path;
use crate::http::secrets::render::conditional::date;
use crate::http::secrets::route::Call;
use crate::pki::engine::answers::Times;
use crate::pki::revocation::ocsp::{self, Answered, Outcome};
use crate::x509::ocsp::{MAX_REQUEST, Request};

/// Maximum size of a POST body, in bytes.
pub(super) const MAX_BODY: usize = MAX_REQUEST;
/// Maximum length of a request in a path, in characters: base64, possibly with percent-encoding.
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
    let answer = rendered(&answered);
    Ok(match answered.lasting {
        Some(Times { this_update, next_update: Some(next_update), .. }) => {
            let now = call.state.engine.now().unix_timestamp();
            lasting(answer, &answered.der, this_update, next_update, now)
        }
        _ => answer,
    })
}

/// Decodes a request in base64 from a path.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let plain = path::octets(text).map(|octet| octet.map(|(octet, _)| if octet == b' ' { b'+' } else { octet }));
    BASE64.decode(plain.collect::<Option<Vec<u8>>>()?).ok()
}

/// Handles a request. `tryLater` is delayed like other refusals for lack of capacity.
async fn answered(call: &Call, request: &[u8]) -> Result<Answered> {
    let answered = asked(call, request).await?;
    if answered.outcome == Outcome::TryLater {
        pause::before(Kind::Busy).await;
    }
    Ok(answered)
}

async fn asked(call: &Call, request: &[u8]) -> Result<Answered> {
    // A response contains times, and the pipeline checks the clock only when it identifies a caller.
    if let Err(error) = call.state.clock.require_agreed() {
        return Ok(Answered::failed(&error));
    }
    match call.authority().await {
        // Unified data is this server's own data, available only when it is enabled.
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

/// Adds caching headers (RFC 5019 6.2): cacheable until nextUpdate, with revalidation by entity tag. A date is no
/// validator, because two nodes may give different responses within one second.
fn lasting(answer: Answer, der: &[u8], this_update: i64, next_update: i64, now: i64) -> Answer {
    let left = u64::try_from(next_update - now).unwrap_or(0);
    let mut answer = answer.with_validators(Validators::of(der, None, left));
    answer.headers.extend([
        ("cache-control", format!("max-age={left}, public, no-transform, must-revalidate")),
        ("last-modified", date(this_update)),
        ("expires", date(next_update)),
    ]);
    answer
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
