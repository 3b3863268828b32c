//! Workspaces: lookup, creation, change, move and deletion.
//!
//! Module `rights` computes the caller's rights, `fields` and `settings` validate attributes, `list` lists workspaces,
//! and `lock` locks and unlocks them. The row of a workspace does not contain values that it inherits from its project
//! and organization; queries join them. A change of such a value thus updates only one row.

mod fields;
mod list;
mod lock;
mod rights;
mod settings;

use super::caller::ProjectsCaller;
use super::id;
use super::member::{self, Member};
use super::mode::ExecutionMode;
use super::page;
use super::project::{self, Project};
use super::rejection::{ApiRejection, WorkResult};
use super::rights::ProjectRights;
use super::tag::{self, TagBinding, TaggedResource};
use super::team;
use super::tx::Tx;
use crate::clock::Time;
use crate::sql::{SqlRow, SqlValue};
pub use fields::{WorkspaceFields, WorkspaceTarget};
pub use list::{WorkspaceFilter, list, select_visible};
pub use lock::{lock, unlock, unlock_by_force};
pub use rights::WorkspaceRights;
pub(super) use rights::{load_for_workspaces as load_workspace_rights, load_team_grants as load_team_workspace_grants};
pub use settings::WorkspaceSettingValues;

/// A workspace as stored, with inherited values and the caller's rights.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Row id.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// The name, in its original case.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// Row id of the project.
    pub project: i64,
    /// External id of the project.
    pub project_ext_id: String,
    /// `true` if the workspace inherits the auto-destroy duration of its project.
    pub inherits_auto_destroy: bool,
    /// The effective auto-destroy duration: the time of inactivity after which the workspace's resources are destroyed.
    pub auto_destroy: Option<String>,
    /// The project's auto-destroy duration.
    project_auto_destroy: Option<String>,
    /// The time at which the workspace's resources are to be destroyed, if a client has set such a time.
    pub auto_destroy_at: Option<Time>,
    /// The execution mode set on the workspace; `None` if the workspace inherits its mode.
    pub own_mode: Option<ExecutionMode>,
    project_mode: Option<ExecutionMode>,
    /// The Terraform version that a client has set: `latest`, a version, or version constraints.
    pub terraform_version: String,
    /// The attributes that are stored but have no effect.
    pub settings: WorkspaceSettingValues,
    /// The holder of the workspace's lock: `users/user-…` or `teams/team-…`. `None` if the workspace is not locked.
    pub locked_by: Option<String>,
    /// `true` if the holder of the lock is a team that the caller does not see.
    pub holder_is_hidden: bool,
    /// Creation time.
    pub created_at: Time,
    /// Time of the last change of the attributes or the project.
    pub updated_at: Time,
    /// The tags of the workspace itself, without inherited tags.
    pub tags: Vec<TagBinding>,
    /// The caller's rights on the workspace.
    pub rights: WorkspaceRights,
}

const WORKSPACE_COLUMNS: &str =
    "w.id, w.ext_id, w.name, w.description, w.project_id, p.ext_id, w.inherits_auto_destroy,
    CASE WHEN w.inherits_auto_destroy THEN p.auto_destroy ELSE w.own_auto_destroy END, p.auto_destroy,
    w.auto_destroy_at,
    w.execution_mode, a.ext_id, p.execution_mode, b.ext_id, w.terraform_version, w.settings, w.locked_by,
    w.created_at, w.updated_at
    FROM workspaces w JOIN projects p ON p.id = w.project_id
    LEFT JOIN agent_pools a ON a.id = w.agent_pool_id LEFT JOIN agent_pools b ON b.id = p.agent_pool_id";

fn read_mode(row: &mut SqlRow) -> WorkResult<Option<ExecutionMode>> {
    let (name, pool): (Option<String>, Option<String>) = (row.get()?, row.get()?);
    Ok(name.map(|name| ExecutionMode { name, pool }))
}

