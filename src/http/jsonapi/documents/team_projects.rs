//! The access of teams to projects.

use serde_json::json;

use super::super::reply::Rendered;
use super::pieces::related;
use crate::projects::team_access::ProjectAccess;

/// A team's access, with all keys at each access level.
pub(crate) fn document(access: &ProjectAccess) -> Rendered {
    let (project, workspace) = access.settings.blocks();
    json!({
        "id": access.ext_id,
        "type": "team-projects",
        "attributes": {
            "access": access.level.name(),
            "project-access": project,
            "workspace-access": workspace,
        },
        "relationships": {
            "team": related("teams", &access.team),
            "project": related("projects", &access.project),
        },
        "links": { "self": format!("/api/v2/team-projects/{}", access.ext_id) },
    })
    .into()
}
