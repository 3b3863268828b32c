//! A corpus of certificates from every signing endpoint for every type of key, linted by pkilint.
//!
//! Most have key usages that suit the key. Some have the default usages of the contract;
//! `tests/judges/pkilint_allowed.txt` lists the findings that are accepted for these.

use serde_json::{Value, json};

use signet::x509::extension::{self, KeyUsage, SubjectAltNames};
use signet::x509::name;
use signet::x509::pieces::{Extensions, Name};

use super::external_policy::engine::{Engine, Reply, Template, common_name, consent_to, dns};
use super::external_policy::settings;
use super::foreign::{self, CA, Ca, Files, csr};
use super::mount::{Pki, with};
use crate::judges::{judge, refusal, scripts};

/// Types of keys, and usages that suit them.
const KEYS: [(&str, &str); 7] = [
    ("rsa-2048", "DigitalSignature,KeyEncipherment"),
    ("rsa-3072", "DigitalSignature"),
    ("ec-224", "DigitalSignature,KeyAgreement"),
    ("ec-256", "DigitalSignature"),
    ("ec-384", "DigitalSignature,KeyAgreement"),
    ("ec-521", "DigitalSignature"),
    ("ed25519", "DigitalSignature"),
];

const ISSUERS: [(&str, &str, u32); 5] =
    [("rsa", "rsa", 2048), ("p256", "ec", 256), ("p384", "ec", 384), ("p521", "ec", 521), ("ed", "ed25519", 0)];

/// Certificates as files, with the names used in the list of accepted findings.
struct Corpus {
    pki: Pki,
    files: Files,
}

impl Corpus {
    async fn start() -> Self {
        let corpus = Self { pki: Pki::empty().await, files: Files::new() };
        let urls = json!({ "issuing_certificates": "http://pki.test/ca", "ocsp_servers": "http://pki.test/ocsp",
            "crl_distribution_points": "http://pki.test/crl,http://other.test/crl",
            "delta_crl_distribution_points": "http://pki.test/delta" });
        corpus.pki.post("config/urls", urls).await;
        for (name, key_type, bits) in ISSUERS {
            let root = json!({ "issuer_name": name, "common_name": format!("Root {name}"), "organization": "Example",
                "country": "NZ", "key_type": key_type, "key_bits": bits });
            corpus.keep(&format!("root-{name}"), &corpus.pki.root(root).await);
        }
        corpus
    }

    fn keep(&self, name: &str, data: &Value) {
        self.files.write(&format!("{name}.pem"), data["certificate"].as_str().unwrap().as_bytes());
    }

    async fn make(&self, endpoint: &str, name: &str, body: Value) {
        self.keep(name, &self.pki.data(endpoint, body).await);
    }
}

/// Returns the variants of leaves: role, request, and subject and extensions of the CSR.
fn leaves() -> [(Value, Value, &'static str, &'static str); 5] {
    [
        (json!({}), json!({ "common_name": "a.test" }), "/CN=a.test", "subjectAltName=DNS:a.test"),
        (
            json!({ "allowed_uri_sans": "*" }),
            json!({ "common_name": "b.test", "alt_names": "*.b.test,x@b.test", "ip_sans": "10.0.0.1,fd00::1",
                "uri_sans": "spiffe://b.test/ns", "ttl": "1h" }),
            "/C=NZ/O=Example/CN=b.test",
            "subjectAltName=DNS:b.test,email:x@b.test,IP:10.0.0.1,IP:fd00::1,URI:spiffe://b.test/ns",
        ),
        (
            json!({ "organization": "Example", "ou": ["Two", "One"], "country": "NZ", "province": "p", "locality": "l",
                "policy_identifiers": ["2.23.140.1.2.1"], "not_before_duration": "1h" }),
            json!({ "common_name": "c.test" }),
            "/C=NZ/ST=p/L=l/O=Example/OU=One/CN=c.test",
            "subjectAltName=DNS:c.test\ncertificatePolicies=2.23.140.1.2.1\nbasicConstraints=critical,CA:FALSE",
        ),
        (
            json!({ "require_cn": false, "use_csr_common_name": false, "use_csr_sans": false }),
            json!({ "alt_names": "d.test" }),
            "/",
            "subjectAltName=critical,DNS:d.test",
        ),
        (
            json!({ "basic_constraints_valid_for_non_ca": true, "allowed_user_ids": "*", "allowed_serial_numbers": "*",
                "allowed_other_sans": "*", "email_protection_flag": true, "ext_key_usage_oids": "1.3.6.1.4.1.311.20.2.2" }),
            json!({ "common_name": "bücher.test", "user_ids": "humer", "serial_number": "77",
                "other_sans": "1.3.6.1.4.1.311.20.2.3;UTF8:humer@test", "not_after": "2098-01-01T00:00:00Z" }),
            "/O=Bücher/CN=e.test",
            "subjectAltName=DNS:e.test,otherName:1.3.6.1.4.1.311.20.2.3;UTF8:humer@test\nextendedKeyUsage=emailProtection",
        ),
    ]
}