impl Workspace {
    fn read(row: &mut SqlRow) -> WorkResult<Self> {
        Ok(Self {
            id: row.get()?,
            ext_id: row.get()?,
            name: row.get()?,
            description: row.get()?,
            project: row.get()?,
            project_ext_id: row.get()?,
            inherits_auto_destroy: row.get()?,
            auto_destroy: row.get()?,
            project_auto_destroy: row.get()?,
            auto_destroy_at: row.get()?,
            own_mode: read_mode(row)?,
            project_mode: read_mode(row)?,
            terraform_version: row.get()?,
            settings: WorkspaceSettingValues::parse(&row.get::<String>()?),
            locked_by: row.get()?,
            holder_is_hidden: false,
            created_at: row.get()?,
            updated_at: row.get()?,
            tags: Vec::new(),
            rights: WorkspaceRights::NONE,
        })
    }

    /// Returns the effective execution mode: that of the workspace if set, otherwise that of the project if set,
    /// otherwise that of the organization.
    pub fn mode<'m>(&'m self, member: &'m Member) -> &'m ExecutionMode {
        self.own_mode.as_ref().or(self.project_mode.as_ref()).unwrap_or(&member.organization.mode)
    }
}

/// The identifier of a workspace in a request.
#[derive(Clone, Copy, Debug)]
pub enum WorkspaceLocator<'k> {
    /// The external id of the workspace.
    Id(&'k str),
    /// The names of the workspace and its organization, both case-insensitive.
    Name {
        /// The organization's name.
        organization: &'k str,
        /// The workspace's name.
        workspace: &'k str,
    },
}

/// Returns a workspace on which the caller has the rights `needed`, and the caller's membership in its organization.
/// The workspace is locked until the end of the session if [`Tx::lock_lookups`] was called.
///
/// # Errors
/// `NotFound` when the workspace is absent or hidden, or the caller lacks a right in `needed`.
pub async fn find_visible(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    key: WorkspaceLocator<'_>,
    needed: WorkspaceRights,
) -> WorkResult<(Member, Workspace)> {
    let (member, row) = match key {
        WorkspaceLocator::Id(ext_id) => {
            let found = tx.row("SELECT id, org_id FROM workspaces WHERE ext_id = $1", &[ext_id.into()]).await?;
            let mut found = found.ok_or_else(ApiRejection::not_found)?;
            let row = found.get()?;
            let org_id = found.get()?;
            (member::find_by_organization_row(tx, caller, org_id).await?, row)
        }
        WorkspaceLocator::Name { organization, workspace } => {
            let member = member::find_by_organization_name(tx, caller, organization).await?;
            let sql = "SELECT id FROM workspaces WHERE org_id = $1 AND name_lc = $2";
            let values: [SqlValue; 2] = [member.organization.id.into(), workspace.to_lowercase().into()];
            let row = tx.row(sql, &values).await?.ok_or_else(ApiRejection::not_found)?.get()?;
            (member, row)
        }
    };
    let workspace = load_by_row(tx, &member, row, needed).await?;
    if !tx.locks_lookups() {
        return Ok((member, workspace));
    }
    let workspace = lock_and_load(tx, &member, row, needed).await?;
    Ok((member, workspace))
}

/// Locks a workspace until the end of the session and reads it.
///
/// # Errors
/// `NotFound` when the workspace was deleted, or the member lacks a right in `needed`.
pub async fn lock_and_load(
    tx: &mut Tx<'_>,
    member: &Member,
    row: i64,
    needed: WorkspaceRights,
) -> WorkResult<Workspace> {
    tx.lock_row("workspaces", row).await?;
    load_by_row(tx, member, row, needed).await
}

async fn load_by_row(tx: &mut Tx<'_>, member: &Member, row: i64, needed: WorkspaceRights) -> WorkResult<Workspace> {
    let found = load_by_rows(tx, member, &[row]).await?.into_iter().next();
    let granted = |workspace: &Workspace| workspace.rights.has(WorkspaceRights::READ | needed);
    Ok(found.filter(granted).ok_or_else(ApiRejection::not_found)?)
}

