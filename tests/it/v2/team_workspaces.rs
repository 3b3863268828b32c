//! The access of teams to single workspaces.

use serde_json::{Value, json};
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};

use super::fixture::{
    Api, NONE, PROJECTS, Person, TEAMS, WORKSPACES, World, assert_invalid, assert_refused, attribute, id_of, items,
    no_attributes, on_both_stores, path_of, resource, team_access, these, total, workspace_access,
};
use super::routes::access_to;
use crate::support::{Answer, assert_has};

on_both_stores!(
    invalid_workspace_access_is_rejected_with_the_field,
    fixed_levels_have_their_values,
    custom_access_keys_are_stored,
    access_to_one_workspace_shows_it_and_no_other,
    workspace_access_levels_grant_rights,
    lists_of_workspaces_join_projects_and_access,
    workspace_access_is_visible_and_changeable_by_right,
    workspace_access_is_granted_up_to_the_own_access,
    access_ends_with_its_team_and_its_workspace,
);

const PATH: &str = "team-workspaces";

async fn grant_access(api: &Api, team: &str, workspace: &str, attributes: Value) -> Answer {
    api.post(PATH, workspace_access(team, workspace, attributes)).await
}

async fn granted_access_id(world: &World, team: &str, workspace: &str, attributes: Value) -> String {
    path_of(&grant_access(&world.owner, team, workspace, attributes).await.assert_status(201))
}

fn change(attributes: Value) -> Value {
    resource(PATH, attributes)
}

/// The names in a list of one page.
fn names(list: &Answer) -> Vec<String> {
    assert_eq!(total(list), items(list).len(), "{}", list.text);
    super::fixture::names(list)
}

async fn setting(world: &World) -> (Person, String) {
    (world.member("mia", NONE).await, world.workspace("", "alone").await)
}

async fn invalid_workspace_access_is_rejected_with_the_field(world: &World) {
    let owner = &world.owner;
    let (mia, workspace) = setting(world).await;
    let grant_access = async |attributes| grant_access(owner, &mia.team, &workspace, attributes).await;
    let named = grant_access(json!({ "access": "read", "runs": "apply" })).await;
    assert_invalid(&named, "runs", "runs can only be set with custom access");
    assert_invalid(&grant_access(json!({ "access": "maintain" })).await, "access", "Access must be one of read, plan");
    assert_invalid(&grant_access(json!({})).await, "access", "Access can't be blank");
    let wrong = grant_access(json!({ "access": "custom", "runs": "all", "workspace-locking": "true" })).await;
    let faults = [
        ("/data/attributes/runs", "runs must be one of read, plan, apply"),
        ("/data/attributes/workspace-locking", "workspace-locking must be one of false, true"),
    ];
    assert_refused(&wrong, 422, &faults);
    assert_eq!(grant_access(json!({ "access": "read", "runs": "read", "run-tasks": null })).await.status, 201);
    let twice = grant_access(json!({ "access": "write" })).await;
    assert_refused(&twice, 422, &[("/data/relationships/team", "Team already has access to the workspace")]);
    for name in ["team", "workspace"] {
        let mut body = access_to(&mia.team, &workspace);
        body["data"]["relationships"].as_object_mut().unwrap().remove(name);
        let refused = owner.post(PATH, body).await;
        assert_refused(&refused, 422, &[(&format!("/data/relationships/{name}"), &format!("{name} must name"))]);
    }
    for (team, workspace) in [("team-x", &workspace[..]), (&mia.team, "ws-x")] {
        assert_eq!(owner.post(PATH, access_to(team, workspace)).await.status, 404);
    }
    let other = json!({ "name": "other", "email": "a@b.test" });
    owner.create("organizations", resource("organizations", other)).await;
    let foreign = owner.create("organizations/other/teams", resource("teams", json!({ "name": "t" }))).await;
    assert_eq!(owner.post(PATH, access_to(&foreign, &workspace)).await.status, 404);
    assert_refused(&owner.get(PATH).await, 400, &[("filter[workspace][id]", "filter[workspace][id] is required")]);
    assert_eq!(owner.get(&format!("{PATH}?filter[workspace][id]=ws-x")).await.status, 404);
}