/// Returns the variants of CAs: the request, and extensions of the CSR or the certificate.
fn authorities() -> [(Value, &'static str); 5] {
    [
        (json!({}), ""),
        (json!({ "max_path_length": 0, "country": "NZ", "organization": "Example" }), ""),
        (
            json!({ "permitted_dns_domains": "a.test,.b.test", "excluded_ip_ranges": "10.0.0.0/8,fd00::/8",
                "permitted_email_addresses": "a.test", "excluded_uri_domains": ".evil.test" }),
            "nameConstraints=critical,permitted;DNS:a.test,excluded;IP:10.0.0.0/255.0.0.0",
        ),
        (json!({ "ext_key_usage": "ServerAuth", "key_usage": "DigitalSignature" }), "certificatePolicies=2.5.29.32.0"),
        (
            json!({ "use_csr_values": true }),
            "certificatePolicies=2.23.140.1.2.1\nsubjectAltName=DNS:ca.test,email:x@ca.test",
        ),
    ]
}

async fn add_leaves(corpus: &Corpus, kind: &str, usage: &str) {
    let (family, bits) = kind.split_once('-').unwrap_or((kind, "0"));
    let bits: u32 = bits.parse().unwrap();
    let plain = json!({ "key_type": family, "key_bits": bits, "allow_any_name": true });
    for (at, (role, request, subject, extensions)) in leaves().into_iter().enumerate() {
        let usages = json!({ "key_usage": usage, "issuer_ref": ISSUERS[at].0 });
        corpus.pki.role(&with(&with(&plain, usages), role)).await;
        corpus.make("issue/r", &format!("issue-{kind}-{at}"), request.clone()).await;
        let csr = csr(kind, subject, extensions);
        corpus.make("sign/r", &format!("sign-{kind}-{at}"), with(&request, json!({ "csr": csr }))).await;
        let verbatim = json!({ "csr": csr, "key_usage": usage, "ext_key_usage": "ServerAuth,ClientAuth" });
        corpus.make("sign-verbatim/r", &format!("verbatim-{kind}-{at}"), verbatim).await;
    }
    // Default key usages of role and request.
    corpus.pki.role(&with(&plain, json!({ "issuer_ref": "p256" }))).await;
    let csr = json!({ "csr": csr(kind, "/CN=f.test", "subjectAltName=DNS:f.test") });
    corpus.make("issue/r", &format!("issue-{kind}-default"), json!({ "common_name": "f.test" })).await;
    corpus.make("sign/r", &format!("sign-{kind}-default"), csr.clone()).await;
    corpus.make("sign-verbatim/r", &format!("verbatim-{kind}-default"), csr).await;
}

async fn add_authorities(corpus: &Corpus, kind: &str) {
    for (at, (request, extensions)) in authorities().into_iter().enumerate() {
        let issuer = ISSUERS[at].0;
        let request = with(&request, json!({ "csr": csr(kind, "/CN=A CA", extensions), "common_name": "A CA" }));
        let path = format!("issuer/{issuer}/sign-intermediate");
        corpus.make(&path, &format!("intermediate-{kind}-{at}"), request).await;
        let own = Ca::root_with(foreign::key(kind), "/C=NZ/O=Other/CN=Root", &format!("{CA}\n{extensions}"), &[]);
        let path = format!("issuer/{issuer}/sign-self-issued");
        corpus.make(&path, &format!("self-issued-{kind}-{at}"), json!({ "certificate": own.pem })).await;
    }
}

/// Adds four further roots of each issuer's kind.
async fn add_roots(corpus: &Corpus) {
    for (name, key_type, bits) in ISSUERS {
        for (at, (request, _)) in authorities().into_iter().take(4).enumerate() {
            let root = json!({ "common_name": format!("Further root {at}"), "key_type": key_type, "key_bits": bits });
            corpus.keep(&format!("root-{name}-{at}"), &corpus.pki.root(with(&root, request)).await);
        }
    }
}

/// Returns the variants of a policy engine's leaves: subject, and extensions in addition to keyUsage.
fn decided_leaves() -> [(Name, Vec<Extensions>); 5] {
    let sans = SubjectAltNames { dns: vec!["d.test".into()], ..SubjectAltNames::default() };
    let purposes = extension::eku_oids(&[], true, true, false, false, &[]).unwrap();
    [
        (common_name("a.test"), vec![dns("a.test")]),
        (common_name("b.test"), vec![dns("b.test"), extension::ext_key_usage(&purposes)]),
        (common_name("c.test"), vec![dns("c.test"), extension::basic_constraints(false, None)]),
        (name::name(&[]), vec![extension::subject_alt_name(&sans, true)]),
        (common_name("e.test"), vec![extension::subject_key_id(&[5; 20]), dns("e.test")]),
    ]
}

/// Adds certificates that a policy engine decides, for every type of key and every issuer.
async fn add_decided(corpus: &Corpus, engine: &Engine, kind: &str, usage: &str) {
    let (family, bits) = kind.split_once('-').unwrap_or((kind, "0"));
    let usages: Vec<String> = usage.split(',').map(str::to_owned).collect();
    let decide = |template: Template, issuer: &'static str| {
        engine.says(move |question| {
            let mut consent = consent_to(question, &template);
            consent["issuer_ref"] = issuer.into();
            Reply::json(consent)
        });
    };
    for (at, (subject, mut extensions)) in decided_leaves().into_iter().enumerate() {
        extensions.push(extension::key_usage(KeyUsage::from_names(&usages)));
        decide(Template { subject, extensions, ..Template::default() }, ISSUERS[at].0);
        let wanted = json!({ "key_type": family, "key_bits": bits });
        corpus.make("external-policy/issue", &format!("decided-issue-{kind}-{at}"), wanted).await;
        let csr = json!({ "csr": csr(kind, "/CN=asked", "") });
        corpus.make("external-policy/sign", &format!("decided-sign-{kind}-{at}"), csr.clone()).await;
        decide(Template::authority(u32::try_from(at).ok().filter(|at| *at > 0)), ISSUERS[at].0);
        let path = "external-policy/sign-intermediate";
        corpus.make(path, &format!("decided-intermediate-{kind}-{at}"), csr).await;
    }
}

