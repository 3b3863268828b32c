//! `identity/`: entities and aliases, created by logins and by hand, and the rights of their tokens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use signet::auth::mounts::Mount;
use signet::auth::token::{AuthenticatedLogin, LoginAlias, TokenTerms};
use signet::error::{Error, Kind};
use signet::fields::Fields;

use super::rights::{granted, only};
use crate::support::{App, Client, assert_has, tests_on, with};

tests_on!(
    server: App::start() =>
        login_creates_one_entity_and_updates_alias_metadata,
        concurrent_logins_of_one_name_create_one_entity,
        logins_with_invalid_names_are_rejected,
        entities_are_created_changed_and_deleted_manually,
        token_with_entity_alias_has_the_rights_of_the_entity,
        login_uses_the_entity_of_a_manually_created_alias,
        entity_policies_apply_to_its_tokens_until_removed,
        disabled_or_deleted_entity_denies_its_tokens,
        default_policy_allows_reading_only_the_own_entity,
        template_values_with_pattern_characters_match_no_rule,
        cve_2021_43998_template_uses_the_alias_of_its_accessor,
        right_to_one_entity_name_holds_in_every_spelling,
        right_to_one_entity_name_does_not_reach_other_entities;
    clocked: App::builder().manual_clock(time::macros::datetime!(2030-01-01 00:00 UTC)).start() =>
        unused_entity_is_removed,
        entity_with_manually_created_alias_is_not_removed;
);

pub async fn method(app: &App, path: &str) -> String {
    app.client.enable(&format!("sys/auth/{path}"), "approle").await;
    // Renewals read this role.
    app.client.post(&format!("auth/{path}/role/role"), json!({})).await.assert_status(204);
    mount(app, path).accessor.clone()
}

fn mount(app: &App, path: &str) -> Arc<Mount> {
    Arc::clone(app.shared().auth.mounts().get(&format!("auth/{path}")).unwrap())
}

/// Performs a login as `name` and returns the `auth` of its response.
pub async fn try_login(app: &App, path: &str, name: &str, metadata: Value, terms: Value) -> Result<Value, Error> {
    let terms = Fields::parse(terms.to_string().as_bytes()).unwrap();
    let metadata: BTreeMap<String, String> = serde_json::from_value(metadata).unwrap();
    let login = AuthenticatedLogin {
        mount: mount(app, path),
        role: "role".to_owned(),
        alias: Some(LoginAlias { name: name.to_owned(), metadata, groups: vec!["staff".to_owned()] }),
        display_name: name.to_owned(),
        meta: BTreeMap::new(),
        terms: TokenTerms::default().merged(&terms).unwrap(),
        address: None,
        consumed_use: None,
    };
    let (given, _) = app.shared().auth.log_in(login).await?;
    let mut told = json!(given);
    told["client_token"] = given.token.expose_text().into();
    told["accessor"] = given.accessor.into();
    Ok(told)
}

pub async fn login(app: &App, path: &str, name: &str, metadata: Value) -> Client {
    let auth = try_login(app, path, name, metadata, json!({})).await.unwrap();
    app.client.with_token(auth["client_token"].as_str().unwrap())
}

pub async fn entity_id(client: &Client) -> String {
    let own = client.get("auth/token/lookup-self").await;
    own.body["data"]["entity_id"].as_str().unwrap().to_owned()
}

async fn read(client: &Client, path: &str) -> Value {
    client.get(path).await.assert_status(200).body["data"].clone()
}

async fn write(app: &App, path: &str, body: Value) {
    let answer = app.client.post(path, body).await;
    assert!(matches!(answer.status, 200 | 204), "{path}: {}", answer.text);
}

