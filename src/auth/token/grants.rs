//! Determines the policies of a new token, from the request, the parent token and the token role.

use super::roles::TokenRole;
use crate::auth::ROOT_POLICY;
use crate::auth::names::{contains, insert_sorted, normalize_token_policies, reduce_to_root};
use crate::auth::policies::DEFAULT_POLICY;
use crate::error::{Error, Result};

pub(super) struct PolicyGrant<'a> {
    /// Normalized names of the policies that the request contains; empty for none.
    pub(super) requested: Vec<String>,
    /// `true` if the request excludes the policy `default`.
    pub(super) no_default: bool,
    pub(super) parent: &'a [String],
    /// `true` if the parent has `sudo` on the path of the request.
    pub(super) sudo: bool,
    pub(super) role: Option<&'a TokenRole>,
}

impl PolicyGrant<'_> {
    /// Returns the policies that the new token is granted.
    ///
    /// # Errors
    /// `Invalid` with the violated rule.
    pub(super) fn policy_names(self) -> Result<Vec<String>> {
        let no_default = self.no_default || self.role.is_some_and(|role| role.terms.no_default_policy);
        let parent = self.parent;
        let mut names = match self.role {
            Some(role) if role.has_policy_lists() => self.policies_by_role(role, no_default)?,
            _ => self.policies_by_parent()?,
        };
        if no_default {
            names.retain(|name| name != DEFAULT_POLICY);
        }
        let names = normalize_token_policies("policies", reduce_to_root(names))?;
        if contains(&names, ROOT_POLICY) && !contains(parent, ROOT_POLICY) {
            return Err(Error::invalid("root tokens may not be created without parent token being root"));
        }
        Ok(names)
    }

    /// Determines the policies by the lists of the token role. The policies of the parent do not limit them.
    fn policies_by_role(self, role: &TokenRole, no_default: bool) -> Result<Vec<String>> {
        let adds_default = !no_default && !role.disallows(DEFAULT_POLICY);
        let with_default = |mut names: Vec<String>| {
            if adds_default && !contains(&names, ROOT_POLICY) {
                insert_sorted(&mut names, DEFAULT_POLICY);
            }
            names
        };
        let names = match (self.requested.is_empty(), role.has_allowed_policies()) {
            (true, true) => with_default(role.allowed_policies.clone()),
            (true, false) => with_default(self.parent.to_vec()),
            (false, false) => with_default(self.requested),
            (false, true) => {
                let names = with_default(self.requested);
                let allowed = |name: &String| role.allows(name) || (adds_default && name == DEFAULT_POLICY);
                if !names.iter().all(allowed) {
                    let listed = &role.allowed_policies;
                    let globs = &role.allowed_policies_glob;
                    return Err(Error::invalid(format!(
                        "token policies ({names:?}) must be subset of the role's allowed policies ({listed:?}) or glob \
                         policies ({globs:?})"
                    )));
                }
                names
            }
        };
        match names.iter().find(|name| role.disallows(name)) {
            Some(name) => Err(Error::invalid(format!("token policy {name:?} is disallowed by this role"))),
            None => Ok(names),
        }
    }

    /// Determines the policies if no token role lists any. Requested policies must be among the policies of the parent,
    /// unless the parent has `sudo`.
    fn policies_by_parent(self) -> Result<Vec<String>> {
        let mut names = self.requested;
        let parent = self.parent;
        if names.is_empty() {
            return Ok(parent.to_vec());
        }
        if !self.sudo && !names.iter().all(|name| contains(parent, name)) {
            return Err(Error::invalid("child policies must be subset of parent"));
        }
        if (self.sudo || contains(parent, DEFAULT_POLICY)) && !contains(&names, ROOT_POLICY) {
            insert_sorted(&mut names, DEFAULT_POLICY);
        }
        Ok(names)
    }
}
