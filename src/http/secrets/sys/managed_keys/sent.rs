//! What a write of a managed key has: its members are merged into those that stand.

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::secret::Secret;

/// What stands in the place of a secret where a key is shown, and means the one that stands where it is written.
pub(super) const REDACTED: &str = "redacted";

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

    /// Merges a secret; `stored` is the one that stands.
    ///
    /// # Errors
    /// `Invalid` for what reads show, where there is none that it could mean.
    pub(super) fn secret(&self, name: &str, stored: Option<&Secret>) -> Result<Secret> {
        let given = self.secrets.iter().find(|(known, _)| *known == name).map(|(_, secret)| secret);
        match (given.filter(|secret| secret.expose() != REDACTED.as_bytes()), stored) {
            (Some(secret), _) => Ok(secret.clone()),
            (None, Some(stored)) => Ok(stored.clone()),
            (None, None) if given.is_some() => Err(Error::invalid(format!(
                "{name}: {REDACTED:?} is what is shown in its place, and there is none yet"
            ))),
            (None, None) => Ok(Secret::default()),
        }
    }
}
