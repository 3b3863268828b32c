//! Workspaces.

use serde_json::{Value, json};

use super::super::reply::Rendered;
use super::pieces::{identifier, related, time, to_one};
use super::tags;
use crate::projects::member::Member;
use crate::projects::tag::TagBinding;
use crate::projects::workspace::{Workspace, WorkspaceRights};

/// The type of workspace documents.
pub(crate) const RESOURCE_TYPE: &str = "workspaces";

/// A workspace. For clients that plan and apply, see [`for_remote_run`].
pub(crate) fn document(member: &Member, workspace: &Workspace) -> Rendered {
    let organization = &member.organization.name;
    let name = &workspace.name;
    let path = format!("/api/v2/workspaces/{}", workspace.ext_id);
    let mode = workspace.mode(member);
    json!({
        "id": workspace.ext_id,
        "type": RESOURCE_TYPE,
        "attributes": attributes(member, workspace),
        "relationships": {
            "organization": related("organizations", organization),
            "project": related("projects", &workspace.project_ext_id),
            "agent-pool": to_one("agent-pools", mode.pool.as_deref()),
            "locked-by": { "data": visible_lock_holder(workspace) },
            "current-run": { "data": null },
            "tag-bindings": { "links": { "related": format!("{path}/tag-bindings") } },
            "effective-tag-bindings": { "links": { "related": format!("{path}/effective-tag-bindings") } },
        },
        "links": {
            "self": format!("/api/v2/organizations/{organization}/workspaces/{name}"),
            "self-html": format!("/app/{organization}/workspaces/{name}"),
        },
    })
    .into()
}

/// A workspace for a client that plans and applies. In mode `local` the client would apply changes itself, and then
/// find that this server stores no state. In mode `remote` it sends the run to this server, which refuses it.
#[must_use]
pub(crate) fn for_remote_run(workspace: Rendered) -> Rendered {
    workspace.with(&["attributes", "execution-mode"], "remote")
}

/// Adds identifiers of the workspace's effective tags.
#[must_use]
pub(crate) fn with_tags<'b>(workspace: Rendered, tags: impl IntoIterator<Item = &'b TagBinding>) -> Rendered {
    workspace.with(tags::EFFECTIVE_BINDINGS_PATH, tags::effective_identifiers(tags))
}

/// Returns the holder of the lock, unless it is a team that is hidden from the caller.
fn visible_lock_holder(workspace: &Workspace) -> Option<Value> {
    let holder = workspace.locked_by.as_deref().filter(|_| !workspace.holder_is_hidden)?;
    let (kind, id) = holder.split_once('/')?;
    Some(identifier(kind, id))
}

fn attributes(member: &Member, workspace: &Workspace) -> Value {
    let mode = workspace.mode(member);
    let own = workspace.own_mode.is_some();
    let flat = workspace.tags.iter().filter(|binding| binding.value.is_empty()).map(|binding| &binding.key[..]);
    let mut attributes = json!({
        "name": workspace.name,
        "description": workspace.description,
        "created-at": time(workspace.created_at),
        "updated-at": time(workspace.updated_at),
        "latest-change-at": time(workspace.updated_at),
        "hyok-enabled": false,
        "execution-mode": mode.name,
        "operations": mode.name != "local",
        "setting-overwrites": { "execution-mode": own, "agent-pool": own },
        "terraform-version": workspace.terraform_version,
        "locked": workspace.locked_by.is_some(),
        "auto-destroy-activity-duration": workspace.auto_destroy,
        "inherits-project-auto-destroy": workspace.inherits_auto_destroy,
        "auto-destroy-at": workspace.auto_destroy_at.map(time),
        "tag-names": flat.collect::<Vec<_>>(),
        "source": "tfe-api",
        "actions": { "is-destroyable": true },
        "resource-count": 0,
        "permissions": permissions(workspace.rights),
    });
    if let Value::Object(attributes) = &mut attributes {
        attributes.append(&mut workspace.settings.all());
    }
    attributes
}

fn permissions(rights: WorkspaceRights) -> Value {
    json!({
        "can-read-settings": rights.has(WorkspaceRights::READ),
        "can-update": rights.has(WorkspaceRights::ADMIN),
        "can-destroy": rights.has(WorkspaceRights::DESTROY),
        "can-force-delete": rights.has(WorkspaceRights::ADMIN),
        "can-lock": rights.has(WorkspaceRights::LOCK),
        "can-unlock": rights.has(WorkspaceRights::LOCK),
        "can-force-unlock": rights.has(WorkspaceRights::ADMIN),
        "can-manage-run-tasks": rights.has(WorkspaceRights::RUN_TASKS),
        "can-queue-run": rights.has(WorkspaceRights::PLAN),
        "can-queue-apply": rights.has(WorkspaceRights::APPLY),
        "can-queue-destroy": rights.has(WorkspaceRights::APPLY),
        "can-read-variable": rights.has(WorkspaceRights::READ_VARIABLES),
        "can-update-variable": rights.has(WorkspaceRights::WRITE_VARIABLES),
        "can-read-state-versions": rights.has(WorkspaceRights::READ_STATE),
    })
}
