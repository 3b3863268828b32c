//! Revocation with a proof of possession of the private key.

use base64::Engine as _;
use serde_json::{Value, json};
use signet::x509::pem;

use super::foreign::{CA, Ca, csr, key, openssl_text};
use super::mount::{Pki, parse, text};

const PATH: &str = "revoke-with-key";

/// Issues a certificate with a key in one of the forms of `private_key_format`. Returns serial number, certificate and
/// key.
async fn issued(pki: &Pki, role: Value, format: &str) -> (String, String, String) {
    pki.role(&role).await;
    let body = json!({ "common_name": "localhost", "private_key_format": format });
    let data = pki.data("issue/r", body).await;
    let [serial, certificate, key] =
        ["serial_number", "certificate", "private_key"].map(|name| text(&data, name).to_owned());
    (serial, certificate, key)
}

async fn revoked(pki: &Pki) -> Vec<String> {
    pki.crl("default").await.serials()
}

#[actix_web::test]
async fn matching_key_of_every_type_and_format_revokes() {
    let pki = Pki::start().await;
    let mut count = 0;
    for (kind, bits) in [("rsa", 2048), ("ec", 224), ("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0)] {
        for format in ["der", "pkcs8"] {
            let (serial, certificate, key) = issued(&pki, json!({ "key_type": kind, "key_bits": bits }), format).await;
            let body = match format {
                "der" => json!({ "serial_number": serial, "private_key": key }),
                _ => json!({ "certificate": certificate, "private_key": key, "reason": "superseded" }),
            };
            let answer = pki.post(PATH, body.clone()).await;
            assert_eq!(answer.body["data"]["state"], "revoked", "{kind} {bits} {format}");
            assert_eq!(answer.warnings().contains("reason: ignored"), format == "pkcs8", "{}", answer.text);
            count += 1;
            let crl = pki.crl("default").await;
            assert_eq!((crl.serials().contains(&serial), crl.serials().len()), (true, count));
            assert!(crl.entry(&serial).unwrap().contains("Key Compromise"), "whatever reason was given");
            // A second time, and by a plain revocation, the response is the same.
            assert_eq!(pki.post(PATH, body).await.body["data"], answer.body["data"]);
            let plain = pki.post("revoke", json!({ "serial_number": serial })).await;
            assert_eq!(plain.body["data"], answer.body["data"]);
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn openssl_key_formats_are_accepted() {
    let pki = Pki::start().await;
    for kind in ["rsa-2048", "ec-224", "ec-256", "ec-384", "ec-521", "ed25519"] {
        let pkcs8 = key(kind);
        let mut forms = vec![pkcs8.clone()];
        if kind != "ed25519" {
            forms.push(openssl_text(&["pkey", "-traditional"], pkcs8.as_bytes()));
        }
        if kind.starts_with("ec") {
            let name = if kind == "ec-256" { "prime256v1" } else { &format!("secp{}r1", &kind[3..]) };
            let parameters = openssl_text(&["ecparam", "-name", name], b"");
            forms.push(format!("{parameters}{}", forms[1]));
        }
        for form in forms {
            let leaf = pki.sign(&json!({ "key_type": "any" }), json!({ "csr": csr(kind, "/CN=localhost", "") })).await;
            let body = json!({ "serial_number": leaf.serial(), "private_key": form });
            assert_eq!(pki.post(PATH, body).await.body["data"]["state"], "revoked", "{kind}: {form}");
            let listed = pki.app.client.list("sys/compromised-keys").await.body["data"]["keys"].clone();
            let hash = listed[0].as_str().unwrap();
            assert_eq!(pki.app.client.delete(&format!("sys/compromised-keys/{hash}")).await.status, 204);
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn other_or_malformed_keys_revoke_nothing() {
    let pki = Pki::start().await;
    let role = json!({ "key_type": "rsa" });
    let (serial, certificate, own) = issued(&pki, role.clone(), "der").await;
    let (_, _, other) = issued(&pki, role, "der").await;
    let (_, _, other_type) = issued(&pki, json!({ "key_type": "ec" }), "pkcs8").await;
    let public = openssl_text(&["pkey", "-pubout"], own.as_bytes());
    let encrypted = openssl_text(&["pkey", "-aes128", "-passout", "pass:x"], own.as_bytes());
    // Keys whose private numbers do not belong to the certificate's public numbers.
    let (label, mut der) = pem::parse_first_block(&own).unwrap().unwrap();
    *der.last_mut().unwrap() ^= 1;
    let inconsistent = pem::encode(&label, &der);
    let spliced = {
        let (_, foreign) = pem::parse_first_block(&other).unwrap().unwrap();
        let (_, mut mine) = pem::parse_first_block(&own).unwrap().unwrap();
        // Version, modulus and public exponent of one key, everything else of the other.
        let public = 4 + 3 + 4 + 257 + 5;
        assert_eq!(mine[public - 5..public], [2, 3, 1, 0, 1]);
        let end = mine.len().min(foreign.len());
        mine[public + 4..end].copy_from_slice(&foreign[public + 4..end]);
        pem::encode(&label, &mine)
    };
    for (private_key, rule) in [
        (json!(null), "private_key: must be given"),
        (json!(""), "too short"),
        (json!("/etc/ssl/private/key.pem"), "too short"),
        (json!([own]), "private_key"),
        (json!("x".repeat(100)), "private_key: invalid PEM"),
        (json!(other), "does not belong to the certificate"),
        (json!(other_type), "of another type"),
        (json!(certificate), "private_key: "),
        (json!(public), "private_key: "),
        (json!(encrypted), "private_key: "),
        (json!(inconsistent), "private_key: its numbers do not form a valid key"),
        (json!(spliced), "private_key: "),
        (json!(format!("{own}\n{own}")), "exactly one PEM block"),
        (json!(format!("{own}\ntrailing")), "private_key: "),
    ] {
        for named in [json!({ "serial_number": serial }), json!({ "certificate": certificate })] {
            let mut body = named;
            body["private_key"] = private_key.clone();
            pki.refused(PATH, body, rule).await;
        }
    }
    assert!(revoked(&pki).await.is_empty());
    // The certificate is checked before the key.
    pki.refused(PATH, json!({ "private_key": own }), "exactly one of them must be given").await;
    pki.refused(PATH, json!({ "private_key": "no", "serial_number": "00:11" }), "not found").await;
    let root = parse(&pki.default_pem().await).serial().to_string();
    pki.refused(PATH, json!({ "private_key": own, "serial_number": root }), "issuers cannot be revoked here").await;
    // The key is also checked for a certificate that is already revoked.
    pki.post("revoke", json!({ "serial_number": serial })).await;
    let body = json!({ "serial_number": serial, "private_key": other });
    pki.refused(PATH, body, "does not belong to the certificate").await;
    pki.stop().await;
}

#[actix_web::test]
async fn unstored_certificates_are_revoked_and_foreign_ones_are_not() {
    let pki = Pki::start().await;
    let role = json!({ "no_store": true, "key_type": "ec" });
    let (serial, certificate, key) = issued(&pki, role, "der").await;
    pki.refused(PATH, json!({ "serial_number": serial, "private_key": key }), "not found").await;
    pki.post(PATH, json!({ "certificate": certificate, "private_key": key })).await;
    assert_eq!(revoked(&pki).await, [serial]);
    // A foreign certificate with a serial number of this mount, and its own key.
    let (ours, _, _) = issued(&pki, json!({ "key_type": "ec" }), "der").await;
    let number = format!("0x{}", ours.replace(':', ""));
    let foreign = Ca::root_with(self::key("ec-256"), "/CN=x", CA, &["-set_serial", &number]);
    for path in [PATH, "revoke"] {
        pki.refused(path, json!({ "certificate": foreign.pem, "private_key": foreign.key }), "collides").await;
    }
    assert_eq!(revoked(&pki).await.len(), 1);
    pki.stop().await;
}

#[actix_web::test]
async fn path_needs_its_right_and_never_shows_a_key() {
    let pki = Pki::start().await;
    let (serial, _, key) = issued(&pki, json!({ "key_type": "ec" }), "der").await;
    pki.app.policy("holder", "path \"pki/revoke-with-key\" { capabilities = [\"update\"] }").await;
    let holder = pki.app.with_policies(&["holder"]).await;
    let body = json!({ "serial_number": serial, "private_key": key });
    holder.post("pki/revoke", json!({ "serial_number": serial })).await.assert_denied();
    let broken = json!({ "serial_number": serial, "private_key": key.replace('M', "N") });
    let refused = holder.post("pki/revoke-with-key", broken).await;
    assert_eq!(refused.status, 400);
    let line = key.lines().nth(1).unwrap();
    assert!(!refused.text.contains(line) && !refused.text.contains(&line[..20]), "{}", refused.text);
    let answer = holder.post("pki/revoke-with-key", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(!answer.text.contains(line));
    let (_, der) = pem::parse_first_block(&key).unwrap().unwrap();
    assert!(!answer.text.contains(&base64::engine::general_purpose::STANDARD.encode(der)));
    pki.stop().await;
}
