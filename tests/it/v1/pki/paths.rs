//! Certification paths above an issuer (RFC 5280 section 6.1): the one in responses, those that forbid certificates of
//! the issuer, and the certificate policies that they require.

use std::time::Duration;

use serde_json::{Value, json};
use signet::clock::{Clock, Time};

use super::foreign::{CA, Ca, Files, csr, csr_of_key, new_key, openssl_verifies_chain, run};
use super::mount::{Pki, line, parse};

/// Returns a root with other extensions than [`CA`].
fn root_with(extensions: &str) -> Ca {
    Ca::root_with(new_key("ec-256"), "/O=Good/CN=Above", extensions, &[])
}

/// Asserts that the certificates are one path: each is signed by the next.
fn assert_one_path(leaf: &str, chain: &[String]) {
    let all: Vec<_> = std::iter::once(leaf).chain(chain.iter().map(String::as_str)).map(parse).collect();
    for pair in all.windows(2) {
        assert!(pair[0].is_signed_by(pair[1].key()) && pair[0].issuer() == pair[1].subject());
    }
}

async fn served(pki: &Pki, path: &str) -> Vec<String> {
    let data = pki.data(path, json!({ "common_name": "localhost", "ttl": "1h" })).await;
    let chain: Vec<String> = serde_json::from_value(data["ca_chain"].clone()).unwrap();
    assert_one_path(data["certificate"].as_str().unwrap(), &chain);
    chain
}

#[actix_web::test]
async fn ca_chain_is_one_path_after_a_rotation_of_roots() {
    let pki = Pki::empty().await;
    pki.root(json!({ "common_name": "Root 1", "issuer_name": "r1" })).await;
    let new = pki.root(json!({ "common_name": "Root 2", "issuer_name": "r2" })).await;
    let csr = pki.data("intermediate/cross-sign", json!({ "common_name": "Root 2", "key_ref": new["key_id"] })).await;
    let request = json!({ "csr": csr["csr"], "use_csr_values": true, "common_name": "" });
    let cross = pki.certify("issuer/r1/sign-intermediate", request).await;
    let set = pki.data("intermediate/set-signed", json!({ "certificate": cross.pem })).await;
    let cross_id = set["imported_issuers"][0].as_str().unwrap();
    pki.role(&json!({})).await;
    assert_eq!(served(&pki, "issuer/r2/issue/r").await.len(), 1);
    assert_eq!(served(&pki, "issuer/r1/issue/r").await.len(), 1);
    assert_eq!(served(&pki, &format!("issuer/{cross_id}/issue/r")).await.len(), 2);
    // The other path can be selected.
    let answer = pki.app.client.patch("pki/issuer/r2", json!({ "manual_chain": ["self", cross_id, "r1"] })).await;
    assert_eq!(answer.body["data"]["ca_chain"].as_array().unwrap().len(), 3, "{}", answer.text);
    pki.stop().await;
}

