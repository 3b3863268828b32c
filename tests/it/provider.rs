//! A cloud provider on the loopback: the directory of a tenant, the resource API, the directory's applications and
//! the service of a machine's own identity, with counts and faults.

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
/// Another tenant of the same directory.
pub const OTHER_TENANT: &str = "3fd2a5bb-6a2b-4f2a-8d6e-00000000000b";
/// The audience of tokens.
pub const RESOURCE: &str = "https://management.azure.com/";
/// The service's own application.
pub const CLIENT: &str = "3fd2a5bb-6a2b-4f2a-8d6e-0000000000c1";
pub const SECRET: &str = "hunter2-cloudb-canary";
pub const S1: &str = "0b1f6471-1bf0-4dda-aec3-000000000001";
pub const S2: &str = "0b1f6471-1bf0-4dda-aec3-000000000002";

/// A status, a body, and a header if there is one.
type Reply = (u16, Value, Option<(&'static str, String)>);

/// What is answered to the next calls of which the path holds a part, in place of the answer.
pub struct Fault {
    pub part: &'static str,
    pub times: usize,
    pub wait: Duration,
    pub told: Option<Reply>,
}

impl Fault {
    /// A status.
    pub fn status(part: &'static str, times: usize, status: u16) -> Self {
        Self { part, times, wait: Duration::ZERO, told: Some((status, json!({"error": "canary-of-provider"}), None)) }
    }

    /// A status with a header.
    pub fn header(part: &'static str, times: usize, status: u16, header: (&'static str, String)) -> Self {
        Self { told: Some((status, json!({}), Some(header))), ..Self::status(part, times, status) }
    }

    /// A body.
    pub fn body(part: &'static str, times: usize, body: Value) -> Self {
        Self { told: Some((200, body, None)), ..Self::status(part, times, 200) }
    }
}

/// What the provider has, and what became of it.
pub struct State {
    pub url: String,
    /// The issuers of the tenants' discovery documents, and the address of the key set where it is another one.
    pub issuers: BTreeMap<&'static str, String>,
    pub jwks_uri: Option<String>,
    pub keys: Vec<Value>,
    pub applications: Vec<Application>,
    /// Access tokens that were given out, with the API that they are for.
    tokens: BTreeSet<(String, String)>,
    given: usize,
    /// Bodies of resources by their ids, in lower case.
    pub resources: BTreeMap<String, Value>,
    /// Pages of the identities of resource groups, by `<subscription>/<group>`.
    pub identities: BTreeMap<String, Vec<Vec<Value>>>,
    /// Where the first page's link to the second leads, in place of here.
    pub next_link: Option<String>,
    pub faults: Vec<Fault>,
    /// Methods and paths, in their order.
    pub asked: Vec<String>,
    /// Path and `traceparent` of each call, in their order.
    pub traces: Vec<(String, String)>,
}

impl State {
    /// How many calls had a part in their paths.
    pub fn count(&self, part: &str) -> usize {
        self.asked.iter().filter(|asked| asked.contains(part)).count()
    }

    /// Calls of the resource API.
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

    /// The grant of RFC 6749 4.4.
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

    /// Whether a request has a token for an API here.
    fn knows(&self, asked: &Asked) -> bool {
        self.tokens.contains(&(asked.bearer().to_owned(), self.url.clone()))
    }
}

fn refused(status: u16, code: &str) -> Told {
    Told::new(status, json!({"error": {"code": code, "message": "canary-of-provider"}}))
}

/// A provider, for as long as the process lives.
#[derive(Clone)]
pub struct Provider {
    pub url: String,
    /// The key that the directory signs with, `k1`.
    pub key: TokenKey,
    state: Arc<Mutex<State>>,
}

impl Provider {
    /// One with the service's own application, and nothing else.
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

    /// What a server's configuration says of it.
    pub fn settings(&self) -> CloudbSettings {
        let url = || Some(self.url.clone());
        let urls = CloudbUrls { authority: url(), arm: url(), graph: url(), imds: url() };
        CloudbSettings { urls, ..CloudbSettings::default() }
    }

    /// Claims of a token that is good for an hour, with `more` of them, or others in their place; those that are null
    /// are left out.
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

    /// A token with [`Provider::claims`].
    pub fn mint(&self, more: Value) -> String {
        self.key.token(&self.claims(more))
    }

    /// Sets a fault, in place of all before.
    pub fn fault(&self, fault: Fault) {
        self.lock().faults = vec![fault];
    }
}
