//! Everything that is signed is parsed completely before (RFC 5280 sections 4.1 and 4.2), regardless of its source:
//! CSRs, templates, other CAs, parameters. Go's `crypto/x509`, Python's `cryptography` or RFC 5280 rejects each case.
//! The rules of each extension are unit tests in `src/x509/profile/tests.rs`; here each kind of rule has one case.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use signet::x509::extension::{self, extension as any, parse_oid};
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::pieces::{Extensions, Name, Rdns};
use signet::x509::writer::{SEQUENCE, SET, build};
use signet::x509::{oid, pem};

use super::external_policy::engine::{Engine, Reply, Template, consent_to};
use super::external_policy::settings;
use super::foreign::{self, CA, Ca, csr, csr_of_pieces, p256_spki, signed_by_p256};
use super::mount::{Pki, with};

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    build(tag, 0, |w| parts.iter().for_each(|part| w.raw(part)))
}

fn attribute(tag: u8, value: &[u8]) -> Vec<u8> {
    tlv(SEQUENCE, &[&tlv(6, &[Attribute::CommonName.oid()]), &tlv(tag, &[value])])
}

fn subject(attributes: &[&[u8]]) -> Name {
    name::name(&[&Rdns::from_der(&tlv(SET, attributes)).unwrap()])
}

fn good_subject() -> Name {
    name::name(&[&rdn(Attribute::CommonName, &["a.foo".to_owned()])])
}

/// Returns subjects of a CSR that are not DER or that other parsers reject, with the rule.
fn subjects() -> Vec<(Name, &'static str)> {
    vec![
        (subject(&[&attribute(0x01, &[1])]), "unsupported string type"),
        (subject(&[&attribute(0x13, b"a@b")]), "its type does not allow"),
        (subject(&[&attribute(0x0c, b"b"), &attribute(0x0c, b"a")]), "out of order"),
        (subject(&[&attribute(0x0c, b""), &attribute(0x0c, b"a")]), "value of an attribute is empty"),
    ]
}

fn san(name: &[u8]) -> Extensions {
    any(oid::SUBJECT_ALT_NAME, false, &tlv(SEQUENCE, &[name]))
}

/// Returns extensions of a CSR with invalid content, with the extension's name and the rule.
fn extensions() -> Vec<(Extensions, &'static str, &'static str)> {
    let access = tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&[6, 2, 42, 3], &tlv(0x86, &[b"http://a.test/"])])]);
    let empty: &[u8] = &[0x30, 2, 0x30, 0];
    let directory_name = [0xa4, 16, 0x30, 14, 0x31, 12, 0x30, 10, 6, 3, 0x55, 4, 3, 0x0c, 3, b'a', 0, b'b'];
    vec![
        (san(&directory_name), "subjectAltName", "control"),
        (san(&[0xa3, 2, 0x30, 0]), "subjectAltName", "x400Address and ediPartyName"),
        (any(oid::AUTHORITY_INFO_ACCESS, true, &access), "authorityInfoAccess", "must not be critical"),
        (any(oid::POLICY_CONSTRAINTS, true, &[0x30, 0]), "policyConstraints", "must not be empty"),
        (any(oid::SCT_LIST, false, b"garbage"), "SCT list", ""),
        (any(oid::CRL_DISTRIBUTION_POINTS, false, empty), "cRLDistributionPoints", "neither"),
        (any(oid::FRESHEST_CRL, true, empty), "freshestCRL", "must not be critical"),
        (any(oid::EXT_KEY_USAGE, false, &[0x30, 8, 6, 6, 42, 0x88, 0x80, 0x80, 0x80, 0]), "extKeyUsage", "2^28"),
        (any(&parse_oid(LARGE).unwrap(), false, &[5, 0]), "an extension's identifier", "2^28"),
        (any(oid::IP_ADDR_BLOCKS, true, &[0x30, 0]), "ipAddrBlocks", "is not supported"),
        (any(oid::CRL_NUMBER, false, &[2, 1, 1]), "cRLNumber", "must not be in a certificate"),
    ]
}

