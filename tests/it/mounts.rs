//! The life cycle of mounts: opened on the first request, closed when they are removed.

use std::sync::Arc;

use futures_util::future::join;
use serde_json::json;
use signet::auth::mounts::MountKind;
use signet::auth::store::AuthWrite;
use signet::documents::{DocumentKey, DocumentWrite, MountId, SYSTEM_MOUNT};
use signet::fields::Fields;

use crate::faults::double::Faults;
use crate::support::{App, until};

async fn app() -> (App, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    (App::builder().faults(&faults).start().await, faults)
}

#[actix_web::test]
async fn mount_of_interrupted_enable_opens_at_first_request() {
    let (app, _) = app().await;
    let auth = &app.shared().auth;
    let engine = &app.shared().engine;
    let late = auth.mount_enable("late", &Fields::parse(br#"{"type":"pki"}"#).unwrap()).await.unwrap();
    assert!(engine.authority(late.id).is_err());
    assert_eq!(app.client.list("late/roles").await.status, 404);
    assert!(engine.authority(late.id).is_ok());
    app.stop().await;
}

#[actix_web::test]
async fn mount_disabled_while_a_request_opens_it_is_closed() {
    let (app, faults) = app().await;
    let auth = &app.shared().auth;
    let engine = &app.shared().engine;
    let late = auth.mount_enable("late", &Fields::parse(br#"{"type":"pki"}"#).unwrap()).await.unwrap();
    let go = faults.hold("documents (pki)");
    let woken = app.client.list("late/roles");
    let disabled = async {
        until("a request for the mount's documents", async || faults.holds()).await;
        let disabled = app.client.delete("sys/mounts/late").await;
        go.notify_one();
        disabled.status
    };
    let (woken, disabled) = join(woken, disabled).await;
    assert_eq!((woken.status, disabled), (404, 204), "{}", woken.text);
    assert!(engine.authority(late.id).is_err(), "nobody closes it any more");
    app.stop().await;
}

#[actix_web::test]
async fn mount_of_unknown_newer_type_is_preserved() {
    let (app, faults) = app().await;
    let shared = app.shared();
    let mut body = serde_json::to_value(&**shared.auth.mounts().get("pki").unwrap()).unwrap();
    assert_eq!(body["kind"], "pki");
    let id = MountId::random();
    (body["kind"], body["path"], body["id"]) = (json!("vault"), json!("newer/"), id.0.into());
    let key = DocumentKey { mount: SYSTEM_MOUNT, kind: "mount", name: "newer/".to_owned() };
    let write = DocumentWrite { key, expected: 0, body: Some(body.to_string().into_bytes()) };
    faults.real().auth.commit(vec![AuthWrite::MountCreate(id), AuthWrite::Document(write)]).await.unwrap();
    shared.mounts.reload_table().await.unwrap();
    let kind = shared.auth.mounts().get("newer").unwrap().kind.clone();
    assert_eq!(kind, MountKind::Unknown("vault".into()));
    assert!(app.client.get("sys/mounts").await.body["data"].get("newer/").is_none());
    assert_eq!(app.client.get("newer/anything").await.status, 404);
    let taken = app.client.post("sys/mounts/newer", json!({ "type": "pki" })).await;
    assert_eq!((taken.status, taken.error()), (400, "path is already in use at newer/"));
    // Tuning keeps the unknown type.
    assert_eq!(app.client.post("sys/mounts/newer/tune", json!({ "description": "later" })).await.status, 204);
    let stored = faults.real().auth.documents("mount").await.unwrap();
    let newer = stored.iter().find(|document| document.key.name == "newer/").unwrap();
    let newer: serde_json::Value = serde_json::from_slice(&newer.body).unwrap();
    assert_eq!((&newer["kind"], &newer["description"]), (&json!("vault"), &json!("later")));
    assert_eq!(app.client.delete("sys/mounts/newer").await.status, 204);
    app.stop().await;
}
