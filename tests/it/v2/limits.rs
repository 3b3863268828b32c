//! Limits of bodies: how much is parsed, and how many errors are reported.

use std::time::{Duration, Instant};

use super::fixture::{
    NONE, PEOPLE, POOLS, PROJECTS, WORKSPACES, World, assert_invalid, assert_refused, flat_tags, id_of, on_both_stores,
    related, resource, these,
};
use super::moves::{count, move_into};
use super::routes::Scene;
use reqwest::Method;
use serde_json::{Value, json};
use signet::http::jsonapi::table::all_routes;

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

const TOO_COMPLEX: &str = "request body: too complex";
const LONG_LIST: &str = "request body: a list may have at most 1000 elements";

/// A document whose `data` is an array of `many` numbers.
fn numbers(many: usize) -> String {
    format!("{{\"data\":[{}0]}}", "0,".repeat(many - 1))
}

async fn body_with_too_many_values_is_rejected_while_parsing(world: &World) {
    let scene = Scene::new(world, 1).await;
    let user = id_of(&world.owner.get("account/details").await);
    let mut asked = 0;
    for route in all_routes() {
        let relationship = *route.method == Method::DELETE.as_str() && route.pattern.contains("/relationships/");
        if !matches!(route.method.as_str(), "POST" | "PATCH") && !relationship {
            continue;
        }
        let method: Method = route.method.as_str().parse().unwrap();
        let answer = world.owner.send_text(method, &scene.path(route, &user, ""), numbers(20_000)).await;
        assert_eq!(answer.status, 422, "{} {}: {:.200}", route.method, route.pattern, answer.text);
        assert_refused(&answer, 422, &[("", LONG_LIST)]);
        asked += 1;
    }
    assert!(asked > 25, "{asked}");
    // Every kind of excess, up to the maximum body size.
    let path = scene.fill("projects/:project_id/relationships/workspaces");
    let members = (0..12_000).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(",");
    let lists = format!("{{\"data\":[{}0]}}", format!("{},", json!(vec![0; 900])).repeat(12));
    for body in ["[".repeat(100_000), format!("{{\"data\":{{{members}}}}}"), lists] {
        assert_refused(&world.owner.send_text(Method::POST, &path, body).await, 400, &[("", TOO_COMPLEX)]);
    }
    let long = world.owner.send_text(Method::POST, &path, numbers(2_000_000)).await;
    assert_refused(&long, 422, &[("", LONG_LIST)]);
}

async fn too_long_body_list_gets_the_same_error_at_any_length(world: &World) {
    let scene = Scene::new(world, 1).await;
    for (pattern, called) in [
        ("projects/:project_id/relationships/workspaces", "workspaces"),
        ("teams/:team_id/relationships/users", "resources"),
    ] {
        let path = scene.fill(pattern);
        let named = |many: usize| these("workspaces", &(0..many).map(|n| format!("none-{n:05}")).collect::<Vec<_>>());
        for (many, place, rule) in [
            (1001, "/data", format!("data may have at most 1000 {called}")),
            (3300, "/data", format!("data may have at most 1000 {called}")),
            (4000, "", LONG_LIST.to_owned()),
            (30_000, "", LONG_LIST.to_owned()),
        ] {
            assert_refused(&world.owner.post(&path, named(many)).await, 422, &[(place, &rule)]);
        }
    }
    let list = json!({ "data": sevens(20_000) });
    let pool = related("agent-pools", json!({ "name": "long" }), "allowed-projects", list);
    assert_refused(&world.owner.post(POOLS, pool).await, 422, &[("", LONG_LIST)]);
}

async fn missing_right_is_reported_before_body_errors(world: &World) {
    let scene = Scene::new(world, 1).await;
    let member = world.member("mia", NONE).await.api;
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
            let path = scene.fill(pattern);
            let hears = async |api: &super::fixture::Api| api.send_text(Method::POST, &path, body.clone()).await.status;
            assert_eq!(hears(&outsider).await, 404, "{pattern}");
            if !pattern.ends_with("name/workspaces") {
                assert_eq!(hears(&member).await, 404, "{pattern}");
            }
        }
    }
    member.send_text(Method::POST, PROJECTS, numbers(20_000)).await.assert_status(403);
    world.owner.with_token("unknown").send_text(Method::POST, PROJECTS, numbers(20_000)).await.assert_status(401);
}

/// Elements that are all invalid, so that a walk over them shows.
fn sevens(many: usize) -> Value {
    vec![7; many].into()
}

async fn every_list_of_a_body_is_counted_before_it_is_walked(world: &World) {
    let scene = Scene::new(world, 1).await;
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
        let path = scene.fill(pattern);
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
        let attributes = json!({ "name": "xyz", "email": "x@acme.test" });
        let body = related(kind, attributes, name, json!({ "data": sevens(most + 1) }));
        let answer = owner.send_text(method, &scene.fill(pattern), body.to_string()).await;
        let place = format!("/data/relationships/{name}/data");
        assert_refused(&answer, 422, &[(&place, &format!("{name} may have at most {most} "))]);
    }
    for (name, label) in [("trigger-prefixes", "Trigger prefixes"), ("trigger-patterns", "Trigger patterns")] {
        let body = resource("workspaces", json!({ "name": "xyz", name: sevens(257) }));
        assert_invalid(&owner.post(WORKSPACES, body).await, name, &format!("{label} may have at most 256 "));
    }
    assert_eq!(owner.get(&format!("projects/{}/tag-bindings", scene.project)).await.body["data"], json!([]));
}

