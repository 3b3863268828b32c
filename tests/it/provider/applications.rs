//! The directory's applications and their secrets.

use serde_json::{Value, json};

use super::{State, refused};
use crate::signers::cloud::server::{Asked, Told};

pub struct Application {
    /// The object id.
    pub id: String,
    pub client_id: String,
    pub secrets: Vec<Secret>,
    pub listed: bool,
    made: usize,
}

pub struct Secret {
    pub key_id: String,
    pub text: String,
    pub name: Value,
}

impl Application {
    /// An application with one manually created secret.
    pub fn new(client_id: &str, secret: &str) -> Self {
        let secret = Secret { key_id: "by-hand".to_owned(), text: secret.to_owned(), name: Value::Null };
        Self {
            id: format!("object-of-{client_id}"),
            client_id: client_id.to_owned(),
            secrets: vec![secret],
            listed: true,
            made: 0,
        }
    }

    pub fn keys(&self) -> Vec<&str> {
        self.secrets.iter().map(|secret| secret.key_id.as_str()).collect()
    }

    fn shown(&self) -> Value {
        let listed = |s: &Secret| json!({"keyId": s.key_id, "displayName": s.name, "hint": "hun", "secretText": null});
        json!({"id": self.id, "appId": self.client_id,
            "passwordCredentials": self.secrets.iter().map(listed).collect::<Vec<_>>()})
    }
}

impl State {
    pub(super) fn application(&mut self, asked: &Asked, rest: &[&str]) -> Told {
        if !self.knows(asked) {
            return refused(401, "InvalidAuthenticationToken");
        }
        match (asked.method.as_str(), rest) {
            ("GET", []) => {
                let filter = &asked.query["$filter"];
                let fits = |own: &&Application| own.listed && *filter == format!("appId eq '{}'", own.client_id);
                let found: Vec<Value> = self.applications.iter().filter(fits).map(Application::shown).collect();
                Told::new(200, json!({ "value": found }))
            }
            ("POST", [id, call]) => {
                let Some(own) = self.applications.iter_mut().find(|own| own.id == *id) else {
                    return refused(404, "Request_ResourceNotFound");
                };
                match *call {
                    "addPassword" => own.add(&asked.json()["passwordCredential"]),
                    "removePassword" => own.remove(&asked.json()["keyId"]),
                    _ => refused(404, "NotFound"),
                }
            }
            _ => refused(405, "NotAllowed"),
        }
    }
}

impl Application {
    fn add(&mut self, wanted: &Value) -> Told {
        self.made += 1;
        let key_id = format!("made-{}", self.made);
        let text = format!("rotated-cloudb-canary-{}", self.made);
        let told = json!({"keyId": key_id, "secretText": text, "displayName": wanted["displayName"],
            "endDateTime": wanted["endDateTime"]});
        self.secrets.push(Secret { key_id, text, name: wanted["displayName"].clone() });
        Told::new(200, told)
    }

    fn remove(&mut self, key_id: &Value) -> Told {
        let before = self.secrets.len();
        self.secrets.retain(|secret| *key_id != secret.key_id);
        if self.secrets.len() < before { Told::new(204, json!(null)) } else { refused(400, "Request_BadRequest") }
    }
}
