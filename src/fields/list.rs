//! Parses lists and maps in the forms that clients send, and checks their limits before building them.
//!
//! An entry in a text costs the sender one byte, but costs the server dozens of bytes of memory. So lists in texts have
//! the same limits as JSON lists: commas are counted before a text is split, and JSON within a text is parsed with a
//! deserializer that counts values.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde::de::DeserializeSeed as _;
use serde_json::{Map, Value};

use super::{BoundedValueSeed, MAX_VALUES, TOO_DEEP, TOO_MANY_VALUES, scalar_text, type_error};
use crate::error::{Error, Result};

/// Limits on the entries of a list or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListLimit {
    /// Maximum number of entries, including empty ones.
    pub entries: usize,
    /// Maximum length of an entry in bytes; for a map, of name and value together.
    pub bytes: usize,
    /// `true` if a list in which all entries are empty is rejected, see [`ListLimit::rejecting_only_empty`].
    pub rejects_only_empty: bool,
}

impl ListLimit {
    /// The default limit: 1,000 entries of at most 4 KiB.
    pub const LIST: Self = Self::new(1_000, 4 << 10);
    /// The widest limit: as many entries as a body may have, of any length. Policies use it, because they must see
    /// every value that an endpoint might accept.
    pub const BODY_MAXIMUM: Self = Self::new(MAX_VALUES, usize::MAX);

    /// Creates a limit on the number of entries and the bytes of each entry.
    pub const fn new(entries: usize, bytes: usize) -> Self {
        Self { entries, bytes, rejects_only_empty: false }
    }

    /// Returns this limit, changed to reject a list in which all entries are empty. An unset variable in a script
    /// produces such a list. Used for lists that restrict nothing when they are empty: dropping the empty entries would
    /// remove the restriction.
    pub const fn rejecting_only_empty(self) -> Self {
        Self { rejects_only_empty: true, ..self }
    }

    /// Validates a list that has already been read.
    ///
    /// # Errors
    /// `Invalid`, naming `field`, for too many or too long entries.
    pub fn check(self, field: &str, list: &[String]) -> Result<()> {
        if list.len() > self.entries {
            return Err(ListError::TooManyEntries.into_error(field, "a list of strings", self));
        }
        if list.iter().any(|entry| entry.len() > self.bytes) {
            return Err(ListError::EntryTooLong.into_error(field, "a list of strings", self));
        }
        Ok(())
    }
}

pub(super) enum ListError {
    WrongType,
    TooManyEntries,
    EntryTooLong,
    OnlyEmptyEntries,
}

impl ListError {
    /// Converts this error to the error for the client, which contains the field name and the violated limit. `wanted`
    /// describes the accepted form.
    pub(super) fn into_error(self, name: &str, wanted: &str, limit: ListLimit) -> Error {
        match self {
            Self::WrongType => type_error(name, wanted),
            Self::TooManyEntries => Error::invalid(format!("{name}: at most {} entries are allowed", limit.entries)),
            Self::EntryTooLong => Error::invalid(format!("{name}: an entry is longer than {} bytes", limit.bytes)),
            Self::OnlyEmptyEntries => {
                Error::invalid(format!("{name}: all entries are empty; to send an empty list, send []"))
            }
        }
    }
}

/// Parses a list: a JSON list, a text that contains a JSON list, or another text. Such a text is split at commas if
/// `split` is `true`; otherwise it is the only entry. Entries are trimmed, and empty entries dropped.
pub(super) fn parse_list(value: &Value, split: bool, limit: ListLimit) -> Result<Vec<String>, ListError> {
    match value {
        Value::Array(items) => scalar_entries(items, limit),
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => match parse_embedded(text, '[', limit)? {
            Some(Value::Array(items)) => scalar_entries(&items, limit),
            _ if split => trim_entries(split_entries(text, limit)?.map(str::to_owned), limit),
            _ => trim_entries([text.clone()], limit),
        },
        other => trim_entries([scalar_text(other).ok_or(ListError::WrongType)?], limit),
    }
}

