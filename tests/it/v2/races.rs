//! Concurrent requests. On PostgreSQL each has its own connection; the responses are as in a serial order.

use std::sync::Arc;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;

use super::fair_queue::Held;
use super::fixture::{
    NONE, PROJECTS, Store, World, assert_refused, flat_tags, link, on_both_stores, resource, statuses, tags, these,
    total,
};
use super::moves::{count, move_into, project_of};
use super::routes::{Scene, access_of, access_to};
use crate::support::{Answer, tests_on};

tests_on!(postgres_only: World::start(Store::Postgres) =>
    team_membership_changes_do_not_block_other_organizations,
    resource_deleted_during_a_request_is_404,
    lock_wait_or_slow_query_is_503_with_a_clear_message,
);

on_both_stores!(
    move_into_a_project_races_with_its_deletion,
    one_of_ten_concurrent_creates_gets_the_name,
    concurrent_moves_in_opposite_directions_succeed,
    changes_of_different_attributes_both_survive,
    two_organizations_invite_the_same_new_user,
);

/// Rounds of a race; fewer on the embedded store, which has only one writer.
fn rounds(world: &World) -> usize {
    if world.app.is_postgres() { 200 } else { 20 }
}

async fn move_into_a_project_races_with_its_deletion(world: &World) {
    let mut home = world.project("Home").await;
    let moved = world.workspace(&home, "w1").await;
    let mut outcomes = [0, 0];
    for round in 0..rounds(world) {
        let target = world.project(&format!("Target {round}")).await;
        let path = format!("projects/{target}");
        let ids = [moved.as_str()];
        let moving = move_into(&world.owner, &target, &ids);
        let deleting = world.owner.delete(&path);
        // Both orders.
        let (moving, deleting) = if round % 2 == 0 {
            tokio::join!(moving, deleting)
        } else {
            let (deleting, moving) = tokio::join!(deleting, moving);
            (moving, deleting)
        };
        match (moving.status, deleting.status) {
            (204, 422) => {
                home = target;
                outcomes[0] += 1;
            }
            (404, 204) => outcomes[1] += 1,
            other => panic!("round {round}: {other:?} {} {}", moving.text, deleting.text),
        }
        assert_eq!(project_of(world, &moved).await, home);
    }
    assert_eq!(count(world, &home).await, 1);
    assert!(!world.app.is_postgres() || outcomes.iter().all(|n| *n > 0), "no race: {outcomes:?}");
}

async fn one_of_ten_concurrent_creates_gets_the_name(world: &World) {
    for round in 0..10 {
        let named = |n: usize| resource("projects", json!({ "name": format!("{}ame {round}", ["S", "s"][n % 2]) }));
        let creates = (0..10).map(|n| world.owner.post(PROJECTS, named(n)));
        assert_eq!(statuses(&join_all(creates).await), [vec![201], vec![422; 9]].concat());
    }
    let list = world.owner.get(PROJECTS).await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 11, "matching": 11 }));
    assert_eq!(list.body["data"].as_array().unwrap().len(), 11);
}

async fn concurrent_moves_in_opposite_directions_succeed(world: &World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let first = world.workspace(&one, "w1").await;
    let second = world.workspace(&two, "w2").await;
    let there = [first.as_str(), second.as_str()];
    let back = [second.as_str(), first.as_str()];
    for round in 0..rounds(world) {
        let (into_two, into_one) =
            tokio::join!(move_into(&world.owner, &two, &there), move_into(&world.owner, &one, &back));
        assert_eq!((into_two.status, into_one.status), (204, 204), "round {round}");
        assert_eq!(project_of(world, &first).await, project_of(world, &second).await, "all or none");
    }
    assert_eq!(count(world, &one).await + count(world, &two).await, 2);
}

async fn changes_of_different_attributes_both_survive(world: &World) {
    let path = format!("projects/{}", world.project("Shared").await);
    for round in 0..rounds(world) / 4 {
        let change = |attributes| world.owner.change(&path, attributes);
        let duration = format!("{}d", round + 1);
        let text = format!("text {round}");
        let (one, other) = tokio::join!(
            change(json!({ "auto-destroy-activity-duration": duration })),
            change(json!({ "description": text }))
        );
        assert_eq!((one.status, other.status), (200, 200));
        let shown = &world.owner.get(&path).await.body["data"]["attributes"];
        assert_eq!((&shown["auto-destroy-activity-duration"], &shown["description"]), (&json!(duration), &json!(text)));
    }
}

async fn two_organizations_invite_the_same_new_user(world: &World) {
    let umbrella = resource("organizations", json!({ "name": "umbrella", "email": "info@example.test" }));
    world.owner.create("organizations", umbrella).await;
    for round in 0..rounds(world) / 4 {
        let invite = async |organization: &str| {
            let path = format!("organizations/{organization}/organization-memberships");
            let address = json!({ "email": format!("new-{round}@example.test") });
            world.owner.post(&path, resource("organization-memberships", address)).await
        };
        let (one, other) = tokio::join!(invite("acme"), invite("umbrella"));
        assert_eq!((one.status, other.status), (201, 201), "round {round}: {} {}", one.text, other.text);
        assert_eq!(link(&one, "user"), link(&other, "user"));
    }
}

/// Other organizations concurrently lock the same users. A new team member needs only a compatible lock.
async fn team_membership_changes_do_not_block_other_organizations(world: &World) {
    let team = world.member("mia", NONE).await.team;
    let path = format!("teams/{team}/relationships/users");
    let people = these("users", &["mia", "olga"]).to_string();
    let held = Held::begin(world, "users", "SELECT FROM users FOR KEY SHARE", "mode = 'RowShareLock'").await;
    for method in [Method::POST, Method::DELETE] {
        world.owner.send_text(method, &path, people.clone()).await.assert_status(204);
    }
    drop(held);
}

