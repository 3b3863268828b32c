//! Token settings that all kinds of roles share: the `token_…` fields.
//!
//! Some fields have a deprecated name without the prefix. A request may use it instead of the newer name, and responses
//! then show the field under both names.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::network::Network;
use super::ttl::format_duration;
use crate::auth::ROOT_POLICY;
use crate::auth::mounts::Mount;
use crate::auth::names::normalize_token_policies;
use crate::error::{Error, Result, Warnings};
use crate::fields::{FieldSlot, Fields};

/// The type of the tokens that a role creates, or the rule by which the type is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// `default`: the type that the mount defines.
    #[default]
    Default,
    /// `service`: a token that is stored and has all features.
    Service,
    /// `batch`: a token that is not stored, so it cannot be renewed, revoked or limited in uses.
    Batch,
    /// `default-service`: a service token unless the request asks for another type.
    DefaultService,
    /// `default-batch`: a batch token unless the request asks for another type.
    DefaultBatch,
}

impl TokenKind {
    /// Returns the name of the type in requests and responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Service => "service",
            Self::Batch => "batch",
            Self::DefaultService => "default-service",
            Self::DefaultBatch => "default-batch",
        }
    }

    pub(super) fn of(word: &str) -> Option<Self> {
        let all = [Self::Default, Self::Service, Self::Batch, Self::DefaultService, Self::DefaultBatch];
        all.into_iter().find(|kind| kind.name() == word)
    }
}

/// The token settings of a role. A zero duration and an empty list mean that the setting is not set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenTerms {
    /// TTL that creation and renewal of a token grant by default.
    pub ttl: Duration,
    /// Maximum lifetime of a token, including renewals.
    pub max_ttl: Duration,
    /// Maximum lifetime of a token, including renewals, which also applies to periodic tokens.
    pub explicit_max_ttl: Duration,
    /// TTL that every renewal grants; set only for periodic tokens.
    pub period: Duration,
    /// Names of the policies of the tokens, normalized.
    pub policies: Vec<String>,
    /// Networks from which clients may log in with the role and use the received tokens; empty for any.
    pub bound_cidrs: Vec<Network>,
    /// Maximum number of uses of a token; 0 for no limit.
    pub num_uses: u32,
    /// `true` to create tokens without the policy `default`.
    pub no_default_policy: bool,
    /// Type of the tokens that the role creates.
    pub kind: TokenKind,
    /// `true` to restrict each token to the client address of its login.
    pub strictly_bind_ip: bool,
    /// Deprecated field names with which the role was written.
    pub(super) older: Vec<String>,
}

/// The duration settings, each with the name of its field.
const TOKEN_DURATIONS: [FieldSlot<TokenTerms, Duration>; 4] = [
    FieldSlot::new("token_ttl", |terms| &terms.ttl, |terms| &mut terms.ttl),
    FieldSlot::new("token_max_ttl", |terms| &terms.max_ttl, |terms| &mut terms.max_ttl),
    FieldSlot::new("token_explicit_max_ttl", |terms| &terms.explicit_max_ttl, |terms| &mut terms.explicit_max_ttl),
    FieldSlot::new("token_period", |terms| &terms.period, |terms| &mut terms.period),
];

