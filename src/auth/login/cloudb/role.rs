//! Roles of `cloudb`: restrictions on clients, and settings of their tokens.

use serde::{Deserialize, Serialize};

use super::bounds::{Bounds, BoundsChange};
use crate::auth::login::role::MethodRole;
use crate::auth::token::TokenTerms;
use crate::error::Result;

/// A role, as stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CloudbRole {
    #[serde(flatten)]
    pub(super) bounds: Bounds,
    terms: TokenTerms,
}

impl CloudbRole {
    /// Applies a change.
    ///
    /// # Errors
    /// `Invalid` for a role that is too permissive.
    pub(crate) fn changed(current: Option<&Self>, change: &BoundsChange, terms: TokenTerms) -> Result<Self> {
        let bounds = current.map(|role| role.bounds.clone()).unwrap_or_default().changed(change);
        bounds.check()?;
        Ok(Self { bounds, terms })
    }

    /// Returns a warning about a permissive role.
    pub(crate) fn warning(&self) -> Option<String> {
        self.bounds.warning()
    }

    /// The restrictions.
    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }
}

impl MethodRole for CloudbRole {
    fn terms(&self) -> &TokenTerms {
        &self.terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_reads_back_as_it_is_stored() {
        let change = BoundsChange { groups: Some(vec!["g".to_owned()]), ..BoundsChange::default() };
        let role = CloudbRole::changed(None, &change, TokenTerms::default()).unwrap();
        let stored = serde_json::to_value(&role).unwrap();
        assert_eq!(stored["bound_group_ids"], serde_json::json!(["g"]));
        assert_eq!(serde_json::from_value::<CloudbRole>(stored).unwrap(), role);
    }
}
