//! Organizations.

use futures_util::FutureExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use signet::projects::caller::{ProjectsCaller, TokenSubject};
use signet::projects::member;
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};

use super::fixture::{
    ACME, NONE, POOLS, TEAMS, World, assert_invalid, assert_refused, attribute, ids, items, link, on_both_stores,
    resource, total,
};
use crate::support::assert_has;

on_both_stores!(
    organization_list_without_page_is_complete,
    new_organization_has_owners_and_a_default_project,
    organization_is_created_shown_and_listed_alike,
    organization_attributes_are_validated,
    execution_mode_is_inherited_from_the_organization,
    renamed_organization_has_its_new_id_everywhere,
    user_tokens_can_be_disabled,
    settings_are_stored_and_returned,
    organization_access_by_members_outsiders_and_tokens,
    organization_is_deleted_with_its_contents,
    entitlement_set_for_members_has_no_state_storage,
    membership_reads_only_teams_of_its_organization,
);

fn organization(name: &str) -> Value {
    resource("organizations", json!({ "name": name, "email": "info@example.test" }))
}

async fn new_organization_has_owners_and_a_default_project(world: &World) {
    let owner = &world.owner;
    assert_eq!(owner.post("organizations", organization("Umbrella")).await.status, 201);
    let teams = owner.get("organizations/umbrella/teams").await;
    assert_eq!(teams.body["data"][0]["attributes"]["name"], "owners", "{}", teams.text);
    assert_eq!(teams.body["data"][0]["attributes"]["users-count"], 1);
    let projects = owner.get("organizations/umbrella/projects").await;
    assert_eq!(projects.body["meta"]["status-counts"]["total"], 1);
    assert_eq!(projects.body["data"][0]["attributes"]["name"], "Default Project");
    let people = owner.get("organizations/umbrella/organization-memberships?include=user").await;
    assert_eq!(people.body["data"][0]["attributes"]["status"], "active");
    assert_eq!(people.body["included"][0]["attributes"]["username"], "olga");
}

async fn membership_reads_only_teams_of_its_organization(world: &World) {
    world.owner.create("organizations", organization("Umbrella")).await;
    world
        .execute(
            "INSERT INTO teams (ext_id, org_id, name, name_lc, user_count)
             WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 299)
             SELECT 'team-many-' || i, o.id, 't' || i, 't' || i, 1 FROM n, organizations o WHERE o.name_lc = 'umbrella'",
        )
        .await;
    // Like an older program version, which does not set `org_id`.
    world
        .execute(
            "INSERT INTO team_memberships (team_id, user_id) SELECT t.id, u.id FROM teams t, users u
             WHERE t.is_owners = FALSE AND u.username_lc = 'olga'",
        )
        .await;
    let others = "SELECT count(*) FROM team_memberships m JOIN teams t ON t.id = m.team_id
        WHERE m.org_id IS NULL OR m.org_id <> t.org_id";
    assert_eq!(world.value::<i64>(others).await, 0);
    let run = world.run(|mut tx| {
        async move {
            let user: i64 = tx.one("SELECT id FROM users WHERE username_lc = 'olga'", &[]).await?.get()?;
            let subject = TokenSubject::User { id: user, ext_id: String::new(), username: String::new() };
            let caller = ProjectsCaller { token: 0, subject, last_used: None };
            let mut read = Vec::new();
            for (name, teams) in [("acme", 1), ("umbrella", 301)] {
                let before = tx.rows_read();
                let member = member::find_by_organization_name(&mut tx, &caller, name).await?;
                assert!(member.is_owner && member.teams.len() == teams, "{member:?}");
                read.push(tx.rows_read() - before);
            }
            Ok(read)
        }
        .boxed_local()
    });
    // Rows read: the organization and its teams, of which there are 1 and 301.
    assert_eq!(run.await, [2, 302]);
    let teams = world.owner.get(&format!("{ACME}/organization-memberships")).await;
    assert_eq!(teams.body["data"][0]["relationships"]["teams"]["data"].as_array().map(Vec::len), Some(1));
}

