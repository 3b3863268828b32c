//! Lenient decoding of the members of a request body.
//!
//! Clients send booleans as `"true"`, numbers as text and lists as comma-separated strings. So endpoints read every
//! field through [`Fields`], as the type that they need. `null` counts as absent. The error for a value that cannot be
//! read names the field and never quotes the value.
//!
//! The values of a body are counted while it is parsed ([`Fields::parse`]). The items of a list within a text are
//! counted when the field is read ([`ListLimit`]), so both forms of a list have the same limit.

mod declaration;
mod list;
mod suggestions;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

use crate::clock::{parse_duration, violated_duration_rule};
use crate::error::{Error, Result};
use crate::secret::Secret;
pub(crate) use declaration::resource;
pub use declaration::{FieldSlot, ListFieldSlot, Resource};
pub use list::ListLimit;
pub use suggestions::closest_name;

/// Maximum nesting depth of lists and objects in a JSON body.
pub const MAX_DEPTH: usize = 64;
/// Maximum length in bytes of a text in a JSON body, except in requests that contain lists of certificates.
pub const MAX_TEXT_BYTES: usize = 1 << 20;
/// Maximum number of values in a JSON body: members and list items at all levels.
pub const MAX_VALUES: usize = 10_000;

/// The members of a request body or the parameters of a query, by name. Clones share the members until one clone is
/// changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Arc<Map<String, Value>>);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Fields {
    /// Parses a request body: one JSON object or `null`, with at most [`MAX_DEPTH`] levels, [`MAX_VALUES`] values and
    /// [`MAX_TEXT_BYTES`] bytes per text. An empty body has no fields. If a member is repeated, the last one counts.
    ///
    /// # Errors
    /// `Malformed`, with a text that never quotes the input.
    pub fn parse(body: &[u8]) -> Result<Self> {
        Self::parse_within(body, MAX_TEXT_BYTES)
    }

    /// Parses a request body like [`Fields::parse`], but with texts of up to `max_text_bytes` bytes.
    ///
    /// # Errors
    /// As [`Fields::parse`].
    pub fn parse_within(body: &[u8], max_text_bytes: usize) -> Result<Self> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        match parse_bounded(body, max_text_bytes)? {
            Value::Object(members) => Ok(Self(Arc::new(members))),
            Value::Null => Ok(Self::default()),
            _ => Err(Error::malformed("request body: must be a JSON object")),
        }
    }

    /// Builds fields from pairs of name and value, such as those of a form body or a query. A repeated name becomes a
    /// list.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut members = Map::new();
        for (name, value) in pairs {
            match members.get_mut(&name) {
                None => drop(members.insert(name, Value::String(value))),
                Some(Value::Array(items)) => items.push(Value::String(value)),
                Some(first) => *first = Value::Array(vec![first.take(), Value::String(value)]),
            }
        }
        Self(Arc::new(members))
    }

    /// Returns the raw value of a field; `None` if the field is absent or null.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|v| !v.is_null())
    }

    /// `true` if the field is an explicit `null`, which has a meaning in PATCH.
    pub fn is_null(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(Value::is_null)
    }

    /// `true` if the field is present and not null.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// `true` if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over names and values of all fields, nulls included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns all fields as the client sent them, nulls included.
    pub fn into_members(self) -> Map<String, Value> {
        Arc::unwrap_or_clone(self.0)
    }

    /// Iterates over the names of the fields that are not in `known`.
    pub fn unknown<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.0.keys().map(String::as_str).filter(move |name| !known.contains(name))
    }

    /// Sets a field to a value.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        Arc::make_mut(&mut self.0).insert(name.to_owned(), value.into());
    }

    /// Reads a text. A number or boolean is converted to text.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        self.value(name).map(|v| scalar_text(v).ok_or_else(|| type_error(name, "a string"))).transpose()
    }

    /// Reads a text like [`Fields::text`], but an empty text counts as absent.
    pub fn nonempty_text(&self, name: &str) -> Result<Option<String>> {
        Ok(self.text(name)?.filter(|text| !text.is_empty()))
    }

    /// Borrows a text instead of copying it, for large values such as `csr`. Accepts only JSON strings.
    pub fn str(&self, name: &str) -> Result<Option<&str>> {
        self.value(name).map(|v| v.as_str().ok_or_else(|| type_error(name, "a string"))).transpose()
    }

    /// Removes a secret text from the fields and returns it. Accepts only JSON strings. Dropping the returned
    /// [`Secret`] overwrites the text in memory.
    pub fn take_secret(&mut self, name: &str) -> Result<Option<Secret>> {
        // Presence is checked first, because removing a field copies all fields if a clone shares them.
        if !self.0.contains_key(name) {
            return Ok(None);
        }
        match Arc::make_mut(&mut self.0).remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(Secret::new(text.into_bytes()))),
            Some(_) => Err(type_error(name, "a string")),
        }
    }

    /// Reads a boolean: a JSON boolean, one of the words of [`parse_bool_word`], the number 0 or 1, or the empty text
    /// for `false`.
    pub fn bool(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let parsed = match value {
            Value::Bool(b) => Some(*b),
            Value::Number(n) => match n.as_f64() {
                Some(0.0) => Some(false),
                Some(1.0) => Some(true),
                _ => None,
            },
            Value::String(s) if s.is_empty() => Some(false),
            Value::String(s) => parse_bool_word(s),
            _ => None,
        };
        parsed.map(Some).ok_or_else(|| type_error(name, "a boolean"))
    }

    /// Reads a whole number: a JSON number (also with a zero fraction), a decimal text, or the empty text for 0.
    pub fn int(&self, name: &str) -> Result<Option<i64>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        to_integer(value).map(Some).ok_or_else(|| type_error(name, "an integer"))
    }

    /// Reads a duration: a number of whole seconds, or a text for [`parse_duration`]. Returns `Some(ZERO)` for an
    /// explicit `""` or `0`.
    pub fn duration(&self, name: &str) -> Result<Option<Duration>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let text = match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(_) => to_integer(value).map(|n| n.to_string()),
            _ => None,
        };
        let form = "a duration, such as 90, \"90s\" or \"1h30m\", and not negative";
        let text = text.as_deref();
        let rule = || type_error(name, text.map_or(form, |text| violated_duration_rule(text, form)));
        text.and_then(parse_duration).map(Some).ok_or_else(rule)
    }

    /// Reads a text, and rejects one that is longer than `bytes` bytes.
    pub fn text_within(&self, name: &str, bytes: usize) -> Result<Option<String>> {
        match self.text(name)? {
            Some(text) if text.len() > bytes => Err(Error::invalid(format!("{name}: longer than {bytes} bytes"))),
            text => Ok(text),
        }
    }

    /// Reads a list: a JSON list of scalars, a text that contains a JSON list, or a comma-separated text. Items are
    /// trimmed, and empty ones dropped. The limit is [`ListLimit::LIST`].
    pub fn list(&self, name: &str) -> Result<Option<Vec<String>>> {
        self.list_within(name, ListLimit::LIST)
    }

    /// Reads a list like [`Fields::list`], but with the limit `limit`.
    pub fn list_within(&self, name: &str, limit: ListLimit) -> Result<Option<Vec<String>>> {
        self.list_of(name, true, limit)
    }

    /// Reads a list of texts of any length that may contain commas: a JSON list of scalars, a text that contains such a
    /// list, or a single text.
    pub fn strings(&self, name: &str) -> Result<Option<Vec<String>>> {
        self.list_of(name, false, ListLimit { bytes: usize::MAX, ..ListLimit::LIST })
    }

    fn list_of(&self, name: &str, split: bool, limit: ListLimit) -> Result<Option<Vec<String>>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        list::parse_list(value, split, limit)
            .map(Some)
            .map_err(|problem| problem.into_error(name, "a list of strings", limit))
    }

    /// Reads a map of texts: a JSON object of scalars, a list of `k=v` texts, a comma-separated text of `k=v` pairs, or
    /// a text that contains a JSON object. The limit is [`ListLimit::LIST`].
    pub fn map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>> {
        self.map_within(name, ListLimit::LIST)
    }

    /// Reads a map like [`Fields::map`], but with the limit `limit`.
    pub fn map_within(&self, name: &str, limit: ListLimit) -> Result<Option<BTreeMap<String, String>>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        list::parse_map(value, limit).map(Some).map_err(|problem| problem.into_error(name, "a map of strings", limit))
    }
}

