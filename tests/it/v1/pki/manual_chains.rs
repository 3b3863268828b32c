//! An operator may select the chain in responses (`manual_chain`), but not weaken it: name constraints are those of the
//! issuers that certify, regardless of the list.

use serde_json::json;

use super::foreign::{CA, Ca, csr, new_key, openssl_verifies_chain};
use super::mount::Pki;

const RULE: &str = "the name constraints of the issuing chain do not allow";

/// Asserts that a leaf below `issuer` may have the name `a.good.com` but not `a.evil.com`, on every path that signs.
async fn holds(pki: &Pki, issuer: &str, shown: &str) {
    let csr = |host: &str| csr("ec-256", &format!("/CN={host}"), &format!("subjectAltName = DNS:{host}"));
    pki.role(&json!({ "allow_any_name": true, "require_cn": false })).await;
    for endpoint in ["issue/r", "sign/r", "sign-verbatim", "sign-intermediate"] {
        let path = format!("issuer/{issuer}/{endpoint}");
        let named = |host: &str| match endpoint {
            "issue/r" => json!({ "alt_names": host }),
            _ => json!({ "csr": csr(host), "common_name": host }),
        };
        let answer = pki.app.client.post(&format!("pki/{path}"), named("a.evil.com")).await;
        assert_eq!(answer.status, 400, "{shown}: {path}: {}", answer.text);
        assert!(answer.error().contains(RULE), "{shown}: {path}: {}", answer.text);
        pki.certify(&path, named("a.good.com")).await;
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
    pki.import_one(&root.pem).await;
    let between_id = pki.import_one(&between.bundle()).await;
    let below_id = pki.import_one(&below.bundle()).await;
    let other_id = pki.import_one(&other.bundle()).await;
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
