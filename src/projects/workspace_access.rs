//! The access of teams to single workspaces: a level, or custom access by key ([`super::workspace_keys`]).
//!
//! A member has the rights of this access in addition to the rights on the workspace's project and in the organization.
//! Administrators of a workspace manage the access of teams to the workspace. A member can grant at most the member's
//! own rights.

use super::attributes::AttributeReader;
use super::caller::ProjectsCaller;
use super::member::Member;
use super::page::{self, ListCondition, ListOrder, ListSource, PageRequest, ResultPage};
use super::rejection::{ApiRejection, WorkResult};
use super::rights::GRANT_EXCEEDS_OWN_RIGHTS;
use super::team::{self, Team};
use super::tx::Tx;
use super::workspace::{self, Workspace, WorkspaceRights};
use super::workspace_keys::{RequestedWorkspaceKeys, WorkspaceAccessLevel, WorkspaceKeyRanks};
use super::{id, organization};
use crate::sql::{SqlRow, SqlValue};

/// A team's access to a workspace, as stored.
#[derive(Clone, Debug)]
pub struct WorkspaceAccess {
    /// Row id.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// Row id of the team.
    pub team_id: i64,
    /// External id of the team.
    pub team: String,
    /// External id of the workspace.
    pub workspace: String,
    /// The level of the access.
    pub level: WorkspaceAccessLevel,
    /// The rank of every access key.
    pub settings: WorkspaceKeyRanks,
}

/// The rows of a deleted team or workspace remain for some time in another, ended organization. The join excludes them,
/// because it requires that team and workspace have the same organization.
const WORKSPACE_ACCESS_FROM: &str = "team_workspace_access a JOIN teams t ON t.id = a.team_id
    JOIN workspaces w ON w.id = a.workspace_id AND w.org_id = t.org_id";

impl WorkspaceAccess {
    fn read(row: &mut SqlRow) -> WorkResult<Self> {
        let id = row.get()?;
        let ext_id = row.get()?;
        let team_id = row.get()?;
        let team = row.get()?;
        let workspace = row.get()?;
        let level = WorkspaceAccessLevel::of(&row.get::<String>()?).unwrap_or(WorkspaceAccessLevel::Read);
        let custom: Option<String> = row.get()?;
        let settings = WorkspaceKeyRanks::from_stored(level, custom.as_deref());
        Ok(Self { id, ext_id, team_id, team, workspace, level, settings })
    }
}

async fn load_by_rows(tx: &mut Tx<'_>, ids: &[i64]) -> WorkResult<Vec<WorkspaceAccess>> {
    let sql = format!(
        "SELECT a.id, a.ext_id, t.id, t.ext_id, w.ext_id, a.access, a.custom FROM {WORKSPACE_ACCESS_FROM}
        WHERE a.id = ANY($1)"
    );
    page::load_in_order(tx, &sql, ids, WorkspaceAccess::read, |access| access.id).await
}

async fn load_by_row(tx: &mut Tx<'_>, row: i64) -> WorkResult<WorkspaceAccess> {
    load_by_rows(tx, &[row]).await?.pop().ok_or_else(|| ApiRejection::not_found().into())
}

/// Returns the caller's membership, the workspace, and a team's access to the workspace. If [`Tx::lock_lookups`] was
/// called, the workspace and then the access are locked until the end of the session.
///
/// # Errors
/// `NotFound` when the access is absent or hidden, or the caller lacks a right in `needed` on the workspace.
pub async fn find_visible(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    ext_id: &str,
    needed: WorkspaceRights,
) -> WorkResult<(Member, Workspace, WorkspaceAccess)> {
    let found = tx.row("SELECT id FROM team_workspace_access WHERE ext_id = $1", &[ext_id.into()]).await?;
    let row: i64 = found.ok_or_else(ApiRejection::not_found)?.get()?;
    let access = load_by_row(tx, row).await?;
    let (member, workspace) =
        workspace::find_visible(tx, caller, workspace::WorkspaceLocator::Id(&access.workspace), needed).await?;
    let is_own = member.teams.contains(&access.team_id);
    let is_seen = is_own || (sees_all(&workspace) && team::sees_row(tx, &member, access.team_id).await?);
    ApiRejection::not_found_unless(is_seen)?;
    if !tx.locks_lookups() {
        return Ok((member, workspace, access));
    }
    tx.lock_row("team_workspace_access", row).await?;
    let access = load_by_row(tx, row).await?;
    Ok((member, workspace, access))
}

/// `true` if the caller sees the access of every team that is visible to the caller ([`team::sees`]). Other callers see
/// only the access of their own teams.
fn sees_all(workspace: &Workspace) -> bool {
    workspace.rights.has(WorkspaceRights::ADMIN)
}

/// Returns a page of the access of teams to a workspace, newest first. The list contains only the access that the
/// member sees. If `team` is `Some`, it contains only the access of the team with this external id.
///
/// # Errors
/// Those of the store.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    workspace: &Workspace,
    team: Option<&str>,
    page: PageRequest,
) -> WorkResult<ResultPage<WorkspaceAccess>> {
    const ACCESS: ListSource = ListSource { id: "a.id", from: WORKSPACE_ACCESS_FROM };
    const ORDER: ListOrder = ListOrder { column: "a.id", descending: true };
    let mut filter = ListCondition::new("a.workspace_id = {}", workspace.id);
    if sees_all(workspace) {
        team::restrict_to_visible(member, &mut filter);
    } else {
        filter.and("a.team_id = ANY({})", member.teams.clone());
    }
    if let Some(team) = team {
        filter.and("t.ext_id = {}", team);
    }
    let (ids, matching) = page::find_ids_and_count(tx, ACCESS, filter, ORDER, page).await?;
    Ok(ResultPage { items: load_by_rows(tx, &ids).await?, matching })
}

