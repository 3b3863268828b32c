//! Keys on SoftHSM through the routes: configuration, test signatures, use. Each test runs in its own process.

use serde_json::{Value, json};
use signet::error::Kind;
use signet::keys::Libraries;
use signet::keys::signing::{ManagedKey, ManagedKeyRef, Signers as _, SigningKey};
use signet::pki::actor::PlannedChange;
use signet::pki::mount::issuer::MountKey;
use signet::pki::mount::view::MountView;

use super::{delete, issue, refused, role, shown, test, test_refused, tested, with, write};
use crate::signers::hsm::{Hsm, PIN, tests_alone};
use crate::support::{App, until};
use crate::v1::pki::foreign::{Ca, csr, new_key, openssl_text};
use crate::v1::pki::mount::FAR;

tests_alone!(
    every_hash_name_works_with_rsa_and_ec,
    missing_key_is_generated_once_if_allowed,
    wrong_pin_is_tried_once_per_write_and_redacted_pin_is_kept,
    grants_and_usages_are_checked_for_every_signature,
    reinserted_token_issues_again_also_after_a_restart,
    replaced_key_signs_no_certificate,
    keys_of_one_token_share_its_login_and_other_pin_is_not_tried,
    key_without_public_object_uses_an_imported_certificate,
    key_without_public_object_uses_the_configured_public_key,
    rsa_key_without_public_object_reveals_its_public_part,
    generated_keys_sign_and_verify_and_do_nothing_else,
    mechanism_with_one_scheme_issues_by_default,
    token_with_unreadable_information_is_found_by_its_label,
    two_tokens_with_unreadable_information_are_ambiguous,
    pin_of_a_missing_token_is_not_tried_on_another,
    unreadable_token_next_to_another_is_not_matched_by_label,
);

const P256: [&str; 4] = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
const RSA: [&str; 4] = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];

async fn server(libraries: Libraries) -> App {
    App::builder().libraries(libraries).start().await
}

fn key(label: &str, mechanism: &str) -> Value {
    json!({ "library": "hsm", "token_label": "one", "key_label": label, "mechanism": mechanism, "pin": PIN })
}

async fn tune(app: &App, keys: Value) {
    let answer = app.client.post("sys/mounts/pki/tune", json!({ "allowed_managed_keys": keys })).await;
    // A change may warn about issuers that lose their key.
    assert!(matches!(answer.status, 200 | 204), "{}", answer.text);
}

async fn taken(app: &App, name: &str) -> signet::error::Result<ManagedKey> {
    let shared = app.shared();
    let mount = shared.auth.mounts().get("pki").unwrap().id;
    shared.managed_keys.start_use(mount, ManagedKeyRef::Name(name.to_owned()))?.await
}

/// Gives the mount `pki` the key, and creates a root with it and a role `r`.
async fn with_root(app: &App, name: &str) {
    let key = std::sync::Arc::new(taken(app, name).await.unwrap());
    let mount = key.mount;
    let name = name.to_owned();
    let plan = move |view: &MountView| {
        let mut next = view.clone();
        let signing = SigningKey::Managed(key.clone());
        let write = next.put_key(MountKey { id: format!("id-of-{name}"), name: name.clone(), version: 0, signing })?;
        Ok((PlannedChange { view: next, writes: vec![write], rebuild_crls: false }, name.clone()))
    };
    let name = app.shared().engine.authority(mount).unwrap().change(plan).await.unwrap();
    let root = json!({ "common_name": "Root", "issuer_name": "root", "key_ref": name, "not_after": FAR });
    app.client.post("pki/root/generate/existing", root).await.assert_status(200);
    role(app, json!({})).await;
}

async fn issued(app: &App) {
    issue(app).await.assert_status(200);
}

