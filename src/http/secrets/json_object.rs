//! Builds the JSON text of an object with secret members, in one buffer that overwrites its secrets when it is dropped.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::secret::{PartlySecret, Secret};

/// Builder for the JSON text of an object.
pub(super) struct JsonObjectBuilder {
    text: PartlySecret,
    /// The byte to be written before the next member: `{` or `,`.
    separator: u8,
}

impl Default for JsonObjectBuilder {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl JsonObjectBuilder {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { text: PartlySecret::with_capacity(bytes), separator: b'{' }
    }

    pub(super) fn add(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.begin_member(name);
        write_json(&mut self.text, value);
    }

    /// Adds a member whose value is JSON text.
    pub(super) fn add_rendered(&mut self, name: &str, json: &PartlySecret) {
        self.begin_member(name);
        self.text.append(json);
    }

    /// Adds a member whose value is a private key.
    ///
    /// # Errors
    /// `Internal` when the key is not UTF-8 text.
    pub(super) fn add_secret(&mut self, name: &str, value: &Secret) -> Result<()> {
        let text = value.expose_text().ok_or_else(|| Error::internal("private key: not UTF-8 text"))?;
        self.add_secret_text(name, text);
        Ok(())
    }

    pub(super) fn add_secret_text(&mut self, name: &str, text: &str) {
        self.begin_member(name);
        self.text.write_secret(|out| write_json(out, text));
    }

    /// Adds an array of strings: `first`, followed by the elements of `list`, which is a JSON array.
    pub(super) fn add_list_with_first(&mut self, name: &str, first: &str, list: &RawValue) {
        self.begin_member(name);
        self.text.push(b"[");
        write_json(&mut self.text, first);
        let others = list.get().trim_start_matches('[');
        self.text.push(if others == "]" { b"" } else { b"," });
        self.text.push(others.as_bytes());
    }

    /// Adds a member whose value is an object. `write` adds the object's members.
    pub(super) fn add_object(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.begin_member(name);
        self.separator = b'{';
        write(self);
        self.close();
    }

    /// Adds members in JSON text, without enclosing braces.
    pub(super) fn add_members(&mut self, members: &[u8]) {
        self.text.push(&[self.separator]);
        self.text.push(members);
        self.separator = b',';
    }

    /// Adds a member whose value is `begin`, a text that the caller inserts, and `end`. Returns the JSON text before
    /// the inserted text; this builder continues with `end`.
    pub(super) fn split_for_insertion(&mut self, name: &str, begin: &str, end: &str) -> PartlySecret {
        self.begin_member(name);
        self.text.push(begin.as_bytes());
        std::mem::replace(&mut self.text, PartlySecret::from(end.to_owned()))
    }

    pub(super) fn finish(mut self) -> PartlySecret {
        self.close();
        self.text
    }

    /// Writes the separator and the name of a member.
    fn begin_member(&mut self, name: &str) {
        self.text.push(&[self.separator]);
        self.separator = b',';
        write_json(&mut self.text, name);
        self.text.push(b":");
    }

    fn close(&mut self) {
        self.text.push(if self.separator == b'{' { b"{}" } else { b"}" });
        self.separator = b',';
    }
}

/// Appends `value` as JSON. It cannot fail, because all map keys are text and writing to memory succeeds.
fn write_json(out: &mut PartlySecret, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn json_object_is_complete_and_its_secrets_are_wiped() {
        assert_eq!(JsonObjectBuilder::default().finish().expose(), b"{}");
        let mut data = JsonObjectBuilder::default();
        data.add("a", &1);
        data.add_secret("b", &Secret::new("x\n\"y\"")).unwrap();
        data.add("c", &["z"]);
        assert!(data.add_secret("d", &Secret::new([0xff])).is_err());
        let text = data.finish();
        assert_eq!(
            serde_json::from_slice::<Value>(text.expose()).unwrap(),
            json!({ "a": 1, "b": "x\n\"y\"", "c": ["z"] })
        );
        let remains = String::from_utf8(text.into_wiped_bytes()).unwrap();
        assert!(remains.starts_with("{\"a\":1,\"b\":\0\0") && remains.ends_with(",\"c\":[\"z\"]}"), "{remains}");
    }
}
