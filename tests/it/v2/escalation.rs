//! A team never gives a caller more rights than the caller has: not by its tokens, members, flags or access to
//! projects. Each caller here has only the right that the route needs.

use reqwest::Method;
use serde_json::{Value, json};
use signet::projects::id;
use signet::projects::rights::{Flag, OrganizationRights};

use super::fixture::{Api, World, assert_refused, attribute, on_both_stores, resource};
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

const TEAMS: &str = "organizations/acme/teams";
const PEOPLE: &str = "organizations/acme/organization-memberships";
const MORE: &str = "the team has rights that you lack";

fn rights(flags: &[&str]) -> OrganizationRights {
    let named = Flag::ALL.into_iter().filter(|flag| flags.contains(&flag.name()));
    named.fold(OrganizationRights::NONE, |rights, flag| rights.with(flag, true))
}

async fn team(world: &World, name: &str, flags: Value) -> String {
    let attributes = json!({ "name": name, "visibility": "organization", "organization-access": flags });
    let made = world.owner.post(TEAMS, resource("teams", attributes)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    made.body["data"]["id"].as_str().unwrap().to_owned()
}

async fn give(api: &Api, team: &str, project: &str, attributes: Value) -> Answer {
    let mut body = resource("team-projects", attributes);
    body["data"]["relationships"] = json!({
        "team": { "data": { "id": team, "type": "teams" } },
        "project": { "data": { "id": project, "type": "projects" } },
    });
    api.post("team-projects", body).await
}

fn these(kind: &str, ids: &[&str]) -> Value {
    json!({ "data": ids.iter().map(|id| json!({ "type": kind, "id": id })).collect::<Vec<_>>() })
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
    assert_eq!(give(owner, own, &shared, keys.clone()).await.status, 201);
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
        assert_eq!(give(owner, &made, project, access).await.status, 201);
        stronger.push(made);
    }
    let empty = team(world, "empty", json!({})).await;
    let equal = team(world, "equal", json!({})).await;
    let less = team(world, "less", json!({})).await;
    assert_eq!(give(owner, &equal, &shared, keys).await.status, 201);
    assert_eq!(give(owner, &less, &shared, json!({ "access": "custom" })).await.status, 201);
    Teams { stronger, weaker: vec![empty, equal, less, own.to_owned()] }
}

async fn team_manager_creates_no_token_of_a_stronger_team(world: World) {
    let mara = world.member("mara", rights(&["manage-teams"])).await;
    let Teams { stronger, weaker } = teams(&world, &mara.team).await;
    let own = format!("teams/{}/authentication-tokens", mara.team);
    let own = mara.api.post(&own, resource("", json!({ "description": "own" }))).await;
    let of_team = mara.api.with_token(attribute(&own, "token").as_str().unwrap());
    for api in [&mara.api, &of_team] {
        for team in &stronger {
            let tokens = format!("teams/{team}/authentication-tokens");
            for path in [&tokens[..], &format!("teams/{team}/authentication-token")] {
                for body in [json!({ "data": { "type": "" } }), resource("", json!({ "description": "ci" })), json!([])]
                {
                    assert_refused(&api.post(path, body).await, 403, &[("", MORE)]);
                }
            }
            assert_eq!(world.owner.get(&tokens).await.body["data"], json!([]), "none was made");
            assert_eq!(api.get(&tokens).await.status, 200);
        }
        for team in &weaker {
            let made =
                api.post(&format!("teams/{team}/authentication-tokens"), json!({ "data": { "type": "" } })).await;
            assert_eq!(made.status, 201, "{}", made.text);
        }
    }
    world.app.stop().await;
}

