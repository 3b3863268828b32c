//! The access of teams to projects: a level, or custom access by key ([`project_access`](super::project_access)).
//!
//! Every level implies a value for every access key. The project rights that result from the values are stored with the
//! level, so that lists can filter projects by right in SQL.

use super::attributes::AttributeReader;
use super::caller::ProjectsCaller;
use super::member::Member;
use super::page::{self, ListCondition, ListOrder, ListSource, PageRequest, ResultPage};
use super::project::{self, Project};
use super::project_access::ProjectAccessLevel;
use super::project_access::extent::ProjectAccessExtent;
use super::project_access::keys::{ProjectKeyRanks, ProjectPermission, RequestedProjectKeys};
use super::rejection::{ApiRejection, WorkResult};
use super::rights::ProjectRights;
use super::team::{self, Team};
use super::tx::Tx;
use super::{escalation, id, organization};
use crate::sql::{SqlRow, SqlValue};

/// A team's access to a project, as stored.
#[derive(Clone, Debug)]
pub struct ProjectAccess {
    /// Row id.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// Row id of the team.
    pub team_id: i64,
    /// External id of the team.
    pub team: String,
    /// External id of the project.
    pub project: String,
    /// The level of the access.
    pub level: ProjectAccessLevel,
    /// The rank of every access key.
    pub settings: ProjectKeyRanks,
}

/// The rows of a deleted team or project remain for some time in another, ended organization. The join excludes them,
/// because it requires that team and project have the same organization.
const PROJECT_ACCESS_FROM: &str = "team_project_access a JOIN teams t ON t.id = a.team_id
    JOIN projects p ON p.id = a.project_id AND p.org_id = t.org_id";

impl ProjectAccess {
    fn read(row: &mut SqlRow) -> WorkResult<Self> {
        let id = row.get()?;
        let ext_id = row.get()?;
        let team_id = row.get()?;
        let team = row.get()?;
        let project = row.get()?;
        let (access, custom): (String, Option<String>) = (row.get()?, row.get()?);
        let level = ProjectAccessLevel::of(&access).unwrap_or(ProjectAccessLevel::Read);
        let settings = ProjectKeyRanks::from_stored(level, custom.as_deref());
        Ok(Self { id, ext_id, team_id, team, project, level, settings })
    }
}

async fn load_by_rows(tx: &mut Tx<'_>, ids: &[i64]) -> WorkResult<Vec<ProjectAccess>> {
    let sql = format!(
        "SELECT a.id, a.ext_id, t.id, t.ext_id, p.ext_id, a.access, a.custom FROM {PROJECT_ACCESS_FROM}
        WHERE a.id = ANY($1)"
    );
    page::load_in_order(tx, &sql, ids, ProjectAccess::read, |access| access.id).await
}

/// Returns the caller's membership, the project, and a team's access to the project. If [`Tx::lock_lookups`] was
/// called, the project and then the access are locked until the end of the session.
///
/// # Errors
/// `NotFound` when the access is absent or hidden, or the caller lacks a right in `needed` on the project.
pub async fn find_visible(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    ext_id: &str,
    needed: ProjectRights,
) -> WorkResult<(Member, Project, ProjectAccess)> {
    let found = tx.row("SELECT id FROM team_project_access WHERE ext_id = $1", &[ext_id.into()]).await?;
    let row: i64 = found.ok_or_else(ApiRejection::not_found)?.get()?;
    let access = load_by_rows(tx, &[row]).await?.pop().ok_or_else(ApiRejection::not_found)?;
    let (member, project) = project::find_visible(tx, caller, &access.project, needed).await?;
    let own = member.teams.contains(&access.team_id);
    let seen = own || (team::sees_row(tx, &member, access.team_id).await? && sees_all(tx, &member, &project).await?);
    ApiRejection::not_found_unless(seen)?;
    if !tx.locks_lookups() {
        return Ok((member, project, access));
    }
    tx.lock_row("team_project_access", row).await?;
    let access = load_by_rows(tx, &[row]).await?.pop().ok_or_else(ApiRejection::not_found)?;
    Ok((member, project, access))
}