#[actix_web::test]
async fn ca_chain_leaves_a_path_when_it_expires() {
    let start = Time::from_unix_timestamp(Clock::system().now().unix_timestamp()).unwrap();
    let pki = Pki::at(start).await;
    let long = Ca::root("/CN=Long");
    let short = Ca::root_with(new_key("ec-256"), "/CN=Short", CA, &["-days", "10"]);
    let cross = long.signs(&csr_of_key(&short.key, "/CN=Short", "", &[]), CA, &[]);
    let below = short.intermediate("/CN=Below", &[]);
    let bundle = [below.bundle(), short.pem.clone(), cross.clone(), long.pem.clone()].join("\n");
    let ids = pki.import(&bundle).await;
    pki.role(&json!({ "issuer_ref": ids[0] })).await;
    let expected =
        [vec![below.pem.clone(), short.pem.clone()], vec![below.pem.clone(), cross.clone(), long.pem.clone()]];
    for (days, expected) in [0, 20].into_iter().zip(&expected) {
        pki.app.clock.set(start + Duration::from_secs(days * 86_400));
        assert_eq!(&served(&pki, "issue/r").await, expected, "{days}");
        let issuer = pki.get(&format!("issuer/{}", ids[0])).await;
        let lines: Vec<String> = expected.iter().map(|pem| line(pem)).collect();
        assert_eq!(issuer["ca_chain"], json!(lines), "{days}");
        pki.post("config/issuers", json!({ "default": ids[0] })).await;
        let file = pki.app.client.get("pki/ca_chain").await.text;
        assert_eq!(file, lines.concat(), "{days}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn issuer_forbidden_by_its_chain_warns_and_issues_nothing() {
    let no_certificates = root_with(&CA.replace("keyCertSign,cRLSign", "cRLSign"));
    let no_authorities = root_with(&CA.replace("CA:TRUE", "CA:TRUE,pathlen:0"));
    let other_names = root_with(&format!("{CA}\nnameConstraints=critical,permitted;dirName:dir\n[dir]\nO=Good"));
    for (above, why) in [
        (no_certificates, "has a keyUsage without keyCertSign"),
        (no_authorities, "allows a path length of 0, but 1 CAs are below it"),
        (other_names, "does not allow the certificate of"),
    ] {
        let pki = Pki::empty().await;
        pki.role(&json!({ "allow_any_name": true })).await;
        let below = above.intermediate("/O=Evil/CN=Below", &[]);
        // Without the parent, its rules are unknown.
        let imported = pki.post("issuers/import/bundle", json!({ "pem_bundle": below.bundle() })).await;
        let id = imported.body["data"]["imported_issuers"][0].as_str().unwrap();
        assert!(!imported.warnings().contains("cannot issue certificates"), "{}", imported.text);
        let ask = json!({ "common_name": "a.test", "ttl": "1h" });
        let leaf = pki.ask("issue/r", ask.clone()).await;
        assert!(openssl_verifies_chain(&above.pem, &[&below.pem], &leaf.pem).is_err(), "{why}");
        let warnings = pki.post("issuers/import/bundle", json!({ "pem_bundle": above.pem })).await.warnings();
        for part in [why, "Above", &format!("issuer {id} cannot issue certificates")] {
            assert!(warnings.contains(part), "{why}: {warnings}");
        }
        let request = csr("ec-256", "/CN=a.test", "");
        for (endpoint, body) in [
            ("issue/r", ask.clone()),
            ("sign/r", json!({ "csr": request, "common_name": "a.test" })),
            ("sign-verbatim", json!({ "csr": request })),
            ("sign-intermediate", json!({ "csr": request, "common_name": "a.test" })),
            ("sign-self-issued", json!({ "certificate": above.pem })),
        ] {
            let path = format!("issuer/{id}/{endpoint}");
            pki.refused(&path, body.clone(), "no chain of the issuer verifies").await;
            pki.refused(&path, body, why).await;
        }
        // Its CRL is still issued.
        assert!(pki.crl(id).await.is_signed_by(&below.pem));
        pki.stop().await;
    }
}

#[actix_web::test]
async fn name_is_refused_when_no_chain_permits_it() {
    let pki = Pki::empty().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let key = new_key("ec-256");
    let constrained = format!("{CA}\nnameConstraints=critical,permitted;DNS:good.com");
    let held = Ca::root_with(key.clone(), "/CN=Above", &constrained, &[]);
    let free = Ca::root_with(key, "/CN=Above", CA, &[]);
    let below = held.intermediate("/CN=Below", &[]);
    let ids = pki.import(&[below.bundle(), held.pem.clone(), free.pem.clone()].join("\n")).await;
    let ask = |name: &str| json!({ "common_name": name, "ttl": "1h" });
    let leaf = pki.ask("issue/r", ask("a.evil.com")).await;
    openssl_verifies_chain(&free.pem, &[&below.pem], &leaf.pem).unwrap();
    assert!(openssl_verifies_chain(&held.pem, &[&below.pem], &leaf.pem).is_err());
    assert_eq!(pki.app.client.delete(&format!("pki/issuer/{}", ids[2])).await.status, 200);
    let serial = parse(&held.pem).serial().to_string();
    for rule in
        ["do not allow a.evil.com (RFC 5280 4.2.1.10): see nameConstraints of the certificate of", serial.as_str()]
    {
        pki.refused("issue/r", ask("a.evil.com"), rule).await;
    }
    pki.ask("issue/r", ask("a.good.com")).await;
    pki.stop().await;
}

#[actix_web::test]
async fn role_without_required_certificate_policy_warns() {
    let pki = Pki::empty().await;
    let root = Ca::root("/CN=Above");
    let extensions =
        format!("{CA}\npolicyConstraints=critical,requireExplicitPolicy:0\ncertificatePolicies=1.2.3.4,1.2.3.5");
    let below_key = new_key("ec-256");
    let pem = root.signs(&csr_of_key(&below_key, "/CN=Below", "", &[]), &extensions, &[]);
    let below = Ca { key: below_key, pem };
    pki.import(&format!("{}\n{}", below.bundle(), root.pem)).await;
    let told = "policy_identifiers: the issuing chain requires an explicit certificate policy, one of 1.2.3.4, 1.2.3.5";
    let files = Files::new();
    let ca = files.save("root.pem", &root.pem);
    let between = files.save("int.pem", &below.pem);
    for (policies, fits) in [(json!([]), false), (json!(["1.2.3.6"]), false), (json!(["1.2.3.5"]), true)] {
        let role = json!({ "allow_any_name": true, "key_type": "ec", "policy_identifiers": policies });
        let written = pki.post("roles/p", role).await;
        assert_eq!(!written.warnings().contains(told), fits, "{policies}: {}", written.text);
        let issued = pki.post("issue/p", json!({ "common_name": "a.test", "ttl": "1h" })).await;
        assert_eq!(!issued.warnings().contains(told), fits, "{policies}: {}", issued.text);
        let leaf = files.save("leaf.pem", issued.body["data"]["certificate"].as_str().unwrap());
        let arguments =
            ["verify", "-policy_check", "-policy", "1.2.3.5", "-CAfile", &ca, "-untrusted", &between, &leaf];
        let verified = run("openssl", &arguments, b"");
        assert_eq!(verified.status.success(), fits, "{policies}: {verified:?}");
    }
    let verbatim: Value = json!({ "csr": csr("ec-256", "/CN=a.test", ""), "ttl": "1h" });
    assert!(pki.post("sign-verbatim", verbatim).await.warnings().contains(told));
    pki.stop().await;
}
