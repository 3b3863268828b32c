//! Project access of teams: create, list, show, update, delete.

use serde_json::json;

use super::super::body::{PrimaryResource, TypeRule};
use super::super::documents::related;
use super::super::list::ListRequest;
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use crate::projects::page::ResultPage;
use crate::projects::rejection::{ApiRejection, WorkResult};
use crate::projects::rights::ProjectRights;
use crate::projects::team_access::{self, ProjectAccess, TeamAccessChange};
use crate::projects::{Tx, project};

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "team-projects", "team_project_create", create => render_created),
    route!(GET "team-projects", "team_project_list", list => render_list),
    route!(GET "team-projects/:access_id", "team_project_show", show => render_one),
    route!(PATCH "team-projects/:access_id", "team_project_update", update => render_one),
    route!(DELETE "team-projects/:access_id", "team_project_delete", delete => render_empty),
];

/// The required query parameter of a list: the external id of a project.
const PROJECT_FILTER: &str = "filter[project][id]";

/// Grants a team access to a project. The body names the project, so the shape of the body is checked before the
/// caller's rights.
async fn create(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<ProjectAccess> {
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    let project = resource.required_to_one("project")?;
    let team = resource.required_to_one("team")?;
    let (member, project) = project::find_visible(tx, &call.caller, &project, ProjectRights::MANAGE_TEAMS).await?;
    let team = team_access::find_team(tx, &call.caller, &member, &team).await?;
    let new = resource.read_attributes(TeamAccessChange::read_new)?;
    team_access::create(tx, &member, &project, &team, new).await
}

fn render_created(access: ProjectAccess) -> RenderedResult {
    RenderedResult::created(document(&access))
}

async fn list(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(ListRequest, ResultPage<ProjectAccess>)> {
    let missing = || ApiRejection::parameter(PROJECT_FILTER, format!("{PROJECT_FILTER} is required"));
    let wanted = call.query.text(PROJECT_FILTER).ok_or_else(missing)?;
    let list_request = ListRequest::read(call, &[PROJECT_FILTER])?;
    let (member, project) = project::find_visible(tx, &call.caller, wanted, ProjectRights::READ).await?;
    let listed = team_access::list(tx, &member, &project, list_request.page).await?;
    Ok((list_request, listed))
}

fn render_list((list_request, listed): (ListRequest, ResultPage<ProjectAccess>)) -> RenderedResult {
    list_request.document(listed.items.iter().map(document), listed.matching, None)
}

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<ProjectAccess> {
    let (.., access) =
        team_access::find_visible(tx, &call.caller, call.param("access_id"), ProjectRights::READ).await?;
    Ok(access)
}

fn render_one(access: ProjectAccess) -> RenderedResult {
    RenderedResult::resource(document(&access))
}

async fn update(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<ProjectAccess> {
    let needed = ProjectRights::MANAGE_TEAMS;
    let (member, project, access) =
        team_access::find_visible(tx, &call.caller, call.param("access_id"), needed).await?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, Some(&access.ext_id))?;
    let change = resource.read_attributes(TeamAccessChange::read)?;
    team_access::update(tx, &member, &project, &access, change).await
}

async fn delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let needed = ProjectRights::MANAGE_TEAMS;
    let (_, project, access) = team_access::find_visible(tx, &call.caller, call.param("access_id"), needed).await?;
    team_access::delete(tx, &project, &access).await
}

/// Renders a team's access to a project. The document lists every permission, whatever the access level.
fn document(access: &ProjectAccess) -> Rendered {
    let (project, workspace) = access.settings.blocks();
    json!({
        "id": access.ext_id,
        "type": "team-projects",
        "attributes": {
            "access": access.level.name(),
            "project-access": project,
            "workspace-access": workspace,
        },
        "relationships": {
            "team": related("teams", &access.team),
            "project": related("projects", &access.project),
        },
        "links": { "self": format!("/api/v2/team-projects/{}", access.ext_id) },
    })
    .into()
}
