//! Keyed hashes (HMACs) of values that may be secret; `sys/audit-hash` computes the hash of a known text.
//!
//! Every string in a JSON value is replaced by its hash, at any depth. Numbers, booleans, nulls and member names are
//! not hashed. Neither are strings below a name that the mount lists in `audit_non_hmac_request_keys` or
//! `audit_non_hmac_response_keys`. JSON text within a string is hashed as one string. Values are converted while they
//! are parsed, without a copy.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::Sha256;

use crate::fields::Fields;

/// Longest member name that is not hashed, in bytes.
const MAX_PLAIN_NAME_BYTES: usize = 256;
/// Limit for the rendered form of a request body: `BASE_OUTPUT_BYTES` bytes plus `MAX_EXPANSION_FACTOR` bytes per byte
/// sent. It is needed because the hash of a short text is much longer than the text.
const BASE_OUTPUT_BYTES: usize = 4 * 1024;
const MAX_EXPANSION_FACTOR: usize = 4;
/// Members of a LIST response. If a device is configured to count lists, it records only the number of items of these
/// members.
const COUNTED_MEMBERS: [&str; 2] = ["keys", "key_info"];

/// Response members whose hashed values are cached, because many responses share them: CA certificates.
const CACHED_MEMBERS: [&str; 2] = ["issuing_ca", "ca_chain"];
/// Maximum number of cached values of [`CACHED_MEMBERS`].
const MAX_CACHED_VALUES: usize = 16;
/// Maximum length of a cached value of [`CACHED_MEMBERS`], in bytes of JSON.
const MAX_CACHED_VALUE_BYTES: usize = 16 * 1024;

const HEX_DIGITS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut all = [[0; 2]; 256];
    let mut octet = 0;
    while octet < 256 {
        all[octet] = [digits[octet >> 4], digits[octet & 15]];
        octet += 1;
    }
    all
};

struct CachedMaskedValue {
    text: Box<str>,
    written: Box<[u8]>,
}

/// Writes the values in the entries of one device, with hashes (HMACs) instead of texts that may be secret.
pub(super) struct Mask {
    key: Hmac<Sha256>,
    /// Rendered values of [`CACHED_MEMBERS`], newest first.
    cache: ArcSwap<Vec<Arc<CachedMaskedValue>>>,
    /// `true` to write texts without hashing them.
    raw: bool,
    /// `true` to write accessors without hashing them.
    unmasked_accessors: bool,
}

/// Deviations from the rule that every string of a value is hashed.
#[derive(Clone, Copy, Default)]
pub(super) struct MaskExceptions<'a> {
    /// Names of members whose strings, at any depth, are not hashed.
    pub(super) clear: &'a [String],
    /// `true` to record only the number of names in a LIST response.
    pub(super) counts_lists: bool,
    /// `true` for a response body that is JSON text: values of [`CACHED_MEMBERS`] in it are cached.
    pub(super) repeats: bool,
    /// Maximum number of bytes that may be written; a longer value is not written at all.
    pub(super) max_bytes: Option<usize>,
}

impl Mask {
    pub(super) const PREFIX: &str = "hmac-sha256:";

    pub(super) fn new(key: &[u8], raw: bool, unmasked_accessors: bool) -> Self {
        let key = Hmac::new_from_slice(key).expect("HMAC accepts a key of any length");
        Self { key, cache: ArcSwap::default(), raw, unmasked_accessors }
    }

    pub(super) fn is_raw(&self) -> bool {
        self.raw
    }

    /// Maximum length of the rendered form of a request body of `sent` bytes. `None` if texts are not hashed, because
    /// they cannot expand then.
    pub(super) fn max_bytes(&self, sent: usize) -> Option<usize> {
        (!self.raw).then_some(BASE_OUTPUT_BYTES + MAX_EXPANSION_FACTOR * sent)
    }

