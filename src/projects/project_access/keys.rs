//! The keys of a team's access to a project, with their valid values and their value at each level.

use serde_json::{Value, json};

use super::super::access_words::Words;
use super::super::attributes::Attributes;
use super::super::refusal::{Fault, Faults, Outcome};
use super::super::rights::ProjectRights;
use super::Level;
use crate::error::Kind;

/// The attribute that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// `project-access`: the project itself.
    Project,
    /// `workspace-access`: its workspaces.
    Workspace,
}

impl Block {
    const ALL: [Self; 2] = [Self::Project, Self::Workspace];

    fn word(self) -> &'static str {
        match self {
            Self::Project => "project-access",
            Self::Workspace => "workspace-access",
        }
    }
}

/// A key. The discriminant is the index of its row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The project's settings.
    Settings,
    /// The teams' access to the project.
    Teams,
    /// Variable sets.
    VariableSets,
    /// Runs of workspaces.
    Runs,
    /// Mocks for policies.
    SentinelMocks,
    /// States.
    StateVersions,
    /// Variables.
    Variables,
    /// Creating workspaces.
    Create,
    /// Locking and unlocking workspaces.
    Locking,
    /// Deleting workspaces.
    Delete,
    /// Moving workspaces into and out of the project.
    Move,
    /// Run tasks.
    RunTasks,
    /// Overriding policies.
    PolicyOverrides,
}

/// A row of the table: key, block, name, values in ascending order, and the value at each level.
struct Form(Key, Block, &'static str, Words, [&'static str; 5]);

const FLAG: Words = Words::FLAG;

const FORMS: [Form; PLACES] = {
    use Block::{Project, Workspace};
    const THREE: Words = Words(&["none", "read", "write"]);
    const STATES: Words = Words(&["none", "read-outputs", "read", "write"]);
    [
        Form(
            Key::Settings,
            Project,
            "settings",
            Words(&["read", "update", "delete"]),
            ["read", "read", "read", "delete", "read"],
        ),
        Form(
            Key::Teams,
            Project,
            "teams",
            Words(&["none", "read", "manage"]),
            ["none", "none", "none", "manage", "none"],
        ),
        Form(Key::VariableSets, Project, "variable-sets", THREE, ["read", "read", "write", "write", "none"]),
        Form(
            Key::Runs,
            Workspace,
            "runs",
            Words(&["read", "plan", "apply"]),
            ["read", "apply", "apply", "apply", "read"],
        ),
        Form(
            Key::SentinelMocks,
            Workspace,
            "sentinel-mocks",
            Words(&["none", "read"]),
            ["none", "read", "read", "read", "none"],
        ),
        Form(Key::StateVersions, Workspace, "state-versions", STATES, ["read", "write", "write", "write", "none"]),
        Form(Key::Variables, Workspace, "variables", THREE, ["read", "write", "write", "write", "none"]),
        Form(Key::Create, Workspace, "create", FLAG, ["false", "false", "true", "true", "false"]),
        Form(Key::Locking, Workspace, "locking", FLAG, ["false", "true", "true", "true", "false"]),
        Form(Key::Delete, Workspace, "delete", FLAG, ["false", "false", "true", "true", "false"]),
        Form(Key::Move, Workspace, "move", FLAG, ["false", "false", "false", "true", "false"]),
        Form(Key::RunTasks, Workspace, "run-tasks", FLAG, ["false", "false", "true", "true", "false"]),
        Form(Key::PolicyOverrides, Workspace, "policy-overrides", FLAG, ["false", "false", "false", "true", "false"]),
    ]
};

/// Number of keys.
pub const PLACES: usize = 13;

/// Returns the keys of a block.
pub fn keys_of(block: Block) -> impl Iterator<Item = Key> {
    FORMS.iter().filter(move |form| form.1 == block).map(|form| form.0)
}

impl Key {
    /// Returns the index of the key.
    pub const fn place(self) -> usize {
        self as usize
    }