async fn fixed_levels_have_their_values(world: &World) {
    let owner = &world.owner;
    let (mia, workspace) = setting(world).await;
    let path = granted_access_id(world, &mia.team, &workspace, json!({ "access": "read" })).await;
    assert!(path.starts_with("team-workspaces/tws-"), "{path}");
    for (level, values) in [
        ("read", json!(["read", "read", "read", "none", false, false, false])),
        ("plan", json!(["plan", "read", "read", "none", false, false, false])),
        ("write", json!(["apply", "write", "write", "read", true, false, false])),
        ("admin", json!(["apply", "write", "write", "read", true, true, true])),
    ] {
        let changed = owner.patch(&path, change(json!({ "access": level }))).await.assert_status(200);
        let keys = ["runs", "variables", "state-versions", "sentinel-mocks", "workspace-locking", "run-tasks"];
        let shown: Vec<&Value> = keys.iter().chain(&["policy-overrides"]).map(|key| attribute(&changed, key)).collect();
        assert_eq!((attribute(&changed, "access"), json!(shown)), (&json!(level), values));
        assert_eq!(owner.get(&path).await.body, changed.body);
    }
    let shown = owner.get(&path).await;
    let related = &shown.body["data"]["relationships"];
    assert_eq!(related["team"]["data"], json!({ "type": "teams", "id": mia.team }));
    assert_eq!(related["workspace"]["data"], json!({ "type": "workspaces", "id": workspace }));
}

async fn custom_access_keys_are_stored(world: &World) {
    let owner = &world.owner;
    let (mia, workspace) = setting(world).await;
    let custom = json!({ "access": "custom", "runs": "plan", "workspace-locking": true });
    let path = granted_access_id(world, &mia.team, &workspace, custom).await;
    let shown = owner.patch(&path, change(json!({ "variables": "read" }))).await;
    let custom = json!({ "access": "custom", "runs": "plan", "variables": "read", "state-versions": "none",
        "workspace-locking": true });
    assert_has(&shown.body["data"]["attributes"], custom);
    let seen = mia.api.get(&format!("workspaces/{workspace}")).await;
    let permissions = json!({ "can-queue-run": true, "can-queue-apply": false, "can-read-variable": true,
        "can-update-variable": false, "can-read-state-versions": false, "can-lock": true, "can-update": false,
        "can-force-delete": false });
    assert_has(attribute(&seen, "permissions"), permissions);
}

async fn access_to_one_workspace_shows_it_and_no_other(world: &World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let one = world.workspace(&project, "one").await;
    let other = world.workspace(&project, "two").await;
    let mia = world.member("mia", NONE).await;
    let show = async |id: &str| mia.api.get(&format!("workspaces/{id}")).await.status;
    assert_eq!((show(&one).await, names(&mia.api.get(WORKSPACES).await)), (404, Vec::new()));
    let path = granted_access_id(world, &mia.team, &one, json!({ "access": "read" })).await;
    assert_eq!((show(&one).await, show(&other).await), (200, 404));
    assert_eq!(mia.api.get(&format!("{WORKSPACES}/one")).await.status, 200);
    for query in ["", "?search[name]=o", &format!("?filter[project][id]={project}"), "?page[number]=1"] {
        assert_eq!(names(&mia.api.get(&format!("{WORKSPACES}{query}")).await), ["one"], "{query}");
    }
    // Neither the project nor its other workspaces are visible.
    assert_eq!(mia.api.get(&format!("projects/{project}")).await.status, 404);
    let included = mia.api.get(&format!("workspaces/{one}?include=project")).await;
    assert_eq!((included.status, &included.body["included"]), (200, &json!([])), "{}", included.text);
    assert_eq!(names(&mia.api.get(PROJECTS).await), Vec::<String>::new());
    let spare = world.project("Spare").await;
    let moved = these("workspaces", &[&one]);
    assert_eq!(owner.post(&format!("projects/{spare}/relationships/workspaces"), moved).await.status, 204);
    assert_eq!(show(&one).await, 200);
    assert_eq!(owner.delete(&path).await.status, 204);
    assert_eq!((show(&one).await, names(&mia.api.get(WORKSPACES).await)), (404, Vec::new()));
}

