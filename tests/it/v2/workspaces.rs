//! Workspaces.

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};

use super::fixture::{
    Api, NONE, POOLS, PROJECTS, Person, WORKSPACES, World, assert_invalid, assert_refused, attribute, id_of,
    in_project, link, names, on_both_stores, related, resource, statuses, tags, team_access, these, total,
};
use crate::support::{Answer, assert_has};

on_both_stores!(
    workspace_document_is_the_same_on_every_path,
    workspace_create_validates_attributes,
    auto_destroy_duration_is_inherited_or_overridden,
    execution_mode_is_inherited_or_overridden,
    terraform_version_and_auto_destroy_time_are_validated,
    workspace_update_changes_only_given_attributes,
    workspace_list_sorting_search_and_filters,
    workspace_list_shows_only_accessible_workspaces,
    workspace_includes_requested_resources,
    access_levels_determine_workspace_permissions,
    workspace_update_moves_to_another_project,
    workspace_deletion_depends_on_rights_and_lock,
    concurrent_workspace_creations_keep_counts,
);

async fn create(api: &Api, attributes: Value, project: &str) -> Answer {
    api.post(WORKSPACES, in_project(project, attributes)).await
}

async fn patch(api: &Api, id: &str, attributes: Value) -> Answer {
    api.change(&format!("workspaces/{id}"), attributes).await
}

async fn patch_project(world: &World, id: &str, attributes: Value) {
    world.owner.change(&format!("projects/{id}"), attributes).await.assert_status(200);
}

async fn show(world: &World, id: &str) -> Answer {
    world.owner.get(&format!("workspaces/{id}")).await.assert_status(200)
}

async fn set_access_level(world: &World, person: &Person, project: &str, attributes: Value) {
    world.owner.create("team-projects", team_access(&person.team, project, attributes)).await;
}

async fn workspace_count(world: &World, project: &str) -> Value {
    attribute(&world.owner.get(&format!("projects/{project}")).await, "workspace-count").clone()
}

async fn workspace_document_is_the_same_on_every_path(world: &World) {
    let owner = &world.owner;
    let made = create(owner, json!({ "name": "App_1" }), "").await.assert_status(201);
    let document = &made.body["data"];
    let id = document["id"].as_str().unwrap();
    assert!(id.starts_with("ws-") && id.len() == 19, "{id}");
    assert_eq!(made.header("location"), "/api/v2/organizations/acme/workspaces/App_1");
    assert_eq!(show(world, id).await.body["data"], *document);
    for name in ["App_1", "app_1"] {
        assert_eq!(owner.get(&format!("organizations/ACME/workspaces/{name}")).await.body["data"], *document);
    }
    assert_eq!(owner.get(WORKSPACES).await.body["data"], json!([document]));
    let default = owner.get(PROJECTS).await.body["data"][0].clone();
    assert_eq!(document["relationships"]["project"]["data"]["id"], default["id"]);
    assert_eq!(default["attributes"]["workspace-count"], 1);
    let expected = json!({
        "name": "App_1", "description": null, "execution-mode": "remote", "operations": true,
        "setting-overwrites": { "execution-mode": false, "agent-pool": false },
        "terraform-version": "latest", "locked": false, "auto-destroy-activity-duration": null,
        "inherits-project-auto-destroy": true, "auto-destroy-at": null, "tag-names": [], "source": "tfe-api",
        "allow-destroy-plan": true, "file-triggers-enabled": true, "speculative-enabled": true,
        "auto-apply": false, "auto-apply-run-trigger": false, "queue-all-runs": false, "assessments-enabled": false,
        "structured-run-output-enabled": false, "global-remote-state": false, "trigger-prefixes": [],
        "trigger-patterns": [], "working-directory": "", "source-name": null, "source-url": null,
        "actions": { "is-destroyable": true }, "resource-count": 0,
    });
    assert_has(&document["attributes"], expected);
    for time in ["created-at", "updated-at"] {
        assert!(document["attributes"][time].as_str().unwrap().ends_with('Z'));
    }
    let permissions = document["attributes"]["permissions"].as_object().unwrap();
    assert!(permissions.len() == 14 && permissions.values().all(|value| *value == true), "{permissions:?}");
    let relationships = &document["relationships"];
    assert_eq!(relationships["organization"]["data"], json!({ "id": "acme", "type": "organizations" }));
    for none in ["agent-pool", "locked-by", "current-run"] {
        assert_eq!(relationships[none], json!({ "data": null }), "{none}");
    }
    let links = json!({
        "self": "/api/v2/organizations/acme/workspaces/App_1", "self-html": "/app/acme/workspaces/App_1",
    });
    assert_eq!(document["links"], links);
    let state = owner.get(&format!("workspaces/{id}/current-state-version")).await.assert_status(404);
    assert_eq!(owner.get("workspaces/nonexisting").await.body, state.body);
}

