//! Agent pools.

use serde_json::{Value, json};
use signet::projects::id::new as new_id;
use signet::projects::rights::{OrganizationFlag as Flag, OrganizationRights, ProjectRights};

use super::fixture::{
    ACME, NONE, POOLS, PROJECTS, WORKSPACES, World, assert_invalid, assert_refused, attribute, ids, in_project, items,
    link, linked, names, on_both_stores, path_of, related as with_list, resource, these,
};
use crate::support::Answer;

on_both_stores!(
    pools_are_created_changed_and_deleted,
    a_pool_is_used_within_its_scope,
    agent_pool_list_pages_and_filters,
    pool_lists_and_filters_hide_invisible_resources,
    pools_with_too_many_references_need_smaller_pages,
    hidden_entries_count_towards_the_list_limit,
);

const AGENTS: OrganizationRights = NONE.with(Flag::ManageAgentPools, true);

fn pool(attributes: Value, lists: &[(&str, &str, &[&str])]) -> Value {
    let mut body = resource("agent-pools", attributes);
    for (name, kind, ids) in lists {
        body["data"]["relationships"][*name] = these(kind, ids);
    }
    body
}

/// A change of the organization to the execution mode `agent` with this pool.
fn default_pool(pool: &str) -> Value {
    let attributes = json!({ "default-execution-mode": "agent" });
    let pool = json!({ "data": { "type": "agent-pools", "id": pool } });
    with_list("organizations", attributes, "default-agent-pool", pool)
}

