//! Creating a token never gives more than the creator's own rights: no policies, period, longer lifetime or other
//! networks. Tries every way to a token with many combinations of requested attributes. Also, what holds for the logins
//! of every method.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use signet::http::secrets::route::Operation;

use crate::directory::Issuer;
use crate::provider::Provider;
use crate::support::{Answer, App, Client, METHODS, send, with};
use crate::v1::login::cloudb;

const HERE: &str = "192.0.2.1";
const ELSEWHERE: &str = "198.51.100.1";
const OWN: &[&str] = &["192.0.2.0/24"];
/// Maximum lifetime by the mount, in seconds.
const MAX_TTL_SECONDS: u64 = 768 * 3600;

/// A way to a token, and what it may add to the caller's rights.
struct Way {
    pattern: &'static str,
    /// The path below `auth/`.
    path: &'static str,
    role: Option<&'static str>,
    /// Policies of the path's role; a `*` at the end matches any text.
    policies: &'static [&'static str],
    /// The period of the role, in seconds.
    period: u64,
    /// Maximum lifetime in seconds.
    life: u64,
    /// The networks that replace the caller's.
    networks: &'static [&'static str],
    orphan: bool,
}

const WAYS: [Way; 13] = [
    way("create", "token/create"),
    Way { orphan: true, ..way("create-orphan", "token/create-orphan") },
    way("create/:role_name", "token/create/plain"),
    Way { policies: &["default", "team-*"], ..way("create/:role_name", "token/create/globs") },
    Way {
        policies: &["default", "given"],
        period: 3600,
        life: 5 * 3600,
        networks: &["192.0.2.0/25", "10.0.0.0/8"],
        ..way("create/:role_name", "token/create/given")
    },
    Way { orphan: true, ..way("create/:role_name", "token/create/batches") },
    login("approle/login", "lived", 5 * 3600),
    login("approle/login", "batches", 7200),
    Way { period: 3600, ..login("approle/login", "periodic", 3600) },
    login("jwt/login", "lived", 5 * 3600),
    login("cloudb/login", "lived", 5 * 3600),
    login("cloudb/login", "batches", 7200),
    Way { period: 3600, ..login("cloudb/login", "periodic", 3600) },
];

/// A login gets what the role grants, independent of the caller and of the requested attributes.
const fn login(path: &'static str, role: &'static str, life: u64) -> Way {
    let (policies, networks): (&[_], &[_]) = (&["default", "given"], &["192.0.2.0/25", "10.0.0.0/8"]);
    Way { role: Some(role), policies, life, networks, orphan: true, ..way("login", path) }
}

const fn way(pattern: &'static str, path: &'static str) -> Way {
    Way { pattern, path, role: None, policies: &[], period: 0, life: MAX_TTL_SECONDS, networks: OWN, orphan: false }
}

impl Way {
    fn kind(&self) -> &'static str {
        self.path.split_once('/').unwrap().0
    }
}

