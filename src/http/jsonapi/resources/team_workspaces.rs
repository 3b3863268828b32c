//! Workspace access of teams: create, list, show, update, delete.

use super::super::body::{Resource, TypeRule};
use super::super::documents::team_workspaces::document;
use super::super::list::ListRequest;
use super::super::reply::{Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::attributes::Attributes;
use crate::projects::page::Listed;
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::workspace::{self, Key, WorkspaceRights};
use crate::projects::workspace_access::{self, WorkspaceAccess, WorkspaceAccessChange};
use crate::projects::{Tx, team_access};

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "team-workspaces", "team_workspace_create", create => created),
    route!(GET "team-workspaces", "team_workspace_list", list => listed),
    route!(GET "team-workspaces/:workspace_access_id", "team_workspace_show", show => shown),
    route!(PATCH "team-workspaces/:workspace_access_id", "team_workspace_update", update => shown),
    route!(DELETE "team-workspaces/:workspace_access_id", "team_workspace_delete", delete => empty),
];

/// Required parameter of the list.
const WORKSPACE: &str = "filter[workspace][id]";
/// Optional filter of the list.
const TEAM: &str = "filter[team][id]";

/// The workspace is in the body, so the shape of the body is checked before the caller's rights.
async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<WorkspaceAccess> {
    let resource = Resource::read(&call.document, TypeRule::Any, None)?;
    let workspace = related(&resource, "workspace")?;
    let team = related(&resource, "team")?;
    let key = Key::Id(&workspace);
    let (member, workspace) = workspace::visible(tx, &call.caller, key, WorkspaceRights::ADMIN).await?;
    let team = team_access::team_of(tx, &call.caller, &member, &team).await?;
    let mut attributes = Attributes::new(resource.attributes());
    let new = WorkspaceAccessChange::read_new(&mut attributes);
    attributes.finish()?;
    workspace_access::create(tx, &member, &workspace, &team, new).await
}

fn created(access: WorkspaceAccess) -> Reply {
    Reply::created(document(&access))
}

fn related(resource: &Resource<'_>, name: &str) -> Outcome<String> {
    let missing =
        || Refusal::at(format!("/data/relationships/{name}"), format!("{name} must name one resource by its id"));
    Ok(resource.to_one(name)?.flatten().ok_or_else(missing)?)
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<(ListRequest, Listed<WorkspaceAccess>)> {
    let missing = || Refusal::parameter(WORKSPACE, format!("{WORKSPACE} is required"));
    let wanted = call.query.text(WORKSPACE).ok_or_else(missing)?;
    let asked = ListRequest::read(call, &[WORKSPACE, TEAM])?;
    let key = Key::Id(wanted);
    let (member, workspace) = workspace::visible(tx, &call.caller, key, WorkspaceRights::READ).await?;
    let team = call.query.text(TEAM);
    let listed = workspace_access::list(tx, &member, &workspace, team, asked.page).await?;
    Ok((asked, listed))
}

fn listed((asked, listed): (ListRequest, Listed<WorkspaceAccess>)) -> Reply {
    asked.document(listed.items.iter().map(document), listed.matching, None)
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<WorkspaceAccess> {
    let needed = WorkspaceRights::READ;
    let (.., access) = workspace_access::visible(tx, &call.caller, call.param("workspace_access_id"), needed).await?;
    Ok(access)
}

fn shown(access: WorkspaceAccess) -> Reply {
    Reply::resource(document(&access))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<WorkspaceAccess> {
    let needed = WorkspaceRights::ADMIN;
    let id = call.param("workspace_access_id");
    let (member, workspace, access) = workspace_access::visible(tx, &call.caller, id, needed).await?;
    let resource = Resource::read(&call.document, TypeRule::Any, Some(&access.ext_id))?;
    let mut attributes = Attributes::new(resource.attributes());
    let change = WorkspaceAccessChange::read(&mut attributes);
    attributes.finish()?;
    workspace_access::update(tx, &member, &workspace, &access, change).await
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let needed = WorkspaceRights::ADMIN;
    let (.., access) = workspace_access::visible(tx, &call.caller, call.param("workspace_access_id"), needed).await?;
    workspace_access::delete(tx, &access).await
}
