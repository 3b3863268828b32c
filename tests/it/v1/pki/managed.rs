//! Managed keys, whose private key is not in the process: all signatures come from their signer. A signer that is slow,
//! fails, lies or hangs affects only its own mount.

mod algorithms;
mod authorities;
mod concurrency_limit;
mod device;
mod hanging_device;
mod kms_paths;
mod other_operations;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::error::Kind;
use signet::keys::NoSigners;

use self::device::{Device, Mode};
use super::foreign::{Crl, csr, csr_text, openssl_verifies_chain};
use super::mount::{self, FAR, Pki, parse, text, with};
use super::ocsp::about;
use crate::support::{Answer, App, Builder, Client};

/// Time limit for requests on the servers of these tests.
const LIMIT: Duration = Duration::from_secs(3);

/// Starts a server with a device.
async fn start() -> (Arc<Device>, Pki) {
    start_with(App::builder()).await
}

async fn start_with(builder: Builder) -> (Arc<Device>, Pki) {
    let device = Device::new();
    let app = builder.signers(device.clone()).start().await;
    (device, Pki { app })
}

/// Starts a server with a device; its mount `pki` has a key of this type in it, called `token`.
async fn with_key(key_type: &str) -> (Arc<Device>, Pki) {
    let (device, pki) = start_with(App::builder().settings(|settings| settings.max_duration = LIMIT)).await;
    device.make("token", key_type);
    pki.post("keys/generate/kms", json!({ "managed_key_name": "token", "key_name": "token" })).await;
    (device, pki)
}

/// Same as [`with_key`], with a root of that key, named `root`, and a role `r`.
async fn with_root(key_type: &str) -> (Arc<Device>, Pki) {
    let (device, pki) = with_key(key_type).await;
    pki.post("root/generate/existing", root("root")).await;
    pki.role(&json!({ "allow_any_name": true })).await;
    (device, pki)
}

fn root(name: &str) -> Value {
    json!({ "common_name": "Root", "issuer_name": name, "key_ref": "token", "not_after": FAR })
}

async fn delta(pki: &Pki) -> Crl {
    Crl::new(pki.fetch("GET", "crl/delta", &[]).await.bytes().await.unwrap().to_vec())
}

/// Creates a root and an intermediate with these managed keys, `root` and `below`. Returns both certificates, and the
/// identifier of the intermediate.
async fn chain(pki: &Pki, root_key: &str, below_key: &str) -> (String, String, String) {
    let root = json!({ "common_name": "Root", "issuer_name": "root", "managed_key_name": root_key, "not_after": FAR });
    let root = text(&pki.data("root/generate/kms", root).await, "certificate").to_owned();
    let wanted = json!({ "common_name": "Below", "managed_key_name": below_key, "key_name": "below" });
    let csr = pki.data("intermediate/generate/kms", wanted).await["csr"].clone();
    let signing = json!({ "csr": csr, "common_name": "Below", "ttl": "4h" });
    let below = pki.certify("root/sign-intermediate", signing).await.pem;
    let set = pki.data("intermediate/set-signed", json!({ "certificate": below })).await;
    let id = set["imported_issuers"][0].as_str().unwrap().to_owned();
    assert_eq!(set["mapping"][&id], pki.get("key/below").await["key_id"]);
    (root, below, id)
}