#[actix_web::test]
async fn pkilint_finds_only_accepted_findings() {
    let corpus = Corpus::start().await;
    let engine = Engine::start().await;
    corpus.pki.post("config/external-policy", settings(&engine)).await;
    add_roots(&corpus).await;
    for (kind, usage) in KEYS {
        add_leaves(&corpus, kind, usage).await;
        add_authorities(&corpus, kind).await;
        add_decided(&corpus, &engine, kind, usage).await;
    }
    let allowed = scripts().join("pkilint_allowed.txt");
    let printed = judge("lint.py", &[corpus.files.path("").to_str().unwrap(), allowed.to_str().unwrap()]);
    // Per type of key, five of each endpoint and three with default usages; per issuer, five roots.
    let expected = KEYS.len() * (8 * 5 + 3) + ISSUERS.len() * 5;
    assert!(printed.contains(&format!("{expected} certificates linted")), "{printed}");
    engine.stop().await;
    corpus.pki.stop().await;
}

#[actix_web::test]
async fn pkilint_script_reports_findings_and_unused_exceptions() {
    let files = Files::new();
    let odd = Ca::root_with(foreign::key("ec-256"), "/C=NZ/CN=Root", "basicConstraints=CA:TRUE", &[]);
    files.write("odd.pem", odd.pem.as_bytes());
    let folder = files.path("");
    // An unused entry is rejected as well, and so is an entry without a reason.
    for (allowed, finding) in [
        ("", "odd.pem: ERROR pkix.ca_certificate_no_ku_extension"),
        ("pkix.some_code other.pem # why\n", "nothing needs pkix.some_code other.pem"),
        ("pkix.some_code odd.pem\n", "has no reason"),
    ] {
        let refused = refusal("lint.py", &[folder.to_str().unwrap(), &files.save("allowed.txt", allowed)]);
        assert!(refused.contains(finding), "{allowed:?}: {refused}");
    }
}
