//! Secret bytes that must not leak: private keys, tokens, PINs.
//!
//! [`Secret`] has neither `Debug` nor `Display`, so formatting cannot put it into a log line or an error text, and it
//! is overwritten when dropped. [`PartlySecret`] is a buffer for a text with some secret parts, such as a response with
//! a private key. Documents that storage seals contain secrets through [`sealed`].

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The rule that [`is_private`] checks, for messages.
pub const PRIVATE_FILE_RULE: &str =
    "must not be open to group or others (set its mode to 0600, or 0640 when it is root's)";

/// `true` if group and others cannot access a file that contains a secret. A file that root owns may be readable for
/// its group: libpq accepts such key files, and Kubernetes mounts a Secret like this for a non-root user.
pub fn is_private(file: &Metadata) -> bool {
    let forbidden = if file.uid() == 0 { 0o037 } else { 0o077 };
    file.mode() & forbidden == 0
}

/// Zeroes bytes. The barrier prevents the compiler from removing the write.
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

    /// Reads at most `max` bytes, into a buffer of this size: a buffer that grows would leave copies of the secret in
    /// memory.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn read(source: impl Read, max: u64) -> io::Result<Self> {
        Self::read_into(Vec::with_capacity(max as usize), source, max)
    }

    /// Reads at most `max` bytes of a file; `None` if the file is not [private](is_private).
    ///
    /// # Errors
    /// The errors of the file.
    pub fn read_private_file(path: &Path, max: u64) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        // The metadata is that of the open file, so the file cannot be replaced between the check and the read.
        let found = file.metadata()?;
        if !is_private(&found) {
            return Ok(None);
        }
        // The metadata of a pipe reports length 0.
        let capacity = found.len().max(1024).min(max);
        Self::read_into(Vec::with_capacity(capacity as usize), file, max).map(Some)
    }

    fn read_into(mut buffer: Vec<u8>, source: impl Read, max: u64) -> io::Result<Self> {
        let read = source.take(max).read_to_end(&mut buffer);
        let secret = Self(buffer);
        read.map(|_| secret)
    }

    /// Exposes the bytes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Exposes the bytes as text; `None` if they are not UTF-8.
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // Extends the buffer over its spare capacity, which may contain earlier bytes of the secret.
        self.0.clear();
        self.0.resize(self.0.capacity(), 0);
        overwrite(&mut self.0);
    }
}

/// A byte buffer with some secret parts. On drop, everything from the first secret byte to the last is overwritten.
/// When the buffer grows, this range of the old allocation is overwritten too.
#[derive(Default)]
pub struct PartlySecret {
    bytes: Vec<u8>,
    secret: Range<usize>,
}

impl PartlySecret {
    /// Creates an empty buffer of this capacity in bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), secret: 0..0 }
    }

    /// Exposes the bytes.
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// `true` if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends bytes that are not secret.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < bytes.len() {
            drop(self.make_room(bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the last byte, which must not be secret.
    pub fn pop(&mut self) {
        self.bytes.pop();
    }

    /// Appends a secret.
    pub fn push_secret(&mut self, secret: &[u8]) {
        self.write_secret(|buffer| buffer.push(secret));
    }

    /// Appends another buffer. Its secret parts are secret in this buffer too.
    pub fn append(&mut self, other: &Self) {
        let from = self.len();
        self.push(&other.bytes);
        if !other.secret.is_empty() {
            self.mark_secret(from + other.secret.start..from + other.secret.end);
        }
    }

    /// Runs `write`. Everything that `write` appends is secret.
    pub fn write_secret<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        // Everything from here on is marked secret before the write, because the buffer may be reallocated during the
        // write.
        let from = self.len();
        let before = self.secret.clone();
        self.mark_secret(from..usize::MAX);
        let written = write(self);
        self.secret = before;
        self.mark_secret(from..self.len());
        written
    }

    /// Returns the bytes. They are not overwritten when the returned vector is dropped.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.secret = 0..0;
        std::mem::take(&mut self.bytes)
    }

    fn mark_secret(&mut self, part: Range<usize>) {
        self.secret = if self.secret.is_empty() {
            part
        } else {
            self.secret.start.min(part.start)..self.secret.end.max(part.end)
        };
    }

    /// Moves the bytes to a larger allocation with capacity for `more` additional bytes. Returns the old allocation,
    /// with its secret range overwritten.
    #[cold]
    fn make_room(&mut self, more: usize) -> Vec<u8> {
        let mut larger = Vec::with_capacity((self.bytes.len() + more).max(2 * self.bytes.capacity()));
        larger.extend_from_slice(&self.bytes);
        self.overwrite();
        std::mem::replace(&mut self.bytes, larger)
    }

    /// Overwrites the secret bytes as a drop does, and returns all bytes.
    #[cfg(test)]
    pub(crate) fn into_wiped_bytes(mut self) -> Vec<u8> {
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
    fn from(text: String) -> Self {
        Self { bytes: text.into_bytes(), secret: 0..0 }
    }
}

impl Drop for PartlySecret {
    fn drop(&mut self) {
        self.overwrite();
    }
}

/// Serde functions for a [`Secret`] text, for fields of sealed documents only: `#[serde(with = "secret::sealed")]`.
pub mod sealed {
    use std::fmt;

    use serde::de::{Deserializer, Visitor};
    use serde::ser::{Error as _, Serializer};

    use crate::secret::Secret;

    /// Serializes the secret as text.
    ///
    /// # Errors
    /// The errors of the serializer, and an error when the secret is not UTF-8.
    pub fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        let text = secret.expose_text().ok_or_else(|| S::Error::custom("the secret is not UTF-8 text"))?;
        serializer.serialize_str(text)
    }

    /// Deserializes a text.
    ///
    /// # Errors
    /// The errors of the deserializer.
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
    fn partly_secret_that_grows_wipes_its_old_buffer() {
        let mut text = PartlySecret::with_capacity(16);
        text.push(b"open");
        text.push_secret(b"hunter2");
        let before = text.make_room(100);
        assert_eq!(before, b"open\0\0\0\0\0\0\0");
        assert_eq!(text.expose(), b"openhunter2");
        text.push(b"after");
        text.write_secret(|text| text.write_all(b"swordfish")).unwrap();
        let before = text.make_room(1000);
        assert_eq!((&before[..4], before.iter().filter(|octet| **octet == 0).count()), (&b"open"[..], 21));
        assert_eq!(text.expose(), b"openhunter2afterswordfish");
    }

    #[test]
    fn outgrown_secret_buffer_is_wiped() {
        let mut text = PartlySecret::with_capacity(4);
        text.push(b"open");
        let before = text.write_secret(|text| {
            text.push(b"hunter2");
            text.make_room(1000)
        });
        assert_eq!(before, b"open\0\0\0\0\0\0\0");
    }

    #[test]
    fn appended_partly_secret_keeps_its_secret_range() {
        let mut part = PartlySecret::default();
        part.push(b"a");
        part.push_secret(b"hunter2");
        part.push(b"b");
        let mut whole = PartlySecret::default();
        whole.push(b"--");
        whole.append(&part);
        whole.append(&PartlySecret::from("open".to_owned()));
        assert_eq!(part.into_wiped_bytes(), b"a\0\0\0\0\0\0\0b");
        let mut second = PartlySecret::default();
        second.append(&whole);
        assert_eq!(whole.into_bytes(), b"--ahunter2bopen");
        assert_eq!(second.into_wiped_bytes(), b"--a\0\0\0\0\0\0\0bopen");
    }

    #[test]
    fn sealed_secret_survives_a_round_trip() {
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
