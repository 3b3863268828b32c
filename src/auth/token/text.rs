//! Texts of tokens and accessors, and the hashes under which they are stored.
//!
//! A text is a time, the milliseconds since 1970 when it was made, and random characters. Its hash begins with that
//! time too: what is stored one after the other stands beside each other, so an index of millions is written at its
//! end and not everywhere. Who knows a token learns from it when it was made, as he does by looking it up.

use aws_lc_rs::digest;

use crate::auth::store::TokenHash;
use crate::clock::Time;
use crate::random::{BASE62, base62, base62_unlike};

/// Characters of the time, enough until the year 2081.
const TIME: usize = 7;
/// Random characters of a token, which hold 220 bits.
const SECRET: usize = 37;
/// Random characters of an accessor, which hold 107 bits.
const HANDLE: usize = 18;
/// What a token begins with.
const PREFIX: &str = "s.";
/// Octets of a hash that are the time.
const LEADING: usize = 6;
/// Longest stored token, or accessor, that is looked at, in bytes.
const LONGEST: usize = 512;

/// A new token's text.
pub(in crate::auth) fn new_token(now: Time) -> String {
    format!("{PREFIX}{}{}", written(now), base62(SECRET))
}

/// A new accessor. Who has one has no right by it.
pub(super) fn new_accessor(now: Time) -> String {
    format!("{}{}", written(now), base62_unlike(HANDLE))
}

/// The hash under which a token or accessor is stored; `None` for what cannot be one. A text without a time, as others
/// make them, is stored under what SHA-256 makes of it.
pub(in crate::auth) fn hash_of(text: &str) -> Option<TokenHash> {
    if text.is_empty() || text.len() > LONGEST {
        return None;
    }
    let mut hash = sha256(text);
    if let Some(time) = time_of(text) {
        hash.copy_within(..size_of::<TokenHash>() - LEADING, LEADING);
        hash[..LEADING].copy_from_slice(&time.to_be_bytes()[8 - LEADING..]);
    }
    Some(hash)
}

/// SHA-256 of a text.
pub(super) fn sha256(text: &str) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    hash
}

/// The time as it stands in a text: the characters are in their order, so texts are in the order of their times.
fn written(now: Time) -> String {
    let most = 62_i128.pow(TIME as u32) - 1;
    let mut left = (now.unix_timestamp_nanos() / 1_000_000).clamp(0, most) as usize;
    let mut digits = [0; TIME];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[left % 62];
        left /= 62;
    }
    digits.map(char::from).iter().collect()
}

/// Whether a text has the form of a token that is stored.
pub(super) fn is_stored_token(text: &str) -> bool {
    text.starts_with(PREFIX) && time_of(text).is_some()
}

/// Whether a text has the form of an accessor.
pub(super) fn is_accessor(text: &str) -> bool {
    !text.starts_with(PREFIX) && time_of(text).is_some()
}

/// The time in a text of the form that is made here.
fn time_of(text: &str) -> Option<u64> {
    let (made, random) = text.strip_prefix(PREFIX).map_or((text, HANDLE), |made| (made, SECRET));
    let is_form = made.len() == TIME + random && made.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let value = |byte: u8| BASE62.iter().position(|digit| *digit == byte).unwrap_or_default() as u64;
    is_form.then(|| made.bytes().take(TIME).fold(0, |time, byte| time * 62 + value(byte)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Time = Time::UNIX_EPOCH;

    #[test]
    fn what_is_made_later_stands_behind_in_text_and_in_hash() {
        let times = [0, 1, 61, 62, 1_000, 1_790_000_000_000, 3_500_000_000_000].map(Duration::from_millis);
        for make in [new_token, new_accessor] {
            let texts = times.map(|at| make(START + at));
            assert!(texts.is_sorted(), "{texts:?}");
            let hashes = texts.map(|text| hash_of(&text).unwrap());
            assert!(hashes.is_sorted());
            let read = hashes.map(|hash| u64::from_be_bytes([&[0, 0], &hash[..6]].concat().try_into().unwrap()));
            assert_eq!(read.map(Duration::from_millis), times);
        }
        assert_eq!(written(START - Duration::from_secs(1)), "0000000");
    }

    #[test]
    fn texts_of_one_moment_differ_and_so_do_their_hashes() {
        let [one, other] = [new_token(START), new_token(START)];
        assert!(one != other && hash_of(&one) != hash_of(&other));
        assert_eq!((one.len(), new_accessor(START).len()), (46, 25));
        let accessor = new_accessor(START);
        assert!(is_stored_token(&one) && !is_accessor(&one) && is_accessor(&accessor) && !is_stored_token(&accessor));
        assert!(!is_stored_token(&one[..45]) && !is_accessor(&accessor[..24]));
        // Every character counts.
        let ends = |last: char| hash_of(&format!("{}{last}", &one[..45]));
        assert_ne!(ends('a'), ends('b'));
    }

    #[test]
    fn other_texts_are_stored_under_their_sha_256() {
        let token = new_token(START);
        for text in ["root", "s.short", &token[1..], &format!("{token}x"), &format!("{}_", &token[..45])] {
            assert_eq!(hash_of(text), Some(sha256(text)), "{text}");
        }
        assert_eq!(hash_of(""), None);
        assert_eq!(hash_of(&"a".repeat(513)), None);
        assert!(hash_of(&"a".repeat(512)).is_some());
    }
}
