//! Memberships of an organization: invite, list, show, remove.

use serde_json::{Value, json};

use super::body::{self, Resource, TypeRule};
use super::list::{self, Extra};
use super::query::MOST_LISTED;
use super::render::Reply;
use super::route::{Call, Route, route};
use super::{account, teams};
use crate::projects::attributes::{Attributes, Given};
use crate::projects::caller::Member;
use crate::projects::membership::{self, Membership, Wanted};
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::user::is_address;
use crate::projects::{Tx, organization, team};

pub const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/organization-memberships", "membership_create", create),
    route!(GET "organizations/:organization_name/organization-memberships", "membership_list", list),
    route!(GET "organization-memberships/:membership_id", "membership_show", show),
    route!(DELETE "organization-memberships/:membership_id", "membership_delete", delete),
];

/// The type of membership documents.
const TYPE: &str = "organization-memberships";

/// The parameters that links of the list keep.
const PARAMETERS: &[&str] = &["q", "filter[email]", "filter[status]", "include"];

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    membership::may_manage(&member)?;
    let resource = Resource::read(call, TypeRule::Any, None)?;
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
    let user = account::document(&membership.user);
    Ok(Reply::created(document(&member, &membership)).including(vec![user]))
}

fn team_ids(resource: &Resource<'_>) -> Outcome<Vec<String>> {
    let elements = resource.to_many("teams", body::MOST_NAMED)?.unwrap_or_default();
    let place = |n| format!("/data/relationships/teams/data/{n}/id");
    let id = |(n, element)| body::id_of(element).map(str::to_owned).ok_or_else(|| Refusal::at(place(n), body::NO_ID));
    Ok(elements.iter().enumerate().map(id).collect::<Result<_, _>>()?)
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, page) = (&call.query, call.query.page()?);
    let includes = includes(call)?;
    let wanted = Wanted {
        emails: query.list("filter[email]", MOST_LISTED)?,
        status: query.text("filter[status]").map(str::to_owned),
        q: query.text("q").map(str::to_owned),
    };
    let listed = membership::list(tx, &member, &wanted, page).await?;
    let items = listed.items.iter().map(|membership| document(&member, membership)).collect();
    let included = included(tx, &member, &listed.items, &includes).await?;
    Ok(list::document(call, page, PARAMETERS, items, listed.matching, Extra { included, ..Extra::default() }))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, membership) = membership::visible(tx, &call.caller, call.param("membership_id")).await?;
    let includes = includes(call)?;
    let reply = Reply::resource(document(&member, &membership));
    Ok(match included(tx, &member, &[membership], &includes).await? {
        Some(included) => reply.including(included),
        None => reply,
    })
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, membership) = membership::visible(tx, &call.caller, call.param("membership_id")).await?;
    membership::may_manage(&member)?;
    membership::delete(tx, &call.caller, &member, &membership).await?;
    Ok(Reply::Empty)
}

fn includes(call: &Call) -> Outcome<Vec<&'static str>> {
    Ok(call.query.include(&["user", "teams"], &[])?)
}

/// What was asked for beside memberships, each once; `None` when nothing was.
async fn included(
    tx: &mut Tx<'_>,
    member: &Member,
    memberships: &[Membership],
    includes: &[&str],
) -> Outcome<Option<Vec<Value>>> {
    if includes.is_empty() {
        return Ok(None);
    }
    let mut included = Vec::new();
    if includes.contains(&"user") {
        included.extend(memberships.iter().map(|membership| account::document(&membership.user)));
    }
    if includes.contains(&"teams") {
        let rows = memberships.iter().flat_map(|membership| membership.teams.iter().map(|(row, _)| *row));
        let mut rows: Vec<i64> = rows.collect();
        rows.sort_unstable();
        rows.dedup();
        included.extend(team::these(tx, &rows).await?.iter().map(|team| teams::document(member, team, None)));
    }
    Ok(Some(included))
}

/// A membership's document, the same wherever it is shown.
pub fn document(member: &Member, membership: &Membership) -> Value {
    let organization = &member.organization.name;
    let team = |(_, id): &(i64, String)| json!({ "id": id, "type": "teams" });
    json!({
        "id": membership.ext_id,
        "type": TYPE,
        "attributes": { "status": membership.status, "email": membership.user.email },
        "relationships": {
            "organization": {
                "data": { "id": organization, "type": "organizations" },
                "links": { "related": format!("/api/v2/organizations/{organization}") },
            },
            "user": { "data": { "id": membership.user.ext_id, "type": "users" } },
            "teams": { "data": membership.teams.iter().map(team).collect::<Vec<_>>() },
        },
        "links": { "self": format!("/api/v2/organization-memberships/{}", membership.ext_id) },
    })
}
