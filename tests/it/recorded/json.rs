//! Formats JSON for recordings: members and numbers as received. Only lists and members keyed by random ids are sorted.

use std::fmt::Write as _;

use super::names::Names;

/// A value, with scalars as received.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Object(Vec<(String, Json)>),
    Array(Vec<Json>),
    Text(String),
    Other(String),
}

/// Formats a JSON text over several lines, with names for random values; `None` if it is not JSON.
pub fn pretty(text: &str, names: &mut Names) -> Option<String> {
    // The reader below requires a valid text.
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    let value = Reader { rest: text }.value();
    let mut out = String::new();
    write(&stable(value, names), 0, &mut out);
    out.push('\n');
    Some(out)
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn value(&mut self) -> Json {
        self.rest = self.rest.trim_start();
        match self.rest.as_bytes()[0] {
            b'{' => {
                let mut members = Vec::new();
                while self.goes_on('}') {
                    let Json::Text(name) = self.value() else { unreachable!("names are texts") };
                    self.rest = self.rest.trim_start().strip_prefix(':').unwrap();
                    members.push((name, self.value()));
                }
                Json::Object(members)
            }
            b'[' => {
                let mut items = Vec::new();
                while self.goes_on(']') {
                    items.push(self.value());
                }
                Json::Array(items)
            }
            b'"' => {
                let mut escaped = false;
                let end = self.rest[1..].find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                Json::Text(self.take(end.unwrap() + 2))
            }
            _ => {
                let end = self.rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']'));
                Json::Other(self.take(end.unwrap_or(self.rest.len())))
            }
        }
    }

    fn take(&mut self, len: usize) -> String {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken.to_owned()
    }

    /// Skips an opening bracket or a comma and returns `true`, or skips the closing bracket and returns `false`.
    fn goes_on(&mut self, closing: char) -> bool {
        let begun = self.rest.trim_start();
        self.rest = begun[1..].trim_start();
        let empty = begun.starts_with(['{', '[']) && self.rest.starts_with(closing);
        if empty {
            self.rest = &self.rest[1..];
        }
        !empty && !begun.starts_with(closing)
    }
}

fn stable(value: Json, names: &mut Names) -> Json {
    match value {
        Json::Object(members) => {
            for (_, about) in members.iter().filter(|(name, _)| name == "\"key_info\"") {
                name_by_content(about, names);
            }
            let random = !members.is_empty() && members.iter().all(|(name, _)| is_random(name));
            let member = |(name, value): (String, Json)| match (&name[..], &value) {
                // Written asynchronously, so later uses may come first.
                ("\"last-used-at\"", Json::Text(_)) => (name, Json::Text("\"(a moment ago)\"".to_owned())),
                // Depends on a random serial number.
                ("\"renew_after\"", Json::Text(_)) => (name, Json::Text("\"(renewal)\"".to_owned())),
                ("\"renew_after\"", Json::Other(_)) => (name, Json::Other("(renewal)".to_owned())),
                _ => (stable_text(name, names), stable(value, names)),
            };
            let mut members: Vec<_> = members.into_iter().map(member).collect();
            if random {
                members.sort_by_key(|(name, _)| natural(name));
            }
            Json::Object(members)
        }
        Json::Array(items) => {
            let random = |item: &Json| matches!(item, Json::Text(text) if is_random(text));
            let random = !items.is_empty() && items.iter().all(random);
            let mut items: Vec<_> = items.into_iter().map(|item| stable(item, names)).collect();
            if random {
                items.sort_by_key(|item| match item {
                    Json::Text(text) => natural(text),
                    _ => (String::new(), 0),
                });
            }
            Json::Array(items)
        }
        Json::Text(text) => Json::Text(stable_text(text, names)),
        Json::Other(text) => Json::Other(text),
    }
}

/// Names the ids of a list in the order of their details, because the ids themselves are in random order.
fn name_by_content(details: &Json, names: &mut Names) {
    let Json::Object(members) = details else { return };
    let content = |value: &Json| {
        let mut text = String::new();
        write(&stable(value.clone(), &mut Names::default()), 0, &mut text);
        text
    };
    let mut ids: Vec<_> = members.iter().map(|(name, value)| (content(value), name)).collect();
    ids.sort();
    for (_, id) in ids {
        stable_text(id.clone(), names);
    }
}

