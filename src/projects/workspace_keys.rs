//! A level or single keys of access to a workspace; stored by [`workspace_access`](super::workspace_access).

use serde_json::{Map, Value};

use super::access_words::Words;
use super::attributes::Attributes;
use super::refusal::{Fault, Faults, Outcome};
use crate::error::Kind;

/// The level of a team's access to a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceLevel {
    /// See the workspace.
    Read,
    /// Queue plans.
    Plan,
    /// Queue applies, lock it, change its variables.
    Write,
    /// All rights.
    Admin,
    /// Keys are set individually.
    Custom,
}

/// The levels, in the order of the columns in the table of keys.
const LEVELS: [(&str, WorkspaceLevel); 5] = [
    ("read", WorkspaceLevel::Read),
    ("plan", WorkspaceLevel::Plan),
    ("write", WorkspaceLevel::Write),
    ("admin", WorkspaceLevel::Admin),
    ("custom", WorkspaceLevel::Custom),
];

impl WorkspaceLevel {
    /// Parses the name of a level.
    pub fn of(word: &str) -> Option<Self> {
        LEVELS.iter().find(|(name, _)| *name == word).map(|(_, level)| *level)
    }

    /// Returns the name, as stored and in documents.
    pub fn word(self) -> &'static str {
        LEVELS[self.column()].0
    }

    fn column(self) -> usize {
        LEVELS.iter().position(|(_, level)| *level == self).unwrap_or_default()
    }
}

/// A row of the table of keys: attribute, values in ascending order, and the value at each level.
struct Form(&'static str, Words, [&'static str; 5]);

const PLACES: usize = 7;

const FORMS: [Form; PLACES] = {
    const FLAG: Words = Words::FLAG;
    [
        Form("runs", Words(&["read", "plan", "apply"]), ["read", "plan", "apply", "apply", "read"]),
        Form("variables", Words(&["none", "read", "write"]), ["read", "read", "write", "write", "none"]),
        Form(
            "state-versions",
            Words(&["none", "read-outputs", "read", "write"]),
            ["read", "read", "write", "write", "none"],
        ),
        Form("sentinel-mocks", Words(&["none", "read"]), ["none", "none", "read", "read", "none"]),
        Form("workspace-locking", FLAG, ["false", "false", "true", "true", "false"]),
        Form("run-tasks", FLAG, ["false", "false", "false", "true", "false"]),
        Form("policy-overrides", FLAG, ["false", "false", "false", "true", "false"]),
    ]
};

/// A minimum rank of a key: the index of the key, and the rank of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceReach(usize, u8);

impl WorkspaceReach {
    /// Queue plans.
    pub const PLAN: Self = Self(0, 1);
    /// Queue applies.
    pub const APPLY: Self = Self(0, 2);
    /// Read variables.
    pub const READ_VARIABLES: Self = Self(1, 1);
    /// Change variables.
    pub const WRITE_VARIABLES: Self = Self(1, 2);
    /// Read outputs of states.
    pub const READ_OUTPUTS: Self = Self(2, 1);
    /// Read whole states.
    pub const READ_STATE: Self = Self(2, 2);
    /// Write states.
    pub const WRITE_STATE: Self = Self(2, 3);
    /// Read mocks for policies.
    pub const READ_MOCKS: Self = Self(3, 1);
    /// Lock and unlock the workspace.
    pub const LOCK: Self = Self(4, 1);
    /// Manage run tasks.
    pub const RUN_TASKS: Self = Self(5, 1);
    /// Override policies.
    pub const OVERRIDE_POLICIES: Self = Self(6, 1);
}

/// The rank of every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceSettings([u8; PLACES]);

impl WorkspaceSettings {
    /// Returns the values of a level; for the custom level, the initial values.
    pub fn of(level: WorkspaceLevel) -> Self {
        let rank = |form: &Form| form.1.rank(form.2[level.column()]).unwrap_or_default();
        Self(std::array::from_fn(|place| rank(&FORMS[place])))
    }

    /// Reads stored values. An absent key has the value of the level.
    pub fn stored(level: WorkspaceLevel, custom: Option<&str>) -> Self {
        let mut settings = Self::of(level);
        let Some(Ok(stored)) = custom.map(serde_json::from_str::<Value>) else { return settings };
        for (form, rank) in FORMS.iter().zip(&mut settings.0) {
            *rank = form.1.rank_of(&stored[form.0]).unwrap_or(*rank);
        }
        settings
    }

    /// Returns the stored form of a custom level, `None` for predefined levels.
    pub fn to_store(&self, level: WorkspaceLevel) -> Option<String> {
        (level == WorkspaceLevel::Custom).then(|| Value::Object(self.attributes()).to_string())
    }

