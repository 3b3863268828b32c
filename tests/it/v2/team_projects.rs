//! The access of teams to projects.

use serde_json::{Value, json};
use signet::projects::rights::{OrganizationRights, ProjectRights};

use super::fixture::{Api, Person, World, assert_refused, attribute, on_both_stores, resource};
use crate::support::Answer;

on_both_stores!(
    invalid_project_access_is_rejected,
    fixed_access_levels_have_their_values,
    custom_access_keys_are_merged_and_validated,
    rights_of_several_teams_are_combined,
    workspace_managers_see_the_default_project,
    custom_keys_are_rights,
    project_access_is_visible_and_changeable_by_right,
    listed_by_project,
);

const PATH: &str = "team-projects";

fn access(team: &str, project: &str, attributes: Value) -> Value {
    let mut body = resource("team-projects", attributes);
    body["data"]["relationships"] = json!({
        "team": { "data": { "id": team, "type": "teams" } },
        "project": { "data": { "id": project, "type": "projects" } },
    });
    body
}

async fn setting(world: &World) -> (Person, String) {
    (world.member("mia", OrganizationRights::NONE).await, world.project("Net").await)
}

fn path(answer: &Answer) -> String {
    format!("{PATH}/{}", answer.body["data"]["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text)))
}

async fn team_count(api: &Api, project: &str) -> Value {
    attribute(&api.get(&format!("projects/{project}")).await, "team-count").clone()
}

async fn invalid_project_access_is_rejected(world: World) {
    let owner = &world.owner;
    let (mia, project) = setting(&world).await;
    let give = async |attributes| owner.post(PATH, access(&mia.team, &project, attributes)).await;
    let place = "/data/attributes/workspace-access/create";
    let named = give(json!({ "access": "read", "workspace-access": { "create": true } })).await;
    assert_refused(&named, 422, &[(place, "create can only be set with custom access")]);
    let level = "/data/attributes/access";
    assert_refused(&give(json!({ "access": "all" })).await, 422, &[(level, "Access must be one of")]);
    assert_refused(&give(json!({})).await, 422, &[(level, "Access can't be blank")]);
    assert_eq!(team_count(owner, &project).await, 0);
    assert_eq!(give(json!({ "access": "read", "project-access": {}, "workspace-access": {} })).await.status, 201);
    let twice = give(json!({ "access": "write" })).await;
    assert_refused(&twice, 422, &[("/data/relationships/team", "Team already has access")]);
    assert_eq!(team_count(owner, &project).await, 1);
    let without = |name: &str| {
        let mut body = access(&mia.team, &project, json!({ "access": "read" }));
        body["data"]["relationships"].as_object_mut().unwrap().remove(name);
        body
    };
    for name in ["team", "project"] {
        let refused = owner.post(PATH, without(name)).await;
        assert_refused(&refused, 422, &[(&format!("/data/relationships/{name}"), &format!("{name} must name"))]);
    }
    for (team, project) in [("team-x", &project[..]), (&mia.team, "prj-x")] {
        assert_eq!(owner.post(PATH, access(team, project, json!({ "access": "read" }))).await.status, 404);
    }
    let other = json!({ "name": "other", "email": "a@b.test" });
    owner.post("organizations", resource("organizations", other)).await;
    let foreign = owner.post("organizations/other/teams", resource("teams", json!({ "name": "t" }))).await;
    let foreign = foreign.body["data"]["id"].as_str().unwrap();
    assert_eq!(owner.post(PATH, access(foreign, &project, json!({ "access": "read" }))).await.status, 404);
    world.app.stop().await;
}

/// Every key and its value at each level: read, write, maintain, admin, custom.
fn table() -> Vec<(&'static str, &'static str, [Value; 5])> {
    let words = |words: [&str; 5]| words.map(Value::from);
    let flags = |flags: [u8; 5]| flags.map(|flag| Value::from(flag == 1));
    let project = "project-access";
    let workspace = "workspace-access";
    vec![
        (project, "settings", words(["read", "read", "read", "delete", "read"])),
        (project, "teams", words(["none", "none", "none", "manage", "none"])),
        (project, "variable-sets", words(["read", "read", "write", "write", "none"])),
        (workspace, "runs", words(["read", "apply", "apply", "apply", "read"])),
        (workspace, "sentinel-mocks", words(["none", "read", "read", "read", "none"])),
        (workspace, "state-versions", words(["read", "write", "write", "write", "none"])),
        (workspace, "variables", words(["read", "write", "write", "write", "none"])),
        (workspace, "create", flags([0, 0, 1, 1, 0])),
        (workspace, "locking", flags([0, 1, 1, 1, 0])),
        (workspace, "delete", flags([0, 0, 1, 1, 0])),
        (workspace, "move", flags([0, 0, 0, 1, 0])),
        (workspace, "run-tasks", flags([0, 0, 1, 1, 0])),
        (workspace, "policy-overrides", flags([0, 0, 0, 1, 0])),
    ]
}

/// Asserts that a response has a level's values, except for the keys in `but`.
#[track_caller]
fn assert_level(answer: &Answer, level: usize, but: &[(&str, &str, Value)]) {
    let mut keys = 0;
    for (block, key, values) in table() {
        let other = but.iter().find(|(b, k, _)| (*b, *k) == (block, key)).map(|(.., value)| value);
        assert_eq!(&attribute(answer, block)[key], other.unwrap_or(&values[level]), "{key}: {}", answer.text);
        keys += 1;
    }
    let shown = ["project-access", "workspace-access"].map(|block| attribute(answer, block).as_object().unwrap().len());
    assert_eq!(shown[0] + shown[1], keys);
}

async fn fixed_access_levels_have_their_values(world: World) {
    let owner = &world.owner;
    let (mia, project) = setting(&world).await;
    let made = owner.post(PATH, access(&mia.team, &project, json!({ "access": "read" }))).await;
    assert_eq!((made.status, made.header("location")), (201, &format!("/api/v2/{}", path(&made))[..]));
    assert_eq!(made.body["data"]["relationships"]["team"]["data"]["id"], json!(mia.team));
    assert_eq!(made.body["data"]["relationships"]["project"]["data"]["id"], json!(project));
    for (n, level) in ["read", "write", "maintain", "admin", "custom"].into_iter().enumerate() {
        let changed = owner.patch(&path(&made), resource("team-projects", json!({ "access": level }))).await;
        assert_eq!((changed.status, attribute(&changed, "access")), (200, &json!(level)));
        assert_level(&changed, n, &[]);
        assert_eq!(owner.get(&path(&made)).await.body, changed.body);
        let granted = mia.api.get(&format!("projects/{project}")).await;
        let granted = attribute(&granted, "permissions");
        let creates = (2..4).contains(&n);
        let all = n == 3;
        for (name, expected) in [
            ("can-read", true),
            ("can-update", all),
            ("can-destroy", all),
            ("can-create-workspace", creates),
            ("can-move-workspace", all),
            ("can-manage-teams", all),
        ] {
            assert_eq!(granted[name], expected, "{level} {name}");
        }
    }
    world.app.stop().await;
}

async fn custom_access_keys_are_merged_and_validated(world: World) {
    let owner = &world.owner;
    let (mia, project) = setting(&world).await;
    let made = owner.post(PATH, access(&mia.team, &project, json!({ "access": "custom", "project-access": {} }))).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_level(&made, 4, &[]);
    let change = async |attributes| owner.patch(&path(&made), resource("team-projects", attributes)).await;
    let named = ("project-access", "variable-sets", json!("read"));
    let only = change(json!({ "project-access": { "variable-sets": "read" } })).await;
    assert_level(&only, 4, std::slice::from_ref(&named));
    let more = change(json!({ "access": "custom", "workspace-access": { "runs": "plan", "locking": null } })).await;
    assert_level(&more, 4, &[named, ("workspace-access", "runs", json!("plan"))]);
    assert_level(&change(json!({ "access": "read" })).await, 0, &[]);
    assert_eq!(change(json!({ "workspace-access": { "runs": "apply" } })).await.status, 422, "a level has its own");
    assert_level(&change(json!({ "access": "custom" })).await, 4, &[]);
    let again = change(json!({ "access": "custom", "workspace-access": { "create": true } })).await;
    assert_level(&again, 4, &[("workspace-access", "create", json!(true))]);
    let wrong = change(json!({ "project-access": { "teams": "x" }, "workspace-access": { "move": "true" } })).await;
    let faults = [
        ("/data/attributes/project-access/teams", "teams must be one of none, read, manage"),
        ("/data/attributes/workspace-access/move", "move must be one of"),
    ];
    assert_refused(&wrong, 422, &faults);
    assert_eq!(owner.get(&path(&made)).await.body, again.body, "nothing of it was stored");
    world.app.stop().await;
}

async fn rights_of_several_teams_are_combined(world: World) {
    let owner = &world.owner;
    let (mia, project) = setting(&world).await;
    let second = owner.post("organizations/acme/teams", resource("teams", json!({ "name": "second" }))).await;
    let second = second.body["data"]["id"].as_str().unwrap().to_owned();
    let users = json!({ "data": [{ "type": "users", "id": "mia" }] });
    assert_eq!(owner.post(&format!("teams/{second}/relationships/users"), users).await.status, 204);
    for (team, level) in [(&mia.team, "read"), (&second, "admin")] {
        assert_eq!(owner.post(PATH, access(team, &project, json!({ "access": level }))).await.status, 201);
    }
    let shown = mia.api.get(&format!("projects/{project}")).await;
    assert_eq!(attribute(&shown, "permissions")["can-destroy"], true);
    assert_eq!(attribute(&shown, "team-count"), 2);
    let token =
        owner.post(&format!("teams/{}/authentication-token", mia.team), json!({ "data": { "type": "" } })).await;
    let of_team = owner.with_token(attribute(&token, "token").as_str().unwrap());
    let shown = of_team.get(&format!("projects/{project}")).await;
    assert_eq!(attribute(&shown, "permissions")["can-destroy"], false, "a team's token is the team alone");
    world.app.stop().await;
}

async fn workspace_managers_see_the_default_project(world: World) {
    world.project("Net").await;
    let flags = json!({ "name": "workspaces", "organization-access": { "manage-workspaces": true } });
    let team = world.owner.post("organizations/acme/teams", resource("teams", flags)).await;
    let team = team.body["data"]["id"].as_str().unwrap();
    let token =
        world.owner.post(&format!("teams/{team}/authentication-token"), json!({ "data": { "type": "" } })).await;
    let list =
        world.owner.with_token(attribute(&token, "token").as_str().unwrap()).get("organizations/acme/projects").await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 1, "matching": 1 }));
    assert_eq!(list.body["data"][0]["attributes"]["name"], "Default Project");
    assert_eq!(list.body["data"][0]["attributes"]["permissions"]["can-create-workspace"], true);
    assert_eq!(list.body["data"][0]["attributes"]["permissions"]["can-update"], false);
    world.app.stop().await;
}

