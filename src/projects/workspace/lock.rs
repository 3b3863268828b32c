//! Locks of workspaces. One user or team holds the lock of a workspace. A single conditional SQL statement takes or
//! releases a lock, so of two concurrent changes one fails.

use super::super::caller::{ProjectsCaller, TokenSubject};
use super::super::team;
use super::{ApiRejection, Member, Tx, WorkResult, Workspace};

/// Locks a workspace for the caller.
///
/// # Errors
/// `Conflict` when the workspace is already locked, even by the caller; `NotFound` when the workspace was deleted
/// concurrently.
pub async fn lock(tx: &mut Tx<'_>, caller: &ProjectsCaller, member: &Member, workspace: &Workspace) -> WorkResult<()> {
    let holder = resolve_holder(tx, caller, member).await?;
    let sql = "UPDATE workspaces SET locked_by = $1 WHERE id = $2 AND locked_by IS NULL";
    if tx.execute(sql, &[holder.into(), workspace.id.into()]).await? == 1 {
        return Ok(());
    }
    tx.lock_row("workspaces", workspace.id).await?;
    Err(ApiRejection::conflict("the workspace is already locked").into())
}

/// Releases the lock of a workspace that the caller holds.
///
/// # Errors
/// `Conflict` when another user or team holds the lock, or the workspace is not locked. Clients distinguish the two
/// cases by the text.
pub async fn unlock(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    member: &Member,
    workspace: &Workspace,
) -> WorkResult<()> {
    let holder = resolve_holder(tx, caller, member).await?;
    let sql = "UPDATE workspaces SET locked_by = NULL WHERE id = $1 AND locked_by = $2";
    if tx.execute(sql, &[workspace.id.into(), holder.into()]).await? == 1 {
        return Ok(());
    }
    let sql = "SELECT locked_by FROM workspaces WHERE id = $1";
    let mut row = tx.row(sql, &[workspace.id.into()]).await?.ok_or_else(ApiRejection::not_found)?;
    let held: Option<String> = row.get()?;
    Err(match held.as_deref().and_then(|held| held.split_once('/')) {
        Some(("teams", _)) if is_hidden(tx, member, &held).await? => {
            ApiRejection::conflict("the workspace is locked by Team")
        }
        Some(("teams", id)) => ApiRejection::conflict(format!("the workspace is locked by Team {id}")),
        Some((_, id)) => ApiRejection::conflict(format!("the workspace is locked by User {id}")),
        None => not_locked_error(),
    }
    .into())
}

/// Releases the lock of a workspace, even if another user or team holds it.
///
/// # Errors
/// `Conflict` when the workspace is not locked; `NotFound` when the workspace was deleted concurrently.
pub async fn unlock_by_force(tx: &mut Tx<'_>, workspace: &Workspace) -> WorkResult<()> {
    let sql = "UPDATE workspaces SET locked_by = NULL WHERE id = $1 AND locked_by IS NOT NULL";
    if tx.execute(sql, &[workspace.id.into()]).await? == 1 {
        return Ok(());
    }
    tx.lock_row("workspaces", workspace.id).await?;
    Err(not_locked_error().into())
}

async fn is_hidden(tx: &mut Tx<'_>, member: &Member, holder: &Option<String>) -> WorkResult<bool> {
    Ok(!team::find_hidden_references(tx, member, holder.as_deref().into_iter()).await?.is_empty())
}

fn not_locked_error() -> ApiRejection {
    ApiRejection::conflict("the workspace is not locked")
}

/// Returns the reference to the user or team that becomes the holder when the caller locks a workspace. For an
/// organization token, this is the owners team.
async fn resolve_holder(tx: &mut Tx<'_>, caller: &ProjectsCaller, member: &Member) -> WorkResult<String> {
    if !matches!(caller.subject, TokenSubject::Organization { .. }) {
        return Ok(caller.reference());
    }
    let sql = "SELECT ext_id FROM teams WHERE org_id = $1 AND is_owners";
    let owners: String = tx.one(sql, &[member.organization.id.into()]).await?.get()?;
    Ok(format!("teams/{owners}"))
}