async fn everything_is_signed(key_type: &str) {
    let (device, pki) = with_root(key_type).await;
    let issuer = text(&pki.get("issuer/root").await, "certificate").to_owned();
    let leaf = pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
    openssl_verifies_chain(&issuer, &[], &leaf.pem).unwrap();
    let body = json!({ "csr": csr("ec-256", "/CN=b.test", ""), "common_name": "b.test" });
    pki.ask("sign/r", body.clone()).await;
    pki.ask("sign-verbatim", body.clone()).await;
    assert!(pki.certify("root/sign-intermediate", body).await.certificate.is_ca());
    let itself = pki.data("root/sign-self-issued", json!({ "certificate": issuer })).await;
    assert!(parse(text(&itself, "certificate")).is_signed_by(parse(&issuer).key()));
    let wanted = json!({ "common_name": "Below", "key_ref": "token" });
    let wanted = pki.data("intermediate/generate/existing", wanted).await;
    assert!(csr_text(text(&wanted, "csr")).contains("CN=Below"));
    pki.post("intermediate/cross-sign", json!({ "common_name": "Above", "key_ref": "token" })).await;

    let list = json!({ "crl_number": 7, "format": "pem" });
    let made = pki.data("issuer/root/sign-revocation-list", list).await;
    let (_, der) = signet::x509::pem::parse_first_block(text(&made, "crl")).unwrap().unwrap();
    assert!(Crl::new(der).is_signed_by(&issuer));
    let about = about(&issuer, &leaf);
    assert_eq!(pki.ocsp(&about).await.statuses(), ["good"]);
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true })).await;
    pki.revoke(&leaf).await;
    assert_eq!(pki.ocsp(&about).await.statuses(), ["revoked"]);
    pki.get("crl/rotate-delta").await;
    let complete = pki.crl("root").await;
    let added = delta(&pki).await;
    assert_eq!((complete.serials(), added.serials()), (vec![], vec![leaf.serial()]));
    pki.get("crl/rotate").await;
    let complete = pki.crl("root").await;
    assert_eq!(complete.serials(), [leaf.serial()]);
    assert!(complete.is_signed_by(&issuer) && added.is_signed_by(&issuer));

    let shown = pki.get("key/token").await;
    let kind = (&shown["key_type"], &shown["managed_key_name"], &shown["managed_key_id"]);
    let key_type = key_type.split('-').next().unwrap();
    assert_eq!(kind, (&key_type.into(), &"token".into(), &"uuid of token".into()));
    // The stored data is enough to load the key, and the CRLs need no new signature.
    let begun = device.begun.load(Ordering::SeqCst);
    let pki = pki.restart().await;
    assert_eq!(pki.crl("root").await.der, complete.der);
    assert_eq!(device.begun.load(Ordering::SeqCst), begun);
    pki.ask("issue/r", json!({ "common_name": "c.test" })).await;
    pki.stop().await;
}

#[actix_web::test]
async fn key_with_every_algorithm_signs_everything() {
    for key_type in ["ec", "rsa", "ed25519"] {
        everything_is_signed(key_type).await;
    }
}

#[actix_web::test]
async fn key_with_few_algorithms_signs_everything_by_default() {
    for key_type in ["rsa-pss", "rsa-512", "rsa-pss-512"] {
        everything_is_signed(key_type).await;
    }
}

#[actix_web::test]
async fn managed_key_is_named_linked_and_deleted_like_other_keys() {
    let (_device, pki) = with_root("ec").await;
    let before = pki.get("issuer/root").await;
    assert_eq!(pki.app.client.delete("pki/key/token").await.status, 400, "an issuer uses it");
    assert_eq!(pki.app.client.delete("pki/issuer/root").await.status, 200);
    pki.post("key/token", json!({ "key_name": "renamed" })).await;
    assert_eq!(pki.get("key/renamed").await["managed_key_name"], "token", "its own name stays");
    let imported = pki.post("issuers/import/cert", json!({ "pem_bundle": before["certificate"] })).await;
    let issuer = imported.body["data"]["imported_issuers"][0].as_str().unwrap().to_owned();
    assert_eq!(imported.body["data"]["mapping"][&issuer], before["key_id"]);
    pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
    let exported = pki.app.client.get("pki/key/renamed").await.text;
    assert!(!exported.contains("private_key"), "{exported}");
    assert_eq!(pki.app.client.delete(&format!("pki/issuer/{issuer}")).await.status, 200);
    let deleted = pki.app.client.delete("pki/key/renamed").await;
    assert!(deleted.warnings().contains("the deleted key was the default"), "{}", deleted.text);
    assert_eq!(pki.list("keys").await, [""; 0]);
    pki.stop().await;
}

#[actix_web::test]
async fn without_signers_a_managed_key_is_shown_and_signs_nothing() {
    let (_device, pki) = with_root("ec").await;
    let list = pki.crl("root").await;
    let pki = Pki { app: pki.app.restart_as(|builder| builder.signers(Arc::new(NoSigners))).await };
    for path in ["root/generate/existing", "intermediate/generate/existing", "issue/r"] {
        pki.refused(path, root("other"), "managed keys are not supported").await;
    }
    for path in kms_paths::PATHS {
        let rule = "unable to determine managed key id: managed keys are not supported";
        pki.refused(path, json!({ "common_name": "x", "managed_key_name": "token" }), rule).await;
    }
    assert_eq!(pki.crl("root").await.der, list.der);
    assert_eq!(pki.get("key/token").await["managed_key_id"], "uuid of token");
    pki.stop().await;
}

