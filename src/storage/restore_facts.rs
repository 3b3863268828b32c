//! Installation facts about the restore of a store from a copy.
//!
//! A restored store does not know the CRLs published after the copy, but its CRL numbers must be higher (RFC 5280,
//! section 5.2.3). So every restore is recorded as a fact, and later CRL numbers start above the time of the restore in
//! epoch microseconds. Backups made by `signet operator backup` contain the fact [`COPIED_FACT`], and the first server
//! that opens one records the restore (`embedded/copy.rs`). After a restore with PostgreSQL's own tools, `signet
//! operator after-restore` must record it.

use crate::auth::store::StoreRestore;
use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::pki::store::CRL_BACKDATING_SECONDS;
use crate::storage::backend::{Fact, from_micros, micros};

/// Name of the fact that marks a copy that no server has opened yet. Its value is the time of the copy in epoch
/// microseconds, or empty if the time is unknown.
pub(super) const COPIED_FACT: &str = "copied";
/// Name of the fact that marks an embedded store that was copied, perhaps incompletely, into a PostgreSQL database. Its
/// value is the time of the copy in epoch microseconds.
pub(super) const MOVED_FACT: &str = "moved";
/// Prefix of the names of facts that record a restore. The number above which later CRL numbers start follows the
/// prefix. The value is the result of [`encode_restore_times`]. It is empty if the store was moved to another engine,
/// because a move loses no data.
const RESTORED_FACT_PREFIX: &str = "restored/";
/// Upper bound of the number of CRLs signed between a copy and its restore: the microseconds of a year. Used if the
/// clock gives no bound.
const MAX_CRLS_SINCE_COPY: u64 = 366 * 24 * 3600 * 1_000_000;
/// Selects the latest `thisUpdate` and the highest number of all CRLs; zeros if there are none.
pub(super) const SELECT_CRL_MAXIMA: &str =
    "SELECT CAST(COALESCE(MAX(this_update), 0) AS BIGINT), CAST(COALESCE(MAX(number), 0) AS BIGINT) FROM crl";

pub(super) fn copied_fact(at: Option<Time>) -> Fact {
    let value = at.map(|at| micros(at).to_string().into_bytes());
    (COPIED_FACT.to_owned(), value.unwrap_or_default())
}

/// Returns the time of the copy, if the store is a copy that no server has opened yet and the time is known.
pub(super) fn copy_time(facts: &[Fact]) -> Option<Time> {
    let (_, value) = facts.iter().find(|(name, _)| name == COPIED_FACT)?;
    read_time(std::str::from_utf8(value).ok()?)
}

pub(super) fn moved_fact(at: Time) -> Fact {
    (MOVED_FACT.to_owned(), micros(at).to_string().into_bytes())
}

/// Checks that the store was not copied into a PostgreSQL database.
///
/// # Errors
/// `Conflict` when it was: a server on this store would be a second authority with the same keys.
pub(super) fn require_unmoved(facts: &[Fact]) -> Result<()> {
    if !facts.iter().any(|(name, _)| name == MOVED_FACT) {
        return Ok(());
    }
    Err(Error::new(
        Kind::Conflict,
        "storage: the store was copied into a database by copy-store, or such a copy was interrupted; servers on both \
         would be two authorities with the same keys. Run copy-store again: it completes an interrupted copy, and \
         reports that the database is not empty if the copy was complete. To continue with this store (no server may \
         run on the database), run signet operator after-restore",
    ))
}

/// Returns the fact that records a restore at `now`. `this_update` (epoch seconds) and `number` are the maxima of the
/// known CRLs ([`SELECT_CRL_MAXIMA`]). CRL numbers after the restore are above `number`, and above those of all CRLs
/// that may have been published since the copy.
///
/// # Errors
/// `Invalid` when the clock is behind the CRLs, or no higher CRL numbers exist.
pub(super) fn restore_fact(now: Time, (this_update, number): (i64, i64), facts: &[Fact]) -> Result<Fact> {
    if this_update > now.unix_timestamp() {
        return Err(Error::invalid(
            "storage: this machine's clock is behind the newest CRL of the store, and CRL numbers after a restore \
             start at the current time; correct the clock and retry",
        ));
    }
    let now = micros(now).max(0).unsigned_abs();
    let number = number.max(0).unsigned_abs();
    let used = number.max(crl_floor(facts));
    // CRL numbers start at 0 or, after a restore, at the time of the restore in epoch microseconds. They rise more
    // slowly than the clock. So the number of a CRL is normally below the end of the second in which it was signed.
    // `thisUpdate` is that second minus the backdating.
    let made_by = this_update.max(0).unsigned_abs().saturating_add(CRL_BACKDATING_SECONDS);
    let made_before = made_by.saturating_add(1).saturating_mul(1_000_000);
    let ahead = used >= now || number >= made_before;
    let floor = if ahead { used.saturating_add(MAX_CRLS_SINCE_COPY).max(now) } else { now };
    if i64::try_from(floor).is_err() {
        return Err(Error::invalid("storage: no CRL numbers are left above those of the store"));
    }
    if ahead {
        tracing::warn!(
            number = used,
            "CRL numbers are ahead of the clock; after the restore, new ones start far above them"
        );
    }
    Ok((format!("{RESTORED_FACT_PREFIX}{floor}"), Vec::new()))
}

