//! Projects.

use serde_json::{Value, json};
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};

use super::fixture::{
    NONE, POOLS, PROJECTS, World, assert_invalid, assert_refused, attribute, on_both_stores, pairs, path_of, related,
    resource, tags,
};
use super::moves::project_of;
use crate::support::{Answer, send};

on_both_stores!(
    project_is_created_shown_and_listed,
    project_create_validates_attributes,
    project_update_changes_only_given_attributes,
    project_shows_the_permissions_of_the_caller,
    project_deletion_needs_an_empty_project_and_the_right,
    project_execution_mode_and_agent_pool,
    tags_of_an_update_replace_all,
);

async fn project_is_created_shown_and_listed(world: &World) {
    let owner = &world.owner;
    let made = owner.add(PROJECTS, json!({ "name": "Net" })).await.assert_status(201);
    let id = made.body["data"]["id"].as_str().unwrap();
    assert!(id.starts_with("prj-") && id.len() == 20, "{id}");
    assert_eq!(made.header("location"), format!("/api/v2/projects/{id}"));
    assert_eq!(owner.get(&format!("projects/{id}")).await.body["data"], made.body["data"]);
    let list = owner.get(PROJECTS).await;
    assert!(list.body["data"].as_array().unwrap().contains(&made.body["data"]), "{}", list.text);
    let member = world.member("mia", NONE).await;
    let outsider = world.outsider("xaver").await;
    let other = || resource("projects", json!({ "name": "Other" }));
    assert_eq!(member.api.post(PROJECTS, other()).await.status, 403);
    let hidden = outsider.api.post(PROJECTS, other()).await;
    let unknown = owner.post("organizations/nothing/projects", other()).await;
    assert_eq!((hidden.status, unknown.status), (404, 404));
    assert_eq!(hidden.body, unknown.body);
    let manager = world.member("mara", NONE.with(Flag::ManageProjects, true)).await;
    assert_eq!(manager.api.post(PROJECTS, other()).await.status, 201);
}

async fn project_create_validates_attributes(world: &World) {
    let create = async |attributes| world.owner.add(PROJECTS, attributes).await;
    for good in [&"a".repeat(40)[..], "abc", "a b", "___"] {
        assert_eq!(create(json!({ "name": good })).await.status, 201, "{good}");
    }
    for (attributes, detail) in [
        (json!({ "name": "ab" }), "Name is too short"),
        (json!({ "name": "a".repeat(41) }), "Name is too long"),
        (json!({}), "Name can't be blank"),
        (json!({ "name": null }), "Name can't be blank"),
        (json!({ "name": "" }), "Name can't be blank"),
        (json!({ "name": 123 }), "Name must be a string"),
        (json!({ "name": "abc" }), "Name has already been taken"),
        (json!({ "name": "ABC" }), "Name has already been taken"),
    ] {
        assert_invalid(&create(attributes).await, "name", detail);
    }
    for bad in [" abc", "abc ", "a/b", "ü12", "a\tb", "abc\n"] {
        assert_invalid(&create(json!({ "name": bad })).await, "name", "Name may only contain");
    }
    let described =
        |n: usize, letter: &str| json!({ "name": format!("d{n}{}", letter.len()), "description": letter.repeat(n) });
    for letter in ["x", "𝄞"] {
        assert_eq!(create(described(256, letter)).await.status, 201);
    }
    assert_invalid(&create(described(257, "x")).await, "description", "Description is too long");
    for (n, good) in ["14d", "1h", "9999d", "0014d"].into_iter().enumerate() {
        let made = create(json!({ "name": format!("dur{n}"), "auto-destroy-activity-duration": good })).await;
        assert_eq!((made.status, attribute(&made, "auto-destroy-activity-duration")), (201, &json!(good)));
    }
    let says = "Auto destroy activity duration has an incorrect format";
    for bad in ["0d", "0000h", "20m", "10000d", "14D", "14 d", ""] {
        let refused = create(json!({ "name": "durx", "auto-destroy-activity-duration": bad })).await;
        assert_invalid(&refused, "auto-destroy-activity-duration", says);
    }
    let both = create(json!({ "name": "a/b", "auto-destroy-activity-duration": "x" })).await;
    let duration = "/data/attributes/auto-destroy-activity-duration";
    assert_refused(&both, 422, &[("/data/attributes/name", "Name may only contain"), (duration, says)]);
    let unknown = create(json!({ "name": "unknown", "foo": "bar" })).await;
    assert!(unknown.status == 201 && !unknown.text.contains("foo"), "{}", unknown.text);
}

