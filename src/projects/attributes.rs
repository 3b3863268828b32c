//! Reads the attributes of a request and distinguishes absent, null and wrongly typed values.
//!
//! Faults are collected in the order of reading, so that one response reports all of them.

use serde_json::{Map, Value};

use super::rejection::{Fault, Faults, WorkResult};
use crate::clock::Time;
use crate::error::Kind;

/// The value of a field of a JSON object, which may be absent or null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue<T> {
    /// The field is absent: an update keeps the stored value, a create uses the default.
    Absent,
    /// The field is null.
    Null,
    /// The field has a value other than null.
    Value(T),
}

impl<T> AttributeValue<T> {
    /// Returns the value; `None` if the field is absent or null.
    pub fn value(self) -> Option<T> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }

    /// Returns the value; `None` if the field is absent or null.
    pub fn as_value(&self) -> Option<&T> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }

    /// `true` if the field is present, even if null.
    pub fn is_given(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// Returns the value to store after an update: `stored` if the field is absent, `None` if it is null.
    pub fn or_stored(self, stored: Option<T>) -> Option<T> {
        match self {
            Self::Absent => stored,
            Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }
}

/// A reader of the attributes of one request, with the faults that it has found so far.
pub struct AttributeReader<'a> {
    members: &'a Map<String, Value>,
    faults: Faults,
}

impl<'a> AttributeReader<'a> {
    /// Creates a reader of the members of the object `attributes` of a request.
    pub fn new(members: &'a Map<String, Value>) -> Self {
        Self { members, faults: Faults::default() }
    }

