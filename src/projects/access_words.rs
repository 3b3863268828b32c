//! The words of a key of a team's access, from the least to the most.

use serde_json::Value;

/// The words that a key may have, from the least to the most. Those of a flag are truth values in documents.
#[derive(Clone, Copy, Debug)]
pub struct Words(pub &'static [&'static str]);

impl Words {
    /// The words of a truth value.
    pub const FLAG: Self = Self(&["false", "true"]);

    fn is_flag(self) -> bool {
        self.0 == Self::FLAG.0
    }

    /// How far a word goes, when it is one of these.
    pub fn rank(self, word: &str) -> Option<u8> {
        // A handful of words each.
        self.0.iter().position(|known| *known == word).map(|place| place as u8)
    }

    /// How far a value of a document goes, when it is one of these.
    pub fn rank_of(self, value: &Value) -> Option<u8> {
        match value {
            Value::Bool(flag) if self.is_flag() => Some(u8::from(*flag)),
            Value::String(word) if !self.is_flag() => self.rank(word),
            _ => None,
        }
    }

    /// A word as documents show it, by how far it goes.
    pub fn value(self, rank: u8) -> Value {
        match self.is_flag() {
            true => (rank > 0).into(),
            false => self.0[usize::from(rank)].into(),
        }
    }
}
