//! Documents written back as they were read change nothing; with one changed attribute, only that changes.

use serde_json::{Value, json};

use super::fixture::{Api, World, attribute, on_both_stores, resource};
use super::routes::{access_of, access_to};
use crate::support::Answer;

on_both_stores!(documents_are_accepted_unchanged, one_attribute_changes_by_itself, documents_are_copied);

async fn read(api: &Api, path: &str) -> Value {
    let read = api.get(path).await;
    assert_eq!(read.status, 200, "{path}: {}", read.text);
    json!({ "data": read.body["data"] })
}

/// The document without the times that a change sets.
fn steady(document: &Value) -> Value {
    let mut document = document.clone();
    for name in ["updated-at", "latest-change-at"] {
        document["data"]["attributes"].as_object_mut().unwrap().remove(name);
    }
    document
}

async fn made(api: &Api, path: &str, body: Value) -> String {
    let made = api.post(path, body).await;
    assert_eq!(made.status, 201, "{path}: {}", made.text);
    made.body["data"]["id"].as_str().unwrap().to_owned()
}

async fn patched(api: &Api, path: &str, kind: &str, attributes: Value) -> Answer {
    let patched = api.patch(path, resource(kind, attributes)).await;
    assert_eq!(patched.status, 200, "{path}: {}", patched.text);
    patched
}

struct Scene {
    project: String,
    workspace: String,
    access: String,
    workspace_access: String,
    pool: String,
}

async fn scene(world: &World) -> Scene {
    let owner = &world.owner;
    let project = world.project("Net").await;
    patched(owner, &format!("projects/{project}"), "projects", json!({ "auto-destroy-activity-duration": "3d" })).await;
    let mut workspace = resource("workspaces", json!({ "name": "w" }));
    workspace["data"]["relationships"] = json!({ "project": { "data": { "type": "projects", "id": project } } });
    let workspace = made(owner, "organizations/acme/workspaces", workspace).await;
    let team = made(owner, "organizations/acme/teams", resource("teams", json!({ "name": "builders" }))).await;
    let access = made(owner, "team-projects", access_of(&team, &project)).await;
    let workspace_access = made(owner, "team-workspaces", access_to(&team, &workspace)).await;
    let pool = made(owner, "organizations/acme/agent-pools", resource("agent-pools", json!({ "name": "pool" }))).await;
    Scene {
        project: format!("projects/{project}"),
        workspace: format!("workspaces/{workspace}"),
        access: format!("team-projects/{access}"),
        workspace_access: format!("team-workspaces/{workspace_access}"),
        pool,
    }
}

async fn documents_are_accepted_unchanged(world: World) {
    let owner = &world.owner;
    let Scene { project, workspace, access, workspace_access, pool } = scene(&world).await;
    let same = async |path: &str| {
        let before = read(owner, path).await;
        let written = owner.patch(path, before.clone()).await;
        assert_eq!(written.status, 200, "{path}: {}", written.text);
        assert_eq!(steady(&read(owner, path).await), steady(&before), "{path}");
    };
    let team = owner.get(&access).await.body["data"]["relationships"]["team"]["data"]["id"].clone();
    for path in [
        &project,
        &workspace,
        &access,
        &workspace_access,
        "organizations/acme",
        &format!("teams/{}", team.as_str().unwrap()),
    ] {
        same(path).await;
    }
    same(&format!("agent-pools/{pool}")).await;
    let projects = "projects";
    let workspaces = "workspaces";
    for mode in ["local", "agent", "remote"] {
        let pool = (mode == "agent").then_some(&pool);
        patched(owner, &project, projects, json!({ "default-execution-mode": mode, "default-agent-pool-id": pool }))
            .await;
        same(&project).await;
        same(&workspace).await;
    }
    patched(owner, &workspace, workspaces, json!({ "execution-mode": "agent", "agent-pool-id": pool })).await;
    same(&workspace).await;
    let own = json!({ "execution-mode": "local", "auto-destroy-activity-duration": "1d", "auto-apply": true });
    patched(owner, &workspace, workspaces, own).await;
    same(&workspace).await;
    patched(owner, &workspace, workspaces, json!({ "auto-destroy-activity-duration": null })).await;
    same(&workspace).await;
    assert_eq!(owner.post(&format!("{workspace}/actions/lock"), json!({ "data": { "type": "" } })).await.status, 200);
    let tags = json!({ "data": [{ "type": "tag-bindings", "attributes": { "key": "a", "value": "1" } }] });
    assert_eq!(owner.patch(&format!("{workspace}/tag-bindings"), tags).await.status, 200);
    same(&workspace).await;
    for level in ["plan", "write", "admin", "custom"] {
        patched(owner, &workspace_access, "team-workspaces", json!({ "access": level })).await;
        same(&workspace_access).await;
    }
    for level in ["write", "maintain", "admin", "custom"] {
        patched(owner, &access, "team-projects", json!({ "access": level })).await;
        same(&access).await;
    }
    let mut agent = resource("organizations", json!({ "default-execution-mode": "agent" }));
    agent["data"]["relationships"]["default-agent-pool"]["data"] = json!({ "type": "agent-pools", "id": pool });
    assert_eq!(owner.patch("organizations/acme", agent).await.status, 200);
    same("organizations/acme").await;
    world.app.stop().await;
}

