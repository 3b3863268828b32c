//! The access of a team to a workspace: a level such as `read`, or individual values of access keys such as `runs`.
//! [`workspace_access`](super::workspace_access) stores the access.

use serde_json::{Map, Value};

use super::access_values::ValueScale;
use super::attributes::AttributeReader;
use super::rejection::{Fault, Faults, WorkResult};
use crate::error::Kind;

/// The level of a team's access to a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceAccessLevel {
    /// The team may see the workspace.
    Read,
    /// The team may also queue plans.
    Plan,
    /// The team may also queue applies, lock the workspace, and change variables and state.
    Write,
    /// The team has all rights on the workspace.
    Admin,
    /// The value of each access key is set individually.
    Custom,
}

/// The levels, in the order of the values in each row of `WORKSPACE_KEYS`.
const WORKSPACE_LEVELS: [(&str, WorkspaceAccessLevel); 5] = [
    ("read", WorkspaceAccessLevel::Read),
    ("plan", WorkspaceAccessLevel::Plan),
    ("write", WorkspaceAccessLevel::Write),
    ("admin", WorkspaceAccessLevel::Admin),
    ("custom", WorkspaceAccessLevel::Custom),
];

impl WorkspaceAccessLevel {
    /// Parses the name of a level.
    pub fn of(word: &str) -> Option<Self> {
        WORKSPACE_LEVELS.iter().find(|(name, _)| *name == word).map(|(_, level)| *level)
    }

    /// Returns the name, as stored and in JSON.
    pub fn name(self) -> &'static str {
        WORKSPACE_LEVELS[self.index()].0
    }

    fn index(self) -> usize {
        WORKSPACE_LEVELS.iter().position(|(_, level)| *level == self).unwrap_or_default()
    }
}

/// A row of `WORKSPACE_KEYS`: attribute, values in ascending order of access, and the value that each level of
/// `WORKSPACE_LEVELS` implies.
struct WorkspaceKeyDefinition(&'static str, ValueScale, [&'static str; 5]);

const WORKSPACE_KEY_COUNT: usize = 7;

const WORKSPACE_KEYS: [WorkspaceKeyDefinition; WORKSPACE_KEY_COUNT] = {
    const FLAG: ValueScale = ValueScale::FLAG;
    [
        WorkspaceKeyDefinition(
            "runs",
            ValueScale(&["read", "plan", "apply"]),
            ["read", "plan", "apply", "apply", "read"],
        ),
        WorkspaceKeyDefinition(
            "variables",
            ValueScale(&["none", "read", "write"]),
            ["read", "read", "write", "write", "none"],
        ),
        WorkspaceKeyDefinition(
            "state-versions",
            ValueScale(&["none", "read-outputs", "read", "write"]),
            ["read", "read", "write", "write", "none"],
        ),
        WorkspaceKeyDefinition(
            "sentinel-mocks",
            ValueScale(&["none", "read"]),
            ["none", "none", "read", "read", "none"],
        ),
        WorkspaceKeyDefinition("workspace-locking", FLAG, ["false", "false", "true", "true", "false"]),
        WorkspaceKeyDefinition("run-tasks", FLAG, ["false", "false", "false", "true", "false"]),
        WorkspaceKeyDefinition("policy-overrides", FLAG, ["false", "false", "false", "true", "false"]),
    ]
};

/// A permission: the index of the access key that grants it, and the minimum rank of the key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspacePermission(usize, u8);

impl WorkspacePermission {
    /// Queue plans.
    pub const PLAN: Self = Self(0, 1);
    /// Queue applies.
    pub const APPLY: Self = Self(0, 2);
    /// Read variables.
    pub const READ_VARIABLES: Self = Self(1, 1);
    /// Change variables.
    pub const WRITE_VARIABLES: Self = Self(1, 2);
    /// Read the outputs of Terraform states.
    pub const READ_OUTPUTS: Self = Self(2, 1);
    /// Read whole Terraform states.
    pub const READ_STATE: Self = Self(2, 2);
    /// Write Terraform states.
    pub const WRITE_STATE: Self = Self(2, 3);
    /// Read Sentinel mocks, the mock data for policy tests.
    pub const READ_MOCKS: Self = Self(3, 1);
    /// Lock and unlock the workspace.
    pub const LOCK: Self = Self(4, 1);
    /// Manage run tasks.
    pub const RUN_TASKS: Self = Self(5, 1);
    /// Override policies.
    pub const OVERRIDE_POLICIES: Self = Self(6, 1);
}

/// The rank of each access key of a workspace: the index of its value on the scale of the key; 0 for the least access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceKeyRanks([u8; WORKSPACE_KEY_COUNT]);

impl WorkspaceKeyRanks {
    /// Returns the ranks that a level implies; for the custom level, the ranks before any key is set.
    pub fn of(level: WorkspaceAccessLevel) -> Self {
        let rank =
            |definition: &WorkspaceKeyDefinition| definition.1.rank(definition.2[level.index()]).unwrap_or_default();
        Self(std::array::from_fn(|index| rank(&WORKSPACE_KEYS[index])))
    }

    /// Reads ranks from stored keys. An absent key has the rank that the level implies.
    pub fn from_stored(level: WorkspaceAccessLevel, custom: Option<&str>) -> Self {
        let mut settings = Self::of(level);
        let Some(Ok(stored)) = custom.map(serde_json::from_str::<Value>) else { return settings };
        for (definition, rank) in WORKSPACE_KEYS.iter().zip(&mut settings.0) {
            *rank = definition.1.rank_of(&stored[definition.0]).unwrap_or(*rank);
        }
        settings
    }

