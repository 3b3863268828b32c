//! The keys of a team's access to a project, such as `runs`, with their valid values and the value that each level
//! implies.

use serde_json::{Value, json};

use super::super::access_values::ValueScale;
use super::super::attributes::AttributeReader;
use super::super::rejection::{Fault, Faults, WorkResult};
use super::super::rights::ProjectRights;
use super::ProjectAccessLevel;
use crate::error::Kind;

/// The attribute of a request or response that contains an access key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectKeyBlock {
    /// `project-access`: keys for the project itself.
    Project,
    /// `workspace-access`: keys for the project's workspaces.
    Workspace,
}

impl ProjectKeyBlock {
    const ALL: [Self; 2] = [Self::Project, Self::Workspace];

    fn name(self) -> &'static str {
        match self {
            Self::Project => "project-access",
            Self::Workspace => "workspace-access",
        }
    }
}

/// An access key. The discriminant is the index of its row in `PROJECT_KEYS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectAccessKey {
    /// Reading, updating and deleting the project.
    Settings,
    /// Reading and managing the access of teams to the project.
    Teams,
    /// Reading and writing variable sets.
    VariableSets,
    /// Reading, planning and applying runs.
    Runs,
    /// Reading Sentinel mocks, the mock data for policy tests.
    SentinelMocks,
    /// Reading and writing Terraform states.
    StateVersions,
    /// Reading and writing variables of workspaces.
    Variables,
    /// Creating workspaces.
    Create,
    /// Locking and unlocking workspaces.
    Locking,
    /// Deleting workspaces.
    Delete,
    /// Moving workspaces into and out of the project.
    Move,
    /// Managing run tasks.
    RunTasks,
    /// Overriding policies.
    PolicyOverrides,
}

/// A row of `PROJECT_KEYS`: key, block, name, values in ascending order of access, and the value that each level of
/// `PROJECT_LEVELS` implies.
struct ProjectKeyDefinition(ProjectAccessKey, ProjectKeyBlock, &'static str, ValueScale, [&'static str; 5]);

const FLAG: ValueScale = ValueScale::FLAG;