fn type_error(name: &str, wanted: &str) -> Error {
    Error::invalid(format!("field validation failed: error converting input for field \"{name}\": must be {wanted}"))
}

/// Parses a boolean that a client sent as text: `1 t T TRUE true True` or `0 f F FALSE false False`.
pub fn parse_bool_word(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Maximum length in bytes of a generic name, such as the name of a role.
pub const MAX_NAME_LEN: usize = 128;

/// `true` if `text` has the form of a generic name: letters, digits, `_`, and, except at both ends, `-` and `.`. Does
/// not check the length ([`MAX_NAME_LEN`]).
pub fn is_name(text: &str) -> bool {
    let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(word)
        && bytes.last().is_some_and(word)
        && bytes.iter().all(|b| word(b) || matches!(b, b'-' | b'.'))
}

/// `true` for characters that names must not contain, because with them two different names could look alike: controls,
/// blanks other than the ASCII space, invisible characters, bidirectional formatting, and unassigned or private code
/// points.
pub fn is_invisible(c: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, SpaceSeparator, Unassigned};
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    matches!(
        c.general_category(),
        Control | Format | LineSeparator | ParagraphSeparator | PrivateUse | SpaceSeparator | Unassigned
    ) || DEFAULT_IGNORABLE_CHARS.iter().any(|ignored| ignored.contains(&c))
}

