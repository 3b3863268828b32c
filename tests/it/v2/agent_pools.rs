//! Agent pools.

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use signet::projects::id::new as new_id;
use signet::projects::rights::{Flag, OrganizationRights, ProjectRights};

use super::fixture::{World, assert_refused, attribute, on_both_stores, resource};
use crate::support::Answer;

on_both_stores!(
    pools_are_created_changed_and_deleted,
    a_pool_is_used_within_its_scope,
    lists_of_pools,
    pool_lists_and_filters_hide_invisible_resources,
    pools_with_too_many_references_need_smaller_pages,
    hidden_entries_count_towards_the_list_limit,
);

const PATH: &str = "organizations/acme/agent-pools";

fn pool(attributes: Value, lists: &[(&str, &str, &[&str])]) -> Value {
    let mut body = resource("agent-pools", attributes);
    for (name, kind, ids) in lists {
        let data: Vec<Value> = ids.iter().map(|id| json!({ "type": kind, "id": id })).collect();
        body["data"]["relationships"][*name] = json!({ "data": data });
    }
    body
}

fn id(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.body["data"]["id"].as_str().unwrap().to_owned()
}

fn related(answer: &Answer, name: &str) -> Vec<String> {
    let data = answer.body["data"]["relationships"][name]["data"].as_array().unwrap();
    data.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

async fn pools_are_created_changed_and_deleted(world: World) {
    let owner = &world.owner;
    let made = owner.post(PATH, pool(json!({ "name": "cool-pool" }), &[])).await;
    let first = id(&made);
    assert!(first.starts_with("apool-") && first.len() == 22, "{first}");
    assert_eq!((attribute(&made, "agent-count"), attribute(&made, "organization-scoped")), (&json!(0), &json!(true)));
    let path = format!("agent-pools/{first}");
    assert_eq!(owner.get(&path).await.body, made.body);
    assert_eq!(owner.get(PATH).await.body["data"], json!([made.body["data"]]));
    let name = "/data/attributes/name";
    let taken = owner.post(PATH, pool(json!({ "name": "COOL-pool" }), &[])).await;
    assert_refused(&taken, 422, &[(name, "Name has already been taken")]);
    for (bad, text) in [(json!(null), "Name can't be blank"), (json!("x".repeat(91)), "Name is too long")] {
        assert_refused(&owner.post(PATH, pool(json!({ "name": bad }), &[])).await, 422, &[(name, text)]);
    }
    let project = world.project("Pooled").await;
    let made = owner.post("organizations/acme/workspaces", resource("workspaces", json!({ "name": "one" }))).await;
    let workspace = id(&made);
    let lists: [(&str, &str, &[&str]); 3] = [
        ("allowed-workspaces", "workspaces", &[&workspace]),
        ("allowed-projects", "projects", &[&project]),
        ("excluded-workspaces", "workspaces", &[&workspace]),
    ];
    let changed = owner.patch(&path, pool(json!({ "name": "new", "organization-scoped": false }), &lists)).await;
    assert_eq!(
        (attribute(&changed, "name"), attribute(&changed, "organization-scoped")),
        (&json!("new"), &json!(false))
    );
    for (name, _, ids) in lists {
        assert_eq!(related(&changed, name), ids, "{name}");
    }
    let emptied = owner.patch(&path, pool(json!({}), &[("allowed-workspaces", "workspaces", &[])])).await;
    assert_eq!((related(&emptied, "allowed-workspaces").len(), related(&emptied, "allowed-projects").len()), (0, 1));
    let unknown = owner.patch(&path, pool(json!({}), &[("allowed-projects", "projects", &["prj-unknown"])])).await;
    assert_refused(
        &unknown,
        422,
        &[("/data/relationships/allowed-projects/data/0/id", "id must be one of the projects")],
    );
    let for_it: [(&str, &str, &[&str]); 2] =
        [("allowed-workspaces", "workspaces", &[&workspace]), ("excluded-workspaces", "workspaces", &[])];
    assert_eq!(owner.patch(&path, pool(json!({}), &for_it)).await.status, 200);
    // A pool in use by a workspace, a project or the organization cannot be deleted.
    let agent = json!({ "execution-mode": "agent", "agent-pool-id": first });
    assert_eq!(owner.patch(&format!("workspaces/{workspace}"), resource("workspaces", agent)).await.status, 200);
    let shown = owner.get(&format!("{path}?include=workspaces")).await;
    assert_eq!(related(&shown, "workspaces"), std::slice::from_ref(&workspace));
    assert_eq!(shown.body["included"], json!([owner.get(&format!("workspaces/{workspace}")).await.body["data"]]));
    assert_eq!(owner.delete(&path).await.status, 409);
    assert_eq!(owner.delete(&format!("workspaces/{workspace}")).await.status, 204);
    assert_eq!(related(&owner.get(&path).await, "allowed-workspaces").len(), 0, "what is gone is not named");
    let defaults = json!({ "default-execution-mode": "agent", "default-agent-pool-id": first });
    assert_eq!(owner.patch(&format!("projects/{project}"), resource("projects", defaults)).await.status, 200);
    assert_eq!(owner.delete(&path).await.status, 409);
    assert_eq!(owner.delete(&format!("projects/{project}")).await.status, 204);
    let mut of_organization = resource("organizations", json!({ "default-execution-mode": "agent" }));
    of_organization["data"]["relationships"] =
        json!({ "default-agent-pool": { "data": { "type": "agent-pools", "id": first } } });
    assert_eq!(owner.patch("organizations/acme", of_organization.clone()).await.status, 422, "it is for a project");
    let scoped = pool(json!({ "organization-scoped": true }), &[]);
    assert_eq!(owner.patch(&path, scoped).await.status, 200);
    assert_eq!(owner.patch("organizations/acme", of_organization).await.status, 200);
    assert_eq!(owner.delete(&path).await.status, 409);
    let remote = resource("organizations", json!({ "default-execution-mode": "remote" }));
    assert_eq!(owner.patch("organizations/acme", remote).await.status, 200);
    assert_eq!(owner.delete(&path).await.status, 204);
    assert_eq!((owner.get(&path).await.status, owner.delete(&path).await.status), (404, 404));
    world.app.stop().await;
}

/// A pool can be assigned only within its scope, and the scope cannot exclude present users of the pool.
async fn a_pool_is_used_within_its_scope(world: World) {
    let owner = &world.owner;
    let project = world.project("Pooled").await;
    let elsewhere = world.project("Elsewhere").await;
    let narrow = id(&owner.post(PATH, pool(json!({ "name": "narrow", "organization-scoped": false }), &[])).await);
    let path = format!("agent-pools/{narrow}");
    let workspace = async |name: &str, project: &str, attributes: Value| {
        let mut body = resource("workspaces", attributes);
        body["data"]["attributes"]["name"] = json!(name);
        body["data"]["relationships"] = json!({ "project": { "data": { "type": "projects", "id": project } } });
        owner.post("organizations/acme/workspaces", body).await
    };
    let own = json!({ "execution-mode": "agent", "agent-pool-id": narrow });
    let inherited = json!({ "setting-overwrites": { "execution-mode": false } });
    let default = json!({ "default-execution-mode": "agent", "default-agent-pool-id": narrow });
    let place = "/data/attributes/agent-pool-id";
    let text = "Agent pool workspace does not have access to use this agent pool";
    let of_project = "/data/attributes/default-agent-pool-id";
    let no_project = "Default agent pool project does not have access to use this agent pool";
    let one = id(&workspace("one", &project, json!({})).await);
    let two = id(&workspace("two", &project, json!({})).await);
    let change = async |id: &str, attributes: &Value| {
        owner.patch(&format!("workspaces/{id}"), resource("workspaces", attributes.clone())).await
    };
    let change_project = async |attributes: &Value| {
        owner.patch(&format!("projects/{project}"), resource("projects", attributes.clone())).await
    };
    let rescope = async |lists: &[(&str, &str, &[&str])]| owner.patch(&path, pool(json!({}), lists)).await;
    assert_refused(&change(&one, &own).await, 422, &[(place, text)]);
    assert_refused(&workspace("new", &project, own.clone()).await, 422, &[(place, text)]);
    assert_refused(&change_project(&default).await, 422, &[(of_project, no_project)]);
    let mut new = resource("projects", default.clone());
    new["data"]["attributes"]["name"] = json!("New");
    assert_refused(&owner.post("organizations/acme/projects", new).await, 422, &[(of_project, no_project)]);
    let mut of_organization = resource("organizations", json!({ "default-execution-mode": "agent" }));
    of_organization["data"]["relationships"] =
        json!({ "default-agent-pool": { "data": { "type": "agent-pools", "id": narrow } } });
    let place_of_organization = "/data/relationships/default-agent-pool";
    let refused = owner.patch("organizations/acme", of_organization).await;
    assert_refused(&refused, 422, &[(place_of_organization, "Default agent pool must be scoped")]);

    assert_eq!(rescope(&[("allowed-workspaces", "workspaces", &[&one])]).await.status, 200);
    assert_eq!(change(&one, &own).await.status, 200);
    assert_refused(&change(&two, &own).await, 422, &[(place, text)]);
    let taken = rescope(&[("allowed-workspaces", "workspaces", &[])]).await;
    assert_refused(&taken, 409, &[("", "the agent pool is in use by a workspace")]);
    let excluded = rescope(&[("excluded-workspaces", "workspaces", &[&one])]).await;
    assert_refused(&excluded, 409, &[("", "the agent pool is in use by a workspace")]);
    assert_eq!(owner.patch(&path, pool(json!({ "name": "renamed" }), &[])).await.status, 200);

    assert_eq!(rescope(&[("allowed-projects", "projects", &[&project])]).await.status, 200);
    assert_eq!(change_project(&default).await.status, 200);
    assert_eq!(change(&two, &own).await.status, 200);
    assert_eq!(workspace("new", &project, own.clone()).await.status, 201);
    assert_refused(&workspace("far", &elsewhere, own.clone()).await, 422, &[(place, text)]);
    let move_there = json!({ "data": [{ "type": "workspaces", "id": one }, { "type": "workspaces", "id": two }] });
    let moved = owner.post(&format!("projects/{elsewhere}/relationships/workspaces"), move_there).await;
    assert_refused(
        &moved,
        422,
        &[("", &format!("workspaces that may not use their agent pool in the project: {two}"))],
    );
    let alone = json!({ "data": [{ "type": "workspaces", "id": one }] });
    let moved = owner.post(&format!("projects/{elsewhere}/relationships/workspaces"), alone).await;
    assert_eq!(moved.status, 204, "it is allowed by itself: {}", moved.text);
    let taken = rescope(&[("allowed-projects", "projects", &[])]).await;
    assert_refused(&taken, 409, &[("", "the agent pool is in use by a project")]);

    // An excluded workspace cannot inherit the pool.
    let three = id(&workspace("three", &elsewhere, json!({ "execution-mode": "local" })).await);
    assert_eq!(rescope(&[("excluded-workspaces", "workspaces", &[&three])]).await.status, 200);
    let mut into = resource("workspaces", json!({}));
    into["data"]["relationships"] = json!({ "project": { "data": { "type": "projects", "id": project } } });
    assert_eq!(owner.patch(&format!("workspaces/{three}"), into).await.status, 200, "its mode is its own");
    assert_refused(&change(&three, &inherited).await, 422, &[(place, text)]);
    assert_eq!(change(&two, &inherited).await.status, 200);
    let excluded = rescope(&[("excluded-workspaces", "workspaces", &[&two])]).await;
    assert_refused(&excluded, 409, &[("", "the agent pool is in use by a workspace")]);

    // A project or organization cannot take a pool that excludes a workspace which would inherit it.
    let heir = world.project("Heir").await;
    let four = id(&workspace("four", &heir, json!({})).await);
    let wide = id(&owner
        .post(PATH, pool(json!({ "name": "wide" }), &[("excluded-workspaces", "workspaces", &[&four])]))
        .await);
    let heirs = "must not exclude a workspace that would inherit it";
    let takes = |mode: &str, pool: &str, value: &str| json!({ mode: "agent", pool: value });
    let default = takes("default-execution-mode", "default-agent-pool-id", &wide);
    let path = format!("projects/{heir}");
    let taken = owner.patch(&path, resource("projects", default.clone())).await;
    assert_refused(&taken, 422, &[(of_project, &format!("Default agent pool {heirs}"))]);
    let mut of_organization = resource("organizations", json!({ "default-execution-mode": "agent" }));
    of_organization["data"]["relationships"] =
        json!({ "default-agent-pool": { "data": { "type": "agent-pools", "id": wide } } });
    let taken = owner.patch("organizations/acme", of_organization.clone()).await;
    assert_refused(&taken, 422, &[(place_of_organization, &format!("Default agent pool {heirs}"))]);
    assert_eq!(
        owner.patch(&path, resource("projects", json!({ "default-execution-mode": "local" }))).await.status,
        200
    );
    let taken = owner.patch("organizations/acme", of_organization).await;
    assert_eq!(taken.status, 200, "the project has a mode of its own: {}", taken.text);
    let inherits = json!({ "setting-overwrites": { "default-execution-mode": false, "default-agent-pool": false } });
    let back = owner.patch(&path, resource("projects", inherits)).await;
    assert_refused(&back, 422, &[(of_project, &format!("Default agent pool {heirs}"))]);
    let local = json!({ "execution-mode": "local" });
    assert_eq!(change(&four, &local).await.status, 200);
    assert_eq!(owner.patch(&path, resource("projects", default)).await.status, 200, "nothing inherits it");

    // The relationship alone also assigns a pool.
    let mut by_relationship = resource("workspaces", json!({}));
    by_relationship["data"]["relationships"] =
        json!({ "agent-pool": { "data": { "type": "agent-pools", "id": wide } } });
    let changed = owner.patch(&format!("workspaces/{one}"), by_relationship).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let shown = &changed.body["data"]["relationships"]["agent-pool"]["data"]["id"];
    assert_eq!(*shown, json!(wide), "{}", changed.text);
    world.app.stop().await;
}

async fn lists_of_pools(world: World) {
    let owner = &world.owner;
    let workspace =
        id(&owner.post("organizations/acme/workspaces", resource("workspaces", json!({ "name": "W1" }))).await);
    let project = world.project("P_1").await;
    let scoped = json!({ "name": "b-pool", "organization-scoped": false });
    let for_workspace = pool(scoped, &[("allowed-workspaces", "workspaces", &[&workspace])]);
    let other = json!({ "name": "c_pool", "organization-scoped": false });
    let lists: [(&str, &str, &[&str]); 2] =
        [("allowed-projects", "projects", &[&project]), ("excluded-workspaces", "workspaces", &[&workspace])];
    let for_project = pool(other, &lists);
    for body in [for_workspace, for_project, pool(json!({ "name": "a-pool" }), &[])] {
        id(&owner.post(PATH, body).await);
    }
    let list = async |query: &str| {
        let list = owner.get(&format!("{PATH}?{query}")).await;
        assert_eq!(list.status, 200, "{}", list.text);
        let items = list.body["data"].as_array().unwrap().clone();
        items.iter().map(|item| item["attributes"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list("").await, ["a-pool", "c_pool", "b-pool"]);
    assert_eq!(list("sort=created-at").await, ["b-pool", "c_pool", "a-pool"]);
    assert_eq!(list("sort=-name").await, ["c_pool", "b-pool", "a-pool"]);
    assert_eq!(list("q=C_P").await, ["c_pool"]);
    assert_eq!(list("filter[allowed_workspaces][name]=w1&sort=name").await, ["a-pool", "b-pool"]);
    assert_eq!(list("filter[allowed_projects][name]=p_1&sort=name").await, ["a-pool", "c_pool"]);
    assert_eq!(list("filter[allowed_workspaces][name]=unknown").await, ["a-pool"]);
    assert_eq!(list("page[size]=1&page[number]=3").await, ["b-pool"]);
    let member = world.member("mia", OrganizationRights::NONE).await;
    assert_eq!(member.api.get(PATH).await.body["data"].as_array().unwrap().len(), 3);
    assert_eq!(member.api.post(PATH, pool(json!({ "name": "x" }), &[])).await.status, 404);
    let manager = world.member("mara", OrganizationRights::NONE.with(Flag::ManageAgentPools, true)).await;
    let made = id(&manager.api.post(PATH, pool(json!({ "name": "x" }), &[])).await);
    assert_eq!(member.api.delete(&format!("agent-pools/{made}")).await.status, 404);
    assert_eq!(manager.api.delete(&format!("agent-pools/{made}")).await.status, 204);
    assert_eq!(world.outsider("xaver").await.api.get(PATH).await.status, 404);
    world.app.stop().await;
}

/// Every member sees pools; their lists and filters do not disclose resources that the member does not see.
async fn pool_lists_and_filters_hide_invisible_resources(world: World) {
    let owner = &world.owner;
    let project = world.project("Hidden").await;
    let mut body = resource("workspaces", json!({ "name": "secret" }));
    body["data"]["relationships"] = json!({ "project": { "data": { "type": "projects", "id": project } } });
    let workspace = id(&owner.post("organizations/acme/workspaces", body).await);
    let lists: [(&str, &str, &[&str]); 3] = [
        ("allowed-workspaces", "workspaces", &[&workspace]),
        ("allowed-projects", "projects", &[&project]),
        ("excluded-workspaces", "workspaces", &[&workspace]),
    ];
    let narrow = json!({ "name": "narrow", "organization-scoped": false });
    let path = format!("agent-pools/{}", id(&owner.post(PATH, pool(narrow, &lists)).await));
    let rights = OrganizationRights::NONE.with(Flag::ManageAgentPools, true);
    let manager = world.member("mara", rights).await;
    let filters = ["filter[allowed_workspaces][name]=secret", "filter[allowed_projects][name]=Hidden"];
    let sees = async |expected: usize| {
        for answer in [manager.api.get(&path).await, manager.api.patch(&path, pool(json!({}), &[])).await] {
            assert_eq!(lists.map(|(name, ..)| related(&answer, name).len()), [expected; 3], "{}", answer.text);
        }
        for filter in filters {
            let found = manager.api.get(&format!("{PATH}?{filter}")).await;
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
    world.app.stop().await;
}

/// Inserts pools, each for a number of projects that do not exist.
async fn pools_for_projects(world: &World, pools: &'static [(&'static str, usize)]) {
    let run = world.run(move |mut tx| {
        async move {
            for (name, projects) in pools {
                let ids: Vec<String> = (0..*projects).map(|_| new_id("prj")).collect();
                let scope = json!({ "excluded-workspaces": [], "allowed-projects": ids, "allowed-workspaces": [] });
                let pool =
                    "INSERT INTO agent_pools (ext_id, org_id, name, name_lc, organization_scoped, scope, created_at)
                    SELECT $1, id, $2, $2, FALSE, $3, $4 FROM organizations WHERE name_lc = 'acme'";
                let values = [new_id("apool").into(), (*name).into(), scope.to_string().into(), tx.now.into()];
                tx.execute(pool, &values).await?;
            }
            Ok(())
        }
        .boxed_local()
    });
    run.await;
}

async fn pools_with_too_many_references_need_smaller_pages(world: World) {
    pools_for_projects(&world, &[("a", 10_000), ("b", 10_000), ("c", 1)]).await;
    let list = async |query: &str| world.owner.get(&format!("{PATH}?sort=name&{query}")).await;
    let refused = list("page[size]=3").await;
    let detail = "the pools name more than 20000 workspaces and projects in total; use a smaller page";
    assert_refused(&refused, 400, &[("page[size]", detail)]);
    assert_refused(&list("").await, 400, &[("page[size]", detail)]);
    for query in ["page[size]=2", "page[size]=2&page[number]=2", "q=c"] {
        assert_eq!(list(query).await.status, 200, "{query}");
    }
    world.app.stop().await;
}

/// Entries that the caller does not see are kept, and count towards the maximum length.
async fn hidden_entries_count_towards_the_list_limit(world: World) {
    let owner = &world.owner;
    let hidden = world.project("Hidden").await;
    let own = world.project("Own").await;
    let name = "allowed-projects";
    let path = format!("agent-pools/{}", id(&owner.post(PATH, pool(json!({ "name": "p" }), &[])).await));
    world
        .run(|mut tx| {
            async move {
                let org: i64 = tx.one("SELECT id FROM organizations WHERE name_lc = 'acme'", &[]).await?.get()?;
                for n in 0..999 {
                    let project = "INSERT INTO projects (ext_id, org_id, name, name_lc, created_at)
                        VALUES ($1, $2, $3, $3, $4)";
                    let name = format!("more {n}");
                    tx.execute(project, &[new_id("prj").into(), org.into(), name.into(), tx.now.into()]).await?;
                }
                Ok(())
            }
            .boxed_local()
        })
        .await;
    let mut others = vec![hidden];
    for page in 1..=10 {
        let list = owner.get(&format!("organizations/acme/projects?q=more&page[size]=100&page[number]={page}")).await;
        others.extend(list.body["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()));
    }
    let named = |ids: &[String]| {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        pool(json!({}), &[(name, "projects", &ids)])
    };
    assert_eq!(owner.patch(&path, named(&others[1..])).await.status, 200);
    let manager = world.member("mara", OrganizationRights::NONE.with(Flag::ManageAgentPools, true)).await;
    world.grant(&manager.team, &own, ProjectRights::READ).await;
    let with_own = named(std::slice::from_ref(&own));
    assert_eq!(related(&manager.api.patch(&path, with_own.clone()).await, name), [own]);
    assert_eq!(related(&owner.get(&path).await, name).len(), 1000);
    assert_eq!(owner.patch(&path, named(&others)).await.status, 200);
    let refused = manager.api.patch(&path, with_own).await;
    let rule = "allowed-projects may have at most 1000 elements, including hidden ones";
    assert_refused(&refused, 422, &[("/data/relationships/allowed-projects/data", rule)]);
    assert_eq!(manager.api.patch(&path, named(&[])).await.status, 200);
    assert_eq!(related(&owner.get(&path).await, name).len(), 1000);
    world.app.stop().await;
}
