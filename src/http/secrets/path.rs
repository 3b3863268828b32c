//! Validates and decodes a request path, before all other processing.
//!
//! The path is percent-decoded once, and routing and policies use the same text. Input that they could interpret
//! differently is rejected, not normalised: `.`, `..` and empty segments, encoded slashes, control and invisible
//! characters. The part of a path that matches `**tail` is exempt: it is data of another protocol, which the handler
//! decodes.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::fields::has_invisible;

/// Maximum length of a path in bytes, before decoding.
pub const MAX_PATH_BYTES: usize = 2048;

/// Returns the decoded path below `/v1/`.
///
/// # Errors
/// `Malformed`; the text names the rule that the path breaks.
pub fn validate(raw: &str) -> Result<Cow<'_, str>> {
    if raw.len() > MAX_PATH_BYTES {
        return reject("path: longer than 2048 bytes");
    }
    let path = if raw.contains('%') { Cow::Owned(percent_decode(raw)?) } else { Cow::Borrowed(raw) };
    if has_invisible(&path) {
        return reject("path: control and invisible characters are not allowed");
    }
    let segments = path.strip_suffix('/').unwrap_or(&path);
    if !path.is_empty() && segments.split('/').any(|s| matches!(s, "" | "." | "..")) {
        return reject("path: empty, '.' and '..' segments are not allowed");
    }
    Ok(path)
}

fn percent_decode(raw: &str) -> Result<String> {
    let mut out = Vec::with_capacity(raw.len());
    for octet in decode_bytes(raw.as_bytes()) {
        match octet {
            Some((b'/', true)) => return reject("path: an encoded '/' is not allowed"),
            Some((octet, _)) => out.push(octet),
            None => return reject("path: '%' must be followed by two hexadecimal digits"),
        }
    }
    String::from_utf8(out).or_else(|_| reject("path: not UTF-8"))
}

/// Decodes percent-encoded bytes. Each byte comes with `true` if it was encoded; `None` stands for a `%` without two
/// hexadecimal digits.
pub fn decode_bytes(raw: &[u8]) -> impl Iterator<Item = Option<(u8, bool)>> + '_ {
    let mut bytes = raw.iter().copied();
    std::iter::from_fn(move || {
        let octet = bytes.next()?;
        if octet != b'%' {
            return Some(Some((octet, false)));
        }
        let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16));
        let high = digit();
        let low = digit();
        Some(high.zip(low).map(|(high, low)| ((high * 16 + low) as u8, true)))
    })
}

fn reject<T>(text: &'static str) -> Result<T> {
    Err(Error::malformed(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ambiguous_path_is_refused_not_normalized() {
        for raw in [
            "sys/policies/acl/../../mounts",
            "sys/%2e%2e/mounts",
            "sys/%2E/mounts",
            "sys//mounts",
            "/sys/mounts",
            "sys/mounts//",
            "/",
            "sys/a%2fb",
            "sys/a%2Fb",
            "sys/%00",
            "sys/%0a",
            "sys/%7f",
            "sys/%c2%85",
            "sys/%e2%80%ae",
            "sys/%zz",
            "sys/%2",
            "sys/%",
            "sys/%ff",
            "..",
            ".",
        ] {
            assert!(validate(raw).is_err(), "{raw}");
        }
        assert!(validate(&"a".repeat(MAX_PATH_BYTES + 1)).is_err());
        // Format characters, tags, fillers, variation selectors, private-use characters and noncharacters.
        for c in "\u{61c}\u{180e}\u{34f}\u{115f}\u{3164}\u{ffa0}\u{fe0f}\u{fff9}\u{e0001}\u{e0061}\u{1d173}\u{e000}\u{fdd0}\u{fffe}\u{200b}\u{ad}\u{2028}\u{a0}\u{378}".chars() {
            assert!(validate(&format!("sys/policies/acl/adm{c}in")).is_err(), "{:x}", u32::from(c));
        }
        for c in "äΣя語가अ́ि1-é😀".chars() {
            assert!(validate(&format!("sys/policies/acl/adm{c}in")).is_ok(), "{:x}", u32::from(c));
        }
    }

    #[test]
    fn unambiguous_path_is_decoded_once() {
        for (raw, path) in [
            ("", ""),
            ("sys/health", "sys/health"),
            ("pki/roles/", "pki/roles/"),
            ("pki/cert/0a%3A0b", "pki/cert/0a:0b"),
            ("a/%252e%252e", "a/%2e%2e"),
            ("a/..b/c.", "a/..b/c."),
            ("a/%20b", "a/ b"),
        ] {
            assert_eq!(validate(raw).unwrap(), path);
        }
    }

    proptest! {
        #[test]
        fn accepted_path_has_no_ambiguous_segment(raw in "[a./%20efF\\PC]{0,40}") {
            if let Ok(path) = validate(&raw) {
                prop_assert!(!path.split('/').any(|s| s == ".." || s == "."));
                prop_assert!(!path.contains("//") && !path.contains('\0'));
                prop_assert_eq!(path.matches('/').count(), raw.matches('/').count());
            }
        }
    }
}
