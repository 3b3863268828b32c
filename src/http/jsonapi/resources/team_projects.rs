//! Project access of teams: create, list, show, update, delete.

use super::super::body::{Resource, TypeRule};
use super::super::documents::team_projects::document;
use super::super::list::ListRequest;
use super::super::reply::{Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::attributes::Attributes;
use crate::projects::page::Listed;
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::rights::ProjectRights;
use crate::projects::team_access::{self, Access, TeamAccessChange};
use crate::projects::{Tx, project};

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "team-projects", "team_project_create", create => created),
    route!(GET "team-projects", "team_project_list", list => listed),
    route!(GET "team-projects/:access_id", "team_project_show", show => shown),
    route!(PATCH "team-projects/:access_id", "team_project_update", update => shown),
    route!(DELETE "team-projects/:access_id", "team_project_delete", delete => empty),
];

/// Required parameter of the list.
const PROJECT: &str = "filter[project][id]";

/// The project is in the body, so the shape of the body is checked before the caller's rights.
async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<Access> {
    let resource = Resource::read(&call.document, TypeRule::Any, None)?;
    let (project, team) = (related(&resource, "project")?, related(&resource, "team")?);
    let (member, project) = project::visible(tx, &call.caller, &project, ProjectRights::MANAGE_TEAMS).await?;
    let team = team_access::team_of(tx, &call.caller, &member, &team).await?;
    let mut attributes = Attributes::new(resource.attributes());
    let new = TeamAccessChange::read_new(&mut attributes);
    attributes.finish()?;
    team_access::create(tx, &member, &project, &team, new).await
}

fn created(access: Access) -> Reply {
    Reply::created(document(&access))
}

fn related(resource: &Resource<'_>, name: &str) -> Outcome<String> {
    let missing =
        || Refusal::at(format!("/data/relationships/{name}"), format!("{name} must name one resource by its id"));
    Ok(resource.to_one(name)?.flatten().ok_or_else(missing)?)
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<(ListRequest, Listed<Access>)> {
    let missing = || Refusal::parameter(PROJECT, format!("{PROJECT} is required"));
    let wanted = call.query.text(PROJECT).ok_or_else(missing)?;
    let asked = ListRequest::read(call, &[PROJECT])?;
    let (member, project) = project::visible(tx, &call.caller, wanted, ProjectRights::READ).await?;
    let listed = team_access::list(tx, &member, &project, asked.page).await?;
    Ok((asked, listed))
}

fn listed((asked, listed): (ListRequest, Listed<Access>)) -> Reply {
    asked.document(listed.items.iter().map(document), listed.matching, None)
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Access> {
    let (.., access) = team_access::visible(tx, &call.caller, call.param("access_id"), ProjectRights::READ).await?;
    Ok(access)
}

fn shown(access: Access) -> Reply {
    Reply::resource(document(&access))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<Access> {
    let needed = ProjectRights::MANAGE_TEAMS;
    let (member, project, access) = team_access::visible(tx, &call.caller, call.param("access_id"), needed).await?;
    let resource = Resource::read(&call.document, TypeRule::Any, Some(&access.ext_id))?;
    let mut attributes = Attributes::new(resource.attributes());
    let change = TeamAccessChange::read(&mut attributes);
    attributes.finish()?;
    team_access::update(tx, &member, &project, &access, change).await
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let needed = ProjectRights::MANAGE_TEAMS;
    let (_, project, access) = team_access::visible(tx, &call.caller, call.param("access_id"), needed).await?;
    team_access::delete(tx, &project, &access).await
}
