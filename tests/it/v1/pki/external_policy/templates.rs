//! Content of the engine's certificates, and what the server makes of it.

use serde_json::{Value, json};
use signet::clock::{Clock, Time, format_rfc3339};
use signet::x509::extension::{self, KeyUsage};
use signet::x509::name;
use signet::x509::oid;
use signet::x509::pieces::{Extensions, Name};
use signet::x509::serial::Serial;
use signet::x509::usage::OCSP_SIGNING;

use super::engine::{Reply, Template, common_name, consent_to, csr_of, dns, has};
use super::{Governed, csr};
use crate::v1::pki::foreign::{self, Files};
use crate::v1::pki::mount::{Leaf, parse, text, with};

impl Governed {
    /// Returns the certificate that `sign` makes from a template.
    async fn made_of(&self, template: &Template, more: Value) -> Leaf {
        self.engine.consents(template, more);
        self.sign(json!({})).await
    }

    /// Asserts that `sign` rejects a template.
    async fn refuses(&self, template: &Template, more: Value, rule: &str) {
        self.engine.consents(template, more);
        self.sign_fails(400, rule).await;
    }
}

fn now() -> i64 {
    Clock::system().now().unix_timestamp()
}

#[actix_web::test]
async fn template_contents_are_kept_and_issuer_fields_replaced() {
    let governed = Governed::start().await;
    let template = Template::default();
    let leaf = governed.made_of(&template, json!({})).await;
    let made = &leaf.certificate;
    assert_eq!(made.subject(), &template.subject);
    assert_ne!(made.serial(), template.serial, "it is not recorded");
    assert_eq!((made.not_before(), made.not_after()), (template.not_before, template.not_after));
    let mut expected = template.extensions.clone();
    expected[2] = made.extension(oid::AUTHORITY_KEY_ID).unwrap().raw.clone();
    expected.push(extension::subject_key_id(&made.key().key_id()));
    let found: Vec<Extensions> = made.extensions().iter().map(|e| e.raw.clone()).collect();
    assert_eq!(found, expected, "byte for byte, in their order; a missing key identifier is added");
    assert_ne!(expected[2], template.extensions[2]);
    assert_eq!(leaf.sans(), ["DNS:policy.test"]);

    let own = vec![
        extension::subject_key_id(&[7; 20]),
        extension::authority_info_access(&["http://engine.test/ocsp".into()], &[]),
        extension::crl_distribution_points(&["http://engine.test/crl".into()]),
    ];
    let template = Template { extensions: [template.extensions, own.clone()].concat(), ..template };
    let template = Template { serial: Serial::random(), ..template };
    governed.engine.consents(&template, json!({}));
    let made =
        async || parse(text(&governed.pki.data("external-policy/sign", json!({ "csr": csr() })).await, "certificate"));
    let kept = made().await;
    assert!(own.iter().all(|extension| has(&kept, extension)), "without URLs here the engine's stay");
    let urls = json!({ "ocsp_servers": "http://own.test/ocsp", "crl_distribution_points": "http://own.test/crl" });
    governed.pki.post("config/urls", urls).await;
    let made = made().await;
    assert!(has(&made, &own[0]) && !has(&made, &own[1]) && !has(&made, &own[2]));
    assert!(has(&made, &extension::authority_info_access(&["http://own.test/ocsp".into()], &[])));
    assert!(has(&made, &extension::crl_distribution_points(&["http://own.test/crl".into()])));
    governed.stop().await;
}

