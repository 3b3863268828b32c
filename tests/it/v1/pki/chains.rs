//! Certification paths across two roots and two intermediates in their own mounts. One intermediate and one root are
//! cross-signed, and every endpoint issues leaves of every key type. Each leaf must verify under every root that it
//! should, and under no other.
//!
//! Verifiers: openssl in strict mode, GnuTLS, webpki of rustls, and Python's `cryptography`. The latter does not
//! support P-224, so it does not verify those leaves.

use rustls::pki_types::{CertificateDer, UnixTime};
use serde_json::{Value, json};
use signet::x509::certificate::Certificate;

use super::foreign::{Files, csr, gnutls_verifies, openssl_verifies_chain};
use super::mount::parse;
use crate::judges::judge;
use crate::support::App;

const KEYS: [&str; 7] = ["rsa-2048", "rsa-3072", "ec-224", "ec-256", "ec-384", "ec-521", "ed25519"];

/// A leaf with the certificates between it and a root.
#[derive(Clone)]
struct Way {
    name: String,
    root: String,
    between: Vec<String>,
    leaf: String,
    host: String,
}

impl Way {
    /// Returns the same leaf on a path to this root.
    fn to(&self, root: &str, between: &[&String]) -> Self {
        let name = format!("{} to {}", self.name, parse(root).common_name());
        Self { name, root: root.to_owned(), between: between.iter().copied().cloned().collect(), ..self.clone() }
    }

    fn openssl(&self) -> Result<(), String> {
        let between: Vec<&str> = self.between.iter().map(String::as_str).collect();
        openssl_verifies_chain(&self.root, &between, &self.leaf)
    }

    fn gnutls(&self) -> Result<(), String> {
        let files = Files::new();
        let chain = [std::slice::from_ref(&self.leaf), &self.between].concat().join("\n");
        gnutls_verifies(&files.write("root", self.root.as_bytes()), &files.write("chain", chain.as_bytes()))
    }

    fn webpki(&self) -> Result<(), String> {
        let leaf = der(&self.leaf);
        let root = der(&self.root);
        let between: Vec<_> = self.between.iter().map(|pem| der(pem)).collect();
        let anchor = webpki::anchor_from_trusted_cert(&root).unwrap();
        let leaf = webpki::EndEntityCert::try_from(&leaf).unwrap();
        let usage = webpki::KeyUsage::server_auth();
        let now = UnixTime::now();
        leaf.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &[anchor], &between, now, usage, None, None)
            .map_err(|e| e.to_string())?;
        let host = rustls::pki_types::ServerName::try_from(self.host.as_str()).unwrap();
        leaf.verify_is_valid_for_subject_name(&host).map_err(|e| e.to_string())
    }

    /// Returns the case for Python's verifier.
    fn case(&self, valid: bool) -> Value {
        json!({ "name": self.name, "roots": [self.root], "between": self.between, "leaf": self.leaf,
            "host": self.host, "valid": valid })
    }
}

struct Mounts {
    app: App,
}

impl Mounts {
    async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.app.client.post(path, body.clone()).await;
        assert!(matches!(answer.status, 200 | 204), "{path} {body}: {}", answer.text);
        answer.body["data"].clone()
    }

    async fn mount(&self, path: &str) {
        self.post(&format!("sys/mounts/{path}"), json!({ "type": "pki", "config": { "max_lease_ttl": "9000h" } }))
            .await;
        let role = json!({ "allow_any_name": true, "key_type": "any", "ttl": "24h",
            "key_usage": "DigitalSignature" });
        self.post(&format!("{path}/roles/any"), role).await;
    }

    async fn root(&self, mount: &str, key_type: &str) -> String {
        self.mount(mount).await;
        let root = json!({ "common_name": format!("Root {mount}"), "key_type": key_type, "ttl": "8000h" });
        pem(&self.post(&format!("{mount}/root/generate/internal"), root).await)
    }

    /// Creates a mount and returns the CSR of its new intermediate.
    async fn intermediate(&self, mount: &str, key_type: &str, bits: u32) -> Value {
        self.mount(mount).await;
        let made = json!({ "common_name": format!("Intermediate {mount}"), "key_type": key_type, "key_bits": bits });
        self.post(&format!("{mount}/intermediate/generate/internal"), made).await["csr"].clone()
    }

    async fn certifies(&self, root: &str, csr: &Value) -> String {
        let request =
            json!({ "csr": csr, "use_csr_values": true, "common_name": "", "max_path_length": 0, "ttl": "7000h" });
        pem(&self.post(&format!("{root}/root/sign-intermediate"), request).await)
    }

    async fn set_signed(&self, mount: &str, certificates: &[&String]) -> Value {
        let bundle = certificates.iter().map(|c| c.as_str()).collect::<Vec<_>>().join("\n");
        self.post(&format!("{mount}/intermediate/set-signed"), json!({ "certificate": bundle })).await
    }

    /// Issues leaves of every key type by every endpoint of a mount, with the chains of their responses.
    async fn leaves(&self, mount: &str) -> Vec<Way> {
        let mut all = Vec::new();
        for kind in KEYS {
            let (key_type, bits) = kind.split_once('-').unwrap_or((kind, "0"));
            let host = format!("{kind}.{mount}.test");
            let csr = csr(kind, &format!("/CN={host}"), &format!("subjectAltName=DNS:{host}"));
            for (endpoint, request) in [
                ("issue/any", json!({ "common_name": host, "key_type": key_type, "key_bits": bits })),
                ("sign/any", json!({ "csr": csr })),
                (
                    "sign-verbatim/any",
                    json!({ "csr": csr, "ext_key_usage": "ServerAuth", "key_usage": "DigitalSignature" }),
                ),
            ] {
                let data = self.post(&format!("{mount}/{endpoint}"), request).await;
                let between: Vec<String> = serde_json::from_value(data["ca_chain"].clone()).unwrap();
                let name = format!("{mount}/{endpoint} {kind}");
                all.push(Way { name, root: String::new(), between, leaf: pem(&data), host: host.clone() });
            }
        }
        all
    }
}

