//! Stored documents that decrypt but cannot be parsed: a start that reads one names it in its error.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use signet::documents::{Document, DocumentWrite, SYSTEM_MOUNT};
use signet::pki::store::PkiWrite;

use super::double::Faults;
use crate::support::{App, NO_MODULE};

/// A body of the wrong type. An error that quotes it would disclose the secret of a real body.
const BODY: &[u8] = b"\"sesame\"";

/// Documents that are not read at start.
const NOT_READ: [&str; 5] =
    ["config mount-moves", "config mount-order", "config root-token/", "config server", "role-id "];

/// Replaces the stored body, at any version.
async fn write(faults: &Faults, document: &Document, body: &[u8]) {
    let stored = faults.real().pki.documents(document.key.mount).await.unwrap();
    let expected = stored.iter().find(|stored| stored.key == document.key).unwrap().version;
    let write = DocumentWrite { key: document.key.clone(), expected, body: Some(body.to_vec()) };
    faults.real().pki.commit(vec![PkiWrite::Document(write)]).await.unwrap();
}

async fn furnished(faults: &Arc<Faults>) -> App {
    let app = App::builder().postgres().faults(faults).start().await;
    let library =
        json!({ "library": NO_MODULE, "token_label": "t", "key_label": "k", "pin": "1234", "mechanism": "0x1041" });
    let post = async |path: &str, body: Value| {
        let answer = app.client.post(path, body).await;
        assert!(matches!(answer.status, 200 | 204), "{path}: {}", answer.text);
    };
    post("pki/root/generate/internal", json!({ "common_name": "Root", "key_type": "ec" })).await;
    post("pki/roles/web", json!({ "allow_any_name": true })).await;
    post("pki/config/urls", json!({ "issuing_certificates": "http://a.test/ca" })).await;
    post("sys/policies/acl/p", json!({ "policy": "path \"pki/*\" { capabilities = [\"read\"] }" })).await;
    post("sys/mounts/other", json!({ "type": "pki" })).await;
    post("sys/remount", json!({ "from": "other", "to": "moved" })).await;
    post("sys/auth/approle", json!({ "type": "approle" })).await;
    post("auth/approle/role/r", json!({ "token_policies": "p" })).await;
    post("auth/token/roles/r", json!({ "allowed_policies": "p" })).await;
    post("sys/quotas/rate-limit/q", json!({ "rate": 1000 })).await;
    post("sys/config/cors", json!({ "allowed_origins": "https://a.test" })).await;
    post("sys/managed-keys/pkcs11/k", library).await;
    post(&format!("sys/compromised-keys/{:064x}", 1), json!({})).await;
    app
}

#[actix_web::test]
async fn a_document_that_cannot_be_read_at_start_is_named() {
    let faults = Arc::new(Faults::default());
    let app = furnished(&faults).await;
    let mut documents = faults.real().pki.documents(SYSTEM_MOUNT).await.unwrap();
    let mounts: Vec<_> =
        app.shared().auth.mounts().iter().map(|mount| mount.id).filter(|id| *id != SYSTEM_MOUNT).collect();
    for mount in mounts {
        documents.extend(faults.real().pki.documents(mount).await.unwrap());
    }
    let mut named = BTreeSet::new();
    let mut unread = BTreeSet::new();
    for document in &documents {
        let kind = document.key.kind;
        let name = &document.key.name;
        write(&faults, document, BODY).await;
        let refusal = app.opening_of_another().await;
        write(&faults, document, &document.body).await;
        let Some(text) = refusal else {
            unread.insert(format!("{kind} {name}"));
            continue;
        };
        assert!(text.contains(&format!("the document {kind} {name:?}")), "{kind} {name}: {text}");
        assert!(text.contains("cannot be read") && !text.contains("sesame"), "{kind} {name}: {text}");
        named.insert(kind);
    }
    println!("{named:?} {unread:?}");
    for kind in ["mount", "policy", "token-role", "managed-key", "compromised-key", "role", "issuer", "key", "config"] {
        assert!(named.contains(kind), "{kind} is not among {named:?}");
    }
    let surprising: Vec<_> = unread.iter().filter(|one| !NOT_READ.iter().any(|known| one.starts_with(known))).collect();
    assert!(surprising.is_empty(), "{surprising:?}");
    assert_eq!(app.opening_of_another().await, None, "all is as it was");
    app.stop().await;
}
