//! Organizations: create, list, show, update, delete, and the entitlements that known clients ask for.

use serde_json::{Value, json};

use super::body::{Resource, TypeRule};
use super::list::{self, Extra};
use super::render::{self, Reply};
use super::route::{Call, Route, route};
use super::{projects, query::Query};
use crate::projects::attributes::{Attributes, Given};
use crate::projects::caller::{Caller, Member, Subject};
use crate::projects::organization::change::Change;
use crate::projects::organization::{self, settings};
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::rights::ProjectRights;
use crate::projects::{Tx, project};

pub const ROUTES: &[Route] = &[
    route!(POST "organizations", "organization_create", create),
    route!(GET "organizations", "organization_list", list),
    route!(GET "organizations/:organization_name", "organization_show", show),
    route!(PATCH "organizations/:organization_name", "organization_update", update),
    route!(DELETE "organizations/:organization_name", "organization_delete", delete),
    route!(GET "organizations/:organization_name/entitlement-set", "organization_entitlements", entitlements),
];

/// The type of organization documents.
const TYPE: &str = "organizations";

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let Subject::User { id: user, .. } = &call.caller.subject else {
        return Err(Refusal::forbidden("only users create organizations").into());
    };
    let resource = Resource::read(call, TypeRule::Any, None)?;
    let mut attributes = Attributes::new(resource.attributes());
    let new = Change::read_new(&mut attributes, pool_of(&resource)?);
    let new = new.checked(tx, 0, attributes).await?;
    let (name, email) = new.name_and_email();
    let id = organization::create(tx, *user, name, email, "{}").await?;
    new.store(tx, id).await?;
    Ok(Reply::created(stored(tx, call, id).await?))
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let page = call.query.page()?;
    let listed = organization::list(tx, &call.caller, call.query.text("q"), page).await?;
    let rows = listed.items.iter().map(|member| member.organization.id).collect();
    let projects = organization::default_projects(tx, rows).await?;
    let item = |member| document(member, projects.get(&member.organization.id).map(String::as_str));
    let items = listed.items.iter().map(item).collect();
    Ok(list::document(call, page, &["q"], items, listed.matching, Extra::default()))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = named(tx, call).await?;
    let wants_project = includes_project(&call.query)?;
    let project = default_project(tx, &member).await?;
    let reply = Reply::resource(document(&member, project.as_deref()));
    match project.filter(|_| wants_project) {
        Some(project) => Ok(reply.including(included(tx, &call.caller, &project).await?)),
        None => Ok(reply),
    }
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = owned(tx, call).await?;
    let resource = Resource::read(call, TypeRule::Any, None)?;
    let id = member.organization.id;
    // One change after the other: each keeps what it does not name.
    organization::lock(tx, id).await?;
    let member = organization::at(tx, &call.caller, id).await?;
    let mut attributes = Attributes::new(resource.attributes());
    let change = Change::read(&mut attributes, pool_of(&resource)?, Some(&member.organization));
    change.checked(tx, id, attributes).await?.store(tx, id).await?;
    // As it was for the caller when the change was asked for: it may switch the caller's own token off.
    let organization = organization::at_row(tx, id).await?;
    let member = Member { organization, ..member };
    let project = default_project(tx, &member).await?;
    Ok(Reply::resource(document(&member, project.as_deref())))
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = owned(tx, call).await?;
    organization::delete(tx, member.organization.id).await?;
    Ok(Reply::Empty)
}

/// What this server has of what known clients look for. `operations` sends a plan or an apply here, where it is
/// refused before anything has changed; without it they would run at the client's, and what they made would have
/// no state.
async fn entitlements(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = named(tx, call).await?;
    let organization = &member.organization;
    Ok(Reply::resource(json!({
        "id": organization.ext_id,
        "type": "entitlement-sets",
        "attributes": {
            "teams": true,
            "operations": true,
            "state-storage": false,
            "agents": false,
            "audit-logging": false,
            "cost-estimation": false,
            "global-run-tasks": false,
            "policy-enforcement": false,
            "private-module-registry": false,
            "private-run-tasks": false,
            "run-tasks": false,
            "sentinel": false,
            "sso": false,
            "vcs-integrations": false,
        },
        "links": { "self": format!("{}/entitlement-set", link(&organization.name)) },
    })))
}