/// Returns the workspaces with these row ids, in the order of `rows`, with their tags and the member's rights on each.
///
/// # Errors
/// Those of the store.
pub async fn load_by_rows(tx: &mut Tx<'_>, member: &Member, rows: &[i64]) -> WorkResult<Vec<Workspace>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!("SELECT {WORKSPACE_COLUMNS} WHERE w.id = ANY($1)");
    let mut found = page::load_in_order(tx, &sql, rows, Workspace::read, |workspace| workspace.id).await?;
    let project_of: Vec<(i64, i64)> = found.iter().map(|workspace| (workspace.id, workspace.project)).collect();
    let rights = rights::load_for_workspaces(tx, member, &project_of).await?;
    let mut tags = tag::load_bindings(tx, TaggedResource::Workspace, rows.to_vec()).await?;
    let holders = found.iter().filter_map(|workspace| workspace.locked_by.as_deref());
    let hidden = team::find_hidden_references(tx, member, holders).await?;
    for workspace in &mut found {
        workspace.holder_is_hidden = workspace.locked_by.as_ref().is_some_and(|holder| hidden.contains(holder));
        workspace.rights = rights.get(&workspace.id).copied().unwrap_or_default();
        workspace.tags = tags.remove(&workspace.id).unwrap_or_default();
    }
    Ok(found)
}

/// Returns the project of a new workspace: the project with the external id `named`, or the default project.
///
/// # Errors
/// `NotFound` when the project is absent or hidden, or the member may not create workspaces in the project.
pub async fn find_destination(tx: &mut Tx<'_>, member: &Member, named: Option<String>) -> WorkResult<Project> {
    let ext_id = match named {
        Some(ext_id) => ext_id,
        None => {
            let sql = "SELECT ext_id FROM projects WHERE org_id = $1 AND is_default";
            tx.one(sql, &[member.organization.id.into()]).await?.get()?
        }
    };
    project::find_in_organization(tx, member, &ext_id, ProjectRights::CREATE_WORKSPACE).await
}

/// Creates a workspace in a project of the member's organization and returns the row id of the workspace.
///
/// # Errors
/// `NotFound` when the project was deleted concurrently; `Invalid` when the name is taken.
pub async fn create(tx: &mut Tx<'_>, member: &Member, project: &Project, fields: WorkspaceFields) -> WorkResult<i64> {
    let org_id = member.organization.id;
    // The updates of the counters lock the organization and then the project, the order that all sessions use.
    let count = "UPDATE organizations SET workspace_count = workspace_count + 1 WHERE id = $1 AND ended_at IS NULL";
    ApiRejection::not_found_unless(tx.execute(count, &[org_id.into()]).await? > 0)?;
    let count = "UPDATE projects SET workspace_count = workspace_count + 1 WHERE id = $1 AND org_id = $2";
    ApiRejection::not_found_unless(tx.execute(count, &[project.id.into(), org_id.into()]).await? > 0)?;
    let insert = "INSERT INTO workspaces (ext_id, org_id, project_id, name, name_lc, description,
        inherits_auto_destroy, own_auto_destroy, auto_destroy_at, execution_mode, agent_pool_id, terraform_version,
        settings, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) RETURNING id";
    let mode = fields.mode.unwrap_or_default();
    let values: [SqlValue; 15] = [
        id::new("ws").into(),
        org_id.into(),
        project.id.into(),
        fields.name[..].into(),
        fields.name.to_lowercase().into(),
        fields.description.into(),
        fields.inherits_auto_destroy.into(),
        fields.own_auto_destroy.into(),
        fields.auto_destroy_at.into(),
        mode.mode.into(),
        mode.pool.into(),
        fields.terraform_version.into(),
        fields.settings.text().into(),
        tx.now.into(),
        tx.now.into(),
    ];
    Ok(tx.one(insert, &values).await?.get()?)
}

