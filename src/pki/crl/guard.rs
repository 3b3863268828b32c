//! Final check before a complete CRL is published: the new CRL must not lose revocations of the previous one.
//!
//! The guard rejects the CRL, counts and logs the rejection; it repairs nothing. To override the guard, an operator
//! sets `disable` in the CRL settings and clears this setting again.

use super::entries::CrlEntries;
use crate::error::{Error, Result};
use crate::pki::mount::settings::crl::CrlConfig;
use crate::telemetry;

pub(super) struct CrlSummary<'a> {
    pub(super) number: u64,
    pub(super) covers: u64,
    pub(super) entries: &'a CrlEntries,
}

/// Rejects the CRL `next` if its number is not above that of `last`, if it covers fewer revocations, or if it lost the
/// entry of an unexpired certificate. `now` is in epoch seconds. `explanation` names an operator's change that explains
/// lost entries, which are then only logged. `compare` is `true` if each entry must be compared, because the entries of
/// `next` were not made by adding to those of `last`.
///
/// # Errors
/// `Internal`, with the numbers that conflict.
pub(super) fn check_next_crl(
    last: &CrlSummary<'_>,
    next: &CrlSummary<'_>,
    compare: bool,
    now: i64,
    explanation: Option<&'static str>,
) -> Result<()> {
    if next.number <= last.number {
        return refuse("number", format!("the CRL number would go from {} to {}", last.number, next.number));
    }
    if next.covers < last.covers {
        return refuse(
            "covers",
            format!("revocations with sequence numbers {} to {} would be missing", next.covers + 1, last.covers),
        );
    }
    if !compare && next.entries.len() >= last.entries.len() {
        return Ok(());
    }
    match (last.entries.count_lost_entries(next.entries, now), explanation) {
        (0, _) => Ok(()),
        (lost, Some(change)) => {
            tracing::warn!(number = next.number, lost, change, "a CRL lost entries because of an operator's change");
            Ok(())
        }
        (lost, None) => refuse("entries", format!("{lost} entries of unexpired certificates would be missing")),
    }
}

fn refuse(rule: &'static str, text: String) -> Result<()> {
    metrics::counter!(telemetry::PKI_CRL_REFUSALS, "rule" => rule).increment(1);
    tracing::error!(rule, "a CRL was not published: {text}");
    Err(Error::internal(text))
}

/// Checks the number of a CRL's entries against `max_crl_entries`.
///
/// # Errors
/// `Invalid`, naming the setting.
pub(super) fn check_entry_limit(config: &CrlConfig, entries: &CrlEntries) -> Result<()> {
    match config.max_crl_entries() {
        Some(max) if entries.len() > max => Err(Error::invalid(format!(
            "max_crl_entries: the CRL would have {} entries (limit {max}); the previous CRL remains published",
            entries.len()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::crl::batch::CrlEntryBatch;
    use crate::x509::crl::encode_entry;
    use crate::x509::serial::Serial;

    fn list(serials: &[u8]) -> CrlEntries {
        let mut batch = CrlEntryBatch::default();
        for &last in serials {
            let serial = Serial::from_octets(&[last]).unwrap();
            batch.push(serial, &encode_entry(&serial, 0, None, None), 0, i64::from(last) * 100);
        }
        CrlEntries::default().with_batch(batch)
    }

    #[test]
    fn next_crl_rules_are_enforced_except_requested_removals() {
        let two = list(&[2, 3]);
        let three = list(&[1, 2, 3]);
        let last = CrlSummary { number: 7, covers: 40, entries: &three };
        let next = |number, covers, entries| CrlSummary { number, covers, entries };
        let checked =
            |next: CrlSummary<'_>, now, explanation| check_next_crl(&last, &next, true, now, explanation).is_ok();
        assert!(checked(next(8, 40, &three), 0, None));
        assert!(!checked(next(7, 41, &three), 0, Some("disable")));
        assert!(!checked(next(8, 39, &three), 0, Some("disable")));
        assert!(!checked(next(8, 40, &two), 100, None), "1 ends at 100");
        assert!(checked(next(8, 40, &two), 101, None), "1 has ended");
        assert!(checked(next(8, 40, &two), 0, Some("disable")));
        let other = list(&[2, 3, 4]);
        assert!(!checked(next(8, 40, &other), 0, None), "as many, but not the same");
        assert!(
            check_next_crl(&last, &next(8, 40, &two), false, 0, None).is_err(),
            "a CRL with fewer entries is always compared"
        );
    }
}
