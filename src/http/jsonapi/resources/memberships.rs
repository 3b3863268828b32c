//! Memberships of an organization: invite, list, show, remove.

use super::super::body::{self, PrimaryResource, TypeRule};
use super::super::documents::membership as document;
use super::super::list::ListRequest;
use super::super::query::MAX_FILTER_VALUES;
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use super::{account, teams};
use crate::projects::attributes::{AttributeReader, AttributeValue};
use crate::projects::member::{self, Member};
use crate::projects::membership::{self, Membership, MembershipFilter};
use crate::projects::page::ResultPage;
use crate::projects::rejection::{ApiRejection, WorkResult};
use crate::projects::team::Team;
use crate::projects::user::is_email_address;
use crate::projects::{Tx, team};

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "organizations/:organization_name/organization-memberships", "membership_create", create => render_created),
    route!(GET "organizations/:organization_name/organization-memberships", "membership_list", list => render_list),
    route!(GET "organization-memberships", "membership_own_list", list_own => render_own_list),
    route!(GET "organization-memberships/:membership_id", "membership_show", show => render_one),
    route!(DELETE "organization-memberships/:membership_id", "membership_delete", delete => render_empty),
];

/// Query parameters that pagination links repeat.
const LIST_PARAMETERS: &[&str] = &["q", "filter[email]", "filter[status]", "include"];

async fn create(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Membership)> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    membership::require_may_manage(&member)?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    let mut attributes = AttributeReader::new(resource.attributes());
    let email = match attributes.text("email") {
        AttributeValue::Value(email) if is_email_address(&email) => email,
        AttributeValue::Value(email) if !email.is_empty() => {
            attributes.fault("email", "Email must be an address");
            email
        }
        _ => {
            if attributes.has_no_faults() {
                attributes.fault("email", "Email can't be blank");
            }
            String::new()
        }
    };
    attributes.finish()?;
    let teams = team_ids(&resource)?;
    let membership = membership::create(tx, &member, &email, &teams).await?;
    Ok((member, membership))
}

fn render_created((member, membership): (Member, Membership)) -> RenderedResult {
    let user = account::document(&membership.user);
    RenderedResult::created(document(&member, &membership)).including(Some(vec![user]))
}

fn team_ids(resource: &PrimaryResource<'_>) -> WorkResult<Vec<String>> {
    let elements = resource.to_many("teams", body::MAX_RESOURCES_PER_LIST)?.unwrap_or_default();
    let pointer = |n| format!("/data/relationships/teams/data/{n}/id");
    let id = |(n, element)| {
        body::id_of(element).map(str::to_owned).ok_or_else(|| ApiRejection::at(pointer(n), body::INVALID_ID_DETAIL))
    };
    Ok(elements.iter().enumerate().map(id).collect::<Result<_, _>>()?)
}

/// Resources that the response includes: users, and the teams of the memberships.
struct MembershipIncludes {
    users: bool,
    teams: Vec<Team>,
}

struct MembershipPage {
    list_request: ListRequest,
    member: Member,
    listed: ResultPage<Membership>,
    included_rows: Option<MembershipIncludes>,
}

async fn list(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<MembershipPage> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    let query = &call.query;
    let list_request = ListRequest::read(call, LIST_PARAMETERS)?;
    let includes = requested_includes(call)?;
    let wanted = MembershipFilter {
        emails: query.list("filter[email]", MAX_FILTER_VALUES)?,
        status: query.text("filter[status]").map(str::to_owned),
        q: query.text("q").map(str::to_owned),
        team: None,
        by_status: None,
    };
    let listed = membership::list(tx, &member, &wanted, list_request.page).await?;
    let included_rows = load_included(tx, &listed.items, &includes).await?;
    Ok(MembershipPage { list_request, member, listed, included_rows })
}

fn render_list(MembershipPage { list_request, member, listed, included_rows }: MembershipPage) -> RenderedResult {
    let items = listed.items.iter().map(|membership| document(&member, membership));
    list_request.document(items, listed.matching, None).including(render_included(
        &member,
        &listed.items,
        included_rows,
    ))
}

async fn list_own(
    tx: &mut Tx<'_>,
    call: &ProjectsCall,
) -> WorkResult<(ListRequest, ResultPage<(Member, Membership)>, bool)> {
    let list_request = ListRequest::read(call, &["include"])?;
    let with_user = !call.query.include(&["user"], &["teams", "organization"])?.is_empty();
    let listed = membership::list_own(tx, &call.caller, list_request.page).await?;
    Ok((list_request, listed, with_user))
}

fn render_own_list(
    (list_request, listed, with_user): (ListRequest, ResultPage<(Member, Membership)>, bool),
) -> RenderedResult {
    let items = listed.items.iter().map(|(member, membership)| document(member, membership));
    let user = || listed.items.first().map(|(_, membership)| account::document(&membership.user));
    list_request.document(items, listed.matching, None).including(with_user.then(|| user().into_iter().collect()))
}

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Membership, Option<MembershipIncludes>)> {
    let (member, membership) = membership::find_visible(tx, &call.caller, call.param("membership_id")).await?;
    let includes = requested_includes(call)?;
    let included_rows = load_included(tx, std::slice::from_ref(&membership), &includes).await?;
    Ok((member, membership, included_rows))
}

fn render_one((member, membership, included_rows): (Member, Membership, Option<MembershipIncludes>)) -> RenderedResult {
    let included = render_included(&member, std::slice::from_ref(&membership), included_rows);
    RenderedResult::resource(document(&member, &membership)).including(included)
}

async fn delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (member, membership) = membership::find_visible(tx, &call.caller, call.param("membership_id")).await?;
    membership::require_may_manage(&member)?;
    membership::delete(tx, &call.caller, &member, &membership).await
}

fn requested_includes(call: &ProjectsCall) -> WorkResult<Vec<&'static str>> {
    Ok(call.query.include(&["user", "teams"], &[])?)
}

async fn load_included(
    tx: &mut Tx<'_>,
    memberships: &[Membership],
    includes: &[&str],
) -> WorkResult<Option<MembershipIncludes>> {
    if includes.is_empty() {
        return Ok(None);
    }
    let mut rows = Vec::new();
    if includes.contains(&"teams") {
        rows.extend(memberships.iter().flat_map(|membership| membership.teams.iter().map(|(row, _)| *row)));
        rows.sort_unstable();
        rows.dedup();
    }
    Ok(Some(MembershipIncludes { users: includes.contains(&"user"), teams: team::load_by_rows(tx, &rows).await? }))
}

/// Renders the included resources, each once: first users, then teams.
fn render_included(
    member: &Member,
    memberships: &[Membership],
    included_rows: Option<MembershipIncludes>,
) -> Option<Vec<Rendered>> {
    let MembershipIncludes { users, teams } = included_rows?;
    let shown = memberships.iter().filter(|_| users);
    let users = shown.map(|membership| account::document(&membership.user));
    Some(users.chain(teams.iter().map(|team| teams::document(member, team))).collect())
}
