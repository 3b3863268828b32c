//! The access of a team to a project: a level such as `read`, or individual values of access keys ([`keys`]) such as
//! `runs`. Module [`extent`] compares the access of teams and members.
//!
//! [`team_access`](super::team_access) stores the access and checks changes.

pub mod extent;
pub mod keys;

/// The level of a team's access to a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectAccessLevel {
    /// The team may see the project and read its workspaces.
    Read,
    /// The team may also execute runs in the project's workspaces.
    Write,
    /// The team may also create and administer workspaces.
    Maintain,
    /// The team has all rights on the project and its workspaces.
    Admin,
    /// The value of each access key is set individually.
    Custom,
}

/// The levels, in the order of the values in each row of `keys::PROJECT_KEYS`.
const PROJECT_LEVELS: [(&str, ProjectAccessLevel); 5] = [
    ("read", ProjectAccessLevel::Read),
    ("write", ProjectAccessLevel::Write),
    ("maintain", ProjectAccessLevel::Maintain),
    ("admin", ProjectAccessLevel::Admin),
    ("custom", ProjectAccessLevel::Custom),
];

impl ProjectAccessLevel {
    /// Parses the name of a level.
    pub fn of(word: &str) -> Option<Self> {
        PROJECT_LEVELS.iter().find(|(name, _)| *name == word).map(|(_, level)| *level)
    }

    /// Returns the name, as stored and in JSON.
    pub fn name(self) -> &'static str {
        PROJECT_LEVELS[self.index()].0
    }

    fn index(self) -> usize {
        PROJECT_LEVELS.iter().position(|(_, level)| *level == self).unwrap_or_default()
    }
}
