//! Teams and their members.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::body::{self, PrimaryResource, TypeRule};
use super::super::documents::{MEMBERSHIP_TYPE, membership as membership_document, related, to_many};
use super::super::list::ListRequest;
use super::super::query::MAX_FILTER_VALUES;
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use super::account;
use crate::projects::member::{self, Member};
use crate::projects::membership::{self, Membership, MembershipFilter};
use crate::projects::page::ResultPage;
use crate::projects::rejection::{ApiRejection, WorkResult};
use crate::projects::rights::OrganizationFlag;
use crate::projects::team::{self, Team, TeamChange, TeamFilter, members};
use crate::projects::{Tx, escalation};

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "organizations/:organization_name/teams", "team_create", create => render_created),
    route!(GET "organizations/:organization_name/teams", "team_list", list => render_list),
    route!(GET "teams/:team_id", "team_show", show => render_one),
    route!(PATCH "teams/:team_id", "team_update", update => render_one),
    route!(DELETE "teams/:team_id", "team_delete", delete => render_empty),
    route!(POST "teams/:team_id/relationships/users", "team_users_add", add_users => render_empty),
    route!(DELETE "teams/:team_id/relationships/users", "team_users_remove", remove_users => render_empty),
    route!(GET "teams/:team_id/relationships/organization-memberships", "team_memberships_list",
        list_memberships => render_memberships),
    route!(POST "teams/:team_id/relationships/organization-memberships", "team_memberships_add", add_memberships => render_empty),
    route!(DELETE "teams/:team_id/relationships/organization-memberships", "team_memberships_remove",
        remove_memberships => render_empty),
];

/// Query parameters that pagination links repeat.
const LIST_PARAMETERS: &[&str] = &["q", "filter[names]", "include"];
/// Maximum number of team members that a response includes. Each member may need two documents, a user and a
/// membership.
const MAX_INCLUDED_MEMBERS: i64 = 2_000;

struct TeamView {
    member: Member,
    team: Team,
    people: Option<TeamPeople>,
}

async fn create(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Team)> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    team::require_may_create(&member)?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    let new = resource.read_attributes(TeamChange::read_new)?;
    let team = team::create(tx, &member, new).await?;
    Ok((member, team))
}

fn render_created((member, team): (Member, Team)) -> RenderedResult {
    RenderedResult::created(document(&member, &team))
}

struct TeamPage {
    list_request: ListRequest,
    member: Member,
    listed: ResultPage<Team>,
    people: Option<TeamPeople>,
}

async fn list(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<TeamPage> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    let query = &call.query;
    let list_request = ListRequest::read(call, LIST_PARAMETERS)?;
    let includes = requested_includes(call)?;
    let names = query.list("filter[names]", MAX_FILTER_VALUES)?;
    let wanted = TeamFilter { names, q: query.text("q").map(str::to_owned) };
    let listed = team::list(tx, &member, &wanted, list_request.page).await?;
    let people = load_people(tx, &member, &listed.items, includes).await?;
    Ok(TeamPage { list_request, member, listed, people })
}

fn render_list(TeamPage { list_request, member, listed, people }: TeamPage) -> RenderedResult {
    let items = listed.items.iter().map(|team| render_team(&member, team, people.as_ref()));
    let included = people.as_ref().map(|people| people.included(&member));
    list_request.document(items, listed.matching, None).including(included)
}

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<TeamView> {
    let (member, team) = team::find_visible(tx, &call.caller, call.param("team_id")).await?;
    let includes = requested_includes(call)?;
    let people = load_people(tx, &member, std::slice::from_ref(&team), includes).await?;
    Ok(TeamView { member, team, people })
}

fn render_one(TeamView { member, team, people }: TeamView) -> RenderedResult {
    let included = people.as_ref().map(|people| people.included(&member));
    RenderedResult::resource(render_team(&member, &team, people.as_ref())).including(included)
}

