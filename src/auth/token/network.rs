//! IP networks to which tokens and roles can be restricted.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fields::{Fields, ListLimit};

/// Limits of a list of networks: the number of networks, and the length of each in bytes.
const NETWORK_LIST_LIMITS: ListLimit = ListLimit::new(256, 64).rejecting_only_empty();

/// An IP network such as `192.0.2.0/24` or `2001:db8::/32`, or a single address. It is rendered as it was given, with
/// or without prefix length, because clients that compare texts distinguish `192.0.2.1` from `192.0.2.1/32`.
/// IPv4-mapped IPv6 is converted to IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    net: IpNet,
    /// `true` if the network was given as an address without a prefix length.
    bare: bool,
}

impl Network {
    /// Parses a network or a single address; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let Some((address, prefix)) = text.split_once('/') else { return text.parse().ok().map(Self::of) };
        // The parser of the library accepts leading zeros in the prefix length, which other parsers read as octal.
        let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
        let network = IpNet::new(address.parse().ok()?, prefix.parse().ok().filter(|_| digits)?).ok()?;
        if let IpNet::V6(v6) = network
            && let Some(v4) = v6.addr().to_ipv4_mapped()
        {
            let prefix = v6.prefix_len().checked_sub(96)?;
            return Ipv4Net::new(v4, prefix).ok().map(|net| Self { net: net.into(), bare: false });
        }
        Some(Self { net: network, bare: false })
    }

    /// Returns the network that contains only this address.
    pub fn of(address: IpAddr) -> Self {
        Self { net: IpNet::from(address.to_canonical()), bare: true }
    }

    /// Returns the network so that a single address is rendered without a prefix length, as in tokens and token
    /// settings.
    pub fn with_bare_address(self) -> Self {
        Self { bare: self.net.prefix_len() == self.net.max_prefix_len(), ..self }
    }

    /// `true` if the network contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.net.contains(&address.to_canonical())
    }

    /// `true` if one of the networks contains the client's address. An empty list allows every client, even one whose
    /// address is unknown.
    pub fn list_allows_address(networks: &[Self], address: Option<IpAddr>) -> bool {
        networks.is_empty() || address.is_some_and(|at| networks.iter().any(|network| network.contains(at)))
    }

    /// `true` if each network of `inner` lies within one of `outer`. An empty `outer` contains every network.
    pub fn all_within(inner: &[Self], outer: &[Self]) -> bool {
        outer.is_empty() || inner.iter().all(|inner| outer.iter().any(|outer| outer.net.contains(&inner.net)))
    }

    /// Parses the list of networks in the field `name`; `None` if the field is absent.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    pub fn parse_list(fields: &Fields, name: &str) -> Result<Option<Vec<Self>>> {
        let Some(texts) = fields.list_within(name, NETWORK_LIST_LIMITS)? else { return Ok(None) };
        let parsed: Option<Vec<Self>> = texts.iter().map(|text| Self::parse(text)).collect();
        let parsed = parsed.ok_or_else(|| {
            Error::invalid(format!("{name}: must be IP addresses and networks, such as 192.0.2.1 and 192.0.2.0/24"))
        });
        parsed.map(Some)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bare { self.net.addr().fmt(f) } else { self.net.fmt(f) }
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl TryFrom<String> for Network {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        Self::parse(&text).ok_or("must be an IP address or a network")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_text_is_kept_as_given() {
        for (text, written) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.7/24", "192.0.2.7/24"),
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1/32", "192.0.2.1/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ] {
            assert_eq!(Network::parse(text).unwrap().to_string(), written, "{text}");
        }
        for (text, written) in [("192.0.2.1/32", "192.0.2.1"), ("::1", "::1"), ("::/0", "::/0")] {
            assert_eq!(Network::parse(text).unwrap().with_bare_address().to_string(), written, "{text}");
        }
        for text in ["", "/", "192.0.2/24", "192.0.2.01", "192.0.2.0/33", "192.0.2.0/+4", "::ffff:192.0.2.0/8", "host"]
        {
            assert!(Network::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn network_list_is_a_subset_if_each_network_is() {
        let list = |text: &str| -> Vec<Network> { text.split(' ').map(|text| Network::parse(text).unwrap()).collect() };
        let outer = list("192.0.2.9/24 2001:db8::/32");
        for (inner, within) in [
            ("192.0.2.0/24", true),
            ("192.0.2.77 2001:db8:1::/48", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.0/23", false),
            ("192.0.2.1 192.0.3.1", false),
            ("::/0", false),
        ] {
            assert_eq!(Network::all_within(&list(inner), &outer), within, "{inner}");
        }
        assert!(Network::all_within(&outer, &[]) && Network::all_within(&[], &outer));
    }

    #[test]
    fn address_is_allowed_if_any_network_contains_it() {
        let networks = ["192.0.2.9/24", "::1"].map(|text| Network::parse(text).unwrap());
        let passes = |address: &str| Network::list_allows_address(&networks, Some(address.parse().unwrap()));
        assert!(passes("192.0.2.200") && passes("::ffff:192.0.2.200") && passes("::1"));
        assert!(!passes("192.0.3.1") && !passes("::2"));
        assert!(!Network::list_allows_address(&networks, None) && Network::list_allows_address(&[], None));
    }
}
