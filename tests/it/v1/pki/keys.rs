//! Keys without certificates: generated, imported and reused.

use serde_json::{Value, json};

use super::foreign::{self, Ca, new_key, openssl, openssl_text, openssl_verifies_chain};
use super::mount::{Pki, line, parse, text, with};

#[actix_web::test]
async fn root_can_reuse_the_key_of_another() {
    let pki = Pki::start().await;
    let first = pki.get("issuer/root").await;
    let request = json!({ "common_name": "Test Root", "key_ref": first["key_id"], "key_name": "unused" });
    let second = pki.warns("root/generate/existing", request, "key_name ignored").await.body["data"].clone();
    assert_eq!(second["key_id"], first["key_id"]);
    assert!(second.get("private_key").is_none());
    let one = parse(text(&first, "certificate"));
    let two = parse(text(&second, "certificate"));
    assert_eq!(one.subject_key_id(), two.subject_key_id());
    assert_ne!(one.serial(), two.serial());
    // Each could certify the other, but both are roots: neither chain contains the other.
    let a = line(text(&first, "certificate"));
    let b = line(text(&second, "certificate"));
    assert_eq!(pki.get("issuer/root").await["ca_chain"], json!([a]));
    let path = |data: &Value| format!("issuer/{}", text(data, "issuer_id"));
    assert_eq!(pki.get(&path(&second)).await["ca_chain"], json!([b]));
    assert_eq!(pki.crl("root").await.der, pki.crl(text(&second, "issuer_id")).await.der);
    assert_eq!(pki.list("keys").await.len(), 1);
    // With another name and by the other paths; the default key needs no reference.
    let third = pki.data("issuers/generate/root/existing", json!({ "common_name": "Other" })).await;
    assert_eq!(pki.get(&path(&third)).await["ca_chain"], json!([line(text(&third, "certificate"))]));
    let rotated = pki.data("root/rotate/existing", json!({ "common_name": "Test Root" })).await;
    assert_eq!((text(&rotated, "issuer_name"), &rotated["key_id"]), ("next", &first["key_id"]));
    assert_eq!(pki.get("issuer/next").await["ca_chain"].as_array().unwrap().len(), 1);
    let leaf = pki.leaf().await;
    for root in [&a, &b, &line(text(&rotated, "certificate"))] {
        openssl_verifies_chain(root, &[], &leaf.pem).unwrap();
    }
    // A restart computes the same chains.
    let before = pki.get("issuer/next").await;
    let pki = pki.restart().await;
    assert_eq!(pki.get("issuer/next").await, before);
    pki.stop().await;
}

#[actix_web::test]
async fn existing_key_excludes_key_type_and_bits() {
    let pki = Pki::start().await;
    for path in
        ["root/generate/existing", "root/rotate/existing", "intermediate/generate/existing", "intermediate/cross-sign"]
    {
        for (more, rule) in [
            (json!({ "key_type": "ec" }), "key_type, key_bits: must be absent"),
            (json!({ "key_bits": 256 }), "key_type, key_bits: must be absent"),
            (json!({ "key_ref": "unknown" }), "key_ref: no key"),
            (json!({ "key_ref": "" }), "key_ref: no key"),
        ] {
            pki.refused(path, with(&json!({ "common_name": "x" }), more), rule).await;
        }
    }
    let rule = "unable to determine managed key id: managed key \"k\" is not allowed for mount \"pki/\"";
    for path in ["root/generate/kms", "issuers/generate/root/kms", "root/rotate/kms", "intermediate/generate/kms"] {
        pki.refused(path, json!({ "common_name": "x", "managed_key_name": "k" }), rule).await;
    }
    pki.refused("keys/generate/kms", json!({ "managed_key_name": "k" }), rule).await;
    for path in ["keys/generate/existing", "keys/generate/foo", "intermediate/generate/foo"] {
        assert_eq!(pki.app.client.post(&format!("pki/{path}"), json!({})).await.status, 404, "{path}");
    }
    let empty = Pki::empty().await;
    empty.refused("root/generate/existing", json!({ "common_name": "x" }), "key_ref: no key").await;
    empty.stop().await;
    pki.stop().await;
}

