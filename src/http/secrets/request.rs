//! Parses the head of a request (operation, path, token and other headers) and the fields of a body.
//!
//! The limits in this module apply before the token is validated.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

use super::path;
use crate::auth::policy::Operation;
use crate::clock::parse_duration;
use crate::error::{Error, Kind, Result};
use crate::fields::{Fields, MAX_VALUES, parse_bool_word};
use crate::http::settings::HttpSettings;
use crate::pki::issue::idempotency::IDEMPOTENCY_KEY_HEADER;

/// Maximum length of an idempotency key.
const MAX_IDEMPOTENCY_KEY_CHARACTERS: usize = 255;
/// Maximum total size of the names and values of all headers, in bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;

pub(super) static SERVICE_TOKEN: HeaderName = HeaderName::from_static("x-service-token");
pub(super) static VAULT_TOKEN: HeaderName = HeaderName::from_static("x-vault-token");
static AUTHORIZATION: HeaderName = HeaderName::from_static("authorization");
static SERVICE_NAMESPACE: HeaderName = HeaderName::from_static("x-service-namespace");
static VAULT_NAMESPACE: HeaderName = HeaderName::from_static("x-vault-namespace");
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
static SERVICE_WRAP_TTL: HeaderName = HeaderName::from_static("x-service-wrap-ttl");
static VAULT_WRAP_TTL: HeaderName = HeaderName::from_static("x-vault-wrap-ttl");

/// A parsed request line.
pub struct ParsedRequest {
    /// The operation.
    pub operation: Operation,
    /// The decoded path below `/v1`. The path of a list ends in `/`.
    pub path: String,
    /// The query, without the parameters that select the operation.
    pub query: Vec<(String, String)>,
    /// `true` if the client requests the help for the path.
    pub help: bool,
    /// The part of the path that matches `**tail`, still encoded (see
    /// [`Route::pattern`](super::route::Route::pattern)).
    pub tail: Option<Bytes>,
}

/// The token that a client sent, kept for the routes that use its text. It has no `Debug`, so that it is never logged.
#[derive(Clone)]
pub struct RequestToken {
    header: HeaderValue,
    from: usize,
}

impl RequestToken {
    /// Exposes the text of the token.
    pub fn expose(&self) -> &str {
        self.header.to_str().ok().and_then(|text| text.get(self.from..)).unwrap_or_default()
    }
}

/// Parses path, method and query of a request, and rejects oversized headers.
pub fn parse_head(request: &HttpRequest, raw_path: &str, settings: &HttpSettings) -> Result<ParsedRequest> {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    if headers.sum::<usize>() > MAX_HEADER_BYTES {
        return Err(Error::new(Kind::HeadersTooLarge, "headers: larger than 64 KiB"));
    }
    let mut path = path::validate(raw_path)?.into_owned();
    let mut query = parse_pairs(request.query_string().as_bytes())?;
    let (operation, help) = parse_operation(request.method().as_str(), &mut query, settings.compat)?;
    match operation {
        Operation::Create | Operation::Update | Operation::Patch if path.ends_with('/') => {
            return Err(Error::invalid("cannot write to a path ending in '/'"));
        }
        Operation::List if !path.ends_with('/') => path.push('/'),
        _ => {}
    }
    if operation == Operation::Patch {
        require_merge_patch(request.headers())?;
    }
    Ok(ParsedRequest { operation, path, query, help, tail: None })
}

fn parse_operation(method: &str, query: &mut Vec<(String, String)>, compat: bool) -> Result<(Operation, bool)> {
    let refused = || Error::new(Kind::UnsupportedMethod, "unsupported operation");
    let operation = match method {
        "GET" | "HEAD" => Operation::Read,
        "LIST" => Operation::List,
        "POST" => Operation::Update,
        "PUT" if compat => Operation::Update,
        "PATCH" => Operation::Patch,
        "DELETE" => Operation::Delete,
        _ => return Err(refused()),
    };
    if operation != Operation::Read || !compat || query.is_empty() {
        return Ok((operation, false));
    }
    if take_flag(query, "scan")? {
        return Err(refused());
    }
    let help = take_flag(query, "help")?;
    Ok((if take_flag(query, "list")? { Operation::List } else { operation }, help))
}

