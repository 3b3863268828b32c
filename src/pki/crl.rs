//! Certificate revocation lists (RFC 5280 5). Issuers with the same subject and key form a group that shares CRLs.
//!
//! CRLs are derived from the revocations in storage. A [`CrlBuilder`] keeps the encoded, sorted [`entries`] of each
//! group, reads new revocations and signs CRLs; the mount's control actor runs one build at a time. The complete and
//! the delta CRL of a group share one series of numbers; each complete CRL is published with an empty delta CRL of the
//! same number (RFC 5280 5.2.3). Storage holds only the metadata and signature of a CRL: after a restart, the same
//! bytes are rebuilt and checked against the signature. `guard` checks that a new complete CRL lost no entries.

pub mod batch;
mod builder;
pub mod entries;
mod groups;
mod guard;
mod incoming;
pub(crate) mod list;
mod state;
mod summary;

use std::collections::HashMap;
use std::sync::Arc;

use self::groups::GroupLayout;
use crate::error::Warnings;
use crate::pki::store::{RemovableRevocations, StoredRevocation};

pub use self::builder::verify::UnreproducibleCrl;
pub use self::builder::{CrlBuildRequest, CrlBuildResult, CrlBuilder};
pub use self::groups::has_crl_signer;
pub use self::list::PublishedCrl;
pub use self::summary::{CrlMetricsByMount, MountCrlMetrics};

/// Formats the warnings of a CRL build for API responses: each warning gets a number.
pub(crate) fn format_build_warnings(warnings: Warnings) -> Warnings {
    let with_number = |(at, text): (usize, String)| format!("Warning {} during CRL rebuild: {text}", at + 1);
    warnings.into_iter().enumerate().map(with_number).collect()
}

/// The published CRLs of an issuer group.
#[derive(Clone)]
pub struct GroupCrls {
    /// The complete CRL.
    pub complete: Arc<PublishedCrl>,
    /// The delta CRL, if any; its base CRL is always `complete`.
    pub delta: Option<Arc<PublishedCrl>>,
}

/// The published CRLs of a mount.
#[derive(Default)]
pub struct MountCrls {
    /// CRLs by issuer id; the issuers of a group share them.
    pub by_issuer: HashMap<String, GroupCrls>,
    /// Every revocation up to this sequence number is on the published CRLs. Does not advance while the build of any
    /// issuer group fails.
    pub covered_sequence: u64,
    /// Revocations that may be removed from the CRLs, because their certificates have expired.
    pub removable: RemovableRevocations,
    /// Like `covered_sequence`, but ignores the issuer groups in `failed_groups`.
    loaded_sequence: u64,
    failed_groups: Option<FailedGroups>,
}

/// Issuer groups whose latest CRLs could not be built.
struct FailedGroups {
    layout: Arc<GroupLayout>,
    groups: Vec<String>,
}

impl MountCrls {
    /// Returns `true` if a stored revocation is on the CRL of its issuer group, even if the CRLs of other groups could
    /// not be built.
    pub fn includes(&self, stored: &StoredRevocation) -> bool {
        let lacks = |failed: &FailedGroups| failed.layout.group(stored).0.is_some_and(|id| failed.groups.contains(id));
        self.loaded_sequence >= stored.sequence && !self.failed_groups.as_ref().is_some_and(lacks)
    }
}
