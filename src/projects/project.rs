//! Projects: their rules and rows. What a request gives stands in `fields`, lists in `list`, moves
//! in `moves`.

mod fields;
mod list;
mod moves;

use super::caller::Caller;
use super::grants::{self, Grants};
use super::id;
use super::member::{self, Member};
use super::mode::{Columns, Mode};
use super::organization::ending;
use super::page;
use super::refusal::{Outcome, Refusal};
use super::rights::{Flag, ProjectRights};
use super::tag::{self, Holder, Tag};
use super::tx::{PARTS_AT_ONCE, Tx};
use crate::clock::Time;
use crate::sql::{Row, Value};
pub use fields::{Fields, read_duration};
pub use list::{ProjectFilter, list};
pub use moves::move_workspaces;

/// A project as stored, with what the caller may do with it.
#[derive(Clone, Debug)]
pub struct Project {
    /// Row.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// Its name, as it was written.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// After how long without activity its workspaces destroy what they manage: `14d`, `24h`.
    pub auto_destroy: Option<String>,
    /// Its own execution mode; `None` takes the organization's.
    pub own_mode: Option<Mode>,
    /// Whether it is the organization's default project.
    pub is_default: bool,
    /// How many workspaces it has.
    pub workspaces: i64,
    /// How many teams were given access to it.
    pub teams: i64,
    /// When it was made.
    pub created_at: Time,
    /// What the caller may do with it.
    pub rights: ProjectRights,
}

/// The columns that [`Project::read`] takes, from `projects p` with its pool `a`.
const COLUMNS: &str = "p.id, p.ext_id, p.name, p.description, p.auto_destroy, p.execution_mode, a.ext_id,
    p.is_default, p.workspace_count, p.team_count, p.created_at
    FROM projects p LEFT JOIN agent_pools a ON a.id = p.agent_pool_id";

impl Project {
    fn read(row: &mut Row) -> Outcome<Self> {
        let (id, ext_id, name, description, auto_destroy) =
            (row.get()?, row.get()?, row.get()?, row.get()?, row.get()?);
        let (mode, pool): (Option<String>, Option<String>) = (row.get()?, row.get()?);
        Ok(Self {
            id,
            ext_id,
            name,
            description,
            auto_destroy,
            own_mode: mode.map(|name| Mode { name, pool }),
            is_default: row.get()?,
            workspaces: row.get()?,
            teams: row.get()?,
            created_at: row.get()?,
            rights: ProjectRights::NONE,
        })
    }

    /// The mode that counts: its own, or the organization's.
    pub fn mode<'m>(&'m self, member: &'m Member) -> &'m Mode {
        self.own_mode.as_ref().unwrap_or(&member.organization.mode)
    }
}

/// Makes a project in the member's organization.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn create(tx: &mut Tx<'_>, member: &Member, given: Fields) -> Outcome<Project> {
    let org_id = member.organization.id;
    // Held until the end of the transaction: projects of one organization are made one after the other.
    let count = "UPDATE organizations SET project_count = project_count + 1 WHERE id = $1 AND ended_at IS NULL";
    Refusal::hidden_unless(tx.execute(count, &[org_id.into()]).await? > 0)?;
    let insert = "INSERT INTO projects (ext_id, org_id, name, name_lc, description, auto_destroy, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
    let name = given.name.value().unwrap_or_default();
    let values: [Value; 7] = [
        id::new("prj").into(),
        org_id.into(),
        name.as_str().into(),
        name.to_lowercase().into(),
        given.description.value().into(),
        given.auto_destroy.value().into(),
        tx.now.into(),
    ];
    let row: i64 = tx.one(insert, &values).await?.get()?;
    set(tx, row, given.mode, given.tags).await?;
    at(tx, member, row).await
}

/// Sets the mode and the tags of a project, as far as they were given.
async fn set(tx: &mut Tx<'_>, row: i64, mode: Option<Columns>, tags: Option<Vec<Tag>>) -> Outcome<()> {
    if let Some(Columns { mode, pool }) = mode {
        let update = "UPDATE projects SET execution_mode = $1, agent_pool_id = $2 WHERE id = $3";
        tx.execute(update, &[mode.into(), pool.into(), row.into()]).await?;
    }
    match tags {
        Some(tags) => tag::replace(tx, Holder::Project, row, &tags).await,
        None => Ok(()),
    }
}

/// Changes what was given of a project that is held, and leaves the rest as it is.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn change(tx: &mut Tx<'_>, member: &Member, project: Project, given: Fields) -> Outcome<Project> {
    let name = given.name.value().unwrap_or(project.name);
    let update = "UPDATE projects SET name = $1, name_lc = $2, description = $3, auto_destroy = $4 WHERE id = $5";
    let values: [Value; 5] = [
        name.as_str().into(),
        name.to_lowercase().into(),
        given.description.over(project.description).into(),
        given.auto_destroy.over(project.auto_destroy).into(),
        project.id.into(),
    ];
    tx.execute(update, &values).await?;
    set(tx, project.id, given.mode, given.tags).await?;
    at(tx, member, project.id).await
}

/// Whether the member may make projects.
///
/// # Errors
/// `Forbidden`: a member hears so. An answer of 404 would make known clients put what belongs into the
/// project somewhere else.
pub fn may_create(member: &Member) -> Outcome<()> {
    if member.owner || member.rights.has(Flag::ManageProjects) {
        return Ok(());
    }
    Err(Refusal::forbidden("you may not create projects in this organization").into())
}

