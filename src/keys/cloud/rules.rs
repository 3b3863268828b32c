//! Validation of parameters that several services share. An empty text counts as absent.

use crate::error::{Error, Result};

/// Maximum length of a parameter, in bytes.
pub const MAX_CLOUD_PARAMETER_BYTES: usize = 2048;

pub(in crate::keys) fn require_value(name: &str, text: &str) -> Result<()> {
    if text.is_empty() { Err(Error::invalid(format!("{name} is required"))) } else { Ok(()) }
}

/// Validates a parameter that becomes a part of a URL: its length, and that it consists of ASCII letters, digits and
/// the characters in `others`.
pub(in crate::keys) fn validate_url_part(
    name: &str,
    text: &str,
    others: &str,
    lengths: std::ops::RangeInclusive<usize>,
) -> Result<()> {
    require_value(name, text)?;
    if lengths.contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c)) {
        return Ok(());
    }
    let others: Vec<String> = others.chars().map(|c| c.to_string()).collect();
    let least = lengths.start();
    let max = lengths.end();
    let others = match &others[..] {
        [one] => one.clone(),
        several => format!("any of {}", several.join(" ")),
    };
    Err(Error::invalid(format!("{name}: must be {least} to {max} letters, digits or {others}")))
}

/// Parses the size of an RSA key; 0 if it is absent.
///
/// # Errors
/// `Invalid` for sizes other than 2048, 3072 and 4096, and for an absent size that is required.
pub(in crate::keys) fn parse_rsa_bits(key_bits: &str, is_required: bool) -> Result<u32> {
    match key_bits {
        "" if !is_required => Ok(0),
        "2048" => Ok(2048),
        "3072" => Ok(3072),
        "4096" => Ok(4096),
        _ => Err(Error::invalid("key_bits must be one of 2048, 3072, 4096")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_parts_may_contain_only_their_allowed_characters() {
        validate_url_part("project", "my-project_1", "_-", 1..=63).unwrap();
        assert_eq!(validate_url_part("project", "", "_-", 1..=63).unwrap_err().text(), "project is required");
        for bad in ["a/b", "a.b", "..", "a b", "ä", "a%2f", &"a".repeat(64)] {
            let text = validate_url_part("project", bad, "_-", 1..=63).unwrap_err();
            assert_eq!(text.text(), "project: must be 1 to 63 letters, digits or any of _ -");
        }
    }
}