fn pem(data: &Value) -> String {
    data["certificate"].as_str().unwrap().to_owned()
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from(parse(pem).der().to_vec())
}

#[actix_web::test]
async fn every_leaf_verifies_under_exactly_its_roots() {
    let mounts = Mounts { app: App::start().await };
    let a = mounts.root("a", "ec").await;
    let b = mounts.root("b", "rsa").await;
    let one = mounts.intermediate("one", "ec", 384).await;
    let two = mounts.intermediate("two", "rsa", 2048).await;
    let a_one = mounts.certifies("a", &one).await;
    let a_two = mounts.certifies("a", &two).await;
    let b_two = mounts.certifies("b", &two).await;
    // The second root cross-signs the first: everything below the first verifies under both.
    let b_a = pem(&mounts.post("b/root/sign-self-issued", json!({ "certificate": a })).await);
    assert_eq!(parse(&b_a).key().spki(), parse(&a).key().spki());
    mounts.set_signed("one", &[&a_one, &a]).await;
    let stored = mounts.set_signed("two", &[&a_two, &a, &b_two, &b]).await;
    let with_key = stored["mapping"].as_object().unwrap().values().filter(|key| *key != "").count();
    assert_eq!(with_key, 2, "both certificates of the intermediate have its key: {stored}");
    let mut ways = Vec::new();
    for leaf in mounts.leaves("one").await {
        assert_eq!(leaf.between, [a_one.clone(), a.clone()], "{}", leaf.name);
        ways.extend([leaf.to(&a, &[&a_one]), leaf.to(&b, &[&a_one, &b_a])]);
    }
    for leaf in mounts.leaves("two").await {
        // The chain starts with the certificate that is the default issuer, which may be either.
        assert!(leaf.between[0] == a_two || leaf.between[0] == b_two, "{}", leaf.name);
        ways.extend([leaf.to(&a, &[&a_two]), leaf.to(&b, &[&b_two])]);
    }
    assert_eq!(ways.len(), 2 * 2 * 3 * KEYS.len());
    judged(&ways, &parse(&a), &b);
    mounts.app.stop().await;
}

/// Asserts that all verifiers accept the paths and reject an incomplete one.
fn judged(ways: &[Way], a: &Certificate, b: &str) {
    let mut cases = Vec::new();
    for way in ways {
        for (judge, verdict) in [("openssl", way.openssl()), ("GnuTLS", way.gnutls()), ("webpki", way.webpki())] {
            assert_eq!(verdict, Ok(()), "{judge}: {}", way.name);
        }
        if !way.name.contains("ec-224") {
            cases.push(way.case(true));
        }
    }
    // Without the cross-signed root there is no path from the first intermediate to the second root.
    let lost = Way { root: b.to_owned(), name: "nowhere".to_owned(), ..ways[0].clone() };
    assert_eq!(parse(&ways[0].root).der(), a.der());
    assert!(lost.openssl().is_err() && lost.gnutls().is_err() && lost.webpki().is_err());
    cases.push(lost.case(false));
    let other_host = Way { host: "other.test".to_owned(), root: ways[0].root.clone(), ..lost };
    assert!(other_host.webpki().is_err());
    cases.push(other_host.case(false));
    let files = Files::new();
    files.write("cases.json", Value::from(cases).to_string().as_bytes());
    judge("verify.py", &[files.path("").to_str().unwrap()]);
}
