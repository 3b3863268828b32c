//! Names for values that differ between runs: the first serial number is `serial-1` everywhere.
//!
//! Serial numbers, key identifiers, UUIDs, tokens, random parts of ids, addresses, DER and times of the real clock get
//! names; everything else is recorded as received.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::describe::{self, Kind};

#[derive(Default)]
pub struct Names {
    given: HashMap<Vec<u8>, String>,
    counts: BTreeMap<String, usize>,
    /// Descriptions of new objects, until they are fetched.
    fresh: Vec<(String, String)>,
}

struct Piece {
    /// Length in the text, in bytes.
    len: usize,
    name: String,
}

impl Names {
    /// The name of these bytes; creates one of this kind for new bytes.
    pub fn of(&mut self, kind: &str, bytes: &[u8]) -> String {
        if let Some(name) = self.given.get(bytes) {
            return name.clone();
        }
        let count = self.counts.entry(kind.to_owned()).or_default();
        *count += 1;
        let name = format!("{kind}-{count}");
        self.given.insert(bytes.to_vec(), name.clone());
        name
    }

    /// The name of a DER object, which is described when it is new.
    pub fn of_der(&mut self, label: Option<&str>, der: &[u8]) -> String {
        if let Some(name) = self.given.get(der) {
            return name.clone();
        }
        let Kind { word, text } = describe::object(label, der, self);
        let name = self.of(word, der);
        self.fresh.push((name.clone(), text));
        name
    }

    /// Returns names and descriptions of the new objects since the last call.
    pub fn fresh(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.fresh)
    }

    /// Replaces values that differ between runs.
    pub fn stable(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            if let Some(piece) = self.piece(text, at) {
                out.push_str(&piece.name);
                at += piece.len;
            } else {
                let c = text[at..].chars().next().unwrap();
                out.push(c);
                at += c.len_utf8();
            }
        }
        out
    }

    /// `true` if a text is one random id; lists of such ids are unordered.
    pub fn is_random_id(text: &str) -> bool {
        uuid(text) == Some(text.len()) || pairs(text).is_some_and(|(len, _)| len == text.len())
    }

    fn piece(&mut self, text: &str, at: usize) -> Option<Piece> {
        let (before, rest) = text.split_at(at);
        if rest.starts_with("-----BEGIN ") {
            return self.pem(rest);
        }
        if before.ends_with(|c: char| c.is_ascii_alphanumeric()) {
            return None;
        }
        if let Some(port) = rest.strip_prefix("127.0.0.1:") {
            let len = rest.len() - port.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            return Some(Piece { len, name: self.of("address", &rest.as_bytes()[..len]) });
        }
        if let Some(len) = uuid(rest) {
            return Some(Piece { len, name: self.of("uuid", &rest.as_bytes()[..len]) });
        }
        if let Some((len, bytes)) = pairs(rest) {
            return Some(Piece { len, name: self.of("hex", &bytes) });
        }
        if let Some(len) = present_time(rest) {
            return Some(Piece { len, name: "(present time)".to_owned() });
        }
        if let Some((len, der)) = base64_der(rest) {
            return Some(Piece { len, name: self.of_der(None, &der) });
        }
        let kind = random_text(before, rest)?;
        let len = rest.find(|c: char| !kind.takes(c)).unwrap_or(rest.len());
        Some(Piece { len, name: self.of("random", &rest.as_bytes()[..len]) })
    }

    fn pem(&mut self, text: &str) -> Option<Piece> {
        let (label, after) = text.strip_prefix("-----BEGIN ")?.split_once("-----")?;
        let end = format!("-----END {label}-----");
        let (body, _) = after.split_once(&end)?;
        // JSON escapes line ends as two characters.
        let body_text = body.replace("\\n", "\n");
        let der = STANDARD.decode(body_text.split_whitespace().collect::<String>()).ok()?;
        let len = "-----BEGIN -----".len() + label.len() + body.len() + end.len();
        Some(Piece { len, name: self.of_der(Some(label), &der) })
    }
}

fn run(text: &str, takes: impl Fn(char) -> bool) -> usize {
    text.find(|c| !takes(c)).unwrap_or(text.len())
}

fn uuid(text: &str) -> Option<usize> {
    const LEN: usize = 36;
    let bytes = text.as_bytes().get(..LEN)?;
    let fits = |(at, b): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => b.is_ascii_hexdigit(),
    };
    let ends = !text.as_bytes().get(LEN).is_some_and(u8::is_ascii_alphanumeric);
    (bytes.iter().enumerate().all(fits) && ends).then_some(LEN)
}

