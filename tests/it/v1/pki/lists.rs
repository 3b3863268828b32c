//! Detailed lists of stored certificates.

use serde_json::{Value, json};
use signet::clock::{Time, format_rfc3339};

use super::mount::{Leaf, Pki};

async fn detailed(pki: &Pki, query: &str) -> (Vec<String>, Value) {
    let answer = pki.app.client.list(&format!("pki/certs/detailed{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let keys = serde_json::from_value(answer.body["data"]["keys"].clone()).unwrap();
    (keys, answer.body["data"]["key_info"].clone())
}

#[actix_web::test]
async fn detailed_list_has_every_certificate_with_its_contents() {
    let pki = Pki::empty().await;
    assert_eq!(pki.app.client.list("pki/certs/detailed").await.status, 404);
    pki.root(json!({ "issuer_name": "root", "organization": "Example" })).await;
    let names: Vec<String> = (0..7).map(|n| format!("n{n}.example.test")).collect();
    let role =
        json!({ "allowed_domains": "example.test", "allow_subdomains": true, "key_type": "rsa", "key_bits": 2048 });
    let ask = json!({ "common_name": "n0.example.test", "alt_names": names[1..].join(",") });
    let leaf = pki.issue(&role, ask).await;
    let plain = pki.issue(&json!({ "key_type": "ed25519" }), json!({ "common_name": "localhost" })).await;
    pki.revoke(&plain).await;
    let (keys, info) = detailed(&pki, "").await;
    assert_eq!((&keys, keys.len()), (&pki.list("certs").await, 3));
    assert_eq!(info.as_object().unwrap().len(), 3);
    let time = |at: i64| format_rfc3339(Time::from_unix_timestamp(at).unwrap());
    let expected = |leaf: &Leaf, common_name: &str, key: (&str, u32), dns_names: &[String]| {
        json!({
            "common_name": common_name,
            "issuer": "CN=Test Root, O=Example",
            "key_type": key.0,
            "key_bits": key.1,
            "not_before": time(leaf.certificate.not_before()),
            "not_after": time(leaf.certificate.not_after()),
            "dns_names": dns_names,
        })
    };
    let of = |serial: String| sorted(&info[serial]);
    assert_eq!(of(leaf.serial()), sorted(&expected(&leaf, "n0.example.test", ("rsa", 2048), &names[..5])));
    assert_eq!(of(plain.serial()), sorted(&expected(&plain, "localhost", ("ed25519", 0), &["localhost".to_owned()])));
    let (first, info) = detailed(&pki, "?limit=2").await;
    assert_eq!((&first[..], info.as_object().unwrap().len()), (&keys[..2], 2));
    assert_eq!(detailed(&pki, &format!("?after={}", keys[1])).await.0, keys[2..]);
    pki.stop().await;
}

#[actix_web::test]
async fn detailed_list_can_be_ordered_by_expiry() {
    let pki = Pki::start().await;
    let mut serials = Vec::new();
    for ttl in ["3h", "1h", "2h"] {
        serials.push(pki.issue(&json!({}), json!({ "common_name": "localhost", "ttl": ttl })).await.serial());
    }
    pki.post("revoke", json!({ "serial_number": serials[2] })).await;
    let (keys, info) = detailed(&pki, "?order=not_after&limit=3").await;
    assert_eq!(keys, [&serials[1], &serials[2], &serials[0]].map(Clone::clone));
    assert_eq!([0, 1, 2].map(|n| info[&keys[n]]["revoked"].as_bool().unwrap()), [false, true, false]);
    assert_eq!(info[&keys[0]]["common_name"], "localhost");
    assert_eq!(detailed(&pki, "?order=not_after&limit=1").await.0, keys[..1]);
    assert_eq!(detailed(&pki, "?order=serial").await.0, pki.list("certs").await);
    for (query, rule) in [
        ("?order=issuer", "order: must be serial or not_after"),
        ("?order=not_after&limit=101", "limit: must be at most 100 with order=not_after"),
        ("?order=not_after&after=01", "after: not supported with order=not_after"),
    ] {
        let answer = pki.app.client.list(&format!("pki/certs/detailed{query}")).await;
        assert_eq!((answer.status, answer.body["errors"][0].as_str().unwrap()), (400, rule));
    }
    pki.stop().await;
}

/// Sorts the parts of the issuer's name, because their order does not matter.
fn sorted(info: &Value) -> Value {
    let mut info = info.clone();
    let mut parts: Vec<String> = info["issuer"].as_str().unwrap().split(", ").map(str::to_owned).collect();
    parts.sort();
    info["issuer"] = json!(parts);
    info
}