async fn login_creates_one_entity_and_updates_alias_metadata(app: &App) {
    let accessor = method(app, "one").await;
    let first = login(app, "one", "bob", json!({ "team": "red" })).await;
    let id = entity_id(&first).await;
    let entity = read(&app.client, &format!("identity/entity/id/{id}")).await;
    assert!(entity["name"].as_str().unwrap().starts_with("entity_"), "{entity}");
    assert_has(&entity, json!({ "policies": [], "metadata": null, "disabled": false }));
    let alias = &entity["aliases"][0];
    let shown = json!([alias["name"], alias["mount_accessor"], alias["mount_path"], alias["mount_type"]]);
    assert_eq!(shown, json!(["bob", accessor, "auth/one/", "approle"]));
    assert_eq!((&alias["metadata"], &alias["canonical_id"]), (&json!({ "team": "red" }), &entity["id"]));

    let again = login(app, "one", "bob", json!({ "team": "red" })).await;
    assert_eq!(entity_id(&again).await, id);
    assert_eq!(read(&app.client, &format!("identity/entity/id/{id}")).await, entity, "nothing was new");
    let moved = login(app, "one", "bob", json!({ "team": "blue" })).await;
    assert_eq!(entity_id(&moved).await, id);
    let alias_id = alias["id"].as_str().unwrap();
    let alias = read(&app.client, &format!("identity/entity-alias/id/{alias_id}")).await;
    assert_eq!(alias["metadata"], json!({ "team": "blue" }));

    // Another spelling or another mount is another entity.
    method(app, "two").await;
    for (path, name) in [("one", "Bob"), ("two", "bob")] {
        assert_ne!(entity_id(&login(app, path, name, json!({})).await).await, id, "{path} {name}");
    }
    let listed = app.client.list("identity/entity/id").await;
    assert_eq!(listed.body["data"]["keys"].as_array().unwrap().len(), 3);
    assert_eq!(listed.body["data"]["key_info"][&id]["aliases"][0]["name"], "bob");
    let aliases = app.client.list("identity/entity-alias/id").await;
    assert_eq!(aliases.body["data"]["key_info"][alias_id]["canonical_id"], json!(id));
    assert_eq!(aliases.body["data"]["keys"].as_array().unwrap().len(), 3);
}

async fn concurrent_logins_of_one_name_create_one_entity(app: &App) {
    method(app, "one").await;
    let logins = (0..16).map(|n| login(app, "one", "bob", json!({ "n": n.to_string() })));
    let clients = futures_util::future::join_all(logins).await;
    let id = entity_id(&clients[0]).await;
    for client in &clients {
        assert_eq!(entity_id(client).await, id);
    }
    assert_eq!(app.client.list("identity/entity/id").await.body["data"]["keys"], json!([id]));
}

async fn logins_with_invalid_names_are_rejected(app: &App) {
    method(app, "one").await;
    for name in ["", "a\u{0}b", "a\nb", &"x".repeat(1_025)] {
        let refused = try_login(app, "one", name, json!({}), json!({})).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid, "{name:?}");
    }
    assert_eq!(app.client.list("identity/entity/id").await.status, 404);
}

