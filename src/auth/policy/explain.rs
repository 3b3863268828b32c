//! Explains a decision: the matching rules in their order of precedence, and the policies that contain them.
//!
//! An [`Acl`](super::Acl) does not record which policy granted a right, so this module evaluates the policies again. A
//! test checks that both reach the same decision.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::patterns::{PathPatterns, Precedence, is_pattern};
use super::rules::Rule;
use super::spelling::{self, NameSegments};
use super::terms::{RuleCounts, RuleTerms};
use super::{Policy, RequestPath};
use crate::clock::Time;
use crate::templates::TemplateValues;

/// A rule as a policy text contains it.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenRule {
    /// Name of the policy that contains the rule.
    pub policy: String,
    /// Path of the rule as written, with templates.
    pub path: String,
    /// Comment of the rule in the policy text.
    pub comment: Option<String>,
}

/// All rules with the same path, from all policies of a caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedRule {
    /// The rules as the policies contain them.
    pub written: Vec<WrittenRule>,
    /// The merged terms of the rules in `written`.
    pub terms: RuleTerms,
}

/// The explanation of a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The rule that decides; `None` if no rule matches.
    pub decides: Option<MergedRule>,
    /// The other matching rules in order of precedence, each with the reason why it does not decide.
    pub others: Vec<(MergedRule, &'static str)>,
    /// Expired rules that would match the path.
    pub expired: Vec<WrittenRule>,
    /// `true` if the caller has more than `MAX_RULES_PER_CALLER` rules or `MAX_PATTERN_SEGMENTS_PER_CALLER` pattern
    /// segments. Nothing is granted then.
    pub too_many: bool,
}

/// The path of an expired rule in canonical spelling, and the rule as written.
type ExpiredRule = (String, WrittenRule);

/// The kind of match between a rule and a path, in order of precedence; the rule with the smallest value decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RuleMatch {
    Exact,
    ExactWithoutSlash,
    Pattern,
    PatternWithoutSlash,
}

impl MergedRule {
    fn add(&mut self, policy: &str, rule: &Rule) {
        self.terms.merge(&rule.terms);
        self.written.push(written_rule(policy, rule));
    }

    /// Renders the terms for a response: `capabilities` (`deny` if there are none) and, if set, `allowed_parameters`,
    /// `denied_parameters`, `required_parameters`, `min_wrapping_ttl` and `max_wrapping_ttl` (seconds).
    pub fn render_terms(&self) -> Map<String, Value> {
        let RuleTerms { capabilities, parameters, min_wrapping, max_wrapping } = &self.terms;
        let words = if capabilities.is_empty() { vec!["deny"] } else { capabilities.names() };
        let mut terms = Map::from_iter([("capabilities".to_owned(), json!(words))]);
        terms.extend(parameters.render_rules());
        for (name, time) in [("min_wrapping_ttl", min_wrapping), ("max_wrapping_ttl", max_wrapping)] {
            if !time.is_zero() {
                terms.insert(name.to_owned(), time.as_secs().into());
            }
        }
        terms
    }
}

/// Merges the rules of policies by path. Returns `None` if there are more than `MAX_RULES_PER_CALLER` rules or
/// `MAX_PATTERN_SEGMENTS_PER_CALLER` pattern segments.
pub fn merge_rules<'p>(
    policies: impl IntoIterator<Item = (&'p str, &'p Policy)>,
    identity: Option<&dyn TemplateValues>,
    now: Time,
) -> Option<BTreeMap<String, MergedRule>> {
    let (all, _) = merge_canonical_rules(policies, identity, &[], now);
    all
}

/// Explains the decision on `request_path` for a caller with these policies. If `list` is `true`, the path must end in
/// `/`.
pub fn explain<'p>(
    policies: impl IntoIterator<Item = (&'p str, &'p Policy)>,
    identity: Option<&dyn TemplateValues>,
    request_path: RequestPath<'_>,
    list: bool,
    now: Time,
) -> Explanation {
    let (all, expired) = merge_canonical_rules(policies, identity, request_path.spelt, now);
    let expired = expired.into_iter().filter(|(path, _)| match_rule(path, request_path.path, list).is_some());
    let expired = expired.map(|(_, written)| written).collect();
    let Some(all) = all else { return Explanation { too_many: true, expired, ..Explanation::default() } };
    let mut matching: Vec<_> = all
        .into_iter()
        .filter_map(|(path, merged)| Some((match_rule(&path, request_path.path, list)?, path, merged)))
        .collect();
    matching.sort_by(|(one, a, _), (other, b, _)| one.cmp(other).then(Precedence::of(b).cmp(&Precedence::of(a))));
    let mut matching = matching.into_iter();
    let Some((won, by, decides)) = matching.next() else { return Explanation { expired, ..Explanation::default() } };
    let others = matching.map(|(lost, path, merged)| (merged, explain_precedence(won, &by, lost, &path))).collect();
    Explanation { decides: Some(decides), others, expired, too_many: false }
}

