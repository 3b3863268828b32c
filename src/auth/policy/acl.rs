//! Compiled policies, which decide requests.
//!
//! Exactly one rule decides; a specific rule does not fall through to a general one:
//!
//! 1. the rule with exactly this path;
//! 2. for a list, the rule for the path without the trailing `/`;
//! 3. the best matching pattern (`patterns` has the order), then for a list the best one without the trailing `/`. The
//!    path with its `/` comes first, or listing `secret/private/` would bypass a deny on `secret/private/*`.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use super::capabilities::Capabilities;
use super::parameters::Parameters;
use super::patterns::{Patterns, is_pattern};
use super::reach::instances;
use super::spelling::{self, Spelt};
use super::terms::{Extent, MAX_RULES, MAX_SEGMENTS, Terms};
use super::{Operation, Policy};
use crate::clock::Time;
use crate::templates::Identity;

/// The decision on one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// `true` if the operation is allowed. Paths that need `sudo` need the other field too.
    pub allowed: bool,
    /// `true` if the deciding rule grants `sudo`, or the caller has `root`.
    pub sudo: bool,
}

/// A request path to match against rules: without leading `/`, canonical, and with a trailing `/` for a list.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The path.
    pub path: &'a str,
    /// Segments that are names with several spellings, from left to right.
    pub spelt: &'a [Spelt],
}

impl<'a> From<&'a str> for Place<'a> {
    /// A path without such names.
    fn from(path: &'a str) -> Self {
        Self { path, spelt: &[] }
    }
}

/// The compiled union of several policies.
pub struct Acl {
    rules: Rules,
    respelt: Option<Respelt>,
    /// Paths of the rules that grant something.
    granting: Box<[Arc<str>]>,
    /// The maximum number of segments of a rule plus one, at most [`DEEPEST`].
    deepest: usize,
    valid_until: Option<Time>,
    weight: usize,
}

/// Rules by path. Terms of a path with a single rule are shared with its policy.
struct Rules {
    exact: HashMap<Arc<str>, Arc<Terms>>,
    patterns: Patterns<Arc<Terms>>,
}

/// Rules in the canonical spelling for a set of places of names in a path, compiled when first needed.
struct Respelt {
    merged: Merged<Arc<str>>,
    /// Maximum number of sets of places in `known`.
    most: usize,
    known: Mutex<Vec<ForPlaces>>,
}

/// The merged terms of all rules with the same path, by path.
type Merged<P> = BTreeMap<P, Arc<Terms>>;

/// Places, and the rules for paths with names there.
type ForPlaces = (Box<[Spelt]>, Arc<Rules>);

/// Minimum size of a heavy union in bytes.
const HEAVY: usize = 1 << 20;
/// Maximum number of path segments that [`Acl::reaches`] tries for a prefix rule.
const DEEPEST: usize = 16;
/// Maximum number of sets of places cached per union. Few routes contain such names, and mounts are at few depths.
const MAX_RESPELT: usize = 16;
/// Approximate maximum size of these sets in bytes; at least one is cached.
const RESPELT_WEIGHT: usize = 12 << 20;

