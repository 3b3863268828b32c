//! The authentication method `jwt`: whoever has a signed token of another system.

use serde::{Deserialize, Serialize};

use super::method::{Method, View};
use super::role::{Role, Roles};
use crate::auth::token::TokenTerms;
use crate::error::Result;

/// The method.
pub(crate) struct Jwt;

/// A role.
#[derive(Serialize, Deserialize)]
pub(crate) struct JwtRole {
    /// What it says of its tokens.
    pub(crate) terms: TokenTerms,
}

impl Role for JwtRole {
    fn terms(&self) -> &TokenTerms {
        &self.terms
    }
}

impl Method for Jwt {
    type Config = ();
    type Role = JwtRole;
    type Made = ();

    fn make(_: Option<&()>, _: &Roles<JwtRole>, _: Option<&View<Self>>) -> Result<()> {
        Ok(())
    }
}