fn roles() -> [(&'static str, Value); 4] {
    let given = json!({ "allowed_policies": "given", "token_period": "1h", "token_explicit_max_ttl": "5h",
        "token_bound_cidrs": "192.0.2.0/25,10.0.0.0/8" });
    [
        ("plain", json!({})),
        ("globs", json!({ "allowed_policies_glob": "team-*" })),
        ("given", given),
        ("batches", json!({ "token_type": "batch", "orphan": true, "renewable": false })),
    ]
}

fn login_roles() -> [(&'static str, Value); 3] {
    let role = json!({ "token_policies": "given", "token_bound_cidrs": "192.0.2.0/25,10.0.0.0/8", "role_type": "jwt",
        "user_claim": "sub", "bound_audiences": "signet", "bound_service_principal_ids": "o1" });
    [
        ("lived", json!({ "token_ttl": "1h", "token_max_ttl": "5h" })),
        ("batches", json!({ "token_type": "batch", "token_ttl": "2h" })),
        ("periodic", json!({ "token_period": "1h" })),
    ]
    .map(|(name, terms)| (name, with(role.clone(), terms)))
}

/// The values requested for each field; null omits the field.
fn wishes() -> Vec<(&'static str, Vec<Value>)> {
    let names = [&["own"][..], &["other"], &["root"], &[" ROOT\t"], &["own", "other"], &["default"], &["team-x"]];
    let more = [&["given"][..], &["own", "root"], &["Own "], &["own"], &[]];
    let mut policies: Vec<Value> = names.iter().chain(&more).map(|names| json!(names)).collect();
    policies.extend([Value::Null, Value::Null]);
    vec![
        ("policies", policies),
        ("period", vec![Value::Null, Value::Null, Value::Null, json!("1h"), json!("99999h")]),
        ("ttl", vec![Value::Null, json!("2h"), json!("99999h")]),
        ("lease", vec![Value::Null, json!("99999h")]),
        ("explicit_max_ttl", vec![Value::Null, Value::Null, json!("99999h")]),
        ("type", vec![Value::Null, json!("batch"), json!("batch"), json!("service")]),
        ("no_parent", vec![Value::Null, Value::Null, json!(true)]),
        ("no_default_policy", vec![Value::Null, json!(true)]),
        ("renewable", vec![Value::Null, json!(true)]),
        ("num_uses", vec![Value::Null, Value::Null, json!(0), json!(7)]),
        // Fields that these routes ignore.
        ("bound_cidrs", vec![Value::Null, json!(["0.0.0.0/0"])]),
        ("token_bound_cidrs", vec![Value::Null, json!([])]),
        ("orphan", vec![Value::Null, json!(true)]),
        ("entity_id", vec![Value::Null, json!("somebody")]),
    ]
}

fn wish(n: usize) -> Value {
    let mut seed = n.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut digit = |values: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % values
    };
    let chosen = wishes().into_iter().map(|(name, values)| (name.to_owned(), values[digit(values.len())].clone()));
    Value::Object(chosen.filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
}

struct Scene {
    app: App,
    caller: Client,
    issuer: Issuer,
    provider: Provider,
}

impl Scene {
    async fn new() -> Self {
        let issuer = Issuer::start();
        let provider = Provider::start();
        let app = App::builder().behind_proxy().cloudb(provider.settings()).start().await;
        for kind in METHODS {
            app.client.enable(&format!("sys/auth/{kind}"), kind).await;
        }
        let config = json!({ "oidc_discovery_url": issuer.url });
        assert_eq!(app.client.post("auth/jwt/config", config).await.status, 204);
        assert_eq!(app.client.post("auth/cloudb/config", cloudb::config()).await.status, 204);
        for (name, role) in login_roles() {
            for kind in METHODS {
                let written = app.client.post(&format!("auth/{kind}/role/{name}"), role.clone()).await;
                assert!(written.status < 300, "{kind} {name}: {}", written.text);
            }
        }
        let paths = ["auth/token/create*", "auth/token/renew*", "sys/wrapping/*"];
        let rules = paths.map(|path| format!("path \"{path}\" {{ capabilities = [\"create\", \"update\"] }}\n"));
        app.policy("own", &rules.concat()).await;
        app.policy("other", "path \"*\" { capabilities = [\"read\", \"update\", \"sudo\"] }").await;
        for (name, role) in roles() {
            assert!(app.client.post(&format!("auth/token/roles/{name}"), role).await.status < 300, "{name}");
        }
        let bound = json!({ "allowed_policies": "own", "token_bound_cidrs": OWN, "token_no_default_policy": true });
        app.client.post("auth/token/roles/caller", bound).await;
        let made = app.client.post("auth/token/create/caller", json!({ "ttl": "100h" })).await;
        assert_eq!(made.body["auth"]["policies"], json!(["own"]), "{}", made.text);
        let caller = app.client.holder(&made);
        Self { app, caller, issuer, provider }
    }

    async fn ask(client: &Client, path: &str, body: &Value, wrapped: bool) -> Answer {
        let request = client.at(HERE).request("POST", path).json(body);
        send(if wrapped { request.header("X-Vault-Wrap-TTL", "5m") } else { request }).await
    }

    /// The `auth` object of a response, unwrapped if necessary; `None` if the request was rejected.
    async fn made(&self, way: &Way, body: &Value, wrapped: bool) -> Option<Value> {
        let path = format!("auth/{}", way.path);
        let answer = Self::ask(&self.caller, &path, &self.proved(way, body).await, wrapped).await;
        assert!(matches!(answer.status, 200 | 400), "{}: {body}: {}", way.path, answer.text);
        let Some(outer) = answer.body["wrap_info"]["token"].as_str() else {
            return Some(answer.body["auth"].clone()).filter(Value::is_object);
        };
        let shown = self.lookup(outer).await;
        assert_eq!(shown["policies"], json!(["response-wrapping"]), "{shown}");
        assert!(shown["ttl"].as_u64().unwrap() <= 300, "{shown}");
        let holder = self.app.client.with_token(outer);
        let unwrapped = Self::ask(&holder, "sys/wrapping/unwrap", &json!({}), false).await;
        Some(unwrapped.body["auth"].clone()).filter(Value::is_object)
    }

    /// Adds the credentials of a login.
    async fn proved(&self, way: &Way, body: &Value) -> Value {
        let Some(role) = way.role else { return body.clone() };
        let proof = match way.kind() {
            "jwt" => json!({ "role": role, "jwt": self.issuer.token(json!({ "aud": "signet" })) }),
            "cloudb" => json!({ "role": role, "jwt": self.provider.mint(json!({})) }),
            _ => {
                let of = |field: &str| format!("auth/approle/role/{role}/{field}");
                let secret = self.app.client.post(&of("secret-id"), json!({})).await;
                let role_id = self.app.client.get(&of("role-id")).await;
                json!({ "role_id": role_id.body["data"]["role_id"], "secret_id": secret.body["data"]["secret_id"] })
            }
        };
        with(body.clone(), proof)
    }

    async fn lookup(&self, token: &str) -> Value {
        let looked = self.app.client.post("auth/token/lookup", json!({ "token": token })).await;
        looked.assert_status(200).body["data"].clone()
    }

    /// Checks a token against the caller's rights and those of the way.
    async fn check(&self, way: &Way, token: &str, what: &str) {
        let shown = self.lookup(token).await;
        let what = format!("{}: {what}: {shown}", way.path);
        for name in shown["policies"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
            let given =
                |pattern: &&str| pattern.strip_suffix('*').map_or(name == *pattern, |begin| name.starts_with(begin));
            assert!(name == "own" || way.policies.iter().any(given), "{what}");
        }
        assert!(shown["period"].as_u64().unwrap_or(0) <= way.period, "{what}");
        let life = shown["ttl"].as_u64().unwrap();
        assert!(!shown["expire_time"].is_null() && life <= way.life, "{what}");
        assert_eq!(shown["bound_cidrs"], json!(way.networks), "{what}");
        assert_eq!(shown["orphan"], json!(way.orphan), "{what}");
        let entity = shown["entity_id"].as_str().unwrap();
        assert!(entity != "somebody" && entity.is_empty() == way.role.is_none(), "{what}");
        let elsewhere = self.app.client.with_token(token).at(ELSEWHERE);
        elsewhere.post("auth/token/renew-self", json!({})).await.assert_denied();
    }
}

#[actix_web::test]
async fn new_token_never_exceeds_the_rights_of_its_creator() {
    let scene = Scene::new().await;
    let mut children = Vec::new();
    for way in &WAYS {
        let mut made = 0;
        let mut batch = 0;
        for n in 0..200 {
            let body = wish(n);
            let Some(auth) = scene.made(way, &body, n % 4 == 3).await else { continue };
            let token = auth["client_token"].as_str().unwrap().to_owned();
            made += 1;
            scene.check(way, &token, &body.to_string()).await;
            if auth["token_type"] == "batch" {
                batch += 1;
            } else {
                renewed(&scene, way, &token, n).await;
            }
            if !way.orphan {
                children.push(token);
            }
        }
        assert!(made >= 5, "{}: {made} of the wishes were granted", way.path);
        let may_be_batch = way.period == 0 && way.role.is_none_or(|role| role == "batches");
        assert_eq!(batch > 0, may_be_batch, "{}: a batch token is among them", way.path);
    }
    // No child outlives its parent.
    scene.app.client.post("auth/token/revoke", json!({ "token": scene.caller.token })).await;
    for token in children {
        let late = scene.app.client.with_token(&token).at(HERE);
        late.post("auth/token/renew-self", json!({})).await.assert_denied();
    }
    scene.app.stop().await;
}

async fn renewed(scene: &Scene, way: &Way, token: &str, n: usize) {
    let increment = [json!(0), json!("99999h"), json!("1h"), json!("")][n % 4].clone();
    let itself = scene.app.client.with_token(token);
    let (client, path, body) = match n % 3 {
        0 => (&scene.caller, "auth/token/renew", json!({ "token": token, "increment": increment, "period": "9999h" })),
        1 => (&itself, "auth/token/renew-self", json!({ "increment": increment, "policies": ["other"] })),
        _ => {
            let accessor = scene.lookup(token).await["accessor"].clone();
            (&scene.caller, "auth/token/renew-accessor", json!({ "accessor": accessor, "increment": increment }))
        }
    };
    let answer = Scene::ask(client, path, &body, false).await;
    assert!(matches!(answer.status, 200 | 400 | 403), "{}", answer.text);
    scene.check(way, token, &format!("{path} {body}")).await;
}

#[actix_web::test]
async fn sudo_gives_everything_but_root() {
    let scene = Scene::new().await;
    let sudo = scene.app.with_policies(&["other"]).await;
    let mut made = 0;
    for way in WAYS.iter().filter(|way| way.role.is_none()) {
        for n in 0..60 {
            let body = wish(n);
            let answer = Scene::ask(&sudo, &format!("auth/{}", way.path), &body, false).await;
            let Some(token) = answer.body["auth"]["client_token"].as_str() else { continue };
            made += 1;
            let shown = scene.lookup(token).await;
            assert!(!shown["policies"].as_array().unwrap().contains(&json!("root")), "{}: {body}: {shown}", way.path);
            assert!(!shown["expire_time"].is_null(), "{body}: {shown}");
            assert!(shown["ttl"].as_u64().unwrap() <= MAX_TTL_SECONDS, "{body}: {shown}");
        }
    }
    assert!(made > 60, "{made}");
    scene.app.stop().await;
}

#[actix_web::test]
async fn token_sent_with_a_login_is_ignored_and_keeps_its_uses() {
    let scene = Scene::new().await;
    let limited = scene.app.client.with_new_token(json!({ "policies": ["default"], "num_uses": 1 })).await;
    for way in WAYS.iter().filter(|way| way.role == Some("lived")) {
        for client in [&limited.with_token("nonsense"), &limited] {
            let body = scene.proved(way, &json!({})).await;
            client.at(HERE).post(&format!("auth/{}", way.path), body).await.assert_status(200);
        }
    }
    assert_eq!(limited.get("auth/token/lookup-self").await.status, 200, "its one use is left");
    scene.app.stop().await;
}

#[actix_web::test]
async fn renewal_of_a_login_token_uses_the_current_role() {
    let scene = Scene::new().await;
    for way in WAYS.iter().filter(|way| way.role == Some("lived")) {
        let auth = scene.made(way, &json!({}), false).await.unwrap();
        assert_eq!(auth["lease_duration"], 3600, "{}", way.path);
        let own = scene.app.client.with_token(auth["client_token"].as_str().unwrap()).at(HERE);
        let role = format!("auth/{}/role/lived", way.kind());
        scene.app.client.post(&role, json!({ "token_ttl": "30m" })).await.assert_status(204);
        let renewed = own.post("auth/token/renew-self", json!({})).await;
        assert_eq!(renewed.body["auth"]["lease_duration"], 1800, "{}: {}", way.path, renewed.text);
        scene.app.client.delete(&role).await.assert_status(204);
        own.post("auth/token/renew-self", json!({}))
            .await
            .assert_error(400, "role lived does not exist during renewal");
        own.get("auth/token/lookup-self").await.assert_status(200);
    }
    scene.app.stop().await;
}

/// A new route that creates tokens must be added here.
#[test]
fn every_token_creating_route_is_tested() {
    let renewals = ["renew", "renew-self", "renew-accessor"].map(|pattern| ("token", pattern));
    let known: BTreeSet<_> = WAYS.iter().map(|way| (way.kind(), way.pattern)).chain(renewals).collect();
    let there: BTreeSet<_> = signet::http::secrets::all_routes()
        .filter(|(_, route)| route.operation == Operation::Update)
        .map(|(kind, route)| (kind, route.pattern))
        .filter(|(kind, pattern)| match *kind {
            "token" => pattern.starts_with("create") || pattern.starts_with("renew"),
            _ => *pattern == "login",
        })
        .collect();
    assert_eq!(there, known);
}