/// Removes a boolean parameter from the query and returns its value.
fn take_flag(query: &mut Vec<(String, String)>, name: &str) -> Result<bool> {
    let mut set = false;
    for (_, value) in query.iter().filter(|(n, _)| n == name) {
        set = parse_bool_word(value).ok_or_else(|| Error::invalid(format!("{name}: must be a boolean")))?;
    }
    query.retain(|(n, _)| n != name);
    Ok(set)
}

fn parse_pairs(encoded: &[u8]) -> Result<Vec<(String, String)>> {
    if encoded.is_empty() {
        return Ok(Vec::new());
    }
    let pairs: Vec<_> = url::form_urlencoded::parse(encoded)
        .take(MAX_VALUES + 1)
        .map(|(n, v)| (n.into_owned(), v.into_owned()))
        .collect();
    if pairs.len() > MAX_VALUES {
        return Err(Error::malformed("request: too complex: too many form or query values"));
    }
    Ok(pairs)
}

/// Requires the media type of RFC 7396 for PATCH.
fn require_merge_patch(headers: &HeaderMap) -> Result<()> {
    let Some(given) = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).map(essence).filter(|t| t.contains('/'))
    else {
        return Err(Error::invalid("content-type: PATCH requests must name application/merge-patch+json"));
    };
    if given.eq_ignore_ascii_case("application/merge-patch+json") {
        return Ok(());
    }
    Err(Error::new(Kind::UnsupportedMedia, "content-type: PATCH requests must use application/merge-patch+json"))
}

fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// Returns the media type of a body, without parameters; empty if the request names none.
pub fn media_type(headers: &HeaderMap) -> String {
    headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).map(essence).unwrap_or_default().to_owned()
}

/// Parses a body as a form if it has the media type of forms and does not look like JSON; otherwise as JSON. (`curl -d`
/// sends JSON with the media type of forms.) Each text in the body may have at most `max_text_bytes` bytes.
pub fn parse_fields(body: &[u8], headers: &HeaderMap, max_text_bytes: usize) -> Result<Fields> {
    let start = body.trim_ascii_start();
    let json = matches!(start.first(), None | Some(b'{' | b'[')) || start.trim_ascii_end() == b"null";
    let form = || {
        let given = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).map(essence);
        given.is_some_and(|t| t.eq_ignore_ascii_case("application/x-www-form-urlencoded"))
    };
    if !json && form() {
        let pairs = parse_pairs(body)?;
        if let Some((name, _)) = pairs.iter().find(|(name, value)| name.len().max(value.len()) > max_text_bytes) {
            let begin: String = name.chars().take(64).collect();
            return Err(Error::malformed(format!("{begin}: longer than {max_text_bytes} bytes")));
        }
        return Ok(Fields::from_pairs(pairs));
    }
    Fields::parse_within(body, max_text_bytes)
}

/// Rejects a request to any namespace but the root namespace.
pub fn require_root_namespace(headers: &HeaderMap, compat: bool) -> Result<()> {
    let names = [Some(&SERVICE_NAMESPACE), compat.then_some(&VAULT_NAMESPACE)];
    for value in names.into_iter().flatten().flat_map(|name| headers.get_all(name)) {
        if !matches!(value.as_bytes(), b"" | b"/" | b"root" | b"root/" | b"/root" | b"/root/") {
            return Err(Error::new(Kind::NotFound, "namespace not found"));
        }
    }
    Ok(())
}

