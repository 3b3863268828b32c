//! `cloudckms` with its simulation.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use signet::keys::{CloudSettings, GoogleSettings};

use super::super::{issue, refused, shown, test, test_refused, tested, with, write};
use super::{shown_of_all, with_root};
use crate::signers::cloud::kms::{Fault, Kms};
use crate::support::App;
use crate::v1::pki::foreign::csr;
use crate::v1::pki::mount::FAR;

const KEY: &str = "cloudckms/web";

fn key(algorithm: &str) -> Value {
    json!({ "crypto_key": "key", "key_ring": "ring", "project": "project", "region": "europe-west3",
        "algorithm": algorithm })
}

fn generated(algorithm: &str) -> Value {
    with(key(algorithm), json!({ "allow_generate_key": "true", "any_mount": "true" }))
}

async fn server(google: GoogleSettings) -> App {
    App::builder().cloud(CloudSettings { google, ..CloudSettings::default() }).start().await
}

#[actix_web::test]
async fn key_is_generated_and_corrupt_responses_are_rejected() {
    let kms = Kms::start();
    let app = server(kms.settings()).await;
    write(&app, KEY, key("EC_SIGN_P256_SHA256")).await;
    let text = "configuration: key does not exist in backend and allow_generate_key is false";
    test_refused(&app, KEY, json!({}), text).await;
    assert!(kms.lock().keys.is_empty());
    // The service reports once that the key is being generated.
    write(&app, KEY, generated("EC_SIGN_P256_SHA256")).await;
    tested(&app, KEY, json!({})).await;
    assert_eq!(kms.lock().keys["key"].pending, 0);
    with_root(&app).await;
    issue(&app).await.assert_status(200);
    for (fault, text) in [
        (Fault::SignatureChecksum, "cloudckms: the key service: its response was corrupted in transit"),
        (Fault::DigestNotVerified, "cloudckms: the key service: its response is not for the digest that was sent"),
        (Fault::AnotherName, "cloudckms: the key service: its response is about another key"),
    ] {
        kms.lock().fault = Some(fault);
        let certs = app.client.list("pki/certs").await.body["data"].clone();
        issue(&app).await.assert_error(502, text);
        test_refused(&app, KEY, json!({}), &format!("configuration: {text}")).await;
        assert_eq!(app.client.list("pki/certs").await.body["data"], certs, "{fault:?}");
    }
    kms.lock().fault = None;
    assert_eq!(issue(&app).await.status, 200);
    app.stop().await;
}

#[actix_web::test]
async fn signature_scheme_follows_the_algorithm_of_the_key() {
    let kms = Kms::start();
    let app = server(kms.settings()).await;
    write(&app, KEY, generated("RSA_SIGN_PSS_2048_SHA256")).await;
    tested(&app, KEY, json!({})).await;
    tested(&app, KEY, json!({ "use_pss": true, "hash_algorithm": "sha2-256" })).await;
    for against in [json!({ "use_pss": false }), json!({ "hash_algorithm": "sha2-512" })] {
        let answer = test(&app, KEY, against.clone()).await;
        assert_eq!(answer.status, 400, "{against}: {}", answer.text);
        let text = "configuration: algorithm RSA_SIGN_PSS_2048_SHA256 supports only ";
        assert!(answer.error().starts_with(text), "{}", answer.text);
    }
    assert_eq!(kms.lock().keys.len(), 1);
    let shown = shown(&app.client, KEY).await;
    let own = with(key("RSA_SIGN_PSS_2048_SHA256"), json!({ "credentials": "", "crypto_key_version": "1" }));
    let terms = json!({ "allow_generate_key": true, "any_mount": true });
    assert_eq!(shown, with(shown_of_all("web", "cloudckms", &shown["UUID"], own), terms));
    app.stop().await;
}

#[actix_web::test]
async fn key_with_one_algorithm_issues_and_revokes_by_default() {
    let kms = Kms::start();
    let app = server(kms.settings()).await;
    for (algorithm, name) in
        [("RSA_SIGN_PSS_2048_SHA256", "SHA256WithRSAPSS"), ("RSA_SIGN_PKCS1_4096_SHA512", "SHA512WithRSA")]
    {
        let own = json!({ "crypto_key": name });
        write(&app, &format!("cloudckms/{}", name.to_lowercase()), with(generated(algorithm), own)).await;
        let root = json!({ "common_name": "Root", "issuer_name": name, "managed_key_name": name, "not_after": FAR });
        app.client.post("pki/root/generate/kms", root).await.assert_status(200);
        // A role's defaults are those of RSA keys.
        let role = json!({ "allow_any_name": true, "issuer_ref": name, "ttl": "1h" });
        assert_eq!(app.client.post("pki/roles/r", role).await.status, 200);
        let signed = json!({ "common_name": "a.test", "csr": csr("rsa-2048", "/CN=a.test", "") });
        let issued = app.client.post("pki/sign/r", signed).await.assert_status(200);
        let serial = &issued.body["data"]["serial_number"];
        app.client.post("pki/revoke", json!({ "serial_number": serial })).await.assert_status(200);
        let shown = app.client.get(&format!("pki/issuer/{name}")).await.body["data"].clone();
        assert_eq!(shown["revocation_signature_algorithm"], name);
    }
    app.stop().await;
}

#[actix_web::test]
async fn credentials_must_be_files_in_the_configured_folder() {
    let kms = Kms::start();
    kms.lock().make("key", "EC_SIGN_P256_SHA256", 0);
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("credentials");
    std::fs::create_dir(&folder).unwrap();
    kms.account(&folder.join("signer.json"));
    std::fs::copy(folder.join("signer.json"), root.path().join("outside.json")).unwrap();
    symlink(root.path().join("outside.json"), folder.join("link.json")).unwrap();
    symlink(root.path(), folder.join("up")).unwrap();
    let of = |path: &Path| with(key("EC_SIGN_P256_SHA256"), json!({ "credentials": path.to_str().unwrap() }));
    let app = server(GoogleSettings { credentials_dir: Some(folder.clone()), ..kms.settings() }).await;
    let outside = "credentials: must be the file that the environment names, or a file in google_credentials_dir";
    for path in [
        root.path().join("outside.json"),
        folder.join("../outside.json"),
        "/etc/passwd".into(),
        "signer.json".into(),
        folder.clone(),
    ] {
        refused(&app, KEY, of(&path), outside).await;
    }
    let linked = "credentials: must be a regular file that the server can read, not behind a symbolic link";
    for path in [folder.join("link.json"), folder.join("up/outside.json")] {
        refused(&app, KEY, of(&path), linked).await;
    }
    write(&app, KEY, of(&folder.join("signer.json"))).await;
    tested(&app, KEY, json!({})).await;
    assert!(kms.lock().tokens.iter().all(|token| token.starts_with("account-token-")));
    // A link that is created later is not followed.
    write(&app, KEY, of(&folder.join("later.json"))).await;
    test_refused(&app, KEY, json!({}), &format!("configuration: {linked}")).await;
    symlink(root.path().join("outside.json"), folder.join("later.json")).unwrap();
    test_refused(&app, KEY, json!({}), &format!("configuration: {linked}")).await;
    // Without a configured folder, no file is read.
    let app =
        app.restart_as(|builder| builder.cloud(CloudSettings { google: kms.settings(), ..CloudSettings::default() }));
    let app = app.await;
    refused(&app, "cloudckms/other", of(&folder.join("signer.json")), outside).await;
    test_refused(&app, KEY, json!({}), &format!("configuration: {outside}")).await;
    app.stop().await;
}
