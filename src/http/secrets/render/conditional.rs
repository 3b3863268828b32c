//! Conditional requests (RFC 9110, 13).

use std::time::{Duration, UNIX_EPOCH};

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, ETAG, HeaderMap, HeaderValue, HttpDate, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};

use crate::http::entity_tag::EntityTags;
use crate::http::secrets::handler_response::CacheValidators;

/// `true` if the client has the current state of the resource. Entity tags in the request take precedence over a date.
/// A date must not be before the [end of the second](end_of_second) of the last change. Invalid dates are ignored.
pub(super) fn is_not_modified(validators: &CacheValidators, headers: &HeaderMap) -> bool {
    if let Some((tag, sent)) = validators.tag.as_ref().zip(EntityTags::of(headers, IF_NONE_MATCH)) {
        return sent.matching_tag(&quoted(tag)).is_some();
    }
    let since = headers.get(IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok()?.parse::<HttpDate>().ok());
    let since = since.and_then(|date| std::time::SystemTime::from(date).duration_since(UNIX_EPOCH).ok());
    let since = since.and_then(|since| i64::try_from(since.as_secs()).ok());
    validators.modified.zip(since).is_some_and(|(modified, since)| end_of_second(modified) <= since)
}

/// Returns the end of the second of the last change. A resource may have had two states within one second, which a date
/// cannot distinguish. So `Last-Modified` is rounded up, and sent only after that time has passed (RFC 9110, 8.8.2).
fn end_of_second(modified: i64) -> i64 {
    modified.saturating_add(1)
}

fn quoted(tag: &str) -> String {
    format!("\"{tag}\"")
}

/// Formats epoch seconds as an HTTP date.
pub(in crate::http::secrets) fn http_date(at: i64) -> String {
    HttpDate::from(UNIX_EPOCH + Duration::from_secs(u64::try_from(at).unwrap_or(0))).to_string()
}

/// Adds the validators and `Cache-Control` to a response. `now` is in epoch seconds. A 304 response has the entity tag
/// that the client has cached, which may be that of the compressed response.
pub(super) fn write_validators(
    response: &mut HttpResponse,
    validators: &CacheValidators,
    now: i64,
    request_headers: Option<&HeaderMap>,
) {
    let known = request_headers.filter(|_| response.status() == StatusCode::NOT_MODIFIED);
    let known = known.and_then(|request_headers| EntityTags::of(request_headers, IF_NONE_MATCH));
    let tag = validators.tag.as_deref().map(quoted);
    let tag =
        tag.map(|tag| (ETAG, known.as_ref().and_then(|known| known.matching_tag(&tag)).unwrap_or(&tag).to_owned()));
    let modified =
        validators.modified.map(end_of_second).filter(|at| *at <= now).map(|at| (LAST_MODIFIED, http_date(at)));
    let kept = (CACHE_CONTROL, format!("public, max-age={}", validators.max_age));
    for (name, value) in [kept].into_iter().chain(modified).chain(tag) {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn entity_tag_takes_precedence_over_date() {
        let validators = CacheValidators { tag: Some("ab".to_owned()), modified: Some(1_700_000_000), max_age: 60 };
        let is_unmodified = |pairs: &[(&'static str, &'static str)]| {
            let request = pairs.iter().fold(TestRequest::default(), |r, pair| r.append_header(*pair));
            is_not_modified(&validators, request.to_http_request().headers())
        };
        let before = "Tue, 14 Nov 2023 22:13:19 GMT";
        let at = "Tue, 14 Nov 2023 22:13:20 GMT";
        let after = "Tue, 14 Nov 2023 22:13:21 GMT";
        assert!(!is_unmodified(&[]));
        for (value, same) in [
            ("\"ab\"", true),
            ("W/\"ab\"", true),
            ("\"x\", \"ab\"", true),
            ("*", true),
            ("\"x\"", false),
            ("ab", false),
        ] {
            assert_eq!(is_unmodified(&[("if-none-match", value)]), same, "{value}");
            assert_eq!(is_unmodified(&[("if-none-match", value), ("if-modified-since", after)]), same, "{value}");
        }
        assert!(is_unmodified(&[("if-none-match", "\"x\""), ("if-none-match", "\"ab\"")]));
        for (date, same) in [(before, false), (at, false), (after, true), ("yesterday", false)] {
            assert_eq!(is_unmodified(&[("if-modified-since", date)]), same, "{date}");
        }
        let undated = CacheValidators { modified: None, ..CacheValidators::of(b"", None, 60) };
        let request = TestRequest::default().insert_header(("if-modified-since", after)).to_http_request();
        assert!(is_not_modified(&validators, request.headers()) && !is_not_modified(&undated, request.headers()));
        // If the resource has no entity tag, only the date decides.
        let untagged = CacheValidators { tag: None, ..validators };
        let request = TestRequest::default().insert_header(("if-none-match", "\"ab\"")).to_http_request();
        assert!(!is_not_modified(&untagged, request.headers()));
    }
}
