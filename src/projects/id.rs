//! External ids: a prefix and 16 uniformly random base-58 characters.

/// Base 58: digits and letters without `0`, `I`, `O` and `l`.
const BASE58_DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// Characters after the prefix: 58^16 is about 1.6e28.
const ID_CHARS: usize = 16;

/// Creates an id, such as `prj-WsVcWRr7SfxRci1v`.
pub fn new(prefix: &str) -> String {
    format!("{prefix}-{}", base58(ID_CHARS))
}

/// Returns `len` uniformly random base-58 characters (5.86 bits each).
pub fn base58(len: usize) -> String {
    let mut text = String::with_capacity(len);
    while text.len() < len {
        for byte in crate::random::bytes::<32>() {
            // 232 = 4 × 58: accepting larger bytes would bias towards the first characters.
            if byte < 232 && text.len() < len {
                text.push(char::from(BASE58_DIGITS[usize::from(byte % 58)]));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_match_their_format_and_use_every_character() {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let id = new("prj");
            let rest = id.strip_prefix("prj-").unwrap();
            assert!(rest.len() == ID_CHARS && rest.bytes().all(|b| BASE58_DIGITS.contains(&b)), "{id}");
            seen.extend(rest.bytes());
        }
        assert_eq!(seen.len(), 58);
    }
}