/// `true` if a text contains characters that names chosen by operators must not contain; see [`is_invisible`].
pub fn has_invisible(text: &str) -> bool {
    text.chars().any(is_invisible)
}

/// `true` for a control character, and for a character that changes the direction of text.
pub fn is_control_or_bidi(c: char) -> bool {
    let changes_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || changes_direction
}

/// Invisible letters and marks: the code points with Unicode's property Default_Ignorable_Code_Point, except those
/// whose general category [`is_invisible`] already excludes.
const DEFAULT_IGNORABLE_CHARS: [RangeInclusive<char>; 8] = [
    '\u{34f}'..='\u{34f}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{e0100}'..='\u{e01ef}',
];

/// Parses a text that contains JSON; `None` if the text is not JSON or has more than `values` values.
pub fn parse_embedded_json(text: &str, values: usize) -> Option<Value> {
    let budget = std::cell::Cell::new(values);
    let mut json = serde_json::Deserializer::from_str(text);
    let value =
        BoundedValueSeed { depth: MAX_DEPTH, budget: &budget, max_text_bytes: MAX_TEXT_BYTES, max_elements: values }
            .deserialize(&mut json)
            .ok()?;
    json.end().is_ok().then_some(value)
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

fn to_integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(n) => {
            n.as_i64().or_else(|| n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15).map(|f| f as i64))
        }
        Value::String(s) if s.trim().is_empty() => Some(0),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    }
}

/// Parses one JSON value with at most [`MAX_DEPTH`] levels, [`MAX_VALUES`] values and `max_text_bytes` bytes per text.
/// Values are counted during parsing. If a member is repeated, the last one counts.
///
/// # Errors
/// `Malformed`, with a text that never quotes the input.
pub fn parse_bounded(body: &[u8], max_text_bytes: usize) -> Result<Value> {
    parse_with_list_limit(body, max_text_bytes, MAX_VALUES)
}

/// Parses one JSON value like [`parse_bounded`]. The lists in the body should have at most `max_elements` elements.
/// Longer lists are parsed too, because the code that reads a list checks its length. But if [`MAX_VALUES`] is exceeded
/// within such a list, the error is about the length of the list.
///
/// # Errors
/// As [`parse_bounded`]; `Invalid` if [`MAX_VALUES`] is exceeded within a list with more than `max_elements` elements.
pub fn parse_with_list_limit(body: &[u8], max_text_bytes: usize, max_elements: usize) -> Result<Value> {
    let budget = std::cell::Cell::new(MAX_VALUES);
    let mut json = serde_json::Deserializer::from_slice(body);
    let bounds = BoundedValueSeed { depth: MAX_DEPTH, budget: &budget, max_text_bytes, max_elements };
    let value = bounds.deserialize(&mut json).map_err(|e| parse_error(&e, max_text_bytes, max_elements))?;
    json.end().map_err(|_| Error::malformed("request body: unexpected data after the JSON value"))?;
    Ok(value)
}

fn parse_error(error: &serde_json::Error, max_text_bytes: usize, max_elements: usize) -> Error {
    let text = error.to_string();
    if let Some(rest) = text.strip_prefix(TEXT_TOO_LONG) {
        let member = rest.rsplit_once('\n').map_or("a text", |(member, _)| member);
        return Error::malformed(format!("{member}: longer than {max_text_bytes} bytes"));
    }
    if text.starts_with(LIST_TOO_LONG) {
        return Error::invalid(format!("request body: a list may have at most {max_elements} elements"));
    }
    if text.starts_with(TOO_DEEP) || text.starts_with(TOO_MANY_VALUES) {
        return Error::malformed(format!(
            "request body: too complex: at most {MAX_DEPTH} levels and {MAX_VALUES} values are allowed"
        ));
    }
    Error::malformed("request body: not valid JSON")
}

const TOO_DEEP: &str = "too deep";
const TOO_MANY_VALUES: &str = "too many values";
const LIST_TOO_LONG: &str = "a list with too many values";
const TEXT_TOO_LONG: &str = "too long";

