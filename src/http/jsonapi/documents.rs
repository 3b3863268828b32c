//! Renders the elements of JSON:API documents that several resource modules share.

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::reply::Rendered;
use crate::projects::member::Member;
use crate::projects::membership::Membership;

/// The JSON:API type of memberships.
pub(crate) const MEMBERSHIP_TYPE: &str = "organization-memberships";

/// Formats a time in UTC with milliseconds and the suffix `Z`.
pub(crate) fn format_time(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    let date = at.date();
    let clock = at.time();
    format!("{date}T{:02}:{:02}:{:02}.{:03}Z", clock.hour(), clock.minute(), clock.second(), clock.millisecond())
}

/// Renders a resource identifier object.
pub(crate) fn identifier(kind: &str, id: &str) -> Value {
    json!({ "id": id, "type": kind })
}

/// Renders a to-one relationship; its data is null without an id.
pub(crate) fn to_one(kind: &str, id: Option<&str>) -> Value {
    json!({ "data": id.map(|id| identifier(kind, id)) })
}

/// Renders a to-many relationship.
pub(crate) fn to_many<'i>(kind: &str, ids: impl IntoIterator<Item = &'i String>) -> Value {
    let data: Value = ids.into_iter().map(|id| identifier(kind, id)).collect();
    json!({ "data": data })
}

/// Renders a to-one relationship with a link to the related resource.
pub(crate) fn related(kind: &str, id: &str) -> Value {
    json!({ "data": identifier(kind, id), "links": { "related": format!("/api/v2/{kind}/{id}") } })
}

/// Renders a membership of an organization. Both the teams module and the memberships module use it.
pub(crate) fn membership(member: &Member, membership: &Membership) -> Rendered {
    json!({
        "id": membership.ext_id,
        "type": MEMBERSHIP_TYPE,
        "attributes": {
            "status": membership.status.name(),
            "email": membership.user.email,
            "created-at": format_time(membership.created_at),
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

#[cfg(test)]
mod tests {
    #[test]
    fn formatted_time_has_milliseconds() {
        let at = time::macros::datetime!(2026-01-02 03:04:05.678901 UTC);
        assert_eq!(super::format_time(at), "2026-01-02T03:04:05.678Z");
    }
}
