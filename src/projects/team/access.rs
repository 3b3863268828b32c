//! The flags of `organization-access`: which of them need others.
//!
//! A flag that another one needs is raised with it, unless the request says that it shall not be there:
//! then the request contradicts itself.

use super::super::attributes::Attributes;
use super::super::refusal::{Fault, Outcome, Refusal};
use super::super::rights::{ORGANIZATION_FLAGS, OrganizationRights};
use crate::error::Kind;

/// The attribute.
const NAME: &str = "organization-access";

/// A flag and what it needs, what needs others first.
const NEEDS: &[(&str, &[&str])] = &[
    ("manage-organization-access", &["manage-teams", "manage-membership"]),
    ("manage-teams", &["manage-membership"]),
    ("manage-projects", &["manage-workspaces"]),
    ("read-projects", &["read-workspaces"]),
];

/// What `access-secret-teams` needs one of.
const TEAM_FLAGS: &[&str] = &["manage-membership", "manage-teams", "manage-organization-access"];

/// The flags that a request names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(Vec<(&'static str, bool)>);

impl Flags {
    /// Reads the flags; names that are none are ignored, null names nothing.
    pub fn read(attributes: &mut Attributes<'_>) -> Self {
        let mut flags = Vec::new();
        let Some(members) = attributes.object(NAME).value() else { return Self::default() };
        for flag in ORGANIZATION_FLAGS {
            match members.get(flag) {
                None | Some(serde_json::Value::Null) => {}
                Some(serde_json::Value::Bool(granted)) => flags.push((flag, *granted)),
                Some(_) => attributes.fault(&format!("{NAME}/{flag}"), format!("{flag} must be a boolean")),
            }
        }
        Self(flags)
    }

    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The flags of `before` with these over them, and with those that they need.
    ///
    /// # Errors
    /// `Invalid` when a needed flag is named as not granted.
    pub fn over(&self, before: OrganizationRights) -> Outcome<OrganizationRights> {
        let mut rights = self.0.iter().fold(before, |rights, (flag, granted)| rights.with(flag, *granted));
        let refused = |flag: &str| self.0.iter().any(|(name, granted)| *name == flag && !granted);
        let mut faults = Vec::new();
        let mut fault = |flag: &str, needed: &str| {
            faults.push(Fault::attribute(&format!("{NAME}/{flag}"), format!("{flag} needs {needed}")));
        };
        if rights.has("access-secret-teams") && !TEAM_FLAGS.iter().any(|flag| rights.has(flag)) {
            if refused("manage-membership") {
                fault("access-secret-teams", &TEAM_FLAGS.join(" or "));
            }
            rights = rights.with("manage-membership", true);
        }
        for (flag, needed) in NEEDS.iter() {
            let granted = rights.has(flag);
            for needed in needed.iter().filter(|_| granted) {
                if !rights.has(needed) && refused(needed) {
                    fault(flag, needed);
                }
                rights = rights.with(needed, true);
            }
        }
        if faults.is_empty() { Ok(rights) } else { Err(Refusal::of(Kind::Invalid, faults).into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(before: &[&str], named: &[(&'static str, bool)]) -> Result<Vec<&'static str>, ()> {
        let before = before.iter().fold(OrganizationRights::NONE, |rights, flag| rights.with(flag, true));
        let after = Flags(named.to_vec()).over(before).map_err(drop)?;
        Ok(ORGANIZATION_FLAGS.into_iter().filter(|flag| after.has(flag)).collect())
    }

    #[test]
    fn needed_flags_are_raised_unless_the_request_says_otherwise() {
        for (before, named, after) in [
            (&[][..], &[("manage-agent-pools", true)][..], Ok(vec!["manage-agent-pools"])),
            (&[], &[("manage-projects", true)], Ok(vec!["manage-workspaces", "manage-projects"])),
            (&[], &[("manage-projects", true), ("manage-workspaces", false)], Err(())),
            (&["manage-projects", "manage-workspaces"], &[("manage-workspaces", false)], Err(())),
            (&["manage-projects", "manage-workspaces"], &[("manage-projects", false)], Ok(vec!["manage-workspaces"])),
            (&[], &[("read-projects", true)], Ok(vec!["read-workspaces", "read-projects"])),
            (&[], &[("read-projects", true), ("read-workspaces", false)], Err(())),
            (&[], &[("manage-teams", true)], Ok(vec!["manage-membership", "manage-teams"])),
            (&[], &[("manage-teams", true), ("manage-membership", false)], Err(())),
            (
                &[],
                &[("manage-organization-access", true)],
                Ok(vec!["manage-membership", "manage-teams", "manage-organization-access"]),
            ),
            (&[], &[("manage-organization-access", true), ("manage-teams", false)], Err(())),
            (&[], &[("access-secret-teams", true)], Ok(vec!["manage-membership", "access-secret-teams"])),
            (&[], &[("access-secret-teams", true), ("manage-membership", false)], Err(())),
        ] {
            assert_eq!(over(before, named), after, "{before:?} {named:?}");
        }
    }
}
