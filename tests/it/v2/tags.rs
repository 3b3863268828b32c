//! Tag bindings of projects and workspaces.

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};

use super::fixture::{
    Api, NONE, PROJECTS, WORKSPACES, World, assert_refused, attribute, flat_tags as flat, items, names, on_both_stores,
    pairs, path_of, related, statuses, tags,
};
use crate::support::Answer;

on_both_stores!(
    tag_bindings_are_merged_and_replaced,
    workspace_inherits_tags_of_its_project,
    flat_tags,
    flat_tags_are_removed,
    concurrent_flat_tag_removals_succeed,
    concurrent_tag_merges_keep_the_limit,
);

async fn merge(api: &Api, path: &str, pairs: &[(&str, &str)]) -> Answer {
    api.patch(&format!("{path}/tag-bindings"), tags(pairs)).await
}

/// Creates a workspace with a list of tags, and returns its path.
async fn workspace(world: &World, name: &str, relationship: &str, tags: Value) -> String {
    let body = related("workspaces", json!({ "name": name }), relationship, tags);
    path_of(&world.owner.post(WORKSPACES, body).await.assert_status(201))
}

/// Paths of a project and of a workspace in it; the same rules apply to their tags.
async fn holders(world: &World) -> [(String, &'static str); 2] {
    let project = world.project("Tagged").await;
    let workspace = world.workspace(&project, "tagged").await;
    [(format!("projects/{project}"), "projects"), (format!("workspaces/{workspace}"), "workspaces")]
}

async fn tag_bindings_are_merged_and_replaced(world: &World) {
    let api = &world.owner;
    for (path, kind) in holders(world).await {
        assert_eq!(pairs(&api.get(&format!("{path}/tag-bindings")).await), "");
        let first = merge(api, &path, &[("foo", "bar"), ("baz", "qux")]).await;
        assert_eq!(pairs(&first), "foo=bar baz=qux");
        let id = first.body["data"][0]["id"].clone();
        assert!(id.as_str().unwrap().starts_with("tb-"), "{id}");
        let changed = merge(api, &path, &[("foo", "x")]).await;
        assert_eq!(pairs(&changed), "foo=x baz=qux");
        assert_eq!(changed.body["data"][0]["id"], id, "a changed value keeps its id and place");
        assert_eq!(api.get(&format!("{path}/tag-bindings")).await.body, changed.body);
        let many: Vec<String> = (0..26).map(|n| format!("k{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|key| (&key[..], "")).collect();
        assert_refused(&merge(api, &path, &many).await, 422, &[("/data", "at most 10 tags")]);
        assert_refused(&merge(api, &path, &many[..9]).await, 422, &[("/data", "at most 10 tags")]);
        assert_eq!(items(&api.get(&format!("{path}/tag-bindings")).await).len(), 2, "nothing stored");
        assert_eq!(items(&merge(api, &path, &many[..8]).await).len(), 10);
        let bad = merge(api, &path, &[("", "x"), ("k", &"v".repeat(257))]).await;
        let faults = [("/data/0/attributes/key", "Key must"), ("/data/1/attributes/value", "Value must")];
        assert_refused(&bad, 422, &faults);
        assert_eq!(api.patch(&format!("{path}/tag-bindings"), json!({ "data": {} })).await.status, 422);
        let replace = async |list: Value| api.patch(&path, related(kind, json!({}), "tag-bindings", list)).await;
        assert_eq!(replace(tags(&[("new", "1"), ("foo", "y")])).await.status, 200);
        let replaced = api.get(&format!("{path}/tag-bindings")).await;
        assert_eq!(pairs(&replaced), "foo=y new=1");
        assert_eq!(replaced.body["data"][0]["id"], id);
        assert_eq!(replace(tags(&[])).await.status, 200);
        assert_eq!(pairs(&api.get(&format!("{path}/tag-bindings")).await), "");
        let reader = world.member(if kind == "projects" { "rita" } else { "rosa" }, NONE).await;
        assert_eq!(reader.api.get(&format!("{path}/tag-bindings")).await.status, 404);
        assert_eq!(merge(&reader.api, &path, &[("a", "b")]).await.status, 404);
    }
}

async fn workspace_inherits_tags_of_its_project(world: &World) {
    let api = &world.owner;
    let [(project, _), (workspace_path, _)] = holders(world).await;
    merge(api, &project, &[("a", "9"), ("z", "2")]).await;
    merge(api, &workspace_path, &[("a", "1")]).await;
    let effective = api.get(&format!("{workspace_path}/effective-tag-bindings")).await;
    assert_eq!(pairs(&effective), "a=1 z=2");
    let items = effective.body["data"].as_array().unwrap();
    assert!(items.iter().all(|item| item["type"] == "effective-tag-bindings"));
    assert!(items[0].get("links").is_none(), "an own one has no links");
    assert_eq!(items[1]["links"]["inherited-from"], format!("/api/v2/{project}"));
    let of_project = api.get(&format!("{project}/effective-tag-bindings")).await;
    assert_eq!(pairs(&of_project), "a=9 z=2");
    assert!(of_project.body["data"][0].get("links").is_none());
    let seven = workspace(world, "seven", "tag-bindings", tags(&[("a", "7")])).await;
    assert_eq!(attribute(&api.get(&seven).await, "tag-names"), &json!([]), "a tag with a value is not flat");
    let list = async |query: &str| names(&api.get(&format!("{WORKSPACES}?{query}")).await);
    let tagged = |key: &str, value: &str| {
        format!("filter[tagged][0][key]={key}&filter[tagged][0][value]={value}&search[tags]={key}")
    };
    assert_eq!(list(&tagged("a", "")).await, ["seven", "tagged"]);
    assert_eq!(list(&tagged("a", "7")).await, ["seven"]);
    assert_eq!(list(&tagged("a", "9")).await, [""; 0], "overridden by the workspace's own");
    assert_eq!(list(&tagged("z", "2")).await, ["tagged"], "inherited");
    let value = |value: &str| format!("filter[tagged][0][value]={value}");
    assert_eq!(list(&value("7")).await, ["seven"]);
    assert_eq!(list(&value("2")).await, ["tagged"], "inherited, of any key");
    assert_eq!(list(&value("9")).await, [""; 0]);
    let apart = "filter[tagged][0][key]=a&filter[tagged][1][value]=2";
    assert_eq!(list(apart).await, ["tagged"], "a key and a value of different pairs");
    let link = api.get(&format!("{WORKSPACES}?{apart}")).await.body["links"]["self"].clone();
    assert!(link.as_str().unwrap().contains("filter%5Btagged%5D%5B1%5D%5Bvalue%5D=2"), "{link}");
    let of_projects = api.get(&format!("{PROJECTS}?filter[tagged][0][value]=2")).await;
    assert_eq!(of_projects.body["meta"]["status-counts"]["matching"], 1);
    for refused in [
        "filter[tagged][0][val]=7",
        "filter[tagged][0][key]=",
        "filter[tagged]=a",
        "filter[name]=a",
        "search[tag]=a",
        "filter[names]=a",
    ] {
        let answer = api.get(&format!("{WORKSPACES}?{refused}")).await;
        let name = refused.split('=').next().unwrap();
        assert_refused(&answer, 400, &[(name, name.strip_suffix("[key]").unwrap_or(name))]);
    }
    for list in ["teams", "agent-pools", "organization-memberships", "projects"] {
        let answer = api.get(&format!("organizations/acme/{list}?filter[unknown]=a")).await;
        assert_refused(&answer, 400, &[("filter[unknown]", "filter[unknown] is not a filter of this list")]);
    }
    let reader = world.member("rita", NONE).await;
    world.grant(&reader.team, project.strip_prefix("projects/").unwrap(), ProjectRights::READ).await;
    assert_eq!(reader.api.get(&format!("{workspace_path}/effective-tag-bindings")).await.body, effective.body);
    assert_eq!(merge(&reader.api, &workspace_path, &[("a", "b")]).await.status, 404);
    assert_eq!(merge(&reader.api, &project, &[("a", "b")]).await.status, 404);
}

async fn remove(api: &Api, path: &str, tags: Value) -> Answer {
    api.delete_with(&format!("{path}/relationships/tags"), tags).await
}

async fn flat_tags(world: &World) {
    let path = workspace(world, "flat", "tags", flat(&["tag1", "tag2"])).await;
    let path_of_tags = format!("{path}/relationships/tags");
    assert_eq!(attribute(&world.owner.get(&path).await, "tag-names"), &json!(["tag1", "tag2"]));
    let bindings = world.owner.get(&format!("{path}/tag-bindings")).await;
    assert_eq!(pairs(&bindings), "tag1= tag2=");
    merge(&world.owner, &path, &[("tag2", "value")]).await;
    let more: Vec<String> = (0..11).map(|n| format!("more{n:02}")).collect();
    let more: Vec<&str> = ["tag1", "tag2"].into_iter().chain(more.iter().map(String::as_str)).collect();
    world.owner.post(&path_of_tags, flat(&more)).await.assert_status(204);
    let shown = world.owner.get(&path).await;
    let names = attribute(&shown, "tag-names").as_array().unwrap();
    assert_eq!((names.len(), &names[0], &names[1]), (12, &json!("tag1"), &json!("more00")), "no limit for flat ones");
    let bad = world.owner.post(&path_of_tags, json!({ "data": [{ "id": "tag-1" }] })).await;
    assert_refused(&bad, 422, &[("/data/0/attributes/name", "Name must")]);
    for name in ["Foo", "foo", "FOO"] {
        assert_eq!(world.owner.post(&path_of_tags, flat(&[name])).await.status, 204);
    }
    let shown = world.owner.get(&path).await;
    let names = attribute(&shown, "tag-names").as_array().unwrap();
    assert_eq!((names.len(), names.last().unwrap()), (13, &json!("foo")), "flat tags have no case");
    for (query, found) in [("search[tags]=FOO", 1), ("search[tags]=foo,TAG1", 1), ("search[exclude-tags]=Foo", 0)] {
        let list = world.owner.get(&format!("{WORKSPACES}?{query}")).await;
        assert_eq!(items(&list).len(), found, "{query}");
    }
    assert_eq!(world.owner.post(&path_of_tags, flat(&[&"x".repeat(255)])).await.status, 204);
    for bad in [&"x".repeat(256)[..], "a,b", "a b", "-a", "a_", ""] {
        let refused = world.owner.post(&path_of_tags, flat(&[bad])).await;
        assert_refused(&refused, 422, &[("/data/0/attributes/name", "Name must have 1 to 255 letters")]);
        let body = related("workspaces", json!({ "name": "bad" }), "tags", flat(&[bad]));
        assert_eq!(world.owner.post(WORKSPACES, body).await.status, 422, "{bad}");
    }
    let reader = world.member("rita", NONE.with(Flag::ReadWorkspaces, true)).await;
    assert_eq!(reader.api.post(&path_of_tags, flat(&["x"])).await.status, 404);
}

async fn flat_tags_are_removed(world: &World) {
    let owner = &world.owner;
    let path = workspace(world, "flat", "tags", flat(&["a", "b", "c", "d", "e"])).await;
    let other = workspace(world, "other", "tags", flat(&["a", "b"])).await;
    merge(owner, &path, &[("paired", "value")]).await;
    let names = async |path: &str| attribute(&owner.get(path).await, "tag-names").clone();
    let bindings = owner.get(&format!("{path}/tag-bindings")).await;
    let id = |key: &str| {
        let binding = items(&bindings).iter().find(|one| one["attributes"]["key"] == key);
        binding.unwrap()["id"].clone()
    };
    remove(owner, &path, flat(&["a"])).await.assert_status(204);
    assert_eq!(names(&path).await, json!(["b", "c", "d", "e"]));
    let by_id = json!({ "data": [{ "type": "tags", "id": id("b") }, { "type": "tags", "id": id("c"), "attributes": {} },
        { "type": "tags", "id": "", "attributes": { "name": "d" } }] });
    assert_eq!(remove(owner, &path, by_id).await.status, 204);
    assert_eq!(names(&path).await, json!(["e"]));
    // Tags that are missing, belong to another workspace or have a value are ignored without an error.
    let elsewhere = owner.get(&format!("{other}/tag-bindings")).await;
    let absent = json!({ "data": [{ "type": "tags", "id": "tag-WLSoMYfz3LUu9Rtz" },
        { "type": "tags", "id": items(&elsewhere)[0]["id"] }, { "type": "tags", "id": id("paired") },
        { "type": "tags", "attributes": { "name": "never" } }, { "type": "tags", "attributes": { "name": "paired" } }] });
    assert_eq!(remove(owner, &path, absent).await.status, 204);
    assert_eq!(remove(owner, &path, json!({ "data": [] })).await.status, 204);
    assert_eq!(pairs(&owner.get(&format!("{path}/tag-bindings")).await), "e= paired=value");
    assert_eq!(attribute(&owner.get(&other).await, "tag-names"), &json!(["a", "b"]));
    let nameless = json!({ "data": [{ "type": "tags" }, { "id": 7 }, { "attributes": { "name": "" } }, 7,
        { "attributes": { "name": "a\0" } }] });
    let places = [0, 1, 2, 3, 4].map(|n| format!("/data/{n}/id"));
    let refused = remove(owner, &path, nameless).await;
    assert_refused(&refused, 422, &places.each_ref().map(|place| (&place[..], "a tag needs an id or a name")));
    assert_eq!(remove(owner, &path, json!({ "data": { "type": "tags" } })).await.status, 422);
    let reader = world.member("rita", NONE.with(Flag::ReadWorkspaces, true)).await;
    assert_eq!(remove(&reader.api, &path, flat(&["e"])).await.status, 404);
    assert_eq!(names(&path).await, json!(["e"]));
    // Removing tags needs the same right as adding them.
    let tagger = world.member("tara", NONE.with(Flag::ManageWorkspaces, true)).await;
    assert_eq!(remove(&tagger.api, &path, flat(&["e"])).await.status, 204);
    assert_eq!(names(&path).await, json!([]));
}

async fn concurrent_flat_tag_removals_succeed(world: &World) {
    let tags: Vec<String> = (0..20).map(|n| format!("t{n}")).collect();
    let path = workspace(world, "busy", "tags", flat(&tags)).await;
    // Each tag twice, in either order.
    let removals = (0..20).map(|n| remove(&world.owner, &path, flat(&[&tags[n], &tags[(n + 1) % 20]])));
    assert_eq!(statuses(&join_all(removals).await), [204; 20]);
    assert_eq!(attribute(&world.owner.get(&path).await, "tag-names"), &json!([]));
}

async fn concurrent_tag_merges_keep_the_limit(world: &World) {
    let [(project, _), _] = holders(world).await;
    let keys: Vec<String> = (0..14).map(|n| format!("k{n}")).collect();
    let merged = keys.iter().map(|key| [(&key[..], "v")]).collect::<Vec<_>>();
    let merges = merged.iter().map(|tags| merge(&world.owner, &project, tags));
    assert_eq!(statuses(&join_all(merges).await), [vec![200; 10], vec![422; 4]].concat());
    assert_eq!(items(&world.owner.get(&format!("{project}/tag-bindings")).await).len(), 10);
}
