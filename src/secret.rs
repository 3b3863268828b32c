//! Bytes that must not leave by accident: private keys, tokens, PINs.
//!
//! [`Secret`] has neither `Debug` nor `Display`, so it cannot reach a log line or an error text
//! through formatting, and it is overwritten when dropped.

use zeroize::Zeroize;

/// Secret bytes, overwritten on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes ownership of secret bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, for the one place that needs them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