async fn workspace_create_validates_attributes(world: &World) {
    let create = async |attributes| create(&world.owner, attributes, "").await;
    for (attributes, detail) in [
        (json!({}), "Name can't be blank"),
        (json!({ "name": null }), "Name can't be blank"),
        (json!({ "name": "" }), "Name can't be blank"),
        (json!({ "name": "x".repeat(91) }), "Name is too long"),
    ] {
        assert_invalid(&create(attributes).await, "name", detail);
    }
    for bad in ["a b", "a/b", "ü", "a.b", "a\n"] {
        assert_invalid(&create(json!({ "name": bad })).await, "name", "Name may only contain");
    }
    for good in ["a", &"x".repeat(90)] {
        assert_eq!(create(json!({ "name": good })).await.status, 201);
    }
    assert_invalid(&create(json!({ "name": "A" })).await, "name", "Name has already been taken");
    let set = json!({
        "name": "set", "description": "qux", "auto-apply": true, "queue-all-runs": true, "working-directory": "bar/",
        "trigger-prefixes": ["/modules", "/shared"], "source-name": "my-app", "structured-run-output-enabled": true,
    });
    let made = create(set.clone()).await;
    assert_has(&made.body["data"]["attributes"], set);
    let both = json!({ "name": "both", "trigger-prefixes": ["a"], "trigger-patterns": ["b"] });
    assert_invalid(&create(both).await, "trigger-patterns", "Trigger patterns must not");
    let wrong = json!({ "name": "a b", "description": 7, "auto-apply": "yes", "terraform-version": "x" });
    let faults = [
        ("/data/attributes/name", "Name may only contain"),
        ("/data/attributes/description", "Description must be a string"),
        ("/data/attributes/terraform-version", "Terraform version must be"),
        ("/data/attributes/auto-apply", "Auto apply must be a boolean"),
    ];
    assert_refused(&create(wrong).await, 422, &faults);
    let nul = create(json!({ "name": "nul", "description": "a\0b" })).await;
    assert_invalid(&nul, "description", "Description must not contain");
    let wrong_type = world.owner.post(WORKSPACES, resource("workspace", json!({ "name": "t" }))).await;
    assert_refused(&wrong_type, 409, &[("/data/type", "type must be workspaces")]);
}

async fn auto_destroy_duration_is_inherited_or_overridden(world: &World) {
    let duration = |of: &Answer| {
        let value = |name| attribute(of, name).clone();
        (value("auto-destroy-activity-duration"), value("inherits-project-auto-destroy"))
    };
    let first = world.project("First").await;
    patch_project(world, &first, json!({ "auto-destroy-activity-duration": "3d" })).await;
    let one = world.workspace(&first, "one").await;
    let two = world.workspace(&first, "two").await;
    assert_eq!(duration(&show(world, &one).await), (json!("3d"), json!(true)));
    let own = patch(&world.owner, &one, json!({ "auto-destroy-activity-duration": "1d" })).await;
    assert_eq!(duration(&own), (json!("1d"), json!(false)));
    patch_project(world, &first, json!({ "auto-destroy-activity-duration": "7d" })).await;
    assert_eq!(duration(&show(world, &one).await), (json!("1d"), json!(false)));
    assert_eq!(duration(&show(world, &two).await), (json!("7d"), json!(true)));
    let other = world.project("Other").await;
    patch_project(world, &other, json!({ "auto-destroy-activity-duration": "9d" })).await;
    let both = these("workspaces", &[&one, &two]);
    world.owner.post(&format!("projects/{other}/relationships/workspaces"), both).await.assert_status(204);
    assert_eq!(duration(&show(world, &one).await), (json!("1d"), json!(false)));
    assert_eq!(duration(&show(world, &two).await), (json!("9d"), json!(true)));
    patch_project(world, &other, json!({ "auto-destroy-activity-duration": null })).await;
    assert_eq!(duration(&show(world, &two).await), (Value::Null, json!(true)));
    patch_project(world, &other, json!({ "auto-destroy-activity-duration": "5h" })).await;
    let name = "auto-destroy-activity-duration";
    let never = patch(&world.owner, &two, json!({ name: null })).await;
    assert_eq!(duration(&never), (Value::Null, json!(false)));
    let again = patch(&world.owner, &two, json!({ "inherits-project-auto-destroy": true })).await;
    assert_eq!(duration(&again), (json!("5h"), json!(true)));
    let refused = patch(&world.owner, &two, json!({ name: "1d", "inherits-project-auto-destroy": true })).await;
    assert_invalid(&refused, "inherits-project-auto-destroy", "Inherits");
    let bad = patch(&world.owner, &two, json!({ name: "20m" })).await;
    assert_invalid(&bad, name, "Auto destroy activity duration has an incorrect format");
}