async fn membership_manager_adds_no_member_to_a_stronger_team(world: World) {
    let mara = world.member("mara", rights(&["manage-membership"])).await;
    world.member("mia", OrganizationRights::NONE).await;
    let Teams { stronger, weaker } = teams(&world, &mara.team).await;
    let own = world.owner.get(&format!("{PEOPLE}?q=mara")).await.body["data"][0]["id"].as_str().unwrap().to_owned();
    let ways = |team: &str| {
        [
            (format!("teams/{team}/relationships/users"), these("users", &["mara"])),
            (format!("teams/{team}/relationships/users"), these("users", &["mia"])),
            (
                format!("teams/{team}/relationships/organization-memberships"),
                these("organization-memberships", &[&own]),
            ),
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
        let out = mara.api.send_text(Method::DELETE, &path, these("users", &["mia"]).to_string()).await;
        assert_eq!(out.status, 204, "{}", out.text);
    }
    for team in &weaker {
        for (path, body) in ways(team) {
            assert_eq!(mara.api.post(&path, body).await.status, 204);
        }
        assert_eq!(attribute(&world.owner.get(&format!("teams/{team}")).await, "users-count"), 2);
    }
    world.app.stop().await;
}

async fn membership_manager_cannot_invite_into_a_stronger_team(world: World) {
    let mara = world.member("mara", rights(&["manage-membership"])).await;
    let Teams { stronger, weaker } = teams(&world, &mara.team).await;
    let invite = async |email: &str, teams: &[&str]| {
        let mut body = resource("organization-memberships", json!({ "email": email }));
        body["data"]["relationships"]["teams"] = these("teams", teams);
        mara.api.post(PEOPLE, body).await
    };
    for team in &stronger {
        let refused = invite("new@acme.test", &[&weaker[0], team]).await;
        let text = format!("{team} is not a team that you may add people to");
        assert_refused(&refused, 422, &[("/data/relationships/teams/data/1/id", &text)]);
    }
    assert_eq!(world.owner.get(&format!("{PEOPLE}?q=new@")).await.body["data"], json!([]), "nobody was invited");
    let all: Vec<&str> = weaker.iter().map(String::as_str).collect();
    let made = invite("new@acme.test", &all).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(attribute(&world.owner.get(&format!("teams/{}", weaker[0])).await, "users-count"), 1);
    assert_eq!(attribute(&world.owner.get(&format!("teams/{}", mara.team)).await, "users-count"), 2);
    world.app.stop().await;
}

async fn team_manager_grants_no_organization_right_beyond_own(world: World) {
    let flags = ["manage-teams", "manage-membership", "manage-organization-access"];
    let mara = world.member("mara", rights(&flags)).await;
    let target = team(&world, "target", json!({ "manage-agent-pools": true })).await;
    let change = async |team: &str, flags: Value| {
        mara.api.patch(&format!("teams/{team}"), resource("teams", json!({ "organization-access": flags }))).await
    };
    for flag in Flag::ALL.map(Flag::name) {
        if flags.contains(&flag) || flag == "manage-agent-pools" {
            continue;
        }
        for team in [&mara.team, &target] {
            let refused = change(team, json!({ flag: true })).await;
            assert_refused(&refused, 403, &[("", "you may not grant a team rights that you do not have yourself")]);
            assert!(refused.text.contains(flag), "{}", refused.text);
            assert_eq!(attribute(&world.owner.get(&format!("teams/{team}")).await, "organization-access")[flag], false);
        }
        let new = json!({ "name": "new", "organization-access": { flag: true } });
        assert_eq!(mara.api.post(TEAMS, resource("teams", new)).await.status, 403, "{flag}");
    }
    // A team keeps or loses its existing flags; the caller may grant the flags that the caller has.
    let given = change(&target, json!({ "manage-agent-pools": true, "manage-teams": true })).await;
    assert_eq!(given.status, 200, "{}", given.text);
    assert_eq!(change(&target, json!({ "manage-agent-pools": false })).await.status, 200);
    assert_eq!(change(&target, json!({ "manage-agent-pools": true })).await.status, 403, "not the giver's to give");
    let new = json!({ "name": "new", "organization-access": { "manage-membership": true } });
    assert_eq!(mara.api.post(TEAMS, resource("teams", new)).await.status, 201);
    world.app.stop().await;
}

async fn project_access_is_granted_up_to_the_own_access(world: World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let mara = world.member("mara", OrganizationRights::NONE).await;
    let own = json!({ "access": "custom", "project-access": { "teams": "manage" } });
    let own = give(owner, &mara.team, &project, own).await;
    let own = format!("team-projects/{}", own.body["data"]["id"].as_str().unwrap());
    let other = team(&world, "other", json!({})).await;
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
    let text = "you may not grant a team rights that you do not have yourself";
    for attributes in &beyond {
        assert_refused(&give(&mara.api, &other, &project, attributes.clone()).await, 403, &[("", text)]);
        let raised = mara.api.patch(&own, resource("team-projects", attributes.clone())).await;
        assert_refused(&raised, 403, &[("", text)]);
    }
    assert_eq!(attribute(&owner.get(&format!("projects/{project}")).await, "team-count"), 1);
    assert_eq!(attribute(&owner.get(&own).await, "access"), "custom");
    let within = json!({ "access": "custom", "project-access": { "teams": "manage" } });
    let given = give(&mara.api, &other, &project, within).await;
    assert_eq!(given.status, 201, "{}", given.text);
    let given = format!("team-projects/{}", given.body["data"]["id"].as_str().unwrap());
    // A team keeps access beyond the caller's when something else changes; the caller may reduce it.
    let more = json!({ "workspace-access": { "runs": "apply" } });
    assert_eq!(owner.patch(&given, resource("team-projects", more.clone())).await.status, 200);
    let lower = json!({ "project-access": { "teams": "none" } });
    assert_eq!(mara.api.patch(&given, resource("team-projects", lower)).await.status, 200);
    assert_eq!(attribute(&owner.get(&given).await, "workspace-access")["runs"], "apply");
    let lower = json!({ "workspace-access": { "runs": "read" } });
    assert_eq!(mara.api.patch(&given, resource("team-projects", lower)).await.status, 200);
    assert_refused(&mara.api.patch(&given, resource("team-projects", more)).await, 403, &[("", text)]);
    assert_eq!(mara.api.delete(&given).await.status, 204);
    // An admin of the project may grant any access to it.
    let admin = world.member("ada", OrganizationRights::NONE).await;
    assert_eq!(give(owner, &admin.team, &project, json!({ "access": "admin" })).await.status, 201);
    for attributes in beyond {
        let given = give(&admin.api, &other, &project, attributes).await;
        assert_eq!(given.status, 201, "{}", given.text);
        let given = format!("team-projects/{}", given.body["data"]["id"].as_str().unwrap());
        assert_eq!(admin.api.delete(&given).await.status, 204);
    }
    world.app.stop().await;
}

async fn workspace_manager_flag_counts_as_access_to_workspaces(world: World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let default = owner.get("organizations/acme?include=default-project").await;
    let default = default.body["data"]["relationships"]["default-project"]["data"]["id"].as_str().unwrap().to_owned();
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
        let made = team(&world, name, flags).await;
        if let Some((project, access)) = access {
            assert_eq!(give(owner, &made, project, access).await.status, 201);
        }
        let token = mara.post(&format!("teams/{made}/authentication-token"), json!({ "data": { "type": "" } })).await;
        assert_eq!(token.status, status, "{name}: {}", token.text);
    }
    // A manager of all projects has all possible rights on each.
    let flags = ["manage-teams", "manage-membership", "manage-projects"];
    let paula = world.member("paula", rights(&flags)).await.api;
    let team = team(&world, "g", json!({ "manage-workspaces": true, "read-projects": true })).await;
    assert_eq!(give(&paula, &team, &project, json!({ "access": "admin" })).await.status, 201);
    let token = paula.post(&format!("teams/{team}/authentication-token"), json!({ "data": { "type": "" } })).await;
    assert_eq!(token.status, 201, "{}", token.text);
    world.app.stop().await;
}