async fn update(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<TeamView> {
    let (member, team) = team::find_permitted(tx, &call.caller, call.param("team_id"), team::may_manage).await?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, Some(&team.ext_id))?;
    let change = resource.read_attributes(TeamChange::read)?;
    let team = team::update(tx, &member, &team, change).await?;
    Ok(TeamView { member, team, people: None })
}

async fn delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (_, team) = team::find_permitted(tx, &call.caller, call.param("team_id"), team::may_manage).await?;
    team::delete(tx, &team).await
}

async fn list_memberships(
    tx: &mut Tx<'_>,
    call: &ProjectsCall,
) -> WorkResult<(ListRequest, Member, ResultPage<Membership>)> {
    const SERVICE_ACCOUNT_FILTER: &str = "filter[is_service_account]";
    let (member, team) = team::find_visible(tx, &call.caller, call.param("team_id")).await?;
    let list_request = ListRequest::read(call, &["filter[status]", SERVICE_ACCOUNT_FILTER, "sort"])?;
    let listed = match call.query.text(SERVICE_ACCOUNT_FILTER) {
        // This server has no service accounts, so none match.
        Some("true") => ResultPage::empty(),
        None | Some("false") => {
            let status = call.query.text("filter[status]").map(str::to_owned);
            let by_status = call.query.sort(&["status"])?.map(|(_, backwards)| backwards);
            let wanted = MembershipFilter { status, team: Some(team.id), by_status, ..MembershipFilter::default() };
            membership::list(tx, &member, &wanted, list_request.page).await?
        }
        Some(_) => {
            return Err(ApiRejection::parameter(
                SERVICE_ACCOUNT_FILTER,
                format!("{SERVICE_ACCOUNT_FILTER} must be true or false"),
            )
            .into());
        }
    };
    Ok((list_request, member, listed))
}

fn render_memberships((list_request, member, listed): (ListRequest, Member, ResultPage<Membership>)) -> RenderedResult {
    let items = listed.items.iter().map(|membership| membership_document(&member, membership));
    list_request.document(items, listed.matching, None)
}

async fn add_users(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let team = find_team_for_new_members(tx, call).await?;
    let users = members::find_by_username(tx, team.org_id, &body::read_untyped_ids(&call.document)?).await?;
    members::add(tx, team.id, &users).await
}

async fn remove_users(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (_, team) = find_changeable_team(tx, call).await?;
    let users = members::find_by_username(tx, team.org_id, &body::read_untyped_ids(&call.document)?).await?;
    members::remove(tx, &team, &users).await
}

async fn add_memberships(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let team = find_team_for_new_members(tx, call).await?;
    let users = members::find_by_membership(tx, team.org_id, &body::read_untyped_ids(&call.document)?).await?;
    members::add(tx, team.id, &users).await
}

async fn remove_memberships(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (_, team) = find_changeable_team(tx, call).await?;
    let users = members::find_by_membership(tx, team.org_id, &body::read_untyped_ids(&call.document)?).await?;
    members::remove(tx, &team, &users).await
}

async fn find_changeable_team(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Team)> {
    team::find_permitted(tx, &call.caller, call.param("team_id"), team::may_change_members).await
}