async fn execution_mode_is_inherited_or_overridden(world: &World) {
    let owner = &world.owner;
    let assert_mode = |of: &Answer, mode: &str, is_own: bool| {
        let flags = attribute(of, "setting-overwrites");
        assert_eq!(flags["execution-mode"], flags["agent-pool"]);
        assert_eq!((attribute(of, "execution-mode"), &flags["agent-pool"]), (&json!(mode), &json!(is_own)));
    };
    let set = async |mode: &str| {
        assert_eq!(owner.change("organizations/acme", json!({ "default-execution-mode": mode })).await.status, 200);
    };
    set("local").await;
    let project = world.project("Modes").await;
    let made = create(owner, json!({ "name": "one" }), &project).await;
    assert_mode(&made, "local", false);
    assert_eq!(attribute(&made, "operations"), false);
    let id = made.body["data"]["id"].as_str().unwrap();
    set("remote").await;
    assert_mode(&show(world, id).await, "remote", false);
    let pool = owner.create(POOLS, resource("agent-pools", json!({ "name": "pool" }))).await;
    let agent = json!({ "default-execution-mode": "agent", "default-agent-pool-id": pool });
    patch_project(world, &project, agent).await;
    let inherited = show(world, id).await;
    assert_mode(&inherited, "agent", false);
    assert_eq!(link(&inherited, "agent-pool"), &pool);
    let own = patch(owner, id, json!({ "execution-mode": "local" })).await;
    assert_mode(&own, "local", true);
    assert_eq!(own.body["data"]["relationships"]["agent-pool"]["data"], Value::Null);
    let back = patch(owner, id, json!({ "setting-overwrites": { "execution-mode": false, "agent-pool": null } })).await;
    assert_mode(&back, "agent", false);
    let old = create(owner, json!({ "name": "old", "operations": false }), "").await;
    assert_mode(&old, "local", true);
    let both = create(owner, json!({ "name": "both", "operations": false, "execution-mode": "local" }), "").await;
    assert_mode(&both, "local", true);
    let apart = create(owner, json!({ "name": "apart", "operations": false, "execution-mode": "remote" }), "").await;
    assert_invalid(&apart, "operations", "Operations must agree with execution-mode");
    let wins = json!({ "execution-mode": "remote", "setting-overwrites": { "execution-mode": false } });
    assert_mode(&patch(owner, &id_of(&both), wins).await, "remote", false);
    let unknown = json!({ "name": "u", "execution-mode": "agent", "agent-pool-id": "apool-x" });
    assert_invalid(&create(owner, unknown, "").await, "agent-pool-id", "Agent pool must be an agent pool of");
    let stray = json!({ "name": "s", "execution-mode": "remote", "agent-pool-id": pool });
    let unless = "Agent pool must not be specified unless using 'agent' execution mode";
    assert_invalid(&create(owner, stray, "").await, "agent-pool-id", unless);
    let alone = create(owner, json!({ "name": "a", "execution-mode": "agent" }), "").await;
    assert_invalid(&alone, "agent-pool-id", "Agent pool must be specified when using 'agent' execution mode");
    let unequal = json!({ "name": "f", "setting-overwrites": { "execution-mode": true, "agent-pool": false } });
    let text =
        "If agent-pool and execution-mode are both included in setting-overwrites, their values must be the same.";
    assert_invalid(&create(owner, unequal, "").await, "setting-overwrites", text);
    let with = create(owner, json!({ "name": "w", "execution-mode": "agent", "agent-pool-id": pool }), "").await;
    assert_mode(&with, "agent", true);
}

