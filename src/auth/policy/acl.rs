//! Several policies compiled into what decides a request.
//!
//! One rule decides, and there is no falling through from a specific rule to a general one: 1. the rule
//! with exactly this path; 2. for a list, the one without the trailing `/`; 3. the best pattern that
//! matches (`patterns` has the order); 4. for a list, the best that matches without the trailing `/`;
//! 5. otherwise nothing is granted. Step 3 looks at a list's path with its `/` first, or a deny on
//! `secret/private/*` could be passed by listing `secret/private/`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::parameters::{ParameterRules, Parameters};
use super::patterns::{Patterns, is_pattern};
use super::reach::instance;
use super::rules::{Capabilities, Rule};
use super::spelling::{self, Spelt};
use super::{MAX_RULES, Operation, Policy};
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
    granting: Box<[Box<str>]>,
    valid_until: Option<Time>,
}

/// Rules by their paths.
struct Rules {
    exact: HashMap<Box<str>, Permissions>,
    patterns: Patterns<Permissions>,
}

/// All rules again, because the paths of some have other spellings: what they are for paths with names at
/// certain places, worked out when such a path is asked for first.
struct Respelt {
    merged: BTreeMap<String, Permissions>,
    known: Mutex<Vec<ForPlaces>>,
}

/// Places, and the rules as they are for paths with names there.
type ForPlaces = (Box<[Spelt]>, Arc<Rules>);

/// Most sets of places that one union keeps its rules for. There are few routes with such names, and few
/// depths at which mounts are.
const MAX_RESPELT: usize = 16;

/// What all rules with one path grant together.
#[derive(Clone, Default)]
struct Permissions {
    capabilities: Capabilities,
    /// Empty when there is nothing to check, which is the common case.
    parameters: ParameterRules,
    /// How long the answer has to be wrapped, at least and at most; zero without such a limit.
    wrapping: (Duration, Duration),
}

impl Acl {
    /// Compiles policies as they stand at `now`. Rules that have expired are left out, and so are rules with a
    /// template in their path that `identity` does not fill.
    ///
    /// With more than [`MAX_RULES`] rules nothing is granted: leaving some out could leave out a deny.
    pub fn compile<'a>(
        policies: impl IntoIterator<Item = &'a Policy>,
        identity: Option<&dyn Identity>,
        now: Time,
    ) -> Self {
        let mut merged: BTreeMap<String, Permissions> = BTreeMap::new();
        let (mut valid_until, mut count) = (None, 0);
        for rule in policies.into_iter().flat_map(|policy| &policy.rules) {
            if rule.expiration.is_some_and(|end| end <= now) {
                continue;
            }
            let Some(path) = rule.path_for(identity) else { continue };
            count += 1;
            valid_until = valid_until.into_iter().chain(rule.expiration).min();
            merged.entry(path.into_owned()).or_default().unite(&Permissions::of(rule));
        }
        if count > MAX_RULES {
            tracing::warn!(
                rules = count,
                limit = MAX_RULES,
                "a caller has too many policy rules: it is granted nothing"
            );
            merged.clear();
        }
        let grants = |(path, permissions): (&String, &Permissions)| {
            (!permissions.capabilities.is_empty()).then(|| path.as_str().into())
        };
        let granting = merged.iter().filter_map(grants).collect();
        let respelt = merged.keys().any(|path| spelling::may_change(path));
        let respelt = respelt.then(|| Respelt { merged: merged.clone(), known: Mutex::default() });
        Self { rules: Rules::of(merged), respelt, granting, valid_until }
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
        let decide = |permissions: Option<&Permissions>| {
            permissions.map_or_else(Decision::default, |permissions| Decision {
                allowed: permissions.permit(operation, parameters),
                sudo: permissions.capabilities.has(Capabilities::SUDO),
            })
        };
        match list && !place.path.ends_with('/') {
            false => self.found(place, list, decide),
            true => self.found(Place { path: &format!("{}/", place.path), ..place }, list, decide),
        }
    }

    /// The capabilities on a path; a path that ends in `/` is looked at as a list.
    pub fn capabilities(&self, place: Place<'_>) -> Capabilities {
        self.found(place, place.path.ends_with('/'), |permissions| {
            permissions.map(|permissions| permissions.capabilities).unwrap_or_default()
        })
    }

    /// Whether anything is granted at the path of a mount, which ends in `/`, or below it.
    pub fn reaches(&self, mount: &str) -> bool {
        let mut instances = self.granting.iter().filter_map(|rule| instance(rule, mount));
        instances.any(|path| !self.capabilities(path.as_str().into()).is_empty())
    }

    fn found<T>(&self, place: Place<'_>, list: bool, answer: impl FnOnce(Option<&Permissions>) -> T) -> T {
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
        let mut merged: BTreeMap<String, Permissions> = BTreeMap::new();
        for (path, permissions) in &self.merged {
            merged.entry(spelling::of_rule(path, spelt)).or_default().unite(permissions);
        }
        let rules = Arc::new(Rules::of(merged));
        let mut known = known();
        if known.len() >= MAX_RESPELT {
            known.clear();
        }
        known.push((spelt.into(), Arc::clone(&rules)));
        rules
    }
}

impl Rules {
    fn of(merged: BTreeMap<String, Permissions>) -> Self {
        let (mut exact, mut patterns) = (HashMap::new(), Vec::new());
        for (path, permissions) in merged {
            if is_pattern(&path) {
                patterns.push((path, permissions));
            } else {
                exact.insert(path.into(), permissions);
            }
        }
        Self { exact, patterns: Patterns::compile(patterns) }
    }

    fn find(&self, path: &str, list: bool) -> Option<&Permissions> {
        let shorter = path.strip_suffix('/').filter(|_| list);
        self.exact
            .get(path)
            .or_else(|| self.exact.get(shorter?))
            .or_else(|| self.patterns.find(path, list))
            .or_else(|| self.patterns.find(shorter?, false))
    }
}

impl Permissions {
    fn of(rule: &Rule) -> Self {
        Self {
            capabilities: rule.capabilities,
            parameters: ParameterRules::of(rule),
            wrapping: (rule.min_wrapping, rule.max_wrapping),
        }
    }

    /// Adds what other rules with the same path grant.
    fn unite(&mut self, other: &Self) {
        self.capabilities = self.capabilities.or(other.capabilities);
        let ((min, max), (other_min, other_max)) = (self.wrapping, other.wrapping);
        self.wrapping = (lesser(min, other_min), lesser(max, other_max));
        self.parameters.unite(&other.parameters);
    }

    fn permit(&self, operation: Operation, parameters: Option<&Parameters<'_>>) -> bool {
        self.capabilities.has(Capabilities::needed(operation))
            && parameters
                .is_none_or(|sent| self.permits_wrapping(sent.wrapped_for) && self.parameters.permit(operation, sent))
    }

    fn permits_wrapping(&self, asked: Option<Duration>) -> bool {
        let (min, max) = self.wrapping;
        let within = |asked| asked >= min && (max.is_zero() || asked <= max);
        (min.is_zero() && max.is_zero()) || asked.is_some_and(within)
    }
}

/// The lesser of two limits, of which zero is none.
fn lesser(one: Duration, other: Duration) -> Duration {
    if one.is_zero() || other.is_zero() { one.max(other) } else { one.min(other) }
}
