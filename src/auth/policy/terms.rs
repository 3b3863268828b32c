//! Terms of rules: the rights that a rule grants, the parameters that it restricts, and limits on the number of rules
//! of a caller.

use std::time::Duration;

use super::Operation;
use super::capabilities::Capabilities;
use super::parameters::{ParameterRules, RequestParameters};
use super::patterns::is_pattern;

/// Maximum number of rules in all policies of a caller.
pub const MAX_RULES_PER_CALLER: usize = 5_000;
/// Maximum number of path segments, summed over all rules of a caller whose paths are patterns.
pub const MAX_PATTERN_SEGMENTS_PER_CALLER: usize = 20 * MAX_RULES_PER_CALLER;

/// The terms of a rule, or the merged terms of all rules with one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleTerms {
    /// Granted capabilities; `deny` alone if a rule denies.
    pub capabilities: Capabilities,
    /// Rules on request parameters; usually empty.
    pub parameters: ParameterRules,
    /// Minimum TTL that a client must request for the wrapped response; zero for no minimum. A minimum or maximum makes
    /// wrapping mandatory.
    pub min_wrapping: Duration,
    /// Maximum TTL that a client may request for the wrapped response; zero for no maximum. A minimum or maximum makes
    /// wrapping mandatory.
    pub max_wrapping: Duration,
}

impl RuleTerms {
    /// Merges the terms of another rule with the same path into these terms.
    pub(super) fn merge(&mut self, other: &Self) {
        self.capabilities = self.capabilities.or(other.capabilities);
        self.min_wrapping = lesser_limit(self.min_wrapping, other.min_wrapping);
        self.max_wrapping = lesser_limit(self.max_wrapping, other.max_wrapping);
        self.parameters.merge(&other.parameters);
    }

    /// `true` if the terms allow a request. If `parameters` is `None`, checks the capabilities only.
    pub(super) fn allow(&self, operation: Operation, parameters: Option<&RequestParameters<'_>>) -> bool {
        self.capabilities.has(Capabilities::required_for(operation))
            && parameters
                .is_none_or(|sent| self.allow_wrapping(sent.wrap_ttl) && self.parameters.allow(operation, sent))
    }

    fn allow_wrapping(&self, requested: Option<Duration>) -> bool {
        let min = self.min_wrapping;
        let max = self.max_wrapping;
        let within = |requested| requested >= min && (max.is_zero() || requested <= max);
        (min.is_zero() && max.is_zero()) || requested.is_some_and(within)
    }
}

/// Returns the lesser of two limits; zero means that there is no limit.
fn lesser_limit(one: Duration, other: Duration) -> Duration {
    if one.is_zero() || other.is_zero() { one.max(other) } else { one.min(other) }
}

/// The number of a caller's rules, and the number of path segments in all patterns of these rules.
#[derive(Default)]
pub(super) struct RuleCounts {
    pub rules: usize,
    pub segments: usize,
}

impl RuleCounts {
    pub(super) fn add(&mut self, path: &str) {
        self.rules += 1;
        if is_pattern(path) {
            self.segments += path.split('/').count();
        }
    }

    /// `true` if the caller has too many rules. Nothing is granted then, because omitting some rules could omit a deny.
    pub(super) fn exceeds_limit(&self) -> bool {
        self.rules > MAX_RULES_PER_CALLER || self.segments > MAX_PATTERN_SEGMENTS_PER_CALLER
    }
}
