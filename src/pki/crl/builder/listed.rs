//! Determines which entries may be removed from CRLs, by the rule of RFC 5280 3.3: an entry stays until it was on a CRL
//! issued after its certificate expired.

use super::super::groups::IssuerGroup;
use super::super::state::CrlGroupState;
use super::CrlBuilder;
use crate::pki::mount::view::MountView;
use crate::pki::store::RemovableRevocations;

impl CrlBuilder {
    /// Returns the revocations that may be removed: the complete CRL of every group covers them, and was issued after
    /// their certificates expired. Groups without a signer and mounts with disabled CRLs set no limit.
    pub(super) fn removable_revocations(&self, view: &MountView, groups: &[IssuerGroup]) -> RemovableRevocations {
        if view.crl_config.value.disable {
            return RemovableRevocations::ALL;
        }
        let signed = groups.iter().filter(|group| group.signer.is_some());
        let of = |group: &IssuerGroup| {
            self.states
                .get(&group.id)
                .map_or(RemovableRevocations::NONE, |state| state.removable_revocations(self.loaded))
        };
        signed.map(of).fold(RemovableRevocations::ALL, RemovableRevocations::and)
    }
}

impl CrlGroupState {
    /// Returns the revocations that may be removed from the CRLs of this group. Every revocation up to the sequence
    /// number `loaded` was read.
    fn removable_revocations(&self, loaded: u64) -> RemovableRevocations {
        let Some(complete) = &self.complete else { return RemovableRevocations::NONE };
        let up_to = if self.new_entries.is_empty() { loaded } else { self.covers };
        RemovableRevocations { before: complete.this_update, up_to }
    }
}