#[actix_web::test]
async fn the_engine_chooses_the_issuer_and_its_key_the_algorithm() {
    let governed = Governed::start().await;
    let files = Files::new();
    for (name, request, algorithm) in [
        ("rsa", json!({ "key_type": "rsa" }), "sha256WithRSAEncryption"),
        ("ed", json!({ "key_type": "ed25519" }), "ED25519"),
        ("p521", json!({ "key_type": "ec", "key_bits": 521 }), "ecdsa-with-SHA512"),
        ("p256", json!({ "key_type": "ec" }), "ecdsa-with-SHA256"),
    ] {
        let issuer = governed.pki.root(with(&request, json!({ "issuer_name": name, "common_name": name }))).await;
        governed.engine.consents(&Template::default(), json!({ "issuer_ref": name }));
        for path in ["external-policy/sign", "issuer/root/external-policy/sign"] {
            let leaf = governed.pki.ask(path, json!({ "csr": csr() })).await;
            assert!(foreign::signature_algorithm(&leaf.pem).starts_with(algorithm), "{name}");
            let root = text(&issuer, "certificate");
            assert_eq!(text(leaf.data(), "issuing_ca").trim(), root.trim());
            let root = files.write("root.pem", root.as_bytes());
            let file = files.write("leaf.pem", leaf.pem.as_bytes());
            foreign::openssl_verifies(&root, &file).unwrap();
            foreign::gnutls_verifies(&root, &file).unwrap();
        }
    }
    governed.refuses(&Template::default(), json!({ "issuer_ref": "nobody" }), "issuer_ref: issuer not found").await;
    governed.pki.post("issuer/rsa", json!({ "issuer_name": "rsa", "usage": "crl-signing" })).await;
    governed.refuses(&Template::default(), json!({ "issuer_ref": "rsa" }), "usage lacks issuing-certificates").await;
    // Without a default issuer the engine must name one.
    assert_eq!(governed.pki.app.client.delete("pki/issuer/root").await.status, 200);
    governed.refuses(&Template::default(), json!({}), "issuer_ref: no default issuer configured").await;
    let service = &governed.engine.question()["service_request_values"];
    assert_eq!((&service["requested_issuer_id"], &service["requested_issuer_cert"]), (&json!(""), &json!("")));
    let leaf = governed.made_of(&Template::default(), json!({ "issuer_ref": "ed" })).await;
    assert_eq!(leaf.certificate.issuer(), &common_name("ed"));
    governed.stop().await;
}

#[actix_web::test]
async fn a_template_keeps_the_rules_of_every_certificate() {
    let governed = Governed::start().await;
    let good = Template::default();
    let extended =
        |more: Vec<Extensions>| Template { extensions: [good.extensions.clone(), more].concat(), ..good.clone() };
    let at = |not_before, not_after| Template { not_before, not_after, ..good.clone() };
    let more = |count: u8, value: &[u8]| {
        extended((0..count).map(|n| extension::extension(&[0x2a, 3, 4, n], false, value)).collect())
    };
    let critical_san = [0x30, 8, 0x82, 6, b'a', b'.', b't', b'e', b's', b't'];
    let critical_san = extension::extension(oid::SUBJECT_ALT_NAME, true, &critical_san);
    let nameless = Template { subject: name::name(&[]), extensions: good.extensions[1..].to_vec(), ..good.clone() };
    let by_san =
        Template { extensions: [vec![critical_san], nameless.extensions.clone()].concat(), ..nameless.clone() };
    for (template, rule) in [
        (nameless, "has no name"),
        (more(97, &[5, 0]), "template: certificate: more than 100 extensions"),
        (more(2, &[4; 40_000]), "the template is longer than 64 KiB"),
        (Template::authority(None), "CA certificate, which only sign-intermediate may issue"),
        (at(now() - 7200, now() - 3600), "notAfter lies in the past"),
        (at(now() + 7200, now() + 3600), "not_before: must be before not_after"),
        (
            extended(vec![extension::extension(oid::BASIC_CONSTRAINTS, true, &[0x30, 3, 2, 1, 1])]),
            "path length needs cA TRUE",
        ),
        (extended(vec![extension::subject_key_id(&[])]), "subjectKeyIdentifier: must not be empty"),
        (
            Template { subject: Name::from_der(&[0x30, 2, 0x31, 0]).unwrap(), ..good.clone() },
            "external policy: template: subject: ",
        ),
        (
            Template { extensions: vec![extension::key_usage(KeyUsage::CERT_SIGN)], ..good.clone() },
            "keyCertSign needs cA TRUE",
        ),
        (Template { subject: name::name(&[]), ..good.clone() }, "subjectAltName must be critical"),
        (
            Template { extensions: vec![extension::ext_key_usage(&[OCSP_SIGNING.to_vec()])], ..good.clone() },
            "OCSPSigning",
        ),
    ] {
        governed.refuses(&template, json!({}), rule).await;
    }
    assert_eq!(governed.made_of(&by_san, json!({})).await.sans(), ["DNS:a.test"]);
    governed.made_of(&more(90, &[5, 0]), json!({})).await;
    // Text that the encoder of the tests cannot produce: two certificates, no certificate, garbage.
    for (text, rule) in [
        ("twice", "one PEM block CERTIFICATE"),
        ("csr", "one PEM block CERTIFICATE"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "external policy: template: "),
        ("garbage", "external policy: template: "),
    ] {
        governed.engine.says(move |q| {
            let one = Template::default().pem(&csr_of(q));
            let text = match text {
                "twice" => format!("{one}\n{one}"),
                "csr" => q["user_request_key_values"]["csr"].as_str().unwrap().to_owned(),
                text => text.to_owned(),
            };
            Reply::json(with(&consent_to(q, &Template::default()), json!({ "certificate": text })))
        });
        governed.sign_fails(400, rule).await;
    }
    governed.stop().await;
}