async fn one_attribute_changes_by_itself(world: World) {
    let owner = &world.owner;
    let Scene { project, workspace, access, pool, .. } = scene(&world).await;
    let with = async |path: &str, name: &str, value: Value| {
        let mut document = read(owner, path).await;
        document["data"]["attributes"][name] = value;
        let written = owner.patch(path, document).await;
        assert_eq!(written.status, 200, "{path} {name}: {}", written.text);
        written
    };
    assert_eq!(attribute(&with(&project, "description", json!("d")).await, "description"), "d");
    assert_eq!(attribute(&with(&workspace, "description", json!("d")).await, "description"), "d");
    for (level, runs) in [("write", "apply"), ("custom", "apply"), ("admin", "apply"), ("read", "read")] {
        let changed = with(&access, "access", json!(level)).await;
        assert_eq!(attribute(&changed, "workspace-access")["runs"], runs, "{level}");
    }
    patched(owner, &workspace, "workspaces", json!({ "execution-mode": "agent", "agent-pool-id": pool })).await;
    assert_eq!(attribute(&with(&workspace, "execution-mode", json!("remote")).await, "execution-mode"), "remote");
    let changed = with(&workspace, "operations", json!(false)).await;
    assert_eq!(attribute(&changed, "execution-mode"), "local");
    let changed = with(&workspace, "execution-mode", json!("remote")).await;
    assert_eq!(attribute(&changed, "operations"), true);
    let changed = with(&workspace, "inherits-project-auto-destroy", json!(false)).await;
    assert_eq!(attribute(&changed, "auto-destroy-activity-duration"), "3d");
    let changed = with(&workspace, "inherits-project-auto-destroy", json!(true)).await;
    assert_eq!(attribute(&changed, "inherits-project-auto-destroy"), true);
    let agents = json!({ "default-execution-mode": "agent", "default-agent-pool-id": pool });
    patched(owner, &project, "projects", agents).await;
    let changed = with(&project, "default-execution-mode", json!("local")).await;
    assert_eq!(attribute(&changed, "default-execution-mode"), "local");
    world.app.stop().await;
}

async fn documents_are_copied(world: World) {
    let owner = &world.owner;
    let Scene { project, workspace, access, pool, .. } = scene(&world).await;
    let copy = async |path: &str, list: &str, name: &str| {
        let mut document = read(owner, path).await;
        document["data"]["attributes"]["name"] = json!(name);
        let copied = owner.post(list, document).await;
        assert_eq!(copied.status, 201, "{path}: {}", copied.text);
        copied
    };
    let projects = "organizations/acme/projects";
    let copied = copy(&project, projects, "Copy").await;
    assert_eq!(attribute(&copied, "auto-destroy-activity-duration"), "3d");
    let agents = json!({ "default-execution-mode": "agent", "default-agent-pool-id": pool });
    patched(owner, &project, "projects", agents).await;
    let copied = copy(&project, projects, "Copy 2").await;
    assert_eq!(copied.body["data"]["relationships"]["default-agent-pool"]["data"]["id"], json!(pool));
    let copied = copy(&workspace, "organizations/acme/workspaces", "copy").await;
    assert_eq!(attribute(&copied, "inherits-project-auto-destroy"), true);
    let mut document = read(owner, &access).await;
    let other = copied.body["data"]["id"].clone();
    assert!(other.is_string());
    let target = made(owner, projects, resource("projects", json!({ "name": "Target" }))).await;
    document["data"]["relationships"]["project"]["data"]["id"] = json!(target);
    let copied = owner.post("team-projects", document).await;
    assert_eq!(copied.status, 201, "{}", copied.text);
    world.app.stop().await;
}
