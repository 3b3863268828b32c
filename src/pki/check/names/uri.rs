//! Encoding of URI names.
//!
//! URIs are encoded as written, because the role's patterns are matched against this text and a parser may serialize it
//! differently. Only bytes that RFC 3986 does not allow are percent-encoded, and only after the authority. Dot segments
//! are rejected: resolving them yields a URI that no pattern has checked.

use url::Url;

use crate::x509::general_name::{is_pchar, percent_encode};
use crate::x509::profile;

/// Returns the text to encode in the certificate for `uri`. The error is the problem, to be appended to the URI.
///
/// The URI must be absolute, accepted by a URL parser, and have a host if it has an authority (RFC 5280 4.2.1.6).
pub(super) fn encode_uri(uri: &str) -> Result<String, &'static str> {
    if !uri.bytes().enumerate().all(|(i, b)| b != b'%' || is_escape(&uri.as_bytes()[i..])) {
        return Err("has a % without two hexadecimal digits");
    }
    let (head, tail) = uri.split_at(authority_end(uri).ok_or("is not an absolute URI")?);
    if !head.bytes().all(is_scheme_or_host_byte) {
        return Err("has a character in its scheme or host that URIs must not contain");
    }
    let path = tail.split(['?', '#']).next().unwrap_or_default();
    if path.split('/').any(is_dot_segment) {
        return Err("has a . or .. segment in its path");
    }
    let encoded = format!("{head}{}", percent_encode(tail));
    if Url::parse(&encoded).is_err() {
        return Err("is not a valid absolute URI");
    }
    match profile::validate_uri_name(encoded.as_bytes()) {
        Ok(()) => Ok(encoded),
        Err(problem) => Err(problem.0),
    }
}

/// Returns the byte offset at which scheme and authority end.
fn authority_end(uri: &str) -> Option<usize> {
    let after_scheme = uri.find(':')? + 1;
    let Some(authority) = uri[after_scheme..].strip_prefix("//") else { return Some(after_scheme) };
    let start = after_scheme + 2;
    Some(authority.find(['/', '?', '#']).map_or(uri.len(), |at| start + at))
}

fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
}

fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.replace("%2e", ".").replace("%2E", ".");
    plain == "." || plain == ".."
}

fn is_scheme_or_host_byte(b: u8) -> bool {
    is_pchar(b) || b"/[]".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn valid_uris_keep_their_text() {
        for uri in [
            "spiffe://host.com/x",
            "spiffe://Host.com",
            "http://someuri/abc?q=1&r=2#f",
            "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "https://[::1]:8443/",
            "ldap://h/o%20x",
            "mailto:a@b.c",
        ] {
            assert_eq!(encode_uri(uri).as_deref(), Ok(uri));
        }
    }

    #[test]
    fn invalid_uri_bytes_after_the_host_are_escaped() {
        assert_eq!(encode_uri("spiffe://h/a b\\ü").as_deref(), Ok("spiffe://h/a%20b%5C%C3%BC"));
        assert_eq!(encode_uri("http://h/?q=[#a#b").as_deref(), Ok("http://h/?q=%5B#a%23b"));
    }

    #[test]
    fn invalid_uris_are_refused() {
        for uri in [
            "",
            "x",
            "/a/b",
            "host.com/x",
            "//host/x",
            "http://",
            "http://a b/",
            "http://bücher/",
            "http:\\\\host",
            "http://h:port/",
            "http://h/%zz",
            "http://h/%2",
            "spiffe://h/a/../b",
            "spiffe://h/.",
            "spiffe://h/%2e%2E/b",
            "1x://h/",
            "http://a..b/",
            "http:///x",
            "spiffe://",
            "file:///etc/x",
            "http://a./",
            "http://a%41/",
            "http://[fe80::1%25eth0]/",
        ] {
            assert!(encode_uri(uri).is_err(), "{uri} -> {:?}", encode_uri(uri));
        }
    }

    proptest! {
        #[test]
        fn encoded_uri_is_ascii_and_parses_again(uri in "(spiffe|http|urn)?:?(//)?\\PC{0,30}") {
            if let Ok(encoded) = encode_uri(&uri) {
                prop_assert!(encoded.is_ascii());
                let again = encode_uri(&encoded);
                prop_assert_eq!(again.as_deref(), Ok(encoded.as_str()));
            }
        }
    }
}
