//! Memberships of an organization.

use serde_json::json;

use super::super::reply::Rendered;
use super::pieces::{related, time, to_many, to_one};
use crate::projects::member::Member;
use crate::projects::membership::Membership;

/// The type of membership documents.
pub(crate) const RESOURCE_TYPE: &str = "organization-memberships";

/// A membership.
pub(crate) fn document(member: &Member, membership: &Membership) -> Rendered {
    json!({
        "id": membership.ext_id,
        "type": RESOURCE_TYPE,
        "attributes": {
            "status": membership.status.name(),
            "email": membership.user.email,
            "created-at": time(membership.created_at),
        },
        "relationships": {
            "organization": related("organizations", &member.organization.name),
            "user": to_one("users", Some(&membership.user.ext_id)),
            "teams": to_many("teams", membership.teams.iter().map(|(_, id)| id)),
        },
        "links": { "self": format!("/api/v2/organization-memberships/{}", membership.ext_id) },
    })
    .into()
}
