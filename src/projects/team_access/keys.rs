//! The keys of a team's access to a project: what each may say, and what each level has for it.

use serde_json::{Value, json};

use super::super::attributes::Attributes;
use super::super::refusal::{Fault, Outcome, Refusal};
use super::super::rights::ProjectRights;
use crate::error::Kind;

/// How much a team may do with a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// See the project and read its workspaces.
    Read,
    /// Run what is in its workspaces.
    Write,
    /// Make workspaces and administer them.
    Maintain,
    /// Everything.
    Admin,
    /// Key by key.
    Custom,
}

/// The levels, in the order of the columns of [`KEYS`].
const LEVELS: [(&str, Level); 5] = [
    ("read", Level::Read),
    ("write", Level::Write),
    ("maintain", Level::Maintain),
    ("admin", Level::Admin),
    ("custom", Level::Custom),
];

impl Level {
    /// The level of a word.
    pub fn of(word: &str) -> Option<Self> {
        LEVELS.iter().find(|(name, _)| *name == word).map(|(_, level)| *level)
    }

    /// As stored and as documents show it.
    pub fn word(self) -> &'static str {
        LEVELS[self.column()].0
    }

    fn column(self) -> usize {
        LEVELS.iter().position(|(_, level)| *level == self).unwrap_or_default()
    }
}

/// The block of keys about the project itself.
const PROJECT: &str = "project-access";
/// The block of keys about its workspaces.
pub const WORKSPACE: &str = "workspace-access";

/// The words of a truth value.
const FLAG: &[&str] = &["false", "true"];

/// One key: its block, its name, what it may say, and its value at each level.
struct Key(&'static str, &'static str, &'static [&'static str], [&'static str; 5]);

/// The keys. The words of each go from the least to the most.
const KEYS: &[Key] = &[
    Key(PROJECT, "settings", &["read", "update", "delete"], ["read", "read", "read", "delete", "read"]),
    Key(PROJECT, "teams", &["none", "read", "manage"], ["none", "none", "none", "manage", "none"]),
    Key(PROJECT, "variable-sets", &["none", "read", "write"], ["read", "read", "write", "write", "none"]),
    Key(WORKSPACE, "runs", &["read", "plan", "apply"], ["read", "apply", "apply", "apply", "read"]),
    Key(WORKSPACE, "sentinel-mocks", &["none", "read"], ["none", "read", "read", "read", "none"]),
    Key(
        WORKSPACE,
        "state-versions",
        &["none", "read-outputs", "read", "write"],
        ["read", "write", "write", "write", "none"],
    ),
    Key(WORKSPACE, "variables", &["none", "read", "write"], ["read", "write", "write", "write", "none"]),
    Key(WORKSPACE, "create", FLAG, ["false", "false", "true", "true", "false"]),
    Key(WORKSPACE, "locking", FLAG, ["false", "true", "true", "true", "false"]),
    Key(WORKSPACE, "delete", FLAG, ["false", "false", "true", "true", "false"]),
    Key(WORKSPACE, "move", FLAG, ["false", "false", "false", "true", "false"]),
    Key(WORKSPACE, "run-tasks", FLAG, ["false", "false", "true", "true", "false"]),
    Key(WORKSPACE, "policy-overrides", FLAG, ["false", "false", "false", "true", "false"]),
];

/// How many keys there are.
pub const PLACES: usize = KEYS.len();

/// The place of a key; `None` for what is no key.
pub fn place(block: &str, name: &str) -> Option<usize> {
    KEYS.iter().position(|key| (key.0, key.1) == (block, name))
}

/// The places of the keys of a block.
pub fn places(block: &str) -> impl Iterator<Item = usize> {
    KEYS.iter().enumerate().filter(move |(_, key)| key.0 == block).map(|(place, _)| place)
}

impl Key {
    /// What a value says, when it is one of this key's.
    fn word(&self, value: &Value) -> Option<&'static str> {
        let Self(.., words, _) = self;
        let given = match value {
            Value::Bool(flag) if *words == FLAG => FLAG[usize::from(*flag)],
            Value::String(word) if *words != FLAG => word,
            _ => return None,
        };
        words.iter().find(|word| **word == given).copied()
    }

    /// A word as documents show it.
    fn value(&self, word: &'static str) -> Value {
        if self.2 == FLAG { (word == FLAG[1]).into() } else { word.into() }
    }
}

/// The value of every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings(Vec<&'static str>);

impl Settings {
    /// Those of a level; of the custom one, where it begins.
    pub fn of(level: Level) -> Self {
        Self(KEYS.iter().map(|Key(.., words)| words[level.column()]).collect())
    }

    /// Those that are stored beside a level. A key that is not there has what its level says.
    pub fn stored(level: Level, custom: Option<&str>) -> Self {
        let mut settings = Self::of(level);
        let Some(Ok(stored)) = custom.map(serde_json::from_str::<Value>) else { return settings };
        for (key, word) in KEYS.iter().zip(&mut settings.0) {
            *word = key.word(&stored[key.0][key.1]).unwrap_or(word);
        }
        settings
    }

    /// What is stored: both blocks of a custom level, nothing for one that has its own values.
    pub fn to_store(&self, level: Level) -> Option<String> {
        (level == Level::Custom).then(|| {
            let (project, workspace) = self.blocks();
            json!({ PROJECT: project, WORKSPACE: workspace }).to_string()
        })
    }

