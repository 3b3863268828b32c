//! The access of teams to projects: give, list, show, change, take away.

use serde_json::{Value, json};

use super::body::{Resource, TypeRule};
use super::list::{self, Extra};
use super::render::Reply;
use super::route::{Call, Route, route};
use crate::projects::attributes::Attributes;
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::rights::ProjectRights;
use crate::projects::team_access::{self, Access, Change};
use crate::projects::{Tx, project};

pub const ROUTES: &[Route] = &[
    route!(POST "team-projects", "team_project_create", create),
    route!(GET "team-projects", "team_project_list", list),
    route!(GET "team-projects/:access_id", "team_project_show", show),
    route!(PATCH "team-projects/:access_id", "team_project_update", update),
    route!(DELETE "team-projects/:access_id", "team_project_delete", delete),
];

/// The type of the documents.
const TYPE: &str = "team-projects";

/// The parameter that the list needs.
const PROJECT: &str = "filter[project][id]";

/// What the access is for stands in the body, so its shape is judged before what the caller may do.
async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let resource = Resource::read(call, TypeRule::Any, None)?;
    let (project, team) = (related(&resource, "project")?, related(&resource, "team")?);
    let (member, project) = project::visible(tx, &call.caller, &project, ProjectRights::MANAGE_TEAMS).await?;
    let team = team_access::team_of(tx, &call.caller, &member, &team).await?;
    let mut attributes = Attributes::new(resource.attributes());
    let new = Change::read_new(&mut attributes);
    attributes.finish()?;
    let access = team_access::create(tx, &member, &project, &team, new).await?;
    Ok(Reply::created(document(&access)))
}

fn related(resource: &Resource<'_>, name: &str) -> Outcome<String> {
    let missing =
        || Refusal::at(format!("/data/relationships/{name}"), format!("{name} must name one resource by its id"));
    Ok(resource.to_one(name)?.flatten().ok_or_else(missing)?)
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let missing = || Refusal::parameter(PROJECT, format!("{PROJECT} is required"));
    let wanted = call.query.text(PROJECT).ok_or_else(missing)?;
    let page = call.query.page()?;
    let (member, project) = project::visible(tx, &call.caller, wanted, ProjectRights::READ).await?;
    let listed = team_access::list(tx, &member, &project, page).await?;
    let items = listed.items.iter().map(document).collect();
    Ok(list::document(call, page, &[PROJECT], items, listed.matching, Extra::default()))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (.., access) = team_access::visible(tx, &call.caller, call.param("access_id"), ProjectRights::READ).await?;
    Ok(Reply::resource(document(&access)))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let needed = ProjectRights::MANAGE_TEAMS;
    let (member, project, access) = team_access::visible(tx, &call.caller, call.param("access_id"), needed).await?;
    let resource = Resource::read(call, TypeRule::Any, Some(&access.ext_id))?;
    let mut attributes = Attributes::new(resource.attributes());
    let change = Change::read(&mut attributes);
    attributes.finish()?;
    let access = team_access::update(tx, &member, &project, &access, change).await?;
    Ok(Reply::resource(document(&access)))
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let needed = ProjectRights::MANAGE_TEAMS;
    let (_, project, access) = team_access::visible(tx, &call.caller, call.param("access_id"), needed).await?;
    team_access::delete(tx, &project, &access).await?;
    Ok(Reply::Empty)
}

/// The document of a team's access, the same wherever it is shown: every key, at every level.
fn document(access: &Access) -> Value {
    let (project, workspace) = access.settings.blocks();
    json!({
        "id": access.ext_id,
        "type": TYPE,
        "attributes": {
            "access": access.level.word(),
            "project-access": project,
            "workspace-access": workspace,
        },
        "relationships": {
            "team": {
                "data": { "id": access.team, "type": "teams" },
                "links": { "related": format!("/api/v2/teams/{}", access.team) },
            },
            "project": {
                "data": { "id": access.project, "type": "projects" },
                "links": { "related": format!("/api/v2/projects/{}", access.project) },
            },
        },
        "links": { "self": format!("/api/v2/team-projects/{}", access.ext_id) },
    })
}