async fn organization_is_created_shown_and_listed_alike(world: &World) {
    let owner = &world.owner;
    let made = owner.post("organizations", organization("Umbrella")).await;
    assert_eq!((made.status, made.header("location")), (201, "/api/v2/organizations/Umbrella"), "{}", made.text);
    assert_eq!(made.body["data"]["id"], "Umbrella");
    assert_eq!(attribute(&made, "default-execution-mode"), "remote");
    assert_eq!(attribute(&made, "permissions")["can-create-team"], true);
    let shown = owner.get("organizations/UMBRELLA").await;
    assert_eq!(shown.body, made.body);
    let list = owner.get("organizations").await;
    assert_eq!(list.body["data"][0], made.body["data"], "newest first: {}", list.text);
    assert!(list.body.get("meta").is_none(), "the whole list is no page: {}", list.text);
    let page = owner.get("organizations?page[size]=1").await;
    assert_eq!((items(&page).len(), total(&page)), (1, &json!(2)));
    let with = owner.get("organizations/umbrella?include=default-project").await;
    let project = link(&with, "default-project");
    assert_eq!((&with.body["included"][0]["id"], &with.body["data"]), (project, &made.body["data"]));
    for (q, names) in [
        ("q=umb", &["Umbrella"][..]),
        ("q=OLGA@", &["acme"]),
        ("q=u%25", &[]),
        ("q[name]=umb", &["Umbrella"]),
        ("q[name]=olga@", &[]),
        ("q[email]=olga@", &["acme"]),
        ("q[email]=umb", &[]),
        ("q[name]=acme&q[email]=olga@", &["acme"]),
        ("q=umb&q[name]=acme", &["Umbrella"]),
    ] {
        assert_eq!(ids(&owner.get(&format!("organizations?{q}")).await), names, "{q}");
    }
    let taken = owner.post("organizations", organization("ACME")).await;
    assert_invalid(&taken, "name", "Name has already been taken");
    assert_eq!(owner.get("organizations/acme?include=users").await.status, 400);
}

async fn organization_list_without_page_is_complete(world: &World) {
    for n in 0..24 {
        world.owner.create("organizations", organization(&format!("org-{n}"))).await;
    }
    let count = async |query: &str| {
        let list = world.owner.get(&format!("organizations{query}")).await;
        (items(&list).len(), list.body.get("meta").is_some())
    };
    assert_eq!(count("").await, (25, false));
    assert_eq!(count("?page[number]=1").await, (20, true));
    assert_eq!(count("?page[size]=100").await, (25, true));
    assert_eq!(world.owner.get("organizations?q[owner]=x").await.status, 400, "no such filter");
}

async fn organization_attributes_are_validated(world: &World) {
    let name = "/data/attributes/name";
    let email = "/data/attributes/email";
    for (attributes, faults) in [
        (json!({}), vec![(name, "Name can't be blank"), (email, "Email can't be blank")]),
        (json!({ "name": null, "email": "" }), vec![(name, "Name can't be blank"), (email, "Email can't be blank")]),
        (json!({ "name": "ab", "email": "x" }), vec![(name, "Name is too short"), (email, "Email must be an address")]),
        (json!({ "name": "a".repeat(41), "email": "a@b.test" }), vec![(name, "Name is too long")]),
        (json!({ "name": "a b c", "email": "a@b.test" }), vec![(name, "Name may only contain")]),
        (json!({ "name": 1, "email": "a@b.test" }), vec![(name, "Name must be a string")]),
    ] {
        assert_refused(&world.owner.add("organizations", attributes).await, 422, &faults);
    }
    let change = async |attributes| world.owner.change(ACME, attributes).await;
    assert_invalid(&change(json!({ "name": null })).await, "name", "Name can't be blank");
    assert_invalid(&change(json!({ "email": "x y@z" })).await, "email", "Email must be an address");
    assert_eq!(change(json!({})).await.body, world.owner.get(ACME).await.body);
    assert_eq!(attribute(&change(json!({ "name": "Acme" })).await, "name"), "Acme", "the case may change");
}

async fn execution_mode_is_inherited_from_the_organization(world: &World) {
    let pool = world.owner.create(POOLS, resource("agent-pools", json!({ "name": "p" }))).await;
    let change = async |attributes: Value, pool: Option<&str>| {
        let mut body = resource("organizations", attributes);
        if let Some(pool) = pool {
            body["data"]["relationships"]["default-agent-pool"]["data"] = json!({ "id": pool, "type": "agent-pools" });
        }
        world.owner.patch(ACME, body).await
    };
    let place = "/data/relationships/default-agent-pool";
    let stray = change(json!({}), Some(&pool)).await;
    assert_refused(&stray, 422, &[(place, "Default agent pool must not be specified unless using 'agent'")]);
    let foreign = change(json!({ "default-execution-mode": "agent" }), Some("apool-x")).await;
    assert_refused(&foreign, 422, &[(place, "Default agent pool must be")]);
    let agent = change(json!({ "default-execution-mode": "agent" }), Some(&pool)).await;
    assert_eq!(link(&agent, "default-agent-pool"), &pool, "{}", agent.text);
    let remote = change(json!({ "default-execution-mode": "remote" }), None).await;
    let none = &remote.body["data"]["relationships"]["default-agent-pool"]["data"];
    assert_eq!((remote.status, none), (200, &Value::Null));

    assert_eq!(change(json!({ "default-execution-mode": "local" }), None).await.status, 200);
    let project = format!("projects/{}", world.project("Inheriting").await);
    let read = world.owner.get(&project).await;
    assert_eq!(attribute(&read, "default-execution-mode"), "local");
    assert_eq!(attribute(&read, "setting-overwrites")["default-execution-mode"], false);
    assert_eq!(change(json!({ "default-execution-mode": "remote" }), None).await.status, 200);
    assert_eq!(attribute(&world.owner.get(&project).await, "default-execution-mode"), "remote");
    let made = json!({ "name": "local-one", "email": "a@b.test", "default-execution-mode": "local" });
    let made = world.owner.add("organizations", made).await;
    assert_eq!((made.status, attribute(&made, "default-execution-mode")), (201, &json!("local")));
}

