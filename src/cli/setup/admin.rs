//! Who looks after the installation: a policy with named rights, and a token without a parent that has it.
//!
//! Root can do everything, whatever is added later; this administrator can do what stands in the policy. The token
//! outlives whoever made it, and ends when nobody renews it.

use std::path::Path;

use serde_json::json;
use signet::error::{Error, Kind, Result, io_words};
use signet::secret::Secret;

use super::api::Api;
use super::files::{Content, is_written, write_new};
use super::plan::Plan;
use super::said::say;

/// The administrator's policy.
pub(super) const POLICY: &str = "admin";
/// How long the token lives after it was renewed.
pub(super) const PERIOD: &str = "768h";

/// What an administrator may do, beside the mounts.
const RIGHTS: &str = r#"
# Mounts, policies, authentication methods.
path "sys/mounts"              { capabilities = ["read", "list"] }
path "sys/mounts/*"            { capabilities = ["create", "read", "update", "delete", "list"] }
path "sys/remount"             { capabilities = ["update", "sudo"] }
path "sys/policies/*"          { capabilities = ["create", "read", "update", "delete", "list"] }
path "sys/auth"                { capabilities = ["read", "list"] }
path "sys/auth/*"              { capabilities = ["create", "read", "update", "delete", "list", "sudo"] }
path "auth/*"                  { capabilities = ["create", "read", "update", "delete", "list"] }
path "identity/*"              { capabilities = ["create", "read", "update", "delete", "list"] }

# Tokens for others, also with rights that this one has not; never root's.
path "auth/token/create"         { capabilities = ["update", "sudo"] }
path "auth/token/create-orphan"  { capabilities = ["update", "sudo"] }
path "auth/token/create/*"       { capabilities = ["update", "sudo"] }
path "auth/token/accessors"      { capabilities = ["list", "sudo"] }
path "auth/token/revoke-orphan"  { capabilities = ["update", "sudo"] }

# What the server is and does.
path "sys/metrics"             { capabilities = ["read"] }
path "sys/audit"               { capabilities = ["read", "sudo"] }
path "sys/audit-hash/*"        { capabilities = ["update"] }
path "sys/capabilities"        { capabilities = ["update"] }
path "sys/capabilities-accessor" { capabilities = ["update"] }
path "sys/internal/explain"    { capabilities = ["update"] }
path "sys/leases/*"            { capabilities = ["create", "read", "update", "delete", "list", "sudo"] }
path "sys/quotas/*"            { capabilities = ["create", "read", "update", "delete", "list"] }
path "sys/managed-keys/*"      { capabilities = ["create", "read", "update", "delete", "list"] }
path "sys/key-status"          { capabilities = ["read"] }
path "sys/rotate"              { capabilities = ["update", "sudo"] }
path "sys/rotate/config"       { capabilities = ["read", "update"] }
"#;

/// Makes the policies and the token.
pub(super) async fn make(api: &Api, plan: &Plan) -> Result<()> {
    policy(api, POLICY, &administrator(plan), "of an administrator").await?;
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
        // Nobody has it.
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

/// Whether the token in a file is one of this store, and has not ended.
pub(super) async fn is_live(api: &Api, file: &Path) -> Result<bool> {
    let text = std::fs::read(file)
        .map(Secret::new)
        .map_err(|e| Error::unavailable(format!("{}: cannot be read ({})", file.display(), io_words(e.kind())), e))?;
    match api.shared().auth.lookup(text.expose_text().unwrap_or_default().trim()).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == Kind::Forbidden => Ok(false),
        Err(error) => Err(error),
    }
}

/// The policy of those who issue.
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

fn administrator(plan: &Plan) -> String {
    let all = r#"["create", "read", "update", "patch", "delete", "list"]"#;
    let mount = |path: &str| format!("path \"{path}/*\" {{ capabilities = {all} }}\n");
    let root = if plan.outside.is_none() { mount(&plan.root_mount) } else { String::new() };
    format!("# The certificate authorities.\n{}{root}{RIGHTS}", mount(&plan.mount))
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