/// Merges rules like [`merge_rules`], but converts the names at the positions `spelt` to canonical spelling. Also
/// returns the expired rules.
fn merge_canonical_rules<'p>(
    policies: impl IntoIterator<Item = (&'p str, &'p Policy)>,
    identity: Option<&dyn TemplateValues>,
    spelt: &[NameSegments],
    now: Time,
) -> (Option<BTreeMap<String, MergedRule>>, Vec<ExpiredRule>) {
    let mut all = BTreeMap::<String, MergedRule>::new();
    let mut expired = Vec::new();
    let mut counts = RuleCounts::default();
    let rules = policies.into_iter().flat_map(|(name, policy)| policy.rules.iter().map(move |rule| (name, rule)));
    for (name, rule) in rules {
        let Some(path) = rule.path_for(identity) else { continue };
        let path = spelling::canonical_rule_path(&path, spelt);
        if rule.expiration.is_some_and(|end| end <= now) {
            expired.push((path, written_rule(name, rule)));
            continue;
        }
        counts.add(&path);
        if counts.exceeds_limit() {
            continue;
        }
        all.entry(path).or_default().add(name, rule);
    }
    ((!counts.exceeds_limit()).then_some(all), expired)
}

fn written_rule(policy: &str, rule: &Rule) -> WrittenRule {
    WrittenRule { policy: policy.to_owned(), path: rule.path.clone(), comment: rule.comment.clone() }
}

fn match_rule(rule: &str, path: &str, list: bool) -> Option<RuleMatch> {
    let shorter = path.strip_suffix('/').filter(|_| list);
    if !is_pattern(rule) {
        let exact = (rule == path).then_some(RuleMatch::Exact);
        return exact.or_else(|| (shorter == Some(rule)).then_some(RuleMatch::ExactWithoutSlash));
    }
    let pattern = PathPatterns::compile(&[(rule, &())]);
    let whole = pattern.find(path, list).map(|()| RuleMatch::Pattern);
    whole.or_else(|| pattern.find(shorter?, false).map(|()| RuleMatch::PatternWithoutSlash))
}

