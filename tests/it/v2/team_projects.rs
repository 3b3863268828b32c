//! The access of teams to projects.

use serde_json::{Value, json};
use signet::projects::rights::ProjectRights;

use super::fixture::{
    Api, NONE, PROJECTS, Person, World, assert_invalid, assert_refused, attribute, items, link, names, on_both_stores,
    path_of as path, resource, rights, team_access as access, these, total,
};
use crate::support::{Answer, assert_has};

on_both_stores!(
    invalid_project_access_is_rejected,
    fixed_access_levels_have_their_values,
    custom_access_keys_are_merged_and_validated,
    rights_of_several_teams_are_combined,
    workspace_managers_see_the_default_project,
    custom_access_keys_grant_rights,
    project_access_is_visible_and_changeable_by_right,
    project_access_is_listed_by_project,
);

const PATH: &str = "team-projects";

async fn setting(world: &World) -> (Person, String) {
    (world.member("mia", NONE).await, world.project("Net").await)
}

async fn team_count(api: &Api, project: &str) -> Value {
    attribute(&api.get(&format!("projects/{project}")).await, "team-count").clone()
}

async fn invalid_project_access_is_rejected(world: &World) {
    let owner = &world.owner;
    let (mia, project) = setting(world).await;
    let give = async |attributes| owner.post(PATH, access(&mia.team, &project, attributes)).await;
    let named = give(json!({ "access": "read", "workspace-access": { "create": true } })).await;
    assert_invalid(&named, "workspace-access/create", "create can only be set with custom access");
    assert_invalid(&give(json!({ "access": "all" })).await, "access", "Access must be one of");
    assert_invalid(&give(json!({})).await, "access", "Access can't be blank");
    assert_eq!(team_count(owner, &project).await, 0);
    assert_eq!(give(json!({ "access": "read", "project-access": {}, "workspace-access": {} })).await.status, 201);
    let twice = give(json!({ "access": "write" })).await;
    assert_refused(&twice, 422, &[("/data/relationships/team", "Team already has access")]);
    assert_eq!(team_count(owner, &project).await, 1);
    for name in ["team", "project"] {
        let mut body = access(&mia.team, &project, json!({ "access": "read" }));
        body["data"]["relationships"].as_object_mut().unwrap().remove(name);
        let refused = owner.post(PATH, body).await;
        assert_refused(&refused, 422, &[(&format!("/data/relationships/{name}"), &format!("{name} must name"))]);
    }
    for (team, project) in [("team-x", &project[..]), (&mia.team, "prj-x")] {
        assert_eq!(owner.post(PATH, access(team, project, json!({ "access": "read" }))).await.status, 404);
    }
    let other = json!({ "name": "other", "email": "a@b.test" });
    owner.create("organizations", resource("organizations", other)).await;
    let foreign = owner.create("organizations/other/teams", resource("teams", json!({ "name": "t" }))).await;
    assert_eq!(owner.post(PATH, access(&foreign, &project, json!({ "access": "read" }))).await.status, 404);
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

async fn fixed_access_levels_have_their_values(world: &World) {
    let owner = &world.owner;
    let (mia, project) = setting(world).await;
    let made = owner.post(PATH, access(&mia.team, &project, json!({ "access": "read" }))).await;
    assert_eq!((made.status, made.header("location")), (201, &format!("/api/v2/{}", path(&made))[..]));
    assert_eq!((link(&made, "team"), link(&made, "project")), (&json!(mia.team), &json!(project)));
    for (n, level) in ["read", "write", "maintain", "admin", "custom"].into_iter().enumerate() {
        let changed = owner.change(&path(&made), json!({ "access": level })).await;
        assert_eq!((changed.status, attribute(&changed, "access")), (200, &json!(level)));
        assert_level(&changed, n, &[]);
        assert_eq!(owner.get(&path(&made)).await.body, changed.body);
        let granted = mia.api.get(&format!("projects/{project}")).await;
        let granted = attribute(&granted, "permissions");
        let creates = (2..4).contains(&n);
        let all = n == 3;
        let expected = json!({ "can-read": true, "can-update": all, "can-destroy": all, "can-create-workspace": creates,
            "can-move-workspace": all, "can-manage-teams": all });
        assert_has(granted, expected);
    }
}

async fn custom_access_keys_are_merged_and_validated(world: &World) {
    let owner = &world.owner;
    let (mia, project) = setting(world).await;
    let custom = access(&mia.team, &project, json!({ "access": "custom", "project-access": {} }));
    let made = owner.post(PATH, custom).await.assert_status(201);
    assert_level(&made, 4, &[]);
    let change = async |attributes| owner.change(&path(&made), attributes).await;
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
}

async fn rights_of_several_teams_are_combined(world: &World) {
    let owner = &world.owner;
    let (mia, project) = setting(world).await;
    let second = world.team("second").await;
    let users = format!("teams/{second}/relationships/users");
    assert_eq!(owner.post(&users, these("users", &["mia"])).await.status, 204);
    for (team, level) in [(&mia.team, "read"), (&second, "admin")] {
        assert_eq!(owner.post(PATH, access(team, &project, json!({ "access": level }))).await.status, 201);
    }
    let shown = mia.api.get(&format!("projects/{project}")).await;
    assert_eq!(attribute(&shown, "permissions")["can-destroy"], true);
    assert_eq!(attribute(&shown, "team-count"), 2);
    let of_team = owner.token_for(&format!("teams/{}", mia.team)).await;
    let shown = of_team.get(&format!("projects/{project}")).await;
    assert_eq!(attribute(&shown, "permissions")["can-destroy"], false, "a team's token is the team alone");
}

async fn workspace_managers_see_the_default_project(world: &World) {
    world.project("Net").await;
    let manager = world.member("mara", rights(&["manage-workspaces"])).await;
    let token = world.owner.token_for(&format!("teams/{}", manager.team)).await;
    let list = token.get(PROJECTS).await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 1, "matching": 1 }));
    assert_eq!(names(&list), ["Default Project"]);
    let permissions = &items(&list)[0]["attributes"]["permissions"];
    assert_eq!((&permissions["can-create-workspace"], &permissions["can-update"]), (&json!(true), &json!(false)));
}

