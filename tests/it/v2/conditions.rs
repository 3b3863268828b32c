//! Conditional requests: changes with `If-Match`, reads with `If-None-Match`.
//!
//! Every route that changes something is tested. [`change`] has the request of each; a new route needs one.

use std::collections::HashMap;

use futures_util::future::join_all;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use signet::http::jsonapi::route::ProjectsRoute;
use signet::http::jsonapi::table::{all_routes, read_route_of};

use super::fixture::{
    Api, Store, World, assert_refused, id_of, in_project, no_attributes, on_both_stores, resource, statuses, tags,
    these,
};
use super::routes::{Scene, access_of, access_to};
use crate::support::{Answer, send, tests_on};

tests_on!(postgres_only: World::start(Store::Postgres) =>
    conditional_deletions_do_not_deadlock_with_other_requests,
    token_slot_is_free_when_its_deletion_is_confirmed,
);

on_both_stores!(
    concurrent_changes_under_one_condition_apply_one,
    change_and_deletion_under_one_condition_exclude_each_other,
    conditional_change_never_overwrites_an_unconditional_one,
    creation_with_if_match_is_rejected,
    if_match_accepts_several_lines_and_ignores_weak_tags,
    if_none_match_returns_304,
    one_of_concurrent_deletions_succeeds,
);

/// The routes that change something; the deletion of the organization is last.
fn changes() -> Vec<&'static ProjectsRoute> {
    let mut changes: Vec<_> = all_routes().filter(|route| *route.method != Method::GET.as_str()).collect();
    changes.sort_by_key(|route| route.name == "organization_delete");
    changes
}

/// A body for a route, different for each `n`.
fn change(scene: &Scene, route: &ProjectsRoute, n: usize) -> Value {
    let of = |kind: &str, name: &str| resource(kind, json!({ name: format!("changed-{}-{n}", scene.number) }));
    match route.name {
        "organization_update" => {
            resource("organizations", json!({ "email": format!("changed-{}-{n}@acme.test", scene.number) }))
        }
        "team_update" => of("teams", "sso-team-id"),
        "agent_pool_update" => of("agent-pools", "name"),
        "project_update" => of("projects", "description"),
        "workspace_update" | "workspace_update_named" => of("workspaces", "description"),
        "project_tags_merge" | "workspace_tags_merge" => tags(&[(&format!("k{}", n % 4), &format!("v{n}"))]),
        "project_tags_related_add"
        | "project_tags_related_replace"
        | "workspace_tags_related_add"
        | "workspace_tags_related_replace" => {
            // Another tag each time, so that it shows wherever the resource shows its tags.
            json!({ "data": [{ "type": "tag-bindings", "attributes": { "key": format!("k{n}") } }] })
        }
        "account_update" => {
            // Never the original name, nor a name of the previous round.
            let n = 1 + (n + 6 * scene.number) % 15;
            let letter = |(at, c): (usize, char)| if n >> at & 1 == 1 { c.to_ascii_uppercase() } else { c };
            resource("users", json!({ "username": "olga".chars().enumerate().map(letter).collect::<String>() }))
        }
        "workspace_tags_add" => json!({ "data": [{ "type": "tags", "attributes": { "name": format!("k{n}") } }] }),
        "workspace_tags_remove" => json!({ "data": [{ "type": "tags", "attributes": { "name": "flat" } }] }),
        "team_project_update" => {
            let bit = |place: usize| n >> place & 1 == 0;
            let workspace = json!({
                "create": bit(0), "delete": bit(1), "move": bit(2), "locking": bit(3), "run-tasks": bit(4)
            });
            resource("team-projects", json!({ "access": "custom", "workspace-access": workspace }))
        }
        "team_workspace_update" => {
            let runs = ["read", "plan", "apply"][n % 3];
            resource("team-workspaces", json!({ "access": "custom", "runs": runs, "run-tasks": n.is_multiple_of(2) }))
        }
        "team_tokens_delete" => scene.team_tokens(),
        "team_users_add" | "team_users_remove" => these("users", &["olga"]),
        "team_memberships_add" | "team_memberships_remove" => these("organization-memberships", &[&scene.membership]),
        "project_move" => these("workspaces", &[&scene.stray]),
        "team_token_replace" | "organization_token_create" => resource("authentication-tokens", json!({})),
        "workspace_lock"
        | "workspace_unlock"
        | "workspace_force_unlock"
        | "workspace_safe_delete"
        | "workspace_safe_delete_named" => resource("workspaces", json!({})),
        _ => {
            assert_eq!(*route.method, "DELETE", "{} changes what?", route.name);
            Value::Null
        }
    }
}

