//! The ordered values of access keys. An access key is a setting of a team's access, such as `runs`.

use serde_json::Value;

/// The possible values of an access key, in ascending order of access. A key whose JSON value is a boolean is a flag.
#[derive(Clone, Copy, Debug)]
pub struct ValueScale(pub &'static [&'static str]);

impl ValueScale {
    /// The values of a boolean access key.
    pub const FLAG: Self = Self(&["false", "true"]);

    fn is_flag(self) -> bool {
        self.0 == Self::FLAG.0
    }

    /// Returns the rank of a value: its index on the scale, 0 for the least access. `None` if the scale does not
    /// contain the value.
    pub fn rank(self, word: &str) -> Option<u8> {
        // A scale has at most four values, so the index fits in a byte.
        self.0.iter().position(|known| *known == word).map(|index| index as u8)
    }

    /// Returns the rank of a JSON value. `None` if the scale does not contain the value.
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
