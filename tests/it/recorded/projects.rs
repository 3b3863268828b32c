//! The projects API: creates, reads, changes and deletes everything in an organization; calls every route without
//! rights, and sets every attribute to values of wrong types.

use std::collections::HashMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use time::macros::datetime;

use super::recorder::{Answer, Recorder};
use super::routes;
use crate::support::App;
use crate::v2::fixture::{Api, World, resource};

/// Routes that always reject: there are no runs and no state.
pub const REFUSES: &[(&str, &str, &str)] = &[
    ("projects", "GET", "workspaces/:workspace_id/current-state-version"),
    ("projects", "POST", "workspaces/:workspace_id/configuration-versions"),
];

const ACME: &str = "organizations/acme";

struct Walk<'w> {
    recorder: &'w mut Recorder,
    world: &'w World,
    ids: HashMap<&'static str, String>,
}

impl Walk<'_> {
    /// Sends a request as the owner. Advances the clock, because lists are ordered by time.
    async fn ask(&mut self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.world.app.clock.advance(Duration::from_secs(1));
        let request = self.world.owner.request(method, path);
        let request = match body {
            Some(body) => request.header("content-type", "application/vnd.api+json").body(body.to_string()),
            None => request,
        };
        self.recorder.ask(request).await
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn patch(&mut self, path: &str, body: Value) -> Answer {
        self.ask(Method::PATCH, path, Some(body)).await
    }

    async fn delete(&mut self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, None).await
    }

    async fn make(&mut self, name: &'static str, path: &str, body: Value) {
        let id = self.post(path, body).await.text("/data/id");
        self.ids.insert(name, id);
    }

    fn id(&self, name: &str) -> String {
        self.ids[name].clone()
    }
}

/// Records everything. Returns the recording of the rejected requests separately.
pub async fn walk(recorder: &mut Recorder) -> String {
    let world = World::of(App::builder().manual_clock(datetime!(2031-01-01 00:00 UTC))).await;
    let mut walk = Walk { recorder, world: &world, ids: HashMap::new() };
    walk.recorder.heading("the API");
    walk.get("ping").await;
    walk.get("account/details").await;
    organizations(&mut walk).await;
    projects(&mut walk).await;
    workspaces(&mut walk).await;
    tags(&mut walk).await;
    teams(&mut walk).await;
    access(&mut walk).await;
    pools(&mut walk).await;
    tokens(&mut walk).await;
    let life = walk.recorder.set_text(String::new());
    attributes(&mut walk).await;
    refusals(&mut walk).await;
    let refused = walk.recorder.set_text(life);
    ends(&mut walk).await;
    world.app.stop().await;
    refused
}

fn to_many(kind: &str, ids: &[String]) -> Value {
    json!({ "data": ids.iter().map(|id| json!({ "type": kind, "id": id })).collect::<Vec<_>>() })
}

fn related(kind: &str, attributes: Value, relationships: Value) -> Value {
    let mut body = resource(kind, attributes);
    body["data"]["relationships"] = relationships;
    body
}

fn tag(key: &str, value: &str) -> Value {
    json!({ "type": "tag-bindings", "attributes": { "key": key, "value": value } })
}

async fn organizations(walk: &mut Walk<'_>) {
    walk.recorder.heading("organizations");
    let body = resource("organizations", json!({ "name": "Umbrella", "email": "info@umbrella.test" }));
    walk.post("organizations", body.clone()).await;
    walk.post("organizations", body).await;
    walk.get("organizations").await;
    walk.get("organizations?q=umb&page[size]=1").await;
    walk.get(ACME).await;
    walk.get("organizations/umbrella?include=default-project").await;
    walk.get("organizations/acme/entitlement-set").await;
    walk.patch(ACME, resource("organizations", json!({ "default-execution-mode": "local", "email": "new@acme.test" })))
        .await;
    walk.patch(ACME, resource("organizations", json!({ "name": "not a name" }))).await;
    walk.delete("organizations/umbrella").await;
    walk.get("organizations/umbrella").await;
}

