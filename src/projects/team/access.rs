//! The flags of `organization-access` (rights of a team in the organization), their dependencies, and the check that a
//! member may grant them.
//!
//! Setting a flag also sets the flags that it needs. A request is invalid if it sets one flag and clears another flag
//! that the first one needs. A member cannot grant flags that the member lacks (see [`escalation`] for other rights).
//!
//! [`escalation`]: super::super::escalation

use super::super::attributes::AttributeReader;
use super::super::member::Member;
use super::super::rejection::{ApiRejection, Fault, WorkResult};
use super::super::rights::{GRANT_EXCEEDS_OWN_RIGHTS, OrganizationFlag, OrganizationRights};
use crate::error::Kind;

const ACCESS_ATTRIBUTE: &str = "organization-access";

/// Pairs of a flag and the flags that it needs. Each flag precedes the flags that it needs, so a single pass adds all
/// of them.
const FLAG_DEPENDENCIES: &[(OrganizationFlag, &[OrganizationFlag])] = &[
    (OrganizationFlag::ManageOrganizationAccess, &[OrganizationFlag::ManageTeams, OrganizationFlag::ManageMembership]),
    (OrganizationFlag::ManageTeams, &[OrganizationFlag::ManageMembership]),
    (OrganizationFlag::ManageProjects, &[OrganizationFlag::ManageWorkspaces]),
    (OrganizationFlag::ReadProjects, &[OrganizationFlag::ReadWorkspaces]),
];

/// The flag `access-secret-teams` needs at least one of these flags.
const SECRET_TEAM_PREREQUISITES: [OrganizationFlag; 3] =
    [OrganizationFlag::ManageMembership, OrganizationFlag::ManageTeams, OrganizationFlag::ManageOrganizationAccess];

/// The flags that a request sets or clears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrganizationFlagChanges(Vec<(OrganizationFlag, bool)>);

impl OrganizationFlagChanges {
    /// Reads the attribute `organization-access`. Unknown flags and null values are ignored.
    pub fn read(attributes: &mut AttributeReader<'_>) -> Self {
        let mut flags = Vec::new();
        let Some(members) = attributes.object(ACCESS_ATTRIBUTE).value() else { return Self::default() };
        for flag in OrganizationFlag::ALL {
            let word = flag.name();
            match members.get(word) {
                None | Some(serde_json::Value::Null) => {}
                Some(serde_json::Value::Bool(granted)) => flags.push((flag, *granted)),
                Some(_) => attributes.fault(&format!("{ACCESS_ATTRIBUTE}/{word}"), format!("{word} must be a boolean")),
            }
        }
        Self(flags)
    }

    /// `true` if the request neither sets nor clears a flag.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies these changes to `before`, the stored rights. Also sets every flag that another flag of the result
    /// needs.
    ///
    /// # Errors
    /// `Invalid` when the request clears a flag that another flag of the result needs.
    pub fn apply_to(&self, before: OrganizationRights) -> WorkResult<OrganizationRights> {
        let mut rights = self.0.iter().fold(before, |rights, (flag, granted)| rights.with(*flag, *granted));
        let refused = |flag: OrganizationFlag| self.0.contains(&(flag, false));
        let mut faults = Vec::new();
        let mut fault = |flag: OrganizationFlag, needed: &str| {
            let flag = flag.name();
            faults.push(Fault::attribute(&format!("{ACCESS_ATTRIBUTE}/{flag}"), format!("{flag} needs {needed}")));
        };
        if rights.has(OrganizationFlag::AccessSecretTeams)
            && !SECRET_TEAM_PREREQUISITES.iter().any(|flag| rights.has(*flag))
        {
            if refused(OrganizationFlag::ManageMembership) {
                fault(
                    OrganizationFlag::AccessSecretTeams,
                    &SECRET_TEAM_PREREQUISITES.map(OrganizationFlag::name).join(" or "),
                );
            }
            rights = rights.with(OrganizationFlag::ManageMembership, true);
        }
        for (flag, needed) in FLAG_DEPENDENCIES {
            let granted = rights.has(*flag);
            for needed in needed.iter().copied().filter(|_| granted) {
                if !rights.has(needed) && refused(needed) {
                    fault(*flag, needed.name());
                }
                rights = rights.with(needed, true);
            }
        }
        if faults.is_empty() { Ok(rights) } else { Err(ApiRejection::of(Kind::Invalid, faults).into()) }
    }
}

