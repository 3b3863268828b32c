//! Configuration of rate-limit quotas: the stored form, and changes by operators.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::auth::mounts::{Mount, MountClass, MountKind};
use crate::auth::policy::lower;
use crate::error::{Error, Result};
use crate::fields::{Fields, ListLimit, MAX_NAME_LEN, resource};

/// Paths that are exempt from quotas by default, because an operator needs them while other requests are rejected.
const DEFAULT_EXEMPT_PATHS: [&str; 8] = [
    "sys/generate-root/attempt",
    "sys/generate-root/update",
    "sys/generate-recovery-token/attempt",
    "sys/generate-recovery-token/update",
    "sys/health",
    "sys/live",
    "sys/seal-status",
    "sys/unseal",
];

/// Limits of one list of exempt paths. They are low, because each request is compared with every entry.
const EXEMPT_PATH_LIMITS: ListLimit = ListLimit::new(64, 2_048);

/// The requests to which a quota applies. No two quotas have the same scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QuotaScope {
    /// Accessor of the mount to whose requests the quota applies; `None` for the requests to all mounts.
    pub(super) mount: Option<String>,
    /// A path relative to the mount, or a prefix of such paths that ends in `*`; `""` for the whole mount.
    pub(super) below: String,
    /// Role that a request to issue, sign or log in must name; `""` for any.
    pub(super) role: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RateLimit {
    pub(super) scope: QuotaScope,
    /// Number of requests allowed per interval; above 0.
    pub(super) rate: f64,
    /// Length of the interval for `rate`, in seconds.
    pub(super) interval: u64,
    /// Seconds for which a client that exceeded the limit is rejected. With 0, the client is rejected only until `rate`
    /// allows another request.
    pub(super) block_interval: u64,
    /// Has no effect, because there is only one namespace; stored and returned for compatibility.
    pub(super) inheritable: bool,
}

resource! {
    /// Settings that all quotas share.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct QuotaConfig {
        /// Paths that are exempt from quotas, together with all paths below them; a final `*` matches any suffix.
        list(EXEMPT_PATH_LIMITS) rate_limit_exempt_paths = DEFAULT_EXEMPT_PATHS.map(str::to_owned).to_vec();
        /// Exempt paths relative to the root namespace. There is no other namespace, so they have the same effect as
        /// `rate_limit_exempt_paths`.
        list(EXEMPT_PATH_LIMITS) absolute_rate_limit_exempt_paths;
        /// `true` to write requests that a quota rejects to the audit log.
        flag enable_rate_limit_audit_logging = false;
        /// `true` to report the limit, the remaining requests and the reset time in response headers.
        flag enable_rate_limit_response_headers = false;
    }
}

impl QuotaConfig {
    /// `true` if the path is exempt from all quotas.
    pub(super) fn exempts(&self, path: &str) -> bool {
        let all = self.rate_limit_exempt_paths.iter().chain(&self.absolute_rate_limit_exempt_paths);
        all.map(|exempt| exempt.trim_start_matches('/')).any(|exempt| exempt_entry_covers(exempt, path))
    }
}

/// `true` if the entry `exempt` of a list exempts `path`.
fn exempt_entry_covers(exempt: &str, path: &str) -> bool {
    match exempt.strip_suffix('*') {
        Some(begin) => path.starts_with(begin),
        None => path
            .strip_prefix(exempt.trim_end_matches('/'))
            .is_some_and(|rest| !exempt.is_empty() && (rest.is_empty() || rest.starts_with('/'))),
    }
}

impl RateLimit {
    /// Returns the quota with the given fields applied; absent fields change nothing. `mount` is the mount that the
    /// field `path` names, with the rest of that path.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule.
    pub(super) fn merged(&self, fields: &Fields, mount: Option<(&Mount, &str)>) -> Result<Self> {
        let mut rule = self.clone();
        if fields.has("path") {
            rule.scope.mount = mount.map(|(mount, _)| mount.accessor.clone());
            rule.scope.below = mount.map(|(_, below)| below.to_owned()).unwrap_or_default();
            rule.inheritable = mount.is_none();
        }
        if let Some(role) = fields.text_within("role", MAX_NAME_LEN)? {
            rule.scope.role = role;
        }
        if let Some(rate) = fields.value("rate") {
            rule.rate = parse_rate(rate)?;
        }
        if !(rule.rate.is_finite() && rule.rate > 0.0) {
            return Err(invalid_rate());
        }
        if let Some(interval) = fields.duration("interval")? {
            rule.interval = whole_seconds("interval", interval)?;
        }
        rule.interval = rule.interval.max(1);
        if let Some(block) = fields.duration("block_interval").map_err(|_| Error::invalid("'block' is invalid"))? {
            rule.block_interval = whole_seconds("block_interval", block)?;
        }
        rule.inheritable = fields.bool("inheritable")?.unwrap_or(rule.inheritable);
        Ok(rule)
    }