async fn projects(walk: &mut Walk<'_>) {
    walk.recorder.heading("projects");
    let path = format!("{ACME}/projects");
    let tagged = json!({ "tag-bindings": { "data": [tag("env", "prod")] } });
    let net = json!({ "name": "Net", "description": "All nets", "auto-destroy-activity-duration": "14d" });
    walk.make("project", &path, related("projects", net, tagged)).await;
    walk.make("other", &path, resource("projects", json!({ "name": "Other" }))).await;
    for query in
        ["", "?page[size]=1&page[number]=2", "?filter[names]=net", "?q=oth", "?sort=-name", "?page[size]=0", "?bogus=1"]
    {
        walk.get(&format!("{path}{query}")).await;
    }
    let one = format!("projects/{}", walk.id("project"));
    let shown = walk.get(&one).await;
    let tag = shown.headers["etag"].to_str().unwrap().to_owned();
    for value in [tag.as_str(), "\"other\""] {
        let body = resource("projects", json!({ "description": "Some nets" })).to_string();
        let request = walk.world.owner.request(Method::PATCH, &one).header("if-match", value);
        walk.recorder.ask(request.header("content-type", "application/vnd.api+json").body(body)).await;
    }
    walk.post(&path, resource("projects", json!({ "name": "NET" }))).await;
    walk.post(&path, resource("projects", json!({ "name": "x" }))).await;
    walk.post(&path, json!({ "data": { "type": "wrong", "attributes": { "name": "Third" } } })).await;
}

async fn workspaces(walk: &mut Walk<'_>) {
    walk.recorder.heading("workspaces");
    let path = format!("{ACME}/workspaces");
    let of = |id: String| json!({ "project": { "data": { "type": "projects", "id": id } } });
    let attributes = json!({ "name": "core", "description": "The core", "terraform-version": "1.9.0", "auto-apply": true,
        "working-directory": "dir", "tag-names": ["flat"] });
    walk.make("workspace", &path, related("workspaces", attributes, of(walk.id("project")))).await;
    walk.make("second", &path, resource("workspaces", json!({ "name": "edge" }))).await;
    for query in [
        "",
        "?search[name]=co",
        "?search[wildcard-name]=*ge",
        "?search[tags]=flat",
        "?include=project,organization&sort=-name",
        "?page[size]=1",
    ] {
        walk.get(&format!("{path}{query}")).await;
    }
    let one = format!("workspaces/{}", walk.id("workspace"));
    let second = format!("workspaces/{}", walk.id("second"));
    walk.get(&one).await;
    walk.get(&format!("{one}?include=effective_tag_bindings")).await;
    walk.get(&format!("{path}/core")).await;
    let plans =
        walk.world.owner.request(Method::GET, &format!("{path}/core")).header("x-terraform-integration", "cloud");
    walk.recorder.ask(plans).await;
    walk.patch(&one, resource("workspaces", json!({ "description": null, "queue-all-runs": true }))).await;
    walk.patch(&format!("{path}/edge"), resource("workspaces", json!({ "name": "rim" }))).await;
    walk.post(&path, resource("workspaces", json!({ "name": "core" }))).await;
    walk.post(&path, resource("workspaces", json!({ "name": "no name" }))).await;
    walk.recorder.heading("moves, locks, runs");
    let moved = to_many("workspaces", &[walk.id("second")]);
    walk.post(&format!("projects/{}/relationships/workspaces", walk.id("project")), moved).await;
    walk.get(&second).await;
    for action in ["lock", "lock", "unlock", "unlock", "lock", "force-unlock"] {
        walk.post(&format!("{one}/actions/{action}"), json!({ "data": { "type": "" }, "reason": "because" })).await;
    }
    walk.get(&format!("{one}/current-state-version")).await;
    walk.post(&format!("{one}/configuration-versions"), json!({ "data": { "type": "configuration-versions" } })).await;
}

