//! What rules grant and demand, and how much of it one caller may have.

use std::time::Duration;

use super::Operation;
use super::capabilities::Capabilities;
use super::parameters::{ParameterRules, Parameters};
use super::patterns::is_pattern;

/// Most rules of one caller, over all its policies.
pub const MAX_RULES: usize = 5_000;
/// Most segments that the patterns among them have together.
pub const MAX_SEGMENTS: usize = 20 * MAX_RULES;

/// What a rule, or all rules with one path together, grant and demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// What they grant; only `deny` when that is among them.
    pub capabilities: Capabilities,
    /// Parameters that may, must not and must be sent. Empty when there is nothing to check, which is the common case.
    pub parameters: ParameterRules,
    /// Shortest wrapping time of the answer; zero without a limit.
    pub min_wrapping: Duration,
    /// Longest wrapping time of the answer; zero without a limit.
    pub max_wrapping: Duration,
}

impl Terms {
    /// Adds what other rules with the same path grant.
    pub(super) fn unite(&mut self, other: &Self) {
        self.capabilities = self.capabilities.or(other.capabilities);
        self.min_wrapping = lesser(self.min_wrapping, other.min_wrapping);
        self.max_wrapping = lesser(self.max_wrapping, other.max_wrapping);
        self.parameters.unite(&other.parameters);
    }

    /// Whether they let a request pass; without parameters, whether they let some request for the operation pass.
    pub(super) fn permit(&self, operation: Operation, parameters: Option<&Parameters<'_>>) -> bool {
        self.capabilities.has(Capabilities::needed(operation))
            && parameters
                .is_none_or(|sent| self.permit_wrapping(sent.wrapped_for) && self.parameters.permit(operation, sent))
    }

    fn permit_wrapping(&self, asked: Option<Duration>) -> bool {
        let (min, max) = (self.min_wrapping, self.max_wrapping);
        let within = |asked| asked >= min && (max.is_zero() || asked <= max);
        (min.is_zero() && max.is_zero()) || asked.is_some_and(within)
    }
}

/// The lesser of two limits, of which zero is none.
fn lesser(one: Duration, other: Duration) -> Duration {
    if one.is_zero() || other.is_zero() { one.max(other) } else { one.min(other) }
}

/// How many rules a caller has, and how much matching them takes.
#[derive(Default)]
pub(super) struct Extent {
    pub rules: usize,
    pub segments: usize,
}

impl Extent {
    /// One rule more.
    pub(super) fn add(&mut self, path: &str) {
        self.rules += 1;
        if is_pattern(path) {
            self.segments += path.split('/').count();
        }
    }

    /// Whether nothing is granted because it is too much: leaving some out could leave out a deny.
    pub(super) fn is_too_much(&self) -> bool {
        self.rules > MAX_RULES || self.segments > MAX_SEGMENTS
    }
}