#[actix_web::test]
async fn keys_are_generated_of_every_kind() {
    let pki = Pki::empty().await;
    let first = pki.data("keys/generate/internal", json!({ "key_type": "ec", "key_name": "one" })).await;
    let expected = json!({ "key_id": first["key_id"], "key_name": "one", "key_type": "ec" });
    assert_eq!(first, expected);
    assert_eq!(pki.get("config/keys").await["default"], first["key_id"]);
    for (request, label, kind) in [
        (json!({}), "RSA PRIVATE KEY", "rsa"),
        (json!({ "key_type": "ec", "key_bits": 384 }), "EC PRIVATE KEY", "ec"),
        (json!({ "key_type": "ed25519" }), "PRIVATE KEY", "ed25519"),
    ] {
        let data = pki.data("keys/generate/exported", request).await;
        assert_eq!(data["key_type"], kind);
        let private = text(&data, "private_key");
        assert!(private.starts_with(&format!("-----BEGIN {label}-----\n")), "{label}");
        let public = openssl(&["pkey", "-pubout", "-outform", "DER"], private.as_bytes());
        // The stored key is the exported one.
        let root = pki.data("root/generate/existing", json!({ "common_name": "x", "key_ref": data["key_id"] })).await;
        assert_eq!(parse(text(&root, "certificate")).key().spki(), public);
    }
    assert_eq!(pki.get("config/keys").await["default"], first["key_id"]);
    for (body, rule) in [
        (json!({ "key_bits": 1024 }), "key_bits: "),
        (json!({ "key_type": "ec", "key_bits": 224 }), "key_bits: a P-224 key"),
        (json!({ "key_type": "ec", "key_name": "one" }), "key_name: key name already in use"),
        (json!({ "key_type": "ec", "key_name": "default" }), "key_name: name is reserved"),
    ] {
        pki.refused("keys/generate/internal", body, rule).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn key_is_imported_once() {
    let pki = Pki::start().await;
    let one = new_key("ec-256");
    let other = new_key("ed25519");
    let first = pki.post("keys/import", json!({ "pem_bundle": one, "key_name": "mine" })).await;
    assert_eq!(first.warnings(), "");
    let data = &first.body["data"];
    assert_eq!((text(data, "key_name"), text(data, "key_type")), ("mine", "ec"));
    let again = json!({ "pem_bundle": one, "key_name": "renamed" });
    let again = pki.warns("keys/import", again, "already imported").await;
    assert_eq!(&again.body["data"], data);
    assert_eq!(pki.list("keys").await.len(), 2);
    let certificate = pki.default_pem().await;
    for (body, rule) in [
        (json!({ "pem_bundle": format!("{one}\n{other}") }), "pem_bundle: must be exactly one private key"),
        (json!({ "pem_bundle": format!("{other}\n{certificate}") }), "pem_bundle: must be exactly"),
        (json!({ "pem_bundle": certificate }), "pem_bundle: not a private key"),
        (json!({}), "pem_bundle: must be given"),
        (json!({ "pem_bundle": other, "key_name": "mine" }), "key_name: key name already in use"),
        (json!({ "pem_bundle": other, "key_name": "default" }), "key_name: name is reserved"),
        (json!({ "pem_bundle": format!("{other}-----BEGIN of another") }), "pem_bundle: invalid PEM block at index 1"),
        (json!({ "pem_bundle": new_key("ec-224") }), "pem_bundle: private key: a P-224 key"),
        (json!({ "pem_bundle": new_key("rsa-1024") }), "pem_bundle: private key: RSA keys below 2048"),
        (json!({ "pem_bundle": new_key("curve-secp256k1") }), "pem_bundle: private key: "),
    ] {
        pki.refused("keys/import", body, rule).await;
    }
    for cipher in [&["-aes256"][..], &["-traditional", "-aes256"]] {
        let arguments = [&["pkey", "-passout", "pass:word"][..], cipher].concat();
        let encrypted = openssl_text(&arguments, one.as_bytes());
        pki.refused("keys/import", json!({ "pem_bundle": encrypted }), "encrypted").await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn key_imported_later_makes_its_certificate_an_issuer() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Later");
    let imported = pki.data("issuers/import/cert", json!({ "pem_bundle": ca.pem })).await;
    let id = imported["imported_issuers"][0].as_str().unwrap();
    assert_eq!(imported["mapping"], json!({ id: "" }));
    assert_eq!(pki.get("config/issuers").await["default"], "");
    let key = pki.data("keys/import", json!({ "pem_bundle": ca.key })).await["key_id"].clone();
    assert_eq!(pki.get(&format!("issuer/{id}")).await["key_id"], key);
    assert_eq!(pki.get("config/issuers").await["default"], id);
    assert_eq!(pki.get("config/keys").await["default"], key);
    let leaf = pki.issue(&json!({}), json!({ "common_name": "localhost", "ttl": "1h" })).await;
    openssl_verifies_chain(&ca.pem, &[], &leaf.pem).unwrap();
    assert!(pki.crl("default").await.is_signed_by(&ca.pem));
    // The reverse order: first the key, then its certificate.
    let other = Ca::root("/CN=Other");
    let key = json!({ "pem_bundle": other.key, "key_name": "waits" });
    let key = pki.data("keys/import", key).await["key_id"].clone();
    let imported = pki.data("issuers/import/cert", json!({ "pem_bundle": other.pem })).await;
    assert_eq!(imported["mapping"], json!({ imported["imported_issuers"][0].as_str().unwrap(): key }));
    assert_eq!((&imported["imported_keys"], &imported["existing_keys"]), (&json!([]), &json!([])));
    // A key in use cannot be deleted.
    assert_eq!(pki.app.client.delete("pki/key/waits").await.status, 400);
    pki.stop().await;
}

fn encodings(key: &str) -> Vec<String> {
    let mut all = vec![key.to_owned()];
    if key.len() < 150 {
        return all; // Ed25519 has one form.
    }
    all.push(openssl_text(&["pkey", "-traditional"], key.as_bytes()));
    if all[1].contains("EC PRIVATE KEY") {
        // Both may omit the public key (RFC 5915 section 3), and parameters may precede the key.
        let bare = openssl_text(&["ec", "-no_public"], key.as_bytes());
        all.push(openssl_text(&["pkcs8", "-topk8", "-nocrypt"], bare.as_bytes()));
        all.push(bare);
        let curve = openssl_text(&["ec", "-param_out"], key.as_bytes());
        all.push(format!("{curve}{}", all[1]));
    }
    all
}

#[actix_web::test]
async fn keys_of_openssl_in_every_encoding_sign() {
    for kind in ["rsa-2048", "rsa-3072", "ec-256", "ec-384", "ec-521", "ed25519"] {
        let key = new_key(kind);
        let ca = Ca::root_with(key.clone(), &format!("/CN={kind}"), foreign::CA, &[]);
        for (at, encoding) in encodings(&key).into_iter().enumerate() {
            let pki = Pki::empty().await;
            let data = pki.data("config/ca", json!({ "pem_bundle": format!("{encoding}\n{}", ca.pem) })).await;
            let issuers = &data["imported_issuers"];
            let keys = &data["imported_keys"];
            assert_eq!(data["mapping"], json!({ issuers[0].as_str().unwrap(): keys[0] }), "{kind} {at}");
            let leaf = pki.issue(&json!({}), json!({ "common_name": "localhost", "ttl": "1h" })).await;
            openssl_verifies_chain(&ca.pem, &[], &leaf.pem).unwrap_or_else(|e| panic!("{kind} {at}: {e}"));
            assert!(pki.crl("default").await.is_signed_by(&ca.pem), "{kind} {at}");
            pki.stop().await;
        }
    }
}
