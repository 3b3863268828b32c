//! Teams, optionally with their members.

use serde_json::{Map, Value, json};

use super::super::reply::Rendered;
use super::memberships;
use super::pieces::{related, to_many};
use crate::projects::member::Member;
use crate::projects::membership::Membership;
use crate::projects::rights::Flag;
use crate::projects::team::{self, Team};

const RESOURCE_TYPE: &str = "teams";

/// A team.
pub(crate) fn document(member: &Member, team: &Team) -> Rendered {
    let flags: Map<String, Value> =
        Flag::ALL.into_iter().map(|flag| (flag.name().to_owned(), team.access.has(flag).into())).collect();
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

/// Adds the team's members as users.
#[must_use]
pub(crate) fn with_users(team: Rendered, people: &[&Membership]) -> Rendered {
    let users = to_many("users", people.iter().map(|one| &one.user.ext_id));
    team.with(&["relationships", "users"], users)
}

/// Adds the team's members as memberships.
#[must_use]
pub(crate) fn with_memberships(team: Rendered, people: &[&Membership]) -> Rendered {
    let all = to_many(memberships::RESOURCE_TYPE, people.iter().map(|one| &one.ext_id));
    team.with(&["relationships", "organization-memberships"], all)
}
