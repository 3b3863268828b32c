//! Ordered value lists of access keys.

use serde_json::Value;

/// The values of an access key, in ascending order. The values of a flag are booleans in documents.
#[derive(Clone, Copy, Debug)]
pub struct ValueScale(pub &'static [&'static str]);

impl ValueScale {
    /// The values of a flag.
    pub const FLAG: Self = Self(&["false", "true"]);

    fn is_flag(self) -> bool {
        self.0 == Self::FLAG.0
    }

    /// Returns the rank of a value, if it is valid.
    pub fn rank(self, word: &str) -> Option<u8> {
        // The lists have at most four entries.
        self.0.iter().position(|known| *known == word).map(|index| index as u8)
    }

    /// Returns the rank of a value in a document, if it is valid.
    pub fn rank_of(self, value: &Value) -> Option<u8> {
        match value {
            Value::Bool(flag) if self.is_flag() => Some(u8::from(*flag)),
            Value::String(word) if !self.is_flag() => self.rank(word),
            _ => None,
        }
    }

    /// Returns the value for a rank, as documents show it.
    pub fn value(self, rank: u8) -> Value {
        match self.is_flag() {
            true => (rank > 0).into(),
            false => self.0[usize::from(rank)].into(),
        }
    }
}
