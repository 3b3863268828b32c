//! Comparison of access to projects, so that a member cannot grant more than the member has.

use super::super::rights::{OrganizationFlag, OrganizationRights};
use super::ProjectAccessLevel;
use super::keys::{PROJECT_KEY_COUNT, ProjectAccessKey, ProjectKeyBlock, ProjectKeyRanks, keys_of};

/// Index of the flag "sees the project and its workspaces" in a [`ProjectAccessExtent`].
const READS_INDEX: usize = PROJECT_KEY_COUNT;
/// Index of the flag "administers the workspaces" in a [`ProjectAccessExtent`]. The levels `maintain` and `admin` imply
/// this flag, and no access key sets it.
const ADMINISTERS_INDEX: usize = PROJECT_KEY_COUNT + 1;

/// The extent of access to a project: the rank of each access key (0 for the least access), then two flags (sees the
/// project, administers its workspaces). The union of several extents is the maximum of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectAccessExtent([u8; PROJECT_KEY_COUNT + 2]);

impl ProjectAccessExtent {
    /// No access to the project.
    pub const NONE: Self = Self([0; PROJECT_KEY_COUNT + 2]);

    /// Returns the extent of a team's access with this level and these values of the access keys.
    pub fn of(level: ProjectAccessLevel, settings: &ProjectKeyRanks) -> Self {
        let mut extent = Self::NONE;
        extent.0[..PROJECT_KEY_COUNT].copy_from_slice(&settings.ranks());
        extent.0[READS_INDEX] = 1;
        extent.0[ADMINISTERS_INDEX] =
            u8::from(matches!(level, ProjectAccessLevel::Maintain | ProjectAccessLevel::Admin));
        extent
    }

    /// Returns the extent of stored access: `level` is the name of the level, `custom` the stored keys if the level is
    /// `custom`.
    pub fn from_stored(level: &str, custom: Option<&str>) -> Self {
        ProjectAccessLevel::of(level)
            .map_or(Self::NONE, |level| Self::of(level, &ProjectKeyRanks::from_stored(level, custom)))
    }

    /// Returns the extent of the project access that organization-wide rights imply.
    pub fn of_organization(rights: OrganizationRights, is_default: bool) -> Self {
        let admin = Self::of(ProjectAccessLevel::Admin, &ProjectKeyRanks::of(ProjectAccessLevel::Admin));
        if rights.has(OrganizationFlag::ManageProjects) {
            return admin;
        }
        let mut extent = Self::NONE;
        let workspaces = |of: Self| keys_of(ProjectKeyBlock::Workspace).map(move |key| (key, of.0[key.index()]));
        if rights.manages_workspaces() {
            extent.0[ADMINISTERS_INDEX] = 1;
            // The right to manage all workspaces does not include creating or moving workspaces, with one exception:
            // creating workspaces in the default project.
            for (key, rank) in
                workspaces(admin).filter(|(key, _)| !matches!(key, ProjectAccessKey::Create | ProjectAccessKey::Move))
            {
                extent.0[key.index()] = rank;
            }
            if is_default {
                extent.0[ProjectAccessKey::Create.index()] = 1;
            }
        } else if rights.reads_workspaces() {
            for (key, rank) in
                workspaces(Self::of(ProjectAccessLevel::Read, &ProjectKeyRanks::of(ProjectAccessLevel::Read)))
            {
                extent.0[key.index()] = rank;
            }
        }
        extent.0[READS_INDEX] =
            u8::from(rights.has(OrganizationFlag::ReadProjects) || (is_default && rights.manages_workspaces()));
        extent
    }

