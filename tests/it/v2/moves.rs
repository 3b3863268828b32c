//! Moving workspaces into a project.

use serde_json::{Value, json};
use signet::projects::id;
use signet::projects::rights::{OrganizationRights, ProjectRights};

use super::fixture::{Api, World, assert_refused, attribute, on_both_stores};
use crate::support::Answer;

on_both_stores!(
    moved_workspace_updates_the_project_counts,
    move_needs_rights_on_both_projects,
    invalid_move_bodies_are_rejected,
    move_right_on_both_projects_suffices,
    many_workspaces_leave_many_projects_at_once,
);

pub async fn workspace(world: &World, project: &str, name: &str) -> String {
    let ext_id = id::new("ws");
    let project = project.to_owned();
    let name = name.to_owned();
    let made = ext_id.clone();
    world
        .run(move |mut tx| {
            let ext_id = ext_id.clone();
            let project = project.clone();
            let name = name.clone();
            Box::pin(async move {
                let now = tx.now;
                let insert =
                    "INSERT INTO workspaces (ext_id, org_id, project_id, name, name_lc, created_at, updated_at)
                    SELECT $1, p.org_id, p.id, $2, $3, $4, $5 FROM projects p WHERE p.ext_id = $6 RETURNING org_id";
                let values =
                    [ext_id.into(), name[..].into(), name[..].into(), now.into(), now.into(), project[..].into()];
                let org: i64 = tx.one(insert, &values).await?.get()?;
                let count = "UPDATE organizations SET workspace_count = workspace_count + 1 WHERE id = $1";
                tx.execute(count, &[org.into()]).await?;
                let count = "UPDATE projects SET workspace_count = workspace_count + 1 WHERE ext_id = $1";
                tx.execute(count, &[project.into()]).await?;
                Ok(())
            })
        })
        .await;
    made
}

/// The id of a workspace's project, and when the workspace was last changed.
pub async fn place(world: &World, workspace: &str) -> (String, i64) {
    let workspace = workspace.to_owned();
    world
        .run(move |mut tx| {
            let workspace = workspace.clone();
            Box::pin(async move {
                let sql = "SELECT p.ext_id, w.updated_at FROM workspaces w JOIN projects p ON p.id = w.project_id
                    WHERE w.ext_id = $1";
                let mut row = tx.one(sql, &[workspace.into()]).await?;
                Ok((row.get()?, row.get()?))
            })
        })
        .await
}

pub fn these(ids: &[&str]) -> Value {
    json!({ "data": ids.iter().map(|id| json!({ "type": "workspaces", "id": id })).collect::<Vec<_>>() })
}

pub async fn move_into(api: &Api, project: &str, ids: &[&str]) -> Answer {
    api.post(&format!("projects/{project}/relationships/workspaces"), these(ids)).await
}

/// The number of a project's workspaces; asserts that its counter equals its rows.
pub async fn count(world: &World, project: &str) -> i64 {
    let shown = world.owner.get(&format!("projects/{project}")).await;
    let project = project.to_owned();
    let rows: i64 = world
        .run(move |mut tx| {
            let project = project.clone();
            Box::pin(async move {
                let sql =
                    "SELECT count(*) FROM workspaces w JOIN projects p ON p.id = w.project_id WHERE p.ext_id = $1";
                Ok(tx.one(sql, &[project.into()]).await?.get()?)
            })
        })
        .await;
    assert_eq!(attribute(&shown, "workspace-count"), &json!(rows));
    rows
}

async fn moved_workspace_updates_the_project_counts(world: World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let moved = workspace(&world, &one, "w1").await;
    let admin = world.member("ada", OrganizationRights::NONE).await;
    for project in [&one, &two] {
        world.grant(&admin.team, project, ProjectRights::ALL).await;
    }
    let (_, before) = place(&world, &moved).await;
    let answer = move_into(&admin.api, &two, &[&moved]).await;
    assert_eq!((answer.status, &answer.text[..]), (204, ""));
    assert_eq!((count(&world, &one).await, count(&world, &two).await), (0, 1));
    let (project, after) = place(&world, &moved).await;
    assert!(project == two && after > before);
    assert_eq!(move_into(&admin.api, &two, &[&moved]).await.status, 204);
    assert_eq!((count(&world, &one).await, count(&world, &two).await), (0, 1));
    assert_eq!(place(&world, &moved).await, (two, after), "nothing changes");
    world.app.stop().await;
}

