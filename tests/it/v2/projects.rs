//! Projects.

use serde_json::json;
use signet::projects::id;
use signet::projects::rights::{Flag, OrganizationRights, ProjectRights};

use super::fixture::{World, assert_refused, attribute, on_both_stores, resource};
use super::moves::{place, workspace};
use crate::support::send;

on_both_stores!(
    project_is_created_shown_and_listed,
    project_create_validates_attributes,
    project_update_changes_only_given_attributes,
    project_shows_the_permissions_of_the_caller,
    project_deletion_needs_an_empty_project_and_the_right,
    project_execution_mode_and_agent_pool,
    tags_of_an_update_replace_all,
    an_update_or_a_delete_may_demand_an_entity_tag,
);

const PATH: &str = "organizations/acme/projects";

async fn project_is_created_shown_and_listed(world: World) {
    let owner = &world.owner;
    let made = owner.post(PATH, resource("projects", json!({ "name": "Net" }))).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = made.body["data"]["id"].as_str().unwrap();
    assert!(id.starts_with("prj-") && id.len() == 20, "{id}");
    assert_eq!(made.header("location"), format!("/api/v2/projects/{id}"));
    assert_eq!(owner.get(&format!("projects/{id}")).await.body["data"], made.body["data"]);
    let list = owner.get(PATH).await;
    assert!(list.body["data"].as_array().unwrap().contains(&made.body["data"]), "{}", list.text);
    let member = world.member("mia", OrganizationRights::NONE).await;
    let outsider = world.outsider("xaver").await;
    let other = || resource("projects", json!({ "name": "Other" }));
    assert_eq!(member.api.post(PATH, other()).await.status, 403);
    let hidden = outsider.api.post(PATH, other()).await;
    let unknown = owner.post("organizations/nothing/projects", other()).await;
    assert_eq!((hidden.status, unknown.status), (404, 404));
    assert_eq!(hidden.body, unknown.body);
    let manager = world.member("mara", OrganizationRights::NONE.with(Flag::ManageProjects, true)).await;
    assert_eq!(manager.api.post(PATH, other()).await.status, 201);
    world.app.stop().await;
}

async fn project_create_validates_attributes(world: World) {
    let create = async |attributes| world.owner.post(PATH, resource("projects", attributes)).await;
    let name = "/data/attributes/name";
    assert_refused(&create(json!({ "name": "ab" })).await, 422, &[(name, "Name is too short")]);
    assert_eq!(create(json!({ "name": "a".repeat(40) })).await.status, 201);
    assert_refused(&create(json!({ "name": "a".repeat(41) })).await, 422, &[(name, "Name is too long")]);
    for good in ["abc", "a b", "___"] {
        assert_eq!(create(json!({ "name": good })).await.status, 201, "{good}");
    }
    for bad in [" abc", "abc ", "a/b", "ü12", "a\tb", "abc\n"] {
        assert_refused(&create(json!({ "name": bad })).await, 422, &[(name, "Name may only contain")]);
    }
    for blank in [json!({}), json!({ "name": null }), json!({ "name": "" })] {
        assert_refused(&create(blank).await, 422, &[(name, "Name can't be blank")]);
    }
    assert_refused(&create(json!({ "name": 123 })).await, 422, &[(name, "Name must be a string")]);
    for taken in ["abc", "ABC"] {
        assert_refused(&create(json!({ "name": taken })).await, 422, &[(name, "Name has already been taken")]);
    }
    let described =
        |n: usize, letter: &str| json!({ "name": format!("d{n}{}", letter.len()), "description": letter.repeat(n) });
    assert_eq!(create(described(256, "x")).await.status, 201);
    assert_eq!(create(described(256, "𝄞")).await.status, 201);
    let long = create(described(257, "x")).await;
    assert_refused(&long, 422, &[("/data/attributes/description", "Description is too long")]);
    for (n, good) in ["14d", "1h", "9999d", "0014d"].into_iter().enumerate() {
        let made = create(json!({ "name": format!("dur{n}"), "auto-destroy-activity-duration": good })).await;
        assert_eq!((made.status, attribute(&made, "auto-destroy-activity-duration")), (201, &json!(good)));
    }
    let duration = "/data/attributes/auto-destroy-activity-duration";
    let says = "Auto destroy activity duration has an incorrect format";
    for bad in ["0d", "0000h", "20m", "10000d", "14D", "14 d", ""] {
        let refused = create(json!({ "name": "durx", "auto-destroy-activity-duration": bad })).await;
        assert_refused(&refused, 422, &[(duration, says)]);
    }
    let both = create(json!({ "name": "a/b", "auto-destroy-activity-duration": "x" })).await;
    assert_refused(&both, 422, &[(name, "Name may only contain"), (duration, says)]);
    let unknown = create(json!({ "name": "unknown", "foo": "bar" })).await;
    assert!(unknown.status == 201 && !unknown.text.contains("foo"), "{}", unknown.text);
    world.app.stop().await;
}

