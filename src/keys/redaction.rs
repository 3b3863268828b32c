//! Redaction of secrets in the configuration of managed keys.

use crate::error::{Error, Result};
use crate::secret::Secret;

/// Placeholder with which reads replace a secret. A write with this placeholder leaves the secret unchanged.
pub(crate) const REDACTED: &str = "redacted";

/// Replaces the secret `current` with `written`, if given. [`REDACTED`] keeps the current secret.
///
/// # Errors
/// `Invalid` for [`REDACTED`] when no secret is set yet.
pub(crate) fn replace_secret(name: &str, current: &mut Secret, written: Option<Secret>) -> Result<()> {
    match written {
        Some(written) if written.expose() == REDACTED.as_bytes() => {
            let text = || format!("{name}: {REDACTED:?} is a placeholder without a stored secret; send the secret");
            if is_set(current) { Ok(()) } else { Err(Error::invalid(text())) }
        }
        Some(written) => {
            *current = written;
            Ok(())
        }
        None => Ok(()),
    }
}

/// `true` if the secret is not empty.
pub(crate) fn is_set(secret: &Secret) -> bool {
    !secret.expose().is_empty()
}

/// Returns the placeholder for a set secret, and an empty string otherwise.
pub(crate) fn redact(secret: &Secret) -> &'static str {
    if is_set(secret) { REDACTED } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_placeholder_keeps_the_secret_and_is_not_stored() {
        let mut secret = Secret::default();
        let error = replace_secret("secret_key", &mut secret, Some(Secret::new(REDACTED))).unwrap_err();
        assert!(error.text().starts_with("secret_key: \"redacted\" is a placeholder"), "{error}");
        replace_secret("secret_key", &mut secret, Some(Secret::new("s"))).unwrap();
        for kept in [None, Some(Secret::new(REDACTED))] {
            replace_secret("secret_key", &mut secret, kept).unwrap();
            assert!(secret.expose() == b"s" && redact(&secret) == REDACTED);
        }
        replace_secret("secret_key", &mut secret, Some(Secret::default())).unwrap();
        assert_eq!(redact(&secret), "");
    }
}