    /// Returns the union of two extents.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = (*own).max(other);
        }
        self
    }

    /// `true` if no element of `other` is greater than the same element of this extent.
    pub fn covers(self, other: Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| *own >= other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projects::rights::ProjectRights;
    use crate::projects::workspace::WorkspaceRights;
    use proptest::prelude::*;
    use serde_json::json;

    const LEVELS: [&str; 5] = ["read", "write", "maintain", "admin", "custom"];

    fn organization(flags: &[OrganizationFlag]) -> OrganizationRights {
        flags.iter().fold(OrganizationRights::NONE, |rights, flag| rights.with(*flag, true))
    }

    #[test]
    fn project_levels_cover_the_levels_below_them() {
        for (n, higher) in LEVELS[..4].iter().enumerate() {
            for (m, lower) in LEVELS[..4].iter().enumerate() {
                assert_eq!(
                    ProjectAccessExtent::from_stored(higher, None)
                        .covers(ProjectAccessExtent::from_stored(lower, None)),
                    m <= n,
                    "{higher} {lower}"
                );
            }
            assert!(!ProjectAccessExtent::NONE.covers(ProjectAccessExtent::from_stored(higher, None)));
            assert!(
                ProjectAccessExtent::from_stored(higher, None).covers(ProjectAccessExtent::from_stored("custom", None))
            );
        }
        assert!(
            !ProjectAccessExtent::NONE.covers(ProjectAccessExtent::from_stored("custom", None)),
            "without access the project is hidden"
        );
    }

    #[test]
    fn every_custom_access_key_is_below_admin() {
        let keys = json!({
            "project-access": { "settings": "delete", "teams": "manage", "variable-sets": "write" },
            "workspace-access": { "runs": "apply", "sentinel-mocks": "read", "state-versions": "write",
                "variables": "write", "create": true, "locking": true, "delete": true, "move": true,
                "run-tasks": true, "policy-overrides": true },
        });
        let all = ProjectAccessExtent::from_stored("custom", Some(&keys.to_string()));
        assert!(
            !all.covers(ProjectAccessExtent::from_stored("maintain", None))
                && ProjectAccessExtent::from_stored("admin", None).covers(all)
        );
        assert!(
            all.union(ProjectAccessExtent::from_stored("maintain", None))
                .covers(ProjectAccessExtent::from_stored("admin", None)),
            "custom keys and a level add up"
        );
    }

    #[test]
    fn organization_flags_imply_access_to_each_project() {
        let on = |flags: &[OrganizationFlag], is_default| {
            ProjectAccessExtent::of_organization(organization(flags), is_default)
        };
        let admin = ProjectAccessExtent::from_stored("admin", None);
        let read = ProjectAccessExtent::from_stored("read", None);
        assert!(on(&[OrganizationFlag::ManageProjects], false).covers(admin));
        assert_eq!(on(&[OrganizationFlag::ManageTeams], true), ProjectAccessExtent::NONE);
        let manages = on(&[OrganizationFlag::ManageWorkspaces], false);
        assert!(
            !manages.covers(ProjectAccessExtent::from_stored("custom", None))
                && manages.covers(on(&[OrganizationFlag::ReadWorkspaces], false))
        );
        let creates =
            ProjectAccessExtent::from_stored("custom", Some(r#"{"workspace-access":{"create":true,"runs":"apply"}}"#));
        let moves = ProjectAccessExtent::from_stored("custom", Some(r#"{"workspace-access":{"move":true}}"#));
        let on_default = on(&[OrganizationFlag::ManageWorkspaces], true);
        assert!(on_default.covers(creates) && !on_default.covers(moves) && !on_default.covers(admin));
        assert!(
            !on(&[OrganizationFlag::ReadWorkspaces], true).covers(ProjectAccessExtent::from_stored("custom", None))
        );
        let reads = on(&[OrganizationFlag::ReadProjects], false);
        assert!(
            reads.covers(ProjectAccessExtent::from_stored("custom", None))
                && !reads.covers(creates)
                && !reads.covers(read)
        );
    }

    fn any_access() -> impl Strategy<Value = (&'static str, Option<String>)> {
        let flags = prop::collection::vec(any::<bool>(), 4);
        let keys = (0..3usize, 0..3usize, 0..3usize, flags).prop_map(|(settings, teams, runs, flags)| {
            let settings = ["read", "update", "delete"][settings];
            let teams = ["none", "read", "manage"][teams];
            let runs = ["read", "plan", "apply"][runs];
            json!({
                "project-access": { "settings": settings, "teams": teams },
                "workspace-access": { "runs": runs, "create": flags[0], "move": flags[1],
                    "delete": flags[2], "locking": flags[3] },
            })
            .to_string()
        });
        (0..LEVELS.len(), keys).prop_map(|(level, keys)| (LEVELS[level], (level == 4).then_some(keys)))
    }

    proptest! {
        /// Covered access grants no right, on the project or its workspaces, beyond those of the covering access.
        #[test]
        fn covered_project_access_grants_no_further_right(own in any_access(), other in any_access()) {
            let extent = |(level, keys): &(&str, Option<String>)| ProjectAccessExtent::from_stored(level, keys.as_deref());
            if extent(&own).covers(extent(&other)) {
                let project = |(level, keys): &(&str, Option<String>)| -> ProjectRights {
                    ProjectKeyRanks::from_stored(ProjectAccessLevel::of(level).unwrap(), keys.as_deref()).rights()
                };
                let workspace = |(level, keys): &(&str, Option<String>)| WorkspaceRights::of_level(level, keys.as_deref());
                prop_assert!(project(&own).has(project(&other)));
                prop_assert!(workspace(&own).has(workspace(&other)));
            }
        }
    }
}
