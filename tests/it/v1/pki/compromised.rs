//! Keys that are known to be compromised are not certified again, and nothing lets others make OCSP responders.

use serde_json::{Value, json};

use super::foreign::{csr, key, openssl_text};
use super::mount::{Pki, with};
use crate::support::{App, Client};

const REFUSED: &str = "this key is known to be compromised";

fn any() -> Value {
    json!({ "key_type": "any" })
}

/// A mount whose role `r` certifies every key.
async fn mount(client: &Client, path: &str) {
    let root = json!({ "common_name": "Other Root", "key_type": "ec", "ttl": "8760h" });
    assert_eq!(client.post(&format!("sys/mounts/{path}"), json!({ "type": "pki" })).await.status, 204);
    assert_eq!(client.post(&format!("{path}/root/generate/internal"), root).await.status, 200);
    let role = with(&any(), json!({ "allow_any_name": true }));
    assert_eq!(client.post(&format!("{path}/roles/r"), role).await.status, 200);
}

async fn refused_everywhere(app: App) -> App {
    let pki = Pki::on(app).await;
    let request = csr("ec-256", "/CN=localhost", "");
    let leaf = pki.sign(&any(), json!({ "csr": request })).await;
    let body = json!({ "serial_number": leaf.serial(), "private_key": key("ec-256") });
    assert_eq!(pki.post("revoke-with-key", body).await.body["data"]["state"], "revoked");
    assert!(pki.crl("default").await.entry(&leaf.serial()).unwrap().contains("Key Compromise"));
    let before = json!({ "csr": request, "common_name": "Sub" });
    for path in ["sign/r", "sign-verbatim", "sign-verbatim/r", "root/sign-intermediate", "issuer/default/sign/r"] {
        pki.refused(path, before.clone(), REFUSED).await;
    }
    pki.refused("keys/import", json!({ "pem_bundle": key("ec-256") }), REFUSED).await;
    // A certificate of an authority with that key, made elsewhere.
    let text =
        openssl_text(&["req", "-x509", "-new", "-key", "/dev/stdin", "-subj", "/CN=Foreign"], key("ec-256").as_bytes());
    pki.refused("issuers/import/cert", json!({ "pem_bundle": text }), REFUSED).await;
    pki.refused("root/sign-self-issued", json!({ "certificate": text }), REFUSED).await;
    let bundle = format!("{}\n{text}", key("ec-256"));
    pki.refused("issuers/import/bundle", json!({ "pem_bundle": bundle }), REFUSED).await;
    mount(&pki.app.client, "other").await;
    let elsewhere = pki.app.client.post("other/sign/r", json!({ "csr": request })).await;
    assert!(elsewhere.status == 400 && elsewhere.error().contains(REFUSED), "{}", elsewhere.text);

    // By reason, too; another key is certified as before, also after a start.
    let second = pki.sign(&any(), json!({ "csr": csr("ec-384", "/CN=localhost", "") })).await;
    pki.post("revoke", json!({ "serial_number": second.serial(), "reason": "superseded" })).await;
    pki.sign(&any(), json!({ "csr": csr("ec-384", "/CN=localhost", "") })).await;
    pki.post("revoke", json!({ "serial_number": second.serial(), "reason": "keyCompromise" })).await;
    pki.refused("sign/r", json!({ "csr": csr("ec-384", "/CN=localhost", "") }), REFUSED).await;
    let pki = Pki { app: pki.app.restart().await };
    pki.refused("sign/r", json!({ "csr": csr("ec-384", "/CN=localhost", "") }), REFUSED).await;
    pki.sign(&any(), json!({ "csr": csr("ed25519", "/CN=localhost", "") })).await;
    pki.app
}

#[actix_web::test]
async fn a_compromised_key_is_refused_in_every_way_to_certify_it() {
    refused_everywhere(App::start().await).await.stop().await;
}

