//! Compiled policies, which decide requests.
//!
//! Exactly one rule decides a request; a specific rule does not fall through to a general one:
//!
//! 1. the rule with exactly this path;
//! 2. for a list, the rule for the path without the trailing `/`;
//! 3. the best pattern that matches this path (`patterns` has the order);
//! 4. for a list, the best pattern that matches the path without the trailing `/`.
//!
//! Step 3 comes before step 4: otherwise, listing `secret/private/` could bypass a deny on `secret/private/*`.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use super::capabilities::Capabilities;
use super::parameters::RequestParameters;
use super::patterns::{PathPatterns, is_pattern};
use super::sample_paths::sample_paths;
use super::spelling::{self, NameSegments};
use super::terms::{MAX_PATTERN_SEGMENTS_PER_CALLER, MAX_RULES_PER_CALLER, RuleCounts, RuleTerms};
use super::{Operation, Policy};
use crate::clock::Time;
use crate::templates::TemplateValues;

/// The decision on one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// `true` if the operation is allowed. For a path that requires `sudo`, `sudo` must be `true` too.
    pub allowed: bool,
    /// `true` if the deciding rule grants `sudo`, or if the caller has the `root` policy.
    pub sudo: bool,
}

/// A request path to match against rules: without leading `/`, canonical, and with a trailing `/` for a list.
#[derive(Clone, Copy, Debug)]
pub struct RequestPath<'a> {
    /// The path in canonical spelling.
    pub path: &'a str,
    /// Positions of names that have several spellings, from left to right.
    pub spelt: &'a [NameSegments],
}

impl<'a> From<&'a str> for RequestPath<'a> {
    /// Creates a request path without names that have several spellings.
    fn from(path: &'a str) -> Self {
        Self { path, spelt: &[] }
    }
}

/// The compiled union of several policies.
pub struct Acl {
    rules: CompiledRules,
    canonical_rules: Option<CanonicalRules>,
    /// Paths of the rules that grant any capability.
    granting_paths: Box<[Arc<str>]>,
    /// Number of segments of the longest rule path plus one, at most [`MAX_SAMPLE_PATH_SEGMENTS`].
    max_segments: usize,
    valid_until: Option<Time>,
    weight: usize,
}

/// Rules by path. The terms of a path that only one rule has are not copied but shared with the parsed policy.
struct CompiledRules {
    exact: HashMap<Arc<str>, Arc<RuleTerms>>,
    patterns: PathPatterns<Arc<RuleTerms>>,
}

/// The rules with names in canonical spelling. The route of a request determines which path segments are names. So
/// there are separate compiled rules for each set of name positions. They are compiled for the first request that has
/// names at these positions.
struct CanonicalRules {
    merged: MergedTerms<Arc<str>>,
    /// Maximum number of sets of name positions whose rules `known` caches.
    max_known: usize,
    known: Mutex<Vec<RulesForNames>>,
}

/// The merged terms of all rules with the same path, by path.
type MergedTerms<P> = BTreeMap<P, Arc<RuleTerms>>;

/// A set of name positions, and the rules for paths with names at these positions.
type RulesForNames = (Box<[NameSegments]>, Arc<CompiledRules>);

/// Size in bytes above which the compiled policies of a caller are too large to cache ([`Acl::is_too_large_to_cache`]).
const MAX_CACHED_ACL_BYTES: usize = 1 << 20;
/// Maximum number of segments of the sample paths that [`Acl::grants_below_mount`] tries for a rule that ends in `*`.
const MAX_SAMPLE_PATH_SEGMENTS: usize = 16;
/// Maximum number of sets of name positions whose rules one union caches. Few routes contain names with several
/// spellings, and mount paths have few different lengths.
const MAX_CANONICAL_RULE_SETS: usize = 16;
/// Approximate maximum size in bytes of the rules that one union caches for all sets of name positions
/// ([`RulesForNames`]). The rules for at least one set are always cached.
const MAX_CANONICAL_RULES_BYTES: usize = 12 << 20;

