//! For every route a well-formed request that succeeds, on a state made for it.

use serde_json::{Value, json};
use signet::auth::policy::Operation::{self, Delete, List, Patch, Read, Update};

use super::stage::Stage;
use crate::process::openssl;
use crate::support::NO_MODULE;

/// What a store that fails after the request's change is stored means for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// Nothing of the request is left to do then.
    Done,
    /// The CRLs that follow the change are built later: a warning says so.
    Warns,
    /// The change is a fact and stays, but the answer promises more than the fact: 503, and the same
    /// request again succeeds as soon as the promise can be kept.
    Unanswered(&'static str),
    /// What follows is not waited for.
    Unnoticed(&'static str),
}

/// A request, and what may come of it.
pub struct Ask {
    pub path: String,
    pub body: Value,
    /// Another token than root's.
    pub token: Option<String>,
    /// The status when nothing fails; 0 is any success.
    pub status: u16,
    pub afterwards: Afterwards,
    /// The status of the same request when the first one was stored after all; 0 is any success.
    pub again: u16,
}

impl Ask {
    fn new(path: impl Into<String>, body: Value) -> Self {
        Self { path: path.into(), body, token: None, status: 0, afterwards: Afterwards::Done, again: 0 }
    }

    fn read(path: impl Into<String>) -> Self {
        Self::new(path, Value::Null)
    }

    fn status(self, status: u16) -> Self {
        Self { status, again: status, ..self }
    }

    fn afterwards(self, afterwards: Afterwards) -> Self {
        Self { afterwards, ..self }
    }

    fn again(self, again: u16) -> Self {
        Self { again, ..self }
    }
}

/// A token with its accessor.
async fn token(stage: &Stage) -> (String, String) {
    let made = stage.post("auth/token/create", json!({ "policies": ["default"], "ttl": "700h" })).await;
    ["client_token", "accessor"].map(|name| made.body["auth"][name].as_str().unwrap().to_owned()).into()
}

/// A managed key that never signs.
fn managed_key() -> Value {
    json!({ "library": NO_MODULE, "token_label": "one", "key_label": "web", "mechanism": "0x1041", "pin": "4711" })
}

/// A fresh certificate with a lease; the lease's id.
pub async fn lease(stage: &Stage) -> String {
    let role = json!({ "allow_any_name": true, "key_type": "ec", "ttl": "24h", "generate_lease": true });
    stage.post("pki/roles/leased", role).await;
    let answer = stage.post("pki/issue/leased", json!({ "common_name": "a.test", "cert_metadata": "YQ==" })).await;
    answer.body["lease_id"].as_str().unwrap().to_owned()
}

/// `None` for a route that has no entry here.
pub async fn request(stage: &Stage, kind: &str, operation: Operation, pattern: &str) -> Option<Ask> {
    match kind {
        "system" => system(stage, operation, pattern).await,
        "token" => tokens(stage, operation, pattern).await,
        "identity" => identity(stage, operation, pattern).await,
        "pki" => match operation {
            _ if pattern.ends_with("acme/*path") => Some(acme(pattern)),
            Read | List => pki_read(stage, pattern).await,
            _ => pki_write(stage, operation, pattern).await,
        },
        _ => None,
    }
}

/// The accessor of the one mount that names people here.
async fn accessor(stage: &Stage) -> Value {
    stage.app.client.get("sys/auth").await.body["data"]["token/"]["accessor"].clone()
}

async fn identity(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let path = format!("identity/{pattern}");
    let body = json!({ "name": "bob", "policies": "default", "metadata": { "team": "red" } });
    // New, and with it its alias.
    stage.app.client.delete("identity/entity/name/bob").await;
    stage.app.client.post("identity/entity", body.clone()).await;
    let entity = stage.app.client.get("identity/entity/name/bob").await.body["data"]["id"].clone();
    let alias = json!({ "name": "bob@example.com", "canonical_id": entity, "mount_accessor": accessor(stage).await });
    let alias_id = async || {
        stage.app.client.post("identity/entity-alias", alias.clone()).await;
        stage.app.client.get("identity/entity/name/bob").await.body["data"]["aliases"][0]["id"].clone()
    };
    let with = |path: String, id: &Value| path.replace(":id", id.as_str().unwrap());
    Some(match (operation, pattern) {
        (Update, "entity") => {
            stage.app.client.delete("identity/entity/name/bob").await;
            Ask::new(path, body)
        }
        (List, "entity/id" | "entity/name") => Ask::read(path),
        (Read, "entity/id/:id") => Ask::read(with(path, &entity)),
        (Update, "entity/id/:id") => {
            Ask::new(with(path, &entity), json!({ "policies": "default,other", "disabled": true }))
        }
        (Delete, "entity/id/:id") => Ask::read(with(path, &entity)),
        (Read | Delete, "entity/name/*name") => Ask::read(path.replace("*name", "bob")),
        (Update, "entity/name/*name") => {
            Ask::new(path.replace("*name", "bob"), json!({ "metadata": { "team": "blue" } }))
        }
        (Update, "entity-alias") => Ask::new(path, alias),
        (List, "entity-alias/id") => {
            alias_id().await;
            Ask::read(path)
        }
        (Read | Delete, "entity-alias/id/:id") => Ask::read(with(path, &alias_id().await)),
        (Update, "entity-alias/id/:id") => {
            let custom = json!({ "custom_metadata": { "seat": "4" } });
            Ask::new(with(path, &alias_id().await), custom)
        }
        (Update, "lookup/entity") => Ask::new(path, json!({ "name": "bob" })),
        _ => return None,
    })
}

async fn system(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let path = format!("sys/{pattern}");
    let policy = json!({ "policy": "path \"x\" { capabilities = [\"read\"] }" });
    Some(match (operation, pattern) {
        (Read, "seal-status" | "init" | "leader" | "metrics" | "mounts" | "auth" | "policies/acl" | "policy")
        | (List, "policies/acl" | "policy") => Ask::read(path),
        (Read, "mounts/*path") => Ask::read("sys/mounts/pki"),
        (Update, "mounts/*path") => {
            stage.app.client.delete("sys/mounts/team").await;
            Ask::new("sys/mounts/team", json!({ "type": "pki" }))
                .afterwards(Afterwards::Unnoticed("the first CRLs of the new mount are built in the background"))
                .again(400)
        }
        (Delete, "mounts/*path") => {
            stage.app.client.post("sys/mounts/gone", json!({ "type": "pki" })).await;
            stage.post("gone/roles/web", json!({ "key_type": "ec" })).await;
            Ask::read("sys/mounts/gone")
        }
        (Read, "mounts/*path/tune") => Ask::read("sys/mounts/pki/tune"),
        (Update, "mounts/*path/tune") => {
            stage.post("sys/mounts/pki/tune", json!({ "description": "before" })).await;
            Ask::new("sys/mounts/pki/tune", json!({ "description": "after" }))
        }
        (Read, "auth/*path") => Ask::read("sys/auth/token"),
        // There is no method that could be enabled yet.
        (Update, "auth/*path") => Ask::new("sys/auth/jwt", json!({ "type": "jwt" })).status(400),
        (Delete, "auth/*path") => Ask::read("sys/auth/absent"),
        (Read, "auth/*path/tune") => Ask::read("sys/auth/token/tune"),
        (Update, "auth/*path/tune") => {
            stage.post("sys/auth/token/tune", json!({ "description": "before" })).await;
            Ask::new("sys/auth/token/tune", json!({ "description": "after" }))
        }
        (Read, "internal/ui/mounts/*path") => Ask::read("sys/internal/ui/mounts/pki"),
        (Read, "policies/acl/*name" | "policy/*name") => Ask::read(path.replace("*name", "default")),
        (Update, "policies/acl/*name" | "policy/*name") => {
            stage.app.client.delete("sys/policies/acl/written").await;
            Ask::new(path.replace("*name", "written"), policy)
        }
        (Delete, "policies/acl/*name" | "policy/*name") => {
            stage.post("sys/policies/acl/gone", policy).await;
            Ask::read(path.replace("*name", "gone"))
        }
        (Update, "leases/lookup") => Ask::new(path, json!({ "lease_id": lease(stage).await })),
        (List, "leases/lookup" | "leases/lookup/*prefix") => {
            lease(stage).await;
            Ask::read(path.replace("*prefix", "pki/issue/leased"))
        }
        (Update, "leases/renew") => Ask::new(path, json!({ "lease_id": lease(stage).await })).status(400),
        (Update, "leases/renew/*lease_id") => {
            Ask::new(format!("sys/leases/renew/{}", lease(stage).await), json!({})).status(400)
        }
        (Read, "leases/count") => Ask::read("sys/leases/count?type=irrevocable"),
        (Update, "leases/tidy") => Ask::new(path, json!({})),
        (_, "managed-keys/:backend") => {
            stage.post("sys/managed-keys/pkcs11/hsm", managed_key()).await;
            Ask::read("sys/managed-keys/pkcs11")
        }
        (Read, "managed-keys/:backend/:managed_key") => {
            stage.post("sys/managed-keys/pkcs11/hsm", managed_key()).await;
            Ask::read("sys/managed-keys/pkcs11/hsm")
        }
        (Update, "managed-keys/:backend/:managed_key") => {
            stage.app.client.delete("sys/managed-keys/pkcs11/written").await;
            Ask::new("sys/managed-keys/pkcs11/written", managed_key())
        }
        (Delete, "managed-keys/:backend/:managed_key") => {
            stage.post("sys/managed-keys/pkcs11/gone", managed_key()).await;
            Ask::read("sys/managed-keys/pkcs11/gone")
        }
        // There is no module that could sign.
        (Update, "managed-keys/:backend/:managed_key/test/sign") => {
            stage.post("sys/managed-keys/pkcs11/hsm", managed_key()).await;
            Ask::new("sys/managed-keys/pkcs11/hsm/test/sign", json!({})).status(503)
        }
        (Update, "capabilities-self") => Ask::new(path, json!({ "path": "pki/roles/web" })),
        (Update, "capabilities") => Ask::new(path, json!({ "path": "pki/roles/web", "token": token(stage).await.0 })),
        (Update, "capabilities-accessor") => {
            Ask::new(path, json!({ "path": "pki/roles/web", "accessor": token(stage).await.1 }))
        }
        _ => return None,
    })
}

async fn tokens(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let path = format!("auth/token/{pattern}");
    let (token, accessor) = token(stage).await;
    Some(match (operation, pattern) {
        (Update, "create" | "create-orphan") => Ask::new(path, json!({ "policies": ["default"], "ttl": "1h" })),
        (Read, "lookup-self") => Ask::read(path),
        (Update, "lookup-self") => Ask::new(path, json!({})),
        (Read, "lookup") => Ask::read(format!("{path}?token={token}")),
        (Update, "lookup" | "renew" | "revoke") => Ask::new(path, json!({ "token": token })),
        (Update, "lookup-accessor" | "renew-accessor" | "revoke-accessor") => {
            Ask::new(path, json!({ "accessor": accessor }))
        }
        (Update, "renew-self") => Ask { token: Some(token), ..Ask::new(path, json!({})) },
        // The token that asks again is no more.
        (Update, "revoke-self") => Ask { token: Some(token), again: 403, ..Ask::new(path, json!({})) },
        _ => return None,
    })
}

/// A path of an ACME directory, which there is none of.
fn acme(pattern: &str) -> Ask {
    let segment = |segment: &str| segment.trim_start_matches([':', '*']).to_owned();
    let path: Vec<String> = pattern.split('/').map(segment).collect();
    Ask::new(format!("pki/{}", path.join("/")), json!({})).status(404)
}

async fn pki_read(stage: &Stage, pattern: &str) -> Option<Ask> {
    let known = [
        "roles",
        "roles/:name",
        "issuers",
        "issuer/:issuer_ref",
        "config/issuers",
        "config/urls",
        "config/cluster",
        "config/crl",
        "config/external-policy",
        "config/acme",
        "config/auto-tidy",
        "tidy-status",
        "keys",
        "key/:key_ref",
        "config/keys",
        "ca",
        "ca/pem",
        "ca_chain",
        "cert/ca",
        "cert/ca/raw",
        "cert/ca/raw/pem",
        "cert/ca_chain",
        "cert/crl",
        "crl",
        "crl/pem",
        "issuer/:issuer_ref/json",
        "issuer/:issuer_ref/der",
        "issuer/:issuer_ref/pem",
        "issuer/:issuer_ref/crl",
        "issuer/:issuer_ref/crl/der",
        "issuer/:issuer_ref/crl/pem",
        "cert/:serial",
        "cert/:serial/raw",
        "cert/:serial/raw/pem",
        "cert-metadata",
        "cert-metadata/:serial",
        "certs",
        "certs/detailed",
        "certs/revoked",
        "crl/rotate",
        "cert/delta-crl",
        "crl/delta",
        "crl/delta/pem",
        "crl/rotate-delta",
        "cert/unified-crl",
        "cert/unified-delta-crl",
        "unified-crl",
        "unified-crl/pem",
        "unified-crl/delta",
        "unified-crl/delta/pem",
        "certs/unified-revoked",
        "issuer/:issuer_ref/crl/delta",
        "issuer/:issuer_ref/crl/delta/der",
        "issuer/:issuer_ref/crl/delta/pem",
        "issuer/:issuer_ref/unified-crl",
        "issuer/:issuer_ref/unified-crl/der",
        "issuer/:issuer_ref/unified-crl/pem",
        "issuer/:issuer_ref/unified-crl/delta",
        "issuer/:issuer_ref/unified-crl/delta/der",
        "issuer/:issuer_ref/unified-crl/delta/pem",
    ];
    if !known.contains(&pattern) {
        return None;
    }
    let serial = if pattern.contains("cert") { stage.issue().await } else { String::new() };
    if pattern.starts_with("cert-metadata") {
        lease(stage).await;
        let kept = stage.app.client.list("pki/cert-metadata").await;
        let serial = kept.body["data"]["keys"][0].as_str().unwrap();
        return Some(Ask::read(format!("pki/{}", pattern.replace(":serial", serial))));
    }
    if pattern.contains("unified") {
        stage.post("pki/config/crl", json!({ "auto_rebuild": true, "unified_crl": true })).await;
    }
    if matches!(pattern, "certs/revoked" | "certs/unified-revoked") {
        stage.post("pki/revoke", json!({ "serial_number": serial })).await;
    }
    let path = pattern.replace(":name", "web").replace(":issuer_ref", "root").replace(":key_ref", "root");
    Some(Ask::read(format!("pki/{}", path.replace(":serial", &serial))))
}

/// Arguments of openssl for something about a new key, which is not kept.
const NEW_KEY: [&str; 8] =
    ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null"];

/// Every issuer but `root` is gone, and that one is the default.
async fn one_issuer(stage: &Stage) {
    let issuers = stage.app.client.list("pki/issuers").await;
    let info = issuers.body["data"]["key_info"].as_object().cloned().unwrap_or_default();
    for (id, _) in info.iter().filter(|(_, issuer)| issuer["issuer_name"] != "root") {
        stage.app.client.delete(&format!("pki/issuer/{id}")).await;
    }
    if !info.values().any(|issuer| issuer["issuer_name"] == "root") {
        let root = json!({ "common_name": "Root", "issuer_name": "root", "key_name": "root", "key_type": "ec" });
        stage.post("pki/root/generate/internal", root).await;
    }
    stage.post("pki/config/issuers", json!({ "default": "root" })).await;
}

/// As [`one_issuer`], and another one beside it named `next`.
async fn two_issuers(stage: &Stage) {
    one_issuer(stage).await;
    stage.post("pki/root/rotate/internal", json!({ "common_name": "Next", "key_type": "ec" })).await;
}

async fn pki_write(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let path = pattern.replace(":name", "web").replace(":issuer_ref", "root").replace(":policy", "web");
    let path = format!("pki/{path}");
    let name = json!({ "common_name": "a.test" });
    Some(match (operation, pattern) {
        (Update, "roles/:name") => {
            stage.app.client.delete("pki/roles/written").await;
            Ask::new("pki/roles/written", json!({ "key_type": "ec" }))
        }
        (Patch, "roles/:name") => {
            stage.post("pki/roles/merged", json!({ "key_type": "ec" })).await;
            Ask::new("pki/roles/merged", json!({ "ttl": "2h" }))
        }
        (Delete, "roles/:name") => {
            stage.post("pki/roles/gone", json!({ "key_type": "ec" })).await;
            Ask::read("pki/roles/gone")
        }
        (Update, "issue/:name" | "issuer/:issuer_ref/issue/:name") => Ask::new(path, name),
        (
            Update,
            "sign/:name"
            | "issuer/:issuer_ref/sign/:name"
            | "sign-verbatim"
            | "sign-verbatim/:name"
            | "issuer/:issuer_ref/sign-verbatim"
            | "issuer/:issuer_ref/sign-verbatim/:name"
            | "root/sign-intermediate"
            | "issuer/:issuer_ref/sign-intermediate",
        ) => {
            let csr = openssl(&stage.folder(), &[&NEW_KEY[..], &["-new", "-subj", "/CN=a.test"]].concat());
            Ask::new(path, json!({ "csr": csr }))
        }
        (Update, "root/sign-self-issued" | "issuer/:issuer_ref/sign-self-issued") => {
            let root = openssl(&stage.folder(), &[&NEW_KEY[..], &["-x509", "-subj", "/CN=Other Root"]].concat());
            Ask::new(path, json!({ "certificate": root }))
        }
        (Update, "revoke") => Ask::new(path, json!({ "serial_number": stage.issue().await }))
            .afterwards(Afterwards::Unanswered("a 200 promises that the CRL lists the serial")),
        (Update, "revoke-with-key") => {
            let issued = stage.post("pki/issue/web", name).await.body["data"].clone();
            let proof = json!({ "serial_number": issued["serial_number"], "private_key": issued["private_key"] });
            Ask::new(path, proof).afterwards(Afterwards::Unanswered("a 200 promises that the CRL lists the serial"))
        }
        (Update, "crl/rotate" | "crl/rotate-delta") => Ask::new(path, json!({})),
        (Update, "issuer/:issuer_ref/sign-revocation-list" | "issuer/:issuer_ref/resign-crls") => {
            Ask::new(path, json!({ "crl_number": 7 }))
        }
        (Update, "root/generate/:type" | "issuers/generate/root/:type" | "root/rotate/:type") => {
            one_issuer(stage).await;
            let root = json!({ "common_name": "Further Root", "key_type": "ec", "ttl": "24h" });
            Ask::new(path.replace(":type", "internal"), root).afterwards(Afterwards::Warns)
        }
        (Update, "intermediate/generate/:type" | "issuers/generate/intermediate/:type") => {
            Ask::new(path.replace(":type", "internal"), json!({ "common_name": "Below", "key_type": "ec" }))
        }
        (Update, "intermediate/cross-sign") => Ask::new(path, json!({ "common_name": "Root", "key_ref": "root" })),
        (Update, "intermediate/set-signed" | "issuers/import/bundle" | "issuers/import/cert" | "config/ca") => {
            let root = openssl(&stage.folder(), &[&NEW_KEY[..], &["-x509", "-subj", "/CN=Other Root"]].concat());
            let field = if pattern == "intermediate/set-signed" { "certificate" } else { "pem_bundle" };
            Ask::new(path, json!({ field: root })).afterwards(Afterwards::Warns)
        }
        (Update, "issuer/:issuer_ref/revoke") => {
            two_issuers(stage).await;
            Ask::new("pki/issuer/next/revoke", json!({})).afterwards(Afterwards::Warns)
        }
        (Update, "keys/generate/:type") => Ask::new("pki/keys/generate/internal", json!({ "key_type": "ec" })),
        (Update, "keys/import") => {
            let key = openssl(&stage.folder(), &["genpkey", "-algorithm", "ed25519"]);
            Ask::new(path, json!({ "pem_bundle": key }))
        }
        (Update, "config/cluster") => {
            stage.post(&path, json!({ "path": "https://before.test/v1/pki" })).await;
            Ask::new(path, json!({ "path": "https://after.test/v1/pki" }))
        }
        (Update, "config/crl") => {
            stage.post(&path, json!({ "expiry": "48h" })).await;
            Ask::new(path, json!({ "expiry": "49h" }))
        }
        (Update, "config/auto-tidy") => {
            stage.post(&path, json!({ "interval_duration": "10h" })).await;
            Ask::new(path, json!({ "interval_duration": "11h" }))
        }
        // Nothing is under way.
        (Update, "tidy-cancel") => Ask::new(path, json!({})),
        (Update, "config/external-policy") => {
            stage.post(&path, json!({ "timeout": "10s" })).await;
            Ask::new(path, json!({ "timeout": "11s" }))
        }
        (Update, pattern) if pattern.contains("external-policy/issue") => {
            stage.governed().await;
            Ask::new(path, json!({ "key_type": "ec" }))
        }
        (Update, pattern) if pattern.contains("external-policy/sign") => {
            stage.governed().await;
            let csr = openssl(&stage.folder(), &[&NEW_KEY[..], &["-new", "-subj", "/CN=a.test"]].concat());
            Ask::new(path, json!({ "csr": csr }))
        }
        (Update, "root/replace") => {
            two_issuers(stage).await;
            Ask::new(path, json!({ "default": "next" })).afterwards(Afterwards::Warns)
        }
        (Update, "config/issuers") => {
            two_issuers(stage).await;
            Ask::new(path, json!({ "default": "next" })).afterwards(Afterwards::Warns)
        }
        (Delete, "root") => {
            one_issuer(stage).await;
            Ask::read(path).afterwards(Afterwards::Warns)
        }
        (Update | Patch, "issuer/:issuer_ref") => {
            let usage = |words| json!({ "issuer_name": "root", "usage": words });
            stage.post("pki/issuer/root", usage("read-only,issuing-certificates")).await;
            Ask::new(path, usage("read-only,issuing-certificates,crl-signing")).afterwards(Afterwards::Warns)
        }
        (Delete, "issuer/:issuer_ref") => {
            two_issuers(stage).await;
            Ask::read("pki/issuer/next").afterwards(Afterwards::Warns)
        }
        (Update, "config/urls") => {
            stage.post(&path, json!({ "issuing_certificates": "http://before.test/ca" })).await;
            Ask::new(path, json!({ "issuing_certificates": "http://after.test/ca" }))
        }
        (Update, "key/:key_ref") => Ask::new("pki/key/root", json!({ "key_name": "root" })),
        (Delete, "key/:key_ref") => {
            two_issuers(stage).await;
            let key = stage.app.client.get("pki/issuer/next").await.body["data"]["key_id"].clone();
            stage.app.client.delete("pki/issuer/next").await;
            Ask::read(format!("pki/key/{}", key.as_str().unwrap()))
        }
        (Update, "config/keys") => {
            stage.post(&path, json!({ "default": "root" })).await;
            Ask::new(path, json!({ "default": "root" }))
        }
        _ => return None,
    })
}