#[actix_web::test]
async fn template_is_limited_by_dates_and_names_of_its_issuer() {
    let governed = Governed::start().await;
    let end = now() + 86_400;
    let not_after = format_rfc3339(Time::from_unix_timestamp(end).unwrap());
    governed.pki.root(json!({ "issuer_name": "short", "common_name": "short", "not_after": not_after })).await;
    let template = Template { not_after: end + 86_400, ..Template::default() };
    let more = json!({ "issuer_ref": "short" });
    for (behaviour, expected) in
        [("err", None), ("always_enforce_err", None), ("truncate", Some(end)), ("permit", Some(template.not_after))]
    {
        let setting = json!({ "issuer_name": "short", "leaf_not_after_behavior": behaviour });
        governed.pki.post("issuer/short", setting).await;
        let Some(expected) = expected else {
            governed.refuses(&template, more.clone(), "beyond the expiration of the CA certificate").await;
            continue;
        };
        let leaf = governed.made_of(&template, more.clone()).await;
        assert_eq!(leaf.certificate.not_after(), expected, "{behaviour}");
        assert_eq!(leaf.certificate.not_before(), template.not_before);
        assert!(leaf.answer.warnings().contains("beyond the expiration"), "{behaviour}");
    }
    // Name constraints of the issuing chain apply as well.
    let narrow = json!({ "issuer_name": "narrow", "common_name": "narrow", "permitted_dns_domains": "allowed.test" });
    governed.pki.root(narrow).await;
    let named =
        |name: &str| Template { subject: common_name(name), extensions: vec![dns(name)], ..Template::default() };
    let more = json!({ "issuer_ref": "narrow" });
    governed.refuses(&named("foreign.test"), more.clone(), "do not allow foreign.test").await;
    let leaf = governed.made_of(&named("a.allowed.test"), more).await;
    assert_eq!(leaf.sans(), ["DNS:a.allowed.test"]);
    governed.stop().await;
}

