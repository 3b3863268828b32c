//! How much a team may do with a project: a level, or key by key ([`keys`]), and how far that goes
//! ([`extent`]). What the rows say and who may change them stands in [`team_access`](super::team_access).

pub mod extent;
pub mod keys;

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

/// The levels, in the order of the columns of the table of keys.
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

    /// Its place among the levels.
    fn column(self) -> usize {
        LEVELS.iter().position(|(_, level)| *level == self).unwrap_or_default()
    }
}
