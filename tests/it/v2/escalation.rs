//! A team never gives a caller more rights than the caller has: not by its tokens, members, flags or access to
//! projects. Each caller here has only the right that the route needs.

use serde_json::{Value, json};
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};

use super::fixture::{
    ACME, Api, NONE, PEOPLE, TEAMS, World, assert_refused, attribute, ids, no_attributes, on_both_stores, path_of,
    related, resource, rights, team_access, these,
};
use crate::support::Answer;

on_both_stores!(
    team_manager_creates_no_token_of_a_stronger_team,
    membership_manager_adds_no_member_to_a_stronger_team,
    membership_manager_cannot_invite_into_a_stronger_team,
    team_manager_grants_no_organization_right_beyond_own,
    project_access_is_granted_up_to_the_own_access,
    workspace_manager_flag_counts_as_access_to_workspaces,
    team_with_too_many_grants_is_managed_by_owners_only,
    owners_can_grant_everything,
);

const MORE: &str = "the team has rights that you lack";
const OWN: &str = "you may not grant a team rights that you do not have yourself";

async fn team(world: &World, name: &str, flags: Value) -> String {
    let attributes = json!({ "name": name, "visibility": "organization", "organization-access": flags });
    world.owner.create(TEAMS, resource("teams", attributes)).await
}

async fn grant_access(api: &Api, team: &str, project: &str, attributes: Value) -> Answer {
    api.post("team-projects", team_access(team, project, attributes)).await
}

/// Teams with more rights than the caller, and teams without.
struct Teams {
    stronger: Vec<String>,
    weaker: Vec<String>,
}

/// Creates teams to compare with one that has `custom` access to a project and nothing else.
async fn teams(world: &World, own: &str) -> Teams {
    let owner = &world.owner;
    let shared = world.project("Shared").await;
    let other = world.project("Other").await;
    let keys = json!({ "access": "custom", "workspace-access": { "runs": "plan", "create": true } });
    assert_eq!(grant_access(owner, own, &shared, keys.clone()).await.status, 201);
    let mut stronger = vec![
        team(world, "projects", json!({ "manage-projects": true })).await,
        team(world, "readers", json!({ "read-workspaces": true })).await,
        team(world, "pools", json!({ "manage-agent-pools": true })).await,
    ];
    for (name, project, access) in [
        ("admins", &shared, json!({ "access": "admin" })),
        ("maintainers", &shared, json!({ "access": "maintain" })),
        ("appliers", &shared, json!({ "access": "custom", "workspace-access": { "runs": "apply" } })),
        ("elsewhere", &other, json!({ "access": "custom" })),
    ] {
        let made = team(world, name, json!({})).await;
        assert_eq!(grant_access(owner, &made, project, access).await.status, 201);
        stronger.push(made);
    }
    let empty = team(world, "empty", json!({})).await;
    let equal = team(world, "equal", json!({})).await;
    let less = team(world, "less", json!({})).await;
    assert_eq!(grant_access(owner, &equal, &shared, keys).await.status, 201);
    assert_eq!(grant_access(owner, &less, &shared, json!({ "access": "custom" })).await.status, 201);
    Teams { stronger, weaker: vec![empty, equal, less, own.to_owned()] }
}

async fn team_manager_creates_no_token_of_a_stronger_team(world: &World) {
    let mara = world.member("mara", rights(&["manage-teams"])).await;
    let Teams { stronger, weaker } = teams(world, &mara.team).await;
    let own = format!("teams/{}/authentication-tokens", mara.team);
    let own = mara.api.post(&own, resource("", json!({ "description": "own" }))).await;
    let of_team = mara.api.with_token(attribute(&own, "token").as_str().unwrap());
    for api in [&mara.api, &of_team] {
        for team in &stronger {
            let tokens = format!("teams/{team}/authentication-tokens");
            for path in [&tokens[..], &format!("teams/{team}/authentication-token")] {
                for body in [no_attributes(), resource("", json!({ "description": "ci" })), json!([])] {
                    assert_refused(&api.post(path, body).await, 403, &[("", MORE)]);
                }
            }
            assert_eq!(world.owner.get(&tokens).await.body["data"], json!([]), "none was made");
            assert_eq!(api.get(&tokens).await.status, 200);
        }
        for team in &weaker {
            api.create(&format!("teams/{team}/authentication-tokens"), no_attributes()).await;
        }
    }
}

