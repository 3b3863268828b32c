//! Deleting resources with many dependents: effective immediately, also for the rights of the caller, while the rows
//! are removed in several transactions.

use futures_util::FutureExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use signet::projects::caller::ProjectsCaller;
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};
use signet::projects::{project, team};

use super::fixture::{
    Api, NONE, PROJECTS, TEAMS, WORKSPACES, World, attribute, in_project, items, on_both_stores, rights, total,
};

on_both_stores!(
    team_with_many_rows_is_deleted_in_steps,
    project_with_many_teams_is_deleted_in_steps,
    abandoned_deletion_is_effective_and_completed_later,
    concurrent_delete_and_fill_of_a_project_rejects_one,
);

/// More rows than two transactions remove.
const MANY: i64 = 1_200;

/// Creates [`MANY`] people in a team, and as many projects that the team has access to.
async fn add_many_members(world: &World, team: &str) {
    world.people(0..MANY).await;
    world.join(team, "person-%").await;
    world.many_projects(0..MANY).await;
    world.grant_many(team, ProjectRights::READ, "TRUE").await;
}

/// Creates [`MANY`] teams with access to a project.
async fn grant_many_teams(world: &World, project: &str) {
    world
        .execute(format!(
            "INSERT INTO teams (ext_id, org_id, name, name_lc)
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})
             SELECT 'team-' || p.ext_id || '-' || i, p.org_id, 't-' || p.ext_id || i, 't-' || p.ext_id || i
             FROM n, projects p WHERE p.ext_id = '{project}'"
        ))
        .await;
    world
        .execute(format!(
            "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
             SELECT 'tprj-' || t.ext_id, t.id, p.id, 'read', 0 FROM teams t, projects p
             WHERE p.ext_id = '{project}' AND t.ext_id LIKE 'team-{project}-%'"
        ))
        .await;
    world.execute(format!("UPDATE projects SET team_count = team_count + {MANY} WHERE ext_id = '{project}'")).await;
}

async fn count(world: &World, sql: &'static str) -> i64 {
    world.value(sql).await
}

/// Deletes with `If-Match`.
async fn delete(api: &Api, path: &str) -> u16 {
    let tag = api.get(path).await.header("etag").to_owned();
    api.send_if(&tag, Method::DELETE, path, Value::Null).await.status
}

async fn team_with_many_rows_is_deleted_in_steps(world: &World) {
    let manages = rights(&["manage-teams", "manage-membership"]);
    // A caller whose right comes from the team itself keeps it until the team is deleted.
    let mia = world.member("mia", manages).await;
    add_many_members(world, &mia.team).await;
    let path = format!("teams/{}", mia.team);
    assert_eq!(attribute(&mia.api.get(&path).await, "users-count"), MANY + 1);
    assert_eq!(delete(&mia.api, &path).await, 204);
    assert_eq!((mia.api.get(&path).await.status, world.owner.get(&path).await.status), (404, 404));
    assert_eq!(count(world, "SELECT count(*) FROM team_project_access").await, 0);
    assert_eq!(count(world, "SELECT count(*) FROM team_memberships").await, 1, "the owner's");
    assert_eq!(count(world, "SELECT count(*) FROM projects WHERE team_count <> 0").await, 0);
    assert_eq!(count(world, "SELECT count(*) FROM projects").await, MANY + 1);
}

async fn project_with_many_teams_is_deleted_in_steps(world: &World) {
    let mia = world.member("mia", NONE).await;
    let project = world.project("Wide").await;
    // A caller whose right comes from access to the project keeps it until the project is deleted.
    world.grant(&mia.team, &project, ProjectRights::ALL).await;
    grant_many_teams(world, &project).await;
    let path = format!("projects/{project}");
    assert_eq!(attribute(&mia.api.get(&path).await, "team-count"), MANY + 1);
    assert_eq!(delete(&mia.api, &path).await, 204);
    assert_eq!((mia.api.get(&path).await.status, world.owner.get(&path).await.status), (404, 404));
    assert_eq!(count(world, "SELECT count(*) FROM team_project_access").await, 0);
    let list = world.owner.get(PROJECTS).await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 1, "matching": 1 }));
    let full = world.project("Full").await;
    world.workspace(&full, "w1").await;
    world.grant(&mia.team, &full, ProjectRights::ALL).await;
    assert_eq!(mia.api.delete(&format!("projects/{full}")).await.status, 422);
    assert_eq!(count(world, "SELECT count(*) FROM team_project_access").await, 1);
}