#[actix_web::test]
async fn copied_csr_values_are_fully_validated() {
    let pki = Pki::start().await;
    let csr_values = |csr: String| json!({ "csr": csr, "use_csr_values": true });
    for (subject, rule) in subjects() {
        let csr = csr_of_pieces(&subject, &[&san(&[0x82, 1, b'a'])]);
        pki.refused("sign-verbatim", json!({ "csr": csr }), rule).await;
        pki.refused("root/sign-intermediate", csr_values(csr), rule).await;
    }
    let no_name = csr_of_pieces(&Name::from_der(&[0x30, 2, 5, 0]).unwrap(), &[]);
    pki.refused("sign-verbatim", json!({ "csr": no_name }), "csr: unexpected DER tag").await;
    for (extension, name, rule) in extensions() {
        let csr = csr_of_pieces(&good_subject(), &[&extension]);
        let text = format!("csr: {name}: ");
        for (path, body) in
            [("sign-verbatim", json!({ "csr": csr })), ("root/sign-intermediate", csr_values(csr.clone()))]
        {
            // Distribution points of a CSR are never copied to a CA.
            if path != "sign-verbatim" && ["cRLDistributionPoints", "freshestCRL"].contains(&name) {
                continue;
            }
            let answer = pki.app.client.post(&format!("pki/{path}"), body).await;
            assert_eq!(answer.status, 400, "{path} {name} {rule}: {}", answer.text);
            assert!(answer.error().contains(&text) && answer.error().contains(rule), "{name} {rule}: {}", answer.text);
        }
    }
    for (oid, name) in [(oid::POLICY_CONSTRAINTS, "policyConstraints"), (oid::INHIBIT_ANY_POLICY, "inhibitAnyPolicy")] {
        let value: &[u8] = if oid == oid::INHIBIT_ANY_POLICY { &[2, 1, 0] } else { &[0x30, 3, 0x80, 1, 0] };
        let csr = csr_of_pieces(&good_subject(), &[&any(oid, true, value)]);
        pki.refused("sign-verbatim", json!({ "csr": csr }), &format!("csr: {name} need")).await;
        pki.post("root/sign-intermediate", csr_values(csr)).await;
    }
    let defaults = csr_of_pieces(&good_subject(), &[&any(oid::BASIC_CONSTRAINTS, true, &[0x30, 3, 1, 1, 0])]);
    pki.refused("sign-verbatim", json!({ "csr": defaults }), "basicConstraints: cA encodes the default FALSE").await;
    pki.stop().await;
}

#[actix_web::test]
async fn template_contents_are_fully_validated() {
    let pki = Pki::start().await;
    let engine = Engine::start().await;
    pki.post("config/external-policy", settings(&engine)).await;
    let templates = subjects()
        .into_iter()
        .map(|(subject, rule)| (Template { subject, ..Template::default() }, format!("subject: {rule}")))
        .chain(extensions().into_iter().map(|(extension, name, rule)| {
            let mut template = Template::default();
            template.extensions.retain(|own| own.as_der()[2..7] != extension.as_der()[2..7]);
            template.extensions.push(extension);
            (template, format!("{name}: {rule}"))
        }));
    for (template, rule) in templates {
        engine.says(move |question| Reply::json(consent_to(question, &template)));
        let answer =
            pki.app.client.post("pki/external-policy/sign", json!({ "csr": csr("ec-256", "/CN=asked", "") })).await;
        assert_eq!(answer.status, 400, "{rule}: {}", answer.text);
        let (name, rest) = rule.split_once(": ").unwrap();
        assert!(answer.error().contains(name) && answer.error().contains(rest), "{rule}: {}", answer.text);
    }
    engine.stop().await;
    pki.stop().await;
}

/// Returns a self-issued CA certificate of these pieces, signed by the P-256 key.
fn self_issued(subject: &Name, more: &[Extensions]) -> String {
    self_issued_with(subject, &[], &[1, 2, 3], more)
}