impl TokenTerms {
    /// Names of the token fields of an authentication method's role.
    pub const FIELDS: &'static [&'static str] = &[
        "token_ttl",
        "token_max_ttl",
        "token_explicit_max_ttl",
        "token_period",
        "token_policies",
        "token_bound_cidrs",
        "token_num_uses",
        "token_no_default_policy",
        "token_type",
        "token_strictly_bind_ip",
        "policies",
        "ttl",
        "max_ttl",
        "period",
        "num_uses",
        "bound_cidrs",
    ];

    /// Pairs of names in [`TokenTerms::FIELDS`] that denote one field.
    pub const SYNONYMS: [(&'static str, &'static str); 6] = [
        ("policies", "token_policies"),
        ("ttl", "token_ttl"),
        ("max_ttl", "token_max_ttl"),
        ("period", "token_period"),
        ("num_uses", "token_num_uses"),
        ("bound_cidrs", "token_bound_cidrs"),
    ];

    /// Returns the settings with the given fields applied. Absent fields change nothing; an explicit `""`, `0` or `[]`
    /// clears a setting.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule.
    pub fn merged(&self, fields: &Fields) -> Result<Self> {
        let terms = self.merge_fields(fields, Self::FIELDS)?;
        match terms.kind {
            TokenKind::DefaultService | TokenKind::DefaultBatch => Err(invalid_kind_error()),
            _ if terms.policies == [ROOT_POLICY] => Err(root_not_allowed_error()),
            _ => terms.validated(),
        }
    }

    /// Applies the given fields like [`TokenTerms::merged`], but reads only the fields in `known` and does not validate
    /// the result.
    pub(super) fn merge_fields(&self, fields: &Fields, known: &[&str]) -> Result<Self> {
        let mut terms = self.clone();
        for slot in TOKEN_DURATIONS {
            if let Some(name) = terms.find_given_name(fields, known, slot.name) {
                *(slot.get_mut)(&mut terms) = fields.duration(name)?.unwrap_or_default();
            }
        }
        if let Some(name) = terms.find_given_name(fields, known, "token_policies") {
            terms.policies = normalize_token_policies(name, fields.list(name)?.unwrap_or_default())?;
        }
        if let Some(name) = terms.find_given_name(fields, known, "token_bound_cidrs") {
            let networks = Network::parse_list(fields, name)?.unwrap_or_default();
            terms.bound_cidrs = networks.into_iter().map(Network::with_bare_address).collect();
        }
        if let Some(name) = terms.find_given_name(fields, known, "token_num_uses") {
            terms.num_uses = parse_uses(fields, name, "token num uses cannot be negative")?;
        }
        if let Some(given) = fields.bool("token_no_default_policy")? {
            terms.no_default_policy = given;
        }
        if let Some(name) = terms.find_given_name(fields, known, "token_strictly_bind_ip") {
            terms.strictly_bind_ip = fields.bool(name)?.unwrap_or(false);
        }
        if let Some(word) = fields.text("token_type")? {
            terms.kind = if word.is_empty() {
                TokenKind::Default
            } else {
                TokenKind::of(&word).ok_or_else(invalid_kind_error)?
            };
        }
        Ok(terms)
    }

    /// Returns the name under which the request contains a field: `name` itself or its deprecated name. A deprecated
    /// name is recorded in the settings.
    fn find_given_name(&mut self, fields: &Fields, known: &[&str], name: &'static str) -> Option<&'static str> {
        let deprecated_name = name.strip_prefix("token_").filter(|deprecated_name| known.contains(deprecated_name));
        let old = deprecated_name.filter(|deprecated_name| fields.has(deprecated_name));
        let is_given = known.contains(&name) && fields.has(name);
        let given = is_given.then_some(name).or(old)?;
        self.older.retain(|known| Some(known.as_str()) != deprecated_name);
        self.older.extend(old.map(str::to_owned));
        Some(given)
    }

    /// Validates the rules that do not depend on the mount.
    pub(super) fn validated(self) -> Result<Self> {
        if !self.max_ttl.is_zero() && self.ttl > self.max_ttl {
            return Err(Error::invalid("ttl should not be greater than max_ttl"));
        }
        if self.strictly_bind_ip && !self.bound_cidrs.is_empty() {
            return Err(Error::invalid(
                "'token_strictly_bind_ip' conflicts with 'token_bound_cidrs'; set only one of them",
            ));
        }
        if matches!(self.kind, TokenKind::Batch | TokenKind::DefaultBatch) {
            self.check_allowed_for_batch()?;
        }
        Ok(self)
    }

    /// Rejects settings that batch tokens cannot have.
    ///
    /// # Errors
    /// `Invalid`, naming the first such setting.
    pub(super) fn check_allowed_for_batch(&self) -> Result<()> {
        let unsupported = [
            (!self.period.is_zero(), "periodic tokens"),
            (self.num_uses > 0, "tokens with limited use count"),
            (!self.explicit_max_ttl.is_zero(), "tokens with an explicit max TTL"),
        ];
        match unsupported.iter().find(|(set, _)| *set) {
            Some((_, what)) => {
                Err(Error::invalid(format!("'token_type' cannot be 'batch' when role is set to generate {what}")))
            }
            None => Ok(()),
        }
    }

    /// Validates the settings against the maximum lifetime of the mount, and returns warnings.
    ///
    /// # Errors
    /// `Invalid` for a period that is longer than the maximum lifetime.
    pub fn check(&self, mount: &Mount) -> Result<Warnings> {
        let longest = mount.max_ttl();
        if self.period > longest {
            let period = format_duration(self.period);
            let longest = format_duration(longest);
            return Err(Error::invalid(format!(
                "token period of \"{period}\" is greater than the backend's maximum lease TTL of \"{longest}\""
            )));
        }
        let mut warnings = Warnings::default();
        if self.max_ttl > longest {
            warnings.add(
                "max_ttl is greater than the system or backend mount's maximum TTL value; issued tokens' max TTL \
                 value will be truncated"
                    .to_owned(),
            );
        }
        Ok(warnings)
    }

    /// Renders the settings as the API shows them; durations in seconds.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        let durations = TOKEN_DURATIONS.map(|slot| (slot.name, json!((slot.get)(self).as_secs())));
        let others = [
            ("token_policies", json!(self.policies)),
            ("token_bound_cidrs", json!(self.bound_cidrs)),
            ("token_num_uses", json!(self.num_uses)),
            ("token_no_default_policy", json!(self.no_default_policy)),
            ("token_type", json!(self.kind.name())),
            ("token_strictly_bind_ip", json!(self.strictly_bind_ip)),
        ];
        for (name, value) in durations.into_iter().chain(others) {
            let deprecated_name = name
                .strip_prefix("token_")
                .filter(|deprecated_name| self.older.iter().any(|known| known == deprecated_name));
            shown.extend(deprecated_name.map(|deprecated_name| (deprecated_name.to_owned(), value.clone())));
            shown.insert(name.to_owned(), value);
        }
        shown
    }

    /// `true` if a client at this address may log in with the role.
    pub fn admits(&self, address: Option<IpAddr>) -> bool {
        Network::list_allows_address(&self.bound_cidrs, address)
    }
}

