//! DER values (X.690): requests, certificates and CRLs are written and read by their bytes.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const SEQUENCE: u8 = 0x30;

/// A value that was read.
#[derive(Clone, Copy)]
pub(crate) struct Der<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// The value with tag and length.
    pub(crate) whole: &'a [u8],
    pub(crate) after: &'a [u8],
}

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

/// Reads the first value; `None` if it is incomplete.
pub(crate) fn next(der: &[u8]) -> Option<Der<'_>> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, octet| sum << 8 | usize::from(*octet)), rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some(Der { tag, content, whole: &der[..der.len() - after.len()], after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_der_are_the_shortest() {
        assert_eq!(encode(4, &[])[..], [4, 0]);
        assert_eq!(encode(4, &[&[0; 127]])[..2], [4, 127]);
        assert_eq!(encode(4, &[&[0; 128]])[..3], [4, 0x81, 128]);
        assert_eq!(encode(4, &[&[0; 256]])[..4], [4, 0x82, 1, 0]);
    }
}