async fn faults_stop_at_one_hundred(world: &World) {
    let scene = Scene::new(world, 1).await;
    let names: Vec<String> = (0..1000).map(|n| format!("nobody-{n}")).collect();
    let list = json!({ "data": sevens(1000) });
    let pool = related("agent-pools", json!({ "name": "xyz" }), "allowed-projects", list.clone());
    for (pattern, body, status) in [
        ("projects/:project_id/relationships/workspaces", list, 422),
        ("teams/:team_id/relationships/users", these("users", &names), 400),
        ("organizations/:organization_name/agent-pools", pool, 422),
    ] {
        let answer = world.owner.post(&scene.fill(pattern), body).await;
        assert_eq!(answer.status, status, "{:.200}", answer.text);
        assert_eq!(answer.body["errors"].as_array().unwrap().len(), 100, "{pattern}");
    }
}

async fn longest_permitted_lists_are_accepted(world: &World) {
    let owner = &world.owner;
    let scene = Scene::new(world, 1).await;
    let ids: Vec<String> = (0..1000).map(|n| format!("ws-{n}")).collect();
    world.many_workspaces(&scene.project, 1000).await;
    let destination = world.project("Destination").await;
    assert_eq!(move_into(owner, &destination, &ids).await.status, 204);
    assert_eq!(count(world, &destination).await, 1000);

    let workspaces = these("workspaces", &ids);
    let mut pool = resource("agent-pools", json!({ "name": "xyz", "organization-scoped": false }));
    pool["data"]["relationships"] = json!({
        "excluded-workspaces": workspaces,
        "allowed-workspaces": workspaces,
        "allowed-projects": these("projects", &vec![destination; 1000]),
    });
    let pool = owner.post(POOLS, pool).await;
    assert_eq!(pool.status, 201, "{:.300}", pool.text);
    let shown = &pool.body["data"]["relationships"];
    assert_eq!(shown["allowed-workspaces"]["data"].as_array().unwrap().len(), 1000);
    assert_eq!(shown["allowed-projects"]["data"].as_array().unwrap().len(), 1, "once is enough");

    let patterns: Vec<String> = (0..256).map(|n| format!("/{n}/**")).collect();
    let flat = flat_tags(&(0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    let body = related("workspaces", json!({ "name": "xyz", "trigger-patterns": patterns }), "tags", flat);
    let made = owner.post(WORKSPACES, body).await;
    assert_eq!(made.status, 201, "{:.300}", made.text);
    assert_eq!(made.body["data"]["attributes"]["tag-names"].as_array().unwrap().len(), 100);
}

async fn tag_bindings_body_of_megabytes_is_rejected_quickly(world: &World) {
    let scene = Scene::new(world, 1).await;
    let binding = |n: usize| format!("{{\"attributes\":{{\"key\":\"k{n:07}\"}}}}");
    let body = |many| format!("{{\"data\":[{}]}}", (0..many).map(binding).collect::<Vec<_>>().join(","));
    for pattern in ["projects/:project_id/tag-bindings", "workspaces/:workspace_id/tag-bindings"] {
        let path = scene.fill(pattern);
        let large = body(110_000);
        let started = Instant::now();
        assert!(large.len() > 3_700_000);
        assert_refused(&world.owner.send_text(Method::PATCH, &path, large).await, 422, &[("", LONG_LIST)]);
        let many = world.owner.send_text(Method::PATCH, &path, body(3_000)).await;
        assert_refused(&many, 422, &[("/data", "data may have at most 100 ")]);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert_eq!(world.owner.get(&path).await.body["data"], json!([]), "nothing is stored");
    }
}

async fn a_workspace_has_a_thousand_flat_tags_at_most(world: &World) {
    let scene = Scene::new(world, 1).await;
    let path = scene.fill("workspaces/:workspace_id/relationships/tags");
    let flat = |from: usize, many: usize| flat_tags(&(from..from + many).map(|n| format!("t{n}")).collect::<Vec<_>>());
    for n in 0..10 {
        assert_eq!(world.owner.post(&path, flat(n * 100, 100)).await.status, 204);
    }
    assert_refused(&world.owner.post(&path, flat(1000, 1)).await, 422, &[("/data", "at most 1000 tags")]);
    assert_eq!(world.owner.post(&path, flat(0, 100)).await.status, 204, "none of them is new");
    let shown = world.owner.get(&scene.fill("workspaces/:workspace_id")).await;
    assert_eq!(shown.body["data"]["attributes"]["tag-names"].as_array().unwrap().len(), 1000);
}

async fn text_of_megabytes_is_neither_stored_nor_quoted(world: &World) {
    let owner = &world.owner;
    let scene = Scene::new(world, 1).await;
    let long = "x".repeat(1 << 20);
    let users = scene.fill("teams/:team_id/relationships/users");
    let answer = owner.post(&users, these("users", &[&long])).await;
    assert_refused(&answer, 422, &[("/data/0/id", "id must be a string")]);
    let team = format!("teams/{}", scene.team);
    let answer = owner.change(&team, json!({ "sso-team-id": long })).await;
    assert_invalid(&answer, "sso-team-id", "Sso team id is too long");
}