async fn tags(walk: &mut Walk<'_>) {
    walk.recorder.heading("tags");
    let project = format!("projects/{}", walk.id("project"));
    let workspace = format!("workspaces/{}", walk.id("workspace"));
    for path in [project, workspace.clone()] {
        walk.get(&format!("{path}/tag-bindings")).await;
        walk.patch(&format!("{path}/tag-bindings"), json!({ "data": [tag("team", "net"), tag("env", "test")] })).await;
        walk.patch(&format!("{path}/tag-bindings"), json!({ "data": [tag("", "x"), { "type": "tag-bindings" }] }))
            .await;
        walk.get(&format!("{path}/effective-tag-bindings")).await;
    }
    let flat = json!({ "data": [{ "type": "tags", "attributes": { "name": "Further" } }] });
    walk.post(&format!("{workspace}/relationships/tags"), flat.clone()).await;
    walk.get(&workspace).await;
    walk.get(&format!("{workspace}/relationships/tags")).await;
    walk.get(&format!("{ACME}/tags")).await;
    walk.get(&format!("{ACME}/tags?q=none")).await;
    walk.get(&format!("{ACME}/workspaces?filter[tagged][0][value]=net")).await;
    walk.get(&format!("{ACME}/workspaces?filter[tagged][0][val]=net")).await;
    for path in [format!("projects/{}", walk.id("project")), workspace.clone()] {
        let path = format!("{path}/relationships/tag-bindings");
        walk.post(&path, json!({ "data": [tag("zone", "a")] })).await;
        walk.patch(&path, json!({ "data": [tag("team", "net"), tag("env", "test"), tag("further", "")] })).await;
        walk.get(&path).await;
    }
    for tags in [flat, json!({ "data": [{ "type": "tags", "id": "tag-none" }] }), json!({ "data": [{}] })] {
        walk.ask(Method::DELETE, &format!("{workspace}/relationships/tags"), Some(tags)).await;
    }
}

async fn teams(walk: &mut Walk<'_>) {
    walk.recorder.heading("people and teams");
    let path = format!("{ACME}/teams");
    let attributes =
        json!({ "name": "builders", "visibility": "organization", "organization-access": { "manage-projects": true } });
    walk.make("team", &path, resource("teams", attributes)).await;
    walk.make("secret", &path, resource("teams", json!({ "name": "secret" }))).await;
    let members = format!("{ACME}/organization-memberships");
    let email = |email: &str| resource("organization-memberships", json!({ "email": email }));
    let invited = related(
        "organization-memberships",
        json!({ "email": "nils@acme.test" }),
        json!({ "teams": to_many("teams", &[walk.id("team")]) }),
    );
    walk.make("membership", &members, invited).await;
    walk.post(&members, email("nils@acme.test")).await;
    walk.post(&members, email("nobody")).await;
    walk.get(&format!("{members}?include=user,teams")).await;
    walk.get(&format!("{members}?filter[status]=invited&q=nils")).await;
    let one = format!("organization-memberships/{}", walk.id("membership"));
    walk.get(&one).await;
    walk.get(&path).await;
    walk.get(&format!("{path}?filter[names]=owners&include=users,organization-memberships")).await;
    let team = format!("teams/{}", walk.id("team"));
    walk.get(&format!("{team}?include=users")).await;
    walk.patch(&team, resource("teams", json!({ "name": "makers", "allow-member-token-management": false }))).await;
    walk.post(&path, resource("teams", json!({ "name": "MAKERS" }))).await;
    let memberships = to_many("organization-memberships", &[walk.id("membership")]);
    for method in [Method::DELETE, Method::POST, Method::POST] {
        walk.ask(method, &format!("{team}/relationships/organization-memberships"), Some(memberships.clone())).await;
    }
    let users = to_many("users", &["olga".to_owned()]);
    for method in [Method::POST, Method::DELETE] {
        walk.ask(method, &format!("{team}/relationships/users"), Some(users.clone())).await;
    }
    walk.post(&format!("{team}/relationships/users"), to_many("users", &["absent".to_owned()])).await;
    walk.get(&format!("{team}/relationships/organization-memberships")).await;
    walk.get("organization-memberships?include=user").await;
    let user = walk.get("account/details").await.text("/data/id");
    walk.get(&format!("users/{user}")).await;
    walk.patch("account/update", resource("users", json!({ "username": "olga", "email": "olga@acme.test" }))).await;
    walk.patch("account/update", resource("users", json!({ "username": "", "email": "other@acme.test" }))).await;
}

