//! An operator may select the chain in responses (`manual_chain`), but not weaken it: name constraints are those of the
//! issuers that certify, regardless of the list.

use serde_json::json;

use super::foreign::{CA, Ca, csr, new_key, openssl_verifies_chain};
use super::mount::Pki;

const RULE: &str = "the name constraints of the issuing chain do not allow";

async fn import(pki: &Pki, bundle: &str) -> String {
    let answer = pki.post("issuers/import/bundle", json!({ "pem_bundle": bundle })).await;
    answer.body["data"]["imported_issuers"][0].as_str().unwrap().to_owned()
}

/// Asserts that a leaf below `issuer` may have the name `a.good.com` but not `a.evil.com`, on every path that signs.
async fn holds(pki: &Pki, issuer: &str, shown: &str) {
    let csr = |host: &str| csr("ec-256", &format!("/CN={host}"), &format!("subjectAltName = DNS:{host}"));
    pki.role(&json!({ "allow_any_name": true, "require_cn": false })).await;
    for (endpoint, [evil, good]) in [
        ("issue/r", ["a.evil.com", "a.good.com"].map(|host| json!({ "alt_names": host }))),
        ("sign/r", ["a.evil.com", "a.good.com"].map(|host| json!({ "csr": csr(host) }))),
        ("sign-verbatim", ["a.evil.com", "a.good.com"].map(|host| json!({ "csr": csr(host) }))),
        (
            "sign-intermediate",
            ["a.evil.com", "a.good.com"].map(|host| json!({ "csr": csr(host), "common_name": host })),
        ),
    ] {
        let path = format!("issuer/{issuer}/{endpoint}");
        let answer = pki.app.client.post(&format!("pki/{path}"), evil).await;
        assert_eq!(answer.status, 400, "{shown}: {path}: {}", answer.text);
        assert!(answer.error().contains(RULE), "{shown}: {path}: {}", answer.text);
        pki.certify(&path, good).await;
    }
}

#[actix_web::test]
async fn manual_chain_does_not_remove_name_constraints_of_parents() {
    let pki = Pki::empty().await;
    let constrained = format!("{CA}\nnameConstraints=critical,permitted;DNS:good.com");
    let root = Ca::root_with(new_key("ec-256"), "/O=Good/CN=Constrained Root", &constrained, &[]);
    let between = root.intermediate("/O=Good/CN=Between", &[]);
    let below = between.intermediate("/O=Good/CN=Below", &[]);
    let other = Ca::root("/CN=Other");
    import(&pki, &root.pem).await;
    let between_id = import(&pki, &between.bundle()).await;
    let below_id = import(&pki, &below.bundle()).await;
    let other_id = import(&pki, &other.bundle()).await;
    holds(&pki, &between_id, "the computed chain").await;
    for chain in [json!(["self"]), json!(["self", other_id]), json!([between_id, below_id])] {
        let path = format!("pki/issuer/{between_id}");
        let answer = pki.app.client.patch(&path, json!({ "manual_chain": chain })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        holds(&pki, &between_id, &format!("the chain {chain}")).await;
        // The chain of an issuer below it contains the selected chain.
        holds(&pki, &below_id, &format!("below the chain {chain}")).await;
    }
    // The list only affects responses: constraints of a listed issuer do not apply.
    let listed = json!({ "manual_chain": ["self", between_id] });
    assert_eq!(pki.app.client.patch(&format!("pki/issuer/{other_id}"), listed).await.status, 200);
    assert_eq!(pki.get(&format!("issuer/{other_id}")).await["ca_chain"].as_array().unwrap().len(), 2);
    let leaf = csr("ec-256", "/CN=x", "subjectAltName = DNS:a.evil.com");
    let leaf = pki.certify(&format!("issuer/{other_id}/sign-verbatim"), json!({ "csr": leaf })).await;
    openssl_verifies_chain(&other.pem, &[], &leaf.pem).unwrap();
    pki.stop().await;
}