/// Returns the lifetime of the wrapped response that the client requests. An invalid value is an error, because the
/// client does not want an unwrapped response.
///
/// # Errors
/// `Invalid` for an invalid duration; `Malformed` for two different durations.
pub fn wrap_ttl(headers: &HeaderMap, compat: bool) -> Result<Option<Duration>> {
    let names = [Some(&SERVICE_WRAP_TTL), compat.then_some(&VAULT_WRAP_TTL)];
    let mut found: Option<Duration> = None;
    for value in names.into_iter().flatten().flat_map(|name| headers.get_all(name)).filter(|value| !value.is_empty()) {
        let ttl =
            value.to_str().ok().and_then(|text| parse_duration(text.trim())).ok_or_else(|| {
                Error::invalid("wrap-ttl: must be a duration, such as 60 or \"1m\", and not negative")
            })?;
        match found {
            Some(first) if first != ttl => {
                return Err(Error::malformed("wrap-ttl: two different durations were sent; send one"));
            }
            _ => found = Some(ttl),
        }
    }
    Ok(found.filter(|ttl| !ttl.is_zero()))
}

/// Returns the idempotency key: printable ASCII without spaces, optionally in quotes.
///
/// # Errors
/// `Invalid` when the key is empty, longer than 255 characters, has other characters, or was sent twice.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<Box<str>>> {
    let mut sent = headers.get_all(&IDEMPOTENCY_KEY);
    let Some(value) = sent.next() else { return Ok(None) };
    if sent.next().is_some() {
        return Err(Error::invalid(format!("{IDEMPOTENCY_KEY_HEADER}: must be sent only once")));
    }
    let text = value.to_str().ok().map(|text| text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text));
    let is_key = |text: &&str| {
        (1..=MAX_IDEMPOTENCY_KEY_CHARACTERS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
    };
    match text.filter(is_key) {
        Some(text) => Ok(Some(text.into())),
        None => Err(Error::invalid(format!(
            "{IDEMPOTENCY_KEY_HEADER}: must be 1 to {MAX_IDEMPOTENCY_KEY_CHARACTERS} printable ASCII characters without spaces"
        ))),
    }
}

/// Returns the token of the request, if any.
///
/// # Errors
/// `Malformed` for two different tokens.
pub fn token(headers: &HeaderMap, compat: bool) -> Result<Option<RequestToken>> {
    let own = headers.get_all(&SERVICE_TOKEN).map(|v| (v, 0));
    let known = [&VAULT_TOKEN].into_iter().filter(|_| compat).flat_map(|n| headers.get_all(n)).map(|v| (v, 0));
    let bearer = [&AUTHORIZATION].into_iter().filter(|_| compat).flat_map(|n| headers.get_all(n));
    let bearer = bearer.filter_map(|v| Some((v, bearer_start(v.as_bytes())?)));
    let mut found: Option<RequestToken> = None;
    for (value, from) in own.chain(known).chain(bearer) {
        if value.len() == from {
            continue;
        }
        let token = RequestToken { header: value.clone(), from };
        match &found {
            Some(first) if first.expose() != token.expose() => {
                return Err(Error::malformed("token: two different tokens were sent; send one"));
            }
            _ => found = Some(token),
        }
    }
    Ok(found)
}

