//! Parses JSON objects and rejects duplicate members.
//!
//! Parsers differ in which duplicate they use, and RFC 7519 4 allows both, so a signed object with duplicate members
//! could be read in two ways.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses one JSON object; `None` for any other input, and for duplicate members at any depth.
pub(super) fn parse_object(bytes: &[u8]) -> Option<Map<String, Value>> {
    // The whole input is validated as UTF-8 in one pass, because this is faster than validating each string.
    match serde_json::from_str(std::str::from_utf8(bytes).ok()?) {
        Ok(UniqueMembers(Value::Object(object))) => Some(object),
        _ => None,
    }
}

struct UniqueMembers(Value);

impl<'de> Deserialize<'de> for UniqueMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueMembersVisitor).map(Self)
    }
}

struct UniqueMembersVisitor;

impl<'de> Visitor<'de> for UniqueMembersVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate members")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(UniqueMembers(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let UniqueMembers(value) = members.next_value()?;
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a member is repeated"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_object_with_a_duplicate_member_is_refused() {
        let text = r#"{"a":[1,-2,2.5,null,true,{"b":"\u00e9"}],"c":{}}"#;
        let read = json!({"a": [1, -2, 2.5, null, true, {"b": "é"}], "c": {}});
        assert_eq!(parse_object(text.as_bytes()).map(Value::Object), Some(read));
        for text in [
            "",
            "[]",
            "1",
            "{",
            r#"{"a":1}{}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":[{"b":1,"\u0062":2}]}"#,
        ] {
            assert_eq!(parse_object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_object(&[b"{\"a\":".repeat(1000), b"1".to_vec(), b"}".repeat(1000)].concat()), None);
    }
}
