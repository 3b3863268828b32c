//! Agent pools: create, update, list, show, delete.

use serde_json::json;

use super::super::body::{PrimaryResource, TypeRule};
use super::super::documents::{format_time, related, to_many};
use super::super::list::ListRequest;
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use super::workspaces;
use crate::projects::Tx;
use crate::projects::agent_pool::{
    self, AgentPool, AgentPoolFields, AgentPoolOrder, MAX_SCOPE_LIST_ELEMENTS, PoolFilter, ScopeLists,
};
use crate::projects::attributes::AttributeReader;
use crate::projects::member::{self, Member};
use crate::projects::page::ResultPage;
use crate::projects::rejection::WorkResult;
use crate::projects::workspace::Workspace;

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "organizations/:organization_name/agent-pools", "agent_pool_create", create => render_created),
    route!(GET "organizations/:organization_name/agent-pools", "agent_pool_list", list => render_list),
    route!(GET "agent-pools/:agent_pool_id", "agent_pool_show", show => render_one),
    route!(PATCH "agent-pools/:agent_pool_id", "agent_pool_update", update => render_one),
    route!(DELETE "agent-pools/:agent_pool_id", "agent_pool_delete", delete => render_empty),
];

/// Query parameters that pagination links repeat.
const LIST_PARAMETERS: &[&str] =
    &["q", "sort", "include", "filter[allowed_workspaces][name]", "filter[allowed_projects][name]"];
/// Supported `include` values.
const SUPPORTED_INCLUDES: &[&str] = &["workspaces"];
/// `include` values that are accepted without effect.
const IGNORED_INCLUDES: &[&str] = &["hyok_configurations"];

struct AgentPoolView {
    member: Member,
    pool: AgentPool,
    workspaces: Option<Vec<Workspace>>,
}

async fn create(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, AgentPool)> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    agent_pool::require_may_manage(&member)?;
    let given = read_fields(tx, call, &member, None).await?;
    let row = agent_pool::create(tx, &member, given).await?;
    let pool = agent_pool::load_by_row(tx, &member, row).await?;
    Ok((member, pool))
}

fn render_created((member, pool): (Member, AgentPool)) -> RenderedResult {
    RenderedResult::created(document(&member, &pool))
}

async fn update(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<AgentPoolView> {
    tx.lock_lookups();
    let (member, pool) = agent_pool::find_visible(tx, &call.caller, call.param("agent_pool_id")).await?;
    let given = read_fields(tx, call, &member, Some(&pool)).await?;
    agent_pool::change(tx, &member, &pool, given).await?;
    let pool = agent_pool::load_by_row(tx, &member, pool.id).await?;
    Ok(AgentPoolView { member, pool, workspaces: None })
}

/// Reads the body of a create or an update. All attributes are checked before an error is returned.
async fn read_fields(
    tx: &mut Tx<'_>,
    call: &ProjectsCall,
    member: &Member,
    stored: Option<&AgentPool>,
) -> WorkResult<AgentPoolFields> {
    let resource =
        PrimaryResource::read(&call.document, TypeRule::Exact(RESOURCE_TYPE), stored.map(|pool| &pool.ext_id[..]))?;
    let mut attributes = AttributeReader::new(resource.attributes());
    let lists = ScopeLists {
        excluded_workspaces: resource.to_many("excluded-workspaces", MAX_SCOPE_LIST_ELEMENTS)?,
        allowed_projects: resource.to_many("allowed-projects", MAX_SCOPE_LIST_ELEMENTS)?,
        allowed_workspaces: resource.to_many("allowed-workspaces", MAX_SCOPE_LIST_ELEMENTS)?,
    };
    let given = AgentPoolFields::read(tx, member, &mut attributes, lists, stored).await?;
    attributes.finish()?;
    Ok(given)
}

struct AgentPoolPage {
    list_request: ListRequest,
    member: Member,
    listed: ResultPage<AgentPool>,
    workspaces: Option<Vec<Workspace>>,
}

async fn list(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<AgentPoolPage> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    let query = &call.query;
    let list_request = ListRequest::read(call, LIST_PARAMETERS)?;
    let include = query.include(SUPPORTED_INCLUDES, IGNORED_INCLUDES)?;
    let text = |name: &str| query.text(name).map(str::to_owned);
    let wanted = PoolFilter {
        q: text("q"),
        for_workspace: text("filter[allowed_workspaces][name]"),
        for_project: text("filter[allowed_projects][name]"),
        order: match query.sort(&["created-at", "name"])? {
            None => AgentPoolOrder::default(),
            Some(("name", descending)) => AgentPoolOrder::Name { descending },
            Some((_, descending)) => AgentPoolOrder::Age { descending },
        },
    };
    let listed = agent_pool::list(tx, &member, &wanted, list_request.page).await?;
    let workspaces = workspaces_of(tx, &member, &listed.items, &include).await?;
    Ok(AgentPoolPage { list_request, member, listed, workspaces })
}

fn render_list(AgentPoolPage { list_request, member, listed, workspaces }: AgentPoolPage) -> RenderedResult {
    let items = listed.items.iter().map(|pool| document(&member, pool));
    list_request.document(items, listed.matching, None).including(render_included(&member, workspaces))
}

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<AgentPoolView> {
    let (member, pool) = agent_pool::find_visible(tx, &call.caller, call.param("agent_pool_id")).await?;
    let include = call.query.include(SUPPORTED_INCLUDES, IGNORED_INCLUDES)?;
    let workspaces = workspaces_of(tx, &member, std::slice::from_ref(&pool), &include).await?;
    Ok(AgentPoolView { member, pool, workspaces })
}

fn render_one(AgentPoolView { member, pool, workspaces }: AgentPoolView) -> RenderedResult {
    RenderedResult::resource(document(&member, &pool)).including(render_included(&member, workspaces))
}

async fn workspaces_of(
    tx: &mut Tx<'_>,
    member: &Member,
    pools: &[AgentPool],
    include: &[&str],
) -> WorkResult<Option<Vec<Workspace>>> {
    if include.is_empty() {
        return Ok(None);
    }
    agent_pool::load_workspaces(tx, member, pools).await.map(Some)
}

fn render_included(member: &Member, shown: Option<Vec<Workspace>>) -> Option<Vec<Rendered>> {
    Some(shown?.iter().map(|workspace| workspaces::document(member, workspace)).collect())
}

async fn delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    tx.lock_lookups();
    let (_, pool) = agent_pool::find_visible(tx, &call.caller, call.param("agent_pool_id")).await?;
    agent_pool::delete(tx, pool.id).await
}

/// The type of pool documents.
const RESOURCE_TYPE: &str = "agent-pools";

/// Renders a pool.
fn document(member: &Member, pool: &AgentPool) -> Rendered {
    json!({
        "id": pool.ext_id,
        "type": RESOURCE_TYPE,
        "attributes": {
            "name": pool.name,
            "created-at": format_time(pool.created_at),
            "agent-count": 0,
            "organization-scoped": pool.organization_scoped,
        },
        "relationships": {
            "organization": related("organizations", &member.organization.name),
            "workspaces": to_many("workspaces", &pool.workspaces),
            "allowed-workspaces": to_many("workspaces", &pool.visible_scope.allowed_workspaces),
            "allowed-projects": to_many("projects", &pool.visible_scope.allowed_projects),
            "excluded-workspaces": to_many("workspaces", &pool.visible_scope.excluded_workspaces),
        },
        "links": { "self": format!("/api/v2/agent-pools/{}", pool.ext_id) },
    })
    .into()
}