async fn entities_are_created_changed_and_deleted_manually(app: &App) {
    let body = json!({ "name": " Bob ", "policies": ["Web", "web", "a"], "metadata": { "team": "red" } });
    let made = app.client.post("identity/entity", body).await;
    assert_eq!((made.status, &made.body["data"]["name"]), (200, &json!("bob")), "{}", made.text);
    let id = made.body["data"]["id"].as_str().unwrap().to_owned();
    let path = format!("identity/entity/id/{id}");
    for path in [&path[..], "identity/entity/name/bob", "identity/entity/name/BOB"] {
        let entity = read(&app.client, path).await;
        assert_eq!((&entity["id"], &entity["policies"]), (&json!(id), &json!(["a", "web"])), "{path}");
    }
    // Absent fields keep their value, empty ones clear it.
    for (path, body) in [
        ("identity/entity", json!({ "name": "BOB", "disabled": true })),
        ("identity/entity/name/Bob", json!({ "metadata": { "team": "blue" } })),
        ("identity/entity", json!({ "id": id, "policies": "" })),
    ] {
        app.client.post(path, body).await.assert_status(204);
    }
    let entity = read(&app.client, &path).await;
    let shown = json!([entity["policies"], entity["metadata"], entity["disabled"], entity["name"]]);
    assert_eq!(shown, json!([[], { "team": "blue" }, true, "bob"]));
    write(app, &path, json!({ "name": "robert" })).await;
    assert_eq!(app.client.get("identity/entity/name/bob").await.text, "{\"errors\":[]}");

    write(app, "identity/entity/name/al", json!({})).await;
    let entity = "identity/entity";
    let lookup = "identity/lookup/entity";
    let visible = "name: must have 1 to 128 bytes and no control or invisible characters";
    let exactly_one =
        "exactly one of 'id', 'name', 'alias_id', and 'alias_name' with 'alias_mount_accessor' must be given";
    let long = "x".repeat(3_000);
    for (path, body, rule) in [
        ("identity/entity/name/al", json!({ "policies": ["ROOT "] }), "policies cannot contain root"),
        (entity, json!({ "policies": "response-wrapping" }), "cannot assign policy \"response-wrapping\""),
        (&path, json!({ "name": "AL" }), "entity name is already in use"),
        ("identity/entity/id/0a", json!({}), "entity not found from id"),
        (entity, json!({ "name": "a\nb" }), visible),
        (entity, json!({ "name": "a\u{202e}b" }), visible),
        (entity, json!({ "policies": ["a\u{2066}b"] }), "policies: a name has control or invisible characters"),
        (entity, json!({ "metadata": { "a": long, "b": long } }), "metadata: more than 64 pairs or 4096 bytes"),
        (lookup, json!({}), exactly_one),
        (lookup, json!({ "id": id, "name": "al" }), exactly_one),
        (lookup, json!({ "alias_name": "x" }), "both 'alias_name' and 'alias_mount_accessor' must be set"),
    ] {
        app.client.post(path, body).await.assert_error(400, rule);
    }
    let looked = app.client.post("identity/lookup/entity", json!({ "name": "Robert" })).await;
    assert_eq!(looked.body["data"]["id"], json!(id));
    assert_eq!(app.client.post("identity/lookup/entity", json!({ "name": "nobody" })).await.status, 204);
    let names = app.client.list("identity/entity/name").await;
    assert_eq!(names.body["data"]["keys"], json!(["al", "robert"]));
    let page = app.client.get("identity/entity/name?list=true&after=al&limit=1").await;
    assert_eq!(page.body["data"]["keys"], json!(["robert"]));
    for path in [&path[..], "identity/entity/name/AL"] {
        for _ in 0..2 {
            assert_eq!(app.client.delete(path).await.status, 204);
        }
        assert_eq!(app.client.get(path).await.status, 404);
    }
    for path in ["identity/group", "identity/oidc/key/x", "identity/mfa/method", "identity/entity/merge/x"] {
        assert_eq!(app.client.get(path).await.error(), "unsupported path", "{path}");
    }
}

