//! Limits of bodies: how much is parsed, and how many errors are reported.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use signet::http::jsonapi::table::all_routes;
use signet::projects::id;
use signet::projects::rights::OrganizationRights;

use super::fixture::{World, assert_refused, on_both_stores, resource};
use super::moves::{count, move_into, workspace};
use super::routes::access_to;

on_both_stores!(
    body_with_too_many_values_is_rejected_while_parsing,
    too_long_body_list_gets_the_same_error_at_any_length,
    missing_right_is_reported_before_body_errors,
    every_list_of_a_body_is_counted_before_it_is_walked,
    faults_stop_at_one_hundred,
    longest_permitted_lists_are_accepted,
    tag_bindings_body_of_megabytes_is_rejected_quickly,
    text_of_megabytes_is_neither_stored_nor_quoted,
    a_workspace_has_a_thousand_flat_tags_at_most,
);

const PROJECTS: &str = "organizations/acme/projects";
const WORKSPACES: &str = "organizations/acme/workspaces";
const TEAMS: &str = "organizations/acme/teams";
const PEOPLE: &str = "organizations/acme/organization-memberships";
const POOLS: &str = "organizations/acme/agent-pools";

const TOO_COMPLEX: &str = "request body: too complex";
const LONG_LIST: &str = "request body: a list may have at most 1000 elements";

/// One resource of each kind that a path can name.
struct Setting {
    project: String,
    workspace: String,
    team: String,
    pool: String,
    access: String,
    workspace_access: String,
    user: String,
}

