//! Users, the tokens of all teams, and the relationships of tags.

use serde_json::{Value, json};
use signet::projects::rights::ProjectRights;

use super::fixture::{
    ACME, Api, NONE, PEOPLE, TEAMS, World, assert_invalid, attribute, flat_tags, id_of, ids, items, on_both_stores,
    pairs, path_of, related, resource, rights, tags, these, total,
};

on_both_stores!(
    users_see_only_users_of_a_shared_organization,
    user_can_change_their_own_name,
    own_memberships_are_listed_across_organizations,
    people_of_a_team_are_listed,
    tokens_of_all_teams_are_listed,
    tag_bindings_are_set_by_relationship,
    flat_tags_are_listed,
    team_description_is_stored_and_shown,
);

async fn user_id(api: &Api) -> String {
    id_of(&api.get("account/details").await)
}

async fn users_see_only_users_of_a_shared_organization(world: &World) {
    let mia = world.member("mia", NONE).await;
    let outsider = world.outsider("xaver").await;
    let olga = user_id(&world.owner).await;
    let mia_id = user_id(&mia.api).await;
    let shown = mia.api.get(&format!("users/{olga}")).await;
    assert_eq!((shown.status, attribute(&shown, "username")), (200, &json!("olga")));
    assert!(attribute(&shown, "two-factor").is_null(), "that is the account's");
    let path = format!("users/{mia_id}");
    assert_eq!((mia.api.get(&path).await.status, world.owner.get(&path).await.status), (200, 200));
    assert_eq!(outsider.api.get(&path).await.status, 404);
    assert_eq!(world.owner.get("users/user-none").await.status, 404);
    let token = world.owner.token_for(ACME).await;
    assert_eq!(token.get(&path).await.status, 200);
    assert_eq!(token.get(&format!("users/{}", user_id(&outsider.api).await)).await.status, 404);
    let audit = world.owner.with_token_at("organizations/acme/authentication-token?token=audit-trails").await;
    assert_eq!(audit.get(&path).await.status, 404);
    assert_eq!(world.owner.change(ACME, json!({ "user-tokens-enabled": false })).await.status, 200);
    assert_eq!(mia.api.get(&format!("users/{olga}")).await.status, 404, "user tokens do not find the organization");
}

async fn user_can_change_their_own_name(world: &World) {
    let mia = world.member("mia", NONE).await.api;
    let update = async |attributes: Value| mia.patch("account/update", resource("users", attributes)).await;
    let changed = update(json!({ "username": "maria", "email": "MIA@acme.test" })).await;
    assert_eq!((changed.status, attribute(&changed, "username")), (200, &json!("maria")), "{}", changed.text);
    assert_eq!(mia.get("account/details").await.body, changed.body);
    assert_eq!(attribute(&update(json!({})).await, "username"), "maria");
    assert_eq!(attribute(&update(json!({ "username": "mia@acme.test" })).await, "username"), "mia@acme.test");
    for bad in [json!(""), json!("a b"), json!("x".repeat(61)), json!("olga@acme.test"), Value::Null] {
        assert_invalid(&update(json!({ "username": bad })).await, "username", "Username must be 1 to 60 letters");
    }
    assert_invalid(&update(json!({ "username": "OLGA" })).await, "username", "Username has already been taken");
    let email = update(json!({ "email": "other@acme.test" })).await;
    assert_invalid(&email, "email", "Email cannot be changed");
    assert_eq!(mia.patch("account/update", json!({ "data": { "id": "user-x", "type": "users" } })).await.status, 409);
    let organization = world.owner.token_for(ACME).await;
    assert_eq!(organization.patch("account/update", resource("users", json!({}))).await.status, 404);
}