async fn team_with_too_many_grants_is_managed_by_owners_only(world: World) {
    let mara = world.member("mara", rights(&["manage-teams", "manage-membership"])).await;
    let wide = team(&world, "wide", json!({})).await;
    let own = mara.team.clone();
    let other = wide.clone();
    world
        .run(move |mut tx| {
            let own = own.clone();
            let other = other.clone();
            Box::pin(async move {
                let now = tx.now;
                for n in 0..1001 {
                    let name = format!("project {n}");
                    let insert = "INSERT INTO projects (ext_id, org_id, name, name_lc, created_at)
                        SELECT $1, id, $2, $3, $4 FROM organizations WHERE name_lc = 'acme' RETURNING id";
                    let values = [id::new("prj").into(), name[..].into(), name[..].into(), now.into()];
                    let project: i64 = tx.one(insert, &values).await?.get()?;
                    for team in [&own, &other] {
                        let give = "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
                            SELECT $1, id, $2, 'admin', 63 FROM teams WHERE ext_id = $3";
                        tx.execute(give, &[id::new("tprj").into(), project.into(), team[..].into()]).await?;
                    }
                }
                Ok(())
            })
        })
        .await;
    let path = format!("teams/{wide}/authentication-token");
    let empty = || json!({ "data": { "type": "" } });
    assert_refused(&mara.api.post(&path, empty()).await, 403, &[("", MORE)]);
    let own = format!("teams/{}/authentication-token", mara.team);
    assert_eq!(mara.api.post(&own, empty()).await.status, 201, "her own team");
    assert_eq!(world.owner.post(&path, empty()).await.status, 201);
    let all = world.member("paula", rights(&["manage-teams", "manage-projects"])).await;
    assert_eq!(all.api.post(&path, empty()).await.status, 201, "manages all projects");
    // One project less is within the limit.
    world
        .run(move |mut tx| {
            Box::pin(async move {
                tx.execute("DELETE FROM projects WHERE name = 'project 7'", &[]).await?;
                Ok(())
            })
        })
        .await;
    assert_eq!(mara.api.post(&path, empty()).await.status, 201);
    world.app.stop().await;
}

