//! Teams and memberships.

use futures_util::future::{join_all, join3};
use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{
    ACME, Api, NONE, PEOPLE, TEAMS, World, assert_invalid, assert_refused, attribute, items, names, no_attributes,
    on_both_stores, path_of, related, resource, rights, statuses, team_access, these, total,
};
use crate::support::{Answer, assert_has, until};

on_both_stores!(
    owners_team_cannot_be_deleted_renamed_or_emptied,
    team_members_are_added_shown_and_removed,
    team_is_created_shown_and_changed,
    team_flags_imply_their_prerequisites,
    team_name_rules_are_enforced,
    secret_teams_are_hidden,
    team_manager_changes_teams_except_owners,
    memberships_are_invited_activated_and_shown,
    memberships_are_listed_and_deleted,
    deleted_team_loses_its_access,
    first_request_activates_an_invited_member,
    concurrent_mutual_removal_leaves_one_owner,
    concurrent_requests_for_a_token_slot_leave_one_token,
    access_for_a_concurrently_deleted_team_is_rejected,
    team_with_many_members_is_shown_up_to_a_limit,
    leaving_an_organization_leaves_all_of_its_teams,
);

async fn create_team(api: &Api, attributes: Value) -> Answer {
    api.add(TEAMS, attributes).await
}

async fn owners(world: &World) -> String {
    let found = world.owner.get(&format!("{TEAMS}?filter[names]=OWNERS")).await;
    assert_eq!(total(&found), 1);
    format!("teams/{}", items(&found)[0]["id"].as_str().unwrap())
}

async fn owners_team_cannot_be_deleted_renamed_or_emptied(world: &World) {
    let owner = &world.owner;
    let path = owners(world).await;
    assert_refused(&owner.delete(&path).await, 409, &[("", "the owners team")]);
    let users = format!("{path}/relationships/users");
    assert_refused(&owner.delete_with(&users, these("users", &["olga"])).await, 409, &[("", "the owners team")]);
    for change in [json!({ "name": "bosses" }), json!({ "organization-access": { "manage-policies": false } })] {
        let changed = owner.change(&path, change).await;
        assert_refused(&changed, 409, &[("", "the name and the rights of")]);
    }
    assert_eq!(owner.change(&path, json!({ "visibility": "organization" })).await.status, 200);
    // One of two owners may leave, but not both.
    world.member("mia", NONE).await;
    assert_eq!(owner.post(&users, these("users", &["mia"])).await.status, 204);
    let both = owner.delete_with(&users, these("users", &["mia", "olga"])).await;
    assert_eq!((both.status, attribute(&owner.get(&path).await, "users-count")), (409, &json!(2)));
    assert_eq!(owner.delete_with(&users, these("users", &["olga"])).await.status, 204);
    assert_eq!(owner.get(&path).await.status, 200, "a member still, and the team is visible");
    assert_eq!(owner.change(&path, json!({})).await.status, 404, "no owner any more");
}

async fn team_members_are_added_shown_and_removed(world: &World) {
    let owner = &world.owner;
    let path = format!("teams/{}", world.team("builders").await);
    let users = format!("{path}/relationships/users");
    world.member("mia", NONE).await;
    world.outsider("xaver").await;
    for _ in 0..2 {
        assert_eq!(owner.post(&users, these("users", &["MIA"])).await.status, 204, "again is the same");
    }
    let shown = owner.get(&format!("{path}?include=users")).await;
    assert_eq!(attribute(&shown, "users-count"), 1);
    assert_eq!(shown.body["included"][0]["attributes"]["username"], "mia");
    assert_eq!(shown.body["included"][0]["id"], shown.body["data"]["relationships"]["users"]["data"][0]["id"]);
    let unknown = owner.post(&users, these("users", &["olga", "nobody", "xaver"])).await;
    let faults = [
        ("/data/1/id", "nobody is not a member of the organization"),
        ("/data/2/id", "xaver is not a member of the organization"),
    ];
    assert_refused(&unknown, 400, &faults);
    assert_eq!(unknown.body["errors"][0]["title"], "bad request");
    assert_eq!(attribute(&owner.get(&path).await, "users-count"), 1, "nobody was added");
    assert_eq!(owner.post(&users, json!({ "data": {} })).await.status, 422);
    assert_eq!(owner.post(&users, json!({ "data": [{ "type": "users", "id": "\u{0}" }] })).await.status, 422);

    let list = owner.get(&format!("{PEOPLE}?q=olga")).await;
    let membership = list.body["data"][0]["id"].as_str().unwrap();
    let by_membership = format!("{path}/relationships/organization-memberships");
    let body = || these("organization-memberships", &[membership]);
    assert_eq!(owner.post(&by_membership, body()).await.status, 204);
    let shown = owner.get(&format!("{path}?include=organization-memberships,users")).await;
    assert_eq!(attribute(&shown, "users-count"), 2);
    assert_eq!(shown.body["included"].as_array().unwrap().len(), 4);
    let related = &shown.body["data"]["relationships"]["organization-memberships"]["data"];
    assert!(related.as_array().unwrap().iter().any(|one| one["id"] == membership), "{}", shown.text);
    let listed = owner.get(&format!("{TEAMS}?include=users&filter[names]=builders")).await;
    assert_eq!(listed.body["included"].as_array().unwrap().len(), 2);
    assert_eq!(owner.delete_with(&by_membership, body()).await.status, 204);
    assert_eq!(owner.delete_with(&users, these("users", &["mia", "olga"])).await.status, 204);
    assert_eq!(attribute(&owner.get(&path).await, "users-count"), 0);
    assert_eq!(owner.get(&format!("{path}?include=projects")).await.status, 400);
}

