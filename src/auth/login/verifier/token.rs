//! A signed token in compact form (RFC 7515 3.1), and its header.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::algorithm::JwtAlgorithm;
use super::json;
use super::rules::{JwtRules, forbidden};
use crate::error::{Error, Result};

/// Maximum length of a token in bytes.
const MAX_JWT_BYTES: usize = 64 * 1024;
/// Maximum length of a key id in bytes.
const MAX_KID_BYTES: usize = 1024;

/// A token of valid format that is not verified.
pub(in crate::auth) struct Jwt<'t> {
    /// The signed part: header and claims.
    signed: &'t str,
    header: &'t str,
    claims: &'t str,
    /// In base64url.
    signature: &'t str,
}

/// The used part of a header. References to keys (`jku`, `jwk`, `x5u`, `x5c`) are ignored.
pub(super) struct JwtHeader {
    pub(super) algorithm: JwtAlgorithm,
    pub(super) kid: Option<String>,
}

impl<'t> Jwt<'t> {
    /// Splits a token into three parts of base64url, the last of which may be empty.
    ///
    /// # Errors
    /// `Invalid` for anything else, without quoting it.
    pub(in crate::auth) fn parse(text: &'t str) -> Result<Self> {
        if text.len() > MAX_JWT_BYTES {
            return Err(Error::invalid(format!("jwt: longer than {MAX_JWT_BYTES} bytes")));
        }
        let wrong = || Error::invalid("jwt: must be three parts of base64url, joined by dots");
        // Without an early exit, so that the compiler can vectorize it: almost every token is well-formed.
        let is_base64url = |part: &str| {
            part.bytes().fold(true, |so_far, b| so_far & (b.is_ascii_alphanumeric() | (b == b'-') | (b == b'_')))
        };
        let (signed, signature) = text.rsplit_once('.').ok_or_else(wrong)?;
        let (header, claims) = signed.split_once('.').ok_or_else(wrong)?;
        let are_parts = [header, claims, signature].into_iter().all(is_base64url);
        if !are_parts || header.is_empty() || claims.is_empty() {
            return Err(wrong());
        }
        Ok(Self { signed, header, claims, signature })
    }

    /// Parses the header and validates it against the rules.
    ///
    /// # Errors
    /// `Forbidden` with the violated rule.
    pub(super) fn header(&self, rules: &JwtRules<'_>) -> Result<JwtHeader> {
        let header = decode_object(self.header).ok_or_else(|| forbidden("the token's header is not understood"))?;
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(JwtAlgorithm::of);
        let algorithm = algorithm
            .filter(|algorithm| rules.algorithms.contains(algorithm))
            .ok_or_else(|| forbidden("the token is signed with an algorithm that is not accepted"))?;
        if header.contains_key("crit") {
            return Err(forbidden("the token has critical extensions, which are not understood"));
        }
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) if !kid.is_empty() && kid.len() <= MAX_KID_BYTES => Some(kid.clone()),
            Some(_) => return Err(forbidden("the token's kid is not a text of 1 to 1024 bytes")),
        };
        if rules.needs_kid && kid.is_none() {
            return Err(forbidden("the token does not name its signing key (kid)"));
        }
        Ok(JwtHeader { algorithm, kid })
    }

    /// Returns the signed bytes, and the signature in base64url.
    pub(super) fn signed_bytes_and_signature(&self) -> (&'t [u8], &'t str) {
        (self.signed.as_bytes(), self.signature)
    }

    /// Returns the claims, which must not be used before the signature is verified.
    pub(super) fn claims(&self) -> Option<Map<String, Value>> {
        decode_object(self.claims)
    }
}

fn decode_object(part: &str) -> Option<Map<String, Value>> {
    json::parse_object(&URL_SAFE_NO_PAD.decode(part).ok()?)
}
