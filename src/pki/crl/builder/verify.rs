//! Whether the stored lists come out of the stored revocations: what is asked of a copy.

use super::super::groups::{Group, Layout, groups};
use super::{Builder, PAGE, delta_group};
use crate::error::Result;
use crate::pki::mount::view::View;
use crate::pki::store::{CrlRow, StoredRevocation};

/// A stored list that does not come out of the stored revocations.
pub struct Unmade {
    /// Which one: its number and its group.
    pub list: String,
    /// How many revocations have got another reason since it was signed; with any it cannot be made again, damaged or
    /// not.
    pub amended: usize,
}

impl Builder {
    /// The stored lists that do not come out of the stored revocations, under their signatures. For a builder that has
    /// read nothing yet, of a store that nobody works on. Nothing is signed.
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
                    // Without its complete CRL no delta CRL is made.
                    let amended = self.amended(group, row).await?.max(of_complete);
                    of_complete = amended;
                    unmade.push(Unmade { list: format!("CRL {} of {name}", row.number), amended });
                }
            }
        }
        Ok(unmade)
    }

    /// How many revocations of a group are older than a list of it and come after what it covers: their reasons were
    /// amended since, and nobody knows what the list says of them.
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
