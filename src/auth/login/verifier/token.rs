//! The format and the header of a signed token (JWT).

use serde_json::Value;

use super::rules::{JwtRules, forbidden};
use crate::error::{Error, Result};
use crate::jose::{CompactJws, JwsAlgorithm};

/// Maximum length of a signed token in bytes.
const MAX_JWT_BYTES: usize = 64 * 1024;
/// Maximum length of a key id in bytes.
const MAX_KID_BYTES: usize = 1024;

/// The members of a token's header that this server reads. References to keys (`jku`, `jwk`, `x5u`, `x5c`) are ignored.
pub(super) struct JwtHeader {
    pub(super) algorithm: JwsAlgorithm,
    pub(super) kid: Option<String>,
}

/// Checks that a text has the format of a signed token, without verifying it.
///
/// # Errors
/// `Invalid`, without quoting the token.
pub(in crate::auth) fn parse_jwt(text: &str) -> Result<CompactJws<'_>> {
    if text.len() > MAX_JWT_BYTES {
        return Err(Error::invalid(format!("jwt: longer than {MAX_JWT_BYTES} bytes")));
    }
    CompactJws::parse(text).ok_or_else(|| Error::invalid("jwt: must be three parts of base64url, joined by dots"))
}

impl JwtHeader {
    /// Parses the header of a token and validates it against the rules.
    ///
    /// # Errors
    /// `Forbidden` with the violated rule.
    pub(super) fn of(token: &CompactJws<'_>, rules: &JwtRules<'_>) -> Result<Self> {
        let header = token
            .header()
            .ok_or_else(|| forbidden("the token's header is not a JSON object without duplicate members"))?;
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(JwsAlgorithm::of);
        let algorithm = algorithm
            .filter(|algorithm| rules.algorithms.contains(algorithm))
            .ok_or_else(|| forbidden("the token's signature algorithm (alg) is not accepted by this auth method"))?;
        if header.contains_key("crit") {
            return Err(forbidden("the token has critical extensions (crit), which are not supported"));
        }
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) if !kid.is_empty() && kid.len() <= MAX_KID_BYTES => Some(kid.clone()),
            Some(_) => return Err(forbidden("the token's kid is not a text of 1 to 1024 bytes")),
        };
        if rules.needs_kid && kid.is_none() {
            return Err(forbidden("the token does not name its signing key (kid)"));
        }
        Ok(Self { algorithm, kid })
    }
}
