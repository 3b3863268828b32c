//! Secret teams: members who do not know a secret team see nothing that names it, even if they manage other teams.

use reqwest::Method;
use serde_json::{Value, json};
use signet::projects::rights::{Flag, OrganizationRights, ProjectRights};

use super::fixture::{Api, World, assert_refused, attribute, on_both_stores, resource};
use super::routes::access_of;
use crate::support::send;

on_both_stores!(access_of_secret_teams_is_hidden, locks_and_tokens_do_not_name_secret_teams);

const NONE: OrganizationRights = OrganizationRights::NONE;

async fn made(api: &Api, path: &str, body: Value) -> String {
    let made = api.post(path, body).await;
    assert_eq!(made.status, 201, "{path}: {}", made.text);
    made.body["data"]["id"].as_str().unwrap().to_owned()
}

async fn team(api: &Api, name: &str, visibility: &str) -> String {
    let team = resource("teams", json!({ "name": name, "visibility": visibility }));
    made(api, "organizations/acme/teams", team).await
}

async fn token_of(api: &Api, team: &str) -> Api {
    let made =
        api.post(&format!("teams/{team}/authentication-token"), resource("authentication-tokens", json!({}))).await;
    assert_eq!(made.status, 201, "{}", made.text);
    api.with_token(attribute(&made, "token").as_str().unwrap())
}

async fn access_of_secret_teams_is_hidden(world: World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let secret = team(owner, "hush", "secret").await;
    let known = team(owner, "loud", "organization").await;
    let hidden = made(owner, "team-projects", access_of(&secret, &project)).await;
    let shown = made(owner, "team-projects", access_of(&known, &project)).await;
    let admin = world.member("adam", NONE).await;
    let knows = world.member("kate", NONE.with(Flag::AccessSecretTeams, true)).await;
    let manager = world.member("mara", NONE.with(Flag::ManageProjects, true)).await;
    for person in [&admin, &knows] {
        world.grant(&person.team, &project, ProjectRights::ALL).await;
    }
    let list = format!("team-projects?filter[project][id]={project}&page[size]=1");
    let total = async |api: &Api| api.get(&list).await.body["meta"]["pagination"]["total-count"].clone();
    let path = format!("team-projects/{hidden}");
    let change = resource("team-projects", json!({ "access": "write" }));
    // The teams of these three people are secret, too; each person sees their own.
    for (api, count) in [(&admin.api, 2), (&manager.api, 1)] {
        assert_eq!(total(api).await, count);
        let all = api.get(&format!("team-projects?filter[project][id]={project}")).await;
        assert!(!all.text.contains(&hidden) && !all.text.contains(&secret), "{}", all.text);
        assert!(all.text.contains(&shown), "{}", all.text);
        assert_eq!(api.get(&format!("teams/{secret}")).await.status, 404);
        assert_eq!(api.get(&path).await.status, 404);
        assert_eq!(api.patch(&path, change.clone()).await.status, 404);
        assert_eq!(api.delete(&path).await.status, 404);
        assert_eq!(api.post("team-projects", access_of(&secret, &project)).await.status, 404);
        assert_eq!(api.patch(&format!("team-projects/{shown}"), change.clone()).await.status, 200);
    }
    assert_eq!(total(owner).await, 4);
    assert_eq!(total(&knows.api).await, 4);
    let organization = owner.post("organizations/acme/authentication-token", json!({ "data": { "type": "" } })).await;
    let organization = owner.with_token(attribute(&organization, "token").as_str().unwrap());
    assert_eq!(total(&organization).await, 4);
    for api in [owner, &knows.api, &organization, &token_of(owner, &secret).await] {
        assert_eq!(api.get(&path).await.status, 200);
    }
    assert_eq!(attribute(&admin.api.get(&format!("projects/{project}")).await, "team-count"), 4, "a true count");
    assert_eq!(knows.api.patch(&path, change).await.status, 200);
    assert_eq!(knows.api.delete(&path).await.status, 204);
    world.app.stop().await;
}

async fn locks_and_tokens_do_not_name_secret_teams(world: World) {
    let owner = &world.owner;
    let workspaces = OrganizationRights::NONE.with(Flag::ManageWorkspaces, true);
    let locker = world.member("lena", workspaces).await;
    let other = world.member("otto", workspaces).await;
    let workspace = made(owner, "organizations/acme/workspaces", resource("workspaces", json!({ "name": "w" }))).await;
    let path = format!("workspaces/{workspace}");
    let act = async |api: &Api, action: &str| {
        send(
            api.request(Method::POST, &format!("{path}/actions/{action}"))
                .header("Content-Type", "application/vnd.api+json"),
        )
        .await
    };
    let team_token = token_of(owner, &locker.team).await;
    assert_eq!(act(&team_token, "lock").await.status, 200);
    let by = "locked-by";
    for (api, expected) in [
        (owner, json!({ "type": "teams", "id": locker.team })),
        (&locker.api, json!({ "type": "teams", "id": locker.team })),
        (&other.api, Value::Null),
    ] {
        let shown = api.get(&path).await;
        assert_eq!(
            (&shown.body["data"]["relationships"][by]["data"], attribute(&shown, "locked")),
            (&expected, &json!(true))
        );
        let listed = api.get("organizations/acme/workspaces").await;
        assert_eq!(listed.body["data"][0]["relationships"][by]["data"], expected);
    }
    let refused = act(&other.api, "unlock").await;
    assert_refused(&refused, 409, &[("", "the workspace is locked by Team")]);
    assert!(!refused.text.contains(&locker.team), "{}", refused.text);
    assert!(act(owner, "unlock").await.text.contains(&locker.team));

    // A team token that was created with the token of a secret team.
    let teams = NONE.with(Flag::ManageTeams, true).with(Flag::ManageMembership, true);
    let maker = world.member("maya", teams).await;
    let manager = world.member("max", teams).await;
    let open = team(owner, "open", "organization").await;
    let maker_token = token_of(owner, &maker.team).await;
    let token = resource("authentication-tokens", json!({ "description": "ci" }));
    let token = made(&maker_token, &format!("teams/{open}/authentication-tokens"), token).await;
    for (api, expected) in [
        (owner, json!({ "type": "teams", "id": maker.team })),
        (&maker_token, json!({ "type": "teams", "id": maker.team })),
        (&manager.api, Value::Null),
    ] {
        let shown = api.get(&format!("authentication-tokens/{token}")).await;
        assert_eq!(shown.body["data"]["relationships"]["created-by"]["data"], expected, "{}", shown.text);
        let listed = api.get(&format!("teams/{open}/authentication-tokens")).await;
        assert_eq!(listed.body["data"][0]["relationships"]["created-by"]["data"], expected, "{}", listed.text);
    }
    world.app.stop().await;
}
