//! Memberships of an organization: invite, list, show, remove.

use super::super::body::{self, Resource, TypeRule};
use super::super::documents::memberships::document;
use super::super::documents::{teams, users};
use super::super::list::ListRequest;
use super::super::query::MOST_LISTED;
use super::super::reply::{Rendered, Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::attributes::{Attributes, Given};
use crate::projects::member::{self, Member};
use crate::projects::membership::{self, Membership, MembershipFilter};
use crate::projects::page::Listed;
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::team::Team;
use crate::projects::user::is_address;
use crate::projects::{Tx, team};

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/organization-memberships", "membership_create", create => created),
    route!(GET "organizations/:organization_name/organization-memberships", "membership_list", list => listed),
    route!(GET "organization-memberships", "membership_own_list", list_own => own_listed),
    route!(GET "organization-memberships/:membership_id", "membership_show", show => shown),
    route!(DELETE "organization-memberships/:membership_id", "membership_delete", delete => empty),
];

/// Parameters that list links repeat.
const PARAMETERS: &[&str] = &["q", "filter[email]", "filter[status]", "include"];

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Membership)> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    membership::may_manage(&member)?;
    let resource = Resource::read(&call.document, TypeRule::Any, None)?;
    let mut attributes = Attributes::new(resource.attributes());
    let email = match attributes.text("email") {
        Given::Value(email) if is_address(&email) => email,
        Given::Value(email) if !email.is_empty() => {
            attributes.fault("email", "Email must be an address");
            email
        }
        _ => {
            if attributes.is_sound() {
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

fn created((member, membership): (Member, Membership)) -> Reply {
    let user = users::document(&membership.user);
    Reply::created(document(&member, &membership)).including(Some(vec![user]))
}

fn team_ids(resource: &Resource<'_>) -> Outcome<Vec<String>> {
    let elements = resource.to_many("teams", body::MOST_NAMED)?.unwrap_or_default();
    let place = |n| format!("/data/relationships/teams/data/{n}/id");
    let id = |(n, element)| body::id_of(element).map(str::to_owned).ok_or_else(|| Refusal::at(place(n), body::NO_ID));
    Ok(elements.iter().enumerate().map(id).collect::<Result<_, _>>()?)
}

/// Resources to be included: users, and the teams of the memberships.
struct Beside {
    users: bool,
    teams: Vec<Team>,
}

struct Many {
    asked: ListRequest,
    member: Member,
    listed: Listed<Membership>,
    beside: Option<Beside>,
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Many> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, asked) = (&call.query, ListRequest::read(call, PARAMETERS)?);
    let includes = includes(call)?;
    let wanted = MembershipFilter {
        emails: query.list("filter[email]", MOST_LISTED)?,
        status: query.text("filter[status]").map(str::to_owned),
        q: query.text("q").map(str::to_owned),
        team: None,
        by_status: None,
    };
    let listed = membership::list(tx, &member, &wanted, asked.page).await?;
    let beside = beside(tx, &listed.items, &includes).await?;
    Ok(Many { asked, member, listed, beside })
}

fn listed(Many { asked, member, listed, beside }: Many) -> Reply {
    let items = listed.items.iter().map(|membership| document(&member, membership));
    asked.document(items, listed.matching, None).including(included(&member, &listed.items, beside))
}

async fn list_own(tx: &mut Tx<'_>, call: &Call) -> Outcome<(ListRequest, Listed<(Member, Membership)>, bool)> {
    let asked = ListRequest::read(call, &["include"])?;
    let with_user = !call.query.include(&["user"], &["teams", "organization"])?.is_empty();
    let listed = membership::own(tx, &call.caller, asked.page).await?;
    Ok((asked, listed, with_user))
}

fn own_listed((asked, listed, with_user): (ListRequest, Listed<(Member, Membership)>, bool)) -> Reply {
    let items = listed.items.iter().map(|(member, membership)| document(member, membership));
    let user = || listed.items.first().map(|(_, membership)| users::document(&membership.user));
    asked.document(items, listed.matching, None).including(with_user.then(|| user().into_iter().collect()))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Membership, Option<Beside>)> {
    let (member, membership) = membership::visible(tx, &call.caller, call.param("membership_id")).await?;
    let includes = includes(call)?;
    let beside = beside(tx, std::slice::from_ref(&membership), &includes).await?;
    Ok((member, membership, beside))
}

fn shown((member, membership, beside): (Member, Membership, Option<Beside>)) -> Reply {
    let included = included(&member, std::slice::from_ref(&membership), beside);
    Reply::resource(document(&member, &membership)).including(included)
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let (member, membership) = membership::visible(tx, &call.caller, call.param("membership_id")).await?;
    membership::may_manage(&member)?;
    membership::delete(tx, &call.caller, &member, &membership).await
}

fn includes(call: &Call) -> Outcome<Vec<&'static str>> {
    Ok(call.query.include(&["user", "teams"], &[])?)
}

async fn beside(tx: &mut Tx<'_>, memberships: &[Membership], includes: &[&str]) -> Outcome<Option<Beside>> {
    if includes.is_empty() {
        return Ok(None);
    }
    let mut rows = Vec::new();
    if includes.contains(&"teams") {
        rows.extend(memberships.iter().flat_map(|membership| membership.teams.iter().map(|(row, _)| *row)));
        rows.sort_unstable();
        rows.dedup();
    }
    Ok(Some(Beside { users: includes.contains(&"user"), teams: team::these(tx, &rows).await? }))
}

/// Renders the included resources, each once: first users, then teams.
fn included(member: &Member, memberships: &[Membership], beside: Option<Beside>) -> Option<Vec<Rendered>> {
    let Beside { users, teams } = beside?;
    let shown = memberships.iter().filter(|_| users);
    let users = shown.map(|membership| users::document(&membership.user));
    Some(users.chain(teams.iter().map(|team| teams::document(member, team))).collect())
}
