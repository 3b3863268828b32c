//! Teams and their members.

use std::collections::HashMap;

use super::super::body::{self, Resource, TypeRule};
use super::super::documents::teams::{document, naming_memberships, naming_users};
use super::super::documents::{memberships, users};
use super::super::list::ListRequest;
use super::super::query::MOST_LISTED;
use super::super::reply::{Rendered, Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::attributes::Attributes;
use crate::projects::member::{self, Member};
use crate::projects::membership::{self, Membership, MembershipFilter};
use crate::projects::page::Listed;
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::team::{self, Team, TeamChange, TeamFilter, people};
use crate::projects::{Tx, escalation};

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/teams", "team_create", create => created),
    route!(GET "organizations/:organization_name/teams", "team_list", list => listed),
    route!(GET "teams/:team_id", "team_show", show => shown),
    route!(PATCH "teams/:team_id", "team_update", update => shown),
    route!(DELETE "teams/:team_id", "team_delete", delete => empty),
    route!(POST "teams/:team_id/relationships/users", "team_users_add", add_users => empty),
    route!(DELETE "teams/:team_id/relationships/users", "team_users_remove", remove_users => empty),
    route!(GET "teams/:team_id/relationships/organization-memberships", "team_memberships_list",
        list_memberships => memberships_listed),
    route!(POST "teams/:team_id/relationships/organization-memberships", "team_memberships_add", add_memberships => empty),
    route!(DELETE "teams/:team_id/relationships/organization-memberships", "team_memberships_remove",
        remove_memberships => empty),
];

/// Parameters that list links repeat.
const PARAMETERS: &[&str] = &["q", "filter[names]", "include"];
/// Maximum number of members that a response includes. Each may need two documents.
const MOST_PEOPLE: i64 = 2_000;

struct One {
    member: Member,
    team: Team,
    people: Option<People>,
}

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Team)> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    team::may_create(&member)?;
    let resource = Resource::read(&call.document, TypeRule::Any, None)?;
    let mut attributes = Attributes::new(resource.attributes());
    let new = TeamChange::read_new(&mut attributes);
    attributes.finish()?;
    let team = team::create(tx, &member, new).await?;
    Ok((member, team))
}

fn created((member, team): (Member, Team)) -> Reply {
    Reply::created(document(&member, &team))
}

struct Many {
    asked: ListRequest,
    member: Member,
    listed: Listed<Team>,
    people: Option<People>,
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Many> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, asked) = (&call.query, ListRequest::read(call, PARAMETERS)?);
    let includes = includes(call)?;
    let names = query.list("filter[names]", MOST_LISTED)?;
    let wanted = TeamFilter { names, q: query.text("q").map(str::to_owned) };
    let listed = team::list(tx, &member, &wanted, asked.page).await?;
    let people = people_of(tx, &member, &listed.items, includes).await?;
    Ok(Many { asked, member, listed, people })
}

fn listed(Many { asked, member, listed, people }: Many) -> Reply {
    let items = listed.items.iter().map(|team| with_people(&member, team, people.as_ref()));
    let included = people.as_ref().map(|people| people.included(&member));
    asked.document(items, listed.matching, None).including(included)
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    let (member, team) = team::visible(tx, &call.caller, call.param("team_id")).await?;
    let includes = includes(call)?;
    let people = people_of(tx, &member, std::slice::from_ref(&team), includes).await?;
    Ok(One { member, team, people })
}

fn shown(One { member, team, people }: One) -> Reply {
    let included = people.as_ref().map(|people| people.included(&member));
    Reply::resource(with_people(&member, &team, people.as_ref())).including(included)
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    let (member, team) = team::granted(tx, &call.caller, call.param("team_id"), team::may_manage).await?;
    let resource = Resource::read(&call.document, TypeRule::Any, Some(&team.ext_id))?;
    let mut attributes = Attributes::new(resource.attributes());
    let change = TeamChange::read(&mut attributes);
    attributes.finish()?;
    let team = team::update(tx, &member, &team, change).await?;
    Ok(One { member, team, people: None })
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let (_, team) = team::granted(tx, &call.caller, call.param("team_id"), team::may_manage).await?;
    team::delete(tx, &team).await
}

async fn list_memberships(tx: &mut Tx<'_>, call: &Call) -> Outcome<(ListRequest, Member, Listed<Membership>)> {
    const SERVICES: &str = "filter[is_service_account]";
    let (member, team) = team::visible(tx, &call.caller, call.param("team_id")).await?;
    let asked = ListRequest::read(call, &["filter[status]", SERVICES, "sort"])?;
    let listed = match call.query.text(SERVICES) {
        // No user is a service account.
        Some("true") => Listed::none(),
        None | Some("false") => {
            let status = call.query.text("filter[status]").map(str::to_owned);
            let by_status = call.query.sort(&["status"])?.map(|(_, backwards)| backwards);
            let wanted = MembershipFilter { status, team: Some(team.id), by_status, ..MembershipFilter::default() };
            membership::list(tx, &member, &wanted, asked.page).await?
        }
        Some(_) => return Err(Refusal::parameter(SERVICES, format!("{SERVICES} must be true or false")).into()),
    };
    Ok((asked, member, listed))
}

