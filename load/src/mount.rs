//! The PKI mount of a run.

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::drive::ServerAccess;

/// Lifetime of a root certificate that is created here, and maximum lifetime of the mount's certificates.
pub(crate) const ROOT_TTL: &str = "87600h";

/// Returns `true` if the mount exists.
pub(crate) async fn exists(admin: &ServerAccess<'_>) -> Result<bool, String> {
    let mounts = admin.connect().await?.send(Method::GET, "/v1/sys/mounts", Bytes::new()).await?;
    if mounts.status != StatusCode::OK {
        return Err(format!("sys/mounts: {}; --prepared uses a mount, root and role that exist", mounts.status));
    }
    let mounts: Value = serde_json::from_slice(&mounts.body).map_err(|e| format!("sys/mounts: {e}"))?;
    let name = format!("{}/", admin.mount);
    // Some servers list mounts only in `data`, others at the top level as well.
    Ok(mounts["data"].get(&name).or(mounts.get(&name)).is_some())
}

/// Creates the mount with a P-256 root.
pub(crate) async fn create(admin: &ServerAccess<'_>) -> Result<(), String> {
    let mount = json!({ "type": "pki", "config": { "max_lease_ttl": ROOT_TTL } });
    admin.provisioner.mount(admin.mount, &mount).await?;
    ensure_root(admin).await
}

/// Creates a P-256 root if the mount has none.
pub(crate) async fn ensure_root(admin: &ServerAccess<'_>) -> Result<(), String> {
    let root = admin.connect().await?.send(Method::GET, &admin.path("ca"), Bytes::new()).await?;
    if root.status == StatusCode::OK && !root.body.is_empty() {
        return Ok(());
    }
    let root = json!({ "common_name": "Load root", "ttl": ROOT_TTL, "key_type": "ec", "key_bits": 256 });
    admin.provisioner.post(&admin.path("root/generate/internal"), &root).await.map(drop)
}