async fn team_is_created_shown_and_changed(world: &World) {
    let owner = &world.owner;
    let made = create_team(owner, json!({ "name": "builders" })).await;
    let path = path_of(&made);
    assert_eq!((made.status, made.header("location")), (201, &format!("/api/v2/{path}")[..]));
    let usual = json!({ "visibility": "secret", "allow-member-token-management": true, "users-count": 0,
        "sso-team-id": null, "is-unified": false });
    assert_has(&made.body["data"]["attributes"], usual);
    let flags = attribute(&made, "organization-access").as_object().unwrap();
    assert!(flags.len() == 16 && flags.values().all(|flag| flag == false), "{}", made.text);
    assert_eq!(owner.get(&path).await.body, made.body);
    let change = json!({ "name": "foo bar", "organization-access": { "manage-agent-pools": true } });
    let changed = owner.change(&path, change).await;
    assert_eq!((changed.status, attribute(&changed, "name")), (200, &json!("foo bar")));
    let raised: Vec<_> =
        attribute(&changed, "organization-access").as_object().unwrap().iter().filter(|(_, on)| **on == true).collect();
    assert_eq!(raised, [(&"manage-agent-pools".to_owned(), &json!(true))]);
    let all = json!({ "visibility": "organization", "sso-team-id": "sso", "allow-member-token-management": false });
    let all = owner.change(&path, all).await;
    assert_eq!(attribute(&all, "sso-team-id"), "sso");
    assert_eq!(attribute(&all, "visibility"), "organization");
    assert_eq!(attribute(&all, "allow-member-token-management"), false);
    assert_eq!(attribute(&all, "organization-access")["manage-agent-pools"], true);
    assert_eq!(owner.change(&path, json!({})).await.body, all.body);
    let mut other = resource("teams", json!({}));
    other["data"]["id"] = "team-x".into();
    assert_eq!(owner.patch(&path, other).await.status, 409);
    let list = owner.get(TEAMS).await;
    assert_eq!(list.body["data"][0], all.body["data"], "by name: {}", list.text);
    assert_eq!(owner.get(&format!("{TEAMS}?q=OO%20B")).await.body["data"][0], all.body["data"]);
}

async fn team_flags_imply_their_prerequisites(world: &World) {
    let owner = &world.owner;
    let made = create_team(owner, json!({ "name": "builders" })).await;
    let path = path_of(&made);
    let change = async |flags: Value| owner.change(&path, json!({ "organization-access": flags })).await;
    let contradiction = change(json!({ "manage-teams": true, "manage-membership": false })).await;
    assert_invalid(&contradiction, "organization-access/manage-teams", "manage-teams needs");
    let raised = change(json!({ "manage-teams": true })).await;
    let flags = attribute(&raised, "organization-access");
    assert_eq!((raised.status, &flags["manage-teams"], &flags["manage-membership"]), (200, &json!(true), &json!(true)));
    assert_eq!(change(json!({ "manage-projects": true, "manage-workspaces": false })).await.status, 422);
    assert_eq!(change(json!({ "read-projects": true, "read-workspaces": false })).await.status, 422);
    let kind = change(json!({ "manage-teams": "yes" })).await;
    assert_invalid(&kind, "organization-access/manage-teams", "manage-teams must be a boolean");
    let created = create_team(owner, json!({ "name": "t", "organization-access": { "read-projects": true } })).await;
    assert_eq!(attribute(&created, "organization-access")["read-workspaces"], true, "{}", created.text);
}

