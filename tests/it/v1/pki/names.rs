//! Common names and alternative names that a role allows, through the routes. The vectors of the rules are unit tests
//! in `src/pki/check/names/tests.rs`; here one row for each rule shows that its field of the role applies.

use serde_json::json;

use super::foreign::csr;
use super::mount::{Pki, with};

#[actix_web::test]
async fn each_name_field_of_a_role_applies_to_the_common_name() {
    let pki = Pki::start().await;
    let foo = json!({ "allowed_domains": "foo" });
    let sub = with(&foo, json!({ "allow_subdomains": true }));
    let globs = json!({ "allowed_domains": "*.*.foo" });
    let mail = json!({ "allowed_domains": "mail.com", "allow_bare_domains": true });
    let any = json!({ "allow_any_name": true });
    // The SANs; none if the role does not allow the name.
    for (role, name, sans) in [
        (foo.clone(), "foo", None),
        (with(&foo, json!({ "allow_bare_domains": true })), "foo", Some("DNS:foo")),
        (foo, "bar.foo", None),
        (sub.clone(), "bar.foo", Some("DNS:bar.foo")),
        (sub.clone(), "*.bar.foo", Some("DNS:*.bar.foo")),
        (with(&sub, json!({ "allow_wildcard_certificates": false })), "*.bar.foo", None),
        (globs.clone(), "baz.bar.foo", None),
        (with(&globs, json!({ "allow_glob_domains": true })), "baz.bar.foo", Some("DNS:baz.bar.foo")),
        (json!({}), "localhost", Some("DNS:localhost")),
        (json!({ "allow_localhost": false }), "localhost", None),
        (any.clone(), "example.test", Some("DNS:example.test")),
        (any.clone(), "foo_bar", None),
        (with(&any, json!({ "enforce_hostnames": false })), "foo_bar", Some("")),
        (with(&any, json!({ "enforce_hostnames": false })), "b*c.a.com", Some("")),
        (mail.clone(), "test@mail.com", Some("email:test@mail.com")),
        (with(&mail, json!({ "cn_validations": ["hostname"] })), "test@mail.com", None),
        (sub, "bücher.foo", Some("DNS:xn--bcher-kva.foo")),
        (json!({ "allowed_domains": "1.2.3.4", "allow_bare_domains": true }), "1.2.3.4", Some("IP Address:1.2.3.4")),
        (json!({ "allowed_domains": ["a.com", ""], "allow_bare_domains": true }), "a.com", Some("DNS:a.com")),
        (json!({ "allowed_domains": ["a.com", ""], "allow_subdomains": true }), "evil.org", None),
    ] {
        pki.role(&role).await;
        let request = json!({ "common_name": name, "alt_names": "" });
        let Some(sans) = sans else {
            pki.refused("issue/r", request, "common_name: ").await;
            continue;
        };
        let leaf = pki.ask("issue/r", request).await;
        assert_eq!((leaf.subject(), leaf.sans().join(", ").as_str()), (format!("CN={name}"), sans), "{role}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn alt_names_are_checked_and_the_cn_can_be_excluded() {
    let pki = Pki::start().await;
    let role =
        json!({ "allowed_domains": "foo.com,EXAMPLE.COM", "allow_subdomains": true, "allow_bare_domains": true });
    let leaf = pki.issue(&role, json!({ "common_name": "a.foo.com", "alt_names": "eXaMPLe.COM" })).await;
    assert_eq!(leaf.sans(), ["DNS:a.foo.com", "DNS:eXaMPLe.COM"]);
    for (body, rule) in [
        (json!({ "alt_names": "a.foo.com,b.bar.com" }), "alt_names: subject alternate name b.bar.com not allowed"),
        (json!({ "alt_names": "1.2.3.4" }), "alt_names: 1.2.3.4 is an IP address: use ip_sans"),
        (json!({ "alt_names": format!("{}.foo.com", "a".repeat(64)) }), "alt_names: "),
        (json!({ "alt_names": "a\u{1}b.foo.com" }), "alt_names: "),
        (json!({ "common_name": "bad.com", "exclude_cn_from_sans": true }), "common_name: common name bad.com not"),
    ] {
        pki.refused("issue/r", with(&json!({ "common_name": "a.foo.com" }), body), rule).await;
    }
    for (cn_validations, name) in [("hostname", "a.foo.com"), ("disabled", "foo@foo@foo")] {
        let role = with(&role, json!({ "cn_validations": cn_validations }));
        let leaf = pki.issue(&role, json!({ "common_name": name, "exclude_cn_from_sans": true })).await;
        assert_eq!((leaf.subject(), leaf.extension("subjectAltName")), (format!("CN={name}"), None));
    }
    pki.stop().await;
}

#[actix_web::test]
async fn punycode_label_must_be_valid() {
    let pki = Pki::start().await;
    let strict = json!({ "allowed_domains": "foo", "allow_subdomains": true, "use_csr_sans": true });
    let any = json!({ "allow_any_name": true, "enforce_hostnames": false, "use_csr_sans": true });
    // The label decodes to a single character for a full stop.
    let name = "xn--a-ecp.foo";
    pki.deny(&strict, json!({ "common_name": "a.foo", "alt_names": name }), "alt_names: ").await;
    pki.deny(&any, json!({ "common_name": "a.foo", "uri_sans": format!("https://{name}/") }), "uri_sans: ").await;
    let csr = csr("ec-256", "/CN=a.foo", &format!("subjectAltName = DNS:{name}"));
    for role in [&strict, &any] {
        pki.deny_sign(role, json!({ "csr": csr }), "").await;
    }
    pki.refused("sign-verbatim", json!({ "csr": csr }), "").await;
    for name in ["xn--bcher-kva.foo", "XN--55QX5D.foo", "a--b.foo"] {
        let leaf = pki.issue(&strict, json!({ "common_name": "a.foo", "alt_names": name })).await;
        assert_eq!(leaf.sans(), ["DNS:a.foo".to_owned(), format!("DNS:{name}")]);
    }
    pki.stop().await;
}

#[actix_web::test]
async fn invalid_alt_name_rejects_the_whole_request() {
    let pki = Pki::start().await;
    let csr = csr("ec-256", "/CN=a.ok.test", "");
    pki.role(&json!({ "allow_any_name": true, "enforce_hostnames": false, "use_csr_sans": false })).await;
    // Endpoints without a role reject it as well: the certificate would lack the name.
    for (path, more) in [
        ("issue/r", json!({})),
        ("sign/r", json!({ "csr": csr })),
        ("root/generate/internal", json!({ "key_type": "ec" })),
        ("intermediate/generate/internal", json!({ "key_type": "ec" })),
        ("root/sign-intermediate", json!({ "csr": csr })),
    ] {
        let body = json!({ "common_name": "a.ok.test", "alt_names": ["b.ok.test", "a_b.ok.test"] });
        pki.refused(path, with(&body, more), "alt_names: a_b.ok.test is not a host name").await;
    }
    // A common name is free text: one that is not a host name stays in the CN if the role allows it.
    let leaf = pki.ask("issue/r", json!({ "common_name": "some_body", "alt_names": "xn--bcher-kva.ok.test" })).await;
    assert_eq!((leaf.subject().as_str(), leaf.sans()), ("CN=some_body", vec!["DNS:xn--bcher-kva.ok.test".to_owned()]));
    pki.stop().await;
}

#[actix_web::test]
async fn unsupported_csr_name_kind_rejects_the_whole_request() {
    let pki = Pki::start().await;
    let role = json!({ "allow_any_name": true, "allowed_uri_sans": "*", "allowed_other_sans": "*" });
    for (kind, san) in
        [("directoryName", "DNS:a.ok.test,dirName:dir\n[dir]\nCN = d"), ("registeredID", "RID:1.2.3,DNS:a.ok.test")]
    {
        let csr = csr("ec-256", "/CN=a.ok.test", &format!("subjectAltName = {san}"));
        let rule = format!("csr: subject alternative names of the kind {kind} are not allowed by any role");
        pki.deny_sign(&role, json!({ "csr": csr }), &rule).await;
        // A role that does not use the SANs of the CSR ignores them.
        let own = with(&role, json!({ "use_csr_sans": false }));
        assert_eq!(pki.sign(&own, json!({ "csr": csr, "common_name": "a.ok.test" })).await.sans(), ["DNS:a.ok.test"]);
        // Merged with other SANs they would be lost; alone they are copied.
        let body = json!({ "csr": csr, "use_csr_values": true });
        let joined = with(&body, json!({ "other_sans": "1.2.3;UTF8:x" }));
        pki.refused("root/sign-intermediate", joined, &format!("csr: subject alternative names of the kind {kind}"))
            .await;
        assert_eq!(pki.certify("root/sign-intermediate", body).await.sans().len(), 2);
    }
    pki.stop().await;
}

/// Checks of many names against many patterns run in the CPU queue instead of the worker, with the same results.
#[actix_web::test]
async fn many_names_and_patterns_are_checked_like_few() {
    let pki = Pki::start().await;
    let others = (0..999).map(|n| format!("*a*b{n}*"));
    let domains: Vec<String> = others.chain(["*.ok.test".to_owned()]).collect();
    pki.role(&json!({ "allowed_domains": domains, "allow_glob_domains": true, "require_cn": false })).await;
    let mut names: Vec<String> = (0..900).map(|n| format!("aaaaaaaaaaaaaaaab.n{n}.ok.test")).collect();
    let leaf = pki.ask("issue/r", json!({ "alt_names": names })).await;
    assert_eq!(leaf.sans(), names.iter().map(|name| format!("DNS:{name}")).collect::<Vec<_>>());
    names.insert(700, "a.bad.test".to_owned());
    let rule = "alt_names: subject alternate name a.bad.test not allowed by this role";
    pki.refused("issue/r", json!({ "alt_names": names }), rule).await;
    let csr = csr("ec-256", "/CN=a.bad.test", "");
    pki.refused("sign/r", json!({ "csr": csr }), "common_name: common name a.bad.test not allowed").await;
    pki.stop().await;
}

#[actix_web::test]
async fn underscore_error_names_enforce_hostnames() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "foo.com", "allow_subdomains": true, "use_csr_sans": true });
    let rule = "not allowed by this role: it is not a host name, which the role's enforce_hostnames requires";
    let common_name_san = format!("common_name: common name a_b.foo.com {rule}");
    pki.deny(&role, json!({ "common_name": "a_b.foo.com" }), &common_name_san).await;
    let request = csr("ec-256", "/CN=a.foo.com", "subjectAltName = DNS:a_b.foo.com");
    let of_csr = format!("csr: subject alternate name a_b.foo.com {rule}");
    pki.deny_sign(&role, json!({ "csr": request }), &of_csr).await;
    let of_alt_names = "alt_names: a_b.foo.com is not a host name or e-mail address; alt_names accepts nothing else, even \
                        with enforce_hostnames=false. A role with enforce_hostnames=false accepts the name in the CSR";
    pki.deny(&role, json!({ "common_name": "a.foo.com", "alt_names": "a_b.foo.com" }), of_alt_names).await;
    // The warning names a remedy, which works.
    let answer = pki.app.client.post("pki/sign/r", json!({ "csr": request })).await;
    let step = answer.body["warnings"][0].as_str().unwrap();
    assert!(step.contains("set enforce_hostnames to false on the role (PATCH /v1/pki/roles/NAME)"), "{step}");
    assert_eq!(pki.app.client.patch("pki/roles/r", json!({ "enforce_hostnames": false })).await.status, 200);
    pki.post("sign/r", json!({ "csr": request })).await;
    // The lists of the role reject a name of another domain, and the error says so.
    let answer = pki.app.client.post("pki/issue/r", json!({ "common_name": "a.bar.com" })).await;
    assert!(answer.error().ends_with("a.bar.com not allowed by this role"), "{}", answer.text);
    pki.stop().await;
}
