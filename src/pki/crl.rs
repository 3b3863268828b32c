//! Certificate revocation lists (RFC 5280 5): which issuers share them, what is on them, their numbers,
//! and how they come back after a restart.
//!
//! The revocations in storage are the truth; CRLs are projections of them. A [`Builder`] keeps every
//! group's entries encoded and sorted ([`entries`]), reads what was revoked since its last look, and signs.
//! It is owned by whoever builds: the mount's control actor hands it out for one build and gets it back,
//! so there is never more than one build running. A build holds a thread while it works, and none while it
//! waits for a signer.
//!
//! A group has a complete CRL and a delta CRL with what was revoked since. They share one series of
//! numbers; with every complete CRL an empty delta CRL of the same number is published (RFC 5280 5.2.3).
//! Published lists are stored as number, times, covered sequence and signature; after a restart, and on
//! the other nodes of a database, the same bytes are made again and checked against that signature, and
//! only when they differ is a new number published. Of a store that was restored from a copy the next lists are made
//! at once, with numbers above the restore's ([`PkiStore::crl_floor`](super::store::PkiStore::crl_floor)). A `guard` stands before every publication.

pub mod batch;
mod builder;
pub mod entries;
mod groups;
mod guard;
mod incoming;
mod item;
pub(crate) mod list;
mod state;
mod summary;

use std::collections::HashMap;
use std::sync::Arc;

use self::groups::Layout;
use crate::error::Warnings;
use crate::pki::store::{Listed, StoredRevocation};

pub use self::builder::verify::Unmade;
pub use self::builder::{Builder, Built, WantedCrls};
pub use self::groups::has_signer;
pub use self::list::Published;
pub use self::summary::{Summaries, Summary};

/// What did not go well in a build, as the answers of whatever led to it say it.
pub(crate) fn numbered(warnings: Warnings) -> Warnings {
    let with_number = |(at, text): (usize, String)| format!("Warning {} during CRL rebuild: {text}", at + 1);
    warnings.into_iter().enumerate().map(with_number).collect()
}

/// The published CRLs of a group of issuers.
#[derive(Clone)]
pub struct Lists {
    /// The complete CRL.
    pub complete: Arc<Published>,
    /// The delta CRL; of an older complete CRL never.
    pub delta: Option<Arc<Published>>,
}

/// The published CRLs of a mount.
#[derive(Default)]
pub struct Crls {
    /// By issuer id; issuers of one group share them.
    pub by_issuer: HashMap<String, Lists>,
    /// Every revocation up to this sequence is on them.
    pub covers: u64,
    /// What may leave them when its time has come.
    pub listed: Listed,
    /// Every revocation up to this sequence is on those that could be made.
    looked: u64,
    lacking: Option<Lacking>,
}

/// The groups whose next lists could not be made.
struct Lacking {
    layout: Arc<Layout>,
    groups: Vec<String>,
}

impl Crls {
    /// Whether a stored revocation is on the list that is to have it, whatever the others lack.
    pub fn have(&self, stored: &StoredRevocation) -> bool {
        let lacks = |lacking: &Lacking| lacking.layout.group(stored).0.is_some_and(|id| lacking.groups.contains(id));
        self.looked >= stored.sequence && !self.lacking.as_ref().is_some_and(lacks)
    }
}
