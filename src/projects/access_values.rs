//! The ordered values of access keys. An access key is a setting of a team's access, such as `runs`.

use serde_json::Value;

/// The values of an access key, in ascending order of access. A flag is a key with a boolean value in JSON.
#[derive(Clone, Copy, Debug)]
pub struct ValueScale(pub &'static [&'static str]);

impl ValueScale {
    /// The values of a flag.
    pub const FLAG: Self = Self(&["false", "true"]);

    fn is_flag(self) -> bool {
        self.0 == Self::FLAG.0
    }

    /// Returns the rank of a value: its index, 0 for the least access. `None` if the key has no such value.
    pub fn rank(self, word: &str) -> Option<u8> {
        // The lists have at most four entries.
        self.0.iter().position(|known| *known == word).map(|index| index as u8)
    }

    /// Returns the rank of a JSON value. `None` if the key has no such value.
    pub fn rank_of(self, value: &Value) -> Option<u8> {
        match value {
            Value::Bool(flag) if self.is_flag() => Some(u8::from(*flag)),
            Value::String(word) if !self.is_flag() => self.rank(word),
            _ => None,
        }
    }

    /// Returns the JSON value for a rank.
    pub fn value(self, rank: u8) -> Value {
        match self.is_flag() {
            true => (rank > 0).into(),
            false => self.0[usize::from(rank)].into(),
        }
    }
}