    pub(super) fn hash(&self, text: &[u8]) -> String {
        let mut out = Vec::with_capacity(Self::PREFIX.len() + 64);
        self.push_hash(&mut out, text);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Writes the hash of a text, or the text itself if the device records raw texts.
    pub(super) fn write_text(&self, out: &mut Vec<u8>, text: &str) {
        if self.raw {
            return write_json_text(out, text);
        }
        self.write_bytes(out, text.as_bytes());
    }

    pub(super) fn write_bytes(&self, out: &mut Vec<u8>, bytes: &[u8]) {
        out.push(b'"');
        self.push_hash(out, bytes);
        out.push(b'"');
    }

    pub(super) fn write_accessor(&self, out: &mut Vec<u8>, accessor: &str) {
        if self.unmasked_accessors { write_json_text(out, accessor) } else { self.write_text(out, accessor) }
    }

    pub(super) fn write_value(&self, out: &mut Vec<u8>, value: &Value, exceptions: MaskExceptions<'_>) {
        // The cache compares JSON texts, so a parsed value cannot use it. Deserializing from a parsed value cannot
        // fail.
        let _ = self.root_node(out, MaskExceptions { repeats: false, ..exceptions }).deserialize(value);
    }

    /// Writes JSON that is given as text. Writes nothing if it is invalid or takes too much space.
    pub(super) fn write_json(
        &self,
        out: &mut Vec<u8>,
        text: &[u8],
        exceptions: MaskExceptions<'_>,
    ) -> Result<(), serde_json::Error> {
        let start = out.len();
        let mut reader = serde_json::Deserializer::from_slice(text);
        let read = self.root_node(out, exceptions).deserialize(&mut reader).and_then(|()| reader.end());
        read.inspect_err(|_| out.truncate(start))
    }

    /// Writes the fields of a request. Writes nothing if they take too much space.
    pub(super) fn write_fields(
        &self,
        out: &mut Vec<u8>,
        fields: &Fields,
        exceptions: MaskExceptions<'_>,
    ) -> Result<(), serde_json::Error> {
        let start = out.len();
        self.root_node(out, exceptions).write_fields(fields).inspect_err(|_| out.truncate(start))
    }

    /// Replaces quoted parts of a server message with their hashes, because they may come from the caller.
    pub(super) fn mask_quotes<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.raw || !text.contains('"') {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + 80);
        let mut rest = text;
        while let Some((before, quoted)) = rest.split_once('"') {
            let mut escaped = false;
            let end = quoted.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            // An unterminated quote extends to the end of the message.
            let (quoted, after) = end.map_or((quoted, ""), |end| (&quoted[..end], &quoted[end + 1..]));
            out.push_str(before);
            out.push_str(&self.hash(quoted.as_bytes()));
            rest = after;
        }
        out.push_str(rest);
        Cow::Owned(out)
    }

    /// Writes the hash of a JSON string. Hashes it piece by piece, without a copy of the text
    /// unless it has `\u` escapes.
    fn write_escaped(&self, out: &mut Vec<u8>, json: &str) -> Result<(), serde_json::Error> {
        let mut hash = self.key.clone();
        let mut rest = json.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(json);
        while let Some((before, escape)) = rest.split_once('\\') {
            hash.update(before.as_bytes());
            let unescaped = match escape.as_bytes() {
                [b'n', ..] => b"\n",
                [b'r', ..] => b"\r",
                [b't', ..] => b"\t",
                [b'b', ..] => b"\x08",
                [b'f', ..] => b"\x0c",
                [b'"' | b'\\' | b'/', ..] => &escape.as_bytes()[..1],
                _ => {
                    self.write_bytes(out, serde_json::from_str::<String>(json)?.as_bytes());
                    return Ok(());
                }
            };
            hash.update(unescaped);
            rest = &escape[1..];
        }
        hash.update(rest.as_bytes());
        out.push(b'"');
        push_hash(out, hash);
        out.push(b'"');
        Ok(())
    }

    /// Writes a value of one of [`CACHED_MEMBERS`], from the cache if possible.
    fn write_cached(&self, out: &mut Vec<u8>, text: &str) -> Result<(), serde_json::Error> {
        if let Some(known) = self.cache.load().iter().find(|known| *known.text == *text) {
            out.extend_from_slice(&known.written);
            return Ok(());
        }
        let start = out.len();
        self.write_json(out, text.as_bytes(), MaskExceptions::default())?;
        if text.len() <= MAX_CACHED_VALUE_BYTES && contains_only_certificates(text) {
            let new = Arc::new(CachedMaskedValue { text: text.into(), written: out[start..].into() });
            self.cache
                .rcu(|kept| [&new].into_iter().chain(kept.iter()).take(MAX_CACHED_VALUES).cloned().collect::<Vec<_>>());
        }
        Ok(())
    }