async fn token_with_entity_alias_has_the_rights_of_the_entity(app: &App) {
    app.policy("maker", r#"path "auth/token/create/r" { capabilities = ["update"] }"#).await;
    app.policy("reader", r#"path "sys/policies/acl/maker" { capabilities = ["read"] }"#).await;
    app.policy("own", r#"path "sys/policies/acl/{{identity.entity.name}}" { capabilities = ["read"] }"#).await;
    let mounts = read(&app.client, "sys/auth").await;
    write(app, "identity/entity/name/reader", json!({ "policies": ["reader", "own"] })).await;
    let id = read(&app.client, "identity/entity/name/reader").await["id"].clone();
    let alias = json!({ "name": "web", "canonical_id": id, "mount_accessor": mounts["token/"]["accessor"] });
    write(app, "identity/entity-alias", alias).await;
    write(app, "auth/token/roles/r", json!({ "allowed_entity_aliases": ["WEB"], "allowed_policies": "default" })).await;

    let maker = app.with_policies(&["maker"]).await;
    let make = async |alias: &str| maker.post("auth/token/create/r", json!({ "entity_alias": alias })).await;
    make("reader").await.assert_error(400, "invalid 'entity_alias' value");
    make("we").await.assert_error(400, "invalid 'entity_alias' value");
    let made = make("Web").await.assert_status(200);
    let auth = &made.body["auth"];
    assert_eq!((&auth["entity_id"], &auth["token_policies"]), (&id, &json!(["default"])));
    assert_eq!(auth["identity_policies"], json!(["own", "reader"]));
    assert_eq!(auth["policies"], json!(["default", "own", "reader"]));
    let web = app.client.holder(&made);
    assert_eq!(read(&web, "auth/token/lookup-self").await["identity_policies"], json!(["own", "reader"]));
    let status = async |client: &Client, path: &str| client.get(path).await.status;
    assert_eq!(status(&web, "sys/policies/acl/maker").await, 200);
    assert_eq!(status(&web, "sys/policies/acl/reader").await, 200, "by its entity's name");
    assert_eq!(status(&web, "sys/policies/acl/own").await, 403);
    assert_eq!(status(&maker, "sys/policies/acl/maker").await, 403, "who makes it has no right by it");

    write(app, "identity/entity/name/reader", json!({ "disabled": true })).await;
    make("web").await.assert_error(400, "entity from given entity alias is disabled");
    assert_eq!(status(&web, "auth/token/lookup-self").await, 403);
}

async fn login_uses_the_entity_of_a_manually_created_alias(app: &App) {
    let one = method(app, "one").await;
    let two = method(app, "two").await;
    write(app, "identity/entity/name/bob", json!({})).await;
    let bob = read(&app.client, "identity/entity/name/bob").await["id"].clone();
    let body = json!({ "name": "b@x", "canonical_id": bob, "mount_accessor": one, "custom_metadata": { "seat": "4" } });
    let made = app.client.post("identity/entity-alias", body.clone()).await;
    assert_eq!((made.status, &made.body["data"]["canonical_id"]), (200, &bob), "{}", made.text);
    assert_eq!(app.client.post("identity/entity-alias", body).await.status, 204, "nothing new");
    let path = format!("identity/entity-alias/id/{}", made.body["data"]["id"].as_str().unwrap());
    let client = login(app, "one", "b@x", json!({ "k": "v" })).await;
    assert_eq!(json!(entity_id(&client).await), bob);
    let alias = read(&app.client, &path).await;
    assert_eq!((&alias["metadata"], &alias["custom_metadata"]), (&json!({ "k": "v" }), &json!({ "seat": "4" })));
    let by_alias = json!({ "alias_name": "b@x", "alias_mount_accessor": one });
    assert_eq!(app.client.post("identity/lookup/entity", by_alias).await.body["data"]["id"], bob);

    // An alias without an entity creates one, and can move to another.
    let made = app.client.post("identity/entity-alias", json!({ "name": "al", "mount_accessor": two })).await;
    let al = made.body["data"]["id"].as_str().unwrap().to_owned();
    let owner = made.body["data"]["canonical_id"].clone();
    assert_ne!(owner, bob);
    let exists = "Alias already exists for requested entity and mount accessor";
    for (body, rule) in [
        (json!({}), "'id' or 'mount_accessor' and 'name' must be provided"),
        (json!({ "mount_accessor": "pki_1" }), "mount_accessor: there is no authentication method with this accessor"),
        (json!({ "mount_accessor": one, "canonical_id": "nobody" }), "invalid canonical ID"),
        (json!({ "mount_accessor": one, "canonical_id": bob }), exists),
    ] {
        let named = with(json!({ "name": "x" }), body);
        app.client.post("identity/entity-alias", named).await.assert_error(400, rule);
    }
    let absent = app.client.post("identity/entity-alias/id/0a", json!({ "name": "x" })).await;
    absent.assert_error(400, "invalid alias ID provided");
    let moved = app.client.post("identity/entity-alias", json!({ "id": al, "entity_id": bob })).await;
    assert_eq!((moved.status, &moved.body["data"]["canonical_id"]), (200, &bob), "{}", moved.text);
    assert_eq!(json!(entity_id(&login(app, "two", "al", json!({})).await).await), bob);
    assert_eq!(read(&app.client, "identity/entity/name/bob").await["aliases"].as_array().unwrap().len(), 2);
    for _ in 0..2 {
        assert_eq!(app.client.delete(&path).await.status, 204);
    }
    assert_eq!(app.client.get(&path).await.status, 404);
    assert_ne!(json!(entity_id(&login(app, "one", "b@x", json!({})).await).await), bob, "a stranger again");
}

async fn entity_policies_apply_to_its_tokens_until_removed(app: &App) {
    method(app, "one").await;
    app.policy("reader", &granted("sys/mounts", &["read"])).await;
    app.policy("own", &granted("sys/policy", &["read"])).await;
    let terms = json!({ "token_policies": "own" });
    let auth = try_login(app, "one", "bob", json!({}), terms.clone()).await.unwrap();
    assert_eq!((&auth["policies"], auth.get("identity_policies")), (&json!(["default", "own"]), None));
    let client = app.client.with_token(auth["client_token"].as_str().unwrap());
    let entity = format!("identity/entity/id/{}", auth["entity_id"].as_str().unwrap());
    client.get("sys/mounts").await.assert_denied();
    write(app, &entity, json!({ "policies": "reader,root-like" })).await;
    assert_eq!(client.get("sys/mounts").await.status, 200);
    assert_eq!(client.get("sys/policy").await.status, 200, "its own are there");

    let own = client.get("auth/token/lookup-self").await.body["data"].clone();
    assert_has(&own, json!({ "policies": ["default", "own"], "identity_policies": ["reader", "root-like"] }));
    let renewed = client.post("auth/token/renew-self", json!({})).await.body["auth"].clone();
    let all = json!(["default", "own", "reader", "root-like"]);
    let given = json!({ "token_policies": own["policies"], "identity_policies": own["identity_policies"] });
    assert_has(&renewed, with(given, json!({ "policies": all })));
    let again = try_login(app, "one", "bob", json!({}), terms).await.unwrap();
    assert_eq!((&again["policies"], &again["token_policies"]), (&renewed["policies"], &renewed["token_policies"]));

    // A child has the same entity, and at most its parent's own policies.
    app.policy("maker", &granted("auth/token/create", &["update"])).await;
    write(app, &entity, json!({ "policies": "reader,maker" })).await;
    let made = client.post("auth/token/create", json!({})).await;
    let own = json!({ "entity_id": auth["entity_id"], "token_policies": ["default", "own"] });
    assert_has(&made.body["auth"], with(own, json!({ "policies": ["default", "maker", "own", "reader"] })));
    let beyond = client.post("auth/token/create", json!({ "policies": ["reader"] })).await;
    assert_eq!(beyond.error(), "child policies must be subset of parent", "{}", beyond.text);
    let child = app.client.holder(&made);
    assert_eq!(child.get("sys/mounts").await.status, 200);

    write(app, &entity, json!({ "policies": [] })).await;
    for client in [&client, &child] {
        client.get("sys/mounts").await.assert_denied();
        assert_eq!(client.get("sys/policy").await.status, 200);
    }
}

async fn disabled_or_deleted_entity_denies_its_tokens(app: &App) {
    method(app, "one").await;
    let client = login(app, "one", "bob", json!({})).await;
    let id = entity_id(&client).await;
    let path = format!("identity/entity/id/{id}");
    write(app, &path, json!({ "disabled": true })).await;
    client.get("auth/token/lookup-self").await.assert_denied();
    let refused = try_login(app, "one", "bob", json!({}), json!({})).await.unwrap_err();
    assert_eq!((refused.kind(), refused.text()), (Kind::Forbidden, "permission denied"));
    let answer = app.client.post("sys/capabilities", json!({ "token": client.token, "path": "x" })).await;
    answer.assert_error(400, "token: not known");
    write(app, &path, json!({ "disabled": false })).await;
    assert_eq!(entity_id(&client).await, id);
    assert_eq!(entity_id(&login(app, "one", "bob", json!({})).await).await, id);
    assert_eq!(app.client.delete(&path).await.status, 204);
    client.get("auth/token/lookup-self").await.assert_denied();
    assert_ne!(entity_id(&login(app, "one", "bob", json!({})).await).await, id);
    client.get("auth/token/lookup-self").await.assert_denied();
}

async fn default_policy_allows_reading_only_the_own_entity(app: &App) {
    method(app, "one").await;
    let bob = login(app, "one", "bob", json!({})).await;
    let al = login(app, "one", "al", json!({})).await;
    let bobs = entity_id(&bob).await;
    let als = entity_id(&al).await;
    for (client, own, other) in [(&bob, &bobs, &als), (&al, &als, &bobs)] {
        let entity = read(client, &format!("identity/entity/id/{own}")).await;
        read(client, &format!("identity/entity/name/{}", entity["name"].as_str().unwrap())).await;
        client.get(&format!("identity/entity/id/{other}")).await.assert_denied();
        client.post(&format!("identity/entity/id/{own}"), json!({ "policies": "x" })).await.assert_denied();
    }
    let nobody = app.with_policies(&["default"]).await;
    nobody.get(&format!("identity/entity/id/{bobs}")).await.assert_denied();
}

async fn template_values_with_pattern_characters_match_no_rule(app: &App) {
    let accessor = method(app, "one").await;
    let path = format!("sys/policies/acl/{{{{identity.entity.aliases.{accessor}.name}}}}");
    app.policy("templated", &format!("{}{}", granted(&path, &["read"]), granted("sys/mounts", &["read"]))).await;
    for name in ["bob", "other"] {
        app.policy(name, &granted("x", &["read"])).await;
    }
    let terms = json!({ "token_policies": "templated" });
    for (name, own) in
        [("bob", true), ("*", false), ("+", false), ("b*", false), ("a/b", false), ("a,b", false), ("..", false)]
    {
        let auth = try_login(app, "one", name, json!({}), terms.clone()).await.unwrap();
        let client = app.client.with_token(auth["client_token"].as_str().unwrap());
        assert_eq!(client.get("sys/policies/acl/bob").await.status == 200, own, "{name}");
        client.get("sys/policies/acl/other").await.assert_denied();
        assert_eq!(client.get("sys/mounts").await.status, 200, "{name}: the rest of the policy holds");
    }
}

async fn cve_2021_43998_template_uses_the_alias_of_its_accessor(app: &App) {
    let one = method(app, "one").await;
    let two = method(app, "two").await;
    write(app, "identity/entity/name/bob", json!({ "metadata": { "team": "red" } })).await;
    let bob = read(&app.client, "identity/entity/name/bob").await["id"].clone();
    for (name, accessor) in [("b1", &one), ("b2", &two)] {
        let body = json!({ "name": name, "canonical_id": bob, "mount_accessor": accessor });
        write(app, "identity/entity-alias", body).await;
    }
    for name in ["b1", "b2", "red", "k"] {
        app.policy(name, &granted("x", &["read"])).await;
    }
    let client = login(app, "one", "b1", json!({ "key": "k" })).await;
    let reads = async |template: &str| {
        let text = granted(&format!("sys/policies/acl/{{{{{template}}}}}"), &["read"]);
        app.policy("templated", &text).await;
        let mut found = Vec::new();
        for name in ["b1", "b2", "red", "k"] {
            if client.get(&format!("sys/policies/acl/{name}")).await.status == 200 {
                found.push(name);
            }
        }
        found.join(",")
    };
    write(app, "identity/entity/name/bob", json!({ "policies": "templated" })).await;
    assert_eq!(reads(&format!("identity.entity.aliases.{one}.name")).await, "b1");
    assert_eq!(reads(&format!("identity.entity.aliases.{two}.name")).await, "b2");
    assert_eq!(reads(&format!("identity.entity.aliases.{one}.metadata.key")).await, "k");
    assert_eq!(reads(&format!("identity.entity.aliases.{two}.metadata.key")).await, "");
    assert_eq!(reads("identity.entity.metadata.team").await, "red");
    assert_eq!(reads("identity.entity.aliases.approle_0.name").await, "");
    assert_eq!(reads("identity.groups.names.g.id").await, "");
    assert_eq!(reads("identity.entity.metadata.x").await, "");
}

async fn unused_entity_is_removed(app: &App) {
    method(app, "one").await;
    let terms = json!({ "token_ttl": "3h", "token_max_ttl": "3h" });
    let mut ids = BTreeMap::new();
    for name in ["gone", "living", "wanted"] {
        let auth = try_login(app, "one", name, json!({}), terms.clone()).await.unwrap();
        ids.insert(name, auth["entity_id"].as_str().unwrap().to_owned());
        if name == "gone" {
            write(app, "auth/token/revoke", json!({ "token": auth["client_token"] })).await;
        }
    }
    write(app, "identity/entity", json!({ "name": "by hand" })).await;
    write(app, &format!("identity/entity/id/{}", ids["wanted"]), json!({ "policies": "x" })).await;
    let there = async |name: &str| app.client.get(&format!("identity/entity/id/{}", ids[name])).await.status == 200;
    let hours = async |n: u64| {
        app.clock.advance(Duration::from_secs(n * 3_600 + 301));
        app.shared().auth.sweep().await.unwrap();
    };
    app.shared().auth.sweep().await.unwrap();
    assert!(there("gone").await, "not at once");
    hours(1).await;
    assert!(!there("gone").await && there("living").await);
    hours(2).await;
    assert!(!there("living").await, "its token has ended");
    hours(9_000).await;
    assert!(there("wanted").await && app.client.get("identity/entity/name/by%20hand").await.status == 200);
    let aliases = app.client.list("identity/entity-alias/id").await;
    assert_eq!(aliases.body["data"]["keys"].as_array().unwrap().len(), 1);
    assert_ne!(entity_id(&login(app, "one", "gone", json!({})).await).await, ids["gone"]);
}

async fn right_to_one_entity_name_holds_in_every_spelling(app: &App) {
    write(app, "identity/entity/name/bob", json!({})).await;
    let reader = only(app, "reader", &granted("identity/entity/name/bob", &["read"])).await;
    let id = read(&reader, "identity/entity/name/bob").await["id"].as_str().unwrap().to_owned();
    assert_eq!(read(&reader, "identity/entity/name/BOB").await["id"], json!(id), "one name in any spelling");
    for path in ["identity/entity/name/al", &format!("identity/entity/id/{id}")] {
        reader.get(path).await.assert_denied();
    }
    reader.delete("identity/entity/name/Bob").await.assert_denied();
    let denied = granted("identity/entity/name/*", &["read"]) + &granted("identity/entity/name/BOB", &["deny"]);
    only(app, "others", &denied).await.get("identity/entity/name/bob").await.assert_denied();
    let writer = only(app, "writer", &granted("identity/entity", &["update"])).await;
    assert_eq!(writer.post("identity/entity", json!({ "name": "new" })).await.status, 200);
    writer.post("identity/entity/name/new", json!({})).await.assert_denied();
}

async fn right_to_one_entity_name_does_not_reach_other_entities(app: &App) {
    for name in ["admin", "bob"] {
        write(app, &format!("identity/entity/name/{name}"), json!({})).await;
    }
    let other = read(&app.client, "identity/entity/name/admin").await;
    let client = only(app, "bob", &granted("identity/entity/name/bob", &["update"])).await;
    let body = json!({ "id": other["id"], "disabled": true, "policies": "bob" });
    let answer = client.post("identity/entity/name/bob", body).await;
    answer.assert_error(400, "id: must not be given on paths with an entity name");
    assert_eq!(read(&app.client, "identity/entity/name/admin").await, other);
    assert_eq!(client.post("identity/entity/name/bob", json!({ "metadata": { "a": "b" } })).await.status, 204);
    assert_eq!(read(&app.client, "identity/entity/name/bob").await["metadata"], json!({ "a": "b" }));
}

async fn entity_with_manually_created_alias_is_not_removed(app: &App) {
    method(app, "one").await;
    let accessor = method(app, "two").await;
    let auth = try_login(app, "one", "bob", json!({}), json!({})).await.unwrap();
    let id = auth["entity_id"].as_str().unwrap().to_owned();
    let alias = json!({ "name": "b@x", "mount_accessor": accessor, "canonical_id": id });
    assert_eq!(app.client.post("identity/entity-alias", alias).await.status, 200);
    assert_eq!(app.client.post("auth/token/revoke", json!({ "token": auth["client_token"] })).await.status, 204);
    app.clock.advance(std::time::Duration::from_secs(2 * 3600));
    app.shared().auth.sweep().await.unwrap();
    let entity = read(&app.client, &format!("identity/entity/id/{id}")).await;
    assert_eq!(entity["aliases"].as_array().unwrap().len(), 2);
}