async fn move_needs_rights_on_both_projects(world: World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let moved = workspace(&world, &one, "w1").await;
    let kept = workspace(&world, &two, "w2").await;
    let foreign = foreign_workspace(&world).await;
    let admin = world.member("ada", OrganizationRights::NONE).await;
    let reader = world.member("rita", OrganizationRights::NONE).await;
    let one_sided = world.member("odo", OrganizationRights::NONE).await;
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
    assert_eq!(place(&world, &moved).await.0, one, "nothing was moved");

    assert_eq!(move_into(&reader.api, &one, &[&moved]).await.status, 404);
    assert_eq!(move_into(&outsider.api, &one, &[&moved]).await.status, 404);
    let nowhere = move_into(&admin.api, "prj-unknown", &[&moved]).await;
    assert_eq!(nowhere.status, 404);
    assert_eq!(move_into(&reader.api, &two, &[&moved]).await.body, nowhere.body);
    assert_eq!(move_into(&one_sided.api, &two, &[&kept]).await.status, 204, "where it is already");
    assert_eq!(move_into(&outsider.api, &two, &[]).await.status, 404);
    assert_eq!((count(&world, &one).await, count(&world, &two).await), (1, 1));
    world.app.stop().await;
}

async fn foreign_workspace(world: &World) -> String {
    let project: String = world
        .run(|mut tx| {
            Box::pin(async move {
                let owner = tx.one("SELECT id FROM users", &[]).await?.get()?;
                let org = signet::projects::organization::create(&mut tx, owner, "umbra", "u@umbra.test", "{}").await?;
                Ok(tx.one("SELECT ext_id FROM projects WHERE org_id = $1", &[org.into()]).await?.get()?)
            })
        })
        .await;
    workspace(world, &project, "w1").await
}

async fn invalid_move_bodies_are_rejected(world: World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let moved = workspace(&world, &one, "w1").await;
    let path = format!("projects/{two}/relationships/workspaces");
    let ask = async |body: Value| world.owner.post(&path, body).await;
    assert_refused(&ask(json!({ "data": {} })).await, 422, &[("/data", "data must be an array")]);
    assert_refused(&ask(json!({})).await, 422, &[("/data", "data is missing")]);
    let wrong = json!({ "data": [{ "type": "workspaces", "id": moved }, { "type": "projects", "id": moved }, 7] });
    let kind = "type must be workspaces";
    let name = "id must be a string";
    assert_refused(&ask(wrong).await, 422, &[("/data/1/type", kind), ("/data/2/type", kind), ("/data/2/id", name)]);
    let too_many: Vec<&str> = std::iter::repeat_n(moved.as_str(), 1001).collect();
    assert_refused(&ask(these(&too_many)).await, 422, &[("/data", "data may have at most 1000 workspaces")]);
    assert_eq!(place(&world, &moved).await.0, one);
    assert_eq!(ask(these(&[])).await.status, 204);
    assert_eq!(ask(these(&too_many[..1000])).await.status, 204, "once is enough");
    assert_eq!((count(&world, &one).await, count(&world, &two).await), (0, 1));
    world.app.stop().await;
}

async fn move_right_on_both_projects_suffices(world: World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let moved = workspace(&world, &one, "w1").await;
    let mover = world.member("mona", OrganizationRights::NONE).await;
    let may = ProjectRights::READ.and(ProjectRights::MOVE_WORKSPACE);
    world.grant(&mover.team, &two, may).await;
    assert_eq!(move_into(&mover.api, &two, &[&moved]).await.status, 403);
    world.grant(&mover.team, &one, may).await;
    assert_eq!(move_into(&mover.api, &two, &[&moved]).await.status, 204);
    assert_eq!(place(&world, &moved).await.0, two);
    world.app.stop().await;
}

async fn many_workspaces_leave_many_projects_at_once(world: World) {
    let destination = world.project("Destination").await;
    let mut sources = Vec::new();
    let mut all = Vec::new();
    for (n, holds) in [3usize, 1, 3, 2].into_iter().enumerate() {
        let project = world.project(&format!("Source {n}")).await;
        for k in 0..=holds {
            let made = workspace(&world, &project, &format!("w-{n}-{k}")).await;
            // The first workspace of each project stays.
            if k > 0 {
                all.push(made);
            }
        }
        sources.push(project);
    }
    all.push(workspace(&world, &destination, "there").await);
    all.reverse();
    let ids: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(move_into(&world.owner, &destination, &ids).await.status, 204);
    assert_eq!(count(&world, &destination).await, 10);
    for source in &sources {
        assert_eq!(count(&world, source).await, 1);
    }
    world.app.stop().await;
}