async fn own_memberships_are_listed_across_organizations(world: &World) {
    let mia = world.member("mia", NONE).await;
    let other = resource("organizations", json!({ "name": "other", "email": "a@b.test" }));
    mia.api.create("organizations", other).await;
    let listed = mia.api.get("organization-memberships").await;
    let items = items(&listed);
    let of: Vec<_> = items.iter().map(|one| one["relationships"]["organization"]["data"]["id"].clone()).collect();
    assert_eq!(of, ["other", "acme"], "{}", listed.text);
    assert_eq!(items[1]["relationships"]["teams"]["data"][0]["id"], json!(mia.team));
    assert_eq!(total(&listed), 2);
    let one = mia.api.get(&format!("organization-memberships/{}", items[1]["id"].as_str().unwrap())).await;
    assert_eq!(one.body["data"], items[1]);
    assert!(items.iter().all(|one| one["attributes"]["created-at"].is_string()));
    let page = mia.api.get("organization-memberships?page[size]=1&page[number]=2&include=user").await;
    assert_eq!((ids(&page).len(), page.body["included"][0]["attributes"]["username"].as_str()), (1, Some("mia")));
    assert_eq!(world.owner.change(ACME, json!({ "user-tokens-enabled": false })).await.status, 200);
    assert_eq!(ids(&mia.api.get("organization-memberships").await).len(), 1);
}

async fn people_of_a_team_are_listed(world: &World) {
    let mia = world.member("mia", NONE).await;
    let other = world.member("otto", NONE).await;
    let path = format!("teams/{}/relationships/organization-memberships", mia.team);
    let listed = mia.api.get(&path).await;
    assert_eq!(total(&listed), 1, "{}", listed.text);
    assert_eq!(listed.body["data"][0]["attributes"]["email"], "mia@acme.test");
    assert_eq!(world.owner.get(&path).await.body["data"][0]["id"], listed.body["data"][0]["id"]);
    assert_eq!(other.api.get(&path).await.status, 404, "a secret team");
    for (query, count) in [
        ("filter[status]=active", 1),
        ("filter[status]=invited", 0),
        ("filter[is_service_account]=true", 0),
        ("filter[is_service_account]=false", 1),
    ] {
        assert_eq!(ids(&mia.api.get(&format!("{path}?{query}")).await).len(), count, "{query}");
    }
    assert_eq!(mia.api.get(&format!("{path}?filter[is_service_account]=maybe")).await.status, 400);
    let address = json!({ "email": "new@acme.test" });
    let teams = these("teams", &[&mia.team]);
    world.owner.create(PEOPLE, related("organization-memberships", address, "teams", teams)).await;
    let users = format!("teams/{}/relationships/users", mia.team);
    assert_eq!(world.owner.post(&users, these("users", &["otto"])).await.status, 204);
    let sorted = async |sort: &str| {
        let listed = mia.api.get(&format!("{path}?sort={sort}")).await;
        let status = |one: &Value| one["attributes"]["status"].as_str().unwrap().to_owned();
        items(&listed).iter().map(status).collect::<Vec<_>>()
    };
    assert_eq!(sorted("status").await, ["active", "active", "invited"]);
    assert_eq!(sorted("-status").await, ["invited", "active", "active"]);
    assert_eq!(mia.api.get(&format!("{path}?sort=email")).await.status, 400);
}

