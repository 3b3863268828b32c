//! Revocation of issuers, and the CRLs that list them.

use serde_json::json;

use super::foreign::{Ca, csr};
use super::mount::{Pki, parse, with};
use crate::support::App;

fn serial(pem: &str) -> String {
    parse(pem).serial().to_string()
}

#[actix_web::test]
async fn revoked_intermediate_signs_nothing_and_is_on_the_parent_crl() {
    for app in [App::start().await, App::builder().postgres().start().await] {
        let pki = Pki { app };
        let root = Ca::root("/CN=Root");
        let below = root.intermediate("/CN=Below", &[]);
        let root_id = pki.import_one(&root.bundle()).await;
        let id = pki.import_one(&below.bundle()).await;
        pki.post(&format!("issuer/{id}"), json!({ "issuer_name": "below" })).await;
        pki.role(&json!({})).await;
        let leaf = pki.leaf_of("below").await;
        let before = pki.get("issuer/below").await;
        let answer = pki.post("issuer/below/revoke", json!({})).await;
        assert_eq!(answer.warnings(), "");
        let data = answer.body["data"].clone();
        let time = data["revocation_time"].as_i64().unwrap();
        let expected = json!({ "usage": "crl-signing,ocsp-signing,read-only", "revoked": true, "revocation_time": time,
            "revocation_time_rfc3339": data["revocation_time_rfc3339"] });
        assert_eq!(data, with(&before, expected));
        assert!(data["revocation_time_rfc3339"].as_str().unwrap().ends_with('Z'));
        assert_eq!(pki.get("issuer/below").await, data);
        // The parent's CRL lists it; its own CRL does not, and is still issued.
        let listed = pki.crl(&root_id).await;
        assert_eq!(listed.serials(), [serial(&below.pem)]);
        assert!(listed.is_signed_by(&root.pem));
        assert_eq!(pki.crl("below").await.serials().len(), 0);
        let body = json!({ "common_name": "localhost", "ttl": "1h" });
        pki.refused("issuer/below/issue/r", body, "issuer may not issue certificates: it is revoked").await;
        pki.refused("issuer/below", json!({ "usage": "issuing-certificates" }), "usage: a revoked issuer").await;
        assert_eq!(pki.data("issuer/below", json!({ "issuer_name": "below" })).await, data);
        // Its certificates are still revoked on a CRL with its name and its signature.
        pki.revoke(&leaf).await;
        let own = pki.crl("below").await;
        assert_eq!(own.serials(), [leaf.serial()]);
        assert!(own.is_signed_by(&below.pem));
        let again = pki.post("issuer/below/revoke", json!({})).await;
        assert_eq!((&again.body["data"], again.warnings()), (&data, String::new()));
        let parents = pki.crl(&root_id).await.der;
        let own = pki.crl("below").await.der;
        let pki = pki.restart().await;
        assert_eq!((pki.crl(&root_id).await.der, pki.crl("below").await.der), (parents, own));
        assert_eq!(pki.get("issuer/below").await, data);
        assert_eq!(pki.app.client.post("pki/issuer/unknown/revoke", json!({})).await.status, 404);
        let read = pki.get(&format!("cert/{}", serial(&below.pem))).await;
        assert_eq!((&read["certificate"], &read["revocation_time"]), (&json!(below.pem), &json!(time)));
        assert_eq!(read["issuer_id"], root_id);
        let mut revoked = vec![leaf.serial(), serial(&below.pem)];
        revoked.sort();
        assert_eq!(pki.list("certs/revoked").await, revoked);
        // Deleting the issuer keeps it on the CRL, and a new import is still revoked.
        pki.app.client.delete("pki/issuer/below").await;
        assert!(pki.crl(&root_id).await.serials().contains(&serial(&below.pem)));
        let body = json!({ "pem_bundle": below.pem });
        let answer = pki.warns("issuers/import/bundle", body, "remains revoked in this mount").await;
        let id = answer.body["data"]["imported_issuers"][0].as_str().unwrap();
        let back = pki.get(&format!("issuer/{id}")).await;
        assert_eq!((&back["revoked"], &back["revocation_time"]), (&json!(true), &json!(time)));
        assert_eq!(back["usage"], "crl-signing,ocsp-signing,read-only");
        pki.stop().await;
    }
}

