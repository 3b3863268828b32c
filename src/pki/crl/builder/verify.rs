//! Verification of a backup: checks that the stored lists can be rebuilt from the stored revocations.

use super::super::groups::{Group, Layout, groups};
use super::{Builder, PAGE, delta_group};
use crate::error::Result;
use crate::pki::mount::view::View;
use crate::pki::store::{CrlRow, StoredRevocation};

/// A stored list that cannot be rebuilt from the stored revocations.
pub struct Unmade {
    /// Number and group of the list.
    pub list: String,
    /// Revocations whose reason was amended after the list was signed. If there are any, the list cannot be rebuilt
    /// even from an intact backup.
    pub amended: usize,
}

impl Builder {
    /// Returns the stored lists whose signature does not match the lists rebuilt from the stored revocations. Requires
    /// a new builder and a store without writers. Signs nothing.
    ///
    /// # Errors
    /// `Unavailable` when the store cannot be read.
    pub async fn verify(&mut self, view: &View) -> Result<Vec<Unmade>> {
        let groups = groups(view);
        self.adopt(Layout::new(view, &groups), &groups);
        self.load(view, &groups, false).await?;
        let stored = self.store.crls(self.mount).await?;
        let mut unmade = Vec::new();
        for group in groups.iter().filter(|group| group.signer.is_some()) {
            let made = self.states.get(&group.id).map(|state| [&state.complete, &state.delta].map(Option::as_ref));
            let [complete, delta] = made.unwrap_or_default().map(|list| list.map(|list| list.number));
            let mut of_complete = 0;
            for (name, made) in [(group.id.clone(), complete), (delta_group(&group.id), delta)] {
                let Some(row) = stored.iter().find(|row| row.group == name) else { continue };
                if made != Some(row.number) {
                    // A delta CRL cannot be rebuilt without its complete CRL.
                    let amended = self.amended(group, row).await?.max(of_complete);
                    of_complete = amended;
                    unmade.push(Unmade { list: format!("CRL {} of {name}", row.number), amended });
                }
            }
        }
        Ok(unmade)
    }

    /// Returns the number of revocations of a group that are dated before the list but have a sequence behind what it
    /// covers: their reasons were amended later, and the reasons on the list are unknown.
    async fn amended(&self, group: &Group, row: &CrlRow) -> Result<usize> {
        let (mut after, mut amended) = (row.covers, 0);
        loop {
            let page = self.store.revocations(self.mount, after, PAGE).await?;
            let is = |one: &&StoredRevocation| {
                one.row.revoked_at.unix_timestamp() <= row.this_update
                    && self.layout.group(one).0.is_some_and(|of| *of == group.id)
            };
            amended += page.iter().filter(is).count();
            match page.last() {
                Some(last) if page.len() == PAGE as usize => after = last.sequence,
                _ => return Ok(amended),
            }
        }
    }
}
