//! CRLs that other nodes published: made again from the same entries, not signed again.
//!
//! A node that took over another's CRL serves the same bytes under the same number. One that cannot make
//! it again keeps its own: it knows revocations that are not on it, and publishes the next number; or it
//! does not know the other node's issuers yet, and follows.

use super::{Builder, Group, Plan};
use crate::error::Result;
use crate::pki::store::CrlRow;
use std::sync::Arc;

impl Builder {
    /// The next build looks at what other nodes published before it publishes itself.
    pub fn look(&mut self) {
        self.look = true;
    }

    /// Takes over whatever is published under a higher number than here.
    pub(super) async fn take_over(&mut self, groups: &[Group]) -> Result<()> {
        let mut rows = self.store.crls(self.mount).await?;
        // Entries are read in order: a CRL that covers less can be made only before a later one.
        rows.sort_by_key(|row| row.covers);
        for row in &rows {
            let Some(group) = groups.iter().find(|group| group.id == row.group) else { continue };
            let published = self.states.get(&group.id).and_then(|state| state.published.as_ref());
            if published.is_none_or(|published| published.number < row.number) {
                self.take_over_one(group, row).await?;
            }
        }
        Ok(())
    }

    /// Takes over one CRL; whether these entries make it.
    pub(super) async fn take_over_one(&mut self, group: &Group, row: &CrlRow) -> Result<bool> {
        let Some(signer) = &group.signer else { return Ok(false) };
        if self.loaded < row.covers {
            self.load(row.covers).await?;
        }
        let state = self.states.entry(group.id.clone()).or_default();
        let plan = Plan::new(signer, state.entries.encoded(), row.number, row.this_update, row.next_update)?;
        let key = signer.issuer.certificate.key();
        if key.verify(plan.algorithm, &plan.tbs, &row.signature).is_err() {
            tracing::debug!(group = %group.id, number = row.number, "another node's CRL has other entries");
            return Ok(false);
        }
        let count = state.entries.len();
        state.published = Some(Arc::new(plan.finish(&row.signature, count)));
        // The signature is over every entry that is here.
        state.dirty = false;
        Ok(true)
    }
}
