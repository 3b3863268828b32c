//! Organizations: create, list, show, update, delete, and their entitlement sets.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::body::{PrimaryResource, TypeRule};
use super::super::documents::{format_time, to_one};
use super::super::list::ListRequest;
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use super::projects;
use crate::projects::Tx;
use crate::projects::attributes::AttributeReader;
use crate::projects::caller::{ProjectsCaller, TokenSubject};
use crate::projects::member::{self, Member, OrganizationFilter};
use crate::projects::organization::change::OrganizationChange;
use crate::projects::organization::{self, Organization, settings};
use crate::projects::page::{PageRequest, ResultPage};
use crate::projects::project::{self, Project};
use crate::projects::rejection::{ApiRejection, WorkResult};
use crate::projects::rights::{OrganizationFlag, ProjectRights};

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "organizations", "organization_create", create => render_created),
    route!(GET "organizations", "organization_list", list => render_list),
    route!(GET "organizations/:organization_name", "organization_show", show => render_one),
    route!(PATCH "organizations/:organization_name", "organization_update", update => render_one),
    route!(DELETE "organizations/:organization_name", "organization_delete", delete => render_empty),
    route!(GET "organizations/:organization_name/entitlement-set", "organization_entitlements",
        show_entitlements => render_entitlements),
];

/// Maximum number of organizations in a response without paging. Longer lists are paged.
const MAX_UNPAGED_ORGANIZATIONS: i64 = 1000;

struct OrganizationView {
    member: Member,
    /// External id of the default project.
    project: Option<String>,
    /// The default project, if it was requested and the caller may see it.
    included: Option<Vec<(Member, Project)>>,
}