async fn project_update_changes_only_given_attributes(world: World) {
    let owner = &world.owner;
    let given = json!({ "name": "P-1", "description": "first", "auto-destroy-activity-duration": "3d" });
    let one = owner.post(PATH, resource("projects", given)).await;
    let id = one.body["data"]["id"].as_str().unwrap();
    let two = world.project("P-2").await;
    let path = format!("projects/{id}");
    let patch = async |attributes| owner.patch(&path, resource("projects", attributes)).await;
    let renamed = patch(json!({ "name": "P-one" })).await;
    assert_eq!(renamed.status, 200, "{}", renamed.text);
    let mut expected = one.body.clone();
    expected["data"]["attributes"]["name"] = "P-one".into();
    assert_eq!(renamed.body, expected, "the rest is as it was");
    assert_eq!(owner.get(&path).await.body, renamed.body);
    let cleared = patch(json!({ "description": null, "auto-destroy-activity-duration": null })).await;
    assert_eq!(attribute(&cleared, "description"), &json!(null));
    assert_eq!(attribute(&cleared, "auto-destroy-activity-duration"), &json!(null));
    assert_eq!(attribute(&patch(json!({ "description": "" })).await, "description"), &json!(""));
    let name = "/data/attributes/name";
    for blank in [json!(null), json!("")] {
        assert_refused(&patch(json!({ "name": blank })).await, 422, &[(name, "Name can't be blank")]);
    }
    let all = patch(json!({ "name": "x", "description": "d".repeat(257), "auto-destroy-activity-duration": 3 })).await;
    let description = "/data/attributes/description";
    let duration = "/data/attributes/auto-destroy-activity-duration";
    assert_refused(
        &all,
        422,
        &[
            (name, "Name is too short"),
            (description, "Description is too long"),
            (duration, "Auto destroy activity duration must be a string"),
        ],
    );
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
    assert_refused(&patch(json!({ "name": "p-2" })).await, 422, &[(name, "Name has already been taken")]);
    let other = json!({ "data": { "type": "projects", "id": two, "attributes": { "name": 7 } } });
    assert_refused(&owner.patch(&path, other).await, 409, &[("/data/id", "id must be that of the resource")]);
    let kind = resource("project", json!({ "name": 7 }));
    assert_refused(&owner.patch(&path, kind).await, 409, &[("/data/type", "type must be projects")]);

    let reader = world.member("rita", OrganizationRights::NONE).await;
    let admin = world.member("ada", OrganizationRights::NONE).await;
    let changer = world.member("ulf", OrganizationRights::NONE).await;
    world.grant(&reader.team, id, ProjectRights::READ).await;
    world.grant(&admin.team, id, ProjectRights::ALL).await;
    world.grant(&changer.team, id, ProjectRights::READ.and(ProjectRights::UPDATE)).await;
    let outsider = world.outsider("xaver").await;
    for hidden in [&reader.api, &outsider.api] {
        let answer = hidden.send_text(reqwest::Method::PATCH, &path, "{".to_owned()).await;
        assert_eq!(answer.status, 404, "{}", answer.text);
    }
    for may in [&admin.api, &changer.api] {
        assert_eq!(may.patch(&path, resource("projects", json!({ "description": "mine" }))).await.status, 200);
    }
    let default = owner.get(PATH).await.body["data"][2]["id"].as_str().unwrap().to_owned();
    let default = owner.patch(&format!("projects/{default}"), resource("projects", json!({ "name": "Main" }))).await;
    assert_eq!((default.status, attribute(&default, "name")), (200, &json!("Main")));
    world.app.stop().await;
}