/// A serde seed that deserializes a [`Value`] and limits its depth, the number of values and the length of texts.
#[derive(Clone, Copy)]
struct BoundedValueSeed<'a> {
    depth: usize,
    budget: &'a std::cell::Cell<usize>,
    max_text_bytes: usize,
    max_elements: usize,
}

impl BoundedValueSeed<'_> {
    fn for_nested_value<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom(TOO_DEEP))?;
        Ok(Self { depth, ..self })
    }

    /// Replaces the error "too many values" by an error about the length of the list, if the list already has more than
    /// `max_elements` elements.
    fn map_list_error<E: serde::de::Error>(self, error: E, elements: usize) -> E {
        if elements > self.max_elements && error.to_string().starts_with(TOO_MANY_VALUES) {
            E::custom(LIST_TOO_LONG)
        } else {
            error
        }
    }

    fn check_length<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if text.len() > self.max_text_bytes { Err(E::custom(TEXT_TOO_LONG)) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.budget.get().checked_sub(1).ok_or_else(|| D::Error::custom(TOO_MANY_VALUES))?;
        self.budget.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Value, E> {
        self.check_length(v)?;
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, v: String) -> Result<Value, E> {
        self.check_length(&v)?;
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.for_nested_value()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner).map_err(|error| self.map_list_error(error, list.len()))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.for_nested_value()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            self.check_length(&name)?;
            let value = members.next_value_seed(inner).map_err(|error| with_member_name(error, &name))?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// Adds the name of a member to the error about a text that is too long. Each enclosing object replaces the name, so
/// the error contains the name of the outermost member.
fn with_member_name<E: serde::de::Error>(error: E, name: &str) -> E {
    if !error.to_string().starts_with(TEXT_TOO_LONG) {
        return error;
    }
    let begin: String = name.chars().take(64).collect();
    E::custom(format!("{TEXT_TOO_LONG}{begin}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn single_field(value: Value) -> Fields {
        let mut fields = Fields::default();
        fields.set("f", value);
        fields
    }

    #[test]
    fn text_length_is_limited() {
        let text = |length: usize| "a".repeat(length);
        for (body, member) in [
            (json!({ "f": text(101) }), "f"),
            (json!({ "f": [[{ "g": text(101) }]] }), "f"),
            (json!({ text(101): 1 }), "a text"),
            (json!([text(101)]), "a text"),
            (json!({ "a\nb": text(101) }), "a\nb"),
            (json!({ text(100): text(101) }), &text(64)),
        ] {
            let error = Fields::parse_within(body.to_string().as_bytes(), 100).unwrap_err();
            assert_eq!(error.text(), format!("{member}: longer than 100 bytes"));
        }
        assert!(Fields::parse_within(json!({ text(100): text(100) }).to_string().as_bytes(), 100).is_ok());
        let escaped = format!("{{\"f\":\"{}\"}}", "\\u0061".repeat(100));
        assert!(Fields::parse_within(escaped.as_bytes(), 100).is_ok());
    }

    #[test]
    fn secret_is_removed_from_the_body() {
        let mut fields = Fields::parse(br#"{"private_key": "hunter2", "other": ["hunter2"], "none": null}"#).unwrap();
        assert!(fields.take_secret("private_key").unwrap().unwrap().expose() == b"hunter2");
        assert!(!fields.has("private_key") && fields.take_secret("private_key").unwrap().is_none());
        assert!(fields.take_secret("none").unwrap().is_none());
        let error = fields.take_secret("other").err().unwrap();
        assert!(error.text().contains("\"other\"") && !error.text().contains("hunter2"), "{error}");
    }

    #[test]
    fn boolean_is_read_from_its_words() {
        for v in [json!(true), json!("true"), json!("T"), json!("1"), json!(1), json!("True")] {
            assert_eq!(single_field(v).bool("f").unwrap(), Some(true));
        }
        for v in [json!(false), json!(""), json!(0), json!("f")] {
            assert_eq!(single_field(v).bool("f").unwrap(), Some(false));
        }
        for v in [json!("yes"), json!(2), json!([true])] {
            assert!(single_field(v).bool("f").is_err());
        }
        assert_eq!(single_field(Value::Null).bool("f").unwrap(), None);
    }

    #[test]
    fn integers_and_durations_are_read_from_texts() {
        assert_eq!(single_field(json!("2048")).int("f").unwrap(), Some(2048));
        assert_eq!(single_field(json!(2048.0)).int("f").unwrap(), Some(2048));
        assert!(single_field(json!(1.5)).int("f").is_err());
        for v in [json!("1h30m"), json!(5400), json!("5400"), json!("90m")] {
            assert_eq!(single_field(v).duration("f").unwrap(), Some(Duration::from_secs(5400)));
        }
        for v in [json!("-1s"), json!("1x"), json!(1.5), json!(-1)] {
            assert!(single_field(v).duration("f").unwrap_err().text().ends_with("and not negative"));
        }
        for v in [json!("99999999h"), json!(315_576_000_001_i64)] {
            assert!(
                single_field(v).duration("f").unwrap_err().text().ends_with("must be at most 10000 years (87660000h)")
            );
        }
    }

    #[test]
    fn list_is_read_from_three_forms() {
        for v in [json!("a, b,"), json!(["a", "b"]), json!("[\"a\",\"b\"]")] {
            assert_eq!(single_field(v).list("f").unwrap().unwrap(), ["a", "b"]);
        }
        assert_eq!(single_field(json!("a, b")).strings("f").unwrap().unwrap(), ["a, b"]);
        assert_eq!(single_field(json!("")).list("f").unwrap().unwrap(), Vec::<String>::new());
        assert!(single_field(json!([{}])).list("f").is_err());
    }

    #[test]
    fn map_is_read_from_four_forms() {
        for v in [json!({"k": "v"}), json!(["k=v"]), json!("k=v"), json!("{\"k\":\"v\"}")] {
            assert_eq!(single_field(v).map("f").unwrap().unwrap(), BTreeMap::from([("k".into(), "v".into())]));
        }
    }

    #[test]
    fn body_other_than_one_bounded_object_is_refused() {
        assert!(Fields::parse(b"").unwrap().is_empty());
        assert!(Fields::parse(b"null").unwrap().is_empty());
        assert!(Fields::parse(b"{\"a\":1} \n").is_ok());
        for bad in [&b"{} {}"[..], b"{} x", b"[]", b"{", b"\"x\""] {
            assert!(Fields::parse(bad).is_err());
        }
        let deep = "[".repeat(10_000_000);
        assert!(Fields::parse(deep.as_bytes()).unwrap_err().text().contains("too complex"));
        let wide = format!("{{\"a\":[{}0]}}", "0,".repeat(100_000));
        assert!(Fields::parse(wide.as_bytes()).unwrap_err().text().contains("too complex"));
        let secret = Fields::parse(b"{\"client_secret\":\"hunter2").unwrap_err();
        assert!(!format!("{secret} {secret:?}").contains("hunter2"));
    }

    #[test]
    fn list_too_long_is_reported_before_too_many_values() {
        let read =
            |body: &str| parse_with_list_limit(body.as_bytes(), MAX_TEXT_BYTES, 1000).map_err(|e| e.text().to_owned());
        let ids = |many: usize| format!("{{\"data\":[{}{{}}]}}", "{\"type\":\"x\",\"id\":\"y\"},".repeat(many - 1));
        assert!(read(&ids(3000)).is_ok(), "the handler checks the count");
        let long = read(&ids(4000)).unwrap_err();
        assert_eq!(long, "request body: a list may have at most 1000 elements");
        assert!(read(&format!("[{}0]", "0,".repeat(20_000))).unwrap_err().contains("a list may have"));
        let members = (0..20_000).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(",");
        let short = format!("{}[0]", "[0,0],".repeat(900));
        for body in [format!("[{{{members}}}]"), vec![format!("[{short}]"); 20].join(","), "[".repeat(100)] {
            let body = format!("{{\"data\":[{body}]}}");
            assert!(read(&body).unwrap_err().contains("too complex"), "{body:.100}");
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,20}|\\[[\"a, ]{0,8}\\]?|[0-9.hms=,{}:\"]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map("[a-z]{0,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn parsing_never_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Fields::parse(&body);
        }

        #[test]
        fn field_readers_do_not_panic_on_any_value(value in any_value()) {
            let fields = single_field(value);
            let _ = (fields.text("f"), fields.str("f"), fields.bool("f"), fields.int("f"), fields.duration("f"));
            let _ = (fields.strings("f"), fields.map("f"));
            if let Ok(Some(list)) = fields.list("f") {
                prop_assert!(list.iter().all(|item| !item.is_empty() && item.trim() == item));
            }
        }

        #[test]
        fn joined_list_equals_array(items in proptest::collection::vec("[a-z.*@]{1,8}", 1..6)) {
            prop_assert_eq!(single_field(json!(items.join(", "))).list("f").unwrap(), Some(items.clone()));
            prop_assert_eq!(single_field(json!(items)).list("f").unwrap(), Some(items));
        }
    }
}
