//! Projects.

use serde_json::json;

use super::super::reply::Rendered;
use super::pieces::{related, time, to_one};
use super::tags;
use crate::projects::member::Member;
use crate::projects::project::Project;
use crate::projects::rights::ProjectRights;
use crate::projects::tag::TagBinding;

/// The type of project documents.
pub(crate) const RESOURCE_TYPE: &str = "projects";

/// A project.
pub(crate) fn document(member: &Member, project: &Project) -> Rendered {
    let path = format!("/api/v2/projects/{}", project.ext_id);
    let mode = project.mode(member);
    let own = project.own_mode.is_some();
    let rights = project.rights;
    json!({
        "id": project.ext_id,
        "type": RESOURCE_TYPE,
        "attributes": {
            "name": project.name,
            "description": project.description,
            "created-at": time(project.created_at),
            "auto-destroy-activity-duration": project.auto_destroy,
            "workspace-count": project.workspaces,
            "team-count": project.teams,
            "is-unified": false,
            "default-execution-mode": mode.name,
            "setting-overwrites": { "default-execution-mode": own, "default-agent-pool": own },
            "permissions": {
                "can-read": rights.has(ProjectRights::READ),
                "can-update": rights.has(ProjectRights::UPDATE),
                "can-destroy": rights.has(ProjectRights::DESTROY),
                "can-create-workspace": rights.has(ProjectRights::CREATE_WORKSPACE),
                "can-move-workspace": rights.has(ProjectRights::MOVE_WORKSPACE),
                "can-manage-teams": rights.has(ProjectRights::MANAGE_TEAMS),
            },
        },
        "relationships": {
            "organization": related("organizations", &member.organization.name),
            "default-agent-pool": to_one("agent-pools", mode.pool.as_deref()),
            "tag-bindings": { "links": { "related": format!("{path}/tag-bindings") } },
            "effective-tag-bindings": { "links": { "related": format!("{path}/effective-tag-bindings") } },
        },
        "links": { "self": path },
    })
    .into()
}

/// A project with identifiers of its effective tags.
pub(crate) fn document_with_tags(member: &Member, project: &Project, tags: &[TagBinding]) -> Rendered {
    document(member, project).with(tags::EFFECTIVE_BINDINGS_PATH, tags::effective_identifiers(tags))
}