    fn root_node<'n>(&'n self, out: &'n mut Vec<u8>, exceptions: MaskExceptions<'n>) -> MaskingNode<'n> {
        let end = exceptions.max_bytes.map_or(usize::MAX, |max_bytes| out.len() + max_bytes);
        MaskingNode { mask: self, out, exceptions, end, clear: self.raw, counted: false, secret: false }
    }

    fn push_name(&self, out: &mut Vec<u8>, name: &str) {
        if name.len() <= MAX_PLAIN_NAME_BYTES { write_json_text(out, name) } else { self.write_text(out, name) }
    }

    fn push_hash(&self, out: &mut Vec<u8>, text: &[u8]) {
        push_hash(out, self.key.clone().chain_update(text));
    }
}

fn push_hash(out: &mut Vec<u8>, hash: Hmac<Sha256>) {
    out.extend_from_slice(Mask::PREFIX.as_bytes());
    let digits: [[u8; 2]; 32] = hash.finalize().into_bytes().0.map(|octet| HEX_DIGITS[usize::from(octet)]);
    out.extend_from_slice(digits.as_flattened());
}

/// Members that hold secrets. Their numbers are hashed, too, because a caller may send a PIN as a number.
const SECRET_MEMBERS: [&str; 7] =
    ["pin", "password", "secret_key", "secret_id", "client_secret", "access_key", "session_token"];

/// `true` if a JSON value contains certificates and no private key, so that it may be cached.
fn contains_only_certificates(text: &str) -> bool {
    text.trim_start_matches('[').starts_with("\"-----BEGIN CERTIFICATE-----") && !text.contains("PRIVATE KEY")
}

pub(super) fn write_json_text(out: &mut Vec<u8>, text: &str) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// A member name, borrowed from the input unless it has escapes.
#[derive(Deserialize)]
struct MemberName<'n>(#[serde(borrow)] Cow<'n, str>);

/// A JSON value whose strings are replaced by their hashes while it is parsed.
struct MaskingNode<'n> {
    mask: &'n Mask,
    out: &'n mut Vec<u8>,
    exceptions: MaskExceptions<'n>,
    /// Length of `out` that must not be exceeded.
    end: usize,
    /// `true` to write strings without hashing them.
    clear: bool,
    /// `true` to write only the number of items.
    counted: bool,
    /// `true` below a member that holds a secret: numbers and names are hashed, too.
    secret: bool,
}

