//! AES-256-GCM with random nonces, for sealed values and wrapped keys.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::error::{Error, Result};

pub(super) const TAG_LEN: usize = 16;

pub(super) fn aead_key(bytes: &[u8]) -> Result<LessSafeKey> {
    let key =
        UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| Error::internal("an AES-256 key is not 32 bytes long"))?;
    Ok(LessSafeKey::new(key))
}

/// Encrypts `plain` and appends nonce ‖ ciphertext ‖ tag to `out`.
pub(super) fn seal_with(key: &LessSafeKey, context: &[u8], plain: &[u8], mut out: Vec<u8>) -> Result<Vec<u8>> {
    // The full capacity is reserved, because a later reallocation would leave a copy of the plaintext in memory.
    out.reserve_exact(NONCE_LEN + plain.len() + TAG_LEN);
    let nonce: [u8; NONCE_LEN] = crate::random::bytes();
    out.extend_from_slice(&nonce);
    let start = out.len();
    out.extend_from_slice(plain);
    let tag = key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut out[start..])
        .map_err(|_| Error::internal("AES-256-GCM encryption failed"))?;
    out.extend_from_slice(tag.as_ref());
    Ok(out)
}

/// Decrypts nonce ‖ ciphertext ‖ tag; `None` if the value was altered or belongs to another context.
pub(super) fn open_with(key: &LessSafeKey, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
    let mut body = rest.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let len = key.open_in_place(nonce, Aad::from(context), &mut body).ok()?.len();
    body.truncate(len);
    Some(body)
}
