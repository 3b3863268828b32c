//! Texts of tokens and accessors, and the hashes under which they are stored.
//!
//! A text consists of its creation time in milliseconds and random characters. The hash starts with that time too, so
//! that new rows are adjacent in the index, and inserts into millions of rows touch only the end of the index. The
//! holder of a token can read this time from its text. That reveals nothing new, because the lookup response contains
//! the time too.

use aws_lc_rs::digest;

use crate::auth::store::TokenHash;
use crate::clock::Time;
use crate::random::{BASE62, base62, unique_base62};

/// Number of characters that encode the creation time; enough until the year 2081.
const TIME_CHARS: usize = 7;
/// Number of random characters in a token: 220 bits.
const TOKEN_RANDOM_CHARS: usize = 37;
/// Number of random characters in an accessor: 107 bits.
const ACCESSOR_RANDOM_CHARS: usize = 18;
const TOKEN_PREFIX: &str = "s.";
/// Number of bytes of a [`TokenHash`] that contain the creation time.
const HASH_TIME_BYTES: usize = 6;
/// Maximum length in bytes of the text of a stored token or accessor.
const MAX_TOKEN_BYTES: usize = 512;

pub(in crate::auth) fn new_token(now: Time) -> String {
    format!("{TOKEN_PREFIX}{}{}", encode_time(now), base62(TOKEN_RANDOM_CHARS))
}

/// Generates a random accessor. An accessor by itself grants no rights.
pub(super) fn new_accessor(now: Time) -> String {
    format!("{}{}", encode_time(now), unique_base62(ACCESSOR_RANDOM_CHARS))
}

/// Returns the storage key of a token or accessor; `None` for an empty or too long text. A text that this server did
/// not generate contains no time, so its key is its whole SHA-256.
pub(in crate::auth) fn hash_of(text: &str) -> Option<TokenHash> {
    if text.is_empty() || text.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let mut hash = sha256(text);
    if let Some(time) = decode_time(text) {
        hash.copy_within(..size_of::<TokenHash>() - HASH_TIME_BYTES, HASH_TIME_BYTES);
        hash[..HASH_TIME_BYTES].copy_from_slice(&time.to_be_bytes()[8 - HASH_TIME_BYTES..]);
    }
    Some(hash)
}

pub(super) fn sha256(text: &str) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    hash
}

/// Encodes a time in base 62 with digits in ASCII order, so that the texts sort by time.
fn encode_time(now: Time) -> String {
    let max = 62_i128.pow(TIME_CHARS as u32) - 1;
    let mut left = (now.unix_timestamp_nanos() / 1_000_000).clamp(0, max) as usize;
    let mut digits = [0; TIME_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[left % 62];
        left /= 62;
    }
    digits.map(char::from).iter().collect()
}

pub(super) fn is_stored_token(text: &str) -> bool {
    text.starts_with(TOKEN_PREFIX) && decode_time(text).is_some()
}

/// `true` if a text has the form of an accessor of this server.
pub(super) fn is_accessor(text: &str) -> bool {
    !text.starts_with(TOKEN_PREFIX) && decode_time(text).is_some()
}

fn decode_time(text: &str) -> Option<u64> {
    let (timed_text, random) = text
        .strip_prefix(TOKEN_PREFIX)
        .map_or((text, ACCESSOR_RANDOM_CHARS), |timed_text| (timed_text, TOKEN_RANDOM_CHARS));
    let is_form =
        timed_text.len() == TIME_CHARS + random && timed_text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let value = |byte: u8| BASE62.iter().position(|digit| *digit == byte).unwrap_or_default() as u64;
    is_form.then(|| timed_text.bytes().take(TIME_CHARS).fold(0, |time, byte| time * 62 + value(byte)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Time = Time::UNIX_EPOCH;

    #[test]
    fn later_tokens_sort_after_earlier_ones_as_text_and_hash() {
        let times = [0, 1, 61, 62, 1_000, 1_790_000_000_000, 3_500_000_000_000].map(Duration::from_millis);
        for generate in [new_token, new_accessor] {
            let texts = times.map(|at| generate(START + at));
            assert!(texts.is_sorted(), "{texts:?}");
            let hashes = texts.map(|text| hash_of(&text).unwrap());
            assert!(hashes.is_sorted());
            let read = hashes.map(|hash| u64::from_be_bytes([&[0, 0], &hash[..6]].concat().try_into().unwrap()));
            assert_eq!(read.map(Duration::from_millis), times);
        }
        assert_eq!(encode_time(START - Duration::from_secs(1)), "0000000");
    }

    #[test]
    fn tokens_created_together_have_different_texts_and_hashes() {
        let [one, other] = [new_token(START), new_token(START)];
        assert!(one != other && hash_of(&one) != hash_of(&other));
        assert_eq!((one.len(), new_accessor(START).len()), (46, 25));
        let accessor = new_accessor(START);
        assert!(is_stored_token(&one) && !is_accessor(&one) && is_accessor(&accessor) && !is_stored_token(&accessor));
        assert!(!is_stored_token(&one[..45]) && !is_accessor(&accessor[..24]));
        // A change of any character changes the hash.
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