/// Changes a workspace whose row this session has locked ([`lock_and_load`]).
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn change(tx: &mut Tx<'_>, row: i64, fields: WorkspaceFields) -> WorkResult<()> {
    let update = "UPDATE workspaces SET name = $1, name_lc = $2, description = $3, inherits_auto_destroy = $4,
        own_auto_destroy = $5, auto_destroy_at = $6, terraform_version = $7, settings = $8, updated_at = $9
        WHERE id = $10";
    let values: [SqlValue; 10] = [
        fields.name[..].into(),
        fields.name.to_lowercase().into(),
        fields.description.into(),
        fields.inherits_auto_destroy.into(),
        fields.own_auto_destroy.into(),
        fields.auto_destroy_at.into(),
        fields.terraform_version.into(),
        fields.settings.text().into(),
        tx.now.into(),
        row.into(),
    ];
    tx.execute(update, &values).await?;
    if let Some(mode) = fields.mode {
        let update = "UPDATE workspaces SET execution_mode = $1, agent_pool_id = $2 WHERE id = $3";
        tx.execute(update, &[mode.mode.into(), mode.pool.into(), row.into()]).await?;
    }
    Ok(())
}

/// `true` if the member may delete the workspaces of a project.
///
/// # Errors
/// Those of the store.
pub async fn may_delete_all(tx: &mut Tx<'_>, member: &Member, project: &Project) -> WorkResult<bool> {
    let rights = rights::load_by_project(tx, member, vec![project.id]).await?;
    Ok(rights.get(&project.id).is_some_and(|rights| rights.has(WorkspaceRights::DESTROY)))
}

/// `true` if the member may move workspaces out of the project of `workspace`.
///
/// # Errors
/// Those of the store.
pub async fn may_move_out(tx: &mut Tx<'_>, member: &Member, workspace: &Workspace) -> WorkResult<bool> {
    let projects = project::load_by_rows(tx, member, &[workspace.project]).await?;
    Ok(projects.iter().any(|project| project.rights.has(ProjectRights::READ | ProjectRights::MOVE_WORKSPACE)))
}

/// Moves a workspace into another project of its organization.
///
/// # Errors
/// `NotFound` when the destination is absent or the member may not move workspaces into it; `Forbidden` when the member
/// may not move workspaces out of the current project.
pub async fn move_to_project(tx: &mut Tx<'_>, member: &Member, workspace: &Workspace, project: &str) -> WorkResult<()> {
    let destination = project::find_in_organization(tx, member, project, ProjectRights::MOVE_WORKSPACE).await?;
    project::move_workspaces(tx, member, &destination, std::slice::from_ref(&workspace.ext_id)).await
}

/// Deletes a workspace. If `safely` is `true`, a locked workspace is not deleted. Stored Terraform state is not
/// checked, because workspaces do not store state.
///
/// # Errors
/// `Forbidden` when `safely` is `false` and the member is not an administrator of the workspace; `Conflict` when
/// `safely` is `true` and the workspace is locked; `NotFound` when the member may not delete the workspace.
pub async fn delete(tx: &mut Tx<'_>, member: &Member, workspace: &Workspace, safely: bool) -> WorkResult<()> {
    if !safely && !workspace.rights.has(WorkspaceRights::ADMIN) {
        return Err(
            ApiRejection::forbidden("you may not force the deletion of this workspace, only delete it safely").into()
        );
    }
    let count = "UPDATE organizations SET workspace_count = workspace_count - 1 WHERE id = $1";
    tx.execute(count, &[member.organization.id.into()]).await?;
    let needed = if safely { WorkspaceRights::DESTROY } else { WorkspaceRights::ADMIN };
    let workspace = lock_and_load(tx, member, workspace.id, needed).await?;
    if safely && workspace.locked_by.is_some() {
        return Err(ApiRejection::conflict("the workspace is locked; unlock it before it is deleted").into());
    }
    let count = "UPDATE projects SET workspace_count = workspace_count - 1 WHERE id = $1";
    tx.execute(count, &[workspace.project.into()]).await?;
    tx.execute("DELETE FROM workspaces WHERE id = $1", &[workspace.id.into()]).await?;
    Ok(())
}