/// Commits only the first transaction of a deletion, as if the request or the server had ended after it.
async fn run_deletion_without_cleanup(world: &World, path: &str) {
    let token = world.owner.token.clone();
    let path = path.to_owned();
    let run = world.run(move |mut tx| {
        let token = token.clone();
        let path = path.clone();
        async move {
            let caller = ProjectsCaller::identify(&mut tx, &token).await?;
            match path.split_once('/') {
                Some(("teams", id)) => {
                    let (_, team) = team::find_visible(&mut tx, &caller, id).await?;
                    team::delete(&mut tx, &team).await
                }
                Some((_, id)) => {
                    let needed = ProjectRights::DESTROY;
                    let (member, project) = project::find_visible(&mut tx, &caller, id, needed).await?;
                    project::delete(&mut tx, &member, &project, true).await
                }
                None => unreachable!(),
            }
        }
        .boxed_local()
    });
    run.await;
}

async fn abandoned_deletion_is_effective_and_completed_later(world: &World) {
    let owner = &world.owner;
    let mia = world.member("mia", NONE.with(Flag::ManageTeams, true)).await;
    add_many_members(world, &mia.team).await;
    let of_team = owner.token_for(&format!("teams/{}", mia.team)).await;
    let wide = world.project("Wide").await;
    grant_many_teams(world, &wide).await;
    world.grant(&mia.team, &wide, ProjectRights::READ).await;
    let noah = world.member("noah", NONE).await;
    world.grant(&noah.team, &wide, ProjectRights::READ).await;
    let team = format!("teams/{}", mia.team);
    let project = format!("projects/{wide}");
    run_deletion_without_cleanup(world, &team).await;
    assert_eq!((owner.get(&team).await.status, owner.delete(&team).await.status), (404, 404));
    assert_eq!(of_team.get("organizations").await.status, 401);
    assert_eq!(mia.api.get(PROJECTS).await.body["meta"]["status-counts"]["total"], 0);
    let access = owner.get(&format!("team-projects?filter[project][id]={wide}")).await;
    assert_eq!(total(&access), MANY + 1);
    assert_eq!(owner.add(TEAMS, json!({ "name": "team-mia" })).await.status, 201, "the name is free");

    run_deletion_without_cleanup(world, &project).await;
    assert_eq!((owner.get(&project).await.status, owner.delete(&project).await.status), (404, 404));
    let list = owner.get(PROJECTS).await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": MANY + 1, "matching": MANY + 1 }));
    // It is not counted for members with access to it either, with few such projects and with many.
    let counts = async |query: &str| {
        let list = noah.api.get(&format!("{PROJECTS}{query}")).await;
        (list.body["meta"]["status-counts"].clone(), items(&list).len())
    };
    assert_eq!(counts("").await, (json!({ "total": 0, "matching": 0 }), 0));
    assert_eq!(counts("?filter[names]=Wide").await, (json!({ "total": 0, "matching": 0 }), 0));
    // More projects than are checked one by one.
    let more = 10_001;
    let last: i64 = world.value("SELECT max(id) FROM projects").await;
    world.many_projects(MANY..MANY + more).await;
    world.grant_many(&noah.team, ProjectRights::READ, &format!("p.id > {last}")).await;
    assert_eq!(counts("?page[size]=1").await, (json!({ "total": more, "matching": more }), 1));
    assert_eq!(counts("?filter[names]=Wide").await, (json!({ "total": more, "matching": 0 }), 0));
    world.execute(format!("DELETE FROM projects WHERE id > {last}")).await;
    world.project("Wide").await;
    let workspace = in_project(&wide, json!({ "name": "w1" }));
    assert_eq!(owner.post(WORKSPACES, workspace).await.status, 404);
    assert_eq!(total(&owner.get("organizations?page[size]=9").await), 1);

    world.app.shared().projects.sweep().await.unwrap();
    assert_eq!(count(world, "SELECT count(*) FROM team_project_access").await, 0);
    assert_eq!(count(world, "SELECT count(*) FROM team_memberships").await, 2, "the owner's and noah's");
    assert_eq!(count(world, "SELECT count(*) FROM projects WHERE team_count <> 0").await, 0);
    assert_eq!(count(world, "SELECT count(*) FROM projects").await, MANY + 2);
    assert_eq!(count(world, "SELECT count(*) FROM organizations").await, 1);
}

async fn concurrent_delete_and_fill_of_a_project_rejects_one(world: &World) {
    for round in 0..if world.app.is_postgres() { 10 } else { 3 } {
        let project = world.project(&format!("Wide {round}")).await;
        grant_many_teams(world, &project).await;
        let workspace = in_project(&project, json!({ "name": format!("w{round}") }));
        let path = format!("projects/{project}");
        let (deleted, filled) = tokio::join!(world.owner.delete(&path), world.owner.post(WORKSPACES, workspace));
        let shown = world.owner.get(&path).await;
        match (deleted.status, filled.status) {
            (204, 404) => assert_eq!(shown.status, 404),
            (422, 201) => assert_eq!(attribute(&shown, "team-count"), MANY, "round {round}"),
            other => panic!("round {round}: {other:?} {} {}", deleted.text, filled.text),
        }
        world.execute("DELETE FROM teams WHERE is_owners = FALSE").await;
    }
}
