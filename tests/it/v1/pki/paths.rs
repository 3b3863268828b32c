//! Certification paths above an issuer (RFC 5280 section 6.1): the one in responses, those that forbid certificates of
//! the issuer, and the certificate policies that they require.

use std::time::Duration;

use serde_json::{Value, json};
use signet::clock::{Clock, Time};

use super::foreign::{self, CA, Ca, csr, new_key, openssl_verifies_chain, run};
use super::mount::{Pki, parse};
use crate::support::App;

async fn import(pki: &Pki, bundle: &[&str]) -> (Vec<String>, String) {
    let answer = pki.post("issuers/import/bundle", json!({ "pem_bundle": bundle.join("\n") })).await;
    (serde_json::from_value(answer.body["data"]["imported_issuers"].clone()).unwrap(), answer.warnings())
}

fn root_with(subject: &str, extension: &str) -> Ca {
    Ca::root_with(new_key("ec-256"), subject, &format!("{CA}\n{extension}"), &[])
}

/// Returns a certificate for the CA's key, issued by another CA.
fn cross_signed(ca: &Ca, by: &Ca, subject: &str) -> String {
    let files = foreign::Files::new();
    let key = files.write("key.pem", ca.key.as_bytes());
    let config = files.write("req.cnf", b"[req]\ndistinguished_name=dn\n[dn]\n");
    let key = key.to_str().unwrap();
    let config = config.to_str().unwrap();
    let csr = foreign::openssl_text(&["req", "-new", "-key", key, "-config", config, "-subj", subject], b"");
    by.signs(&csr, CA, &[])
}

/// Asserts that the certificates are one path: each is signed by the next.
fn assert_one_path(leaf: &str, chain: &[String]) {
    let all: Vec<_> = std::iter::once(leaf).chain(chain.iter().map(String::as_str)).map(parse).collect();
    for pair in all.windows(2) {
        assert!(pair[0].is_signed_by(pair[1].key()) && pair[0].issuer() == pair[1].subject());
    }
}

async fn served(pki: &Pki, path: &str) -> Vec<String> {
    let data = pki.post(path, json!({ "common_name": "localhost", "ttl": "1h" })).await.body["data"].clone();
    let chain: Vec<String> = serde_json::from_value(data["ca_chain"].clone()).unwrap();
    assert_one_path(data["certificate"].as_str().unwrap(), &chain);
    chain
}

