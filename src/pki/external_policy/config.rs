//! `config/external-policy`: where the policy engine is, whom to trust for it, and how to show who asks.
//!
//! Each member is checked whenever it is written; enabling needs an address and something to trust. The
//! client's private key is sealed like every document and never read back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::tls;
use crate::clock::{Time, rfc3339};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::pki::role::whole_seconds;
use crate::secret::{Secret, sealed};

/// Body members.
pub const FIELDS: &[&str] = &[
    "enabled",
    "external_service_url",
    "timeout",
    "trusted_ca",
    "trusted_leaf_certificate_bundle",
    CLIENT_BUNDLE,
    "entity_jmespath",
    "group_jmespath",
];

/// The member with the client's certificate chain and private key: a secret.
pub(super) const CLIENT_BUNDLE: &str = "service_client_cert_bundle";

/// Longest time for one exchange, seconds: requests that wait for the engine wait no longer.
const MAX_TIMEOUT: u64 = 60;

/// Longest text, but for certificates.
const MAX_TEXT: usize = 2_048;
/// Longest PEM text.
const MAX_CERTIFICATES: usize = 256 << 10;

/// The settings. No `Debug`: a private key is among them.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Whether the endpoints may be used.
    pub enabled: bool,
    /// Where questions are posted: https.
    pub url: String,
    /// Longest time for one exchange, seconds.
    pub timeout: u64,
    /// PEM: authorities for the engine's TLS certificate.
    pub trusted_ca: String,
    /// PEM: the certificates of which the engine must show one.
    pub trusted_leaves: String,
    /// PEM: the certificate chain and the key that are shown to the engine.
    #[serde(with = "sealed")]
    pub client_bundle: Secret,
    /// What is selected of an entity before it is sent.
    pub entity_jmespath: String,
    /// What is selected of groups before they are sent.
    pub group_jmespath: String,
    /// When the settings were written last, epoch seconds; 0 is never.
    pub updated_at: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: false,
            url: String::new(),
            timeout: 15,
            trusted_ca: String::new(),
            trusted_leaves: String::new(),
            client_bundle: Secret::default(),
            entity_jmespath: String::new(),
            group_jmespath: String::new(),
            updated_at: 0,
        }
    }
}

