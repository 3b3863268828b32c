//! BER made DER as far as PKCS #12 files of other programs need it: lengths become definite, octet strings in pieces whole.

use zeroize::Zeroizing;

use crate::x509::reader::{DerError, Read, Reader};
use crate::x509::writer::{OCTET_STRING, Writer};

/// Deepest nesting of a file.
const MAX_DEPTH: usize = 16;
const CONSTRUCTED: u8 = 0x20;
const CUT: DerError = DerError("truncated BER");

/// The first value of `ber` with definite lengths, and the rest behind it. The result is not longer than `ber` by more
/// than the length octets that became necessary.
///
/// # Errors
/// The rule that is broken.
pub(super) fn definite(ber: &[u8]) -> Read<(Vec<u8>, &[u8])> {
    let mut writer = Writer::with_capacity(ber.len());
    let rest = convert(ber, &mut writer, MAX_DEPTH)?;
    Ok((writer.finish(), rest))
}

/// Writes the first value of `ber`, and returns the rest behind it.
fn convert<'a>(ber: &'a [u8], out: &mut Writer, depth: usize) -> Read<&'a [u8]> {
    let depth = depth.checked_sub(1).ok_or(DerError("values are nested deeper than 16"))?;
    let (&tag, rest) = ber.split_first().ok_or(CUT)?;
    if tag & 0x1f == 0x1f {
        return Err(DerError("multi-octet tags are not supported"));
    }
    let (length, rest) = length(rest)?;
    if tag & CONSTRUCTED == 0 {
        let length = length.ok_or(DerError("a primitive value has an indefinite length"))?;
        let (content, rest) = rest.split_at_checked(length).ok_or(CUT)?;
        out.tlv(tag, content);
        return Ok(rest);
    }
    // It may hold a private key: no part of it stays behind where it grew.
    let mut content = Writer::with_capacity(length.unwrap_or(rest.len()).min(rest.len()) + 16);
    let rest = match length {
        Some(length) => {
            let (mut inner, rest) = rest.split_at_checked(length).ok_or(CUT)?;
            while !inner.is_empty() {
                inner = convert(inner, &mut content, depth)?;
            }
            rest
        }
        None => {
            let mut inner = rest;
            loop {
                match inner {
                    [0, 0, rest @ ..] => break rest,
                    _ => inner = convert(inner, &mut content, depth)?,
                }
            }
        }
    };
    let content = Zeroizing::new(content.finish());
    if tag == OCTET_STRING | CONSTRUCTED {
        out.tlv(OCTET_STRING, &Zeroizing::new(joined(&content)?));
    } else {
        out.tlv(tag, &content);
    }
    Ok(rest)
}

/// The content of an octet string from its pieces, which are octet strings.
pub(super) fn joined(pieces: &[u8]) -> Read<Vec<u8>> {
    let mut reader = Reader::new(pieces);
    let mut whole = Vec::with_capacity(pieces.len());
    while !reader.is_empty() {
        whole.extend_from_slice(reader.octet_string()?);
    }
    Ok(whole)
}

/// A length, `None` for an indefinite one, and what follows it.
fn length(octets: &[u8]) -> Read<(Option<usize>, &[u8])> {
    let (&first, rest) = octets.split_first().ok_or(CUT)?;
    match first {
        0x80 => Ok((None, rest)),
        0..0x80 => Ok((Some(usize::from(first)), rest)),
        _ => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or(CUT)?;
            let start = length.iter().position(|&octet| octet != 0).unwrap_or(length.len());
            if length.len() - start > 4 {
                return Err(CUT);
            }
            Ok((Some(length[start..].iter().fold(0, |n, &octet| n << 8 | usize::from(octet))), rest))
        }
    }
}
