//! Encoder of DER values (X.690) for requests and certificates.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const SEQUENCE: u8 = 0x30;

/// Encodes a value from the parts of its content.
pub(crate) fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|octet| **octet == 0).count()..];
    let head = match content.len() {
        0..0x80 => vec![tag, content.len() as u8],
        _ => [&[tag, 0x80 | length.len() as u8], length].concat(),
    };
    [head, content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_lengths_have_the_shortest_form() {
        assert_eq!(encode(4, &[])[..], [4, 0]);
        assert_eq!(encode(4, &[&[0; 127]])[..2], [4, 127]);
        assert_eq!(encode(4, &[&[0; 128]])[..3], [4, 0x81, 128]);
        assert_eq!(encode(4, &[&[0; 256]])[..4], [4, 0x82, 1, 0]);
    }
}