/// The length and bytes of the hex at the start of a text: pairs separated by `:` or `-`, or at least 32 digits.
fn pairs(text: &str) -> Option<(usize, Vec<u8>)> {
    const FEWEST: usize = 8;
    let solid = run(text, |c| c.is_ascii_hexdigit());
    if solid >= 32 && solid.is_multiple_of(2) && !text[solid..].starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Some((solid, hex(&text[..solid])));
    }
    let separator = text.chars().nth(2).filter(|c| matches!(c, ':' | '-'))?;
    let mut len = 0;
    let mut digits = String::new();
    loop {
        let pair = text.get(len..len + 2).filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
        digits.push_str(pair);
        len += 2;
        if !text[len..].starts_with(separator) {
            break;
        }
        len += 1;
    }
    let ends = !text[len..].starts_with(|c: char| c.is_ascii_alphanumeric());
    (ends && digits.len() >= 2 * FEWEST).then(|| (len, hex(&digits)))
}

fn hex(digits: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

/// The length of a time of the real clock; tests use later years.
fn present_time(text: &str) -> Option<usize> {
    let begins = text.starts_with("202") && text.get(4..5) == Some("-");
    let len = run(text, |c| c.is_ascii_digit() || matches!(c, '-' | ':' | 'T' | '.' | 'Z'));
    (begins && len >= 20 && text[..len].ends_with('Z')).then_some(len)
}

/// The length and bytes of a base64 DER sequence, possibly percent-encoded.
fn base64_der(text: &str) -> Option<(usize, Vec<u8>)> {
    const SHORTEST: usize = 48;
    if !text.starts_with('M') {
        return None;
    }
    let len = run(text, |c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '%'));
    let plain = text[..len].replace("%2B", "+").replace("%2F", "/").replace("%3D", "=");
    let der = (plain.len() >= SHORTEST).then(|| STANDARD.decode(plain).ok()).flatten()?;
    super::der::is_one_sequence(&der).then_some((len, der))
}

enum Written {
    Alphanumeric,
    Base64Url,
}

impl Written {
    fn takes(&self, c: char) -> bool {
        c.is_ascii_alphanumeric() || (matches!(self, Self::Base64Url) && matches!(c, '-' | '_'))
    }
}

/// The alphabet of the random text at the start of `rest`, if there is one: a token, an accessor, or the random part of
/// a lease, mount or resource id.
fn random_text(before: &str, rest: &str) -> Option<Written> {
    let word = &rest[..run(rest, |c| c.is_ascii_alphanumeric())];
    let is_mixed = word.bytes().any(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && word.bytes().any(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    if before.ends_with(".pjv1.") {
        return Some(Written::Base64Url);
    }
    let is_hex = word.len() == 8 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let is_random = match word.len() {
        // Token of the secrets service, accessor, suffix of a lease id.
        44 | 25 | 24 => is_mixed,
        // Resource id of the projects API.
        16 => is_mixed && before.ends_with('-'),
        // Public part of a projects API token.
        14 => rest[word.len()..].starts_with(".pjv1."),
        8 => is_hex && (before.ends_with("pki_") || before.ends_with("signet-cluster-")),
        _ => false,
    };
    is_random.then_some(Written::Alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_are_named_in_order_of_appearance() {
        let mut names = Names::default();
        let serial = "0a:1b:2c:3d:4e:5f:60:71:82";
        let text = format!(
            "{serial} 1f0e1d0c-0000-4000-8000-0123456789ab prj-WsVcWRr7SfxRci1v s.{} 0a1b2c3d4e5f607182 {}",
            "aB3".repeat(14) + "xy",
            serial.replace(':', "-"),
        );
        assert_eq!(names.stable(&text), "hex-1 uuid-1 prj-random-1 s.random-2 0a1b2c3d4e5f607182 hex-1");
        assert_eq!(names.stable(&serial.replace(':', "")), serial.replace(':', ""), "too short to be sure");
        assert_eq!(
            names.stable("at http://127.0.0.1:81/x 2026-01-02T03:04:05Z 2031-01-01T00:00:00Z"),
            "at http://address-1/x (present time) 2031-01-01T00:00:00Z"
        );
    }

    #[test]
    fn ordinary_words_are_not_replaced() {
        let text =
            "Endpoint ignored these unrecognized parameters: [deadbeef] pki/issue/web self-authentication 00:01:02";
        assert_eq!(Names::default().stable(text), text);
    }
}