async fn setting(world: &World) -> Setting {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let workspace = workspace(world, &project, "w1").await;
    let made = async |path: &str, body: Value| {
        let made = owner.post(path, body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.body["data"]["id"].as_str().unwrap().to_owned()
    };
    let team = made(TEAMS, resource("teams", json!({ "name": "builders" }))).await;
    let pool = made(POOLS, resource("agent-pools", json!({ "name": "pool" }))).await;
    let mut access = resource("team-projects", json!({ "access": "read" }));
    access["data"]["relationships"] = json!({
        "team": { "data": { "id": team, "type": "teams" } },
        "project": { "data": { "id": project, "type": "projects" } },
    });
    let access = made("team-projects", access).await;
    let workspace_access = made("team-workspaces", access_to(&team, &workspace)).await;
    let user = owner.get("account/details").await.body["data"]["id"].as_str().unwrap().to_owned();
    Setting { project, workspace, team, pool, access, workspace_access, user }
}

impl Setting {
    fn path(&self, pattern: &str) -> String {
        let segment = |segment: &str| match segment {
            ":organization_name" => "acme".to_owned(),
            ":project_id" => self.project.clone(),
            ":workspace_id" => self.workspace.clone(),
            ":workspace_name" => "w1".to_owned(),
            ":team_id" => self.team.clone(),
            ":agent_pool_id" => self.pool.clone(),
            ":access_id" => self.access.clone(),
            ":workspace_access_id" => self.workspace_access.clone(),
            ":user_id" => self.user.clone(),
            other => other.to_owned(),
        };
        pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
    }
}

/// A document whose `data` is an array of `many` numbers.
fn numbers(many: usize) -> String {
    format!("{{\"data\":[{}0]}}", "0,".repeat(many - 1))
}

async fn body_with_too_many_values_is_rejected_while_parsing(world: World) {
    let setting = setting(&world).await;
    let mut asked = 0;
    for route in all_routes() {
        let relationship = *route.method == Method::DELETE.as_str() && route.pattern.contains("/relationships/");
        if !matches!(route.method.as_str(), "POST" | "PATCH") && !relationship {
            continue;
        }
        let method: Method = route.method.as_str().parse().unwrap();
        let answer = world.owner.send_text(method, &setting.path(route.pattern), numbers(20_000)).await;
        assert_eq!(answer.status, 422, "{} {}: {:.200}", route.method, route.pattern, answer.text);
        assert_refused(&answer, 422, &[("", LONG_LIST)]);
        asked += 1;
    }
    assert!(asked > 25, "{asked}");
    // Every kind of excess, up to the maximum body size.
    let path = setting.path("projects/:project_id/relationships/workspaces");
    let members = (0..12_000).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(",");
    let lists = format!("{{\"data\":[{}0]}}", format!("{},", json!(vec![0; 900])).repeat(12));
    for body in ["[".repeat(100_000), format!("{{\"data\":{{{members}}}}}"), lists] {
        assert_refused(&world.owner.send_text(Method::POST, &path, body).await, 400, &[("", TOO_COMPLEX)]);
    }
    let long = world.owner.send_text(Method::POST, &path, numbers(2_000_000)).await;
    assert_refused(&long, 422, &[("", LONG_LIST)]);
    world.app.stop().await;
}

async fn too_long_body_list_gets_the_same_error_at_any_length(world: World) {
    let setting = setting(&world).await;
    for (pattern, called) in [
        ("projects/:project_id/relationships/workspaces", "workspaces"),
        ("teams/:team_id/relationships/users", "resources"),
    ] {
        let path = setting.path(pattern);
        let named = |many: usize| {
            let ids: Vec<Value> =
                (0..many).map(|n| json!({ "type": "workspaces", "id": format!("none-{n:05}") })).collect();
            json!({ "data": ids })
        };
        for (many, place, rule) in [
            (1001, "/data", format!("data may have at most 1000 {called}")),
            (3300, "/data", format!("data may have at most 1000 {called}")),
            (4000, "", LONG_LIST.to_owned()),
            (30_000, "", LONG_LIST.to_owned()),
        ] {
            assert_refused(&world.owner.post(&path, named(many)).await, 422, &[(place, &rule)]);
        }
    }
    let mut pool = resource("agent-pools", json!({ "name": "long" }));
    pool["data"]["relationships"] = json!({ "allowed-projects": { "data": sevens(20_000) } });
    assert_refused(&world.owner.post(POOLS, pool).await, 422, &[("", LONG_LIST)]);
    world.app.stop().await;
}

async fn missing_right_is_reported_before_body_errors(world: World) {
    let setting = setting(&world).await;
    let member = world.member("mia", OrganizationRights::NONE).await.api;
    let outsider = world.outsider("xaver").await.api;
    for pattern in [
        "projects/:project_id/relationships/workspaces",
        "teams/:team_id/relationships/users",
        "teams/:team_id/authentication-tokens",
        "workspaces/:workspace_id/relationships/tags",
        "workspaces/:workspace_id/actions/lock",
        "organizations/:organization_name/workspaces",
        "organizations/:organization_name/agent-pools",
        "organizations/:organization_name/organization-memberships",
    ] {
        for body in [numbers(20_000), "{".to_owned(), String::new()] {
            let path = setting.path(pattern);
            let hears = async |api: &super::fixture::Api| api.send_text(Method::POST, &path, body.clone()).await.status;
            assert_eq!(hears(&outsider).await, 404, "{pattern}");
            if !pattern.ends_with("name/workspaces") {
                assert_eq!(hears(&member).await, 404, "{pattern}");
            }
        }
    }
    let create = member.send_text(Method::POST, PROJECTS, numbers(20_000)).await;
    assert_eq!(create.status, 403, "{}", create.text);
    let stranger = world.owner.with_token("unknown").send_text(Method::POST, PROJECTS, numbers(20_000)).await;
    assert_eq!(stranger.status, 401);
    world.app.stop().await;
}

/// Elements that are all invalid, so that a walk over them shows.
fn sevens(many: usize) -> Value {
    vec![7; many].into()
}

async fn every_list_of_a_body_is_counted_before_it_is_walked(world: World) {
    let setting = setting(&world).await;
    let owner = &world.owner;
    let data = |many| json!({ "data": sevens(many) }).to_string();
    for (method, pattern, most) in [
        (Method::POST, "projects/:project_id/relationships/workspaces", 1000),
        (Method::POST, "teams/:team_id/relationships/users", 1000),
        (Method::DELETE, "teams/:team_id/relationships/users", 1000),
        (Method::POST, "teams/:team_id/relationships/organization-memberships", 1000),
        (Method::DELETE, "teams/:team_id/relationships/organization-memberships", 1000),
        (Method::DELETE, "organizations/:organization_name/team-tokens", 1000),
        (Method::PATCH, "projects/:project_id/tag-bindings", 100),
        (Method::PATCH, "workspaces/:workspace_id/tag-bindings", 100),
        (Method::POST, "workspaces/:workspace_id/relationships/tags", 100),
        (Method::DELETE, "workspaces/:workspace_id/relationships/tags", 100),
    ] {
        let path = setting.path(pattern);
        let answer = owner.send_text(method.clone(), &path, data(most + 1)).await;
        assert_refused(&answer, 422, &[("/data", &format!("data may have at most {most} "))]);
        let walked = owner.send_text(method, &path, data(most)).await;
        assert!(walked.text.contains("/data/0/"), "{pattern}: {:.300}", walked.text);
    }
    for (method, pattern, kind, name, most) in [
        (Method::POST, PEOPLE, "organization-memberships", "teams", 1000),
        (Method::PATCH, "projects/:project_id", "projects", "tag-bindings", 100),
        (Method::POST, PROJECTS, "projects", "tag-bindings", 100),
        (Method::PATCH, "workspaces/:workspace_id", "workspaces", "tag-bindings", 100),
        (Method::POST, WORKSPACES, "workspaces", "tag-bindings", 100),
        (Method::POST, WORKSPACES, "workspaces", "tags", 100),
        (Method::POST, POOLS, "agent-pools", "excluded-workspaces", 1000),
        (Method::PATCH, "agent-pools/:agent_pool_id", "agent-pools", "allowed-workspaces", 1000),
        (Method::POST, POOLS, "agent-pools", "allowed-projects", 1000),
    ] {
        let mut body = resource(kind, json!({ "name": "xyz", "email": "x@acme.test" }));
        body["data"]["relationships"] = json!({ name: { "data": sevens(most + 1) } });
        let answer = owner.send_text(method, &setting.path(pattern), body.to_string()).await;
        let place = format!("/data/relationships/{name}/data");
        assert_refused(&answer, 422, &[(&place, &format!("{name} may have at most {most} "))]);
    }
    for (name, label) in [("trigger-prefixes", "Trigger prefixes"), ("trigger-patterns", "Trigger patterns")] {
        let body = resource("workspaces", json!({ "name": "xyz", name: sevens(257) }));
        let place = format!("/data/attributes/{name}");
        assert_refused(
            &owner.post(WORKSPACES, body).await,
            422,
            &[(&place, &format!("{label} may have at most 256 "))],
        );
    }
    assert_eq!(owner.get(&format!("projects/{}/tag-bindings", setting.project)).await.body["data"], json!([]));
    world.app.stop().await;
}

async fn faults_stop_at_one_hundred(world: World) {
    let setting = setting(&world).await;
    let names: Vec<Value> = (0..1000).map(|n| json!({ "type": "users", "id": format!("nobody-{n}") })).collect();
    let mut pool = resource("agent-pools", json!({ "name": "xyz" }));
    pool["data"]["relationships"] = json!({ "allowed-projects": { "data": sevens(1000) } });
    for (pattern, body, status) in [
        ("projects/:project_id/relationships/workspaces", json!({ "data": sevens(1000) }), 422),
        ("teams/:team_id/relationships/users", json!({ "data": names }), 400),
        ("organizations/:organization_name/agent-pools", pool, 422),
    ] {
        let answer = world.owner.post(&setting.path(pattern), body).await;
        assert_eq!(answer.status, status, "{:.200}", answer.text);
        assert_eq!(answer.body["errors"].as_array().unwrap().len(), 100, "{pattern}");
    }
    world.app.stop().await;
}

async fn longest_permitted_lists_are_accepted(world: World) {
    let owner = &world.owner;
    let setting = setting(&world).await;
    let ids: Vec<String> = (0..1000).map(|_| id::new("ws")).collect();
    let made = ids.clone();
    let project = setting.project.clone();
    world
        .run(move |mut tx| {
            let made = made.clone();
            let project = project.clone();
            Box::pin(async move {
                for id in &made {
                    let insert =
                        "INSERT INTO workspaces (ext_id, org_id, project_id, name, name_lc, created_at, updated_at)
                        SELECT $1, p.org_id, p.id, $2, $3, 0, 0 FROM projects p WHERE p.ext_id = $4";
                    let values = [id[..].into(), id[..].into(), id.to_lowercase().into(), project[..].into()];
                    tx.execute(insert, &values).await?;
                }
                let count = "UPDATE projects SET workspace_count = workspace_count + 1000 WHERE ext_id = $1";
                tx.execute(count, &[project.into()]).await?;
                Ok(())
            })
        })
        .await;
    let destination = world.project("Destination").await;
    let all: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(move_into(owner, &destination, &all).await.status, 204);
    assert_eq!(count(&world, &destination).await, 1000);

    let workspaces: Vec<Value> = ids.iter().map(|id| json!({ "type": "workspaces", "id": id })).collect();
    let projects: Vec<Value> = vec![json!({ "type": "projects", "id": destination }); 1000];
    let mut pool = resource("agent-pools", json!({ "name": "xyz", "organization-scoped": false }));
    pool["data"]["relationships"] = json!({
        "excluded-workspaces": { "data": workspaces },
        "allowed-workspaces": { "data": workspaces },
        "allowed-projects": { "data": projects },
    });
    let pool = owner.post(POOLS, pool).await;
    assert_eq!(pool.status, 201, "{:.300}", pool.text);
    let shown = &pool.body["data"]["relationships"];
    assert_eq!(shown["allowed-workspaces"]["data"].as_array().unwrap().len(), 1000);
    assert_eq!(shown["allowed-projects"]["data"].as_array().unwrap().len(), 1, "once is enough");

    let patterns: Vec<String> = (0..256).map(|n| format!("/{n}/**")).collect();
    let flat: Vec<Value> =
        (0..100).map(|n| json!({ "type": "tags", "attributes": { "name": n.to_string() } })).collect();
    let mut body = resource("workspaces", json!({ "name": "xyz", "trigger-patterns": patterns }));
    body["data"]["relationships"] = json!({ "tags": { "data": flat } });
    let made = owner.post(WORKSPACES, body).await;
    assert_eq!(made.status, 201, "{:.300}", made.text);
    assert_eq!(made.body["data"]["attributes"]["tag-names"].as_array().unwrap().len(), 100);
    world.app.stop().await;
}

async fn tag_bindings_body_of_megabytes_is_rejected_quickly(world: World) {
    let setting = setting(&world).await;
    let binding = |n: usize| format!("{{\"attributes\":{{\"key\":\"k{n:07}\"}}}}");
    let body = |many| format!("{{\"data\":[{}]}}", (0..many).map(binding).collect::<Vec<_>>().join(","));
    for pattern in ["projects/:project_id/tag-bindings", "workspaces/:workspace_id/tag-bindings"] {
        let path = setting.path(pattern);
        let large = body(110_000);
        let started = Instant::now();
        assert!(large.len() > 3_700_000);
        assert_refused(&world.owner.send_text(Method::PATCH, &path, large).await, 422, &[("", LONG_LIST)]);
        let many = world.owner.send_text(Method::PATCH, &path, body(3_000)).await;
        assert_refused(&many, 422, &[("/data", "data may have at most 100 ")]);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert_eq!(world.owner.get(&path).await.body["data"], json!([]), "nothing is stored");
    }
    world.app.stop().await;
}

async fn a_workspace_has_a_thousand_flat_tags_at_most(world: World) {
    let setting = setting(&world).await;
    let path = setting.path("workspaces/:workspace_id/relationships/tags");
    let flat = |from: usize, many: usize| {
        let tag = |n| json!({ "type": "tags", "attributes": { "name": format!("t{n}") } });
        json!({ "data": (from..from + many).map(tag).collect::<Vec<_>>() })
    };
    for n in 0..10 {
        assert_eq!(world.owner.post(&path, flat(n * 100, 100)).await.status, 204);
    }
    assert_refused(&world.owner.post(&path, flat(1000, 1)).await, 422, &[("/data", "at most 1000 tags")]);
    assert_eq!(world.owner.post(&path, flat(0, 100)).await.status, 204, "none of them is new");
    let shown = world.owner.get(&setting.path("workspaces/:workspace_id")).await;
    assert_eq!(shown.body["data"]["attributes"]["tag-names"].as_array().unwrap().len(), 1000);
    world.app.stop().await;
}

async fn text_of_megabytes_is_neither_stored_nor_quoted(world: World) {
    let owner = &world.owner;
    let setting = setting(&world).await;
    let long = "x".repeat(1 << 20);
    let users = setting.path("teams/:team_id/relationships/users");
    let answer = owner.post(&users, json!({ "data": [{ "type": "users", "id": long }] })).await;
    assert_refused(&answer, 422, &[("/data/0/id", "id must be a string")]);
    let team = format!("teams/{}", setting.team);
    let answer = owner.patch(&team, resource("teams", json!({ "sso-team-id": long }))).await;
    assert_refused(&answer, 422, &[("/data/attributes/sso-team-id", "Sso team id is too long")]);
    world.app.stop().await;
}
