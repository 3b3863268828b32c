//! Workspace locks: lock, unlock, force-unlock. Each response is the workspace.

use super::super::body::{Resource, TypeRule};
use super::super::documents::workspaces::document;
use super::super::reply::Reply;
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::Tx;
use crate::projects::member::Member;
use crate::projects::refusal::Outcome;
use crate::projects::workspace::{self, Workspace, WorkspaceRights};

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "workspaces/:workspace_id/actions/lock", "workspace_lock", lock => shown),
    route!(POST "workspaces/:workspace_id/actions/unlock", "workspace_unlock", unlock => shown),
    route!(POST "workspaces/:workspace_id/actions/force-unlock", "workspace_force_unlock", force_unlock => shown),
];

async fn lock(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Workspace)> {
    let (member, workspace) = begun(tx, call, WorkspaceRights::LOCK).await?;
    workspace::lock(tx, &call.caller, &member, &workspace).await?;
    changed(tx, member, &workspace).await
}

async fn unlock(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Workspace)> {
    let (member, workspace) = begun(tx, call, WorkspaceRights::LOCK).await?;
    workspace::unlock(tx, &call.caller, &member, &workspace).await?;
    changed(tx, member, &workspace).await
}

async fn force_unlock(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Workspace)> {
    let (member, workspace) = begun(tx, call, WorkspaceRights::ADMIN).await?;
    workspace::unlock_by_force(tx, &workspace).await?;
    changed(tx, member, &workspace).await
}

/// Returns the workspace if the caller has the rights. The body may be absent, and has no effect.
async fn begun(tx: &mut Tx<'_>, call: &Call, needed: WorkspaceRights) -> Outcome<(Member, Workspace)> {
    let found = workspace::visible(tx, &call.caller, call.workspace(), needed).await?;
    Resource::read(&call.document, TypeRule::Any, None)?;
    Ok(found)
}

async fn changed(tx: &mut Tx<'_>, member: Member, workspace: &Workspace) -> Outcome<(Member, Workspace)> {
    let workspace = workspace::held(tx, &member, workspace.id, WorkspaceRights::NONE).await?;
    Ok((member, workspace))
}

fn shown((member, workspace): (Member, Workspace)) -> Reply {
    Reply::resource(document(&member, &workspace))
}