async fn tokens_of_all_teams_are_listed(world: &World) {
    let owner = &world.owner;
    let manager = world.member("max", rights(&["manage-teams", "manage-membership"])).await;
    let plain = world.member("pia", NONE).await;
    let open = resource("teams", json!({ "name": "open", "visibility": "organization" }));
    let open = owner.create(TEAMS, open).await;
    let owners = ids(&owner.get(&format!("{TEAMS}?filter[names]=owners")).await).remove(0);
    let make = async |team: &str, attributes: Value| {
        let path = format!("teams/{team}/authentication-tokens");
        owner.create(&path, resource("authentication-tokens", attributes)).await
    };
    let first = make(&open, json!({})).await;
    let never = make(&open, json!({ "description": "never", "expired-at": null })).await;
    let hidden = make(&plain.team, json!({})).await;
    let of_owners = make(&owners, json!({})).await;
    let path = "organizations/acme/team-tokens";
    assert_eq!(ids(&owner.get(path).await), [&of_owners[..], &hidden, &never, &first]);
    let listed = manager.api.get(path).await;
    assert_eq!(ids(&listed), [&never[..], &first], "neither secret teams nor the owners");
    assert!(listed.body["data"][0]["attributes"]["token"].is_null());
    assert_eq!(plain.api.get(path).await.status, 404);
    for (query, expected) in [
        ("q=OPE", 2),
        ("q=none", 0),
        ("filter[expiry_status]=no_expiration", 1),
        ("filter[expiry_status]=active", 2),
        ("filter[expiry_status]=expired,expiring_in_7_days,expiring_in_30_days", 0),
    ] {
        assert_eq!(ids(&manager.api.get(&format!("{path}?{query}")).await).len(), expected, "{query}");
    }
    assert_eq!(manager.api.get(&format!("{path}?filter[expiry_status]=soon")).await.status, 400);
    // Either all named tokens are revoked or none.
    let revoke =
        async |api: &Api, ids: &[&str]| api.delete_with(path, these("authentication-tokens", ids)).await.status;
    for ids in [&[&first[..], &hidden][..], &[&never, &of_owners], &[&first, "at-none"]] {
        assert_eq!(revoke(&manager.api, ids).await, 404, "{ids:?}");
    }
    assert_eq!((revoke(&plain.api, &[&first]).await, ids(&owner.get(path).await).len()), (404, 4));
    assert_eq!(revoke(&manager.api, &[&first, &never, &first]).await, 204);
    assert_eq!(ids(&owner.get(path).await), [&of_owners[..], &hidden]);
    let own = owner.get(&format!("users/{}/authentication-tokens", user_id(owner).await)).await;
    let own = &ids(&own)[0];
    assert_eq!(revoke(owner, &[&hidden, own]).await, 404, "a token of a user is no team's");
    assert_eq!(revoke(owner, &[]).await, 204);
    assert_eq!(revoke(owner, &[&hidden, &of_owners]).await, 204);
    assert!(ids(&owner.get(path).await).is_empty());
}

async fn tag_bindings_are_set_by_relationship(world: &World) {
    let owner = &world.owner;
    let project = format!("projects/{}", world.project("Tagged").await);
    let workspace = format!("workspaces/{}", world.workspace("", "w").await);
    for holder in [&project, &workspace] {
        let path = format!("{holder}/relationships/tag-bindings");
        let shown = async || {
            let listed = owner.get(&path).await;
            assert_eq!(listed.body, owner.get(&format!("{holder}/tag-bindings")).await.body);
            pairs(&listed)
        };
        assert_eq!(owner.post(&path, tags(&[("a", "1"), ("b", "2")])).await.status, 204);
        assert_eq!(shown().await, "a=1 b=2");
        assert_eq!(owner.post(&path, tags(&[("a", "3")])).await.status, 204, "it adds");
        assert_eq!(shown().await, "a=3 b=2");
        assert_eq!(owner.patch(&path, tags(&[("b", "4"), ("c", "")])).await.status, 204, "it replaces");
        assert_eq!(shown().await, "b=4 c=");
        assert_eq!(owner.patch(&path, tags(&[])).await.status, 204);
        assert_eq!(shown().await, "");
        assert_eq!(owner.post(&path, json!({ "data": {} })).await.status, 422);
    }
    assert_eq!(owner.post(&format!("{project}/relationships/tag-bindings"), tags(&[("env", "dev")])).await.status, 204);
    let reader = world.member("rita", NONE).await;
    world.grant(&reader.team, project.strip_prefix("projects/").unwrap(), ProjectRights::READ).await;
    let path = format!("{project}/relationships/tag-bindings");
    assert_eq!(reader.api.get(&path).await.status, 200);
    for refused in [reader.api.post(&path, tags(&[])).await, reader.api.patch(&path, tags(&[])).await] {
        assert_eq!(refused.status, 404);
    }
}

