//! Creates the objects of a run on a server (mounts, roles, policies, tokens, authentication methods) and removes them.
//!
//! Existing objects are never overwritten: generated names are unique to the run, and a name that the user gives must
//! be unused. Objects are removed in `Drop`, so also after a failure or an interruption.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Api, ApiResponse, Client, ServerEndpoint};
use crate::run_context;

const NAME_PREFIX: &str = "signet-load";
/// Time limit of a request that creates or removes an object; a mount with many certificates takes longest.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
struct CreatedObject {
    what: String,
    api: Api,
    method: Method,
    path: String,
    body: Bytes,
    /// `true` if the object stays on the server with `--keep`.
    may_be_kept: bool,
}

/// Creates objects on one server, and removes them on drop.
pub(crate) struct Provisioner {
    endpoint: ServerEndpoint,
    token: String,
    name: String,
    numbered: Cell<u32>,
    /// `true`: mounts, roles and policies stay on the server; tokens are revoked nevertheless.
    keep: bool,
    created: RefCell<Vec<CreatedObject>>,
}

impl Provisioner {
    /// Creates a provisioner; `token` must be able to create mounts, roles, policies and tokens there.
    pub(crate) fn new(endpoint: &ServerEndpoint, token: &str, keep: bool) -> Result<Self, String> {
        let mut random = [0; 4];
        SystemRandom::new().fill(&mut random).map_err(|e| e.to_string())?;
        Ok(Self {
            endpoint: endpoint.clone(),
            token: token.to_owned(),
            name: format!("{NAME_PREFIX}-{:08x}", u32::from_be_bytes(random)),
            numbered: Cell::new(0),
            keep,
            created: RefCell::default(),
        })
    }

    /// Returns the name of the run's role and policy, which is also the prefix of its other names.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns a name that the run has not used yet.
    pub(crate) fn fresh_name(&self) -> String {
        let number = self.numbered.get() + 1;
        self.numbered.set(number);
        format!("{}-{number}", self.name)
    }

    /// Enables a secrets engine; the server rejects a path in use.
    pub(crate) async fn mount(&self, name: &str, body: &Value) -> Result<(), String> {
        self.create("mount", name, &format!("/v1/sys/mounts/{name}"), body).await.map(drop)
    }

    /// Enables an authentication method; the server rejects a path in use.
    pub(crate) async fn auth_method(&self, name: &str, body: &Value) -> Result<(), String> {
        self.create("authentication method", name, &format!("/v1/sys/auth/{name}"), body).await.map(drop)
    }

    /// Creates a role. Fails if it exists already.
    pub(crate) async fn role(&self, mount: &str, name: &str, body: &Value) -> Result<(), String> {
        self.create_absent("role", name, &format!("/v1/{mount}/roles/{name}"), body).await
    }

    /// Creates a policy. Fails if it exists already.
    pub(crate) async fn policy(&self, name: &str, text: &str) -> Result<(), String> {
        self.create_absent("policy", name, &format!("/v1/sys/policies/acl/{name}"), &json!({ "policy": text })).await
    }

    /// Creates an object with a readable path. Fails if the path exists and the run did not create it.
    pub(crate) async fn create_absent(&self, kind: &str, name: &str, path: &str, body: &Value) -> Result<(), String> {
        if !self.has_created(path) && self.exists(path).await? {
            return Err(format!("{kind}: the {kind} {name} exists already; use --prepared to use it"));
        }
        self.create(kind, name, path, body).await.map(drop)
    }

    /// Creates a token.
    pub(crate) async fn token(&self, body: &Value) -> Result<String, String> {
        let path = "/v1/auth/token/create";
        let created = self.post(path, body).await?;
        let token = created["auth"]["client_token"].as_str().ok_or("auth/token/create: no token in the answer")?;
        let accessor = created["auth"]["accessor"].as_str().unwrap_or("unknown");
        self.created.borrow_mut().push(CreatedObject {
            what: format!("the token with the accessor {accessor}"),
            api: Api::Secrets,
            method: Method::POST,
            path: "/v1/auth/token/revoke".to_owned(),
            body: Bytes::from(json!({ "token": token }).to_string()),
            may_be_kept: false,
        });
        Ok(token.to_owned())
    }

