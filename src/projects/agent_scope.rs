//! The scope of agent pools: the projects and workspaces that may use a pool.
//!
//! A workspace may use a pool that is organization-scoped or allows the workspace or its project, unless the
//! pool excludes the workspace. A project may use a pool that is organization-scoped or allows the project. An
//! organization may use organization-scoped pools only.

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use super::rejection::WorkResult;
use super::tx::Tx;
use crate::sql::{SqlRow, SqlValue};

/// External ids of the resources that a pool allows or excludes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentPoolScope {
    /// Excluded workspaces.
    pub excluded_workspaces: Vec<String>,
    /// Allowed projects.
    pub allowed_projects: Vec<String>,
    /// Allowed workspaces.
    pub allowed_workspaces: Vec<String>,
}

/// An organization, project or workspace that uses a pool or is about to use it, by external id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolUser<'u> {
    /// An organization, whose projects and workspaces inherit the pool.
    Organization,
    /// A project, whose workspaces inherit the pool. `None` while the project is being created.
    Project(Option<&'u str>),
    /// A workspace (`None` while it is being created) and its project.
    Workspace(Option<&'u str>, &'u str),
}

/// A pool with its scope, to check whether a resource may use it.
pub struct UsablePool {
    /// Row id.
    pub id: i64,
    organization_scoped: bool,
    scope: AgentPoolScope,
}

impl AgentPoolScope {
    pub(super) fn parse(text: &str) -> Self {
        let stored: Json = serde_json::from_str(text).unwrap_or_default();
        let list = |name: &str| {
            let ids = stored[name].as_array().map(Vec::as_slice).unwrap_or_default();
            ids.iter().filter_map(Json::as_str).map(str::to_owned).collect()
        };
        Self {
            excluded_workspaces: list("excluded-workspaces"),
            allowed_projects: list("allowed-projects"),
            allowed_workspaces: list("allowed-workspaces"),
        }
    }

    /// Returns the JSON text to store. The excluded list comes first, because [`pattern_of_scopes_allowing`] matches
    /// any id after the name of an allowed list.
    pub(super) fn text(&self) -> String {
        let Self { excluded_workspaces, allowed_projects, allowed_workspaces } = self;
        let excluded = json!(excluded_workspaces);
        let projects = json!(allowed_projects);
        let workspaces = json!(allowed_workspaces);
        format!(
            r#"{{"excluded-workspaces":{excluded},"allowed-projects":{projects},"allowed-workspaces":{workspaces}}}"#
        )
    }

    pub(super) fn restricted_to(&self, seen: &HashSet<String>) -> Self {
        let only = |list: &[String]| list.iter().filter(|id| seen.contains(*id)).cloned().collect();
        Self {
            excluded_workspaces: only(&self.excluded_workspaces),
            allowed_projects: only(&self.allowed_projects),
            allowed_workspaces: only(&self.allowed_workspaces),
        }
    }
}

/// Returns a LIKE pattern that matches the stored scopes which allow a resource. `list` is `allowed-projects` or
/// `allowed-workspaces`.
pub(super) fn pattern_of_scopes_allowing(list: &str, ext_id: &str) -> String {
    format!(r#"%"{list}":[%"{ext_id}"%"#)
}

impl UsablePool {
    /// Reads the columns `id, organization_scoped, scope`.
    ///
    /// # Errors
    /// `Internal` when a column has an unexpected type.
    pub(super) fn read(row: &mut SqlRow) -> WorkResult<Self> {
        let id = row.get()?;
        let organization_scoped = row.get()?;
        Ok(Self { id, organization_scoped, scope: AgentPoolScope::parse(&row.get::<String>()?) })
    }

    /// `true` if `user` may use the pool.
    pub fn admits(&self, user: PoolUser<'_>) -> bool {
        let names = |list: &[String], id: Option<&str>| id.is_some_and(|id| list.iter().any(|one| one == id));
        match user {
            PoolUser::Organization => self.organization_scoped,
            PoolUser::Project(id) => self.organization_scoped || names(&self.scope.allowed_projects, id),
            PoolUser::Workspace(id, project) => {
                let is_for = self.organization_scoped
                    || names(&self.scope.allowed_workspaces, id)
                    || names(&self.scope.allowed_projects, Some(project));
                is_for && !self.excludes(id)
            }
        }
    }

    /// `true` if setting the pool on `user` would make a workspace inherit the pool although the pool excludes the
    /// workspace.
    ///
    /// A workspace inherits from its project if it has no execution mode of its own, and from the organization if its
    /// project has none either.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn excludes_inheriting_workspace(
        &self,
        tx: &mut Tx<'_>,
        org_id: i64,
        user: PoolUser<'_>,
    ) -> WorkResult<bool> {
        const SELECT_EXCLUDED_INHERITING_WORKSPACE: &str =
            "SELECT 1 FROM workspaces w JOIN projects p ON p.id = w.project_id
            WHERE w.ext_id = ANY($1) AND w.org_id = $2 AND w.execution_mode IS NULL";
        let mut values: Vec<SqlValue> = vec![self.scope.excluded_workspaces.clone().into(), org_id.into()];
        let of_user = match user {
            _ if self.scope.excluded_workspaces.is_empty() => return Ok(false),
            PoolUser::Workspace(..) | PoolUser::Project(None) => return Ok(false),
            PoolUser::Organization => "p.execution_mode IS NULL",
            PoolUser::Project(Some(project)) => {
                values.push(project.into());
                "p.ext_id = $3"
            }
        };
        Ok(tx.row(&format!("{SELECT_EXCLUDED_INHERITING_WORKSPACE} AND {of_user} LIMIT 1"), &values).await?.is_some())
    }

    /// `true` if the pool excludes the workspace. An excluded workspace may not use the pool, not even by inheritance.
    /// A new workspace (`None`) is never excluded.
    pub fn excludes(&self, workspace: Option<&str>) -> bool {
        workspace.is_some_and(|id| self.scope.excluded_workspaces.iter().any(|one| one == id))
    }
}

