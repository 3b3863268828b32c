//! Documents written back as they were read change nothing; with one changed attribute, only that changes.

use serde_json::{Value, json};

use super::fixture::{
    ACME, Api, PROJECTS, WORKSPACES, World, attribute, link, on_both_stores, related, resource, tags,
};
use super::routes::Scene;
use crate::support::Answer;

on_both_stores!(
    documents_are_accepted_unchanged,
    update_of_one_attribute_keeps_the_others,
    document_can_be_copied_to_a_new_resource
);

async fn read(api: &Api, path: &str) -> Value {
    let read = api.get(path).await.assert_status(200);
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

async fn patched(api: &Api, path: &str, kind: &str, attributes: Value) -> Answer {
    api.patch(path, resource(kind, attributes)).await.assert_status(200)
}

/// The paths of a project, of a workspace in it, and of the access of a team to both; and the id of an agent pool.
struct Resources {
    project: String,
    workspace: String,
    access: String,
    workspace_access: String,
    pool: String,
}

async fn resources(world: &World) -> Resources {
    let scene = Scene::new(world, 1).await;
    let project = format!("projects/{}", scene.project);
    patched(&world.owner, &project, "projects", json!({ "auto-destroy-activity-duration": "3d" })).await;
    Resources {
        project,
        workspace: format!("workspaces/{}", scene.workspace),
        access: format!("team-projects/{}", scene.access),
        workspace_access: format!("team-workspaces/{}", scene.workspace_access),
        pool: scene.pool,
    }
}

async fn documents_are_accepted_unchanged(world: &World) {
    let owner = &world.owner;
    let Resources { project, workspace, access, workspace_access, pool } = resources(world).await;
    let same = async |path: &str| {
        let before = read(owner, path).await;
        owner.patch(path, before.clone()).await.assert_status(200);
        assert_eq!(steady(&read(owner, path).await), steady(&before), "{path}");
    };
    let team = format!("teams/{}", link(&owner.get(&access).await, "team").as_str().unwrap());
    let agents = format!("agent-pools/{pool}");
    for path in [&project, &workspace, &access, &workspace_access, ACME, &team, &agents] {
        same(path).await;
    }
    for mode in ["local", "agent", "remote"] {
        let pool = (mode == "agent").then_some(&pool);
        let default = json!({ "default-execution-mode": mode, "default-agent-pool-id": pool });
        patched(owner, &project, "projects", default).await;
        same(&project).await;
        same(&workspace).await;
    }
    for attributes in [
        json!({ "execution-mode": "agent", "agent-pool-id": pool }),
        json!({ "execution-mode": "local", "auto-destroy-activity-duration": "1d", "auto-apply": true }),
        json!({ "auto-destroy-activity-duration": null }),
    ] {
        patched(owner, &workspace, "workspaces", attributes).await;
        same(&workspace).await;
    }
    let id = workspace.strip_prefix("workspaces/").unwrap();
    assert_eq!(owner.act(id, "lock").await.status, 200);
    assert_eq!(owner.patch(&format!("{workspace}/tag-bindings"), tags(&[("a", "1")])).await.status, 200);
    same(&workspace).await;
    for level in ["plan", "write", "admin", "custom"] {
        patched(owner, &workspace_access, "team-workspaces", json!({ "access": level })).await;
        same(&workspace_access).await;
    }
    for level in ["write", "maintain", "admin", "custom"] {
        patched(owner, &access, "team-projects", json!({ "access": level })).await;
        same(&access).await;
    }
    let default = json!({ "data": { "type": "agent-pools", "id": pool } });
    let agent = json!({ "default-execution-mode": "agent" });
    let agent = related("organizations", agent, "default-agent-pool", default);
    assert_eq!(owner.patch(ACME, agent).await.status, 200);
    same(ACME).await;
}

async fn update_of_one_attribute_keeps_the_others(world: &World) {
    let owner = &world.owner;
    let Resources { project, workspace, access, pool, .. } = resources(world).await;
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
    for (name, value, other, expected) in [
        ("operations", json!(false), "execution-mode", json!("local")),
        ("execution-mode", json!("remote"), "operations", json!(true)),
        ("inherits-project-auto-destroy", json!(false), "auto-destroy-activity-duration", json!("3d")),
        ("inherits-project-auto-destroy", json!(true), "inherits-project-auto-destroy", json!(true)),
    ] {
        assert_eq!(attribute(&with(&workspace, name, value).await, other), &expected, "{name}");
    }
    let agents = json!({ "default-execution-mode": "agent", "default-agent-pool-id": pool });
    patched(owner, &project, "projects", agents).await;
    let changed = with(&project, "default-execution-mode", json!("local")).await;
    assert_eq!(attribute(&changed, "default-execution-mode"), "local");
}

async fn document_can_be_copied_to_a_new_resource(world: &World) {
    let owner = &world.owner;
    let Resources { project, workspace, access, pool, .. } = resources(world).await;
    let copy = async |path: &str, list: &str, name: &str| {
        let mut document = read(owner, path).await;
        document["data"]["attributes"]["name"] = json!(name);
        owner.post(list, document).await.assert_status(201)
    };
    let copied = copy(&project, PROJECTS, "Copy").await;
    assert_eq!(attribute(&copied, "auto-destroy-activity-duration"), "3d");
    let agents = json!({ "default-execution-mode": "agent", "default-agent-pool-id": pool });
    patched(owner, &project, "projects", agents).await;
    let copied = copy(&project, PROJECTS, "Copy 2").await;
    assert_eq!(link(&copied, "default-agent-pool"), &pool);
    let copied = copy(&workspace, WORKSPACES, "copy").await;
    assert_eq!(attribute(&copied, "inherits-project-auto-destroy"), true);
    let mut document = read(owner, &access).await;
    let target = world.project("Target").await;
    document["data"]["relationships"]["project"]["data"]["id"] = json!(target);
    owner.post("team-projects", document).await.assert_status(201);
}