    /// Registers an object for removal that the requests of the run create, and not this provisioner.
    pub(crate) fn remove_later(&self, what: String, api: Api, path: String) {
        let method = Method::DELETE;
        let body = Bytes::new();
        self.created.borrow_mut().push(CreatedObject { what, api, method, path, body, may_be_kept: true });
    }

    /// Sends a POST that must succeed. It completes even after a signal.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.send(Method::POST, path, body).await?.success(path)
    }

    /// Returns `true` if the path exists.
    pub(crate) async fn exists(&self, path: &str) -> Result<bool, String> {
        let answer = self.send(Method::GET, path, &Value::Null).await?;
        match answer.status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(answer.unexpected(path)),
        }
    }

    fn has_created(&self, path: &str) -> bool {
        self.created.borrow().iter().any(|created| created.path == path)
    }

    /// Creates an object. Its removal is registered first, because the response may never arrive; a rejected request
    /// created nothing.
    async fn create(&self, kind: &str, name: &str, path: &str, body: &Value) -> Result<Value, String> {
        let is_new = !self.has_created(path);
        if is_new {
            self.remove_later(format!("the {kind} {name}"), Api::Secrets, path.to_owned());
        }
        let answer = self.send(Method::POST, path, body).await?;
        if is_new && !answer.status.is_success() {
            self.created.borrow_mut().pop();
        }
        answer.success(path)
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<ApiResponse, String> {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        run_context::shielded(send(&self.endpoint, &self.token, Api::Secrets, method, path, body)).await
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        let (kept, created): (Vec<_>, Vec<_>) =
            self.created.take().into_iter().partition(|created| self.keep && created.may_be_kept);
        kept.into_iter().for_each(|created| run_context::note_kept(created.what));
        if created.is_empty() {
            return;
        }
        let endpoint = self.endpoint.clone();
        let token = self.token.clone();
        let listed = created.clone();
        // A separate thread with its own runtime, because this thread's runtime cannot block.
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(remove(&endpoint, &token, created)))
        });
        let left = match removal.join() {
            Ok(Ok(left)) => left,
            Ok(Err(cause)) => listed.into_iter().map(|created| format!("{}: {cause}", created.what)).collect(),
            Err(_) => listed.into_iter().map(|created| created.what).collect(),
        };
        left.into_iter().for_each(run_context::note_left);
    }
}

/// Removes objects in reverse order of creation. Returns those that are left, with causes.
async fn remove(endpoint: &ServerEndpoint, token: &str, created: Vec<CreatedObject>) -> Vec<String> {
    let mut left = Vec::new();
    let mut unreachable = None;
    for CreatedObject { what, api, method, path, body, .. } in created.into_iter().rev() {
        // Once the server has failed to respond, nothing more is requested from it.
        if let Some(cause) = &unreachable {
            left.push(format!("{what}: {cause}"));
            continue;
        }
        match send(endpoint, token, api, method, &path, body).await {
            Ok(answer) if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND => {}
            Ok(answer) => left.push(format!("{what}: {}", answer.status)),
            Err(cause) => {
                left.push(format!("{what}: {cause}"));
                unreachable = Some(cause);
            }
        }
    }
    left
}

/// Sends a request on a separate connection, within the time limit.
async fn send(
    endpoint: &ServerEndpoint,
    token: &str,
    api: Api,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<ApiResponse, String> {
    let exchange = async { Client::connect_as(endpoint, token, api).await?.send(method, path, body).await };
    let limit = REQUEST_TIMEOUT.as_secs();
    tokio::time::timeout(REQUEST_TIMEOUT, exchange).await.map_err(|_| format!("no answer within {limit} s"))?
}
