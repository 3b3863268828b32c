//! The last look before a complete CRL is published: a relying party that takes the new list must not
//! lose what the old one told it. Asked by the builder alone; it refuses, counts and logs, it never mends. The way
//! out is an operator's: to switch CRLs off and on again (`disable`), having seen what the log says.

use super::entries::Entries;
use crate::error::{Error, Result};
use crate::pki::mount::settings::crl::CrlConfig;
use crate::telemetry;

/// A complete CRL, as far as the guard looks at it.
pub(super) struct Edition<'a> {
    pub(super) number: u64,
    /// Every revocation up to this sequence is on it.
    pub(super) covers: u64,
    pub(super) entries: &'a Entries,
}

/// Refuses the next edition when its number does not rise, when it covers fewer revocations, or when an
/// entry is gone whose certificate has not ended by `now` (epoch seconds). `asked` is the operator's change
/// that explains missing entries; then they are only logged. `compare` says that the new entries were not
/// made by adding to the old ones, so that each is looked for.
///
/// # Errors
/// `Internal`; the cause has the figures.
pub(super) fn check(
    last: &Edition<'_>,
    next: &Edition<'_>,
    compare: bool,
    now: i64,
    asked: Option<&'static str>,
) -> Result<()> {
    if next.number <= last.number {
        return refuse("number", format!("the CRL number would go from {} to {}", last.number, next.number));
    }
    if next.covers < last.covers {
        return refuse("covers", format!("revocations {} to {} would be missing", next.covers + 1, last.covers));
    }
    if !compare && next.entries.len() >= last.entries.len() {
        return Ok(());
    }
    match (last.entries.lost(next.entries, now), asked) {
        (0, _) => Ok(()),
        (lost, Some(change)) => {
            tracing::warn!(
                number = next.number,
                lost,
                change,
                "a CRL has fewer entries, as an operator's change asked"
            );
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

/// Whether a list may be as long as it would be.
///
/// # Errors
/// `Invalid`, naming the setting.
pub(super) fn check_size(config: &CrlConfig, entries: &Entries) -> Result<()> {
    match config.max_crl_entries() {
        Some(most) if entries.len() > most => Err(Error::invalid(format!(
            "max_crl_entries: the CRL would have {} entries and may have {most}; the last one stays",
            entries.len()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::crl::batch::Batch;
    use crate::x509::crl::entry;
    use crate::x509::serial::Serial;

    fn list(serials: &[u8]) -> Entries {
        let mut batch = Batch::default();
        for &last in serials {
            let serial = Serial::from_octets(&[last]).unwrap();
            batch.push(serial, &entry(&serial, 0, None, None), 0, i64::from(last) * 100);
        }
        Entries::default().with(batch)
    }

    #[test]
    fn each_rule_is_held_and_only_missing_entries_can_be_asked_for() {
        let (two, three) = (list(&[2, 3]), list(&[1, 2, 3]));
        let last = Edition { number: 7, covers: 40, entries: &three };
        let next = |number, covers, entries| Edition { number, covers, entries };
        let checked = |next: Edition<'_>, now, asked| check(&last, &next, true, now, asked).is_ok();
        assert!(checked(next(8, 40, &three), 0, None));
        assert!(!checked(next(7, 41, &three), 0, Some("disable")));
        assert!(!checked(next(8, 39, &three), 0, Some("disable")));
        assert!(!checked(next(8, 40, &two), 100, None), "1 ends at 100");
        assert!(checked(next(8, 40, &two), 101, None), "1 has ended");
        assert!(checked(next(8, 40, &two), 0, Some("disable")));
        let other = list(&[2, 3, 4]);
        assert!(!checked(next(8, 40, &other), 0, None), "as many, but not the same");
        assert!(check(&last, &next(8, 40, &two), false, 0, None).is_err(), "fewer are always looked at");
    }
}