async fn team_name_rules_are_enforced(world: &World) {
    for good in ["a", "a b", "_-_", &"x".repeat(90)] {
        assert_eq!(create_team(&world.owner, json!({ "name": good })).await.status, 201, "{good}");
    }
    for (bad, detail) in [
        (json!(""), "Name can't be blank"),
        (Value::Null, "Name can't be blank"),
        (json!("x".repeat(91)), "Name is too long"),
        (json!(" a"), "Name may only contain"),
        (json!("a/b"), "Name may only contain"),
        (json!("A B"), "Name has already been taken"),
        (json!("Owners"), "Name has already been taken"),
        (json!(1), "Name must be a string"),
    ] {
        assert_invalid(&create_team(&world.owner, json!({ "name": bad })).await, "name", detail);
    }
    assert_invalid(&create_team(&world.owner, json!({})).await, "name", "Name can't be blank");
    let both = create_team(&world.owner, json!({ "name": "a/b", "visibility": "all" })).await;
    let faults = [("/data/attributes/name", "Name may only"), ("/data/attributes/visibility", "Visibility must be")];
    assert_refused(&both, 422, &faults);
}

async fn secret_teams_are_hidden(world: &World) {
    let owner = &world.owner;
    let hidden = world.team("hidden").await;
    create_team(owner, json!({ "name": "shown", "visibility": "organization" })).await;
    let mia = world.member("mia", NONE).await.api;
    let eva = world.member("eva", rights(&["access-secret-teams", "manage-membership"])).await.api;
    let outsider = world.outsider("xaver").await.api;
    assert_eq!(names(&mia.get(TEAMS).await), ["shown", "team-mia"]);
    assert_eq!(names(&eva.get(TEAMS).await), ["hidden", "owners", "shown", "team-eva", "team-mia"]);
    assert_eq!(outsider.get(TEAMS).await.status, 404);
    let path = format!("teams/{hidden}");
    for (api, status) in [(&mia, 404), (&eva, 200), (&outsider, 404)] {
        assert_eq!(api.get(&path).await.status, status);
    }
    // The teams shown in a membership follow the same visibility.
    let of_olga = |list: &Answer| list.body["data"][0]["relationships"]["teams"]["data"].as_array().unwrap().len();
    let query = format!("{PEOPLE}?filter[email]=OLGA@acme.test&include=teams");
    let seen_by_mia = mia.get(&query).await;
    let seen_by_eva = eva.get(&query).await;
    assert_eq!((of_olga(&seen_by_mia), of_olga(&seen_by_eva)), (0, 1));
    assert_eq!(seen_by_eva.body["included"][0]["attributes"]["name"], "owners");
    assert_eq!(seen_by_mia.body["included"], json!([]));
}

