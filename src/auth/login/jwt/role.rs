//! Roles of `jwt`: the tokens that a role accepts, and the claims that identify the client.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::claims;
use crate::auth::login::role::MethodRole;
use crate::auth::login::verifier::{JwtTimeRules, VerifiedClaims, forbidden};
use crate::auth::token::TokenTerms;
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::fields::{ListLimit, resource};

/// Key of the token metadata that contains the role's name.
pub(super) const ROLE_METADATA_KEY: &str = "role";
/// Maximum number of entries in `claim_mappings` and in `bound_claims`, and of required values of one claim.
const MAX_ROLE_MAP_ENTRIES: usize = 100;
/// Maximum length of a claim name or value in bytes.
const MAX_CLAIM_BYTES: usize = 1024;
/// Maximum number of groups accepted in a token.
const MAX_TOKEN_GROUPS: usize = 1_000;
/// Maximum length in bytes of the client's name in a token.
const MAX_CLIENT_NAME_BYTES: usize = 1024;

/// Limits of one list of a role. A list of only empty entries is rejected, because an empty list restricts nothing.
const BOUND_LIST_LIMITS: ListLimit = ListLimit::LIST.rejecting_only_empty();

resource! {
    /// A stored role of `jwt`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub(crate) struct JwtRole {
        /// Settings of the tokens that logins with the role receive.
        stored terms: TokenTerms;
        /// Name of the claim that contains the client's name.
        text user_claim;
        /// `true` if `user_claim` is a JSON pointer. The other claim names of a role are pointers if they begin with
        /// `/`.
        flag user_claim_json_pointer;
        /// Name of the claim that contains the client's groups; empty for none.
        text groups_claim;
        /// Accepted audiences (`aud`): a token must have one of them.
        list(BOUND_LIST_LIMITS) bound_audiences;
        /// Subject (`sub`) that a token must have; empty for any.
        text bound_subject;
        /// Values that other claims of a token must have.
        stored bound_claims: BoundClaims as ["bound_claims_type", "bound_claims"];
        /// Claims to copy into the metadata of the client, each with the metadata key to copy it to.
        value claim_mappings: BTreeMap<String, String>;
        /// A token without `exp` is valid for this number of seconds after its `nbf` or `iat`; 0 for the default,
        /// negative for none.
        integer expiration_leeway;
        /// A token without `nbf` and `iat` becomes valid this number of seconds before its `exp`; 0 for the default,
        /// negative for none.
        integer not_before_leeway;
        /// Tolerance for clock differences in seconds; 0 for the default, negative for none.
        integer clock_skew_leeway;
        /// Maximum time since the user's authentication (`auth_time`); zero for no limit.
        timespan max_age;
        /// Has no effect; stored for clients that always send redirect URIs.
        list(BOUND_LIST_LIMITS) allowed_redirect_uris;
    }
}

/// Values that claims of a token must have: each claim must equal one of several values, or match one of several
/// patterns in which `*` matches any text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BoundClaims {
    /// `true` if the required values are patterns.
    pub(crate) globs: bool,
    /// The required value or values as the operator wrote them, by the name of the claim or a JSON pointer to it.
    pub(crate) claims: Map<String, Value>,
}

pub(super) struct JwtIdentity {
    pub(super) name: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) groups: Vec<String>,
}

impl MethodRole for JwtRole {
    fn terms(&self) -> &TokenTerms {
        &self.terms
    }
}

