//! The values of a denied parameter: every reading that an engine could make of a field.
//!
//! Texts are compared in lower case, without blanks around them, as a whole and item by item, and once
//! more in the one form that names of their kind have: host names without the root's dot and in ASCII,
//! addresses, networks and serial numbers in the form of answers, usages without the prefix of their
//! type, times as moments, reasons of revocations as words. A form that the field does not have costs
//! nothing: it can only deny what would be an error or the same thing.
//!
//! Patterns are compared with each item, which is a matter of both lengths: see [`Effort`].

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use serde_json::Value;

use super::spelling::Spelling;
use crate::clock::{Time, parse_duration, parse_rfc3339};
use crate::fields::{Cap, Fields, bool_word};

/// Longest label of a host name, characters.
const MAX_LABEL: usize = 63;

/// What is left of the comparisons with patterns that one field may cost: some milliseconds, far more than what people
/// write. Who sends more is refused.
pub(super) struct Effort(Cell<usize>);

impl Effort {
    /// All of it.
    pub(super) fn new() -> Self {
        Self(Cell::new(1 << 20))
    }

    /// Takes the cost of a comparison with this text; `false` when there is not so much.
    pub(super) fn takes(&self, text: &str) -> bool {
        self.takes_of(1 + text.len() / 64)
    }

    /// Takes that of so many comparisons.
    pub(super) fn takes_of(&self, comparisons: usize) -> bool {
        let left = self.0.get().checked_sub(comparisons);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }
}

/// What a field can be read as.
pub(super) struct Readings<'a> {
    value: &'a Value,
    texts: HashSet<String>,
    effort: Effort,
    flag: Option<bool>,
    number: Option<i64>,
    time: Option<Duration>,
    moment: Option<Time>,
    list: Option<Vec<String>>,
    map: Option<BTreeMap<String, String>>,
}

