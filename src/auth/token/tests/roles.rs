//! Tests of token roles: tokens created with them, and rejected requests.

use super::*;
use crate::auth::store::EntityBy;

impl Fixture {
    async fn write_role(&self, name: &str, body: Value) -> Warnings {
        self.auth.token_role_write(name, &fields(body)).await.unwrap()
    }

    async fn role_write_error(&self, name: &str, body: Value) -> String {
        self.auth.token_role_write(name, &fields(body)).await.unwrap_err().text().to_owned()
    }

    /// Creates a token with a token role and returns its policies. The creating token has the policies `parent` and no
    /// `sudo` capability.
    async fn policies_by_role(&self, role: &str, parent: &[&str], body: Value) -> Result<Value, String> {
        let parent = self.token(&self.root, json!({"policies": parent, "no_default_policy": true})).await;
        let created = self.create_on(CreatePath::Role(role), &parent, false, body).await;
        created.map(|(auth, _)| auth["policies"].clone()).map_err(|error| error.text().to_owned())
    }
}

#[tokio::test]
async fn role_write_changes_given_fields_and_read_returns_all() {
    let f = Fixture::new().await;
    assert!(f.auth.token_role_read("r").is_none());
    f.write_role("r", json!({"allowed_policies": "Web, dev", "orphan": true, "period": "1h"})).await;
    f.write_role("r", json!({"path_suffix": "v1", "token_bound_cidrs": ["127.0.0.0/8"], "orphan": null})).await;
    let shown = f.auth.token_role_read("r").unwrap();
    let want = json!({"name": "r", "allowed_policies": ["dev", "web"], "disallowed_policies": [],
        "allowed_policies_glob": [], "disallowed_policies_glob": [], "orphan": true, "path_suffix": "v1",
        "renewable": true, "allowed_entity_aliases": [], "period": 3600, "token_period": 3600, "explicit_max_ttl": 0,
        "token_explicit_max_ttl": 0, "token_bound_cidrs": ["127.0.0.0/8"], "token_num_uses": 0,
        "token_no_default_policy": false, "token_type": "default-service"});
    assert_eq!(shown, want);
    let both = f.write_role("r", json!({"period": "1h", "token_period": "2h", "token_ttl": "nonsense"})).await;
    assert_eq!(*both, ["Both 'token_period' and deprecated 'period' value supplied, ignoring the deprecated value"]);
    assert_eq!(f.auth.token_role_read("r").unwrap()["token_period"], 7200);
    f.write_role("Other", json!({})).await;
    assert_eq!(f.auth.token_roles(), ["Other", "r"]);
    let other = Auth::open(f.store.clone(), f.clock.clone()).await.unwrap();
    assert_eq!(other.token_role_read("r"), f.auth.token_role_read("r"));
    f.auth.token_role_delete("r").await.unwrap();
    f.auth.token_role_delete("r").await.unwrap();
    assert_eq!(f.auth.token_roles(), ["Other"]);
    other.reload().await.unwrap();
    assert!(other.token_role_read("r").is_none());
}

#[tokio::test]
async fn cve_2025_5999_disallowed_policy_is_refused_in_any_spelling() {
    let f = Fixture::new().await;
    f.write_role("r", json!({"disallowed_policies": ["Admin"], "disallowed_policies_glob": ["OPS-*"]})).await;
    for name in ["admin", "ADMIN", " Admin ", "ops-a", "Ops-B"] {
        let text = f.policies_by_role("r", &["web"], json!({"policies": [name]})).await.unwrap_err();
        assert!(text.ends_with("is disallowed by this role"), "{name}: {text}");
    }
    let text = f.policies_by_role("r", &["admin"], json!({})).await.unwrap_err();
    assert_eq!(text, "token policy \"admin\" is disallowed by this role");
    assert_eq!(f.policies_by_role("r", &["web"], json!({})).await.unwrap(), json!(["default", "web"]));
    assert_eq!(f.policies_by_role("r", &["web"], json!({"policies": ["x"]})).await.unwrap(), json!(["default", "x"]));
}