async fn project_shows_the_permissions_of_the_caller(world: World) {
    let one = world.project("P-1").await;
    let two = world.project("P-2").await;
    let reader = world.member("rita", OrganizationRights::NONE).await;
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
    world.app.stop().await;
}

async fn project_deletion_needs_an_empty_project_and_the_right(world: World) {
    let id = world.project("Two").await;
    let path = format!("projects/{id}");
    let deleted = world.owner.delete(&path).await;
    assert_eq!((deleted.status, &deleted.text[..]), (204, ""));
    assert_eq!(world.owner.get(&path).await.status, 404);
    assert_eq!(world.owner.delete(&path).await.status, 404);
    let default = world.owner.get(PATH).await.body["data"][0]["id"].as_str().unwrap().to_owned();
    assert_refused(&world.owner.delete(&format!("projects/{default}")).await, 409, &[("", "the default project")]);
    let list = world.owner.get(PATH).await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 1, "matching": 1 }));

    let full = world.project("Full").await;
    let path = format!("projects/{full}");
    let kept = workspace(&world, &full, "w1").await;
    assert_refused(&world.owner.delete(&path).await, 422, &[("", "the project holds workspaces (1)")]);
    assert_eq!(place(&world, &kept).await.0, full);
    // The caller may delete the project, but not its contents.
    let deleter = world.member("dora", OrganizationRights::NONE).await;
    world.grant(&deleter.team, &full, ProjectRights::READ | ProjectRights::DESTROY).await;
    let forced = deleter.api.delete(&path).await;
    assert_refused(&forced, 403, &[("", "not authorized to perform a force delete on the project")]);
    let refused = world.owner.delete(&path).await;
    assert_eq!(refused.body["errors"][0]["title"], "invalid attribute", "as known clients print it");
    let reader = world.member("rita", OrganizationRights::NONE).await;
    world
        .grant(
            &reader.team,
            &full,
            ProjectRights::from_bits(ProjectRights::ALL.bits() & !ProjectRights::DESTROY.bits()),
        )
        .await;
    let outsider = world.outsider("xaver").await;
    let hidden = reader.api.delete(&path).await;
    let unknown = outsider.api.delete(&path).await;
    assert_eq!((hidden.status, unknown.status), (404, 404));
    assert_eq!(hidden.body, unknown.body);

    let admin = world.member("ada", OrganizationRights::NONE).await;
    let typed = |id: &str| {
        let request = admin.api.request(reqwest::Method::DELETE, &format!("projects/{id}"));
        send(request.header("Content-Type", "application/json").body("{}"))
    };
    let granted = world.project("Granted").await;
    world.grant(&admin.team, &granted, ProjectRights::ALL).await;
    world.grant(&reader.team, &granted, ProjectRights::READ).await;
    let tags = json!({ "data": [{ "type": "tag-bindings", "attributes": { "key": "a", "value": "1" } }] });
    assert_eq!(world.owner.patch(&format!("projects/{granted}/tag-bindings"), tags).await.status, 200);
    assert_eq!(typed(&granted).await.status, 415);
    assert_eq!(admin.api.delete(&format!("projects/{granted}")).await.status, 204);
    let left: (i64, i64) = world
        .run(|mut tx| {
            Box::pin(async move {
                let sql = "SELECT (SELECT count(*) FROM team_project_access), (SELECT count(*) FROM tag_bindings)";
                let mut row = tx.one(sql, &[]).await?;
                Ok((row.get()?, row.get()?))
            })
        })
        .await;
    assert_eq!(left, (2, 0), "what was granted on the other project");
    world.app.stop().await;
}

