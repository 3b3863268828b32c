//! An issuer with a discovery document and a key set, request counts and faults.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::key::{TokenKey, now};
use crate::signers::cloud::server::{Asked, Told, serve};

pub struct State {
    pub url: String,
    pub issuer: String,
    pub jwks_uri: String,
    pub keys: Vec<Value>,
    pub documents: usize,
    pub key_sets: usize,
    /// Requests for other paths.
    pub others: Vec<String>,
    /// Responses that replace the key set for the next requests.
    pub instead: VecDeque<Told>,
    /// A status returned to every request.
    pub down: Option<u16>,
}

/// An issuer that runs until the process ends.
#[derive(Clone)]
pub struct Issuer {
    pub url: String,
    pub key: TokenKey,
    state: Arc<Mutex<State>>,
}

impl Issuer {
    pub fn start() -> Self {
        let key = TokenKey::rsa("k1", 0);
        let state = Arc::new(Mutex::new(State {
            url: String::new(),
            issuer: String::new(),
            jwks_uri: String::new(),
            keys: vec![key.public()],
            documents: 0,
            key_sets: 0,
            others: Vec::new(),
            instead: VecDeque::new(),
            down: None,
        }));
        let own = Arc::clone(&state);
        let url = serve(move |asked| own.lock().unwrap().answer(asked));
        {
            let mut state = state.lock().unwrap();
            state.url.clone_from(&url);
            state.issuer.clone_from(&url);
            state.jwks_uri = format!("{url}/keys");
        }
        Self { url, key, state }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn publish(&self, key: &TokenKey) {
        self.lock().keys.push(key.public());
    }

    /// Claims of a token valid for an hour, overridden by `more`; null removes a claim.
    pub fn claims(&self, more: Value) -> Value {
        let now = now();
        let mut claims = json!({"iss": self.url, "sub": "build-7", "iat": now, "nbf": now, "exp": now + 3600});
        let all = claims.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        all.retain(|_, claim| !claim.is_null());
        claims
    }

    pub fn token(&self, more: Value) -> String {
        self.key.token(&self.claims(more))
    }
}

impl State {
    fn answer(&mut self, asked: &Asked) -> Told {
        let is_document = asked.path == "/.well-known/openid-configuration";
        match asked.path.as_str() {
            "/keys" => self.key_sets += 1,
            _ if is_document => self.documents += 1,
            other => self.others.push(other.to_owned()),
        }
        if let Some(status) = self.down {
            return Told::new(status, json!({}));
        }
        match asked.path.as_str() {
            _ if is_document => Told::new(200, json!({"issuer": self.issuer, "jwks_uri": self.jwks_uri})),
            "/keys" => self.instead.pop_front().unwrap_or_else(|| Told::new(200, json!({"keys": self.keys}))),
            _ => Told::new(404, json!({})),
        }
    }
}