#[tokio::test]
async fn role_grants_its_allowed_policies_regardless_of_the_parent() {
    let f = Fixture::new().await;
    f.write_role("r", json!({"allowed_policies": ["dev"], "allowed_policies_glob": ["team-*"]})).await;
    for (body, want) in [
        (json!({}), json!(["default", "dev"])),
        (json!({"policies": ["dev"]}), json!(["default", "dev"])),
        (json!({"policies": ["Team-A", "dev"]}), json!(["default", "dev", "team-a"])),
        (json!({"policies": ["dev"], "no_default_policy": true}), json!(["dev"])),
    ] {
        assert_eq!(f.policies_by_role("r", &["web"], body).await.unwrap(), want);
    }
    let text = f.policies_by_role("r", &["web"], json!({"policies": ["web"]})).await.unwrap_err();
    assert!(text.starts_with("token policies ([\"default\", \"web\"]) must be subset of the role's allowed"), "{text}");
    f.write_role("globs", json!({"allowed_policies_glob": ["*"], "token_no_default_policy": true})).await;
    assert_eq!(f.policies_by_role("globs", &["web"], json!({})).await.unwrap(), json!([]));
    let root = f.policies_by_role("globs", &["admin"], json!({"policies": ["ROOT "]})).await.unwrap_err();
    assert_eq!(root, "root tokens may not be created without parent token being root");
    f.write_role("rooted", json!({"allowed_policies": ["root", "web"]})).await;
    let root = f.policies_by_role("rooted", &["admin"], json!({})).await.unwrap_err();
    assert_eq!(root, "root tokens may not be created without parent token being root");
    let text = f.policies_by_role("globs", &["web"], json!({"policies": "response-wrapping"})).await.unwrap_err();
    assert_eq!(text, "cannot assign policy \"response-wrapping\"");
    f.write_role("plain", json!({})).await;
    let text = f.policies_by_role("plain", &["web"], json!({"policies": ["dev"]})).await.unwrap_err();
    assert_eq!(text, "child policies must be subset of parent");
    let text = f.policies_by_role("absent", &["web"], json!({})).await.unwrap_err();
    assert_eq!(text, "unknown role absent");
}

#[tokio::test]
async fn lesser_limit_of_role_and_request_applies_with_a_warning() {
    let f = Fixture::new().await;
    let role = json!({"token_period": "2h", "token_explicit_max_ttl": "10h", "token_num_uses": 5, "renewable": false,
        "path_suffix": "v1", "orphan": true});
    f.write_role("r", role).await;
    let body = json!({"policies": ["web"], "period": "1h", "explicit_max_ttl": "20h", "num_uses": 9});
    let (auth, warnings) = f.create_on(CreatePath::Role("r"), &f.root, true, body).await.unwrap();
    assert_eq!((&auth["num_uses"], &auth["renewable"], &auth["orphan"]), (&json!(5), &json!(false), &json!(true)));
    let both = "specified both during creation call and in role; using the lesser value of";
    let want = [
        format!("Explicit max TTL {both} 36000 seconds"),
        format!("Period {both} 3600 seconds"),
        format!("Number of uses {both} 5"),
    ];
    assert_eq!(*warnings, want);
    let shown = f.auth.lookup(auth["client_token"].as_str().unwrap()).await.unwrap();
    for (name, want) in [
        ("path", json!("auth/token/create/r/v1")),
        ("role", json!("r")),
        ("period", json!(3600)),
        ("explicit_max_ttl", json!(36_000)),
    ] {
        assert_eq!(shown[name], want, "{name}");
    }
}

#[tokio::test]
async fn period_needs_sudo_unless_the_role_sets_it() {
    let f = Fixture::new().await;
    f.write_role("r", json!({"token_period": "2h"})).await;
    let parent = f.token(&f.root, json!({"policies": ["web"]})).await;
    let (auth, _) = f.create_on(CreatePath::Role("r"), &parent, false, json!({})).await.unwrap();
    assert_eq!(auth["lease_duration"], 7200);
    let refused = f.create_on(CreatePath::Role("r"), &parent, false, json!({"period": "1h"})).await.unwrap_err();
    assert_eq!(refused.text(), "root or sudo privileges required to create periodic token");
    let (auth, _) = f.create_on(CreatePath::Role("r"), &parent, false, json!({"no_parent": true})).await.unwrap();
    assert_eq!(auth["orphan"], json!(false), "only the role says who is an orphan");
}

