//! Teams and the people in them.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::body::{self, Resource, TypeRule};
use super::list::{self, Extra};
use super::query::MOST_LISTED;
use super::render::Reply;
use super::route::{Call, Route, route};
use super::{account, memberships};
use crate::projects::attributes::Attributes;
use crate::projects::caller::Member;
use crate::projects::refusal::Outcome;
use crate::projects::rights::ORGANIZATION_FLAGS;
use crate::projects::team::{self, Change, Team, Wanted, people};
use crate::projects::{Tx, escalation, membership, organization};

pub const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/teams", "team_create", create),
    route!(GET "organizations/:organization_name/teams", "team_list", list),
    route!(GET "teams/:team_id", "team_show", show),
    route!(PATCH "teams/:team_id", "team_update", update),
    route!(DELETE "teams/:team_id", "team_delete", delete),
    route!(POST "teams/:team_id/relationships/users", "team_users_add", add_users),
    route!(DELETE "teams/:team_id/relationships/users", "team_users_remove", remove_users),
    route!(POST "teams/:team_id/relationships/organization-memberships", "team_memberships_add", add_memberships),
    route!(DELETE "teams/:team_id/relationships/organization-memberships", "team_memberships_remove", remove_memberships),
];

/// The type of team documents.
const TYPE: &str = "teams";

/// The parameters that links of the list keep.
const PARAMETERS: &[&str] = &["q", "filter[names]", "include"];

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    team::may_create(&member)?;
    let resource = Resource::read(call, TypeRule::Any, None)?;
    let mut attributes = Attributes::new(resource.attributes());
    let new = Change::read_new(&mut attributes);
    attributes.finish()?;
    let team = team::create(tx, &member, new).await?;
    Ok(Reply::created(document(&member, &team, None)))
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, page) = (&call.query, call.query.page()?);
    let includes = includes(call)?;
    let names = query.list("filter[names]", MOST_LISTED)?;
    let wanted = Wanted { names, q: query.text("q").map(str::to_owned) };
    let listed = team::list(tx, &member, &wanted, page).await?;
    let shown = with_people(tx, &member, &listed.items, &includes).await?;
    let extra = Extra { included: shown.included, ..Extra::default() };
    Ok(list::document(call, page, PARAMETERS, shown.items, listed.matching, extra))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, team) = team::visible(tx, &call.caller, call.param("team_id")).await?;
    let includes = includes(call)?;
    let mut shown = with_people(tx, &member, &[team], &includes).await?;
    let reply = Reply::resource(shown.items.pop().unwrap_or_default());
    Ok(match shown.included {
        Some(included) => reply.including(included),
        None => reply,
    })
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, team) = team::granted(tx, &call.caller, call.param("team_id"), team::may_manage).await?;
    let resource = Resource::read(call, TypeRule::Any, Some(&team.ext_id))?;
    let mut attributes = Attributes::new(resource.attributes());
    let change = Change::read(&mut attributes);
    attributes.finish()?;
    let team = team::update(tx, &member, &team, change).await?;
    Ok(Reply::resource(document(&member, &team, None)))
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, team) = team::granted(tx, &call.caller, call.param("team_id"), team::may_manage).await?;
    team::delete(tx, &team).await?;
    Ok(Reply::Empty)
}

async fn add_users(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let team = joinable(tx, call).await?;
    let users = people::named(tx, team.org_id, &body::names(call)?).await?;
    people::add(tx, team.id, &users).await?;
    Ok(Reply::Empty)
}

async fn remove_users(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, team) = changeable(tx, call).await?;
    let users = people::named(tx, team.org_id, &body::names(call)?).await?;
    people::remove(tx, &team, &users).await?;
    Ok(Reply::Empty)
}

async fn add_memberships(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let team = joinable(tx, call).await?;
    let users = people::behind(tx, team.org_id, &body::names(call)?).await?;
    people::add(tx, team.id, &users).await?;
    Ok(Reply::Empty)
}

async fn remove_memberships(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, team) = changeable(tx, call).await?;
    let users = people::behind(tx, team.org_id, &body::names(call)?).await?;
    people::remove(tx, &team, &users).await?;
    Ok(Reply::Empty)
}

