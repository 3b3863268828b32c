//! Common names and alternative names that a role allows, and where they appear in the certificate.

use serde_json::json;

use super::foreign::csr;
use super::mount::{Pki, whatever, with};

/// Names around `bar.foo`, plain and with a wildcard.
const SIX: [&str; 6] = ["baz.fud.bar.foo", "*.fud.bar.foo", "fud.bar.foo", "*.bar.foo", "bar.foo", "*.foo"];

#[actix_web::test]
async fn patterns_match_nothing_without_allow_glob_domains() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "*.*.foo", "allow_glob_domains": false });
    for role in whatever(&role, &["allow_subdomains", "allow_bare_domains", "allow_wildcard_certificates"]) {
        pki.denies(&role, &SIX).await;
    }
    for role in whatever(&role, &["allow_localhost", "enforce_hostnames"]) {
        pki.denies(&role, &SIX).await;
    }
    let role = json!({ "allowed_domains": "*.foo", "allow_glob_domains": false });
    for role in whatever(&role, &["allow_bare_domains"]) {
        // `*.foo` is not in the list: with bare domains and wildcards, the entry itself is a name.
        pki.denies(&role, &["foo", "baz.fud.bar.foo", "*.fud.bar.foo", "fud.bar.foo", "*.bar.foo", "bar.foo"]).await;
    }
    let role = with(&role, json!({ "allow_wildcard_certificates": false }));
    for role in whatever(&role, &["allow_bare_domains"]) {
        pki.denies(&role, &["foo", "baz.fud.bar.foo", "*.fud.bar.foo", "fud.bar.foo", "*.bar.foo", "bar.foo"]).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn localhost_needs_allow_localhost_or_a_bare_domain() {
    let pki = Pki::start().await;
    let local = |domains: &str, bare: bool, local: bool| json!({ "allowed_domains": domains, "allow_bare_domains": bare, "allow_localhost": local });
    pki.denies(&local("*.*.foo", false, false), &["localhost"]).await;
    pki.allows(&local("*.*.foo", false, true), &["localhost"]).await;
    pki.allows(&local("localhost", true, false), &["localhost"]).await;
    pki.denies(&local("localhost", false, false), &["localhost"]).await;
    pki.allows(&local("localhost", false, true), &["localhost"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn wildcard_entry_is_a_bare_domain_with_one_star_only() {
    let pki = Pki::start().await;
    pki.allows(&json!({ "allowed_domains": "*.foo", "allow_bare_domains": true }), &["*.foo"]).await;
    let two = json!({ "allowed_domains": "*.*.foo", "allow_bare_domains": true });
    for role in whatever(&two, &["allow_any_name", "allow_wildcard_certificates", "enforce_hostnames"]) {
        pki.denies(&role, &["*.*.foo"]).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn glob_with_two_stars_matches_two_or_more_labels() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "*.*.foo", "allow_glob_domains": true });
    for role in whatever(&role, &["allow_subdomains"]) {
        pki.allows(&role, &["baz.fud.bar.foo", "fud.bar.foo"]).await;
    }
    pki.allows(&with(&role, json!({ "allow_wildcard_certificates": true })), &["*.fud.bar.foo", "*.bar.foo"]).await;
    pki.denies(&role, &["bar.foo", "*.foo", "foo"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn glob_with_one_star_matches_any_depth() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "*.foo", "allow_glob_domains": true });
    pki.allows(&role, &["baz.fud.bar.foo", "fud.bar.foo", "bar.foo"]).await;
    pki.allows(&with(&role, json!({ "allow_wildcard_certificates": true })), &["*.fud.bar.foo", "*.bar.foo"]).await;
    pki.denies(&role, &["foo"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn domain_without_subdomains_allows_only_the_bare_domain() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "foo", "allow_subdomains": false });
    pki.denies(&role, &["baz.fud.bar.foo", "*.fud.bar.foo", "*.bar.foo", "bar.foo", "*.foo"]).await;
    pki.denies(&with(&role, json!({ "allow_bare_domains": false })), &["foo"]).await;
    pki.allows(&with(&role, json!({ "allow_bare_domains": true })), &["foo"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn allow_subdomains_allows_names_below_the_domain() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "foo", "allow_subdomains": true });
    pki.allows(&role, &["baz.fud.bar.foo", "bar.foo"]).await;
    let wild = with(&role, json!({ "allow_wildcard_certificates": true }));
    pki.allows(&wild, &["*.fud.bar.foo", "*.bar.foo", "*.foo"]).await;
    pki.denies(&with(&role, json!({ "allow_bare_domains": false })), &["foo"]).await;
    pki.allows(&with(&role, json!({ "allow_bare_domains": true })), &["foo"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn partial_wildcards_are_not_put_into_the_san() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "foo", "allow_subdomains": true, "allow_wildcard_certificates": true });
    pki.denies(&role, &["x*x.foo", "*x.foo", "x*.foo"]).await;
    let role = with(&role, json!({ "enforce_hostnames": false }));
    for name in ["x*x.foo", "*x.foo", "x*.foo"] {
        let leaf = pki.issue(&role, json!({ "common_name": name })).await;
        assert_eq!(leaf.subject(), format!("CN={name}"));
        assert_eq!(leaf.extension("subjectAltName"), None, "{name}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn glob_with_a_star_inside_a_label() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "x*x.foo", "allow_glob_domains": true });
    pki.allows(&role, &["xerox.foo", "xylophone.files.pyrex.foo"]).await;
    pki.denies(&role, &["xercex.bar.foo", "bar.foo", "*.foo", "*.x*x.foo", "*.xyx.foo"]).await;
    let off = json!({ "allowed_domains": "x*x.foo", "allow_bare_domains": false, "allow_glob_domains": false });
    pki.denies(&off, &["x*x.foo"]).await;
    for on in [json!({ "allow_glob_domains": true }), json!({ "allow_bare_domains": true })] {
        let role = with(&off, with(&on, json!({ "allow_wildcard_certificates": true })));
        // It is not a host name, so a role with `enforce_hostnames` rejects it.
        pki.denies(&role, &["x*x.foo"]).await;
        let role = with(&role, json!({ "enforce_hostnames": false }));
        let leaf = pki.issue(&role, json!({ "common_name": "x*x.foo" })).await;
        assert_eq!((leaf.certificate.common_name().as_str(), leaf.sans().len()), ("x*x.foo", 0));
    }
    pki.stop().await;
}

#[actix_web::test]
async fn glob_with_a_star_as_an_inner_label() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "x.*.x.foo", "allow_glob_domains": true });
    pki.allows(&role, &["x.ero.x.foo", "x.ylophone.files.pyre.x.foo"]).await;
    let denied =
        ["xerox.foo", "xylophone.files.pyrex.foo", "bar.foo", "*.foo", "*.x.*.x.foo", "*.x.y.x.foo", "x.*.x.foo"];
    pki.denies(&role, &denied).await;
    pki.stop().await;
}

#[actix_web::test]
async fn disallowed_wildcards_override_all_other_flags() {
    let pki = Pki::start().await;
    let off = json!({ "allow_wildcard_certificates": false });
    let glob = with(&off, json!({ "allowed_domains": "*.foo", "allow_glob_domains": true }));
    pki.denies(&glob, &["*.fud.bar.foo", "*.bar.foo"]).await;
    let sub = with(&off, json!({ "allowed_domains": "foo", "allow_subdomains": true }));
    pki.denies(&sub, &["*.fud.bar.foo", "*.foo", "x*x.foo", "*x.foo", "x*.foo"]).await;
    let bare = with(&off, json!({ "allowed_domains": "x*x.foo", "allow_bare_domains": true }));
    pki.denies(&bare, &["x*x.foo"]).await;
    // Wildcards are allowed here, but no flag says how the entry may be used.
    let neither = json!({ "allowed_domains": "*.foo", "allow_bare_domains": false, "allow_glob_domains": false });
    pki.denies(&neither, &["*.foo"]).await;
    pki.denies(&with(&off, json!({ "allow_any_name": true })), &["*.foo"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn any_name_with_and_without_enforced_hostnames() {
    let pki = Pki::start().await;
    let enforced = json!({ "allow_any_name": true, "enforce_hostnames": true });
    pki.denies(&enforced, &["foo_bar.com", "-a.com", "a..b", "a b.com", "example.com."]).await;
    let free = json!({ "allow_any_name": true, "enforce_hostnames": false });
    for name in ["foo_bar", "some name"] {
        let leaf = pki.issue(&free, json!({ "common_name": name })).await;
        assert_eq!(leaf.subject(), format!("CN={name}"));
        assert_eq!(leaf.extension("subjectAltName"), None, "{name}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn disabled_cn_validations_allow_any_common_name() {
    let pki = Pki::start().await;
    let role = json!({ "cn_validations": "disabled", "allowed_domains": "foo" });
    for name in ["*.fud.*.foo", "*.bar.*.bar", "foo@foo@foo"] {
        let leaf = pki.issue(&role, json!({ "common_name": name, "exclude_cn_from_sans": true })).await;
        assert_eq!(leaf.subject(), format!("CN={name}"));
        assert_eq!(leaf.extension("subjectAltName"), None, "{name}");
    }
    // The SAN from such a common name is still checked.
    pki.deny(&role, json!({ "common_name": "evil.bar" }), "common_name: subject alternate name evil.bar").await;
    pki.stop().await;
}

#[actix_web::test]
async fn cn_validations_restrict_the_kind_of_common_name() {
    let pki = Pki::start().await;
    // All flags except `allow_any_name`, which alone would allow bar@bar and bar.bar.
    let all = |kind: &str| {
        json!({
            "cn_validations": [kind], "allowed_domains": "foo", "allow_bare_domains": true,
            "allow_subdomains": true, "allow_glob_domains": true,
        })
    };
    pki.denies(&all("email"), &["bar@bar@bar", "bar@bar", "bar.foo", "bar.bar"]).await;
    let leaf = pki.issue(&all("email"), json!({ "common_name": "bar@foo" })).await;
    assert_eq!((leaf.subject().as_str(), leaf.sans()), ("CN=bar@foo", vec!["email:bar@foo".to_owned()]));
    pki.denies(&all("hostname"), &["bar@foo", "bar@bar", "bar.bar"]).await;
    pki.allows(&all("hostname"), &["bar.foo"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn letter_case_is_ignored_for_bare_domains_only() {
    let pki = Pki::start().await;
    let bare = json!({ "allowed_domains": "example.net, EXAMPLE.COM", "allow_bare_domains": true });
    let leaf = pki.issue(&bare, json!({ "common_name": "Example.Net", "alt_names": "eXaMPLe.COM" })).await;
    assert_eq!(leaf.sans(), ["DNS:Example.Net", "DNS:eXaMPLe.COM"]);
    assert_eq!(leaf.subject(), "CN=Example.Net");
    let sub = json!({ "allowed_domains": "example.com", "allow_subdomains": true });
    pki.denies(&sub, &["Foo.EXAMPLE.com"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn email_addresses_match_by_their_domain() {
    let pki = Pki::start().await;
    let role = |domain: &str, flag: &str| json!({ "allowed_domains": domain, flag: true });
    for (role, name) in [
        (role("test@mail.com", "allow_bare_domains"), "test@mail.com"),
        (role("mail.com", "allow_bare_domains"), "test@mail.com"),
        (role("mail.com", "allow_subdomains"), "test@a.mail.com"),
    ] {
        let leaf = pki.issue(&role, json!({ "common_name": name })).await;
        assert_eq!(leaf.subject(), format!("CN={name}"));
        assert_eq!(leaf.sans(), [format!("email:{name}")], "{role}");
    }
    pki.denies(&role("mail.com", "allow_subdomains"), &["test@mail.com", "test@*.mail.com"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn domain_suffix_without_a_dot_does_not_match() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "example.com", "allow_subdomains": true });
    for role in whatever(&role, &["allow_bare_domains", "allow_glob_domains", "enforce_hostnames"]) {
        pki.denies(&role, &["evilexample.com"]).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn empty_domain_matches_nothing() {
    let pki = Pki::start().await;
    for domains in [json!("example.com,"), json!(["example.com", ""])] {
        let role = json!({ "allowed_domains": domains, "allow_bare_domains": true, "allow_subdomains": true });
        let leaf = pki.issue(&role, json!({ "common_name": "example.com", "alt_names": "" })).await;
        assert_eq!(leaf.sans(), ["DNS:example.com"]);
        pki.denies(&role, &["evil.org", "a.", "com"]).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn wildcard_below_localhost_is_allowed() {
    let pki = Pki::start().await;
    for role in whatever(&json!({ "allow_localhost": true }), &["allow_subdomains"]) {
        pki.allows(&role, &["*.localhost"]).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn unicode_name_is_punycode_in_the_san_only() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "foo", "allow_subdomains": true, "enforce_hostnames": true });
    let leaf = pki.issue(&role, json!({ "common_name": "bücher.foo" })).await;
    assert_eq!(leaf.subject(), "CN=bücher.foo");
    assert_eq!(leaf.sans(), ["DNS:xn--bcher-kva.foo"]);
    pki.stop().await;
}

#[actix_web::test]
async fn punycode_label_must_be_valid() {
    let pki = Pki::start().await;
    let strict = json!({ "allowed_domains": "foo", "allow_subdomains": true, "use_csr_sans": true });
    let any = json!({ "allow_any_name": true, "enforce_hostnames": false, "use_csr_sans": true });
    // A control character, invalid Punycode, not in NFC, a single character for a full stop, only ASCII.
    for label in ["xn--a", "xn--zzzzzzzzzzz99999", "xn--u-ccb", "xn--a-ecp", "xn--abc-"] {
        let name = format!("{label}.foo");
        pki.deny(&strict, json!({ "common_name": "a.foo", "alt_names": name }), "alt_names: ").await;
        pki.deny(&any, json!({ "common_name": "a.foo", "uri_sans": format!("https://{name}/") }), "uri_sans: ").await;
        let csr = csr("ec-256", "/CN=a.foo", &format!("subjectAltName = DNS:{name}"));
        for role in [&strict, &any] {
            pki.deny_sign(role, json!({ "csr": csr }), "").await;
        }
        let verbatim = pki.app.client.post("pki/sign-verbatim", json!({ "csr": csr })).await;
        assert_eq!(verbatim.status, 400, "{name}: {}", verbatim.text);
    }
    for name in ["xn--bcher-kva.foo", "XN--55QX5D.foo", "a--b.foo"] {
        let leaf = pki.issue(&strict, json!({ "common_name": "a.foo", "alt_names": name })).await;
        assert_eq!(leaf.sans(), ["DNS:a.foo".to_owned(), format!("DNS:{name}")]);
    }
    pki.stop().await;
}

#[actix_web::test]
async fn alt_names_are_checked_and_the_cn_can_be_excluded() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "foo.com", "allow_subdomains": true });
    let body = json!({ "common_name": "a.foo.com", "alt_names": "a.foo.com,b.bar.com" });
    pki.deny(&role, body, "alt_names: subject alternate name b.bar.com not allowed by this role").await;
    let body = json!({ "common_name": "a.foo.com", "alt_names": "a.foo.com, not valid" });
    pki.deny(&role, body, "alt_names: not valid is not a host name or e-mail address").await;
    let leaf = pki.issue(&role, json!({ "common_name": "a.foo.com", "exclude_cn_from_sans": true })).await;
    assert_eq!(leaf.extension("subjectAltName"), None);
    assert_eq!(leaf.subject(), "CN=a.foo.com");
    let body = json!({ "common_name": "bad.com", "exclude_cn_from_sans": true });
    pki.deny(&role, body, "common_name: common name bad.com not allowed by this role").await;
    pki.stop().await;
}

#[actix_web::test]
async fn ip_address_is_not_a_host_name() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "1.2.3.4,a.foo", "allow_bare_domains": true });
    let leaf = pki.issue(&role, json!({ "common_name": "1.2.3.4" })).await;
    assert_eq!(leaf.subject(), "CN=1.2.3.4");
    assert_eq!(leaf.sans(), ["IP Address:1.2.3.4"]);
    pki.deny(&role, json!({ "common_name": "a.foo", "alt_names": "1.2.3.4" }), "use ip_sans").await;
    pki.denies(&role, &["4.3.2.1"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn label_and_name_lengths_are_limited() {
    let pki = Pki::start().await;
    let role = json!({ "allowed_domains": "foo", "allow_subdomains": true });
    let label = |length: usize| "a".repeat(length);
    let alt = |name: &str| json!({ "common_name": "a.foo", "alt_names": name, "exclude_cn_from_sans": true });
    let fits = format!("{}.foo", label(63));
    pki.allows(&role, &[&fits]).await;
    assert_eq!(pki.issue(&role, alt(&fits)).await.sans(), [format!("DNS:{fits}")]);
    pki.deny(&role, alt(&format!("{}.foo", label(64))), "alt_names: ").await;
    let name = |last: usize| format!("{0}.{0}.{0}.{1}.foo", label(63), label(last));
    // 3 × 64 + 57 + 4 = 253.
    let longest = name(57);
    assert_eq!(longest.len(), 253);
    assert_eq!(pki.issue(&role, alt(&longest)).await.sans(), [format!("DNS:{longest}")]);
    pki.deny(&role, alt(&name(58)), "alt_names: ").await;
    pki.denies(&role, &[&format!("{}.foo", label(64)), &name(58)]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn hyphens_next_to_a_star_are_rejected_with_enforced_hostnames() {
    let pki = Pki::start().await;
    let role = json!({ "allow_any_name": true, "enforce_hostnames": true });
    pki.denies(&role, &["b*-c.a.com", "*-.a.com", "-*.a.com", "b*c.a.com"]).await;
    let role = with(&role, json!({ "enforce_hostnames": false }));
    let leaf = pki.issue(&role, json!({ "common_name": "b*c.a.com" })).await;
    assert_eq!(leaf.subject(), "CN=b*c.a.com");
    assert_eq!(leaf.extension("subjectAltName"), None);
    pki.stop().await;
}

#[actix_web::test]
async fn control_characters_are_rejected_in_every_field() {
    let pki = Pki::start().await;
    let role = json!({ "allow_any_name": true, "enforce_hostnames": false, "allowed_user_ids": "*",
        "allowed_serial_numbers": "*", "allowed_other_sans": "*" });
    pki.deny(&role, json!({ "common_name": "a\u{0}b.example.com" }), "common_name: ").await;
    let also = |more| with(&json!({ "common_name": "a.foo" }), more);
    pki.deny(&role, also(json!({ "alt_names": "a\u{1}b.foo" })), "alt_names: ").await;
    pki.deny(&role, also(json!({ "alt_names": "x\u{0}@b.foo" })), "alt_names: ").await;
    pki.deny(&role, also(json!({ "user_ids": "a\u{0}" })), "user_ids: ").await;
    pki.deny(&role, also(json!({ "serial_number": "a\u{7f}" })), "serial_number: ").await;
    pki.deny(&role, also(json!({ "other_sans": "1.2.3;UTF8:a\u{0}b" })), "other_sans: ").await;
    pki.stop().await;
}

#[actix_web::test]
async fn invalid_alt_name_rejects_the_whole_request() {
    let pki = Pki::start().await;
    let domains = json!({ "allowed_domains": "ok.test", "allow_subdomains": true, "allow_bare_domains": true });
    let bad = [
        "under_score.evil.com",
        "a_b.ok.test",
        "foo.ok.test.",
        "ok.test.",
        "not valid",
        "-a.ok.test",
        "a-.ok.test",
        "x*y.ok.test",
        "*.*.ok.test",
        "*",
        "BÜCHER.ok.test",
        "ａ.ok.test",
        "a\u{ad}b.ok.test",
        "[::1]",
        "10.0.0.1/8",
        "https://a.ok.test",
    ];
    let request = csr("ec-256", "/CN=a.ok.test", "");
    for role in [
        domains.clone(),
        with(&domains, json!({ "enforce_hostnames": false })),
        with(&domains, json!({ "allow_any_name": true, "cn_validations": "disabled", "require_cn": false })),
        with(&domains, json!({ "allow_any_name": true, "enforce_hostnames": false, "allow_glob_domains": true })),
    ] {
        pki.role(&with(&role, json!({ "use_csr_sans": false }))).await;
        for name in bad {
            let rule = format!("alt_names: {name} is not a host name or e-mail address");
            let body = json!({ "common_name": "a.ok.test", "alt_names": ["b.ok.test", name] });
            for (path, more) in [("issue/r", json!({})), ("sign/r", json!({ "csr": request }))] {
                let answer = pki.app.client.post(&format!("pki/{path}"), with(&body, more)).await;
                assert_eq!(answer.status, 400, "{path} {name} under {role}: {}", answer.text);
                let shown = answer.error().replace("\\u{ad}", "\u{ad}");
                assert!(shown.contains(&rule), "{path} {name} under {role}: {}", answer.text);
            }
        }
    }
    assert_eq!(pki.list("certs").await.len(), 1, "the root alone");
    // Endpoints without a role reject it as well: the certificate would lack the name.
    for (path, more) in [
        ("root/generate/internal", json!({ "key_type": "ec" })),
        ("intermediate/generate/internal", json!({ "key_type": "ec" })),
        ("root/sign-intermediate", json!({ "csr": request })),
    ] {
        let body = json!({ "common_name": "CA", "alt_names": "ca.ok.test,a_b.ok.test" });
        pki.refused(path, with(&body, more), "alt_names: a_b.ok.test is not a host name").await;
    }
    // A common name is free text: one that is not a host name stays in the CN if the role allows it.
    let free = json!({ "allow_any_name": true, "enforce_hostnames": false });
    let leaf = pki.issue(&free, json!({ "common_name": "some_body", "alt_names": "xn--bcher-kva.ok.test" })).await;
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
    let patched = pki.app.client.request("PATCH", "pki/roles/r").body(r#"{"enforce_hostnames": false}"#);
    let patched = patched.header("Content-Type", "application/merge-patch+json");
    assert_eq!(crate::support::send(patched).await.status, 200);
    let answer = pki.app.client.post("pki/sign/r", json!({ "csr": request })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // The lists of the role reject a name of another domain, and the error says so.
    let body = json!({ "common_name": "a.bar.com" });
    let answer = pki.app.client.post("pki/issue/r", body).await;
    assert!(answer.error().ends_with("a.bar.com not allowed by this role"), "{}", answer.text);
    pki.stop().await;
}
