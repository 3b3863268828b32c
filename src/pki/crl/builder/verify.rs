//! Verification of a backup: checks that the stored CRLs can be rebuilt from the stored revocations.

use super::super::groups::{GroupLayout, IssuerGroup, issuer_groups};
use super::{CrlBuilder, REVOCATIONS_PER_PAGE, delta_group_id};
use crate::error::Result;
use crate::pki::mount::view::MountView;
use crate::pki::store::{CrlRow, StoredRevocation};

/// A stored CRL that cannot be rebuilt from the stored revocations.
pub struct UnreproducibleCrl {
    /// Description of the CRL for messages: its number and issuer group.
    pub list: String,
    /// Number of revocations whose reason was amended after the CRL was signed. If there are any, the CRL cannot be
    /// rebuilt even from an intact backup.
    pub amended: usize,
}

impl CrlBuilder {
    /// Returns the stored CRLs whose signature does not match the CRL rebuilt from the stored revocations. Requires a
    /// new builder, and a store without concurrent writes. Signs nothing.
    ///
    /// # Errors
    /// `Unavailable` when the store cannot be read.
    pub async fn verify(&mut self, view: &MountView) -> Result<Vec<UnreproducibleCrl>> {
        let groups = issuer_groups(view);
        self.adopt_layout(GroupLayout::new(view, &groups), &groups);
        self.load(view, &groups, false).await?;
        let stored = self.store.crls(self.mount).await?;
        let mut unreproducible = Vec::new();
        for group in groups.iter().filter(|group| group.signer.is_some()) {
            let made = self.states.get(&group.id).map(|state| [&state.complete, &state.delta].map(Option::as_ref));
            let [complete, delta] = made.unwrap_or_default().map(|list| list.map(|list| list.number));
            let mut of_complete = 0;
            for (name, made) in [(group.id.clone(), complete), (delta_group_id(&group.id), delta)] {
                let Some(row) = stored.iter().find(|row| row.group == name) else { continue };
                if made != Some(row.number) {
                    // A delta CRL cannot be rebuilt without its complete CRL, so the amended revocations of the
                    // complete CRL count for the delta CRL too.
                    let amended = self.count_amended_revocations(group, row).await?.max(of_complete);
                    of_complete = amended;
                    unreproducible.push(UnreproducibleCrl {
                        list: format!("CRL number {} of issuer group {name}", row.number),
                        amended,
                    });
                }
            }
        }
        Ok(unreproducible)
    }

    /// Counts the group's revocations that are dated before the CRL but have a higher sequence number than the CRL
    /// covers. Their reasons were amended after the CRL was signed, so the reasons on the CRL are unknown.
    async fn count_amended_revocations(&self, group: &IssuerGroup, row: &CrlRow) -> Result<usize> {
        let mut after = row.covers;
        let mut amended = 0;
        loop {
            let page = self.store.revocations(self.mount, after, REVOCATIONS_PER_PAGE).await?;
            let is_amended = |one: &&StoredRevocation| {
                one.row.revoked_at.unix_timestamp() <= row.this_update
                    && self.layout.group(one).0.is_some_and(|of| *of == group.id)
            };
            amended += page.iter().filter(is_amended).count();
            match page.last() {
                Some(last) if page.len() == REVOCATIONS_PER_PAGE as usize => after = last.sequence,
                _ => return Ok(amended),
            }
        }
    }
}
