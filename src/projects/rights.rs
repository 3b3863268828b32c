//! Rights on a project and in an organization.
//!
//! No setting takes a right away: a caller has the union of the rights of all teams of the caller, on the resource and
//! in the organization.

use std::ops::{BitOr, BitOrAssign};

/// Error text for a member who grants a team a right that the member lacks.
pub const GRANT_EXCEEDS_OWN_RIGHTS: &str = "you may not grant a team rights that you do not have yourself";

/// The rights of a caller on one project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectRights(i64);

impl ProjectRights {
    /// No rights on the project, which is thus hidden from the caller.
    pub const NONE: Self = Self(0);
    /// See the project.
    pub const READ: Self = Self(1);
    /// Change the settings of the project.
    pub const UPDATE: Self = Self(2);
    /// Delete the project.
    pub const DESTROY: Self = Self(4);
    /// Create workspaces in the project.
    pub const CREATE_WORKSPACE: Self = Self(8);
    /// Move workspaces into and out of the project.
    pub const MOVE_WORKSPACE: Self = Self(16);
    /// Manage the access of teams to the project.
    pub const MANAGE_TEAMS: Self = Self(32);
    /// All rights on the project.
    pub const ALL: Self = Self(63);

    /// Returns the rights as bits, as stored.
    pub const fn bits(self) -> i64 {
        self.0
    }

    /// Creates rights from stored bits.
    pub const fn from_bits(bits: i64) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// `true` if these rights include all rights in `needed`.
    pub const fn has(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Returns an iterator over the rights in this set, one right per item.
    pub fn each(self) -> impl Iterator<Item = Self> {
        (0..6).map(move |bit| Self(self.0 & 1 << bit)).filter(|right| *right != Self::NONE)
    }

    /// Returns the union of two sets of rights. Unlike the operator `|`, it can be used in constants.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for ProjectRights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for ProjectRights {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

/// A right in an organization: a flag of the attribute `organization-access`. The discriminant is the number of its bit
/// in the stored integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrganizationFlag {
    /// Manage policies.
    ManagePolicies,
    /// Override policies.
    ManagePolicyOverrides,
    /// Allow other members to override policies.
    DelegatePolicyOverrides,
    /// Manage all workspaces.
    ManageWorkspaces,
    /// Manage the settings of version control systems.
    ManageVcsSettings,
    /// Manage the providers of the private registry.
    ManageProviders,
    /// Manage the modules of the private registry.
    ManageModules,
    /// Manage run tasks.
    ManageRunTasks,
    /// Manage all projects and the workspaces in them.
    ManageProjects,
    /// See all workspaces.
    ReadWorkspaces,
    /// See all projects.
    ReadProjects,
    /// Manage the members of the organization and of its teams.
    ManageMembership,
    /// Manage teams.
    ManageTeams,
    /// Manage the rights of teams in the organization.
    ManageOrganizationAccess,
    /// See secret teams.
    AccessSecretTeams,
    /// Manage agent pools.
    ManageAgentPools,
}

impl OrganizationFlag {
    /// All flags, in the order of their bits.
    pub const ALL: [Self; 16] = [
        Self::ManagePolicies,
        Self::ManagePolicyOverrides,
        Self::DelegatePolicyOverrides,
        Self::ManageWorkspaces,
        Self::ManageVcsSettings,
        Self::ManageProviders,
        Self::ManageModules,
        Self::ManageRunTasks,
        Self::ManageProjects,
        Self::ReadWorkspaces,
        Self::ReadProjects,
        Self::ManageMembership,
        Self::ManageTeams,
        Self::ManageOrganizationAccess,
        Self::AccessSecretTeams,
        Self::ManageAgentPools,
    ];

