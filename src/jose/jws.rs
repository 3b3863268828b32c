//! A signed object (JWS) in compact form (RFC 7515 3.1): header, payload and signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::algorithm::{JwsAlgorithm, JwsVerificationKey};
use super::unique_json;

/// A signed object in valid format whose signature is not verified yet.
pub(crate) struct CompactJws<'t> {
    /// The encoded header and payload, joined by a dot, which the signature covers.
    signing_input: &'t str,
    header: &'t str,
    payload: &'t str,
    signature: &'t str,
}

impl<'t> CompactJws<'t> {
    /// Splits a text into three parts in base64url, the last of which may be empty; `None` if the text has another
    /// format.
    pub(crate) fn parse(text: &'t str) -> Option<Self> {
        // The check has no early exit, so that the compiler can vectorize it; almost every object is well-formed.
        let is_base64url = |part: &str| {
            part.bytes().fold(true, |so_far, b| so_far & (b.is_ascii_alphanumeric() | (b == b'-') | (b == b'_')))
        };
        let (signing_input, signature) = text.rsplit_once('.')?;
        let (header, payload) = signing_input.split_once('.')?;
        let are_parts = [header, payload, signature].into_iter().all(is_base64url);
        let is_complete = are_parts && !header.is_empty() && !payload.is_empty();
        is_complete.then_some(Self { signing_input, header, payload, signature })
    }

    /// Decodes the header and returns its members; `None` if it is not a JSON object, or has duplicate members.
    pub(crate) fn header(&self) -> Option<Map<String, Value>> {
        decode_object(self.header)
    }

    /// Decodes the payload and returns its members, like [`CompactJws::header`]. The caller must verify the signature
    /// before it uses them.
    pub(crate) fn payload(&self) -> Option<Map<String, Value>> {
        decode_object(self.payload)
    }

    /// `true` if the object has a valid signature by `key` with `algorithm`.
    pub(crate) fn is_signed_by(&self, key: &JwsVerificationKey, algorithm: JwsAlgorithm) -> bool {
        let signature = URL_SAFE_NO_PAD.decode(self.signature);
        signature.is_ok_and(|signature| key.verifies(algorithm, self.signing_input.as_bytes(), &signature))
    }
}

fn decode_object(part: &str) -> Option<Map<String, Value>> {
    unique_json::parse_object(&URL_SAFE_NO_PAD.decode(part).ok()?)
}