    fn attribute(self) -> String {
        let Form(_, block, name, ..) = &FORMS[self.place()];
        format!("{}/{name}", block.word())
    }
}

impl Form {
    fn at(&self, level: Level) -> u8 {
        self.3.rank(self.4[level.column()]).unwrap_or_default()
    }
}

/// A minimum rank of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach(Key, u8);

impl Reach {
    /// Change the project's settings.
    pub const UPDATE: Self = Self(Key::Settings, 1);
    /// Delete the project.
    pub const DELETE_PROJECT: Self = Self(Key::Settings, 2);
    /// See the access of other teams.
    pub const READ_TEAMS: Self = Self(Key::Teams, 1);
    /// Manage the access of other teams.
    pub const MANAGE_TEAMS: Self = Self(Key::Teams, 2);
    /// Queue plans.
    pub const PLAN: Self = Self(Key::Runs, 1);
    /// Queue applies.
    pub const APPLY: Self = Self(Key::Runs, 2);
    /// Read outputs of states.
    pub const READ_OUTPUTS: Self = Self(Key::StateVersions, 1);
    /// Read whole states.
    pub const READ_STATE: Self = Self(Key::StateVersions, 2);
    /// Write states.
    pub const WRITE_STATE: Self = Self(Key::StateVersions, 3);
    /// Read mocks for policies.
    pub const READ_MOCKS: Self = Self(Key::SentinelMocks, 1);
    /// Read variables.
    pub const READ_VARIABLES: Self = Self(Key::Variables, 1);
    /// Change variables.
    pub const WRITE_VARIABLES: Self = Self(Key::Variables, 2);
    /// Create workspaces.
    pub const CREATE: Self = Self(Key::Create, 1);
    /// Lock and unlock workspaces.
    pub const LOCK: Self = Self(Key::Locking, 1);
    /// Delete workspaces.
    pub const DELETE: Self = Self(Key::Delete, 1);
    /// Move workspaces into and out of the project.
    pub const MOVE: Self = Self(Key::Move, 1);
    /// Manage run tasks.
    pub const RUN_TASKS: Self = Self(Key::RunTasks, 1);
    /// Override policies.
    pub const OVERRIDE_POLICIES: Self = Self(Key::PolicyOverrides, 1);
}

/// The rank of every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings([u8; PLACES]);

impl Settings {
    /// Returns the values of a level; for the custom level, the initial values.
    pub fn of(level: Level) -> Self {
        Self(std::array::from_fn(|place| FORMS[place].at(level)))
    }

    /// Reads stored values. An absent key has the value of the level.
    pub fn stored(level: Level, custom: Option<&str>) -> Self {
        let mut settings = Self::of(level);
        let Some(Ok(stored)) = custom.map(serde_json::from_str::<Value>) else { return settings };
        for (form, rank) in FORMS.iter().zip(&mut settings.0) {
            *rank = form.3.rank_of(&stored[form.1.word()][form.2]).unwrap_or(*rank);
        }
        settings
    }

    /// Returns the stored form: both blocks for the custom level, `None` for predefined levels.
    pub fn to_store(&self, level: Level) -> Option<String> {
        (level == Level::Custom).then(|| {
            let (project, workspace) = self.blocks();
            json!({ Block::Project.word(): project, Block::Workspace.word(): workspace }).to_string()
        })
    }

    /// Returns the blocks `project-access` and `workspace-access` with all keys.
    pub fn blocks(&self) -> (Value, Value) {
        let block = |block| {
            let keys = FORMS.iter().zip(self.0).filter(|(form, _)| form.1 == block);
            Value::Object(keys.map(|(form, rank)| (form.2.to_owned(), form.3.value(rank))).collect())
        };
        (block(Block::Project), block(Block::Workspace))
    }

