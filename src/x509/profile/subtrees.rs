//! Name constraints (RFC 5280 4.2.1.10).

use super::general_name::{other, other_kind};
use super::{name, rule, text};
use crate::x509::extension::MAX_SUBTREES;
use crate::x509::general_name::{DIRECTORY, DNS, EMAIL, IP, OTHER, URI, mapped};
use crate::x509::reader::{DerError, Read, Reader, Tlv};
use crate::x509::writer::{SEQUENCE, context_constructed};

/// Requires at least one subtree, and at most as many as are evaluated when a certificate below is signed.
pub(super) fn read(value: &[u8]) -> Read<()> {
    let mut fields = Reader::only(value, SEQUENCE)?.reader();
    let sides = [fields.optional(context_constructed(0))?, fields.optional(context_constructed(1))?];
    fields.done()?;
    let some = sides.iter().any(Option::is_some) && sides.iter().flatten().all(|side| !side.content.is_empty());
    rule(some, "must not be empty (RFC 5280 4.2.1.10)")?;
    sides.iter().flatten().try_for_each(|side| subtrees(side.reader()))
}

fn subtrees(mut side: Reader<'_>) -> Read<()> {
    let mut count = 0;
    while !side.is_empty() {
        count += 1;
        rule(count <= MAX_SUBTREES, "more than 1000 subtrees on one side")?;
        let mut subtree = side.sequence()?;
        let name = subtree.any()?;
        // `minimum` must be 0, which DER omits, and `maximum` must be absent.
        subtree.done().map_err(|_| DerError("a subtree has a minimum or maximum (RFC 5280 4.2.1.10)"))?;
        base(&name)?;
    }
    Ok(())
}

fn base(base: &Tlv<'_>) -> Read<()> {
    match base.tag {
        DNS => text::host_base(base.content),
        EMAIL => text::mailbox_base(base.content),
        URI => text::uri_base(base.content),
        IP => network(base.content),
        OTHER => other(base.reader(), text::service_base),
        // An empty one matches all names.
        DIRECTORY => name::name(base.content),
        _ => other_kind(base),
    }
}

/// An address and a contiguous mask, without address bits outside the mask. IPv4 networks must be 8 bytes long.
fn network(content: &[u8]) -> Read<()> {
    rule(matches!(content.len(), 8 | 32), "a subtree of addresses must have 8 or 32 octets (RFC 5280 4.2.1.10)")?;
    let (address, mask) = content.split_at(content.len() / 2);
    let plain = mapped(address).is_none() || !mask.starts_with(&[0xff; 12]);
    rule(plain, "a subtree of IPv4 addresses must have 8 octets (RFC 5280 4.2.1.10)")?;
    let number = |octets: &[u8]| octets.iter().fold(0_u128, |n, b| n << 8 | u128::from(*b));
    let free = !number(mask) & (u128::MAX >> (128 - 8 * mask.len()));
    rule(free & free.wrapping_add(1) == 0, "the mask of a subtree has holes (RFC 4632 3.1)")?;
    rule(number(address) & free == 0, "a subtree's address has bits outside of its mask (RFC 4632 3.1)")
}
