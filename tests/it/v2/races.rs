//! Concurrent requests. On PostgreSQL each has its own connection; the responses are as in a serial order.

use std::sync::Arc;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use signet::projects::rights::OrganizationRights;

use super::fixture::{Store, World, assert_refused, on_both_stores, resource};
use super::moves::{count, move_into, place, workspace};
use super::routes::{Scene, access_of, access_to};
use crate::support::{Answer, send};

const PATH: &str = "organizations/acme/projects";

on_both_stores!(
    move_into_a_project_races_with_its_deletion,
    one_of_ten_concurrent_creates_gets_the_name,
    concurrent_moves_in_opposite_directions_succeed,
    concurrent_changes_under_one_condition_reject_one,
    changes_of_different_attributes_both_survive,
    two_organizations_invite_the_same_new_user,
);

/// Rounds of a race; fewer on the embedded store, which has only one writer.
fn rounds(world: &World) -> usize {
    if world.app.is_postgres() { 200 } else { 20 }
}

async fn move_into_a_project_races_with_its_deletion(world: World) {
    let mut home = world.project("Home").await;
    let moved = workspace(&world, &home, "w1").await;
    let mut outcomes = [0, 0];
    for round in 0..rounds(&world) {
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
        assert_eq!(place(&world, &moved).await.0, home);
    }
    assert_eq!(count(&world, &home).await, 1);
    assert!(!world.app.is_postgres() || outcomes.iter().all(|n| *n > 0), "no race: {outcomes:?}");
    world.app.stop().await;
}

async fn one_of_ten_concurrent_creates_gets_the_name(world: World) {
    for round in 0..10 {
        let names = (0..10).map(|n| format!("{} {round}", if n % 2 == 0 { "Same" } else { "same" }));
        let creates = names.map(|name| {
            let body = resource("projects", json!({ "name": name }));
            let owner = &world.owner;
            async move { owner.post(PATH, body).await }
        });
        let mut statuses: Vec<u16> = join_all(creates).await.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 422, 422, 422, 422, 422, 422, 422, 422, 422]);
    }
    let list = world.owner.get(PATH).await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 11, "matching": 11 }));
    assert_eq!(list.body["data"].as_array().unwrap().len(), 11);
    world.app.stop().await;
}

async fn concurrent_moves_in_opposite_directions_succeed(world: World) {
    let one = world.project("P-one").await;
    let two = world.project("P-two").await;
    let first = workspace(&world, &one, "w1").await;
    let second = workspace(&world, &two, "w2").await;
    let there = [first.as_str(), second.as_str()];
    let back = [second.as_str(), first.as_str()];
    for round in 0..rounds(&world) {
        let (into_two, into_one) =
            tokio::join!(move_into(&world.owner, &two, &there), move_into(&world.owner, &one, &back));
        assert_eq!((into_two.status, into_one.status), (204, 204), "round {round}");
        assert_eq!(place(&world, &first).await.0, place(&world, &second).await.0, "all or none");
    }
    assert_eq!(count(&world, &one).await + count(&world, &two).await, 2);
    world.app.stop().await;
}

async fn concurrent_changes_under_one_condition_reject_one(world: World) {
    let path = format!("projects/{}", world.project("Contended").await);
    for round in 0..rounds(&world) / 4 {
        let tag = world.owner.get(&path).await.header("etag").to_owned();
        let change = |text: String| {
            let body = resource("projects", json!({ "description": text })).to_string();
            let request = world.owner.request(Method::PATCH, &path).header("If-Match", &tag);
            send(request.header("Content-Type", "application/vnd.api+json").body(body))
        };
        let (one, other) = tokio::join!(change(format!("one {round}")), change(format!("other {round}")));
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "round {round}");
    }
    world.app.stop().await;
}

