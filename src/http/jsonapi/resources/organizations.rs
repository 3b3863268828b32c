//! Organizations: create, list, show, update, delete, and their entitlement sets.

use std::collections::HashMap;

use super::super::body::{Resource, TypeRule};
use super::super::documents::organizations::document;
use super::super::documents::{organizations, projects};
use super::super::list::ListRequest;
use super::super::reply::{Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::Tx;
use crate::projects::attributes::Attributes;
use crate::projects::caller::{Caller, Subject};
use crate::projects::member::{self, Member, OrganizationFilter};
use crate::projects::organization::change::OrganizationChange;
use crate::projects::organization::{self, Organization};
use crate::projects::page::{Listed, Page};
use crate::projects::project::{self, Project};
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::rights::ProjectRights;

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "organizations", "organization_create", create => created),
    route!(GET "organizations", "organization_list", list => listed),
    route!(GET "organizations/:organization_name", "organization_show", show => shown),
    route!(PATCH "organizations/:organization_name", "organization_update", update => shown),
    route!(DELETE "organizations/:organization_name", "organization_delete", delete => empty),
    route!(GET "organizations/:organization_name/entitlement-set", "organization_entitlements",
        entitlements => entitled),
];

/// Maximum number of organizations in a response without paging. Longer lists are paged.
const MOST_UNPAGED: i64 = 1000;

struct One {
    member: Member,
    /// External id of the default project.
    project: Option<String>,
    /// The default project, if it was requested and the caller may see it.
    included: Option<Vec<(Member, Project)>>,
}

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    let Subject::User { id: user, .. } = &call.caller.subject else {
        return Err(Refusal::forbidden("only users create organizations").into());
    };
    let resource = Resource::read(&call.document, TypeRule::Any, None)?;
    let mut attributes = Attributes::new(resource.attributes());
    let new = OrganizationChange::read_new(&mut attributes, resource.related("default-agent-pool")?);
    let new = new.checked(tx, 0, attributes).await?;
    let (name, email) = new.name_and_email();
    let id = organization::create(tx, *user, name, email, "{}").await?;
    new.store(tx, id).await?;
    stored(tx, call, id).await
}

fn created(One { member, project, .. }: One) -> Reply {
    Reply::created(document(&member, project.as_deref()))
}

struct Many {
    asked: ListRequest,
    listed: Listed<Member>,
    /// `true` if the page is the whole list: no page was requested, and the list is short enough.
    is_whole: bool,
    projects: HashMap<i64, String>,
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Many> {
    let asked = ListRequest::read(call, &["q", "q[name]", "q[email]"])?;
    let text = |name: &str| call.query.text(name).map(str::to_owned);
    let wanted = OrganizationFilter { q: text("q"), name: text("q[name]"), email: text("q[email]") };
    let mut is_whole = !call.query.names_a_page();
    let mut listed = if is_whole {
        member::list(tx, &call.caller, &wanted, Page { number: 1, size: MOST_UNPAGED }).await?
    } else {
        member::list(tx, &call.caller, &wanted, asked.page).await?
    };
    if is_whole && listed.matching > MOST_UNPAGED {
        is_whole = false;
        listed = member::list(tx, &call.caller, &wanted, asked.page).await?;
    }
    let rows = listed.items.iter().map(|member| member.organization.id).collect();
    let projects = organization::default_projects(tx, rows).await?;
    Ok(Many { asked, listed, is_whole, projects })
}

fn listed(Many { asked, listed, is_whole, projects }: Many) -> Reply {
    let item = |member: &Member| document(member, projects.get(&member.organization.id).map(String::as_str));
    if is_whole {
        return Reply::resources(listed.items.iter().map(item));
    }
    asked.document(listed.items.iter().map(item), listed.matching, None)
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    let member = named(tx, call).await?;
    let wants_project = !call.query.include(&["default_project"], &[])?.is_empty();
    let project = organization::default_project(tx, member.organization.id).await?;
    let included = match project.as_deref().filter(|_| wants_project) {
        Some(project) => Some(seen(tx, &call.caller, project).await?),
        None => None,
    };
    Ok(One { member, project, included })
}

fn shown(One { member, project, included }: One) -> Reply {
    let shown = |(member, project): &(Member, Project)| projects::document(member, project);
    let included = included.map(|projects| projects.iter().map(shown).collect());
    Reply::resource(document(&member, project.as_deref())).including(included)
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    let member = owned(tx, call).await?;
    let resource = Resource::read(&call.document, TypeRule::Any, None)?;
    let id = member.organization.id;
    // The lock serializes changes, because each preserves the attributes that it does not contain.
    organization::lock(tx, id).await?;
    let member = member::at(tx, &call.caller, id).await?;
    let mut attributes = Attributes::new(resource.attributes());
    let change =
        OrganizationChange::read(&mut attributes, resource.related("default-agent-pool")?, Some(&member.organization));
    change.checked(tx, id, attributes).await?.store(tx, id).await?;
    // Uses the caller's rights from before the change, which may disable the caller's own token.
    let organization = organization::at_row(tx, id).await?;
    let member = Member { organization, ..member };
    let project = organization::default_project(tx, member.organization.id).await?;
    Ok(One { member, project, included: None })
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let member = owned(tx, call).await?;
    organization::delete(tx, member.organization.id).await
}

async fn entitlements(tx: &mut Tx<'_>, call: &Call) -> Outcome<Organization> {
    Ok(named(tx, call).await?.organization)
}

fn entitled(organization: Organization) -> Reply {
    Reply::resource(organizations::entitlements(&organization))
}

async fn named(tx: &mut Tx<'_>, call: &Call) -> Outcome<Member> {
    member::named(tx, &call.caller, call.param("organization_name")).await
}

async fn owned(tx: &mut Tx<'_>, call: &Call) -> Outcome<Member> {
    let member = named(tx, call).await?;
    member.must_own()?;
    Ok(member)
}

async fn stored(tx: &mut Tx<'_>, call: &Call, id: i64) -> Outcome<One> {
    let organization = organization::at_row(tx, id).await?;
    let member = member::of_all(tx, &call.caller, vec![organization]).await?.pop().ok_or_else(Refusal::not_found)?;
    let project = organization::default_project(tx, member.organization.id).await?;
    Ok(One { member, project, included: None })
}

async fn seen(tx: &mut Tx<'_>, caller: &Caller, ext_id: &str) -> Outcome<Vec<(Member, Project)>> {
    let (member, project) = project::of(tx, caller, ext_id).await?;
    Ok(if project.rights.has(ProjectRights::READ) { vec![(member, project)] } else { Vec::new() })
}
