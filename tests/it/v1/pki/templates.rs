//! Addresses of the cluster, and URLs that are templates.

use serde_json::{Value, json};

use super::foreign::{self, Ca};
use super::mount::Pki;

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
    let id = pki.get("issuer/default").await["issuer_id"].as_str().unwrap().to_owned();
    let expected = (
        format!(
            "OCSP - URI:https://ca.example.test/v1/pki/ocsp CA Issuers - URI:http://aia.example.test/issuer/{id}/der"
        ),
        format!("Full Name: URI:http://aia.example.test/issuer/{id}/crl/der"),
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
    let pem = root.body["data"]["certificate"].as_str().unwrap();
    for name in ["authorityInfoAccess", "crlDistributionPoints"] {
        assert_eq!(foreign::extension(pem, name), None);
    }
    let pki = Pki { app: pki.app.restart().await };
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
    let body = json!({ "common_name": "localhost", "ttl": "1h" });
    let leaf = pki.ask(&format!("issuer/{id}/issue/r"), body).await;
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
    let data = pki.post("root/generate/internal", root).await.body["data"].clone();
    let access = foreign::extension(data["certificate"].as_str().unwrap(), "authorityInfoAccess").unwrap();
    assert_eq!(words(access), "OCSP - URI:https://ca.example.test/v1/pki/ocsp");
    pki.stop().await;
}

#[actix_web::test]
async fn the_addresses_of_the_cluster_are_merged_and_checked() {
    let pki = Pki::empty().await;
    let both = |path: &str, aia_path: &str| json!({ "path": path, "aia_path": aia_path });
    let write = async |body: Value| pki.post("config/cluster", body).await.body["data"].clone();
    assert_eq!(pki.get("config/cluster").await, both("", ""));
    let path = "https://ca.example.test/v1/pki";
    assert_eq!(write(json!({ "path": path })).await, both(path, ""));
    assert_eq!(write(json!({ "aia_path": "http://aia.test" })).await, both(path, "http://aia.test"));
    assert_eq!(write(json!({ "path": null })).await, both(path, "http://aia.test"));
    assert_eq!(write(json!({})).await, both(path, "http://aia.test"));
    for bad in ["ca.example.test", "/v1/pki", "https://", "not a url", "https://b\u{fc}cher.test"] {
        for field in ["path", "aia_path"] {
            pki.refused("config/cluster", json!({ field: bad }), &format!("{field}: must be an absolute URL")).await;
        }
    }
    pki.refused("config/cluster", json!({ "path": ["a"] }), "path").await;
    assert_eq!(pki.get("config/cluster").await, both(path, "http://aia.test"));
    assert_eq!(write(json!({ "path": "" })).await, both("", "http://aia.test"));
    pki.app.client.with_token("").get("pki/config/cluster").await.assert_denied();
    pki.stop().await;
}
