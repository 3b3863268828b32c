//! The configuration of a `cloudb` mount, and its combination with defaults from environment variables.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rotation::SecretRotation;
use super::settings::CloudbFallback;
use crate::auth::login::config::ConfigWriteId;
use crate::clock::format_rfc3339;
use crate::error::{Error, Result};
use crate::fields::{Fields, Resource as _, resource};
use crate::outbound::RetryPolicy;
use crate::outbound::cloudb::{Cloud, check_tenant};
use crate::secret::{Secret, sealed};

/// Default lifetime of client secrets that a rotation creates: half a year.
const DEFAULT_ROOT_PASSWORD_TTL: Duration = Duration::from_secs(4380 * 3600);
/// Configurable lifetimes of client secrets that a rotation creates.
const ROOT_PASSWORD_TTL_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(3600)..=Duration::from_secs(10 * 365 * 24 * 3600);
const DEFAULT_MAX_RETRIES: i64 = 3;
const MAX_CONFIGURABLE_RETRIES: i64 = 100;
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(4);
const DEFAULT_MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Maximum length in bytes of a text in the configuration.
pub(crate) const MAX_CONFIG_TEXT_BYTES: usize = 2048;

resource! {
    /// The stored configuration of a `cloudb` mount.
    #[derive(Clone, Serialize, Deserialize)]
    pub(crate) struct CloudbConfig {
        text tenant_id;
        text resource;
        text environment;
        text client_id;
        #[serde(with = "sealed")]
        secret client_secret;
        timespan root_password_ttl = DEFAULT_ROOT_PASSWORD_TTL;
        /// Maximum number of retries of a call to the provider; negative for none.
        integer max_retries = DEFAULT_MAX_RETRIES;
        timespan retry_delay = DEFAULT_RETRY_DELAY;
        timespan max_retry_delay = DEFAULT_MAX_RETRY_DELAY;
        #[serde(default)]
        stored rotation: SecretRotation;
        #[serde(default)]
        stored written: ConfigWriteId;
    }
}

/// The configuration of a mount, with defaults from environment variables for values that it lacks.
#[derive(Clone)]
pub(super) struct EffectiveCloudbConfig {
    pub(super) tenant: String,
    /// Audience that a client's token must have.
    pub(super) resource: String,
    pub(super) cloud: &'static Cloud,
    pub(super) client_id: String,
    pub(super) client_secret: Secret,
    pub(super) retry_policy: RetryPolicy,
}

impl CloudbConfig {
    /// Returns `current` with the given fields and, if given, the client secret. Absent fields change nothing.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    pub(crate) fn merged(current: Option<&Self>, fields: &Fields, client_secret: Option<&Secret>) -> Result<Self> {
        let before = current.cloned().unwrap_or_default();
        let mut config = before.clone();
        config.merge_texts(fields, MAX_CONFIG_TEXT_BYTES)?;
        config.merge_numbers(fields)?;
        if let Some(secret) = client_secret {
            config.client_secret = secret.clone();
        }
        if fields.has("tenant_id") {
            check_tenant(&config.tenant_id)?;
        }
        if fields.has("environment") {
            find_cloud(&config.environment)?;
        }
        if fields.has("root_password_ttl") && !ROOT_PASSWORD_TTL_RANGE.contains(&config.root_password_ttl) {
            return Err(Error::invalid("root_password_ttl: must be between an hour and ten years"));
        }
        if fields.has("max_retries") && config.max_retries > MAX_CONFIGURABLE_RETRIES {
            return Err(Error::invalid(format!("max_retries: must be at most {MAX_CONFIGURABLE_RETRIES}")));
        }
        let Self { client_id, tenant_id, environment, client_secret, .. } = &before;
        if [client_id, tenant_id, environment] != [&config.client_id, &config.tenant_id, &config.environment]
            || *client_secret != config.client_secret
        {
            // The rotation state belongs to the previous client secret.
            config.rotation = SecretRotation::default();
        }
        config.written = ConfigWriteId::random();
        Ok(config)
    }

    /// Expiry of the client secret as RFC 3339 text; `None` if an operator set the secret.
    pub(crate) fn secret_expiry(&self) -> Option<String> {
        self.rotation.expires().map(format_rfc3339)
    }

    /// Returns the configuration `current` with defaults from environment variables (`fallback`) for values that it
    /// lacks.
    ///
    /// # Errors
    /// `Invalid`, naming the value that is missing or wrong.
    pub(super) fn effective(current: Option<&Self>, fallback: &CloudbFallback) -> Result<EffectiveCloudbConfig> {
        let default = Self::default();
        let config = current.unwrap_or(&default);
        let either = |own: &str, other: &str| if own.is_empty() { other.to_owned() } else { own.to_owned() };
        let tenant = either(&config.tenant_id, &fallback.tenant_id);
        let resource = either(&config.resource, &fallback.resource);
        for (name, text) in [("tenant_id", &tenant), ("resource", &resource)] {
            if text.is_empty() {
                return Err(Error::invalid(format!("{name} is required")));
            }
        }
        check_tenant(&tenant)?;
        let is_set = !config.client_secret.expose().is_empty();
        let client_secret = if is_set { config.client_secret.clone() } else { fallback.client_secret.clone() };
        Ok(EffectiveCloudbConfig {
            tenant,
            resource,
            cloud: find_cloud(&either(&config.environment, &fallback.environment))?,
            client_id: either(&config.client_id, &fallback.client_id),
            client_secret,
            retry_policy: RetryPolicy {
                max_retries: u32::try_from(config.max_retries).unwrap_or(0),
                first_delay: config.retry_delay,
                max_delay: config.max_retry_delay,
                max_retry_after: Duration::MAX,
            },
        })
    }

    /// `true` if both configurations come from the same configuration request and have the same connection settings.
    /// The rotation state is ignored.
    pub(super) fn has_same_connection(&self, other: &Self) -> bool {
        let Self { tenant_id, resource, environment, client_id, client_secret, .. } = self;
        let Self { max_retries, retry_delay, max_retry_delay, written, .. } = self;
        [tenant_id, resource, environment, client_id]
            == [&other.tenant_id, &other.resource, &other.environment, &other.client_id]
            && *client_secret == other.client_secret
            && *written == other.written
            && *max_retries == other.max_retries
            && [retry_delay, max_retry_delay] == [&other.retry_delay, &other.max_retry_delay]
    }

    #[cfg(test)]
    pub(super) fn with_expiry(mut self, at: crate::clock::Time) -> Self {
        self.rotation = SecretRotation::expiring_at(at);
        self
    }
}