fn memberships_listed((asked, member, listed): (ListRequest, Member, Listed<Membership>)) -> Reply {
    let items = listed.items.iter().map(|membership| memberships::document(&member, membership));
    asked.document(items, listed.matching, None)
}

async fn add_users(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let team = joinable(tx, call).await?;
    let users = people::named(tx, team.org_id, &body::names(&call.document)?).await?;
    people::add(tx, team.id, &users).await
}

async fn remove_users(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let (_, team) = changeable(tx, call).await?;
    let users = people::named(tx, team.org_id, &body::names(&call.document)?).await?;
    people::remove(tx, &team, &users).await
}

async fn add_memberships(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let team = joinable(tx, call).await?;
    let users = people::behind(tx, team.org_id, &body::names(&call.document)?).await?;
    people::add(tx, team.id, &users).await
}

async fn remove_memberships(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let (_, team) = changeable(tx, call).await?;
    let users = people::behind(tx, team.org_id, &body::names(&call.document)?).await?;
    people::remove(tx, &team, &users).await
}

async fn changeable(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Team)> {
    team::granted(tx, &call.caller, call.param("team_id"), team::may_change_people).await
}

/// Returns the team in the path, if the caller may add members: members act with the team's rights.
async fn joinable(tx: &mut Tx<'_>, call: &Call) -> Outcome<Team> {
    let (member, team) = changeable(tx, call).await?;
    escalation::refuse_stronger(tx, &member, &team).await?;
    Ok(team)
}

/// The requested forms of the members; `None` when they are not requested.
struct Includes {
    users: bool,
    memberships: bool,
}

fn includes(call: &Call) -> Outcome<Option<Includes>> {
    let named = call.query.include(&["users", "organization_memberships"], &[])?;
    let has = |name| named.contains(&name);
    let includes = Includes { users: has("users"), memberships: has("organization_memberships") };
    Ok((!named.is_empty()).then_some(includes))
}

struct People {
    includes: Includes,
    /// Rows of the members by the row of the team.
    of_teams: HashMap<i64, Vec<i64>>,
    memberships: Vec<Membership>,
    /// Indexes into `memberships` by the row of the user.
    by_user: HashMap<i64, usize>,
}

async fn people_of(
    tx: &mut Tx<'_>,
    member: &Member,
    teams: &[Team],
    includes: Option<Includes>,
) -> Outcome<Option<People>> {
    let Some(includes) = includes else { return Ok(None) };
    if teams.iter().map(|team| team.users).sum::<i64>() > MOST_PEOPLE {
        let detail = format!(
            "the teams have more than {MOST_PEOPLE} people: ask for fewer teams, or for organization-memberships"
        );
        return Err(Refusal::parameter("include", detail).into());
    }
    let rows: Vec<i64> = teams.iter().map(|team| team.id).collect();
    let of_teams = people::of_teams(tx, &rows).await?;
    let mut users: Vec<i64> = of_teams.values().flatten().copied().collect();
    users.sort_unstable();
    users.dedup();
    let memberships = membership::of_users(tx, member, &users, includes.memberships).await?;
    let by_user = memberships.iter().enumerate().map(|(place, one)| (one.user.id, place)).collect();
    Ok(Some(People { includes, of_teams, memberships, by_user }))
}

impl People {
    fn included(&self, member: &Member) -> Vec<Rendered> {
        let mut included = Vec::new();
        if self.includes.users {
            included.extend(self.memberships.iter().map(|membership| users::document(&membership.user)));
        }
        if self.includes.memberships {
            included.extend(self.memberships.iter().map(|membership| memberships::document(member, membership)));
        }
        included
    }

    fn of(&self, team: &Team) -> Vec<&Membership> {
        let users = self.of_teams.get(&team.id).map_or(&[][..], Vec::as_slice);
        users.iter().filter_map(|user| self.memberships.get(*self.by_user.get(user)?)).collect()
    }
}

fn with_people(member: &Member, team: &Team, people: Option<&People>) -> Rendered {
    let document = document(member, team);
    let Some(people) = people else { return document };
    let of_team = people.of(team);
    let document = if people.includes.users { naming_users(document, &of_team) } else { document };
    if people.includes.memberships { naming_memberships(document, &of_team) } else { document }
}
