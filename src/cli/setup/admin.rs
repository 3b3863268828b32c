//! The administrator: a policy with listed rights, and an orphan token (a token without a parent) with this policy.
//!
//! Unlike a root token, this token allows only what the policy lists, even if later versions add operations. It has no
//! parent, so it stays valid when the setup's own root token, which creates it, is revoked. It expires unless it is
//! renewed.

use std::path::Path;

use crate::error::{Error, Kind, Result};
use crate::secret::Secret;
use serde_json::json;

use super::api::SetupApi;
use super::files::{FileContent, exists_and_is_not_empty, write_new};
use super::plan::SetupPlan;
use super::step_output::print_step;

pub(super) const ADMIN_POLICY: &str = "admin";
/// Lifetime of the administrator's token after each renewal.
pub(super) const ADMIN_TOKEN_PERIOD: &str = "768h";

/// Rules of the administrator's policy. The first rule covers all mounts, including later ones. The others add `sudo`
/// for routes that require it. There are no rights on audit devices, so that administrators cannot turn off the audit
/// log, which records their actions too.
const ADMIN_POLICY_RULES: &str = r#"# Mounts, policies, login methods, and what is in them.
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

/// Policy rules that deny dangerous operations on the mount of the root CA. They prevent mistakes, not abuse, because
/// an administrator may change policies.
const ROOT_MOUNT_RULES: &str = r#"
# The mount of the root: it signs intermediates, and its keys stay. These rules prevent mistakes only, because this
# policy may be changed by those who have it. A root token may do what they deny.
path "ROOT/issue/*"                    { capabilities = ["deny"] }
path "ROOT/sign/*"                     { capabilities = ["deny"] }
path "ROOT/sign-verbatim*"             { capabilities = ["deny"] }
path "ROOT/external-policy/*"          { capabilities = ["deny"] }
path "ROOT/issuer/+/issue/*"           { capabilities = ["deny"] }
path "ROOT/issuer/+/sign/*"            { capabilities = ["deny"] }
path "ROOT/issuer/+/sign-verbatim*"    { capabilities = ["deny"] }
path "ROOT/issuer/+/external-policy/*" { capabilities = ["deny"] }
path "ROOT/roles/*"                    { capabilities = ["read", "list"] }
path "ROOT/root"                       { capabilities = ["deny"] }
path "ROOT/issuer/+"                   { capabilities = ["read", "update", "patch"] }
path "ROOT/key/+"                      { capabilities = ["read", "update"] }
path "sys/mounts/ROOT"                 { capabilities = ["read"] }
"#;

pub(super) async fn ensure_admin(api: &SetupApi, plan: &SetupPlan) -> Result<()> {
    let has_root = api.is_mounted(&plan.root_mount).await?;
    let root_rules = if has_root { ROOT_MOUNT_RULES.replace("ROOT", &plan.root_mount) } else { String::new() };
    let rules = format!("{ADMIN_POLICY_RULES}{root_rules}");
    let had_admin = ensure_policy(api, ADMIN_POLICY, &rules, "of an administrator").await?;
    ensure_policy(
        api,
        &issuing_policy_name(plan),
        &issuing_policy_rules(plan),
        &format!("to issue by the role {}", plan.role),
    )
    .await?;
    let file = &plan.admin_token_file;
    if exists_and_is_not_empty(file) {
        let (what, state) = match is_live_token(api, file).await? {
            true => ("kept", "the administrator's token"),
            false => ("left", "not a valid token of this store: move the file away and run the setup again"),
        };
        return print_step(what, &format!("{} ({state})", file.display()));
    }
    let wanted = json!({ "policies": [ADMIN_POLICY], "period": ADMIN_TOKEN_PERIOD, "display_name": "administrator" });
    let response = api.post("auth/token/create-orphan", wanted).await?;
    let auth = &response["auth"];
    let token = auth["client_token"].as_str().ok_or_else(|| Error::internal("the response has no token"))?;
    if let Err(error) = write_new(file, format!("{token}\n").as_bytes(), FileContent::Secret) {
        // The token is lost if it is not in its file, so revoke it.
        api.post("auth/token/revoke", json!({ "token": token })).await?;
        return Err(error);
    }
    let earlier = if had_admin { "; an earlier one remains valid until it expires" } else { "" };
    let text = format!("the administrator's token, policy {ADMIN_POLICY}, no parent{earlier}");
    print_step("made", &format!("{} ({text})", file.display()))
}

/// `true` if the file contains a valid token of this store.
pub(super) async fn is_live_token(api: &SetupApi, file: &Path) -> Result<bool> {
    let text =
        std::fs::read(file).map(Secret::new).map_err(|e| Error::of_file("--admin-token-file", file, "read", e))?;
    match api.shared().auth.lookup(text.expose_text().unwrap_or_default().trim()).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == Kind::Forbidden => Ok(false),
        Err(error) => Err(error),
    }
}

fn issuing_policy_name(plan: &SetupPlan) -> String {
    format!("issue-{}", plan.role)
}

/// Creates a policy if it does not exist. Returns `true` if it existed already.
async fn ensure_policy(api: &SetupApi, name: &str, text: &str, what: &str) -> Result<bool> {
    let path = format!("sys/policies/acl/{name}");
    if api.get(&path).await?.is_some() {
        return print_step("kept", &format!("the policy {name}")).map(|()| true);
    }
    api.post(&path, json!({ "policy": text })).await?;
    print_step("made", &format!("the policy {name} ({what})")).map(|()| false)
}

fn issuing_policy_rules(plan: &SetupPlan) -> String {
    let path = |word: &str| format!("path \"{}/{word}/{}\" {{ capabilities = [\"update\"] }}\n", plan.mount, plan.role);
    format!(
        "# Certificates by the role {}: issued with a key, or for one's own.\n{}{}",
        plan.role,
        path("issue"),
        path("sign")
    )
}