async fn changes_of_different_attributes_both_survive(world: World) {
    let path = format!("projects/{}", world.project("Shared").await);
    for round in 0..rounds(&world) / 4 {
        let change = |attributes| world.owner.patch(&path, resource("projects", attributes));
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
    world.app.stop().await;
}

async fn two_organizations_invite_the_same_new_user(world: World) {
    let umbrella = resource("organizations", json!({ "name": "umbrella", "email": "info@example.test" }));
    assert_eq!(world.owner.post("organizations", umbrella).await.status, 201);
    for round in 0..rounds(&world) / 4 {
        let invite = async |organization: &str| {
            let path = format!("organizations/{organization}/organization-memberships");
            let address = json!({ "email": format!("new-{round}@example.test") });
            world.owner.post(&path, resource("organization-memberships", address)).await
        };
        let (one, other) = tokio::join!(invite("acme"), invite("umbrella"));
        assert_eq!((one.status, other.status), (201, 201), "round {round}: {} {}", one.text, other.text);
        let user = |answer: &crate::support::Answer| answer.body["data"]["relationships"]["user"]["data"]["id"].clone();
        assert_eq!(user(&one), user(&other));
    }
    world.app.stop().await;
}

/// Other organizations concurrently lock the same users. A new team member needs only a compatible lock.
#[actix_web::test]
async fn team_membership_changes_do_not_block_other_organizations() {
    let world = World::start(Store::Postgres).await;
    let team = world.member("mia", OrganizationRights::NONE).await.team;
    let path = format!("teams/{team}/relationships/users");
    let people = json!({ "data": [{ "type": "users", "id": "mia" }, { "type": "users", "id": "olga" }] }).to_string();
    let database = world.app.database();
    let holder = Arc::clone(database);
    let held = std::thread::spawn(move || {
        holder.psql("BEGIN; SELECT FROM users FOR KEY SHARE; SELECT pg_sleep(60)");
    });
    let is_held = "SELECT count(*) FROM pg_locks WHERE relation = 'users'::regclass AND mode = 'RowShareLock'";
    while database.psql(is_held).trim() == "0" {
        tokio::task::yield_now().await;
    }
    for method in [Method::POST, Method::DELETE] {
        let changed = world.owner.send_text(method.clone(), &path, people.clone()).await;
        assert_eq!(changed.status, 204, "{method}: {}", changed.text);
    }
    database.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND query LIKE 'BEGIN; SELECT FROM users%'",
    );
    assert!(held.join().is_err(), "its connection was ended");
    world.app.stop().await;
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
#[actix_web::test]
async fn resource_deleted_during_a_request_is_404() {
    let world = World::start(Store::Postgres).await;
    let owner = &world.owner;
    let empty = |kind: &str| resource(kind, json!({}));
    let tags = json!({ "data": [{ "type": "tags", "attributes": { "name": "flat" } }] });
    let bound = json!({ "data": [{ "type": "tag-bindings", "attributes": { "key": "k", "value": "v" } }] });
    let olga = json!({ "data": [{ "type": "users", "id": "olga" }] });
    let team = |scene: &Scene| {
        // Deleting a team locks its organization first.
        format!("SELECT FROM organizations FOR UPDATE; DELETE FROM teams WHERE ext_id = '{}'", scene.team)
    };
    let workspace = |scene: &Scene| format!("DELETE FROM workspaces WHERE ext_id = '{}'", scene.workspace);
    let project =
        |scene: &Scene| format!("{}; DELETE FROM projects WHERE ext_id = '{}'", workspace(scene), scene.project);
    let access = |scene: &Scene| format!("DELETE FROM team_project_access WHERE ext_id = '{}'", scene.access);
    let workspace_access =
        |scene: &Scene| format!("DELETE FROM team_workspace_access WHERE ext_id = '{}'", scene.workspace_access);
    let of_team = |rest: &'static str| move |scene: &Scene| format!("teams/{}{rest}", scene.team);
    let of_workspace = |rest: &'static str| move |scene: &Scene| format!("workspaces/{}{rest}", scene.workspace);
    let of_project = |rest: &'static str| move |scene: &Scene| format!("projects/{}{rest}", scene.project);
    type Of<'o> = Box<dyn Fn(&Scene) -> String + 'o>;
    let cases: Vec<(Of<'_>, Method, Of<'_>, serde_json::Value)> = vec![
        (Box::new(team), Method::POST, Box::new(|_| "team-projects".to_owned()), json!(null)),
        (Box::new(team), Method::POST, Box::new(|_| "team-workspaces".to_owned()), json!(null)),
        (Box::new(workspace), Method::POST, Box::new(|_| "team-workspaces".to_owned()), json!(null)),
        (Box::new(team), Method::POST, Box::new(of_team("/relationships/users")), olga.clone()),
        (Box::new(team), Method::DELETE, Box::new(of_team("/relationships/users")), olga),
        (Box::new(team), Method::POST, Box::new(of_team("/authentication-token")), empty("authentication-tokens")),
        (Box::new(team), Method::PATCH, Box::new(of_team("")), empty("teams")),
        (Box::new(workspace), Method::POST, Box::new(of_workspace("/relationships/tags")), tags.clone()),
        (Box::new(workspace), Method::DELETE, Box::new(of_workspace("/relationships/tags")), tags),
        (Box::new(workspace), Method::PATCH, Box::new(of_workspace("/tag-bindings")), bound.clone()),
        (Box::new(workspace), Method::PATCH, Box::new(of_workspace("")), empty("workspaces")),
        (Box::new(workspace), Method::POST, Box::new(of_workspace("/actions/lock")), empty("workspaces")),
        (Box::new(project), Method::PATCH, Box::new(of_project("/tag-bindings")), bound),
        (Box::new(project), Method::PATCH, Box::new(of_project("")), empty("projects")),
        (
            Box::new(access),
            Method::PATCH,
            Box::new(|scene| format!("team-projects/{}", scene.access)),
            empty("team-projects"),
        ),
        (
            Box::new(workspace_access),
            Method::PATCH,
            Box::new(|scene| format!("team-workspaces/{}", scene.workspace_access)),
            empty("team-workspaces"),
        ),
    ];
    let mut faults = Vec::new();
    for (number, (deletion, method, path, body)) in cases.iter().enumerate() {
        let scene = Scene::new(&world, number).await;
        let path = path(&scene);
        let body = match &path[..] {
            "team-projects" => access_of(&scene.team, &scene.project),
            "team-workspaces" => access_to(&scene.team, &scene.workspace),
            _ => body.clone(),
        };
        let request = owner.send_text(method.clone(), &path, body.to_string());
        let answer = while_deleting(&world, &deletion(&scene), request).await;
        if answer.status != 404 {
            faults.push(format!("{method} {path}: {} {}", answer.status, answer.text));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    world.app.stop().await;
}

#[actix_web::test]
async fn lock_wait_or_slow_query_is_503_with_a_clear_message() {
    let world = World::start(Store::Postgres).await;
    let id = world.project("Waited for").await;
    let database = world.app.database();
    let holder = Arc::clone(database);
    let held = std::thread::spawn(move || {
        holder.psql("BEGIN; LOCK TABLE projects IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60)");
    });
    let is_held = "SELECT count(*) FROM pg_locks WHERE relation = 'projects'::regclass AND granted
        AND mode = 'AccessExclusiveLock'";
    while database.psql(is_held).trim() == "0" {
        tokio::task::yield_now().await;
    }
    let body = resource("projects", json!({ "description": "late" }));
    let waited = world.owner.patch(&format!("projects/{id}"), body).await;
    assert_refused(&waited, 503, &[("", "concurrent modification")]);
    assert_eq!(waited.header("retry-after"), "1");
    database.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND query LIKE 'BEGIN; LOCK%'",
    );
    assert!(held.join().is_err(), "its connection was ended");
    // A slow list of all projects.
    database.psql(
        "ALTER TABLE projects RENAME TO kept;
         CREATE VIEW projects AS SELECT * FROM kept WHERE pg_sleep(10) IS NOT NULL",
    );
    let slow = world.owner.get(&format!("{PATH}?q=anything")).await;
    assert_refused(&slow, 503, &[("", "the query timed out; narrow the filters")]);
    database.psql("DROP VIEW projects; ALTER TABLE kept RENAME TO projects");
    assert_eq!(world.owner.get(&format!("{PATH}?q=Waited")).await.body["meta"]["pagination"]["total-count"], 1);
    world.app.stop().await;
}