async fn workspace_access_levels_grant_rights(world: &World) {
    let (mia, workspace) = setting(world).await;
    let path = granted_access_id(world, &mia.team, &workspace, json!({ "access": "read" })).await;
    let own = format!("workspaces/{workspace}");
    let update = async || mia.api.change(&own, json!({ "description": "mine" })).await.status;
    for (level, locks, updates) in [("read", 404, 404), ("plan", 404, 404), ("write", 200, 404), ("admin", 200, 200)] {
        world.owner.patch(&path, change(json!({ "access": level }))).await.assert_status(200);
        assert_eq!(mia.api.act(&workspace, "lock").await.status, locks, "{level}");
        assert_eq!(mia.api.act(&workspace, "unlock").await.status, locks, "{level}");
        assert_eq!(update().await, updates, "{level}");
    }
    for (level, deleted) in [("write", 404), ("admin", 204)] {
        assert_eq!(world.owner.patch(&path, change(json!({ "access": level }))).await.status, 200);
        assert_eq!(mia.api.delete(&own).await.status, deleted, "{level}");
    }
}

async fn lists_of_workspaces_join_projects_and_access(world: &World) {
    let project = world.project("Net").await;
    for name in ["a", "d"] {
        world.workspace(&project, name).await;
    }
    let b = world.workspace("", "b").await;
    world.workspace("", "c").await;
    let mia = world.member("mia", NONE).await;
    world.grant(&mia.team, &project, ProjectRights::READ).await;
    granted_access_id(world, &mia.team, &b, json!({ "access": "read" })).await;
    assert_eq!(names(&mia.api.get(WORKSPACES).await), ["a", "b", "d"]);
    assert_eq!(names(&mia.api.get(&format!("{WORKSPACES}?sort=-name")).await), ["d", "b", "a"]);
    let default = &world.default_project().await;
    let of = async |projects: &str| names(&mia.api.get(&format!("{WORKSPACES}?filter[project][id]={projects}")).await);
    assert_eq!(of(default).await, ["b"]);
    assert_eq!(of(&project).await, ["a", "d"]);
    assert_eq!(of(&format!("{default},{project}")).await, ["a", "b", "d"]);
    let page = mia.api.get(&format!("{WORKSPACES}?page[size]=1&page[number]=2")).await;
    assert_eq!(page.body["data"][0]["attributes"]["name"], "b");
    assert_eq!(total(&page), 3);
    let a = id_of(&world.owner.get(&format!("{WORKSPACES}/a")).await);
    granted_access_id(world, &mia.team, &a, json!({ "access": "admin" })).await;
    assert_eq!(names(&mia.api.get(WORKSPACES).await), ["a", "b", "d"]);
}

async fn workspace_access_is_visible_and_changeable_by_right(world: &World) {
    let owner = &world.owner;
    let (mia, workspace) = setting(world).await;
    let adam = world.member("adam", NONE).await;
    let otto = world.member("otto", NONE).await;
    let own = granted_access_id(world, &adam.team, &workspace, json!({ "access": "admin" })).await;
    let path = granted_access_id(world, &mia.team, &workspace, json!({ "access": "read" })).await;
    let list = format!("{PATH}?filter[workspace][id]={workspace}");
    let count = async |api: &Api| total(&api.get(&list).await).clone();
    // The people's teams are secret, so the workspace's administrator does not see Mia's.
    assert_eq!((count(owner).await, count(&adam.api).await, count(&mia.api).await), (json!(2), json!(1), json!(1)));
    assert_eq!(adam.api.get(&path).await.status, 404);
    assert_eq!(owner.change(&format!("teams/{}", mia.team), json!({ "visibility": "organization" })).await.status, 200);
    assert_eq!((count(&adam.api).await, count(&mia.api).await), (json!(2), json!(1)));
    assert_eq!((mia.api.get(&path).await.status, mia.api.get(&own).await.status), (200, 404));
    let one = owner.get(&format!("{list}&filter[team][id]={}", mia.team)).await;
    assert_eq!(one.body["data"], json!([owner.get(&path).await.body["data"]]));
    assert_refused(&owner.get(&format!("{list}&filter[x]=1")).await, 400, &[("filter[x]", "")]);
    let write = || change(json!({ "access": "write" }));
    for api in [&mia.api, &otto.api] {
        assert_eq!((api.patch(&path, write()).await.status, api.delete(&path).await.status), (404, 404));
        assert_eq!(grant_access(api, &mia.team, &workspace, json!({ "access": "read" })).await.status, 404);
    }
    assert_eq!(otto.api.get(&list).await.status, 404);
    assert_eq!(adam.api.patch(&path, write()).await.status, 200);
    assert_eq!((adam.api.delete(&path).await.status, adam.api.delete(&path).await.status), (204, 404));
    assert_eq!(grant_access(&adam.api, &mia.team, &workspace, json!({ "access": "admin" })).await.status, 201);
    assert_eq!(adam.api.delete(&own).await.status, 204, "their own right is theirs to give up");
    assert_eq!(adam.api.get(&list).await.status, 404);
}

