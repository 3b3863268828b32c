//! Validation of dotted OIDs in roles and requests. `x509` encodes them.

use crate::error::{Error, Result};
use crate::x509::oid;

/// Maximum length of a dotted OID, in characters.
const MAX_OID_CHARS: usize = 256;

/// `true` if `text` is a dotted OID: at least two decimal arcs without leading zeros. The first arc is 0 to 2; after 0
/// or 1, the second arc is below 40 (X.660). Each arc has at most 128 bits, which UUID-based OIDs need.
pub fn is_dotted_oid(text: &str) -> bool {
    if text.len() > MAX_OID_CHARS {
        return false;
    }
    let Some(arcs) = text.split('.').map(parse_arc).collect::<Option<Vec<u128>>>() else { return false };
    match arcs.as_slice() {
        [0 | 1, second, ..] => *second < 40,
        [2, _, ..] => true,
        _ => false,
    }
}

/// Rejects a dotted OID that some certificate parsers cannot handle. Older stored OIDs still load; the checks before
/// signing reject them.
///
/// # Errors
/// `Invalid` naming `field`, the OID and the rule (RFC 5280 Appendix B).
pub(crate) fn check_oid_size(field: &str, text: &str) -> Result<()> {
    let checked = oid::parse_oid(text).map_or(Ok(()), |content| oid::check_oid_size(&content));
    checked.map_err(|e| Error::invalid(format!("{field}: {text}: {}", e.0)))
}

fn parse_arc(text: &str) -> Option<u128> {
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dotted_oids_are_distinguished_from_other_texts() {
        for good in ["1.2.3", "1.3.6.1.4.1.311.20.2.3", "2.5.29.37.0", "2.999.1", "0.9.2342.19200300.100.1.1", "1.2"] {
            assert!(is_dotted_oid(good), "{good}");
        }
        let long = format!("1.2{}", ".3".repeat(200));
        for bad in
            ["", ".", "1", "1.", ".1", "3.1.2", "1.40.1", "1.02.3", "1.2.x", "1.2. 3", "1.+2.3", "not-oid", &long]
        {
            assert!(!is_dotted_oid(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn dotted_oid_of_any_text_does_not_panic(text in "\\PC{0,40}") {
            let _ = is_dotted_oid(&text);
        }

        #[test]
        fn joined_arcs_are_dotted_oids(first in 0u8..3, second in 0u8..40, more in proptest::collection::vec(any::<u64>(), 0..6)) {
            let mut text = format!("{first}.{second}");
            more.iter().for_each(|arc| text.push_str(&format!(".{arc}")));
            prop_assert!(is_dotted_oid(&text));
        }
    }
}