async fn team_manager_changes_teams_except_owners(world: &World) {
    let manager = world.member("mara", rights(&["manage-teams", "manage-membership"])).await.api;
    let member = world.member("mia", NONE).await.api;
    assert_eq!(create_team(&member, json!({ "name": "t" })).await.status, 404);
    let visible = json!({ "name": "t", "visibility": "organization" });
    let made = create_team(&manager, visible).await;
    assert_eq!((made.status, &attribute(&made, "permissions")["can-destroy"]), (201, &json!(true)));
    let path = path_of(&made);
    let users = format!("{path}/relationships/users");
    let grant = json!({ "organization-access": { "manage-projects": true } });
    let granting = manager.change(&path, grant.clone()).await;
    assert_refused(&granting, 403, &[("", "you may not change the rights of teams")]);
    assert_eq!(manager.change(&path, json!({ "name": "u" })).await.status, 200);
    assert_eq!(manager.post(&users, these("users", &["mia"])).await.status, 204);
    let shown = member.get(&path).await;
    let granted = attribute(&shown, "permissions");
    assert_eq!((&granted["can-destroy"], &granted["can-update-membership"]), (&json!(false), &json!(false)));
    assert_eq!(member.change(&path, json!({})).await.status, 404);
    assert_eq!(member.post(&users, these("users", &["mia"])).await.status, 404);
    assert_eq!(member.delete(&path).await.status, 404);
    // Only owners manage the owners team, even if it is visible.
    let owners = owners(world).await;
    world.owner.change(&owners, json!({ "visibility": "organization" })).await;
    assert_eq!(manager.get(&owners).await.status, 200);
    assert_eq!(manager.post(&format!("{owners}/relationships/users"), these("users", &["mara"])).await.status, 404);
    assert_eq!(manager.change(&owners, json!({ "visibility": "secret" })).await.status, 404);
    let owners = owners.strip_prefix("teams/").unwrap();
    let address = json!({ "email": "new@acme.test" });
    let invite = related("organization-memberships", address, "teams", these("teams", &[owners]));
    let place = "/data/relationships/teams/data/0/id";
    assert_refused(&manager.post(PEOPLE, invite).await, 422, &[(place, owners)]);
    let found = manager.get(&format!("{PEOPLE}?q=olga")).await;
    let olga = format!("organization-memberships/{}", items(&found)[0]["id"].as_str().unwrap());
    assert_eq!(manager.delete(&olga).await.status, 404, "an owner");
    // A caller who may set a team's flags can grant only flags of their own.
    let mut flags = vec!["manage-teams", "manage-membership", "manage-organization-access"];
    let gita = world.member("gita", rights(&flags)).await.api;
    let granting = gita.change(&path, grant.clone()).await;
    let beyond = "you may not grant a team rights that you do not have yourself: manage-workspaces, manage-projects";
    assert_refused(&granting, 403, &[("", beyond)]);
    flags.push("manage-projects");
    let grace = world.member("grace", rights(&flags)).await.api;
    assert_eq!(grace.change(&path, grant).await.status, 200);
    assert_eq!(manager.delete(&path).await.status, 204);
    assert_eq!(world.owner.get(&path).await.status, 404);
}

async fn memberships_are_invited_activated_and_shown(world: &World) {
    let owner = &world.owner;
    let team = world.team("builders").await;
    let address = json!({ "email": "New@Acme.test" });
    let body = related("organization-memberships", address, "teams", these("teams", &[&team]));
    let made = owner.post(PEOPLE, body).await;
    assert_eq!((made.status, attribute(&made, "status")), (201, &json!("invited")), "{}", made.text);
    assert_eq!(made.body["included"][0]["attributes"]["username"], "New@Acme.test");
    let links = &made.body["data"]["relationships"];
    assert_eq!(links["organization"]["data"]["id"], "acme");
    assert_eq!(links["user"]["data"]["id"], made.body["included"][0]["id"]);
    assert_eq!(links["teams"]["data"], json!([{ "id": team, "type": "teams" }]));
    let path = path_of(&made);
    let shown = owner.get(&path).await;
    assert_eq!((&shown.body["data"], &shown.body["included"]), (&made.body["data"], &Value::Null));
    assert_eq!(owner.get(&format!("{path}?include=user")).await.body, made.body);
    let wrong = owner.get(&format!("{path}?include=users")).await.assert_status(400);
    assert!(wrong.body["errors"][0]["detail"].as_str().unwrap().contains("include parameter"));
    assert_eq!(attribute(&owner.get(&format!("teams/{team}")).await, "users-count"), 1);

    let invite = async |email: Value| owner.post(PEOPLE, resource("", json!({ "email": email }))).await;
    for (email, detail) in [
        (json!("x"), "Email must be an address"),
        (json!(""), "Email can't be blank"),
        (Value::Null, "Email can't be blank"),
        (json!(1), "Email must be a string"),
        (json!("new@acme.test"), "Email already belongs to a member"),
    ] {
        assert_invalid(&invite(email).await, "email", detail);
    }
    // A known user becomes a member immediately; an unknown one stays invited until the first request.
    let known = world.outsider("xaver").await.api;
    known.create("organizations", resource("", json!({ "name": "own", "email": "x@b.test" }))).await;
    let joined = invite(json!("xaver@acme.test")).await;
    assert_eq!((joined.status, attribute(&joined, "status")), (201, &json!("active")));
    let elsewhere = "organizations/own/organization-memberships";
    let again = known.post(elsewhere, resource("", json!({ "email": "new@acme.test" }))).await;
    assert_eq!((again.status, attribute(&again, "status")), (201, &json!("invited")), "in every organization");
    assert_eq!(known.get("organizations/acme").await.status, 200);
}

