//! Who may do what: the bits of a project, the flags of an organization, and what a team's grants add up
//! to.
//!
//! Rights only add up: the union over all teams of the caller and all levels counts.

use std::ops::{BitOr, BitOrAssign};

/// Told to whoever gives a team a right that they do not have.
pub const BEYOND: &str = "you may not give a team what you may not do yourself";

/// What a caller may do with one project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectRights(i64);

impl ProjectRights {
    /// Nothing, not even to know of it.
    pub const NONE: Self = Self(0);
    /// To see it.
    pub const READ: Self = Self(1);
    /// To change its settings.
    pub const UPDATE: Self = Self(2);
    /// To delete it.
    pub const DESTROY: Self = Self(4);
    /// To create workspaces in it.
    pub const CREATE_WORKSPACE: Self = Self(8);
    /// To move workspaces in and out.
    pub const MOVE_WORKSPACE: Self = Self(16);
    /// To manage the teams' access to it.
    pub const MANAGE_TEAMS: Self = Self(32);
    /// Everything.
    pub const ALL: Self = Self(63);

    /// As stored.
    pub const fn bits(self) -> i64 {
        self.0
    }

    /// Of stored bits.
    pub const fn from_bits(bits: i64) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Whether all of `needed` is granted.
    pub const fn has(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// The rights one by one.
    pub fn each(self) -> impl Iterator<Item = Self> {
        (0..6).map(move |place| Self(self.0 & 1 << place)).filter(|right| *right != Self::NONE)
    }

    /// Both together, in constants.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for ProjectRights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

impl BitOrAssign for ProjectRights {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.and(other);
    }
}

/// A flag of `organization-access`; its place is the stored bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Policies.
    ManagePolicies,
    /// Overriding policies.
    ManagePolicyOverrides,
    /// Letting others override policies.
    DelegatePolicyOverrides,
    /// Every workspace.
    ManageWorkspaces,
    /// Settings of version control.
    ManageVcsSettings,
    /// Providers.
    ManageProviders,
    /// Modules.
    ManageModules,
    /// Run tasks.
    ManageRunTasks,
    /// Every project, and the workspaces in it.
    ManageProjects,
    /// Seeing every workspace.
    ReadWorkspaces,
    /// Seeing every project.
    ReadProjects,
    /// People, and who is in which team.
    ManageMembership,
    /// Teams.
    ManageTeams,
    /// What teams may do in the organization.
    ManageOrganizationAccess,
    /// Knowing of secret teams.
    AccessSecretTeams,
    /// Agent pools.
    ManageAgentPools,
}

impl Flag {
    /// Every flag.
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

    /// As documents name it.
    pub const fn word(self) -> &'static str {
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

/// What teams may do in an organization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrganizationRights(i64);

impl OrganizationRights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Every flag.
    pub const ALL: Self = Self((1 << Flag::ALL.len()) - 1);

    /// As stored.
    pub const fn bits(self) -> i64 {
        self.0
    }

    /// Of stored bits.
    pub const fn from_bits(bits: i64) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Whether a flag is granted.
    pub const fn has(self, flag: Flag) -> bool {
        self.0 & flag.bit() != 0
    }

    /// With a flag granted or not.
    #[must_use]
    pub const fn with(self, flag: Flag, granted: bool) -> Self {
        if granted { Self(self.0 | flag.bit()) } else { Self(self.0 & !flag.bit()) }
    }

    /// With what follows from them: whoever manages projects manages and reads everything in them.
    fn meant(self) -> Self {
        let reads_all =
            self.has(Flag::ManageProjects) || self.has(Flag::ReadProjects) || self.has(Flag::ManageWorkspaces);
        let mut meant = self.with(Flag::ReadWorkspaces, self.has(Flag::ReadWorkspaces) || reads_all);
        if self.has(Flag::ManageProjects) {
            meant = meant.with(Flag::ManageWorkspaces, true).with(Flag::ReadProjects, true);
        }
        meant
    }

    /// Whether they mean all that `other` means.
    pub fn covers(self, other: Self) -> bool {
        self.missing(Self::NONE, other).next().is_none()
    }

    /// The flags of `given` that neither these rights nor `before` mean.
    pub fn missing(self, before: Self, given: Self) -> impl Iterator<Item = Flag> {
        let (own, before) = (self.meant(), before.meant());
        Flag::ALL.into_iter().filter(move |flag| given.has(*flag) && !own.has(*flag) && !before.has(*flag))
    }

