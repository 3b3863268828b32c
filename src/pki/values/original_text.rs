//! Times that are stored with their original text, because responses return that text.

use serde::{Deserialize, Serialize};

use crate::clock::parse_rfc3339;
use crate::error::{Error, Result};

/// A time and the RFC 3339 text in which it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rfc3339Text {
    text: String,
    epoch_seconds: i64,
}

impl Rfc3339Text {
    /// Parses an RFC 3339 time and keeps its text.
    ///
    /// # Errors
    /// `Invalid` naming `field`.
    pub fn new(field: &str, text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let epoch_seconds = parse_rfc3339(field, &text)?.unix_timestamp();
        Ok(Self { text, epoch_seconds })
    }

    /// Returns the original text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the time in epoch seconds.
    pub fn epoch_seconds(&self) -> i64 {
        self.epoch_seconds
    }
}

impl TryFrom<String> for Rfc3339Text {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::new("stored time", text)
    }
}

impl From<Rfc3339Text> for String {
    fn from(time: Rfc3339Text) -> Self {
        time.text
    }
}

/// Serializes an optional time as its original text; `None` as an empty text.
pub(crate) mod or_empty {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    use super::Rfc3339Text;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Rfc3339Text>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(time.as_ref().map_or("", Rfc3339Text::as_str))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rfc3339Text>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() { Ok(None) } else { Rfc3339Text::try_from(text).map(Some).map_err(D::Error::custom) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_text_is_stored_with_its_value() {
        let time = Rfc3339Text::new("f", "1970-01-01T01:00:10+01:00").unwrap();
        assert_eq!((time.as_str(), time.epoch_seconds()), ("1970-01-01T01:00:10+01:00", 10));
        assert!(Rfc3339Text::new("f", "1970-01-01").unwrap_err().text().starts_with("f: "));
    }
}