/// Rejects rights in `given` that the member lacks. Rights that the team already has (`before`) are allowed.
///
/// # Errors
/// `Forbidden`, naming the rights that the member lacks.
pub fn reject_excess_flags(member: &Member, before: OrganizationRights, given: OrganizationRights) -> WorkResult<()> {
    let own = if member.is_owner { OrganizationRights::ALL } else { member.rights };
    let beyond: Vec<_> = own.missing(before, given).map(OrganizationFlag::name).collect();
    if beyond.is_empty() {
        return Ok(());
    }
    Err(ApiRejection::forbidden(format!("{GRANT_EXCEEDS_OWN_RIGHTS}: {}", beyond.join(", "))).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_flags(before: &[OrganizationFlag], named: &[(OrganizationFlag, bool)]) -> Result<Vec<OrganizationFlag>, ()> {
        let before = before.iter().fold(OrganizationRights::NONE, |rights, flag| rights.with(*flag, true));
        let after = OrganizationFlagChanges(named.to_vec()).apply_to(before).map_err(drop)?;
        Ok(OrganizationFlag::ALL.into_iter().filter(|flag| after.has(*flag)).collect())
    }

    #[test]
    fn needed_flags_are_set_unless_the_request_clears_them() {
        for (before, named, after) in [
            (&[][..], &[(OrganizationFlag::ManageAgentPools, true)][..], Ok(vec![OrganizationFlag::ManageAgentPools])),
            (
                &[],
                &[(OrganizationFlag::ManageProjects, true)],
                Ok(vec![OrganizationFlag::ManageWorkspaces, OrganizationFlag::ManageProjects]),
            ),
            (&[], &[(OrganizationFlag::ManageProjects, true), (OrganizationFlag::ManageWorkspaces, false)], Err(())),
            (
                &[OrganizationFlag::ManageProjects, OrganizationFlag::ManageWorkspaces],
                &[(OrganizationFlag::ManageWorkspaces, false)],
                Err(()),
            ),
            (
                &[OrganizationFlag::ManageProjects, OrganizationFlag::ManageWorkspaces],
                &[(OrganizationFlag::ManageProjects, false)],
                Ok(vec![OrganizationFlag::ManageWorkspaces]),
            ),
            (
                &[],
                &[(OrganizationFlag::ReadProjects, true)],
                Ok(vec![OrganizationFlag::ReadWorkspaces, OrganizationFlag::ReadProjects]),
            ),
            (&[], &[(OrganizationFlag::ReadProjects, true), (OrganizationFlag::ReadWorkspaces, false)], Err(())),
            (
                &[],
                &[(OrganizationFlag::ManageTeams, true)],
                Ok(vec![OrganizationFlag::ManageMembership, OrganizationFlag::ManageTeams]),
            ),
            (&[], &[(OrganizationFlag::ManageTeams, true), (OrganizationFlag::ManageMembership, false)], Err(())),
            (
                &[],
                &[(OrganizationFlag::ManageOrganizationAccess, true)],
                Ok(vec![
                    OrganizationFlag::ManageMembership,
                    OrganizationFlag::ManageTeams,
                    OrganizationFlag::ManageOrganizationAccess,
                ]),
            ),
            (
                &[],
                &[(OrganizationFlag::ManageOrganizationAccess, true), (OrganizationFlag::ManageTeams, false)],
                Err(()),
            ),
            (
                &[],
                &[(OrganizationFlag::AccessSecretTeams, true)],
                Ok(vec![OrganizationFlag::ManageMembership, OrganizationFlag::AccessSecretTeams]),
            ),
            (&[], &[(OrganizationFlag::AccessSecretTeams, true), (OrganizationFlag::ManageMembership, false)], Err(())),
        ] {
            assert_eq!(set_flags(before, named), after, "{before:?} {named:?}");
        }
    }
}