    /// Returns the attributes of documents, with all keys.
    pub fn attributes(&self) -> Map<String, Value> {
        FORMS.iter().zip(self.0).map(|(form, rank)| (form.0.to_owned(), form.1.value(rank))).collect()
    }

    /// `true` if a key has at least this rank.
    pub fn go(&self, reach: WorkspaceReach) -> bool {
        self.0[reach.0] >= reach.1
    }
}

/// The keys that a request sets, by index, with their ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedKeys(Vec<(usize, u8)>);

impl NamedKeys {
    /// Reads the attributes. Null values are ignored.
    pub fn read(attributes: &mut Attributes<'_>) -> Self {
        let mut named = Vec::new();
        for (place, Form(name, words, _)) in FORMS.iter().enumerate() {
            let Some(value) = attributes.value(name).filter(|value| !value.is_null()) else { continue };
            match words.rank_of(value) {
                Some(rank) => named.push((place, rank)),
                None => attributes.fault(name, format!("{name} must be one of {}", words.0.join(", "))),
            }
        }
        Self(named)
    }

    /// Applies these keys to `base`: the values of the level, or the stored values of a custom one. `before` are the
    /// values that documents have shown so far; repeating one of them changes nothing.
    ///
    /// # Errors
    /// `Invalid` for each key that differs from its value at a predefined level.
    pub fn over(
        &self,
        level: WorkspaceLevel,
        mut base: WorkspaceSettings,
        before: Option<&WorkspaceSettings>,
    ) -> Outcome<WorkspaceSettings> {
        if level == WorkspaceLevel::Custom {
            for (place, rank) in &self.0 {
                base.0[*place] = *rank;
            }
            return Ok(base);
        }
        let is_shown = |(place, rank): &(usize, u8)| {
            base.0[*place] == *rank || before.is_some_and(|before| before.0[*place] == *rank)
        };
        let mut faults = Faults::default();
        for (place, _) in self.0.iter().filter(|key| !is_shown(key)) {
            let name = FORMS[*place].0;
            let detail = format!("{name} can only be set with custom access, the level is {}", level.word());
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
    fn every_value_is_one_of_its_key() {
        for Form(name, words, levels) in &FORMS {
            assert!(levels.iter().all(|word| words.0.contains(word)), "{name}");
        }
        for (word, level) in LEVELS {
            assert_eq!((WorkspaceLevel::of(word), level.word()), (Some(level), word));
        }
    }

    #[test]
    fn reaches_are_places_of_words() {
        type Reach = WorkspaceReach;
        for (reach, key, word) in [
            (Reach::PLAN, "runs", "plan"),
            (Reach::APPLY, "runs", "apply"),
            (Reach::READ_VARIABLES, "variables", "read"),
            (Reach::WRITE_VARIABLES, "variables", "write"),
            (Reach::READ_OUTPUTS, "state-versions", "read-outputs"),
            (Reach::READ_STATE, "state-versions", "read"),
            (Reach::WRITE_STATE, "state-versions", "write"),
            (Reach::READ_MOCKS, "sentinel-mocks", "read"),
            (Reach::LOCK, "workspace-locking", "true"),
            (Reach::RUN_TASKS, "run-tasks", "true"),
            (Reach::OVERRIDE_POLICIES, "policy-overrides", "true"),
        ] {
            let Form(name, words, _) = &FORMS[reach.0];
            assert_eq!((*name, words.0[usize::from(reach.1)]), (key, word));
        }
    }

    #[test]
    fn custom_keys_are_named_stored_and_read_again() {
        let body = json!({ "runs": "plan", "workspace-locking": true, "unknown": 1 });
        let mut attributes = Attributes::new(body.as_object().unwrap());
        let named = NamedKeys::read(&mut attributes);
        assert!(attributes.is_sound());
        let custom = WorkspaceLevel::Custom;
        let settings = named.over(custom, WorkspaceSettings::of(custom), None).ok().unwrap();
        assert!(settings.go(WorkspaceReach::PLAN) && !settings.go(WorkspaceReach::APPLY));
        assert!(settings.go(WorkspaceReach::LOCK) && !settings.go(WorkspaceReach::READ_VARIABLES));
        assert_eq!(WorkspaceSettings::stored(custom, settings.to_store(custom).as_deref()), settings);
        let read = WorkspaceLevel::Read;
        assert!(named.over(read, WorkspaceSettings::of(read), None).is_err());
        assert!(named.over(read, WorkspaceSettings::of(read), Some(&settings)).is_ok(), "as it was shown before");
        assert_eq!(settings.to_store(read), None);
    }
}
