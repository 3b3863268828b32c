//! Roles and their fields, lists, serial numbers, and lifetimes that a mount sets.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::mount::{Pki, parse, with};
use crate::support::send;

#[actix_web::test]
async fn role_lists_are_sorted_and_paged() {
    let pki = Pki::start().await;
    let empty = pki.app.client.list("pki/roles").await;
    assert_eq!((empty.status, empty.text.as_str()), (404, "{\"errors\":[]}"));
    let names = ["a", "b.c", "b_c", "d-e", "f"];
    for name in ["f", "b_c", "a", "d-e", "b.c"] {
        pki.post(&format!("roles/{name}"), json!({})).await;
    }
    let listed = pki.app.client.list("pki/roles").await;
    assert_eq!(listed.body["data"]["keys"], json!(names));
    for path in ["roles?list=true", "roles/?list=1", "roles?list=T"] {
        assert_eq!(pki.get(path).await["keys"], json!(names), "{path}");
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = pki.app.client.list(&format!("pki/roles?limit=2&after={after}")).await;
        if page.status == 404 {
            break;
        }
        let keys: Vec<String> = serde_json::from_value(page.body["data"]["keys"].clone()).unwrap();
        assert!(keys.len() <= 2);
        after.clone_from(keys.last().unwrap());
        seen.extend(keys);
    }
    assert_eq!(seen, names);
    pki.stop().await;
}

/// The fields and their defaults are unit tests in `src/http/secrets/pki/roles/members/tests.rs`.
#[actix_web::test]
async fn role_post_replaces_and_patch_merges_fields() {
    let pki = Pki::start().await;
    let defaults = pki.post("roles/r", json!({})).await.body["data"].clone();
    assert_eq!(pki.get("roles/r").await, defaults);
    assert_eq!(pki.app.client.get("pki/roles/unknown").await.text, "{\"errors\":[]}");
    let settings = json!({ "ttl": "90m", "max_ttl": "6h", "allow_any_name": true, "ou": "a,b", "key_type": "ec" });
    pki.post("roles/r", settings).await;
    let read = json!({ "ttl": "90m", "max_ttl": "6h", "allow_any_name": true, "ou": ["a", "b"], "key_type": "ec",
        "key_bits": 256, "signature_bits": 0 });
    let read = with(&defaults, read);
    assert_eq!(pki.get("roles/r").await, read);
    let patched = pki.app.client.patch("pki/roles/r", json!({ "ttl": "2h", "ou": null })).await;
    assert_eq!(patched.body["data"], with(&read, json!({ "ttl": "2h", "ou": [] })), "{}", patched.text);
    let refused = pki.app.client.patch("pki/roles/r", json!({ "max_ttl": "1h" })).await;
    assert_eq!((refused.status, refused.error()), (400, "ttl: ttl must not exceed max_ttl"));
    assert_eq!(pki.get("roles/r").await["max_ttl"], "6h");
    pki.post("roles/r", json!({ "key_type": "rsa" })).await;
    assert_eq!(pki.get("roles/r").await, defaults, "no field of the earlier role stays");
    pki.refused("roles/r", json!({ "key_type": "rsa", "key_bits": 1024 }), "key_bits: ").await;
    let plain = pki.app.client.request("PATCH", "pki/roles/r").header("Content-Type", "application/json").body("{}");
    assert_eq!(send(plain).await.status, 415);
    let malformed = pki.app.client.request("POST", "pki/roles/r").body("{\"ttl\":");
    assert_eq!(send(malformed).await.status, 400);
    let unknown = pki.app.client.patch("pki/roles/unknown", json!({ "ttl": "2h" })).await;
    assert_eq!((unknown.status, unknown.error()), (400, "role does not exist: unknown"));
    for _ in 0..2 {
        assert_eq!(pki.app.client.delete("pki/roles/r").await.status, 204);
    }
    assert_eq!(pki.app.client.get("pki/roles/r").await.status, 404);
    pki.stop().await;
}

#[actix_web::test]
async fn role_may_name_an_issuer_that_is_created_later() {
    let pki = Pki::start().await;
    let warnings = pki.role(&json!({ "issuer_ref": "later", "allow_any_name": true })).await;
    assert!(warnings.contains("issuer_ref: "), "{warnings}");
    pki.refused("issue/r", json!({ "common_name": "a.foo" }), "issuer_ref: issuer not found").await;
    pki.root(json!({ "issuer_name": "later" })).await;
    pki.ask("issue/r", json!({ "common_name": "a.foo" })).await;
    pki.stop().await;
}