impl JwtRole {
    /// Validates the whole role.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |text: &str| Err(Error::invalid(text.to_owned()));
        if self.user_claim.is_empty() {
            return invalid("a user claim must be defined on the role");
        }
        let is_open = self.bound_audiences.is_empty()
            && self.bound_subject.is_empty()
            && self.bound_claims.claims.is_empty()
            && self.terms.bound_cidrs.is_empty();
        if is_open {
            return invalid("must have at least one bound constraint when creating/updating a role");
        }
        if self.claim_mappings.len() > MAX_ROLE_MAP_ENTRIES {
            return invalid("claim_mappings: more than 100 entries");
        }
        let targets: Vec<&String> = self.claim_mappings.values().collect();
        for (at, target) in targets.iter().enumerate() {
            if target.as_str() == ROLE_METADATA_KEY || target.is_empty() {
                let text = format!("metadata key {target:?} is reserved and may not be a mapping destination");
                return Err(Error::invalid(text));
            }
            if targets[..at].contains(target) {
                return Err(Error::invalid(format!("multiple keys are mapped to metadata key {target:?}")));
            }
        }
        let texts = [&self.user_claim, &self.groups_claim, &self.bound_subject];
        let mapped = self.claim_mappings.iter().flat_map(|(claim, target)| [claim, target]);
        let lists = self.bound_audiences.iter().chain(&self.allowed_redirect_uris);
        if texts.into_iter().chain(mapped).chain(lists).any(|text| text.len() > MAX_CLAIM_BYTES) {
            return invalid(
                "claim names, audiences, redirect URIs, bound_subject and metadata keys: each must have at most 1024 \
                 bytes",
            );
        }
        self.bound_claims.check()
    }

    pub(super) fn time_rules(&self) -> JwtTimeRules {
        let leeway = |written: i64, usual: u64| match written {
            0 => Duration::from_secs(usual),
            written => Duration::from_secs(u64::try_from(written).unwrap_or(0)),
        };
        JwtTimeRules::Lenient {
            skew: leeway(self.clock_skew_leeway, 60),
            expiration: leeway(self.expiration_leeway, 150),
            not_before: leeway(self.not_before_leeway, 150),
        }
    }

    /// Identifies the client by the claims of a verified token; `name` is the name of the role.
    ///
    /// # Errors
    /// `Forbidden`, naming the claim.
    pub(super) fn identity(&self, claims: &VerifiedClaims, name: &str, now: Time) -> Result<JwtIdentity> {
        if !self.bound_subject.is_empty() && claims.text("sub") != Some(&self.bound_subject) {
            return Err(forbidden("the token's subject (sub) is not the role's bound_subject"));
        }
        self.check_age(claims, now)?;
        self.bound_claims.check_claims(claims)?;
        let user = match self.user_claim_json_pointer {
            true => claims::find_claim(claims, &self.user_claim),
            false => claims.get(&self.user_claim),
        };
        let user = user.ok_or_else(|| forbidden(format!("claim {:?} not found in token", self.user_claim)))?;
        let user = user.as_str().filter(|user| !user.trim().is_empty() && user.len() <= MAX_CLIENT_NAME_BYTES);
        let user =
            user.ok_or_else(|| forbidden(format!("claim {:?} could not be converted to string", self.user_claim)))?;
        let mut metadata = BTreeMap::from([(ROLE_METADATA_KEY.to_owned(), name.to_owned())]);
        for (claim, target) in &self.claim_mappings {
            match claims::find_claim(claims, claim) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) if text.len() > MAX_CLAIM_BYTES => {
                    return Err(forbidden(format!("claim '{claim}' is longer than {MAX_CLAIM_BYTES} bytes")));
                }
                Some(Value::String(text)) => drop(metadata.insert(target.clone(), text.clone())),
                Some(_) => return Err(forbidden(format!("error converting claim '{claim}' to string"))),
            }
        }
        Ok(JwtIdentity { name: user.to_owned(), metadata, groups: self.groups(claims)? })
    }

    fn groups(&self, claims: &VerifiedClaims) -> Result<Vec<String>> {
        if self.groups_claim.is_empty() {
            return Ok(Vec::new());
        }
        let wrong = || forbidden(format!("{:?} claim could not be converted to string list", self.groups_claim));
        let groups = match claims::find_claim(claims, &self.groups_claim) {
            None => return Err(forbidden(format!("{:?} claim not found in token", self.groups_claim))),
            Some(Value::String(group)) => vec![group.as_str()],
            Some(Value::Array(groups)) => groups.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?,
            Some(_) => return Err(wrong()),
        };
        if groups.len() > MAX_TOKEN_GROUPS || groups.iter().any(|group| group.len() > MAX_CLAIM_BYTES) {
            let excess = format!("more than {MAX_TOKEN_GROUPS} groups, or a group longer than {MAX_CLAIM_BYTES} bytes");
            return Err(forbidden(format!("{:?} claim: {excess}", self.groups_claim)));
        }
        Ok(groups.into_iter().filter(|group| !group.trim().is_empty()).map(str::to_owned).collect())
    }

    /// Rejects a token if the user's authentication is older than `max_age`. The claim `auth_time` is the time of that
    /// authentication (OpenID Connect Core 1.0, 2).
    fn check_age(&self, claims: &VerifiedClaims, now: Time) -> Result<()> {
        if self.max_age.is_zero() {
            return Ok(());
        }
        let JwtTimeRules::Lenient { skew, .. } = self.time_rules() else { return Ok(()) };
        let authenticated_at = claims.get("auth_time").and_then(Value::as_f64);
        let authenticated_at =
            authenticated_at.ok_or_else(|| forbidden("claim \"auth_time\" is missing or not a number"))?;
        let until = authenticated_at + (self.max_age + skew).as_secs_f64();
        if now.unix_timestamp() as f64 >= until {
            return Err(forbidden("auth_time: the user's authentication is older than max_age"));
        }
        Ok(())
    }
}

impl BoundClaims {
    /// Validates the required values: each must be a non-blank text or, unless the values are patterns, a number or a
    /// boolean.
    fn check(&self) -> Result<()> {
        if self.claims.len() > MAX_ROLE_MAP_ENTRIES {
            return Err(Error::invalid("bound_claims: more than 100 entries"));
        }
        for (name, bound) in &self.claims {
            let values = claims::claim_values(bound);
            let wrong = |rule: &str| Err(Error::invalid(format!("bound_claims: {rule}")));
            if name.is_empty() || name.len() > MAX_CLAIM_BYTES {
                return wrong("claim names must have 1 to 1024 bytes");
            }
            if values.is_empty() || values.len() > MAX_ROLE_MAP_ENTRIES {
                return wrong("a claim must be bound to 1 to 100 values");
            }
            for value in values {
                match value {
                    Value::String(text) if !text.trim().is_empty() && text.len() <= MAX_CLAIM_BYTES => {}
                    Value::String(_) => return wrong("a string must not be blank or longer than 1024 bytes"),
                    Value::Number(_) | Value::Bool(_) if !self.globs => {}
                    _ if self.globs => return wrong("patterns must be strings"),
                    _ => return wrong("a value must be a string, a number or a boolean"),
                }
            }
        }
        Ok(())
    }

    fn check_claims(&self, claims: &VerifiedClaims) -> Result<()> {
        for (name, bound) in &self.claims {
            let Some(claim) = claims::find_claim(claims, name) else {
                return Err(forbidden(format!("claim {name:?} is missing")));
            };
            if !claims::matches_bound(bound, claim, self.globs) {
                return Err(forbidden(format!("claim {name:?} does not match any associated bound claim values")));
            }
        }
        Ok(())
    }
}
