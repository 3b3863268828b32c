//! Locks of workspaces.

use reqwest::Method;
use serde_json::{Value, json};
use signet::projects::rights::{Flag, OrganizationRights, ProjectRights};

use super::fixture::{Api, World, assert_refused, attribute, on_both_stores, resource};
use crate::support::Answer;

on_both_stores!(
    lock_and_unlock,
    safe_delete_rejects_a_locked_workspace,
    teams_and_organizations_hold_locks,
    one_of_many_locks,
);

const PATH: &str = "organizations/acme/workspaces";

async fn workspace(world: &World) -> String {
    let made = world.owner.post(PATH, resource("workspaces", json!({ "name": "locked" }))).await;
    assert_eq!(made.status, 201, "{}", made.text);
    made.body["data"]["id"].as_str().unwrap().to_owned()
}

/// Sends an action like known clients: with a content type and without a body.
async fn act(api: &Api, id: &str, action: &str) -> Answer {
    api.send_text(Method::POST, &format!("workspaces/{id}/actions/{action}"), String::new()).await
}

fn holder(answer: &Answer) -> (Value, Value) {
    assert_eq!(answer.status, 200, "{}", answer.text);
    (attribute(answer, "locked").clone(), answer.body["data"]["relationships"]["locked-by"]["data"].clone())
}

async fn default_project(world: &World) -> String {
    let list = world.owner.get("organizations/acme/projects").await;
    list.body["data"][0]["id"].as_str().unwrap().to_owned()
}

async fn lock_and_unlock(world: World) {
    let id = workspace(&world).await;
    let path = format!("workspaces/{id}/actions/lock");
    let locked = world.owner.post(&path, json!({ "data": { "type": "" } })).await;
    let (is_locked, by) = holder(&locked);
    assert!(is_locked == true && by["type"] == "users" && by["id"].as_str().unwrap().starts_with("user-"), "{by}");
    assert_eq!(world.owner.get(&format!("workspaces/{id}")).await.body["data"], locked.body["data"]);
    assert_refused(&act(&world.owner, &id, "lock").await, 409, &[("", "the workspace is already locked")]);
    let admin = world.member("adam", OrganizationRights::NONE).await;
    world.grant(&admin.team, &default_project(&world).await, ProjectRights::ALL).await;
    assert_refused(&act(&admin.api, &id, "lock").await, 409, &[("", "the workspace is already locked")]);
    assert_refused(&act(&admin.api, &id, "unlock").await, 409, &[("", "the workspace is locked by User")]);
    assert_eq!(holder(&act(&world.owner, &id, "unlock").await), (json!(false), Value::Null));
    let free = act(&world.owner, &id, "unlock").await;
    assert_refused(&free, 409, &[("", "the workspace is not locked")]);
    assert!(!free.text.contains("is locked by"), "{}", free.text);
    let reader = world.member("rita", OrganizationRights::NONE.with(Flag::ReadWorkspaces, true)).await;
    for action in ["lock", "unlock", "force-unlock", "safe-delete"] {
        assert_eq!(act(&reader.api, &id, action).await.status, 404, "{action}");
    }
    world.app.stop().await;
}

async fn safe_delete_rejects_a_locked_workspace(world: World) {
    let id = workspace(&world).await;
    assert_eq!(act(&world.owner, &id, "lock").await.status, 200);
    assert_refused(&act(&world.owner, &id, "safe-delete").await, 409, &[("", "the workspace is locked")]);
    let admin = world.member("adam", OrganizationRights::NONE.with(Flag::ManageWorkspaces, true)).await;
    assert_eq!(holder(&act(&admin.api, &id, "force-unlock").await), (json!(false), Value::Null));
    assert_refused(&act(&admin.api, &id, "force-unlock").await, 409, &[("", "the workspace is not locked")]);
    assert_eq!(act(&world.owner, &id, "safe-delete").await.status, 204);
    assert_eq!(act(&world.owner, &id, "safe-delete").await.status, 404);
    world.app.stop().await;
}

async fn teams_and_organizations_hold_locks(world: World) {
    let id = workspace(&world).await;
    let admin = world.member("adam", OrganizationRights::NONE.with(Flag::ManageWorkspaces, true)).await;
    let token = async |path: &str| {
        let made = world.owner.post(path, json!({ "data": { "type": "" } })).await;
        assert_eq!(made.status, 201, "{}", made.text);
        world.owner.with_token(attribute(&made, "token").as_str().unwrap())
    };
    let team = token(&format!("teams/{}/authentication-token", admin.team)).await;
    let expected = json!({ "id": admin.team, "type": "teams" });
    assert_eq!(holder(&act(&team, &id, "lock").await), (json!(true), expected));
    assert_refused(&act(&world.owner, &id, "unlock").await, 409, &[("", "the workspace is locked by Team")]);
    assert_eq!(act(&team, &id, "unlock").await.status, 200);
    let organization = token("organizations/acme/authentication-token").await;
    let locked = act(&organization, &id, "lock").await;
    let permissions = attribute(&locked, "permissions");
    assert!(permissions["can-update"] == true && permissions["can-queue-run"] == false, "it owns and runs nothing");
    let (_, by) = holder(&locked);
    assert_eq!(by["type"], "teams", "an organization's token locks as the owners");
    assert_eq!(act(&organization, &id, "unlock").await.status, 200);
    world.app.stop().await;
}

async fn one_of_many_locks(world: World) {
    let id = workspace(&world).await;
    for _ in 0..5 {
        let locks = (0..8).map(|_| act(&world.owner, &id, "lock"));
        let mut answers: Vec<u16> = futures_util::future::join_all(locks).await.iter().map(|one| one.status).collect();
        answers.sort_unstable();
        assert_eq!(answers, [vec![200], vec![409; 7]].concat());
        assert_eq!(act(&world.owner, &id, "unlock").await.status, 200);
    }
    world.app.stop().await;
}
