//! Names other than host names: IP addresses, URIs, otherNames, user ids and the subject's serial number. The role has
//! a list of allowed values for each kind.

use std::collections::HashMap;
use std::net::IpAddr;

use super::uri;
use crate::error::{Error, Result};
use crate::pki::mount::role::CompiledRole;
use crate::pki::values::oid::check_oid_size;
use crate::pki::values::{escape_for_message, parse_other_name};

/// Parses `ip_sans`: dotted quads without leading zeros, and IPv6 addresses.
pub(super) fn parse_ips(texts: &[String]) -> Result<Vec<IpAddr>> {
    let parse = |text: &String| {
        text.parse::<IpAddr>().map(unmap_ipv4).map_err(|_| {
            Error::invalid(format!("ip_sans: the value {} is not a valid IP address", escape_for_message(text)))
        })
    };
    texts.iter().map(parse).collect()
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
pub(super) fn unmap_ipv4(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// Checks IP addresses from `source` (`ip_sans`, `csr` or `common_name`) against the role.
pub(super) fn check_ips(role: &CompiledRole, source: &str, ips: &[IpAddr]) -> Result<()> {
    if ips.is_empty() {
        return Ok(());
    }
    if !role.allow_ip_sans {
        return Err(Error::invalid(format!("{source}: IP addresses are not allowed by this role")));
    }
    if role.allowed_ip_sans_cidr.is_empty() {
        return Ok(());
    }
    let networks = &role.allowed.networks;
    match ips.iter().find(|ip| !networks.iter().any(|net| net.contains(*ip))) {
        Some(ip) => Err(Error::invalid(format!("{source}: IP address {ip} is not allowed by this role"))),
        None => Ok(()),
    }
}

/// Checks URIs from `source`, as the caller wrote them, against the role's patterns.
pub(super) fn check_uris(role: &CompiledRole, source: &str, uris: &[String]) -> Result<()> {
    let allowed = &role.allowed.uris;
    if allowed.is_empty() && !uris.is_empty() {
        return Err(Error::invalid(format!("{source}: URIs are not allowed by this role")));
    }
    match uris.iter().find(|uri| !allowed.matches(uri)) {
        Some(uri) => {
            Err(Error::invalid(format!("{source}: URI {} is not allowed by this role", escape_for_message(uri))))
        }
        None => Ok(()),
    }
}

/// Encodes URIs from `source` as ASCII texts for the certificate.
pub(super) fn encode_uris(source: &str, uris: &[String]) -> Result<Vec<String>> {
    let encodable = |uri: &String| {
        uri::encode_uri(uri)
            .map_err(|problem| Error::invalid(format!("{source}: URI {} {problem}", escape_for_message(uri))))
    };
    uris.iter().map(encodable).collect()
}

/// Parses the entries of `other_sans` into dotted OIDs and texts.
pub(super) fn parse_others(texts: &[String]) -> Result<Vec<(String, String)>> {
    let parse = |text: &String| {
        let (oid, value) = parse_other_name("other_sans", text)?;
        check_oid_size("other_sans", &oid)?;
        Ok((oid, value))
    };
    texts.iter().map(parse).collect()
}

/// Checks otherNames against the role.
pub(super) fn check_others(role: &CompiledRole, others: &[(String, String)]) -> Result<()> {
    let Some(allowed) = &role.allowed.other_names else { return Ok(()) };
    for (oid, value) in others {
        let Some(patterns) = allowed.get(oid) else {
            return Err(Error::invalid(format!("other_sans: other SAN OID {oid} is not allowed by this role")));
        };
        if !patterns.matches(value) {
            let value = escape_for_message(value);
            return Err(Error::invalid(format!(
                "other_sans: other SAN {value} is not allowed for OID {oid} by this role"
            )));
        }
    }
    Ok(())
}

/// Groups otherNames by OID, in the order of first appearance.
pub(super) fn group_by_oid(others: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut first = HashMap::new();
    for (at, (oid, _)) in others.iter().enumerate() {
        first.entry(oid.clone()).or_insert(at);
    }
    let mut others = others;
    others.sort_by_key(|(oid, _)| first.get(oid).copied());
    others
}

/// Checks user ids against the role: each must match a pattern, or equal an entry when ASCII case is ignored.
pub(super) fn check_user_ids(role: &CompiledRole, user_ids: &[String]) -> Result<()> {
    let (patterns, texts) = &role.allowed.user_ids;
    let allowed = |id: &&String| texts.contains(id) || patterns.matches(id);
    match user_ids.iter().find(|id| !allowed(id)) {
        Some(id) => {
            Err(Error::invalid(format!("user_ids: user_id {} is not allowed by this role", escape_for_message(id))))
        }
        None => Ok(()),
    }
}

/// Checks the subject's serialNumber attribute (2.5.4.5, not the certificate's serial number) against the role.
pub(super) fn check_serial_number(role: &CompiledRole, serial_number: &str) -> Result<()> {
    if serial_number.is_empty() || role.allowed.serial_numbers.matches(serial_number) {
        return Ok(());
    }
    let shown = escape_for_message(serial_number);
    Err(Error::invalid(format!("serial_number: serial_number {shown} is not allowed by this role")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::values::parse_network;
    use proptest::prelude::*;

    #[test]
    fn ipv4_mapped_ipv6_is_reduced_to_ipv4() {
        let ips = parse_ips(&["::ffff:1.2.3.4".into(), "::1".into()]).unwrap();
        assert_eq!(ips, ["1.2.3.4".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
        assert_eq!(parse_network("::ffff:1.2.3.4/120").unwrap().to_string(), "1.2.3.0/24");
        assert_eq!(parse_network("1.2.3.4/31").unwrap().to_string(), "1.2.3.4/31");
        assert_eq!(parse_network("2001:db8::1/32").unwrap().to_string(), "2001:db8::/32");
        assert_eq!(parse_network("::/0").unwrap().to_string(), "::/0");
        for bad in
            ["1.2.3.4", "1.2.3.4/33", "x/8", "", "01.2.3.4/8", "1.2.3.4/+8", "1.2.3.4/", "::/129", "::ffff:1.2.3.4/95"]
        {
            assert_eq!(parse_network(bad), None, "{bad}");
        }
    }

    #[test]
    fn ip_texts_are_plain_addresses() {
        for bad in ["300.1.1.1", "01.2.3.4", "1.2.3", "1.2.3.4/32", "fe80::1%eth0", "[::1]", "0x1.2.3.4", ""] {
            assert!(parse_ips(&[bad.into()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn other_names_split_at_first_semicolon_then_first_colon() {
        assert_eq!(parse_other_name("f", "1.2.3;utf-8:a;b:c").unwrap(), ("1.2.3".into(), "a;b:c".into()));
        for bad in ["foo", "1.2;INT:5", "1.2.3", "1.2.3;UTF8", "x;UTF8:a", "1.2.3;UTF2:x", ";UTF8:a"] {
            assert!(
                parse_other_name("allowed_other_sans", bad).unwrap_err().text().starts_with("allowed_other_sans: ")
            );
        }
    }

    #[test]
    fn other_names_are_grouped_by_oid_in_first_seen_order() {
        let pairs_of =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>();
        let mixed = pairs_of(&[("1.2.9", "a"), ("1.2.3", "b"), ("1.2.9", "c"), ("1.2.3", "a")]);
        assert_eq!(group_by_oid(mixed), pairs_of(&[("1.2.9", "a"), ("1.2.9", "c"), ("1.2.3", "b"), ("1.2.3", "a")]));
    }

    proptest! {
        #[test]
        fn san_parsers_of_any_text_do_not_panic(text in "\\PC{0,40}") {
            let _ = (parse_other_name("f", &text), parse_ips(std::slice::from_ref(&text)), parse_network(&text));
        }

        #[test]
        fn network_contains_addresses_with_its_prefix(ip in any::<u32>(), other in any::<u32>(), prefix in 0u8..=32) {
            let net = parse_network(&format!("{}/{prefix}", std::net::Ipv4Addr::from(ip))).unwrap();
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            prop_assert_eq!(net.contains(&IpAddr::from(std::net::Ipv4Addr::from(other))), ip & mask == other & mask);
        }
    }
}