async fn project_update_changes_only_given_attributes(world: &World) {
    let owner = &world.owner;
    let given = json!({ "name": "P-1", "description": "first", "auto-destroy-activity-duration": "3d" });
    let one = owner.add(PROJECTS, given).await;
    let id = one.body["data"]["id"].as_str().unwrap();
    let two = world.project("P-2").await;
    let path = format!("projects/{id}");
    let patch = async |attributes| owner.change(&path, attributes).await;
    let renamed = patch(json!({ "name": "P-one" })).await.assert_status(200);
    let mut expected = one.body.clone();
    expected["data"]["attributes"]["name"] = "P-one".into();
    assert_eq!(renamed.body, expected, "the rest is as it was");
    assert_eq!(owner.get(&path).await.body, renamed.body);
    let cleared = patch(json!({ "description": null, "auto-destroy-activity-duration": null })).await;
    assert_eq!(attribute(&cleared, "description"), &json!(null));
    assert_eq!(attribute(&cleared, "auto-destroy-activity-duration"), &json!(null));
    assert_eq!(attribute(&patch(json!({ "description": "" })).await, "description"), &json!(""));
    for blank in [json!(null), json!("")] {
        assert_invalid(&patch(json!({ "name": blank })).await, "name", "Name can't be blank");
    }
    let all = patch(json!({ "name": "x", "description": "d".repeat(257), "auto-destroy-activity-duration": 3 })).await;
    let faults = [
        ("/data/attributes/name", "Name is too short"),
        ("/data/attributes/description", "Description is too long"),
        ("/data/attributes/auto-destroy-activity-duration", "Auto destroy activity duration must be a string"),
    ];
    assert_refused(&all, 422, &faults);
    let before = owner.get(&path).await.body;
    for nothing in [
        json!({ "data": { "type": "projects", "attributes": {} } }),
        json!({ "data": { "type": "projects" } }),
        json!({ "data": { "type": "projects", "id": id, "attributes": { "workspace-count": 99, "foo": 1, "permissions": {}, "created-at": "2000-01-01T00:00:00Z" } } }),
    ] {
        let unchanged = owner.patch(&path, nothing).await;
        assert_eq!((unchanged.status, &unchanged.body), (200, &before));
    }
    for same in ["P-one", "p-ONE"] {
        assert_eq!(attribute(&patch(json!({ "name": same })).await, "name"), &json!(same));
    }
    assert_invalid(&patch(json!({ "name": "p-2" })).await, "name", "Name has already been taken");
    let other = json!({ "data": { "type": "projects", "id": two, "attributes": { "name": 7 } } });
    assert_refused(&owner.patch(&path, other).await, 409, &[("/data/id", "id must be that of the resource")]);
    let kind = resource("project", json!({ "name": 7 }));
    assert_refused(&owner.patch(&path, kind).await, 409, &[("/data/type", "type must be projects")]);

    let reader = world.member("rita", NONE).await;
    let admin = world.member("ada", NONE).await;
    let changer = world.member("ulf", NONE).await;
    world.grant(&reader.team, id, ProjectRights::READ).await;
    world.grant(&admin.team, id, ProjectRights::ALL).await;
    world.grant(&changer.team, id, ProjectRights::READ.union(ProjectRights::UPDATE)).await;
    let outsider = world.outsider("xaver").await;
    for hidden in [&reader.api, &outsider.api] {
        hidden.send_text(reqwest::Method::PATCH, &path, "{".to_owned()).await.assert_status(404);
    }
    for may in [&admin.api, &changer.api] {
        assert_eq!(may.change(&path, json!({ "description": "mine" })).await.status, 200);
    }
    let default = format!("projects/{}", world.default_project().await);
    let default = owner.change(&default, json!({ "name": "Main" })).await;
    assert_eq!((default.status, attribute(&default, "name")), (200, &json!("Main")));
}

