//! What a caller may do with a workspace: by the level of its project that the caller's teams have, and by
//! what they have in the whole organization. Rights only add up.

use std::collections::HashMap;
use std::ops::{BitOr, BitOrAssign};

use super::super::member::Member;
use super::super::project_access::Level;
use super::super::project_access::keys::{Reach, Settings};
use super::super::refusal::Outcome;
use super::super::tx::Tx;

/// What a caller may do with one workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceRights(u32);

impl WorkspaceRights {
    /// Nothing, not even to know of it.
    pub const NONE: Self = Self(0);
    /// To see it and its settings.
    pub const READ: Self = Self(1);
    /// To change its settings, to take a lock away from others, to delete it whatever it holds.
    pub const ADMIN: Self = Self(1 << 1);
    /// To delete it when nothing speaks against that.
    pub const DESTROY: Self = Self(1 << 2);
    /// To lock it and to unlock it again.
    pub const LOCK: Self = Self(1 << 3);
    /// To manage its run tasks.
    pub const RUN_TASKS: Self = Self(1 << 4);
    /// To queue plans.
    pub const PLAN: Self = Self(1 << 5);
    /// To queue applies.
    pub const APPLY: Self = Self(1 << 6);
    /// To read variables.
    pub const READ_VARIABLES: Self = Self(1 << 7);
    /// To change variables.
    pub const WRITE_VARIABLES: Self = Self(1 << 8);
    /// To read state versions.
    pub const READ_STATE: Self = Self(1 << 9);
    /// Everything.
    pub const ALL: Self = Self((1 << 10) - 1);

    /// Whether all of `needed` is granted.
    pub const fn has(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// What a team's level on a project means for the workspaces in it; `custom` are its stored keys.
    pub fn of_level(level: &str, custom: Option<&str>) -> Self {
        let Some(level) = Level::of(level) else { return Self::NONE };
        let keys = Settings::stored(level, custom);
        let mut rights = Self::READ;
        for (granted, right) in [
            (matches!(level, Level::Maintain | Level::Admin), Self::ADMIN),
            (keys.go(Reach::PLAN), Self::PLAN),
            (keys.go(Reach::APPLY), Self::APPLY),
            (keys.go(Reach::READ_VARIABLES), Self::READ_VARIABLES),
            (keys.go(Reach::WRITE_VARIABLES), Self::WRITE_VARIABLES),
            (keys.go(Reach::READ_STATE), Self::READ_STATE),
            (keys.go(Reach::LOCK), Self::LOCK),
            (keys.go(Reach::DELETE), Self::DESTROY),
            (keys.go(Reach::RUN_TASKS), Self::RUN_TASKS),
        ] {
            if granted {
                rights |= right;
            }
        }
        rights
    }
}

impl BitOr for WorkspaceRights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for WorkspaceRights {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What the member may do with every workspace of the organization.
pub(crate) fn everywhere(member: &Member) -> WorkspaceRights {
    if member.owner && member.teams.is_empty() {
        // The organization itself, by its token: it owns everything and runs nothing.
        WorkspaceRights(WorkspaceRights::ALL.0 & !(WorkspaceRights::PLAN.0 | WorkspaceRights::APPLY.0))
    } else if member.rights.manages_workspaces() {
        WorkspaceRights::ALL
    } else if member.rights.reads_workspaces() {
        WorkspaceRights::of_level(Level::Read.word(), None)
    } else {
        WorkspaceRights::NONE
    }
}

/// What the member may do with the workspaces of each of these projects.
///
/// # Errors
/// Those of the store.
pub(crate) async fn by_project(
    tx: &mut Tx<'_>,
    member: &Member,
    mut projects: Vec<i64>,
) -> Outcome<HashMap<i64, WorkspaceRights>> {
    projects.sort_unstable();
    projects.dedup();
    let everywhere = everywhere(member);
    let mut rights: HashMap<_, _> = projects.iter().map(|project| (*project, everywhere)).collect();
    if everywhere == WorkspaceRights::ALL || member.teams.is_empty() {
        return Ok(rights);
    }
    let sql = "SELECT project_id, access, custom FROM team_project_access
        WHERE project_id = ANY($1) AND team_id = ANY($2)";
    for mut row in tx.rows(sql, &[projects.into(), member.teams.clone().into()]).await? {
        let (project, level, custom): (i64, String, Option<String>) = (row.get()?, row.get()?, row.get()?);
        *rights.entry(project).or_default() |= WorkspaceRights::of_level(&level, custom.as_deref());
    }
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_mean_what_their_columns_say() {
        type Rights = WorkspaceRights;
        let of = |level| Rights::of_level(level, None);
        assert_eq!(of("maintain"), Rights::ALL);
        assert_eq!(of("admin"), Rights::ALL);
        assert!(of("write").has(Rights::LOCK | Rights::APPLY | Rights::WRITE_VARIABLES | Rights::READ_STATE));
        assert!(
            !of("write").has(Rights::DESTROY) && !of("write").has(Rights::RUN_TASKS) && !of("write").has(Rights::ADMIN)
        );
        assert!(of("read").has(Rights::READ_STATE | Rights::READ_VARIABLES) && !of("read").has(Rights::PLAN));
        assert_eq!(of("unknown"), Rights::NONE);
    }

    #[test]
    fn custom_keys_count_one_by_one() {
        type Rights = WorkspaceRights;
        let of = |keys: &str| Rights::of_level("custom", Some(&format!("{{\"workspace-access\":{keys}}}")));
        assert_eq!(of("{}"), Rights::READ);
        assert_eq!(of(r#"{"runs":"plan"}"#), Rights::READ | Rights::PLAN);
        assert_eq!(of(r#"{"runs":"apply"}"#), Rights::READ | Rights::PLAN | Rights::APPLY);
        assert_eq!(of(r#"{"state-versions":"read-outputs","variables":"none"}"#), Rights::READ);
        let several = of(r#"{"state-versions":"write","variables":"write","locking":true,"delete":true}"#);
        let expected = Rights::READ_STATE | Rights::READ_VARIABLES | Rights::WRITE_VARIABLES | Rights::LOCK;
        assert_eq!(several, expected | Rights::READ | Rights::DESTROY);
        assert_eq!(Rights::of_level("custom", None), Rights::READ);
    }
}
