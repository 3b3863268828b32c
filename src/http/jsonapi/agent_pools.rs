//! Agent pools: create, update, list, show, delete.

use serde_json::{Value, json};

use super::body::{MOST_NAMED, Resource, TypeRule};
use super::list::{self, Extra};
use super::render::{self, Reply};
use super::route::{Call, Route, route};
use super::workspaces;
use crate::projects::agent_pool::{self, Fields, Lists, Pool, Wanted};
use crate::projects::attributes::Attributes;
use crate::projects::caller::Member;
use crate::projects::refusal::Outcome;
use crate::projects::{Tx, organization};

pub const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/agent-pools", "agent_pool_create", create),
    route!(GET "organizations/:organization_name/agent-pools", "agent_pool_list", list),
    route!(GET "agent-pools/:agent_pool_id", "agent_pool_show", show),
    route!(PATCH "agent-pools/:agent_pool_id", "agent_pool_update", update),
    route!(DELETE "agent-pools/:agent_pool_id", "agent_pool_delete", delete),
];

/// The type of pool documents.
const TYPE: &str = "agent-pools";

/// The parameters that links of the list keep.
const PARAMETERS: &[&str] =
    &["q", "sort", "include", "filter[allowed_workspaces][name]", "filter[allowed_projects][name]"];
/// What can be included, and what is never there.
const INCLUDED: &[&str] = &["workspaces"];
const NEVER_THERE: &[&str] = &["hyok_configurations"];

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    agent_pool::may_manage(&member)?;
    let given = read(tx, call, &member, None).await?;
    let row = agent_pool::create(tx, &member, given).await?;
    let pool = agent_pool::at(tx, &member, row).await?;
    Ok(Reply::created(document(&member, &pool)))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    tx.hold();
    let (member, pool) = agent_pool::visible(tx, &call.caller, call.param("agent_pool_id")).await?;
    let given = read(tx, call, &member, Some(&pool)).await?;
    agent_pool::change(tx, pool.id, given).await?;
    let pool = agent_pool::at(tx, &member, pool.id).await?;
    Ok(Reply::resource(document(&member, &pool)))
}

/// What the body gives; refused when anything is wrong with it.
async fn read(tx: &mut Tx<'_>, call: &Call, member: &Member, stored: Option<&Pool>) -> Outcome<Fields> {
    let resource = Resource::read(call, TypeRule::Exact(TYPE), stored.map(|pool| &pool.ext_id[..]))?;
    let mut attributes = Attributes::new(resource.attributes());
    let lists = Lists {
        excluded_workspaces: resource.to_many("excluded-workspaces", MOST_NAMED)?,
        allowed_projects: resource.to_many("allowed-projects", MOST_NAMED)?,
        allowed_workspaces: resource.to_many("allowed-workspaces", MOST_NAMED)?,
    };
    let given = Fields::read(tx, member, &mut attributes, lists, stored).await?;
    attributes.finish()?;
    Ok(given)
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, page) = (&call.query, call.query.page()?);
    let include = query.include(INCLUDED, NEVER_THERE)?;
    let text = |name: &str| query.text(name).map(str::to_owned);
    let wanted = Wanted {
        q: text("q"),
        for_workspace: text("filter[allowed_workspaces][name]"),
        for_project: text("filter[allowed_projects][name]"),
        sort: query.sort(&["created-at", "name"])?,
    };
    let listed = agent_pool::list(tx, &member, &wanted, page).await?;
    let items = listed.items.iter().map(|pool| document(&member, pool)).collect();
    let included = included(tx, &member, &listed.items, &include).await?;
    let extra = Extra { included, ..Extra::default() };
    Ok(list::document(call, page, PARAMETERS, items, listed.matching, extra))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, pool) = agent_pool::visible(tx, &call.caller, call.param("agent_pool_id")).await?;
    let include = call.query.include(INCLUDED, NEVER_THERE)?;
    let reply = Reply::resource(document(&member, &pool));
    Ok(match included(tx, &member, std::slice::from_ref(&pool), &include).await? {
        Some(included) => reply.including(included),
        None => reply,
    })
}

async fn included(tx: &mut Tx<'_>, member: &Member, pools: &[Pool], include: &[&str]) -> Outcome<Option<Vec<Value>>> {
    if include.is_empty() {
        return Ok(None);
    }
    let shown = agent_pool::workspaces(tx, member, pools).await?;
    Ok(Some(shown.iter().map(|workspace| workspaces::document(member, workspace)).collect()))
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    tx.hold();
    let (_, pool) = agent_pool::visible(tx, &call.caller, call.param("agent_pool_id")).await?;
    agent_pool::delete(tx, pool.id).await?;
    Ok(Reply::Empty)
}

/// A pool's document, the same wherever it is shown.
fn document(member: &Member, pool: &Pool) -> Value {
    let organization = &member.organization.name;
    let these = |kind: &str, ids: &[String]| {
        let data: Vec<Value> = ids.iter().map(|id| json!({ "id": id, "type": kind })).collect();
        json!({ "data": data })
    };
    json!({
        "id": pool.ext_id,
        "type": TYPE,
        "attributes": {
            "name": pool.name,
            "created-at": render::time(pool.created_at),
            "agent-count": 0,
            "organization-scoped": pool.organization_scoped,
        },
        "relationships": {
            "organization": {
                "data": { "id": organization, "type": "organizations" },
                "links": { "related": format!("/api/v2/organizations/{organization}") },
            },
            "workspaces": these("workspaces", &pool.workspaces),
            "allowed-workspaces": these("workspaces", &pool.scope.allowed_workspaces),
            "allowed-projects": these("projects", &pool.scope.allowed_projects),
            "excluded-workspaces": these("workspaces", &pool.scope.excluded_workspaces),
        },
        "links": { "self": format!("/api/v2/agent-pools/{}", pool.ext_id) },
    })
}