impl Config {
    /// Takes what `fields` has, and `bundle`, which was taken out of them; absent members stay.
    ///
    /// # Errors
    /// `Invalid` naming the member and the rule, never quoting it.
    pub fn merged(&self, fields: &Fields, bundle: Option<&Secret>, now: Time) -> Result<Self> {
        let within = |name: &str, old: &str, bytes| {
            fields.text_within(name, bytes).map(|new| new.unwrap_or_else(|| old.to_owned()))
        };
        let (text, certificates) =
            (|name, old| within(name, old, MAX_TEXT), |name, old| within(name, old, MAX_CERTIFICATES));
        let config = Self {
            enabled: fields.bool("enabled")?.unwrap_or(self.enabled),
            url: text("external_service_url", &self.url)?.trim().to_owned(),
            timeout: fields.duration("timeout")?.map_or(Ok(self.timeout), |t| whole_seconds("timeout", t))?,
            trusted_ca: certificates("trusted_ca", &self.trusted_ca)?,
            trusted_leaves: certificates("trusted_leaf_certificate_bundle", &self.trusted_leaves)?,
            client_bundle: bundle.unwrap_or(&self.client_bundle).clone(),
            entity_jmespath: text("entity_jmespath", &self.entity_jmespath)?,
            group_jmespath: text("group_jmespath", &self.group_jmespath)?,
            updated_at: now.unix_timestamp(),
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        if !(1..=MAX_TIMEOUT).contains(&self.timeout) {
            return Err(Error::invalid(format!("timeout: must be 1s to {MAX_TIMEOUT}s")));
        }
        if !self.url.is_empty() {
            check_url(&self.url)?;
        }
        tls::Material::read(self)?;
        check_expression("entity_jmespath", &self.entity_jmespath)?;
        check_expression("group_jmespath", &self.group_jmespath)?;
        if self.enabled && self.url.is_empty() {
            return Err(Error::invalid("external_service_url: must be set while enabled is true"));
        }
        if self.enabled && self.trusted_ca.trim().is_empty() && self.trusted_leaves.trim().is_empty() {
            return Err(Error::invalid(
                "trusted_ca: it or trusted_leaf_certificate_bundle must be set while enabled is true",
            ));
        }
        Ok(())
    }

    /// Whether the way to the engine is the same.
    pub(in crate::pki) fn leads_to_the_same(&self, other: &Self) -> bool {
        let way = |config: &Self| Self { updated_at: 0, ..config.clone() };
        way(self) == way(other)
    }

    /// The members of an answer. Of the client's bundle only the certificates are shown.
    pub fn to_json(&self) -> Map<String, Value> {
        let updated = Time::from_unix_timestamp(self.updated_at).ok().filter(|_| self.updated_at > 0);
        let members = json!({
            "enabled": self.enabled,
            "external_service_url": self.url,
            "timeout": self.timeout,
            "trusted_ca": self.trusted_ca,
            "trusted_leaf_certificate_bundle": self.trusted_leaves,
            "service_client_cert_bundle": tls::certificates_alone(&self.client_bundle),
            "entity_jmespath": self.entity_jmespath,
            "group_jmespath": self.group_jmespath,
            "external_service_last_updated": updated.map(rfc3339).unwrap_or_default(),
        });
        match members {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }
}

fn check_url(text: &str) -> Result<()> {
    let refuse = |rule: &str| Err(Error::invalid(format!("external_service_url: {rule}")));
    let Ok(url) = url::Url::parse(text) else { return refuse("is not a URL") };
    if url.scheme() != "https" || !url.has_host() {
        return refuse("must begin with https:// and have a host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must hold no user name or password; use service_client_cert_bundle");
    }
    if url.fragment().is_some() {
        return refuse("must have no fragment");
    }
    Ok(())
}

/// Of JMESPath the whole value (`@`, or nothing) and members of members (`metadata.team`).
fn check_expression(field: &str, text: &str) -> Result<()> {
    let is_member = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if matches!(text, "" | "@") || text.split('.').all(is_member) {
        return Ok(());
    }
    Err(Error::invalid(format!("{field}: not supported: of JMESPath, @ and names joined by dots (a.b) are")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use time::macros::datetime;

    const NOW: Time = datetime!(2030-06-01 12:00:00 UTC);

    fn merged(config: &Config, body: Value) -> Result<Config> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        let bundle = fields.take_secret(CLIENT_BUNDLE).unwrap();
        config.merged(&fields, bundle.as_ref(), NOW)
    }

    #[test]
    fn the_defaults_are_disabled_and_absent_members_stay() {
        let first = merged(&Config::default(), json!({})).unwrap();
        assert!(!first.enabled && first.timeout == 15 && first.updated_at == NOW.unix_timestamp());
        let second = merged(&first, json!({ "external_service_url": "https://e.test/x", "timeout": "3s" })).unwrap();
        let third = merged(&second, json!({ "group_jmespath": "a.b" })).unwrap();
        assert_eq!((third.url.as_str(), third.timeout, third.group_jmespath.as_str()), ("https://e.test/x", 3, "a.b"));
        assert!(!third.leads_to_the_same(&first) && third.leads_to_the_same(&third.clone()));
    }

    #[test]
    fn what_breaks_a_rule_is_refused_by_its_name() {
        for (body, rule) in [
            (json!({ "timeout": 0 }), "timeout: must be"),
            (json!({ "timeout": "" }), "timeout: must be"),
            (json!({ "timeout": "61s" }), "timeout: must be"),
            (json!({ "timeout": "500ms" }), "timeout"),
            (json!({ "external_service_url": "http://e.test" }), "external_service_url: must begin with https"),
            (json!({ "external_service_url": "e.test" }), "external_service_url: is not a URL"),
            (json!({ "external_service_url": "https://u:p@e.test" }), "external_service_url: must hold no user"),
            (json!({ "external_service_url": "https://e.test/#x" }), "external_service_url: must have no fragment"),
            (json!({ "trusted_ca": "x" }), "trusted_ca: "),
            (json!({ "trusted_leaf_certificate_bundle": "x" }), "trusted_leaf_certificate_bundle: "),
            (json!({ "service_client_cert_bundle": "x" }), "service_client_cert_bundle: "),
            (json!({ "entity_jmespath": "a[0]" }), "entity_jmespath: not supported"),
            (json!({ "group_jmespath": "a..b" }), "group_jmespath: not supported"),
            (json!({ "enabled": true }), "external_service_url: must be set"),
            (json!({ "enabled": true, "external_service_url": "https://e.test" }), "trusted_ca: it or"),
        ] {
            let error = merged(&Config::default(), body.clone()).err().unwrap();
            assert!(error.text().starts_with(rule), "{body}: {error}");
        }
    }
}
