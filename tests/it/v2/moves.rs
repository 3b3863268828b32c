//! Moving workspaces into a project.

use serde_json::{Value, json};
use signet::projects::rights::ProjectRights;

use super::fixture::{Api, NONE, World, assert_refused, attribute, on_both_stores, resource, these};
use crate::support::Answer;

on_both_stores!(
    moved_workspace_updates_the_project_counts,
    move_needs_rights_on_both_projects,
    invalid_move_bodies_are_rejected,
    move_right_on_both_projects_suffices,
    many_workspaces_leave_many_projects_at_once,
);

/// The id of a workspace's project.
pub async fn project_of(world: &World, workspace: &str) -> String {
    let project = "SELECT p.ext_id FROM workspaces w JOIN projects p ON p.id = w.project_id";
    world.value(format!("{project} WHERE w.ext_id = '{workspace}'")).await
}

pub async fn move_into(api: &Api, project: &str, ids: &[impl AsRef<str>]) -> Answer {
    api.post(&format!("projects/{project}/relationships/workspaces"), these("workspaces", ids)).await
}

/// The number of a project's workspaces; asserts that its counter equals its rows.
pub async fn count(world: &World, project: &str) -> i64 {
    let shown = world.owner.get(&format!("projects/{project}")).await;
    let rows = "SELECT count(*) FROM workspaces w JOIN projects p ON p.id = w.project_id";
    let rows: i64 = world.value(format!("{rows} WHERE p.ext_id = '{project}'")).await;
    assert_eq!(attribute(&shown, "workspace-count"), &json!(rows));
    rows
}

async fn moved_workspace_updates_the_project_counts(world: &World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let moved = world.workspace(&one, "w1").await;
    let admin = world.member("ada", NONE).await;
    for project in [&one, &two] {
        world.grant(&admin.team, project, ProjectRights::ALL).await;
    }
    let changed_at =
        async || world.value::<i64>(format!("SELECT updated_at FROM workspaces WHERE ext_id = '{moved}'")).await;
    let before = changed_at().await;
    move_into(&admin.api, &two, &[&moved]).await.assert_status(204);
    assert_eq!((count(world, &one).await, count(world, &two).await), (0, 1));
    let after = changed_at().await;
    assert!(project_of(world, &moved).await == two && after > before);
    assert_eq!(move_into(&admin.api, &two, &[&moved]).await.status, 204);
    assert_eq!((count(world, &one).await, count(world, &two).await), (0, 1));
    assert_eq!((project_of(world, &moved).await, changed_at().await), (two, after), "nothing changes");
}

async fn move_needs_rights_on_both_projects(world: &World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let moved = world.workspace(&one, "w1").await;
    let kept = world.workspace(&two, "w2").await;
    let umbra = resource("organizations", json!({ "name": "umbra", "email": "u@umbra.test" }));
    world.owner.create("organizations", umbra).await;
    let foreign = resource("workspaces", json!({ "name": "w1" }));
    let foreign = world.owner.create("organizations/umbra/workspaces", foreign).await;
    let admin = world.member("ada", NONE).await;
    let reader = world.member("rita", NONE).await;
    let one_sided = world.member("odo", NONE).await;
    let outsider = world.outsider("xaver").await;
    for project in [&one, &two] {
        world.grant(&admin.team, project, ProjectRights::ALL).await;
    }
    world.grant(&reader.team, &one, ProjectRights::READ).await;
    world.grant(&one_sided.team, &two, ProjectRights::ALL).await;

    let text = |ids: &str| format!("workspaces not found, or not authorized to be moved: {ids}");
    let unknown = move_into(&admin.api, &two, &[&moved, "ws-unknown"]).await;
    assert_refused(&unknown, 403, &[("", &text("ws-unknown"))]);
    assert!(!unknown.text.contains(&moved) && unknown.body["errors"][0]["title"] == "forbidden", "{}", unknown.text);
    let other = move_into(&admin.api, &two, &[&foreign, &moved]).await;
    assert_refused(&other, 403, &[("", &text(&foreign))]);
    assert_eq!(other.text.replace(&foreign, "ws-unknown"), unknown.text, "both look the same");
    let destination_only = move_into(&one_sided.api, &two, &["ws-1", &moved, &kept, &foreign, "ws-1"]).await;
    let all = format!("ws-1, {moved}, {foreign}");
    assert_refused(&destination_only, 403, &[("", &text(&all))]);
    assert_eq!(project_of(world, &moved).await, one, "nothing was moved");

    assert_eq!(move_into(&reader.api, &one, &[&moved]).await.status, 404);
    assert_eq!(move_into(&outsider.api, &one, &[&moved]).await.status, 404);
    let nowhere = move_into(&admin.api, "prj-unknown", &[&moved]).await.assert_status(404);
    assert_eq!(move_into(&reader.api, &two, &[&moved]).await.body, nowhere.body);
    assert_eq!(move_into(&one_sided.api, &two, &[&kept]).await.status, 204, "where it is already");
    assert_eq!(move_into(&outsider.api, &two, &[""; 0]).await.status, 404);
    assert_eq!((count(world, &one).await, count(world, &two).await), (1, 1));
}

