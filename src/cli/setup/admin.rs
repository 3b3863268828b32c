//! The administrator: a policy with named rights, and an orphan token that has it.
//!
//! Unlike root, this administrator can do only what the policy lists, even if new operations are added. The token
//! outlives its creator, and expires unless it is renewed.

use std::path::Path;

use serde_json::json;
use signet::error::{Error, Kind, Result};
use signet::secret::Secret;

use super::api::Api;
use super::files::{Content, is_written, write_new};
use super::plan::Plan;
use super::said::say;

pub(super) const POLICY: &str = "admin";
/// Lifetime of the token after each renewal.
pub(super) const PERIOD: &str = "768h";

/// Rights of an administrator. The first rule covers all mounts, including later ones; the others add `sudo` where a
/// route requires it. Audit devices are excluded, because they are evidence against administrators too.
const RIGHTS: &str = r#"# Mounts, policies, login methods, and what is in them.
path "+/*" { capabilities = ["create", "read", "update", "patch", "delete", "list"] }

# Operations that need sudo.
path "sys/auth/*"               { capabilities = ["create", "read", "update", "delete", "list", "sudo"] }
path "sys/remount"              { capabilities = ["update", "sudo"] }
path "sys/audit"                { capabilities = ["read", "sudo"] }
path "sys/config/cors"          { capabilities = ["create", "read", "update", "delete", "sudo"] }
path "sys/leases"               { capabilities = ["read", "sudo"] }
path "sys/leases/*"             { capabilities = ["create", "read", "update", "delete", "list", "sudo"] }
path "sys/leases/lookup"        { capabilities = ["update", "list", "sudo"] }
path "sys/compromised-keys"     { capabilities = ["create", "update", "list", "sudo"] }
path "sys/compromised-keys/*"   { capabilities = ["create", "read", "update", "delete", "sudo"] }
path "sys/rotate"               { capabilities = ["update", "sudo"] }
path "sys/rotate/keyring"       { capabilities = ["update", "sudo"] }
path "+/root"                   { capabilities = ["read", "delete", "sudo"] }
path "+/root/sign-self-issued"  { capabilities = ["update", "sudo"] }

# Tokens for others, also with rights that this one lacks; never root's.
path "auth/token/create"        { capabilities = ["update", "sudo"] }
path "auth/token/create-orphan" { capabilities = ["update", "sudo"] }
path "auth/token/create/*"      { capabilities = ["update", "sudo"] }
path "auth/token/accessors"     { capabilities = ["list", "sudo"] }
path "auth/token/revoke-orphan" { capabilities = ["update", "sudo"] }
"#;

pub(super) async fn make(api: &Api, plan: &Plan) -> Result<()> {
    policy(api, POLICY, RIGHTS, "of an administrator").await?;
    policy(api, &issuing(plan), &client(plan), &format!("to issue by the role {}", plan.role)).await?;
    let file = &plan.admin_token_file;
    if is_written(file) {
        let (what, state) = match is_live(api, file).await? {
            true => ("kept", "the administrator's token"),
            false => ("left", "no token of this store, or one that has ended: move it away and run the setup again"),
        };
        return say(what, &format!("{} ({state})", file.display()));
    }
    let wanted = json!({ "policies": [POLICY], "period": PERIOD, "display_name": "administrator" });
    let made = api.post("auth/token/create-orphan", wanted).await?;
    let auth = &made["auth"];
    let token = auth["client_token"].as_str().ok_or_else(|| Error::internal("the answer has no token"))?;
    if let Err(error) = write_new(file, format!("{token}\n").as_bytes(), Content::Secret) {
        // The token was not delivered, so it is revoked.
        api.post("auth/token/revoke", json!({ "token": token })).await?;
        return Err(error);
    }
    say(
        "made",
        &format!(
            "{} (the administrator's token, policy {POLICY}, no parent; one that was made before works on)",
            file.display()
        ),
    )
}

/// `true` if the token in a file belongs to this store and is still valid.
pub(super) async fn is_live(api: &Api, file: &Path) -> Result<bool> {
    let text =
        std::fs::read(file).map(Secret::new).map_err(|e| Error::of_file("--admin-token-file", file, "read", e))?;
    match api.shared().auth.lookup(text.expose_text().unwrap_or_default().trim()).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == Kind::Forbidden => Ok(false),
        Err(error) => Err(error),
    }
}

fn issuing(plan: &Plan) -> String {
    format!("issue-{}", plan.role)
}

async fn policy(api: &Api, name: &str, text: &str, what: &str) -> Result<()> {
    let path = format!("sys/policies/acl/{name}");
    if api.get(&path).await?.is_some() {
        return say("kept", &format!("the policy {name}"));
    }
    api.post(&path, json!({ "policy": text })).await?;
    say("made", &format!("the policy {name} ({what})"))
}

fn client(plan: &Plan) -> String {
    let path = |word: &str| format!("path \"{}/{word}/{}\" {{ capabilities = [\"update\"] }}\n", plan.mount, plan.role);
    format!(
        "# Certificates by the role {}: issued with a key, or for one's own.\n{}{}",
        plan.role,
        path("issue"),
        path("sign")
    )
}
