//! The access of teams to single workspaces: a level, or custom access key by key ([`super::workspace_keys`]). It
//! adds to what the teams may do by the workspace's project and in the whole organization.
//!
//! Administrators of a workspace manage the access to it. A member gives a team at most their own rights.

use super::attributes::Attributes;
use super::caller::Caller;
use super::member::Member;
use super::page::{self, Filter, Listed, Order, Page, Source};
use super::refusal::{Outcome, Refusal};
use super::rights::BEYOND;
use super::team::{self, Team};
use super::tx::Tx;
use super::workspace::{self, Workspace, WorkspaceRights};
use super::workspace_keys::{NamedKeys, WorkspaceLevel, WorkspaceSettings};
use super::{id, organization};
use crate::sql::{Row, Value};

/// A team's access to a workspace, as stored.
#[derive(Clone, Debug)]
pub struct WorkspaceAccess {
    /// Row.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// Row of the team.
    pub team_id: i64,
    /// External id of the team.
    pub team: String,
    /// External id of the workspace.
    pub workspace: String,
    /// The level.
    pub level: WorkspaceLevel,
    /// The value of every key.
    pub settings: WorkspaceSettings,
}

/// The source of the queries. A team or a workspace that was deleted and is not removed yet is in another organization.
const FROM: &str = "team_workspace_access a JOIN teams t ON t.id = a.team_id
    JOIN workspaces w ON w.id = a.workspace_id AND w.org_id = t.org_id";

impl WorkspaceAccess {
    fn read(row: &mut Row) -> Outcome<Self> {
        let id = row.get()?;
        let ext_id = row.get()?;
        let team_id = row.get()?;
        let team = row.get()?;
        let workspace = row.get()?;
        let level = WorkspaceLevel::of(&row.get::<String>()?).unwrap_or(WorkspaceLevel::Read);
        let custom: Option<String> = row.get()?;
        let settings = WorkspaceSettings::stored(level, custom.as_deref());
        Ok(Self { id, ext_id, team_id, team, workspace, level, settings })
    }
}

/// The access of rows, in the order of the rows.
async fn these(tx: &mut Tx<'_>, ids: &[i64]) -> Outcome<Vec<WorkspaceAccess>> {
    let sql =
        format!("SELECT a.id, a.ext_id, t.id, t.ext_id, w.ext_id, a.access, a.custom FROM {FROM} WHERE a.id = ANY($1)");
    page::these(tx, &sql, ids, WorkspaceAccess::read, |access| access.id).await
}

async fn at(tx: &mut Tx<'_>, row: i64) -> Outcome<WorkspaceAccess> {
    these(tx, &[row]).await?.pop().ok_or_else(|| Refusal::not_found().into())
}

/// A row of access that the caller may see, with the workspace it is for; both are held until the end of the session
/// when [`Tx::hold`] was called, the workspace first.
///
/// # Errors
/// `NotFound` when it is absent or hidden, or `needed` on the workspace is not granted.
pub async fn visible(
    tx: &mut Tx<'_>,
    caller: &Caller,
    ext_id: &str,
    needed: WorkspaceRights,
) -> Outcome<(Member, Workspace, WorkspaceAccess)> {
    let found = tx.row("SELECT id FROM team_workspace_access WHERE ext_id = $1", &[ext_id.into()]).await?;
    let row: i64 = found.ok_or_else(Refusal::not_found)?.get()?;
    let access = at(tx, row).await?;
    let (member, workspace) = workspace::visible(tx, caller, workspace::Key::Id(&access.workspace), needed).await?;
    let is_own = member.teams.contains(&access.team_id);
    let is_seen = is_own || (sees_all(&workspace) && team::sees_row(tx, &member, access.team_id).await?);
    Refusal::hidden_unless(is_seen)?;
    if !tx.holds() {
        return Ok((member, workspace, access));
    }
    tx.take("team_workspace_access", row).await?;
    let access = at(tx, row).await?;
    Ok((member, workspace, access))
}

/// True when the caller sees the access of other teams to a workspace, limited to the teams they know ([`team::sees`]).
fn sees_all(workspace: &Workspace) -> bool {
    workspace.rights.has(WorkspaceRights::ADMIN)
}

/// A page of the access to a workspace that the member may see, newest first; that of one team by its external id,
/// where that is given.
///
/// # Errors
/// Those of the store.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    workspace: &Workspace,
    team: Option<&str>,
    page: Page,
) -> Outcome<Listed<WorkspaceAccess>> {
    const ACCESS: Source = Source { id: "a.id", from: FROM };
    const ORDER: Order = Order { column: "a.id", descending: true };
    let mut filter = Filter::new("a.workspace_id = {}", workspace.id);
    if sees_all(workspace) {
        team::seen(member, &mut filter);
    } else {
        filter.and("a.team_id = ANY({})", member.teams.clone());
    }
    if let Some(team) = team {
        filter.and("t.ext_id = {}", team);
    }
    let (ids, matching) = page::counted_ids(tx, ACCESS, filter, ORDER, page).await?;
    Ok(Listed { items: these(tx, &ids).await?, matching })
}

