//! Bytes that must not leave by accident: private keys, tokens, PINs.
//!
//! [`Secret`] has neither `Debug` nor `Display`, so it cannot reach a log line or an error text
//! through formatting, and it is overwritten when dropped. [`PartlySecret`] is a text in the making of
//! which some is secret: an answer with a private key in it. What storage seals is read and written
//! through [`sealed`].

use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;

/// The rule of [`is_private`].
pub const PRIVATE_FILE: &str = "must not be open to group or others (set its mode to 0600, or 0640 when it is root's)";

/// `true` for a file of a secret that is closed to group and others. A group may read root's file: that is how libpq takes
/// keys, and how Kubernetes mounts a Secret for a user.
pub fn is_private(file: &Metadata) -> bool {
    let forbidden = if file.uid() == 0 { 0o037 } else { 0o077 };
    file.mode() & forbidden == 0
}

/// Overwrites bytes all at once, even where nobody reads them afterwards.
fn overwrite(bytes: &mut [u8]) {
    bytes.fill(0);
    zeroize::optimization_barrier(bytes);
}

/// Secret bytes, overwritten on drop.
#[derive(Clone, PartialEq, Eq, Default)]
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

    /// The bytes as text; `None` when they are none.
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // What it may have held before, too.
        self.0.clear();
        self.0.resize(self.0.capacity(), 0);
        overwrite(&mut self.0);
    }
}

/// Bytes in the making, some of them secret. From the first secret one to the last they are overwritten on
/// drop, and wherever they stood before they had to move to a larger place.
#[derive(Default)]
pub struct PartlySecret {
    bytes: Vec<u8>,
    secret: Range<usize>,
}

impl PartlySecret {
    /// Empty, with room for `octets`.
    pub fn with_capacity(octets: usize) -> Self {
        Self { bytes: Vec::with_capacity(octets), secret: 0..0 }
    }

    /// The bytes, for the one place that needs them.
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }

    /// Octets so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends what is no secret.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < bytes.len() {
            drop(self.make_room(bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the last octet away, which is no secret.
    pub fn pop(&mut self) {
        self.bytes.pop();
    }

    /// Appends a secret.
    pub fn push_secret(&mut self, secret: &[u8]) {
        self.secretly(|own| own.push(secret));
    }

    /// Appends what another one holds, its secrets as secrets.
    pub fn append(&mut self, other: &Self) {
        let from = self.len();
        self.push(&other.bytes);
        if !other.secret.is_empty() {
            self.mark(from + other.secret.start..from + other.secret.end);
        }
    }

    /// What `write` appends is secret.
    pub fn secretly<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        // Marked before, and not only afterwards: it may have to move in the middle.
        let (from, before) = (self.len(), self.secret.clone());
        self.mark(from..usize::MAX);
        let written = write(self);
        self.secret = before;
        self.mark(from..self.len());
        written
    }

    /// Hands the bytes over to whoever writes them last.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.secret = 0..0;
        std::mem::take(&mut self.bytes)
    }

    fn mark(&mut self, part: Range<usize>) {
        self.secret = if self.secret.is_empty() {
            part
        } else {
            self.secret.start.min(part.start)..self.secret.end.max(part.end)
        };
    }

    /// Moves to a place with room for `more`. Gives the place before, which is overwritten as far as it was
    /// secret.
    #[cold]
    fn make_room(&mut self, more: usize) -> Vec<u8> {
        let mut larger = Vec::with_capacity((self.bytes.len() + more).max(2 * self.bytes.capacity()));
        larger.extend_from_slice(&self.bytes);
        self.overwrite();
        std::mem::replace(&mut self.bytes, larger)
    }

    /// What is left of it when it was dropped.
    #[cfg(test)]
    pub(crate) fn remains(mut self) -> Vec<u8> {
        self.overwrite();
        self.into_bytes()
    }

    fn overwrite(&mut self) {
        let end = self.secret.end.min(self.bytes.len());
        let start = self.secret.start.min(end);
        overwrite(&mut self.bytes[start..end]);
    }
}

impl io::Write for PartlySecret {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.push(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<String> for PartlySecret {
    /// A text without secrets.
    fn from(text: String) -> Self {
        Self { bytes: text.into_bytes(), secret: 0..0 }
    }
}

impl Drop for PartlySecret {
    fn drop(&mut self) {
        self.overwrite();
    }
}

/// A [`Secret`] text as a member of what storage seals: for `#[serde(with = "secret::sealed")]`, and
/// for nothing that leaves.
pub mod sealed {
    use std::fmt;

    use serde::de::{Deserializer, Visitor};
    use serde::ser::{Error as _, Serializer};

    use crate::secret::Secret;

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serialiser, and when it is not text.
    pub fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        let text = secret.expose_text().ok_or_else(|| S::Error::custom("a secret that is no text"))?;
        serializer.serialize_str(text)
    }

    /// Reads it.
    ///
    /// # Errors
    /// Those of the deserialiser.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Secret, E> {
                Ok(Secret::new(text))
            }

            fn visit_string<E>(self, text: String) -> Result<Secret, E> {
                Ok(Secret::new(text))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_text_that_moves_leaves_no_secret_where_it_stood() {
        let mut text = PartlySecret::with_capacity(16);
        text.push(b"open");
        text.push_secret(b"hunter2");
        let before = text.make_room(100);
        assert_eq!(before, b"open\0\0\0\0\0\0\0");
        assert_eq!(text.expose(), b"openhunter2");
        text.push(b"after");
        text.secretly(|text| text.write_all(b"swordfish")).unwrap();
        // Everything from the first secret to the last.
        let before = text.make_room(1000);
        assert_eq!((&before[..4], before.iter().filter(|octet| **octet == 0).count()), (&b"open"[..], 21));
        assert_eq!(text.expose(), b"openhunter2afterswordfish");
    }

    #[test]
    fn a_secret_is_one_while_it_is_written() {
        let mut text = PartlySecret::with_capacity(4);
        text.push(b"open");
        let before = text.secretly(|text| {
            text.push(b"hunter2");
            text.make_room(1000)
        });
        assert_eq!(before, b"open\0\0\0\0\0\0\0");
    }

    #[test]
    fn what_is_dropped_is_overwritten_and_what_is_handed_over_is_whole() {
        let mut part = PartlySecret::default();
        part.push(b"a");
        part.push_secret(b"hunter2");
        part.push(b"b");
        let mut whole = PartlySecret::default();
        whole.push(b"--");
        whole.append(&part);
        whole.append(&PartlySecret::from("open".to_owned()));
        assert_eq!(part.remains(), b"a\0\0\0\0\0\0\0b");
        let mut second = PartlySecret::default();
        second.append(&whole);
        assert_eq!(whole.into_bytes(), b"--ahunter2bopen");
        assert_eq!(second.remains(), b"--a\0\0\0\0\0\0\0bopen");
    }

    #[test]
    fn a_sealed_member_reads_back() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Document {
            #[serde(with = "sealed")]
            key: Secret,
        }
        let text = r#"{"key":"a\nb"}"#;
        let document: Document = serde_json::from_str(text).unwrap();
        assert!(document.key.expose() == b"a\nb");
        assert_eq!(serde_json::to_string(&document).unwrap(), text);
        assert!(serde_json::to_string(&Document { key: Secret::new([0xff]) }).is_err());
    }
}