fn related(answer: &Answer, name: &str) -> Vec<String> {
    let data = answer.body["data"]["relationships"][name]["data"].as_array().unwrap();
    data.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

async fn pools_are_created_changed_and_deleted(world: &World) {
    let owner = &world.owner;
    let made = owner.post(POOLS, pool(json!({ "name": "cool-pool" }), &[])).await.assert_status(201);
    let path = path_of(&made);
    let first = path.strip_prefix("agent-pools/").unwrap();
    assert!(first.starts_with("apool-") && first.len() == 22, "{first}");
    assert_eq!((attribute(&made, "agent-count"), attribute(&made, "organization-scoped")), (&json!(0), &json!(true)));
    assert_eq!(owner.get(&path).await.body, made.body);
    assert_eq!(owner.get(POOLS).await.body["data"], json!([made.body["data"]]));
    for (bad, text) in [
        (json!("COOL-pool"), "Name has already been taken"),
        (json!(null), "Name can't be blank"),
        (json!("x".repeat(91)), "Name is too long"),
    ] {
        assert_invalid(&owner.post(POOLS, pool(json!({ "name": bad }), &[])).await, "name", text);
    }
    let project = world.project("Pooled").await;
    let workspace = world.workspace("", "one").await;
    let lists: [(&str, &str, &[&str]); 3] = [
        ("allowed-workspaces", "workspaces", &[&workspace]),
        ("allowed-projects", "projects", &[&project]),
        ("excluded-workspaces", "workspaces", &[&workspace]),
    ];
    let changed = owner.patch(&path, pool(json!({ "name": "new", "organization-scoped": false }), &lists)).await;
    assert_eq!(attribute(&changed, "name"), "new");
    assert_eq!(attribute(&changed, "organization-scoped"), false);
    for (name, _, ids) in lists {
        assert_eq!(related(&changed, name), ids, "{name}");
    }
    let emptied = owner.patch(&path, pool(json!({}), &[("allowed-workspaces", "workspaces", &[])])).await;
    assert_eq!((related(&emptied, "allowed-workspaces").len(), related(&emptied, "allowed-projects").len()), (0, 1));
    let unknown = owner.patch(&path, pool(json!({}), &[("allowed-projects", "projects", &["prj-unknown"])])).await;
    let place = "/data/relationships/allowed-projects/data/0/id";
    assert_refused(&unknown, 422, &[(place, "id must be one of the projects")]);
    let for_it: [(&str, &str, &[&str]); 2] =
        [("allowed-workspaces", "workspaces", &[&workspace]), ("excluded-workspaces", "workspaces", &[])];
    assert_eq!(owner.patch(&path, pool(json!({}), &for_it)).await.status, 200);
    // A pool in use by a workspace, a project or the organization cannot be deleted.
    let agent = json!({ "execution-mode": "agent", "agent-pool-id": first });
    assert_eq!(owner.change(&format!("workspaces/{workspace}"), agent).await.status, 200);
    let shown = owner.get(&format!("{path}?include=workspaces")).await;
    assert_eq!(related(&shown, "workspaces"), std::slice::from_ref(&workspace));
    assert_eq!(shown.body["included"], json!([owner.get(&format!("workspaces/{workspace}")).await.body["data"]]));
    assert_eq!(owner.delete(&path).await.status, 409);
    assert_eq!(owner.delete(&format!("workspaces/{workspace}")).await.status, 204);
    assert_eq!(related(&owner.get(&path).await, "allowed-workspaces").len(), 0, "what is gone is not named");
    let defaults = json!({ "default-execution-mode": "agent", "default-agent-pool-id": first });
    assert_eq!(owner.change(&format!("projects/{project}"), defaults).await.status, 200);
    assert_eq!(owner.delete(&path).await.status, 409);
    assert_eq!(owner.delete(&format!("projects/{project}")).await.status, 204);
    assert_eq!(owner.patch(ACME, default_pool(first)).await.status, 422, "it is for a project");
    let scoped = pool(json!({ "organization-scoped": true }), &[]);
    assert_eq!(owner.patch(&path, scoped).await.status, 200);
    assert_eq!(owner.patch(ACME, default_pool(first)).await.status, 200);
    assert_eq!(owner.delete(&path).await.status, 409);
    assert_eq!(owner.change(ACME, json!({ "default-execution-mode": "remote" })).await.status, 200);
    assert_eq!(owner.delete(&path).await.status, 204);
    assert_eq!((owner.get(&path).await.status, owner.delete(&path).await.status), (404, 404));
}

#[track_caller]
fn assert_no_access(answer: &Answer) {
    let text = "Agent pool workspace does not have access to use this agent pool";
    assert_invalid(answer, "agent-pool-id", text);
}

/// A pool can be assigned only within its scope, and the scope cannot exclude present users of the pool.
async fn a_pool_is_used_within_its_scope(world: &World) {
    let owner = &world.owner;
    let project = world.project("Pooled").await;
    let elsewhere = world.project("Elsewhere").await;
    let scoped = json!({ "name": "narrow", "organization-scoped": false });
    let narrow = owner.create(POOLS, pool(scoped, &[])).await;
    let path = format!("agent-pools/{narrow}");
    let workspace = async |name: &str, project: &str, attributes: &Value| {
        let mut body = in_project(project, attributes.clone());
        body["data"]["attributes"]["name"] = json!(name);
        owner.post(WORKSPACES, body).await
    };
    let own = json!({ "execution-mode": "agent", "agent-pool-id": narrow });
    let inherited = json!({ "setting-overwrites": { "execution-mode": false } });
    let default = json!({ "default-execution-mode": "agent", "default-agent-pool-id": narrow });
    let in_use = async |lists: &[(&str, &str, &[&str])], by: &str| {
        let refused = owner.patch(&path, pool(json!({}), lists)).await;
        assert_refused(&refused, 409, &[("", &format!("the agent pool is in use by a {by}"))]);
    };
    let of_project = "default-agent-pool-id";
    let no_project = "Default agent pool project does not have access to use this agent pool";
    let one = world.workspace(&project, "one").await;
    let two = world.workspace(&project, "two").await;
    let change =
        async |id: &str, attributes: &Value| owner.change(&format!("workspaces/{id}"), attributes.clone()).await;
    let change_project =
        async |attributes: &Value| owner.change(&format!("projects/{project}"), attributes.clone()).await;
    let rescope = async |lists: &[(&str, &str, &[&str])]| owner.patch(&path, pool(json!({}), lists)).await;
    assert_no_access(&change(&one, &own).await);
    assert_no_access(&workspace("new", &project, &own).await);
    assert_invalid(&change_project(&default).await, of_project, no_project);
    let mut new = resource("projects", default.clone());
    new["data"]["attributes"]["name"] = json!("New");
    assert_invalid(&owner.post(PROJECTS, new).await, of_project, no_project);
    let place_of_organization = "/data/relationships/default-agent-pool";
    let refused = owner.patch(ACME, default_pool(&narrow)).await;
    assert_refused(&refused, 422, &[(place_of_organization, "Default agent pool must be scoped")]);

    assert_eq!(rescope(&[("allowed-workspaces", "workspaces", &[&one])]).await.status, 200);
    assert_eq!(change(&one, &own).await.status, 200);
    assert_no_access(&change(&two, &own).await);
    in_use(&[("allowed-workspaces", "workspaces", &[])], "workspace").await;
    in_use(&[("excluded-workspaces", "workspaces", &[&one])], "workspace").await;
    assert_eq!(owner.patch(&path, pool(json!({ "name": "renamed" }), &[])).await.status, 200);

    assert_eq!(rescope(&[("allowed-projects", "projects", &[&project])]).await.status, 200);
    assert_eq!(change_project(&default).await.status, 200);
    assert_eq!(change(&two, &own).await.status, 200);
    assert_eq!(workspace("new", &project, &own).await.status, 201);
    assert_no_access(&workspace("far", &elsewhere, &own).await);
    let there = format!("projects/{elsewhere}/relationships/workspaces");
    let moved = owner.post(&there, these("workspaces", &[&one, &two])).await;
    let unusable = format!("workspaces that may not use their agent pool in the project: {two}");
    assert_refused(&moved, 422, &[("", &unusable)]);
    let moved = owner.post(&there, these("workspaces", &[&one])).await;
    assert_eq!(moved.status, 204, "it is allowed by itself: {}", moved.text);
    in_use(&[("allowed-projects", "projects", &[])], "project").await;

    // An excluded workspace cannot inherit the pool.
    let local = json!({ "name": "three", "execution-mode": "local" });
    let three = owner.create(WORKSPACES, in_project(&elsewhere, local)).await;
    assert_eq!(rescope(&[("excluded-workspaces", "workspaces", &[&three])]).await.status, 200);
    let into = in_project(&project, json!({}));
    assert_eq!(owner.patch(&format!("workspaces/{three}"), into).await.status, 200, "its mode is its own");
    assert_no_access(&change(&three, &inherited).await);
    assert_eq!(change(&two, &inherited).await.status, 200);
    in_use(&[("excluded-workspaces", "workspaces", &[&two])], "workspace").await;

    // A project or organization cannot take a pool that excludes a workspace which would inherit it.
    let heir = world.project("Heir").await;
    let four = world.workspace(&heir, "four").await;
    let excluding = pool(json!({ "name": "wide" }), &[("excluded-workspaces", "workspaces", &[&four])]);
    let wide = owner.create(POOLS, excluding).await;
    let heirs = "Default agent pool must not exclude a workspace that would inherit it";
    let default = json!({ "default-execution-mode": "agent", "default-agent-pool-id": wide });
    let path = format!("projects/{heir}");
    let taken = owner.change(&path, default.clone()).await;
    assert_invalid(&taken, of_project, heirs);
    let taken = owner.patch(ACME, default_pool(&wide)).await;
    assert_refused(&taken, 422, &[(place_of_organization, heirs)]);
    assert_eq!(owner.change(&path, json!({ "default-execution-mode": "local" })).await.status, 200);
    let taken = owner.patch(ACME, default_pool(&wide)).await;
    assert_eq!(taken.status, 200, "the project has a mode of its own: {}", taken.text);
    let inherits = json!({ "setting-overwrites": { "default-execution-mode": false, "default-agent-pool": false } });
    let back = owner.change(&path, inherits).await;
    assert_invalid(&back, of_project, heirs);
    let local = json!({ "execution-mode": "local" });
    assert_eq!(change(&four, &local).await.status, 200);
    assert_eq!(owner.change(&path, default).await.status, 200, "nothing inherits it");

    // The relationship alone also assigns a pool.
    let by_relationship = linked("workspaces", json!({}), &[("agent-pool", &wide)]);
    let changed = owner.patch(&format!("workspaces/{one}"), by_relationship).await.assert_status(200);
    assert_eq!(link(&changed, "agent-pool"), &wide);
}

async fn agent_pool_list_pages_and_filters(world: &World) {
    let owner = &world.owner;
    let workspace = world.workspace("", "W1").await;
    let project = world.project("P_1").await;
    let scoped = json!({ "name": "b-pool", "organization-scoped": false });
    let for_workspace = pool(scoped, &[("allowed-workspaces", "workspaces", &[&workspace])]);
    let other = json!({ "name": "c_pool", "organization-scoped": false });
    let lists: [(&str, &str, &[&str]); 2] =
        [("allowed-projects", "projects", &[&project]), ("excluded-workspaces", "workspaces", &[&workspace])];
    let for_project = pool(other, &lists);
    for body in [for_workspace, for_project, pool(json!({ "name": "a-pool" }), &[])] {
        owner.create(POOLS, body).await;
    }
    let list = async |query: &str| names(&owner.get(&format!("{POOLS}?{query}")).await.assert_status(200));
    assert_eq!(list("").await, ["a-pool", "c_pool", "b-pool"]);
    assert_eq!(list("sort=created-at").await, ["b-pool", "c_pool", "a-pool"]);
    assert_eq!(list("sort=-name").await, ["c_pool", "b-pool", "a-pool"]);
    assert_eq!(list("q=C_P").await, ["c_pool"]);
    assert_eq!(list("filter[allowed_workspaces][name]=w1&sort=name").await, ["a-pool", "b-pool"]);
    assert_eq!(list("filter[allowed_projects][name]=p_1&sort=name").await, ["a-pool", "c_pool"]);
    assert_eq!(list("filter[allowed_workspaces][name]=unknown").await, ["a-pool"]);
    assert_eq!(list("page[size]=1&page[number]=3").await, ["b-pool"]);
    let member = world.member("mia", NONE).await;
    assert_eq!(items(&member.api.get(POOLS).await).len(), 3);
    assert_eq!(member.api.post(POOLS, pool(json!({ "name": "x" }), &[])).await.status, 404);
    let manager = world.member("mara", AGENTS).await;
    let made = manager.api.create(POOLS, pool(json!({ "name": "x" }), &[])).await;
    assert_eq!(member.api.delete(&format!("agent-pools/{made}")).await.status, 404);
    assert_eq!(manager.api.delete(&format!("agent-pools/{made}")).await.status, 204);
    assert_eq!(world.outsider("xaver").await.api.get(POOLS).await.status, 404);
}

/// Every member sees pools; their lists and filters do not disclose resources that the member does not see.
async fn pool_lists_and_filters_hide_invisible_resources(world: &World) {
    let owner = &world.owner;
    let project = world.project("Hidden").await;
    let workspace = world.workspace(&project, "secret").await;
    let lists: [(&str, &str, &[&str]); 3] = [
        ("allowed-workspaces", "workspaces", &[&workspace]),
        ("allowed-projects", "projects", &[&project]),
        ("excluded-workspaces", "workspaces", &[&workspace]),
    ];
    let narrow = json!({ "name": "narrow", "organization-scoped": false });
    let path = format!("agent-pools/{}", owner.create(POOLS, pool(narrow, &lists)).await);
    let manager = world.member("mara", AGENTS).await;
    let filters = ["filter[allowed_workspaces][name]=secret", "filter[allowed_projects][name]=Hidden"];
    let sees = async |expected: usize| {
        for answer in [manager.api.get(&path).await, manager.api.patch(&path, pool(json!({}), &[])).await] {
            assert_eq!(lists.map(|(name, ..)| related(&answer, name).len()), [expected; 3], "{}", answer.text);
        }
        for filter in filters {
            let found = manager.api.get(&format!("{POOLS}?{filter}")).await;
            assert_eq!(found.body["data"].as_array().map(Vec::len), Some(expected), "{filter}: {}", found.text);
        }
    };
    sees(0).await;
    for (name, kind, ids) in lists {
        let named = manager.api.patch(&path, pool(json!({}), &[(name, kind, ids)])).await;
        let fault = format!("/data/relationships/{name}/data/0/id");
        assert_refused(&named, 422, &[(&fault, &format!("id must be one of the {kind}"))]);
    }
    let emptied = lists.map(|(name, kind, _)| (name, kind, &[][..]));
    let changed = manager.api.patch(&path, pool(json!({ "name": "renamed" }), &emptied)).await;
    assert_eq!(attribute(&changed, "name"), "renamed");
    let whole = owner.get(&path).await;
    for (name, _, ids) in lists {
        assert_eq!(related(&whole, name), ids, "{name}: a change by who does not see it leaves it");
    }
    world.grant(&manager.team, &project, ProjectRights::READ).await;
    sees(1).await;
}

/// Inserts a pool for a number of projects that do not exist.
async fn pool_for_projects(world: &World, name: &str, projects: usize) {
    let ids: Vec<String> = (0..projects).map(|_| new_id("prj")).collect();
    let scope = json!({ "excluded-workspaces": [], "allowed-projects": ids, "allowed-workspaces": [] });
    let id = new_id("apool");
    world
        .execute(format!(
            "INSERT INTO agent_pools (ext_id, org_id, name, name_lc, organization_scoped, scope, created_at)
             SELECT '{id}', id, '{name}', '{name}', FALSE, '{scope}', 0 FROM organizations WHERE name_lc = 'acme'"
        ))
        .await;
}

async fn pools_with_too_many_references_need_smaller_pages(world: &World) {
    for (name, projects) in [("a", 10_000), ("b", 10_000), ("c", 1)] {
        pool_for_projects(world, name, projects).await;
    }
    let list = async |query: &str| world.owner.get(&format!("{POOLS}?sort=name&{query}")).await;
    let refused = list("page[size]=3").await;
    let detail = "the scopes of the pools name more than 20000 workspaces and projects in total; use a smaller page";
    assert_refused(&refused, 400, &[("page[size]", detail)]);
    assert_refused(&list("").await, 400, &[("page[size]", detail)]);
    for query in ["page[size]=2", "page[size]=2&page[number]=2", "q=c"] {
        assert_eq!(list(query).await.status, 200, "{query}");
    }
}

/// Entries that the caller does not see are kept, and count towards the maximum length.
async fn hidden_entries_count_towards_the_list_limit(world: &World) {
    let owner = &world.owner;
    let hidden = world.project("Hidden").await;
    let own = world.project("Own").await;
    let name = "allowed-projects";
    let path = format!("agent-pools/{}", owner.create(POOLS, pool(json!({ "name": "p" }), &[])).await);
    world.many_projects(0..999).await;
    let mut others = vec![hidden];
    for page in 1..=10 {
        let list = owner.get(&format!("{PROJECTS}?q=many&page[size]=100&page[number]={page}")).await;
        others.extend(ids(&list));
    }
    let named = |ids: &[String]| {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        pool(json!({}), &[(name, "projects", &ids)])
    };
    assert_eq!(owner.patch(&path, named(&others[1..])).await.status, 200);
    let manager = world.member("mara", AGENTS).await;
    world.grant(&manager.team, &own, ProjectRights::READ).await;
    let with_own = named(std::slice::from_ref(&own));
    assert_eq!(related(&manager.api.patch(&path, with_own.clone()).await, name), [own]);
    assert_eq!(related(&owner.get(&path).await, name).len(), 1000);
    assert_eq!(owner.patch(&path, named(&others)).await.status, 200);
    let refused = manager.api.patch(&path, with_own).await;
    let rule = "allowed-projects may have at most 1000 elements, including those hidden from you";
    assert_refused(&refused, 422, &[("/data/relationships/allowed-projects/data", rule)]);
    assert_eq!(manager.api.patch(&path, named(&[])).await.status, 200);
    assert_eq!(related(&owner.get(&path).await, name).len(), 1000);
}
