//! A signed token in its compact form (RFC 7515 3.1), and its header.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::json;
use super::rules::{Rules, refused};
use crate::error::{Error, Result};

/// Longest token, bytes.
const LONGEST: usize = 64 * 1024;
/// Longest name of a key, bytes.
const LONGEST_KID: usize = 1024;

/// A token of which nothing is known but its form.
pub(in crate::auth) struct Jwt<'t> {
    /// What is signed: header and claims.
    signed: &'t str,
    header: &'t str,
    claims: &'t str,
    /// In base64url.
    signature: &'t str,
}

/// What a header says that counts. Where it says which key to take (`jku`, `jwk`, `x5u`, `x5c`), nobody listens.
pub(super) struct Header {
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
}

impl<'t> Jwt<'t> {
    /// Takes a token apart: three parts of base64url, the third of which may be empty.
    ///
    /// # Errors
    /// `Invalid` for anything else, never quoting it.
    pub(in crate::auth) fn parse(text: &'t str) -> Result<Self> {
        if text.len() > LONGEST {
            return Err(Error::invalid(format!("jwt: longer than {LONGEST} bytes")));
        }
        let wrong = || Error::invalid("jwt: must be three parts of base64url, joined by dots");
        // Without an early end, so that it goes by many bytes at a time: almost every token is well-formed.
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

    /// The header, held against the rules. Asks nobody.
    ///
    /// # Errors
    /// `Forbidden`, saying which rule it breaks.
    pub(super) fn header(&self, rules: &Rules<'_>) -> Result<Header> {
        let header = object(self.header).ok_or_else(|| refused("the token's header is not understood"))?;
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(Algorithm::of);
        let algorithm = algorithm
            .filter(|algorithm| rules.algorithms.contains(algorithm))
            .ok_or_else(|| refused("the token is signed with an algorithm that is not accepted"))?;
        if header.contains_key("crit") {
            return Err(refused("the token has critical extensions, which are not understood"));
        }
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) if !kid.is_empty() && kid.len() <= LONGEST_KID => Some(kid.clone()),
            Some(_) => return Err(refused("the token's kid is not a text of 1 to 1024 bytes")),
        };
        if rules.needs_kid && kid.is_none() {
            return Err(refused("the token does not say which key it is signed with (kid)"));
        }
        Ok(Header { algorithm, kid })
    }

    /// What the signature is of, and the signature in base64url.
    pub(super) fn signed(&self) -> (&'t [u8], &'t str) {
        (self.signed.as_bytes(), self.signature)
    }

    /// The claims, which mean nothing before the signature is verified.
    pub(super) fn claims(&self) -> Option<Map<String, Value>> {
        object(self.claims)
    }
}

fn object(part: &str) -> Option<Map<String, Value>> {
    json::object(&URL_SAFE_NO_PAD.decode(part).ok()?)
}