async fn membership_manager_adds_no_member_to_a_stronger_team(world: &World) {
    let mara = world.member("mara", rights(&["manage-membership"])).await;
    world.member("mia", NONE).await;
    let Teams { stronger, weaker } = teams(world, &mara.team).await;
    let own = ids(&world.owner.get(&format!("{PEOPLE}?q=mara")).await).remove(0);
    let ways = |team: &str| {
        let users = format!("teams/{team}/relationships/users");
        let memberships = format!("teams/{team}/relationships/organization-memberships");
        [
            (users.clone(), these("users", &["mara"])),
            (users, these("users", &["mia"])),
            (memberships, these("organization-memberships", &[&own])),
        ]
    };
    for team in &stronger {
        for (path, body) in ways(team) {
            assert_refused(&mara.api.post(&path, body).await, 403, &[("", MORE)]);
            assert_refused(&mara.api.post(&path, json!([])).await, 403, &[("", MORE)]);
        }
        let shown = world.owner.get(&format!("teams/{team}")).await;
        assert_eq!(attribute(&shown, "users-count"), 0, "{}", shown.text);
        let path = format!("teams/{team}/relationships/users");
        mara.api.delete_with(&path, these("users", &["mia"])).await.assert_status(204);
    }
    for team in &weaker {
        for (path, body) in ways(team) {
            assert_eq!(mara.api.post(&path, body).await.status, 204);
        }
        assert_eq!(attribute(&world.owner.get(&format!("teams/{team}")).await, "users-count"), 2);
    }
}

async fn membership_manager_cannot_invite_into_a_stronger_team(world: &World) {
    let mara = world.member("mara", rights(&["manage-membership"])).await;
    let Teams { stronger, weaker } = teams(world, &mara.team).await;
    let invite = async |email: &str, teams: &[&str]| {
        let address = json!({ "email": email });
        mara.api.post(PEOPLE, related("organization-memberships", address, "teams", these("teams", teams))).await
    };
    for team in &stronger {
        let refused = invite("new@acme.test", &[&weaker[0], team]).await;
        let text = format!("{team} is not a team that you may add people to");
        assert_refused(&refused, 422, &[("/data/relationships/teams/data/1/id", &text)]);
    }
    assert_eq!(world.owner.get(&format!("{PEOPLE}?q=new@")).await.body["data"], json!([]), "nobody was invited");
    let all: Vec<&str> = weaker.iter().map(String::as_str).collect();
    invite("new@acme.test", &all).await.assert_status(201);
    assert_eq!(attribute(&world.owner.get(&format!("teams/{}", weaker[0])).await, "users-count"), 1);
    assert_eq!(attribute(&world.owner.get(&format!("teams/{}", mara.team)).await, "users-count"), 2);
}

