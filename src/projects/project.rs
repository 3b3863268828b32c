//! Projects: creation, lookup, change and deletion.
//!
//! Module `fields` validates attributes, `list` lists projects, `moves` moves workspaces between projects.

mod fields;
mod list;
mod moves;

use super::caller::ProjectsCaller;
use super::grants::{self, ProjectGrants};
use super::id;
use super::member::{self, Member};
use super::mode::{ExecutionMode, ModeColumns};
use super::organization::removal;
use super::page;
use super::rejection::{ApiRejection, WorkResult};
use super::rights::{OrganizationFlag, ProjectRights};
use super::tag::{self, Tag, TaggedResource};
use super::tx::{MAX_ROWS_PER_SESSION, Tx};
use crate::clock::Time;
use crate::sql::{SqlRow, SqlValue};
pub use fields::{ProjectFields, read_duration};
pub use list::{ProjectFilter, list};
pub use moves::move_workspaces;

/// A project as stored, with the caller's rights on it.
#[derive(Clone, Debug)]
pub struct Project {
    /// Row id.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// The name, in its original case.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// The time of inactivity after which resources of the project's workspaces are destroyed, such as `14d` or `24h`.
    pub auto_destroy: Option<String>,
    /// The execution mode set on the project; `None` if the project inherits the mode of the organization.
    pub own_mode: Option<ExecutionMode>,
    /// `true` for the organization's default project.
    pub is_default: bool,
    /// Number of workspaces.
    pub workspaces: i64,
    /// Number of teams with access to the project.
    pub teams: i64,
    /// Creation time.
    pub created_at: Time,
    /// The caller's rights on the project.
    pub rights: ProjectRights,
}

const PROJECT_COLUMNS: &str = "p.id, p.ext_id, p.name, p.description, p.auto_destroy, p.execution_mode, a.ext_id,
    p.is_default, p.workspace_count, p.team_count, p.created_at
    FROM projects p LEFT JOIN agent_pools a ON a.id = p.agent_pool_id";

impl Project {
    fn read(row: &mut SqlRow) -> WorkResult<Self> {
        let id = row.get()?;
        let ext_id = row.get()?;
        let name = row.get()?;
        let description = row.get()?;
        let auto_destroy = row.get()?;
        let (mode, pool): (Option<String>, Option<String>) = (row.get()?, row.get()?);
        Ok(Self {
            id,
            ext_id,
            name,
            description,
            auto_destroy,
            own_mode: mode.map(|name| ExecutionMode { name, pool }),
            is_default: row.get()?,
            workspaces: row.get()?,
            teams: row.get()?,
            created_at: row.get()?,
            rights: ProjectRights::NONE,
        })
    }

    /// Returns the effective execution mode: that of the project if set, otherwise that of the organization.
    pub fn mode<'m>(&'m self, member: &'m Member) -> &'m ExecutionMode {
        self.own_mode.as_ref().unwrap_or(&member.organization.mode)
    }
}

/// Creates a project in the member's organization.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn create(tx: &mut Tx<'_>, member: &Member, fields: ProjectFields) -> WorkResult<Project> {
    let org_id = member.organization.id;
    // The update locks the organization's row, which serializes the creation of projects.
    let count = "UPDATE organizations SET project_count = project_count + 1 WHERE id = $1 AND ended_at IS NULL";
    ApiRejection::not_found_unless(tx.execute(count, &[org_id.into()]).await? > 0)?;
    let insert = "INSERT INTO projects (ext_id, org_id, name, name_lc, description, auto_destroy, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
    let name = fields.name.value().unwrap_or_default();
    let values: [SqlValue; 7] = [
        id::new("prj").into(),
        org_id.into(),
        name.as_str().into(),
        name.to_lowercase().into(),
        fields.description.value().into(),
        fields.auto_destroy.value().into(),
        tx.now.into(),
    ];
    let row: i64 = tx.one(insert, &values).await?.get()?;
    store_mode_and_tags(tx, row, fields.mode, fields.tags).await?;
    load_by_row(tx, member, row).await
}

