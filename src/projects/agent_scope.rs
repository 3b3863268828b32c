//! The scope of agent pools: which projects and workspaces may use one.
//!
//! A workspace may use a pool that is for the whole organization, or for it or its project, and from which it is not
//! excluded. A project may use one that is for the organization or for it; an organization, one that is for all of it.

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use super::refusal::Outcome;
use super::tx::Tx;
use crate::sql::{Row, Value};

/// External ids of the resources that a pool is for, or not for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Workspaces that it is not for.
    pub excluded_workspaces: Vec<String>,
    /// Projects that it is for.
    pub allowed_projects: Vec<String>,
    /// Workspaces that it is for.
    pub allowed_workspaces: Vec<String>,
}

/// A resource that names a pool, by external ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolUser<'u> {
    /// An organization, for everything in it.
    Organization,
    /// A project, for the workspaces in it; one that is being created has no id yet.
    Project(Option<&'u str>),
    /// A workspace and its project; one that is being created has no id yet.
    Workspace(Option<&'u str>, &'u str),
}

/// A pool as far as its use goes.
pub struct UsablePool {
    /// Row.
    pub id: i64,
    organization_scoped: bool,
    scope: Scope,
}

impl Scope {
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

    /// To be stored: the excluded ones first, so that what follows the name of a list of allowed ones is
    /// allowed (see [`naming`]).
    pub(super) fn text(&self) -> String {
        let Self { excluded_workspaces, allowed_projects, allowed_workspaces } = self;
        let (excluded, projects, workspaces) =
            (json!(excluded_workspaces), json!(allowed_projects), json!(allowed_workspaces));
        format!(
            r#"{{"excluded-workspaces":{excluded},"allowed-projects":{projects},"allowed-workspaces":{workspaces}}}"#
        )
    }

    pub(super) fn seen(&self, seen: &HashSet<String>) -> Self {
        let only = |list: &[String]| list.iter().filter(|id| seen.contains(*id)).cloned().collect();
        Self {
            excluded_workspaces: only(&self.excluded_workspaces),
            allowed_projects: only(&self.allowed_projects),
            allowed_workspaces: only(&self.allowed_workspaces),
        }
    }
}

/// The pattern of stored scopes that name a resource in a list of allowed ones.
pub(super) fn naming(list: &str, ext_id: &str) -> String {
    format!(r#"%"{list}":[%"{ext_id}"%"#)
}

impl UsablePool {
    /// Reads the columns `id, organization_scoped, scope`.
    ///
    /// # Errors
    /// `Internal` when a column is not what the schema says.
    pub(super) fn read(row: &mut Row) -> Outcome<Self> {
        let (id, organization_scoped) = (row.get()?, row.get()?);
        Ok(Self { id, organization_scoped, scope: Scope::parse(&row.get::<String>()?) })
    }

    /// Whether a resource may name it.
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

    /// `true` if a workspace is excluded that has no execution mode of its own in the project, or in a project of the
    /// organization that has none either: the pool would be its pool when the `user` names it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn excludes_heir(&self, tx: &mut Tx<'_>, org_id: i64, user: PoolUser<'_>) -> Outcome<bool> {
        const HEIRS: &str = "SELECT 1 FROM workspaces w JOIN projects p ON p.id = w.project_id
            WHERE w.ext_id = ANY($1) AND w.org_id = $2 AND w.execution_mode IS NULL";
        let mut values: Vec<Value> = vec![self.scope.excluded_workspaces.clone().into(), org_id.into()];
        let of_user = match user {
            _ if self.scope.excluded_workspaces.is_empty() => return Ok(false),
            PoolUser::Workspace(..) | PoolUser::Project(None) => return Ok(false),
            PoolUser::Organization => "p.execution_mode IS NULL",
            PoolUser::Project(Some(project)) => {
                values.push(project.into());
                "p.ext_id = $3"
            }
        };
        Ok(tx.row(&format!("{HEIRS} AND {of_user} LIMIT 1"), &values).await?.is_some())
    }

    /// Whether a workspace is excluded: it may not use the pool where its project or organization names it either.
    pub fn excludes(&self, workspace: Option<&str>) -> bool {
        workspace.is_some_and(|id| self.scope.excluded_workspaces.iter().any(|one| one == id))
    }
}

/// A pool of an organization by its external id. Its scope does not change until the end of the transaction.
///
/// # Errors
/// Those of the store.
pub async fn usable(tx: &mut Tx<'_>, org_id: i64, ext_id: &str) -> Outcome<Option<UsablePool>> {
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

    /// LIKE, as far as `%` goes.
    fn like(text: &str, pattern: &str) -> bool {
        let mut parts = pattern.split('%').filter(|part| !part.is_empty());
        parts.try_fold(text, |rest, part| rest.split_once(part).map(|(_, rest)| rest)).is_some()
    }

    #[test]
    fn a_stored_scope_reads_back_and_only_allowed_resources_are_found_in_it() {
        let scope = Scope {
            excluded_workspaces: list(&["ws-out"]),
            allowed_projects: list(&["prj-1"]),
            allowed_workspaces: list(&["ws-1", "ws-2"]),
        };
        let text = scope.text();
        assert_eq!(Scope::parse(&text), scope);
        assert_eq!(Scope::parse("{}"), Scope::default());
        assert!(
            like(&text, &naming("allowed-workspaces", "ws-2")) && like(&text, &naming("allowed-projects", "prj-1"))
        );
        assert!(!like(&text, &naming("allowed-workspaces", "ws-out")));
    }

    #[test]
    fn a_pool_admits_what_it_is_for() {
        let scope = Scope {
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