#[actix_web::test]
async fn a_compromised_key_is_refused_on_postgresql_and_by_other_nodes() {
    let app = refused_everywhere(App::builder().postgres().start().await).await;
    let other = app.another().await;
    let public = openssl_text(&["pkey", "-pubout"], key("ed25519").as_bytes());
    let answer = app.client.post("sys/compromised-keys", json!({ "public_key": public })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let request = json!({ "csr": csr("ed25519", "/CN=localhost", "") });
    let mut refused = false;
    for _ in 0..500 {
        refused = other.client.post("pki/sign/r", request.clone()).await.status == 400;
        if refused {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(refused, "the other node follows");
    other.stop().await;
    app.stop().await;
}

#[actix_web::test]
async fn authorities_with_a_compromised_key_are_not_made() {
    let pki = Pki::start().await;
    let imported = pki.post("keys/import", json!({ "pem_bundle": key("ec-256") })).await.body["data"].clone();
    let public = openssl_text(&["pkey", "-pubout"], key("ec-256").as_bytes());
    assert_eq!(pki.app.client.post("sys/compromised-keys", json!({ "public_key": public })).await.status, 200);
    let body = json!({ "common_name": "Existing", "key_ref": imported["key_id"], "ttl": "1h" });
    for path in ["root/generate/existing", "intermediate/generate/existing", "intermediate/cross-sign"] {
        pki.refused(path, body.clone(), REFUSED).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn operators_list_add_and_remove_compromised_keys() {
    let pki = Pki::start().await;
    let client = pki.app.client.clone();
    assert_eq!(client.list("sys/compromised-keys").await.status, 404);
    let hash = "ab".repeat(32);
    let path = format!("sys/compromised-keys/{hash}");
    let added = client.post(&path, json!({ "note": "boot image 7" })).await;
    assert_eq!((added.status, &added.body["data"]["hash"]), (200, &json!(hash)), "{}", added.text);
    let shown = client.get(&path).await.body["data"].clone();
    assert_eq!((&shown["source"], &shown["note"]), (&json!("operator"), &json!("boot image 7")));
    assert_eq!(client.list("sys/compromised-keys").await.body["data"]["keys"], json!([hash]));
    for form in [openssl_text(&["pkey", "-pubout"], key("ec-256").as_bytes()), csr("ec-256", "/CN=localhost", "")] {
        let added = client.post("sys/compromised-keys", json!({ "public_key": form })).await;
        assert_eq!(added.status, 200, "{}", added.text);
    }
    let listed = client.list("sys/compromised-keys").await.body["data"]["keys"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 2, "one key however it was given");
    pki.role(&any()).await;
    pki.refused("sign/r", json!({ "csr": csr("ec-256", "/CN=localhost", "") }), REFUSED).await;
    for hash in listed.as_array().unwrap() {
        let path = format!("sys/compromised-keys/{}", hash.as_str().unwrap());
        assert_eq!((client.delete(&path).await.status, client.delete(&path).await.status), (204, 204));
    }
    pki.ask("sign/r", json!({ "csr": csr("ec-256", "/CN=localhost", "") })).await;
    for (path, body, text) in [
        ("sys/compromised-keys/abc", json!({}), "hash: "),
        ("sys/compromised-keys", json!({}), "public_key: "),
        ("sys/compromised-keys", json!({ "public_key": "x" }), "public_key: "),
        ("sys/compromised-keys", json!({ "public_key": key("ec-256") }), "public_key: must be a PEM block"),
        (&path[..], json!({ "note": "x".repeat(600) }), "note: "),
    ] {
        let answer = client.post(path, body).await;
        assert!(answer.status == 400 && answer.error().contains(text), "{path}: {}", answer.text);
    }
    pki.app
        .policy(
            "keys",
            "path \"sys/compromised-keys*\" { capabilities = [\"update\", \"list\", \"delete\", \"read\"] }",
        )
        .await;
    let plain = pki.app.with_policies(&["keys"]).await;
    plain.list("sys/compromised-keys").await.assert_denied();
    plain.post(&path, json!({})).await.assert_denied();
    plain.delete(&path).await.assert_denied();
    pki.stop().await;
}

#[actix_web::test]
async fn ocsp_responders_are_made_by_roles_that_say_so() {
    let pki = Pki::start().await;
    let responder = csr("ec-256", "/CN=localhost", "extendedKeyUsage=critical,OCSPSigning");
    pki.role(&any()).await;
    for path in ["sign-verbatim", "sign-verbatim/r"] {
        pki.refused(path, json!({ "csr": responder }), "csr: extKeyUsage has OCSPSigning").await;
        let asked = json!({ "csr": csr("ec-256", "/CN=localhost", ""), "ext_key_usage": "OCSPSigning" });
        pki.refused(path, asked, "ext_key_usage: OCSPSigning").await;
        let dotted = json!({ "csr": csr("ec-256", "/CN=localhost", ""), "ext_key_usage_oids": "1.3.6.1.5.5.7.3.9" });
        pki.refused(path, dotted, "ext_key_usage: OCSPSigning").await;
    }
    let warnings = pki.role(&with(&any(), json!({ "ext_key_usage": "OCSPSigning" }))).await;
    assert!(warnings.contains("OCSP responders"), "{warnings}");
    pki.ask("sign-verbatim/r", json!({ "csr": responder })).await;
    pki.stop().await;
}