async fn invalid_move_bodies_are_rejected(world: &World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let moved = world.workspace(&one, "w1").await;
    let path = format!("projects/{two}/relationships/workspaces");
    let ask = async |body: Value| world.owner.post(&path, body).await;
    assert_refused(&ask(json!({ "data": {} })).await, 422, &[("/data", "data must be an array")]);
    assert_refused(&ask(json!({})).await, 422, &[("/data", "data is missing")]);
    let wrong = json!({ "data": [{ "type": "workspaces", "id": moved }, { "type": "projects", "id": moved }, 7] });
    let kind = "type must be workspaces";
    let name = "id must be a string";
    assert_refused(&ask(wrong).await, 422, &[("/data/1/type", kind), ("/data/2/type", kind), ("/data/2/id", name)]);
    let too_many: Vec<&str> = std::iter::repeat_n(moved.as_str(), 1001).collect();
    assert_refused(
        &ask(these("workspaces", &too_many)).await,
        422,
        &[("/data", "data may have at most 1000 workspaces")],
    );
    assert_eq!(project_of(world, &moved).await, one);
    assert_eq!(ask(json!({ "data": [] })).await.status, 204);
    assert_eq!(ask(these("workspaces", &too_many[..1000])).await.status, 204, "once is enough");
    assert_eq!((count(world, &one).await, count(world, &two).await), (0, 1));
}

async fn move_right_on_both_projects_suffices(world: &World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let moved = world.workspace(&one, "w1").await;
    let mover = world.member("mona", NONE).await;
    let may = ProjectRights::READ.union(ProjectRights::MOVE_WORKSPACE);
    world.grant(&mover.team, &two, may).await;
    assert_eq!(move_into(&mover.api, &two, &[&moved]).await.status, 403);
    world.grant(&mover.team, &one, may).await;
    assert_eq!(move_into(&mover.api, &two, &[&moved]).await.status, 204);
    assert_eq!(project_of(world, &moved).await, two);
}

async fn many_workspaces_leave_many_projects_at_once(world: &World) {
    let destination = world.project("Destination").await;
    let mut sources = Vec::new();
    let mut all = Vec::new();
    for (n, holds) in [3usize, 1, 3, 2].into_iter().enumerate() {
        let project = world.project(&format!("Source {n}")).await;
        for k in 0..=holds {
            let made = world.workspace(&project, &format!("w-{n}-{k}")).await;
            // The first workspace of each project stays.
            if k > 0 {
                all.push(made);
            }
        }
        sources.push(project);
    }
    all.push(world.workspace(&destination, "there").await);
    all.reverse();
    assert_eq!(move_into(&world.owner, &destination, &all).await.status, 204);
    assert_eq!(count(world, &destination).await, 10);
    for source in &sources {
        assert_eq!(count(world, source).await, 1);
    }
}
