//! The access of teams to single workspaces.

use reqwest::Method;
use serde_json::{Value, json};
use signet::projects::id;
use signet::projects::rights::{Flag, OrganizationRights, ProjectRights};

use super::fixture::{Api, Person, World, assert_refused, attribute, on_both_stores, resource};
use super::routes::access_to;
use crate::support::{Answer, send};

on_both_stores!(
    invalid_workspace_access_is_rejected_with_the_field,
    fixed_levels_have_their_values,
    custom_access_keys_are_stored,
    access_to_one_workspace_shows_it_and_no_other,
    levels_are_rights_on_the_workspace,
    lists_of_workspaces_join_projects_and_access,
    workspace_access_is_visible_and_changeable_by_right,
    workspace_access_is_granted_up_to_the_own_access,
    access_ends_with_its_team_and_its_workspace,
);

const PATH: &str = "team-workspaces";
const WORKSPACES: &str = "organizations/acme/workspaces";
const NONE: OrganizationRights = OrganizationRights::NONE;

async fn workspace(world: &World, name: &str, project: Option<&str>) -> String {
    let mut body = resource("workspaces", json!({ "name": name }));
    if let Some(project) = project {
        body["data"]["relationships"] = json!({ "project": { "data": { "type": "projects", "id": project } } });
    }
    let made = world.owner.post(WORKSPACES, body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    made.body["data"]["id"].as_str().unwrap().to_owned()
}

async fn give(api: &Api, team: &str, workspace: &str, attributes: Value) -> Answer {
    let mut body = access_to(team, workspace);
    body["data"]["attributes"] = attributes;
    api.post(PATH, body).await
}

async fn given(world: &World, team: &str, workspace: &str, attributes: Value) -> String {
    let answer = give(&world.owner, team, workspace, attributes).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    format!("{PATH}/{}", answer.body["data"]["id"].as_str().unwrap())
}

fn change(attributes: Value) -> Value {
    resource(PATH, attributes)
}

fn names(list: &Answer) -> Vec<String> {
    assert_eq!(list.status, 200, "{}", list.text);
    let items = list.body["data"].as_array().unwrap();
    assert_eq!(list.body["meta"]["pagination"]["total-count"], items.len(), "{}", list.text);
    items.iter().map(|item| item["attributes"]["name"].as_str().unwrap().to_owned()).collect()
}

async fn act(api: &Api, workspace: &str, action: &str) -> u16 {
    let request = api.request(Method::POST, &format!("workspaces/{workspace}/actions/{action}"));
    send(request.header("Content-Type", "application/vnd.api+json")).await.status
}

async fn setting(world: &World) -> (Person, String) {
    (world.member("mia", NONE).await, workspace(world, "alone", None).await)
}

async fn invalid_workspace_access_is_rejected_with_the_field(world: World) {
    let owner = &world.owner;
    let (mia, workspace) = setting(&world).await;
    let give = async |attributes| give(owner, &mia.team, &workspace, attributes).await;
    let named = give(json!({ "access": "read", "runs": "apply" })).await;
    assert_refused(&named, 422, &[("/data/attributes/runs", "runs can only be set with custom access")]);
    let level = "/data/attributes/access";
    assert_refused(&give(json!({ "access": "maintain" })).await, 422, &[(level, "Access must be one of read, plan")]);
    assert_refused(&give(json!({})).await, 422, &[(level, "Access can't be blank")]);
    let wrong = give(json!({ "access": "custom", "runs": "all", "workspace-locking": "true" })).await;
    let faults = [
        ("/data/attributes/runs", "runs must be one of read, plan, apply"),
        ("/data/attributes/workspace-locking", "workspace-locking must be one of false, true"),
    ];
    assert_refused(&wrong, 422, &faults);
    assert_eq!(give(json!({ "access": "read", "runs": "read", "run-tasks": null })).await.status, 201);
    let twice = give(json!({ "access": "write" })).await;
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
    owner.post("organizations", resource("organizations", other)).await;
    let foreign = owner.post("organizations/other/teams", resource("teams", json!({ "name": "t" }))).await;
    let foreign = foreign.body["data"]["id"].as_str().unwrap();
    assert_eq!(owner.post(PATH, access_to(foreign, &workspace)).await.status, 404);
    assert_refused(&owner.get(PATH).await, 400, &[("filter[workspace][id]", "filter[workspace][id] is required")]);
    assert_eq!(owner.get(&format!("{PATH}?filter[workspace][id]=ws-x")).await.status, 404);
    world.app.stop().await;
}

async fn fixed_levels_have_their_values(world: World) {
    let owner = &world.owner;
    let (mia, workspace) = setting(&world).await;
    let path = given(&world, &mia.team, &workspace, json!({ "access": "read" })).await;
    assert!(path.starts_with("team-workspaces/tws-"), "{path}");
    for (level, values) in [
        ("read", json!(["read", "read", "read", "none", false, false, false])),
        ("plan", json!(["plan", "read", "read", "none", false, false, false])),
        ("write", json!(["apply", "write", "write", "read", true, false, false])),
        ("admin", json!(["apply", "write", "write", "read", true, true, true])),
    ] {
        let changed = owner.patch(&path, change(json!({ "access": level }))).await;
        assert_eq!(changed.status, 200, "{}", changed.text);
        let keys = ["runs", "variables", "state-versions", "sentinel-mocks", "workspace-locking", "run-tasks"];
        let shown: Vec<&Value> = keys.iter().chain(&["policy-overrides"]).map(|key| attribute(&changed, key)).collect();
        assert_eq!((attribute(&changed, "access"), json!(shown)), (&json!(level), values));
        assert_eq!(owner.get(&path).await.body, changed.body);
    }
    let shown = owner.get(&path).await;
    let related = &shown.body["data"]["relationships"];
    assert_eq!(related["team"]["data"], json!({ "type": "teams", "id": mia.team }));
    assert_eq!(related["workspace"]["data"], json!({ "type": "workspaces", "id": workspace }));
    world.app.stop().await;
}

async fn custom_access_keys_are_stored(world: World) {
    let owner = &world.owner;
    let (mia, workspace) = setting(&world).await;
    let custom = json!({ "access": "custom", "runs": "plan", "workspace-locking": true });
    let path = given(&world, &mia.team, &workspace, custom).await;
    let shown = owner.patch(&path, change(json!({ "variables": "read" }))).await;
    for (key, value) in [
        ("access", json!("custom")),
        ("runs", json!("plan")),
        ("variables", json!("read")),
        ("state-versions", json!("none")),
        ("workspace-locking", json!(true)),
    ] {
        assert_eq!(*attribute(&shown, key), value, "{key}: {}", shown.text);
    }
    let permissions = attribute(&mia.api.get(&format!("workspaces/{workspace}")).await, "permissions").clone();
    for (key, value) in [
        ("can-queue-run", true),
        ("can-queue-apply", false),
        ("can-read-variable", true),
        ("can-update-variable", false),
        ("can-read-state-versions", false),
        ("can-lock", true),
        ("can-update", false),
        ("can-force-delete", false),
    ] {
        assert_eq!(permissions[key], value, "{key}: {permissions:#}");
    }
    world.app.stop().await;
}

async fn access_to_one_workspace_shows_it_and_no_other(world: World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let one = workspace(&world, "one", Some(&project)).await;
    let other = workspace(&world, "two", Some(&project)).await;
    let mia = world.member("mia", NONE).await;
    let show = async |id: &str| mia.api.get(&format!("workspaces/{id}")).await.status;
    assert_eq!((show(&one).await, names(&mia.api.get(WORKSPACES).await)), (404, Vec::new()));
    let path = given(&world, &mia.team, &one, json!({ "access": "read" })).await;
    assert_eq!((show(&one).await, show(&other).await), (200, 404));
    assert_eq!(mia.api.get(&format!("{WORKSPACES}/one")).await.status, 200);
    for query in ["", "?search[name]=o", &format!("?filter[project][id]={project}"), "?page[number]=1"] {
        assert_eq!(names(&mia.api.get(&format!("{WORKSPACES}{query}")).await), ["one"], "{query}");
    }
    // Neither the project nor its other workspaces are visible.
    assert_eq!(mia.api.get(&format!("projects/{project}")).await.status, 404);
    let included = mia.api.get(&format!("workspaces/{one}?include=project")).await;
    assert_eq!((included.status, &included.body["included"]), (200, &json!([])), "{}", included.text);
    assert_eq!(names(&mia.api.get("organizations/acme/projects").await), Vec::<String>::new());
    let spare = world.project("Spare").await;
    let moved = json!({ "data": [{ "type": "workspaces", "id": one }] });
    assert_eq!(owner.post(&format!("projects/{spare}/relationships/workspaces"), moved).await.status, 204);
    assert_eq!(show(&one).await, 200);
    assert_eq!(owner.delete(&path).await.status, 204);
    assert_eq!((show(&one).await, names(&mia.api.get(WORKSPACES).await)), (404, Vec::new()));
    world.app.stop().await;
}

async fn levels_are_rights_on_the_workspace(world: World) {
    let (mia, workspace) = setting(&world).await;
    let path = given(&world, &mia.team, &workspace, json!({ "access": "read" })).await;
    let own = format!("workspaces/{workspace}");
    let update = async || mia.api.patch(&own, resource("workspaces", json!({ "description": "mine" }))).await.status;
    for (level, locks, updates) in [("read", 404, 404), ("plan", 404, 404), ("write", 200, 404), ("admin", 200, 200)] {
        let changed = world.owner.patch(&path, change(json!({ "access": level }))).await;
        assert_eq!(changed.status, 200, "{}", changed.text);
        assert_eq!(act(&mia.api, &workspace, "lock").await, locks, "{level}");
        assert_eq!(act(&mia.api, &workspace, "unlock").await, locks, "{level}");
        assert_eq!(update().await, updates, "{level}");
    }
    for (level, deleted) in [("write", 404), ("admin", 204)] {
        assert_eq!(world.owner.patch(&path, change(json!({ "access": level }))).await.status, 200);
        assert_eq!(mia.api.delete(&own).await.status, deleted, "{level}");
    }
    world.app.stop().await;
}

async fn lists_of_workspaces_join_projects_and_access(world: World) {
    let project = world.project("Net").await;
    for name in ["a", "d"] {
        workspace(&world, name, Some(&project)).await;
    }
    let b = workspace(&world, "b", None).await;
    let _ = workspace(&world, "c", None).await;
    let mia = world.member("mia", NONE).await;
    world.grant(&mia.team, &project, ProjectRights::READ).await;
    given(&world, &mia.team, &b, json!({ "access": "read" })).await;
    assert_eq!(names(&mia.api.get(WORKSPACES).await), ["a", "b", "d"]);
    assert_eq!(names(&mia.api.get(&format!("{WORKSPACES}?sort=-name")).await), ["d", "b", "a"]);
    let default = world.owner.get(&format!("workspaces/{b}")).await.body["data"]["relationships"]["project"].clone();
    let default = default["data"]["id"].as_str().unwrap();
    let of = async |projects: &str| names(&mia.api.get(&format!("{WORKSPACES}?filter[project][id]={projects}")).await);
    assert_eq!(of(default).await, ["b"]);
    assert_eq!(of(&project).await, ["a", "d"]);
    assert_eq!(of(&format!("{default},{project}")).await, ["a", "b", "d"]);
    let page = mia.api.get(&format!("{WORKSPACES}?page[size]=1&page[number]=2")).await;
    assert_eq!(page.body["data"][0]["attributes"]["name"], "b");
    assert_eq!(page.body["meta"]["pagination"]["total-count"], 3);
    let a = world.owner.get(&format!("{WORKSPACES}/a")).await.body["data"]["id"].as_str().unwrap().to_owned();
    given(&world, &mia.team, &a, json!({ "access": "admin" })).await;
    assert_eq!(names(&mia.api.get(WORKSPACES).await), ["a", "b", "d"]);
    world.app.stop().await;
}

async fn workspace_access_is_visible_and_changeable_by_right(world: World) {
    let owner = &world.owner;
    let (mia, workspace) = setting(&world).await;
    let adam = world.member("adam", NONE).await;
    let otto = world.member("otto", NONE).await;
    let own = given(&world, &adam.team, &workspace, json!({ "access": "admin" })).await;
    let path = given(&world, &mia.team, &workspace, json!({ "access": "read" })).await;
    let list = format!("{PATH}?filter[workspace][id]={workspace}");
    let count = async |api: &Api| api.get(&list).await.body["meta"]["pagination"]["total-count"].clone();
    // The people's teams are secret, so the workspace's administrator does not see Mia's.
    assert_eq!((count(owner).await, count(&adam.api).await, count(&mia.api).await), (json!(2), json!(1), json!(1)));
    assert_eq!(adam.api.get(&path).await.status, 404);
    let visible = resource("teams", json!({ "visibility": "organization" }));
    assert_eq!(owner.patch(&format!("teams/{}", mia.team), visible).await.status, 200);
    assert_eq!((count(&adam.api).await, count(&mia.api).await), (json!(2), json!(1)));
    assert_eq!((mia.api.get(&path).await.status, mia.api.get(&own).await.status), (200, 404));
    let one = owner.get(&format!("{list}&filter[team][id]={}", mia.team)).await;
    assert_eq!(one.body["data"], json!([owner.get(&path).await.body["data"]]));
    assert_refused(&owner.get(&format!("{list}&filter[x]=1")).await, 400, &[("filter[x]", "")]);
    let write = || change(json!({ "access": "write" }));
    for api in [&mia.api, &otto.api] {
        assert_eq!((api.patch(&path, write()).await.status, api.delete(&path).await.status), (404, 404));
        assert_eq!(give(api, &mia.team, &workspace, json!({ "access": "read" })).await.status, 404);
    }
    assert_eq!(otto.api.get(&list).await.status, 404);
    assert_eq!(adam.api.patch(&path, write()).await.status, 200);
    assert_eq!((adam.api.delete(&path).await.status, adam.api.delete(&path).await.status), (204, 404));
    assert_eq!(give(&adam.api, &mia.team, &workspace, json!({ "access": "admin" })).await.status, 201);
    assert_eq!(adam.api.delete(&own).await.status, 204, "their own right is theirs to give up");
    assert_eq!(adam.api.get(&list).await.status, 404);
    world.app.stop().await;
}

async fn workspace_access_is_granted_up_to_the_own_access(world: World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let workspace = workspace(&world, "w", Some(&project)).await;
    let team = resource("teams", json!({ "name": "target", "visibility": "organization" }));
    let target = owner.post("organizations/acme/teams", team).await.body["data"]["id"].as_str().unwrap().to_owned();
    // `maintain` on the project includes administration of its workspaces, but not policy overrides.
    let mara = world.member("mara", NONE).await;
    let mut maintain = resource("team-projects", json!({ "access": "maintain" }));
    maintain["data"]["relationships"] = json!({
        "team": { "data": { "type": "teams", "id": mara.team } },
        "project": { "data": { "type": "projects", "id": project } },
    });
    assert_eq!(owner.post("team-projects", maintain).await.status, 201);
    let beyond = "you may not grant a team rights that you do not have yourself";
    let refused = give(&mara.api, &target, &workspace, json!({ "access": "admin" })).await;
    assert_refused(&refused, 403, &[("", beyond)]);
    assert_eq!(give(&mara.api, &target, &workspace, json!({ "access": "write" })).await.status, 201);
    // Managers of teams or memberships do not become workspace administrators through a team.
    let manager = world.member("tom", NONE.with(Flag::ManageTeams, true)).await;
    let people = world.member("pia", NONE.with(Flag::ManageMembership, true)).await;
    let token = format!("teams/{target}/authentication-token");
    let users = format!("teams/{target}/relationships/users");
    let make = async |api: &Api| api.post(&token, resource("authentication-tokens", json!({}))).await;
    let join = async |api: &Api| api.post(&users, json!({ "data": [{ "type": "users", "id": "pia" }] })).await;
    let more = "the team has rights that you lack";
    assert_refused(&make(&manager.api).await, 403, &[("", more)]);
    assert_refused(&join(&people.api).await, 403, &[("", more)]);
    // With the same access of their own they may.
    for person in [&manager, &people] {
        given(&world, &person.team, &workspace, json!({ "access": "plan" })).await;
    }
    assert_refused(&make(&manager.api).await, 403, &[("", more)]);
    for person in [&manager, &people] {
        let rows =
            owner.get(&format!("{PATH}?filter[workspace][id]={workspace}&filter[team][id]={}", person.team)).await;
        let path = format!("{PATH}/{}", rows.body["data"][0]["id"].as_str().unwrap());
        assert_eq!(owner.patch(&path, change(json!({ "access": "write" }))).await.status, 200);
    }
    assert_eq!(make(&manager.api).await.status, 201);
    assert_eq!(join(&people.api).await.status, 204);
    world.app.stop().await;
}

async fn access_ends_with_its_team_and_its_workspace(world: World) {
    let owner = &world.owner;
    let (mia, one) = setting(&world).await;
    let two = workspace(&world, "two", None).await;
    let rows = async || {
        let count = "SELECT count(*) FROM team_workspace_access";
        world.run(move |mut tx| Box::pin(async move { Ok(tx.one(count, &[]).await?.get::<i64>()?) })).await
    };
    let path = given(&world, &mia.team, &one, json!({ "access": "admin" })).await;
    given(&world, &mia.team, &two, json!({ "access": "read" })).await;
    assert_eq!(owner.delete(&format!("workspaces/{one}")).await.status, 204);
    assert_eq!((owner.get(&path).await.status, rows().await), (404, 1));
    assert_eq!(owner.delete(&format!("teams/{}", mia.team)).await.status, 204);
    assert_eq!(rows().await, 0);
    // More rows than one transaction deletes: effective immediately, too.
    let otto = world.member("otto", NONE).await;
    let team = otto.team.clone();
    world
        .run(move |mut tx| {
            let team = team.clone();
            Box::pin(async move {
                let org: i64 = tx.one("SELECT id FROM organizations WHERE name_lc = 'acme'", &[]).await?.get()?;
                let project: i64 = tx.one("SELECT id FROM projects WHERE org_id = $1", &[org.into()]).await?.get()?;
                for n in 0..600 {
                    let name = format!("many-{n}");
                    let insert = "INSERT INTO workspaces (ext_id, org_id, project_id, name, name_lc, terraform_version,
                        settings, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, '1', '{}', $6, $7) RETURNING id";
                    let values = [
                        id::new("ws").into(),
                        org.into(),
                        project.into(),
                        name[..].into(),
                        name[..].into(),
                        tx.now.into(),
                        tx.now.into(),
                    ];
                    let workspace: i64 = tx.one(insert, &values).await?.get()?;
                    let give = "INSERT INTO team_workspace_access (ext_id, team_id, workspace_id, access)
                        SELECT $1, id, $2, 'read' FROM teams WHERE ext_id = $3";
                    tx.execute(give, &[id::new("tws").into(), workspace.into(), team[..].into()]).await?;
                }
                Ok(())
            })
        })
        .await;
    let list = otto.api.get(WORKSPACES).await;
    assert_eq!(list.body["meta"]["pagination"]["total-count"], 600, "{}", list.text);
    assert_eq!(owner.delete(&format!("teams/{}", otto.team)).await.status, 204);
    assert_eq!(otto.api.get(WORKSPACES).await.body["meta"]["pagination"]["total-count"], 0);
    world.app.stop().await;
}