impl Acl {
    /// Compiles policies as of `now`. Omits expired rules, and rules whose path template `identity` cannot fill.
    ///
    /// With more than [`MAX_RULES_PER_CALLER`] rules or [`MAX_PATTERN_SEGMENTS_PER_CALLER`] pattern segments, the
    /// result grants nothing: omitting some rules could omit a deny.
    pub fn compile<'a>(
        policies: impl IntoIterator<Item = &'a Policy>,
        identity: Option<&dyn TemplateValues>,
        now: Time,
    ) -> Self {
        let mut united: MergedTerms<Cow<'_, str>> = BTreeMap::new();
        let mut valid_until = None;
        let mut counts = RuleCounts::default();
        for rule in policies.into_iter().flat_map(|policy| &policy.rules) {
            if rule.expiration.is_some_and(|end| end <= now) {
                continue;
            }
            let Some(path) = rule.path_for(identity) else { continue };
            counts.add(&path);
            if counts.exceeds_limit() {
                continue;
            }
            valid_until = valid_until.into_iter().chain(rule.expiration).min();
            merge_terms(&mut united, path, &rule.terms);
        }
        if counts.exceeds_limit() {
            tracing::warn!(
                rules = counts.rules,
                limit = MAX_RULES_PER_CALLER,
                segments = counts.segments,
                segments_limit = MAX_PATTERN_SEGMENTS_PER_CALLER,
                "the policy rules of a caller exceed a limit; its policies grant nothing"
            );
            united.clear();
        }
        let merged: MergedTerms<Arc<str>> = united.into_iter().map(|(path, terms)| (path.into(), terms)).collect();
        let grants =
            |(path, terms): (&Arc<str>, &Arc<RuleTerms>)| (!terms.capabilities.is_empty()).then(|| path.clone());
        let granting_paths = merged.iter().filter_map(grants).collect();
        let max_segments = merged.keys().map(|path| path.split('/').count()).max().unwrap_or(0) + 1;
        let max_segments = max_segments.min(MAX_SAMPLE_PATH_SEGMENTS);
        let may_change = merged.keys().any(|path| spelling::may_have_other_spelling(path));
        let weight: usize = merged.iter().map(|(path, terms)| estimate_bytes(path, terms, may_change)).sum();
        let rules = CompiledRules::of(&merged);
        let max_known = (MAX_CANONICAL_RULES_BYTES / weight.max(1)).clamp(1, MAX_CANONICAL_RULE_SETS);
        let canonical_rules = may_change.then(|| CanonicalRules { merged, max_known, known: Mutex::default() });
        Self { rules, canonical_rules, granting_paths, max_segments, valid_until, weight }
    }

    /// `true` if the compiled policies are so large that callers with them must not be cached.
    pub fn is_too_large_to_cache(&self) -> bool {
        self.approximate_bytes() > MAX_CACHED_ACL_BYTES
    }

    /// Approximate maximum size of the compiled policies in bytes, including the cached rules for sets of name
    /// positions.
    pub fn approximate_bytes(&self) -> usize {
        self.weight * (1 + self.canonical_rules.as_ref().map_or(0, |canonical_rules| canonical_rules.max_known))
    }

    /// Time at which a rule or policy expires, so that the policies must be compiled again; `None` for never.
    pub fn valid_until(&self) -> Option<Time> {
        self.valid_until
    }

    /// Returns the compiled policies with their validity limited to `end`.
    #[must_use]
    pub fn with_validity_until(self, end: Option<Time>) -> Self {
        Self { valid_until: self.valid_until.into_iter().chain(end).min(), ..self }
    }

    /// Decides a request. If `parameters` is `None`, checks the capabilities only; a denial then applies to any
    /// parameters.
    pub fn decide(
        &self,
        operation: Operation,
        request_path: RequestPath<'_>,
        parameters: Option<&RequestParameters<'_>>,
    ) -> Decision {
        let list = operation == Operation::List;
        let decide = |terms: Option<&RuleTerms>| {
            terms.map_or_else(Decision::default, |terms| Decision {
                allowed: terms.allow(operation, parameters),
                sudo: terms.capabilities.has(Capabilities::SUDO),
            })
        };
        match list && !request_path.path.ends_with('/') {
            false => self.decide_by(request_path, list, decide),
            true => {
                self.decide_by(RequestPath { path: &format!("{}/", request_path.path), ..request_path }, list, decide)
            }
        }
    }

    /// Returns the capabilities that the rules grant on a path. A path that ends in `/` is the path of a list request.
    pub fn capabilities(&self, request_path: RequestPath<'_>) -> Capabilities {
        self.decide_by(request_path, request_path.path.ends_with('/'), |terms| {
            terms.map(|terms| terms.capabilities).unwrap_or_default()
        })
    }

    /// `true` if the rules grant anything at or below the path of a mount, which ends in `/`.
    pub fn grants_below_mount(&self, mount: &str) -> bool {
        let mut instances = self.granting_paths.iter().flat_map(|rule| sample_paths(rule, mount, self.max_segments));
        instances.any(|path| !self.capabilities(path.as_str().into()).is_empty())
    }

    fn decide_by<T>(
        &self,
        request_path: RequestPath<'_>,
        list: bool,
        answer: impl FnOnce(Option<&RuleTerms>) -> T,
    ) -> T {
        match &self.canonical_rules {
            Some(canonical_rules) if !request_path.spelt.is_empty() => {
                answer(canonical_rules.rules(request_path.spelt).find(request_path.path, list))
            }
            _ => answer(self.rules.find(request_path.path, list)),
        }
    }
}