fn find_cloud(name: &str) -> Result<&'static Cloud> {
    let unknown = || {
        let begin: String = name.chars().take(64).collect();
        Error::invalid(format!("err: no cloud configuration matching the name {begin:?}"))
    };
    Cloud::named(name).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TENANT: &str = "3fd2a5bb-6a2b-4f2a-8d6e-000000000001";

    fn written(current: Option<&CloudbConfig>, sent: Value) -> Result<CloudbConfig> {
        let mut fields = Fields::parse(sent.to_string().as_bytes()).unwrap();
        let secret = fields.take_secret("client_secret").unwrap();
        CloudbConfig::merged(current, &fields, secret.as_ref())
    }

    #[test]
    fn config_fields_that_are_not_written_stay() {
        let first = written(None, json!({"max_retries": 7, "retry_delay": "1500ms", "root_password_ttl": 3600}));
        let second = written(first.ok().as_ref(), json!({"client_id": "app"})).ok().unwrap();
        assert_eq!((second.client_id.as_str(), second.max_retries), ("app", 7));
        assert_eq!(second.max_retry_delay, DEFAULT_MAX_RETRY_DELAY);
        assert_eq!((second.retry_delay, second.root_password_ttl.as_secs()), (Duration::from_millis(1500), 3600));
    }

    #[test]
    fn config_refuses_unknown_clouds_and_invalid_tenants() {
        for good in ["AzurePublicCloud", "azurepubliccloud", "AzureUSGovernmentCloud", "AzureChinaCloud", ""] {
            assert!(written(None, json!({ "environment": good })).is_ok(), "{good}");
        }
        let error = written(None, json!({"environment": "azuresomething"})).err().unwrap();
        assert_eq!(error.text(), "err: no cloud configuration matching the name \"azuresomething\"");
        for good in [TENANT, "contoso.onmicrosoft.com", ""] {
            assert!(written(None, json!({ "tenant_id": good })).is_ok(), "{good}");
        }
        for bad in ["../evil", "a/b?x", "..", ".", "a..b", "a b", "ä", "a%2f", "a.", &"a".repeat(254)] {
            let error = written(None, json!({ "tenant_id": bad })).err().unwrap();
            assert_eq!(error.text(), "tenant_id: must be a GUID or the name of a domain", "{bad}");
        }
    }

    #[test]
    fn config_falls_back_to_the_environment() {
        let fallback = CloudbFallback {
            tenant_id: TENANT.to_owned(),
            resource: "https://env.example/".to_owned(),
            environment: "AzureChinaCloud".to_owned(),
            client_id: "env-app".to_owned(),
            client_secret: Secret::new("hunter2"),
        };
        let effective = CloudbConfig::effective(None, &fallback).ok().unwrap();
        assert_eq!((effective.tenant.as_str(), effective.client_id.as_str()), (TENANT, "env-app"));
        assert!(effective.client_secret.expose() == b"hunter2" && effective.retry_policy.max_retries == 3);
        let config = written(None, json!({"resource": "https://own.example/", "max_retries": -1})).ok().unwrap();
        assert_eq!(config.tenant_id, "");
        let effective = CloudbConfig::effective(Some(&config), &fallback).ok().unwrap();
        assert_eq!((effective.resource.as_str(), effective.retry_policy.max_retries), ("https://own.example/", 0));
        let missing =
            |fallback: CloudbFallback| CloudbConfig::effective(None, &fallback).err().unwrap().text().to_owned();
        assert_eq!(missing(CloudbFallback::default()), "tenant_id is required");
        assert_eq!(missing(CloudbFallback { resource: String::new(), ..fallback.clone() }), "resource is required");
        assert!(
            missing(CloudbFallback { tenant_id: "../evil".to_owned(), ..fallback }).starts_with("tenant_id: must be")
        );
    }

    #[test]
    fn changed_credential_discards_the_secret_expiry() {
        let at = time::macros::datetime!(2030-01-02 03:04:05 UTC);
        let config = written(None, json!({"client_secret": "a"})).ok().unwrap().with_expiry(at);
        let date = CloudbConfig::secret_expiry;
        assert_eq!(date(&config).as_deref(), Some("2030-01-02T03:04:05Z"));
        let kept = written(Some(&config), json!({"client_secret": "a", "resource": "r"}));
        assert!(date(&kept.ok().unwrap()).is_some());
        let other = written(Some(&config), json!({"client_secret": "b"}));
        assert!(date(&other.ok().unwrap()).is_none());
        let other = written(Some(&config), json!({"client_id": "b"}));
        assert!(date(&other.ok().unwrap()).is_none());
    }
}