async fn pool(world: &World) -> String {
    world
        .run(|mut tx| {
            Box::pin(async move {
                let insert = "INSERT INTO agent_pools (ext_id, org_id, name, name_lc, created_at)
                    SELECT $1, id, 'pool', 'pool', created_at FROM organizations RETURNING ext_id";
                Ok(tx.one(insert, &[id::new("apool").into()]).await?.get()?)
            })
        })
        .await
}

async fn project_execution_mode_and_agent_pool(world: World) {
    let owner = &world.owner;
    let pool = pool(&world).await;
    let create = async |attributes| owner.post(PATH, resource("projects", attributes)).await;
    let mode = "default-execution-mode";
    let at_pool = "/data/attributes/default-agent-pool-id";
    let stray = create(json!({ "name": "abc", mode: "remote", "default-agent-pool-id": pool })).await;
    assert_refused(
        &stray,
        422,
        &[(at_pool, "Default agent pool must not be specified unless using 'agent' execution mode")],
    );
    let alone = create(json!({ "name": "a", mode: "agent" })).await;
    let text = "Default agent pool must be specified when using 'agent' execution mode";
    assert_refused(&alone, 422, &[("/data/attributes/name", "Name is too short"), (at_pool, text)]);
    let unequal = json!({ "default-execution-mode": true, "default-agent-pool": false });
    let unequal = create(json!({ "name": "abc", mode: "local", "setting-overwrites": unequal })).await;
    assert_refused(
        &unequal,
        422,
        &[("/data/attributes/setting-overwrites", "If agent-pool and execution-mode are both included")],
    );
    let unknown = create(json!({ "name": "abc", mode: "agent", "default-agent-pool-id": "apool-x" })).await;
    assert_refused(&unknown, 422, &[(at_pool, "Default agent pool must be an agent pool of the organization")]);

    let of = |answer: &crate::support::Answer| {
        let flags = attribute(answer, "setting-overwrites");
        assert_eq!(flags["default-execution-mode"], flags["default-agent-pool"]);
        let pool = &answer.body["data"]["relationships"]["default-agent-pool"]["data"];
        (attribute(answer, mode).clone(), flags["default-agent-pool"].clone(), pool["id"].clone())
    };
    let with_pool = create(json!({ "name": "Agents", mode: "agent", "default-agent-pool-id": pool })).await;
    assert_eq!(of(&with_pool), (json!("agent"), json!(true), json!(pool)));
    let inherits = create(json!({ "name": "Plain" })).await;
    assert_eq!(of(&inherits), (json!("remote"), json!(false), json!(null)));
    let path = format!("projects/{}", inherits.body["data"]["id"].as_str().unwrap());
    let organization = async |mode: &'static str| {
        world
            .run(move |mut tx| {
                Box::pin(async move {
                    tx.execute("UPDATE organizations SET execution_mode = $1", &[mode.into()]).await?;
                    Ok(())
                })
            })
            .await;
    };
    organization("local").await;
    assert_eq!(of(&owner.get(&path).await), (json!("local"), json!(false), json!(null)));
    organization("remote").await;
    let patch = async |attributes| of(&owner.patch(&path, resource("projects", attributes)).await);
    assert_eq!(patch(json!({ mode: "local" })).await, (json!("local"), json!(true), json!(null)));
    assert_eq!(patch(json!({ "description": "kept" })).await.1, true);
    let neither = json!({ "default-execution-mode": false, "default-agent-pool": false });
    assert_eq!(patch(json!({ "setting-overwrites": neither })).await, (json!("remote"), json!(false), json!(null)));
    assert_eq!(patch(json!({ mode: "agent", "default-agent-pool-id": pool })).await.2, json!(pool));
    assert_eq!(patch(json!({ mode: "agent" })).await.2, json!(pool), "it keeps its pool");
    assert_eq!(patch(json!({ mode: "remote" })).await, (json!("remote"), json!(true), json!(null)));
    let one_null = json!({ "default-execution-mode": false, "default-agent-pool": null });
    assert_eq!(patch(json!({ "setting-overwrites": one_null })).await.1, false);
    world.app.stop().await;
}