async fn every_hash_name_works_with_rsa_and_ec(hsm: &Hsm) {
    hsm.token("one");
    hsm.import("one", "ec", "0a", &P256);
    hsm.import("one", "rsa", "0b", &RSA);
    let app = server(hsm.libraries()).await;
    write(&app, "ec", key("ec", "0x1041")).await;
    write(&app, "rsa", key("rsa", "0x0001")).await;
    let words = ["sha1", "sha2-224", "sha2-256", "sha2-384", "sha2-512"];
    let more = ["sha3-224", "sha3-256", "sha3-384", "sha3-512", "sha256"];
    for word in words.into_iter().chain(more) {
        for name in ["ec", "rsa"] {
            tested(&app, name, json!({ "hash_algorithm": word })).await;
        }
    }
    for name in ["ec", "rsa"] {
        tested(&app, name, json!({})).await;
        tested(&app, name, json!({ "use_pss": "false" })).await;
        let text = "unsupported hash_algorithm \"sha-256\"";
        test_refused(&app, name, json!({ "hash_algorithm": "sha-256" }), text).await;
    }
    tested(&app, "rsa", json!({ "use_pss": true, "hash_algorithm": "sha2-384" })).await;
    test_refused(&app, "ec", json!({ "use_pss": true }), "configuration: use_pss: only for RSA keys").await;
    // A key with an unsupported mechanism can be stored.
    write(&app, "aes", key("ec", "0x1087")).await;
    test_refused(&app, "aes", json!({}), "configuration: unsupported mechanism 0x1087").await;
    app.stop().await;
}

async fn missing_key_is_generated_once_if_allowed(hsm: &Hsm) {
    hsm.token("one");
    let app = server(hsm.libraries()).await;
    tune(&app, json!("new,other")).await;
    write(&app, "new", key("new", "0x1041")).await;
    let forbidden = "key does not exist in backend and allow_generate_key is false";
    test_refused(&app, "new", json!({}), &format!("configuration: {forbidden}")).await;
    let error = taken(&app, "new").await.err().unwrap();
    assert_eq!((error.kind(), error.text()), (Kind::Invalid, forbidden));
    write(&app, "new", json!({ "allow_generate_key": "true", "curve": "P256" })).await;
    tested(&app, "new", json!({})).await;
    write(&app, "new", json!({ "allow_generate_key": "false" })).await;
    tested(&app, "new", json!({})).await;
    let made = taken(&app, "new").await.unwrap();
    write(&app, "new", json!({ "allow_generate_key": "true" })).await;
    tested(&app, "new", json!({})).await;
    assert!(taken(&app, "new").await.unwrap().public == made.public, "the same key");
    let rsa = with(key("other", "0x0001"), json!({ "allow_generate_key": true, "key_bits": "2048" }));
    write(&app, "other", rsa).await;
    assert_eq!(taken(&app, "other").await.unwrap().public.kind().bits(), 2048, "made when a mount takes it");
    let by_id = json!({ "key_label": "", "key_id": "0e0f", "allow_generate_key": true });
    write(&app, "other", by_id).await;
    let text = "configuration: key does not exist in backend: it is looked up by key_id, which the module assigns \
                when it generates a key";
    test_refused(&app, "other", json!({}), text).await;
    app.stop().await;
}

async fn wrong_pin_is_tried_once_per_write_and_redacted_pin_is_kept(hsm: &Hsm) {
    hsm.token("one");
    hsm.import("one", "web", "0a", &P256);
    let app = server(hsm.shim()).await;
    tune(&app, json!("web")).await;
    let wrong = "configuration: pkcs11 module: C_Login: CKR_PIN_INCORRECT";
    write(&app, "web", with(key("web", "0x1041"), json!({ "pin": "wrong" }))).await;
    assert_eq!(hsm.calls("C_Login"), 0, "a write asks no module");
    test_refused(&app, "web", json!({}), wrong).await;
    assert_eq!(hsm.calls("C_Login"), 1);
    for _ in 0..3 {
        assert_eq!(taken(&app, "web").await.err().unwrap().kind(), Kind::BadGateway);
    }
    assert_eq!(hsm.calls("C_Login"), 0, "mounts do not try it again");
    test_refused(&app, "web", json!({}), wrong).await;
    assert_eq!(hsm.calls("C_Login"), 1, "an operator does");
    write(&app, "web", json!({ "pin": "redacted", "max_parallel": 2 })).await;
    for _ in 0..3 {
        assert_eq!(taken(&app, "web").await.err().unwrap().kind(), Kind::BadGateway);
    }
    assert_eq!(hsm.calls("C_Login"), 1, "written again, it is tried once");
    write(&app, "web", json!({ "pin": PIN })).await;
    with_root(&app, "web").await;
    issued(&app).await;
    let pin = shown(&app.client, "web").await["pin"].clone();
    write(&app, "web", json!({ "pin": pin })).await;
    tested(&app, "web", json!({})).await;
    issued(&app).await;
    app.stop().await;
}

