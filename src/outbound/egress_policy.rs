//! The rules for destinations that API callers give.
//!
//! A host name is resolved here, and the connection uses only the addresses that passed, because a second lookup may
//! return others (DNS rebinding). Addresses of this machine and link-local ones are rejected. The latter include the
//! metadata services of clouds, which give out credentials. Private networks are permitted, because clusters publish
//! their keys there.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::error::{Error, Result};

/// Maximum length of a URL, in bytes.
const MAX_URL_BYTES: usize = 2048;

/// Metadata services of clouds outside the link-local ranges.
const METADATA_SERVICES_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_SERVICES_V6: [Ipv6Addr; 1] = [Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// The rules for destinations that API callers give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// `true` if the operator permits this machine as a destination, over plain HTTP, too.
    pub loopback: bool,
}

impl EgressPolicy {
    /// Validates an absolute URL without credentials and fragment: https, or http to this machine if it is permitted.
    ///
    /// # Errors
    /// `Invalid` with `field` and the rule.
    pub(crate) fn validate_url(self, field: &str, text: &str) -> Result<Url> {
        if text.len() > MAX_URL_BYTES {
            return Err(Error::invalid(format!("{field}: longer than {MAX_URL_BYTES} bytes")));
        }
        let wrong = || Error::invalid(format!("{field}: must be an absolute https URL without credentials"));
        let url = Url::parse(text).map_err(|_| wrong())?;
        let host = url.host().ok_or_else(wrong)?;
        let is_bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        let is_plain = url.scheme() == "http" && self.loopback && is_loopback(&host);
        if !is_bare || !(url.scheme() == "https" || is_plain) {
            return Err(wrong());
        }
        let is_refused = match host {
            Host::Domain(name) => is_local_name(name) && !self.loopback,
            Host::Ipv4(address) => !self.permits(IpAddr::V4(address)),
            Host::Ipv6(address) => !self.permits(IpAddr::V6(address)),
        };
        if is_refused {
            return Err(Error::invalid(format!(
                "{field}: the host's address is not permitted (loopback, link-local, multicast or metadata service)"
            )));
        }
        Ok(url)
    }

    /// `true` if a URL points to this machine.
    pub(crate) fn is_local_url(url: &Url) -> bool {
        url.host().is_some_and(|host| is_loopback(&host))
    }

    /// Resolves a host name, and returns those of its addresses that are permitted.
    ///
    /// # Errors
    /// Errors of the DNS lookup; an error when no address is permitted.
    pub(crate) async fn resolve_permitted(self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((name, 0)).await?;
        let permitted: Vec<IpAddr> =
            found.map(|address| address.ip()).filter(|address| self.permits(*address)).collect();
        match permitted.is_empty() {
            true => Err(io::Error::other("the egress policy permits no address of the host name")),
            false => Ok(permitted),
        }
    }

    fn permits(self, address: IpAddr) -> bool {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => embedded_ipv4(address).map_or(IpAddr::V6(address), IpAddr::V4),
            address => address,
        };
        if address.is_loopback() {
            return self.loopback;
        }
        match address {
            IpAddr::V4(address) => {
                // All of 0.0.0.0/8 means this machine (RFC 1122, 3.2.1.3).
                let is_own = address.octets()[0] == 0;
                let is_many = address.is_multicast() || address.is_broadcast();
                !(is_own || is_many || address.is_link_local() || METADATA_SERVICES_V4.contains(&address))
            }
            IpAddr::V6(address) => {
                let is_link_local = address.is_unicast_link_local();
                let is_own = address.is_unspecified() || address.is_multicast();
                // Addresses with the first prefix embed an IPv4 address at an unknown position (RFC 8215). The second
                // prefix belongs to a metadata service.
                let is_elsewhere = matches!(address.segments(), [0x64, 0xff9b, 1, ..] | [0xfd00, 0xec2, ..]);
                !(is_own || is_link_local || is_elsewhere || METADATA_SERVICES_V6.contains(&address))
            }
        }
    }
}

/// Returns the IPv4 address embedded in a translated or tunnelled one: NAT64 (RFC 6052, 2.1), 6to4 (RFC 3056, 2),
/// IPv4-translated (RFC 2765, 2.1) and IPv4-compatible (RFC 4291, 2.5.5.1).
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    let at = |from: usize| Ipv4Addr::new(octets[from], octets[from + 1], octets[from + 2], octets[from + 3]);
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(at(12)),
        [0, 0, 0, 0, 0xffff, 0, _, _] => Some(at(12)),
        [0x2002, ..] => Some(at(2)),
        // `::` and `::1` are the unspecified and the loopback address of IPv6 and embed no IPv4 address.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => Some(at(12)),
        _ => None,
    }
}

fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// Validates a URL of the server's configuration: absolute, without credentials, query and fragment, https or,
/// on the loopback only, http.
///
/// # Errors
/// `Invalid` with `name` and the rule.
pub(crate) fn validate_base_url(name: &str, text: &str) -> Result<Url> {
    let wrong = || {
        Error::invalid(format!(
            "{name}: must be an absolute https URL without credentials and query; http is allowed on the loopback only"
        ))
    };
    let url = Url::parse(text).map_err(|_| wrong())?;
    let on_loopback = is_loopback(&url.host().ok_or_else(wrong)?);
    let is_bare =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && on_loopback);
    if is_bare && is_safe { Ok(url) } else { Err(wrong()) }
}

/// A DNS resolver that returns only permitted addresses.
pub(crate) struct EgressResolver(pub(crate) EgressPolicy);

impl Resolve for EgressResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.0;
        Box::pin(async move {
            let permitted = policy.resolve_permitted(name.as_str()).await?;
            Ok(Box::new(permitted.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK_PERMITTED: EgressPolicy = EgressPolicy { loopback: true };
    const LOOPBACK_FORBIDDEN: EgressPolicy = EgressPolicy { loopback: false };

    #[test]
    fn egress_policy_forbids_link_local_metadata_and_own_addresses() {
        let refused = [
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "::",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
        ];
        for text in refused {
            let address: IpAddr = text.parse().unwrap();
            assert!(!LOOPBACK_PERMITTED.permits(address) && !LOOPBACK_FORBIDDEN.permits(address), "{text}");
            let host = if address.is_ipv6() { format!("[{text}]") } else { text.to_owned() };
            let error = LOOPBACK_PERMITTED.validate_url("jwks_url", &format!("https://{host}/keys")).unwrap_err();
            assert_eq!(
                error.text(),
                "jwks_url: the host's address is not permitted (loopback, link-local, multicast or metadata service)",
                "{text}"
            );
        }
        for text in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"] {
            let address: IpAddr = text.parse().unwrap();
            assert!(LOOPBACK_PERMITTED.permits(address) && !LOOPBACK_FORBIDDEN.permits(address), "{text}");
        }
        for text in ["10.96.0.1", "192.168.1.1", "172.16.0.1", "192.0.2.1", "2001:db8::1", "fd12::1", "2002:0a00:1::"] {
            assert!(LOOPBACK_FORBIDDEN.permits(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn caller_url_must_be_https_or_allowed_loopback() {
        for good in ["https://issuer.example", "https://issuer.example:8443/a?b=c", "https://10.0.0.1/keys"] {
            assert!(LOOPBACK_FORBIDDEN.validate_url("u", good).is_ok(), "{good}");
        }
        for local in ["http://127.0.0.1:1/keys", "http://localhost:1", "https://[::1]:1/", "https://a.localhost/"] {
            assert!(
                LOOPBACK_PERMITTED.validate_url("u", local).is_ok()
                    && LOOPBACK_FORBIDDEN.validate_url("u", local).is_err(),
                "{local}"
            );
        }
        for bad in [
            "",
            "issuer.example",
            "/keys",
            "http://issuer.example",
            "http://127.0.0.1.example",
            "http://10.0.0.1/",
            "ftp://issuer.example",
            "file:///etc/passwd",
            "https://user@issuer.example",
            "https://user:word@issuer.example",
            "https://issuer.example/#a",
            // Other spellings of 169.254.169.254.
            "https://2852039166/",
            "https://0xa9.0xfe.0xa9.0xfe/",
            "https://169.254.43518/",
            "https://[::ffff:a9fe:a9fe]/",
        ] {
            assert!(LOOPBACK_PERMITTED.validate_url("u", bad).unwrap_err().text().starts_with("u: "), "{bad}");
        }
        assert_eq!(
            LOOPBACK_PERMITTED.validate_url("u", &"a".repeat(2049)).unwrap_err().text(),
            "u: longer than 2048 bytes"
        );
    }

    #[tokio::test]
    async fn host_name_is_allowed_if_its_addresses_are() {
        let name = || "localhost".parse::<Name>().ok().unwrap();
        assert!(
            EgressResolver(LOOPBACK_PERMITTED)
                .resolve(name())
                .await
                .is_ok_and(|mut found| found.all(|at| at.ip().is_loopback()))
        );
        let error = EgressResolver(LOOPBACK_FORBIDDEN).resolve(name()).await.map(drop).unwrap_err();
        assert_eq!(error.to_string(), "the egress policy permits no address of the host name");
    }

    #[test]
    fn configured_url_must_be_bare_https_or_loopback() {
        for good in [
            "https://kms.example",
            "https://kms.example:8443/base",
            "http://127.0.0.1:4566",
            "http://localhost:1",
            "http://[::1]:1/",
        ] {
            validate_base_url("endpoint", good).unwrap();
        }
        for bad in [
            "",
            "kms.example",
            "/kms",
            "ftp://kms.example",
            "http://kms.example",
            "http://127.0.0.1.example",
            "http://localhost.example",
            "https://user@kms.example",
            "https://user:word@kms.example",
            "https://kms.example/?a=b",
            "https://kms.example/#a",
            "file:///etc/passwd",
        ] {
            let error = validate_base_url("endpoint", bad).unwrap_err();
            assert!(error.text().starts_with("endpoint: must be an absolute https URL"), "{bad}: {error}");
        }
    }
}
