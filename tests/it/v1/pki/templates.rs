//! Addresses of the cluster, and URLs that are templates.

use serde_json::json;

use super::foreign::{self, Ca};
use super::mount::{Pki, text};

fn words((_, text): (bool, String)) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[actix_web::test]
async fn url_templates_expand_cluster_and_issuer() {
    let pki = Pki::start().await;
    let template = json!({
        "issuing_certificates": "{{cluster_aia_path}}/issuer/{{issuer_id}}/der",
        "crl_distribution_points": ["{{cluster_aia_path}}/issuer/{{issuer_id}}/crl/der"],
        "ocsp_servers": "{{cluster_path}}/ocsp", "enable_templating": true,
    });
    let answer = pki.post("config/urls", template).await;
    assert!(answer.warnings().contains("cluster config missing"), "{}", answer.text);
    // Without the addresses nothing is signed.
    pki.role(&json!({})).await;
    let localhost = json!({ "common_name": "localhost" });
    pki.refused("issue/r", localhost.clone(), "cluster config missing").await;
    let half = pki.post("config/cluster", json!({ "path": "https://ca.example.test/v1/pki" })).await;
    assert!(half.warnings().contains("cluster config missing"), "{}", half.text);
    pki.refused("issue/r", localhost.clone(), "cluster config missing").await;
    let whole = pki.post("config/cluster", json!({ "aia_path": "http://aia.example.test" })).await;
    // RFC 5280 section 8: validating a certificate must not require validating another one first.
    let warned = whole.warnings();
    assert!(warned.starts_with("ocsp_servers: https and ldaps should not be used for URLs"), "{warned}");
    let id = text(&pki.get("issuer/default").await, "issuer_id").to_owned();
    let aia = format!("http://aia.example.test/issuer/{id}");
    let expected = (
        format!("OCSP - URI:https://ca.example.test/v1/pki/ocsp CA Issuers - URI:{aia}/der"),
        format!("Full Name: URI:{aia}/crl/der"),
    );
    let expanded = async |pki: &Pki| {
        let leaf = pki.ask("issue/r", json!({ "common_name": "localhost" })).await;
        let words = |name: &str| words(leaf.extension(name).unwrap());
        (words("authorityInfoAccess"), words("crlDistributionPoints"))
    };
    assert_eq!(expanded(&pki).await, expected);
    // The id of a root is not known before the root is signed.
    let root = pki.post("root/generate/internal", json!({ "common_name": "x", "key_type": "ec" })).await;
    assert!(root.warnings().contains("authorityInfoAccess and CRL URLs omitted"), "{}", root.text);
    for name in ["authorityInfoAccess", "crlDistributionPoints"] {
        assert_eq!(foreign::extension(text(&root.body["data"], "certificate"), name), None);
    }
    let pki = pki.restart().await;
    assert_eq!(expanded(&pki).await, expected);
    // URLs of an issuer are templates as well.
    let own = json!({ "ocsp_servers": "{{cluster_path}}/own/{{issuer_id}}", "enable_aia_url_templating": true });
    pki.post("issuer/default", own).await;
    let leaf = pki.ask("issue/r", localhost.clone()).await;
    let own = format!("OCSP - URI:https://ca.example.test/v1/pki/own/{id}");
    assert_eq!(words(leaf.extension("authorityInfoAccess").unwrap()), own);
    let ca = Ca::root("/CN=Imported");
    let imported = pki.post("config/ca", json!({ "pem_bundle": ca.bundle() })).await;
    // There is no warning about missing URLs or a missing default.
    assert!(imported.warnings().starts_with("the CRLs of issuer "), "{}", imported.text);
    assert_eq!(imported.body["warnings"].as_array().unwrap().len(), 1);
    let id = imported.body["data"]["imported_issuers"][0].as_str().unwrap();
    let leaf = pki.leaf_of(id).await;
    assert!(words(leaf.extension("authorityInfoAccess").unwrap()).contains(&format!("/issuer/{id}/der")));
    pki.stop().await;
}

#[actix_web::test]
async fn root_urls_without_issuer_id_use_the_cluster_address() {
    let pki = Pki::empty().await;
    let urls = json!({ "ocsp_servers": "{{cluster_path}}/ocsp", "enable_templating": true });
    assert_eq!(pki.post("config/urls", urls).await.warnings(), "", "nobody to use them yet");
    let root = json!({ "common_name": "x", "key_type": "ec" });
    pki.refused("root/generate/internal", root.clone(), "cluster config missing").await;
    pki.post("config/cluster", json!({ "path": "https://ca.example.test/v1/pki" })).await;
    let data = pki.data("root/generate/internal", root).await;
    let access = foreign::extension(text(&data, "certificate"), "authorityInfoAccess").unwrap();
    assert_eq!(words(access), "OCSP - URI:https://ca.example.test/v1/pki/ocsp");
    pki.stop().await;
}
