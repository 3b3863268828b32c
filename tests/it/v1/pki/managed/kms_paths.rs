//! Paths that end in `kms`: a mount takes a managed key into use.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use signet::error::Kind;
use signet::x509::csr::Csr;
use signet::x509::pem;

use super::device::{Mode, REFUSAL};
use super::{chain, start};
use crate::v1::pki::foreign::{CA, Ca, openssl_verifies_chain};
use crate::v1::pki::mount::{FAR, parse, text, with};
use crate::v1::rights::{granted, only};

/// All of these paths.
pub const PATHS: [&str; 6] = [
    "root/generate/kms",
    "root/rotate/kms",
    "issuers/generate/root/kms",
    "intermediate/generate/kms",
    "issuers/generate/intermediate/kms",
    "keys/generate/kms",
];

/// Returns a body that each of the paths accepts, without the key; `keys/generate` ignores it.
fn request(more: Value) -> Value {
    with(&json!({ "common_name": "Managed", "not_after": FAR }), more)
}

#[actix_web::test]
async fn each_kms_path_needs_its_own_right() {
    let (device, pki) = start().await;
    for (at, path) in PATHS.into_iter().enumerate() {
        let name = format!("token-{at}");
        let key_type = ["ec", "rsa", "ed25519"][at % 3];
        let public = device.make(&name, key_type);
        let client = only(&pki.app, &name, &granted(&format!("pki/{path}"), &["update"])).await;
        let by = match at % 2 {
            // Names are case-insensitive.
            0 => json!({ "managed_key_name": name.to_uppercase(), "managed_key_id": "" }),
            _ => json!({ "managed_key_id": format!("uuid of {name}") }),
        };
        let body = with(&request(by), json!({ "key_name": format!("key-{at}"), "format": "pem_bundle" }));
        for other in PATHS.into_iter().filter(|other| *other != path) {
            client.post(&format!("pki/{other}"), body.clone()).await.assert_denied();
        }
        let answer = client.post(&format!("pki/{path}"), body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert!(!answer.text.to_lowercase().replace(' ', "_").contains("private_key"), "{path}: {}", answer.text);
        let data = &answer.body["data"];
        assert_eq!(data["key_name"], format!("key-{at}"), "{path}");
        let shown = pki.get(&format!("key/key-{at}")).await;
        let named = (&shown["managed_key_name"], &shown["managed_key_id"], &shown["key_type"], &shown["key_id"]);
        let uuid = format!("uuid of {name}");
        assert_eq!(named, (&json!(name), &json!(uuid), &json!(key_type), &data["key_id"]), "{path}");
        if path.contains("root") {
            let root = parse(text(data, "certificate"));
            assert!(*root.key() == public && root.is_signed_by(&public), "{path}");
            assert_eq!(data["issuer_name"], if path.contains("rotate") { "next" } else { "" }, "{path}");
        } else if path.contains("intermediate") {
            let (_, der) = pem::parse_first_block(text(data, "csr")).unwrap().unwrap();
            let csr = Csr::from_der(&der).unwrap();
            csr.verify().unwrap();
            assert_eq!(csr.key, public, "{path}");
        } else {
            assert_eq!(data["key_type"], key_type, "{path}");
        }
    }
    assert_eq!(pki.list("keys").await.len(), PATHS.len());
    assert_eq!(pki.get("config/keys").await["default"], pki.get("key/key-0").await["key_id"]);
    pki.stop().await;
}

#[actix_web::test]
async fn key_name_or_id_is_required_and_key_type_is_rejected() {
    let (device, pki) = start().await;
    device.make("token", "ec");
    let kind = "invalid parameter for the kms/existing path parameter, key_type nor key_bits arguments can be set in \
                this mode";
    let unknown = format!("unable to determine managed key id: {REFUSAL}");
    let token = json!({ "managed_key_name": "token" });
    for path in PATHS {
        for (more, rule) in [
            (json!({}), "missing argument managed_key_name or managed_key_id"),
            (json!({ "managed_key_name": "", "managed_key_id": null }), "missing argument managed_key_name or"),
            (
                json!({ "managed_key_name": "token", "managed_key_id": "uuid of token" }),
                "only one argument of managed_key_name or managed_key_id should be specified",
            ),
            (with(&token, json!({ "key_type": "ec" })), kind),
            (with(&token, json!({ "key_bits": 256 })), kind),
            (json!({ "managed_key_name": ["token"] }), "managed_key_name"),
            (json!({ "managed_key_id": { "a": 1 } }), "managed_key_id"),
            (json!({ "managed_key_name": "x".repeat(129) }), "managed_key_name: longer than 128 bytes"),
            (json!({ "managed_key_name": "uuid of token" }), &unknown),
            (json!({ "managed_key_id": "token" }), &unknown),
            (with(&token, json!({ "key_name": "default" })), "key_name: name is reserved"),
        ] {
            pki.refused(path, request(more), rule).await;
        }
    }
    // Other errors are reported before the device is contacted.
    for path in ["root/generate/kms", "root/rotate/kms", "issuers/generate/root/kms"] {
        let body = with(&request(token.clone()), json!({ "ttl": "1h", "not_after": "2099-12-31T23:59:59Z" }));
        pki.refused(path, body, "ttl").await;
    }
    for path in PATHS.into_iter().filter(|path| !path.starts_with("keys")) {
        pki.refused(path, with(&token, json!({ "common_name": "" })), "common_name: ").await;
    }
    assert_eq!(device.taken.load(Ordering::SeqCst), 0);
    pki.stop().await;
}

#[actix_web::test]
async fn key_unsuitable_for_a_ca_is_rejected() {
    let (device, pki) = start().await;
    for (key_type, rule) in
        [("ec-224", "a P-224 key cannot sign certificates"), ("rsa-1024", "RSA keys below 2048 bits are not supported")]
    {
        device.make(key_type, key_type);
        for path in PATHS {
            for (field, key) in [("managed_key_name", key_type), ("managed_key_id", &format!("uuid of {key_type}"))] {
                pki.refused(path, request(json!({ field: key })), &format!("{field}: {rule}")).await;
            }
        }
    }
    device.show("weak", include_str!("../../../fixtures/roca-2048.key.pem"));
    let body = request(json!({ "managed_key_name": "weak" }));
    pki.refused("keys/generate/kms", body, "managed_key_name: the RSA key's primes").await;
    pki.stop().await;
}

#[actix_web::test]
async fn mount_without_grant_cannot_use_or_detect_a_key() {
    let (device, pki) = start().await;
    device.make("token", "ec");
    pki.post("root/generate/kms", request(json!({ "managed_key_name": "token", "issuer_name": "root" }))).await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let list = pki.crl("root").await;
    device.deny(true);
    for path in PATHS {
        let ask = async |named: Value| pki.app.client.post(&format!("pki/{path}"), request(named)).await;
        for (field, existing, missing) in
            [("managed_key_name", "token", "other"), ("managed_key_id", "uuid of token", "uuid of other")]
        {
            let existing = ask(json!({ field: existing })).await;
            let missing = ask(json!({ field: missing })).await;
            assert_eq!((existing.status, existing.error()), (400, missing.error()), "{path}");
        }
    }
    for path in ["issue/r", "issuer/root/issue/r"] {
        pki.refused(path, json!({ "common_name": "a.test" }), REFUSAL).await;
    }
    assert_eq!(pki.app.client.get("pki/crl/rotate").await.status, 400);
    // What is signed stays available, and the issuer can be read and written without a signature.
    assert_eq!(pki.crl("root").await.der, list.der);
    pki.post("issuer/root", json!({ "issuer_name": "renamed" })).await;
    assert_eq!(pki.get("issuer/renamed").await["revocation_signature_algorithm"], "");
    device.deny(false);
    pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
    pki.stop().await;
}

#[actix_web::test]
async fn repeated_use_of_a_managed_key_creates_one_mount_key() {
    let (device, pki) = start().await;
    device.make("token", "rsa");
    device.make("other", "ec");
    let first = pki.post("keys/generate/kms", json!({ "managed_key_name": "token", "key_name": "mine" })).await;
    assert_eq!(first.warnings(), "");
    let id = first.body["data"]["key_id"].clone();
    for path in PATHS {
        for (more, warned) in [
            (json!({ "managed_key_name": "token" }), false),
            (json!({ "managed_key_id": "uuid of token", "key_name": "mine" }), false),
            (json!({ "managed_key_name": "token", "key_name": "yours" }), true),
        ] {
            let answer = pki.post(path, request(more)).await;
            let data = &answer.body["data"];
            assert_eq!((&data["key_id"], &data["key_name"]), (&id, &json!("mine")), "{path}");
            assert_eq!(answer.warnings().contains("key_name ignored"), warned, "{path}: {}", answer.text);
        }
    }
    assert_eq!(json!(pki.list("keys").await), json!([id]));
    assert_eq!(pki.list("issuers").await.len(), 9);
    // A name in use is rejected before the device is contacted.
    let taken = device.taken.load(Ordering::SeqCst);
    for path in PATHS {
        let body = request(json!({ "managed_key_name": "other", "key_name": "mine" }));
        pki.refused(path, body, "key_name: key name already in use").await;
    }
    assert_eq!(device.taken.load(Ordering::SeqCst), taken);
    pki.stop().await;
}

#[actix_web::test]
async fn recreated_managed_key_is_rejected_until_used_again() {
    let (device, pki) = start().await;
    device.make("token", "ec");
    pki.post("root/generate/kms", request(json!({ "managed_key_name": "token", "issuer_name": "root" }))).await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let before = pki.get("issuer/root").await["key_id"].clone();
    device.recreate("token");
    pki.refused("issue/r", json!({ "common_name": "a.test" }), REFUSAL).await;
    let again = pki.post("keys/generate/kms", json!({ "managed_key_name": "token" })).await;
    assert_eq!(again.body["data"]["key_id"], before);
    assert!(again.warnings().contains("now signs with managed key \"token\""), "{}", again.text);
    let pki = pki.restart().await;
    let shown = pki.get(&format!("key/{}", before.as_str().unwrap())).await;
    assert_eq!(shown["managed_key_id"], "new uuid of token");
    pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
    pki.get("crl/rotate").await;
    pki.stop().await;
}

#[actix_web::test]
async fn imported_issuers_are_linked_to_a_managed_key_later() {
    let (device, pki) = start().await;
    let client = &pki.app.client;
    device.make("token", "ec");
    assert_eq!(client.post("sys/mounts/elsewhere", json!({ "type": "pki" })).await.status, 204);
    let root = request(json!({ "managed_key_name": "token" }));
    let root = client.post("elsewhere/root/generate/kms", root).await.body["data"]["certificate"].clone();
    let imported = pki.data("issuers/import/cert", json!({ "pem_bundle": root })).await;
    let id = imported["imported_issuers"][0].as_str().unwrap();
    assert_eq!(imported["mapping"][id], "");
    assert_eq!(pki.get("config/issuers").await["default"], "");
    let taken = pki.post("keys/generate/kms", json!({ "managed_key_name": "token" })).await;
    assert_eq!(taken.warnings(), "");
    assert_eq!(pki.get(&format!("issuer/{id}")).await["key_id"], taken.body["data"]["key_id"]);
    assert_eq!(pki.get("config/issuers").await["default"], id);
    let root = root.as_str().unwrap();
    assert!(pki.crl(id).await.is_signed_by(root));
    pki.role(&json!({ "allow_any_name": true })).await;
    let leaf = pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
    openssl_verifies_chain(root, &[], &leaf.pem).unwrap();
    pki.stop().await;
}

#[actix_web::test]
async fn private_and_managed_key_with_one_public_key_are_merged() {
    let (device, pki) = start().await;
    let begun = || device.begun.load(Ordering::SeqCst);
    // The managed key first: an imported private key is not stored, and the device keeps signing.
    let ca = Ca::root_with(device.share("shared"), "/CN=Shared", CA, &[]);
    let id = pki.data("keys/generate/kms", json!({ "managed_key_name": "shared" })).await["key_id"].clone();
    let imported = pki.data("issuers/import/bundle", json!({ "pem_bundle": ca.bundle() })).await;
    assert_eq!((&imported["imported_keys"], &imported["existing_keys"]), (&json!([]), &json!([id])));
    let again = pki.post("keys/import", json!({ "pem_bundle": ca.key })).await;
    assert_eq!(again.body["data"]["key_id"], id);
    assert!(again.warnings().contains("already imported"), "{}", again.text);
    pki.role(&json!({ "allow_any_name": true })).await;
    let before = begun();
    let leaf = pki.ask("issue/r", json!({ "common_name": "a.test", "ttl": "1h" })).await;
    openssl_verifies_chain(&ca.pem, &[], &leaf.pem).unwrap();
    assert_eq!(begun(), before + 1);
    // The private key first: it stays, and the device is not contacted.
    let local = Ca::root_with(device.share("local"), "/CN=Local", CA, &[]);
    let imported = pki.data("issuers/import/bundle", json!({ "pem_bundle": local.bundle() })).await;
    let taken = pki.post("keys/generate/kms", json!({ "managed_key_name": "local" })).await;
    assert_eq!(taken.body["data"]["key_id"], imported["imported_keys"][0]);
    assert!(taken.warnings().contains("the mount already has the private key"), "{}", taken.text);
    let before = begun();
    let path = format!("issuer/{}/issue/r", imported["imported_issuers"][0].as_str().unwrap());
    pki.ask(&path, json!({ "common_name": "a.test", "ttl": "1h" })).await;
    assert_eq!(begun(), before);
    pki.stop().await;
}

#[actix_web::test]
async fn chain_of_managed_keys_is_accepted_by_openssl() {
    for (root_type, below_type) in [("ec", "rsa"), ("rsa", "ec"), ("ed25519", "ed25519")] {
        let (device, pki) = start().await;
        device.make("root", root_type);
        device.make("below", below_type);
        let (root, below, id) = chain(&pki, "root", "below").await;
        pki.role(&json!({ "allow_any_name": true })).await;
        let leaf = pki.ask(&format!("issuer/{id}/issue/r"), json!({ "common_name": "a.test", "ttl": "1h" })).await;
        openssl_verifies_chain(&root, &[&below], &leaf.pem).unwrap();
        assert!(pki.crl(&id).await.is_signed_by(&below));
        pki.stop().await;
    }
}

#[actix_web::test]
async fn device_failure_is_reported_and_nothing_is_stored() {
    let (device, pki) = start().await;
    device.make("token", "ec");
    for (mode, status) in [
        (Mode::Refuses(Kind::Invalid), 400),
        (Mode::Refuses(Kind::Busy), 503),
        (Mode::Refuses(Kind::Unavailable), 503),
        (Mode::Refuses(Kind::BadGateway), 502),
        (Mode::Dies, 503),
    ] {
        device.set(mode);
        for path in PATHS {
            let before = pki.stored().await;
            let body = request(json!({ "managed_key_name": "token" }));
            let answer = pki.app.client.post(&format!("pki/{path}"), body).await;
            assert_eq!(answer.status, status, "{mode:?} {path}: {}", answer.text);
            let prefix = "failed to lookup public key from managed key: the device ";
            assert!(answer.error().starts_with(prefix), "{mode:?} {path}: {}", answer.text);
            assert_eq!(pki.stored().await, before, "{mode:?} {path}");
        }
    }
    // The public key that it returns is not the one that it signs with.
    device.set(Mode::Lies);
    for path in PATHS.into_iter().filter(|path| !path.starts_with("keys")) {
        let body = request(json!({ "managed_key_name": "token" }));
        let answer = pki.app.client.post(&format!("pki/{path}"), body).await;
        assert_eq!(answer.status, 502, "{path}: {}", answer.text);
    }
    assert_eq!(pki.list("keys").await, [""; 0]);
    device.set(Mode::Slow);
    for path in PATHS {
        pki.post(path, request(json!({ "managed_key_name": "token" }))).await;
    }
    pki.stop().await;
}
