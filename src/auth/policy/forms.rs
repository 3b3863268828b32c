//! The forms in which a text of a request, or of a rule, is compared: in lower case, without blanks around it, and in the
//! one form that names of its kind have. Host names are without the root's dot and in ASCII, URIs with their escapes,
//! addresses, networks and serial numbers in the form of answers, other octets without what stands between them, usages
//! without the prefix of their type, paths without slashes around them, numbers in hexadecimal as numbers.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::spelling::{Spelling, lower};
use crate::x509::general_name;

/// Longest label of a host name, characters.
const MAX_LABEL: usize = 63;

/// Longest text that may be a name of some kind, octets.
const LONGEST: usize = 8 << 10;

/// A text, or a pattern, as it is compared.
pub(super) fn forms(text: &str) -> Vec<String> {
    let lowered = lower(text.trim()).into_owned();
    if lowered.len() > LONGEST {
        return vec![lowered];
    }
    let begin = lowered.strip_prefix('*').unwrap_or(&lowered);
    let core = begin.strip_suffix('*').unwrap_or(begin);
    let (head, tail) = (begin.len() < lowered.len(), core.len() < begin.len());
    let others = [Some(plain(core, tail)), octets(core, head, tail), uri(core), path(core, head, tail)];
    let others = others.into_iter().chain([hexadecimal(core).filter(|_| !head && !tail)]).flatten();
    let star = |is: bool| if is { "*" } else { "" };
    let others: Vec<String> =
        others.filter(|other| other != core).map(|other| format!("{}{other}{}", star(head), star(tail))).collect();
    others.into_iter().chain([lowered.clone()]).collect()
}

/// What the form of octets has at its ends: it is equal to no other text.
const END: &str = "\0";

/// Octets, two digits each, without what stands between them.
fn octets(text: &str, head: bool, tail: bool) -> Option<String> {
    let open = text.strip_suffix([':', '-']).filter(|_| tail).unwrap_or(text);
    let open = open.strip_prefix([':', '-']).filter(|_| head).unwrap_or(open);
    let is_hex =
        |part: &str| part.len() >= 2 && part.len().is_multiple_of(2) && part.bytes().all(|b| b.is_ascii_hexdigit());
    let is_octets = is_hex(open) || open.split([':', '-']).all(|part| part.len() == 2 && is_hex(part));
    let end = |open: bool| if open { "" } else { END };
    is_octets.then(|| format!("{}{}{}", end(head), open.replace([':', '-'], ""), end(tail)))
}

/// A URI as it is encoded.
fn uri(text: &str) -> Option<String> {
    text.contains(':').then(|| lower(&general_name::escaped(text)).into_owned())
}

/// A path without slashes around it, where nothing else may stand.
fn path(text: &str, head: bool, tail: bool) -> Option<String> {
    let from_begin = if head { text } else { text.trim_start_matches('/') };
    let bare = if tail { from_begin } else { from_begin.trim_end_matches('/') };
    (bare.len() < text.len() && !bare.is_empty() && !text.contains(':')).then(|| bare.to_owned())
}

/// A number in hexadecimal, as it is in decimal.
fn hexadecimal(text: &str) -> Option<String> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok().map(|number| number.to_string())
}

/// Without what is behind the prefix, of IPv4 in its own form, and one address as that.
fn network_in_one_form(network: IpNet) -> String {
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

/// Other words for the same thing.
const SYNONYMS: [(&str, &str); 3] = [("default-batch", "batch"), ("default-service", "service"), ("azure", "cloudb")];

/// What words of usages may begin with.
const USAGES: [&str; 2] = ["extkeyusage", "keyusage"];

/// The one form that a name of its kind has; `open` when more may follow it.
fn plain(text: &str, open: bool) -> String {
    if let Ok(address) = text.parse::<IpAddr>() {
        return address.to_canonical().to_string();
    }
    if let Ok(network) = text.parse::<IpNet>() {
        return network_in_one_form(network);
    }
    if let Some((_, word)) = SYNONYMS.iter().find(|(other, _)| *other == text) {
        return (*word).to_owned();
    }
    // A host name may begin so, too, and has its own form.
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic());
    if let Some(usage) = USAGES.iter().find_map(|begin| text.strip_prefix(begin)).filter(is_word) {
        return usage.to_owned();
    }
    let serial = Spelling::Serial.canonical(text);
    if *serial != *text {
        return serial.into_owned();
    }
    // The two spellings of the type of an otherName.
    let text = text.replacen(";utf-8:", ";utf8:", 1);
    let (local, host) =
        text.rsplit_once('@').map_or(("", &text[..]), |(_, host)| text.split_at(text.len() - host.len()));
    let host = if open { host } else { host.strip_suffix('.').unwrap_or(host) };
    let labels: Vec<String> = host.split('.').map(ascii_label).collect();
    format!("{local}{}", labels.join("."))
}

/// A label of a host name in ASCII (RFC 3492), as certificates have it.
fn ascii_label(label: &str) -> String {
    if label.is_ascii() || label.chars().nth(MAX_LABEL).is_some() {
        return label.to_owned();
    }
    idna::punycode::encode_str(label).map_or_else(|| label.to_owned(), |encoded| format!("xn--{encoded}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_a_form_in_common_and_two_have_none() {
        let meet = |one: &str, other: &str| {
            let others = forms(other);
            forms(one).iter().any(|form| others.contains(form))
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
            assert!(meet(one, other), "{one} {other}: {:?} {:?}", forms(one), forms(other));
        }
        for (one, other) in
            [("0a0b", "0a:b0"), ("a/b", "ab"), ("a/*", "a*"), ("*/a", "*a"), ("be-ef-x", "beefx"), ("0xg", "0")]
        {
            assert!(!meet(one, other), "{one} {other}: {:?} {:?}", forms(one), forms(other));
        }
    }
}