#[actix_web::test]
async fn sign_intermediate_respects_the_path_length() {
    let governed = Governed::start().await;
    let bounded = json!({ "issuer_name": "bounded", "common_name": "bounded", "max_path_length": 1 });
    let root = text(&governed.pki.root(bounded).await, "certificate").to_owned();
    let last = json!({ "issuer_name": "last", "common_name": "last", "max_path_length": 0 });
    governed.pki.root(last).await;
    let request = || json!({ "csr": csr() });
    let to = |issuer: &str| json!({ "issuer_ref": issuer });
    governed.engine.consents(&Template::authority(Some(1)), to("bounded"));
    governed.fails("sign-intermediate", request(), 400, "path length is more than the issuing chain allows, 0").await;
    governed.engine.consents(&Template::authority(None), to("last"));
    governed.fails("sign-intermediate", request(), 400, "cannot sign further CAs").await;
    for length in [Some(0), None] {
        governed.engine.consents(&Template::authority(length), to("bounded"));
        let data = governed.pki.data("external-policy/sign-intermediate", request()).await;
        let pem = text(&data, "certificate");
        let made = parse(pem);
        assert!(made.is_ca() && made.path_length() == length);
        assert_eq!(data["ca_chain"], json!([pem, root.trim()]));
        foreign::openssl_verifies_chain(&root, &[], pem).unwrap();
    }
    // A template needs the subject and the extensions that every CA certificate needs.
    let key_usage = extension::key_usage(KeyUsage::CERT_SIGN);
    let constraints = extension::basic_constraints(true, None);
    let uncritical = extension::extension(oid::BASIC_CONSTRAINTS, false, &[0x30, 3, 1, 1, 0xff]);
    let with_extensions = |extensions| Template { extensions, ..Template::default() };
    for (template, rule) in [
        (Template { subject: name::name(&[]), ..Template::authority(None) }, "must have a subject"),
        (with_extensions(vec![constraints.clone()]), "a CA certificate must have keyUsage"),
        (with_extensions(vec![constraints, extension::key_usage(KeyUsage::CRL_SIGN)]), "must have keyCertSign"),
        (with_extensions(vec![key_usage, uncritical]), "must be critical"),
    ] {
        governed.engine.consents(&template, json!({}));
        governed.fails("sign-intermediate", request(), 400, rule).await;
    }
    governed.stop().await;
}

#[actix_web::test]
async fn certificate_is_stored_only_if_the_engine_requests_it() {
    let governed = Governed::start().await;
    let pki = &governed.pki;
    let before = pki.list("certs").await;
    let template = Template::default();
    let leaf = governed.made_of(&template, json!({})).await;
    assert_eq!(pki.app.client.get(&format!("pki/cert/{}", leaf.serial())).await.status, 404);
    assert_eq!(pki.list("certs").await, before);
    let stored = governed.made_of(&template, json!({ "store_certificate": true })).await;
    assert_eq!((stored.certificate.serial(), stored.answer.warnings().as_str()), (template.serial, ""));
    assert_eq!(pki.get(&format!("cert/{}", stored.serial())).await["certificate"].as_str().unwrap().trim(), stored.pem);
    pki.revoke(&stored).await;
    let lease = json!({ "generate_lease": true });
    governed.refuses(&Template::default(), lease.clone(), "set generate_lease without store_certificate").await;
    let leased = governed.made_of(&Template::default(), with(&lease, json!({ "store_certificate": true }))).await;
    let lease = leased.answer.body["lease_id"].as_str().unwrap().to_owned();
    assert!(lease.starts_with("pki/external-policy/sign/"), "{lease}");
    let ended = pki.app.client.post("sys/leases/revoke", json!({ "lease_id": lease })).await;
    assert_eq!(ended.status, 204, "{}", ended.text);
    assert_ne!(pki.get(&format!("cert/{}", leased.serial())).await["revocation_time"], 0);
    governed.stop().await;
}

#[actix_web::test]
async fn template_serial_number_is_used_if_stored_and_unused() {
    let governed = Governed::start().await;
    let serial = |octets: &[u8]| Serial::from_octets(octets).unwrap();
    for (octets, stored, kept) in [
        (&[5; 20][..], true, true),
        // Used by the first one.
        (&[5; 20], true, false),
        // Not recorded: a fixed number would be issued again.
        (&[5; 20], false, false),
        (&[6; 20], false, false),
        (&[6; 20], false, false),
        // Zero, and a number whose sign bit requires a 21st byte.
        (&[0], true, false),
        (&[0xff; 20], true, false),
        // Short: only a record shows that it is free.
        (&[1, 2], true, true),
        (&[1, 3], false, false),
    ] {
        let template = Template { serial: serial(octets), ..Template::default() };
        let leaf = governed.made_of(&template, json!({ "store_certificate": stored })).await;
        assert_eq!(leaf.certificate.serial() == template.serial, kept, "{octets:?} stored {stored}");
        let is_told = leaf.answer.warnings().contains("serial number was replaced");
        assert_eq!(is_told, stored && !kept, "{octets:?} stored {stored}");
    }
    governed.stop().await;
}