    /// Checks that requests to the quota's mount can name a role, and normalizes the role's name. Does nothing if the
    /// quota has no role.
    ///
    /// # Errors
    /// `Invalid` if the mount has no roles, or if the quota's path is longer than that of a mount.
    pub(super) fn with_validated_role(mut self, mount: Option<&Mount>) -> Result<Self> {
        if self.scope.role.is_empty() {
            return Ok(self);
        }
        if !self.scope.below.is_empty() {
            return Err(Error::invalid("Quotas cannot contain both a path suffix and a role: path must name a mount"));
        }
        match mount {
            Some(mount) if has_roles(&mount.kind) => {
                self.scope.role = canonical_role(&mount.kind, &self.scope.role);
                Ok(self)
            }
            Some(mount) => {
                Err(Error::invalid(format!("Mount path {:?} does not support use with role-based quotas", mount.path)))
            }
            None => Err(Error::invalid("role: path must name a mount that has roles")),
        }
    }
}

/// `true` if requests to mounts of this type can name a role.
fn has_roles(kind: &MountKind) -> bool {
    *kind == MountKind::Pki || kind.class() == MountClass::Methods
}

/// Returns the canonical spelling of a role's name: in lower case for authentication methods, whose roles are
/// case-insensitive.
pub(super) fn canonical_role(kind: &MountKind, role: &str) -> String {
    if kind.class() == MountClass::Methods { lower(role).into_owned() } else { role.to_owned() }
}

/// Parses the rate of a quota: a JSON number, or text with a number.
fn parse_rate(value: &Value) -> Result<f64> {
    let rate = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    rate.ok_or_else(invalid_rate)
}

fn invalid_rate() -> Error {
    Error::invalid("'rate' is invalid")
}

fn whole_seconds(field: &str, time: Duration) -> Result<u64> {
    match time.subsec_nanos() {
        0 => Ok(time.as_secs()),
        _ => Err(Error::invalid(format!("{field}: must be whole seconds"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exempt_path_includes_paths_below_it() {
        let config = |paths: &[&str]| QuotaConfig {
            rate_limit_exempt_paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            ..QuotaConfig::default()
        };
        for (exempt, path, is) in [
            ("sys/health", "sys/health", true),
            ("/sys/health", "sys/health", true),
            ("sys/health", "sys/healthy", false),
            ("sys", "sys/mounts/pki", true),
            ("sys/", "sys/mounts", true),
            ("pki/cr*", "pki/crl/pem", true),
            ("pki/cr*", "pki/ca", false),
            ("*", "anything", true),
            ("/", "anything", false),
        ] {
            assert_eq!(config(&[exempt]).exempts(path), is, "{exempt} {path}");
        }
        assert!(QuotaConfig::default().exempts("sys/health") && !QuotaConfig::default().exempts("sys/mounts"));
        let absolute = QuotaConfig { absolute_rate_limit_exempt_paths: vec!["pki/ca".into()], ..config(&[]) };
        assert!(absolute.exempts("pki/ca/pem") && !absolute.exempts("sys/health"));
    }

    fn merged(rule: &RateLimit, sent: Value) -> Result<RateLimit, String> {
        let fields = Fields::parse(sent.to_string().as_bytes()).unwrap();
        rule.merged(&fields, None).map_err(|error| error.text().to_owned())
    }

    #[test]
    fn rates_and_times_are_checked() {
        let known = RateLimit { rate: 1.0, ..RateLimit::default() };
        for (sent, text) in [
            (json!({ "rate": 0 }), "'rate' is invalid"),
            (json!({ "rate": -1 }), "'rate' is invalid"),
            (json!({ "rate": "nan" }), "'rate' is invalid"),
            (json!({ "rate": "inf" }), "'rate' is invalid"),
            (json!({ "rate": "often" }), "'rate' is invalid"),
            (json!({ "rate": [1] }), "'rate' is invalid"),
            (json!({ "block_interval": -1 }), "'block' is invalid"),
            (json!({ "role": "r".repeat(129) }), "role: longer than 128 bytes"),
            (json!({ "interval": "1500ms" }), "interval: must be whole seconds"),
        ] {
            assert_eq!(merged(&known, sent.clone()).unwrap_err(), text, "{sent}");
        }
        assert!(merged(&RateLimit::default(), json!({})).is_err(), "a rate is required");
        let rule = merged(&RateLimit::default(), json!({ "rate": 2.5, "path": "" })).unwrap();
        assert_eq!((rule.rate, rule.interval, rule.inheritable), (2.5, 1, true));
        let sent = json!({ "rate": "2.5", "interval": "1m", "block_interval": 90, "inheritable": "T" });
        let rule = merged(&known, sent).unwrap();
        assert_eq!((rule.rate, rule.interval, rule.block_interval, rule.inheritable), (2.5, 60, 90, true));
        assert_eq!(merged(&known, json!({ "rate": null })).unwrap(), RateLimit { interval: 1, ..known });
    }
}