/// The attributes of a create or an update.
pub struct WorkspaceAccessChange {
    level: Option<WorkspaceLevel>,
    named: NamedKeys,
}

impl WorkspaceAccessChange {
    /// Reads the attributes; whether keys may be named depends on the level.
    pub fn read(attributes: &mut Attributes<'_>) -> Self {
        let word = attributes.text("access").value();
        let level = word.as_deref().and_then(WorkspaceLevel::of);
        if word.is_some() && level.is_none() {
            attributes.fault("access", "Access must be one of read, plan, write, admin, custom");
        }
        Self { level, named: NamedKeys::read(attributes) }
    }

    /// As [`WorkspaceAccessChange::read`], with the level that a create needs.
    pub fn read_new(attributes: &mut Attributes<'_>) -> Self {
        let change = Self::read(attributes);
        if change.level.is_none() && attributes.is_sound() {
            attributes.fault("access", "Access can't be blank");
        }
        change
    }
}

/// Refuses access that goes further than the member's own and than the access that the team has `before`.
fn refuse_more(
    member: &Member,
    workspace: &Workspace,
    before: WorkspaceRights,
    given: WorkspaceRights,
) -> Result<(), Refusal> {
    let is_within = member.owner || (workspace.rights | before).has(given);
    if is_within { Ok(()) } else { Err(Refusal::forbidden(BEYOND)) }
}

/// Gives a team access to a workspace.
///
/// # Errors
/// `Invalid` when it has some already, or keys are named with a level that has values of its own; `Forbidden` when it
/// goes further than that of the member; `NotFound` when the team or the workspace has gone meanwhile.
pub async fn create(
    tx: &mut Tx<'_>,
    member: &Member,
    workspace: &Workspace,
    team: &Team,
    new: WorkspaceAccessChange,
) -> Outcome<WorkspaceAccess> {
    let level = new.level.unwrap_or(WorkspaceLevel::Custom);
    let settings = new.named.over(level, WorkspaceSettings::of(level), None)?;
    refuse_more(member, workspace, WorkspaceRights::NONE, WorkspaceRights::of_access(level, &settings))?;
    // A deletion of the team takes this row as well, so the team stays until the end of the transaction.
    let org_id = member.organization.id;
    organization::lock(tx, org_id).await?;
    let standing = "SELECT 1 FROM teams WHERE id = $1 AND org_id = $2";
    tx.row(standing, &[team.id.into(), org_id.into()]).await?.ok_or_else(Refusal::not_found)?;
    workspace::held(tx, member, workspace.id, WorkspaceRights::ADMIN).await?;
    let insert = "INSERT INTO team_workspace_access (ext_id, team_id, workspace_id, access, custom)
        VALUES ($1, $2, $3, $4, $5) RETURNING id";
    let values: [Value; 5] = [
        id::new("tws").into(),
        team.id.into(),
        workspace.id.into(),
        level.word().into(),
        settings.to_store(level).into(),
    ];
    let row = tx.one(insert, &values).await?.get()?;
    at(tx, row).await
}

/// Changes a team's access: another level begins with the values of that level, the same one with those that are
/// stored.
///
/// # Errors
/// `Invalid` when keys are named with a level that has values of its own; `Forbidden` when it goes further than before,
/// and further than that of the member.
pub async fn update(
    tx: &mut Tx<'_>,
    member: &Member,
    workspace: &Workspace,
    access: &WorkspaceAccess,
    change: WorkspaceAccessChange,
) -> Outcome<WorkspaceAccess> {
    tx.take("team_workspace_access", access.id).await?;
    let WorkspaceAccess { level: before, settings: stored, .. } = at(tx, access.id).await?;
    let level = change.level.unwrap_or(before);
    let base = if level == before { stored.clone() } else { WorkspaceSettings::of(level) };
    let settings = change.named.over(level, base, Some(&stored))?;
    let rights = WorkspaceRights::of_access(level, &settings);
    refuse_more(member, workspace, WorkspaceRights::of_access(before, &stored), rights)?;
    let sql = "UPDATE team_workspace_access SET access = $1, custom = $2 WHERE id = $3";
    let values: [Value; 3] = [level.word().into(), settings.to_store(level).into(), access.id.into()];
    tx.execute(sql, &values).await?;
    at(tx, access.id).await
}

/// Takes a team's access away.
///
/// # Errors
/// `NotFound` when it was removed by another request.
pub async fn delete(tx: &mut Tx<'_>, access: &WorkspaceAccess) -> Outcome<()> {
    let gone = tx.execute("DELETE FROM team_workspace_access WHERE id = $1", &[access.id.into()]).await?;
    Refusal::hidden_unless(gone > 0)
}
