//! The resource API.

use serde_json::{Value, json};

use super::{Provider, S1, State, refused};
use crate::signers::cloud::server::{Asked, Told};

/// The id of a resource in the first subscription.
pub fn id(group: &str, rest: &str) -> String {
    id_in(S1, group, rest)
}

pub fn id_in(subscription: &str, group: &str, rest: &str) -> String {
    format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{rest}")
}

impl Provider {
    pub fn resource(&self, id: &str, body: Value) {
        self.lock().resources.insert(id.to_lowercase(), body);
    }

    pub fn machine(&self, group: &str, name: &str, principal: &str, location: &str) -> String {
        let id = id(group, &format!("Microsoft.Compute/virtualMachines/{name}"));
        self.resource(&id, json!({"location": location, "identity": {"principalId": principal}}));
        id
    }
}

impl State {
    pub(super) fn resource(&self, asked: &Asked, segments: &[&str]) -> Told {
        if !self.knows(asked) {
            return refused(401, "AuthenticationFailed");
        }
        let Some(version) = asked.query.get("api-version") else { return refused(400, "MissingApiVersionParameter") };
        if let ["subscriptions", _, "providers", namespace] = segments {
            assert_eq!(version, "2021-04-01");
            return types(namespace);
        }
        let list = segments.ends_with(&["Microsoft.ManagedIdentity", "userAssignedIdentities"]);
        if let ["subscriptions", subscription, "resourceGroups", group, ..] = segments
            && list
        {
            return self.page(asked, subscription, group);
        }
        match self.resources.get(&asked.path.to_lowercase()) {
            Some(body) => Told::new(200, body.clone()),
            None => refused(404, "ResourceNotFound"),
        }
    }

    fn page(&self, asked: &Asked, subscription: &str, group: &str) -> Told {
        let pages = self.identities.get(&format!("{subscription}/{group}").to_lowercase());
        let pages = pages.map(Vec::as_slice).unwrap_or_default();
        let at: usize = asked.query.get("$skiptoken").map_or(0, |at| at.parse().unwrap());
        let mut body = json!({"value": pages.get(at).cloned().unwrap_or_default()});
        if at + 1 < pages.len() {
            let own = format!("{}{}?api-version=2023-01-31&$skiptoken={}", self.url, asked.path, at + 1);
            body["nextLink"] = self.next_link.clone().unwrap_or(own).into();
        }
        Told::new(200, body)
    }
}

/// The resource types of a namespace, with their API versions.
fn types(namespace: &str) -> Told {
    let types = match namespace {
        "Microsoft.Web" => {
            json!([{"resourceType": "sites", "apiVersions": ["2022-09-01", "2024-04-01", "2025-01-01-preview"]}])
        }
        _ => json!([]),
    };
    Told::new(200, json!({"namespace": namespace, "resourceTypes": types}))
}

/// An identity as listed in a resource group.
pub fn identity(client_id: &str) -> Value {
    json!({"id": "/x", "properties": {"clientId": client_id, "principalId": "p"}})
}
