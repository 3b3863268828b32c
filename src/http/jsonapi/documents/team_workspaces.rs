//! The access of teams to single workspaces.

use serde_json::{Value, json};

use super::super::reply::Rendered;
use super::pieces::related;
use crate::projects::workspace_access::WorkspaceAccess;

/// A team's access, with all keys at each access level.
pub(crate) fn document(access: &WorkspaceAccess) -> Rendered {
    let mut attributes = access.settings.attributes();
    attributes.insert("access".to_owned(), access.level.name().into());
    json!({
        "id": access.ext_id,
        "type": "team-workspaces",
        "attributes": Value::Object(attributes),
        "relationships": {
            "team": related("teams", &access.team),
            "workspace": related("workspaces", &access.workspace),
        },
        "links": { "self": format!("/api/v2/team-workspaces/{}", access.ext_id) },
    })
    .into()
}