async fn tags_of_an_update_replace_all(world: World) {
    let path = format!("projects/{}", world.project("Tagged").await);
    let tag = |key: &str, value: &str| json!({ "type": "tag-bindings", "attributes": { "key": key, "value": value } });
    let patch = async |tags: serde_json::Value| {
        let mut body = resource("projects", json!({}));
        body["data"]["relationships"] = json!({ "tag-bindings": { "data": tags } });
        world.owner.patch(&path, body).await
    };
    let keys = async || {
        let list = world.owner.get(&format!("{path}/tag-bindings")).await;
        let data = list.body["data"].as_array().unwrap().clone();
        data.iter()
            .map(|one| format!("{}={}", one["attributes"]["key"], one["attributes"]["value"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        patch(json!([tag("a", "1"), { "type": "tag-bindings", "attributes": { "key": "b" } }])).await.status,
        200
    );
    assert_eq!(keys().await, [r#""a"="1""#, r#""b"="""#]);
    assert_eq!(patch(json!([tag("c", "3"), tag("b", "2")])).await.status, 200);
    assert_eq!(keys().await, [r#""b"="2""#, r#""c"="3""#], "what stays keeps its place");
    let mut many: Vec<_> = (0..11).map(|n| tag(&format!("k{n}"), "")).collect();
    let place = "/data/relationships/tag-bindings/data";
    assert_refused(&patch(json!(many)).await, 422, &[(place, "")]);
    many.truncate(1);
    many.push(tag("", "x"));
    let place = format!("{place}/1/attributes/key");
    let mut body = resource("projects", json!({ "name": "x" }));
    body["data"]["relationships"] = json!({ "tag-bindings": { "data": many } });
    let both = world.owner.patch(&path, body).await;
    assert_refused(&both, 422, &[("/data/attributes/name", "Name is too short"), (&place, "Key must have")]);
    assert_eq!(keys().await.len(), 2, "nothing was stored");
    assert_eq!(world.owner.patch(&path, resource("projects", json!({ "name": "Renamed" }))).await.status, 200);
    assert_eq!(keys().await.len(), 2, "not named, not changed");
    assert_eq!(patch(json!([])).await.status, 200);
    assert!(keys().await.is_empty());
    world.app.stop().await;
}

async fn an_update_or_a_delete_may_demand_an_entity_tag(world: World) {
    let path = format!("projects/{}", world.project("Guarded").await);
    let tag = world.owner.get(&path).await.header("etag").to_owned();
    let demand = async |method: reqwest::Method, tag: &str| {
        let body = resource("projects", json!({ "description": tag })).to_string();
        let request = world.owner.request(method, &path).header("If-Match", tag);
        send(request.header("Content-Type", "application/vnd.api+json").body(body)).await
    };
    use reqwest::Method;
    assert_refused(&demand(Method::PATCH, "\"other\"").await, 412, &[("", "If-Match: the resource has changed")]);
    let changed = demand(Method::PATCH, &format!("\"other\", {tag}")).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    assert_eq!(changed.header("etag"), world.owner.get(&path).await.header("etag"));
    for method in [Method::PATCH, Method::DELETE] {
        assert_eq!(demand(method, &tag).await.status, 412, "it has changed since");
    }
    assert_eq!(demand(Method::PATCH, "*").await.status, 200);
    let current = world.owner.get(&path).await.header("etag").to_owned();
    assert_eq!(demand(Method::DELETE, &current).await.status, 204);
    assert_eq!(demand(Method::PATCH, &current).await.status, 404);
    world.app.stop().await;
}
