//! Policies: what a text grants, and what a caller's texts together decide.
//!
//! [`Policy`] is one text read into [`Rule`]s; [`Acl`] is the compiled union of several policies, asked
//! on every request. The text is the first generation of the HashiCorp configuration language, or its
//! JSON twin, or base64 of either. The parser is our own (`parse`): no maintained crate reads that first
//! generation, and the part that policies need is small. Everything is bounded: the text, its nesting,
//! the path of a rule, the rules of one caller. Unknown keys and capabilities are errors, because a
//! misspelt `deny` must not become an open door. Names with several spellings are one name (`spelling`).
//!
//! Why something is granted or not is told by [`explain`].
//!
//! Pure: no storage, no clock. [`crate::auth::Auth`] keeps the texts and publishes what they compile to.

mod acl;
mod capabilities;
pub mod explain;
mod forms;
mod parameters;
mod parse;
mod patterns;
mod reach;
mod rules;
mod spelling;
mod terms;
mod values;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use acl::{Acl, Decision, Place};
pub use capabilities::Capabilities;
pub use parameters::{ParameterRules, Parameters};
pub use rules::Rule;
pub use spelling::{Spelling, Spelt, lower};
pub use terms::{MAX_RULES, MAX_SEGMENTS, Terms};

use crate::error::{Error, Result};

/// Largest policy text, in bytes.
pub const MAX_TEXT: usize = 256 * 1024;
/// Longest path of a rule, in bytes; no request path is longer.
pub const MAX_PATH: usize = 2_048;

/// What a request does, as far as policies are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// GET.
    Read,
    /// LIST; the path ends in `/`.
    List,
    /// A write of something that is not there yet.
    Create,
    /// Any other write; renewals and revocations too.
    Update,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

/// The rules of one policy text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Its rules, in the order of the text.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Reads a policy text: the configuration language or JSON.
    ///
    /// # Errors
    /// `Invalid` with a text that gives line and rule; it quotes names of keys and capabilities, and
    /// nothing else of the input.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_TEXT {
            return Err(Error::invalid(format!("policy: longer than {MAX_TEXT} bytes")));
        }
        parse::parse(text)
            .and_then(rules::read)
            .map(|rules| Self { rules })
            .map_err(|problem| Error::invalid(format!("failed to parse policy: {problem}")))
    }

    /// Whether the path of one of its rules is to be filled in for who asks.
    pub fn has_templates(&self) -> bool {
        self.rules.iter().any(Rule::is_template)
    }

    /// The text that a client sent, with base64 taken off when it is base64.
    pub fn text_of(sent: &str) -> String {
        let plain = STANDARD.decode(sent.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        plain.unwrap_or_else(|| sent.to_owned())
    }
}

#[cfg(test)]
mod tests;
