//! What a write of a managed key has: its members are merged into those that stand.

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::keys::redacted;
use crate::secret::Secret;

/// Longest secret, bytes.
const LONGEST_SECRET: usize = 4 << 10;

/// The members of a body, those that are secret apart from the others.
pub(super) struct Sent {
    fields: Fields,
    secrets: Vec<(&'static str, Secret)>,
}

impl Sent {
    /// Takes the members called `secrets` out of the body.
    ///
    /// # Errors
    /// `Invalid` for one that is no text, or too long.
    pub(super) fn new(mut fields: Fields, secrets: &'static [&'static str]) -> Result<Self> {
        let mut taken = Vec::new();
        for name in secrets {
            if let Some(secret) = fields.take_secret(name)? {
                if secret.expose().len() > LONGEST_SECRET {
                    return Err(Error::invalid(format!("{name}: longer than {LONGEST_SECRET} bytes")));
                }
                taken.push((*name, secret));
            }
        }
        Ok(Self { fields, secrets: taken })
    }

    /// The members that are not secret.
    pub(super) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Merges a text of at most so many bytes.
    pub(super) fn text(&self, name: &str, bytes: usize, to: &mut String) -> Result<()> {
        if let Some(text) = self.fields.text_within(name, bytes)? {
            *to = text;
        }
        Ok(())
    }

    /// Merges a boolean.
    pub(super) fn flag(&self, name: &str, to: &mut bool) -> Result<()> {
        if let Some(flag) = self.fields.bool(name)? {
            *to = flag;
        }
        Ok(())
    }

    /// Merges a secret.
    ///
    /// # Errors
    /// As [`redacted::write`].
    pub(super) fn secret(&self, name: &str, to: &mut Secret) -> Result<()> {
        redacted::write(name, to, self.given_secret(name))
    }

    /// A secret as it was sent.
    pub(super) fn given_secret(&self, name: &str) -> Option<Secret> {
        self.secrets.iter().find(|(known, _)| *known == name).map(|(_, secret)| secret.clone())
    }
}