/// Returns a pool of an organization by external id. The row of the pool is locked in share mode, so that its scope
/// does not change before the end of the transaction.
///
/// # Errors
/// Those of the store.
pub async fn find_usable(tx: &mut Tx<'_>, org_id: i64, ext_id: &str) -> WorkResult<Option<UsablePool>> {
    let sql = "SELECT id, organization_scoped, scope FROM agent_pools WHERE ext_id = $1 AND +org_id = $2 FOR SHARE";
    match tx.row(sql, &[ext_id.into(), org_id.into()]).await? {
        Some(mut row) => UsablePool::read(&mut row).map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    /// Matches `text` like SQL LIKE, but supports only the wildcard `%`.
    fn like(text: &str, pattern: &str) -> bool {
        let mut parts = pattern.split('%').filter(|part| !part.is_empty());
        parts.try_fold(text, |rest, part| rest.split_once(part).map(|(_, rest)| rest)).is_some()
    }

    #[test]
    fn stored_scope_reads_back_and_matches_allowed_resources() {
        let scope = AgentPoolScope {
            excluded_workspaces: list(&["ws-out"]),
            allowed_projects: list(&["prj-1"]),
            allowed_workspaces: list(&["ws-1", "ws-2"]),
        };
        let text = scope.text();
        assert_eq!(AgentPoolScope::parse(&text), scope);
        assert_eq!(AgentPoolScope::parse("{}"), AgentPoolScope::default());
        assert!(
            like(&text, &pattern_of_scopes_allowing("allowed-workspaces", "ws-2"))
                && like(&text, &pattern_of_scopes_allowing("allowed-projects", "prj-1"))
        );
        assert!(!like(&text, &pattern_of_scopes_allowing("allowed-workspaces", "ws-out")));
    }

    #[test]
    fn agent_pool_admits_only_its_scope() {
        let scope = AgentPoolScope {
            excluded_workspaces: list(&["ws-out"]),
            allowed_projects: list(&["prj-1"]),
            allowed_workspaces: list(&["ws-1", "ws-out"]),
        };
        let narrow = UsablePool { id: 1, organization_scoped: false, scope: scope.clone() };
        let wide = UsablePool { id: 1, organization_scoped: true, scope };
        for (user, by_narrow, by_wide) in [
            (PoolUser::Organization, false, true),
            (PoolUser::Project(Some("prj-1")), true, true),
            (PoolUser::Project(Some("prj-2")), false, true),
            (PoolUser::Project(None), false, true),
            (PoolUser::Workspace(Some("ws-1"), "prj-2"), true, true),
            (PoolUser::Workspace(Some("ws-2"), "prj-1"), true, true),
            (PoolUser::Workspace(None, "prj-1"), true, true),
            (PoolUser::Workspace(Some("ws-2"), "prj-2"), false, true),
            (PoolUser::Workspace(None, "prj-2"), false, true),
            (PoolUser::Workspace(Some("ws-out"), "prj-1"), false, false),
        ] {
            assert_eq!((narrow.admits(user), wide.admits(user)), (by_narrow, by_wide), "{user:?}");
        }
    }
}