async fn grants_and_usages_are_checked_for_every_signature(hsm: &Hsm) {
    hsm.token("one");
    hsm.import("one", "web", "0a", &P256);
    let app = server(hsm.libraries()).await;
    write(&app, "web", key("web", "0x1041")).await;
    tune(&app, json!("web")).await;
    with_root(&app, "web").await;
    issued(&app).await;
    let refusal = "managed key \"web\" is not allowed for mount \"pki/\"";
    let refused = async |text: &str| {
        for answer in [issue(&app).await, app.client.get("pki/crl/rotate").await] {
            assert_eq!((answer.status, answer.error()), (400, text), "{}", answer.text);
        }
    };
    tune(&app, json!([])).await;
    refused(refusal).await;
    write(&app, "web", json!({ "any_mount": "true" })).await;
    issued(&app).await;
    write(&app, "web", json!({ "usages": "verify" })).await;
    refused("managed key \"web\" does not allow usage sign").await;
    write(&app, "web", json!({ "usages": "sign" })).await;
    issued(&app).await;
    // The token's key under another UUID is another key.
    delete(&app, "web").await;
    refused(refusal).await;
    write(&app, "web", with(key("web", "0x1041"), json!({ "any_mount": true }))).await;
    let other = "was deleted, and its name now refers to another key; add that key (keys/generate/kms)";
    refused(&format!("managed key \"web\" {other}")).await;
    app.stop().await;
}

async fn reinserted_token_issues_again_also_after_a_restart(hsm: &Hsm) {
    hsm.token("one");
    hsm.import("one", "web", "0a", &RSA);
    let app = server(hsm.libraries()).await;
    write(&app, "web", with(key("web", "0x0001"), json!({ "any_mount": true, "max_parallel": 2 }))).await;
    with_root(&app, "web").await;
    issued(&app).await;
    let app = app.restart().await;
    issued(&app).await;
    hsm.remove_tokens();
    let gone = issue(&app).await;
    assert_eq!((gone.status, gone.header("retry-after")), (503, "1"), "{}", gone.text);
    let other = json!({ "common_name": "Local", "issuer_name": "local", "key_type": "ec" });
    assert_eq!(app.client.post("pki/root/generate/internal", other).await.status, 200, "others go on");
    hsm.restore_tokens();
    until("it comes back", async || issue(&app).await.status == 200).await;
    app.stop().await;
}

async fn replaced_key_signs_no_certificate(hsm: &Hsm) {
    hsm.token("one");
    hsm.import("one", "web", "0a", &P256);
    hsm.import("one", "other", "0b", &P256);
    let app = server(hsm.libraries()).await;
    write(&app, "web", with(key("web", "0x1041"), json!({ "any_mount": true }))).await;
    with_root(&app, "web").await;
    write(&app, "web", json!({ "key_label": "other" })).await;
    issue(&app).await.assert_error(502, "managed key changed in backend");
    tested(&app, "web", json!({})).await;
    write(&app, "web", json!({ "key_label": "web" })).await;
    issued(&app).await;
    let page = app.client.page("/metrics").await.text;
    assert!(page.contains("signet_signer_errors_total{key=\"web\",kind=\"changed\"} 1"), "{page}");
    app.stop().await;
}

async fn keys_of_one_token_share_its_login_and_other_pin_is_not_tried(hsm: &Hsm) {
    hsm.token("one");
    hsm.import("one", "web", "0a", &P256);
    hsm.import("one", "mail", "0b", &RSA);
    let app = server(hsm.shim()).await;
    write(&app, "web", key("web", "0x1041")).await;
    write(&app, "mail", key("mail", "0x000d")).await;
    tested(&app, "web", json!({})).await;
    tested(&app, "mail", json!({})).await;
    assert_eq!(hsm.calls("C_Login"), 1);
    write(&app, "guess", with(key("web", "0x1041"), json!({ "pin": "guess" }))).await;
    let text = "configuration: a different pin is in use for this token";
    test_refused(&app, "guess", json!({}), text).await;
    assert_eq!(hsm.calls("C_Login"), 0);
    tested(&app, "web", json!({})).await;
    app.stop().await;
}

