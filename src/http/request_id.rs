//! The id of a request: in answers, in the log and in what is recorded.

/// A request's id: a random UUID in its text form, kept in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId([u8; 36]);

impl RequestId {
    /// A new one.
    pub fn random() -> Self {
        let mut text = [0; 36];
        uuid::Builder::from_random_bytes(crate::random::bytes()).into_uuid().hyphenated().encode_lower(&mut text);
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
