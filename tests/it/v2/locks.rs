//! Locks of workspaces.

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};

use super::fixture::{ACME, NONE, World, assert_refused, attribute, no_attributes, on_both_stores, statuses};
use crate::support::Answer;

on_both_stores!(
    workspace_lock_is_released_by_its_holder,
    safe_delete_rejects_a_locked_workspace,
    teams_and_organizations_hold_locks,
    one_of_concurrent_locks_succeeds,
);

fn holder(answer: &Answer) -> (Value, Value) {
    assert_eq!(answer.status, 200, "{}", answer.text);
    (attribute(answer, "locked").clone(), answer.body["data"]["relationships"]["locked-by"]["data"].clone())
}

async fn workspace_lock_is_released_by_its_holder(world: &World) {
    let id = world.workspace("", "locked").await;
    let path = format!("workspaces/{id}/actions/lock");
    let locked = world.owner.post(&path, no_attributes()).await;
    let (is_locked, by) = holder(&locked);
    assert!(is_locked == true && by["type"] == "users" && by["id"].as_str().unwrap().starts_with("user-"), "{by}");
    assert_eq!(world.owner.get(&format!("workspaces/{id}")).await.body["data"], locked.body["data"]);
    assert_refused(&world.owner.act(&id, "lock").await, 409, &[("", "the workspace is already locked")]);
    let admin = world.member("adam", NONE).await;
    world.grant(&admin.team, &world.default_project().await, ProjectRights::ALL).await;
    assert_refused(&admin.api.act(&id, "lock").await, 409, &[("", "the workspace is already locked")]);
    assert_refused(&admin.api.act(&id, "unlock").await, 409, &[("", "the workspace is locked by User")]);
    assert_eq!(holder(&world.owner.act(&id, "unlock").await), (json!(false), Value::Null));
    let free = world.owner.act(&id, "unlock").await;
    assert_refused(&free, 409, &[("", "the workspace is not locked")]);
    assert!(!free.text.contains("is locked by"), "{}", free.text);
    let reader = world.member("rita", NONE.with(Flag::ReadWorkspaces, true)).await;
    for action in ["lock", "unlock", "force-unlock", "safe-delete"] {
        assert_eq!(reader.api.act(&id, action).await.status, 404, "{action}");
    }
}

async fn safe_delete_rejects_a_locked_workspace(world: &World) {
    let id = world.workspace("", "locked").await;
    assert_eq!(world.owner.act(&id, "lock").await.status, 200);
    assert_refused(&world.owner.act(&id, "safe-delete").await, 409, &[("", "the workspace is locked")]);
    let admin = world.member("adam", NONE.with(Flag::ManageWorkspaces, true)).await;
    assert_eq!(holder(&admin.api.act(&id, "force-unlock").await), (json!(false), Value::Null));
    assert_refused(&admin.api.act(&id, "force-unlock").await, 409, &[("", "the workspace is not locked")]);
    assert_eq!(world.owner.act(&id, "safe-delete").await.status, 204);
    assert_eq!(world.owner.act(&id, "safe-delete").await.status, 404);
}

async fn teams_and_organizations_hold_locks(world: &World) {
    let id = world.workspace("", "locked").await;
    let admin = world.member("adam", NONE.with(Flag::ManageWorkspaces, true)).await;
    let team = world.owner.token_for(&format!("teams/{}", admin.team)).await;
    let expected = json!({ "id": admin.team, "type": "teams" });
    assert_eq!(holder(&team.act(&id, "lock").await), (json!(true), expected));
    assert_refused(&world.owner.act(&id, "unlock").await, 409, &[("", "the workspace is locked by Team")]);
    assert_eq!(team.act(&id, "unlock").await.status, 200);
    let organization = world.owner.token_for(ACME).await;
    let locked = organization.act(&id, "lock").await;
    let permissions = attribute(&locked, "permissions");
    assert!(permissions["can-update"] == true && permissions["can-queue-run"] == false, "it owns and runs nothing");
    let (_, by) = holder(&locked);
    assert_eq!(by["type"], "teams", "an organization's token locks as the owners");
    assert_eq!(organization.act(&id, "unlock").await.status, 200);
}

async fn one_of_concurrent_locks_succeeds(world: &World) {
    let id = world.workspace("", "locked").await;
    for _ in 0..5 {
        let locks = (0..8).map(|_| world.owner.act(&id, "lock"));
        assert_eq!(statuses(&join_all(locks).await), [vec![200], vec![409; 7]].concat());
        assert_eq!(world.owner.act(&id, "unlock").await.status, 200);
    }
}