async fn memberships_are_listed_and_deleted(world: &World) {
    let owner = &world.owner;
    let mia = world.member("mia", NONE).await;
    let list = owner.get(PEOPLE).await;
    assert_eq!(total(&list), 2);
    assert_eq!(list.body["data"][0]["attributes"]["email"], "mia@acme.test", "newest first");
    let path = format!("organization-memberships/{}", list.body["data"][0]["id"].as_str().unwrap());
    let own = format!("organization-memberships/{}", list.body["data"][1]["id"].as_str().unwrap());
    for (query, count) in
        [("filter[email]=mia@acme.test,olga@acme.test", 2), ("filter[status]=invited", 0), ("q=IA@", 1), ("q=_ia", 0)]
    {
        let found = owner.get(&format!("{PEOPLE}?{query}")).await;
        assert_eq!(total(&found), count, "{query}");
    }
    assert_eq!(mia.api.get(PEOPLE).await.status, 200);
    assert_eq!(mia.api.post(PEOPLE, resource("", json!({ "email": "a@b.test" }))).await.status, 404);
    assert_eq!(mia.api.delete(&path).await.status, 404);
    assert_eq!(world.outsider("xaver").await.api.get(&own).await.status, 404);
    assert_refused(&owner.delete(&own).await, 403, &[("", "owners cannot remove themselves")]);
    assert_eq!((owner.delete(&path).await.status, owner.delete(&path).await.status), (204, 404));
    assert_eq!(mia.api.get("organizations/acme").await.status, 404);
    assert_eq!(attribute(&owner.get(&format!("teams/{}", mia.team)).await, "users-count"), 0, "out of the teams too");
    let of_organization = owner.token_for(ACME).await;
    assert_refused(&of_organization.delete(&own).await, 409, &[("", "the owners team")]);
    assert_eq!(owner.get(&own).await.status, 200, "nothing of it was done");
}

async fn deleted_team_loses_its_access(world: &World) {
    let owner = &world.owner;
    let team = world.team("builders").await;
    let path = format!("teams/{team}");
    let project = world.project("Net").await;
    owner.create("team-projects", team_access(&team, &project, json!({ "access": "admin" }))).await;
    let token = owner.token_for(&path).await;
    let project = format!("projects/{project}");
    assert_eq!(attribute(&owner.get(&project).await, "team-count"), 1);
    assert_eq!(token.get(&project).await.status, 200);
    assert_eq!((owner.delete(&path).await.status, owner.delete(&path).await.status), (204, 404));
    assert_eq!(attribute(&owner.get(&project).await, "team-count"), 0);
    assert_eq!(token.get(&project).await.status, 401);
}

async fn first_request_activates_an_invited_member(world: &World) {
    let made = world.owner.post(PEOPLE, resource("", json!({ "email": "new@acme.test" }))).await;
    let path = path_of(&made);
    assert_eq!(attribute(&world.owner.get(&path).await, "status"), "invited");
    let token = world.token_of("new@acme.test").await;
    assert_eq!(world.owner.with_token(&token).get("organizations/acme").await.status, 200);
    until("the membership is active", async || attribute(&world.owner.get(&path).await, "status") == "active").await;
}

/// Two owners remove each other concurrently: one stays, in the team and in the organization.
async fn concurrent_mutual_removal_leaves_one_owner(world: &World) {
    let owner = &world.owner;
    let users = format!("{}/relationships/users", owners(world).await);
    let mia = world.member("mia", NONE).await.api;
    for round in 0..20 {
        let asks = [(owner, "mia"), (&mia, "olga")];
        // The remaining owner adds the other one again.
        for api in [owner, &mia] {
            api.post(&users, these("users", &["olga", "mia"])).await;
        }
        let removed = join_all(asks.map(|(api, name)| api.delete_with(&users, these("users", &[name])))).await;
        let statuses = statuses(&removed);
        // The second request comes from a former owner, or would empty the team.
        assert!(matches!(statuses[..], [204, 404 | 409]), "round {round}: {statuses:?}");
    }
}

