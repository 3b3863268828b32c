//! Roles of `cloudb`: restrictions on clients, and settings of their tokens.

use serde::{Deserialize, Serialize};

use super::bounds::CloudbRoleBounds;
use crate::auth::login::role::MethodRole;
use crate::auth::token::TokenTerms;
use crate::error::Result;

/// A stored role of `cloudb`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CloudbRole {
    #[serde(flatten)]
    pub(super) bounds: CloudbRoleBounds,
    terms: TokenTerms,
}

impl CloudbRole {
    /// Creates a role from its restrictions and token settings.
    ///
    /// # Errors
    /// `Invalid` for a role with which every identity of the tenant could log in.
    pub(crate) fn new(bounds: CloudbRoleBounds, terms: TokenTerms) -> Result<Self> {
        bounds.check()?;
        Ok(Self { bounds, terms })
    }

    /// Returns a warning if the role allows more resources than an operator may expect.
    pub(crate) fn warning(&self) -> Option<String> {
        self.bounds.warning()
    }

    /// The restrictions on clients that log in with the role.
    pub(crate) fn bounds(&self) -> &CloudbRoleBounds {
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
    fn role_round_trips_through_storage() {
        let bounds = CloudbRoleBounds { bound_group_ids: vec!["g".to_owned()], ..CloudbRoleBounds::default() };
        let role = CloudbRole::new(bounds, TokenTerms::default()).unwrap();
        let stored = serde_json::to_value(&role).unwrap();
        assert_eq!(stored["bound_group_ids"], serde_json::json!(["g"]));
        assert_eq!(serde_json::from_value::<CloudbRole>(stored).unwrap(), role);
    }
}