/// Runs a deletion in a transaction that commits once `request` waits for it.
async fn while_deleting(world: &World, deletion: &str, request: impl Future<Output = Answer>) -> Answer {
    let database = world.app.database();
    let holder = Arc::clone(database);
    let deletion = deletion.to_owned();
    let deleted = std::thread::spawn(move || {
        holder.psql(&format!(
            "BEGIN; {deletion}; SELECT pg_advisory_xact_lock(7);
             DO $$ BEGIN FOR n IN 1..500 LOOP
                 EXIT WHEN EXISTS (SELECT FROM pg_stat_activity a JOIN pg_locks l USING (pid)
                     WHERE a.datname = current_database() AND NOT l.granted);
                 PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
             END LOOP; END $$; COMMIT"
        ))
    });
    let is_held = "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
        WHERE locktype = 'advisory' AND objid = 7 AND datname = current_database()";
    while database.psql(is_held).trim() == "0" {
        tokio::task::yield_now().await;
    }
    let answer = request.await;
    deleted.join().unwrap();
    answer
}

/// The result is the same as on the embedded store, where one of the two comes first.
async fn resource_deleted_during_a_request_is_404(world: &World) {
    let owner = &world.owner;
    let empty = |kind: &str| resource(kind, json!({}));
    let flat = flat_tags(&["flat"]);
    let bound = tags(&[("k", "v")]);
    let olga = these("users", &["olga"]);
    // Deleting a team locks its organization first.
    let team = "SELECT FROM organizations FOR UPDATE; DELETE FROM teams WHERE ext_id = 'TEAM'";
    let workspace = "DELETE FROM workspaces WHERE ext_id = 'WORKSPACE'";
    let project = "DELETE FROM workspaces WHERE ext_id = 'WORKSPACE'; DELETE FROM projects WHERE ext_id = 'PROJECT'";
    let access = "DELETE FROM team_project_access WHERE ext_id = 'GRANT'";
    let workspace_access = "DELETE FROM team_workspace_access WHERE ext_id = 'SINGLE'";
    let mut faults = Vec::new();
    for (number, (deletion, method, path, body)) in [
        (team, Method::POST, "team-projects", json!(null)),
        (team, Method::POST, "team-workspaces", json!(null)),
        (workspace, Method::POST, "team-workspaces", json!(null)),
        (team, Method::POST, "teams/TEAM/relationships/users", olga.clone()),
        (team, Method::DELETE, "teams/TEAM/relationships/users", olga),
        (team, Method::POST, "teams/TEAM/authentication-token", empty("authentication-tokens")),
        (team, Method::PATCH, "teams/TEAM", empty("teams")),
        (workspace, Method::POST, "workspaces/WORKSPACE/relationships/tags", flat.clone()),
        (workspace, Method::DELETE, "workspaces/WORKSPACE/relationships/tags", flat),
        (workspace, Method::PATCH, "workspaces/WORKSPACE/tag-bindings", bound.clone()),
        (workspace, Method::PATCH, "workspaces/WORKSPACE", empty("workspaces")),
        (workspace, Method::POST, "workspaces/WORKSPACE/actions/lock", empty("workspaces")),
        (project, Method::PATCH, "projects/PROJECT/tag-bindings", bound),
        (project, Method::PATCH, "projects/PROJECT", empty("projects")),
        (access, Method::PATCH, "team-projects/GRANT", empty("team-projects")),
        (workspace_access, Method::PATCH, "team-workspaces/SINGLE", empty("team-workspaces")),
    ]
    .into_iter()
    .enumerate()
    {
        let scene = Scene::new(world, number).await;
        let filled = |text: &str| {
            let text = text.replace("TEAM", &scene.team).replace("WORKSPACE", &scene.workspace);
            let text = text.replace("PROJECT", &scene.project).replace("GRANT", &scene.access);
            text.replace("SINGLE", &scene.workspace_access)
        };
        let body = match path {
            "team-projects" => access_of(&scene.team, &scene.project),
            "team-workspaces" => access_to(&scene.team, &scene.workspace),
            _ => body,
        };
        let changed = filled(path);
        let request = owner.send_text(method.clone(), &changed, body.to_string());
        let answer = while_deleting(world, &filled(deletion), request).await;
        if answer.status != 404 {
            faults.push(format!("{method} {path}: {} {}", answer.status, answer.text));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

async fn lock_wait_or_slow_query_is_503_with_a_clear_message(world: &World) {
    let id = world.project("Waited for").await;
    let held = Held::projects(world).await;
    let waited = world.owner.change(&format!("projects/{id}"), json!({ "description": "late" })).await;
    assert_refused(&waited, 503, &[("", "concurrent modification")]);
    assert_eq!(waited.header("retry-after"), "1");
    drop(held);
    // A slow list of all projects.
    let database = world.app.database();
    database.psql(
        "ALTER TABLE projects RENAME TO kept;
         CREATE VIEW projects AS SELECT * FROM kept WHERE pg_sleep(10) IS NOT NULL",
    );
    let slow = world.owner.get(&format!("{PROJECTS}?q=anything")).await;
    assert_refused(&slow, 503, &[("", "the query timed out; narrow the filters")]);
    database.psql("DROP VIEW projects; ALTER TABLE kept RENAME TO projects");
    assert_eq!(total(&world.owner.get(&format!("{PROJECTS}?q=Waited")).await), 1);
}
