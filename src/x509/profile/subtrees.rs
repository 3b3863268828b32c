//! Validation of name constraints (RFC 5280 4.2.1.10).

use super::general_name::{validate_other_kind, validate_other_name};
use super::{name, require, text};
use crate::x509::extension::MAX_SUBTREES;
use crate::x509::general_name::{DIRECTORY_NAME, DNS_NAME, IP_ADDRESS, OTHER_NAME, RFC822_NAME, URI_NAME, unmap_ipv4};
use crate::x509::reader::{DerError, DerReader, DerResult, Tlv};
use crate::x509::writer::{SEQUENCE, context_constructed};

/// Validates nameConstraints: at least one subtree, and at most as many as this server can evaluate when the CA signs.
pub(super) fn validate(value: &[u8]) -> DerResult<()> {
    let mut fields = DerReader::read_single(value, SEQUENCE)?.reader();
    let sides = [fields.optional(context_constructed(0))?, fields.optional(context_constructed(1))?];
    fields.done()?;
    let some = sides.iter().any(Option::is_some) && sides.iter().flatten().all(|side| !side.content.is_empty());
    require(some, "must not be empty (RFC 5280 4.2.1.10)")?;
    sides.iter().flatten().try_for_each(|side| validate_subtrees(side.reader()))
}

fn validate_subtrees(mut side: DerReader<'_>) -> DerResult<()> {
    let mut count = 0;
    while !side.is_empty() {
        count += 1;
        require(count <= MAX_SUBTREES, "more than 1000 permitted or excluded subtrees")?;
        let mut subtree = side.sequence()?;
        let name = subtree.any()?;
        // The field `minimum` must be 0, which DER omits, and `maximum` must be absent.
        subtree.done().map_err(|_| DerError("a subtree has a minimum or maximum (RFC 5280 4.2.1.10)"))?;
        validate_base(&name)?;
    }
    Ok(())
}

fn validate_base(base: &Tlv<'_>) -> DerResult<()> {
    match base.tag {
        DNS_NAME => text::validate_host_base(base.content),
        RFC822_NAME => text::validate_mailbox_base(base.content),
        URI_NAME => text::validate_uri_base(base.content),
        IP_ADDRESS => validate_network(base.content),
        OTHER_NAME => validate_other_name(base.reader(), text::validate_srv_name_base),
        // An empty directoryName is valid and matches all names.
        DIRECTORY_NAME => name::validate_directory_name(base.content),
        _ => validate_other_kind(base),
    }
}

/// Validates an IP network: an address and a contiguous mask, without address bits outside the mask. IPv4 networks are
/// 8 bytes long; longer encodings of them are rejected.
fn validate_network(content: &[u8]) -> DerResult<()> {
    require(matches!(content.len(), 8 | 32), "a subtree of addresses must have 8 or 32 octets (RFC 5280 4.2.1.10)")?;
    let (address, mask) = content.split_at(content.len() / 2);
    let plain = unmap_ipv4(address).is_none() || !mask.starts_with(&[0xff; 12]);
    require(plain, "a subtree of IPv4 addresses must have 8 octets (RFC 5280 4.2.1.10)")?;
    let number = |octets: &[u8]| octets.iter().fold(0_u128, |n, b| n << 8 | u128::from(*b));
    let free = !number(mask) & (u128::MAX >> (128 - 8 * mask.len()));
    require(free & free.wrapping_add(1) == 0, "the mask of a subtree is not contiguous (RFC 4632 3.1)")?;
    require(number(address) & free == 0, "a subtree's address has bits outside of its mask (RFC 4632 3.1)")
}