impl CanonicalRules {
    /// Returns the rules for paths with names at the positions `spelt`.
    fn rules(&self, spelt: &[NameSegments]) -> Arc<CompiledRules> {
        let known = || self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, rules)) = known().iter().find(|(known_spelt, _)| **known_spelt == *spelt) {
            return Arc::clone(rules);
        }
        let mut merged: MergedTerms<Arc<str>> = BTreeMap::new();
        for (path, terms) in &self.merged {
            merge_terms(&mut merged, spelling::canonical_rule_path(path, spelt).into(), terms);
        }
        let rules = Arc::new(CompiledRules::of(&merged));
        let mut known = known();
        if let Some((_, rules)) = known.iter().find(|(known_spelt, _)| **known_spelt == *spelt) {
            return Arc::clone(rules);
        }
        if known.len() >= self.max_known {
            known.remove(0);
        }
        known.push((spelt.into(), Arc::clone(&rules)));
        rules
    }
}

impl CompiledRules {
    fn of(merged: &MergedTerms<Arc<str>>) -> Self {
        let mut exact = HashMap::new();
        let mut patterns = Vec::new();
        for (path, terms) in merged {
            if is_pattern(path) {
                patterns.push((&**path, terms));
            } else {
                exact.insert(Arc::clone(path), Arc::clone(terms));
            }
        }
        Self { exact, patterns: PathPatterns::compile(&patterns) }
    }

    fn find(&self, path: &str, list: bool) -> Option<&RuleTerms> {
        let shorter = path.strip_suffix('/').filter(|_| list);
        self.exact
            .get(path)
            .or_else(|| self.exact.get(shorter?))
            .or_else(|| self.patterns.find(path, list))
            .or_else(|| self.patterns.find(shorter?, false))
            .map(Arc::as_ref)
    }
}

fn merge_terms<P: Ord>(merged: &mut MergedTerms<P>, path: P, terms: &Arc<RuleTerms>) {
    match merged.entry(path) {
        Entry::Vacant(free) => drop(free.insert(Arc::clone(terms))),
        Entry::Occupied(mut taken) => Arc::make_mut(taken.get_mut()).merge(terms),
    }
}

/// Estimates the size in bytes of a path and its terms. Terms that are shared with a parsed policy are counted only if
/// `may_unite` is `true`: they may then be copied and merged later.
fn estimate_bytes(path: &str, terms: &Arc<RuleTerms>, may_unite: bool) -> usize {
    /// Bytes of one rule's entries in the tables.
    const TABLE_ENTRY_BYTES: usize = 128;
    /// Bytes of a node in the trie of patterns.
    const TRIE_NODE_BYTES: usize = 160;
    let nodes = if is_pattern(path) { TRIE_NODE_BYTES * path.split('/').count() } else { 0 };
    // Terms with one reference are not shared with a parsed policy, so their memory belongs to this union.
    let own_bytes = if may_unite || Arc::strong_count(terms) == 1 { terms.parameters.approximate_bytes() } else { 0 };
    TABLE_ENTRY_BYTES + 2 * path.len() + nodes + own_bytes
}