/// Failure modes, with the status for callers, and the HTTP and OCSP status for OCSP clients.
const FAILURES: [(Option<Mode>, u16, (u16, u8)); 6] = [
    (Some(Mode::Refuses(Kind::Invalid)), 400, (401, 6)),
    (Some(Mode::Refuses(Kind::Busy)), 503, (503, 3)),
    (Some(Mode::Refuses(Kind::Unavailable)), 503, (503, 3)),
    (Some(Mode::Dies), 503, (503, 3)),
    (Some(Mode::Lies), 502, (500, 2)),
    // The key may no longer be used.
    (None, 400, (401, 6)),
];

#[actix_web::test]
async fn failed_or_wrong_signature_is_an_error_and_not_stored() {
    let (device, pki) = with_root("ec").await;
    let issuer = text(&pki.get("issuer/root").await, "certificate").to_owned();
    let list = pki.crl("root").await;
    let client = &pki.app.client;
    for (mode, status, ocsp) in FAILURES {
        device.set(Mode::Slow);
        let leaf = pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
        let before = pki.stored().await;
        mode.map_or_else(|| device.deny(true), |mode| device.set(mode));
        let csr = csr("ec-256", "/CN=b.test", "");
        for (path, body) in [
            ("issue/r", json!({ "common_name": "b.test" })),
            ("sign-verbatim", json!({ "csr": csr })),
            ("root/sign-intermediate", json!({ "csr": csr, "common_name": "b.test" })),
            ("root/sign-self-issued", json!({ "certificate": issuer })),
            ("root/generate/existing", root("other")),
            ("intermediate/generate/existing", json!({ "common_name": "Below", "key_ref": "token" })),
            ("issuer/root/sign-revocation-list", json!({ "crl_number": 7 })),
        ] {
            let answer = client.post(&format!("pki/{path}"), body).await;
            assert_eq!(answer.status, status, "{mode:?} {path}: {}", answer.text);
            assert!(!answer.text.contains("internal error"), "{mode:?} {path}: {}", answer.text);
        }
        assert_eq!(pki.stored().await, before, "{mode:?}");
        pki.ocsp(&about(&issuer, &leaf)).await.assert_fails(ocsp.0, ocsp.1);
        assert_eq!(client.get("pki/crl/rotate").await.status, status, "{mode:?}");
        assert_eq!(pki.crl("root").await.number(), list.number(), "{mode:?}: the last list stays");
        device.deny(false);
    }
    device.set(Mode::Slow);
    pki.get("crl/rotate").await;
    assert!(pki.crl("root").await.number() > list.number());
    pki.stop().await;
}

#[actix_web::test]
async fn signed_root_is_rechecked_against_concurrent_changes() {
    let (device, pki) = with_key("ec").await;
    let client = &pki.app.client;
    for (change, rule) in [("name", "issuer_name: issuer name already in use"), ("key", "key_ref: no key")] {
        device.set(Mode::Hangs);
        let signed = device.begun.load(Ordering::SeqCst);
        let asked = async { client.post("pki/root/generate/existing", root("other")).await };
        let meanwhile = async {
            until(|| device.begun.load(Ordering::SeqCst) > signed).await;
            // A change does not wait for the signature.
            match change {
                "name" => drop(pki.root(json!({ "issuer_name": "other" })).await),
                _ => assert_eq!(client.delete("pki/key/token").await.status, 200),
            }
            let stored = pki.stored().await;
            device.set(Mode::Slow);
            stored
        };
        let (refused, stored) = tokio::join!(asked, meanwhile);
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.error().contains(rule), "{}", refused.text);
        assert_eq!(pki.stored().await, stored);
        client.delete("pki/issuer/other").await;
    }
    pki.stop().await;
}

async fn until(done: impl Fn() -> bool) {
    mount::until("the signer", async || done()).await;
}

