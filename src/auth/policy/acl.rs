//! Several policies compiled into what decides a request.
//!
//! One rule decides, and there is no falling through from a specific rule to a general one: 1. the rule
//! with exactly this path; 2. for a list, the one without the trailing `/`; 3. the best pattern that
//! matches (`patterns` has the order); 4. for a list, the best that matches without the trailing `/`;
//! 5. otherwise nothing is granted. Step 3 looks at a list's path with its `/` first, or a deny on
//! `secret/private/*` could be passed by listing `secret/private/`.

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

/// The answer to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the operation may go on (sudo paths need `sudo` too).
    pub allowed: bool,
    /// Whether the deciding rule grants `sudo` (or the caller holds `root`).
    pub sudo: bool,
}

/// A path as rules are held against it: without leading `/`, in canonical spelling; a list's ends in `/`.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The path.
    pub path: &'a str,
    /// Where in it names with several spellings are, from left to right.
    pub spelt: &'a [Spelt],
}

impl<'a> From<&'a str> for Place<'a> {
    /// A path in which every name has one spelling.
    fn from(path: &'a str) -> Self {
        Self { path, spelt: &[] }
    }
}

/// The union of several policies, ready to decide.
pub struct Acl {
    rules: Rules,
    respelt: Option<Respelt>,
    /// The paths of the rules that grant something.
    granting: Box<[Arc<str>]>,
    /// One segment more than any rule has, or [`DEEPEST`].
    deepest: usize,
    valid_until: Option<Time>,
    weight: usize,
}

/// Rules by their paths. What only one rule says of a path is shared with its policy.
struct Rules {
    exact: HashMap<Arc<str>, Arc<Terms>>,
    patterns: Patterns<Arc<Terms>>,
}

/// All rules again, because the paths of some have other spellings: what they are for paths with names at
/// certain places, worked out when such a path is asked for first.
struct Respelt {
    merged: Merged<Arc<str>>,
    /// Most sets of places that rules are kept for.
    most: usize,
    known: Mutex<Vec<ForPlaces>>,
}

/// What all rules with one path grant together, by their paths.
type Merged<P> = BTreeMap<P, Arc<Terms>>;

/// Places, and the rules as they are for paths with names there.
type ForPlaces = (Box<[Spelt]>, Arc<Rules>);

/// From how many bytes on a union is heavy.
const HEAVY: usize = 1 << 20;
/// Most segments of paths at which a rule is tried that matches some of any length.
const DEEPEST: usize = 16;
/// Most sets of places that one union keeps its rules for. There are few routes with such names, and few
/// depths at which mounts are.
const MAX_RESPELT: usize = 16;
/// Most bytes of all these sets, about; there is one in any case.
const RESPELT_WEIGHT: usize = 12 << 20;

impl Acl {
    /// Compiles policies as they stand at `now`. Rules that have expired are left out, and so are rules with a
    /// template in their path that `identity` does not fill.
    ///
    /// With more than [`MAX_RULES`] rules, or [`MAX_SEGMENTS`] segments in their patterns, nothing is granted: leaving
    /// some out could leave out a deny.
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

    /// Whether its rules are so many that only few such unions should be in the memory.
    pub fn is_heavy(&self) -> bool {
        self.weight() > HEAVY
    }

    /// About how many bytes it may come to have for itself, with its rules for every set of places.
    pub fn weight(&self) -> usize {
        self.weight * (1 + self.respelt.as_ref().map_or(0, |respelt| respelt.most))
    }

    /// When the first of its rules expires, and it has to be compiled again.
    pub fn valid_until(&self) -> Option<Time> {
        self.valid_until
    }

    /// The same, to be compiled again at `end` at the latest.
    #[must_use]
    pub fn until(self, end: Option<Time>) -> Self {
        Self { valid_until: self.valid_until.into_iter().chain(end).min(), ..self }
    }

    /// Decides over a request. Without parameters, over what all requests of `operation` on this path have
    /// in common: what is refused then is refused whatever the parameters are.
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

    /// The capabilities on a path; a path that ends in `/` is looked at as a list.
    pub fn capabilities(&self, place: Place<'_>) -> Capabilities {
        self.found(place, place.path.ends_with('/'), |terms| terms.map(|terms| terms.capabilities).unwrap_or_default())
    }

    /// Whether anything is granted at the path of a mount, which ends in `/`, or below it.
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
    /// The rules as they are for paths with names at these places.
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

/// Adds what a rule says of a path.
fn unite<P: Ord>(merged: &mut Merged<P>, path: P, terms: &Arc<Terms>) {
    match merged.entry(path) {
        Entry::Vacant(free) => drop(free.insert(Arc::clone(terms))),
        Entry::Occupied(mut taken) => Arc::make_mut(taken.get_mut()).unite(terms),
    }
}

/// About how many bytes a union has for a path; `may_unite` where the rules of several paths become those of one later.
fn weight(path: &str, terms: &Arc<Terms>, may_unite: bool) -> usize {
    /// An entry of each table.
    const ENTRY: usize = 128;
    /// A node of the trie of patterns.
    const NODE: usize = 160;
    let nodes = if is_pattern(path) { NODE * path.split('/').count() } else { 0 };
    // What several rules have united is nobody else's.
    let own = if may_unite || Arc::strong_count(terms) == 1 { terms.parameters.weight() } else { 0 };
    ENTRY + 2 * path.len() + nodes + own
}
