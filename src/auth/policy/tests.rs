//! Tests of policy decisions in tables, and property tests of the parser and of decisions.

use super::patterns::is_pattern;
use super::*;
use crate::clock::format_rfc3339;
use crate::fields::Fields;
use crate::templates::{IdentitySelector, TemplateValues};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

const NOW: crate::clock::Time = time::macros::datetime!(2030-01-02 03:04:05 UTC);

fn acl(texts: &[&str]) -> Acl {
    let policies: Vec<Policy> = texts.iter().map(|text| Policy::parse(text).unwrap()).collect();
    Acl::compile(&policies, None, NOW)
}

fn allowed(acl: &Acl, operation: Operation, path: &str) -> bool {
    acl.decide(operation, path.into(), Some(&RequestParameters::verbatim(&Fields::default()))).allowed
}

fn parse_error_text(text: &str) -> String {
    Policy::parse(text).unwrap_err().text().to_owned()
}

#[test]
fn syntax_example_is_parsed() {
    let policy = Policy::parse(
        r#"
        name = "web"                                   # ignored
        path "/pki/issue/web" {
          capabilities        = ["create", "update",]  // two
          allowed_parameters  = { "common_name" = [], "*" = [] }
          denied_parameters   { "alt_names" = ["*.example.com"], bits = [1, 2.5, true, {a = "b"}] }
          required_parameters = ["Common_Name"] /* and
          more */ min_wrapping_ttl = "1s"   max_wrapping_ttl = "90s"
          comment = "say \"hi\" ☃"  expiration = "2031-01-01T00:00:00Z"
        }
        "path" "old" { policy = "write" }"#,
    )
    .unwrap();
    let rule = &policy.rules[0];
    assert_eq!(rule.path, "pki/issue/web");
    let terms = &rule.terms;
    let parameters = &rule.terms.parameters;
    assert_eq!(terms.capabilities.names(), ["create", "update"]);
    assert_eq!(parameters.allowed.keys().collect::<Vec<_>>(), ["*", "common_name"]);
    assert_eq!(parameters.denied["bits"], [json!(1), json!(2.5), json!(true), json!({"a": "b"})]);
    assert!(parameters.required.contains("common_name"));
    assert_eq!((terms.min_wrapping, terms.max_wrapping), (Duration::from_secs(1), Duration::from_secs(90)));
    assert_eq!(rule.comment.as_deref(), Some("say \"hi\" ☃"));
    assert_eq!(policy.rules[1].terms.capabilities.names(), ["create", "delete", "list", "read", "update"]);
}