impl MaskingNode<'_> {
    /// `true` if numbers and member names in the value must be hashed, too.
    fn is_secret(&self) -> bool {
        self.secret && !self.clear
    }

    fn child_node(&mut self) -> MaskingNode<'_> {
        let Self { mask, ref mut out, exceptions, end, clear, secret, .. } = *self;
        // `counts_lists` and `repeats` apply to the top-level members of a response, not to nested members.
        let exceptions = MaskExceptions { counts_lists: false, repeats: false, ..exceptions };
        MaskingNode { mask, out, exceptions, end, clear, counted: false, secret }
    }

    /// Fails if the output exceeds its maximum length.
    fn check_length<E: serde::de::Error>(&self) -> Result<(), E> {
        if self.out.len() > self.end { Err(E::custom("the rendered JSON is too long")) } else { Ok(()) }
    }

    fn write_fields(mut self, fields: &Fields) -> Result<(), serde_json::Error> {
        self.out.push(b'{');
        for (n, (name, value)) in fields.iter().enumerate() {
            if n > 0 {
                self.out.push(b',');
            }
            self.child_node().write_member_name(name).deserialize(value)?;
            self.check_length()?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Writes the name of a member, and returns the node for its value.
    fn write_member_name(mut self, name: &str) -> Self {
        if self.is_secret() {
            self.mask.write_text(self.out, name)
        } else {
            self.mask.push_name(self.out, name)
        }
        self.out.push(b':');
        self.clear |= self.exceptions.clear.iter().any(|clear| clear == name);
        self.secret |= SECRET_MEMBERS.iter().any(|secret| secret.eq_ignore_ascii_case(name));
        self.counted = self.exceptions.counts_lists && COUNTED_MEMBERS.contains(&name);
        self.exceptions.counts_lists = false;
        self
    }

    /// Writes a member whose value is JSON text.
    fn write_member(self, name: &str, json: &str) -> Result<(), serde_json::Error> {
        let node = self.write_member_name(name);
        if !node.clear && CACHED_MEMBERS.contains(&name) {
            node.mask.write_cached(node.out, json)
        } else if !node.clear && json.starts_with('"') {
            node.mask.write_escaped(node.out, json)
        } else {
            node.deserialize(&mut serde_json::Deserializer::from_str(json))
        }
    }

    fn write_number<E>(self, value: impl fmt::Display) -> Result<(), E> {
        if self.is_secret() {
            self.mask.write_text(self.out, &value.to_string());
            return Ok(());
        }
        self.write_plain(value)
    }

    fn write_plain<E>(self, value: impl fmt::Display) -> Result<(), E> {
        use std::io::Write as _;
        let _ = write!(self.out, "{value}");
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for MaskingNode<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MaskingNode<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.write_plain("null")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.write_plain(value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.write_number(value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.write_number(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        if self.is_secret() {
            return self.write_number(value);
        }
        serde_json::to_writer(self.out, &value).map_err(E::custom)
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.clear {
            write_json_text(self.out, text)
        } else {
            self.mask.write_text(self.out, text)
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        if self.counted {
            let mut count = 0_u64;
            while items.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            return self.write_plain(count);
        }
        self.out.push(b'[');
        let mut end = self.out.len();
        while items.next_element_seed(self.child_node())?.is_some() {
            self.check_length()?;
            end = self.out.len();
            self.out.push(b',');
        }
        self.out.truncate(end);
        self.out.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        if self.counted {
            let mut count = 0_u64;
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                count += 1;
            }
            return self.write_plain(count);
        }
        self.out.push(b'{');
        let mut end = self.out.len();
        let MaskExceptions { counts_lists, repeats, .. } = self.exceptions;
        while let Some(MemberName(name)) = members.next_key()? {
            let mut member = self.child_node();
            member.exceptions.counts_lists = counts_lists;
            if repeats {
                let value: &RawValue = members.next_value()?;
                member.write_member(&name, value.get()).map_err(A::Error::custom)?;
            } else {
                members.next_value_seed(member.write_member_name(&name))?;
            }
            self.check_length()?;
            end = self.out.len();
            self.out.push(b',');
        }
        self.out.truncate(end);
        self.out.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn mask() -> Mask {
        Mask::new(&[7; 32], false, false)
    }

    fn mask_value(value: &Value, exceptions: MaskExceptions<'_>) -> Value {
        let mask = mask();
        let text = value.to_string();
        let mut of_value = Vec::new();
        mask.write_value(&mut of_value, value, exceptions);
        for repeats in [false, true] {
            let mut of_text = Vec::new();
            mask.write_json(&mut of_text, text.as_bytes(), MaskExceptions { repeats, ..exceptions }).unwrap();
            assert_eq!(str::from_utf8(&of_value).unwrap(), str::from_utf8(&of_text).unwrap());
        }
        serde_json::from_slice(&of_value).unwrap()
    }

    #[test]
    fn mask_hashes_texts_and_keeps_other_values() {
        let hash = |text: &str| mask().hash(text.as_bytes());
        assert_eq!(hash("a").len(), "hmac-sha256:".len() + 64);
        let value = json!({ "a": "x", "b": [1, -2, 1.5, true, null, "x", []], "c": { "d": "{\"e\":1}", "f": {} } });
        let expected = json!({ "a": hash("x"), "b": [1, -2, 1.5, true, null, hash("x"), []], "c": { "d": hash("{\"e\":1}"), "f": {} } });
        assert_eq!(mask_value(&value, MaskExceptions::default()), expected);
    }

    #[test]
    fn mask_hashes_numeric_secrets_and_nested_values() {
        let hash = |text: &str| mask().hash(text.as_bytes());
        let value = json!({ "pin": 9182, "Secret_Key": [5.5, -7, null, true], "max": 3, "password": { "4711": 1 } });
        let below = serde_json::Map::from_iter([(hash("4711"), hash("1").into())]);
        let expected = json!({ "pin": hash("9182"), "Secret_Key": [hash("5.5"), hash("-7"), null, true], "max": 3, "password": below });
        assert_eq!(mask_value(&value, MaskExceptions::default()), expected);
    }

    #[test]
    fn mask_refuses_output_above_a_multiple_of_the_input() {
        let many = |value: Value| vec![value; 8000];
        let few = |value: Value| vec![value; 50];
        for name in ["pin", "names"] {
            for (value, is_short) in [
                (json!(few(json!(1))), true),
                (json!(few(json!(""))), true),
                (json!(many(json!("a text of more letters than its hash has"))), true),
                (json!(many(json!(""))), false),
                (json!(many(json!(["a"]))), false),
                (json!(many(json!({ "a": "b" }))), false),
                (json!(many(json!(1))), name == "names"),
                (json!(many(json!(1.5))), name == "names"),
            ] {
                let mut fields = Fields::default();
                fields.set(name, value);
                let text = serde_json::to_vec(&fields).unwrap();
                let exceptions =
                    MaskExceptions { max_bytes: mask().max_bytes(text.len()), ..MaskExceptions::default() };
                let mut of_fields = b"before".to_vec();
                let mut of_text = b"before".to_vec();
                assert_eq!(mask().write_fields(&mut of_fields, &fields, exceptions).is_ok(), is_short, "{name}");
                assert_eq!(mask().write_json(&mut of_text, &text, exceptions).is_ok(), is_short, "{name}");
                assert_eq!(of_fields, of_text);
                assert_eq!(of_fields == b"before", !is_short);
                assert!(of_fields.len() <= 6 + BASE_OUTPUT_BYTES + MAX_EXPANSION_FACTOR * text.len() + 80);
            }
        }
        assert_eq!(Mask::new(&[7; 32], true, false).max_bytes(1), None);
    }

    #[test]
    fn mask_hash_is_hmac_sha256() {
        // RFC 4231, test case 2.
        let mask = Mask::new(b"Jefe", false, false);
        let expected = "hmac-sha256:5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(mask.hash(b"what do ya want for nothing?"), expected);
    }

    #[test]
    fn mask_keeps_texts_below_unmasked_members() {
        let clear = ["role".to_owned(), "tags".to_owned()];
        let exceptions = MaskExceptions { clear: &clear, ..MaskExceptions::default() };
        let value = json!({ "role": "web", "pin": "1234", "tags": ["a", { "b": "c" }], "deep": { "role": "db" } });
        let pin = mask().hash(b"1234");
        let expected = json!({ "role": "web", "pin": pin, "tags": ["a", { "b": "c" }], "deep": { "role": "db" } });
        assert_eq!(mask_value(&value, exceptions), expected);
    }

    #[test]
    fn mask_replaces_lists_by_their_length_if_configured() {
        let counts = MaskExceptions { counts_lists: true, ..MaskExceptions::default() };
        let value = json!({ "keys": ["a", "b"], "key_info": { "a": {}, "b": {} }, "x": { "keys": ["a"] } });
        let deep = mask().hash(b"a");
        assert_eq!(mask_value(&value, counts), json!({ "keys": 2, "key_info": 2, "x": { "keys": [deep] } }));
    }

    #[test]
    fn mask_caches_only_public_values_with_equal_output() {
        let pem = |label: &str| format!("-----BEGIN {label}-----\nMIIB\n-----END {label}-----\n");
        let authority = pem("CERTIFICATE");
        let leaf = pem("PUBLIC KEY");
        let with_key = authority.clone() + &pem("EC PRIVATE KEY");
        let answers = [
            json!({ "issuing_ca": authority, "ca_chain": [authority], "certificate": leaf, "serial_number": 1 }),
            json!({ "issuing_ca": leaf, "ca_chain": [], "deep": { "ca_chain": [leaf] } }),
            json!({ "issuing_ca": with_key, "ca_chain": null }),
            json!({ "ca_chain": [authority, [with_key]], "issuing_ca": { "a": authority } }),
        ];
        let mask = mask();
        let open = ["ca_chain".to_owned()];
        for clear in [&[][..], &open] {
            for answer in answers.iter().chain(&answers) {
                let plain = MaskExceptions { clear, ..MaskExceptions::default() };
                let mut from_value = Vec::new();
                let mut from_text = Vec::new();
                mask.write_value(&mut from_value, answer, plain);
                mask.write_json(
                    &mut from_text,
                    answer.to_string().as_bytes(),
                    MaskExceptions { repeats: true, ..plain },
                )
                .unwrap();
                let text = |written| String::from_utf8(written).unwrap();
                // Both texts have the same member order, because serde_json sorts the members of an object.
                assert_eq!(text(from_value), text(from_text));
            }
        }
        let kept = mask.cache.load();
        assert_eq!(kept.len(), 2, "one text, and a list of it");
        assert!(kept.iter().all(|kept| !kept.text.contains("KEY")));
    }

    #[test]
    fn mask_hashes_long_names_and_writes_nothing_for_bad_json() {
        let long = "n".repeat(MAX_PLAIN_NAME_BYTES + 1);
        let hashed = mask().hash(long.as_bytes());
        assert_eq!(mask_value(&json!({ long: 1 }), MaskExceptions::default()), json!({ hashed: 1 }));
        let mut out = b"before".to_vec();
        for text in ["{\"pin\":\"1234\"", "{\"a\":1} x", "", "{\"a\":tru}"] {
            assert!(mask().write_json(&mut out, text.as_bytes(), MaskExceptions::default()).is_err(), "{text}");
            assert_eq!(out, b"before");
        }
    }

    #[test]
    fn mask_hashes_escaped_text_in_its_unescaped_form() {
        let answers = MaskExceptions { repeats: true, ..MaskExceptions::default() };
        let written =
            |json: &str, out: &mut Vec<u8>| mask().write_json(out, format!("{{\"a\":{json}}}").as_bytes(), answers);
        let texts = [
            (r#""a\nb\r\t\b\f""#, "a\nb\r\t\x08\x0c"),
            (r#""\"\\\/\"""#, "\"\\/\""),
            (r#""\\n""#, "\\n"),
            (r#""\u0041\u00e9\ud83d\ude00\u0000\n""#, "Aé😀\0\n"),
            (r#""é""#, "é"),
            (r#""""#, ""),
        ];
        for (json, text) in texts {
            let mut out = Vec::new();
            written(json, &mut out).unwrap();
            assert_eq!(
                str::from_utf8(&out).unwrap(),
                json!({ "a": mask().hash(text.as_bytes()) }).to_string(),
                "{json}"
            );
        }
        for json in [r#""\ud800""#, r#""\x""#, "\"\n\"", r#""\"#] {
            let mut out = b"before".to_vec();
            assert!(written(json, &mut out).is_err(), "{json}");
            assert_eq!(out, b"before");
        }
    }

    #[test]
    fn mask_hashes_quoted_parts_of_a_server_message() {
        let (mask, hash) = (mask(), |text: &str| mask().hash(text.as_bytes()));
        assert_eq!(mask.mask_quotes("ttl: must be a duration"), "ttl: must be a duration");
        assert_eq!(mask.mask_quotes("no \"a\" or \"b\" here"), format!("no {} or {} here", hash("a"), hash("b")));
        assert_eq!(mask.mask_quotes(r#"no "a\"b" here"#), format!("no {} here", hash(r#"a\"b"#)));
        assert_eq!(mask.mask_quotes("no \"end"), format!("no {}", hash("end")));
    }

    #[test]
    fn raw_device_records_texts_and_other_devices_hash_them() {
        let raw = Mask::new(&[7; 32], true, false);
        let mut open = Vec::new();
        let mut closed = Vec::new();
        raw.write_value(&mut open, &json!({ "a": "x" }), MaskExceptions::default());
        mask().write_value(&mut closed, &json!({ "a": "x" }), MaskExceptions::default());
        assert_eq!(open, b"{\"a\":\"x\"}");
        assert!(!closed.windows(3).any(|three| three == b"\"x\""));
    }

    proptest! {
        #[test]
        fn mask_leaves_no_text_in_any_json(text in "(\\PC|[\\x00-\\x1f\"\\\\/]){0,40}") {
            let value = json!({ "a": [text.clone()], "b": text.clone() });
            let hash = mask().hash(text.as_bytes());
            prop_assert_eq!(mask_value(&value, MaskExceptions::default()), json!({ "a": [hash.clone()], "b": hash }));
        }
    }
}
