//! The values of a denied parameter: every reading that an engine could make of a field.
//!
//! Texts are compared in lower case, without blanks around them, as a whole and item by item, and once
//! more in the one form that names of their kind have: host names without the root's dot and in ASCII,
//! addresses and serial numbers in the form of answers. A form that the field does not have costs
//! nothing: it can only deny what would be an error or the same thing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use super::spelling::Spelling;
use crate::clock::parse_duration;
use crate::fields::{Cap, Fields, bool_word};

/// Longest label of a host name, characters.
const MAX_LABEL: usize = 63;

/// What a field can be read as.
pub(super) struct Readings<'a> {
    value: &'a Value,
    texts: Vec<String>,
    flag: Option<bool>,
    number: Option<i64>,
    time: Option<Duration>,
    list: Option<Vec<String>>,
    map: Option<BTreeMap<String, String>>,
}

impl<'a> Readings<'a> {
    /// All readings of a field.
    pub(super) fn of(fields: &Fields, name: &str, value: &'a Value) -> Self {
        let (whole, list) = (fields.text(name).ok().flatten(), fields.list_within(name, Cap::WIDEST).ok().flatten());
        Self {
            value,
            texts: whole.iter().chain(list.iter().flatten()).flat_map(|text| forms(text)).collect(),
            flag: fields.bool(name).ok().flatten(),
            number: fields.int(name).ok().flatten(),
            time: fields.duration(name).ok().flatten(),
            list,
            map: fields.map_within(name, Cap::WIDEST).ok().flatten(),
        }
    }

    /// Whether one of them is one of the values of a rule.
    pub(super) fn include_one_of(&self, values: &[Value]) -> bool {
        values.iter().any(|value| self.include(value))
    }

    fn include(&self, rule: &Value) -> bool {
        if self.value == rule {
            return true;
        }
        match rule {
            Value::Bool(wanted) => self.flag == Some(*wanted),
            Value::Number(number) => self.include_text(&number.to_string()),
            Value::String(text) => self.include_text(text),
            Value::Array(_) => {
                self.list.is_some() && self.list == one(rule).list_within(ONE, Cap::WIDEST).ok().flatten()
            }
            Value::Object(_) => self.map.is_some() && self.map == one(rule).map_within(ONE, Cap::WIDEST).ok().flatten(),
            Value::Null => false,
        }
    }

    fn include_text(&self, rule: &str) -> bool {
        let wanted = forms(rule);
        if self.texts.iter().any(|text| wanted.iter().any(|pattern| glob(pattern, text))) {
            return true;
        }
        let as_flag = self.flag.is_some() && self.flag == bool_word(rule);
        let as_number = self.number.is_some() && self.number == rule.trim().parse().ok();
        // An empty text reads as no time at all, which is not what a rule "" is about.
        let as_time = || self.time.is_some() && !rule.trim().is_empty() && self.time == parse_duration(rule);
        as_flag || as_number || as_time()
    }
}

const ONE: &str = "v";

fn one(value: &Value) -> Fields {
    let mut fields = Fields::default();
    fields.set(ONE, value.clone());
    fields
}

/// A text, or a pattern, as it is compared.
fn forms(text: &str) -> Vec<String> {
    let lowered = text.trim().to_lowercase();
    let begin = lowered.strip_prefix('*').unwrap_or(&lowered);
    let core = begin.strip_suffix('*').unwrap_or(begin);
    let (head, tail) = (begin.len() < lowered.len(), core.len() < begin.len());
    let plain = plain(core, tail);
    let star = |is: bool| if is { "*" } else { "" };
    let other = (plain != core).then(|| format!("{}{plain}{}", star(head), star(tail)));
    other.into_iter().chain([lowered]).collect()
}

/// The one form that a name of its kind has; `open` when more may follow it.
fn plain(text: &str, open: bool) -> String {
    if let Ok(address) = text.parse::<IpAddr>() {
        return address.to_canonical().to_string();
    }
    let serial = Spelling::Serial.canonical(text);
    if *serial != *text {
        return serial.into_owned();
    }
    // The two spellings of the type of an otherName.
    let text = text.replacen(";utf-8:", ";utf8:", 1);
    let (local, host) =
        text.rsplit_once('@').map_or(("", &text[..]), |(_, host)| text.split_at(text.len() - host.len()));
    let host = if open { host } else { host.strip_suffix('.').unwrap_or(host) };
    let labels: Vec<String> = host.split('.').map(ascii_label).collect();
    format!("{local}{}", labels.join("."))
}

/// A label of a host name in ASCII (RFC 3492), as certificates have it.
fn ascii_label(label: &str) -> String {
    if label.is_ascii() || label.chars().nth(MAX_LABEL).is_some() {
        return label.to_owned();
    }
    idna::punycode::encode_str(label).map_or_else(|| label.to_owned(), |encoded| format!("xn--{encoded}"))
}

/// Equal, or matched by a pattern with `*` at its beginning, its end, or both.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let (head, tail) = (pattern.starts_with('*'), pattern.ends_with('*'));
    match (head, tail) {
        _ if pattern == "*" => true,
        (true, true) => text.contains(&pattern[1..pattern.len() - 1]),
        (true, false) => text.ends_with(&pattern[1..]),
        (false, true) => text.starts_with(&pattern[..pattern.len() - 1]),
        (false, false) => text == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn denied(rule: &str, value: Value) -> bool {
        Readings::of(&one(&value), ONE, &value).include_one_of(&[json!(rule)])
    }

    #[test]
    fn names_are_compared_in_the_form_of_their_kind() {
        for (rule, value) in [
            ("*.evil.com", "A.EVIL.COM."),
            ("*.Evil.Com.", "a.evil.com"),
            ("evil.*", "evil.com."),
            ("*.bücher.example", "a.xn--bcher-kva.example"),
            ("*.xn--bcher-kva.example", "x@a.BÜCHER.example"),
            ("10.0.0.1", "::ffff:10.0.0.1"),
            ("2001:DB8:0::1", "2001:db8::1"),
            ("2001:db8:*", "2001:0db8::5"),
            ("0a:0b", "00-0A-0b"),
            ("0A-0B*", "0a:0b:0c"),
            ("1.2.3;utf8:*", "1.2.3;UTF-8:x"),
        ] {
            assert!(denied(rule, json!(value)), "{rule} {value}");
            assert!(denied(rule, json!(["other", value])), "{rule} {value}");
            assert!(denied(rule, json!(format!("other, {value} ,x"))), "{rule} {value}");
        }
        for (rule, value) in [
            ("evil.com", "evil.com.x"),
            ("evil.*", "evil"),
            ("10.0.0.1", "10.0.0.10"),
            ("evil.com.*", "evil.community"),
        ] {
            assert!(!denied(rule, json!(value)), "{rule} {value}");
        }
    }

    proptest! {
        #[test]
        fn a_text_is_denied_by_itself_in_any_case(text in "[a-zA-Z0-9:.;@*ü-]{1,20}") {
            prop_assert!(denied(&text, json!(text.to_uppercase())) || text.to_uppercase().to_lowercase() != text.to_lowercase());
            prop_assert!(denied(&text.to_uppercase(), json!(text)) || text.to_uppercase().to_lowercase() != text.to_lowercase());
        }
    }
}
