//! Organizations and their entitlement sets.

use serde_json::{Value, json};

use super::super::reply::Rendered;
use super::pieces::{time, to_one};
use crate::projects::member::Member;
use crate::projects::organization::{Organization, settings};
use crate::projects::rights::Flag;

const RESOURCE_TYPE: &str = "organizations";

fn link(name: &str) -> String {
    format!("/api/v2/organizations/{name}")
}

/// The member's organization. `default_project` is an external id.
pub(crate) fn document(member: &Member, default_project: Option<&str>) -> Rendered {
    let organization = &member.organization;
    let rights = member.rights;
    let owner = member.owner;
    let mut attributes = settings::with_defaults(&organization.settings);
    let own = json!({
        "name": organization.name,
        "email": organization.email,
        "external-id": organization.ext_id,
        "created-at": time(organization.created_at),
        "default-execution-mode": organization.mode.name,
        "user-tokens-enabled": organization.user_tokens_enabled,
        "allow-force-delete-workspaces": organization.allow_force_delete,
        // Known clients require a number above 1.
        "remaining-testable-count": 5,
        "trial-expires-at": null,
        "is-unified": false,
        "fair-run-queuing-enabled": false,
        "saml-enabled": false,
        "permissions": {
            "can-update": owner,
            "can-destroy": owner,
            "can-update-api-token": owner,
            "can-create-team": rights.has(Flag::ManageTeams),
            "can-create-workspace": rights.manages_workspaces(),
            "can-create-project": rights.has(Flag::ManageProjects),
            "can-traverse": true,
            "can-manage-run-tasks": rights.has(Flag::ManageRunTasks),
            "can-deploy-no-code-modules": owner,
            "can-manage-no-code-modules": owner,
        },
    });
    if let Value::Object(own) = own {
        attributes.extend(own);
    }
    json!({
        "id": organization.name,
        "type": RESOURCE_TYPE,
        "attributes": attributes,
        "relationships": {
            "default-project": to_one("projects", default_project),
            "default-agent-pool": to_one("agent-pools", organization.mode.pool.as_deref()),
        },
        "links": { "self": link(&organization.name) },
    })
    .into()
}

/// The features of this server that known clients query. `operations` makes a client send each plan and apply to this
/// server, which refuses it before anything changes. Without it the client would run them locally, and their result
/// would have no state.
pub(crate) fn entitlements(organization: &Organization) -> Rendered {
    json!({
        "id": organization.ext_id,
        "type": "entitlement-sets",
        "attributes": {
            "teams": true,
            "operations": true,
            "state-storage": false,
            "agents": false,
            "audit-logging": false,
            "cost-estimation": false,
            "global-run-tasks": false,
            "policy-enforcement": false,
            "private-module-registry": false,
            "private-run-tasks": false,
            "run-tasks": false,
            "sentinel": false,
            "sso": false,
            "vcs-integrations": false,
        },
        "links": { "self": format!("{}/entitlement-set", link(&organization.name)) },
    })
    .into()
}
