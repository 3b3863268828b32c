//! Rules for the header and claims of a token (RFC 7519 4.1).

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::jose::JwsAlgorithm;

/// Maximum number of seconds by which a token's issue time (`iat`) may be in the future, under
/// [`JwtTimeRules::Strict`].
const MAX_FUTURE_ISSUE_SECONDS: f64 = 300.0;

pub(in crate::auth) struct JwtRules<'r> {
    pub(in crate::auth) algorithms: &'r [JwsAlgorithm],
    /// `true` if the token must name its signing key (`kid`).
    pub(in crate::auth) needs_kid: bool,
    /// Issuer that the token must have, compared byte for byte. If `None`, the token must have the issuer of the
    /// discovery document; if there is no such document, any issuer is accepted.
    pub(in crate::auth) issuer: Option<&'r str>,
    /// The token must have one of these audiences, compared byte for byte. If the list is empty, a token with an
    /// audience is rejected, because it is meant for another service.
    pub(in crate::auth) audiences: &'r [String],
    pub(in crate::auth) times: JwtTimeRules,
}

/// Rules for the claims `exp`, `nbf` and `iat` of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::auth) enum JwtTimeRules {
    /// `exp` is required, without tolerance for clock differences; `iat` may be 5 minutes in the future.
    Strict,
    /// One of `exp`, `nbf` and `iat` is required. A token without `exp` ends `expiration` after its start; a token
    /// without `nbf` and `iat` starts `not_before` before its end. Clocks may differ by `skew`.
    Lenient { skew: Duration, expiration: Duration, not_before: Duration },
}

/// The claims of a verified token.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::auth) struct VerifiedClaims(Map<String, Value>);

impl VerifiedClaims {
    pub(in crate::auth) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns the claim `name` if it is a non-empty text.
    pub(in crate::auth) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    pub(in crate::auth) fn all(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Validates the claims of a token whose signature was verified. `discovered` is the issuer in the discovery
    /// document, if there is one.
    ///
    /// # Errors
    /// `Forbidden` with the violated rule.
    pub(super) fn validated(
        claims: Map<String, Value>,
        rules: &JwtRules<'_>,
        discovered: Option<&str>,
        now: Time,
    ) -> Result<Self> {
        check_issuer(&claims, rules.issuer.or(discovered))?;
        check_audience(&claims, rules.audiences)?;
        check_times(&claims, rules.times, now)?;
        Ok(Self(claims))
    }
}

/// The `Forbidden` error for a token that is rejected, or not sufficient for a login.
pub(in crate::auth) fn forbidden(text: impl Into<Cow<'static, str>>) -> Error {
    Error::new(Kind::Forbidden, text)
}

fn check_issuer(claims: &Map<String, Value>, wanted: Option<&str>) -> Result<()> {
    match (claims.get("iss"), wanted) {
        (Some(Value::String(issuer)), Some(wanted)) if issuer == wanted => Ok(()),
        (_, None) => Ok(()),
        _ => Err(forbidden("the token's issuer (iss) is not the expected one")),
    }
}

/// Checks that the token has one of the audiences `wanted`. If `wanted` is empty, a token with any audience is rejected
/// (CVE-2024-5798).
fn check_audience(claims: &Map<String, Value>, wanted: &[String]) -> Result<()> {
    let audiences_of_token: Vec<&str> = match claims.get("aud") {
        None => Vec::new(),
        Some(Value::String(audience)) => vec![audience],
        Some(Value::Array(audiences)) => {
            let texts: Option<_> = audiences.iter().map(Value::as_str).collect();
            texts.ok_or_else(|| forbidden("the token's audience (aud) must be a string or a list of strings"))?
        }
        Some(_) => return Err(forbidden("the token's audience (aud) must be a string or a list of strings")),
    };
    match (audiences_of_token.is_empty(), wanted.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(forbidden("the token has no audience")),
        (false, true) => Err(forbidden("audience claim found in JWT but no audiences bound to the role")),
        (false, false) if wanted.iter().any(|wanted| audiences_of_token.contains(&wanted.as_str())) => Ok(()),
        (false, false) => Err(forbidden("the token's audience (aud) is not an accepted one")),
    }
}

fn check_times(claims: &Map<String, Value>, times: JwtTimeRules, now: Time) -> Result<()> {
    let now = now.unix_timestamp() as f64 + f64::from(now.nanosecond()) / 1e9;
    let expiration = numeric_date(claims, "exp", "the token's exp is not a number")?;
    let not_before = numeric_date(claims, "nbf", "the token's nbf is not a number")?;
    let issued = numeric_date(claims, "iat", "the token's iat is not a number")?;
    let (begins, ends, skew, future) = match times {
        JwtTimeRules::Strict => {
            let ends = expiration.ok_or_else(|| forbidden("the token has no expiration time (exp)"))?;
            (not_before, ends, 0.0, MAX_FUTURE_ISSUE_SECONDS)
        }
        JwtTimeRules::Lenient { skew, expiration: lives, not_before: before } => {
            // Some issuers write zero for a time that they do not set.
            let nonzero = |date: Option<f64>| date.filter(|date| *date != 0.0);
            let expiration = nonzero(expiration);
            let not_before = nonzero(not_before);
            let issued = nonzero(issued);
            let begins = not_before.or(issued);
            let ends = match (expiration, not_before, issued) {
                (Some(ends), _, _) => ends,
                (None, Some(first), Some(second)) => first.max(second) + lives.as_secs_f64(),
                (None, Some(only), None) | (None, None, Some(only)) => only + lives.as_secs_f64(),
                (None, None, None) => return Err(forbidden("the token has none of the claims exp, nbf and iat")),
            };
            let begins = begins.unwrap_or(ends - before.as_secs_f64());
            (Some(begins), ends, skew.as_secs_f64(), skew.as_secs_f64())
        }
    };
    if now >= ends + skew {
        return Err(forbidden("the token is expired"));
    }
    if begins.is_some_and(|begins| now + skew < begins) {
        return Err(forbidden("token is not yet valid"));
    }
    if issued.is_some_and(|issued| now + future < issued) {
        return Err(forbidden("the token's issue time (iat) is in the future"));
    }
    Ok(())
}

/// Parses a date claim (RFC 7519 2): a JSON number of seconds since the epoch, possibly with a fraction. `wrong` is the
/// error for any other type.
fn numeric_date(claims: &Map<String, Value>, name: &str, wrong: &'static str) -> Result<Option<f64>> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::Number(number)) => number.as_f64().map(Some).ok_or_else(|| forbidden(wrong)),
        Some(_) => Err(forbidden(wrong)),
    }
}