/// Returns the reason why the rule with the path `path` does not decide although it matches; the rule `by` decides.
fn explain_precedence(won: RuleMatch, by: &str, lost: RuleMatch, path: &str) -> &'static str {
    match (won, lost) {
        (won, lost) if won == lost => Precedence::of(path).reason_for_lower_rank(&Precedence::of(by)),
        (RuleMatch::Exact | RuleMatch::ExactWithoutSlash, RuleMatch::Pattern | RuleMatch::PatternWithoutSlash) => {
            "it is a pattern, and an exact path takes precedence"
        }
        _ => "without the '/' at its end, it matches lists only",
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Acl, Capabilities, MAX_RULES_PER_CALLER, Operation};
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = time::macros::datetime!(2030-01-02 03:04:05 UTC);

    fn explained(policies: &[(&str, &str)], path: &str, list: bool) -> Explanation {
        let read: Vec<_> = policies.iter().map(|(name, text)| (*name, Policy::parse(text).unwrap())).collect();
        explain(read.iter().map(|(name, policy)| (*name, policy)), None, path.into(), list, NOW)
    }

    fn paths(merged: &MergedRule) -> Vec<(&str, &str)> {
        merged.written.iter().map(|written| (&written.policy[..], &written.path[..])).collect()
    }

    #[test]
    fn explain_reports_the_deciding_rule_and_why_others_lost() {
        let a = r#"path "pki/issue/web" { capabilities = ["update"] comment = "for the web" }
                   path "pki/*" { capabilities = ["read"] }
                   path "pki/+/web" { capabilities = ["list"] }
                   path "pki/issue/*" { capabilities = ["deny"] expiration = "2030-01-01T00:00:00Z" }"#;
        let b = r#"path "/pki/issue/web" { capabilities = ["create"] denied_parameters = { "ttl" = [] } min_wrapping_ttl = "1m" }
                   path "pki/issue/{{identity.entity.id}}" { capabilities = ["deny"] }"#;
        let found = explained(&[("a", a), ("b", b)], "pki/issue/web", false);
        let decides = found.decides.unwrap();
        assert_eq!(paths(&decides), [("a", "pki/issue/web"), ("b", "pki/issue/web")]);
        assert_eq!(decides.written[0].comment.as_deref(), Some("for the web"));
        assert_eq!(
            Value::Object(decides.render_terms()),
            json!({ "capabilities": ["create", "update"], "denied_parameters": { "ttl": [] }, "min_wrapping_ttl": 60 })
        );
        let others: Vec<_> = found.others.iter().map(|(other, why)| (&other.written[0].path[..], *why)).collect();
        assert_eq!(
            others,
            [
                ("pki/+/web", "it is a pattern, and an exact path takes precedence"),
                ("pki/*", "it is a pattern, and an exact path takes precedence")
            ]
        );
        assert_eq!(found.expired.iter().map(|rule| &rule.path[..]).collect::<Vec<_>>(), ["pki/issue/*"]);
        assert!(!found.too_many);
    }

    #[test]
    fn explain_reports_each_reason_for_a_losing_rule() {
        for (text, path, list, why) in [
            (r#"path "a/b*" {} path "a/*" {}"#, "a/bc", false, "its first wildcard comes earlier"),
            (r#"path "a/+" {} path "a/*" {}"#, "a/b", false, "it ends in '*'"),
            (r#"path "+/a/*" {} path "+/+/*" {}"#, "x/a/b", false, "it has more '+'"),
            (r#"path "+/ab*" {} path "+/a*" {}"#, "x/abc", false, "it is shorter"),
            (r#"path "a/" {} path "a" {}"#, "a/", true, "without the '/' at its end, it matches lists only"),
            (r#"path "a" {} path "a/*" {}"#, "a/", true, "it is a pattern, and an exact path takes precedence"),
            (r#"path "b/a/*" {} path "b/a*" {}"#, "b/a/", true, "its first wildcard comes earlier"),
        ] {
            let found = explained(&[("p", text)], path, list);
            assert_eq!(found.others.iter().map(|(_, why)| *why).collect::<Vec<_>>(), [why], "{text}");
        }
        let denied = explained(&[("p", r#"path "a" {}"#)], "a", false);
        assert_eq!(Value::Object(denied.decides.unwrap().render_terms()), json!({ "capabilities": ["deny"] }));
        assert_eq!(explained(&[("p", r#"path "a" {}"#)], "b", false), Explanation::default());
    }

    #[test]
    fn explain_reports_too_many_rules_and_matches_any_spelling() {
        let text = (0..=MAX_RULES_PER_CALLER).map(|n| format!("path \"p{n}\" {{ capabilities = [\"read\"] }}\n"));
        let found = explained(&[("p", &text.collect::<String>())], "p1", false);
        assert!(found.too_many && found.decides.is_none());
        let policy = Policy::parse(r#"path "sys/policies/acl/ADMIN" { capabilities = ["read"] }"#).unwrap();
        let spelt = [NameSegments::of(spelling::Spelling::PolicyName, 3)];
        let request_path = RequestPath { path: "sys/policies/acl/admin", spelt: &spelt };
        assert_eq!(
            paths(&explain([("p", &policy)], None, request_path, false, NOW).decides.unwrap()),
            [("p", "sys/policies/acl/ADMIN")]
        );
    }

    fn any_rules() -> impl Strategy<Value = Vec<(String, Capabilities)>> {
        let segment = prop_oneof![Just("a"), Just("b"), Just("ab"), Just("+")];
        let path = (proptest::collection::vec(segment, 1..4), prop_oneof![Just(""), Just("*"), Just("/*"), Just("/")])
            .prop_map(|(segments, end)| format!("{}{end}", segments.join("/")))
            .prop_filter("not readable", |path| !path.contains("+*"));
        let one = prop_oneof![Just(Capabilities::READ), Just(Capabilities::LIST), Just(Capabilities::DENY)];
        proptest::collection::vec((path, one), 0..10)
    }

    proptest! {
        #[test]
        fn explain_agrees_with_the_decision(rules in any_rules(), path in "(a|b|ab)(/(a|b|ab)){0,2}", list in any::<bool>()) {
            let rules = rules.into_iter().map(|(path, capabilities)| Rule {
                path,
                terms: RuleTerms { capabilities, ..RuleTerms::default() }.into(),
                ..Rule::default()
            });
            let policy = Policy { rules: rules.collect() };
            let path = if list { format!("{path}/") } else { path };
            let explained = explain([("p", &policy)], None, path[..].into(), list, NOW);
            let acl = Acl::compile([&policy], None, NOW);
            let granted = explained.decides.as_ref().map(|rule| rule.terms.capabilities).unwrap_or_default();
            prop_assert_eq!(acl.capabilities(path[..].into()), granted);
            let operation = if list { Operation::List } else { Operation::Read };
            let decision = acl.decide(operation, path[..].into(), None);
            prop_assert_eq!(decision.allowed, granted.has(Capabilities::required_for(operation)));
        }
    }
}