async fn create(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<OrganizationView> {
    let TokenSubject::User { id: user, .. } = &call.caller.subject else {
        return Err(ApiRejection::forbidden("only users can create organizations; use the token of a user").into());
    };
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    let mut attributes = AttributeReader::new(resource.attributes());
    let new = OrganizationChange::read_new(&mut attributes, resource.related("default-agent-pool")?);
    let new = new.validate_pool(tx, 0, attributes).await?;
    let (name, email) = new.name_and_email();
    let id = organization::create(tx, *user, name, email, "{}").await?;
    new.store(tx, id).await?;
    load_created(tx, call, id).await
}

fn render_created(OrganizationView { member, project, .. }: OrganizationView) -> RenderedResult {
    RenderedResult::created(document(&member, project.as_deref()))
}

struct OrganizationPage {
    list_request: ListRequest,
    listed: ResultPage<Member>,
    /// `true` if the page is the whole list, because no page was requested and the list is short enough.
    is_whole: bool,
    projects: HashMap<i64, String>,
}

async fn list(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<OrganizationPage> {
    let list_request = ListRequest::read(call, &["q", "q[name]", "q[email]"])?;
    let text = |name: &str| call.query.text(name).map(str::to_owned);
    let wanted = OrganizationFilter { q: text("q"), name: text("q[name]"), email: text("q[email]") };
    let mut is_whole = !call.query.requests_page();
    let mut listed = if is_whole {
        member::list(tx, &call.caller, &wanted, PageRequest { number: 1, size: MAX_UNPAGED_ORGANIZATIONS }).await?
    } else {
        member::list(tx, &call.caller, &wanted, list_request.page).await?
    };
    if is_whole && listed.matching > MAX_UNPAGED_ORGANIZATIONS {
        is_whole = false;
        listed = member::list(tx, &call.caller, &wanted, list_request.page).await?;
    }
    let rows = listed.items.iter().map(|member| member.organization.id).collect();
    let projects = organization::find_default_projects(tx, rows).await?;
    Ok(OrganizationPage { list_request, listed, is_whole, projects })
}

fn render_list(OrganizationPage { list_request, listed, is_whole, projects }: OrganizationPage) -> RenderedResult {
    let item = |member: &Member| document(member, projects.get(&member.organization.id).map(String::as_str));
    if is_whole {
        return RenderedResult::resources(listed.items.iter().map(item));
    }
    list_request.document(listed.items.iter().map(item), listed.matching, None)
}

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<OrganizationView> {
    let member = organization_in_path(tx, call).await?;
    let wants_project = !call.query.include(&["default_project"], &[])?.is_empty();
    let project = organization::find_default_project(tx, member.organization.id).await?;
    let included = match project.as_deref().filter(|_| wants_project) {
        Some(project) => Some(visible_project(tx, &call.caller, project).await?),
        None => None,
    };
    Ok(OrganizationView { member, project, included })
}

fn render_one(OrganizationView { member, project, included }: OrganizationView) -> RenderedResult {
    let shown = |(member, project): &(Member, Project)| projects::document(member, project);
    let included = included.map(|projects| projects.iter().map(shown).collect());
    RenderedResult::resource(document(&member, project.as_deref())).including(included)
}

async fn update(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<OrganizationView> {
    let member = owned_organization_in_path(tx, call).await?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    let id = member.organization.id;
    // The lock serializes updates, because each update keeps the attributes that its body does not contain.
    organization::lock(tx, id).await?;
    let member = member::find_by_organization_row(tx, &call.caller, id).await?;
    let mut attributes = AttributeReader::new(resource.attributes());
    let change =
        OrganizationChange::read(&mut attributes, resource.related("default-agent-pool")?, Some(&member.organization));
    change.validate_pool(tx, id, attributes).await?.store(tx, id).await?;
    // The response shows the caller's rights before the change, because the change may disable the caller's own token.
    let organization = organization::load_by_row(tx, id).await?;
    let member = Member { organization, ..member };
    let project = organization::find_default_project(tx, member.organization.id).await?;
    Ok(OrganizationView { member, project, included: None })
}

async fn delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let member = owned_organization_in_path(tx, call).await?;
    organization::delete(tx, member.organization.id).await
}

async fn show_entitlements(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<Organization> {
    Ok(organization_in_path(tx, call).await?.organization)
}

fn render_entitlements(organization: Organization) -> RenderedResult {
    RenderedResult::resource(entitlement_set(&organization))
}

async fn organization_in_path(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<Member> {
    member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await
}

async fn owned_organization_in_path(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<Member> {
    let member = organization_in_path(tx, call).await?;
    member.require_owner()?;
    Ok(member)
}

async fn load_created(tx: &mut Tx<'_>, call: &ProjectsCall, id: i64) -> WorkResult<OrganizationView> {
    let organization = organization::load_by_row(tx, id).await?;
    let member =
        member::resolve_all(tx, &call.caller, vec![organization]).await?.pop().ok_or_else(ApiRejection::not_found)?;
    let project = organization::find_default_project(tx, member.organization.id).await?;
    Ok(OrganizationView { member, project, included: None })
}

async fn visible_project(tx: &mut Tx<'_>, caller: &ProjectsCaller, ext_id: &str) -> WorkResult<Vec<(Member, Project)>> {
    let (member, project) = project::find_with_member(tx, caller, ext_id).await?;
    Ok(if project.rights.has(ProjectRights::READ) { vec![(member, project)] } else { Vec::new() })
}

const RESOURCE_TYPE: &str = "organizations";

fn organization_path(name: &str) -> String {
    format!("/api/v2/organizations/{name}")
}

/// Renders the organization of `member`. `default_project` is the external id of its default project.
pub(crate) fn document(member: &Member, default_project: Option<&str>) -> Rendered {
    let organization = &member.organization;
    let rights = member.rights;
    let owner = member.is_owner;
    let mut attributes = settings::with_defaults(&organization.settings);
    let own = json!({
        "name": organization.name,
        "email": organization.email,
        "external-id": organization.ext_id,
        "created-at": format_time(organization.created_at),
        "default-execution-mode": organization.mode.name,
        "user-tokens-enabled": organization.user_tokens_enabled,
        "allow-force-delete-workspaces": organization.allow_force_delete,
        // Known clients require a number above 1.
        "remaining-testable-count": 5,
        "trial-expires-at": null,
        "is-unified": false,
        "fair-run-queuing-enabled": false,
        "saml-enabled": false,
        "permissions": {
            "can-update": owner,
            "can-destroy": owner,
            "can-update-api-token": owner,
            "can-create-team": rights.has(OrganizationFlag::ManageTeams),
            "can-create-workspace": rights.manages_workspaces(),
            "can-create-project": rights.has(OrganizationFlag::ManageProjects),
            "can-traverse": true,
            "can-manage-run-tasks": rights.has(OrganizationFlag::ManageRunTasks),
            "can-deploy-no-code-modules": owner,
            "can-manage-no-code-modules": owner,
        },
    });
    if let Value::Object(own) = own {
        attributes.extend(own);
    }
    json!({
        "id": organization.name,
        "type": RESOURCE_TYPE,
        "attributes": attributes,
        "relationships": {
            "default-project": to_one("projects", default_project),
            "default-agent-pool": to_one("agent-pools", organization.mode.pool.as_deref()),
        },
        "links": { "self": organization_path(&organization.name) },
    })
    .into()
}

/// Renders the features of this server that known clients query. `operations` makes a client send each plan and apply
/// to this server, which refuses it before anything changes. Without `operations` the client would run them locally,
/// and could not store the resulting state here.
fn entitlement_set(organization: &Organization) -> Rendered {
    json!({
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
        "links": { "self": format!("{}/entitlement-set", organization_path(&organization.name)) },
    })
    .into()
}
