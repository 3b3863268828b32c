//! The network that counts as one caller, for limits per address.
//!
//! A site gets a whole IPv6 /64 or more (RFC 6177), so an IPv6 caller can send each request from another address of its
//! /64. Every limit, queue and count per address uses this type, whose only constructor maps an address to its network.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, or a /64 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerNetwork(IpAddr);

impl CallerNetwork {
    /// Returns the network that contains a caller's address. An IPv4-mapped IPv6 address counts as the IPv4 address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }

    /// Returns the first address of the network.
    pub fn first_address(self) -> IpAddr {
        self.0
    }
}

impl fmt::Display for CallerNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_64_are_one_caller() {
        let of = |text: &str| CallerNetwork::of(text.parse().unwrap()).to_string();
        for (address, network) in [
            ("2001:db8::1", "2001:db8::/64"),
            ("2001:db8::ffff:0:0:1", "2001:db8::/64"),
            ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.2", "192.0.2.2"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(of(address), network);
        }
    }
}