async fn terraform_version_and_auto_destroy_time_are_validated(world: &World) {
    let version = |version: &str, n: usize| json!({ "name": format!("v{n}"), "terraform-version": version });
    let bad = create(&world.owner, version("nonexisting", 0), "").await;
    assert_invalid(&bad, "terraform-version", "Terraform version must be");
    for (n, good) in ["0.11.0", "latest", "~> 1.5"].into_iter().enumerate() {
        let made = create(&world.owner, version(good, n), "").await;
        assert_eq!((made.status, attribute(&made, "terraform-version")), (201, &json!(good)));
    }
    let at = json!({ "name": "timed", "auto-destroy-at": "2025-01-01T00:00:00Z" });
    let id = id_of(&create(&world.owner, at, "").await);
    let time = json!("2025-01-01T00:00:00.000Z");
    assert_eq!(attribute(&show(world, &id).await, "auto-destroy-at"), &time);
    let unchanged = patch(&world.owner, &id, json!({ "description": "x" })).await;
    assert_eq!(attribute(&unchanged, "auto-destroy-at"), &time);
    let bad = patch(&world.owner, &id, json!({ "terraform-version": "nonexisting" })).await;
    assert_invalid(&bad, "terraform-version", "Terraform version must be");
    let cleared = patch(&world.owner, &id, json!({ "auto-destroy-at": null })).await;
    assert_eq!(attribute(&cleared, "auto-destroy-at"), &Value::Null);
    let soon = patch(&world.owner, &id, json!({ "auto-destroy-at": "soon" })).await;
    assert_invalid(&soon, "auto-destroy-at", "Auto destroy at must be a time");
}

async fn workspace_update_changes_only_given_attributes(world: &World) {
    let owner = &world.owner;
    let id = id_of(&create(&world.owner, json!({ "name": "one", "description": "d", "auto-apply": true }), "").await);
    world.workspace("", "two").await;
    let before = show(world, &id).await.body["data"].clone();
    assert_eq!(patch(owner, &id, json!({})).await.body["data"], before, "nothing given, nothing changed");
    let renamed = patch(owner, &id, json!({ "name": "ONE" })).await;
    assert_eq!((attribute(&renamed, "name"), attribute(&renamed, "description")), (&json!("ONE"), &json!("d")));
    assert_eq!(show(world, &id).await.body["data"], renamed.body["data"]);
    let by_name =
        owner.patch(&format!("{WORKSPACES}/one"), resource("workspaces", json!({ "auto-apply": null }))).await;
    assert_eq!(attribute(&by_name, "auto-apply"), false);
    assert_invalid(&patch(owner, &id, json!({ "name": "Two" })).await, "name", "Name has already been taken");
    assert_invalid(&patch(owner, &id, json!({ "name": null })).await, "name", "Name can't be blank");
    let mut other = resource("workspaces", json!({}));
    other["data"]["id"] = "ws-other".into();
    assert_refused(&owner.patch(&format!("workspaces/{id}"), other).await, 409, &[("/data/id", "id must be")]);
}