async fn custom_keys_are_rights(world: World) {
    let owner = &world.owner;
    let (mia, project) = setting(&world).await;
    let made = owner.post(PATH, access(&mia.team, &project, json!({ "access": "custom" }))).await;
    let shown = format!("projects/{project}");
    for (keys, granted) in [
        (json!({ "project-access": { "settings": "update" } }), vec!["can-update"]),
        (json!({ "project-access": { "settings": "delete" } }), vec!["can-update", "can-destroy"]),
        (json!({ "project-access": { "settings": "read", "teams": "read" } }), vec![]),
        (json!({ "project-access": { "teams": "manage" } }), vec!["can-manage-teams"]),
        (
            json!({ "project-access": { "teams": "none" }, "workspace-access": { "create": true, "move": true } }),
            vec!["can-create-workspace", "can-move-workspace"],
        ),
    ] {
        assert_eq!(owner.patch(&path(&made), resource("team-projects", keys.clone())).await.status, 200);
        let answer = mia.api.get(&shown).await;
        for name in ["can-update", "can-destroy", "can-create-workspace", "can-move-workspace", "can-manage-teams"] {
            assert_eq!(attribute(&answer, "permissions")[name], granted.contains(&name), "{keys} {name}");
        }
    }
    world.app.stop().await;
}