async fn team_manager_grants_no_organization_right_beyond_own(world: &World) {
    let flags = ["manage-teams", "manage-membership", "manage-organization-access"];
    let mara = world.member("mara", rights(&flags)).await;
    let target = team(world, "target", json!({ "manage-agent-pools": true })).await;
    let change = async |team: &str, flags: Value| {
        mara.api.change(&format!("teams/{team}"), json!({ "organization-access": flags })).await
    };
    for flag in Flag::ALL.map(Flag::name) {
        if flags.contains(&flag) || flag == "manage-agent-pools" {
            continue;
        }
        for team in [&mara.team, &target] {
            let refused = change(team, json!({ flag: true })).await;
            assert_refused(&refused, 403, &[("", OWN)]);
            assert!(refused.text.contains(flag), "{}", refused.text);
            assert_eq!(attribute(&world.owner.get(&format!("teams/{team}")).await, "organization-access")[flag], false);
        }
        let new = json!({ "name": "new", "organization-access": { flag: true } });
        assert_eq!(mara.api.add(TEAMS, new).await.status, 403, "{flag}");
    }
    // A team keeps or loses its existing flags; the caller may grant the flags that the caller has.
    change(&target, json!({ "manage-agent-pools": true, "manage-teams": true })).await.assert_status(200);
    assert_eq!(change(&target, json!({ "manage-agent-pools": false })).await.status, 200);
    assert_eq!(change(&target, json!({ "manage-agent-pools": true })).await.status, 403, "not the giver's to give");
    let new = json!({ "name": "new", "organization-access": { "manage-membership": true } });
    assert_eq!(mara.api.add(TEAMS, new).await.status, 201);
}

async fn project_access_is_granted_up_to_the_own_access(world: &World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let mara = world.member("mara", NONE).await;
    let own = json!({ "access": "custom", "project-access": { "teams": "manage" } });
    let own = path_of(&grant_access(owner, &mara.team, &project, own).await);
    let other = team(world, "other", json!({})).await;
    let beyond = [
        json!({ "access": "read" }),
        json!({ "access": "write" }),
        json!({ "access": "maintain" }),
        json!({ "access": "admin" }),
        json!({ "access": "custom", "project-access": { "settings": "update" } }),
        json!({ "access": "custom", "project-access": { "variable-sets": "read" } }),
        json!({ "access": "custom", "workspace-access": { "runs": "plan" } }),
        json!({ "access": "custom", "workspace-access": { "state-versions": "read-outputs" } }),
        json!({ "access": "custom", "workspace-access": { "move": true } }),
        json!({ "access": "custom", "workspace-access": { "policy-overrides": true } }),
    ];
    for attributes in &beyond {
        assert_refused(&grant_access(&mara.api, &other, &project, attributes.clone()).await, 403, &[("", OWN)]);
        let raised = mara.api.change(&own, attributes.clone()).await;
        assert_refused(&raised, 403, &[("", OWN)]);
    }
    assert_eq!(attribute(&owner.get(&format!("projects/{project}")).await, "team-count"), 1);
    assert_eq!(attribute(&owner.get(&own).await, "access"), "custom");
    let within = json!({ "access": "custom", "project-access": { "teams": "manage" } });
    let given = path_of(&grant_access(&mara.api, &other, &project, within).await.assert_status(201));
    // A team keeps access beyond the caller's when something else changes; the caller may reduce it.
    let more = json!({ "workspace-access": { "runs": "apply" } });
    assert_eq!(owner.change(&given, more.clone()).await.status, 200);
    assert_eq!(mara.api.change(&given, json!({ "project-access": { "teams": "none" } })).await.status, 200);
    assert_eq!(attribute(&owner.get(&given).await, "workspace-access")["runs"], "apply");
    assert_eq!(mara.api.change(&given, json!({ "workspace-access": { "runs": "read" } })).await.status, 200);
    assert_refused(&mara.api.change(&given, more).await, 403, &[("", OWN)]);
    assert_eq!(mara.api.delete(&given).await.status, 204);
    // An admin of the project may grant any access to it.
    let admin = world.member("ada", NONE).await;
    assert_eq!(grant_access(owner, &admin.team, &project, json!({ "access": "admin" })).await.status, 201);
    for attributes in beyond {
        let given = path_of(&grant_access(&admin.api, &other, &project, attributes).await.assert_status(201));
        assert_eq!(admin.api.delete(&given).await.status, 204);
    }
}