async fn workspace_list_sorting_search_and_filters(world: &World) {
    let owner = &world.owner;
    let list = async |query: &str| names(&owner.get(&format!("{WORKSPACES}?{query}")).await);
    let project = world.project("Listed").await;
    let tagged = |name: &str, pairs: &[(&str, &str)]| {
        related("workspaces", json!({ "name": name }), "tag-bindings", tags(pairs))
    };
    let shop = [("foo", ""), ("env", "dev")];
    for body in [tagged("shop-prod", &shop), tagged("a_b-prod", &[("foo", "")]), tagged("axb", &[("env", "prod")])] {
        assert_eq!(owner.post(WORKSPACES, body).await.status, 201);
    }
    world.workspace(&project, "Zoo").await;
    assert_eq!(list("").await, ["a_b-prod", "axb", "shop-prod", "Zoo"]);
    assert_eq!(list("sort=-name").await, ["Zoo", "shop-prod", "axb", "a_b-prod"]);
    assert_eq!(list("sort=current-run.created-at").await, ["a_b-prod", "axb", "shop-prod", "Zoo"]);
    assert_refused(&owner.get(&format!("{WORKSPACES}?sort=id")).await, 400, &[("sort", "sort must be")]);
    assert_eq!(list("search[wildcard-name]=*-prod").await, ["a_b-prod", "shop-prod"]);
    assert_eq!(list("search[wildcard-name]=z*").await, ["Zoo"]);
    assert_eq!(list("search[wildcard-name]=prod").await, [""; 0]);
    assert_eq!(list("search[name]=A_B").await, ["a_b-prod"]);
    assert_eq!(list("search[tags]=foo").await, ["a_b-prod", "shop-prod"]);
    assert_eq!(list("search[tags]=foo,env").await, ["shop-prod"]);
    assert_eq!(list("search[exclude-tags]=foo").await, ["axb", "Zoo"]);
    assert_eq!(list("filter[tagged][0][key]=env&filter[tagged][0][value]=").await, ["axb", "shop-prod"]);
    assert_eq!(list("filter[tagged][0][key]=env&filter[tagged][0][value]=prod").await, ["axb"]);
    assert_eq!(list(&format!("filter[project][id]={project}")).await, ["Zoo"]);
    assert_eq!(list("filter[project][id]=prj-unknown").await, [""; 0]);
    assert_eq!(list("filter[current-run][status]=planned").await, [""; 0]);
    assert_eq!(list("TagBindings=%7B%20env%20dev%7D").await.len(), 4, "an unknown parameter");
    let page = owner.get(&format!("{WORKSPACES}?page[size]=3&page[number]=2&search[name]=o")).await;
    assert_eq!((names(&page), total(&page)), (Vec::new(), &json!(3)));
    let last = owner.get(&format!("{WORKSPACES}?page[size]=3&page[number]=2")).await;
    assert_eq!((names(&last), total(&last)), (vec!["Zoo".to_owned()], &json!(4)));
    let many = vec!["x"; 21].join(",");
    assert_refused(
        &owner.get(&format!("{WORKSPACES}?search[tags]={many}")).await,
        400,
        &[("search[tags]", "search[tags]: at most 20")],
    );
}

async fn workspace_list_shows_only_accessible_workspaces(world: &World) {
    let one = world.project("One").await;
    let two = world.project("Two").await;
    world.workspace(&one, "in-one").await;
    world.workspace(&two, "in-two").await;
    world.workspace("", "in-default").await;
    let reader = world.member("rita", NONE).await;
    world.grant(&reader.team, &one, ProjectRights::READ).await;
    let nothing = world.member("nina", NONE).await;
    let reads = world.member("rolf", NONE.with(Flag::ReadWorkspaces, true)).await;
    let outsider = world.outsider("xaver").await;
    let list = reader.api.get(WORKSPACES).await;
    assert_eq!((names(&list), total(&list)), (vec!["in-one".to_owned()], &json!(1)));
    assert_eq!(names(&reader.api.get(&format!("{WORKSPACES}?filter[project][id]={two}")).await), [""; 0]);
    assert_eq!(names(&reader.api.get(&format!("{WORKSPACES}?filter[project][id]={one}")).await), ["in-one"]);
    assert_eq!(names(&nothing.api.get(WORKSPACES).await), [""; 0]);
    assert_eq!(names(&reads.api.get(WORKSPACES).await), ["in-default", "in-one", "in-two"]);
    assert_eq!(outsider.api.get(WORKSPACES).await.status, 404);
    let seen = names(&reads.api.get(&format!("{WORKSPACES}?include=project")).await);
    assert_eq!(seen.len(), 3);
}