#[actix_web::test]
async fn certificates_are_public_in_every_encoding() {
    let pki = Pki::start().await;
    let leaf = pki.leaf().await;
    let path = format!("pki/cert/{}", leaf.serial());
    let anyone = pki.app.client.with_token("");
    let expected = json!({ "certificate": leaf.pem, "revocation_time": 0, "revocation_time_rfc3339": "",
        "authority_key_id": leaf.data()["authority_key_id"] });
    assert_eq!(anyone.get(&path).await.body["data"], expected);
    let raw = anyone.request("GET", &format!("{path}/raw")).send().await.unwrap();
    assert_eq!(raw.bytes().await.unwrap(), leaf.certificate.der());
    assert_eq!(anyone.get(&format!("{path}/raw/pem")).await.text, format!("{}\n", leaf.pem));
    for (unknown, status, text) in [
        ("00:11", 404, "{\"errors\":[]}"),
        ("0x11", 404, "{\"errors\":[]}"),
        ("0011/raw", 204, ""),
        ("0x11/raw/pem", 204, ""),
    ] {
        let answer = anyone.get(&format!("pki/cert/{unknown}")).await;
        assert_eq!((answer.status, answer.text.as_str()), (status, text), "{unknown}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn serials_are_unique_and_well_formed() {
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    let mut serials = Vec::new();
    for _ in 0..20 {
        let requests = (0..50).map(|_| pki.app.client.post("pki/issue/r", json!({ "common_name": "localhost" })));
        for answer in join_all(requests).await {
            assert_eq!(answer.status, 200, "{}", answer.text);
            serials.push(answer.body["data"]["serial_number"].as_str().unwrap().to_owned());
        }
    }
    for serial in &serials {
        let octets: Vec<&str> = serial.split(':').collect();
        assert!(octets.len() <= 20 && octets[0] != "00", "{serial}");
        let hex = |octet: &str| octet.len() == 2 && octet.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        assert!(octets.iter().all(|octet| hex(octet)), "{serial}");
    }
    serials.sort();
    serials.dedup();
    assert_eq!(serials.len(), 1000);
    let mut listed = pki.list("certs").await;
    assert_eq!(listed.len(), 1001, "with the root's");
    listed.retain(|serial| serials.binary_search(serial).is_ok());
    assert_eq!(listed.len(), 1000);
    pki.stop().await;
}

/// The media types are in `recorded/pki-certificates.txt` and `recorded/pki-revocation.txt`.
#[actix_web::test]
async fn public_paths_without_an_issuer_are_empty() {
    let pki = Pki::empty().await;
    let anyone = pki.app.client.with_token("");
    let files = ["ca", "ca/pem", "ca_chain", "cert/ca/raw", "cert/ca/raw/pem", "crl", "crl/pem"];
    let objects = ["cert/ca", "cert/ca_chain", "cert/crl", "issuer/default/json", "issuer/default/crl"];
    for path in files {
        let answer = anyone.get(&format!("pki/{path}")).await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""), "{path}");
    }
    for path in objects {
        assert_eq!(anyone.get(&format!("pki/{path}")).await.status, 404, "{path}");
    }
    pki.root(json!({})).await;
    for path in files.iter().chain(&objects) {
        assert_eq!(anyone.get(&format!("pki/{path}")).await.status, 200, "{path}");
    }
    pki.stop().await;
}

async fn tune(pki: &Pki, body: Value) {
    let answer = pki.app.client.post("sys/mounts/pki/tune", body).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
}

/// Returns the lifetime of a certificate in whole hours, without backdating.
fn hours(pem: &str) -> i64 {
    let certificate = parse(pem);
    (certificate.not_after() - certificate.not_before() - 30) / 3600
}

#[actix_web::test]
async fn lifetimes_of_the_mount() {
    let pki = Pki::start().await;
    let asks = |ttl: &str| json!({ "common_name": "localhost", "ttl": ttl });
    pki.deny(&json!({}), asks("769h"), "ttl: 769h is above the mount's max_lease_ttl, 768h").await;
    tune(&pki, json!({ "max_lease_ttl": "87600h" })).await;
    assert_eq!(hours(&pki.issue(&json!({}), asks("87600h")).await.pem), 87600);
    pki.deny(&json!({}), asks("87601h"), "ttl: ").await;
    // Without a ttl the mount's default applies, which is that of the system.
    assert_eq!(hours(&pki.issue(&json!({}), asks("")).await.pem), 768);
    tune(&pki, json!({ "default_lease_ttl": "2h", "max_lease_ttl": "4h" })).await;
    assert_eq!(hours(&pki.issue(&json!({}), asks("")).await.pem), 2);
    // A maximum of the role overrides the mount's, in both directions.
    assert_eq!(hours(&pki.issue(&json!({ "max_ttl": "24h" }), asks("9h")).await.pem), 9);
    pki.deny(&json!({ "max_ttl": "1h" }), asks("2h"), "ttl: 2h is above the role's max_ttl, 1h").await;
    // A default that is too long is truncated, with a warning.
    let leaf = pki.issue(&json!({ "ttl": "9h" }), asks("")).await;
    assert_eq!(hours(&leaf.pem), 4);
    assert!(leaf.answer.warnings().contains("ttl: "), "{}", leaf.answer.text);
    let leaf = pki.issue(&json!({ "max_ttl": "1h" }), asks("")).await;
    assert_eq!(hours(&leaf.pem), 1);
    // So is a root that requests more than the mount's maximum.
    let answer =
        pki.post("root/generate/internal", json!({ "key_type": "ec", "common_name": "x", "ttl": "10h" })).await;
    assert_eq!(hours(answer.body["data"]["certificate"].as_str().unwrap()), 4);
    assert!(answer.warnings().contains("ttl: "), "{}", answer.text);
    tune(&pki, json!({ "max_lease_ttl": "system", "default_lease_ttl": 0 })).await;
    assert_eq!(hours(&pki.issue(&json!({}), asks("768h")).await.pem), 768);
    pki.stop().await;
}
