//! The authentication method `cloudb`: identities of that cloud.

use serde::{Deserialize, Serialize};

use super::method::{Method, View};
use super::role::{Role, Roles};
use crate::auth::token::TokenTerms;
use crate::error::Result;

/// The method.
pub(crate) struct Cloudb;

/// A role.
#[derive(Serialize, Deserialize)]
pub(crate) struct CloudbRole {
    /// What it says of its tokens.
    pub(crate) terms: TokenTerms,
}

impl Role for CloudbRole {
    fn terms(&self) -> &TokenTerms {
        &self.terms
    }
}

impl Method for Cloudb {
    type Config = ();
    type Role = CloudbRole;
    type Made = ();

    fn make(_: Option<&()>, _: &Roles<CloudbRole>, _: Option<&View<Self>>) -> Result<()> {
        Ok(())
    }
}