const NO_PUBLIC_PART: &str = "configuration: the token does not return the public key; set public_key, or import the \
                              certificate of the key into a mount that may use the key";

/// A server whose token `one` has only the private object of this key. Every mount may use it as `web`.
async fn with_private_part(hsm: &Hsm, pem: &str, mechanism: &str) -> App {
    hsm.token("one");
    hsm.import_private("one", "imported", pem);
    let app = server(hsm.libraries()).await;
    write(&app, "web", with(key("imported", mechanism), json!({ "any_mount": "true" }))).await;
    app
}

async fn key_without_public_object_uses_an_imported_certificate(hsm: &Hsm) {
    let ca = Ca::root("/CN=Imported");
    let other = Ca::root("/CN=Other");
    let app = with_private_part(hsm, &ca.key, "0x1041").await;
    test_refused(&app, "web", json!({}), NO_PUBLIC_PART).await;
    app.client.post("pki/keys/generate/kms", json!({ "managed_key_name": "web" })).await.assert_status(400);
    // The certificate of another key does not help.
    let import = async |ca: &Ca| {
        let imported =
            app.client.post("pki/issuers/import/cert", json!({ "pem_bundle": ca.pem })).await.assert_status(200);
        imported.body["data"]["imported_issuers"][0].as_str().unwrap().to_owned()
    };
    import(&other).await;
    test_refused(&app, "web", json!({}), NO_PUBLIC_PART).await;
    let issuer = import(&ca).await;
    tested(&app, "web", json!({})).await;
    app.client.post("pki/keys/generate/kms", json!({ "managed_key_name": "web" })).await.assert_status(200);
    role(&app, json!({ "issuer_ref": issuer })).await;
    issued(&app).await;
    // After a restart, the mount's certificate is enough.
    let app = app.restart().await;
    issued(&app).await;
    tested(&app, "web", json!({})).await;
    app.stop().await;
}

async fn key_without_public_object_uses_the_configured_public_key(hsm: &Hsm) {
    let pem = new_key("ec-256");
    let app = with_private_part(hsm, &pem, "0x1041").await;
    let public = |pem: &str| openssl_text(&["pkey", "-pubout"], pem.as_bytes());
    for (text, rule) in [
        ("none", "public_key must be one PEM block PUBLIC KEY"),
        (pem.as_str(), "public_key must be one PEM block PUBLIC KEY"),
    ] {
        refused(&app, "web", json!({ "public_key": text }), rule).await;
    }
    write(&app, "web", json!({ "public_key": public(&new_key("ec-256")) })).await;
    test_refused(&app, "web", json!({}), NO_PUBLIC_PART).await;
    write(&app, "web", json!({ "public_key": public(&pem) })).await;
    assert_eq!(shown(&app.client, "web").await["public_key"], public(&pem));
    tested(&app, "web", json!({})).await;
    let root = json!({ "common_name": "Root", "managed_key_name": "web", "not_after": FAR });
    app.client.post("pki/root/generate/kms", root).await.assert_status(200);
    app.stop().await;
}

async fn rsa_key_without_public_object_reveals_its_public_part(hsm: &Hsm) {
    let app = with_private_part(hsm, &new_key("rsa-2048"), "0x0001").await;
    tested(&app, "web", json!({})).await;
    app.stop().await;
}

async fn generated_keys_sign_and_verify_and_do_nothing_else(hsm: &Hsm) {
    hsm.token("one");
    let app = server(hsm.libraries()).await;
    for (label, mechanism, more) in
        [("rsa", "0x000d", json!({ "key_bits": 2048 })), ("ec", "0x1041", json!({ "curve": "P256" }))]
    {
        let generated = with(key(label, mechanism), json!({ "allow_generate_key": "true" }));
        write(&app, label, with(generated, more)).await;
        tested(&app, label, json!({})).await;
    }
    let objects = hsm.objects("one");
    let usages: Vec<&str> = objects.lines().filter_map(|line| line.trim().strip_prefix("Usage:")).collect();
    assert_eq!(usages.len(), 4, "{objects}");
    assert!(usages.iter().all(|usage| matches!(usage.trim(), "sign" | "verify")), "{objects}");
    app.stop().await;
}

