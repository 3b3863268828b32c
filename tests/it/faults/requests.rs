//! A successful request for every route, with the state that it needs.

use serde_json::{Value, json};
use signet::auth::policy::Operation::{self, Delete, List, Patch, Read, Update};

use super::stage::Stage;
use crate::directory::TokenKey;
use crate::process::openssl;
use crate::support::{NO_MODULE, send};

/// The response if the store fails after the change of the request was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// The request makes no call after its change.
    Done,
    /// A warning: the CRLs are built later.
    Warns,
    /// 503: the change stays, but a success would promise more than the change. The same request succeeds later.
    Unanswered(&'static str),
    /// Like `Unanswered`, for a change that is stored in several commits.
    InParts(&'static str),
    /// Success: the request does not wait for what follows.
    Unnoticed(&'static str),
}

/// A request and its expected results.
pub struct Ask {
    pub path: String,
    pub body: Value,
    pub token: Option<String>,
    /// The status without a fault; 0 is any success.
    pub status: u16,
    pub afterwards: Afterwards,
    /// The status of the same request after the first one was stored; 0 is any success.
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

async fn token(stage: &Stage) -> (String, String) {
    let made = stage.post("auth/token/create", json!({ "policies": ["default"], "ttl": "700h" })).await;
    ["client_token", "accessor"].map(|name| made.body["auth"][name].as_str().unwrap().to_owned()).into()
}

/// A write to a path where nothing is.
async fn created(stage: &Stage, path: &str, body: Value) -> Ask {
    stage.app.client.delete(path).await;
    Ask::new(path, body)
}

/// A read or deletion of an object with these fields.
async fn existing(stage: &Stage, path: &str, body: Value) -> Ask {
    stage.post(path, body).await;
    Ask::read(path)
}

/// A write that changes a field from the first of these values to the second.
async fn changed<T: Into<Value>>(stage: &Stage, path: &str, field: &str, [before, after]: [T; 2]) -> Ask {
    stage.post(path, json!({ field: before.into() })).await;
    Ask::new(path, json!({ field: after.into() }))
}

/// A managed key without a usable module.
fn managed_key() -> Value {
    json!({ "library": NO_MODULE, "token_label": "one", "key_label": "web", "mechanism": "0x1041", "pin": "4711" })
}

pub async fn lease(stage: &Stage) -> String {
    let role = json!({ "allow_any_name": true, "key_type": "ec", "ttl": "24h", "generate_lease": true });
    stage.post("pki/roles/leased", role).await;
    let answer = stage.post("pki/issue/leased", json!({ "common_name": "a.test", "cert_metadata": "YQ==" })).await;
    answer.body["lease_id"].as_str().unwrap().to_owned()
}

/// Prepares the request for a route; `None` if the route has no entry here.
pub async fn request(stage: &Stage, kind: &str, operation: Operation, pattern: &str) -> Option<Ask> {
    match kind {
        "system" => system(stage, operation, pattern).await,
        "token" => tokens(stage, operation, pattern).await,
        "approle" => approle(stage, operation, pattern).await,
        "jwt" => jwt(stage, operation, pattern).await,
        "cloudb" => cloudb(stage, operation, pattern).await,
        "cubbyhole" => cubbyhole(stage, operation, pattern).await,
        "identity" => identity(stage, operation, pattern).await,
        "pki" => match operation {
            _ if pattern.ends_with("acme/*path") => Some(acme(pattern)),
            Read | List => pki_read(stage, pattern).await,
            _ => pki_write(stage, operation, pattern).await,
        },
        _ => None,
    }
}

/// The accessor of the mount of the aliases.
async fn accessor(stage: &Stage) -> Value {
    stage.app.client.get("sys/auth").await.body["data"]["token/"]["accessor"].clone()
}

async fn identity(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let path = format!("identity/{pattern}");
    let body = json!({ "name": "bob", "policies": "default", "metadata": { "team": "red" } });
    // A new entity without its former alias.
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
        (
            Read,
            "live" | "seal-status" | "init" | "leader" | "metrics" | "mounts" | "auth" | "policies/acl" | "policy",
        )
        | (List, "policies/acl" | "policy") => Ask::read(path),
        (Read, "mounts/*path") => Ask::read("sys/mounts/pki"),
        (Update, "mounts/*path") => created(stage, "sys/mounts/team", json!({ "type": "pki" }))
            .await
            .afterwards(Afterwards::Unnoticed("the first CRLs of the new mount are built in the background"))
            .again(400),
        (Delete, "mounts/*path") => {
            stage.app.client.post("sys/mounts/gone", json!({ "type": "pki" })).await;
            stage.post("gone/roles/web", json!({ "key_type": "ec" })).await;
            Ask::read("sys/mounts/gone")
        }
        (List | Read | Update | Delete, "compromised-keys" | "compromised-keys/:hash") => {
            let listed = format!("sys/compromised-keys/{:064x}", 1);
            stage.app.client.delete(&listed).await;
            match (operation, pattern) {
                (Update, "compromised-keys") => {
                    let csr = json!({ "common_name": "a.test", "key_type": "ec" });
                    let csr = stage.post("pki/intermediate/generate/internal", csr).await.body["data"]["csr"].clone();
                    Ask::new(path, json!({ "public_key": csr, "note": "found on a disk" }))
                }
                (Update, _) => Ask::new(listed, json!({ "note": "found on a disk" })),
                _ => {
                    stage.post(&listed, json!({ "note": "found on a disk" })).await;
                    Ask::read(if operation == List { path } else { listed })
                }
            }
        }
        (Read, "config/cors") => Ask::read(path),
        (Update, "config/cors") => created(stage, &path, json!({ "allowed_origins": "https://console.test" })).await,
        (Delete, "config/cors") => existing(stage, &path, json!({ "allowed_origins": "https://console.test" })).await,
        (Read, "mounts/*path/tune") => Ask::read("sys/mounts/pki/tune"),
        (Update, "mounts/*path/tune") => {
            changed(stage, "sys/mounts/pki/tune", "description", ["before", "after"]).await
        }
        (Read, "auth/*path") => Ask::read("sys/auth/token"),
        (Update, "auth/*path") => created(stage, "sys/auth/machines", json!({ "type": "approle" })).await.again(400),
        (Delete, "auth/*path") => {
            stage.app.client.post("sys/auth/gone", json!({ "type": "approle" })).await;
            stage.post("auth/gone/role/web", json!({ "role_id": "gone" })).await;
            Ask::read("sys/auth/gone")
        }
        (Read, "auth/*path/tune") => Ask::read("sys/auth/token/tune"),
        (Update, "auth/*path/tune") => changed(stage, "sys/auth/token/tune", "description", ["before", "after"]).await,
        (Read, "audit") => Ask::read(path),
        // Devices are configured, not created by requests; this server has none.
        (Update, "audit/*path") => Ask::new("sys/audit/file", json!({ "type": "file" })).status(400),
        (Delete, "audit/*path") => Ask::read("sys/audit/file").status(400),
        (Update, "audit-hash/*path") => Ask::new("sys/audit-hash/file", json!({ "input": "a" })).status(400),
        (Update, "remount") => {
            stage.app.client.delete("sys/mounts/moved").await;
            stage.app.client.post("sys/mounts/mover", json!({ "type": "pki" })).await;
            // Creates the record of recent moves.
            stage.post("sys/remount", json!({ "from": "mover", "to": "moving" })).await;
            Ask::new(path, json!({ "from": "moving", "to": "moved" })).again(400)
        }
        (Read, "remount/status/:migration_id") => {
            stage.app.client.delete("sys/mounts/moved").await;
            stage.app.client.post("sys/mounts/mover", json!({ "type": "pki" })).await;
            let made = stage.post("sys/remount", json!({ "from": "mover", "to": "moved" })).await;
            Ask::read(format!("sys/remount/status/{}", made.body["data"]["migration_id"].as_str().unwrap()))
        }
        (Read, "leases") => Ask::read("sys/leases?type=irrevocable"),
        (Read, "internal/status" | "internal/ui/mounts" | "key-status") | (List, "version-history") => Ask::read(path),
        (Read, "rotate/config" | "rotate/keyring/config") => Ask::read(path),
        (Update, "rotate/config" | "rotate/keyring/config") => Ask::new(path, json!({ "interval": "48h" })),
        (Update, "rotate" | "rotate/keyring") => Ask::new(path, json!({})),
        // Without the header for a wrapped response.
        (Update, "wrapping/wrap") => Ask::new(path, json!({ "a": 1 })).status(400),
        (Update, "wrapping/lookup") => Ask::new(path, json!({ "token": wrapped(stage).await })),
        (Read, "wrapping/lookup") => Ask { token: Some(wrapped(stage).await), ..Ask::read(path) },
        // The first request used up the wrapping token.
        (Update, "wrapping/unwrap" | "wrapping/rewrap") => {
            Ask::new(path, json!({ "token": wrapped(stage).await })).again(400)
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
        (Read, "internal/ui/resultant-acl") => Ask::read(path),
        (Update, "internal/explain-self") => Ask::new(path, json!({ "method": "GET", "path": "pki/roles/web" })),
        (Update, "internal/explain") => {
            Ask::new(path, json!({ "accessor": token(stage).await.1, "method": "GET", "path": "pki/roles/web" }))
        }
        (_, pattern) if pattern.starts_with("quotas/") => {
            // All quotas are one document: this one creates it.
            stage.post("sys/quotas/rate-limit/seldom", json!({ "path": "pki/roles", "rate": 1000 })).await;
            return quotas(stage, operation, pattern).await;
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
            existing(stage, "sys/managed-keys/pkcs11/hsm", managed_key()).await
        }
        (Update, "managed-keys/:backend/:managed_key") => {
            created(stage, "sys/managed-keys/pkcs11/written", managed_key()).await
        }
        (Delete, "managed-keys/:backend/:managed_key") => {
            existing(stage, "sys/managed-keys/pkcs11/gone", managed_key()).await
        }
        // No module can sign.
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

pub async fn wrapped(stage: &Stage) -> String {
    let request = stage.app.client.request("POST", "sys/wrapping/wrap").header("X-Service-Wrap-TTL", "700h");
    let answer = send(request.json(&json!({ "a": 1 }))).await;
    answer.body["wrap_info"]["token"].as_str().unwrap().to_owned()
}

async fn cubbyhole(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let path = format!("cubbyhole/{}", pattern.replace("*path", "folder/kept"));
    stage.post("cubbyhole/folder/kept", json!({ "a": 1 })).await;
    Some(match operation {
        List => Ask::read(if pattern.is_empty() { "cubbyhole" } else { "cubbyhole/folder" }),
        Update => Ask::new(path, json!({ "b": 2 })),
        _ => Ask::read(path),
    })
}

async fn quotas(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let path = format!("sys/{pattern}");
    let quota = json!({ "path": "pki/keys", "rate": 1000 });
    Some(match (operation, pattern) {
        (List, "quotas/rate-limit") | (Read, "quotas/config") => Ask::read(path),
        (Read, "quotas/rate-limit/:name") => Ask::read("sys/quotas/rate-limit/seldom"),
        (Update, "quotas/rate-limit/:name") => created(stage, "sys/quotas/rate-limit/written", quota).await,
        (Delete, "quotas/rate-limit/:name") => existing(stage, "sys/quotas/rate-limit/gone", quota).await,
        (Update, "quotas/config") => changed(stage, &path, "enable_rate_limit_response_headers", [false, true]).await,
        _ => return None,
    })
}

async fn tokens(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let path = format!("auth/token/{pattern}");
    let (token, accessor) = token(stage).await;
    Some(match (operation, pattern) {
        (Update, "create" | "create-orphan") => Ask::new(path, json!({ "policies": ["default"], "ttl": "1h" })),
        (Update, "create/:role_name") => {
            stage.post("auth/token/roles/web", json!({ "allowed_policies": "default" })).await;
            Ask::new("auth/token/create/web", json!({ "ttl": "1h" }))
        }
        (List, "roles") | (Read | Delete, "roles/:role_name") => {
            stage.post("auth/token/roles/web", json!({ "allowed_policies": "default" })).await;
            Ask::read(path.replace(":role_name", "web"))
        }
        (Update, "roles/:role_name") => {
            created(stage, "auth/token/roles/written", json!({ "orphan": true, "token_period": "1h" })).await
        }
        (List, "accessors") => Ask::read(path),
        (Update, "revoke-orphan") => Ask::new(path, json!({ "token": token })).again(400),
        (Update, "tidy") => Ask::new(path, json!({})).status(202),
        (Read, "lookup-self") => Ask::read(path),
        (Update, "lookup-self") => Ask::new(path, json!({})),
        (Read, "lookup") => Ask::read(format!("{path}?token={token}")),
        (Update, "lookup" | "renew" | "revoke") => Ask::new(path, json!({ "token": token })),
        (Update, "lookup-accessor" | "renew-accessor" | "revoke-accessor") => {
            Ask::new(path, json!({ "accessor": accessor }))
        }
        (Update, "renew-self") => Ask { token: Some(token), ..Ask::new(path, json!({})) },
        // The retry's token is revoked.
        (Update, "revoke-self") => Ask { token: Some(token), again: 403, ..Ask::new(path, json!({})) },
        _ => return None,
    })
}

/// Creates an `approle` role `web`, and returns a new secret id and its accessor.
async fn approle_role(stage: &Stage) -> (String, String) {
    stage.app.client.post("sys/auth/approle", json!({ "type": "approle" })).await;
    stage.post("auth/approle/role/web", json!({ "role_id": "web-id", "token_policies": "default" })).await;
    let made = stage.post("auth/approle/role/web/secret-id", json!({})).await;
    ["secret_id", "secret_id_accessor"].map(|name| made.body["data"][name].as_str().unwrap().to_owned()).into()
}

async fn approle(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let (secret_id, accessor) = approle_role(stage).await;
    let path = format!("auth/approle/{}", pattern.replace(":login_role", "web"));
    let part = pattern.strip_prefix("role/:login_role/");
    Some(match (operation, part.unwrap_or(pattern)) {
        (Update, "login") => {
            // The first login also creates the entity.
            let login = json!({ "role_id": "web-id", "secret_id": secret_id });
            stage.post(&path, login.clone()).await;
            Ask::new(path, login)
        }
        (Update, "role/:login_role") => {
            created(stage, "auth/approle/role/written", json!({ "role_id": "written-id", "token_ttl": "1h" })).await
        }
        (Delete, "role/:login_role") => {
            existing(stage, "auth/approle/role/gone", json!({ "role_id": "gone-id" })).await
        }
        (Update, "secret-id") => Ask::new(path, json!({ "metadata": { "team": "blue" }, "num_uses": 3, "ttl": "1h" })),
        (Update, "custom-secret-id") => {
            let chosen = json!({ "secret_id": "chosen" });
            stage.post("auth/approle/role/web/secret-id/destroy", chosen.clone()).await;
            Ask::new(path, chosen).again(400)
        }
        (Update, "secret-id/lookup" | "secret-id/destroy") => Ask::new(path, json!({ "secret_id": secret_id })),
        (Delete, "secret-id/destroy") => Ask::read(format!("{path}?secret_id={secret_id}")),
        (Update, "secret-id-accessor/lookup") => Ask::new(path, json!({ "secret_id_accessor": accessor })),
        (Update, "secret-id-accessor/destroy") => Ask::new(path, json!({ "secret_id_accessor": accessor })).again(404),
        (Delete, "secret-id-accessor/destroy") => Ask::read(format!("{path}?secret_id_accessor={accessor}")).again(404),
        (Update, "tidy/secret-id") => Ask::new(path, json!({})).status(202),
        (Update, "role-id") => Ask::new(path, json!({ "role_id": "another-id" })),
        (Update, "policies") => Ask::new(path, json!({ "token_policies": ["a", "b"] })),
        (Update, "period") => Ask::new(path, json!({ "token_period": "2h" })),
        (Update, "bind-secret-id") => Ask::new(path, json!({ "bind_secret_id": true })),
        (Update, cidrs @ ("bound-cidr-list" | "secret-id-bound-cidrs" | "token-bound-cidrs")) => {
            Ask::new(path, json!({ cidrs.replace('-', "_"): "127.0.0.0/8" }))
        }
        (Update, number) if part.is_some() => Ask::new(path, json!({ number.replace('-', "_"): 60 })),
        (Read | List | Delete, _) => Ask::read(path),
        _ => return None,
    })
}

/// A `cloudb` method with a configuration and a role `web`. Requests that would call the directory run without the
/// configuration.
async fn cloudb(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let config = json!({ "tenant_id": "tenant.test", "resource": "https://management.azure.com/",
        "client_id": "app", "client_secret": "hunter2" });
    let role = json!({ "bound_service_principal_ids": "o1", "token_policies": "default" });
    stage.app.client.post("sys/auth/cloudb", json!({ "type": "cloudb" })).await;
    stage.post("auth/cloudb/config", config.clone()).await;
    stage.post("auth/cloudb/role/web", role.clone()).await;
    let path = format!("auth/cloudb/{}", pattern.replace(":login_role", "web"));
    Some(match (operation, pattern) {
        (Update, "config") => {
            stage.post("auth/cloudb/config", json!({ "resource": "before" })).await;
            Ask::new(path, config)
        }
        (Delete, "config") => Ask::read(path),
        (Update, "login") => {
            stage.app.client.delete("auth/cloudb/config").await;
            Ask::new(path, json!({ "role": "web", "jwt": "e30.e30.e30" })).status(400)
        }
        (Update, "rotate-root") => {
            stage.app.client.delete("auth/cloudb/config").await;
            Ask::new(path, json!({})).status(400)
        }
        (Update, "role/:login_role") => created(stage, "auth/cloudb/role/written", role).await,
        (Delete, "role/:login_role") => existing(stage, "auth/cloudb/role/gone", role).await,
        (Read | List, _) => Ask::read(path),
        _ => return None,
    })
}

/// A `jwt` method with the key of [`TokenKey::fixed`] and a role `web`.
async fn jwt(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let key = TokenKey::fixed();
    let config = json!({ "jwt_validation_pubkeys": [key.pem()], "bound_issuer": "https://issuer.test" });
    let role = json!({ "role_type": "jwt", "user_claim": "sub", "bound_audiences": "signet" });
    stage.app.client.post("sys/auth/jwt", json!({ "type": "jwt" })).await;
    stage.post("auth/jwt/config", config.clone()).await;
    stage.post("auth/jwt/role/web", role.clone()).await;
    let path = format!("auth/jwt/{}", pattern.replace(":login_role", "web"));
    Some(match (operation, pattern) {
        (Update, "config") => {
            stage.post("auth/jwt/config", json!({ "default_role": "before" })).await;
            Ask::new(path, json!({ "default_role": "web", "bound_issuer": "https://issuer.test" }))
        }
        (Update, "login") => {
            // Valid until 2100, so that the token is the same in every run.
            let (issuer, end) = ("https://issuer.test", 4_102_444_800_u64);
            let claims = json!({ "iss": issuer, "aud": "signet", "sub": "b", "iat": 1_700_000_000, "exp": end });
            let login = json!({ "role": "web", "jwt": key.token(&claims) });
            // The first login also creates the entity.
            stage.post(&path, login.clone()).await;
            Ask::new(path, login)
        }
        (Update, "role/:login_role") => created(stage, "auth/jwt/role/written", role).await,
        (Delete, "role/:login_role") => existing(stage, "auth/jwt/role/gone", role).await,
        (Read | List, _) => Ask::read(path),
        _ => return None,
    })
}

/// A path of the ACME directory, which does not exist.
fn acme(pattern: &str) -> Ask {
    let segment = |segment: &str| segment.trim_start_matches([':', '*']).to_owned();
    let path: Vec<String> = pattern.split('/').map(segment).collect();
    Ask::new(format!("pki/{}", path.join("/")), json!({})).status(404)
}

async fn pki_read(stage: &Stage, pattern: &str) -> Option<Ask> {
    let known = "roles roles/:name issuers issuer/:issuer_ref config/issuers config/urls config/cluster config/crl \
        config/external-policy config/acme config/auto-tidy tidy-status keys key/:key_ref config/keys ca ca/pem \
        ca_chain cert/ca cert/ca/raw cert/ca/raw/pem cert/ca_chain cert/crl crl crl/pem issuer/:issuer_ref/json \
        issuer/:issuer_ref/der issuer/:issuer_ref/pem issuer/:issuer_ref/crl issuer/:issuer_ref/crl/der \
        issuer/:issuer_ref/crl/pem cert/:serial cert/:serial/raw cert/:serial/raw/pem cert-metadata \
        cert-metadata/:serial cert-record/:serial certs certs/detailed certs/revoked crl/rotate cert/delta-crl \
        crl/delta crl/delta/pem crl/rotate-delta cert/unified-crl cert/unified-delta-crl unified-crl \
        unified-crl/pem unified-crl/delta unified-crl/delta/pem certs/unified-revoked \
        issuer/:issuer_ref/crl/delta issuer/:issuer_ref/crl/delta/der issuer/:issuer_ref/crl/delta/pem \
        issuer/:issuer_ref/unified-crl issuer/:issuer_ref/unified-crl/der issuer/:issuer_ref/unified-crl/pem \
        issuer/:issuer_ref/unified-crl/delta issuer/:issuer_ref/unified-crl/delta/der \
        issuer/:issuer_ref/unified-crl/delta/pem";
    if !known.split(' ').any(|known| known == pattern) {
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

/// Arguments of openssl that create a new key and discard it.
const NEW_KEY: [&str; 8] =
    ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null"];

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

/// Like [`one_issuer`], with a second issuer `next`.
async fn two_issuers(stage: &Stage) {
    one_issuer(stage).await;
    stage.post("pki/root/rotate/internal", json!({ "common_name": "Next", "key_type": "ec" })).await;
}

async fn pki_write(stage: &Stage, operation: Operation, pattern: &str) -> Option<Ask> {
    let path = pattern.replace(":name", "web").replace(":issuer_ref", "root").replace(":policy", "web");
    let path = format!("pki/{path}");
    let name = json!({ "common_name": "a.test" });
    Some(match (operation, pattern) {
        (Update, "roles/:name") => created(stage, "pki/roles/written", json!({ "key_type": "ec" })).await,
        (Patch, "roles/:name") => {
            stage.post("pki/roles/merged", json!({ "key_type": "ec" })).await;
            Ask::new("pki/roles/merged", json!({ "ttl": "2h" }))
        }
        (Delete, "roles/:name") => existing(stage, "pki/roles/gone", json!({ "key_type": "ec" })).await,
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
        // The same commit adds the key to the list of compromised keys.
        (Update, "revoke") => {
            Ask::new(path, json!({ "serial_number": stage.issue().await, "reason": "keyCompromise" }))
                .afterwards(Afterwards::Unanswered("a 200 promises that the CRL lists the serial"))
        }
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
        (Update, "issuers/import/crl") => {
            // The CRL of a CA that was operated elsewhere.
            one_issuer(stage).await;
            let entries = json!([{ "serial_number": "0a:0b:0c", "revocation_time": 1_700_000_000 }]);
            let list = json!({ "revoked_certs": entries, "crl_number": 77, "next_update": "24h" });
            let list = stage.post("pki/issuer/default/sign-revocation-list", list).await;
            Ask::new(path, json!({ "crl": list.body["data"]["crl"] })).afterwards(Afterwards::InParts(
                "a list may have millions of entries; a 200 promises that the number of the CRL is above the imported one",
            ))
        }
        (Update, "issuer/:issuer_ref/revoke") => {
            two_issuers(stage).await;
            Ask::new("pki/issuer/next/revoke", json!({ "reason": "keyCompromise" })).afterwards(Afterwards::Warns)
        }
        (Update, "keys/generate/:type") => Ask::new("pki/keys/generate/internal", json!({ "key_type": "ec" })),
        (Update, "keys/import") => {
            let key = openssl(&stage.folder(), &["genpkey", "-algorithm", "ed25519"]);
            Ask::new(path, json!({ "pem_bundle": key }))
        }
        (Update, "config/cluster") => {
            changed(stage, &path, "path", ["https://before.test/v1/pki", "https://after.test/v1/pki"]).await
        }
        (Update, "config/crl") => changed(stage, &path, "expiry", ["48h", "49h"]).await,
        (Update, "config/auto-tidy") => changed(stage, &path, "interval_duration", ["10h", "11h"]).await,
        (Update, "tidy-cancel") => Ask::new(path, json!({})),
        (Update, "config/external-policy") => changed(stage, &path, "timeout", ["10s", "11s"]).await,
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
            changed(stage, &path, "issuing_certificates", ["http://before.test/ca", "http://after.test/ca"]).await
        }
        (Update, "key/:key_ref") => Ask::new("pki/key/root", json!({ "key_name": "root" })),
        (Delete, "key/:key_ref") => {
            two_issuers(stage).await;
            let key = stage.app.client.get("pki/issuer/next").await.body["data"]["key_id"].clone();
            stage.app.client.delete("pki/issuer/next").await;
            Ask::read(format!("pki/key/{}", key.as_str().unwrap()))
        }
        (Update, "config/keys") => changed(stage, &path, "default", ["root", "root"]).await,
        _ => return None,
    })
}
