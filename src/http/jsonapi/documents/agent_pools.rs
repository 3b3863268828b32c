//! Agent pools.

use serde_json::json;

use super::super::reply::Rendered;
use super::pieces::{related, time, to_many};
use crate::projects::agent_pool::AgentPool;
use crate::projects::member::Member;

/// The type of pool documents.
pub(crate) const RESOURCE_TYPE: &str = "agent-pools";

/// A pool.
pub(crate) fn document(member: &Member, pool: &AgentPool) -> Rendered {
    json!({
        "id": pool.ext_id,
        "type": RESOURCE_TYPE,
        "attributes": {
            "name": pool.name,
            "created-at": time(pool.created_at),
            "agent-count": 0,
            "organization-scoped": pool.organization_scoped,
        },
        "relationships": {
            "organization": related("organizations", &member.organization.name),
            "workspaces": to_many("workspaces", &pool.workspaces),
            "allowed-workspaces": to_many("workspaces", &pool.seen.allowed_workspaces),
            "allowed-projects": to_many("projects", &pool.seen.allowed_projects),
            "excluded-workspaces": to_many("workspaces", &pool.seen.excluded_workspaces),
        },
        "links": { "self": format!("/api/v2/agent-pools/{}", pool.ext_id) },
    })
    .into()
}
