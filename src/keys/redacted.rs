//! Secrets of a managed key's configuration: how they are shown, and what the word that is shown means where it is
//! written back.

use crate::error::{Error, Result};
use crate::secret::Secret;

/// What stands for a secret where a configuration is read. Written back, it leaves the secret as it is.
pub(crate) const REDACTED: &str = "redacted";

/// Replaces a secret that stands where one is written; [`REDACTED`] is none.
///
/// # Errors
/// `Invalid` for [`REDACTED`] where nothing stands.
pub(crate) fn write(name: &str, standing: &mut Secret, written: Option<Secret>) -> Result<()> {
    match written {
        Some(written) if written.expose() == REDACTED.as_bytes() => {
            let text = || format!("{name}: {REDACTED:?} is what is shown in its place, and there is none yet");
            if is_set(standing) { Ok(()) } else { Err(Error::invalid(text())) }
        }
        Some(written) => {
            *standing = written;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Whether a secret is given.
pub(crate) fn is_set(secret: &Secret) -> bool {
    !secret.expose().is_empty()
}

/// How a secret is shown.
pub(crate) fn shown(secret: &Secret) -> &'static str {
    if is_set(secret) { REDACTED } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_a_secret_leaves_it_and_is_none_itself() {
        let mut secret = Secret::default();
        let error = write("secret_key", &mut secret, Some(Secret::new(REDACTED))).unwrap_err();
        assert!(error.text().starts_with("secret_key: \"redacted\" is what is shown"), "{error}");
        write("secret_key", &mut secret, Some(Secret::new("s"))).unwrap();
        for kept in [None, Some(Secret::new(REDACTED))] {
            write("secret_key", &mut secret, kept).unwrap();
            assert!(secret.expose() == b"s" && shown(&secret) == REDACTED);
        }
        write("secret_key", &mut secret, Some(Secret::default())).unwrap();
        assert_eq!(shown(&secret), "");
    }
}