    /// Returns the unparsed value of an attribute.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name)
    }

    /// `true` if an attribute is present, even if null.
    pub fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// Reads a string. NUL characters are rejected because not every store can store them.
    pub fn text(&mut self, name: &str) -> AttributeValue<String> {
        let text = self.read(name, "a string", |value| value.as_str().map(str::to_owned));
        if text.as_value().is_some_and(|text| text.contains('\0')) {
            self.fault(name, format!("{} must not contain the character NUL", display_name(name)));
            return AttributeValue::Absent;
        }
        text
    }

    /// Reads a string of at most `max_characters` characters.
    pub fn short_text(&mut self, name: &str, max_characters: usize) -> AttributeValue<String> {
        let text = self.text(name);
        self.check_max_characters(name, &text, max_characters);
        text
    }

    /// Adds a fault if `text` is longer than `max_characters` characters.
    pub fn check_max_characters(&mut self, name: &str, text: &AttributeValue<String>, max_characters: usize) {
        if text.as_value().is_some_and(|text| text.chars().count() > max_characters) {
            self.fault(name, format!("{} is too long (maximum is {max_characters} characters)", display_name(name)));
        }
    }

    /// Reads the attribute `name`, which must not be blank, and must be present if `required`. Returns `Absent` for a
    /// rejected name.
    pub fn name(&mut self, required: bool) -> AttributeValue<String> {
        let name = self.text("name");
        let blank = match &name {
            AttributeValue::Value(text) => text.trim().is_empty(),
            AttributeValue::Null => true,
            // A name of the wrong type already has a fault.
            AttributeValue::Absent => required && !self.has("name"),
        };
        if blank {
            self.fault("name", "Name can't be blank");
            return AttributeValue::Absent;
        }
        name
    }

    /// Reads a boolean.
    pub fn flag(&mut self, name: &str) -> AttributeValue<bool> {
        self.read(name, "a boolean", Value::as_bool)
    }

    /// Reads an integer.
    pub fn number(&mut self, name: &str) -> AttributeValue<i64> {
        self.read(name, "an integer", Value::as_i64)
    }

    /// Reads an array of at most `max_texts` strings of at most `max_characters` characters. The number of elements is
    /// checked before the elements are read.
    pub fn texts(&mut self, name: &str, max_texts: usize, max_characters: usize) -> AttributeValue<Vec<String>> {
        let text = |one: &Value| one.as_str().filter(|text| !text.contains('\0')).map(str::to_owned);
        let fits = self.members.get(name).and_then(Value::as_array).is_none_or(|texts| texts.len() <= max_texts);
        let texts = match fits {
            true => self.read(name, "an array of strings", |value| value.as_array()?.iter().map(text).collect()),
            false => AttributeValue::Absent,
        };
        let is_long = |texts: &Vec<String>| texts.iter().any(|text| text.chars().count() > max_characters);
        if !fits || texts.as_value().is_some_and(is_long) {
            let label = display_name(name);
            self.fault(
                name,
                format!("{label} may have at most {max_texts} strings, each of at most {max_characters} characters"),
            );
        }
        texts
    }

    /// Reads an object.
    pub fn object(&mut self, name: &str) -> AttributeValue<&'a Map<String, Value>> {
        let members: &'a Map<String, Value> = self.members;
        match members.get(name) {
            None => AttributeValue::Absent,
            Some(Value::Null) => AttributeValue::Null,
            Some(Value::Object(object)) => AttributeValue::Value(object),
            Some(_) => {
                self.fault(name, format!("{} must be an object", display_name(name)));
                AttributeValue::Absent
            }
        }
    }

    /// Reads an RFC 3339 time. Times more precise than microseconds, the precision of the store, are rejected.
    pub fn time(&mut self, name: &str) -> AttributeValue<Time> {
        let time = self.read(name, "a time of the form 2030-01-02T03:04:05Z", |value| {
            crate::clock::parse_rfc3339("", value.as_str()?).ok()
        });
        // A time in a leap second parses as the last nanosecond of the previous second, and is rejected here too.
        if time.as_value().is_some_and(|time| time.nanosecond() % 1000 != 0) {
            let rule = "must have at most 6 fractional digits of seconds, and must not be in a leap second";
            self.fault(name, format!("{} {rule}", display_name(name)));
            return AttributeValue::Absent;
        }
        time
    }

    /// Adds a fault whose position is the attribute `name`.
    pub fn fault(&mut self, name: &str, detail: impl Into<std::borrow::Cow<'static, str>>) {
        self.faults.push(Fault::attribute(name, detail));
    }

    /// Adds a fault.
    pub fn push(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// `true` if there is no fault so far.
    pub fn has_no_faults(&self) -> bool {
        self.faults.is_empty()
    }

    /// Rejects the request if there are faults.
    ///
    /// # Errors
    /// `Invalid` with all faults, if there are any.
    pub fn finish(self) -> WorkResult<()> {
        self.faults.finish(Kind::Invalid)
    }

    fn read<T>(&mut self, name: &str, kind: &str, read: impl FnOnce(&Value) -> Option<T>) -> AttributeValue<T> {
        match self.members.get(name) {
            None => AttributeValue::Absent,
            Some(Value::Null) => AttributeValue::Null,
            Some(value) => match read(value) {
                Some(value) => AttributeValue::Value(value),
                None => {
                    self.fault(name, format!("{} must be {kind}", display_name(name)));
                    AttributeValue::Absent
                }
            },
        }
    }
}

/// Returns the display form of an attribute name: `agent-pool-id` becomes "Agent pool id".
pub fn display_name(name: &str) -> String {
    let words = name.replace('-', " ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projects::rejection::WorkError;
    use serde_json::json;

    #[test]
    fn attributes_of_wrong_type_are_reported_in_reading_order() {
        let body = json!({ "name": 1, "locked": "yes", "trigger-prefixes": ["a", 2], "description": null });
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        assert_eq!(attributes.text("name"), AttributeValue::Absent);
        assert_eq!(attributes.flag("locked"), AttributeValue::Absent);
        assert_eq!(attributes.texts("trigger-prefixes", 2, 10), AttributeValue::Absent);
        assert_eq!(attributes.text("description"), AttributeValue::Null);
        assert_eq!(attributes.number("absent"), AttributeValue::Absent);
        let Err(WorkError::Refused(refusal)) = attributes.finish() else { panic!("refused") };
        let details: Vec<_> = refusal.faults.iter().map(|fault| &*fault.detail).collect();
        let expected =
            ["Name must be a string", "Locked must be a boolean", "Trigger prefixes must be an array of strings"];
        assert_eq!(details, expected);
    }
}