/// Returns the value of the fact that records a restore: the time of the restore in epoch microseconds and, after a
/// space, the time of the copy.
pub(super) fn encode_restore_times(now: Time, copied_at: Option<Time>) -> Vec<u8> {
    let copied_at = copied_at.map(|at| format!(" {}", micros(at))).unwrap_or_default();
    format!("{}{copied_at}", micros(now)).into_bytes()
}

/// Returns the last restore whose time is recorded.
pub(super) fn last_restore(facts: &[Fact]) -> Option<StoreRestore> {
    let restores = facts.iter().filter(|(name, _)| name.starts_with(RESTORED_FACT_PREFIX));
    restores.filter_map(|(_, value)| read_restore(value)).max_by_key(|restore| restore.restored_at)
}

fn read_restore(value: &[u8]) -> Option<StoreRestore> {
    let mut times = std::str::from_utf8(value).ok()?.split(' ').map(read_time);
    let restored_at = times.next().flatten()?;
    Some(StoreRestore { restored_at, copied_at: times.next().flatten() })
}

fn read_time(micros: &str) -> Option<Time> {
    from_micros(micros.parse().ok()?)
}

/// Returns the number above which all new CRL numbers must be; 0 for a store that was never restored.
pub(super) fn crl_floor(facts: &[Fact]) -> u64 {
    let of = |name: &str| name.strip_prefix(RESTORED_FACT_PREFIX)?.parse().ok();
    facts.iter().filter_map(|(name, _)| of(name)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time::from_unix_timestamp(seconds).unwrap()
    }

    fn restored_at(seconds: i64, published: (i64, i64), facts: &[Fact]) -> u64 {
        crl_floor(&[restore_fact(at(seconds), published, facts).unwrap()])
    }

    #[test]
    fn crl_floor_is_that_of_the_latest_restore() {
        let one = |seconds| restore_fact(at(seconds), (0, 0), &[]).unwrap();
        let facts = [copied_fact(Some(at(5))), one(7), one(20), one(19), ("other".into(), vec![])];
        assert_eq!(crl_floor(&facts), 20_000_000);
        assert_eq!(crl_floor(&facts[..1]), 0);
    }

    #[test]
    fn restore_times_are_read_back_from_the_facts() {
        let facts = [copied_fact(Some(at(5)))];
        assert_eq!((copy_time(&facts), last_restore(&facts)), (Some(at(5)), None));
        assert_eq!(copy_time(&[copied_fact(None)]), None);
        let restored = |seconds, copied_at: Option<i64>| {
            let (name, _) = restore_fact(at(seconds), (0, 0), &[]).unwrap();
            (name, encode_restore_times(at(seconds), copied_at.map(at)))
        };
        let last = |facts: &[Fact]| last_restore(facts).map(|restore| (restore.restored_at, restore.copied_at));
        assert_eq!(last(&[restored(9, Some(5)), restored(7, None)]), Some((at(9), Some(at(5)))));
        assert_eq!(last(&[restored(9, Some(5)), restored(20, None)]), Some((at(20), None)));
        // This fact has no times: the store was moved, or an early version restored it.
        assert_eq!(last(&[restore_fact(at(7), (0, 0), &[]).unwrap()]), None);
    }

    #[test]
    fn crl_numbers_after_a_restore_exceed_its_time_and_known_ones() {
        const NOW: u64 = 100_000_000;
        assert_eq!(restored_at(100, (100, 7), &[]), NOW);
        assert_eq!(restored_at(100, (100, NOW as i64 - 1), &[]), NOW);
        // The CRL number is ahead of the clock, so the clock gives no bound for the CRLs signed after the copy.
        for ahead in [NOW, NOW + 1, 50 * NOW] {
            assert_eq!(restored_at(100, (100, ahead as i64), &[]), ahead + MAX_CRLS_SINCE_COPY);
        }
        assert_eq!(restored_at(100, (68, NOW as i64 - 1), &[]), NOW - 1 + MAX_CRLS_SINCE_COPY, "ahead of its own list");
        // A second restore, at an earlier time, before any CRL was published.
        let before = [restore_fact(at(200), (0, 0), &[]).unwrap()];
        assert_eq!(restored_at(100, (50, 7), &before), 2 * NOW + MAX_CRLS_SINCE_COPY);
        assert!(restore_fact(at(100), (101, 7), &[]).is_err(), "the clock is behind");
        assert!(restore_fact(at(100), (100, i64::MAX - 1), &[]).is_err());
    }
}
