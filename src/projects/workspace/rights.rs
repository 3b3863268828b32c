//! The rights of a caller on a workspace: the union of the access of the caller's teams to the workspace and its
//! project, and of organization-wide rights.

use std::collections::HashMap;
use std::ops::{BitOr, BitOrAssign};

use super::super::member::Member;
use super::super::project_access::ProjectAccessLevel;
use super::super::project_access::keys::{ProjectKeyRanks, ProjectPermission};
use super::super::rejection::WorkResult;
use super::super::tx::Tx;
use super::super::workspace_keys::{WorkspaceAccessLevel, WorkspaceKeyRanks, WorkspacePermission};

/// The rights of a caller on one workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceRights(u32);

impl WorkspaceRights {
    /// No rights on the workspace, which is thus hidden from the caller.
    pub const NONE: Self = Self(0);
    /// See the workspace and its settings.
    pub const READ: Self = Self(1);
    /// Change the settings of the workspace, release locks of other users and teams, and delete the workspace even if
    /// it is locked.
    pub const ADMIN: Self = Self(1 << 1);
    /// Delete the workspace safely: only while it is not locked.
    pub const DESTROY: Self = Self(1 << 2);
    /// Lock the workspace, and release the caller's own lock.
    pub const LOCK: Self = Self(1 << 3);
    /// Manage the run tasks of the workspace.
    pub const RUN_TASKS: Self = Self(1 << 4);
    /// Queue plans.
    pub const PLAN: Self = Self(1 << 5);
    /// Queue applies.
    pub const APPLY: Self = Self(1 << 6);
    /// Read variables.
    pub const READ_VARIABLES: Self = Self(1 << 7);
    /// Change variables.
    pub const WRITE_VARIABLES: Self = Self(1 << 8);
    /// Read whole Terraform states.
    pub const READ_STATE: Self = Self(1 << 9);
    /// Read the outputs of Terraform states.
    pub const READ_OUTPUTS: Self = Self(1 << 10);
    /// Write Terraform states.
    pub const WRITE_STATE: Self = Self(1 << 11);
    /// Read Sentinel mocks, the mock data for policy tests.
    pub const READ_MOCKS: Self = Self(1 << 12);
    /// Override policies.
    pub const OVERRIDE_POLICIES: Self = Self(1 << 13);
    /// All rights on the workspace.
    pub const ALL: Self = Self((1 << 14) - 1);

