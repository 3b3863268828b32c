//! Host names: conversion to ASCII, and the syntax of DNS names.
//!
//! Conversion is Punycode only (RFC 3492, the `xn--` form of RFC 5890): ASCII labels stay unchanged and nothing is
//! mapped or folded, so a certificate contains exactly the requested name. A separate check rejects non-ASCII labels
//! that UTS #46 would change in more than ASCII case, such as `BÜCHER` or full-width dots, because resolvers would look
//! up another name.

use std::borrow::Cow;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

use crate::x509::profile;

/// Maximum length of a label of a host name, in bytes (RFC 1035 2.3.4).
const MAX_LABEL_BYTES: usize = 63;
/// Maximum length of a host name without a trailing dot, in bytes.
const MAX_HOST_NAME_BYTES: usize = 253;

/// Reason why a text has no ASCII form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsciiConversionError {
    /// The text has an empty label: `..`, a leading dot, or no characters at all.
    EmptyLabel,
    /// A label is longer than 63 bytes in ASCII.
    LongLabel,
    /// The text is longer than 253 bytes in ASCII.
    LongName,
}

impl AsciiConversionError {
    /// Returns the problem as text, to be appended to the name in an error.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::EmptyLabel => "has an empty label",
            Self::LongLabel => "has a label longer than 63 characters",
            Self::LongName => "is longer than 253 characters",
        }
    }
}

/// Converts a host name to ASCII, label by label; keeps a trailing dot.
pub(crate) fn to_ascii(name: &str) -> Result<Cow<'_, str>, AsciiConversionError> {
    // The ASCII form has at least as many characters as `name`, so reject a long name before doing work that grows with
    // its length.
    if name.chars().nth(MAX_HOST_NAME_BYTES + 1).is_some() {
        return Err(AsciiConversionError::LongName);
    }
    let stem = name.strip_suffix('.').unwrap_or(name);
    let ascii = if name.is_ascii() {
        Cow::Borrowed(name)
    } else {
        let labels = stem.split('.').map(label_to_ascii).collect::<Result<Vec<_>, _>>()?;
        let mut joined = labels.join(".");
        joined.push_str(&name[stem.len()..]);
        Cow::Owned(joined)
    };
    let stem = ascii.strip_suffix('.').unwrap_or(&ascii);
    for label in stem.split('.') {
        match label.len() {
            0 => return Err(AsciiConversionError::EmptyLabel),
            1..=MAX_LABEL_BYTES => {}
            _ => return Err(AsciiConversionError::LongLabel),
        }
    }
    if stem.len() > MAX_HOST_NAME_BYTES { Err(AsciiConversionError::LongName) } else { Ok(ascii) }
}

fn label_to_ascii(label: &str) -> Result<Cow<'_, str>, AsciiConversionError> {
    if label.is_ascii() {
        return Ok(Cow::Borrowed(label));
    }
    if label.chars().nth(MAX_LABEL_BYTES).is_some() {
        return Err(AsciiConversionError::LongLabel);
    }
    let encoded = idna::punycode::encode_str(label).ok_or(AsciiConversionError::LongLabel)?;
    Ok(Cow::Owned(format!("xn--{encoded}")))
}

/// Returns the ASCII form for a dNSName if `name` is a host name, optionally with a leading `*.`. Returns `None` for
/// names with a trailing dot (RFC 5280 4.2.1.6) and names that end in a number.
pub(crate) fn dns_form(name: &str) -> Result<Option<String>, AsciiConversionError> {
    let ascii = to_ascii(name)?;
    let is_host = has_host_syntax(name, ascii.strip_prefix("*.").unwrap_or(&ascii)) && !ends_in_number(&ascii);
    Ok(is_host.then(|| ascii.into_owned()))
}

/// `true` if `name` (without wildcard) has the syntax of a host name. A name that ends in a number is accepted, because
/// a common name may end in a number. A caller that creates a dNSName must reject such a name itself.
pub(crate) fn is_host_name(name: &str) -> bool {
    to_ascii(name).is_ok_and(|ascii| has_host_syntax(name, &ascii))
}

fn has_host_syntax(name: &str, ascii: &str) -> bool {
    ascii.split('.').all(is_label) && name.split('.').all(is_unchanged_by_uts46)
}

/// `true` if clients would parse the name as an IPv4 address, such as `127.1`, `2130706433` or `0x7f000001`. The last
/// label of a host name is alphabetic (RFC 1123 2.1; host parser of the URL standard).
pub(crate) fn ends_in_number(name: &str) -> bool {
    let last = name.strip_suffix('.').unwrap_or(name).rsplit('.').next().unwrap_or_default();
    let digits = |text: &str, is_digit: fn(&u8) -> bool| text.bytes().all(|b| is_digit(&b));
    match last.strip_prefix("0x").or_else(|| last.strip_prefix("0X")) {
        Some(hex) => digits(hex, u8::is_ascii_hexdigit),
        None => !last.is_empty() && digits(last, u8::is_ascii_digit),
    }
}

/// `true` for a valid wildcard label with one `*`: the texts on both sides of the `*` are empty or valid labels, so no
/// hyphen touches it.
pub(crate) fn is_wildcard_label(label: &str) -> bool {
    let fits = |part: &str| part.is_empty() || is_label(part);
    label.split_once('*').is_some_and(|(left, right)| fits(left) && fits(right))
}

/// `true` for letters, digits and inner hyphens (RFC 1123 2.1). A label that begins with `xn--` must be a valid
/// A-label.
fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
        && profile::is_decodable(label)
}