    /// Returns the resulting rights on the project.
    pub fn rights(&self) -> ProjectRights {
        let mut rights = ProjectRights::READ;
        for (reach, right) in [
            (Reach::UPDATE, ProjectRights::UPDATE),
            (Reach::DELETE_PROJECT, ProjectRights::DESTROY),
            (Reach::MANAGE_TEAMS, ProjectRights::MANAGE_TEAMS),
            (Reach::CREATE, ProjectRights::CREATE_WORKSPACE),
            (Reach::MOVE, ProjectRights::MOVE_WORKSPACE),
        ] {
            if self.go(reach) {
                rights |= right;
            }
        }
        rights
    }

    /// `true` if a key has at least this rank.
    pub fn go(&self, reach: Reach) -> bool {
        self.0[reach.0.place()] >= reach.1
    }

    /// Returns the rank of each key.
    pub fn ranks(&self) -> [u8; PLACES] {
        self.0
    }
}

/// The keys that a request sets, with their ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named(Vec<(Key, u8)>);

impl Named {
    /// Reads both blocks. Unknown keys and null values are ignored.
    pub fn read(attributes: &mut Attributes<'_>) -> Self {
        let mut named = Vec::new();
        for block in Block::ALL {
            let Some(members) = attributes.object(block.word()).value() else { continue };
            for form in FORMS.iter().filter(|form| form.1 == block) {
                let Form(key, _, name, words, _) = form;
                let Some(value) = members.get(*name).filter(|value| !value.is_null()) else { continue };
                match form.3.rank_of(value) {
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

    /// Applies these keys to `base`: the values of the level, or the stored values of a custom one. `before` are the
    /// values that documents have shown so far; repeating one of them changes nothing.
    ///
    /// # Errors
    /// `Invalid` for each key that differs from its value at a predefined level.
    pub fn over(&self, level: Level, mut base: Settings, before: Option<&Settings>) -> Outcome<Settings> {
        if level != Level::Custom {
            let is_said = |key: Key, rank| {
                let place = key.place();
                base.0[place] == rank || before.is_some_and(|before| before.0[place] == rank)
            };
            let mut faults = Faults::default();
            for (key, _) in self.0.iter().filter(|(key, rank)| !is_said(*key, *rank)) {
                let name = FORMS[key.place()].2;
                let detail = format!("{name} can only be set with custom access, the level is {}", level.word());
                faults.push(Fault::attribute(&key.attribute(), detail));
            }
            faults.finish(Kind::Invalid)?;
            return Ok(base);
        }
        for (key, rank) in &self.0 {
            base.0[key.place()] = *rank;
        }
        Ok(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For any stored or sent value, each key has one of its valid values.
        #[test]
        fn keys_never_have_another_value(key in 0..PLACES, word in "[a-z-]{0,12}", flag: Option<bool>) {
            let Form(_, block, name, words, _) = &FORMS[key];
            let value = flag.map_or_else(|| Value::from(word), Value::from);
            let body = json!({ block.word(): { *name: value } });
            let stored = Settings::stored(Level::Custom, Some(&body.to_string()));
            prop_assert!(usize::from(stored.ranks()[key]) < words.0.len());
            let mut attributes = Attributes::new(body.as_object().unwrap());
            let named = Named::read(&mut attributes);
            prop_assert_eq!(attributes.is_sound(), named != Named::default());
            if let Ok(settings) = named.over(Level::Custom, Settings::of(Level::Custom), None) {
                prop_assert_eq!(settings, stored);
            }
        }
    }

    #[test]
    fn levels_amount_to_rights() {
        const READ: ProjectRights = ProjectRights::READ;
        for (level, rights) in [
            (Level::Read, READ),
            (Level::Write, READ),
            (Level::Maintain, READ | ProjectRights::CREATE_WORKSPACE),
            (Level::Admin, ProjectRights::ALL),
            (Level::Custom, READ),
        ] {
            assert_eq!(Settings::of(level).rights(), rights, "{level:?}");
            assert_eq!(Level::of(level.word()), Some(level));
        }
    }

    #[test]
    fn every_value_is_one_of_its_key() {
        for (place, Form(key, block, name, words, levels)) in FORMS.iter().enumerate() {
            assert!(levels.iter().all(|word| words.0.contains(word)), "{block:?} {name}");
            assert_eq!(key.place(), place, "{block:?} {name}");
        }
    }

    #[test]
    fn what_keys_reach_has_its_word() {
        for (reach, attribute, word) in [
            (Reach::UPDATE, "project-access/settings", "update"),
            (Reach::DELETE_PROJECT, "project-access/settings", "delete"),
            (Reach::READ_TEAMS, "project-access/teams", "read"),
            (Reach::MANAGE_TEAMS, "project-access/teams", "manage"),
            (Reach::PLAN, "workspace-access/runs", "plan"),
            (Reach::APPLY, "workspace-access/runs", "apply"),
            (Reach::READ_OUTPUTS, "workspace-access/state-versions", "read-outputs"),
            (Reach::READ_STATE, "workspace-access/state-versions", "read"),
            (Reach::WRITE_STATE, "workspace-access/state-versions", "write"),
            (Reach::READ_MOCKS, "workspace-access/sentinel-mocks", "read"),
            (Reach::READ_VARIABLES, "workspace-access/variables", "read"),
            (Reach::WRITE_VARIABLES, "workspace-access/variables", "write"),
            (Reach::CREATE, "workspace-access/create", "true"),
            (Reach::LOCK, "workspace-access/locking", "true"),
            (Reach::DELETE, "workspace-access/delete", "true"),
            (Reach::MOVE, "workspace-access/move", "true"),
            (Reach::RUN_TASKS, "workspace-access/run-tasks", "true"),
            (Reach::OVERRIDE_POLICIES, "workspace-access/policy-overrides", "true"),
        ] {
            let Reach(key, rank) = reach;
            assert_eq!((&key.attribute()[..], FORMS[key.place()].3.0[usize::from(rank)]), (attribute, word));
        }
    }

    #[test]
    fn custom_keys_are_named_stored_and_read_again() {
        let body =
            json!({ "project-access": { "settings": "update", "unknown": 1 }, "workspace-access": { "move": true } });
        let mut attributes = Attributes::new(body.as_object().unwrap());
        let named = Named::read(&mut attributes);
        assert!(attributes.is_sound());
        let settings = named.over(Level::Custom, Settings::of(Level::Custom), None).ok().unwrap();
        assert_eq!(settings.rights(), ProjectRights::READ | ProjectRights::UPDATE | ProjectRights::MOVE_WORKSPACE);
        assert_eq!(Settings::stored(Level::Custom, settings.to_store(Level::Custom).as_deref()), settings);
        let (read, admin) = (Settings::of(Level::Read), Settings::of(Level::Admin));
        assert!(named.over(Level::Read, read.clone(), None).is_err());
        assert!(named.over(Level::Read, read.clone(), Some(&settings)).is_ok(), "as it was shown before");
        let moves = Named(vec![(Key::Move, 1)]);
        assert!(moves.over(Level::Admin, admin, None).is_ok() && moves.over(Level::Read, read, None).is_err());
        assert_eq!(Settings::of(Level::Admin).to_store(Level::Admin), None);
    }

    #[test]
    fn a_value_of_another_kind_is_told() {
        let body = json!({ "project-access": { "teams": "x" }, "workspace-access": { "move": "true", "runs": true } });
        let mut attributes = Attributes::new(body.as_object().unwrap());
        assert_eq!(Named::read(&mut attributes), Named::default());
        let Err(super::super::super::refusal::Stop::Refused(refusal)) = attributes.finish() else { panic!("refused") };
        let details: Vec<_> = refusal.faults.iter().map(|fault| &*fault.detail).collect();
        let expected = [
            "teams must be one of none, read, manage",
            "runs must be one of read, plan, apply",
            "move must be one of false, true",
        ];
        assert_eq!(details, expected);
    }
}