/// Creates the state that a route needs.
async fn prepare(world: &World, scene: &Scene, route: &ProjectsRoute) {
    let owner = &world.owner;
    let prepared = match route.name {
        "workspace_unlock" | "workspace_force_unlock" => {
            owner.post(&format!("workspaces/{}/actions/lock", scene.workspace), resource("workspaces", json!({}))).await
        }
        "project_delete" => owner.delete(&format!("workspaces/{}", scene.workspace)).await,
        "team_users_remove" | "team_memberships_remove" | "workspace_tags_remove" => {
            owner.send_text(Method::POST, &scene.path(route, "", ""), change(scene, route, 0).to_string()).await
        }
        _ => return,
    };
    assert!((200..300).contains(&prepared.status), "{}", prepared.text);
}

/// A resource of a route, changed by its owner.
struct Target<'w> {
    owner: &'w Api,
    scene: Scene,
    route: &'static ProjectsRoute,
    token: String,
}

impl<'w> Target<'w> {
    async fn new(world: &'w World, number: usize, route: &'static ProjectsRoute) -> Self {
        let scene = Scene::new(world, number).await;
        prepare(world, &scene, route).await;
        let user = id_of(&world.owner.get("account/details").await);
        let token = world.owner.create(&format!("users/{user}/authentication-tokens"), no_attributes()).await;
        Self { owner: &world.owner, scene, route, token }
    }

    fn path(&self, route: &ProjectsRoute) -> String {
        self.scene.path(route, "", &self.token)
    }

    /// The entity tag of the resource that the route changes.
    async fn tag(&self) -> String {
        let shown = self.owner.get(&self.path(read_route_of(self.route).unwrap())).await;
        shown.assert_status(200).header("etag").to_owned()
    }

    async fn ask(&self, n: usize, condition: Option<&str>) -> Answer {
        self.ask_of(self.route, n, condition).await
    }

    /// Sends a change of the same resource by another route.
    async fn ask_of(&self, route: &ProjectsRoute, n: usize, condition: Option<&str>) -> Answer {
        let method: Method = route.method.as_str().parse().unwrap();
        let path = self.path(route);
        let body = change(&self.scene, route, n);
        match condition {
            Some(condition) => self.owner.send_if(condition, method, &path, body).await,
            None if body.is_null() => self.owner.delete(&path).await,
            None => self.owner.send_text(method, &path, body.to_string()).await,
        }
    }
}

/// Asserts that exactly one of several concurrent requests succeeded; the others got a 412 or a 404.
#[track_caller]
fn assert_one_done(what: &str, answers: &[Answer]) {
    let statuses = statuses(answers);
    let refused = statuses.iter().filter(|status| matches!(status, 404 | 412)).count();
    assert!((200..300).contains(&statuses[0]) && refused + 1 == statuses.len(), "{what}: {statuses:?}");
}

/// Rounds of a race; fewer on the embedded store, which has only one writer.
fn rounds(world: &World) -> usize {
    if world.app.is_postgres() { 3 } else { 1 }
}

async fn concurrent_changes_under_one_condition_apply_one(world: &World) {
    let mut number = 0;
    for route in changes().into_iter().filter(|route| read_route_of(route).is_some()) {
        // It can be deleted only once.
        for _ in 0..if route.name == "organization_delete" { 1 } else { rounds(world) } {
            number += 1;
            let target = Target::new(world, number, route).await;
            let tag = target.tag().await;
            target.ask(0, Some("\"other\"")).await.assert_status(412);
            assert_eq!(target.tag().await, tag, "{}", route.name);
            let asked = (0..6).map(|n| target.ask(n, Some(&tag)));
            assert_one_done(route.name, &join_all(asked).await);
        }
    }
}

async fn change_and_deletion_under_one_condition_exclude_each_other(world: &World) {
    let mut number = 0;
    let updates = changes().into_iter().filter(|route| *route.method == "PATCH");
    let mut pairs: Vec<_> = updates
        .filter_map(|update| {
            let same = |other: &&ProjectsRoute| other.pattern == update.pattern && *other.method == "DELETE";
            Some((update, changes().into_iter().find(same)?))
        })
        .collect();
    pairs.sort_by_key(|(update, _)| update.name == "organization_update");
    assert_eq!(pairs.len(), 8);
    for (update, deletion) in pairs {
        for round in 0..if update.name == "organization_update" { 1 } else { rounds(world) } {
            number += 1;
            let target = Target::new(world, number, deletion).await;
            let tag = target.tag().await;
            let asked = (0..6).map(|n| {
                let route = if (n + round) % 2 == 0 { update } else { deletion };
                target.ask_of(route, n, Some(&tag))
            });
            assert_one_done(update.pattern, &join_all(asked).await);
        }
    }
}