    /// `true` if these rights include all rights in `needed`.
    pub const fn has(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Returns the rights that a team's access to a project implies on the workspaces of the project. `level` is the
    /// name of the level, `custom` the stored access keys.
    pub fn of_level(level: &str, custom: Option<&str>) -> Self {
        let Some(level) = ProjectAccessLevel::of(level) else { return Self::NONE };
        let keys = ProjectKeyRanks::from_stored(level, custom);
        let mut rights = Self::READ;
        for (granted, right) in [
            (matches!(level, ProjectAccessLevel::Maintain | ProjectAccessLevel::Admin), Self::ADMIN),
            (keys.allows(ProjectPermission::PLAN), Self::PLAN),
            (keys.allows(ProjectPermission::APPLY), Self::APPLY),
            (keys.allows(ProjectPermission::READ_VARIABLES), Self::READ_VARIABLES),
            (keys.allows(ProjectPermission::WRITE_VARIABLES), Self::WRITE_VARIABLES),
            (keys.allows(ProjectPermission::READ_STATE), Self::READ_STATE),
            (keys.allows(ProjectPermission::READ_OUTPUTS), Self::READ_OUTPUTS),
            (keys.allows(ProjectPermission::WRITE_STATE), Self::WRITE_STATE),
            (keys.allows(ProjectPermission::READ_MOCKS), Self::READ_MOCKS),
            (keys.allows(ProjectPermission::OVERRIDE_POLICIES), Self::OVERRIDE_POLICIES),
            (keys.allows(ProjectPermission::LOCK), Self::LOCK),
            (keys.allows(ProjectPermission::DELETE), Self::DESTROY),
            (keys.allows(ProjectPermission::RUN_TASKS), Self::RUN_TASKS),
        ] {
            if granted {
                rights |= right;
            }
        }
        rights
    }

    /// Returns the rights that a team's access to a single workspace gives. Only the level `admin` includes deletion.
    pub fn of_access(level: WorkspaceAccessLevel, keys: &WorkspaceKeyRanks) -> Self {
        if level == WorkspaceAccessLevel::Admin {
            return Self::ALL;
        }
        [
            (WorkspacePermission::PLAN, Self::PLAN),
            (WorkspacePermission::APPLY, Self::APPLY),
            (WorkspacePermission::READ_VARIABLES, Self::READ_VARIABLES),
            (WorkspacePermission::WRITE_VARIABLES, Self::WRITE_VARIABLES),
            (WorkspacePermission::READ_OUTPUTS, Self::READ_OUTPUTS),
            (WorkspacePermission::READ_STATE, Self::READ_STATE),
            (WorkspacePermission::WRITE_STATE, Self::WRITE_STATE),
            (WorkspacePermission::READ_MOCKS, Self::READ_MOCKS),
            (WorkspacePermission::LOCK, Self::LOCK),
            (WorkspacePermission::RUN_TASKS, Self::RUN_TASKS),
            (WorkspacePermission::OVERRIDE_POLICIES, Self::OVERRIDE_POLICIES),
        ]
        .into_iter()
        .filter(|(permission, _)| keys.allows(*permission))
        .fold(Self::READ, |rights, (_, right)| rights | right)
    }

    /// Like [`WorkspaceRights::of_access`], for the stored name of the level and the stored access keys.
    fn of_stored_access(level: &str, custom: Option<&str>) -> Self {
        let level = WorkspaceAccessLevel::of(level);
        level.map_or(Self::NONE, |level| Self::of_access(level, &WorkspaceKeyRanks::from_stored(level, custom)))
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

/// Returns the member's rights on every workspace of the organization.
pub(crate) fn organization_wide_rights(member: &Member) -> WorkspaceRights {
    if member.is_owner && member.teams.is_empty() {
        // An organization token has all rights of an owner, except that it cannot start runs.
        WorkspaceRights(WorkspaceRights::ALL.0 & !(WorkspaceRights::PLAN.0 | WorkspaceRights::APPLY.0))
    } else if member.rights.manages_workspaces() {
        WorkspaceRights::ALL
    } else if member.rights.reads_workspaces() {
        WorkspaceRights::of_level(ProjectAccessLevel::Read.name(), None)
    } else {
        WorkspaceRights::NONE
    }
}

/// Returns the member's rights on the workspaces of each of these projects, by project row id.
///
/// # Errors
/// Those of the store.
pub(crate) async fn load_by_project(
    tx: &mut Tx<'_>,
    member: &Member,
    mut projects: Vec<i64>,
) -> WorkResult<HashMap<i64, WorkspaceRights>> {
    projects.sort_unstable();
    projects.dedup();
    let everywhere = organization_wide_rights(member);
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

/// Returns the member's rights on each of these workspaces, given as pairs of workspace and project row id.
///
/// # Errors
/// Those of the store.
pub(crate) async fn load_for_workspaces(
    tx: &mut Tx<'_>,
    member: &Member,
    workspaces: &[(i64, i64)],
) -> WorkResult<HashMap<i64, WorkspaceRights>> {
    let projects = load_by_project(tx, member, workspaces.iter().map(|(_, project)| *project).collect()).await?;
    let of_project = |project: &i64| projects.get(project).copied().unwrap_or_default();
    let mut rights: HashMap<_, _> =
        workspaces.iter().map(|(workspace, project)| (*workspace, of_project(project))).collect();
    let short: Vec<i64> =
        rights.iter().filter(|(_, rights)| **rights != WorkspaceRights::ALL).map(|(workspace, _)| *workspace).collect();
    if short.is_empty() || member.teams.is_empty() {
        return Ok(rights);
    }
    let sql = "SELECT workspace_id, access, custom FROM team_workspace_access
        WHERE workspace_id = ANY($1) AND team_id = ANY($2)";
    for mut row in tx.rows(sql, &[short.into(), member.teams.clone().into()]).await? {
        let workspace: i64 = row.get()?;
        let level: String = row.get()?;
        let custom: Option<String> = row.get()?;
        *rights.entry(workspace).or_default() |= WorkspaceRights::of_stored_access(&level, custom.as_deref());
    }
    Ok(rights)
}

/// The access of a team to a single workspace.
pub(crate) struct TeamWorkspaceGrant {
    /// Row id of the team.
    pub(crate) team: i64,
    /// Row id of the workspace.
    pub(crate) workspace: i64,
    /// Row id of the project of the workspace.
    pub(crate) project: i64,
    /// The rights that the access gives.
    pub(crate) rights: WorkspaceRights,
}

/// Returns the access of these teams to single workspaces, at most `limit` rows.
///
/// # Errors
/// Those of the store.
pub(crate) async fn load_team_grants(
    tx: &mut Tx<'_>,
    teams: Vec<i64>,
    limit: i64,
) -> WorkResult<Vec<TeamWorkspaceGrant>> {
    let sql = "SELECT a.team_id, w.id, w.project_id, a.access, a.custom FROM team_workspace_access a
        JOIN teams t ON t.id = a.team_id JOIN workspaces w ON w.id = a.workspace_id AND w.org_id = t.org_id
        WHERE a.team_id = ANY($1) ORDER BY a.team_id, w.id LIMIT $2";
    let mut given = Vec::new();
    for mut row in tx.rows(sql, &[teams.into(), limit.into()]).await? {
        let team = row.get()?;
        let workspace = row.get()?;
        let project = row.get()?;
        let level: String = row.get()?;
        let custom: Option<String> = row.get()?;
        let rights = WorkspaceRights::of_stored_access(&level, custom.as_deref());
        given.push(TeamWorkspaceGrant { team, workspace, project, rights });
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_levels_match_their_permission_columns() {
        type Rights = WorkspaceRights;
        let of = |level| Rights::of_level(level, None);
        assert_eq!(of("maintain") | Rights::OVERRIDE_POLICIES, Rights::ALL);
        assert!(!of("maintain").has(Rights::OVERRIDE_POLICIES));
        assert_eq!(of("admin"), Rights::ALL);
        assert!(of("write").has(Rights::LOCK | Rights::APPLY | Rights::WRITE_VARIABLES | Rights::READ_STATE));
        assert!(
            !of("write").has(Rights::DESTROY) && !of("write").has(Rights::RUN_TASKS) && !of("write").has(Rights::ADMIN)
        );
        assert!(of("read").has(Rights::READ_STATE | Rights::READ_VARIABLES) && !of("read").has(Rights::PLAN));
        assert_eq!(of("unknown"), Rights::NONE);
    }

    #[test]
    fn custom_keys_grant_rights_individually() {
        type Rights = WorkspaceRights;
        let of = |keys: &str| Rights::of_level("custom", Some(&format!("{{\"workspace-access\":{keys}}}")));
        assert_eq!(of("{}"), Rights::READ);
        assert_eq!(of(r#"{"runs":"plan"}"#), Rights::READ | Rights::PLAN);
        assert_eq!(of(r#"{"runs":"apply"}"#), Rights::READ | Rights::PLAN | Rights::APPLY);
        let outputs = of(r#"{"state-versions":"read-outputs","variables":"none"}"#);
        assert_eq!(outputs, Rights::READ | Rights::READ_OUTPUTS);
        let several = of(r#"{"state-versions":"write","variables":"write","locking":true,"delete":true}"#);
        let states = Rights::READ_OUTPUTS | Rights::READ_STATE | Rights::WRITE_STATE;
        let expected = states | Rights::READ_VARIABLES | Rights::WRITE_VARIABLES | Rights::LOCK;
        assert_eq!(several, expected | Rights::READ | Rights::DESTROY);
        assert_eq!(Rights::of_level("custom", None), Rights::READ);
    }

    #[test]
    fn workspace_access_below_admin_lacks_admin_rights() {
        type Rights = WorkspaceRights;
        let of = |level| Rights::of_stored_access(level, None);
        assert_eq!(of("admin"), Rights::ALL);
        let read = Rights::READ | Rights::READ_VARIABLES | Rights::READ_STATE | Rights::READ_OUTPUTS;
        assert_eq!(of("read"), read);
        assert_eq!(of("plan"), read | Rights::PLAN);
        let write = Rights::APPLY | Rights::WRITE_VARIABLES | Rights::WRITE_STATE | Rights::READ_MOCKS | Rights::LOCK;
        assert_eq!(of("write"), of("plan") | write);
        assert_eq!((of("custom"), of("unknown")), (Rights::READ, Rights::NONE));
        let all = r#"{"runs":"apply","variables":"write","state-versions":"write","sentinel-mocks":"read",
            "workspace-locking":true,"run-tasks":true,"policy-overrides":true}"#;
        let all = Rights::of_stored_access("custom", Some(all));
        assert_eq!(all | Rights::ADMIN | Rights::DESTROY, Rights::ALL);
        assert!(!all.has(Rights::ADMIN) && !all.has(Rights::DESTROY));
    }
}