/// Same as [`self_issued`], with complete unique identifiers and another key identifier.
fn self_issued_with(subject: &Name, unique_ids: &[u8], key_id: &[u8], more: &[Extensions]) -> String {
    let own = [
        extension::basic_constraints(true, None),
        any(oid::KEY_USAGE, true, &[3, 2, 1, 6]),
        extension::subject_key_id(key_id),
    ];
    let tbs = build(SEQUENCE, 0, |w| {
        w.raw(&[0xa0, 3, 2, 1, 2, 2, 1, 77]);
        w.raw(signet::x509::algorithm::SignatureAlgorithm::Ecdsa(signet::x509::algorithm::Hash::Sha256).der());
        w.raw(subject.as_der());
        w.nest(SEQUENCE, |w| {
            w.tlv(0x17, b"500101000000Z");
            w.tlv(0x18, b"99991231235959Z");
        });
        w.raw(subject.as_der());
        w.raw(&p256_spki());
        w.raw(unique_ids);
        w.nest(0xa3, |w| w.nest(SEQUENCE, |w| own.iter().chain(more).for_each(|e| w.raw(e.as_der()))));
    });
    pem::encode("CERTIFICATE", &signed_by_p256(&tbs))
}

#[actix_web::test]
async fn self_issued_ca_contents_are_fully_validated() {
    let pki = Pki::start().await;
    let refused = async |certificate: String, rule: &str| {
        pki.refused("root/sign-self-issued", json!({ "certificate": certificate }), rule).await;
    };
    pki.post("root/sign-self-issued", json!({ "certificate": self_issued(&good_subject(), &[]) })).await;
    for (subject, rule) in subjects() {
        refused(self_issued(&subject, &[]), "certificate: subject: ").await;
        refused(self_issued(&subject, &[]), rule).await;
    }
    for (extension, name, rule) in extensions() {
        let certificate = self_issued(&good_subject(), &[extension]);
        refused(certificate.clone(), &format!("certificate: {name}: ")).await;
        refused(certificate, rule).await;
    }
    for good in [&[0x81, 2, 0, 7][..], &[0x82, 2, 4, 0xf0], &[0x81, 1, 0, 0x82, 3, 0, 1, 2]] {
        let certificate = self_issued_with(&good_subject(), good, &[1, 2, 3], &[]);
        pki.post("root/sign-self-issued", json!({ "certificate": certificate })).await;
    }
    for bad in [&[0x81, 0][..], &[0x82, 0], &[0x81, 1, 1], &[0x81, 2, 8, 0], &[0x82, 2, 4, 0xf1]] {
        let certificate = self_issued_with(&good_subject(), bad, &[1, 2, 3], &[]);
        refused(certificate, "certificate: a unique identifier is not a valid DER BIT STRING").await;
    }
    // Strict DER parsers reject a whole certificate for it.
    let explicit = tlv(SEQUENCE, &[&[6, 2, 42, 3], &[1, 1, 0], &[4, 2, 5, 0]]);
    let explicit = Extensions::from_der(&explicit).unwrap();
    refused(self_issued(&good_subject(), &[explicit]), "an extension encodes critical FALSE").await;
    pki.stop().await;
}

#[actix_web::test]
async fn imported_ca_name_and_key_id_are_validated() {
    let pki = Pki::start().await;
    for (subject, rule) in subjects() {
        let bundle = json!({ "pem_bundle": self_issued(&subject, &[]) });
        for path in ["issuers/import/bundle", "issuers/import/cert", "config/ca"] {
            pki.refused(path, bundle.clone(), rule).await;
        }
        pki.refused("intermediate/set-signed", json!({ "certificate": self_issued(&subject, &[]) }), "subject: ").await;
    }
    // The key identifier of a CA, if it has one, is copied to everything that it signs.
    let no_id = self_issued_with(&good_subject(), &[], &[], &[]);
    for (path, field) in [("issuers/import/cert", "pem_bundle"), ("intermediate/set-signed", "certificate")] {
        pki.refused(path, json!({ field: no_id }), "subjectKeyIdentifier: must not be empty").await;
    }
    pki.post("issuers/import/cert", json!({ "pem_bundle": self_issued(&good_subject(), &[]) })).await;
    pki.stop().await;
}

