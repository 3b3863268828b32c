//! The access of teams to projects: a level, or custom access by key ([`project_access`](super::project_access)).
//!
//! Every level implies a value for every key. The rights that result from the values are stored with the level, so that
//! lists can filter projects by right in SQL.

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
    /// The level.
    pub level: ProjectAccessLevel,
    /// The value of every key.
    pub settings: ProjectKeyRanks,
}

/// The rows of a deleted team or project remain for some time in another, ended organization. The join on the
/// organization excludes them.
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
        let settings = ProjectKeyRanks::stored(level, custom.as_deref());
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

/// Returns a team's access that the caller may see, with its project. Both are locked until the end of the session if
/// [`Tx::lock_lookups`] was called, the project first.
///
/// # Errors
/// `NotFound` when it is absent or hidden, or `needed` is not granted on the project.
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
/// member has custom access that includes reading it. Other members see only the access of their own teams. In both
/// cases, the access of a secret team is visible only to members who see the team ([`team::sees`]).
async fn sees_all(tx: &mut Tx<'_>, member: &Member, project: &Project) -> WorkResult<bool> {
    if project.rights.has(ProjectRights::MANAGE_TEAMS) {
        return Ok(true);
    }
    let sql = "SELECT custom FROM team_project_access
        WHERE project_id = $1 AND access = 'custom' AND team_id = ANY($2)";
    for mut row in tx.rows(sql, &[project.id.into(), member.teams.clone().into()]).await? {
        let custom: Option<String> = row.get()?;
        if ProjectKeyRanks::stored(ProjectAccessLevel::Custom, custom.as_deref()).allows(ProjectPermission::READ_TEAMS)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns a page of the teams' access to a project, newest first, as far as the member sees it.
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

/// The attributes of a create or an update.
pub struct TeamAccessChange {
    level: Option<ProjectAccessLevel>,
    named: RequestedProjectKeys,
}

impl TeamAccessChange {
    /// Reads the attributes. Whether keys may be set depends on the level, which is checked later.
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
/// `Invalid` when the team has access already, or keys are set with a predefined level; `Forbidden` for access beyond
/// the member's own; `NotFound` when the team or the project was deleted concurrently.
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
    // A session that deletes a team locks the organization's row too, so the team cannot be deleted after this check.
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

/// Changes a team's access. Keys that the request does not set get the default values of a new level, or keep the
/// stored values if the level stays the same.
///
/// # Errors
/// `Invalid` when keys are set with a predefined level; `Forbidden` for access that neither the team had before nor the
/// member has.
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
    let stored = ProjectKeyRanks::stored(before, custom.as_deref());
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

/// Revokes a team's access.
///
/// # Errors
/// `NotFound` when it was revoked concurrently.
pub async fn delete(tx: &mut Tx<'_>, project: &Project, access: &ProjectAccess) -> WorkResult<()> {
    let lock = "SELECT id FROM projects WHERE id = $1 FOR UPDATE";
    tx.row(lock, &[project.id.into()]).await?.ok_or_else(ApiRejection::not_found)?;
    let gone = tx.execute("DELETE FROM team_project_access WHERE id = $1", &[access.id.into()]).await?;
    ApiRejection::not_found_unless(gone > 0)?;
    let count = "UPDATE projects SET team_count = team_count - 1 WHERE id = $1";
    tx.execute(count, &[project.id.into()]).await?;
    Ok(())
}

/// Returns the team that a request grants access. It must be in the member's organization.
///
/// # Errors
/// `NotFound` when it is absent or hidden from the member.
pub async fn find_team(tx: &mut Tx<'_>, caller: &ProjectsCaller, member: &Member, ext_id: &str) -> WorkResult<Team> {
    let (_, team) = team::find_visible(tx, caller, ext_id).await?;
    ApiRejection::not_found_unless(team.org_id == member.organization.id)?;
    Ok(team)
}
