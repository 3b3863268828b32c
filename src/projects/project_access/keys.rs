//! The keys of a team's access to a project: what each may say, and what each level has for it.

use serde_json::{Value, json};

use super::super::access_words::Words;
use super::super::attributes::Attributes;
use super::super::refusal::{Fault, Faults, Outcome};
use super::super::rights::ProjectRights;
use super::Level;
use crate::error::Kind;

/// What keys are about: the attributes of the two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// The project itself.
    Project,
    /// Its workspaces.
    Workspace,
}

impl Block {
    const ALL: [Self; 2] = [Self::Project, Self::Workspace];

    /// The attribute.
    fn word(self) -> &'static str {
        match self {
            Self::Project => "project-access",
            Self::Workspace => "workspace-access",
        }
    }
}

/// One key; the place among the keys is that of its row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The project's settings.
    Settings,
    /// The teams' access to the project.
    Teams,
    /// Sets of variables.
    VariableSets,
    /// Runs of workspaces.
    Runs,
    /// Mocks for policies.
    SentinelMocks,
    /// States.
    StateVersions,
    /// Variables.
    Variables,
    /// Making workspaces.
    Create,
    /// Locking and unlocking them.
    Locking,
    /// Deleting them.
    Delete,
    /// Moving them in and out.
    Move,
    /// Their run tasks.
    RunTasks,
    /// Overriding policies.
    PolicyOverrides,
}

/// A row of the table: the key, its block, its name, what it may say from the least to the most, and its word at
/// each level.
struct Form(Key, Block, &'static str, Words, [&'static str; 5]);

/// The words of a truth value.
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

/// How many keys there are.
pub const PLACES: usize = 13;

/// The keys of a block.
pub fn keys_of(block: Block) -> impl Iterator<Item = Key> {
    FORMS.iter().filter(move |form| form.1 == block).map(|form| form.0)
}

impl Key {
    /// Its place among the keys.
    pub const fn place(self) -> usize {
        self as usize
    }

    /// The attribute that names it, below `/data/attributes`.
    fn attribute(self) -> String {
        let Form(_, block, name, ..) = &FORMS[self.place()];
        format!("{}/{name}", block.word())
    }
}

impl Form {
    /// How far its word at a level goes.
    fn at(&self, level: Level) -> u8 {
        self.3.rank(self.4[level.column()]).unwrap_or_default()
    }
}

/// That a key goes so far at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach(Key, u8);

impl Reach {
    /// The project's settings may be changed.
    pub const UPDATE: Self = Self(Key::Settings, 1);
    /// The project may be deleted.
    pub const DELETE_PROJECT: Self = Self(Key::Settings, 2);
    /// The access of other teams is seen.
    pub const READ_TEAMS: Self = Self(Key::Teams, 1);
    /// The access of other teams is managed.
    pub const MANAGE_TEAMS: Self = Self(Key::Teams, 2);
    /// Plans may be queued.
    pub const PLAN: Self = Self(Key::Runs, 1);
    /// Applies may be queued.
    pub const APPLY: Self = Self(Key::Runs, 2);
    /// The outputs of states are read.
    pub const READ_OUTPUTS: Self = Self(Key::StateVersions, 1);
    /// Whole states are read, and not their outputs alone.
    pub const READ_STATE: Self = Self(Key::StateVersions, 2);
    /// States are written.
    pub const WRITE_STATE: Self = Self(Key::StateVersions, 3);
    /// Mocks for policies are read.
    pub const READ_MOCKS: Self = Self(Key::SentinelMocks, 1);
    /// Variables are read.
    pub const READ_VARIABLES: Self = Self(Key::Variables, 1);
    /// Variables are changed.
    pub const WRITE_VARIABLES: Self = Self(Key::Variables, 2);
    /// Workspaces are made.
    pub const CREATE: Self = Self(Key::Create, 1);
    /// Workspaces are locked and unlocked.
    pub const LOCK: Self = Self(Key::Locking, 1);
    /// Workspaces are deleted.
    pub const DELETE: Self = Self(Key::Delete, 1);
    /// Workspaces are moved in and out.
    pub const MOVE: Self = Self(Key::Move, 1);
    /// Run tasks are managed.
    pub const RUN_TASKS: Self = Self(Key::RunTasks, 1);
    /// Policies are overridden.
    pub const OVERRIDE_POLICIES: Self = Self(Key::PolicyOverrides, 1);
}

/// For every key how far its word goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings([u8; PLACES]);

impl Settings {
    /// Those of a level; of the custom one, where it begins.
    pub fn of(level: Level) -> Self {
        Self(std::array::from_fn(|place| FORMS[place].at(level)))
    }

    /// Those that are stored beside a level. A key that is not there has what its level says.
    pub fn stored(level: Level, custom: Option<&str>) -> Self {
        let mut settings = Self::of(level);
        let Some(Ok(stored)) = custom.map(serde_json::from_str::<Value>) else { return settings };
        for (form, rank) in FORMS.iter().zip(&mut settings.0) {
            *rank = form.3.rank_of(&stored[form.1.word()][form.2]).unwrap_or(*rank);
        }
        settings
    }

    /// What is stored: both blocks of a custom level, nothing for one that has its own values.
    pub fn to_store(&self, level: Level) -> Option<String> {
        (level == Level::Custom).then(|| {
            let (project, workspace) = self.blocks();
            json!({ Block::Project.word(): project, Block::Workspace.word(): workspace }).to_string()
        })
    }

    /// The blocks `project-access` and `workspace-access` with every key.
    pub fn blocks(&self) -> (Value, Value) {
        let block = |block| {
            let keys = FORMS.iter().zip(self.0).filter(|(form, _)| form.1 == block);
            Value::Object(keys.map(|(form, rank)| (form.2.to_owned(), form.3.value(rank))).collect())
        };
        (block(Block::Project), block(Block::Workspace))
    }

    /// What they amount to for the project.
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

    /// Whether a key goes so far.
    pub fn go(&self, reach: Reach) -> bool {
        self.0[reach.0.place()] >= reach.1
    }

    /// How far each key goes: the place of its word among those it may say.
    pub fn ranks(&self) -> [u8; PLACES] {
        self.0
    }
}

/// The keys that a request names, and how far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named(Vec<(Key, u8)>);

impl Named {
    /// Reads both blocks. Names that are no key are ignored, null names nothing.
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

    /// These keys over `base`, which are those of the level or, of a custom one, what is stored. `before` is what
    /// documents have shown so far: a key that says the same is no order.
    ///
    /// # Errors
    /// `Invalid` for each key that is to have another value than the one of its level.
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
        /// Whatever is stored or sent, each key has one of its words.
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