    /// Returns the JSON text to store for the custom level, `None` for other levels.
    pub fn to_store(&self, level: WorkspaceAccessLevel) -> Option<String> {
        (level == WorkspaceAccessLevel::Custom).then(|| Value::Object(self.attributes()).to_string())
    }

    /// Returns the attributes of a response: all access keys with their values.
    pub fn attributes(&self) -> Map<String, Value> {
        WORKSPACE_KEYS
            .iter()
            .zip(self.0)
            .map(|(definition, rank)| (definition.0.to_owned(), definition.1.value(rank)))
            .collect()
    }

    /// `true` if the access key that grants the permission has at least the rank that the permission needs.
    pub fn allows(&self, permission: WorkspacePermission) -> bool {
        self.0[permission.0] >= permission.1
    }
}

/// The access keys that a request sets: pairs of the index in `WORKSPACE_KEYS` and the rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedWorkspaceKeys(Vec<(usize, u8)>);

impl RequestedWorkspaceKeys {
    /// Reads the access keys from the attributes of a request. Null values are ignored.
    pub fn read(attributes: &mut AttributeReader<'_>) -> Self {
        let mut named = Vec::new();
        for (index, WorkspaceKeyDefinition(name, words, _)) in WORKSPACE_KEYS.iter().enumerate() {
            let Some(value) = attributes.value(name).filter(|value| !value.is_null()) else { continue };
            match words.rank_of(value) {
                Some(rank) => named.push((index, rank)),
                None => attributes.fault(name, format!("{name} must be one of {}", words.0.join(", "))),
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
        level: WorkspaceAccessLevel,
        mut base: WorkspaceKeyRanks,
        before: Option<&WorkspaceKeyRanks>,
    ) -> WorkResult<WorkspaceKeyRanks> {
        if level == WorkspaceAccessLevel::Custom {
            for (index, rank) in &self.0 {
                base.0[*index] = *rank;
            }
            return Ok(base);
        }
        let is_shown = |(index, rank): &(usize, u8)| {
            base.0[*index] == *rank || before.is_some_and(|before| before.0[*index] == *rank)
        };
        let mut faults = Faults::default();
        for (index, _) in self.0.iter().filter(|key| !is_shown(key)) {
            let name = WORKSPACE_KEYS[*index].0;
            let detail = format!("{name} can only be set with custom access; the level is {}", level.name());
            faults.push(Fault::attribute(name, detail));
        }
        faults.finish(Kind::Invalid)?;
        Ok(base)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workspace_levels_imply_only_valid_key_values() {
        for WorkspaceKeyDefinition(name, words, levels) in &WORKSPACE_KEYS {
            assert!(levels.iter().all(|word| words.0.contains(word)), "{name}");
        }
        for (word, level) in WORKSPACE_LEVELS {
            assert_eq!((WorkspaceAccessLevel::of(word), level.name()), (Some(level), word));
        }
    }

    #[test]
    fn workspace_permissions_map_to_their_key_and_value() {
        type Permission = WorkspacePermission;
        for (permission, key, word) in [
            (Permission::PLAN, "runs", "plan"),
            (Permission::APPLY, "runs", "apply"),
            (Permission::READ_VARIABLES, "variables", "read"),
            (Permission::WRITE_VARIABLES, "variables", "write"),
            (Permission::READ_OUTPUTS, "state-versions", "read-outputs"),
            (Permission::READ_STATE, "state-versions", "read"),
            (Permission::WRITE_STATE, "state-versions", "write"),
            (Permission::READ_MOCKS, "sentinel-mocks", "read"),
            (Permission::LOCK, "workspace-locking", "true"),
            (Permission::RUN_TASKS, "run-tasks", "true"),
            (Permission::OVERRIDE_POLICIES, "policy-overrides", "true"),
        ] {
            let WorkspaceKeyDefinition(name, words, _) = &WORKSPACE_KEYS[permission.0];
            assert_eq!((*name, words.0[usize::from(permission.1)]), (key, word));
        }
    }

    #[test]
    fn custom_workspace_keys_survive_a_round_trip() {
        let body = json!({ "runs": "plan", "workspace-locking": true, "unknown": 1 });
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        let named = RequestedWorkspaceKeys::read(&mut attributes);
        assert!(attributes.has_no_faults());
        let custom = WorkspaceAccessLevel::Custom;
        let settings = named.apply_to(custom, WorkspaceKeyRanks::of(custom), None).ok().unwrap();
        assert!(settings.allows(WorkspacePermission::PLAN) && !settings.allows(WorkspacePermission::APPLY));
        assert!(settings.allows(WorkspacePermission::LOCK) && !settings.allows(WorkspacePermission::READ_VARIABLES));
        assert_eq!(WorkspaceKeyRanks::from_stored(custom, settings.to_store(custom).as_deref()), settings);
        let read = WorkspaceAccessLevel::Read;
        assert!(named.apply_to(read, WorkspaceKeyRanks::of(read), None).is_err());
        assert!(
            named.apply_to(read, WorkspaceKeyRanks::of(read), Some(&settings)).is_ok(),
            "an unchanged key is ignored at a predefined level"
        );
        assert_eq!(settings.to_store(read), None);
    }
}