async fn mechanism_with_one_scheme_issues_by_default(hsm: &Hsm) {
    hsm.token("one");
    let app = server(hsm.libraries()).await;
    let body = json!({ "allow_generate_key": "true", "key_bits": 2048, "any_mount": "true" });
    write(&app, "web", with(key("web", "0x000d"), body)).await;
    let root = json!({ "common_name": "Root", "managed_key_name": "web", "not_after": FAR });
    app.client.post("pki/root/generate/kms", root).await.assert_status(200);
    // A role with defaults, which are those of RSA keys.
    assert_eq!(app.client.post("pki/roles/r", json!({ "allow_any_name": true, "ttl": "1h" })).await.status, 200);
    let signed = json!({ "common_name": "a.test", "csr": csr("rsa-2048", "/CN=a.test", "") });
    app.client.post("pki/sign/r", signed).await.assert_status(200);
    app.stop().await;
}

async fn token_with_unreadable_information_is_found_by_its_label(hsm: &Hsm) {
    hsm.token("one");
    let app = server(hsm.shim()).await;
    hsm.order("C_GetTokenInfo", &["nonsense"; 400]);
    let body = json!({ "allow_generate_key": "true", "curve": "P256" });
    write(&app, "web", with(key("web", "0x1041"), body)).await;
    tested(&app, "web", json!({})).await;
    assert!(hsm.calls("C_GetTokenInfo") > 0);
    app.stop().await;
}

async fn two_tokens_with_unreadable_information_are_ambiguous(hsm: &Hsm) {
    hsm.token("one");
    hsm.token("two");
    let app = server(hsm.shim()).await;
    hsm.order("C_GetTokenInfo", &["nonsense"; 400]);
    write(&app, "web", key("web", "0x1041")).await;
    test(&app, "web", json!({})).await.assert_error_has(400, "cannot be read; set slot instead of token_label");
    assert_eq!(hsm.calls("C_Login"), 0, "the PIN is tried on none");
    app.stop().await;
}

/// Asserts that a test signature finds no token and sends no PIN.
async fn absent(app: &App, hsm: &Hsm, name: &str) {
    hsm.calls("C_Login");
    test(app, name, json!({})).await.assert_error_has(503, "pkcs11 token: not found");
    assert_eq!(hsm.calls("C_Login"), 0, "the PIN is sent to no token");
}

async fn pin_of_a_missing_token_is_not_tried_on_another(hsm: &Hsm) {
    hsm.token("one");
    let app = server(hsm.shim()).await;
    let generated = json!({ "allow_generate_key": "true", "curve": "P256" });
    write(&app, "web", with(key("web", "0x1041"), generated.clone())).await;
    tested(&app, "web", json!({})).await;
    // The label was read before, but an unreadable token may be another one.
    hsm.order("C_GetTokenInfo", &["nonsense"; 400]);
    write(&app, "second", with(key("second", "0x1041"), generated)).await;
    absent(&app, hsm, "second").await;
    // A slot whose token disappears during the lookup.
    let slot = json!({ "token_label": "", "slot": hsm.slot("one") });
    write(&app, "third", with(key("web", "0x1041"), slot)).await;
    hsm.order("C_GetTokenInfo", &[["nonsense", "0xe0"]; 100].concat());
    absent(&app, hsm, "third").await;
    app.stop().await;
}

async fn unreadable_token_next_to_another_is_not_matched_by_label(hsm: &Hsm) {
    hsm.token("one");
    hsm.token("two");
    let app = server(hsm.shim()).await;
    let label = json!({ "token_label": "gone" });
    write(&app, "web", with(key("web", "0x1041"), label)).await;
    // One of the two tokens is unreadable in each lookup.
    hsm.order("C_GetTokenInfo", &[["nonsense", "", ""]; 100].concat());
    absent(&app, hsm, "web").await;
    app.stop().await;
}
