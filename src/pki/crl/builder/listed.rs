//! Determines which entries may leave the lists, by the rule of RFC 5280 3.3: an entry stays until it was on a CRL
//! issued after the end of its certificate.

use super::super::groups::Group;
use super::super::state::GroupState;
use super::Builder;
use crate::pki::mount::view::View;
use crate::pki::store::Listed;

impl Builder {
    /// Returns the revocations that every group's complete CRL has listed since their certificates ended. Groups
    /// without a signer and mounts without CRLs impose no bound.
    pub(super) fn listed(&self, view: &View, groups: &[Group]) -> Listed {
        if view.crl_config.value.disable {
            return Listed::ALL;
        }
        let signed = groups.iter().filter(|group| group.signer.is_some());
        let of = |group: &Group| self.states.get(&group.id).map_or(Listed::NONE, |state| state.listed(self.loaded));
        signed.map(of).fold(Listed::ALL, Listed::and)
    }
}

impl GroupState {
    /// Returns the bound of one group, when every revocation up to `loaded` was read.
    fn listed(&self, loaded: u64) -> Listed {
        let Some(complete) = &self.complete else { return Listed::NONE };
        let up_to = if self.fresh.is_empty() { loaded } else { self.covers };
        Listed { before: complete.this_update, up_to }
    }
}