async fn project_access_is_visible_and_changeable_by_right(world: World) {
    let owner = &world.owner;
    let (mia, project) = setting(&world).await;
    let otto = world.member("otto", OrganizationRights::NONE).await;
    let admin = world.member("ada", OrganizationRights::NONE).await;
    world.grant(&admin.team, &project, ProjectRights::ALL).await;
    let outsider = world.outsider("xaver").await.api;
    let given = admin.api.post(PATH, access(&admin.team, &project, json!({ "access": "read" }))).await;
    assert_eq!(given.status, 422, "its own team has some");
    // A project manager cannot name teams that are hidden from them.
    let hidden = admin.api.post(PATH, access(&mia.team, &project, json!({ "access": "read" }))).await;
    assert_eq!(hidden.status, 404);
    let visible = resource("teams", json!({ "visibility": "organization" }));
    for team in [&mia.team, &admin.team] {
        assert_eq!(owner.patch(&format!("teams/{team}"), visible.clone()).await.status, 200);
    }
    let given = admin.api.post(PATH, access(&mia.team, &project, json!({ "access": "read" }))).await;
    assert_eq!(given.status, 201, "{}", given.text);
    let path = path(&given);
    assert_eq!(mia.api.get(&path).await.body, given.body, "one's own");
    for api in [&otto.api, &outsider] {
        assert_eq!(api.get(&path).await.status, 404);
    }
    let change = || resource("team-projects", json!({ "access": "admin" }));
    for api in [&mia.api, &otto.api, &outsider] {
        assert_eq!((api.patch(&path, change()).await.status, api.delete(&path).await.status), (404, 404));
        assert_eq!(api.post(PATH, access(&otto.team, &project, json!({ "access": "x" }))).await.status, 404);
    }
    let count = |list: &Answer| list.body["meta"]["pagination"]["total-count"].as_i64().unwrap();
    let list = format!("{PATH}?filter[project][id]={project}");
    assert_eq!((count(&admin.api.get(&list).await), count(&mia.api.get(&list).await)), (2, 1));
    let reads = json!({ "access": "custom", "project-access": { "teams": "read" } });
    assert_eq!(admin.api.patch(&path, resource("team-projects", reads)).await.status, 200);
    assert_eq!(count(&mia.api.get(&list).await), 2, "with teams: read");
    assert_eq!((admin.api.delete(&path).await.status, admin.api.delete(&path).await.status), (204, 404));
    assert_eq!(team_count(owner, &project).await, 1);
    world.app.stop().await;
}

async fn listed_by_project(world: World) {
    let owner = &world.owner;
    let (mia, project) = setting(&world).await;
    let other = world.project("Other").await;
    let first = owner.post(PATH, access(&mia.team, &project, json!({ "access": "read" }))).await;
    owner.post(PATH, access(&mia.team, &other, json!({ "access": "read" }))).await;
    let otto = world.member("otto", OrganizationRights::NONE).await;
    let second = owner.post(PATH, access(&otto.team, &project, json!({ "access": "admin" }))).await;
    let list = owner.get(&format!("{PATH}?filter%5Bproject%5D%5Bid%5D={project}")).await;
    assert_eq!(list.body["data"], json!([second.body["data"], first.body["data"]]), "newest first");
    assert!(list.body["links"]["self"].as_str().unwrap().contains(&format!("filter%5Bproject%5D%5Bid%5D={project}")));
    assert_refused(&owner.get(PATH).await, 400, &[("filter[project][id]", "filter[project][id] is required")]);
    assert_eq!(owner.get(&format!("{PATH}?filter[project][id]=prj-x")).await.status, 404);
    assert_eq!(otto.api.get(&format!("{PATH}?filter[project][id]={other}")).await.status, 404);
    world.app.stop().await;
}
