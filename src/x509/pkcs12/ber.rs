//! Conversion of BER to DER for PKCS #12 files: lengths become definite, and segmented strings become primitive values.

use zeroize::Zeroizing;

use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::writer::{CONSTRUCTED, DerWriter, OCTET_STRING};

/// Maximum nesting depth of the BER values in a file.
const MAX_BER_NESTING: usize = 16;
const TRUNCATED_BER: DerError = DerError("truncated BER");

/// Converts the first value of `ber` to definite lengths and returns the remaining input. The result is longer than
/// `ber` at most by the bytes of the new lengths.
///
/// # Errors
/// The violated rule.
pub(super) fn to_definite_lengths(ber: &[u8]) -> DerResult<(Vec<u8>, &[u8])> {
    let mut writer = DerWriter::with_capacity(ber.len());
    let rest = convert(ber, &mut writer, MAX_BER_NESTING)?;
    Ok((writer.finish(), rest))
}

fn convert<'a>(ber: &'a [u8], out: &mut DerWriter, depth: usize) -> DerResult<&'a [u8]> {
    let depth = depth.checked_sub(1).ok_or(DerError("values are nested deeper than 16"))?;
    let (&tag, rest) = ber.split_first().ok_or(TRUNCATED_BER)?;
    if tag & 0x1f == 0x1f {
        return Err(DerError("multi-octet tags are not supported"));
    }
    let (length, rest) = read_length(rest)?;
    if tag & CONSTRUCTED == 0 {
        let length = length.ok_or(DerError("a primitive value has an indefinite length"))?;
        let (content, rest) = rest.split_at_checked(length).ok_or(TRUNCATED_BER)?;
        out.tlv(tag, content);
        return Ok(rest);
    }
    // The content may include a private key: a reallocation would leave a copy in memory, so the capacity is set in
    // advance.
    let mut content = DerWriter::with_capacity(length.unwrap_or(rest.len()).min(rest.len()) + 16);
    let rest = match length {
        Some(length) => {
            let (mut inner, rest) = rest.split_at_checked(length).ok_or(TRUNCATED_BER)?;
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
        out.tlv(OCTET_STRING, &Zeroizing::new(join_segments(&content)?));
    } else {
        out.tlv(tag, &content);
    }
    Ok(rest)
}

/// Joins the segments of a segmented string (the content of its constructed encoding).
pub(super) fn join_segments(pieces: &[u8]) -> DerResult<Vec<u8>> {
    let mut reader = DerReader::new(pieces);
    let mut whole = Vec::with_capacity(pieces.len());
    while !reader.is_empty() {
        whole.extend_from_slice(reader.octet_string()?);
    }
    Ok(whole)
}

/// Reads a length and returns it with the remaining input; the length is `None` for the indefinite form.
fn read_length(octets: &[u8]) -> DerResult<(Option<usize>, &[u8])> {
    let (&first, rest) = octets.split_first().ok_or(TRUNCATED_BER)?;
    match first {
        0x80 => Ok((None, rest)),
        0..0x80 => Ok((Some(usize::from(first)), rest)),
        _ => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or(TRUNCATED_BER)?;
            let start = length.iter().position(|&octet| octet != 0).unwrap_or(length.len());
            if length.len() - start > 4 {
                return Err(TRUNCATED_BER);
            }
            Ok((Some(length[start..].iter().fold(0, |n, &octet| n << 8 | usize::from(octet))), rest))
        }
    }
}