async fn renamed_organization_has_its_new_id_everywhere(world: &World) {
    let project = format!("projects/{}", world.project("Net").await);
    let renamed = world.owner.change(ACME, json!({ "name": "Umbrella" })).await;
    assert_eq!((renamed.status, &renamed.body["data"]["id"]), (200, &json!("Umbrella")));
    assert_eq!(world.owner.get(ACME).await.status, 404);
    assert_eq!(world.owner.get("organizations/umbrella").await.body, renamed.body);
    let shown = world.owner.get(&project).await;
    let of_project = &shown.body["data"]["relationships"]["organization"];
    assert_eq!(of_project["data"]["id"], "Umbrella");
    assert_eq!(of_project["links"]["related"], "/api/v2/organizations/Umbrella");
    assert_eq!(world.owner.post("organizations", organization("acme")).await.status, 201, "the name is free");
}

async fn user_tokens_can_be_disabled(world: &World) {
    let owner = &world.owner;
    let found = owner.get(&format!("{TEAMS}?filter[names]=owners")).await;
    let team = format!("teams/{}", ids(&found)[0]);
    let of_team = owner.token_for(&team).await;
    let off = owner.change(ACME, json!({ "user-tokens-enabled": false })).await;
    assert_eq!((off.status, attribute(&off, "user-tokens-enabled")), (200, &json!(false)), "{}", off.text);
    assert_refused(&owner.get(ACME).await, 401, &[("", "user tokens are disabled")]);
    assert_eq!(owner.get(&team).await.status, 401);
    assert_eq!(owner.get("account/details").await.status, 200, "elsewhere the token stands");
    assert_eq!(owner.get("organizations").await.body["data"], json!([]));
    assert_eq!(of_team.get(ACME).await.status, 200);
    assert_eq!(of_team.change(ACME, json!({ "user-tokens-enabled": true })).await.status, 200);
    assert_eq!(owner.get(ACME).await.status, 200);
}

async fn settings_are_stored_and_returned(world: &World) {
    let given = json!({
        "cost-estimation-enabled": true, "assessments-enforced": true, "stacks-enabled": true,
        "send-passing-statuses-for-untriggered-speculative-plans": true, "speculative-plan-management-enabled": false,
        "aggregated-commit-status-enabled": false, "collaborator-auth-policy": "two_factor_mandatory",
        "session-timeout": 3600, "session-remember": 20, "owners-team-saml-role-id": "role",
        "allow-force-delete-workspaces": true,
    });
    let changed = world.owner.change(ACME, given.clone()).await.assert_status(200);
    assert_has(&changed.body["data"]["attributes"], given);
    let more = resource("organizations", json!({ "session-timeout": null, "name": "acme2" }));
    let more = world.owner.patch(ACME, more).await;
    assert_eq!((attribute(&more, "session-timeout"), attribute(&more, "session-remember")), (&Value::Null, &json!(20)));
    assert_eq!(world.owner.get("organizations/acme2").await.body, more.body);
    let wrong = json!({ "stacks-enabled": 1, "session-timeout": 0 });
    let wrong = world.owner.change("organizations/acme2", wrong).await;
    let faults = [
        ("/data/attributes/stacks-enabled", "Stacks enabled must be a boolean"),
        ("/data/attributes/session-timeout", "Session timeout must be at least 1 minute"),
    ];
    assert_refused(&wrong, 422, &faults);
}