impl Acl {
    /// Compiles policies as of `now`. Omits expired rules, and rules whose path template `identity` cannot fill.
    ///
    /// With more than [`MAX_RULES`] rules or [`MAX_SEGMENTS`] pattern segments, the result grants nothing: omitting
    /// some rules could omit a deny.
    pub fn compile<'a>(
        policies: impl IntoIterator<Item = &'a Policy>,
        identity: Option<&dyn Identity>,
        now: Time,
    ) -> Self {
        let mut united: Merged<Cow<'_, str>> = BTreeMap::new();
        let (mut valid_until, mut extent) = (None, Extent::default());
        for rule in policies.into_iter().flat_map(|policy| &policy.rules) {
            if rule.expiration.is_some_and(|end| end <= now) {
                continue;
            }
            let Some(path) = rule.path_for(identity) else { continue };
            extent.add(&path);
            if extent.is_too_much() {
                continue;
            }
            valid_until = valid_until.into_iter().chain(rule.expiration).min();
            unite(&mut united, path, &rule.terms);
        }
        if extent.is_too_much() {
            tracing::warn!(
                rules = extent.rules,
                limit = MAX_RULES,
                segments = extent.segments,
                segments_limit = MAX_SEGMENTS,
                "a caller has too many policy rules: it is granted nothing"
            );
            united.clear();
        }
        let merged: Merged<Arc<str>> = united.into_iter().map(|(path, terms)| (path.into(), terms)).collect();
        let grants = |(path, terms): (&Arc<str>, &Arc<Terms>)| (!terms.capabilities.is_empty()).then(|| path.clone());
        let granting = merged.iter().filter_map(grants).collect();
        let deepest = merged.keys().map(|path| path.split('/').count()).max().unwrap_or(0) + 1;
        let deepest = deepest.min(DEEPEST);
        let may_change = merged.keys().any(|path| spelling::may_change(path));
        let weight: usize = merged.iter().map(|(path, terms)| weight(path, terms, may_change)).sum();
        let rules = Rules::of(&merged);
        let most = (RESPELT_WEIGHT / weight.max(1)).clamp(1, MAX_RESPELT);
        let respelt = may_change.then(|| Respelt { merged, most, known: Mutex::default() });
        Self { rules, respelt, granting, deepest, valid_until, weight }
    }

    /// `true` if the union is so large that only few of its kind should be in memory.
    pub fn is_heavy(&self) -> bool {
        self.weight() > HEAVY
    }

    /// Approximate maximum size in bytes, including the rules for all sets of places.
    pub fn weight(&self) -> usize {
        self.weight * (1 + self.respelt.as_ref().map_or(0, |respelt| respelt.most))
    }

    /// Time at which the union must be compiled again, because a rule expires.
    pub fn valid_until(&self) -> Option<Time> {
        self.valid_until
    }

    /// Limits the validity to `end`.
    #[must_use]
    pub fn until(self, end: Option<Time>) -> Self {
        Self { valid_until: self.valid_until.into_iter().chain(end).min(), ..self }
    }

    /// Decides a request. Without parameters, checks the capabilities only, so a denial holds for any.
    pub fn decide(&self, operation: Operation, place: Place<'_>, parameters: Option<&Parameters<'_>>) -> Decision {
        let list = operation == Operation::List;
        let decide = |terms: Option<&Terms>| {
            terms.map_or_else(Decision::default, |terms| Decision {
                allowed: terms.permit(operation, parameters),
                sudo: terms.capabilities.has(Capabilities::SUDO),
            })
        };
        match list && !place.path.ends_with('/') {
            false => self.found(place, list, decide),
            true => self.found(Place { path: &format!("{}/", place.path), ..place }, list, decide),
        }
    }

    /// Returns the capabilities on a path; a path that ends in `/` is a list.
    pub fn capabilities(&self, place: Place<'_>) -> Capabilities {
        self.found(place, place.path.ends_with('/'), |terms| terms.map(|terms| terms.capabilities).unwrap_or_default())
    }

    /// `true` if anything is granted at or below the path of a mount, which ends in `/`.
    pub fn reaches(&self, mount: &str) -> bool {
        let mut instances = self.granting.iter().flat_map(|rule| instances(rule, mount, self.deepest));
        instances.any(|path| !self.capabilities(path.as_str().into()).is_empty())
    }

    fn found<T>(&self, place: Place<'_>, list: bool, answer: impl FnOnce(Option<&Terms>) -> T) -> T {
        match &self.respelt {
            Some(respelt) if !place.spelt.is_empty() => answer(respelt.rules(place.spelt).find(place.path, list)),
            _ => answer(self.rules.find(place.path, list)),
        }
    }
}

impl Respelt {
    /// Returns the rules for paths with names at these places.
    fn rules(&self, spelt: &[Spelt]) -> Arc<Rules> {
        let known = || self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, rules)) = known().iter().find(|(places, _)| **places == *spelt) {
            return Arc::clone(rules);
        }
        let mut merged: Merged<Arc<str>> = BTreeMap::new();
        for (path, terms) in &self.merged {
            unite(&mut merged, spelling::of_rule(path, spelt).into(), terms);
        }
        let rules = Arc::new(Rules::of(&merged));
        let mut known = known();
        if let Some((_, rules)) = known.iter().find(|(places, _)| **places == *spelt) {
            return Arc::clone(rules);
        }
        if known.len() >= self.most {
            known.remove(0);
        }
        known.push((spelt.into(), Arc::clone(&rules)));
        rules
    }
}

impl Rules {
    fn of(merged: &Merged<Arc<str>>) -> Self {
        let (mut exact, mut patterns) = (HashMap::new(), Vec::new());
        for (path, terms) in merged {
            if is_pattern(path) {
                patterns.push((&**path, terms));
            } else {
                exact.insert(Arc::clone(path), Arc::clone(terms));
            }
        }
        Self { exact, patterns: Patterns::compile(&patterns) }
    }

    fn find(&self, path: &str, list: bool) -> Option<&Terms> {
        let shorter = path.strip_suffix('/').filter(|_| list);
        self.exact
            .get(path)
            .or_else(|| self.exact.get(shorter?))
            .or_else(|| self.patterns.find(path, list))
            .or_else(|| self.patterns.find(shorter?, false))
            .map(Arc::as_ref)
    }
}

fn unite<P: Ord>(merged: &mut Merged<P>, path: P, terms: &Arc<Terms>) {
    match merged.entry(path) {
        Entry::Vacant(free) => drop(free.insert(Arc::clone(terms))),
        Entry::Occupied(mut taken) => Arc::make_mut(taken.get_mut()).unite(terms),
    }
}

/// Approximate size of a path and its terms in bytes. With `may_unite`, terms count even if they are shared now,
/// because they may be merged later.
fn weight(path: &str, terms: &Arc<Terms>, may_unite: bool) -> usize {
    /// An entry of each table.
    const ENTRY: usize = 128;
    /// A node of the trie of patterns.
    const NODE: usize = 160;
    let nodes = if is_pattern(path) { NODE * path.split('/').count() } else { 0 };
    // Merged terms belong to this union alone.
    let own = if may_unite || Arc::strong_count(terms) == 1 { terms.parameters.weight() } else { 0 };
    ENTRY + 2 * path.len() + nodes + own
}
