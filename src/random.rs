//! Random bytes and the identifiers made of them, all from the system's generator through aws-lc.

/// The digits of base 62, in the order of their octets.
pub(crate) const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Fills `out` with random bytes.
///
/// # Panics
/// When the system has no randomness to give: nothing safe can be done then.
pub fn fill(out: &mut [u8]) {
    aws_lc_rs::rand::fill(out).expect("the system's random generator works");
}

/// `N` random bytes.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    fill(&mut out);
    out
}

/// `len` uniform characters of `[0-9A-Za-z]` (5.95 bits each).
pub fn base62(len: usize) -> String {
    let mut text = String::with_capacity(len);
    while text.len() < len {
        for byte in bytes::<64>() {
            // 248 = 4 × 62: larger values would favour the first characters.
            if byte < 248 && text.len() < len {
                text.push(char::from(BASE62[usize::from(byte % 62)]));
            }
        }
    }
    text
}

/// A random UUID, version 4, in its text form (RFC 9562).
pub fn uuid() -> String {
    uuid::Builder::from_random_bytes(bytes()).into_uuid().to_string()
}
