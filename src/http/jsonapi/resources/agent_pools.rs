//! Agent pools: create, update, list, show, delete.

use super::super::body::{Resource, TypeRule};
use super::super::documents::agent_pools::{TYPE, document};
use super::super::documents::workspaces;
use super::super::list::ListRequest;
use super::super::reply::{Rendered, Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::Tx;
use crate::projects::agent_pool::{self, By, Fields, LONGEST_LIST, Lists, Pool, PoolFilter};
use crate::projects::attributes::Attributes;
use crate::projects::member::{self, Member};
use crate::projects::page::Listed;
use crate::projects::refusal::Outcome;
use crate::projects::workspace::Workspace;

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/agent-pools", "agent_pool_create", create => created),
    route!(GET "organizations/:organization_name/agent-pools", "agent_pool_list", list => listed),
    route!(GET "agent-pools/:agent_pool_id", "agent_pool_show", show => shown),
    route!(PATCH "agent-pools/:agent_pool_id", "agent_pool_update", update => shown),
    route!(DELETE "agent-pools/:agent_pool_id", "agent_pool_delete", delete => empty),
];

/// Parameters that list links repeat.
const PARAMETERS: &[&str] =
    &["q", "sort", "include", "filter[allowed_workspaces][name]", "filter[allowed_projects][name]"];
/// Supported `include` values, and values that are accepted without effect.
const INCLUDED: &[&str] = &["workspaces"];
const NEVER_THERE: &[&str] = &["hyok_configurations"];

struct One {
    member: Member,
    pool: Pool,
    workspaces: Option<Vec<Workspace>>,
}

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Pool)> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    agent_pool::may_manage(&member)?;
    let given = read(tx, call, &member, None).await?;
    let row = agent_pool::create(tx, &member, given).await?;
    let pool = agent_pool::at(tx, &member, row).await?;
    Ok((member, pool))
}

fn created((member, pool): (Member, Pool)) -> Reply {
    Reply::created(document(&member, &pool))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    tx.hold();
    let (member, pool) = agent_pool::visible(tx, &call.caller, call.param("agent_pool_id")).await?;
    let given = read(tx, call, &member, Some(&pool)).await?;
    agent_pool::change(tx, &member, &pool, given).await?;
    let pool = agent_pool::at(tx, &member, pool.id).await?;
    Ok(One { member, pool, workspaces: None })
}

/// Reads the body. All attributes are checked before an error is returned.
async fn read(tx: &mut Tx<'_>, call: &Call, member: &Member, stored: Option<&Pool>) -> Outcome<Fields> {
    let resource = Resource::read(&call.document, TypeRule::Exact(TYPE), stored.map(|pool| &pool.ext_id[..]))?;
    let mut attributes = Attributes::new(resource.attributes());
    let lists = Lists {
        excluded_workspaces: resource.to_many("excluded-workspaces", LONGEST_LIST)?,
        allowed_projects: resource.to_many("allowed-projects", LONGEST_LIST)?,
        allowed_workspaces: resource.to_many("allowed-workspaces", LONGEST_LIST)?,
    };
    let given = Fields::read(tx, member, &mut attributes, lists, stored).await?;
    attributes.finish()?;
    Ok(given)
}

struct Many {
    asked: ListRequest,
    member: Member,
    listed: Listed<Pool>,
    workspaces: Option<Vec<Workspace>>,
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Many> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, asked) = (&call.query, ListRequest::read(call, PARAMETERS)?);
    let include = query.include(INCLUDED, NEVER_THERE)?;
    let text = |name: &str| query.text(name).map(str::to_owned);
    let wanted = PoolFilter {
        q: text("q"),
        for_workspace: text("filter[allowed_workspaces][name]"),
        for_project: text("filter[allowed_projects][name]"),
        order: match query.sort(&["created-at", "name"])? {
            None => By::default(),
            Some(("name", backwards)) => By::Name { backwards },
            Some((_, backwards)) => By::Age { backwards },
        },
    };
    let listed = agent_pool::list(tx, &member, &wanted, asked.page).await?;
    let workspaces = workspaces_of(tx, &member, &listed.items, &include).await?;
    Ok(Many { asked, member, listed, workspaces })
}

fn listed(Many { asked, member, listed, workspaces }: Many) -> Reply {
    let items = listed.items.iter().map(|pool| document(&member, pool));
    asked.document(items, listed.matching, None).including(included(&member, workspaces))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    let (member, pool) = agent_pool::visible(tx, &call.caller, call.param("agent_pool_id")).await?;
    let include = call.query.include(INCLUDED, NEVER_THERE)?;
    let workspaces = workspaces_of(tx, &member, std::slice::from_ref(&pool), &include).await?;
    Ok(One { member, pool, workspaces })
}

fn shown(One { member, pool, workspaces }: One) -> Reply {
    Reply::resource(document(&member, &pool)).including(included(&member, workspaces))
}

async fn workspaces_of(
    tx: &mut Tx<'_>,
    member: &Member,
    pools: &[Pool],
    include: &[&str],
) -> Outcome<Option<Vec<Workspace>>> {
    if include.is_empty() {
        return Ok(None);
    }
    agent_pool::workspaces(tx, member, pools).await.map(Some)
}

fn included(member: &Member, shown: Option<Vec<Workspace>>) -> Option<Vec<Rendered>> {
    Some(shown?.iter().map(|workspace| workspaces::document(member, workspace)).collect())
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    tx.hold();
    let (_, pool) = agent_pool::visible(tx, &call.caller, call.param("agent_pool_id")).await?;
    agent_pool::delete(tx, pool.id).await
}