#[tokio::test]
async fn tokens_of_a_deleted_role_cannot_be_renewed() {
    let f = Fixture::new().await;
    f.write_role("r", json!({"token_period": "2h"})).await;
    let (auth, _) = f.create_on(CreatePath::Role("r"), &f.root, true, json!({"policies": ["web"]})).await.unwrap();
    let token = auth["client_token"].as_str().unwrap();
    let lifetime = async || f.renew(token, 0).await.map(|(auth, _)| auth["lease_duration"].as_u64().unwrap());
    assert_eq!(lifetime().await.unwrap(), 7200);
    f.write_role("r", json!({"token_period": "1h"})).await;
    assert_eq!(lifetime().await.unwrap(), 3600);
    f.write_role("r", json!({"token_period": "9h"})).await;
    assert_eq!(lifetime().await.unwrap(), 7200, "no more than was given");
    f.write_role("r", json!({"token_explicit_max_ttl": "30m"})).await;
    assert_eq!(lifetime().await.unwrap(), 1800);
    f.auth.token_role_delete("r").await.unwrap();
    assert_eq!(lifetime().await.unwrap_err(), "original token role \"r\" could not be found, not renewing");
    f.caller(token).await;
}

#[tokio::test]
async fn batch_token_role_refuses_settings_of_service_tokens() {
    let f = Fixture::new().await;
    let cannot = "'token_type' cannot be 'batch' when role is set to generate ";
    for (body, what) in [
        (json!({}), "non-orphan tokens"),
        (json!({"orphan": true}), "renewable tokens"),
        (json!({"orphan": true, "renewable": false, "token_period": 60}), "periodic tokens"),
        (json!({"orphan": true, "renewable": false, "token_num_uses": 3}), "tokens with limited use count"),
        (json!({"orphan": true, "renewable": false, "explicit_max_ttl": 9}), "tokens with an explicit max TTL"),
    ] {
        let mut body = body;
        body["token_type"] = json!("batch");
        assert_eq!(f.role_write_error("r", body).await, format!("{cannot}{what}"));
    }
    for (role, field) in [
        (json!({"token_num_uses": 3}), "num_uses"),
        (json!({"token_explicit_max_ttl": "1h", "token_num_uses": 0}), "explicit_max_ttl"),
        (json!({"token_period": "1h", "token_explicit_max_ttl": 0}), "period"),
    ] {
        f.write_role("r", role).await;
        let body = json!({"type": "batch", "policies": ["web"]});
        let refused = f.create_on(CreatePath::Role("r"), &f.root, true, body).await.unwrap_err();
        assert_eq!(refused.text(), format!("batch tokens cannot have \"{field}\" set"));
    }
}

#[tokio::test]
async fn role_can_override_the_token_type() {
    let f = Fixture::new().await;
    let kind = async |role: &str, requested: Value| {
        let body = json!({"policies": ["web"], "type": requested});
        f.create_on(CreatePath::Role(role), &f.root, true, body).await.unwrap().0["token_type"].clone()
    };
    for (role, none, service, batch) in [
        ("service", "service", "service", "service"),
        ("default-service", "service", "service", "batch"),
        ("default-batch", "batch", "service", "batch"),
        ("batch", "batch", "batch", "batch"),
    ] {
        f.write_role(role, json!({"token_type": role, "orphan": true, "renewable": false})).await;
        for (requested, want) in [(Value::Null, none), (json!("service"), service), (json!("batch"), batch)] {
            assert_eq!(kind(role, requested.clone()).await, want, "{role} {requested}");
        }
    }
    assert!(f.role_write_error("r", json!({"token_type": "other"})).await.contains("'token_type'"));
}