    /// Returns the name of the flag in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ManagePolicies => "manage-policies",
            Self::ManagePolicyOverrides => "manage-policy-overrides",
            Self::DelegatePolicyOverrides => "delegate-policy-overrides",
            Self::ManageWorkspaces => "manage-workspaces",
            Self::ManageVcsSettings => "manage-vcs-settings",
            Self::ManageProviders => "manage-providers",
            Self::ManageModules => "manage-modules",
            Self::ManageRunTasks => "manage-run-tasks",
            Self::ManageProjects => "manage-projects",
            Self::ReadWorkspaces => "read-workspaces",
            Self::ReadProjects => "read-projects",
            Self::ManageMembership => "manage-membership",
            Self::ManageTeams => "manage-teams",
            Self::ManageOrganizationAccess => "manage-organization-access",
            Self::AccessSecretTeams => "access-secret-teams",
            Self::ManageAgentPools => "manage-agent-pools",
        }
    }

    const fn bit(self) -> i64 {
        1 << self as i64
    }
}

/// A set of organization-wide rights, granted to a team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrganizationRights(i64);

impl OrganizationRights {
    /// The empty set of rights.
    pub const NONE: Self = Self(0);
    /// The set of all flags.
    pub const ALL: Self = Self((1 << OrganizationFlag::ALL.len()) - 1);

    /// Returns the rights as bits, as stored.
    pub const fn bits(self) -> i64 {
        self.0
    }

    /// Creates rights from stored bits.
    pub const fn from_bits(bits: i64) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// `true` if the set contains the flag.
    pub const fn has(self, flag: OrganizationFlag) -> bool {
        self.0 & flag.bit() != 0
    }

    /// Returns the rights with the flag set if `granted`, or else cleared.
    #[must_use]
    pub const fn with(self, flag: OrganizationFlag, granted: bool) -> Self {
        if granted { Self(self.0 | flag.bit()) } else { Self(self.0 & !flag.bit()) }
    }

    /// Adds the flags that other flags imply: for example, `manage-projects` implies managing and reading all
    /// workspaces.
    fn with_implied_flags(self) -> Self {
        let reads_all = self.has(OrganizationFlag::ManageProjects)
            || self.has(OrganizationFlag::ReadProjects)
            || self.has(OrganizationFlag::ManageWorkspaces);
        let mut rights =
            self.with(OrganizationFlag::ReadWorkspaces, self.has(OrganizationFlag::ReadWorkspaces) || reads_all);
        if self.has(OrganizationFlag::ManageProjects) {
            rights = rights.with(OrganizationFlag::ManageWorkspaces, true).with(OrganizationFlag::ReadProjects, true);
        }
        rights
    }

    /// `true` if these rights, with the flags that they imply, include all flags of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.missing(Self::NONE, other).next().is_none()
    }

    /// Returns the flags in `given` that neither these rights nor the rights `before` include or imply.
    pub fn missing(self, before: Self, given: Self) -> impl Iterator<Item = OrganizationFlag> {
        let own = self.with_implied_flags();
        let before = before.with_implied_flags();
        OrganizationFlag::ALL.into_iter().filter(move |flag| given.has(*flag) && !own.has(*flag) && !before.has(*flag))
    }

    /// Returns the rights that these organization-wide rights imply on every project.
    pub fn on_projects(self) -> ProjectRights {
        if self.has(OrganizationFlag::ManageProjects) {
            ProjectRights::ALL
        } else if self.has(OrganizationFlag::ReadProjects) {
            ProjectRights::READ
        } else {
            ProjectRights::NONE
        }
    }

    /// Returns the additional rights that these organization-wide rights imply on the default project.
    pub fn on_default_project(self) -> ProjectRights {
        if self.manages_workspaces() {
            ProjectRights::READ.union(ProjectRights::CREATE_WORKSPACE)
        } else {
            ProjectRights::NONE
        }
    }

    /// `true` if the holder may manage all workspaces. The flag `manage-projects` implies this right.
    pub fn manages_workspaces(self) -> bool {
        self.has(OrganizationFlag::ManageWorkspaces) || self.has(OrganizationFlag::ManageProjects)
    }

    /// `true` if the holder may read all workspaces.
    pub fn reads_workspaces(self) -> bool {
        self.manages_workspaces()
            || self.has(OrganizationFlag::ReadWorkspaces)
            || self.has(OrganizationFlag::ReadProjects)
    }
}