fn is_random(quoted: &str) -> bool {
    Names::is_random_id(quoted.trim_matches('"'))
}

/// A quoted text with names for random values.
fn stable_text(quoted: String, names: &mut Names) -> String {
    let text: String = serde_json::from_str(&quoted).unwrap();
    let stable = names.stable(&text);
    if stable == text { quoted } else { serde_json::to_string(&stable).unwrap() }
}

/// Sort key of a name: kind and number, so that 10 follows 9.
fn natural(quoted: &str) -> (String, usize) {
    let text = quoted.trim_matches('"');
    let (kind, number) = text.rsplit_once('-').unwrap_or((text, ""));
    (kind.to_owned(), number.parse().unwrap_or(0))
}

fn write(value: &Json, depth: usize, out: &mut String) {
    let indent = |depth: usize| "  ".repeat(depth);
    match value {
        Json::Object(members) if !members.is_empty() => {
            out.push_str("{\n");
            for (at, (name, value)) in members.iter().enumerate() {
                let _ = write!(out, "{}{name}: ", indent(depth + 1));
                write(value, depth + 1, out);
                out.push_str(if at + 1 < members.len() { ",\n" } else { "\n" });
            }
            let _ = write!(out, "{}}}", indent(depth));
        }
        Json::Array(items) if !items.is_empty() => {
            out.push_str("[\n");
            for (at, item) in items.iter().enumerate() {
                out.push_str(&indent(depth + 1));
                write(item, depth + 1, out);
                out.push_str(if at + 1 < items.len() { ",\n" } else { "\n" });
            }
            let _ = write!(out, "{}]", indent(depth));
        }
        Json::Object(_) => out.push_str("{}"),
        Json::Array(_) => out.push_str("[]"),
        Json::Text(text) | Json::Other(text) => out.push_str(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_order_and_number_spelling_are_preserved() {
        let text = r#" {"b":1.50,"a":[ ],"c":[{},{"\u003c":"x \"y\\","n":null}], "s":"0a:1b:2c:3d:4e:5f:60:71"}"#;
        let wanted = "{\n  \"b\": 1.50,\n  \"a\": [],\n  \"c\": [\n    {},\n    {\n      \"\\u003c\": \"x \\\"y\\\\\",\n      \
                      \"n\": null\n    }\n  ],\n  \"s\": \"hex-1\"\n}\n";
        assert_eq!(pretty(text, &mut Names::default()).unwrap(), wanted);
        assert_eq!(pretty("{\"a\":", &mut Names::default()), None);
    }

    #[test]
    fn ids_of_a_list_with_details_are_named_by_these() {
        let list = |one: &str, other: &str| {
            let text = format!(
                r#"{{"keys":[{one:?},{other:?}],"key_info":{{{one:?}:{{"n":"{}"}},{other:?}:{{"n":"{}"}}}}}}"#,
                if one < other { "b" } else { "a" },
                if one < other { "a" } else { "b" }
            );
            pretty(&text, &mut Names::default()).unwrap()
        };
        let ids = ["0a:1b:2c:3d:4e:5f:60:71", "ff:1b:2c:3d:4e:5f:60:71"];
        assert_eq!(list(ids[0], ids[1]), list(ids[1], ids[0]));
        assert!(list(ids[0], ids[1]).contains("\"hex-1\": {\n      \"n\": \"a\""), "{}", list(ids[0], ids[1]));
    }

    #[test]
    fn lists_by_random_ids_are_put_into_the_order_of_first_sight() {
        let mut names = Names::default();
        let ids = ["ff:1b:2c:3d:4e:5f:60:71", "0a:1b:2c:3d:4e:5f:60:71"];
        pretty(&format!("{:?}", ids[0]), &mut names);
        let list = format!("[{:?},{:?}]", ids[1], ids[0]);
        assert_eq!(pretty(&list, &mut names).unwrap(), "[\n  \"hex-1\",\n  \"hex-2\"\n]\n");
    }
}