/// A conditional change either precedes an unconditional one or is rejected: its condition still holds when it commits.
async fn conditional_change_never_overwrites_an_unconditional_one(world: &World) {
    let rounds = if world.app.is_postgres() { 12 } else { 2 };
    let mut number = 0;
    let updates = |route: &&ProjectsRoute| *route.method == "PATCH" && !route.pattern.contains("/relationships/");
    for route in changes().into_iter().filter(updates) {
        number += 1;
        let target = Target::new(world, number, route).await;
        for round in 0..rounds {
            let tag = target.tag().await;
            let asked = [target.ask(2 * round, Some(&tag)), target.ask(2 * round + 1, None)];
            let answers = join_all(asked).await;
            let [demanding, plain] = [answers[0].status, answers[1].status];
            let last = answers[1].header("etag") == target.tag().await;
            let is_right = plain == 200 && (demanding == 412 || (demanding == 200 && last));
            assert!(is_right, "{}: {demanding} and {plain}, {last}", route.name);
        }
    }
}

async fn creation_with_if_match_is_rejected(world: &World) {
    let scene = Scene::new(world, 1).await;
    let olga = id_of(&world.owner.get("account/details").await);
    let nothing = "If-Match: the resource has no ETag; omit the header";
    for route in changes().into_iter().filter(|route| read_route_of(route).is_none()) {
        assert_eq!(*route.method, "POST", "{}", route.name);
        let body = match route.name {
            "team_project_create" => access_of(&scene.team, &scene.project),
            "team_workspace_create" => access_to(&scene.team, &scene.workspace),
            _ => resource("things", json!({ "name": "new", "email": "new@acme.test" })),
        };
        for condition in ["*", "\"other\""] {
            let path = scene.path(route, &olga, "");
            let refused = world.owner.send_if(condition, Method::POST, &path, body.clone()).await;
            assert_refused(&refused, 412, &[("", nothing)]);
        }
    }
    // The token of a slot exists or not.
    let path = format!("teams/{}/authentication-token", scene.team);
    let replace = async || world.owner.send_if("*", Method::POST, &path, no_attributes()).await;
    assert_eq!(replace().await.status, 201);
    assert_eq!(world.owner.delete(&path).await.status, 204);
    assert_refused(&replace().await, 412, &[("", nothing)]);
    assert_eq!(world.owner.get(&path).await.status, 404);
    // A missing resource is a 404 with any condition.
    let lock = "workspaces/ws-none/actions/lock";
    world.owner.send_if("*", Method::POST, lock, no_attributes()).await.assert_status(404);
}

async fn if_match_accepts_several_lines_and_ignores_weak_tags(world: &World) {
    let path = format!("projects/{}", world.project("Guarded").await);
    let change = async |lines: &[&str]| {
        let body = resource("projects", json!({ "description": format!("{lines:?}") })).to_string();
        let request =
            lines.iter().fold(world.owner.request(Method::PATCH, &path), |r, line| r.header("If-Match", *line));
        send(request.header("Content-Type", "application/vnd.api+json").body(body)).await.status
    };
    let tag = async || world.owner.get(&path).await.header("etag").to_owned();
    let current = tag().await;
    let other = world.owner.send_if("\"other\"", Method::PATCH, &path, resource("projects", json!({}))).await;
    assert_refused(&other, 412, &[("", "If-Match: the resource has changed")]);
    assert_eq!(change(&["\"other\"", &format!("W/{current}")]).await, 412);
    assert_eq!(change(&["\"other\"", &current]).await, 200);
    assert_eq!(change(&["\"one\", \"other\"", &format!("\"more\", {}", tag().await)]).await, 200);
    assert_eq!(change(&["\"other\"", &current]).await, 412, "it has changed since");
    assert_eq!(change(&["*"]).await, 200);
}

