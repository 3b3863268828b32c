//! The caller's IP address, for all limits, permissions and records that use it.
//!
//! It is the peer address of the socket. If the peer is a trusted proxy (setting `trusted_proxies`), it is instead the
//! right-most address of `X-Forwarded-For` that is not a trusted proxy. The header is ignored from other peers. A
//! request with an invalid header from a trusted proxy is rejected: otherwise it would count as a request of the proxy
//! itself.

use std::net::{IpAddr, SocketAddr};

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderMap, X_FORWARDED_FOR};
use ipnet::IpNet;

use crate::error::{Error, Result};

/// Maximum number of addresses in `X-Forwarded-For`.
const MAX_FORWARDED_ADDRESSES: usize = 32;

/// Returns the address of the client that sent a request; `None` when the socket has none.
///
/// # Errors
/// `Malformed` when a trusted proxy sent an `X-Forwarded-For` that is not a list of addresses.
pub fn caller_address(request: &HttpRequest, trusted: &[IpNet]) -> Result<Option<IpAddr>> {
    let Some(peer) = request.peer_addr().map(|peer| peer.ip().to_canonical()) else { return Ok(None) };
    if !is_trusted(peer, trusted) {
        return Ok(Some(peer));
    }
    let forwarded = parse_forwarded(request.headers())?;
    let outside = forwarded.iter().rev().find(|address| !is_trusted(**address, trusted));
    // If all forwarded addresses are trusted proxies, the left-most one is the client.
    Ok(Some(*outside.or(forwarded.first()).unwrap_or(&peer)))
}

fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&address))
}

/// Parses all `X-Forwarded-For` lines as one list (RFC 9110, 5.3).
fn parse_forwarded(headers: &HeaderMap) -> Result<Vec<IpAddr>> {
    let refused = || Error::malformed("X-Forwarded-For: must be at most 32 IP addresses, separated by commas");
    let mut addresses = Vec::new();
    for line in headers.get_all(X_FORWARDED_FOR) {
        let line = line.to_str().map_err(|_| refused())?;
        for item in line.split(',') {
            addresses.push(
                parse_address(item.trim()).filter(|_| addresses.len() < MAX_FORWARDED_ADDRESSES).ok_or_else(refused)?,
            );
        }
    }
    Ok(addresses)
}

/// Parses an address in any form that proxies use: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]`,
/// `[2001:db8::1]:4711`.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || Some(text.parse::<SocketAddr>().ok()?.ip());
    let address = text.parse().ok().or_else(bracketed).or_else(with_port);
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    fn resolve_address(peer: &str, lines: &[&str]) -> Result<Option<IpAddr>> {
        let trusted = ["10.0.0.0/8", "192.0.2.7/32", "2001:db8:1::/48"].map(|network| network.parse().unwrap());
        let request = TestRequest::default().peer_addr(SocketAddr::new(peer.parse().unwrap(), 4711));
        let request = lines.iter().fold(request, |request, line| request.append_header((X_FORWARDED_FOR, *line)));
        caller_address(&request.to_http_request(), &trusted)
    }

    #[test]
    fn forwarded_address_is_used_up_to_the_first_untrusted_proxy() {
        for (peer, lines, caller) in [
            ("203.0.113.9", &[][..], "203.0.113.9"),
            ("203.0.113.9", &["198.51.100.1"], "203.0.113.9"),
            ("203.0.113.9", &["no address"], "203.0.113.9"),
            ("127.0.0.1", &["198.51.100.1"], "127.0.0.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1, 203.0.113.5"], "203.0.113.5"),
            ("10.0.0.1", &["198.51.100.1,203.0.113.5 , 10.9.9.9,192.0.2.7"], "203.0.113.5"),
            ("10.0.0.1", &["198.51.100.1", "203.0.113.5", "10.9.9.9"], "203.0.113.5"),
            ("10.0.0.1", &["10.3.3.3, 10.4.4.4"], "10.3.3.3"),
            ("2001:db8:1::9", &["2001:db8:2::1, 2001:db8:1::1"], "2001:db8:2::1"),
        ] {
            assert_eq!(resolve_address(peer, lines).ok().flatten(), Some(caller.parse().unwrap()), "{peer} {lines:?}");
        }
        let request = TestRequest::default().append_header((X_FORWARDED_FOR, "198.51.100.1")).to_http_request();
        assert!(caller_address(&request, &["0.0.0.0/0".parse().unwrap()]).is_ok_and(|address| address.is_none()));
    }

    #[test]
    fn forwarded_address_may_have_a_port_and_brackets() {
        for text in ["198.51.100.1", "198.51.100.1:80", "::ffff:198.51.100.1", "[::ffff:198.51.100.1]:80"] {
            assert_eq!(parse_address(text), Some("198.51.100.1".parse().unwrap()), "{text}");
        }
        for text in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:443"] {
            assert_eq!(parse_address(text), Some("2001:db8::1".parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn malformed_forwarded_header_of_a_trusted_proxy_is_refused() {
        let long = vec!["198.51.100.1"; MAX_FORWARDED_ADDRESSES + 1].join(",");
        let refused = [
            "",
            " ",
            "x",
            "198.51.100.1,",
            "198.51.100",
            "1.2.3.4:99999",
            "[198.51.100.1]",
            "[::1",
            "unknown",
            "\u{e9}",
            &long,
        ];
        for line in refused {
            let error = resolve_address("10.0.0.1", &["198.51.100.2", line]).err().unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                (error.kind(), error.text().split(':').next()),
                (crate::error::Kind::Malformed, Some("X-Forwarded-For"))
            );
        }
        assert!(resolve_address("10.0.0.1", &[&vec!["198.51.100.1"; MAX_FORWARDED_ADDRESSES].join(",")]).is_ok());
    }
}