#[actix_web::test]
async fn invalid_name_constraints_are_rejected_everywhere() {
    let pki = Pki::start().await;
    let authority = json!({ "csr": csr("ec-256", "/CN=Below", ""), "common_name": "Below" });
    for side in ["permitted", "excluded"] {
        for (kind, base) in [("dns_domains", "*.a.test"), ("email_addresses", "a@"), ("uri_domains", "http://a.test/")]
        {
            let field = format!("{side}_{kind}");
            let constrained = json!({ &*field: [base] });
            let body = with(&authority, constrained.clone());
            pki.refused("root/sign-intermediate", body, &format!("{field}: a subtree ")).await;
            let root = with(&json!({ "common_name": "Root", "key_type": "ec" }), constrained);
            pki.refused("root/generate/internal", root, &format!("{field}: a subtree ")).await;
        }
    }
    for (subtree, rule) in [
        (tlv(0x82, &[b"a..b"]), "a subtree has an empty label"),
        (tlv(0x87, &[&[10, 0, 0, 0, 255, 0, 255, 0]]), "the mask of a subtree is not contiguous"),
        ([tlv(0x82, &[b"a.test"]), vec![0x80, 1, 1]].concat(), "a subtree has a minimum or maximum"),
    ] {
        let value = tlv(SEQUENCE, &[&tlv(0xa0, &[&tlv(SEQUENCE, &[&subtree])])]);
        let csr = csr_of_pieces(&good_subject(), &[&any(oid::NAME_CONSTRAINTS, true, &value)]);
        let rule = format!("csr: nameConstraints: {rule}");
        pki.refused("root/sign-intermediate", json!({ "csr": csr, "use_csr_values": true }), &rule).await;
    }
    let good = json!({ "permitted_dns_domains": ".a.test,a_b.test", "excluded_email_addresses": "a@b.test,.c.test,d.test",
        "permitted_uri_domains": ".a.test,b", "excluded_ip_ranges": "10.1.2.3/8" });
    pki.post("root/sign-intermediate", with(&authority, good)).await;
    pki.stop().await;
}

/// An identifier with an arc that other parsers cannot read.
const LARGE: &str = "1.2.2147483648";

#[actix_web::test]
async fn too_large_object_identifiers_are_rejected_everywhere() {
    let pki = Pki::start().await;
    let rule = |field: &str| format!("{field}: {LARGE}: an object identifier has ");
    for (field, value) in [
        ("ext_key_usage_oids", json!([LARGE])),
        ("policy_identifiers", json!([LARGE])),
        ("policy_identifiers", json!([json!({ "oid": LARGE, "cps": "http://a.test" }).to_string()])),
    ] {
        pki.refused("roles/large", json!({ field: value }), &rule(field)).await;
    }
    let other = json!({ "common_name": "a.foo", "other_sans": format!("{LARGE};UTF8:x") });
    let role = json!({ "allow_any_name": true, "allowed_other_sans": "*" });
    pki.deny(&role, other.clone(), &rule("other_sans")).await;
    let authority = json!({ "csr": csr("ec-256", "/CN=Below", ""), "common_name": "Below" });
    pki.refused("root/sign-intermediate", with(&authority, other), &rule("other_sans")).await;
    let usage = json!({ "ext_key_usage_oids": [LARGE], "common_name": "Below" });
    for path in ["sign-verbatim", "root/sign-intermediate"] {
        pki.refused(path, with(&authority, usage.clone()), &rule("ext_key_usage_oids")).await;
    }
    let oid = tlv(6, &[&parse_oid(LARGE).unwrap()]);
    let other_name = san(&tlv(0xa0, &[&oid, &tlv(0xa0, &[&[0x0c, 1, b'a']])]));
    for (extension, name) in [
        (&any(oid::CERTIFICATE_POLICIES, false, &tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&oid])])), "certificatePolicies"),
        (&san(&tlv(0x88, &[&parse_oid(LARGE).unwrap()])), "subjectAltName"),
        (&other_name, "subjectAltName"),
    ] {
        let csr = json!({ "csr": csr_of_pieces(&good_subject(), &[extension]) });
        pki.refused("sign-verbatim", csr, &format!("csr: {name}: an object identifier has ")).await;
    }
    // The same in a CSR that a role signs.
    let csr = csr_of_pieces(&good_subject(), &[&other_name]);
    pki.deny_sign(&role, json!({ "csr": csr }), "csr: subjectAltName: an object identifier has ").await;
    pki.stop().await;
}

