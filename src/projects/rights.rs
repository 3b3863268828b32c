//! Who may do what: the bits of a project, the flags of an organization, and what a team's grants add up
//! to.
//!
//! Rights only add up: the union over all teams of the caller and all levels counts.

use std::ops::{BitOr, BitOrAssign};

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

/// The flags of `organization-access`; the place in the list is the stored bit.
pub const ORGANIZATION_FLAGS: [&str; 16] = [
    "manage-policies",
    "manage-policy-overrides",
    "delegate-policy-overrides",
    "manage-workspaces",
    "manage-vcs-settings",
    "manage-providers",
    "manage-modules",
    "manage-run-tasks",
    "manage-projects",
    "read-workspaces",
    "read-projects",
    "manage-membership",
    "manage-teams",
    "manage-organization-access",
    "access-secret-teams",
    "manage-agent-pools",
];

/// What teams may do in an organization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrganizationRights(i64);

impl OrganizationRights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Every flag.
    pub const ALL: Self = Self((1 << ORGANIZATION_FLAGS.len()) - 1);

    /// As stored.
    pub const fn bits(self) -> i64 {
        self.0
    }

    /// Of stored bits.
    pub const fn from_bits(bits: i64) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Whether a flag of [`ORGANIZATION_FLAGS`] is granted.
    pub fn has(self, flag: &str) -> bool {
        bit(flag).is_some_and(|bit| self.0 & bit != 0)
    }

    /// With a flag granted or not; names that are no flag change nothing.
    pub fn with(self, flag: &str, granted: bool) -> Self {
        match bit(flag) {
            Some(bit) if granted => Self(self.0 | bit),
            Some(bit) => Self(self.0 & !bit),
            None => self,
        }
    }

    /// With what follows from them: whoever manages projects manages and reads everything in them.
    fn meant(self) -> Self {
        let reads_all = self.has("manage-projects") || self.has("read-projects") || self.has("manage-workspaces");
        let mut meant = self.with("read-workspaces", self.has("read-workspaces") || reads_all);
        if self.has("manage-projects") {
            meant = meant.with("manage-workspaces", true).with("read-projects", true);
        }
        meant
    }

    /// Whether they mean all that `other` means.
    pub fn covers(self, other: Self) -> bool {
        self.missing(Self::NONE, other).next().is_none()
    }

    /// The flags of `given` that neither these rights nor `before` mean.
    pub fn missing(self, before: Self, given: Self) -> impl Iterator<Item = &'static str> {
        let (own, before) = (self.meant(), before.meant());
        ORGANIZATION_FLAGS.into_iter().filter(move |flag| given.has(flag) && !own.has(flag) && !before.has(flag))
    }

    /// What they mean for every project of the organization.
    pub fn on_projects(self) -> ProjectRights {
        if self.has("manage-projects") {
            ProjectRights::ALL
        } else if self.has("read-projects") {
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
        self.has("manage-workspaces") || self.has("manage-projects")
    }

    /// Whether every workspace may be read.
    pub fn reads_workspaces(self) -> bool {
        self.manages_workspaces() || self.has("read-workspaces") || self.has("read-projects")
    }
}

impl BitOrAssign for OrganizationRights {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

fn bit(flag: &str) -> Option<i64> {
    ORGANIZATION_FLAGS.iter().position(|name| *name == flag).map(|place| 1 << place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_keep_their_bits() {
        // Stored: a flag may be added at the end, never moved.
        assert_eq!(OrganizationRights::NONE.with("manage-policies", true).bits(), 1);
        assert_eq!(OrganizationRights::NONE.with("manage-projects", true).bits(), 256);
        assert_eq!(OrganizationRights::NONE.with("manage-agent-pools", true).bits(), 1 << 15);
        assert_eq!(OrganizationRights::ALL.with("manage-projects", false).with("unknown", true).bits(), 0xfeff);
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
        for one in ORGANIZATION_FLAGS {
            for other in ORGANIZATION_FLAGS {
                let expected = match (one, other) {
                    ("manage-projects", "manage-workspaces" | "read-projects" | "read-workspaces") => true,
                    ("manage-workspaces" | "read-projects", "read-workspaces") => true,
                    _ => one == other,
                };
                assert_eq!(of(one).covers(of(other)), expected, "{one} {other}");
            }
            assert!(OrganizationRights::ALL.covers(of(one)) && of(one).covers(OrganizationRights::NONE));
            assert_eq!(OrganizationRights::NONE.missing(of(one), of(one)).count(), 0, "{one} stays");
        }
        let missing: Vec<_> = of("manage-teams").missing(of("read-projects"), OrganizationRights::ALL).collect();
        assert_eq!(missing.len(), 13);
    }

    #[test]
    fn what_flags_mean_for_projects_and_workspaces() {
        let of = |flag| OrganizationRights::NONE.with(flag, true);
        assert_eq!(of("manage-projects").on_projects(), ProjectRights::ALL);
        assert!(of("manage-projects").manages_workspaces());
        assert_eq!(of("read-projects").on_projects(), ProjectRights::READ);
        assert!(of("read-projects").reads_workspaces() && !of("read-projects").manages_workspaces());
        assert_eq!(of("manage-workspaces").on_projects(), ProjectRights::NONE);
        assert!(of("manage-workspaces").on_default_project().has(ProjectRights::CREATE_WORKSPACE));
        assert_eq!(of("read-workspaces").on_projects(), ProjectRights::NONE);
    }
}
