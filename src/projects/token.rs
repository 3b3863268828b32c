//! The format and storage of API tokens. [`api_token`](super::api_token) manages the rows.
//!
//! A token is `<14 characters of base 58>.pjv1.<43 characters of base64url>`. The public first part is the lookup key.
//! The last part is 256 random bits, of which only the SHA-256 is stored: full entropy needs no slow hash. A token can
//! also have a predefined text, such as one from a container's environment. Its lookup key is derived from a hash of
//! the text.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::id::{self, base58};
use super::rejection::WorkResult;
use super::store::BoundToken;
use super::tx::Tx;
use crate::clock::Time;
use crate::secret::Secret;
use crate::sql::{SqlError, SqlValue};

const TOKEN_MARKER: &str = ".pjv1.";
/// Length of the public part of a token, in characters.
const LOOKUP_CHARS: usize = 14;
/// Length of the secret part of a token, in characters.
const SECRET_CHARS: usize = 43;
/// Maximum length of a presented token, in bytes.
const MAX_TOKEN_BYTES: usize = 512;

/// A new token: its text, which the client sees only once, and the values to store.
#[derive(Clone)]
pub struct NewToken {
    /// The text of the token.
    pub text: Secret,
    /// The lookup key: the public first part of the text.
    pub lookup: String,
    /// SHA-256 of the secret part.
    pub hash: Vec<u8>,
}

/// Generates a random token.
pub fn generate() -> NewToken {
    let lookup = base58(LOOKUP_CHARS);
    let secret = Secret::new(URL_SAFE_NO_PAD.encode(crate::random::bytes::<32>()));
    let mut text = format!("{lookup}{TOKEN_MARKER}").into_bytes();
    text.extend_from_slice(secret.expose());
    NewToken { text: Secret::new(text), hash: hash(secret.expose()), lookup }
}

/// Creates a token with a predefined text, or returns `None` if the text cannot be a token. The token is only as hard
/// to guess as the text, so callers must require a long text.
pub fn from_text(text: &str) -> Option<NewToken> {
    let (lookup, hash) = split(text)?;
    Some(NewToken { text: Secret::new(text), lookup, hash })
}

/// Seals and stores a token and returns its row id. `creator` is the reference to its creator, such as `users/user-…`.
///
/// # Errors
/// Those of the store.
pub(super) async fn insert(
    tx: &mut Tx<'_>,
    token: &BoundToken<'_>,
    description: Option<&str>,
    creator: String,
) -> WorkResult<i64> {
    let body = tx.token_seal().seal(token).map_err(SqlError::Engine)?;
    let insert = "INSERT INTO api_tokens (ext_id, lookup, secret_sha256, user_id, team_id, org_id, kind, description,
        created_by, created_at, expired_at, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        RETURNING id";
    let values: [SqlValue; 12] = [
        id::new("at").into(),
        token.lookup.into(),
        token.secret_sha256.to_vec().into(),
        token.user.into(),
        token.team.into(),
        token.org.into(),
        token.kind.into(),
        description.into(),
        creator.into(),
        tx.now.into(),
        token.expired_at.into(),
        body.into(),
    ];
    Ok(tx.one(insert, &values).await?.get()?)
}

/// Returns the lookup key and the hash of the secret part of a presented token, or `None` if it is empty or longer than
/// `MAX_TOKEN_BYTES`.
pub fn split(presented: &str) -> Option<(String, Vec<u8>)> {
    if let Some((lookup, secret)) = presented.split_once(TOKEN_MARKER)
        && (lookup.len(), secret.len()) == (LOOKUP_CHARS, SECRET_CHARS)
    {
        return Some((lookup.to_owned(), hash(secret.as_bytes())));
    }
    if !(1..=MAX_TOKEN_BYTES).contains(&presented.len()) {
        return None;
    }
    // The prefix `given-` contains a `-`, which base 58 does not. The key thus differs from the lookup key of every
    // generated token.
    let lookup = URL_SAFE_NO_PAD.encode(hash(format!("lookup {presented}").as_bytes()));
    Some((format!("given-{lookup}"), hash(presented.as_bytes())))
}

fn hash(secret: &[u8]) -> Vec<u8> {
    digest(&SHA256, secret).as_ref().to_vec()
}

/// Returns the default expiry: the same calendar time two years later (1 March for 29 February), truncated to
/// milliseconds like the times in responses.
pub fn two_years_after(now: Time) -> Time {
    let now = now.replace_millisecond(now.millisecond()).unwrap_or(now);
    let year = now.year() + 2;
    let later = now.replace_year(year).ok();
    let march = || now.replace_day(28).ok()?.replace_year(year).ok()?.checked_add(time::Duration::DAY);
    later.or_else(march).unwrap_or(now)
}

/// Compares two hashes in constant time.
pub fn constant_time_eq(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use time::macros::datetime;

    #[test]
    fn token_expires_after_two_calendar_years() {
        for (now, end) in [
            (datetime!(2026-01-02 03:04:05.678901 UTC), datetime!(2028-01-02 03:04:05.678 UTC)),
            (datetime!(2028-02-29 23:59:59 UTC), datetime!(2030-03-01 23:59:59 UTC)),
            (datetime!(2026-02-28 00:00 UTC), datetime!(2028-02-28 00:00 UTC)),
        ] {
            assert_eq!(two_years_after(now), end);
        }
    }

    proptest! {
        #[test]
        fn token_split_is_injective_for_any_text(one in ".{0,80}", other in ".{0,80}") {
            prop_assert_eq!(split(&one).is_some(), !one.is_empty());
            prop_assert!(one == other || split(&one).is_none() || split(&one) != split(&other));
        }
    }

    #[test]
    fn token_split_returns_lookup_key_and_hash() {
        let token = generate();
        let text = std::str::from_utf8(token.text.expose()).unwrap();
        let (lookup, hash) = split(text).unwrap();
        assert!(lookup == token.lookup && constant_time_eq(&hash, &token.hash));
        assert!(!lookup.contains('-'));
        let mut other = text.to_owned();
        other.replace_range(
            text.len() - 2..text.len() - 1,
            if text.as_bytes()[text.len() - 2] == b'A' { "B" } else { "A" },
        );
        assert!(!constant_time_eq(&split(&other).unwrap().1, &token.hash));
    }

    #[test]
    fn predefined_token_text_is_accepted() {
        let text = "x.pjv1.a text that a user chose";
        let token = from_text(text).unwrap();
        let (lookup, hash) = split(text).unwrap();
        assert!(lookup == token.lookup && constant_time_eq(&hash, &token.hash) && lookup.starts_with("given-"));
        assert_ne!(split("x.pjv1.a text that a user chosf").unwrap().0, lookup);
        assert!(split("").is_none() && split(&"x".repeat(MAX_TOKEN_BYTES + 1)).is_none());
    }
}