async fn store_mode_and_tags(
    tx: &mut Tx<'_>,
    row: i64,
    mode: Option<ModeColumns>,
    tags: Option<Vec<Tag>>,
) -> WorkResult<()> {
    if let Some(ModeColumns { mode, pool }) = mode {
        let update = "UPDATE projects SET execution_mode = $1, agent_pool_id = $2 WHERE id = $3";
        tx.execute(update, &[mode.into(), pool.into(), row.into()]).await?;
    }
    match tags {
        Some(tags) => tag::replace(tx, TaggedResource::Project, row, &tags).await,
        None => Ok(()),
    }
}

/// Changes those attributes of a locked project that `fields` contains.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn change(tx: &mut Tx<'_>, member: &Member, project: Project, fields: ProjectFields) -> WorkResult<Project> {
    let name = fields.name.value().unwrap_or(project.name);
    let update = "UPDATE projects SET name = $1, name_lc = $2, description = $3, auto_destroy = $4 WHERE id = $5";
    let values: [SqlValue; 5] = [
        name.as_str().into(),
        name.to_lowercase().into(),
        fields.description.or_stored(project.description).into(),
        fields.auto_destroy.or_stored(project.auto_destroy).into(),
        project.id.into(),
    ];
    tx.execute(update, &values).await?;
    store_mode_and_tags(tx, project.id, fields.mode, fields.tags).await?;
    load_by_row(tx, member, project.id).await
}

/// Checks that the member may create projects.
///
/// # Errors
/// `Forbidden` when the member may not. The kind is not `NotFound`, because known clients react to status 404 by
/// placing the contents of the project elsewhere.
pub fn require_may_create(member: &Member) -> WorkResult<()> {
    if member.is_owner || member.rights.has(OrganizationFlag::ManageProjects) {
        return Ok(());
    }
    Err(ApiRejection::forbidden("you may not create projects in this organization").into())
}

/// Returns a project on which the caller has the rights `needed`, and the caller's membership in its organization. The
/// row of the project, with its counters, is locked until the end of the session if [`Tx::lock_lookups`] was called.
///
/// # Errors
/// `NotFound` when the project is absent or hidden, or the caller lacks a right in `needed`.
pub async fn find_visible(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    ext_id: &str,
    needed: ProjectRights,
) -> WorkResult<(Member, Project)> {
    let (member, project) = find_with_member(tx, caller, ext_id).await?;
    let project = require_rights(project, needed)?;
    if !tx.locks_lookups() {
        return Ok((member, project));
    }
    // The rights are checked before locking, so that callers without access cannot block others.
    tx.lock_row("projects", project.id).await?;
    let held = require_rights(load_by_row(tx, &member, project.id).await?, needed)?;
    Ok((member, held))
}

/// Returns a project and the caller's membership in its organization, even if the project is hidden from the caller.
///
/// # Errors
/// `NotFound` when the project is absent or the caller is not a member of its organization.
pub async fn find_with_member(tx: &mut Tx<'_>, caller: &ProjectsCaller, ext_id: &str) -> WorkResult<(Member, Project)> {
    let found = tx.row("SELECT id, org_id FROM projects WHERE ext_id = $1", &[ext_id.into()]).await?;
    let mut found = found.ok_or_else(ApiRejection::not_found)?;
    let row = found.get()?;
    let org_id = found.get()?;
    let member = member::find_by_organization_row(tx, caller, org_id).await?;
    let project = load_by_row(tx, &member, row).await?;
    Ok((member, project))
}

/// Returns a project of the member's organization on which the member has the rights `needed`.
///
/// # Errors
/// `NotFound` when the project is absent, hidden or of another organization, or the member lacks a right in `needed`.
pub async fn find_in_organization(
    tx: &mut Tx<'_>,
    member: &Member,
    ext_id: &str,
    needed: ProjectRights,
) -> WorkResult<Project> {
    let sql = "SELECT id FROM projects WHERE ext_id = $1 AND org_id = $2";
    let found = tx.row(sql, &[ext_id.into(), member.organization.id.into()]).await?;
    let project = load_by_row(tx, member, found.ok_or_else(ApiRejection::not_found)?.get()?).await?;
    require_rights(project, needed)
}

