//! Token roles: settings for tokens that clients create with other tokens.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::terms::{TokenKind, TokenTerms};
use super::ttl::format_duration;
use crate::auth::mounts::Mount;
use crate::auth::names::{any_glob_matches, contains, normalize_names};
use crate::auth::policy::lower;
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, ListFieldSlot, ListLimit, Resource as _, resource};

/// Maximum length of `path_suffix` in bytes.
const MAX_PATH_SUFFIX_BYTES: usize = 128;

/// Limits of one list of policies. A list of only empty entries is rejected, because an empty list restricts nothing.
const POLICY_LIST_LIMITS: ListLimit = ListLimit::LIST.rejecting_only_empty();

resource! {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(in crate::auth) struct TokenRole {
        list(POLICY_LIST_LIMITS) allowed_policies;
        list(POLICY_LIST_LIMITS) disallowed_policies;
        list(POLICY_LIST_LIMITS) allowed_policies_glob;
        list(POLICY_LIST_LIMITS) disallowed_policies_glob;
        flag orphan = false;
        /// Suffix of the path that the records of the role's tokens contain.
        text path_suffix;
        flag renewable = true;
        /// Entity aliases that a request for a token of the role may name; `*` in an entry matches any text.
        value allowed_entity_aliases: Vec<String>;
        stored terms: TokenTerms as [
            "token_explicit_max_ttl",
            "token_period",
            "token_bound_cidrs",
            "token_num_uses",
            "token_no_default_policy",
            "token_type",
            "explicit_max_ttl",
            "period",
            "bound_cidrs"
        ] = TokenTerms { kind: TokenKind::DefaultService, ..TokenTerms::default() };
    }
}

/// Names of the fields of a token role.
pub const TOKEN_ROLE_FIELDS: &[&str] = TokenRole::FIELDS;

/// Pairs of names in [`TOKEN_ROLE_FIELDS`] that denote one field, the deprecated name first.
pub const TOKEN_ROLE_SYNONYMS: &[(&str, &str)] =
    &[("explicit_max_ttl", "token_explicit_max_ttl"), ("period", "token_period"), ("bound_cidrs", "token_bound_cidrs")];

impl TokenRole {
    /// Returns the role with the given fields applied; absent fields change nothing.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule.
    pub(super) fn merged(&self, fields: &Fields) -> Result<Self> {
        let mut role = Self { terms: self.terms.merge_fields(fields, TOKEN_ROLE_FIELDS)?, ..self.clone() };
        if role.terms.kind == TokenKind::Default {
            role.terms.kind = TokenKind::DefaultService;
        }
        for ListFieldSlot { slot, limit } in Self::LISTS {
            if let Some(names) = fields.list_within(slot.name, *limit)? {
                *(slot.get_mut)(&mut role) = normalize_names(slot.name, names)?;
            }
        }
        if let Some(names) = fields.list("allowed_entity_aliases")? {
            role.allowed_entity_aliases = normalize_names("allowed_entity_aliases", names)?;
        }
        role.merge_flags(fields)?;
        if let Some(suffix) = fields.text_within("path_suffix", MAX_PATH_SUFFIX_BYTES)? {
            role.path_suffix = validate_suffix(suffix)?;
        }
        role.terms = role.terms.validated()?;
        role.validated()
    }

    /// Rejects settings that batch tokens cannot have, if the role has the fixed type `batch`.
    fn validated(self) -> Result<Self> {
        if self.terms.kind == TokenKind::Batch {
            for (set, what) in [(!self.orphan, "non-orphan tokens"), (self.renewable, "renewable tokens")] {
                if set {
                    return Err(Error::invalid(format!(
                        "'token_type' cannot be 'batch' when role is set to generate {what}"
                    )));
                }
            }
        }
        Ok(self)
    }

    /// Returns warnings about the fields with which a client writes the role.
    pub(super) fn warnings(&self, fields: &Fields, mount: &Mount) -> Warnings {
        let both = TOKEN_ROLE_SYNONYMS.iter().filter(|(older, newer)| fields.has(older) && fields.has(newer));
        let mut warnings: Warnings = both
            .map(|(older, newer)| {
                format!("Both '{newer}' and deprecated '{older}' value supplied, ignoring the deprecated value")
            })
            .collect();
        let longest = mount.max_ttl();
        for (name, time) in
            [("token_explicit_max_ttl", self.terms.explicit_max_ttl), ("token_period", self.terms.period)]
        {
            if time > longest {
                let time = format_duration(time);
                let longest = format_duration(longest);
                warnings.add(format!(
                    "{name} of \"{time}\" is greater than the mount's maximum TTL of \"{longest}\"; the maximum \
                     applies to its tokens"
                ));
            }
        }
        warnings
    }

    /// `true` if the role has any list of policies, so it determines the policies of its tokens.
    pub(super) fn has_policy_lists(&self) -> bool {
        self.has_allowed_policies() || !self.disallowed_policies.is_empty() || !self.disallowed_policies_glob.is_empty()
    }

    /// `true` if the role has a list of allowed policies.
    pub(super) fn has_allowed_policies(&self) -> bool {
        !self.allowed_policies.is_empty() || !self.allowed_policies_glob.is_empty()
    }

    pub(super) fn allows(&self, policy: &str) -> bool {
        contains(&self.allowed_policies, policy) || any_glob_matches(&self.allowed_policies_glob, policy)
    }

    pub(super) fn disallows(&self, policy: &str) -> bool {
        contains(&self.disallowed_policies, policy) || any_glob_matches(&self.disallowed_policies_glob, policy)
    }

    /// `true` if a token of the role can have this entity alias, in any letter case.
    pub(super) fn allows_entity_alias(&self, alias: &str) -> bool {
        let alias = lower(alias);
        contains(&self.allowed_entity_aliases, &alias) || any_glob_matches(&self.allowed_entity_aliases, &alias)
    }

    /// Renders the role as the API shows it; durations in seconds.
    pub(super) fn to_json(&self, name: &str) -> Value {
        let mut shown: Map<String, Value> = self.terms.to_json();
        shown.retain(|name, _| TOKEN_ROLE_FIELDS.contains(&name.as_str()));
        for older in ["period", "explicit_max_ttl"] {
            shown.entry(older).or_insert_with(|| 0.into());
        }
        shown.extend(self.to_members());
        shown.insert("name".to_owned(), json!(name));
        shown.insert("allowed_entity_aliases".to_owned(), json!(self.allowed_entity_aliases));
        Value::Object(shown)
    }
}

/// Validates a path suffix: segments of letters, digits, `_`, `-` and `.`, without `-` or `.` at their ends.
fn validate_suffix(suffix: String) -> Result<String> {
    let is_suffix = suffix.is_empty() || suffix.split('/').all(crate::fields::is_name);
    if !is_suffix || suffix.contains("..") {
        return Err(Error::invalid(
            "path_suffix: given role path suffix contains invalid characters; must be names joined by '/', without \
             \"..\"",
        ));
    }
    Ok(suffix)
}