#[actix_web::test]
async fn uris_without_a_usable_host_are_rejected() {
    let pki = Pki::start().await;
    let role = json!({ "allow_any_name": true, "allowed_uri_sans": "*" });
    for uri in ["http://a..b/", "spiffe://"] {
        pki.deny(&role, json!({ "common_name": "a.foo", "uri_sans": [uri] }), "uri_sans: URI ").await;
        let request = json!({ "csr": csr_of_pieces(&good_subject(), &[&san(&tlv(0x86, &[uri.as_bytes()]))]) });
        pki.deny_sign(&role, request.clone(), "csr: URI ").await;
        for path in ["sign-verbatim", "root/sign-intermediate"] {
            let body = with(&request, json!({ "use_csr_values": true }));
            pki.refused(path, body, "csr: subjectAltName: a URI ").await;
        }
    }
    for url in ["http://a..b/", "http://a.test/{x}"] {
        for field in
            ["issuing_certificates", "crl_distribution_points", "delta_crl_distribution_points", "ocsp_servers"]
        {
            pki.refused("config/urls", json!({ field: url }), &format!("{field}: ")).await;
            pki.refused("issuer/root", json!({ field: url }), &format!("{field}: ")).await;
        }
        pki.refused("config/cluster", json!({ "path": url }), "path: ").await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn sign_revocation_list_rejects_crls_forbidden_by_rfc_5280() {
    let pki = Pki::start().await;
    let path = "issuer/root/sign-revocation-list";
    let body = json!({ "revoked_certs": [], "crl_number": 5 });
    let list = |id: &str, critical: bool, value: &[u8]| {
        with(&body, json!({ "extensions": [{ "id": id, "critical": critical, "value": STANDARD.encode(value) }] }))
    };
    let scope = [0x30, 3, 0x81, 1, 0xff];
    let point = tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&tlv(0xa0, &[&tlv(0xa0, &[&tlv(0x86, &[b"http://a.test/"])])])])]);
    for (body, rule) in [
        (list("2.5.29.28", true, &[0x30, 0]), "crl: issuingDistributionPoint: must not be empty (RFC 5280 5.2.5)"),
        (list("2.5.29.46", true, &point), "crl: freshestCRL: must not be critical"),
        (
            with(&list("2.5.29.46", false, &point), json!({ "delta_crl_base_number": 4 })),
            "freshestCRL must not be in a delta CRL (RFC 5280 5.2.6)",
        ),
        (with(&body, json!({ "delta_crl_base_number": 6 })), "delta_crl_base_number: must not be above crl_number"),
        (list("1.2.2147483648", false, &[5, 0]), "an object identifier has"),
    ] {
        pki.refused(path, body, rule).await;
    }
    let resigned = json!({ "crls": [], "crl_number": 5, "delta_crl_base_number": 6 });
    pki.refused("issuer/root/resign-crls", resigned, "delta_crl_base_number: must not be above crl_number").await;
    let entry = |id: &str, critical: bool, value: &[u8]| {
        let extension = json!({ "id": id, "critical": critical, "value": STANDARD.encode(value) });
        with(
            &body,
            json!({ "revoked_certs": [{ "serial_number": "0a:01", "revocation_time": 1, "extensions": [extension] }] }),
        )
    };
    for (body, rule) in [
        (entry("2.5.29.21", true, &[10, 1, 1]), "reasonCode: must not be critical"),
        (entry("2.5.29.21", false, &[10, 1, 8]), "removeFromCRL is allowed only in delta CRLs (RFC 5280 5.3.1)"),
        (entry("2.5.29.24", true, b"\x18\x0f20300101000000Z"), "invalidityDate: must not be critical"),
        (entry("2.5.29.29", false, &[0x30, 3, 0x82, 1, b'a']), "certificateIssuer: must be critical"),
        (entry("2.5.29.29", true, &[0x30, 3, 0x82, 1, b'a']), "is allowed only in indirect CRLs (RFC 5280 5.3.3)"),
        (entry("1.2.2147483648", false, &[5, 0]), "an object identifier has"),
    ] {
        pki.refused(path, body.clone(), "revoked_certs[0]: extensions: ").await;
        pki.refused(path, body, rule).await;
    }
    for good in [
        list("2.5.29.28", true, &scope),
        list("2.5.29.46", false, &point),
        with(&entry("2.5.29.21", false, &[10, 1, 8]), json!({ "delta_crl_base_number": 4 })),
        with(&body, json!({ "delta_crl_base_number": 5 })),
        // An indirect CRL, declared as such.
        with(
            &entry("2.5.29.29", true, &[0x30, 3, 0x82, 1, b'a']),
            json!({ "extensions": list("2.5.29.28", true, &[0x30, 3, 0x84, 1, 0xff])["extensions"] }),
        ),
    ] {
        let made = pki.post(path, good).await;
        assert_eq!(made.warnings(), "", "{}", made.text);
    }
    // Entries are sorted: one without a certificateIssuer would inherit that of another entry.
    let issuer = json!([{ "id": "2.5.29.29", "critical": true, "value": STANDARD.encode([0x30, 3, 0x82, 1, b'a']) }]);
    let mixed = json!({ "revoked_certs": [
        { "serial_number": "05", "revocation_time": 1 },
        { "serial_number": "02", "revocation_time": 1, "extensions": issuer },
    ], "extensions": list("2.5.29.28", true, &[0x30, 3, 0x84, 1, 0xff])["extensions"] });
    pki.refused(path, with(&body, mixed), "revoked_certs[0]: extensions: must have a certificateIssuer").await;
    // Certificates from elsewhere may have serial numbers that are too long: they can be listed, with a warning.
    let long = json!({ "revoked_certs": [{ "serial_number": (["ff"; 20].join(":")), "revocation_time": 1 }] });
    let made = pki.post(path, with(&body, long)).await;
    assert!(made.warnings().contains("the first in revoked_certs[0], have 21 octets in DER"), "{}", made.text);
    pki.stop().await;
}

