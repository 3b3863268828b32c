//! The body of a write to a managed key, which is merged into the stored members.

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::keys::redaction;
use crate::secret::Secret;

/// Maximum length of a secret in bytes.
const MAX_SECRET_BYTES: usize = 4 << 10;

/// The members of a body, with the secret ones separate.
pub(super) struct ManagedKeyWriteBody {
    fields: Fields,
    secrets: Vec<(&'static str, Secret)>,
}

impl ManagedKeyWriteBody {
    /// Separates the members named `secrets`.
    ///
    /// # Errors
    /// `Invalid` for a secret that is not text or is too long.
    pub(super) fn new(mut fields: Fields, secrets: Vec<&'static str>) -> Result<Self> {
        let mut taken = Vec::new();
        for name in secrets {
            if let Some(secret) = fields.take_secret(name)? {
                if secret.expose().len() > MAX_SECRET_BYTES {
                    return Err(Error::invalid(format!("{name}: longer than {MAX_SECRET_BYTES} bytes")));
                }
                taken.push((name, secret));
            }
        }
        Ok(Self { fields, secrets: taken })
    }

    pub(super) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Merges a text of at most `bytes` bytes.
    pub(super) fn text(&self, name: &str, bytes: usize, to: &mut String) -> Result<()> {
        if let Some(text) = self.fields.text_within(name, bytes)? {
            *to = text;
        }
        Ok(())
    }

    /// Merges a secret.
    ///
    /// # Errors
    /// As [`redaction::replace_secret`].
    pub(super) fn secret(&self, name: &str, to: &mut Secret) -> Result<()> {
        let sent = self.secrets.iter().find(|(known, _)| *known == name);
        redaction::replace_secret(name, to, sent.map(|(_, secret)| secret.clone()))
    }
}