async fn flat_tags_are_listed(world: &World) {
    let owner = &world.owner;
    let mut paths = Vec::new();
    for (name, tags) in [("one", &["Red", "blue"][..]), ("two", &["red"])] {
        let path = format!("workspaces/{}", world.workspace("", name).await);
        assert_eq!(owner.post(&format!("{path}/relationships/tags"), flat_tags(tags)).await.status, 204);
        paths.push(path);
    }
    assert_eq!(owner.patch(&format!("{}/tag-bindings", paths[0]), tags(&[("env", "dev")])).await.status, 200);
    let of_one = owner.get(&format!("{}/relationships/tags", paths[0])).await;
    assert_eq!(ids(&of_one), ["tag-red", "tag-blue"], "no pair among them");
    assert_eq!(items(&of_one)[0]["type"], "tags");
    assert_eq!(items(&of_one)[0]["attributes"], json!({ "name": "red" }));
    assert_eq!(total(&of_one), 2);
    let all = owner.get("organizations/acme/tags").await;
    let shown = |one: &Value| {
        (one["id"].clone(), one["attributes"]["name"].clone(), one["attributes"]["instance-count"].clone())
    };
    let shown: Vec<_> = items(&all).iter().map(shown).collect();
    assert_eq!(shown, [(json!("tag-blue"), json!("blue"), json!(1)), (json!("tag-red"), json!("red"), json!(2))]);
    assert_eq!(total(&all), 2);
    let id = paths[1].strip_prefix("workspaces/").unwrap();
    for (query, expected) in [
        ("q=RE", &["tag-red"][..]),
        ("page[size]=1&page[number]=2", &["tag-red"]),
        (&format!("filter[exclude][taggable][id]={id}"), &["tag-blue"]),
    ] {
        assert_eq!(ids(&owner.get(&format!("organizations/acme/tags?{query}")).await), expected, "{query}");
    }
    // Only tags of visible workspaces.
    let mia = world.member("mia", NONE).await;
    assert!(ids(&mia.api.get("organizations/acme/tags").await).is_empty());
    // Excluding an invisible workspace has no effect.
    let project = world.project("Shown").await;
    let own = world.workspace(&project, "own").await;
    assert_eq!(owner.post(&format!("workspaces/{own}/relationships/tags"), flat_tags(&["red"])).await.status, 204);
    world.grant(&mia.team, &project, ProjectRights::READ).await;
    for (excluded, expected) in [(id, &["tag-red"][..]), (&own, &[])] {
        let query = format!("organizations/acme/tags?filter[exclude][taggable][id]={excluded}");
        assert_eq!(ids(&mia.api.get(&query).await), expected, "{excluded}");
    }
    for path in ["tag-bindings", "effective-tag-bindings", "relationships/tag-bindings"] {
        for holder in [format!("workspaces/{own}"), format!("projects/{project}")] {
            let refused = owner.get(&format!("{holder}/{path}?filter[key]=x")).await;
            assert_eq!(refused.status, 400, "{holder}/{path}: {}", refused.text);
        }
    }
    let removed = owner.delete_with(&format!("{}/relationships/tags", paths[0]), these("tags", &["tag-red"])).await;
    assert_eq!(removed.status, 204, "by the id: {}", removed.text);
    assert_eq!(ids(&owner.get(&format!("{}/relationships/tags", paths[0])).await), ["tag-blue"]);
}

async fn team_description_is_stored_and_shown(world: &World) {
    let owner = &world.owner;
    let made = resource("teams", json!({ "name": "builders", "description": "They build." }));
    let made = owner.post(TEAMS, made).await;
    assert_eq!((made.status, attribute(&made, "description")), (201, &json!("They build.")));
    let path = path_of(&made);
    assert_eq!(owner.get(&path).await.body, made.body);
    let change = async |attributes: Value| owner.change(&path, attributes).await;
    assert_eq!(attribute(&change(json!({ "name": "makers" })).await, "description"), "They build.");
    assert_eq!(attribute(&change(json!({ "description": null })).await, "description"), &Value::Null);
    let long = change(json!({ "description": "x".repeat(257) })).await;
    assert_invalid(&long, "description", "Description is too long");
}