/// Many concurrent requests for one slot all succeed, and one of their tokens is valid afterwards.
async fn concurrent_requests_for_a_token_slot_leave_one_token(world: &World) {
    let owner = &world.owner;
    let team = format!("teams/{}/authentication-token", world.team("builders").await);
    for path in [&team[..], "organizations/acme/authentication-token"] {
        for _ in 0..5 {
            let asked = (0..8).map(|_| owner.post(path, no_attributes()));
            let made = join_all(asked).await;
            let mut standing = 0;
            for answer in &made {
                assert_eq!(answer.status, 201, "{}", answer.text);
                let token = attribute(answer, "token").as_str().unwrap();
                standing += usize::from(owner.with_token(token).get("organizations").await.status == 200);
            }
            assert_eq!(standing, 1);
        }
    }
}

/// A team gets access to projects while it is deleted: the counters are right in either order.
async fn access_for_a_concurrently_deleted_team_is_rejected(world: &World) {
    let owner = &world.owner;
    let one = world.project("One").await;
    let two = world.project("Two").await;
    for round in 0..20 {
        let team = world.team(&format!("team {round}")).await;
        let access = |project: &str| team_access(&team, project, json!({ "access": "read" }));
        let grant = async |project: &str| owner.post("team-projects", access(project)).await.status;
        let path = format!("teams/{team}");
        let (first, second, deleted) = join3(grant(&one), grant(&two), owner.delete(&path)).await;
        assert_eq!(deleted.status, 204, "{}", deleted.text);
        for status in [first, second] {
            assert!([201, 404, 409].contains(&status), "round {round}: {status}");
        }
        for project in [&one, &two] {
            assert_eq!(attribute(&owner.get(&format!("projects/{project}")).await, "team-count"), 0, "round {round}");
        }
    }
}

async fn team_with_many_members_is_shown_up_to_a_limit(world: &World) {
    let owner = &world.owner;
    let team = world.team("all").await;
    let path = format!("teams/{team}");
    world.people(0..700).await;
    world.join(&team, "person-%").await;
    let shown = owner.get(&format!("{path}?include=users,organization-memberships")).await.assert_status(200);
    let relationships = &shown.body["data"]["relationships"];
    let named = ["users", "organization-memberships"].map(|name| relationships[name]["data"].as_array().unwrap().len());
    assert_eq!((named, shown.body["included"].as_array().unwrap().len()), ([700, 700], 1400));
    let again = owner.get(&format!("{path}?include=users,organization-memberships")).await;
    assert_eq!(again.body, shown.body);
    // The entity tag of a change is that of the team alone, without included resources.
    let tag = owner.get(&path).await.header("etag").to_owned();
    for (given, status) in [("\"other\"", 412), (&tag[..], 200)] {
        let change = resource("teams", json!({ "visibility": "organization" }));
        owner.send_if(given, Method::PATCH, &format!("{path}?include=users"), change).await.assert_status(status);
    }
    world.people(700..2_001).await;
    world.join(&team, "person-%").await;
    for path in [path.clone(), TEAMS.to_owned()] {
        let refused = owner.get(&format!("{path}?include=users")).await.assert_status(400);
        assert!(refused.text.contains("more than 2000 members"), "{}", refused.text);
    }
    assert_eq!(attribute(&owner.get(&path).await, "users-count"), 2_001);
}

async fn leaving_an_organization_leaves_all_of_its_teams(world: &World) {
    let owner = &world.owner;
    let person = world.member("mia", NONE).await;
    for n in 0..20 {
        let path = format!("teams/{}/relationships/users", world.team(&format!("team-{n}")).await);
        let people: &[&str] = if n < 10 { &["mia", "olga"] } else { &["olga"] };
        assert_eq!(owner.post(&path, these("users", people)).await.status, 204);
    }
    let found = owner.get(&format!("{PEOPLE}?filter[email]=mia@acme.test")).await;
    let membership = items(&found)[0]["id"].as_str().unwrap();
    assert_eq!(owner.delete(&format!("organization-memberships/{membership}")).await.status, 204);
    assert_eq!(person.api.get("organizations/acme").await.status, 404);
    let teams = owner.get(&format!("{TEAMS}?page[size]=100&include=users")).await;
    let people = |team: &Value| team["relationships"]["users"]["data"].as_array().unwrap().len();
    let counts: Vec<(&Value, usize)> =
        items(&teams).iter().map(|team| (&team["attributes"]["users-count"], people(team))).collect();
    assert_eq!(counts.len(), 22, "the owners, mia's own, and twenty");
    assert!(counts.iter().all(|(count, people)| **count == json!(people)), "{counts:?}");
    assert_eq!(counts.iter().map(|(_, people)| people).sum::<usize>(), 21);
}
