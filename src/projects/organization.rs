//! Organizations, which own all other resources.
//!
//! Module [`change`] validates the attributes of organizations, [`settings`] handles the attributes that have no
//! effect, and [`removal`] removes deleted organizations. [`member`](super::member) determines the rights of a caller.

pub mod change;
pub mod removal;
pub mod settings;

use std::collections::HashMap;

use super::id;
use super::mode::ExecutionMode;
use super::page;
use super::rejection::{ApiRejection, WorkResult};
use super::rights::OrganizationRights;
use super::tx::Tx;
use crate::clock::Time;
use crate::sql::{SqlRow, SqlValue};

/// An organization as stored.
#[derive(Clone, Debug)]
pub struct Organization {
    /// Row id.
    pub id: i64,
    /// External id. The API uses the name as the id instead.
    pub ext_id: String,
    /// The name, in its original case.
    pub name: String,
    /// Contact email address.
    pub email: String,
    /// The execution mode that projects and workspaces inherit.
    pub mode: ExecutionMode,
    /// `true` if user tokens are accepted in this organization.
    pub user_tokens_enabled: bool,
    /// `true` if administrators of a workspace may delete the workspace even if it holds state.
    pub allow_force_delete: bool,
    /// The attributes that are stored but have no effect ([`settings`]), as a JSON object.
    pub settings: String,
    /// Number of projects.
    pub projects: i64,
    /// Number of workspaces.
    pub workspaces: i64,
    /// Creation time.
    pub created_at: Time,
}

/// The columns that [`Organization::read`] reads, from `organizations o` and the default agent pool `a`.
const ORGANIZATION_COLUMNS: &str = "o.id, o.ext_id, o.name, o.email, o.execution_mode, a.ext_id, o.user_tokens_enabled,
    o.allow_force_delete, o.settings, o.project_count, o.workspace_count, o.created_at
    FROM organizations o LEFT JOIN agent_pools a ON a.id = o.agent_pool_id";

pub(super) const ORGANIZATION_NOT_ENDED: &str = "o.ended_at IS NULL";

impl Organization {
    fn read(row: &mut SqlRow) -> WorkResult<Self> {
        Ok(Self {
            id: row.get()?,
            ext_id: row.get()?,
            name: row.get()?,
            email: row.get()?,
            mode: ExecutionMode { name: row.get()?, pool: row.get()? },
            user_tokens_enabled: row.get()?,
            allow_force_delete: row.get()?,
            settings: row.get()?,
            projects: row.get()?,
            workspaces: row.get()?,
            created_at: row.get()?,
        })
    }

    /// Returns the organization whose `column` has this value, without checking the caller's rights. The organization
    /// is locked until the end of the session if [`Tx::lock_lookups_and_organization`] was called.
    ///
    /// # Errors
    /// `NotFound` when the organization is absent.
    pub(super) async fn load_by_column(tx: &mut Tx<'_>, column: &str, value: SqlValue) -> WorkResult<Self> {
        if tx.locks_organization() {
            lock_where(tx, column, value.clone()).await?;
        }
        let sql = format!("SELECT {ORGANIZATION_COLUMNS} WHERE {column} = $1 AND {ORGANIZATION_NOT_ENDED}");
        let mut row = tx.row(&sql, &[value]).await?.ok_or_else(ApiRejection::not_found)?;
        Self::read(&mut row)
    }

    /// Returns the organizations in the order of `ids`, without checking the caller's rights.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn load_by_ids(tx: &mut Tx<'_>, ids: &[i64]) -> WorkResult<Vec<Self>> {
        page::load_in_order(
            tx,
            &format!("SELECT {ORGANIZATION_COLUMNS} WHERE o.id = ANY($1) AND {ORGANIZATION_NOT_ENDED}"),
            ids,
            Self::read,
            |one| one.id,
        )
        .await
    }
}

/// Returns the organization with a row id, without checking the caller's rights.
///
/// # Errors
/// `NotFound` when the organization is absent.
pub async fn load_by_row(tx: &mut Tx<'_>, id: i64) -> WorkResult<Organization> {
    Organization::load_by_column(tx, "o.id", id.into()).await
}

