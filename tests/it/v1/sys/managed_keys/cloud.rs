//! Keys at cloud services through the routes: ministack for `cloudakms`, simulations with real keys for the others.

#[cfg(feature = "keys-aws")]
mod akms;
mod bkeyvault;
mod ckms;

use serde_json::{Value, json};

use crate::support::{App, with};
use crate::v1::pki::mount::FAR;

/// Adds the members common to all types.
fn shown_of_all(name: &str, kind: &str, uuid: &Value, more: Value) -> Value {
    let shared = json!({
        "UUID": uuid, "name": name, "type": kind,
        "allow_generate_key": false, "allow_replace_key": false, "allow_store_key": false, "any_mount": false,
        "usages": ["sign", "verify"],
    });
    with(shared, more)
}

/// Creates a root with the key `web`, and a role `r`.
async fn with_root(app: &App) {
    let root = json!({ "common_name": "Root", "issuer_name": "root", "not_after": FAR, "managed_key_name": "web" });
    app.client.post("pki/root/generate/kms", root).await.assert_status(200);
    super::role(app, json!({})).await;
}