const PROJECT_KEYS: [ProjectKeyDefinition; PROJECT_KEY_COUNT] = {
    use ProjectKeyBlock::{Project, Workspace};
    const NONE_READ_WRITE: ValueScale = ValueScale(&["none", "read", "write"]);
    const STATES: ValueScale = ValueScale(&["none", "read-outputs", "read", "write"]);
    [
        ProjectKeyDefinition(
            ProjectAccessKey::Settings,
            Project,
            "settings",
            ValueScale(&["read", "update", "delete"]),
            ["read", "read", "read", "delete", "read"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::Teams,
            Project,
            "teams",
            ValueScale(&["none", "read", "manage"]),
            ["none", "none", "none", "manage", "none"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::VariableSets,
            Project,
            "variable-sets",
            NONE_READ_WRITE,
            ["read", "read", "write", "write", "none"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::Runs,
            Workspace,
            "runs",
            ValueScale(&["read", "plan", "apply"]),
            ["read", "apply", "apply", "apply", "read"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::SentinelMocks,
            Workspace,
            "sentinel-mocks",
            ValueScale(&["none", "read"]),
            ["none", "read", "read", "read", "none"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::StateVersions,
            Workspace,
            "state-versions",
            STATES,
            ["read", "write", "write", "write", "none"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::Variables,
            Workspace,
            "variables",
            NONE_READ_WRITE,
            ["read", "write", "write", "write", "none"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::Create,
            Workspace,
            "create",
            FLAG,
            ["false", "false", "true", "true", "false"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::Locking,
            Workspace,
            "locking",
            FLAG,
            ["false", "true", "true", "true", "false"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::Delete,
            Workspace,
            "delete",
            FLAG,
            ["false", "false", "true", "true", "false"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::Move,
            Workspace,
            "move",
            FLAG,
            ["false", "false", "false", "true", "false"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::RunTasks,
            Workspace,
            "run-tasks",
            FLAG,
            ["false", "false", "true", "true", "false"],
        ),
        ProjectKeyDefinition(
            ProjectAccessKey::PolicyOverrides,
            Workspace,
            "policy-overrides",
            FLAG,
            ["false", "false", "false", "true", "false"],
        ),
    ]
};

/// Number of access keys of a project.
pub const PROJECT_KEY_COUNT: usize = 13;

/// Returns the access keys of a block.
pub fn keys_of(block: ProjectKeyBlock) -> impl Iterator<Item = ProjectAccessKey> {
    PROJECT_KEYS.iter().filter(move |definition| definition.1 == block).map(|definition| definition.0)
}

impl ProjectAccessKey {
    /// Returns the index of the key in `PROJECT_KEYS`.
    pub const fn index(self) -> usize {
        self as usize
    }

    fn attribute(self) -> String {
        let ProjectKeyDefinition(_, block, name, ..) = &PROJECT_KEYS[self.index()];
        format!("{}/{name}", block.name())
    }
}

impl ProjectKeyDefinition {
    fn rank_at(&self, level: ProjectAccessLevel) -> u8 {
        self.3.rank(self.4[level.index()]).unwrap_or_default()
    }
}

/// A permission: the access key that grants it, and the minimum rank of the key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectPermission(ProjectAccessKey, u8);

impl ProjectPermission {
    /// Change the project's settings.
    pub const UPDATE: Self = Self(ProjectAccessKey::Settings, 1);
    /// Delete the project.
    pub const DELETE_PROJECT: Self = Self(ProjectAccessKey::Settings, 2);
    /// See the access of other teams.
    pub const READ_TEAMS: Self = Self(ProjectAccessKey::Teams, 1);
    /// Manage the access of other teams.
    pub const MANAGE_TEAMS: Self = Self(ProjectAccessKey::Teams, 2);
    /// Queue plans.
    pub const PLAN: Self = Self(ProjectAccessKey::Runs, 1);
    /// Queue applies.
    pub const APPLY: Self = Self(ProjectAccessKey::Runs, 2);
    /// Read the outputs of Terraform states.
    pub const READ_OUTPUTS: Self = Self(ProjectAccessKey::StateVersions, 1);
    /// Read whole Terraform states.
    pub const READ_STATE: Self = Self(ProjectAccessKey::StateVersions, 2);
    /// Write Terraform states.
    pub const WRITE_STATE: Self = Self(ProjectAccessKey::StateVersions, 3);
    /// Read Sentinel mocks, the mock data for policy tests.
    pub const READ_MOCKS: Self = Self(ProjectAccessKey::SentinelMocks, 1);
    /// Read variables.
    pub const READ_VARIABLES: Self = Self(ProjectAccessKey::Variables, 1);
    /// Change variables.
    pub const WRITE_VARIABLES: Self = Self(ProjectAccessKey::Variables, 2);
    /// Create workspaces.
    pub const CREATE: Self = Self(ProjectAccessKey::Create, 1);
    /// Lock and unlock workspaces.
    pub const LOCK: Self = Self(ProjectAccessKey::Locking, 1);
    /// Delete workspaces.
    pub const DELETE: Self = Self(ProjectAccessKey::Delete, 1);
    /// Move workspaces into and out of the project.
    pub const MOVE: Self = Self(ProjectAccessKey::Move, 1);
    /// Manage run tasks.
    pub const RUN_TASKS: Self = Self(ProjectAccessKey::RunTasks, 1);
    /// Override policies.
    pub const OVERRIDE_POLICIES: Self = Self(ProjectAccessKey::PolicyOverrides, 1);
}

/// The rank of each access key of a project: the index of its value on the scale of the key; 0 for the least access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectKeyRanks([u8; PROJECT_KEY_COUNT]);

impl ProjectKeyRanks {
    /// Returns the ranks that a level implies; for the custom level, the ranks before any key is set.
    pub fn of(level: ProjectAccessLevel) -> Self {
        Self(std::array::from_fn(|index| PROJECT_KEYS[index].rank_at(level)))
    }

    /// Reads ranks from stored keys. An absent key has the rank that the level implies.
    pub fn from_stored(level: ProjectAccessLevel, custom: Option<&str>) -> Self {
        let mut settings = Self::of(level);
        let Some(Ok(stored)) = custom.map(serde_json::from_str::<Value>) else { return settings };
        for (definition, rank) in PROJECT_KEYS.iter().zip(&mut settings.0) {
            *rank = definition.3.rank_of(&stored[definition.1.name()][definition.2]).unwrap_or(*rank);
        }
        settings
    }

    /// Returns the JSON text to store: both blocks for the custom level, `None` for other levels.
    pub fn to_store(&self, level: ProjectAccessLevel) -> Option<String> {
        (level == ProjectAccessLevel::Custom).then(|| {
            let (project, workspace) = self.blocks();
            json!({ ProjectKeyBlock::Project.name(): project, ProjectKeyBlock::Workspace.name(): workspace })
                .to_string()
        })
    }

    /// Returns the attributes `project-access` and `workspace-access` of a response, with all keys.
    pub fn blocks(&self) -> (Value, Value) {
        let block = |block| {
            let keys = PROJECT_KEYS.iter().zip(self.0).filter(|(definition, _)| definition.1 == block);
            Value::Object(keys.map(|(definition, rank)| (definition.2.to_owned(), definition.3.value(rank))).collect())
        };
        (block(ProjectKeyBlock::Project), block(ProjectKeyBlock::Workspace))
    }

    /// Returns the rights on the project that the access keys grant.
    pub fn rights(&self) -> ProjectRights {
        let mut rights = ProjectRights::READ;
        for (permission, right) in [
            (ProjectPermission::UPDATE, ProjectRights::UPDATE),
            (ProjectPermission::DELETE_PROJECT, ProjectRights::DESTROY),
            (ProjectPermission::MANAGE_TEAMS, ProjectRights::MANAGE_TEAMS),
            (ProjectPermission::CREATE, ProjectRights::CREATE_WORKSPACE),
            (ProjectPermission::MOVE, ProjectRights::MOVE_WORKSPACE),
        ] {
            if self.allows(permission) {
                rights |= right;
            }
        }
        rights
    }

    /// `true` if the key of the permission has at least the rank that the permission needs.
    pub fn allows(&self, permission: ProjectPermission) -> bool {
        self.0[permission.0.index()] >= permission.1
    }

    /// Returns the rank of each key.
    pub fn ranks(&self) -> [u8; PROJECT_KEY_COUNT] {
        self.0
    }
}

/// The access keys that a request sets, with their ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedProjectKeys(Vec<(ProjectAccessKey, u8)>);

impl RequestedProjectKeys {
    /// Reads the attributes `project-access` and `workspace-access`. Unknown keys and null values are ignored.
    pub fn read(attributes: &mut AttributeReader<'_>) -> Self {
        let mut named = Vec::new();
        for block in ProjectKeyBlock::ALL {
            let Some(members) = attributes.object(block.name()).value() else { continue };
            for definition in PROJECT_KEYS.iter().filter(|definition| definition.1 == block) {
                let ProjectKeyDefinition(key, _, name, words, _) = definition;
                let Some(value) = members.get(*name).filter(|value| !value.is_null()) else { continue };
                match definition.3.rank_of(value) {
                    Some(rank) => named.push((*key, rank)),
                    None => {
                        let detail = format!("{name} must be one of {}", words.0.join(", "));
                        attributes.fault(&key.attribute(), detail);
                    }
                }
            }
        }
        Self(named)
    }

    /// Applies these keys to `base`: the ranks that a predefined level implies, or the stored ranks of the custom
    /// level. At a predefined level, a key is ignored if it repeats its rank in `before`, the stored ranks, because
    /// clients send back the values that they have read.
    ///
    /// # Errors
    /// `Invalid`, with a fault for each other key that differs from `base` at a predefined level.
    pub fn apply_to(
        &self,
        level: ProjectAccessLevel,
        mut base: ProjectKeyRanks,
        before: Option<&ProjectKeyRanks>,
    ) -> WorkResult<ProjectKeyRanks> {
        if level != ProjectAccessLevel::Custom {
            let is_unchanged = |key: ProjectAccessKey, rank| {
                let index = key.index();
                base.0[index] == rank || before.is_some_and(|before| before.0[index] == rank)
            };
            let mut faults = Faults::default();
            for (key, _) in self.0.iter().filter(|(key, rank)| !is_unchanged(*key, *rank)) {
                let name = PROJECT_KEYS[key.index()].2;
                let detail = format!("{name} can only be set with custom access; the level is {}", level.name());
                faults.push(Fault::attribute(&key.attribute(), detail));
            }
            faults.finish(Kind::Invalid)?;
            return Ok(base);
        }
        for (key, rank) in &self.0 {
            base.0[key.index()] = *rank;
        }
        Ok(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever value is stored or requested for an access key, the key gets one of its valid values.
        #[test]
        fn access_keys_accept_only_valid_values(key in 0..PROJECT_KEY_COUNT, word in "[a-z-]{0,12}", flag: Option<bool>) {
            let ProjectKeyDefinition(_, block, name, words, _) = &PROJECT_KEYS[key];
            let value = flag.map_or_else(|| Value::from(word), Value::from);
            let body = json!({ block.name(): { *name: value } });
            let stored = ProjectKeyRanks::from_stored(ProjectAccessLevel::Custom, Some(&body.to_string()));
            prop_assert!(usize::from(stored.ranks()[key]) < words.0.len());
            let mut attributes = AttributeReader::new(body.as_object().unwrap());
            let named = RequestedProjectKeys::read(&mut attributes);
            prop_assert_eq!(attributes.has_no_faults(), named != RequestedProjectKeys::default());
            if let Ok(settings) = named.apply_to(ProjectAccessLevel::Custom, ProjectKeyRanks::of(ProjectAccessLevel::Custom), None) {
                prop_assert_eq!(settings, stored);
            }
        }
    }

    #[test]
    fn project_access_levels_imply_rights() {
        const READ: ProjectRights = ProjectRights::READ;
        for (level, rights) in [
            (ProjectAccessLevel::Read, READ),
            (ProjectAccessLevel::Write, READ),
            (ProjectAccessLevel::Maintain, READ | ProjectRights::CREATE_WORKSPACE),
            (ProjectAccessLevel::Admin, ProjectRights::ALL),
            (ProjectAccessLevel::Custom, READ),
        ] {
            assert_eq!(ProjectKeyRanks::of(level).rights(), rights, "{level:?}");
            assert_eq!(ProjectAccessLevel::of(level.name()), Some(level));
        }
    }

    #[test]
    fn project_levels_imply_only_valid_key_values() {
        for (index, ProjectKeyDefinition(key, block, name, words, levels)) in PROJECT_KEYS.iter().enumerate() {
            assert!(levels.iter().all(|word| words.0.contains(word)), "{block:?} {name}");
            assert_eq!(key.index(), index, "{block:?} {name}");
        }
    }

    #[test]
    fn project_permissions_map_to_their_key_and_value() {
        for (permission, attribute, word) in [
            (ProjectPermission::UPDATE, "project-access/settings", "update"),
            (ProjectPermission::DELETE_PROJECT, "project-access/settings", "delete"),
            (ProjectPermission::READ_TEAMS, "project-access/teams", "read"),
            (ProjectPermission::MANAGE_TEAMS, "project-access/teams", "manage"),
            (ProjectPermission::PLAN, "workspace-access/runs", "plan"),
            (ProjectPermission::APPLY, "workspace-access/runs", "apply"),
            (ProjectPermission::READ_OUTPUTS, "workspace-access/state-versions", "read-outputs"),
            (ProjectPermission::READ_STATE, "workspace-access/state-versions", "read"),
            (ProjectPermission::WRITE_STATE, "workspace-access/state-versions", "write"),
            (ProjectPermission::READ_MOCKS, "workspace-access/sentinel-mocks", "read"),
            (ProjectPermission::READ_VARIABLES, "workspace-access/variables", "read"),
            (ProjectPermission::WRITE_VARIABLES, "workspace-access/variables", "write"),
            (ProjectPermission::CREATE, "workspace-access/create", "true"),
            (ProjectPermission::LOCK, "workspace-access/locking", "true"),
            (ProjectPermission::DELETE, "workspace-access/delete", "true"),
            (ProjectPermission::MOVE, "workspace-access/move", "true"),
            (ProjectPermission::RUN_TASKS, "workspace-access/run-tasks", "true"),
            (ProjectPermission::OVERRIDE_POLICIES, "workspace-access/policy-overrides", "true"),
        ] {
            let ProjectPermission(key, rank) = permission;
            assert_eq!((&key.attribute()[..], PROJECT_KEYS[key.index()].3.0[usize::from(rank)]), (attribute, word));
        }
    }

    #[test]
    fn custom_project_keys_survive_a_round_trip() {
        let body =
            json!({ "project-access": { "settings": "update", "unknown": 1 }, "workspace-access": { "move": true } });
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        let named = RequestedProjectKeys::read(&mut attributes);
        assert!(attributes.has_no_faults());
        let settings = named
            .apply_to(ProjectAccessLevel::Custom, ProjectKeyRanks::of(ProjectAccessLevel::Custom), None)
            .ok()
            .unwrap();
        assert_eq!(settings.rights(), ProjectRights::READ | ProjectRights::UPDATE | ProjectRights::MOVE_WORKSPACE);
        assert_eq!(
            ProjectKeyRanks::from_stored(
                ProjectAccessLevel::Custom,
                settings.to_store(ProjectAccessLevel::Custom).as_deref()
            ),
            settings
        );
        let read = ProjectKeyRanks::of(ProjectAccessLevel::Read);
        let admin = ProjectKeyRanks::of(ProjectAccessLevel::Admin);
        assert!(named.apply_to(ProjectAccessLevel::Read, read.clone(), None).is_err());
        assert!(
            named.apply_to(ProjectAccessLevel::Read, read.clone(), Some(&settings)).is_ok(),
            "an unchanged key is ignored at a predefined level"
        );
        let moves = RequestedProjectKeys(vec![(ProjectAccessKey::Move, 1)]);
        assert!(
            moves.apply_to(ProjectAccessLevel::Admin, admin, None).is_ok()
                && moves.apply_to(ProjectAccessLevel::Read, read, None).is_err()
        );
        assert_eq!(ProjectKeyRanks::of(ProjectAccessLevel::Admin).to_store(ProjectAccessLevel::Admin), None);
    }

    #[test]
    fn project_keys_with_invalid_values_are_reported() {
        let body = json!({ "project-access": { "teams": "x" }, "workspace-access": { "move": "true", "runs": true } });
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        assert_eq!(RequestedProjectKeys::read(&mut attributes), RequestedProjectKeys::default());
        let Err(super::super::super::rejection::WorkError::Refused(refusal)) = attributes.finish() else {
            panic!("refused")
        };
        let details: Vec<_> = refusal.faults.iter().map(|fault| &*fault.detail).collect();
        let expected = [
            "teams must be one of none, read, manage",
            "runs must be one of read, plan, apply",
            "move must be one of false, true",
        ];
        assert_eq!(details, expected);
    }
}