/// Creates an organization, its owners team with `owner` as the first member, and its default project.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn create(tx: &mut Tx<'_>, owner: i64, name: &str, email: &str, settings: &str) -> WorkResult<i64> {
    let insert = "INSERT INTO organizations (ext_id, name, name_lc, email, settings, project_count, created_at)
        VALUES ($1, $2, $3, $4, $5, 1, $6) RETURNING id";
    let values: [SqlValue; 6] =
        [id::new("org").into(), name.into(), name.to_lowercase().into(), email.into(), settings.into(), tx.now.into()];
    let org: i64 = tx.one(insert, &values).await?.get()?;
    let member = "INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
        VALUES ($1, $2, $3, 'active', $4)";
    tx.execute(member, &[id::new("ou").into(), org.into(), owner.into(), tx.now.into()]).await?;
    let team = "INSERT INTO teams (ext_id, org_id, name, name_lc, is_owners, org_access, user_count)
        VALUES ($1, $2, 'owners', 'owners', TRUE, $3, 1) RETURNING id";
    let values: [SqlValue; 3] = [id::new("team").into(), org.into(), OrganizationRights::ALL.bits().into()];
    let team: i64 = tx.one(team, &values).await?.get()?;
    let joins = "INSERT INTO team_memberships (team_id, user_id) VALUES ($1, $2)";
    tx.execute(joins, &[team.into(), owner.into()]).await?;
    let project = "INSERT INTO projects (ext_id, org_id, name, name_lc, is_default, created_at)
        VALUES ($1, $2, 'Default Project', 'default project', TRUE, $3)";
    tx.execute(project, &[id::new("prj").into(), org.into(), tx.now.into()]).await?;
    Ok(org)
}

/// Locks the organization's row until the end of the transaction, to serialize changes within one organization.
///
/// # Errors
/// `NotFound` when the organization was deleted.
pub async fn lock(tx: &mut Tx<'_>, id: i64) -> WorkResult<()> {
    lock_where(tx, "o.id", id.into()).await
}

async fn lock_where(tx: &mut Tx<'_>, column: &str, value: SqlValue) -> WorkResult<()> {
    let sql = format!("SELECT o.id FROM organizations o WHERE {column} = $1 AND {ORGANIZATION_NOT_ENDED} FOR UPDATE");
    tx.row(&sql, &[value]).await?.map(drop).ok_or_else(|| ApiRejection::not_found().into())
}

/// Returns the external id of an organization's default project.
///
/// # Errors
/// Those of the store.
pub async fn find_default_project(tx: &mut Tx<'_>, id: i64) -> WorkResult<Option<String>> {
    Ok(find_default_projects(tx, vec![id]).await?.remove(&id))
}

/// Returns the external ids of the default projects of these organizations, by organization row id.
///
/// # Errors
/// Those of the store.
pub async fn find_default_projects(tx: &mut Tx<'_>, organizations: Vec<i64>) -> WorkResult<HashMap<i64, String>> {
    let mut projects = HashMap::new();
    let sql = "SELECT org_id, ext_id FROM projects WHERE org_id = ANY($1) AND is_default";
    for mut row in tx.rows(sql, &[organizations.into()]).await? {
        projects.insert(row.get()?, row.get()?);
    }
    Ok(projects)
}

/// Deletes an organization by marking it as ended: it and its resources become invisible, and its name may be reused.
/// Users remain. [`removal`] removes the rows later.
///
/// # Errors
/// `NotFound` when the organization is already deleted.
pub async fn delete(tx: &mut Tx<'_>, id: i64) -> WorkResult<()> {
    lock(tx, id).await?;
    // The new `name_lc` frees the name for reuse. It is unique, because it contains the external id, and names contain
    // no slash. The removal deletes agent pools before the organization, so the reference to the default pool must be
    // cleared.
    let end = "UPDATE organizations SET ended_at = $1, name_lc = '/' || ext_id, execution_mode = 'remote',
        agent_pool_id = NULL WHERE id = $2";
    tx.execute(end, &[tx.now.into(), id.into()]).await?;
    tx.execute("DELETE FROM api_tokens WHERE org_id = $1", &[id.into()]).await?;
    Ok(())
}
