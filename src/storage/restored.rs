//! What a store knows of having been restored from a copy.
//!
//! Of what was published after the copy was taken a restored store knows nothing. CRL numbers must go on above all of
//! it (RFC 5280 5.2.3), so every restore is a fact of the store: no number up to the restore's time in epoch
//! microseconds is used after it. Numbers begin at 1 and rise by one with every list that is signed and committed, and
//! after a restore they begin at its time: no authority signs a million lists a second, so they stay behind the clock.
//! The number has seven octets then, of the twenty that there may be. Numbers that are ahead of the clock all the same,
//! because it was once wrong, say that it tells nothing about those that came after: then they go on a year above.
//!
//! A copy that `signet operator backup` made says so; whoever opens it for work restores it by that
//! (`embedded/copy.rs`). A database that was restored by PostgreSQL's own tools must be told.

use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::pki::store::CRL_BACKDATING;
use crate::storage::backend::{Fact, micros};

/// The fact that a store is a copy that nobody has worked on yet; its value is when it was made, epoch microseconds.
pub(super) const COPIED: &str = "copied";
/// The fact that a store was carried over to a database, which is the one in use since, or that this was begun and not
/// undone; its value is when, epoch microseconds.
pub(super) const MOVED: &str = "moved";
/// What the facts of restores begin with; then come epoch microseconds.
const RESTORED: &str = "restored/";
/// More lists than anybody signs between a copy and its restore: a year of microseconds.
const MANY: u64 = 366 * 24 * 3600 * 1_000_000;
/// Of all lists of a store: the latest time, and the highest number; zeros when there are none.
pub(super) const PUBLISHED: &str =
    "SELECT CAST(COALESCE(MAX(this_update), 0) AS BIGINT), CAST(COALESCE(MAX(number), 0) AS BIGINT) FROM crl";

/// That a store is a copy.
pub(super) fn copied(at: Time) -> Fact {
    (COPIED.to_owned(), micros(at).to_string().into_bytes())
}

/// That a store was carried over.
pub(super) fn moved(at: Time) -> Fact {
    (MOVED.to_owned(), micros(at).to_string().into_bytes())
}

/// That nobody has carried the store over.
///
/// # Errors
/// `Conflict` when it was: a server on it would be a second authority under the same keys.
pub(super) fn require_unmoved(facts: &[Fact]) -> Result<()> {
    if !facts.iter().any(|(name, _)| name == MOVED) {
        return Ok(());
    }
    Err(Error::new(
        Kind::Conflict,
        "storage: the store was copied into a database by copy-store, or such a copy was interrupted: with a server on \
         both there would be two authorities with one key. Run copy-store again: one that was interrupted is done then, \
         and of one that was complete it says that the database is not empty. Where nothing runs on the database, and this \
         store is to go on: signet operator after-restore",
    ))
}

/// That a store is restored at `now`, of which the last list that it knows was made at `this_update` (epoch seconds) and
/// the highest number is `number` ([`PUBLISHED`]). CRL numbers are above both, and above what can have been published
/// meanwhile.
///
/// # Errors
/// `Invalid` when the clock is behind the lists, or there are no higher numbers.
pub(super) fn restored(now: Time, (this_update, number): (i64, i64), facts: &[Fact]) -> Result<Fact> {
    if this_update > now.unix_timestamp() {
        return Err(Error::invalid(
            "storage: the store has CRLs of a later time than it is by this machine's clock; CRL numbers after a \
             restore begin at the time: set the clock",
        ));
    }
    let now = micros(now).max(0).unsigned_abs();
    let number = number.max(0).unsigned_abs();
    let used = number.max(crl_floor(facts));
    // A list of a second has at most the number of the second's end, and thisUpdate is backdated.
    let made_by = this_update.max(0).unsigned_abs().saturating_add(CRL_BACKDATING);
    let made_before = made_by.saturating_add(1).saturating_mul(1_000_000);
    let ahead = used >= now || number >= made_before;
    let floor = if ahead { used.saturating_add(MANY).max(now) } else { now };
    if i64::try_from(floor).is_err() {
        return Err(Error::invalid("storage: a CRL has so high a number that a restored store has none above it"));
    }
    if ahead {
        tracing::warn!(number = used, "CRL numbers are ahead of the clock: after the restore they begin far above");
    }
    Ok((format!("{RESTORED}{floor}"), Vec::new()))
}

/// That a store that is only looked at has the schema of another program.
pub(super) fn other_version(found: usize, own: usize) -> Error {
    Error::invalid(format!(
        "schema: has version {found}, this program's is {own}: look through it with the program that wrote it"
    ))
}

/// The number above which all CRLs are: 0 for a store that was never restored.
pub(super) fn crl_floor(facts: &[Fact]) -> u64 {
    let of = |name: &str| name.strip_prefix(RESTORED)?.parse().ok();
    facts.iter().filter_map(|(name, _)| of(name)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time::from_unix_timestamp(seconds).unwrap()
    }

    fn restored_at(seconds: i64, published: (i64, i64), facts: &[Fact]) -> u64 {
        crl_floor(&[restored(at(seconds), published, facts).unwrap()])
    }

    #[test]
    fn the_last_restore_counts() {
        let one = |seconds| restored(at(seconds), (0, 0), &[]).unwrap();
        let facts = [copied(at(5)), one(7), one(20), one(19), ("other".into(), vec![])];
        assert_eq!(crl_floor(&facts), 20_000_000);
        assert_eq!(crl_floor(&facts[..1]), 0);
    }

    #[test]
    fn numbers_after_a_restore_are_above_its_time_and_above_those_that_are_known() {
        const NOW: u64 = 100_000_000;
        assert_eq!(restored_at(100, (100, 7), &[]), NOW);
        assert_eq!(restored_at(100, (100, NOW as i64 - 1), &[]), NOW);
        // A clock that was ahead: nobody knows how many lists came after the copy.
        for ahead in [NOW, NOW + 1, 50 * NOW] {
            assert_eq!(restored_at(100, (100, ahead as i64), &[]), ahead + MANY);
        }
        assert_eq!(restored_at(100, (68, NOW as i64 - 1), &[]), NOW - 1 + MANY, "ahead of its own list");
        // Restored once more before a list was published, at an earlier time.
        let before = [restored(at(200), (0, 0), &[]).unwrap()];
        assert_eq!(restored_at(100, (50, 7), &before), 2 * NOW + MANY);
        assert!(restored(at(100), (101, 7), &[]).is_err(), "the clock is behind");
        assert!(restored(at(100), (100, i64::MAX - 1), &[]).is_err());
    }
}
