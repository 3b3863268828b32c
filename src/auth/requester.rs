//! The requester record: the identity of a caller in stored records, such as the record of each certificate.
//!
//! A requester record is a short text with three parts, separated by spaces:
//!
//! - the stored hash of the token's accessor in base64url, by which the token can be found while it exists;
//! - the entity id in base64url, or nothing;
//! - the display name.
//!
//! It contains neither the accessor nor the token. Records of earlier versions of Signet contain only the hash, in
//! hexadecimal.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use uuid::Uuid;

use super::store::TokenHash;

/// Maximum length of the display name in a requester record, in characters.
const MAX_RECORDED_NAME_CHARS: usize = 64;

/// A parsed requester record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// Hex hash of the token's accessor, or of a batch token's text. Empty for requests without a token.
    pub accessor_hash: String,
    /// Id of the token's entity; empty for none.
    pub entity_id: String,
    /// Display name of the token, or the name of the internal caller; empty if the record has none.
    pub display_name: String,
}

pub(super) fn render_requester(accessor_hash: &TokenHash, entity_id: &str, display_name: &str) -> String {
    let entity = Uuid::parse_str(entity_id).map(|id| BASE64.encode(id.as_bytes())).unwrap_or_default();
    let name: String = display_name.chars().filter(|c| !c.is_control()).take(MAX_RECORDED_NAME_CHARS).collect();
    format!("{} {entity} {name}", BASE64.encode(accessor_hash))
}

impl Requester {
    /// Parses a requester record, also one of an earlier version.
    pub fn of_record(text: &str) -> Self {
        let mut words = text.splitn(3, ' ');
        let first = words.next().unwrap_or_default();
        let entity = words.next();
        let name = words.next();
        let Some((entity, name)) = entity.zip(name) else {
            let is_hash = first.len() == 64 && first.bytes().all(|b| b.is_ascii_hexdigit());
            let (hash, name) = if is_hash { (first, "") } else { ("", text) };
            return Self { accessor_hash: hash.to_owned(), display_name: name.to_owned(), ..Self::default() };
        };
        let hash = BASE64.decode(first).unwrap_or_default();
        let id = BASE64.decode(entity).ok().and_then(|bytes| Uuid::from_slice(&bytes).ok());
        Self {
            accessor_hash: hash.iter().map(|octet| format!("{octet:02x}")).collect(),
            entity_id: id.map(|id| id.to_string()).unwrap_or_default(),
            display_name: name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requester_record_reads_back_with_a_bounded_name() {
        let id = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
        for (entity, name, expected_name) in
            [(id, "approle-web", "approle-web"), ("", "token a b", "token a b"), ("", "", "")]
        {
            let text = render_requester(&[7; 32], entity, name);
            assert!(text.len() <= 43 + 1 + 22 + 1 + name.len());
            let read = Requester::of_record(&text);
            assert_eq!(read.accessor_hash, "07".repeat(32));
            assert_eq!((read.entity_id.as_str(), read.display_name.as_str()), (entity, expected_name));
        }
        let long = render_requester(&[7; 32], "", &format!("a\n{}", "\u{e4}".repeat(100)));
        assert_eq!(Requester::of_record(&long).display_name.chars().count(), MAX_RECORDED_NAME_CHARS);
    }

    #[test]
    fn records_of_earlier_versions_are_read() {
        let hash = "0a".repeat(32);
        assert_eq!(Requester::of_record(&hash), Requester { accessor_hash: hash.clone(), ..Requester::default() });
        assert_eq!(Requester::of_record("dev-root").display_name, "dev-root");
        assert_eq!(Requester::of_record(""), Requester::default());
    }
}
