//! A simulated cloud provider on the loopback: directory, resource API, applications and machine identity service, with
//! request counts and faults.

mod applications;
mod resources;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use signet::auth::{CloudbSettings, CloudbUrls};

pub use self::applications::Application;
pub use self::resources::{id, id_in, identity};
use crate::directory::{TokenKey, now};
use crate::signers::cloud::server::{Asked, Told, serve};

pub const TENANT: &str = "3fd2a5bb-6a2b-4f2a-8d6e-00000000000a";
pub const OTHER_TENANT: &str = "3fd2a5bb-6a2b-4f2a-8d6e-00000000000b";
pub const RESOURCE: &str = "https://management.azure.com/";
pub const CLIENT: &str = "3fd2a5bb-6a2b-4f2a-8d6e-0000000000c1";
pub const SECRET: &str = "hunter2-cloudb-canary";
pub const S1: &str = "0b1f6471-1bf0-4dda-aec3-000000000001";
pub const S2: &str = "0b1f6471-1bf0-4dda-aec3-000000000002";

/// Status, body and an optional header.
type Reply = (u16, Value, Option<(&'static str, String)>);

/// A fault: replaces the responses to the next calls whose path contains `part`.
pub struct Fault {
    pub part: &'static str,
    pub times: usize,
    pub wait: Duration,
    pub told: Option<Reply>,
}

impl Fault {
    pub fn status(part: &'static str, times: usize, status: u16) -> Self {
        Self { part, times, wait: Duration::ZERO, told: Some((status, json!({"error": "canary-of-provider"}), None)) }
    }

    pub fn header(part: &'static str, times: usize, status: u16, header: (&'static str, String)) -> Self {
        Self { told: Some((status, json!({}), Some(header))), ..Self::status(part, times, status) }
    }

    pub fn body(part: &'static str, times: usize, body: Value) -> Self {
        Self { told: Some((200, body, None)), ..Self::status(part, times, 200) }
    }
}

pub struct State {
    pub url: String,
    /// The issuers in the tenants' discovery documents, and the address of the key set if overridden.
    pub issuers: BTreeMap<&'static str, String>,
    pub jwks_uri: Option<String>,
    pub keys: Vec<Value>,
    pub applications: Vec<Application>,
    /// Issued access tokens, with the API that they are for.
    tokens: BTreeSet<(String, String)>,
    given: usize,
    pub resources: BTreeMap<String, Value>,
    /// Pages of the identities of resource groups, by `<subscription>/<group>`.
    pub identities: BTreeMap<String, Vec<Vec<Value>>>,
    /// Overrides the link from the first page to the second.
    pub next_link: Option<String>,
    pub faults: Vec<Fault>,
    /// Method and path of each call, in order.
    pub asked: Vec<String>,
    /// Path and `traceparent` of each call, in order.
    pub traces: Vec<(String, String)>,
}

impl State {
    pub fn count(&self, part: &str) -> usize {
        self.asked.iter().filter(|asked| asked.contains(part)).count()
    }

    pub fn arm_calls(&self) -> usize {
        self.count("/subscriptions/")
    }

    fn answer(&mut self, asked: &Asked) -> Told {
        self.asked.push(format!("{} {}", asked.method, asked.path));
        self.traces.push((asked.path.clone(), asked.header("traceparent").to_owned()));
        if let Some(fault) = self.faults.iter_mut().find(|fault| fault.times > 0 && asked.path.contains(fault.part)) {
            fault.times -= 1;
            std::thread::sleep(fault.wait);
            if let Some((status, body, header)) = &fault.told {
                return Told(*status, body.clone(), header.clone());
            }
        }
        let segments: Vec<&str> = asked.path.split('/').skip(1).collect();
        match &segments[..] {
            [tenant, ".well-known", "openid-configuration"] => self.document(tenant),
            ["common", "discovery", "keys"] => Told::new(200, json!({"keys": self.keys})),
            [TENANT, "oauth2", "v2.0", "token"] => self.grant(asked),
            ["metadata", "identity", "oauth2", "token"] => self.own_identity(asked),
            ["v1.0", "applications", rest @ ..] => self.application(asked, rest),
            ["subscriptions", ..] => self.resource(asked, &segments),
            _ => refused(404, "NotFound"),
        }
    }

    fn document(&self, tenant: &str) -> Told {
        let Some(issuer) = self.issuers.get(tenant) else { return refused(404, "invalid_tenant") };
        let keys = self.jwks_uri.clone().unwrap_or_else(|| format!("{}/common/discovery/keys", self.url));
        Told::new(
            200,
            json!({"issuer": issuer, "jwks_uri": keys,
            "id_token_signing_alg_values_supported": ["RS256"]}),
        )
    }

    /// The client credentials grant (RFC 6749, 4.4).
    fn grant(&mut self, asked: &Asked) -> Told {
        let form = asked.form();
        let is = |name: &str, value: &str| form.get(name).is_some_and(|given| given == value);
        let known = self.applications.iter().any(|application| {
            is("client_id", &application.client_id) && application.secrets.iter().any(|s| is("client_secret", &s.text))
        });
        if !is("grant_type", "client_credentials") || !known {
            return Told::new(401, json!({"error": "invalid_client"}));
        }
        let scope = form["scope"].strip_suffix("/.default").unwrap().to_owned();
        self.token(&scope, json!(3599))
    }

    fn own_identity(&mut self, asked: &Asked) -> Told {
        if asked.header("metadata") != "true" || !asked.header("x-forwarded-for").is_empty() {
            return Told::new(400, json!({}));
        }
        self.token(&asked.query["resource"], json!("86399"))
    }

    fn token(&mut self, scope: &str, life: Value) -> Told {
        self.given += 1;
        let token = format!("access-token-{}", self.given);
        self.tokens.insert((token.clone(), scope.to_owned()));
        Told::new(200, json!({"token_type": "Bearer", "access_token": token, "expires_in": life}))
    }

    /// `true` if a request has a valid token for this API.
    fn knows(&self, asked: &Asked) -> bool {
        self.tokens.contains(&(asked.bearer().to_owned(), self.url.clone()))
    }
}

fn refused(status: u16, code: &str) -> Told {
    Told::new(status, json!({"error": {"code": code, "message": "canary-of-provider"}}))
}

/// A provider that runs until the process ends.
#[derive(Clone)]
pub struct Provider {
    pub url: String,
    pub key: TokenKey,
    state: Arc<Mutex<State>>,
}

impl Provider {
    /// Starts a provider that has only the service's own application.
    pub fn start() -> Self {
        let key = TokenKey::rsa("k1", 0);
        let issuers = [TENANT, OTHER_TENANT].map(|tenant| (tenant, format!("https://sts.windows.net/{tenant}/")));
        let state = Arc::new(Mutex::new(State {
            url: String::new(),
            issuers: issuers.into(),
            jwks_uri: None,
            keys: vec![key.public()],
            applications: vec![Application::new(CLIENT, SECRET)],
            tokens: BTreeSet::new(),
            given: 0,
            resources: BTreeMap::new(),
            identities: BTreeMap::new(),
            next_link: None,
            faults: Vec::new(),
            asked: Vec::new(),
            traces: Vec::new(),
        }));
        let own = Arc::clone(&state);
        let url = serve(move |asked| own.lock().unwrap().answer(asked));
        state.lock().unwrap().url.clone_from(&url);
        Self { url, key, state }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn settings(&self) -> CloudbSettings {
        let url = || Some(self.url.clone());
        let urls = CloudbUrls { authority: url(), arm: url(), graph: url(), imds: url() };
        CloudbSettings { urls, ..CloudbSettings::default() }
    }

    /// Claims of a token valid for an hour, overridden by `more`; null removes a claim.
    pub fn claims(&self, more: Value) -> Value {
        let now = now();
        let issuer = self.lock().issuers[TENANT].clone();
        let mut claims = json!({"iss": issuer, "aud": RESOURCE, "tid": TENANT, "iat": now, "nbf": now,
            "exp": now + 3600, "oid": "o1"});
        let all = claims.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        all.retain(|_, claim| !claim.is_null());
        claims
    }

    pub fn mint(&self, more: Value) -> String {
        self.key.token(&self.claims(more))
    }

    pub fn fault(&self, fault: Fault) {
        self.lock().faults = vec![fault];
    }
}
