//! Hides request data in the server's own messages: refusals and warnings may repeat names, addresses and serial
//! numbers, which are hashed in the rest of an entry.
//!
//! Text in quotes is always hashed. Other words are hashed if they occur in a text of the request; the comparison uses
//! letters and digits only and ignores case. If the request is too long to search, the whole message after the field
//! name is hashed.

use std::borrow::Cow;

use serde_json::Value;

use super::entry::AuditData;
use super::mask::Mask;

/// Maximum length of the texts of a request that are searched, in bytes.
const MAX_SEARCHED_BYTES: usize = 64 * 1024;
/// Minimum number of letters and digits of a word: shorter ones occur in too many texts to be meaningful.
const MIN_WORD_CHARS: usize = 3;

/// The texts of a request, prepared for searching; `None` if there is too much text.
pub(super) struct RequestTexts(Option<Vec<String>>);

impl RequestTexts {
    pub(super) fn of(data: AuditData<'_>) -> Self {
        let mut texts = TextCollector { all: Vec::new(), remaining_bytes: MAX_SEARCHED_BYTES };
        let whole = match data {
            AuditData::None | AuditData::Streamed { .. } => true,
            AuditData::Fields(fields) => fields.iter().all(|(_, value)| texts.collect(value)),
            AuditData::Json(value) => texts.collect(value),
            AuditData::JsonText(bytes) | AuditData::Raw { bytes, .. } => texts.collect_bytes(bytes),
        };
        Self(whole.then_some(texts.all))
    }

    /// Returns a message of the server, with hashes instead of the parts that repeat the request.
    pub(super) fn mask_message<'t>(&self, mask: &Mask, text: &'t str) -> Cow<'t, str> {
        if mask.is_raw() {
            return Cow::Borrowed(text);
        }
        let Some(sent) = &self.0 else {
            let (field, said) = text.split_once(": ").unwrap_or(("", text));
            return format!("{field}: {}", mask.hash(said.as_bytes())).into();
        };
        let unquoted = mask.mask_quotes(text);
        if sent.is_empty() {
            return unquoted;
        }
        let mut out = String::with_capacity(unquoted.len() + 80);
        let mut rest = &*unquoted;
        while let Some(at) = rest.find(is_word_boundary) {
            push_masked_word(&mut out, mask, sent, &rest[..at], 0);
            let end = at + rest[at..].chars().next().map_or(0, char::len_utf8);
            out.push_str(&rest[at..end]);
            rest = &rest[end..];
        }
        push_masked_word(&mut out, mask, sent, rest, 0);
        out.into()
    }
}

/// Separators within a word. A word is split at the first group of separators, and the resulting parts at the second
/// group.
const WORD_SEPARATORS: [&[char]; 2] = [&[':', '/', '@'], &['.', '-', '_', '+', '*']];

fn is_word_boundary(c: char) -> bool {
    c.is_whitespace() || ",;()[]{}<>=\"'|".contains(c)
}

/// Appends a word of a message. A word that occurs in `sent`, the texts of the request, is replaced by its hash; the
/// parts of any other word are checked one by one.
fn push_masked_word(out: &mut String, mask: &Mask, sent: &[String], word: &str, level: usize) {
    if word.starts_with(Mask::PREFIX) {
        return out.push_str(word);
    }
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
    let plain = normalize(bare);
    if plain.chars().count() < MIN_WORD_CHARS {
        return out.push_str(word);
    }
    if sent.iter().any(|text| text.contains(&plain)) {
        let start = word.find(bare).unwrap_or(0);
        out.push_str(&word[..start]);
        out.push_str(&mask.hash(bare.as_bytes()));
        return out.push_str(&word[start + bare.len()..]);
    }
    let Some(marks) = WORD_SEPARATORS.get(level) else { return out.push_str(word) };
    for part in word.split_inclusive(*marks) {
        let before = part.trim_end_matches(*marks);
        push_masked_word(out, mask, sent, before, level + 1);
        out.push_str(&part[before.len()..]);
    }
}

fn normalize(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

struct TextCollector {
    all: Vec<String>,
    remaining_bytes: usize,
}

impl TextCollector {
    /// Adds all strings in a value; returns `false` if they exceed the size limit.
    fn collect(&mut self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.push(text),
            Value::Array(items) => items.iter().all(|item| self.collect(item)),
            Value::Object(members) => members.values().all(|member| self.collect(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
        }
    }

    fn collect_bytes(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.remaining_bytes {
            return false;
        }
        match serde_json::from_slice(bytes) {
            Ok(value) => self.collect(&value),
            Err(_) => self.push(&String::from_utf8_lossy(bytes)),
        }
    }

    fn push(&mut self, text: &str) -> bool {
        let Some(remaining_bytes) = self.remaining_bytes.checked_sub(text.len()) else { return false };
        self.remaining_bytes = remaining_bytes;
        self.all.push(normalize(text));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mask_message(sent: &Value, text: &str) -> String {
        let mask = Mask::new(&[7; 32], false, false);
        RequestTexts::of(AuditData::Json(sent)).mask_message(&mask, text).into_owned()
    }

    fn hash(text: &str) -> String {
        Mask::new(&[7; 32], false, false).hash(text.as_bytes())
    }

    #[test]
    fn request_values_repeated_in_a_message_are_hashed() {
        let sent = json!({ "common_name": "Secret.corp", "ttl": "2h", "serial": "17:67:16:b0", "all": ["a b c", { "x": "user@host.test" }] });
        for (text, repeated) in [
            ("common_name: common name ? not allowed by this role", "secret.corp"),
            ("subject: CN=? is taken (?)", "secret.corp"),
            ("names: dns:? and mailto:?", "Secret.corp"),
            ("serial ? is not known", "17-67-16-b0"),
            ("the address ?: refused", "user@host.test"),
            ("it is at ?.", "host.test"),
        ] {
            assert_eq!(mask_message(&sent, &text.replace('?', repeated)), text.replace('?', &hash(repeated)), "{text}");
        }
        let other = "ttl: 2h is longer than what \"x\" allows";
        assert_eq!(mask_message(&sent, other), other.replace("\"x\"", &hash("x")));
        assert_eq!(mask_message(&json!({}), "nothing was sent"), "nothing was sent");
    }

    #[test]
    fn truncated_or_escaped_text_is_masked_by_its_words() {
        let sent = json!({ "name": format!("a\u{7}b{}", "c".repeat(400)) });
        let text = format!("name: {} is too long", "c".repeat(300));
        assert_eq!(mask_message(&sent, &text), text.replace(&"c".repeat(300), &hash(&"c".repeat(300))));
    }

    #[test]
    fn message_of_an_oversized_request_shows_only_the_field() {
        let sent = json!({ "csr": "x".repeat(MAX_SEARCHED_BYTES + 1) });
        assert_eq!(mask_message(&sent, "csr: is not one"), format!("csr: {}", hash("is not one")));
    }

    #[test]
    fn raw_body_is_searched_as_json_or_as_text() {
        let mask = Mask::new(&[7; 32], false, false);
        for bytes in [&br#"{"a":"hun\u0074er2"}"#[..], b"hunter2 or not json"] {
            let said =
                RequestTexts::of(AuditData::JsonText(bytes)).mask_message(&mask, "name: hunter2 is taken").into_owned();
            assert_eq!(said, format!("name: {} is taken", hash("hunter2")));
        }
        let raw = Mask::new(&[7; 32], true, false);
        assert_eq!(RequestTexts::of(AuditData::Json(&json!("hunter2"))).mask_message(&raw, "hunter2"), "hunter2");
    }
}