impl<'a> Readings<'a> {
    /// All readings of a field.
    pub(super) fn of(fields: &Fields, name: &str, value: &'a Value) -> Self {
        let (whole, list) = (fields.text(name).ok().flatten(), fields.list_within(name, Cap::WIDEST).ok().flatten());
        let reason = whole.as_ref().filter(|_| name.eq_ignore_ascii_case("reason")).and_then(|text| reason(text));
        let texts = whole.iter().chain(list.iter().flatten()).flat_map(|text| forms(text));
        Self {
            value,
            texts: texts.chain(reason.map(str::to_owned)).collect(),
            effort: Effort::new(),
            moment: whole.as_ref().and_then(|text| moment(text)),
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
        if forms(rule).iter().any(|wanted| self.has(wanted)) {
            return true;
        }
        let as_flag = self.flag.is_some() && self.flag == bool_word(rule);
        let as_number = self.number.is_some() && self.number == rule.trim().parse().ok();
        // An empty text reads as no time at all, which is not what a rule "" is about.
        let as_time = || self.time.is_some() && !rule.trim().is_empty() && self.time == parse_duration(rule);
        let as_moment = || self.moment.is_some() && self.moment == moment(rule);
        as_flag || as_number || as_time() || as_moment()
    }

    /// Whether a text is equal to `wanted`, or matched by it.
    fn has(&self, wanted: &str) -> bool {
        if !is_pattern(wanted) {
            return self.texts.contains(wanted);
        }
        self.texts.iter().any(|text| !self.effort.takes(text) || glob(wanted, text))
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

/// A point in time, in whichever zone and letter case it is written.
fn moment(text: &str) -> Option<Time> {
    parse_rfc3339("", &text.trim().to_ascii_uppercase()).ok()
}

/// The reasons of revocations that have a number, as words (RFC 5280, 5.3.1).
const REASONS: [(&str, &str); 7] = [
    ("unspecified", "0"),
    ("keycompromise", "1"),
    ("cacompromise", "2"),
    ("affiliationchanged", "3"),
    ("superseded", "4"),
    ("cessationofoperation", "5"),
    ("privilegewithdrawn", "9"),
];

/// The word of a reason that is given by its number, or with `_` between its words.
fn reason(text: &str) -> Option<&'static str> {
    let word = text.trim().replace('_', "");
    let known = REASONS.iter().find(|(name, number)| *number == word || name.eq_ignore_ascii_case(&word));
    known.map(|(name, _)| *name)
}

/// Without what is behind the prefix, of IPv4 in its own form, and one address as that.
fn network_in_one_form(network: IpNet) -> String {
    let mapped = match network {
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
        IpNet::V4(_) => None,
    };
    let mapped = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    let network = mapped.map_or(network, IpNet::V4).trunc();
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}

/// Other words for the same thing.
const SYNONYMS: [(&str, &str); 3] = [("default-batch", "batch"), ("default-service", "service"), ("azure", "cloudb")];

/// What words of usages may begin with.
const USAGES: [&str; 2] = ["extkeyusage", "keyusage"];

/// The one form that a name of its kind has; `open` when more may follow it.
fn plain(text: &str, open: bool) -> String {
    if let Ok(address) = text.parse::<IpAddr>() {
        return address.to_canonical().to_string();
    }
    if let Ok(network) = text.parse::<IpNet>() {
        return network_in_one_form(network);
    }
    if let Some((_, word)) = SYNONYMS.iter().find(|(other, _)| *other == text) {
        return (*word).to_owned();
    }
    // A host name may begin so, too, and has its own form.
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic());
    if let Some(usage) = USAGES.iter().find_map(|begin| text.strip_prefix(begin)).filter(is_word) {
        return usage.to_owned();
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

fn is_pattern(text: &str) -> bool {
    text.starts_with('*') || text.ends_with('*')
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
            ("0.0.0.0/0", "1.2.3.4/0"),
            ("0.0.0.0/0", "0.0.0.0/00"),
            ("0.0.0.0/0", "::ffff:0.0.0.0/96"),
            ("::/0", "0::1/0"),
            ("10.0.0.1", "10.0.0.1/32"),
            ("serverAuth", "ExtKeyUsageServerAuth"),
            ("*.evil.com", "keyusage.evil.com."),
            ("*.xn--bcher-kva.example", "extkeyusage.bücher.example"),
            ("KeyUsageCertSign", "certsign"),
            ("batch", "default-batch"),
            ("cloudb", "azure"),
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

    #[test]
    fn times_are_compared_as_moments_and_reasons_as_words() {
        for value in ["2026-12-20t00:00:00z", "2026-12-20T00:00:00.0Z", "2026-12-20T01:00:00+01:00"] {
            assert!(denied("2026-12-20T00:00:00Z", json!(value)), "{value}");
        }
        assert!(!denied("2026-12-20T00:00:00Z", json!("2026-12-20T00:00:01Z")));
        for value in [json!("1"), json!(1), json!("KEY_COMPROMISE"), json!("k_eyCompromise")] {
            let mut fields = Fields::default();
            fields.set("reason", value.clone());
            let readings = Readings::of(&fields, "reason", &value);
            assert!(readings.include_one_of(&[json!("keyCompromise")]), "{value}");
            assert!(readings.include_one_of(&[json!("key*")]), "{value}");
            assert!(!readings.include_one_of(&[json!("superseded")]), "{value}");
            assert!(!denied("keyCompromise", json!("1")), "of a field that is no reason");
        }
    }

    #[test]
    fn more_than_there_may_be_to_compare_is_denied() {
        let names: Vec<String> = (0..9_000).map(|n| format!("n{n}.test")).collect();
        let rules: Vec<Value> = (0..1_000).map(|n| json!(format!("*.d{n}.test"))).collect();
        let value = json!(names);
        let fields = one(&value);
        assert!(Readings::of(&fields, ONE, &value).include_one_of(&rules));
        assert!(!Readings::of(&fields, ONE, &value).include_one_of(&rules[..100]));
        // Whole texts are looked up.
        let rules: Vec<Value> = (0..10_000).map(|n| json!(format!("d{n}.test"))).collect();
        assert!(!Readings::of(&fields, ONE, &value).include_one_of(&rules));
    }

    proptest! {
        #[test]
        fn a_text_is_denied_by_itself_in_any_case(text in "[a-zA-Z0-9:.;@*ü-]{1,20}") {
            prop_assert!(denied(&text, json!(text.to_uppercase())) || text.to_uppercase().to_lowercase() != text.to_lowercase());
            prop_assert!(denied(&text.to_uppercase(), json!(text)) || text.to_uppercase().to_lowercase() != text.to_lowercase());
        }
    }
}