#[test]
fn exact_path_beats_a_glob() {
    let acl =
        acl(&[r#"path "pki/issue/web" { capabilities = ["deny"] } path "pki/issue/*" { capabilities = ["update"] }"#]);
    assert!(!allowed(&acl, Operation::Update, "pki/issue/web"));
    assert!(allowed(&acl, Operation::Update, "pki/issue/other"));
}

#[test]
fn pattern_of_higher_precedence_decides() {
    for (winner, loser, path) in [
        ("foo/a*", "foo/+", "foo/ab"),
        ("foo/bar/+/baz", "foo/+/bar/baz", "foo/bar/bar/baz"),
        ("foo/+", "foo/*", "foo/x"),
        ("foo/+/bar/ba*", "foo/+/bar/b*", "foo/x/bar/baz"),
        ("foo/+/a/*", "foo/+/+/*", "foo/x/a/y"),
        ("+/b", "+/+", "a/b"),
    ] {
        let acl = acl(&[&format!(
            r#"path "{winner}" {{ capabilities = ["read"] }} path "{loser}" {{ capabilities = ["deny"] }}"#
        )]);
        assert!(allowed(&acl, Operation::Read, path), "{winner} over {loser}");
    }
}

#[test]
fn deny_in_any_policy_wins_on_the_same_path() {
    let acl = acl(&[r#"path "a" { capabilities = ["read"] }"#, r#"path "a" { capabilities = ["deny", "update"] }"#]);
    assert!(!allowed(&acl, Operation::Read, "a"));
    assert!(!allowed(&acl, Operation::Update, "a"));
    assert_eq!(acl.capabilities("a".into()).names(), ["deny"]);
}

#[test]
fn plus_matches_exactly_one_segment() {
    let acl = acl(&[r#"path "a/+/c" { capabilities = ["read"] } path "foo/+" { capabilities = ["list", "read"] }"#]);
    assert!(allowed(&acl, Operation::Read, "a/b/c"));
    for path in ["a/b/d/c", "a/c", "a//c", "a/b/c/", "foo/"] {
        assert!(!allowed(&acl, Operation::Read, path), "{path}");
    }
    assert!(allowed(&acl, Operation::List, "foo/"));
    assert!(allowed(&acl, Operation::List, "foo/bar/"));
    assert!(!allowed(&acl, Operation::List, "foo/bar/baz/"));
}

#[test]
fn deny_below_a_folder_covers_listing_it() {
    let acl = acl(&[
        r#"path "secret/*" { capabilities = ["list"] } path "secret/private/*" { capabilities = ["deny"] }"#,
        r#"path "secret/+/x*" { capabilities = ["list"] }"#,
    ]);
    assert!(!allowed(&acl, Operation::List, "secret/private/"));
    assert!(!allowed(&acl, Operation::List, "secret/private/x/"));
    assert!(allowed(&acl, Operation::List, "secret/public/"));
}

#[test]
fn unknown_keys_and_capabilities_are_errors() {
    assert!(parse_error_text(r#"path "a/+*" { capabilities = ["read"] }"#).contains("\"+*\" is forbidden"));
    assert!(parse_error_text(r#"path "a" { capabilities = ["foo"] }"#).contains("\"foo\""));
    assert!(parse_error_text("path \"a\" {\n bar = 1 }").contains("line 2: unknown key \"bar\""));
    assert!(parse_error_text(r#"rule "a" {}"#).contains("\"rule\""));
    let acl = acl(&[r#"path "a" { capabilities = ["read"] } path "a" { capabilities = ["update"] }"#]);
    assert!(allowed(&acl, Operation::Read, "a") && allowed(&acl, Operation::Update, "a"));
}

#[test]
fn malformed_texts_are_refused_by_line_and_rule() {
    for (text, want) in [
        ("path \"a\" {", "not closed"),
        ("path \"a\" { capabilities = \"read\" }", "must be a list of strings"),
        ("path \"a\" { capabilities = [\"read\" \"list\"] }", "expected ',' or ']'"),
        ("path \"a\" { capabilities = [] capabilities = [] }", "given twice"),
        ("path a { }", "expected '='"),
        ("path \"a\nb\" { }", "line 1: a string is not closed"),
        ("path \"a/../b\" { }", "forbidden"),
        ("path \"a//b\" { }", "forbidden"),
        ("path \"/\" { }", "must not be empty"),
        ("path \"a/{{identity.entity.id\" { }", "do not match"),
        ("/* x", "comment is not closed"),
        ("path \"a\" { min_wrapping_ttl = \"-1s\" }", "min_wrapping_ttl: must be a duration"),
        ("path \"a\" { min_wrapping_ttl = \"2s\" max_wrapping_ttl = \"1s\" }", "less than min_wrapping_ttl"),
        ("path \"a\" { mfa_methods = [\"x\"] }", "unknown key \"mfa_methods\""),
        ("{\"path\": {\"a\": {}}} x", "after the JSON object"),
        ("path \"a\" \"b\" {}", "one label"),
    ] {
        assert!(parse_error_text(text).contains(want), "{text}: {}", parse_error_text(text));
    }
    let deep = format!("path \"a\" {{ denied_parameters = {{ \"x\" = {} }} }}", "[".repeat(100_000));
    assert!(parse_error_text(&deep).contains("more than 16 levels"));
    assert!(parse_error_text(&" ".repeat(MAX_POLICY_BYTES + 1)).contains("longer than"));
}

#[test]
fn wrapping_ttl_limits_deny_requests_outside_them() {
    let rule = |limits: &str| format!("path \"a\" {{ capabilities = [\"read\"] {limits} }}");
    let min = r#"min_wrapping_ttl = "10s""#;
    let max = r#"max_wrapping_ttl = "90s""#;
    let fields = Fields::default();
    for (texts, good, bad) in [
        (vec![rule("")], &[None, Some(1)][..], &[][..]),
        (vec![rule(min)], &[Some(10), Some(1_000)][..], &[None, Some(9)][..]),
        (vec![rule(max)], &[Some(1), Some(90)][..], &[None, Some(91)][..]),
        (vec![rule(&format!("{min} {max}"))], &[Some(10), Some(90)][..], &[None, Some(9), Some(91)][..]),
        // Of two limits the lesser one applies; zero means no limit.
        (vec![rule(min), rule(max)], &[Some(10), Some(90)][..], &[None, Some(9), Some(91)][..]),
        (vec![rule(min), rule(r#"min_wrapping_ttl = "5s""#)], &[Some(5)][..], &[Some(4)][..]),
        (vec![rule(max), rule(""), rule(r#"max_wrapping_ttl = "2h""#)], &[Some(90)][..], &[None, Some(91)][..]),
    ] {
        let acl = acl(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let decide = |seconds: Option<u64>| {
            let wrap_ttl = seconds.map(Duration::from_secs);
            let sent = RequestParameters { wrap_ttl, ..RequestParameters::verbatim(&fields) };
            acl.decide(Operation::Read, RequestPath::from("a"), Some(&sent)).allowed
        };
        assert!(good.iter().all(|seconds| decide(*seconds)), "{texts:?}");
        assert!(!bad.iter().any(|seconds| decide(*seconds)), "{texts:?}");
        // A decision without parameters does not check wrapping limits.
        assert!(acl.decide(Operation::Read, RequestPath::from("a"), None).allowed);
    }
}

#[test]
fn mount_is_reachable_if_a_right_below_it_is_not_denied() {
    for (rules, mount, reaches) in [
        (r#"path "pki/issue/web" { capabilities = ["update"] }"#, "pki/", true),
        (r#"path "pki/issue/web" { capabilities = ["update"] }"#, "pki2/", false),
        (r#"path "pki/issue/web" { capabilities = ["deny"] }"#, "pki/", false),
        (r#"path "pki/*" { capabilities = ["deny"] } path "pki/roles/+" { capabilities = ["read"] }"#, "pki/", true),
        (r#"path "pki/*" { capabilities = ["deny"] } path "+/roles" { capabilities = ["read"] }"#, "pki/", false),
        (r#"path "pki/*" { capabilities = ["deny"] } path "*" { capabilities = ["read"] }"#, "pki/", false),
        (r#"path "pki/*" { capabilities = ["deny"] } path "*" { capabilities = ["read"] }"#, "team/ca/", true),
        (r#"path "pki/*" { capabilities = ["read"] } path "pki/+" { capabilities = ["deny"] }"#, "pki/", true),
        (r#"path "*" { capabilities = ["read"] } path "+/+/+" { capabilities = ["deny"] }"#, "team/ca/", true),
        (r#"path "pki/a/*" { capabilities = ["read"] } path "pki/a/+" { capabilities = ["deny"] }"#, "pki/", true),
        (r#"path "pki/a*" { capabilities = ["read"] } path "pki/+/b" { capabilities = ["deny"] }"#, "pki/", true),
    ] {
        assert_eq!(acl(&[rules]).grants_below_mount(mount), reaches, "{rules} {mount}");
    }
}

#[test]
fn sudo_comes_from_the_deciding_rule_only() {
    let acl = acl(&[
        r#"path "pki/root/sign-self-issued" { capabilities = ["update"] } path "pki/*" { capabilities = ["update", "sudo"] }"#,
    ]);
    let decide = |path| acl.decide(Operation::Update, RequestPath::from(path), None);
    assert_eq!(decide("pki/root/sign-self-issued"), Decision { allowed: true, sudo: false });
    assert_eq!(decide("pki/issuer/default/sign-self-issued"), Decision { allowed: true, sudo: true });
}

#[test]
fn templated_path_grants_nothing_without_an_entity() {
    let acl = acl(&[r#"path "identity/entity/id/{{identity.entity.id}}" { capabilities = ["read"] }"#]);
    assert!(!allowed(&acl, Operation::Read, "identity/entity/id/{{identity.entity.id}}"));
    assert!(!allowed(&acl, Operation::Read, "identity/entity/id/"));
}

/// An identity with the same value for every template.
struct ConstantIdentity(&'static str);

impl TemplateValues for ConstantIdentity {
    fn value(&self, _: &IdentitySelector) -> Option<&str> {
        Some(self.0)
    }
}

#[test]
fn templated_path_grants_only_the_literal_value() {
    let text = r#"path "team/{{identity.entity.name}}/*" { capabilities = ["read"] }
                  path "x/{{identity.entity.metadata.k}}" { capabilities = ["read"] }
                  path "{{identity.groups.names.g.id}}/{{nothing}}" { capabilities = ["read"] }
                  path "plain" { capabilities = ["read"] }"#;
    let policies = [Policy::parse(text).unwrap()];
    assert!(policies[0].has_templates());
    let filled = |value| Acl::compile(&policies, Some(&ConstantIdentity(value)), NOW);
    let bob = filled("bob");
    assert!(allowed(&bob, Operation::Read, "team/bob/a") && allowed(&bob, Operation::Read, "x/bob"));
    assert!(!allowed(&bob, Operation::Read, "team/al/a") && !allowed(&bob, Operation::Read, "bob/bob"));
    for value in ["*", "+", "a/b", "", "..", "b*", "a,b", "\n"] {
        let acl = filled(value);
        assert!(allowed(&acl, Operation::Read, "plain"), "{value:?}");
        for path in ["team/bob/a", "team/*/a", "team/+/a", "x/bob", "x/b", "x/*", "x/a/b", "team/a/b/c", "team//a"] {
            assert!(!allowed(&acl, Operation::Read, path), "{value:?} {path}");
        }
    }
    // A filled template is validated like any other rule path.
    let dots = [Policy::parse(r#"path "x/.{{identity.entity.name}}" { capabilities = ["read"] }"#).unwrap()];
    assert!(!allowed(&Acl::compile(&dots, Some(&ConstantIdentity(".")), NOW), Operation::Read, "x/.."));
}

#[test]
fn policies_in_json_base64_and_hcl_are_equal() {
    let hcl = r#"path "a/*" { capabilities = ["read", "sudo"] allowed_parameters = { "k" = ["v", 1, true] } }
                 path "b" { policy = "read" }"#;
    let json = r#"{"path": {"a/*": {"capabilities": ["read", "sudo"], "allowed_parameters": {"k": ["v", 1, true]}},
                 "b": {"policy": "read"}}}"#;
    let list = r#"{"path": [{"a/*": [{"capabilities": ["read", "sudo"], "allowed_parameters": {"k": ["v", 1, true]}}]},
                 {"b": {"policy": "read"}}]}"#;
    let want = Policy::parse(hcl).unwrap();
    assert_eq!(Policy::parse(json).unwrap(), want);
    assert_eq!(Policy::parse(list).unwrap(), want);
    for text in [hcl, json] {
        assert_eq!(Policy::parse(&Policy::text_of(&STANDARD.encode(text))).unwrap(), want);
        assert_eq!(Policy::text_of(text), text);
    }
}

#[test]
fn repeated_path_in_json_does_not_lose_the_deny() {
    let acl = acl(&[r#"{"path": {"a": {"capabilities": ["deny"]}, "a": {"capabilities": ["read"]}}}"#]);
    assert!(!allowed(&acl, Operation::Read, "a"));
}

#[test]
fn deny_on_plus_covers_the_list_of_the_folder() {
    let acl = acl(&[r#"path "private/*" { capabilities = ["list"] } path "private/+" { capabilities = ["deny"] }"#]);
    assert!(!allowed(&acl, Operation::List, "private/"));
    assert!(!allowed(&acl, Operation::List, "private"));
}

#[test]
fn a_list_is_decided_by_the_path_with_and_without_the_slash() {
    let acl = acl(&[
        r#"path "a" { capabilities = ["list"] } path "b/" { capabilities = ["list"] } path "c*" { capabilities = ["list"] }"#,
    ]);
    for path in ["a/", "b/", "c/", "a"] {
        assert!(allowed(&acl, Operation::List, path), "{path}");
    }
    assert!(!allowed(&acl, Operation::Read, "a"));
}

#[test]
fn rules_match_names_in_every_spelling() {
    let at = |from, spelling| [NameSegments::of(spelling, from)];
    let decided = |acl: &Acl, path, spelt: &[NameSegments]| {
        let decision = acl.decide(Operation::Read, RequestPath { path, spelt }, None);
        assert_eq!(acl.capabilities(RequestPath { path, spelt }).has(Capabilities::READ), decision.allowed, "{path}");
        decision.allowed
    };
    let names = acl(&[
        r#"path "p/*" { capabilities = ["read"] } path "p/ADMIN" { capabilities = ["deny"] }"#,
        r#"path "p/admin" { capabilities = ["read"] } path "p/OPS" { capabilities = ["list"] }"#,
        r#"path "p/ops" { capabilities = ["read"] }"#,
    ]);
    // Rules whose paths have the same canonical spelling are merged.
    assert!(!decided(&names, "p/admin", &at(1, Spelling::PolicyName)));
    assert!(decided(&names, "p/ops", &at(1, Spelling::PolicyName)));
    assert!(decided(&names, "p/other", &at(1, Spelling::PolicyName)));
    // In a path without names that have several spellings, letter case is significant.
    assert!(decided(&names, "p/admin", &[]) && !decided(&names, "p/ADMIN", &[]));
    assert!(decided(&names, "p/admin", &at(0, Spelling::Serial)));
    let order = acl(&[
        r#"path "p/+" { capabilities = ["read"] } path "p/00-0A*" { capabilities = ["deny"] }"#,
        r#"path "p/00:0a:0B" { capabilities = ["read"] }"#,
    ]);
    for (path, allowed) in [("p/0a", false), ("p/0a:0c", false), ("p/0a:0b", true), ("p/0b", true)] {
        assert_eq!(decided(&order, path, &at(1, Spelling::Serial)), allowed, "{path}");
    }
    // The number of cached sets of name positions is bounded.
    for from in 0..100 {
        assert!(!decided(&names, "p/ADMIN", &at(from + 2, Spelling::PolicyName)));
    }
}

#[test]
fn an_expired_rule_counts_as_absent() {
    let text = r#"path "a" { capabilities = ["read"] expiration = "2030-01-02T03:04:05Z" }
                  path "b" { capabilities = ["read"] expiration = "2030-01-02T03:04:06Z" }"#;
    let acl = acl(&[text]);
    assert!(!allowed(&acl, Operation::Read, "a") && allowed(&acl, Operation::Read, "b"));
    assert_eq!(acl.valid_until(), Some(NOW + Duration::from_secs(1)));
}

#[test]
fn equal_paths_unite_their_parameters() {
    let acl = acl(&[
        r#"path "a" { capabilities = ["update"] allowed_parameters = { "x" = ["1"], "y" = ["1"] } }"#,
        r#"path "a" { capabilities = ["update"] allowed_parameters = { "x" = ["2"], "y" = [] } required_parameters = ["x"] }"#,
    ]);
    for (body, want) in [
        (json!({"x": "1"}), true),
        (json!({"x": "2", "y": "9"}), true),
        (json!({"x": "3"}), false),
        (json!({"y": "1"}), false),
    ] {
        let fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(
            acl.decide(Operation::Update, "a".into(), Some(&RequestParameters::verbatim(&fields))).allowed,
            want,
            "{body}"
        );
    }
}

#[test]
fn too_many_rules_grant_nothing() {
    let mut text = String::new();
    for n in 0..=MAX_RULES_PER_CALLER {
        let _ = write!(text, "path \"p{n}\" {{ capabilities = [\"read\"] }}");
    }
    assert!(!allowed(&acl(&[&text]), Operation::Read, "p1"));
}

#[test]
fn too_many_segments_of_patterns_grant_nothing() {
    let text = |segments: usize| {
        let rules =
            (0..100).map(|n| format!("path \"p{n}{}\" {{ capabilities = [\"read\"] }}\n", "/+".repeat(segments - 1)));
        rules.collect::<String>()
    };
    let max = MAX_PATTERN_SEGMENTS_PER_CALLER / 100;
    let path = |segments: usize| format!("p1{}", "/a".repeat(segments - 1));
    assert!(allowed(&acl(&[&text(max)]), Operation::Read, &path(max)));
    assert!(!allowed(&acl(&[&text(max), "path \"+\" {}"]), Operation::Read, &path(max)));
    assert!(allowed(&acl(&[&text(max), "path \"a/b/c\" {}"]), Operation::Read, &path(max)));
}

#[test]
fn acl_weight_counts_merged_terms_but_not_shared_ones() {
    let long = format!("path \"x\" {{ allowed_parameters = {{ \"a\" = [\"{}\"] }} }}", "x".repeat(10_000));
    assert!(acl(&[&long]).approximate_bytes() < 1_000);
    assert!(
        (10_000..12_000).contains(&acl(&[&long, "path \"x\" { required_parameters = [\"b\"] }"]).approximate_bytes())
    );
}

fn render_policy(policy: &Policy) -> String {
    let mut out = String::new();
    for rule in &policy.rules {
        let object = |lists: &std::collections::BTreeMap<String, Vec<Value>>| {
            let items: Vec<String> = lists.iter().map(|(k, v)| format!("{} = {}", json!(k), json!(v))).collect();
            format!("{{ {} }}", items.join("\n"))
        };
        let _ =
            writeln!(out, "path {} {{\n  capabilities = {}", json!(rule.path), json!(rule.terms.capabilities.names()));
        let _ = writeln!(out, "  allowed_parameters = {}", object(&rule.terms.parameters.allowed));
        let _ = writeln!(out, "  denied_parameters {}", object(&rule.terms.parameters.denied));
        let _ = writeln!(out, "  required_parameters = {} // all", json!(rule.terms.parameters.required));
        let _ = writeln!(out, "  min_wrapping_ttl = \"{}s\"", rule.terms.min_wrapping.as_secs());
        let _ = writeln!(out, "  max_wrapping_ttl = {}", rule.terms.max_wrapping.as_secs());
        if let Some(end) = rule.expiration {
            let _ = writeln!(out, "  expiration = \"{}\" # end", format_rfc3339(end));
        }
        if let Some(comment) = &rule.comment {
            let _ = writeln!(out, "  comment = {}", json!(comment));
        }
        let _ = writeln!(out, "}}");
    }
    out
}

fn any_path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![Just("a"), Just("b"), Just("ab"), Just("+"), Just("ba")];
    (proptest::collection::vec(segment, 1..5), prop_oneof![Just(""), Just("*"), Just("/*"), Just("/")])
        .prop_map(|(segments, end)| format!("{}{end}", segments.join("/")))
        .prop_filter("not readable", |path| !path.contains("+*"))
}

fn any_capabilities() -> impl Strategy<Value = Capabilities> {
    let one = prop_oneof![
        Just(Capabilities::READ),
        Just(Capabilities::LIST),
        Just(Capabilities::UPDATE),
        Just(Capabilities::SUDO),
        Just(Capabilities::DENY)
    ];
    proptest::collection::vec(one, 0..3).prop_map(|all| all.into_iter().fold(Capabilities::default(), Capabilities::or))
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let value = prop_oneof![
        "\\PC{0,6}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(json!(["x", {"y": null}]))
    ];
    let lists = || {
        let values = proptest::collection::vec(value.clone(), 0..3);
        proptest::collection::btree_map("[a-z*_]{1,4}|\\PC{1,3}".prop_map(|s| s.to_lowercase()), values, 0..3)
    };
    let required = proptest::collection::btree_set("[a-z]{1,3}", 0..3);
    let limits_and_comment = (0u64..9, proptest::option::of(0i64..4_000_000_000), proptest::option::of("\\PC{0,8}"));
    (any_path(), any_capabilities(), lists(), lists(), required, limits_and_comment).prop_map(
        |(path, capabilities, allowed, denied, required, (wrapping, expiration, comment))| Rule {
            path,
            terms: Arc::new(RuleTerms {
                capabilities,
                parameters: ParameterRules { allowed, denied, required },
                min_wrapping: Duration::from_secs(wrapping),
                max_wrapping: Duration::from_secs(wrapping * 2),
            }),
            expiration: expiration.map(|at| crate::clock::Time::from_unix_timestamp(at).unwrap()),
            comment,
        },
    )
}

/// `true` if a pattern matches a path. A slow reference implementation that compares segment by segment.
fn matches_segment_by_segment(pattern: &str, path: &str, list: bool) -> bool {
    let (text, prefix) = pattern.strip_suffix('*').map_or((pattern, false), |text| (text, true));
    let (want, have): (Vec<&str>, Vec<&str>) = (text.split('/').collect(), path.split('/').collect());
    if if prefix { have.len() < want.len() } else { have.len() != want.len() } {
        return false;
    }
    want.iter().enumerate().all(|(i, w)| {
        let last = i + 1 == want.len();
        match *w {
            "+" => !have[i].is_empty() || (list && i + 1 == have.len()),
            w if prefix && last => have[i].starts_with(w),
            w => have[i] == w,
        }
    })
}

/// Finds the path of the deciding rule by trying all rules, as a reference for the compiled lookup.
fn find_deciding_path_by_enumeration<'a>(rules: &'a [Rule], path: &str, list: bool) -> Option<&'a str> {
    let first_wild = |p: &str| {
        let plus = (0..p.len()).find(|i| {
            p[*i..].starts_with('+')
                && (*i == 0 || p[..*i].ends_with('/'))
                && [Some('/'), None].contains(&p[i + 1..].chars().next())
        });
        plus.unwrap_or(p.len() - 1)
    };
    let pluses = |p: &str| p.split('/').filter(|s| *s == "+").count();
    let better = |a: &&str, b: &&str| {
        let key = |p: &str| (first_wild(p), !p.ends_with('*'), usize::MAX - pluses(p), p.len(), p.to_owned());
        key(a).cmp(&key(b))
    };
    let exact = |p: &str| rules.iter().map(|r| r.path.as_str()).find(|r| !is_pattern(r) && *r == p);
    let best = |p: &str, list| {
        rules
            .iter()
            .map(|r| r.path.as_str())
            .filter(|r| is_pattern(r) && matches_segment_by_segment(r, p, list))
            .max_by(better)
    };
    let shorter = path.strip_suffix('/').filter(|_| list);
    exact(path)
        .or_else(|| shorter.and_then(exact))
        .or_else(|| best(path, list))
        .or_else(|| shorter.and_then(|p| best(p, false)))
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "[ -~\\n]{0,80}|(path \"a\" \\{ [a-z_ =\\[\\]\\{\\}\",0-9#/*:\\\\]{0,60})|\\PC{0,40}") {
        let _ = Policy::parse(&text);
        let _ = Policy::text_of(&text);
    }

    #[test]
    fn printed_rule_set_reads_back_equal(rules in proptest::collection::vec(any_rule(), 0..4)) {
        let policy = Policy { rules };
        let text = render_policy(&policy);
        prop_assert_eq!(Policy::parse(&text).map_err(|e| format!("{e}: {text}")).unwrap(), policy);
    }

    #[test]
    fn decision_matches_the_five_step_reference(
        rules in proptest::collection::vec((any_path(), any_capabilities()), 0..12),
        path in any_path(),
        list in any::<bool>(),
    ) {
        let path = path.replace(['+', '*'], "b");
        let path = if list { format!("{}/", path.trim_end_matches('/')) } else { path };
        let rules: Vec<Rule> = rules.into_iter().map(|(path, capabilities)| Rule {
            path,
            terms: RuleTerms { capabilities, ..RuleTerms::default() }.into(),
            ..Rule::default()
        }).collect();
        let operation = if list { Operation::List } else { Operation::Read };
        let granted = find_deciding_path_by_enumeration(&rules, &path, list).map_or(Capabilities::default(), |winner| {
            rules.iter().filter(|r| r.path == winner).fold(Capabilities::default(), |all, r| all.or(r.terms.capabilities))
        });
        let want = Decision {
            allowed: granted.has(Capabilities::required_for(operation)),
            sudo: granted.has(Capabilities::SUDO),
        };
        let acl = Acl::compile(&[Policy { rules }], None, NOW);
        prop_assert_eq!(acl.decide(operation, path[..].into(), None), want, "{}", path);
    }
}