async fn project_shows_the_permissions_of_the_caller(world: &World) {
    let one = world.project("P-1").await;
    let two = world.project("P-2").await;
    let reader = world.member("rita", NONE).await;
    world.grant(&reader.team, &one, ProjectRights::READ).await;
    let shown = reader.api.get(&format!("projects/{one}")).await;
    let permissions = json!({ "can-read": true, "can-update": false, "can-destroy": false, "can-create-workspace": false,
        "can-move-workspace": false, "can-manage-teams": false });
    assert_eq!(attribute(&shown, "permissions"), &permissions);
    assert_eq!(attribute(&shown, "team-count"), &json!(1));
    let hidden = reader.api.get(&format!("projects/{two}")).await;
    let absent = world.owner.get("projects/nonexisting").await;
    assert_eq!((hidden.status, absent.status), (404, 404));
    assert_eq!(hidden.body, absent.body);
}

async fn project_deletion_needs_an_empty_project_and_the_right(world: &World) {
    let id = world.project("Two").await;
    let path = format!("projects/{id}");
    world.owner.delete(&path).await.assert_status(204);
    assert_eq!(world.owner.get(&path).await.status, 404);
    assert_eq!(world.owner.delete(&path).await.status, 404);
    let default = format!("projects/{}", world.default_project().await);
    assert_refused(&world.owner.delete(&default).await, 409, &[("", "the default project")]);
    let list = world.owner.get(PROJECTS).await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 1, "matching": 1 }));

    let full = world.project("Full").await;
    let path = format!("projects/{full}");
    let kept = world.workspace(&full, "w1").await;
    assert_refused(&world.owner.delete(&path).await, 422, &[("", "the project holds workspaces (1)")]);
    assert_eq!(project_of(world, &kept).await, full);
    // The caller may delete the project, but not its contents.
    let deleter = world.member("dora", NONE).await;
    world.grant(&deleter.team, &full, ProjectRights::READ | ProjectRights::DESTROY).await;
    let forced = deleter.api.delete(&path).await;
    assert_refused(&forced, 403, &[("", "not authorized to perform a force delete on the project")]);
    let refused = world.owner.delete(&path).await;
    assert_eq!(refused.body["errors"][0]["title"], "invalid attribute", "as known clients print it");
    let reader = world.member("rita", NONE).await;
    let all_but_destroy = ProjectRights::from_bits(ProjectRights::ALL.bits() & !ProjectRights::DESTROY.bits());
    world.grant(&reader.team, &full, all_but_destroy).await;
    let outsider = world.outsider("xaver").await;
    let hidden = reader.api.delete(&path).await;
    let unknown = outsider.api.delete(&path).await;
    assert_eq!((hidden.status, unknown.status), (404, 404));
    assert_eq!(hidden.body, unknown.body);

    let admin = world.member("ada", NONE).await;
    let typed = |id: &str| {
        let request = admin.api.request(reqwest::Method::DELETE, &format!("projects/{id}"));
        send(request.header("Content-Type", "application/json").body("{}"))
    };
    let granted = world.project("Granted").await;
    world.grant(&admin.team, &granted, ProjectRights::ALL).await;
    world.grant(&reader.team, &granted, ProjectRights::READ).await;
    let bindings = format!("projects/{granted}/tag-bindings");
    assert_eq!(world.owner.patch(&bindings, tags(&[("a", "1")])).await.status, 200);
    assert_eq!(typed(&granted).await.status, 415);
    assert_eq!(admin.api.delete(&format!("projects/{granted}")).await.status, 204);
    for (table, left) in [("team_project_access", 2), ("tag_bindings", 0)] {
        assert_eq!(
            world.value::<i64>(format!("SELECT count(*) FROM {table}")).await,
            left,
            "{table}: of the other project"
        );
    }
}