/// `true` if the member sees the access of all teams to a project: the member may manage the access, or a team of the
/// member has custom access that includes reading the access of teams. Other members see only the access of their own
/// teams. In both cases, the access of a secret team is visible only to members who see the team ([`team::sees`]).
async fn sees_all(tx: &mut Tx<'_>, member: &Member, project: &Project) -> WorkResult<bool> {
    if project.rights.has(ProjectRights::MANAGE_TEAMS) {
        return Ok(true);
    }
    let sql = "SELECT custom FROM team_project_access
        WHERE project_id = $1 AND access = 'custom' AND team_id = ANY($2)";
    for mut row in tx.rows(sql, &[project.id.into(), member.teams.clone().into()]).await? {
        let custom: Option<String> = row.get()?;
        if ProjectKeyRanks::from_stored(ProjectAccessLevel::Custom, custom.as_deref())
            .allows(ProjectPermission::READ_TEAMS)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns a page of the access of teams to a project, newest first. The list contains only the access that the member
/// sees.
///
/// # Errors
/// Those of the store.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    project: &Project,
    page: PageRequest,
) -> WorkResult<ResultPage<ProjectAccess>> {
    const ACCESS: ListSource = ListSource { id: "a.id", from: PROJECT_ACCESS_FROM };
    const ORDER: ListOrder = ListOrder { column: "a.id", descending: true };
    let mut filter = ListCondition::new("a.project_id = {}", project.id);
    if sees_all(tx, member, project).await? {
        team::restrict_to_visible(member, &mut filter);
    } else {
        filter.and("a.team_id = ANY({})", member.teams.clone());
    }
    let (ids, matching) = page::find_ids_and_count(tx, ACCESS, filter, ORDER, page).await?;
    Ok(ResultPage { items: load_by_rows(tx, &ids).await?, matching })
}

/// The attributes of a request that creates or updates the access of a team to a project.
pub struct TeamAccessChange {
    level: Option<ProjectAccessLevel>,
    named: RequestedProjectKeys,
}

impl TeamAccessChange {
    /// Reads the attributes. A later check rejects access keys that may not be set at the level.
    pub fn read(attributes: &mut AttributeReader<'_>) -> Self {
        let word = attributes.text("access").value();
        let level = word.as_deref().and_then(ProjectAccessLevel::of);
        if word.is_some() && level.is_none() {
            attributes.fault("access", "Access must be one of read, write, maintain, admin, custom");
        }
        Self { level, named: RequestedProjectKeys::read(attributes) }
    }

    /// Reads the attributes of a create. Unlike [`TeamAccessChange::read`], requires a level.
    pub fn read_new(attributes: &mut AttributeReader<'_>) -> Self {
        let change = Self::read(attributes);
        if change.level.is_none() && attributes.has_no_faults() {
            attributes.fault("access", "Access can't be blank");
        }
        change
    }
}

/// Grants a team access to a project.
///
/// # Errors
/// `Invalid` when the team has access already, or the request sets access keys at a predefined level; `Forbidden` for
/// access that exceeds the member's own; `NotFound` when the team or the project was deleted concurrently.
pub async fn create(
    tx: &mut Tx<'_>,
    member: &Member,
    project: &Project,
    team: &Team,
    new: TeamAccessChange,
) -> WorkResult<ProjectAccess> {
    let level = new.level.unwrap_or(ProjectAccessLevel::Custom);
    let settings = new.named.apply_to(level, ProjectKeyRanks::of(level), None)?;
    escalation::reject_excess_access(
        tx,
        member,
        project,
        ProjectAccessExtent::NONE,
        ProjectAccessExtent::of(level, &settings),
    )
    .await?;
    // A session that deletes a team also locks the row of the organization, so the team cannot be deleted after the
    // following check.
    let org_id: SqlValue = member.organization.id.into();
    organization::lock(tx, member.organization.id).await?;
    let select_team = "SELECT 1 FROM teams WHERE id = $1 AND org_id = $2";
    tx.row(select_team, &[team.id.into(), org_id.clone()]).await?.ok_or_else(ApiRejection::not_found)?;
    let count = "UPDATE projects SET team_count = team_count + 1 WHERE id = $1 AND org_id = $2";
    let counted = tx.execute(count, &[project.id.into(), org_id]).await?;
    ApiRejection::not_found_unless(counted > 0)?;
    let insert = "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits, custom)
        VALUES ($1, $2, $3, $4, $5, $6) RETURNING id";
    let values: [SqlValue; 6] = [
        id::new("tprj").into(),
        team.id.into(),
        project.id.into(),
        level.name().into(),
        settings.rights().bits().into(),
        settings.to_store(level).into(),
    ];
    let row: i64 = tx.one(insert, &values).await?.get()?;
    load_by_rows(tx, &[row]).await?.pop().ok_or_else(|| ApiRejection::not_found().into())
}

/// Changes a team's access to a project. If the level changes, access keys that the request does not set get the values
/// that the new level implies. Otherwise they keep their stored values.
///
/// # Errors
/// `Invalid` when the request sets access keys at a predefined level; `Forbidden` for access that exceeds the union of
/// the team's previous access and the member's own access.
pub async fn update(
    tx: &mut Tx<'_>,
    member: &Member,
    project: &Project,
    access: &ProjectAccess,
    change: TeamAccessChange,
) -> WorkResult<ProjectAccess> {
    let sql = "SELECT access, custom FROM team_project_access WHERE id = $1 FOR UPDATE";
    let mut row = tx.row(sql, &[access.id.into()]).await?.ok_or_else(ApiRejection::not_found)?;
    let (word, custom): (String, Option<String>) = (row.get()?, row.get()?);
    let before = ProjectAccessLevel::of(&word).unwrap_or(ProjectAccessLevel::Read);
    let level = change.level.unwrap_or(before);
    let stored = ProjectKeyRanks::from_stored(before, custom.as_deref());
    let so_far = ProjectAccessExtent::of(before, &stored);
    let base = if level == before { stored.clone() } else { ProjectKeyRanks::of(level) };
    let settings = change.named.apply_to(level, base, Some(&stored))?;
    escalation::reject_excess_access(tx, member, project, so_far, ProjectAccessExtent::of(level, &settings)).await?;
    let sql = "UPDATE team_project_access SET access = $1, perm_bits = $2, custom = $3 WHERE id = $4";
    let values: [SqlValue; 4] =
        [level.name().into(), settings.rights().bits().into(), settings.to_store(level).into(), access.id.into()];
    tx.execute(sql, &values).await?;
    load_by_rows(tx, &[access.id]).await?.pop().ok_or_else(|| ApiRejection::not_found().into())
}

/// Revokes a team's access to a project.
///
/// # Errors
/// `NotFound` when the access was revoked concurrently.
pub async fn delete(tx: &mut Tx<'_>, project: &Project, access: &ProjectAccess) -> WorkResult<()> {
    let lock = "SELECT id FROM projects WHERE id = $1 FOR UPDATE";
    tx.row(lock, &[project.id.into()]).await?.ok_or_else(ApiRejection::not_found)?;
    let gone = tx.execute("DELETE FROM team_project_access WHERE id = $1", &[access.id.into()]).await?;
    ApiRejection::not_found_unless(gone > 0)?;
    let count = "UPDATE projects SET team_count = team_count - 1 WHERE id = $1";
    tx.execute(count, &[project.id.into()]).await?;
    Ok(())
}

/// Returns the team to which a request grants access, which must be in the member's organization.
///
/// # Errors
/// `NotFound` when the team is absent, hidden from the member, or of another organization.
pub async fn find_team(tx: &mut Tx<'_>, caller: &ProjectsCaller, member: &Member, ext_id: &str) -> WorkResult<Team> {
    let (_, team) = team::find_visible(tx, caller, ext_id).await?;
    ApiRejection::not_found_unless(team.org_id == member.organization.id)?;
    Ok(team)
}
