//! An error names the field of the request, regardless of the check that fails. Values in both the request and the CSR
//! appear once.

use serde_json::{Value, json};
use signet::x509::extension::{self, parse_oid};
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::oid;
use signet::x509::pieces::Extensions;
use signet::x509::writer::{SEQUENCE, build};

use super::foreign::{csr, csr_of_pieces};
use super::mount::{Pki, with};

fn san(tag: u8, content: &[u8]) -> Extensions {
    extension::extension(oid::SUBJECT_ALT_NAME, false, &build(SEQUENCE, 0, |w| w.tlv(tag, content)))
}

fn csr_for(names: &[&str], extensions: &[&Extensions]) -> String {
    let rdns: Vec<_> = names.iter().map(|name| rdn(Attribute::CommonName, &[(*name).to_owned()])).collect();
    csr_of_pieces(&name::name(&rdns.iter().collect::<Vec<_>>()), extensions)
}

impl Pki {
    /// Asserts that the error begins with `text`.
    async fn blames(&self, path: &str, body: Value, text: &str) {
        let answer = self.app.client.post(&format!("pki/{path}"), body.clone()).await;
        assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text);
        assert!(answer.error().starts_with(text), "{path} {body}: {} for {text}", answer.error());
    }
}

#[actix_web::test]
async fn invalid_name_error_names_its_request_field() {
    let pki = Pki::start().await;
    let any = json!({ "allow_any_name": true, "enforce_hostnames": false, "allowed_other_sans": "*" });
    let unicode = json!({ "allowed_domains": "b\u{fc}cher.foo", "allow_bare_domains": true, "allow_subdomains": true });
    let disabled = json!({ "allowed_domains": "a.foo", "allow_bare_domains": true, "cn_validations": "disabled" });
    let wrong_usage = json!({ "allow_any_name": true, "key_usage": "CertSign" });
    let service = "1.3.6.1.5.5.7.8.7;UTF8:no service";
    let mail = "1.3.6.1.5.5.7.8.9;UTF8:a@b.test";
    for (role, body, text) in [
        (&any, json!({ "alt_names": "a b@" }), "alt_names: a b@: an rfc822Name is not a mailbox"),
        (&any, json!({ "common_name": "a..b@c.test" }), "common_name: a..b@c.test: an rfc822Name is not a mailbox"),
        (&any, json!({ "common_name": "\u{e9}@b.test" }), "common_name: \u{e9}@b.test must be ASCII"),
        (&any, json!({ "other_sans": service }), "other_sans: no service: an SRVName must be _service.host"),
        (&any, json!({ "other_sans": mail }), "other_sans: a@b.test: an SmtpUTF8Mailbox has an ASCII local part"),
        (&unicode, json!({ "common_name": "b\u{fc}cher.foo" }), "common_name: "),
        (&disabled, json!({ "common_name": "a@b@c" }), "common_name: email address a@b@c not allowed"),
        (
            &disabled,
            json!({ "common_name": "b\u{fc}cher.foo" }),
            "common_name: subject alternate name xn--bcher-kva.foo",
        ),
        (&disabled, json!({ "alt_names": "xn--bcher-kva.foo" }), "alt_names: subject alternate name xn--bcher-kva.foo"),
        (&wrong_usage, json!({}), "the role's key_usage: keyCertSign needs cA TRUE"),
    ] {
        pki.role(role).await;
        pki.blames("issue/r", with(&json!({ "common_name": "a.foo" }), body), text).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn invalid_csr_content_error_names_the_csr() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true, "enforce_hostnames": false })).await;
    for (extension, rule) in [
        (san(0x82, b"a..b"), "a dNSName is not a host name"),
        (san(0x81, b"a..b@c.test"), "an rfc822Name is not a mailbox"),
        (extension::extension(oid::EXT_KEY_USAGE, false, &[SEQUENCE, 0]), "extKeyUsage: must not be empty"),
    ] {
        let body = json!({ "csr": csr_for(&["a.test"], &[&extension]), "use_csr_values": true });
        for path in ["sign/r", "sign-verbatim", "root/sign-intermediate"] {
            // `sign` does not copy extKeyUsage from the CSR.
            if path == "sign/r" && rule.starts_with("extKeyUsage") {
                continue;
            }
            pki.blames(path, body.clone(), "csr: ").await;
            pki.refused(path, body.clone(), rule).await;
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn invalid_field_next_to_a_csr_is_named() {
    let pki = Pki::start().await;
    let csr = csr("ec-256", "/CN=a.test", "");
    let below = "root/sign-intermediate";
    for (path, more, text) in [
        ("sign-verbatim", json!({ "user_ids": ["a\0b"] }), "user_ids: "),
        ("sign-verbatim", json!({ "user_ids": ["a\nb"] }), "user_ids: "),
        ("sign-verbatim", json!({ "key_usage": "EncipherOnly" }), "key_usage: keyUsage: "),
        (below, json!({ "not_before_duration": "9000000h" }), "not_before_duration: "),
        (below, json!({ "use_csr_values": true, "not_before_duration": "9000000h" }), "not_before_duration: "),
        (below, json!({ "alt_names": "a@b@c" }), "alt_names: a@b@c: an rfc822Name is not a mailbox"),
    ] {
        pki.blames(path, with(&json!({ "csr": csr }), more), text).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn of_two_common_names_the_last_counts() {
    let pki = Pki::start().await;
    let two = json!({ "csr": csr_for(&["a.test", "b.test"], &[]) });
    let leaf = pki.sign(&json!({ "allow_any_name": true }), two.clone()).await;
    assert_eq!((leaf.certificate.common_name().as_str(), leaf.sans()), ("b.test", vec!["DNS:b.test".to_owned()]));
    let authority = pki.certify("root/sign-intermediate", two).await;
    assert_eq!(authority.certificate.common_name(), "b.test");
    pki.stop().await;
}

#[actix_web::test]
async fn duplicate_names_appear_once() {
    let pki = Pki::start().await;
    let kind = parse_oid("1.2.3").unwrap();
    let text = "1.2.3;UTF8:v";
    let other = build(0xa0, 0, |w| {
        w.oid(&kind);
        w.nest(0xa0, |w| w.tlv(0x0c, b"v"));
    });
    let both = extension::extension(oid::SUBJECT_ALT_NAME, false, &build(SEQUENCE, 0, |w| w.raw(&other)));
    let role = json!({ "allow_any_name": true, "allowed_other_sans": "*" });
    let request = json!({ "csr": csr_for(&["a.test"], &[&both]), "other_sans": format!("{text},1.2.4;UTF8:w") });
    let names = pki.sign(&role, request).await.sans();
    assert_eq!(names.len(), 3, "{names:?}");
    let twice = json!({ "common_name": "a.test", "other_sans": [text, text] });
    assert_eq!(pki.issue(&role, twice).await.sans().len(), 2);
    let ids = json!({ "csr": csr("ec-256", "/CN=a.test", ""), "user_ids": "u,u,v" });
    let subject = pki.ask("sign-verbatim", ids).await.certificate.subject().values(Attribute::UserId).unwrap();
    assert_eq!(subject, ["u", "v"]);
    pki.stop().await;
}
