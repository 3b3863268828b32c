//! What a store knows of having been restored from a copy.
//!
//! Of what was published after the copy was taken a restored store knows nothing. CRL numbers must go on above all of
//! it (RFC 5280 5.2.3), so every restore is a fact of the store: no number up to the restore's time in epoch
//! microseconds is used after it. Numbers begin at 1 and rise by one with every list that is signed and committed, and
//! after a restore they begin at its time: no authority signs a million lists a second, so they stay behind the clock.
//! The number has seven octets then, of the twenty that there may be.
//!
//! A copy that `signet operator backup` made says so; whoever opens it for work restores it by that
//! (`embedded/copy.rs`). A database that was restored by PostgreSQL's own tools must be told.

use crate::clock::Time;
use crate::error::Error;
use crate::storage::backend::{Fact, micros};

/// The fact that a store is a copy that nobody has worked on yet; its value is when it was made, epoch microseconds.
pub(super) const COPIED: &str = "copied";
/// What the facts of restores begin with; then come epoch microseconds.
const RESTORED: &str = "restored/";

/// That a store is a copy.
pub(super) fn copied(at: Time) -> Fact {
    (COPIED.to_owned(), micros(at).to_string().into_bytes())
}

/// That a store was restored.
pub(super) fn restored(at: Time) -> Fact {
    (format!("{RESTORED}{}", micros(at)), Vec::new())
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

    #[test]
    fn the_last_restore_counts() {
        let at = |seconds| Time::from_unix_timestamp(seconds).unwrap();
        let facts = [copied(at(5)), restored(at(7)), restored(at(20)), restored(at(19)), ("other".into(), vec![])];
        assert_eq!(crl_floor(&facts), 20_000_000);
        assert_eq!(crl_floor(&facts[..1]), 0);
    }
}