/// Creates a mount with a root, and a role for any name.
async fn mount_with_root(client: &Client, name: &str, endpoint: &str, key: Value) {
    accepted(client.post(&format!("sys/mounts/{name}"), json!({ "type": "pki" })).await);
    let root = with(&json!({ "common_name": name, "not_after": FAR }), key);
    accepted(client.post(&format!("{name}/root/generate/{endpoint}"), root).await);
    accepted(client.post(&format!("{name}/roles/r"), json!({ "allow_any_name": true, "key_type": "ec" })).await);
}

/// Creates the mount `well`, whose key is in the process.
async fn well(client: &Client) {
    mount_with_root(client, "well", "internal", json!({ "key_type": "ec" })).await;
}

fn accepted(answer: Answer) -> Answer {
    assert!(matches!(answer.status, 200 | 204), "{}", answer.text);
    answer
}

async fn issued(client: &Client, mount: &str) -> String {
    let answer = accepted(client.post(&format!("{mount}/issue/r"), json!({ "common_name": "a.test" })).await);
    text(&answer.body["data"], "serial_number").to_owned()
}

#[actix_web::test]
async fn hanging_signer_delays_only_its_own_mount_for_a_limited_time() {
    let (device, pki) = with_root("ec").await;
    let client = &pki.app.client;
    // More mounts than slots for CRL builds.
    let mut hanging = vec![("pki".to_owned(), issued(client, "pki").await)];
    for name in ["one", "two", "three"] {
        device.make(name, "ec");
        mount_with_root(client, name, "kms", json!({ "managed_key_name": name })).await;
        hanging.push((name.to_owned(), issued(client, name).await));
    }
    well(client).await;
    let leaf = pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
    let about = about(text(leaf.data(), "issuing_ca"), &leaf);
    let certs = pki.list("certs").await;
    device.set(Mode::Hangs);
    let begun = device.begun.load(Ordering::SeqCst);

    // Enough for several requests on each worker.
    let body = json!({ "common_name": "b.test" });
    let issuing = join_all((0..16).map(|_| client.post("pki/issue/r", body.clone())));
    let revoking = join_all(hanging.iter().map(|(mount, serial)| {
        let path = format!("{mount}/revoke");
        async move { client.post(&path, json!({ "serial_number": serial })).await }
    }));
    let roots = async { client.post("pki/root/generate/existing", self::root("other")).await };
    let listing = async { client.post("pki/issuer/root/sign-revocation-list", json!({ "crl_number": 7 })).await };
    let asking = async { pki.ocsp(&about).await };
    let meanwhile = async {
        until(|| device.begun.load(Ordering::SeqCst) >= begun + 16 + hanging.len() + 3).await;
        let started = Instant::now();
        for _ in 0..4 {
            let serial = issued(client, "well").await;
            // The response waits for the CRL build.
            accepted(client.post("well/revoke", json!({ "serial_number": serial })).await);
        }
        // Changes, CRLs and reads of the same mount continue as well.
        pki.role(&json!({ "allow_any_name": true, "ttl": "1h" })).await;
        assert_eq!(pki.crl("root").await.serials(), [""; 0]);
        started.elapsed()
    };
    let started = Instant::now();
    let (issuing, revoking, roots, listing, asking, took) =
        tokio::join!(issuing, revoking, roots, listing, asking, meanwhile);
    assert!(took < LIMIT, "{took:?}");
    assert!(started.elapsed() < LIMIT + Duration::from_secs(3), "{:?}", started.elapsed());
    for answer in issuing.iter().chain(&revoking).chain([&roots, &listing]) {
        assert_eq!(
            (answer.status, answer.error()),
            (503, "request: not completed within the time limit (setting max_request_duration)"),
            "{}",
            answer.text
        );
    }
    assert_eq!(asking.status, 503);

    // Callers that timed out withdrew their jobs. One CRL build per mount still waits.
    until(|| device.taken_back.load(Ordering::SeqCst) == 16 + 3).await;
    device.set(Mode::Slow);
    pki.get("crl/rotate").await;
    assert_eq!(pki.crl("root").await.serials(), [hanging[0].1.clone()]);
    assert_eq!(pki.list("certs").await, certs, "nobody was there to take a certificate");
    assert_eq!(pki.list("issuers").await.len(), 1);
    issued(client, "pki").await;
    pki.stop().await;
}
