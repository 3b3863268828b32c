//! An issuer: a discovery document and a key set, with counts and faults.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::key::{TokenKey, now};
use crate::signers::cloud::server::{Asked, Told, serve};

/// What an issuer publishes, and what became of that.
pub struct State {
    /// Where it is.
    pub url: String,
    /// The issuer that its document names.
    pub issuer: String,
    /// The address of the key set that its document names.
    pub jwks_uri: String,
    /// The members of the key set.
    pub keys: Vec<Value>,
    /// How often each was asked for.
    pub documents: usize,
    pub key_sets: usize,
    /// Paths that are neither.
    pub others: Vec<String>,
    /// What is answered to the next questions for the key set, in place of it.
    pub instead: VecDeque<Told>,
    /// A status with which everything is answered.
    pub down: Option<u16>,
}

/// An issuer of tokens on the loopback, for as long as the process lives.
#[derive(Clone)]
pub struct Issuer {
    pub url: String,
    pub key: TokenKey,
    state: Arc<Mutex<State>>,
}

impl Issuer {
    /// One with an RSA key by the name of `k1`, which is published.
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

    /// Publishes one more key.
    pub fn publish(&self, key: &TokenKey) {
        self.lock().keys.push(key.public());
    }

    /// Claims of a token that is good for an hour, with `more` of them, or others in their place; those that are null
    /// are left out.
    pub fn claims(&self, more: Value) -> Value {
        let now = now();
        let mut claims = json!({"iss": self.url, "sub": "build-7", "iat": now, "nbf": now, "exp": now + 3600});
        let all = claims.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        all.retain(|_, claim| !claim.is_null());
        claims
    }

    /// A token with [`Issuer::claims`].
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