async fn organization_access_by_members_outsiders_and_tokens(world: &World) {
    let member = world.member("mia", NONE.with(Flag::ManageProjects, true)).await.api;
    let outsider = world.outsider("xaver").await.api;
    let shown = member.get(ACME).await;
    let granted = attribute(&shown, "permissions");
    assert_eq!((&granted["can-update"], &granted["can-create-project"]), (&json!(false), &json!(true)));
    assert_eq!(member.get("organizations").await.body["data"][0], shown.body["data"]);
    assert_eq!(outsider.get("organizations").await.body["data"], json!([]));
    let other = || resource("organizations", json!({ "email": "x" }));
    for (api, show) in [(&member, 200), (&outsider, 404)] {
        assert_eq!(api.get(ACME).await.status, show);
        assert_eq!(api.patch(ACME, other()).await.status, 404);
        assert_eq!(api.delete(ACME).await.status, 404);
    }
    let hidden = outsider.get(ACME).await;
    assert_eq!(hidden.body, outsider.get("organizations/nothing").await.body);
    let of_organization = world.owner.token_for(ACME).await;
    assert_eq!(of_organization.post("organizations", organization("other")).await.status, 403);
    assert_eq!(total(&of_organization.get("organizations?page[size]=9").await), 1);
    assert_eq!(of_organization.get("account/details").await.status, 404);
}

async fn organization_is_deleted_with_its_contents(world: &World) {
    let owner = &world.owner;
    let person = world.member("mia", NONE).await;
    let project = world.project("Net").await;
    world.grant(&person.team, &project, ProjectRights::READ).await;
    let mut tokens = Vec::new();
    for holder in [ACME.to_owned(), format!("teams/{}", person.team)] {
        tokens.push(owner.token_for(&holder).await);
        assert_eq!(tokens.last().unwrap().get(ACME).await.status, 200);
    }
    // More rows of both kinds than one transaction deletes.
    world.many_workspaces(&project, 250).await;
    world
        .execute(
            "INSERT INTO tag_bindings (ext_id, workspace_id, key)
             WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1200)
             SELECT 'tag-' || n, w.id, 'key' || n FROM workspaces w, numbers WHERE w.name = 'many-7'",
        )
        .await;
    owner.create(POOLS, resource("agent-pools", json!({ "name": "p" }))).await;
    for table in ["organizations", "projects", "workspaces"] {
        let pool = "agent_pool_id = (SELECT id FROM agent_pools)";
        world.execute(format!("UPDATE {table} SET execution_mode = 'agent', {pool}")).await;
    }
    let team = format!("teams/{}", person.team);
    let project = format!("projects/{project}");
    let gone = [ACME, &team, &project, "workspaces/ws-7", "organizations/acme/workspaces/many-7"];
    for path in gone {
        assert_eq!(owner.get(path).await.status, 200, "{path}");
    }
    owner.delete(ACME).await.assert_status(204);
    // Effective immediately, and the name is free; the contents are removed later.
    for path in gone {
        assert_eq!(owner.get(path).await.status, 404, "{path}");
        assert_eq!(owner.delete(path).await.status, 404, "{path}");
    }
    for token in &tokens {
        assert_eq!(token.get("organizations").await.status, 401, "its tokens are gone");
    }
    assert_eq!(owner.get("organizations").await.body["data"], json!([]));
    assert_eq!(person.api.get("account/details").await.status, 200, "its people stay");
    assert_eq!(owner.post("organizations", organization("acme")).await.status, 201);
    let of_new = ["organizations", "projects", "teams", "team_memberships", "organization_memberships"];
    let old = ["workspaces", "tag_bindings", "team_project_access", "agent_pools", "api_tokens WHERE user_id IS NULL"];
    let left = async || {
        let mut left = Vec::new();
        for rows in of_new.into_iter().chain(old) {
            left.push(world.value::<i64>(format!("SELECT count(*) FROM {rows}")).await);
        }
        left
    };
    assert_eq!(left().await, [2, 3, 3, 3, 3, 250, 1200, 1, 1, 1]);
    world.app.shared().projects.sweep().await.unwrap();
    assert_eq!(left().await, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0], "of the new one");
    assert_eq!(owner.get(ACME).await.status, 200);
}

async fn entitlement_set_for_members_has_no_state_storage(world: &World) {
    let member = world.member("mia", NONE).await.api;
    let set = member.get("organizations/acme/entitlement-set").await;
    assert_eq!((set.status, &set.body["data"]["type"]), (200, &json!("entitlement-sets")));
    assert!(set.body["data"]["id"].as_str().unwrap().starts_with("org-"));
    assert_eq!((attribute(&set, "teams"), attribute(&set, "operations")), (&json!(true), &json!(true)));
    assert_eq!(attribute(&set, "state-storage"), &json!(false));
    let outsider = world.outsider("xaver").await.api;
    assert_eq!(outsider.get("organizations/acme/entitlement-set").await.status, 404);
    for path in ["organizations/a%00b", "teams/team-%00", "organizations?q=%00"] {
        let refused = member.request(Method::GET, path).send().await.unwrap().status();
        assert!(refused.is_client_error(), "{path}: {refused}");
    }
}