#[actix_web::test]
async fn compromise_replaces_another_issuer_revocation_reason() {
    let pki = Pki::empty().await;
    let root = Ca::root("/CN=Root");
    let below = root.intermediate("/CN=Below", &[]);
    let root_id = pki.import_one(&root.bundle()).await;
    let id = pki.import_one(&below.bundle()).await;
    let path = format!("issuer/{id}/revoke");
    let rule = "reason: must be unspecified, keyCompromise, ";
    for reason in ["certificateHold", "removeFromCRL", "aACompromise", "7"] {
        pki.refused(&path, json!({ "reason": reason }), rule).await;
    }
    pki.refused(&path, json!({ "invalidity_date": "now" }), "invalidity_date: ").await;
    let data = pki.data(&path, json!({ "reason": "cessationOfOperation" })).await;
    let listed = pki.crl(&root_id).await;
    assert!(listed.entry(&serial(&below.pem)).unwrap().contains("Cessation Of Operation"), "{}", listed.text);
    pki.warns(&path, json!({ "reason": "superseded" }), "only a key compromise").await;
    assert_eq!(pki.crl(&root_id).await.der, listed.der);
    let body = json!({ "reason": "cACompromise", "invalidity_date": "2024-02-29T10:00:00Z" });
    assert_eq!(pki.data(&path, body).await, data, "it is revoked since then");
    let listed = pki.crl(&root_id).await;
    let entry = listed.entry(&serial(&below.pem)).unwrap();
    assert!(entry.contains("CA Compromise") && entry.contains("Feb 29 10:00:00 2024 GMT"), "{entry}");
    let pki = pki.restart().await;
    assert_eq!(pki.crl(&root_id).await.der, listed.der);
    // A CA certificate that is no issuer here is revoked like a leaf, but the reason names a CA compromise.
    let other = root.intermediate("/CN=Other", &[]);
    pki.post("revoke", json!({ "certificate": other.pem, "reason": "2" })).await;
    let listed = pki.crl(&root_id).await;
    assert!(listed.entry(&serial(&other.pem)).unwrap().contains("CA Compromise"), "{}", listed.text);
    pki.stop().await;
}

#[actix_web::test]
async fn revoked_root_is_listed_only_by_a_root_of_its_name_and_key() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    let answer = pki.post("issuer/default/revoke", json!({})).await;
    let warnings = answer.warnings();
    for part in ["self-signed root", "no other issuer of this mount", "is the default"] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    let number = pki.crl("root").await.number();
    assert_eq!(pki.crl("root").await.serials().len(), 0);
    // Its certificate was issued here, so it is listed as revoked with the same time.
    let time = answer.body["data"]["revocation_time"].clone();
    let read = pki.get(&format!("cert/{}", serial(&root))).await;
    assert_eq!((&read["revocation_time"], &read["certificate"]), (&time, &json!(root)));
    assert_eq!(pki.list("certs/revoked").await, [serial(&root)]);
    pki.role(&json!({})).await;
    pki.refused("issue/r", json!({ "common_name": "localhost" }), "it is revoked").await;
    // A second root with its name and key shares a CRL with it, which lists the first root.
    let key = pki.get("issuer/root").await["key_id"].clone();
    let body = json!({ "common_name": "Test Root", "key_ref": key, "issuer_name": "again" });
    pki.post("root/generate/existing", body).await;
    assert_eq!(pki.crl("again").await.serials(), [serial(&root)]);
    assert_eq!(pki.crl("again").await.der, pki.crl("root").await.der);
    assert!(pki.crl("root").await.number() > number);
    pki.leaf_of("again").await;
    pki.refused("issuer/root/issue/r", json!({ "common_name": "localhost", "ttl": "1h" }), "it is revoked").await;
    pki.stop().await;
}

#[actix_web::test]
async fn parent_imported_later_lists_earlier_revocations() {
    let pki = Pki::start().await;
    let root = Ca::root("/CN=Late Root");
    let below = root.intermediate("/CN=Below", &[]);
    let id = pki.import_one(&below.bundle()).await;
    pki.warns(&format!("issuer/{id}/revoke"), json!({}), "no other issuer of this mount certifies").await;
    assert_eq!(pki.crl("root").await.serials().len(), 0, "the default did not sign it");
    let root_id = pki.import_one(&root.bundle()).await;
    let listed = pki.crl(&root_id).await;
    assert_eq!(listed.serials(), [serial(&below.pem)]);
    assert!(listed.is_signed_by(&root.pem));
    let pki = pki.restart().await;
    assert_eq!(pki.crl(&root_id).await.der, listed.der);
    pki.stop().await;
}

#[actix_web::test]
async fn issuers_with_equal_numbers_are_revoked_one_by_one() {
    let pki = Pki::empty().await;
    let roots = [Ca::root("/CN=A"), Ca::root("/CN=B")];
    let below =
        [roots[0].intermediate("/CN=1", &["-set_serial", "7"]), roots[1].intermediate("/CN=2", &["-set_serial", "7"])];
    let ids = pki.import(&[&roots[0], &roots[1], &below[0], &below[1]].map(Ca::bundle).join("\n")).await;
    for (below_id, expected) in [(&ids[2], [&["07"][..], &[]]), (&ids[3], [&["07"], &["07"]])] {
        pki.post(&format!("issuer/{below_id}/revoke"), json!({})).await;
        assert_eq!([pki.crl(&ids[0]).await.serials(), pki.crl(&ids[1]).await.serials()], expected);
    }
    // `revoke` rejects issuers, and does not confuse them with a certificate of that number.
    let rule = "issuers cannot be revoked here";
    pki.refused("revoke", json!({ "serial_number": "07" }), rule).await;
    pki.refused("revoke", json!({ "certificate": below[0].pem }), rule).await;
    // An external leaf with that number is rejected, because the number is in use here.
    let leaf = below[0].signs(&csr("ec-384", "/CN=leaf", ""), "basicConstraints=CA:FALSE", &["-set_serial", "7"]);
    pki.refused("revoke", json!({ "certificate": leaf }), "its serial collides with another certificate").await;
    pki.stop().await;
}