async fn workspace_includes_requested_resources(world: &World) {
    let owner = &world.owner;
    let project = world.project("Tagged").await;
    let path = format!("projects/{project}/tag-bindings");
    assert_eq!(owner.patch(&path, tags(&[("team", "a"), ("env", "x")])).await.status, 200);
    let id = world.workspace(&project, "one").await;
    world.workspace(&project, "two").await;
    let own = format!("workspaces/{id}/tag-bindings");
    assert_eq!(owner.patch(&own, tags(&[("env", "y")])).await.status, 200);
    let all = "organization,project,effective-tag-bindings,current_run";
    let list = owner.get(&format!("{WORKSPACES}?include={all}")).await.assert_status(200);
    let included = list.body["included"].as_array().unwrap();
    let of = |kind: &str| included.iter().filter(|one| one["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("organizations"), [&owner.get("organizations/acme").await.body["data"]]);
    assert_eq!(of("projects"), [&owner.get(&format!("projects/{project}")).await.body["data"]]);
    // The workspace's own binding and the project's two, each once.
    assert_eq!(of("effective-tag-bindings").len(), 3);
    let data = |n: usize| list.body["data"][n]["relationships"]["effective-tag-bindings"]["data"].as_array().unwrap();
    assert_eq!((data(0).len(), data(1).len()), (2, 2));
    let shown = owner.get(&format!("workspaces/{id}?include=project")).await;
    assert_eq!(shown.body["included"][0]["id"], *project);
    assert!(show(world, &id).await.body.get("included").is_none());
    let bad = owner.get(&format!("{WORKSPACES}?include=nothing")).await;
    assert_refused(&bad, 400, &[("include", "the include parameter")]);
}

async fn access_levels_determine_workspace_permissions(world: &World) {
    const ALL: [&str; 14] = [
        "can-read-settings",
        "can-update",
        "can-destroy",
        "can-force-delete",
        "can-lock",
        "can-unlock",
        "can-force-unlock",
        "can-manage-run-tasks",
        "can-queue-run",
        "can-queue-apply",
        "can-queue-destroy",
        "can-read-variable",
        "can-update-variable",
        "can-read-state-versions",
    ];
    let project = world.project("Levels").await;
    let id = world.workspace(&project, "one").await;
    let permissions = async |person: &Person| {
        let shown = person.api.get(&format!("workspaces/{id}")).await.assert_status(200);
        let all = attribute(&shown, "permissions").clone();
        assert!(ALL.iter().all(|name| all[name].is_boolean()), "{all}");
        ALL.into_iter().filter(|name| all[name] == true).collect::<Vec<_>>()
    };
    let read = ["can-read-settings", "can-read-variable", "can-read-state-versions"];
    let reader = world.member("rita", NONE).await;
    set_access_level(world, &reader, &project, json!({ "access": "read" })).await;
    assert_eq!(permissions(&reader).await, read);
    let everywhere = world.member("ralf", NONE.with(Flag::ReadWorkspaces, true)).await;
    assert_eq!(permissions(&everywhere).await, read);
    let writer = world.member("will", NONE).await;
    set_access_level(world, &writer, &project, json!({ "access": "write" })).await;
    let not_write = ["can-update", "can-destroy", "can-force-delete", "can-force-unlock", "can-manage-run-tasks"];
    let write: Vec<_> = ALL.into_iter().filter(|name| !not_write.contains(name)).collect();
    assert_eq!(permissions(&writer).await, write);
    let maintainer = world.member("mark", NONE).await;
    set_access_level(world, &maintainer, &project, json!({ "access": "maintain" })).await;
    assert_eq!(permissions(&maintainer).await, ALL);
    let manager = world.member("mara", NONE.with(Flag::ManageWorkspaces, true)).await;
    assert_eq!(permissions(&manager).await, ALL);
    let custom = world.member("carl", NONE).await;
    let keys = json!({ "delete": true, "runs": "plan", "variables": "read" });
    set_access_level(world, &custom, &project, json!({ "access": "custom", "workspace-access": keys })).await;
    assert_eq!(permissions(&custom).await, ["can-read-settings", "can-destroy", "can-queue-run", "can-read-variable"]);
    let nothing = world.member("nina", NONE).await;
    assert_eq!(nothing.api.get(&format!("workspaces/{id}")).await.status, 404);
    assert_eq!(world.outsider("xaver").await.api.get(&format!("workspaces/{id}")).await.status, 404);
    // Without the right, the resource is not found, for changes and for creations.
    for person in [&reader, &writer, &custom, &nothing] {
        patch(&person.api, &id, json!({ "name": 7 })).await.assert_status(404);
        assert_eq!(create(&person.api, json!({ "name": "new" }), &project).await.status, 404);
        assert_eq!(create(&person.api, json!({ "name": "new" }), "").await.status, 404);
    }
    assert_eq!(patch(&maintainer.api, &id, json!({ "description": "m" })).await.status, 200);
    assert_eq!(create(&maintainer.api, json!({ "name": "new" }), &project).await.status, 201);
    assert_eq!(create(&manager.api, json!({ "name": "default" }), "").await.status, 201);
    assert_eq!(create(&manager.api, json!({ "name": "hidden" }), &project).await.status, 404);
}

async fn workspace_update_moves_to_another_project(world: &World) {
    let one = world.project("One").await;
    let two = world.project("Two").await;
    let id = world.workspace(&one, "app").await;
    let path = format!("workspaces/{id}");
    let mover = world.member("mona", NONE).await;
    let moves = json!({ "access": "custom", "workspace-access": { "move": true } });
    set_access_level(world, &mover, &one, moves.clone()).await;
    assert_eq!(mover.api.patch(&path, in_project(&two, json!({}))).await.status, 404, "not into the other");
    set_access_level(world, &mover, &two, moves).await;
    let renaming = mover.api.patch(&path, in_project(&two, json!({ "name": "other" }))).await;
    assert_eq!(renaming.status, 404, "who may move it may not rename it");
    let moved = mover.api.patch(&path, in_project(&two, json!({}))).await.assert_status(200);
    assert_eq!(link(&moved, "project"), &two);
    assert_eq!((workspace_count(world, &one).await, workspace_count(world, &two).await), (json!(0), json!(1)));
    let maintainer = world.member("mark", NONE).await;
    set_access_level(world, &maintainer, &two, json!({ "access": "maintain" })).await;
    set_access_level(world, &maintainer, &one, json!({ "access": "admin" })).await;
    let refused = maintainer.api.patch(&path, in_project(&one, json!({}))).await.assert_status(403);
    assert!(refused.text.contains(&id), "{}", refused.text);
    assert_eq!(world.owner.patch(&path, in_project("prj-unknown", json!({}))).await.status, 404);
    let both = world.owner.patch(&path, in_project(&one, json!({ "name": "moved" }))).await;
    assert_eq!((both.status, attribute(&both, "name")), (200, &json!("moved")));
    assert_eq!(link(&both, "project"), &one);
}

async fn workspace_deletion_depends_on_rights_and_lock(world: &World) {
    let owner = &world.owner;
    let project = world.project("Gone").await;
    let id = world.workspace(&project, "one").await;
    world.workspace(&project, "two").await;
    let three = world.workspace(&project, "three").await;
    let deleter = world.member("dora", NONE).await;
    let keys = json!({ "access": "custom", "workspace-access": { "delete": true } });
    set_access_level(world, &deleter, &project, keys).await;
    let reader = world.member("rita", NONE).await;
    set_access_level(world, &reader, &project, json!({ "access": "read" })).await;
    assert_eq!(reader.api.delete(&format!("workspaces/{id}")).await.status, 404);
    assert_refused(&deleter.api.delete(&format!("workspaces/{id}")).await, 403, &[("", "you may not force")]);
    let path = format!("{WORKSPACES}/TWO/actions/safe-delete");
    assert_eq!(owner.send_text(reqwest::Method::POST, &path, String::new()).await.status, 204);
    assert_eq!(deleter.api.act(&three, "safe-delete").await.status, 204);
    owner.delete(&format!("workspaces/{id}")).await.assert_status(204);
    assert_eq!(owner.delete(&format!("workspaces/{id}")).await.status, 404);
    world.workspace(&project, "four").await;
    assert_eq!(owner.delete(&format!("{WORKSPACES}/four")).await.status, 204);
    assert_eq!(workspace_count(world, &project).await, 0);
    assert_eq!(total(&owner.get(WORKSPACES).await), 0);
    assert_eq!(owner.delete(&format!("projects/{project}")).await.status, 204);
}

async fn concurrent_workspace_creations_keep_counts(world: &World) {
    let project = world.project("Busy").await;
    let creates = (0..10).map(|_| create(&world.owner, json!({ "name": "same" }), &project));
    assert_eq!(statuses(&join_all(creates).await), [vec![201], vec![422; 9]].concat());
    assert_eq!(workspace_count(world, &project).await, 1);
    let list = world.owner.get(WORKSPACES).await;
    assert_eq!(total(&list), 1);
    let id = list.body["data"][0]["id"].as_str().unwrap().to_owned();
    let changes = (0..10).map(|n| {
        let name = ["description", "working-directory"][n % 2];
        patch(&world.owner, &id, json!({ name: n.to_string() }))
    });
    assert_eq!(statuses(&join_all(changes).await), [200; 10]);
    let shown = show(world, &id).await;
    assert!(attribute(&shown, "description") != &Value::Null && attribute(&shown, "working-directory") != "");
    let path = format!("{WORKSPACES}/same");
    let deletes = (0..5).map(|_| world.owner.delete(&path));
    assert_eq!(statuses(&join_all(deletes).await), [204, 404, 404, 404, 404]);
    assert_eq!(workspace_count(world, &project).await, 0);
}
