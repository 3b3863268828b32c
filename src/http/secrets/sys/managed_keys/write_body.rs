//! The body of a request that writes a managed key. It is merged into the stored parameters.

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::keys::redaction;
use crate::secret::Secret;

/// Maximum length of each secret parameter, in bytes.
const MAX_SECRET_BYTES: usize = 4 << 10;

/// The members of a request body, with the secret members separate.
pub(super) struct ManagedKeyWriteBody {
    fields: Fields,
    secrets: Vec<(&'static str, Secret)>,
}

impl ManagedKeyWriteBody {
    /// Moves the secret members, whose names are `secrets`, out of `fields`.
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

    /// Replaces `to` by a text member of at most `bytes` bytes, if the body contains it.
    pub(super) fn merge_text(&self, name: &str, bytes: usize, to: &mut String) -> Result<()> {
        if let Some(text) = self.fields.text_within(name, bytes)? {
            *to = text;
        }
        Ok(())
    }

    /// Replaces `to` by a secret member, if the body contains it and it is not the placeholder for a redacted secret.
    ///
    /// # Errors
    /// As [`redaction::replace_secret`].
    pub(super) fn merge_secret(&self, name: &str, to: &mut Secret) -> Result<()> {
        let sent = self.secrets.iter().find(|(known, _)| *known == name);
        redaction::replace_secret(name, to, sent.map(|(_, secret)| secret.clone()))
    }
}