    /// The blocks `project-access` and `workspace-access` with every key.
    pub fn blocks(&self) -> (Value, Value) {
        let block = |name| {
            let keys = KEYS.iter().zip(&self.0).filter(|(key, _)| key.0 == name);
            Value::Object(keys.map(|(key, word)| (key.1.to_owned(), key.value(word))).collect())
        };
        (block(PROJECT), block(WORKSPACE))
    }

    /// What they amount to for the project.
    pub fn rights(&self) -> ProjectRights {
        let is = |block, name, word| self.get(block, name) == word;
        let mut rights = ProjectRights::READ;
        for (granted, right) in [
            (!is(PROJECT, "settings", "read"), ProjectRights::UPDATE),
            (is(PROJECT, "settings", "delete"), ProjectRights::DESTROY),
            (is(PROJECT, "teams", "manage"), ProjectRights::MANAGE_TEAMS),
            (is(WORKSPACE, "create", FLAG[1]), ProjectRights::CREATE_WORKSPACE),
            (is(WORKSPACE, "move", FLAG[1]), ProjectRights::MOVE_WORKSPACE),
        ] {
            if granted {
                rights |= right;
            }
        }
        rights
    }

    /// Whether they let a team see the access of others.
    pub fn reads_teams(&self) -> bool {
        self.get(PROJECT, "teams") != "none"
    }

    /// What a key says; truth values say `true` or `false`. Empty for what is no key.
    pub fn get(&self, block: &str, name: &str) -> &'static str {
        place(block, name).map_or("", |place| self.0[place])
    }

    /// How far each key goes: the place of its word among those it may say.
    pub fn ranks(&self) -> [u8; PLACES] {
        let rank = |place: usize| KEYS[place].2.iter().position(|word| *word == self.0[place]);
        // A handful of words each.
        std::array::from_fn(|place| rank(place).unwrap_or_default() as u8)
    }
}

/// The keys that a request names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named(Vec<(usize, &'static str)>);

impl Named {
    /// Reads both blocks. Names that are no key are ignored, null names nothing.
    pub fn read(attributes: &mut Attributes<'_>) -> Self {
        let mut named = Vec::new();
        for block in [PROJECT, WORKSPACE] {
            let Some(members) = attributes.object(block).value() else { continue };
            for (place, key) in KEYS.iter().enumerate().filter(|(_, key)| key.0 == block) {
                let Some(value) = members.get(key.1).filter(|value| !value.is_null()) else { continue };
                match key.word(value) {
                    Some(word) => named.push((place, word)),
                    None => {
                        let detail = format!("{} must be one of {}", key.1, key.2.join(", "));
                        attributes.fault(&format!("{block}/{}", key.1), detail);
                    }
                }
            }
        }
        Self(named)
    }

    /// These keys over `base`.
    ///
    /// # Errors
    /// `Invalid` for each key that is named beside a level with values of its own.
    pub fn over(&self, level: Level, mut base: Settings) -> Outcome<Settings> {
        if level != Level::Custom && !self.0.is_empty() {
            let faults = self.0.iter().map(|(place, _)| {
                let Key(block, name, ..) = &KEYS[*place];
                let detail = format!("{name} can only be set with custom access, the level is {}", level.word());
                Fault::attribute(&format!("{block}/{name}"), detail)
            });
            return Err(Refusal::of(Kind::Invalid, faults.collect()).into());
        }
        for (place, word) in &self.0 {
            base.0[*place] = word;
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
        fn keys_never_have_another_value(key in 0..KEYS.len(), word in "[a-z-]{0,12}", flag: Option<bool>) {
            let Key(block, name, words, _) = &KEYS[key];
            let value = flag.map_or_else(|| Value::from(word), Value::from);
            let body = json!({ *block: { *name: value } });
            let stored = Settings::stored(Level::Custom, Some(&body.to_string()));
            prop_assert!(words.contains(&stored.get(block, name)));
            let mut attributes = Attributes::new(body.as_object().unwrap());
            let named = Named::read(&mut attributes);
            prop_assert_eq!(attributes.is_sound(), named != Named::default());
            if let Ok(settings) = named.over(Level::Custom, Settings::of(Level::Custom)) {
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
        for Key(block, name, words, levels) in KEYS {
            assert!(levels.iter().all(|word| words.contains(word)), "{block} {name}");
        }
    }

    #[test]
    fn custom_keys_are_named_stored_and_read_again() {
        let body =
            json!({ "project-access": { "settings": "update", "unknown": 1 }, "workspace-access": { "move": true } });
        let mut attributes = Attributes::new(body.as_object().unwrap());
        let named = Named::read(&mut attributes);
        assert!(attributes.is_sound());
        let settings = named.over(Level::Custom, Settings::of(Level::Custom)).ok().unwrap();
        assert_eq!(settings.rights(), ProjectRights::READ | ProjectRights::UPDATE | ProjectRights::MOVE_WORKSPACE);
        assert_eq!(Settings::stored(Level::Custom, settings.to_store(Level::Custom).as_deref()), settings);
        assert!(named.over(Level::Read, Settings::of(Level::Read)).is_err());
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
