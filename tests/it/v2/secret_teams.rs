//! Secret teams: members who do not know a secret team see nothing that names it, even if they manage other teams.

use serde_json::{Value, json};
use signet::projects::rights::{OrganizationFlag as Flag, ProjectRights};

use super::fixture::{
    ACME, Api, NONE, TEAMS, WORKSPACES, World, assert_refused, attribute, items, on_both_stores, resource, rights,
    total,
};
use super::routes::access_of;

on_both_stores!(access_of_secret_teams_is_hidden, locks_and_tokens_do_not_name_secret_teams);

async fn team(world: &World, name: &str, visibility: &str) -> String {
    world.owner.create(TEAMS, resource("teams", json!({ "name": name, "visibility": visibility }))).await
}

async fn access_of_secret_teams_is_hidden(world: &World) {
    let owner = &world.owner;
    let project = world.project("Net").await;
    let secret = team(world, "hush", "secret").await;
    let known = team(world, "loud", "organization").await;
    let hidden = owner.create("team-projects", access_of(&secret, &project)).await;
    let shown = owner.create("team-projects", access_of(&known, &project)).await;
    let admin = world.member("adam", NONE).await;
    let knows = world.member("kate", NONE.with(Flag::AccessSecretTeams, true)).await;
    let manager = world.member("mara", NONE.with(Flag::ManageProjects, true)).await;
    for person in [&admin, &knows] {
        world.grant(&person.team, &project, ProjectRights::ALL).await;
    }
    let list = format!("team-projects?filter[project][id]={project}&page[size]=1");
    let count = async |api: &Api| total(&api.get(&list).await).clone();
    let path = format!("team-projects/{hidden}");
    let change = resource("team-projects", json!({ "access": "write" }));
    // The teams of these three people are secret, too; each person sees their own.
    for (api, seen) in [(&admin.api, 2), (&manager.api, 1)] {
        assert_eq!(count(api).await, seen);
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
    assert_eq!(count(owner).await, 4);
    assert_eq!(count(&knows.api).await, 4);
    let organization = owner.token_for(ACME).await;
    assert_eq!(count(&organization).await, 4);
    for api in [owner, &knows.api, &organization, &owner.token_for(&format!("teams/{secret}")).await] {
        assert_eq!(api.get(&path).await.status, 200);
    }
    assert_eq!(attribute(&admin.api.get(&format!("projects/{project}")).await, "team-count"), 4, "a true count");
    assert_eq!(knows.api.patch(&path, change).await.status, 200);
    assert_eq!(knows.api.delete(&path).await.status, 204);
}

async fn locks_and_tokens_do_not_name_secret_teams(world: &World) {
    let owner = &world.owner;
    let manages = NONE.with(Flag::ManageWorkspaces, true);
    let locker = world.member("lena", manages).await;
    let other = world.member("otto", manages).await;
    let workspace = world.workspace("", "w").await;
    let path = format!("workspaces/{workspace}");
    let team_token = owner.token_for(&format!("teams/{}", locker.team)).await;
    assert_eq!(team_token.act(&workspace, "lock").await.status, 200);
    let by = "locked-by";
    for (api, expected) in [
        (owner, json!({ "type": "teams", "id": locker.team })),
        (&locker.api, json!({ "type": "teams", "id": locker.team })),
        (&other.api, Value::Null),
    ] {
        let shown = api.get(&path).await;
        assert_eq!(attribute(&shown, "locked"), true);
        let listed = api.get(WORKSPACES).await;
        for item in [&shown.body["data"], &items(&listed)[0]] {
            assert_eq!(item["relationships"][by]["data"], expected);
        }
    }
    let refused = other.api.act(&workspace, "unlock").await;
    assert_refused(&refused, 409, &[("", "the workspace is locked by Team")]);
    assert!(!refused.text.contains(&locker.team), "{}", refused.text);
    assert!(owner.act(&workspace, "unlock").await.text.contains(&locker.team));

    // A team token that was created with the token of a secret team.
    let manages = rights(&["manage-teams", "manage-membership"]);
    let maker = world.member("maya", manages).await;
    let manager = world.member("max", manages).await;
    let open = team(world, "open", "organization").await;
    let maker_token = owner.token_for(&format!("teams/{}", maker.team)).await;
    let token = resource("authentication-tokens", json!({ "description": "ci" }));
    let token = maker_token.create(&format!("teams/{open}/authentication-tokens"), token).await;
    for (api, expected) in [
        (owner, json!({ "type": "teams", "id": maker.team })),
        (&maker_token, json!({ "type": "teams", "id": maker.team })),
        (&manager.api, Value::Null),
    ] {
        let shown = api.get(&format!("authentication-tokens/{token}")).await;
        let listed = api.get(&format!("teams/{open}/authentication-tokens")).await;
        for item in [&shown.body["data"], &items(&listed)[0]] {
            assert_eq!(item["relationships"]["created-by"]["data"], expected, "{item}");
        }
    }
}