async fn access(walk: &mut Walk<'_>) {
    walk.recorder.heading("access of teams to projects");
    let relationships = json!({
        "team": { "data": { "type": "teams", "id": walk.id("team") } },
        "project": { "data": { "type": "projects", "id": walk.id("project") } },
    });
    let give = |attributes: Value| related("team-projects", attributes, relationships.clone());
    walk.make("access", "team-projects", give(json!({ "access": "read" }))).await;
    walk.post("team-projects", give(json!({ "access": "write" }))).await;
    walk.post("team-projects", give(json!({ "access": "all" }))).await;
    walk.get(&format!("team-projects?filter[project][id]={}", walk.id("project"))).await;
    walk.get("team-projects").await;
    let one = format!("team-projects/{}", walk.id("access"));
    walk.get(&one).await;
    for level in ["write", "maintain", "admin"] {
        walk.patch(&one, resource("team-projects", json!({ "access": level }))).await;
    }
    let custom = json!({ "access": "custom", "project-access": { "settings": "update", "teams": "none" },
        "workspace-access": { "create": true, "runs": "plan" } });
    walk.patch(&one, resource("team-projects", custom)).await;
    walk.recorder.heading("access of teams to single workspaces");
    let relationships = json!({
        "team": { "data": { "type": "teams", "id": walk.id("team") } },
        "workspace": { "data": { "type": "workspaces", "id": walk.id("workspace") } },
    });
    let give = |attributes: Value| related("team-workspaces", attributes, relationships.clone());
    walk.make("workspace_access", "team-workspaces", give(json!({ "access": "read" }))).await;
    walk.post("team-workspaces", give(json!({ "access": "write" }))).await;
    walk.post("team-workspaces", give(json!({ "access": "maintain" }))).await;
    walk.get(&format!("team-workspaces?filter[workspace][id]={}", walk.id("workspace"))).await;
    walk.get("team-workspaces").await;
    let one = format!("team-workspaces/{}", walk.id("workspace_access"));
    walk.get(&one).await;
    for level in ["plan", "write", "admin"] {
        walk.patch(&one, resource("team-workspaces", json!({ "access": level }))).await;
    }
    let custom = json!({ "access": "custom", "runs": "plan", "run-tasks": true, "state-versions": "read-outputs" });
    walk.patch(&one, resource("team-workspaces", custom)).await;
    walk.patch(&one, resource("team-workspaces", json!({ "runs": "all", "workspace-locking": "yes" }))).await;
}

async fn pools(walk: &mut Walk<'_>) {
    walk.recorder.heading("agent pools");
    let path = format!("{ACME}/agent-pools");
    let relationships = json!({ "allowed-workspaces": to_many("workspaces", &[walk.id("workspace")]) });
    let attributes = json!({ "name": "pool", "organization-scoped": false });
    walk.make("pool", &path, related("agent-pools", attributes, relationships)).await;
    walk.get(&path).await;
    let one = format!("agent-pools/{}", walk.id("pool"));
    walk.get(&format!("{one}?include=workspaces")).await;
    walk.patch(&one, resource("agent-pools", json!({ "name": "pond" }))).await;
    walk.post(&path, resource("agent-pools", json!({ "name": "POND" }))).await;
    let agent = json!({ "execution-mode": "agent", "agent-pool-id": walk.id("pool") });
    walk.patch(&format!("workspaces/{}", walk.id("workspace")), resource("workspaces", agent)).await;
    walk.delete(&one).await;
}

