//! Workspace locks: lock, unlock, force-unlock. Each response is the workspace.

use super::super::body::{PrimaryResource, TypeRule};
use super::super::reply::RenderedResult;
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use super::workspaces::document;
use crate::projects::Tx;
use crate::projects::member::Member;
use crate::projects::rejection::WorkResult;
use crate::projects::workspace::{self, Workspace, WorkspaceRights};

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "workspaces/:workspace_id/actions/lock", "workspace_lock", lock => render_workspace),
    route!(POST "workspaces/:workspace_id/actions/unlock", "workspace_unlock", unlock => render_workspace),
    route!(POST "workspaces/:workspace_id/actions/force-unlock", "workspace_force_unlock", force_unlock => render_workspace),
];

async fn lock(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Workspace)> {
    let (member, workspace) = authorize_workspace(tx, call, WorkspaceRights::LOCK).await?;
    workspace::lock(tx, &call.caller, &member, &workspace).await?;
    reload_workspace(tx, member, &workspace).await
}

async fn unlock(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Workspace)> {
    let (member, workspace) = authorize_workspace(tx, call, WorkspaceRights::LOCK).await?;
    workspace::unlock(tx, &call.caller, &member, &workspace).await?;
    reload_workspace(tx, member, &workspace).await
}

async fn force_unlock(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Workspace)> {
    let (member, workspace) = authorize_workspace(tx, call, WorkspaceRights::ADMIN).await?;
    workspace::unlock_by_force(tx, &workspace).await?;
    reload_workspace(tx, member, &workspace).await
}

/// Returns the workspace in the path if the caller has the rights `needed`. The request may have a body, which has no
/// effect.
async fn authorize_workspace(
    tx: &mut Tx<'_>,
    call: &ProjectsCall,
    needed: WorkspaceRights,
) -> WorkResult<(Member, Workspace)> {
    let found = workspace::find_visible(tx, &call.caller, call.workspace(), needed).await?;
    PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    Ok(found)
}

async fn reload_workspace(tx: &mut Tx<'_>, member: Member, workspace: &Workspace) -> WorkResult<(Member, Workspace)> {
    let workspace = workspace::lock_and_load(tx, &member, workspace.id, WorkspaceRights::NONE).await?;
    Ok((member, workspace))
}

fn render_workspace((member, workspace): (Member, Workspace)) -> RenderedResult {
    RenderedResult::resource(document(&member, &workspace))
}
