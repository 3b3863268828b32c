//! Finds secrets in bytes, in all likely encodings.
//!
//! A secret is searched raw, in hexadecimal (both cases, with and without colons), in base64 (standard and URL, all
//! three alignments), and as Rust's debug output of bytes. Long secrets are cut into pieces of 16 bytes: each piece
//! alone discloses the secret, and every line of a PEM block with private content contains at least one.

use std::collections::{BTreeSet, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

const KEY: usize = 8;
const PIECE: usize = 16;

struct Needle {
    secret: String,
    form: &'static str,
    bytes: Vec<u8>,
}

#[derive(Default)]
pub struct Scanner {
    needles: HashMap<[u8; KEY], Vec<Needle>>,
}

impl Scanner {
    /// Adds a secret text, such as a token; only the whole text is searched.
    pub fn add_text(&mut self, secret: &str, text: &str) {
        self.add(secret, text.as_bytes());
    }

    /// Adds secret bytes; each aligned piece is searched.
    pub fn add_bytes(&mut self, secret: &str, bytes: &[u8]) {
        for piece in bytes.chunks_exact(PIECE) {
            self.add(secret, piece);
        }
    }

    fn add(&mut self, secret: &str, bytes: &[u8]) {
        assert!(bytes.len() >= 9, "{secret}: too short to be told from chance");
        for (form, bytes) in forms(bytes) {
            let key = bytes[..KEY].try_into().unwrap();
            self.needles.entry(key).or_default().push(Needle { secret: secret.to_owned(), form, bytes });
        }
    }

    /// The names of the secrets in `hay`, each with its encoding.
    pub fn found(&self, hay: &[u8]) -> BTreeSet<(&str, &'static str)> {
        let mut found = BTreeSet::new();
        for (at, key) in hay.windows(KEY).enumerate() {
            for needle in self.needles.get(key).into_iter().flatten() {
                if hay[at..].starts_with(&needle.bytes) {
                    found.insert((needle.secret.as_str(), needle.form));
                }
            }
        }
        found
    }
}

fn forms(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let hex = |separator: &str| bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(separator);
    let numbers = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    let mut forms = vec![
        ("raw", bytes.to_vec()),
        ("hex", hex("").into_bytes()),
        ("HEX", hex("").to_uppercase().into_bytes()),
        ("hex:", hex(":").into_bytes()),
        ("HEX:", hex(":").to_uppercase().into_bytes()),
        ("numbers", numbers.into_bytes()),
    ];
    for before in 0..3 {
        let padded = [&[0; 2][..before.min(2)], bytes].concat();
        // Leaves out characters that also encode bits of neighbouring bytes.
        let from = (before * 8).div_ceil(6);
        let to = padded.len() * 8 / 6;
        forms.push(("base64", STANDARD_NO_PAD.encode(&padded).as_bytes()[from..to].to_vec()));
        forms.push(("base64url", URL_SAFE_NO_PAD.encode(&padded).as_bytes()[from..to].to_vec()));
    }
    forms
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    /// Bytes that cover all kinds of base64 characters.
    fn secret() -> Vec<u8> {
        (0..64_u8).map(|n| n.wrapping_mul(89).wrapping_add(251)).collect()
    }

    fn scanner() -> Scanner {
        let mut scanner = Scanner::default();
        scanner.add_bytes("key", &secret());
        scanner.add_text("token", "s.0123456789abcdefghij");
        scanner
    }

    fn finds(scanner: &Scanner, secret: &str, hay: &[u8]) -> bool {
        scanner.found(hay).iter().any(|(name, _)| *name == secret)
    }

    #[test]
    fn scanner_finds_planted_secret_in_every_encoding_and_offset() {
        let scanner = scanner();
        for (name, bytes) in [("key", secret()), ("token", b"s.0123456789abcdefghij".to_vec())] {
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            for before in 0..7 {
                for after in 0..4 {
                    let planted = [&[0xa5; 7][..before], &bytes, &[0x5a; 4][..after]].concat();
                    assert!(finds(&scanner, name, &planted), "{name} raw {before} {after}");
                    assert!(finds(&scanner, name, STANDARD.encode(&planted).as_bytes()), "{name} base64 {before}");
                    assert!(finds(&scanner, name, URL_SAFE.encode(&planted).as_bytes()), "{name} url {before}");
                }
            }
            assert!(finds(&scanner, name, format!("x{hex}").as_bytes()));
            assert!(finds(&scanner, name, format!("x{}", hex.to_uppercase()).as_bytes()));
            assert!(finds(&scanner, name, format!("{bytes:?}").as_bytes()), "{name} debug");
        }
    }

    #[test]
    fn scanner_finds_key_in_every_line_of_a_pem_block() {
        let scanner = scanner();
        let long = [&[1, 2, 3][..], &secret(), &secret(), &secret()].concat();
        let text = STANDARD.encode(long);
        for line in text.as_bytes().chunks_exact(64) {
            assert!(finds(&scanner, "key", line), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn scanner_finds_no_absent_secret() {
        let scanner = scanner();
        let mut altered = secret();
        altered.iter_mut().step_by(PIECE).for_each(|b| *b ^= 1);
        for hay in [&altered[..], &secret()[1..PIECE], b"s.0123456789abcdefghi", b"", b"s.0123456789ABCDEFGHIJ"] {
            assert!(scanner.found(hay).is_empty());
        }
    }
}