/// A project by its external id, with its organization as the caller's; the caller has `needed` on it. Held
/// until the end of the session when [`Tx::hold`] was called: nobody else changes it, or what it counts,
/// meanwhile.
///
/// # Errors
/// `NotFound` when it is absent, hidden, or `needed` is not granted.
pub async fn visible(
    tx: &mut Tx<'_>,
    caller: &Caller,
    ext_id: &str,
    needed: ProjectRights,
) -> Outcome<(Member, Project)> {
    let (member, project) = of(tx, caller, ext_id).await?;
    let project = granted(project, needed)?;
    if !tx.holds() {
        return Ok((member, project));
    }
    // Who may not act on it never gets here, and holds up nobody.
    tx.take("projects", project.id).await?;
    let held = granted(at(tx, &member, project.id).await?, needed)?;
    Ok((member, held))
}

/// A project by its external id, with its organization as the caller's, whether or not the caller sees it.
///
/// # Errors
/// `NotFound` when it is absent or the caller is an outsider of its organization.
pub async fn of(tx: &mut Tx<'_>, caller: &Caller, ext_id: &str) -> Outcome<(Member, Project)> {
    let found = tx.row("SELECT id, org_id FROM projects WHERE ext_id = $1", &[ext_id.into()]).await?;
    let mut found = found.ok_or_else(Refusal::not_found)?;
    let (row, org_id) = (found.get()?, found.get()?);
    let member = member::at(tx, caller, org_id).await?;
    let project = at(tx, &member, row).await?;
    Ok((member, project))
}

/// A project of the member's organization by its external id; the member has `needed` on it.
///
/// # Errors
/// `NotFound` when it is absent, of another organization, hidden, or `needed` is not granted.
pub async fn of_member(tx: &mut Tx<'_>, member: &Member, ext_id: &str, needed: ProjectRights) -> Outcome<Project> {
    let sql = "SELECT id FROM projects WHERE ext_id = $1 AND org_id = $2";
    let found = tx.row(sql, &[ext_id.into(), member.organization.id.into()]).await?;
    let project = at(tx, member, found.ok_or_else(Refusal::not_found)?.get()?).await?;
    granted(project, needed)
}

/// A project on which what is needed is granted; its rights say so.
fn granted(project: Project, needed: ProjectRights) -> Outcome<Project> {
    Refusal::hidden_unless(project.rights.has(ProjectRights::READ | needed))?;
    Ok(project)
}

/// The project of a row that is there.
async fn at(tx: &mut Tx<'_>, member: &Member, row: i64) -> Outcome<Project> {
    let found = these(tx, member, &[row]).await?.into_iter().next();
    Ok(found.ok_or_else(Refusal::not_found)?)
}

/// The projects of rows, in the order of the rows, with what the member may do with each; that may be nothing.
///
/// # Errors
/// Those of the store.
pub async fn these(tx: &mut Tx<'_>, member: &Member, rows: &[i64]) -> Outcome<Vec<Project>> {
    let granted = grants::on(tx, member, rows).await?;
    with_grants(tx, member, rows, &granted).await
}

/// As [`these`], given what the member's teams have on them.
async fn with_grants(tx: &mut Tx<'_>, member: &Member, rows: &[i64], granted: &Grants) -> Outcome<Vec<Project>> {
    // Not those that were deleted since, which are of no organization that stands.
    let sql = format!("SELECT {COLUMNS} WHERE p.id = ANY($1) AND +p.org_id = $2");
    let read = |row: &mut Row| {
        let mut project = Project::read(row)?;
        project.rights = member.on_project(project.is_default, granted.on(project.id));
        Ok(project)
    };
    page::these_of(tx, &sql, rows, member.organization.id, read, |project| project.id).await
}

/// Deletes an empty project that is not the default one, with the teams' access to it and its tags. Where many teams have
/// access it is gone at once, too, and what belongs to it goes after that ([`ending`]).
///
/// `may_empty` says whether the member may delete the workspaces in it.
///
/// # Errors
/// `Invalid` when it holds workspaces, `Forbidden` when these are not the member's to delete either; `Conflict` for the
/// default project; `NotFound` when it has gone meanwhile.
pub async fn delete(tx: &mut Tx<'_>, member: &Member, project: &Project, may_empty: bool) -> Outcome<()> {
    let (row, org_id): (Value, Value) = (project.id.into(), member.organization.id.into());
    // Held until the end of the transaction: this is the order in which everything here is locked.
    let count = "UPDATE organizations SET project_count = project_count - 1 WHERE id = $1";
    tx.execute(count, std::slice::from_ref(&org_id)).await?;
    let lock = "SELECT workspace_count, team_count FROM projects WHERE id = $1 AND org_id = $2 FOR UPDATE";
    let mut locked = tx.row(lock, &[row.clone(), org_id]).await?.ok_or_else(Refusal::not_found)?;
    let (workspaces, teams): (i64, i64) = (locked.get()?, locked.get()?);
    if project.is_default {
        return Err(Refusal::conflict("the default project of an organization cannot be deleted").into());
    }
    if workspaces > 0 && !may_empty {
        return Err(Refusal::forbidden("not authorized to perform a force delete on the project").into());
    }
    if workspaces > 0 {
        let detail = format!("the project holds workspaces ({workspaces}); move or delete them first");
        return Err(Refusal::state(detail).into());
    }
    if teams <= PARTS_AT_ONCE {
        tx.execute("DELETE FROM projects WHERE id = $1", &[row]).await?;
        return Ok(());
    }
    // The pool is the organization's.
    let leave = "UPDATE projects SET execution_mode = NULL, agent_pool_id = NULL WHERE id = $1";
    tx.execute(leave, &[row]).await?;
    ending::bury(tx, "projects", project.id).await
}
