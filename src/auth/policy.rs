//! Policies: parsing, compilation and decisions. This module does not use storage or the clock.
//!
//! A [`Policy`] is one parsed text, a list of [`Rule`]s; an [`Acl`] is the compiled union of several policies, which
//! decides requests. The text is HCL 1, JSON, or base64 of either. The parser (`parse`) is our own, because no
//! maintained crate reads HCL 1. The size of a text, its nesting, paths and rules are limited. Unknown keys and
//! capabilities are errors, so that a misspelt `deny` is not ignored. Rules match names in every spelling (`spelling`).

mod acl;
mod capabilities;
pub mod explain;
mod forms;
mod parameters;
mod parse;
mod patterns;
mod rules;
mod sample_paths;
mod spelling;
mod terms;
mod values;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use acl::{Acl, Decision, RequestPath};
pub use capabilities::Capabilities;
pub use parameters::{ParameterRules, RequestParameters};
pub use rules::Rule;
pub use spelling::{NameSegments, Spelling, lower};
pub use terms::{MAX_PATTERN_SEGMENTS_PER_CALLER, MAX_RULES_PER_CALLER, RuleTerms};

use crate::error::{Error, Result};

/// Maximum length of a policy text in bytes.
pub const MAX_POLICY_BYTES: usize = 256 * 1024;
/// Maximum length of a rule's path in bytes; no request path is longer.
pub const MAX_RULE_PATH_BYTES: usize = 2_048;

/// The kind of access that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A GET request.
    Read,
    /// A LIST request; its path ends in `/`.
    List,
    /// A write that creates a resource which does not exist yet.
    Create,
    /// A write that is not [`Operation::Create`], such as a change, renewal or revocation.
    Update,
    /// A PATCH request.
    Patch,
    /// A DELETE request.
    Delete,
}

/// The rules of one policy text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The rules in the order in which the text contains them.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Parses a policy text in HCL or JSON.
    ///
    /// # Errors
    /// `Invalid` with the line and the violated rule. The error quotes only names of keys and capabilities from the
    /// text.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_POLICY_BYTES {
            return Err(Error::invalid(format!("policy: longer than {MAX_POLICY_BYTES} bytes")));
        }
        parse::parse(text)
            .and_then(rules::read_rules)
            .map(|rules| Self { rules })
            .map_err(|problem| Error::invalid(format!("failed to parse policy: {problem}")))
    }

    /// `true` if the path of any rule contains a template.
    pub fn has_templates(&self) -> bool {
        self.rules.iter().any(Rule::is_template)
    }

    /// Returns the policy text that a client sent, decoded if it is base64.
    pub fn text_of(sent: &str) -> String {
        let plain = STANDARD.decode(sent.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        plain.unwrap_or_else(|| sent.to_owned())
    }
}

#[cfg(test)]
mod tests;