async fn tokens(walk: &mut Walk<'_>) {
    walk.recorder.heading("tokens");
    let user = walk.get("account/details").await.text("/data/id");
    let expires = json!({ "description": "mine", "expired-at": "2031-06-01T00:00:00Z" });
    walk.make("token", &format!("users/{user}/authentication-tokens"), resource("authentication-tokens", expires))
        .await;
    walk.get(&format!("users/{user}/authentication-tokens")).await;
    walk.get("users/user-absent/authentication-tokens").await;
    let one = format!("authentication-tokens/{}", walk.id("token"));
    walk.get(&one).await;
    walk.delete(&one).await;
    walk.get(&one).await;
    let slot = format!("{ACME}/authentication-token");
    let team = format!("teams/{}", walk.id("team"));
    for path in [slot.clone(), format!("{slot}?token=audit-trails"), format!("{team}/authentication-token")] {
        walk.get(&path).await;
        walk.post(&path, resource("authentication-tokens", json!({}))).await;
        walk.get(&path).await;
        walk.delete(&path).await;
    }
    walk.post(&format!("{slot}?token=other"), resource("authentication-tokens", json!({}))).await;
    let more = format!("{team}/authentication-tokens");
    walk.make("team_token", &more, resource("authentication-tokens", json!({ "description": "one" }))).await;
    walk.post(&more, resource("authentication-tokens", json!({ "expired-at": "yesterday" }))).await;
    walk.get(&more).await;
    walk.get(&format!("{ACME}/team-tokens?q=make")).await;
    let named = to_many("authentication-tokens", &[walk.id("team_token")]);
    for _ in 0..2 {
        walk.ask(Method::DELETE, &format!("{ACME}/team-tokens"), Some(named.clone())).await;
    }
}

async fn attributes(walk: &mut Walk<'_>) {
    let id = |kind: &str, name: &str| format!("{kind}/{}", walk.id(name));
    let paths = [
        ("organizations", ACME.to_owned()),
        ("projects", id("projects", "project")),
        ("workspaces", id("workspaces", "workspace")),
        ("teams", id("teams", "team")),
        ("team-projects", id("team-projects", "access")),
        ("team-workspaces", id("team-workspaces", "workspace_access")),
        ("agent-pools", id("agent-pools", "pool")),
    ];
    for (kind, path) in paths {
        walk.recorder.heading(&format!("attributes of {kind}"));
        let shown = walk.world.owner.get(&path).await.body["data"]["attributes"].clone();
        let names: Vec<String> = shown.as_object().unwrap().keys().cloned().collect();
        for name in names.iter().map(String::as_str).chain(["bogus"]) {
            for value in [json!({ "wrong": true }), json!([1]), json!(-1), json!("no such"), json!("x".repeat(2_000))] {
                let body = resource(kind, json!({ name: value })).to_string();
                let shown: String = value.to_string().chars().take(20).collect();
                walk.brief(&format!("{name} = {shown}"), &walk.world.owner, Method::PATCH, &path, Some(body)).await;
            }
        }
        walk.recorder.blank();
    }
}

impl Walk<'_> {
    async fn brief(&mut self, what: &str, api: &Api, method: Method, path: &str, body: Option<String>) {
        let request = api.request(method, path);
        let request = match body {
            Some(body) => request.header("content-type", "application/vnd.api+json").body(body),
            None => request,
        };
        self.recorder.ask_briefly(what, request).await;
    }
}

/// Malformed bodies. A body of another type would succeed on safe-delete.
const BODIES: [&str; 5] =
    ["{\"data\":", "[]", "{}", "{\"data\":{\"type\":\"no such\"}}", "{\"data\":[{\"type\":1,\"id\":{}}]}"];