impl BitOrAssign for OrganizationRights {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organization_flags_keep_their_bits() {
        // The bits are stored, so existing flags must keep their bits, and new flags may only be appended.
        for (bit, flag) in OrganizationFlag::ALL.into_iter().enumerate() {
            assert_eq!(OrganizationRights::NONE.with(flag, true).bits(), 1 << bit, "{}", flag.name());
        }
        assert_eq!(OrganizationRights::NONE.with(OrganizationFlag::ManagePolicies, true).bits(), 1);
        assert_eq!(OrganizationRights::NONE.with(OrganizationFlag::ManageProjects, true).bits(), 256);
        assert_eq!(OrganizationRights::NONE.with(OrganizationFlag::ManageAgentPools, true).bits(), 1 << 15);
        assert_eq!(OrganizationRights::ALL.with(OrganizationFlag::ManageProjects, false).bits(), 0xfeff);
    }

    #[test]
    fn each_returns_single_rights() {
        let each: Vec<_> = ProjectRights::READ.union(ProjectRights::MOVE_WORKSPACE).each().collect();
        assert_eq!(each, [ProjectRights::READ, ProjectRights::MOVE_WORKSPACE]);
        assert_eq!((ProjectRights::ALL.each().count(), ProjectRights::NONE.each().count()), (6, 0));
    }

    #[test]
    fn organization_rights_cover_only_implied_rights() {
        let of = |flag| OrganizationRights::NONE.with(flag, true);
        for one in OrganizationFlag::ALL {
            for other in OrganizationFlag::ALL {
                let expected = match (one, other) {
                    (
                        OrganizationFlag::ManageProjects,
                        OrganizationFlag::ManageWorkspaces
                        | OrganizationFlag::ReadProjects
                        | OrganizationFlag::ReadWorkspaces,
                    ) => true,
                    (
                        OrganizationFlag::ManageWorkspaces | OrganizationFlag::ReadProjects,
                        OrganizationFlag::ReadWorkspaces,
                    ) => true,
                    _ => one == other,
                };
                assert_eq!(of(one).covers(of(other)), expected, "{one:?} {other:?}");
            }
            assert!(OrganizationRights::ALL.covers(of(one)) && of(one).covers(OrganizationRights::NONE));
            assert_eq!(OrganizationRights::NONE.missing(of(one), of(one)).count(), 0, "{one:?} stays");
        }
        let missing: Vec<_> = of(OrganizationFlag::ManageTeams)
            .missing(of(OrganizationFlag::ReadProjects), OrganizationRights::ALL)
            .collect();
        assert_eq!(missing.len(), 13);
    }

    #[test]
    fn organization_flags_grant_project_and_workspace_rights() {
        let of = |flag| OrganizationRights::NONE.with(flag, true);
        assert_eq!(of(OrganizationFlag::ManageProjects).on_projects(), ProjectRights::ALL);
        assert!(of(OrganizationFlag::ManageProjects).manages_workspaces());
        assert_eq!(of(OrganizationFlag::ReadProjects).on_projects(), ProjectRights::READ);
        assert!(
            of(OrganizationFlag::ReadProjects).reads_workspaces()
                && !of(OrganizationFlag::ReadProjects).manages_workspaces()
        );
        assert_eq!(of(OrganizationFlag::ManageWorkspaces).on_projects(), ProjectRights::NONE);
        assert!(of(OrganizationFlag::ManageWorkspaces).on_default_project().has(ProjectRights::CREATE_WORKSPACE));
        assert_eq!(of(OrganizationFlag::ReadWorkspaces).on_projects(), ProjectRights::NONE);
    }
}
