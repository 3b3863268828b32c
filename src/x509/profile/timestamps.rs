//! The list of signed certificate timestamps (RFC 6962 3.2, 3.3), which has TLS encoding.

use super::require;
use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::time::MAX_EPOCH_SECONDS;
use crate::x509::writer::OCTET_STRING;

const INCONSISTENT_LENGTH: DerError =
    DerError("the encoded length of a timestamp or of the list is wrong (RFC 6962 3.3)");

/// Validates a list of signed certificate timestamps: rejects an empty list, and timestamps of versions other than 1.
pub(super) fn validate(value: &[u8]) -> DerResult<()> {
    let mut rest = DerReader::read_single(value, OCTET_STRING)?.content;
    let mut list = read_vector(&mut rest)?;
    require(rest.is_empty(), INCONSISTENT_LENGTH.0)?;
    require(!list.is_empty(), "must not be empty (RFC 6962 3.3)")?;
    while !list.is_empty() {
        validate_timestamp(read_vector(&mut list)?)?;
    }
    Ok(())
}

/// Reads a TLS vector with a two-byte length.
fn read_vector<'a>(rest: &mut &'a [u8]) -> DerResult<&'a [u8]> {
    let [high, low] = read_bytes::<2>(rest)?;
    let (vector, after) =
        rest.split_at_checked(usize::from(high) << 8 | usize::from(low)).ok_or(INCONSISTENT_LENGTH)?;
    *rest = after;
    Ok(vector)
}

fn read_bytes<const N: usize>(rest: &mut &[u8]) -> DerResult<[u8; N]> {
    let (octets, after) = rest.split_first_chunk::<N>().ok_or(INCONSISTENT_LENGTH)?;
    *rest = after;
    Ok(*octets)
}

fn validate_timestamp(mut rest: &[u8]) -> DerResult<()> {
    let [version] = read_bytes(&mut rest)?;
    require(version == 0, "the version of a timestamp is not 1 (RFC 6962 3.2)")?;
    let _log: [u8; 32] = read_bytes(&mut rest)?;
    let at = u64::from_be_bytes(read_bytes(&mut rest)?);
    require(at / 1000 <= MAX_EPOCH_SECONDS.unsigned_abs(), "the time of a timestamp is after the year 9999")?;
    read_vector(&mut rest)?;
    // Hash algorithm 4 is SHA-256; signature algorithm 1 is RSA and 3 is ECDSA.
    let [hash, signature] = read_bytes(&mut rest)?;
    require(
        hash == 4 && matches!(signature, 1 | 3),
        "a timestamp is signed with an unsupported algorithm (RFC 6962 2.1.4)",
    )?;
    require(!read_vector(&mut rest)?.is_empty(), "a timestamp is not signed (RFC 6962 3.2)")?;
    require(rest.is_empty(), INCONSISTENT_LENGTH.0)
}