/// Parses the maximum number of uses in the field `name`; 0 for no limit. `negative` is the error text for a negative
/// number.
pub(super) fn parse_uses(fields: &Fields, name: &str, negative: &'static str) -> Result<u32> {
    match fields.int(name)?.unwrap_or(0) {
        below if below < 0 => Err(Error::invalid(negative)),
        uses => u32::try_from(uses).map_err(|_| Error::invalid(format!("{name}: larger than {}", u32::MAX))),
    }
}

/// The error for a login or a role that requests the policy `root`.
pub(super) fn root_not_allowed_error() -> Error {
    Error::invalid("auth methods cannot create root tokens")
}

fn invalid_kind_error() -> Error {
    Error::invalid("invalid 'token_type' value: must be \"default\", \"service\" or \"batch\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(terms: &TokenTerms, body: Value) -> Result<TokenTerms> {
        terms.merged(&Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    fn merge_error(body: Value) -> String {
        merged(&TokenTerms::default(), body).unwrap_err().text().to_owned()
    }

    #[test]
    fn token_terms_absent_fields_stay_and_empty_ones_clear() {
        let first = json!({"token_ttl": "1h", "token_policies": "Web, a,web", "token_bound_cidrs": ["192.0.2.0/24"],
            "token_num_uses": 3, "token_type": "service", "token_no_default_policy": true});
        let terms = merged(&TokenTerms::default(), first).unwrap();
        assert_eq!(
            (terms.ttl.as_secs(), &terms.policies[..], terms.num_uses),
            (3600, &["a".into(), "web".into()][..], 3)
        );
        assert_eq!(merged(&terms, json!({"token_ttl": null})).unwrap(), terms);
        let cleared = json!({"token_ttl": 0, "token_policies": [], "token_bound_cidrs": "", "token_num_uses": 0,
            "token_type": "", "token_no_default_policy": ""});
        assert_eq!(merged(&terms, cleared).unwrap(), TokenTerms::default());
    }

    #[test]
    fn token_terms_older_name_counts_if_the_newer_is_absent() {
        let terms = merged(&TokenTerms::default(), json!({"ttl": 60, "policies": "a", "token_policies": "b"})).unwrap();
        let shown = terms.to_json();
        assert_eq!((&shown["ttl"], &shown["token_ttl"]), (&json!(60), &json!(60)));
        assert_eq!((&shown["policies"], &shown["token_policies"]), (&json!(["b"]), &json!(["b"])));
        assert!(!shown.contains_key("period"));
        let newer = merged(&terms, json!({"token_ttl": 90})).unwrap().to_json();
        assert!(!newer.contains_key("ttl") && newer["token_ttl"] == 90);
        assert_eq!(newer["policies"], json!(["b"]));
    }

    #[test]
    fn token_setting_errors_name_the_field() {
        for (body, want) in [
            (json!({"token_ttl": "2h", "max_ttl": "1h"}), "ttl should not be greater than max_ttl"),
            (json!({"token_num_uses": -1}), "token num uses cannot be negative"),
            (json!({"token_num_uses": 1_u64 << 40}), "token_num_uses"),
            (json!({"token_policies": " ROOT"}), "auth methods cannot create root tokens"),
            (json!({"policies": "response-wrapping"}), "cannot assign policy"),
            (json!({"token_bound_cidrs": "192.0.2.0/24,x"}), "token_bound_cidrs:"),
            (json!({"token_type": "default-batch"}), "'token_type'"),
            (json!({"token_type": "Batch"}), "'token_type'"),
            (json!({"token_type": "batch", "token_period": "1h"}), "periodic tokens"),
            (json!({"token_type": "batch", "num_uses": 3}), "limited use count"),
            (json!({"token_type": "batch", "token_explicit_max_ttl": 9}), "explicit max TTL"),
            (json!({"token_strictly_bind_ip": true, "bound_cidrs": "::1"}), "'token_strictly_bind_ip' conflicts"),
        ] {
            let text = merge_error(body);
            assert!(text.contains(want), "{text}");
        }
    }
}