async fn workspace_access_is_granted_up_to_the_own_access(world: &World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let workspace = world.workspace(&project, "w").await;
    let team = resource("teams", json!({ "name": "target", "visibility": "organization" }));
    let target = owner.create(TEAMS, team).await;
    // `maintain` on the project includes administration of its workspaces, but not policy overrides.
    let mara = world.member("mara", NONE).await;
    owner.create("team-projects", team_access(&mara.team, &project, json!({ "access": "maintain" }))).await;
    let beyond = "you may not grant a team rights that you do not have yourself";
    let refused = grant_access(&mara.api, &target, &workspace, json!({ "access": "admin" })).await;
    assert_refused(&refused, 403, &[("", beyond)]);
    assert_eq!(grant_access(&mara.api, &target, &workspace, json!({ "access": "write" })).await.status, 201);
    // Managers of teams or memberships do not become workspace administrators through a team.
    let manager = world.member("tom", NONE.with(Flag::ManageTeams, true)).await;
    let people = world.member("pia", NONE.with(Flag::ManageMembership, true)).await;
    let token = format!("teams/{target}/authentication-token");
    let users = format!("teams/{target}/relationships/users");
    let make = async |api: &Api| api.post(&token, no_attributes()).await;
    let join = async |api: &Api| api.post(&users, these("users", &["pia"])).await;
    let more = "the team has rights that you lack";
    assert_refused(&make(&manager.api).await, 403, &[("", more)]);
    assert_refused(&join(&people.api).await, 403, &[("", more)]);
    // With the same access of their own they may.
    let mut own = Vec::new();
    for person in [&manager, &people] {
        own.push(granted_access_id(world, &person.team, &workspace, json!({ "access": "plan" })).await);
    }
    assert_refused(&make(&manager.api).await, 403, &[("", more)]);
    for path in own {
        assert_eq!(owner.patch(&path, change(json!({ "access": "write" }))).await.status, 200);
    }
    assert_eq!(make(&manager.api).await.status, 201);
    assert_eq!(join(&people.api).await.status, 204);
}

async fn access_ends_with_its_team_and_its_workspace(world: &World) {
    let owner = &world.owner;
    let (mia, one) = setting(world).await;
    let two = world.workspace("", "two").await;
    let rows = async || world.value::<i64>("SELECT count(*) FROM team_workspace_access").await;
    let path = granted_access_id(world, &mia.team, &one, json!({ "access": "admin" })).await;
    granted_access_id(world, &mia.team, &two, json!({ "access": "read" })).await;
    assert_eq!(owner.delete(&format!("workspaces/{one}")).await.status, 204);
    assert_eq!((owner.get(&path).await.status, rows().await), (404, 1));
    assert_eq!(owner.delete(&format!("teams/{}", mia.team)).await.status, 204);
    assert_eq!(rows().await, 0);
    // More rows than one transaction deletes: effective immediately, too.
    let otto = world.member("otto", NONE).await;
    world.many_workspaces(&world.default_project().await, 600).await;
    world
        .execute(format!(
            "INSERT INTO team_workspace_access (ext_id, team_id, workspace_id, access)
             SELECT 'tws-' || w.ext_id, t.id, w.id, 'read' FROM teams t, workspaces w
             WHERE t.ext_id = '{}' AND w.name LIKE 'many-%'",
            otto.team
        ))
        .await;
    let list = otto.api.get(WORKSPACES).await;
    assert_eq!(total(&list), 600, "{}", list.text);
    assert_eq!(owner.delete(&format!("teams/{}", otto.team)).await.status, 204);
    assert_eq!(total(&otto.api.get(WORKSPACES).await), 0);
}