/// The attributes of a request that creates or updates the access of a team to a workspace.
pub struct WorkspaceAccessChange {
    level: Option<WorkspaceAccessLevel>,
    named: RequestedWorkspaceKeys,
}

impl WorkspaceAccessChange {
    /// Reads the attributes. A later check rejects access keys that may not be set at the level.
    pub fn read(attributes: &mut AttributeReader<'_>) -> Self {
        let word = attributes.text("access").value();
        let level = word.as_deref().and_then(WorkspaceAccessLevel::of);
        if word.is_some() && level.is_none() {
            attributes.fault("access", "Access must be one of read, plan, write, admin, custom");
        }
        Self { level, named: RequestedWorkspaceKeys::read(attributes) }
    }

    /// Reads the attributes of a create. Unlike [`WorkspaceAccessChange::read`], requires a level.
    pub fn read_new(attributes: &mut AttributeReader<'_>) -> Self {
        let change = Self::read(attributes);
        if change.level.is_none() && attributes.has_no_faults() {
            attributes.fault("access", "Access can't be blank");
        }
        change
    }
}

/// Rejects a grant (`given`) that exceeds the union of the member's own rights and `before`, the rights that the team
/// already has.
fn reject_excess_access(
    member: &Member,
    workspace: &Workspace,
    before: WorkspaceRights,
    given: WorkspaceRights,
) -> Result<(), ApiRejection> {
    let is_within = member.is_owner || (workspace.rights | before).has(given);
    if is_within { Ok(()) } else { Err(ApiRejection::forbidden(GRANT_EXCEEDS_OWN_RIGHTS)) }
}

/// Grants a team access to a workspace.
///
/// # Errors
/// `Invalid` when the team has access already, or the request sets access keys at a predefined level; `Forbidden` for
/// access that exceeds the member's own; `NotFound` when the team or the workspace was deleted concurrently.
pub async fn create(
    tx: &mut Tx<'_>,
    member: &Member,
    workspace: &Workspace,
    team: &Team,
    new: WorkspaceAccessChange,
) -> WorkResult<WorkspaceAccess> {
    let level = new.level.unwrap_or(WorkspaceAccessLevel::Custom);
    let settings = new.named.apply_to(level, WorkspaceKeyRanks::of(level), None)?;
    reject_excess_access(member, workspace, WorkspaceRights::NONE, WorkspaceRights::of_access(level, &settings))?;
    // A session that deletes a team also locks the row of the organization, so the team cannot be deleted after the
    // following check.
    let org_id = member.organization.id;
    organization::lock(tx, org_id).await?;
    let select_team = "SELECT 1 FROM teams WHERE id = $1 AND org_id = $2";
    tx.row(select_team, &[team.id.into(), org_id.into()]).await?.ok_or_else(ApiRejection::not_found)?;
    workspace::lock_and_load(tx, member, workspace.id, WorkspaceRights::ADMIN).await?;
    let insert = "INSERT INTO team_workspace_access (ext_id, team_id, workspace_id, access, custom)
        VALUES ($1, $2, $3, $4, $5) RETURNING id";
    let values: [SqlValue; 5] = [
        id::new("tws").into(),
        team.id.into(),
        workspace.id.into(),
        level.name().into(),
        settings.to_store(level).into(),
    ];
    let row = tx.one(insert, &values).await?.get()?;
    load_by_row(tx, row).await
}

/// Changes a team's access to a workspace. If the level changes, access keys that the request does not set get the
/// values that the new level implies. Otherwise they keep their stored values.
///
/// # Errors
/// `Invalid` when the request sets access keys at a predefined level; `Forbidden` for access that exceeds the union of
/// the team's previous access and the member's own access.
pub async fn update(
    tx: &mut Tx<'_>,
    member: &Member,
    workspace: &Workspace,
    access: &WorkspaceAccess,
    change: WorkspaceAccessChange,
) -> WorkResult<WorkspaceAccess> {
    tx.lock_row("team_workspace_access", access.id).await?;
    let WorkspaceAccess { level: before, settings: stored, .. } = load_by_row(tx, access.id).await?;
    let level = change.level.unwrap_or(before);
    let base = if level == before { stored.clone() } else { WorkspaceKeyRanks::of(level) };
    let settings = change.named.apply_to(level, base, Some(&stored))?;
    let rights = WorkspaceRights::of_access(level, &settings);
    reject_excess_access(member, workspace, WorkspaceRights::of_access(before, &stored), rights)?;
    let sql = "UPDATE team_workspace_access SET access = $1, custom = $2 WHERE id = $3";
    let values: [SqlValue; 3] = [level.name().into(), settings.to_store(level).into(), access.id.into()];
    tx.execute(sql, &values).await?;
    load_by_row(tx, access.id).await
}

/// Revokes a team's access to a workspace.
///
/// # Errors
/// `NotFound` when the access was revoked concurrently.
pub async fn delete(tx: &mut Tx<'_>, access: &WorkspaceAccess) -> WorkResult<()> {
    let gone = tx.execute("DELETE FROM team_workspace_access WHERE id = $1", &[access.id.into()]).await?;
    ApiRejection::not_found_unless(gone > 0)
}