#[actix_web::test]
async fn valid_extensions_are_copied_unchanged() {
    let pki = Pki::start().await;
    let usual = "subjectAltName = DNS:*.a.test,DNS:a_b.test,email:a@b.test,URI:spiffe://a/b,IP:10.0.0.1,RID:1.2.3,dirName:dir\n\
        certificatePolicies = 1.2.3,@policy\ntlsfeature = status_request\nissuerAltName = DNS:a.test\n\
        authorityInfoAccess = caIssuers;URI:ldap:///cn=a?cACertificate,OCSP;URI:http://a.test\n\
        noCheck = ignored\n1.2.3.4 = DER:00ff\n[dir]\nO = Somebody\n\
        [policy]\npolicyIdentifier = 1.2.4\nCPS.1 = http://a.test/cps\nuserNotice.1 = @notice\n\
        [notice]\nexplicitText = UTF8:a\norganization = Org\nnoticeNumbers = 1,2";
    let leaf =
        pki.certify("sign-verbatim", json!({ "csr": csr("ec-256", "/C=NZ/O=Example+OU=One/CN=a.test", usual) })).await;
    let copied =
        ["2.5.29.32", "2.5.29.18", "1.3.6.1.5.5.7.1.1", "1.3.6.1.5.5.7.1.24", "1.3.6.1.5.5.7.48.1.5", "1.2.3.4"];
    for id in copied {
        assert!(leaf.raw(id).is_some(), "{id}");
    }
    let ca = Ca::root_with(foreign::key("ec-256"), "/CN=Usual", &format!("{CA}\n{usual}"), &[]);
    let _: Value = pki.post("root/sign-self-issued", json!({ "certificate": ca.pem })).await.body;
    pki.stop().await;
}