    /// What they mean for every project of the organization.
    pub fn on_projects(self) -> ProjectRights {
        if self.has(Flag::ManageProjects) {
            ProjectRights::ALL
        } else if self.has(Flag::ReadProjects) {
            ProjectRights::READ
        } else {
            ProjectRights::NONE
        }
    }

    /// What they mean for the default project beside that.
    pub fn on_default_project(self) -> ProjectRights {
        if self.manages_workspaces() {
            ProjectRights::READ.and(ProjectRights::CREATE_WORKSPACE)
        } else {
            ProjectRights::NONE
        }
    }

    /// Whether every workspace may be managed: `manage-projects` implies it.
    pub fn manages_workspaces(self) -> bool {
        self.has(Flag::ManageWorkspaces) || self.has(Flag::ManageProjects)
    }

    /// Whether every workspace may be read.
    pub fn reads_workspaces(self) -> bool {
        self.manages_workspaces() || self.has(Flag::ReadWorkspaces) || self.has(Flag::ReadProjects)
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
    fn flags_keep_their_bits() {
        // Stored: a flag may be added at the end, never moved.
        for (place, flag) in Flag::ALL.into_iter().enumerate() {
            assert_eq!(OrganizationRights::NONE.with(flag, true).bits(), 1 << place, "{}", flag.word());
        }
        assert_eq!(OrganizationRights::NONE.with(Flag::ManagePolicies, true).bits(), 1);
        assert_eq!(OrganizationRights::NONE.with(Flag::ManageProjects, true).bits(), 256);
        assert_eq!(OrganizationRights::NONE.with(Flag::ManageAgentPools, true).bits(), 1 << 15);
        assert_eq!(OrganizationRights::ALL.with(Flag::ManageProjects, false).bits(), 0xfeff);
    }

    #[test]
    fn rights_come_one_by_one() {
        let each: Vec<_> = ProjectRights::READ.and(ProjectRights::MOVE_WORKSPACE).each().collect();
        assert_eq!(each, [ProjectRights::READ, ProjectRights::MOVE_WORKSPACE]);
        assert_eq!((ProjectRights::ALL.each().count(), ProjectRights::NONE.each().count()), (6, 0));
    }

    #[test]
    fn rights_cover_what_they_mean_and_nothing_else() {
        let of = |flag| OrganizationRights::NONE.with(flag, true);
        for one in Flag::ALL {
            for other in Flag::ALL {
                let expected = match (one, other) {
                    (Flag::ManageProjects, Flag::ManageWorkspaces | Flag::ReadProjects | Flag::ReadWorkspaces) => true,
                    (Flag::ManageWorkspaces | Flag::ReadProjects, Flag::ReadWorkspaces) => true,
                    _ => one == other,
                };
                assert_eq!(of(one).covers(of(other)), expected, "{one:?} {other:?}");
            }
            assert!(OrganizationRights::ALL.covers(of(one)) && of(one).covers(OrganizationRights::NONE));
            assert_eq!(OrganizationRights::NONE.missing(of(one), of(one)).count(), 0, "{one:?} stays");
        }
        let missing: Vec<_> = of(Flag::ManageTeams).missing(of(Flag::ReadProjects), OrganizationRights::ALL).collect();
        assert_eq!(missing.len(), 13);
    }

    #[test]
    fn what_flags_mean_for_projects_and_workspaces() {
        let of = |flag| OrganizationRights::NONE.with(flag, true);
        assert_eq!(of(Flag::ManageProjects).on_projects(), ProjectRights::ALL);
        assert!(of(Flag::ManageProjects).manages_workspaces());
        assert_eq!(of(Flag::ReadProjects).on_projects(), ProjectRights::READ);
        assert!(of(Flag::ReadProjects).reads_workspaces() && !of(Flag::ReadProjects).manages_workspaces());
        assert_eq!(of(Flag::ManageWorkspaces).on_projects(), ProjectRights::NONE);
        assert!(of(Flag::ManageWorkspaces).on_default_project().has(ProjectRights::CREATE_WORKSPACE));
        assert_eq!(of(Flag::ReadWorkspaces).on_projects(), ProjectRights::NONE);
    }
}
