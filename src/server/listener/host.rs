//! Validates the `Host` field of a request. For an HTTP/2 request, it is the value of `:authority`.

use std::net::Ipv6Addr;

use actix_web::http::header::{HOST, HeaderMap};

/// Maximum length of a `Host` value, in bytes: a domain name (RFC 1035, 2.3.4) and a port.
const MAX_HOST_BYTES: usize = 261;

/// `true` if the `Host` field of a request is well-formed or absent (RFC 9110, 7.2).
pub(super) fn is_valid(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).all(|host| host.to_str().is_ok_and(is_authority))
}

/// `true` if a text is a host with an optional port, without user information (RFC 3986, 3.2.2).
fn is_authority(text: &str) -> bool {
    if text.len() > MAX_HOST_BYTES {
        return false;
    }
    if let Some(rest) = text.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, port)| is_ipv6(address) && is_port(port));
    }
    let (name, port) = text.find(':').map_or((text, ""), |at| text.split_at(at));
    is_name(name) && is_port(port)
}

/// `true` for an IPv6 address with an optional zone (RFC 6874).
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "0"));
    address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && zone.bytes().all(|b| is_unreserved(b) || b == b'%')
}

/// `true` for an empty text, or a colon and an optional port number.
fn is_port(text: &str) -> bool {
    let Some(digits) = text.strip_prefix(':') else { return text.is_empty() };
    digits.bytes().all(|b| b.is_ascii_digit()) && (digits.is_empty() || digits.parse::<u16>().is_ok())
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_good = match byte {
            b'%' => (0..2).all(|_| bytes.next().is_some_and(|digit| digit.is_ascii_hexdigit())),
            other => is_unreserved(other) || b"!$&'()*+,;=".contains(&other),
        };
        if !is_good {
            return false;
        }
    }
    !text.is_empty()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_follows_the_grammar_of_uris() {
        let long = "a".repeat(MAX_HOST_BYTES + 1);
        for host in [
            "t",
            "ca.example",
            "ca.example.",
            "ca.example:8200",
            "ca.example:",
            "10.0.0.1:1",
            "[::1]",
            "[::1]:8200",
            "[fe80::1%25eth0]:1",
            "my_host",
            "xn--bcher-kva.example",
            "a%2fb",
            &"a".repeat(255),
        ] {
            assert!(is_authority(host), "{host}");
        }
        for host in [
            "", ":1", "a b", "a/b", "a\\b", "a@b", "http://a", "a:b", "a:1:2", "a:65536", "a:+1", "a:-1", "a, b",
            "[::1", "::1", "[::1]x", "[::g]", "[]", "[::1%]", "a%2", "a%zz", "a\"b", "<a>", "a#b", "a?b", "a\tb",
            &long,
        ] {
            assert!(!is_authority(host), "{host}");
        }
    }
}