async fn named(tx: &mut Tx<'_>, call: &Call) -> Outcome<Member> {
    organization::named(tx, &call.caller, call.param("organization_name")).await
}

/// The organization of the path, whose owner the caller is.
async fn owned(tx: &mut Tx<'_>, call: &Call) -> Outcome<Member> {
    let member = named(tx, call).await?;
    if member.owner { Ok(member) } else { Err(Refusal::not_found().into()) }
}

/// The document of an organization that the caller has just made.
async fn stored(tx: &mut Tx<'_>, call: &Call, id: i64) -> Outcome<Value> {
    let organization = organization::at_row(tx, id).await?;
    let member = call.caller.members(tx, vec![organization]).await?.pop().ok_or_else(Refusal::not_found)?;
    let project = default_project(tx, &member).await?;
    Ok(document(&member, project.as_deref()))
}

async fn default_project(tx: &mut Tx<'_>, member: &Member) -> Outcome<Option<String>> {
    let id = member.organization.id;
    Ok(organization::default_projects(tx, vec![id]).await?.remove(&id))
}

/// The relationship to the agent pool, as the rules of modes read it.
fn pool_of(resource: &Resource<'_>) -> Outcome<Given<String>> {
    Ok(match resource.to_one("default-agent-pool")? {
        None => Given::Absent,
        Some(None) => Given::Null,
        Some(Some(pool)) => Given::Value(pool),
    })
}

fn includes_project(query: &Query) -> Outcome<bool> {
    Ok(!query.include(&["default_project"], &[])?.is_empty())
}

/// The default project, when the caller sees it.
async fn included(tx: &mut Tx<'_>, caller: &Caller, ext_id: &str) -> Outcome<Vec<Value>> {
    let (member, project) = project::of(tx, caller, ext_id).await?;
    Ok(match project.rights.has(ProjectRights::READ) {
        true => vec![projects::document(&member, &project)],
        false => Vec::new(),
    })
}

fn link(name: &str) -> String {
    format!("/api/v2/organizations/{name}")
}

/// The document of the member's organization, for other resources to include.
pub async fn shown(tx: &mut Tx<'_>, member: &Member) -> Outcome<Value> {
    let project = default_project(tx, member).await?;
    Ok(document(member, project.as_deref()))
}

/// An organization's document, the same wherever it is shown.
fn document(member: &Member, default_project: Option<&str>) -> Value {
    let (organization, rights, owner) = (&member.organization, member.rights, member.owner);
    let mut attributes = settings::all(&organization.settings);
    let own = json!({
        "name": organization.name,
        "email": organization.email,
        "external-id": organization.ext_id,
        "created-at": render::time(organization.created_at),
        "default-execution-mode": organization.mode.name,
        "user-tokens-enabled": organization.user_tokens_enabled,
        "allow-force-delete-workspaces": organization.allow_force_delete,
        // Known clients look for a number above 1.
        "remaining-testable-count": 5,
        "trial-expires-at": null,
        "permissions": {
            "can-update": owner,
            "can-destroy": owner,
            "can-update-api-token": owner,
            "can-create-team": rights.has("manage-teams"),
            "can-create-workspace": rights.manages_workspaces(),
            "can-create-project": rights.has("manage-projects"),
            "can-traverse": true,
            "can-manage-run-tasks": rights.has("manage-run-tasks"),
            "can-deploy-no-code-modules": owner,
            "can-manage-no-code-modules": owner,
        },
    });
    if let Value::Object(own) = own {
        attributes.extend(own);
    }
    let pool = organization.mode.pool.as_ref();
    json!({
        "id": organization.name,
        "type": TYPE,
        "attributes": attributes,
        "relationships": {
            "default-project": { "data": default_project.map(|id| json!({ "id": id, "type": "projects" })) },
            "default-agent-pool": { "data": pool.map(|id| json!({ "id": id, "type": "agent-pools" })) },
        },
        "links": { "self": link(&organization.name) },
    })
}