/// `true` if a resolver that applies UTS #46 looks up exactly this label.
fn is_unchanged_by_uts46(label: &str) -> bool {
    if label.is_ascii() {
        return true;
    }
    let lower = label.to_ascii_lowercase();
    let mapped = Uts46::new().to_ascii(lower.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore);
    matches!((mapped, label_to_ascii(&lower)), (Ok(mapped), Ok(own)) if mapped == own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn host_to_ascii_uses_only_punycode_and_checks_lengths() {
        let l63 = "a".repeat(63);
        let l64 = "a".repeat(64);
        let n253 = format!("{l63}.{l63}.{l63}.{}", "a".repeat(61));
        let n254 = format!("{n253}a");
        for (name, ascii) in [
            ("bücher.example", Ok("xn--bcher-kva.example")),
            ("Bücher.example", Ok("xn--Bcher-kva.example")),
            ("Example.NET", Ok("Example.NET")),
            ("foo_bar", Ok("foo_bar")),
            ("example.com.", Ok("example.com.")),
            ("bücher.", Ok("xn--bcher-kva.")),
            ("*.foo", Ok("*.foo")),
            ("a..b", Err(AsciiConversionError::EmptyLabel)),
            (".a", Err(AsciiConversionError::EmptyLabel)),
            (".", Err(AsciiConversionError::EmptyLabel)),
            ("ü..b", Err(AsciiConversionError::EmptyLabel)),
            ("", Err(AsciiConversionError::EmptyLabel)),
            (&l63, Ok(&l63)),
            (&l64, Err(AsciiConversionError::LongLabel)),
            (&"ü".repeat(64), Err(AsciiConversionError::LongLabel)),
            (&n253, Ok(&n253)),
            (&format!("{n253}."), Ok(&format!("{n253}."))),
            (&n254, Err(AsciiConversionError::LongName)),
            (&"ü.".repeat(100_000), Err(AsciiConversionError::LongName)),
        ] {
            assert_eq!(to_ascii(name).as_deref(), ascii.as_deref(), "{name}");
        }
    }

    #[test]
    fn host_names_are_letters_digits_and_inner_hyphens() {
        for good in ["a", "a.b", "a-b.c", "1.2", "xn--bcher-kva.foo", "bücher.foo", "日本.example", "A.b", "a--b.c"]
        {
            assert!(is_host_name(good), "{good}");
        }
        for bad in ["", ".", "a.", "-a", "a-", "a_b", "a b", "a..b", "*.a", "*", "a*", "a@b", "a\nb", "a.\n", "a\u{0}"]
        {
            assert!(!is_host_name(bad), "{bad:?}");
        }
        assert_eq!(dns_form("*.Foo"), Ok(Some("*.Foo".into())));
        assert_eq!(dns_form("*.*.foo"), Ok(None));
        assert_eq!(dns_form("x*.foo"), Ok(None));
    }

    #[test]
    fn host_name_ending_in_a_number_is_refused() {
        let addresses =
            ["1.2.3.4", "127.1", "2130706433", "0x7f000001", "0X7F.1", "0x", "a.0x1F", "017700000001", "a.1", "127.1."];
        for name in addresses {
            assert!(ends_in_number(name), "{name}");
            assert_eq!(dns_form(name), Ok(None), "{name}");
        }
        assert_eq!(dns_form("*.1"), Ok(None));
        for name in ["1.a", "1a", "0xg", "x1", "10.in-addr.arpa", "1.2.3.4.test", "3com.com", "xn--1-7", "", "a.-1"] {
            assert!(!ends_in_number(name), "{name}");
        }
    }

    #[test]
    fn label_that_resolvers_would_map_is_refused() {
        // Labels with upper case, full-width letters, an ideographic full stop, a soft hyphen, a combining form, an
        // unassigned character, and a prefixed non-ASCII label.
        for name in ["BÜCHER.foo", "ｆｏｏ.com", "a。b", "a\u{ad}b", "bu\u{308}cher.foo", "\u{378}.foo", "xn--ü.foo"]
        {
            assert!(!is_host_name(name), "{name}");
        }
    }

    #[test]
    fn wildcard_label_allows_text_but_no_hyphen_next_to_the_star() {
        for good in ["*", "a*", "*a", "b*c", "a-b*c"] {
            assert!(is_wildcard_label(good), "{good}");
        }
        for bad in ["b*-c", "*-", "-*", "a-*", "a", "a_*"] {
            assert!(!is_wildcard_label(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn host_of_any_text_does_not_panic_and_stays_ascii(name in "\\PC{0,80}") {
            if let Ok(ascii) = to_ascii(&name) {
                prop_assert!(ascii.is_ascii() && ascii.len() <= MAX_HOST_NAME_BYTES + 1);
            }
            let _ = (dns_form(&name), is_host_name(&name), is_wildcard_label(&name), ends_in_number(&name));
        }

        #[test]
        fn ascii_names_are_never_changed(name in "[ -~]{1,40}") {
            if let Ok(ascii) = to_ascii(&name) {
                prop_assert_eq!(ascii.as_ref(), name.as_str());
            }
        }

        #[test]
        fn encoded_label_decodes_to_itself(label in "[a-zäöü日本кириλ]{1,12}") {
            let ascii = to_ascii(&label).unwrap();
            let decoded = match ascii.strip_prefix("xn--") {
                Some(code) => idna::punycode::decode_to_string(code).unwrap(),
                None => ascii.into_owned(),
            };
            prop_assert_eq!(decoded, label);
        }
    }
}