async fn if_none_match_returns_304(world: &World) {
    for n in 0..30 {
        world.project(&format!("Project-{n}")).await;
    }
    let one = format!("projects/{}", world.project("Kept").await);
    let ask = async |method: Method, path: &str, headers: &[(&'static str, &str)]| {
        let request =
            headers.iter().fold(world.owner.request(method, path), |r, (name, value)| r.header(*name, *value));
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.headers().clone(), response.bytes().await.unwrap().len())
    };
    let header = |headers: &HeaderMap, name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    for path in [&one[..], "organizations/acme", "organizations/acme/projects?page[size]=100"] {
        let (_, headers, _) = ask(Method::GET, path, &[]).await;
        let tag = header(&headers, "etag").unwrap();
        for sent in
            [&[&tag[..]][..], &["*"], &[&format!("W/{tag}")], &[&format!("\"other\", {tag}")], &["\"other\"", &tag]]
        {
            let sent: Vec<_> = sent.iter().map(|value| ("If-None-Match", *value)).collect();
            for method in [Method::GET, Method::HEAD] {
                let (status, kept, length) = ask(method, path, &sent).await;
                assert_eq!((status, length), (304, 0), "{path} {sent:?}");
                for name in ["etag", "cache-control", "vary", "tfp-api-version"] {
                    assert_eq!(header(&kept, name), header(&headers, name), "{path} {name}");
                }
                assert_eq!(header(&kept, "content-type"), None);
            }
        }
        let (status, _, length) = ask(Method::GET, path, &[("If-None-Match", "\"other\"")]).await;
        assert!(status == 200 && length > 0, "{path}");
    }
    // The compressed representation has its own tag.
    let list = "organizations/acme/projects?page[size]=100";
    let packed = ("Accept-Encoding", "gzip");
    let (_, headers, _) = ask(Method::GET, list, &[packed]).await;
    let tag = header(&headers, "etag").unwrap();
    assert!(tag.ends_with("-gzip\""), "{tag}");
    let (status, kept, _) = ask(Method::GET, list, &[packed, ("If-None-Match", &tag)]).await;
    assert_eq!((status, header(&kept, "etag")), (304, Some(tag.clone())));
    // Errors and changed representations are sent.
    assert_eq!(ask(Method::GET, "projects/prj-none", &[("If-None-Match", "*")]).await.0, 404);
    world.project("Another").await;
    assert_eq!(ask(Method::GET, list, &[packed, ("If-None-Match", &tag)]).await.0, 200);
}

async fn one_of_concurrent_deletions_succeeds(world: &World) {
    let mut outcomes: HashMap<&str, Vec<String>> = HashMap::new();
    let deletions =
        changes().into_iter().filter(|route| *route.method == "DELETE" && !route.pattern.contains("relationships"));
    for (number, route) in deletions.enumerate() {
        let last = route.name == "organization_delete";
        for round in 0..if world.app.is_postgres() && !last { 4 } else { 1 } {
            let target = Target::new(world, 10 * number + round, route).await;
            let answers = join_all((0..6).map(|n| target.ask(n, None))).await;
            let statuses = statuses(&answers);
            if statuses != [204, 404, 404, 404, 404, 404] {
                outcomes.entry(route.name).or_default().push(format!("{statuses:?}"));
            }
        }
    }
    assert!(outcomes.is_empty(), "{outcomes:#?}");
}

/// Conditional deletions lock rows in the same order as all other requests.
async fn conditional_deletions_do_not_deadlock_with_other_requests(world: &World) {
    let owner = &world.owner;
    for round in 0..20 {
        let scene = Scene::new(world, round).await;
        let tag = async |path: &str| owner.get(path).await.header("etag").to_owned();
        let delete = async |path: &str| owner.send_if(&tag(path).await, Method::DELETE, path, Value::Null).await;
        let team = format!("teams/{}", scene.team);
        let workspace = format!("workspaces/{}", scene.workspace);
        let spare = world.project(&format!("Spare {round}")).await;
        let new = in_project(&spare, json!({ "name": format!("new-{round}") }));
        let project = format!("projects/{spare}");
        let (left, given, gone, plain, emptied, filled) = tokio::join!(
            delete(&team),
            owner.post("team-projects", access_of(&scene.team, &scene.project)),
            delete(&workspace),
            owner.delete(&workspace),
            delete(&project),
            owner.post("organizations/acme/workspaces", new),
        );
        let statuses = [&left, &given, &gone, &plain, &emptied, &filled].map(|answer| answer.status);
        assert!(matches!((statuses[0], statuses[1]), (204, 201 | 404) | (412, 201)), "{statuses:?}");
        assert!(matches!((statuses[2], statuses[3]), (204, 404) | (404 | 412, 204)), "{statuses:?}");
        assert!(matches!((statuses[4], statuses[5]), (204, 404) | (412 | 422, 201)), "{statuses:?}");
    }
    let deadlocks =
        world.app.database().psql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
    assert_eq!(deadlocks.trim(), "0");
}

/// Deleting the token of a slot empties the slot, even if the token is being replaced.
async fn token_slot_is_free_when_its_deletion_is_confirmed(world: &World) {
    let owner = &world.owner;
    let path = format!("teams/{}/authentication-token", world.team("slotted").await);
    for round in 0..40 {
        assert_eq!(owner.post(&path, no_attributes()).await.status, 201);
        let (replaced, deleted) = tokio::join!(owner.post(&path, no_attributes()), owner.delete(&path));
        assert_eq!((replaced.status, deleted.status), (201, 204), "round {round}");
    }
}
