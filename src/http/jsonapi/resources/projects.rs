//! Projects: create, update, list, show, delete, and moving workspaces into a project.

use std::collections::HashMap;

use super::super::body::{self, Resource, TypeRule};
use super::super::documents::projects::{TYPE, document, naming_tags};
use super::super::documents::tags::effective;
use super::super::list::ListRequest;
use super::super::query::{MOST_LISTED, TAGGED};
use super::super::reply::{Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::Tx;
use crate::projects::attributes::Attributes;
use crate::projects::member::{self, Member};
use crate::projects::page::Listed;
use crate::projects::project::{self, Fields, Project, ProjectFilter};
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, Binding, Holder};
use crate::projects::workspace;

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/projects", "project_create", create => created),
    route!(GET "organizations/:organization_name/projects", "project_list", list => listed),
    route!(GET "projects/:project_id", "project_show", show => shown),
    route!(PATCH "projects/:project_id", "project_update", update => shown),
    route!(DELETE "projects/:project_id", "project_delete", delete => empty),
    route!(POST "projects/:project_id/relationships/workspaces", "project_move", take_in => empty),
];

/// Parameters that list links repeat.
const PARAMETERS: &[&str] = &[
    "q",
    "sort",
    "include",
    "filter[names]",
    "filter[permissions][update]",
    "filter[permissions][create-workspace]",
    TAGGED,
];

struct One {
    member: Member,
    project: Project,
    tags: Option<Vec<Binding>>,
}

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Project)> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    project::may_create(&member)?;
    let resource = Resource::read(&call.document, TypeRule::Exact(TYPE), None)?;
    let given = given(tx, &member, &resource, None).await?;
    let project = project::create(tx, &member, given).await?;
    Ok((member, project))
}

fn created((member, project): (Member, Project)) -> Reply {
    Reply::created(document(&member, &project))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    tx.hold();
    let (member, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::UPDATE).await?;
    let resource = Resource::read(&call.document, TypeRule::Exact(TYPE), Some(&project.ext_id))?;
    let given = given(tx, &member, &resource, Some(&project)).await?;
    let project = project::change(tx, &member, project, given).await?;
    Ok(One { member, project, tags: None })
}

/// Reads the body of a create or an update. All attributes are checked before an error is returned.
async fn given(tx: &mut Tx<'_>, member: &Member, resource: &Resource<'_>, stored: Option<&Project>) -> Outcome<Fields> {
    let mut attributes = Attributes::new(resource.attributes());
    let pool = resource.related("default-agent-pool")?;
    let mut fields = Fields::read(tx, member, &mut attributes, pool, stored).await?;
    fields.tags = resource.tag_bindings(&mut attributes)?;
    attributes.finish()?;
    Ok(fields)
}

/// A page of projects, and their effective tags by the row of the project, if requested.
struct Many {
    asked: ListRequest,
    member: Member,
    listed: Listed<Project>,
    total: i64,
    tags: Option<HashMap<i64, Vec<Binding>>>,
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Many> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, asked, with_tags) = (&call.query, ListRequest::read(call, PARAMETERS)?, includes_tags(call)?);
    let mut granted = ProjectRights::NONE;
    if query.has("filter[permissions][update]") {
        granted |= ProjectRights::UPDATE;
    }
    if query.has("filter[permissions][create-workspace]") {
        granted |= ProjectRights::CREATE_WORKSPACE;
    }
    let wanted = ProjectFilter {
        names: query.list("filter[names]", MOST_LISTED)?,
        q: query.text("q").map(str::to_owned),
        granted,
        tagged: query.tagged()?,
        by_name: query.sort(&["name"])?.map(|(_, backwards)| backwards),
    };
    let (listed, total) = project::list(tx, &member, &wanted, asked.page).await?;
    let rows = listed.items.iter().map(|project| project.id).collect();
    let tags = if with_tags { Some(tag::of(tx, Holder::Project, rows).await?) } else { None };
    Ok(Many { asked, member, listed, total, tags })
}

fn listed(Many { asked, member, listed, total, tags }: Many) -> Reply {
    let (items, total) = (&listed.items, Some(total));
    let Some(tags) = tags else {
        return asked.document(items.iter().map(|project| document(&member, project)), listed.matching, total);
    };
    let of = |project: &Project| tags.get(&project.id).map_or(&[][..], Vec::as_slice);
    let included = items.iter().flat_map(of).map(|binding| effective(binding, None)).collect();
    let items = items.iter().map(|project| naming_tags(&member, project, of(project)));
    asked.document(items, listed.matching, total).including(Some(included))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    let (member, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::READ).await?;
    let tags = match includes_tags(call)? {
        true => Some(tag::of_one(tx, Holder::Project, project.id).await?),
        false => None,
    };
    Ok(One { member, project, tags })
}

fn shown(One { member, project, tags }: One) -> Reply {
    let Some(tags) = tags else { return Reply::resource(document(&member, &project)) };
    let included = tags.iter().map(|binding| effective(binding, None)).collect();
    Reply::resource(naming_tags(&member, &project, &tags)).including(Some(included))
}

fn includes_tags(call: &Call) -> Result<bool, Refusal> {
    Ok(!call.query.include(&["effective_tag_bindings"], &[])?.is_empty())
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let (member, project) =
        project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::DESTROY).await?;
    let may_empty = workspace::may_delete_all(tx, &member, &project).await?;
    project::delete(tx, &member, &project, may_empty).await
}

/// Moves workspaces into the project.
async fn take_in(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let needed = ProjectRights::MOVE_WORKSPACE;
    let (member, project) = project::visible(tx, &call.caller, call.param("project_id"), needed).await?;
    let ids = body::identifiers(&call.document, "workspaces")?;
    project::move_workspaces(tx, &member, &project, &ids).await
}
