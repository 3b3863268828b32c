//! Table tests of the name rules, and properties of the whole check. Case names begin with N (name policy), S (SANs and
//! subject) or C (CSR handling).

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::Warnings;
use crate::pki::mount::role::parse_role as role;

/// Reads the names from a request body; lists may be comma-separated texts.
fn request(body: &Value) -> RequestedNames {
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let list = |name: &str| match &body[name] {
        Value::Array(items) => items.iter().map(|item| item.as_str().unwrap().to_owned()).collect(),
        Value::String(items) => {
            items.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    RequestedNames {
        common_name: text("common_name"),
        alt_names: list("alt_names"),
        ip_sans: list("ip_sans"),
        uri_sans: list("uri_sans"),
        other_sans: list("other_sans"),
        serial_number: text("serial_number"),
        user_ids: list("user_ids"),
        exclude_cn_from_sans: body["exclude_cn_from_sans"] == true,
    }
}

fn issue(role_body: &Value, request_body: &Value) -> Result<(NameSet, Warnings)> {
    validate_leaf(role_body, request_body, None)
}

fn sign(role_body: &Value, request_body: &Value, csr: &CsrNames) -> Result<(NameSet, Warnings)> {
    validate_leaf(role_body, request_body, Some(csr))
}

fn validate_leaf(role_body: &Value, request_body: &Value, csr: Option<&CsrNames>) -> Result<(NameSet, Warnings)> {
    let role = CompiledRole::from(role(role_body));
    let collected = collect_for_leaf(&role, &request(request_body), csr)?;
    collected.validate(&role, "").map(|(names, warnings)| (names.0, warnings))
}

/// Builds a role with `domains` as allowed_domains. The words `bare sub glob any` set flags; the words `!wild !local
/// !host` clear flags.
fn role_with_flags(domains: &str, words: &str) -> Value {
    let mut body = json!({"allowed_domains": domains});
    for word in words.split_whitespace() {
        let (name, value) = match word {
            "bare" => ("allow_bare_domains", true),
            "sub" => ("allow_subdomains", true),
            "glob" => ("allow_glob_domains", true),
            "any" => ("allow_any_name", true),
            "!wild" => ("allow_wildcard_certificates", false),
            "!local" => ("allow_localhost", false),
            "!host" => ("enforce_hostnames", false),
            other => panic!("no flag {other}"),
        };
        body[name] = value.into();
    }
    body
}

/// Builds a role for each subset of the `free` words; every role has `domains` and all of `words`.
fn each_role(domains: &str, words: &str, free: &[&str]) -> Vec<Value> {
    (0..1u32 << free.len())
        .map(|choice| {
            let chosen: Vec<&str> = (0..free.len()).filter(|i| choice >> i & 1 == 1).map(|i| free[i]).collect();
            role_with_flags(domains, &format!("{words} {}", chosen.join(" ")))
        })
        .collect()
}

/// Case name, allowed_domains, fixed flags, flags that make no difference, common names, expected result.
type Case = (&'static str, &'static str, &'static str, &'static [&'static str], &'static str, bool);

#[test]
fn name_policy_allows_exactly_the_listed_names() {
    let ok = true;
    let deny = false;
    let deep = "baz.fud.bar.foo fud.bar.foo";
    let wild = "*.fud.bar.foo *.bar.foo";
    let six = "baz.fud.bar.foo *.fud.bar.foo fud.bar.foo *.bar.foo bar.foo *.foo";
    let base = "foo baz.fud.bar.foo *.fud.bar.foo fud.bar.foo *.bar.foo bar.foo";
    let labels = "xerox.foo xylophone.files.pyrex.foo bar.foo *.foo *.x.*.x.foo *.x.y.x.foo x.*.x.foo";
    let cases: &[Case] = &[
        ("N1: globs off", "*.*.foo", "", &["sub", "bare", "!wild", "!local", "!host"], six, deny),
        ("N2: globs off", "*.foo", "", &["bare", "!wild"], base, deny),
        ("N3: localhost off", "*.*.foo", "!local", &[], "localhost", deny),
        ("N4: localhost on", "*.*.foo", "", &[], "localhost", ok),
        ("N5: localhost as a bare domain", "localhost", "bare !local", &[], "localhost", ok),
        ("N6: localhost as a domain only", "localhost", "!local", &[], "localhost", deny),
        ("N7: localhost on", "localhost", "", &[], "localhost", ok),
        ("N8: the same wildcard as bare domain", "*.foo", "bare", &[], "*.foo", ok),
        ("N9: two wildcards", "*.*.foo", "bare", &["!wild", "glob", "any", "!host"], "*.*.foo", deny),
        ("N10: glob", "*.*.foo", "glob", &["sub"], deep, ok),
        ("N11: glob, wildcard names", "*.*.foo", "glob", &[], wild, ok),
        ("N12: too short for the glob", "*.*.foo", "glob", &[], "bar.foo *.foo foo", deny),
        ("N13: glob", "*.foo", "glob", &[], "baz.fud.bar.foo fud.bar.foo bar.foo", ok),
        ("N14: glob, wildcard names", "*.foo", "glob", &[], wild, ok),
        ("N15: glob, base domain", "*.foo", "glob", &[], "foo", deny),
        ("N16: subdomains off", "foo", "", &[], "baz.fud.bar.foo *.fud.bar.foo *.bar.foo bar.foo *.foo", deny),
        ("N17: bare off", "foo", "", &[], "foo", deny),
        ("N17: bare on", "foo", "bare", &[], "foo", ok),
        ("N18: subdomains", "foo", "sub", &[], "baz.fud.bar.foo bar.foo", ok),
        ("N19: subdomains, wildcard names", "foo", "sub", &[], "*.fud.bar.foo *.bar.foo *.foo", ok),
        ("N20: partial wildcards are no host names", "foo", "sub", &[], "x*x.foo *x.foo x*.foo", deny),
        ("N20: partial wildcards", "foo", "sub !host", &[], "x*x.foo *x.foo x*.foo", ok),
        ("N21: subdomains, bare off", "foo", "sub", &[], "foo", deny),
        ("N21: subdomains, bare on", "foo", "sub bare", &[], "foo", ok),
        ("N22: inner star", "x*x.foo", "glob", &[], "xerox.foo xylophone.files.pyrex.foo", ok),
        ("N23: inner star", "x*x.foo", "glob", &[], "xercex.bar.foo bar.foo *.foo *.x*x.foo *.xyx.foo", deny),
        ("N24: neither bare nor glob", "x*x.foo", "", &[], "x*x.foo", deny),
        ("N25: a partial wildcard is not a host name", "x*x.foo", "glob", &["bare"], "x*x.foo", deny),
        ("N25: glob", "x*x.foo", "glob !host", &["bare"], "x*x.foo", ok),
        ("N25: bare", "x*x.foo", "bare !host", &["glob"], "x*x.foo", ok),
        ("N26: star as a label", "x.*.x.foo", "glob", &[], "x.ero.x.foo x.ylophone.files.pyre.x.foo", ok),
        ("N27: star as a label", "x.*.x.foo", "glob", &[], labels, deny),
        ("N28: wildcards off", "*.foo", "glob !wild", &[], wild, deny),
        ("N29: wildcards off", "foo", "sub !wild", &[], "*.fud.bar.foo *.foo x*x.foo *x.foo x*.foo", deny),
        ("N30: wildcards off, the same entry", "x*x.foo", "bare !wild", &[], "x*x.foo", deny),
        ("N31: entry with a star alone", "*.foo", "", &[], "*.foo", deny),
        ("N32: wildcards off win over any name", "", "any !wild", &[], "*.foo", deny),
        ("N33: any name is still a host name", "", "any", &[], "foo_bar.com -a.com a..b", deny),
        ("N35: a trailing dot", "", "any", &[], "example.com.", deny),
        ("N42: the suffix is case-sensitive", "example.com", "sub", &[], "Foo.EXAMPLE.com", deny),
        ("N45: subdomains, e-mail at the domain", "mail.com", "sub", &[], "test@mail.com", deny),
        ("N45: subdomains, e-mail below it", "mail.com", "sub", &[], "test@a.mail.com", ok),
        ("N46: wildcard in an e-mail's host", "mail.com", "sub", &["any", "!host", "glob"], "test@*.mail.com", deny),
        ("N47: a suffix without its dot", "example.com", "sub", &["bare", "glob", "!host"], "evilexample.com", deny),
        ("N48: an empty entry never matches", "example.com,", "bare", &[], "example.com", ok),
        ("N48: an empty entry never matches", "example.com,", "bare sub", &[], "evil.org a. com", deny),
        ("N49: wildcard over localhost", "", "", &["sub"], "*.localhost", ok),
        ("N55: another address", "1.2.3.4", "bare", &[], "4.3.2.1", deny),
        ("N61: a hyphen next to the star", "", "any", &[], "b*-c.a.com *-.a.com -*.a.com", deny),
        ("N61: a partial wildcard is not a host name", "", "any", &[], "b*c.a.com", deny),
        ("N61: whole labels next to the star", "", "any !host", &[], "b*c.a.com", ok),
        ("names that alt_names refuses", "", "any", &[], "* 127.1 256.1.1.1 a.123", deny),
    ];
    for (case, domains, words, free, names, expected) in cases {
        for role in each_role(domains, words, free) {
            for name in names.split(' ') {
                let result = issue(&role, &json!({"common_name": name}));
                assert_eq!(result.is_ok(), *expected, "{case}: {name} under {role}: {result:?}");
                if let Err(error) = result {
                    assert!(error.text().contains(name), "{case}: {error}");
                }
            }
        }
    }
    assert!(issue(&role_with_flags("", "any"), &json!({"common_name": "a b.com"})).is_err(), "N33: a blank");
}

#[test]
fn common_name_becomes_the_matching_san() {
    let mail = "test@mail.com";
    for (case, role, name, dns, emails) in [
        ("N20: a partial wildcard is no DNS SAN", role_with_flags("foo", "sub !host"), "x*x.foo", vec![], vec![]),
        ("N20: a partial wildcard is no DNS SAN", role_with_flags("foo", "sub !host"), "*x.foo", vec![], vec![]),
        ("N20: a partial wildcard is no DNS SAN", role_with_flags("foo", "sub !host"), "x*.foo", vec![], vec![]),
        ("N25: nor is the entry itself", role_with_flags("x*x.foo", "glob !host"), "x*x.foo", vec![], vec![]),
        ("N20: a leading wildcard is one", role_with_flags("foo", "sub"), "*.foo", vec!["*.foo"], vec![]),
        ("N34: host names not enforced", role_with_flags("", "any !host"), "foo_bar", vec![], vec![]),
        ("N34: host names not enforced", role_with_flags("", "any !host"), "some name", vec![], vec![]),
        ("N35: a trailing dot stays out", role_with_flags("", "any !host"), "example.com.", vec![], vec![]),
        ("N43: e-mail as a bare domain", role_with_flags(mail, "bare"), mail, vec![], vec![mail]),
        ("N44: bare domain of an e-mail", role_with_flags("mail.com", "bare"), mail, vec![], vec![mail]),
        ("N50: the SAN is converted", role_with_flags("foo", "sub"), "bücher.foo", vec!["xn--bcher-kva.foo"], vec![]),
        ("N55: an IPv4 literal is no DNS SAN", role_with_flags("1.2.3.4", "bare"), "1.2.3.4", vec![], vec![]),
        ("N61: not copied", role_with_flags("", "any !host"), "b*c.a.com", vec![], vec![]),
        ("a bare star", role_with_flags("", "any !host"), "*", vec![], vec![]),
        ("a number, as clients read addresses", role_with_flags("", "any !host"), "127.1", vec![], vec![]),
        ("a number alone", role_with_flags("", "any !host"), "0004711", vec![], vec![]),
        ("upper case beyond ASCII names no host", role_with_flags("", "any !host"), "ÜNAL.foo", vec![], vec![]),
    ] {
        let (names, _) = issue(&role, &json!({"common_name": name})).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!(
            (names.common_name.as_str(), names.dns, names.emails),
            (name, strings(&dns), strings(&emails)),
            "{case}"
        );
    }
}

#[test]
fn address_as_common_name_becomes_ip_san_where_allowed() {
    let role = |words: &str, networks: &str, ip_sans: bool| {
        let mut role = role_with_flags("10.1.2.3", words);
        role["allow_ip_sans"] = ip_sans.into();
        role["allowed_ip_sans_cidr"] = networks.into();
        role
    };
    let ask = |name: &str| json!({"common_name": name});
    let ips = |names: NameSet| names.ips.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (words, name, ip) in [
        ("bare", "10.1.2.3", "10.1.2.3"),
        ("any", "10.1.2.3", "10.1.2.3"),
        ("any !host", "fd00::1", "fd00::1"),
        ("any !host", "::ffff:10.1.2.3", "10.1.2.3"),
    ] {
        let (names, warnings) = issue(&role(words, "10.0.0.0/8,fd00::/8", true), &ask(name)).unwrap();
        assert_eq!((ips(names), warnings.len()), (strings(&[ip]), 0), "{words} {name}");
    }
    let both = json!({"common_name": "10.1.2.3", "ip_sans": "10.1.2.3,10.0.0.1"});
    assert_eq!(ips(issue(&role("any", "", true), &both).unwrap().0), ["10.1.2.3", "10.0.0.1"]);
    let excluded = json!({"common_name": "10.1.2.3", "exclude_cn_from_sans": true});
    let (names, warnings) = issue(&role("any", "", true), &excluded).unwrap();
    assert!(names.ips.is_empty() && warnings.is_empty(), "{warnings:?}");
    // If the role does not allow the address, the address stays in the common name. There are two warnings: about the
    // address, and about a certificate without SANs.
    for role in [role("any", "", false), role("any", "192.0.2.0/24", true)] {
        let (names, warnings) = issue(&role, &ask("10.1.2.3")).unwrap();
        assert!(names.ips.is_empty() && names.dns.is_empty());
        assert!(warnings[0].starts_with("common_name: IP address"), "{warnings:?}");
        assert!(warnings[1].contains("no subject alternative name"), "{warnings:?}");
    }
}

#[test]
fn certificate_without_alternative_name_warns_servers_only() {
    let warned = |role: &Value, body: &Value| {
        issue(role, body).unwrap().1.iter().any(|warning| warning.contains("no subject alternative name"))
    };
    let named = json!({"common_name": "Jane Doe"});
    let server = role_with_flags("", "any !host");
    let mut client = server.clone();
    client["server_flag"] = false.into();
    let mut any = client.clone();
    any["ext_key_usage"] = "Any".into();
    let mut without_purposes = client.clone();
    without_purposes["client_flag"] = false.into();
    assert!(warned(&server, &named) && warned(&any, &named) && warned(&without_purposes, &named));
    assert!(!warned(&client, &named));
    assert!(!warned(&server, &json!({"common_name": "Jane Doe", "alt_names": "jane@example.com"})));
    assert!(!warned(&server, &json!({"common_name": "Jane Doe", "exclude_cn_from_sans": true})));
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| (*t).to_owned()).collect()
}

#[test]
fn cn_validations_limits_the_kinds_of_common_names() {
    let all = |kinds: &str| {
        let mut role = role_with_flags("foo", "bare sub glob");
        role["cn_validations"] = kinds.into();
        role
    };
    // `all` sets every flag except allow_any_name, because that flag would allow bar@bar.
    for (case, kinds, names, expected) in [
        ("N37", "email", "bar@bar@bar bar@bar bar.foo bar.bar", false),
        ("N38", "email", "bar@foo", true),
        ("N39", "hostname", "bar@foo bar@bar bar.bar", false),
        ("N40", "hostname", "bar.foo", true),
    ] {
        for name in names.split(' ') {
            assert_eq!(issue(&all(kinds), &json!({"common_name": name})).is_ok(), expected, "{case}: {name}");
        }
    }
    assert_eq!(issue(&all("email"), &json!({"common_name": "bar@foo"})).unwrap().0.emails, ["bar@foo"], "N38");
    for name in ["*.fud.*.foo", "*.bar.*.bar", "foo@foo@foo"] {
        let body = json!({"common_name": name, "exclude_cn_from_sans": true});
        assert_eq!(issue(&all("disabled"), &body).unwrap().0.common_name, name, "N36");
    }
    let role = all("disabled");
    assert!(issue(&role, &json!({"common_name": "Jane Doe"})).is_ok(), "any text");
    let evil = issue(&role, &json!({"common_name": "evil.bar"})).unwrap_err();
    assert!(evil.text().starts_with("common_name: subject alternate name evil.bar"), "the SAN is checked: {evil}");
    assert!(issue(&role, &json!({"common_name": "a..b"})).is_err(), "a failing conversion still errors");
    assert!(issue(&role, &json!({"common_name": "a..b", "exclude_cn_from_sans": true})).is_ok());
}

#[test]
fn alt_names_keep_order_and_case_and_follow_the_policy() {
    let (names, _) = issue(
        &role_with_flags("example.net, EXAMPLE.COM", "bare"),
        &json!({"common_name": "Example.Net", "alt_names": "eXaMPLe.COM"}),
    )
    .unwrap();
    assert_eq!(names.dns, ["Example.Net", "eXaMPLe.COM"], "N41: order and case stay");
    let sub = role_with_flags("foo.com", "sub");
    let one = |alt: &str| json!({"common_name": "a.foo.com", "alt_names": alt});
    let denied = issue(&sub, &one("a.foo.com,b.bar.com")).unwrap_err();
    assert!(denied.text().contains("b.bar.com not allowed by this role"), "N51: {denied}");
    let excluded = |name: &str| json!({"common_name": name, "exclude_cn_from_sans": true});
    let (names, _) = issue(&sub, &excluded("a.foo.com")).unwrap();
    let expected = NameSet { common_name: "a.foo.com".into(), ..NameSet::default() };
    assert_eq!(names, expected, "N53: no SAN at all");
    assert!(issue(&sub, &excluded("bad.com")).is_err(), "N54: the common name is still checked");
    let literal =
        issue(&role_with_flags("1.2.3.4,foo", "bare"), &json!({"common_name": "foo", "alt_names": "1.2.3.4"}));
    assert!(literal.unwrap_err().text().contains("use ip_sans"), "N55");
    for name in ["127.1", "0x7f000001", "2130706433", "*.1", "a.017"] {
        for words in ["any", "any !host"] {
            let refused =
                issue(&role_with_flags("", words), &json!({"common_name": "foo", "alt_names": name})).unwrap_err();
            assert!(refused.text().starts_with(&format!("alt_names: {name} ends in a number")), "{refused}");
        }
    }
    let mails = json!({"common_name": "c.x.com", "alt_names": "b@x.com,z.x.com,a@x.com,d.x.com,b@x.com,z.x.com"});
    let (names, _) = issue(&role_with_flags("x.com", "bare sub"), &mails).unwrap();
    assert_eq!(names.emails, ["a@x.com", "b@x.com"], "S43: e-mails are sorted");
    assert_eq!(names.dns, ["c.x.com", "z.x.com", "d.x.com"], "S43: DNS names keep their order");
    let unencodable = json!({"common_name": "jörg@x.com"});
    assert!(issue(&role_with_flags("x.com", "bare"), &unencodable).unwrap_err().text().contains("ASCII"));
}

#[test]
fn invalid_alt_name_refuses_the_whole_request() {
    let bad = "under_score.evil.com|a_b.ok.test|foo.ok.test.|ok.test.|not valid|-a.ok.test|a-.ok.test|x*y.ok.test|\
               *.*.ok.test|*|BÜCHER.ok.test|ａ.ok.test|a\u{ad}b.ok.test|[::1]|10.0.0.1/8|https://a.ok.test";
    for words in ["sub bare", "sub bare !host", "any", "any glob !host"] {
        let mut role = role_with_flags("ok.test", words);
        role["use_csr_sans"] = false.into();
        for name in bad.split('|') {
            let requested = json!({"common_name": "a.ok.test", "alt_names": ["b.ok.test", name]});
            for result in [issue(&role, &requested), sign(&role, &requested, &CsrNames::default())] {
                let text = result.unwrap_err().text().replace("\\u{ad}", "\u{ad}");
                assert!(text.starts_with(&format!("alt_names: {name} is not a host name")), "N52: {words}: {text}");
            }
        }
    }
}

#[test]
fn long_names_and_control_characters_are_refused_by_field() {
    let l63 = "a".repeat(63);
    let sub = role_with_flags("foo", "sub");
    // The name has 3 × 64 + 57 + 4 = 253 bytes if the last label has 57.
    let name = |last: usize| format!("{l63}.{l63}.{l63}.{}.foo", "a".repeat(last));
    for (name, fits) in
        [(format!("{l63}.foo"), true), (format!("a{l63}.foo"), false), (name(57), true), (name(58), false)]
    {
        for body in [
            json!({"common_name": name}),
            json!({"common_name": name, "exclude_cn_from_sans": true}),
            json!({"common_name": "a.foo", "alt_names": name}),
        ] {
            assert_eq!(issue(&sub, &body).is_ok(), fits, "N59, N60: {body}");
        }
    }
    let mut any = role_with_flags("", "any !host");
    for list in ["allowed_user_ids", "allowed_serial_numbers", "allowed_other_sans"] {
        any[list] = "*".into();
    }
    // Case N62: each error names the field.
    for (field, body) in [
        ("common_name", json!({"common_name": "a\u{0}b.example.com"})),
        ("common_name", json!({"common_name": "a\u{7f}b", "exclude_cn_from_sans": true})),
        ("alt_names", json!({"common_name": "a", "alt_names": "b\u{1}c"})),
        ("alt_names", json!({"common_name": "a", "alt_names": "x\u{0}@b.foo"})),
        ("user_ids", json!({"common_name": "a", "user_ids": "a\u{0}"})),
        ("serial_number", json!({"common_name": "a", "serial_number": "a\u{7f}"})),
        ("other_sans", json!({"common_name": "a", "other_sans": "1.2.3;UTF8:a\u{0}b"})),
    ] {
        let refused = issue(&any, &body).unwrap_err();
        let named = refused.text().starts_with(&format!("{field}: "));
        assert!(named && refused.text().contains("control character"), "{body}: {refused}");
    }
    let many: Vec<String> = (0..1001).map(|i| format!("n{i}.foo")).collect();
    assert!(issue(&sub, &json!({"common_name": "a.foo", "alt_names": many})).unwrap_err().text().contains("1000"));
    assert!(issue(&any, &json!({"common_name": "a ".repeat(4000), "exclude_cn_from_sans": true})).is_err());
}

/// Builds a role with `allow_any_name` and the given field.
fn role_with_any_name_and(member: &str, value: Value) -> Value {
    let mut role = role_with_flags("", "any");
    role[member] = value;
    role
}

#[test]
fn ip_and_uri_sans_follow_the_lists_of_the_role() {
    let ask = |field: &str, value: &str| json!({"common_name": "localhost", field: value});
    let cidr = role_with_any_name_and("allowed_ip_sans_cidr", json!("1.2.3.4/31"));
    let uris = role_with_any_name_and("allowed_uri_sans", json!("http://someuri/*,spiffe://host.com/*"));
    let ok = [
        ("S2", json!({}), ask("ip_sans", "1.2.3.4,::1")),
        ("S6", cidr.clone(), ask("ip_sans", "1.2.3.4,1.2.3.5,::ffff:1.2.3.5")),
        ("S8", uris.clone(), ask("uri_sans", "http://someuri/abc,spiffe://host.com/x")),
        (
            "S9",
            role_with_any_name_and("allowed_uri_sans", json!("spiffe://domain/**")),
            ask("uri_sans", "spiffe://domain/spiffe"),
        ),
    ];
    for (case, role, body) in ok {
        issue(&role, &body).unwrap_or_else(|e| panic!("{case}: {e}"));
    }
    let denied = [
        ("S1", role_with_any_name_and("allow_ip_sans", json!(false)), ask("ip_sans", "1.2.3.4")),
        ("S3", json!({}), ask("ip_sans", "300.1.1.1")),
        ("S3", json!({}), ask("ip_sans", "01.2.3.4")),
        ("S3: a network", json!({}), ask("ip_sans", "::1/128")),
        ("S3: a host name", json!({}), ask("ip_sans", "localhost")),
        ("S6: above", cidr.clone(), ask("ip_sans", "1.2.3.6")),
        ("S6: below", cidr.clone(), ask("ip_sans", "1.2.3.3")),
        ("S6: of the other family", cidr.clone(), ask("ip_sans", "::1")),
        ("S6: one of two", cidr, ask("ip_sans", "1.2.3.4,1.2.3.6")),
        ("S7", json!({}), ask("uri_sans", "spiffe://host.com/x")),
        (
            "S10",
            role_with_any_name_and("allowed_uri_sans", json!("spiffe://domain/*")),
            ask("uri_sans", "spiffe://other/x"),
        ),
        ("one bad URI denies all", uris.clone(), ask("uri_sans", "spiffe://host.com/x,spiffe://evil/x")),
        (
            "a URI that does not parse",
            role_with_any_name_and("allowed_uri_sans", json!("*")),
            ask("uri_sans", "no uri"),
        ),
        ("dot segments", uris, ask("uri_sans", "spiffe://host.com/a/../../evil")),
    ];
    for (case, role, body) in denied {
        let error = issue(&role, &body).expect_err(case);
        assert!(error.text().starts_with("ip_sans: ") || error.text().starts_with("uri_sans: "), "{case}: {error}");
    }
    let (names, _) = issue(&json!({}), &ask("ip_sans", "1.2.3.4,::1")).unwrap();
    assert_eq!(names.ips, ["1.2.3.4".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()], "S2");
}

#[test]
fn other_names_follow_the_list_of_the_role() {
    let listed = role_with_any_name_and(
        "allowed_other_sans",
        json!("1.3.6.1.4.1.311.20.2.3;UTF8:devops@*,1.3.6.1.4.1.311.20.2.4;utf8:d*e@foobar.com"),
    );
    let ask = |value: &str| json!({"common_name": "a.foo", "alt_names": "b.foo", "other_sans": value});
    for (case, value, problem) in [
        ("S12", "1.3.6.1.4.1.311.20.2.3;UTF8:devop@nope.com", "not allowed for OID"),
        ("S13", "1.3.6.1.4.1.311.20.2.5;UTF8:devops@nope.com", "OID 1.3.6.1.4.1.311.20.2.5 is not allowed"),
        ("S14", "1.3.6.1.4.1.311.20.2.4;UTF8:d34g@foobar.com", "not allowed for OID"),
        ("S15", "1.3.6.1.4.1.311.20.2.3;UTF2:x", "only UTF8"),
    ] {
        let error = issue(&listed, &ask(value)).expect_err(case);
        assert!(error.text().contains(problem), "{case}: {error}");
    }
    let (names, _) = issue(&listed, &ask("1.3.6.1.4.1.311.20.2.3;utf8:devops@nope.com")).unwrap();
    assert_eq!(names.other, [("1.3.6.1.4.1.311.20.2.3".to_owned(), "devops@nope.com".to_owned())], "S16");
    assert_eq!(names.dns, ["a.foo", "b.foo"], "S16: other SANs unchanged");
    let both = "1.3.6.1.4.1.311.20.2.4;UTF8:d34e@foobar.com,1.3.6.1.4.1.311.20.2.3;UTF8:devops@x";
    let (names, _) = issue(&listed, &ask(both)).unwrap();
    let oids: Vec<&str> = names.other.iter().map(|(oid, _)| oid.as_str()).collect();
    assert_eq!(oids, ["1.3.6.1.4.1.311.20.2.4", "1.3.6.1.4.1.311.20.2.3"], "S17: in request order");
    assert!(issue(&role_with_any_name_and("allowed_other_sans", json!("*")), &ask("1.2.3;UTF8:x")).is_ok(), "S18");
    assert!(issue(&role_with_flags("", "any"), &ask("1.2.3;UTF8:x")).is_err(), "an empty list allows none");
}

#[test]
fn subject_values_follow_the_lists_of_the_role() {
    for (case, member, allowed, requested, expected) in [
        ("S20", "allowed_serial_numbers", "f00*,b4r*", "f00bar", true),
        ("S20", "allowed_serial_numbers", "f00*,b4r*", "b4rf00", true),
        ("S21", "allowed_serial_numbers", "f00*,b4r*", "foobar", false),
        ("S22", "allowed_serial_numbers", "", "x", false),
        ("S22: no serial", "allowed_serial_numbers", "", "", true),
        ("S23", "allowed_user_ids", "", "humanoid", false),
        ("S24", "allowed_user_ids", "*", "humanoid,robot", true),
        ("S25", "allowed_user_ids", "humanoid", "robot", false),
        ("S25", "allowed_user_ids", "humanoid", "humanoid,robot", false),
        ("S26: case is ignored", "allowed_user_ids", "humanoid", "HUMANOID", true),
        ("S27", "allowed_user_ids", "human*", "humanoid", true),
        ("S27", "allowed_user_ids", "human*", "human", true),
        ("S27", "allowed_user_ids", "human*", "human*", true),
        ("S27", "allowed_user_ids", "human*", "robot", false),
    ] {
        let field = if member == "allowed_user_ids" { "user_ids" } else { "serial_number" };
        let result =
            issue(&role_with_any_name_and(member, json!(allowed)), &json!({"common_name": "a.foo", field: requested}));
        assert_eq!(result.is_ok(), expected, "{case}: {result:?}");
        if let Ok((names, _)) = result {
            let got = if field == "user_ids" { names.user_ids.join(",") } else { names.serial_number };
            assert_eq!(got, requested, "{case}");
        }
    }
}

#[test]
fn missing_common_name_is_accepted_without_require_cn() {
    let mut role = role_with_flags("foo.com", "sub");
    assert!(issue(&role, &json!({})).unwrap_err().text().contains("require_cn"), "S31");
    assert!(issue(&role, &json!({"common_name": " "})).is_err(), "S31: blanks");
    role["require_cn"] = false.into();
    let (names, _) = issue(&role, &json!({"alt_names": "a.foo.com"})).unwrap();
    assert_eq!((names.common_name.as_str(), names.dns.as_slice()), ("", &strings(&["a.foo.com"])[..]), "S32");
    assert_eq!(issue(&role, &json!({})).unwrap().0, NameSet::default(), "S33: the role's subject may be a name");
    let mut any = role_with_any_name_and("allowed_other_sans", json!("*"));
    any["require_cn"] = false.into();
    let (names, _) = issue(&any, &json!({"alt_names": "a.foo.com", "other_sans": "1.2.3;UTF8:x"})).unwrap();
    assert_eq!((names.dns.len(), names.other.len(), names.common_name.len()), (1, 1, 0), "S44");
}

#[test]
fn subject_values_of_a_role_stay_as_written() {
    // The role keeps both values; the encoder drops the second `a` from the RDN.
    assert_eq!(role(&json!({"ou": "a,b,a", "organization": "o"})).ou, ["a", "b", "a"]);
}

#[test]
fn csr_common_name_and_sans_are_used_as_the_role_says() {
    let api = json!({"common_name": "b.foo", "alt_names": "y.foo"});
    let csr = CsrNames { common_name: "a.foo".into(), dns: strings(&["x.foo"]), ..CsrNames::default() };
    let (names, warnings) = sign(&role_with_flags("foo", "sub"), &api, &csr).unwrap();
    assert_eq!((names.common_name.as_str(), &names.dns), ("a.foo", &strings(&["x.foo", "a.foo"])), "C15, C18");
    assert!(warnings[0].starts_with("common_name") && warnings[1].starts_with("alt_names"), "{warnings:?}");
    let mut role = role_with_flags("foo", "sub");
    role["use_csr_common_name"] = false.into();
    assert_eq!(sign(&role, &api, &csr).unwrap().0.dns, ["x.foo", "b.foo"], "C16");
    role["use_csr_sans"] = false.into();
    assert_eq!(sign(&role, &api, &csr).unwrap().0.dns, ["b.foo", "y.foo"], "C19");
    let nameless = CsrNames { common_name: String::new(), ..csr.clone() };
    let (names, warnings) = sign(&role_with_flags("foo", "sub"), &json!({"common_name": "b.foo"}), &nameless).unwrap();
    assert_eq!((names.common_name.as_str(), warnings.len()), ("b.foo", 0), "C17: a fallback is not ignored");
    let evil = CsrNames { dns: strings(&["evil.com"]), ..csr.clone() };
    let error = sign(&role_with_flags("foo", "sub"), &json!({}), &evil).unwrap_err();
    assert!(error.text().starts_with("csr: ") && error.text().contains("evil.com"), "C20: {error}");
}

#[test]
fn csr_sans_follow_the_rules_of_the_role() {
    let base = CsrNames { common_name: "localhost".into(), ..CsrNames::default() };
    let ip = CsrNames { ips: vec!["1.2.3.4".parse().unwrap()], ..base.clone() };
    let mut role = json!({"allowed_ip_sans_cidr": "8.8.8.8/32"});
    assert!(sign(&role, &json!({}), &ip).unwrap_err().text().starts_with("csr: "), "S4");
    role["use_csr_sans"] = false.into();
    assert_eq!(sign(&role, &json!({}), &ip).unwrap().0.ips.len(), 0, "S5");
    assert!(sign(&json!({"allow_ip_sans": false}), &json!({}), &ip).is_err());
    let any = role_with_flags("", "any !host");
    for (case, csr) in [
        ("an IPv4 literal as DNS name", CsrNames { dns: strings(&["1.2.3.4"]), ..base.clone() }),
        ("an empty DNS name", CsrNames { dns: strings(&[""]), ..base.clone() }),
        ("an address as DNS name", CsrNames { dns: strings(&["a@b.c"]), ..base.clone() }),
        ("a host as e-mail address", CsrNames { emails: strings(&["b.c"]), ..base.clone() }),
        ("NUL", CsrNames { dns: strings(&["a\0b.c"]), ..base.clone() }),
        ("NUL", CsrNames { emails: strings(&["a\0@b.c"]), ..base.clone() }),
        ("a line feed", CsrNames { dns: strings(&["a.foo\n"]), ..base.clone() }),
        ("NUL", CsrNames { common_name: "a\0b".into(), ..base.clone() }),
        ("octets beyond ASCII", CsrNames { dns: strings(&["bücher.foo"]), ..base.clone() }),
        ("URIs under an empty list", CsrNames { uris: strings(&["spiffe://x/y"]), ..base.clone() }),
        ("C26: an otherName of another type", CsrNames { other: vec![("1.2.3".into(), None)], ..base.clone() }),
        (
            "otherNames under an empty list",
            CsrNames { other: vec![("1.2.3".into(), Some("x".into()))], ..base.clone() },
        ),
        ("a kind without a rule", CsrNames { unsupported_san_kind: Some("directoryName"), ..base.clone() }),
        ("a UID under an empty list", CsrNames { user_ids: strings(&["x"]), ..base.clone() }),
        ("a serial under an empty list", CsrNames { serial_number: "x".into(), ..base.clone() }),
    ] {
        assert!(sign(&any, &json!({}), &csr).is_err(), "{case}");
    }
    let dotted = CsrNames { dns: strings(&["a.1."]), ..base.clone() };
    assert!(sign(&any, &json!({}), &dotted).unwrap_err().text().starts_with("csr: a.1.: a dNSName is not a host name"));
    for name in ["127.1", "0x7f000001", "2130706433"] {
        let csr = CsrNames { dns: strings(&[name]), ..base.clone() };
        assert_eq!(sign(&any, &json!({}), &csr).unwrap().0.dns[0], name, "host names are not enforced");
        let refused = sign(&role_with_flags("", "any"), &json!({}), &csr).unwrap_err();
        assert!(refused.text().starts_with(&format!("csr: {name} ends in a number")), "{refused}");
    }
    let other = CsrNames { other: vec![("1.2.3".into(), Some("b".into()))], ..base.clone() };
    let both = json!({"other_sans": "1.2.3;UTF8:a"});
    let (names, _) = sign(&role_with_any_name_and("allowed_other_sans", json!("*")), &both, &other).unwrap();
    let values: Vec<&str> = names.other.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["a", "b"], "otherNames of both");
}

#[test]
fn csr_subject_values_are_fallbacks() {
    let csr = CsrNames {
        common_name: "a.foo".into(),
        serial_number: "sn".into(),
        user_ids: strings(&["humanoid"]),
        ..CsrNames::default()
    };
    let mut role = role_with_flags("foo", "sub");
    role["allowed_user_ids"] = "human*".into();
    role["allowed_serial_numbers"] = "*".into();
    let (names, _) = sign(&role, &json!({}), &csr).unwrap();
    assert_eq!((names.user_ids, names.serial_number.as_str()), (strings(&["humanoid"]), "sn"), "S28");
    let (names, _) = sign(&role, &json!({"user_ids": "human", "serial_number": "own"}), &csr).unwrap();
    assert_eq!((names.user_ids, names.serial_number.as_str()), (strings(&["human"]), "own"));
    role["serial_number_source"] = "json".into();
    assert_eq!(sign(&role, &json!({}), &csr).unwrap().0.serial_number, "", "only from the request");
}

#[test]
fn ca_certificates_have_no_policy_but_the_same_syntax() {
    let names = |body: Value| collect_for_ca(&request(&body)).map(|(names, _)| names.0);
    let root = names(json!({"common_name": "My Root CA", "alt_names": "ca.example,a@b.c", "ip_sans": "10.0.0.1",
        "uri_sans": "http://x/y", "other_sans": "1.2.3;UTF8:x", "serial_number": "7"}))
    .unwrap();
    assert_eq!(
        (root.common_name.as_str(), root.dns, root.emails),
        ("My Root CA", strings(&["ca.example"]), strings(&["a@b.c"]))
    );
    assert_eq!((root.ips.len(), root.uris.len(), root.other.len(), root.serial_number.as_str()), (1, 1, 1, "7"));
    assert_eq!(names(json!({"common_name": "ca.example"})).unwrap().dns, ["ca.example"]);
    assert_eq!(names(json!({})).unwrap(), NameSet::default());
    for (field, bad) in [("ip_sans", "x"), ("uri_sans", "x"), ("other_sans", "x"), ("common_name", "a\u{0}")] {
        assert!(names(json!({ field: bad })).is_err(), "{field}");
    }
}

proptest! {
    #[test]
    fn every_collected_name_passes_the_policy(
        domain in "[ab]{1,2}(\\.[ab]{1,2})?",
        common_name in "([ab*]{1,2}\\.){0,2}[ab]{1,2}(\\.[ab]{1,2})?|[ab]@[ab.]{1,5}",
        alt_names in proptest::collection::vec("([ab*ü]{1,2}\\.){0,2}[ab]{1,2}|[ab]@[ab.]{1,5}|\\PC{0,6}", 0..4),
        words in proptest::sample::subsequence(vec!["bare", "sub", "any", "!wild", "!host"], 0..=5),
        from_csr in any::<bool>(),
    ) {
        let role_body = role_with_flags(&domain, &words.join(" "));
        let role = CompiledRole::from(role(&role_body));
        let requested = RequestedNames { common_name, alt_names, ..RequestedNames::default() };
        let csr = CsrNames {
            common_name: requested.common_name.clone(),
            dns: requested.alt_names.clone(),
            ..CsrNames::default()
        };
        let result = if from_csr {
            collect_for_leaf(&role, &RequestedNames::default(), Some(&csr))
        } else {
            collect_for_leaf(&role, &requested, None)
        };
        if let Ok((names, _)) = result.and_then(|requested| requested.validate(&role, "")) {
            let policy = NamePolicy { role: &role, display_name: "" };
            for name in names.dns.iter().chain(&names.emails).chain([&names.common_name]) {
                prop_assert!(policy.allows(name), "{}", name);
                prop_assert!(!name.chars().any(char::is_control));
            }
            prop_assert!(names.dns.iter().all(|n| n.is_ascii() && !n.contains('@')));
            prop_assert!(from_csr || names.dns.iter().all(|n| hostname::dns_form(n) == Ok(Some(n.clone()))));
            let distinct: HashSet<_> = names.dns.iter().collect();
            prop_assert_eq!(distinct.len(), names.dns.len());
        }
    }

    #[test]
    fn names_of_any_request_do_not_panic(texts in proptest::collection::vec("\\PC{0,20}|[a-z.@*;:/]{0,12}", 7), any_name in any::<bool>()) {
        let list = |i: usize| vec![texts[i].clone()];
        let role = Role {
            allow_any_name: any_name,
            enforce_hostnames: false,
            allowed_uri_sans: strings(&["*"]),
            allowed_other_sans: strings(&["*"]),
            allowed_user_ids: list(6),
            ..Role::default()
        };
        let requested = RequestedNames {
            common_name: texts[0].clone(), alt_names: list(1), ip_sans: list(2), uri_sans: list(3), other_sans: list(4),
            user_ids: list(6), ..RequestedNames::default()
        };
        let csr = CsrNames {
            common_name: texts[1].clone(), dns: list(0), emails: list(1), uris: list(3), user_ids: list(5),
            other: vec![(texts[4].clone(), Some(texts[5].clone()))], ..CsrNames::default()
        };
        let role = CompiledRole::from(role);
        for csr in [None, Some(&csr)] {
            let Ok(requested) = collect_for_leaf(&role, &requested, csr) else { continue };
            let _ = (requested.is_slow_to_validate(&role), requested.validate(&role, &texts[5]));
        }
        let _ = collect_for_ca(&requested);
    }
}

/// `is_slow_to_validate` is `true` for many names under many patterns, so that their check does not run on a worker.
#[test]
fn many_names_with_many_patterns_count_as_slow() {
    let many = |form: fn(usize) -> String, count| (0..count).map(form).collect::<Vec<_>>();
    let pattern = |i| format!("*a*b*{i}.test");
    let role = |change: fn(&mut Role, Vec<String>), patterns| {
        let mut role = Role { allow_glob_domains: true, ..Role::default() };
        change(&mut role, patterns);
        CompiledRole::from(role)
    };
    let domains = |count| role(|role, list| role.allowed_domains = list, many(pattern, count));
    let names = |alt_names| RequestedNames { alt_names, ..RequestedNames::default() };
    let collect = |request: RequestedNames| collect_for_leaf(&Role::default(), &request, None).unwrap();
    let few = collect(names(many(|i| format!("host{i}.test"), 3)));
    let all = collect(names(many(|i| format!("host{i}.test"), 980)));
    assert!(
        !few.is_slow_to_validate(&domains(1_000))
            && !all.is_slow_to_validate(&domains(3))
            && all.is_slow_to_validate(&domains(1_000))
    );
    let plain = role(|role, list| role.allowed_domains = list, many(|i| format!("customer{i}.test"), 1_000));
    assert!(!all.is_slow_to_validate(&plain), "plain texts are looked up, not scanned");
    let any_name = |role: &mut Role, list| (role.allow_any_name, role.allowed_domains) = (true, list);
    assert!(!all.is_slow_to_validate(&role(any_name, many(pattern, 1_000))), "allow_any_name skips the domains");
    let templates = |role: &mut Role, list| (role.allowed_domains_template, role.allowed_domains) = (true, list);
    assert!(few.is_slow_to_validate(&role(
        templates,
        many(|i| format!("{{{{identity.entity.name}}}}.{i}.{}", "x".repeat(90)), 999)
    )));
    let patterns = || many(pattern, 1_000);
    let texts = many(|i| format!("text{i}"), 900);
    let uris = collect(RequestedNames { uri_sans: texts.clone(), ..RequestedNames::default() });
    assert!(uris.is_slow_to_validate(&role(|role, list| role.allowed_uri_sans = list, patterns())));
    let user_ids = collect(RequestedNames { user_ids: texts, ..RequestedNames::default() });
    assert!(user_ids.is_slow_to_validate(&role(|role, list| role.allowed_user_ids = list, patterns())));
    let serial = collect(RequestedNames { serial_number: "s".repeat(60), ..RequestedNames::default() });
    assert!(serial.is_slow_to_validate(&role(|role, list| role.allowed_serial_numbers = list, patterns())));
    let others =
        collect(RequestedNames { other_sans: many(|i| format!("1.2.3;UTF8:t{i}"), 900), ..Default::default() });
    let other = many(|i| format!("1.2.3;UTF8:*{i}"), 1_000);
    assert!(others.is_slow_to_validate(&role(|role, list| role.allowed_other_sans = list, other)));
    let ips = collect(RequestedNames { ip_sans: many(|i| format!("10.0.0.{}", i % 256), 900), ..Default::default() });
    let networks = many(|i| format!("10.{}.{}.0/24", i / 256, i % 256), 1_000);
    assert!(ips.is_slow_to_validate(&role(|role, list| role.allowed_ip_sans_cidr = list, networks)));
}