async fn project_execution_mode_and_agent_pool(world: &World) {
    let owner = &world.owner;
    let pool = owner.create(POOLS, resource("agent-pools", json!({ "name": "pool" }))).await;
    let create = async |attributes| owner.add(PROJECTS, attributes).await;
    let mode = "default-execution-mode";
    let at_pool = "default-agent-pool-id";
    let stray = create(json!({ "name": "abc", mode: "remote", at_pool: pool })).await;
    let unless = "Default agent pool must not be specified unless using 'agent' execution mode";
    assert_invalid(&stray, at_pool, unless);
    let alone = create(json!({ "name": "a", mode: "agent" })).await;
    let text = "Default agent pool must be specified when using 'agent' execution mode";
    let place = format!("/data/attributes/{at_pool}");
    assert_refused(&alone, 422, &[("/data/attributes/name", "Name is too short"), (&place, text)]);
    let unequal = json!({ "default-execution-mode": true, "default-agent-pool": false });
    let unequal = create(json!({ "name": "abc", mode: "local", "setting-overwrites": unequal })).await;
    assert_invalid(&unequal, "setting-overwrites", "If agent-pool and execution-mode are both included");
    let unknown = create(json!({ "name": "abc", mode: "agent", at_pool: "apool-x" })).await;
    assert_invalid(&unknown, at_pool, "Default agent pool must be an agent pool of the organization");

    let of = |answer: &Answer| {
        let flags = attribute(answer, "setting-overwrites");
        assert_eq!(flags["default-execution-mode"], flags["default-agent-pool"]);
        let pool = &answer.body["data"]["relationships"]["default-agent-pool"]["data"];
        (attribute(answer, mode).clone(), flags["default-agent-pool"].clone(), pool["id"].clone())
    };
    let with_pool = create(json!({ "name": "Agents", mode: "agent", at_pool: pool })).await;
    assert_eq!(of(&with_pool), (json!("agent"), json!(true), json!(pool)));
    let inherits = create(json!({ "name": "Plain" })).await;
    assert_eq!(of(&inherits), (json!("remote"), json!(false), json!(null)));
    let path = path_of(&inherits);
    world.execute("UPDATE organizations SET execution_mode = 'local'").await;
    assert_eq!(of(&owner.get(&path).await), (json!("local"), json!(false), json!(null)));
    world.execute("UPDATE organizations SET execution_mode = 'remote'").await;
    let patch = async |attributes| of(&owner.change(&path, attributes).await);
    assert_eq!(patch(json!({ mode: "local" })).await, (json!("local"), json!(true), json!(null)));
    assert_eq!(patch(json!({ "description": "kept" })).await.1, true);
    let neither = json!({ "default-execution-mode": false, "default-agent-pool": false });
    assert_eq!(patch(json!({ "setting-overwrites": neither })).await, (json!("remote"), json!(false), json!(null)));
    assert_eq!(patch(json!({ mode: "agent", at_pool: pool })).await.2, json!(pool));
    assert_eq!(patch(json!({ mode: "agent" })).await.2, json!(pool), "it keeps its pool");
    assert_eq!(patch(json!({ mode: "remote" })).await, (json!("remote"), json!(true), json!(null)));
    let one_null = json!({ "default-execution-mode": false, "default-agent-pool": null });
    assert_eq!(patch(json!({ "setting-overwrites": one_null })).await.1, false);
}

async fn tags_of_an_update_replace_all(world: &World) {
    let path = format!("projects/{}", world.project("Tagged").await);
    let patch = async |name: &str, list: Value| {
        world.owner.patch(&path, related("projects", json!({ "name": name }), "tag-bindings", list)).await
    };
    let keys = async || pairs(&world.owner.get(&format!("{path}/tag-bindings")).await);
    let valueless = json!({ "type": "tag-bindings", "attributes": { "key": "b" } });
    let mut with_valueless = tags(&[("a", "1")]);
    with_valueless["data"].as_array_mut().unwrap().push(valueless);
    assert_eq!(patch("Tagged", with_valueless).await.status, 200);
    assert_eq!(keys().await, "a=1 b=");
    assert_eq!(patch("Tagged", tags(&[("c", "3"), ("b", "2")])).await.status, 200);
    assert_eq!(keys().await, "b=2 c=3", "what stays keeps its place");
    let many: Vec<String> = (0..11).map(|n| format!("k{n}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (&key[..], "")).collect();
    let place = "/data/relationships/tag-bindings/data";
    assert_refused(&patch("Tagged", tags(&many)).await, 422, &[(place, "")]);
    let both = patch("x", tags(&[("k0", ""), ("", "x")])).await;
    let place = format!("{place}/1/attributes/key");
    assert_refused(&both, 422, &[("/data/attributes/name", "Name is too short"), (&place, "Key must have")]);
    assert_eq!(keys().await, "b=2 c=3", "nothing was stored");
    assert_eq!(world.owner.change(&path, json!({ "name": "Renamed" })).await.status, 200);
    assert_eq!(keys().await, "b=2 c=3", "not named, not changed");
    assert_eq!(patch("Tagged", tags(&[])).await.status, 200);
    assert_eq!(keys().await, "");
}