async fn custom_access_keys_grant_rights(world: &World) {
    let owner = &world.owner;
    let (mia, project) = setting(world).await;
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
        assert_eq!(owner.change(&path(&made), keys.clone()).await.status, 200);
        let answer = mia.api.get(&shown).await;
        for name in ["can-update", "can-destroy", "can-create-workspace", "can-move-workspace", "can-manage-teams"] {
            assert_eq!(attribute(&answer, "permissions")[name], granted.contains(&name), "{keys} {name}");
        }
    }
}

async fn project_access_is_visible_and_changeable_by_right(world: &World) {
    let owner = &world.owner;
    let (mia, project) = setting(world).await;
    let otto = world.member("otto", NONE).await;
    let admin = world.member("ada", NONE).await;
    world.grant(&admin.team, &project, ProjectRights::ALL).await;
    let outsider = world.outsider("xaver").await.api;
    let given = admin.api.post(PATH, access(&admin.team, &project, json!({ "access": "read" }))).await;
    assert_eq!(given.status, 422, "its own team has some");
    // A project manager cannot name teams that are hidden from them.
    admin.api.post(PATH, access(&mia.team, &project, json!({ "access": "read" }))).await.assert_status(404);
    let visible = resource("teams", json!({ "visibility": "organization" }));
    for team in [&mia.team, &admin.team] {
        assert_eq!(owner.patch(&format!("teams/{team}"), visible.clone()).await.status, 200);
    }
    let given = admin.api.post(PATH, access(&mia.team, &project, json!({ "access": "read" }))).await.assert_status(201);
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
    let list = format!("{PATH}?filter[project][id]={project}");
    let count = async |api: &Api| total(&api.get(&list).await).clone();
    assert_eq!((count(&admin.api).await, count(&mia.api).await), (json!(2), json!(1)));
    let reads = json!({ "access": "custom", "project-access": { "teams": "read" } });
    assert_eq!(admin.api.change(&path, reads).await.status, 200);
    assert_eq!(count(&mia.api).await, 2, "with teams: read");
    assert_eq!((admin.api.delete(&path).await.status, admin.api.delete(&path).await.status), (204, 404));
    assert_eq!(team_count(owner, &project).await, 1);
}

async fn project_access_is_listed_by_project(world: &World) {
    let owner = &world.owner;
    let (mia, project) = setting(world).await;
    let other = world.project("Other").await;
    let first = owner.post(PATH, access(&mia.team, &project, json!({ "access": "read" }))).await;
    owner.post(PATH, access(&mia.team, &other, json!({ "access": "read" }))).await;
    let otto = world.member("otto", NONE).await;
    let second = owner.post(PATH, access(&otto.team, &project, json!({ "access": "admin" }))).await;
    let list = owner.get(&format!("{PATH}?filter%5Bproject%5D%5Bid%5D={project}")).await;
    assert_eq!(list.body["data"], json!([second.body["data"], first.body["data"]]), "newest first");
    assert!(list.body["links"]["self"].as_str().unwrap().contains(&format!("filter%5Bproject%5D%5Bid%5D={project}")));
    assert_refused(&owner.get(PATH).await, 400, &[("filter[project][id]", "filter[project][id] is required")]);
    assert_eq!(owner.get(&format!("{PATH}?filter[project][id]=prj-x")).await.status, 404);
    assert_eq!(otto.api.get(&format!("{PATH}?filter[project][id]={other}")).await.status, 404);
}