/// Returns the team in the path, if the caller may add members to it. Members get the team's rights, so the team must
/// not have rights that the caller lacks.
async fn find_team_for_new_members(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<Team> {
    let (member, team) = find_changeable_team(tx, call).await?;
    escalation::reject_stronger_team(tx, &member, &team).await?;
    Ok(team)
}

/// The resource types in which a response includes team members: users, memberships or both.
struct TeamIncludes {
    users: bool,
    memberships: bool,
}

fn requested_includes(call: &ProjectsCall) -> WorkResult<Option<TeamIncludes>> {
    let named = call.query.include(&["users", "organization_memberships"], &[])?;
    let has = |name| named.contains(&name);
    let includes = TeamIncludes { users: has("users"), memberships: has("organization_memberships") };
    Ok((!named.is_empty()).then_some(includes))
}

struct TeamPeople {
    includes: TeamIncludes,
    /// Row ids of the members, keyed by the row id of the team.
    of_teams: HashMap<i64, Vec<i64>>,
    memberships: Vec<Membership>,
    /// Indexes into `memberships`, keyed by the row id of the user.
    by_user: HashMap<i64, usize>,
}

async fn load_people(
    tx: &mut Tx<'_>,
    member: &Member,
    teams: &[Team],
    includes: Option<TeamIncludes>,
) -> WorkResult<Option<TeamPeople>> {
    let Some(includes) = includes else { return Ok(None) };
    if teams.iter().map(|team| team.users).sum::<i64>() > MAX_INCLUDED_MEMBERS {
        let detail = format!(
            "include: the teams of the response have more than {MAX_INCLUDED_MEMBERS} members in total; request \
             smaller pages, or list organization-memberships"
        );
        return Err(ApiRejection::parameter("include", detail).into());
    }
    let rows: Vec<i64> = teams.iter().map(|team| team.id).collect();
    let of_teams = members::load_users_of_teams(tx, &rows).await?;
    let mut users: Vec<i64> = of_teams.values().flatten().copied().collect();
    users.sort_unstable();
    users.dedup();
    let memberships = membership::list_for_users(tx, member, &users, includes.memberships).await?;
    let by_user = memberships.iter().enumerate().map(|(index, one)| (one.user.id, index)).collect();
    Ok(Some(TeamPeople { includes, of_teams, memberships, by_user }))
}

impl TeamPeople {
    fn included(&self, member: &Member) -> Vec<Rendered> {
        let mut included = Vec::new();
        if self.includes.users {
            included.extend(self.memberships.iter().map(|membership| account::document(&membership.user)));
        }
        if self.includes.memberships {
            included.extend(self.memberships.iter().map(|membership| membership_document(member, membership)));
        }
        included
    }

    fn of(&self, team: &Team) -> Vec<&Membership> {
        let users = self.of_teams.get(&team.id).map_or(&[][..], Vec::as_slice);
        users.iter().filter_map(|user| self.memberships.get(*self.by_user.get(user)?)).collect()
    }
}

fn render_team(member: &Member, team: &Team, people: Option<&TeamPeople>) -> Rendered {
    let document = document(member, team);
    let Some(people) = people else { return document };
    let of_team = people.of(team);
    let document = if people.includes.users { with_users(document, &of_team) } else { document };
    if people.includes.memberships { with_memberships(document, &of_team) } else { document }
}

const RESOURCE_TYPE: &str = "teams";

/// Renders a team.
pub(crate) fn document(member: &Member, team: &Team) -> Rendered {
    let flags: Map<String, Value> =
        OrganizationFlag::ALL.into_iter().map(|flag| (flag.name().to_owned(), team.access.has(flag).into())).collect();
    let manages = team::may_manage(member, team);
    let changes_people = team::may_change_members(member, team);
    json!({
        "id": team.ext_id,
        "type": RESOURCE_TYPE,
        "attributes": {
            "name": team.name,
            "visibility": team.visibility.name(),
            "users-count": team.users,
            "description": team.description,
            "sso-team-id": team.sso_team_id,
            "allow-member-token-management": team.member_tokens,
            "is-unified": false,
            "organization-access": flags,
            "permissions": { "can-destroy": manages, "can-update-membership": changes_people },
        },
        "relationships": { "organization": related("organizations", &member.organization.name) },
        "links": { "self": format!("/api/v2/teams/{}", team.ext_id) },
    })
    .into()
}

/// Adds the team's members as a relationship to users.
#[must_use]
fn with_users(team: Rendered, people: &[&Membership]) -> Rendered {
    let users = to_many("users", people.iter().map(|one| &one.user.ext_id));
    team.with(&["relationships", "users"], users)
}

/// Adds the team's members as a relationship to memberships.
#[must_use]
fn with_memberships(team: Rendered, people: &[&Membership]) -> Rendered {
    let all = to_many(MEMBERSHIP_TYPE, people.iter().map(|one| &one.ext_id));
    team.with(&["relationships", "organization-memberships"], all)
}