async fn refusals(walk: &mut Walk<'_>) {
    let outsider = walk.world.outsider("otto").await.api;
    let owner = walk.world.owner.clone();
    let stranger = walk.world.owner.with_token("");
    for (_, method, pattern) in routes::all().into_iter().filter(|(kind, ..)| *kind == "projects") {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        walk.recorder.heading(&format!("{method} {pattern}"));
        let path = walk.path(pattern);
        let absent = example(pattern);
        let writes = matches!(method, Method::POST | Method::PATCH) || pattern.contains("relationships");
        let body = || writes.then(|| "{\"data\":{}}".to_owned());
        walk.brief("without a token", &stranger, method.clone(), &path, body()).await;
        walk.brief("with a wrong token", &owner.with_token("wrong"), method.clone(), &path, body()).await;
        walk.brief("by an outsider", &outsider, method.clone(), &path, body()).await;
        walk.brief("of nothing", &owner, method.clone(), &absent, body()).await;
        walk.brief("by PUT", &owner, Method::PUT, &path, None).await;
        if method == Method::GET {
            walk.brief("by HEAD", &owner, Method::HEAD, &path, None).await;
            for query in ["page[size]=101", "page[number]=-1", "include=no,such", "sort=no", "filter[no]=1", "a=%zz"] {
                walk.brief(&format!("with ?{query}"), &owner, method.clone(), &format!("{path}?{query}"), None).await;
            }
        }
        if writes {
            for body in BODIES.iter().filter(|body| !pattern.ends_with("safe-delete") || !body.contains("no such")) {
                walk.brief(&format!("with {body}"), &owner, method.clone(), &path, Some((*body).to_owned())).await;
            }
            let request = owner.request(method, &path).header("content-type", "text/plain").body("{}");
            walk.recorder.ask_briefly("as text", request).await;
        }
        walk.recorder.blank();
    }
}

/// The name of the id in a pattern's segment.
fn named(segment: &str) -> Option<&'static str> {
    Some(match segment {
        ":project_id" => "project",
        ":workspace_id" => "workspace",
        ":team_id" => "team",
        ":access_id" => "access",
        ":workspace_access_id" => "workspace_access",
        ":agent_pool_id" => "pool",
        ":membership_id" => "membership",
        ":token_id" => "token",
        _ => return None,
    })
}

impl Walk<'_> {
    /// A path of a pattern, with existing names where possible.
    fn path(&self, pattern: &str) -> String {
        let segment = |segment: &str| match segment {
            ":organization_name" => "acme".to_owned(),
            ":workspace_name" => "core".to_owned(),
            ":user_id" => "user-absent".to_owned(),
            segment => named(segment).map_or_else(|| segment.to_owned(), |name| self.id(name)),
        };
        pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
    }
}

/// A path of a pattern that does not exist.
fn example(pattern: &str) -> String {
    let segment = |segment: &str| if segment.starts_with(':') { "absent".to_owned() } else { segment.to_owned() };
    pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
}

async fn ends(walk: &mut Walk<'_>) {
    walk.recorder.heading("everything ends");
    let id = |kind: &str, name: &str| format!("{kind}/{}", walk.id(name));
    let (workspaces, second) = (format!("{ACME}/workspaces"), id("workspaces", "second"));
    let paths = [
        id("team-projects", "access"),
        id("team-workspaces", "workspace_access"),
        id("organization-memberships", "membership"),
        id("teams", "team"),
        id("projects", "project"),
        id("projects", "other"),
        id("workspaces", "workspace"),
        id("agent-pools", "pool"),
    ];
    for path in paths {
        walk.delete(&path).await;
        walk.get(&path).await;
    }
    walk.post(&format!("{second}/actions/safe-delete"), json!({ "data": { "type": "" } })).await;
    for name in ["third", "fourth"] {
        walk.post(&workspaces, resource("workspaces", json!({ "name": name }))).await;
    }
    walk.post(&format!("{workspaces}/third/actions/safe-delete"), json!({ "data": { "type": "" } })).await;
    walk.delete(&format!("{workspaces}/fourth")).await;
    walk.delete(ACME).await;
    walk.get("organizations").await;
}
