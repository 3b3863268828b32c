//! The list of signed certificate timestamps (RFC 6962 3.2, 3.3), which has TLS encoding.

use super::rule;
use crate::x509::reader::{DerError, Read, Reader};
use crate::x509::time::MAX_EPOCH;
use crate::x509::writer::OCTET_STRING;

const CUT: DerError = DerError("a timestamp or the list is not as long as it says (RFC 6962 3.3)");

/// Rejects an empty list, and timestamps of versions other than 1.
pub(super) fn read(value: &[u8]) -> Read<()> {
    let mut rest = Reader::only(value, OCTET_STRING)?.content;
    let mut list = vector(&mut rest)?;
    rule(rest.is_empty(), CUT.0)?;
    rule(!list.is_empty(), "must not be empty (RFC 6962 3.3)")?;
    while !list.is_empty() {
        timestamp(vector(&mut list)?)?;
    }
    Ok(())
}

/// Reads a vector with a two-byte length.
fn vector<'a>(rest: &mut &'a [u8]) -> Read<&'a [u8]> {
    let [high, low] = take::<2>(rest)?;
    let (vector, after) = rest.split_at_checked(usize::from(high) << 8 | usize::from(low)).ok_or(CUT)?;
    *rest = after;
    Ok(vector)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Read<[u8; N]> {
    let (octets, after) = rest.split_first_chunk::<N>().ok_or(CUT)?;
    *rest = after;
    Ok(*octets)
}

fn timestamp(mut rest: &[u8]) -> Read<()> {
    let [version] = take(&mut rest)?;
    rule(version == 0, "a timestamp is of another version than 1 (RFC 6962 3.2)")?;
    let _log: [u8; 32] = take(&mut rest)?;
    let at = u64::from_be_bytes(take(&mut rest)?);
    rule(at / 1000 <= MAX_EPOCH.unsigned_abs(), "a timestamp lies after the year 9999")?;
    vector(&mut rest)?;
    // SHA-256, with RSA or ECDSA.
    let [hash, signature] = take(&mut rest)?;
    rule(hash == 4 && matches!(signature, 1 | 3), "a timestamp is signed by another algorithm (RFC 6962 2.1.4)")?;
    rule(!vector(&mut rest)?.is_empty(), "a timestamp is not signed (RFC 6962 3.2)")?;
    rule(rest.is_empty(), CUT.0)
}