#[tokio::test]
async fn invalid_token_role_fields_are_refused_by_name() {
    let f = Fixture::new().await;
    for (body, want) in [
        (json!({"path_suffix": "../x"}), "path_suffix:"),
        (json!({"path_suffix": "a//b"}), "path_suffix:"),
        (json!({"path_suffix": "a b"}), "path_suffix:"),
        (json!({"path_suffix": "-a"}), "path_suffix:"),
        (json!({"token_num_uses": -1}), "token num uses cannot be negative"),
        (json!({"token_bound_cidrs": "10.0.0.0/99"}), "token_bound_cidrs:"),
        (json!({"bound_cidrs": "x"}), "bound_cidrs:"),
        (json!({"orphan": 2}), "\"orphan\""),
        (json!({"token_period": "-1h"}), "\"token_period\""),
        (json!({"allowed_policies": vec!["x".repeat(200); 2]}), "allowed_policies:"),
    ] {
        let text = f.role_write_error("r", body).await;
        assert!(text.contains(want), "{text}");
    }
    for name in ["", "a/b", "-a", &"x".repeat(200)] {
        assert!(f.role_write_error(name, json!({})).await.starts_with("role name:"), "{name}");
    }
    assert!(f.auth.token_roles().is_empty());
}

#[tokio::test]
async fn entity_alias_requires_a_role_that_allows_it() {
    let f = Fixture::new().await;
    f.write_role("r", json!({"allowed_entity_aliases": ["Web-*"]})).await;
    let refused = async |path, alias: &str| {
        let created = f.create_on(path, &f.root, true, json!({"entity_alias": alias})).await;
        created.map(drop).unwrap_err().text().to_owned()
    };
    let text = refused(CreatePath::Child, "web-1").await;
    assert_eq!(text, "'entity_alias' is only allowed in combination with token role");
    assert_eq!(refused(CreatePath::Role("r"), "db").await, "invalid 'entity_alias' value");
}

#[tokio::test]
async fn alias_allowed_by_the_role_binds_the_token_to_its_entity() {
    let f = Fixture::new().await;
    f.write_role("r", json!({"allowed_entity_aliases": ["web-*"]})).await;
    f.write_role("orphans", json!({"allowed_entity_aliases": ["web-1"], "orphan": true})).await;
    let entity = async |role: &'static str, parent: &str, body: Value| {
        let created = f.create_on(CreatePath::Role(role), parent, true, body).await;
        created.map(|(auth, _)| auth["entity_id"].as_str().unwrap().to_owned()).map_err(|error| error.text().to_owned())
    };
    // A request that is rejected for another reason creates no entity.
    let refused = json!({"entity_alias": "web-1", "type": "batch", "num_uses": 1});
    entity("r", &f.root, refused).await.unwrap_err();
    let accessor = f.auth.mounts().get("auth/token/").unwrap().accessor.clone();
    let by = EntityBy::Alias { accessor, name: "web-1".to_owned() };
    assert!(f.auth.entity(by.clone()).await.unwrap().is_none());

    let first = entity("r", &f.root, json!({"entity_alias": "Web-1"})).await.unwrap();
    assert_eq!(f.auth.entity(by).await.unwrap().unwrap().id, first);
    assert_eq!(entity("orphans", &f.root, json!({"entity_alias": "web-1"})).await.unwrap(), first);
    assert_eq!(
        entity("r", &f.root, json!({"entity_alias": "web-1", "type": "batch", "policies": ["web"]})).await.unwrap(),
        first
    );
    let other = entity("r", &f.root, json!({"entity_alias": "web-2"})).await.unwrap();
    assert!(!other.is_empty() && other != first);
    // A child token has the entity of its parent unless the request names another one.
    let (parent, _) =
        f.create_on(CreatePath::Role("r"), &f.root, true, json!({"entity_alias": "web-1"})).await.unwrap();
    let parent = parent["client_token"].as_str().unwrap();
    assert_eq!(entity("r", parent, json!({})).await.unwrap(), first);
    assert_eq!(entity("orphans", parent, json!({})).await.unwrap(), "");
    assert_eq!(entity("r", parent, json!({"entity_alias": "web-2"})).await.unwrap(), other);
    assert_eq!(
        entity("r", parent, json!({"entity_alias": "web-\n"})).await.unwrap_err(),
        "entity_alias: login name: must have 1 to 1024 bytes and no control or bidirectional characters"
    );
}
