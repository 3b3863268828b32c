//! Several policies compiled into what decides a request.
//!
//! One rule decides, and there is no falling through from a specific rule to a general one: 1. the rule
//! with exactly this path; 2. for a list, the one without the trailing `/`; 3. the best pattern that
//! matches (`patterns` has the order); 4. for a list, the best that matches without the trailing `/`;
//! 5. otherwise nothing is granted. Step 3 looks at a list's path with its `/` first, or a deny on
//! `secret/private/*` could be passed by listing `secret/private/`.

use std::collections::{BTreeMap, HashMap};

use super::parameters::ParameterRules;
use super::patterns::{Patterns, is_pattern};
use super::rules::{Capabilities, Rule};
use super::{MAX_RULES, Operation, Policy};
use crate::clock::Time;
use crate::fields::Fields;

/// The answer to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the operation may go on (sudo paths need `sudo` too).
    pub allowed: bool,
    /// Whether the deciding rule grants `sudo` (or the caller holds `root`).
    pub sudo: bool,
}

/// The union of several policies, ready to decide.
pub struct Acl {
    exact: HashMap<Box<str>, Permissions>,
    patterns: Patterns<Permissions>,
    valid_until: Option<Time>,
}

/// What all rules with one path grant together.
#[derive(Default)]
struct Permissions {
    capabilities: Capabilities,
    /// Absent when there is nothing to check, which is the common case.
    parameters: Option<Box<ParameterRules>>,
    /// The answer would have to be wrapped.
    wrapped: bool,
}

impl Acl {
    /// Compiles policies as they stand at `now`. Rules that have expired, and rules with a template in
    /// their path (no caller has an entity to fill it with), are left out.
    ///
    /// With more than [`MAX_RULES`] rules nothing is granted: leaving some out could leave out a deny.
    pub fn compile<'a>(policies: impl IntoIterator<Item = &'a Policy>, now: Time) -> Self {
        let mut merged: BTreeMap<&str, (Permissions, ParameterRules)> = BTreeMap::new();
        let (mut valid_until, mut count) = (None, 0);
        for rule in policies.into_iter().flat_map(|policy| &policy.rules) {
            if rule.is_template() || rule.expiration.is_some_and(|end| end <= now) {
                continue;
            }
            count += 1;
            valid_until = valid_until.into_iter().chain(rule.expiration).min();
            merge(merged.entry(&rule.path).or_default(), rule);
        }
        if count > MAX_RULES {
            tracing::warn!(
                rules = count,
                limit = MAX_RULES,
                "a caller has too many policy rules: it is granted nothing"
            );
            merged.clear();
        }
        let (mut exact, mut patterns) = (HashMap::new(), Vec::new());
        for (path, (mut permissions, parameters)) in merged {
            permissions.parameters = (!parameters.is_empty()).then(|| Box::new(parameters));
            if is_pattern(path) {
                patterns.push((path.to_owned(), permissions));
            } else {
                exact.insert(path.into(), permissions);
            }
        }
        Self { exact, patterns: Patterns::compile(patterns), valid_until }
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

    /// Decides over a request: its path without leading `/`, its body or query.
    pub fn decide(&self, operation: Operation, path: &str, fields: &Fields) -> Decision {
        let list = operation == Operation::List;
        let found = match list && !path.ends_with('/') {
            false => self.find(path, list),
            true => self.find(&format!("{path}/"), list),
        };
        found.map_or_else(Decision::default, |permissions| Decision {
            allowed: permissions.permit(operation, fields),
            sudo: permissions.capabilities.has(Capabilities::SUDO),
        })
    }

    /// The capabilities on a path; a path that ends in `/` is looked at as a list.
    pub fn capabilities(&self, path: &str) -> Capabilities {
        self.find(path, path.ends_with('/')).map(|permissions| permissions.capabilities).unwrap_or_default()
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

fn merge((permissions, parameters): &mut (Permissions, ParameterRules), rule: &Rule) {
    permissions.capabilities = permissions.capabilities.or(rule.capabilities);
    permissions.wrapped |= !(rule.min_wrapping.is_zero() && rule.max_wrapping.is_zero());
    parameters.merge(rule);
}

impl Permissions {
    fn permit(&self, operation: Operation, fields: &Fields) -> bool {
        // Answers are not wrapped here, so a rule that wants them wrapped cannot be met.
        !self.wrapped
            && self.capabilities.has(Capabilities::needed(operation))
            && self.parameters.as_ref().is_none_or(|parameters| parameters.permit(operation, fields))
    }
}