async fn workspace_manager_flag_counts_as_access_to_workspaces(world: &World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let default = world.default_project().await;
    let flags = ["manage-teams", "manage-membership", "manage-workspaces"];
    let mara = world.member("mara", rights(&flags)).await.api;
    let creates = json!({ "access": "custom", "workspace-access": { "create": true, "runs": "apply" } });
    let runs = json!({ "access": "custom", "workspace-access": { "runs": "apply", "delete": true } });
    for (name, flags, access, status) in [
        // The flag includes the workspaces of every project, but not the projects.
        ("a", json!({ "read-workspaces": true }), None, 201),
        ("b", json!({ "read-projects": true }), None, 403),
        ("c", json!({}), Some((&project, runs.clone())), 403),
        ("d", json!({}), Some((&default, runs)), 201),
        ("e", json!({}), Some((&default, creates)), 201),
        ("f", json!({}), Some((&default, json!({ "access": "maintain" }))), 403),
    ] {
        let made = team(world, name, flags).await;
        if let Some((project, access)) = access {
            assert_eq!(grant_access(owner, &made, project, access).await.status, 201);
        }
        let token = mara.post(&format!("teams/{made}/authentication-token"), no_attributes()).await;
        assert_eq!(token.status, status, "{name}: {}", token.text);
    }
    // A manager of all projects has all possible rights on each.
    let flags = ["manage-teams", "manage-membership", "manage-projects"];
    let paula = world.member("paula", rights(&flags)).await.api;
    let team = team(world, "g", json!({ "manage-workspaces": true, "read-projects": true })).await;
    assert_eq!(grant_access(&paula, &team, &project, json!({ "access": "admin" })).await.status, 201);
    paula.token_for(&format!("teams/{team}")).await;
}

async fn team_with_too_many_grants_is_managed_by_owners_only(world: &World) {
    let mara = world.member("mara", rights(&["manage-teams", "manage-membership"])).await;
    let wide = team(world, "wide", json!({})).await;
    world.many_projects(0..1001).await;
    for team in [&mara.team, &wide] {
        world.grant_many(team, ProjectRights::ALL, "TRUE").await;
    }
    let path = format!("teams/{wide}/authentication-token");
    assert_refused(&mara.api.post(&path, no_attributes()).await, 403, &[("", MORE)]);
    let own = format!("teams/{}/authentication-token", mara.team);
    assert_eq!(mara.api.post(&own, no_attributes()).await.status, 201, "her own team");
    assert_eq!(world.owner.post(&path, no_attributes()).await.status, 201);
    let all = world.member("paula", rights(&["manage-teams", "manage-projects"])).await;
    assert_eq!(all.api.post(&path, no_attributes()).await.status, 201, "manages all projects");
    // One project less is within the limit.
    world.execute("DELETE FROM projects WHERE ext_id = 'prj-many-7'").await;
    assert_eq!(mara.api.post(&path, no_attributes()).await.status, 201);
}

async fn owners_can_grant_everything(world: &World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    world.member("mia", NONE).await;
    let owners = ids(&owner.get(&format!("{TEAMS}?filter[names]=owners")).await).remove(0);
    let of_owners = owner.token_for(&format!("teams/{owners}")).await;
    let of_organization = owner.token_for(ACME).await;
    for (n, api) in [owner, &of_owners, &of_organization].into_iter().enumerate() {
        let all = json!({ "manage-projects": true, "manage-organization-access": true, "manage-agent-pools": true });
        let new = json!({ "name": format!("team {n}"), "organization-access": all });
        let team = api.create(TEAMS, resource("teams", new)).await;
        api.create("team-projects", team_access(&team, &project, json!({ "access": "admin" }))).await;
        let users = format!("teams/{team}/relationships/users");
        assert_eq!(api.post(&users, these("users", &["mia"])).await.status, 204);
        api.token_for(&format!("teams/{team}")).await;
        let address = json!({ "email": format!("new{n}@acme.test") });
        let teams = these("teams", &[&team, &owners]);
        api.create(PEOPLE, related("organization-memberships", address, "teams", teams)).await;
    }
}
