//! A signed object in compact form (RFC 7515 3.1): header, payload and signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::algorithm::{JwsAlgorithm, JwsVerificationKey};
use super::unique_json;

/// An object of valid format that is not verified.
pub(crate) struct CompactJws<'t> {
    /// Header and payload, joined by a dot.
    signing_input: &'t str,
    header: &'t str,
    payload: &'t str,
    signature: &'t str,
}

impl<'t> CompactJws<'t> {
    /// Splits a text into three parts of base64url, the last of which may be empty; `None` for anything else.
    pub(crate) fn parse(text: &'t str) -> Option<Self> {
        // Without an early exit, so that the compiler can vectorize it: almost every object is well-formed.
        let is_base64url = |part: &str| {
            part.bytes().fold(true, |so_far, b| so_far & (b.is_ascii_alphanumeric() | (b == b'-') | (b == b'_')))
        };
        let (signing_input, signature) = text.rsplit_once('.')?;
        let (header, payload) = signing_input.split_once('.')?;
        let are_parts = [header, payload, signature].into_iter().all(is_base64url);
        let is_complete = are_parts && !header.is_empty() && !payload.is_empty();
        is_complete.then_some(Self { signing_input, header, payload, signature })
    }

    /// Returns the members of the header; `None` if it is not a JSON object, or has duplicate members.
    pub(crate) fn header(&self) -> Option<Map<String, Value>> {
        decode_object(self.header)
    }

    /// Returns the members of the payload, as [`CompactJws::header`]. They must not be used before the signature is
    /// verified.
    pub(crate) fn payload(&self) -> Option<Map<String, Value>> {
        decode_object(self.payload)
    }

    /// `true` if the signature is valid.
    pub(crate) fn is_signed_by(&self, key: &JwsVerificationKey, algorithm: JwsAlgorithm) -> bool {
        let signature = URL_SAFE_NO_PAD.decode(self.signature);
        signature.is_ok_and(|signature| key.verifies(algorithm, self.signing_input.as_bytes(), &signature))
    }
}

fn decode_object(part: &str) -> Option<Map<String, Value>> {
    unique_json::parse_object(&URL_SAFE_NO_PAD.decode(part).ok()?)
}
