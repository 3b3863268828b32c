//! The networks whose requests are counted together: a client, or a network around it that shares a bucket.
//!
//! A client is an IPv4 address or an IPv6 /64, because the holder of one IPv6 address usually has its whole /64. The
//! surrounding networks have the usual sizes of allocations to households, organizations and providers.

use std::net::IpAddr;

use crate::caller_network::CallerNetwork;

/// Prefix lengths of IPv4, narrowest first, down to all of IPv4.
const V4_PREFIX_LENGTHS: [u8; 4] = [32, 24, 16, 0];
/// Prefix lengths of IPv6.
const V6_PREFIX_LENGTHS: [u8; 5] = [64, 56, 48, 32, 0];

/// A network of one address family; the narrowest ones are clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClientNetwork {
    /// IPv4: prefix length, and the address with the bits after the prefix set to zero.
    V4 { length: u8, bits: u32 },
    /// IPv6: the same for the upper half of the address.
    V6 { length: u8, bits: u64 },
    /// The client has no known address.
    Unknown,
}

impl ClientNetwork {
    /// Returns the network that counts as the client at this address.
    pub(super) fn of(address: Option<IpAddr>) -> Self {
        match address.map(|address| CallerNetwork::of(address).first_address()) {
            Some(IpAddr::V4(address)) => Self::V4 { length: V4_PREFIX_LENGTHS[0], bits: address.to_bits() },
            Some(IpAddr::V6(address)) => {
                Self::V6 { length: V6_PREFIX_LENGTHS[0], bits: (address.to_bits() >> 64) as u64 }
            }
            None => Self::Unknown,
        }
    }

    /// Returns the next wider network; `None` for a whole family.
    pub(super) fn wider(self) -> Option<Self> {
        let next = |lengths: &[u8], length| lengths.iter().copied().find(|wider| *wider < length);
        match self {
            Self::V4 { length, bits } => {
                let length = next(&V4_PREFIX_LENGTHS, length)?;
                Some(Self::V4 { length, bits: bits & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0) })
            }
            Self::V6 { length, bits } => {
                let length = next(&V6_PREFIX_LENGTHS, length)?;
                Some(Self::V6 { length, bits: bits & u64::MAX.checked_shl(64 - u32::from(length)).unwrap_or(0) })
            }
            Self::Unknown => None,
        }
    }

    /// Returns all surrounding networks, narrowest first.
    pub(super) fn surrounding(self) -> impl Iterator<Item = Self> {
        std::iter::successors(self.wider(), |network| network.wider())
    }

    /// Number of steps by which the network is wider than a client.
    pub(super) fn steps(self) -> usize {
        let narrower = |lengths: &[u8], length| lengths.iter().take_while(|narrower| **narrower > length).count();
        match self {
            Self::V4 { length, .. } => narrower(&V4_PREFIX_LENGTHS, length),
            Self::V6 { length, .. } => narrower(&V6_PREFIX_LENGTHS, length),
            Self::Unknown => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network_of(text: &str) -> ClientNetwork {
        ClientNetwork::of(Some(text.parse().unwrap()))
    }

    #[test]
    fn ipv6_network_counts_as_one_client() {
        assert_eq!(network_of("2001:db8::1"), network_of("2001:db8::ffff:0:0:1"));
        assert_ne!(network_of("2001:db8::1"), network_of("2001:db8:0:1::1"));
        assert_eq!(network_of("::ffff:192.0.2.1"), network_of("192.0.2.1"));
        assert_ne!(network_of("192.0.2.1"), network_of("192.0.2.2"));
        assert_eq!(ClientNetwork::of(None), ClientNetwork::Unknown);
    }

    #[test]
    fn client_networks_nest_by_neighbourhood_and_family() {
        let common = |one: &str, other: &str| {
            network_of(one).surrounding().zip(network_of(other).surrounding()).filter(|(a, b)| a == b).count()
        };
        for (one, other, networks) in [
            ("192.0.2.1", "192.0.2.255", 3),
            ("192.0.2.1", "192.0.3.1", 2),
            ("192.0.2.1", "192.1.2.1", 1),
            ("2001:db8:1:ff01::", "2001:db8:1:ff02::", 4),
            ("2001:db8:1:ff01::", "2001:db8:1:fe01::", 3),
            ("2001:db8:1::", "2001:db8:2::", 2),
            ("2001:db8::", "2001:db9::", 1),
            ("192.0.2.1", "2001:db8::", 0),
            ("0.0.0.0", "::2", 0),
        ] {
            assert_eq!(common(one, other), networks, "{one} {other}");
        }
        let steps = |client: ClientNetwork| client.surrounding().map(ClientNetwork::steps).collect::<Vec<_>>();
        assert_eq!(
            (steps(network_of("192.0.2.1")), steps(network_of("2001:db8::"))),
            (vec![1, 2, 3], vec![1, 2, 3, 4])
        );
        assert_eq!((network_of("192.0.2.1").steps(), steps(ClientNetwork::Unknown)), (0, vec![]));
    }
}
