//! Canonical forms in which a parameter value is compared with a value in a rule.
//!
//! Texts are lower-cased and trimmed. Host names lose the final dot and are in ASCII; URIs are percent-encoded;
//! addresses, networks and serial numbers are written as in responses. Separators between hexadecimal bytes, prefixes
//! of key usages, and slashes around paths are removed. Hexadecimal numbers become decimal.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::spelling::{Spelling, lower};
use crate::x509::general_name;

/// Maximum length of a host name label in characters.
const MAX_LABEL_CHARS: usize = 63;

/// Maximum length in bytes of a text that is converted to other forms than lower case.
const MAX_CONVERTED_BYTES: usize = 8 << 10;

/// Returns all canonical forms of a text, or of a pattern with `*` at its start or end.
pub(super) fn canonical_forms(text: &str) -> Vec<String> {
    let lowered = lower(text.trim()).into_owned();
    if lowered.len() > MAX_CONVERTED_BYTES {
        return vec![lowered];
    }
    let begin = lowered.strip_prefix('*').unwrap_or(&lowered);
    let core = begin.strip_suffix('*').unwrap_or(begin);
    let head = begin.len() < lowered.len();
    let tail = core.len() < begin.len();
    let others =
        [Some(name_form(core, tail)), byte_string_form(core, head, tail), uri_form(core), path_form(core, head, tail)];
    let others = others.into_iter().chain([decimal_form(core).filter(|_| !head && !tail)]).flatten();
    let star = |is: bool| if is { "*" } else { "" };
    let others: Vec<String> =
        others.filter(|other| other != core).map(|other| format!("{}{other}{}", star(head), star(tail))).collect();
    others.into_iter().chain([lowered.clone()]).collect()
}

/// Text before and after the canonical form of a byte string, so that the form equals no other text.
const BYTE_STRING_END: &str = "\0";

/// Returns the hexadecimal digits of a byte string without separators; `None` if the text is no byte string. `head` and
/// `tail` are `true` if a `*` precedes or follows the text in a pattern.
fn byte_string_form(text: &str, head: bool, tail: bool) -> Option<String> {
    let open = text.strip_suffix([':', '-']).filter(|_| tail).unwrap_or(text);
    let open = open.strip_prefix([':', '-']).filter(|_| head).unwrap_or(open);
    let is_hex =
        |part: &str| part.len() >= 2 && part.len().is_multiple_of(2) && part.bytes().all(|b| b.is_ascii_hexdigit());
    let is_octets = is_hex(open) || open.split([':', '-']).all(|part| part.len() == 2 && is_hex(part));
    let end = |open: bool| if open { "" } else { BYTE_STRING_END };
    is_octets.then(|| format!("{}{}{}", end(head), open.replace([':', '-'], ""), end(tail)))
}

fn uri_form(text: &str) -> Option<String> {
    text.contains(':').then(|| lower(&general_name::percent_encode(text)).into_owned())
}

/// Returns a path without slashes at its ends, except at an end where a `*` of the pattern matches more text; `None` if
/// that changes nothing.
fn path_form(text: &str, head: bool, tail: bool) -> Option<String> {
    let from_begin = if head { text } else { text.trim_start_matches('/') };
    let bare = if tail { from_begin } else { from_begin.trim_end_matches('/') };
    (bare.len() < text.len() && !bare.is_empty() && !text.contains(':')).then(|| bare.to_owned())
}

fn decimal_form(text: &str) -> Option<String> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok().map(|number| number.to_string())
}

/// Renders a network with its host bits cleared, IPv4-mapped IPv6 as IPv4, and a single address without a prefix
/// length.
fn canonical_network(network: IpNet) -> String {
    let mapped = match network {
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
        IpNet::V4(_) => None,
    };
    let mapped = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    let network = mapped.map_or(network, IpNet::V4).trunc();
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}

/// Pairs of values with the same meaning; the second value of a pair is the canonical one.
const VALUE_SYNONYMS: [(&str, &str); 3] =
    [("default-batch", "batch"), ("default-service", "service"), ("azure", "cloudb")];

/// Optional prefixes of key usage names in requests.
const KEY_USAGE_PREFIXES: [&str; 2] = ["extkeyusage", "keyusage"];

/// Converts a name to the canonical form of its kind (address, host name, serial number …). `open` is `true` for the
/// start of a pattern that ends in `*`, so that more text may follow.
fn name_form(text: &str, open: bool) -> String {
    if let Ok(address) = text.parse::<IpAddr>() {
        return address.to_canonical().to_string();
    }
    if let Ok(network) = text.parse::<IpNet>() {
        return canonical_network(network);
    }
    if let Some((_, word)) = VALUE_SYNONYMS.iter().find(|(other, _)| *other == text) {
        return (*word).to_owned();
    }
    // Only letters may follow the prefix. Otherwise, the text may be a host name that begins in the same way; host
    // names are converted below.
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic());
    if let Some(usage) = KEY_USAGE_PREFIXES.iter().find_map(|begin| text.strip_prefix(begin)).filter(is_word) {
        return usage.to_owned();
    }
    let serial = Spelling::Serial.canonical(text);
    if *serial != *text {
        return serial.into_owned();
    }
    // Clients write the type of an otherName value as `utf-8` or `utf8`.
    let text = text.replacen(";utf-8:", ";utf8:", 1);
    let (local, host) =
        text.rsplit_once('@').map_or(("", &text[..]), |(_, host)| text.split_at(text.len() - host.len()));
    let host = if open { host } else { host.strip_suffix('.').unwrap_or(host) };
    let labels: Vec<String> = host.split('.').map(ascii_label).collect();
    format!("{local}{}", labels.join("."))
}

/// Converts a host name label to ASCII (RFC 3492), as in certificates.
fn ascii_label(label: &str) -> String {
    if label.is_ascii() || label.chars().nth(MAX_LABEL_CHARS).is_some() {
        return label.to_owned();
    }
    idna::punycode::encode_str(label).map_or_else(|| label.to_owned(), |encoded| format!("xn--{encoded}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_a_form_and_different_ones_do_not() {
        let meet = |one: &str, other: &str| {
            let others = canonical_forms(other);
            canonical_forms(one).iter().any(|form| others.contains(form))
        };
        for (one, other) in [
            ("0a0b", "0A:0b"),
            ("0a0b", "0a-0B"),
            ("0a:0b:*", "0a0b*"),
            ("http://a.test/a%20b", "http://A.test/a b"),
            ("http://a.test/%c3%bc*", "http://a.test/ü*"),
            ("urn:x#a%23b", "urn:x#a#b"),
            ("pki", "/pki/"),
            ("sys/x/*", "/sys/x/*"),
            ("0x1", "0X0001"),
            ("4", "0x04"),
        ] {
            assert!(meet(one, other), "{one} {other}: {:?} {:?}", canonical_forms(one), canonical_forms(other));
        }
        for (one, other) in
            [("0a0b", "0a:b0"), ("a/b", "ab"), ("a/*", "a*"), ("*/a", "*a"), ("be-ef-x", "beefx"), ("0xg", "0")]
        {
            assert!(!meet(one, other), "{one} {other}: {:?} {:?}", canonical_forms(one), canonical_forms(other));
        }
    }
}