async fn owners_can_grant_everything(world: World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    world.member("mia", OrganizationRights::NONE).await;
    let token = async |path: &str| {
        let made = owner.post(path, json!({ "data": { "type": "" } })).await;
        owner.with_token(attribute(&made, "token").as_str().unwrap())
    };
    let owners = owner.get(&format!("{TEAMS}?filter[names]=owners")).await.body["data"][0]["id"].clone();
    let of_owners = token(&format!("teams/{}/authentication-token", owners.as_str().unwrap())).await;
    let of_organization = token("organizations/acme/authentication-token").await;
    for (n, api) in [owner, &of_owners, &of_organization].into_iter().enumerate() {
        let all = json!({ "manage-projects": true, "manage-organization-access": true, "manage-agent-pools": true });
        let new = json!({ "name": format!("team {n}"), "organization-access": all });
        let made = api.post(TEAMS, resource("teams", new)).await;
        assert_eq!(made.status, 201, "{}", made.text);
        let team = made.body["data"]["id"].as_str().unwrap();
        assert_eq!(give(api, team, &project, json!({ "access": "admin" })).await.status, 201);
        let users = format!("teams/{team}/relationships/users");
        assert_eq!(api.post(&users, these("users", &["mia"])).await.status, 204);
        let token = api.post(&format!("teams/{team}/authentication-token"), json!({ "data": { "type": "" } })).await;
        assert_eq!(token.status, 201, "{}", token.text);
        let mut invite = resource("organization-memberships", json!({ "email": format!("new{n}@acme.test") }));
        invite["data"]["relationships"]["teams"] = these("teams", &[team, owners.as_str().unwrap()]);
        assert_eq!(api.post(PEOPLE, invite).await.status, 201);
    }
    world.app.stop().await;
}