/// Parses a map: a JSON object, a list of `k=v` texts, a text that contains a JSON object, or a
/// comma-separated text of `k=v` pairs.
pub(super) fn parse_map(value: &Value, limit: ListLimit) -> Result<BTreeMap<String, String>, ListError> {
    match value {
        Value::Object(members) => object_entries(members, limit),
        Value::Array(items) => parse_pairs(scalar_entries(items, limit)?.iter().map(String::as_str), limit),
        Value::String(text) if text.trim().is_empty() => Ok(BTreeMap::new()),
        Value::String(text) => match parse_embedded(text, '{', limit)? {
            Some(Value::Object(members)) => object_entries(&members, limit),
            _ => parse_pairs(split_entries(text, limit)?, limit),
        },
        _ => Err(ListError::WrongType),
    }
}

/// Parses the JSON in a text that begins with the character `begin`; `None` if the text is not JSON.
fn parse_embedded(text: &str, begin: char, limit: ListLimit) -> Result<Option<Value>, ListError> {
    if !text.trim_start().starts_with(begin) {
        return Ok(None);
    }
    // One more than the entries, because the list or map itself counts as a value too.
    let budget = Cell::new(limit.entries + 1);
    let mut json = serde_json::Deserializer::from_str(text);
    match (BoundedValueSeed { depth: 1, budget: &budget, max_text_bytes: usize::MAX, max_elements: usize::MAX })
        .deserialize(&mut json)
    {
        Ok(value) => Ok(json.end().is_ok().then_some(value)),
        Err(error) => match error.to_string() {
            why if why.starts_with(TOO_MANY_VALUES) => Err(ListError::TooManyEntries),
            why if why.starts_with(TOO_DEEP) => Err(ListError::WrongType),
            _ => Ok(None),
        },
    }
}

fn split_entries(text: &str, limit: ListLimit) -> Result<std::str::Split<'_, char>, ListError> {
    if text.bytes().filter(|b| *b == b',').count() >= limit.entries {
        return Err(ListError::TooManyEntries);
    }
    Ok(text.split(','))
}

fn scalar_entries(items: &[Value], limit: ListLimit) -> Result<Vec<String>, ListError> {
    if items.len() > limit.entries {
        return Err(ListError::TooManyEntries);
    }
    trim_entries(items.iter().map(scalar_text).collect::<Option<Vec<_>>>().ok_or(ListError::WrongType)?, limit)
}

fn trim_entries(items: impl IntoIterator<Item = String>, limit: ListLimit) -> Result<Vec<String>, ListError> {
    let mut tidied = Vec::new();
    let mut blanks = false;
    for item in items {
        match item.trim() {
            "" => blanks = true,
            text if text.len() > limit.bytes => return Err(ListError::EntryTooLong),
            text if text.len() == item.len() => tidied.push(item),
            text => tidied.push(text.to_owned()),
        }
    }
    if limit.rejects_only_empty && blanks && tidied.is_empty() {
        return Err(ListError::OnlyEmptyEntries);
    }
    Ok(tidied)
}

fn object_entries(members: &Map<String, Value>, limit: ListLimit) -> Result<BTreeMap<String, String>, ListError> {
    if members.len() > limit.entries {
        return Err(ListError::TooManyEntries);
    }
    let pair =
        |(name, value): (&String, &Value)| checked_pair(name, &scalar_text(value).ok_or(ListError::WrongType)?, limit);
    members.iter().map(pair).collect()
}

fn parse_pairs<'a>(
    items: impl Iterator<Item = &'a str>,
    limit: ListLimit,
) -> Result<BTreeMap<String, String>, ListError> {
    let pair = |item: &str| {
        let (name, value) = item.split_once('=').ok_or(ListError::WrongType)?;
        checked_pair(name.trim(), value.trim(), limit)
    };
    items.map(pair).collect()
}