#[actix_web::test]
async fn ca_chain_is_one_path_after_a_rotation_of_roots() {
    let pki = Pki::empty().await;
    pki.root(json!({ "common_name": "Root 1", "issuer_name": "r1" })).await;
    let new = pki.root(json!({ "common_name": "Root 2", "issuer_name": "r2" })).await;
    let csr = pki.post("intermediate/cross-sign", json!({ "common_name": "Root 2", "key_ref": new["key_id"] })).await;
    let request = json!({ "csr": csr.body["data"]["csr"], "use_csr_values": true, "common_name": "" });
    let cross = pki.post("issuer/r1/sign-intermediate", request).await.body["data"]["certificate"].clone();
    let cross_id = pki.post("intermediate/set-signed", json!({ "certificate": cross })).await;
    let cross_id = cross_id.body["data"]["imported_issuers"][0].as_str().unwrap().to_owned();
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
    let pki = Pki::on(App::builder().manual_clock(start).start().await).await;
    let long = Ca::root("/CN=Long");
    let short = Ca::root_with(new_key("ec-256"), "/CN=Short", CA, &["-days", "10"]);
    let cross = cross_signed(&short, &long, "/CN=Short");
    let below = short.intermediate("/CN=Below", &[]);
    let (ids, _) = import(&pki, &[&below.bundle(), &short.pem, &cross, &long.pem]).await;
    pki.role(&json!({ "issuer_ref": ids[0] })).await;
    let expected =
        [vec![below.pem.clone(), short.pem.clone()], vec![below.pem.clone(), cross.clone(), long.pem.clone()]];
    for (days, expected) in [0, 20].into_iter().zip(&expected) {
        pki.app.clock.set(start + Duration::from_secs(days * 86_400));
        assert_eq!(&served(&pki, "issue/r").await, expected, "{days}");
        let issuer = pki.get(&format!("issuer/{}", ids[0])).await;
        let lines: Vec<String> = serde_json::from_value(issuer["ca_chain"].clone()).unwrap();
        assert_eq!(&lines.iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>(), expected, "{days}");
        pki.post("config/issuers", json!({ "default": ids[0] })).await;
        let file = pki.app.client.get("pki/ca_chain").await.text;
        assert_eq!(file, format!("{}\n", expected.join("\n")), "{days}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn issuer_forbidden_by_its_chain_warns_and_issues_nothing() {
    let signs_lists_only = CA.replace("keyCertSign,cRLSign", "cRLSign");
    let no_certificates = Ca::root_with(new_key("ec-256"), "/CN=Above", &signs_lists_only, &[]);
    let no_authorities =
        Ca::root_with(new_key("ec-256"), "/CN=Above", &CA.replace("CA:TRUE", "CA:TRUE,pathlen:0"), &[]);
    let other_names = root_with("/O=Good/CN=Above", "nameConstraints=critical,permitted;dirName:dir\n[dir]\nO=Good");
    for (above, why) in [
        (no_certificates, "has a keyUsage without keyCertSign"),
        (no_authorities, "allows a path length of 0, and 1 authorities are below it"),
        (other_names, "does not allow the certificate of"),
    ] {
        let pki = Pki::empty().await;
        pki.role(&json!({ "allow_any_name": true })).await;
        let below = above.intermediate("/O=Evil/CN=Below", &[]);
        // Without the parent, its rules are unknown.
        let (ids, warnings) = import(&pki, &[&below.bundle()]).await;
        assert!(!warnings.contains("cannot issue certificates"), "{warnings}");
        let ask = json!({ "common_name": "a.test", "ttl": "1h" });
        let leaf = pki.ask("issue/r", ask.clone()).await;
        assert!(openssl_verifies_chain(&above.pem, &[&below.pem], &leaf.pem).is_err(), "{why}");
        let (_, warnings) = import(&pki, &[&above.pem]).await;
        assert!(warnings.contains(&format!("issuer {} cannot issue certificates", ids[0])), "{why}: {warnings}");
        assert!(warnings.contains(why) && warnings.contains("Above"), "{why}: {warnings}");
        let request = csr("ec-256", "/CN=a.test", "");
        for (endpoint, body) in [
            ("issue/r", ask.clone()),
            ("sign/r", json!({ "csr": request, "common_name": "a.test" })),
            ("sign-verbatim", json!({ "csr": request })),
            ("sign-intermediate", json!({ "csr": request, "common_name": "a.test" })),
            ("sign-self-issued", json!({ "certificate": above.pem })),
        ] {
            let path = format!("issuer/{}/{endpoint}", ids[0]);
            pki.refused(&path, body.clone(), "no chain of the issuer verifies").await;
            pki.refused(&path, body, why).await;
        }
        // Its CRL is still issued.
        assert!(pki.crl(&ids[0]).await.is_signed_by(&below.pem));
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
    let (ids, _) = import(&pki, &[&below.bundle(), &held.pem, &free.pem]).await;
    let ask = |name: &str| json!({ "common_name": name, "ttl": "1h" });
    let leaf = pki.ask("issue/r", ask("a.evil.com")).await;
    openssl_verifies_chain(&free.pem, &[&below.pem], &leaf.pem).unwrap();
    assert!(openssl_verifies_chain(&held.pem, &[&below.pem], &leaf.pem).is_err());
    assert_eq!(pki.app.client.delete(&format!("pki/issuer/{}", ids[2])).await.status, 200);
    let serial = parse(&held.pem).serial().to_string();
    for rule in ["do not allow a.evil.com (RFC 5280 4.2.1.10): those of the certificate of", serial.as_str()] {
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
    let files = foreign::Files::new();
    let key = files.write("key.pem", below_key.as_bytes());
    let config = files.write("req.cnf", b"[req]\ndistinguished_name=dn\n[dn]\n");
    let key = key.to_str().unwrap();
    let config = config.to_str().unwrap();
    let request = foreign::openssl_text(&["req", "-new", "-key", key, "-config", config, "-subj", "/CN=Below"], b"");
    let below = Ca { key: below_key, pem: root.signs(&request, &extensions, &[]) };
    import(&pki, &[&below.bundle(), &root.pem]).await;
    let told = "policy_identifiers: the issuing chain requires an explicit certificate policy, one of 1.2.3.4, 1.2.3.5";
    let ca = files.write("root.pem", root.pem.as_bytes());
    let between = files.write("int.pem", below.pem.as_bytes());
    for (policies, fits) in [(json!([]), false), (json!(["1.2.3.6"]), false), (json!(["1.2.3.5"]), true)] {
        let role = json!({ "allow_any_name": true, "key_type": "ec", "policy_identifiers": policies });
        let written = pki.post("roles/p", role).await;
        assert_eq!(!written.warnings().contains(told), fits, "{policies}: {}", written.text);
        let issued = pki.post("issue/p", json!({ "common_name": "a.test", "ttl": "1h" })).await;
        assert_eq!(!issued.warnings().contains(told), fits, "{policies}: {}", issued.text);
        let leaf = files.write("leaf.pem", issued.body["data"]["certificate"].as_str().unwrap().as_bytes());
        let [ca, between, leaf] = [&ca, &between, &leaf].map(|path| path.to_str().unwrap());
        let arguments = ["verify", "-policy_check", "-policy", "1.2.3.5", "-CAfile", ca, "-untrusted", between, leaf];
        let verified = run("openssl", &arguments, b"");
        assert_eq!(verified.status.success(), fits, "{policies}: {verified:?}");
    }
    let verbatim: Value = json!({ "csr": csr("ec-256", "/CN=a.test", ""), "ttl": "1h" });
    assert!(pki.post("sign-verbatim", verbatim).await.warnings().contains(told));
    pki.stop().await;
}