/// The team of the path, whose people the caller may change.
async fn changeable(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Team)> {
    team::granted(tx, &call.caller, call.param("team_id"), team::may_change_people).await
}

/// The team of the path, which the caller may put people into: whoever is in it acts with its rights.
async fn joinable(tx: &mut Tx<'_>, call: &Call) -> Outcome<Team> {
    let (member, team) = changeable(tx, call).await?;
    escalation::refuse_stronger(tx, &member, &team).await?;
    Ok(team)
}

fn includes(call: &Call) -> Outcome<Vec<&'static str>> {
    Ok(call.query.include(&["users", "organization_memberships"], &[])?)
}

/// Teams as they are shown, with what was asked for beside them.
struct Shown {
    items: Vec<Value>,
    included: Option<Vec<Value>>,
}

async fn with_people(tx: &mut Tx<'_>, member: &Member, teams: &[Team], includes: &[&str]) -> Outcome<Shown> {
    if includes.is_empty() {
        let items = teams.iter().map(|team| document(member, team, None)).collect();
        return Ok(Shown { items, included: None });
    }
    let rows: Vec<i64> = teams.iter().map(|team| team.id).collect();
    let of_teams = people::of_teams(tx, &rows).await?;
    let mut users: Vec<i64> = of_teams.values().flatten().copied().collect();
    users.sort_unstable();
    users.dedup();
    let memberships = membership::of_users(tx, member, &users).await?;
    let mut included = Vec::new();
    if includes.contains(&"users") {
        included.extend(memberships.iter().map(|membership| account::document(&membership.user)));
    }
    if includes.contains(&"organization_memberships") {
        included.extend(memberships.iter().map(|membership| memberships::document(member, membership)));
    }
    let by_user = memberships.iter().map(|membership| (membership.user.id, membership)).collect();
    let item = |team: &Team| {
        let people =
            People { users: of_teams.get(&team.id).map_or(&[][..], Vec::as_slice), by_user: &by_user, includes };
        document(member, team, Some(&people))
    };
    Ok(Shown { items: teams.iter().map(item).collect(), included: Some(included) })
}

/// The people of a team whose document names them.
pub struct People<'p> {
    users: &'p [i64],
    by_user: &'p HashMap<i64, &'p membership::Membership>,
    includes: &'p [&'p str],
}

/// A team's document, the same wherever it is shown; with its people where they are asked for.
pub fn document(member: &Member, team: &Team, people: Option<&People<'_>>) -> Value {
    let organization = &member.organization.name;
    let flags: Map<String, Value> =
        ORGANIZATION_FLAGS.iter().map(|flag| ((*flag).to_owned(), team.access.has(flag).into())).collect();
    let (manages, changes_people) = (team::may_manage(member, team), team::may_change_people(member, team));
    let mut relationships = json!({
        "organization": {
            "data": { "id": organization, "type": "organizations" },
            "links": { "related": format!("/api/v2/organizations/{organization}") },
        },
    });
    if let Some(people) = people {
        let memberships = || people.users.iter().filter_map(|user| people.by_user.get(user));
        if people.includes.contains(&"users") {
            let users = memberships().map(|one| json!({ "id": one.user.ext_id, "type": "users" }));
            relationships["users"] = json!({ "data": users.collect::<Vec<_>>() });
        }
        if people.includes.contains(&"organization_memberships") {
            let all = memberships().map(|one| json!({ "id": one.ext_id, "type": "organization-memberships" }));
            relationships["organization-memberships"] = json!({ "data": all.collect::<Vec<_>>() });
        }
    }
    json!({
        "id": team.ext_id,
        "type": TYPE,
        "attributes": {
            "name": team.name,
            "visibility": team.visibility,
            "users-count": team.users,
            "sso-team-id": team.sso_team_id,
            "allow-member-token-management": team.member_tokens,
            "is-unified": false,
            "organization-access": flags,
            "permissions": { "can-destroy": manages, "can-update-membership": changes_people },
        },
        "relationships": relationships,
        "links": { "self": format!("/api/v2/teams/{}", team.ext_id) },
    })
}