fn require_rights(project: Project, needed: ProjectRights) -> WorkResult<Project> {
    ApiRejection::not_found_unless(project.rights.has(ProjectRights::READ | needed))?;
    Ok(project)
}

async fn load_by_row(tx: &mut Tx<'_>, member: &Member, row: i64) -> WorkResult<Project> {
    let found = load_by_rows(tx, member, &[row]).await?.into_iter().next();
    Ok(found.ok_or_else(ApiRejection::not_found)?)
}

/// Returns the projects with these row ids, in the order of `rows`, with the member's rights on each. Projects on which
/// the member has no rights are included.
///
/// # Errors
/// Those of the store.
pub async fn load_by_rows(tx: &mut Tx<'_>, member: &Member, rows: &[i64]) -> WorkResult<Vec<Project>> {
    let granted = grants::load_for_projects(tx, member, rows).await?;
    load_with_grants(tx, member, rows, &granted).await
}

async fn load_with_grants(
    tx: &mut Tx<'_>,
    member: &Member,
    rows: &[i64],
    granted: &ProjectGrants,
) -> WorkResult<Vec<Project>> {
    // The condition on the organization excludes projects that were deleted meanwhile: they belong to an ended
    // (deleted) organization.
    let sql = format!("SELECT {PROJECT_COLUMNS} WHERE p.id = ANY($1) AND +p.org_id = $2");
    let read = |row: &mut SqlRow| {
        let mut project = Project::read(row)?;
        project.rights = member.rights_on_project(project.is_default, granted.rights_on(project.id));
        Ok(project)
    };
    page::load_in_order_with_organization(tx, &sql, rows, member.organization.id, read, |project| project.id).await
}

/// Deletes an empty project that is not the default one, with its tags and the access of teams. If many teams have
/// access, the project only becomes invisible, and [`removal`] removes its rows later.
///
/// `may_delete_workspaces` is `true` if the member may delete the workspaces of the project.
///
/// # Errors
/// `Invalid` when the project contains workspaces, or `Forbidden` if the member may not delete them; `Conflict` for the
/// default project; `NotFound` when the project was deleted concurrently.
pub async fn delete(
    tx: &mut Tx<'_>,
    member: &Member,
    project: &Project,
    may_delete_workspaces: bool,
) -> WorkResult<()> {
    let (row, org_id): (SqlValue, SqlValue) = (project.id.into(), member.organization.id.into());
    // The update locks the organization before the project, the order that all sessions use.
    let count = "UPDATE organizations SET project_count = project_count - 1 WHERE id = $1";
    tx.execute(count, std::slice::from_ref(&org_id)).await?;
    let lock = "SELECT workspace_count, team_count FROM projects WHERE id = $1 AND org_id = $2 FOR UPDATE";
    let mut locked = tx.row(lock, &[row.clone(), org_id]).await?.ok_or_else(ApiRejection::not_found)?;
    let (workspaces, teams): (i64, i64) = (locked.get()?, locked.get()?);
    if project.is_default {
        return Err(ApiRejection::conflict("the default project of an organization cannot be deleted").into());
    }
    if workspaces > 0 && !may_delete_workspaces {
        return Err(ApiRejection::forbidden("not authorized to perform a force delete on the project").into());
    }
    if workspaces > 0 {
        let detail = format!("the project holds workspaces ({workspaces}); move or delete them first");
        return Err(ApiRejection::invalid_state(detail).into());
    }
    if teams <= MAX_ROWS_PER_SESSION {
        tx.execute("DELETE FROM projects WHERE id = $1", &[row]).await?;
        return Ok(());
    }
    // The project moves to an ended organization, but its agent pool does not, so the reference to the pool must be
    // cleared.
    let leave = "UPDATE projects SET execution_mode = NULL, agent_pool_id = NULL WHERE id = $1";
    tx.execute(leave, &[row]).await?;
    removal::move_to_ended_organization(tx, "projects", project.id).await
}