fn checked_pair(name: &str, value: &str, limit: ListLimit) -> Result<(String, String), ListError> {
    if name.len() + value.len() > limit.bytes {
        return Err(ListError::EntryTooLong);
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::Fields;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const SMALL_LIMIT: ListLimit = ListLimit::new(3, 5);

    fn single_field(value: Value) -> Fields {
        let mut fields = Fields::default();
        fields.set("f", value);
        fields
    }

    fn list_error(value: Value) -> String {
        single_field(value).list_within("f", SMALL_LIMIT).unwrap_err().text().to_owned()
    }

    #[test]
    fn list_limit_applies_to_all_forms() {
        for at_limit in
            [json!(["a", "b", "c"]), json!("a,b,c"), json!("[\"a\",\"b\",\"c\"]"), json!(" [\"a\",\"b\",1] ")]
        {
            assert_eq!(single_field(at_limit).list_within("f", SMALL_LIMIT).unwrap().unwrap().len(), 3);
        }
        for above in
            [json!(["a", "b", "c", "d"]), json!("a,b,c,d"), json!(",,,"), json!("[1,2,3,4]"), json!("[1,2,3,4")]
        {
            assert_eq!(list_error(above.clone()), "f: at most 3 entries are allowed", "{above}");
        }
        for long in [json!(["abcdef"]), json!("a,abcdef"), json!("[\"abcdef\"]"), json!(123_456)] {
            assert_eq!(list_error(long.clone()), "f: an entry is longer than 5 bytes", "{long}");
        }
        assert_eq!(single_field(json!("  abcde  ,")).list_within("f", SMALL_LIMIT).unwrap().unwrap(), ["abcde"]);
    }

    #[test]
    fn map_limit_applies_to_all_forms() {
        for at_limit in [json!({"a":1,"b":2,"c":3}), json!(["a=1", "b=2", "c=3"]), json!("a=1,b=2,c=3")] {
            assert_eq!(single_field(at_limit).map_within("f", SMALL_LIMIT).unwrap().unwrap().len(), 3);
        }
        for above in [
            json!({"a":1,"b":2,"c":3,"d":4}),
            json!(["a=1", "b=2", "c=3", "d=4"]),
            json!("a=1,b=2,c=3,d=4"),
            json!("{\"a\":1,\"b\":2,\"c\":3,\"d\":4}"),
        ] {
            let refusal = single_field(above.clone()).map_within("f", SMALL_LIMIT).unwrap_err();
            assert_eq!(refusal.text(), "f: at most 3 entries are allowed", "{above}");
        }
        for long in [json!({"abc":"def"}), json!("abc=def"), json!(["abc=def"]), json!("{\"abc\":\"def\"}")] {
            let refusal = single_field(long.clone()).map_within("f", SMALL_LIMIT).unwrap_err();
            assert_eq!(refusal.text(), "f: an entry is longer than 5 bytes", "{long}");
        }
    }

    #[test]
    fn list_of_blank_entries_is_refused_if_empty_means_any() {
        let limited = |value| single_field(value).list_within("f", SMALL_LIMIT.rejecting_only_empty());
        for empty in [json!([]), json!(""), json!("[]"), json!(" [ ] ")] {
            assert_eq!(limited(empty.clone()).unwrap(), Some(Vec::new()), "{empty}");
        }
        for blank in [json!([""]), json!([" ", ""]), json!(" "), json!(","), json!("[\"\"]")] {
            let refusal = limited(blank.clone()).unwrap_err();
            assert_eq!(refusal.text(), "f: all entries are empty; to send an empty list, send []", "{blank}");
            assert_eq!(single_field(blank).list_within("f", SMALL_LIMIT).unwrap(), Some(Vec::new()));
        }
        assert_eq!(limited(json!(["", "a"])).unwrap().unwrap(), ["a"]);
        assert!(single_field(json!([""])).map_within("f", SMALL_LIMIT.rejecting_only_empty()).is_err());
    }

    #[test]
    fn embedded_json_of_wrong_depth_is_refused() {
        let deep = "[".repeat(1_000_000);
        for text in ["[[1]]", "[{}]", &deep] {
            assert!(list_error(json!(text)).contains("must be a list of strings"));
        }
        for text in ["{\"a\":[]}", "{\"a\":{}}", &format!("{{\"a\":{deep}")] {
            assert!(single_field(json!(text)).map("f").unwrap_err().text().contains("must be a map of strings"));
        }
    }

    proptest! {
        #[test]
        fn list_is_never_longer_than_its_limit(text in "[a-c,\\[\\]\" ]{0,40}") {
            if let Ok(Some(list)) = single_field(json!(text)).list_within("f", SMALL_LIMIT) {
                prop_assert!(list.len() <= SMALL_LIMIT.entries);
                prop_assert!(list.iter().all(|entry| entry.len() <= SMALL_LIMIT.bytes));
            }
        }
    }
}