fn bearer_start(value: &[u8]) -> Option<usize> {
    let scheme = value.get(..7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;
    use proptest::prelude::*;

    fn parse_uri(method: &str, uri: &str) -> Result<ParsedRequest> {
        let request = TestRequest::with_uri(uri).method(method.parse().unwrap()).to_http_request();
        parse_head(&request, request.uri().path().strip_prefix("/v1/").unwrap(), &HttpSettings::default())
    }

    #[test]
    fn methods_map_to_operations() {
        for (method, uri, operation, path) in [
            ("GET", "/v1/pki/roles/web", Operation::Read, "pki/roles/web"),
            ("HEAD", "/v1/sys/health", Operation::Read, "sys/health"),
            ("LIST", "/v1/pki/roles", Operation::List, "pki/roles/"),
            ("GET", "/v1/pki/roles?list=true", Operation::List, "pki/roles/"),
            ("GET", "/v1/pki/roles/?list=T", Operation::List, "pki/roles/"),
            ("GET", "/v1/pki/roles?list=false", Operation::Read, "pki/roles"),
            ("POST", "/v1/a", Operation::Update, "a"),
            ("PUT", "/v1/a", Operation::Update, "a"),
            ("DELETE", "/v1/a?list=zz", Operation::Delete, "a"),
        ] {
            let parsed = parse_uri(method, uri).unwrap();
            assert_eq!((parsed.operation, parsed.path.as_str()), (operation, path), "{method} {uri}");
        }
        for (method, uri, kind) in [
            ("GET", "/v1/a?list=zz", Kind::Invalid),
            ("GET", "/v1/a?scan=true", Kind::UnsupportedMethod),
            ("FOO", "/v1/a", Kind::UnsupportedMethod),
            ("OPTIONS", "/v1/a", Kind::UnsupportedMethod),
            ("POST", "/v1/pki/roles/", Kind::Invalid),
            ("PATCH", "/v1/a", Kind::Invalid),
        ] {
            assert_eq!(parse_uri(method, uri).err().unwrap().kind(), kind, "{method} {uri}");
        }
    }

    #[test]
    fn request_without_compat_has_only_the_forms_of_the_contract() {
        let strict = HttpSettings { compat: false, ..HttpSettings::default() };
        let put = TestRequest::with_uri("/v1/a").method("PUT".parse().unwrap()).to_http_request();
        assert_eq!(parse_head(&put, "a", &strict).err().unwrap().kind(), Kind::UnsupportedMethod);
        let list = TestRequest::with_uri("/v1/a?list=true").to_http_request();
        assert_eq!(parse_head(&list, "a", &strict).unwrap().operation, Operation::Read);
        let vault = TestRequest::default().insert_header(("x-vault-token", "t")).to_http_request();
        assert!(token(vault.headers(), false).unwrap().is_none());
    }

    #[test]
    fn tokens_have_aliases_that_must_agree() {
        let sent = |headers: &[(&'static str, &'static str)]| {
            let request = headers.iter().fold(TestRequest::default(), |r, h| r.append_header(*h)).to_http_request();
            token(request.headers(), true).map(|t| t.map(|t| t.expose().to_owned()))
        };
        assert_eq!(sent(&[]).unwrap(), None);
        assert_eq!(sent(&[("x-service-token", "")]).unwrap(), None);
        assert_eq!(sent(&[("authorization", "Basic abc")]).unwrap(), None);
        for headers in [
            &[("x-service-token", "A")][..],
            &[("x-vault-token", "A")],
            &[("authorization", "Bearer A")],
            &[("authorization", "bearer A"), ("x-service-token", "A")],
            &[("x-vault-token", "A"), ("x-service-token", "A")],
        ] {
            assert_eq!(sent(headers).unwrap().as_deref(), Some("A"));
        }
        assert!(sent(&[("x-vault-token", "A"), ("x-service-token", "B")]).is_err());
        assert!(sent(&[("x-service-token", "A"), ("x-service-token", "B")]).is_err());
        assert!(sent(&[("authorization", "Bearer B"), ("x-service-token", "A")]).is_err());
    }

    #[test]
    fn the_root_namespace_has_synonyms_and_no_other_exists() {
        for (value, root) in [
            ("", true),
            ("/", true),
            ("root", true),
            ("root/", true),
            ("/root", true),
            ("foo", false),
            ("foo/", false),
            ("root/x", false),
            ("ROOT", false),
            ("//root", false),
        ] {
            for name in ["x-service-namespace", "x-vault-namespace"] {
                let request = TestRequest::default().insert_header((name, value)).to_http_request();
                assert_eq!(require_root_namespace(request.headers(), true).is_ok(), root, "{value}");
            }
        }
    }

    #[test]
    fn wrap_ttl_header_is_read_as_a_duration() {
        let read_ttl = |headers: &[(&'static str, &'static str)]| {
            let request = headers.iter().fold(TestRequest::default(), |r, h| r.append_header(*h)).to_http_request();
            wrap_ttl(request.headers(), true)
        };
        for (value, seconds) in [("60", 60), ("1m0s", 60), ("90s", 90), ("1h", 3600)] {
            for name in ["x-service-wrap-ttl", "x-vault-wrap-ttl"] {
                assert_eq!(read_ttl(&[(name, value)]).unwrap(), Some(Duration::from_secs(seconds)), "{value}");
            }
        }
        for value in ["", "0", "0s"] {
            assert_eq!(read_ttl(&[("x-vault-wrap-ttl", value)]).unwrap(), None, "{value}");
        }
        for value in ["-1", "-1s", "soon", "1x"] {
            assert_eq!(read_ttl(&[("x-vault-wrap-ttl", value)]).unwrap_err().kind(), Kind::Invalid, "{value}");
        }
        assert!(read_ttl(&[("x-vault-wrap-ttl", "60s"), ("x-service-wrap-ttl", "1m")]).unwrap().is_some());
        assert!(read_ttl(&[("x-vault-wrap-ttl", "60s"), ("x-service-wrap-ttl", "2m")]).is_err());
        let request = TestRequest::default().insert_header(("x-vault-wrap-ttl", "60")).to_http_request();
        assert_eq!(wrap_ttl(request.headers(), false).unwrap(), None);
    }

    #[test]
    fn idempotency_key_is_one_printable_word() {
        let read_key = |values: &[&str]| {
            let request = values.iter().fold(TestRequest::default(), |r, v| r.append_header(("idempotency-key", *v)));
            idempotency_key(request.to_http_request().headers()).map(|key| key.map(String::from))
        };
        assert_eq!(read_key(&[]).unwrap(), None);
        let longest = "k".repeat(MAX_IDEMPOTENCY_KEY_CHARACTERS);
        for (value, key) in [("k", "k"), ("\"k\"", "k"), ("\"", "\""), (&longest, &longest), ("~!\"a", "~!\"a")] {
            assert_eq!(read_key(&[value]).unwrap().as_deref(), Some(key), "{value}");
        }
        let long = "k".repeat(MAX_IDEMPOTENCY_KEY_CHARACTERS + 1);
        for values in [&[""][..], &["\"\""], &["a b"], &["a\tb"], &["\u{e4}"], &[&long], &["a", "a"]] {
            let refused = read_key(values).unwrap_err();
            assert_eq!((refused.kind(), refused.text().starts_with("Idempotency-Key: ")), (Kind::Invalid, true));
        }
    }

    #[test]
    fn bodies_are_json_unless_they_are_forms() {
        let form = TestRequest::default().insert_header(("content-type", "application/x-www-form-urlencoded"));
        let form = form.to_http_request();
        let other = TestRequest::default().to_http_request();
        let both = |body: &[u8]| (parse_fields(body, form.headers(), 100), parse_fields(body, other.headers(), 100));
        let (as_form, as_json) = both(b" {\"a\":\"1\"}");
        assert_eq!(as_form.unwrap(), as_json.unwrap());
        let (as_form, as_json) = both(b"a=1&a=2");
        assert_eq!(as_form.unwrap().list("a").unwrap().unwrap(), ["1", "2"]);
        assert!(as_json.is_err());
        let (as_form, as_json) = both(b"null");
        assert!(as_form.unwrap().is_empty() && as_json.unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn query_of_any_text_does_not_panic(query in "[a-z%&=0-9]{0,60}") {
            let _ = parse_uri("GET", &format!("/v1/a?{query}"));
        }
    }
}
