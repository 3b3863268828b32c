//! Configuration of a mount, and its combination with the server's environment.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rotation::SecretRotation;
use super::settings::Fallback;
use crate::auth::login::config::ConfigWriteId;
use crate::clock::format_rfc3339;
use crate::error::{Error, Result};
use crate::fields::resource;
use crate::outbound::RetryPolicy;
use crate::outbound::cloudb::{Cloud, check_tenant};
use crate::secret::{Secret, sealed};

/// Default lifetime of rotated secrets: half a year.
const DEFAULT_ROOT_PASSWORD_TTL: Duration = Duration::from_secs(4380 * 3600);
/// Allowed lifetimes of rotated secrets.
const ROOT_PASSWORD_TTL_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(3600)..=Duration::from_secs(10 * 365 * 24 * 3600);
const DEFAULT_MAX_RETRIES: i64 = 3;
const MAX_CONFIGURABLE_RETRIES: i64 = 100;
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(4);
const DEFAULT_MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

resource! {
    /// The configuration, as stored.
    #[derive(Clone, Serialize, Deserialize)]
    pub(crate) struct CloudbConfig {
        text tenant_id;
        text resource;
        text environment;
        text client_id;
        #[serde(with = "sealed")]
        secret client_secret;
        value root_password_ttl: Duration = DEFAULT_ROOT_PASSWORD_TTL;
        /// Attempts after the first one; negative for none.
        value max_retries: i64 = DEFAULT_MAX_RETRIES;
        value retry_delay: Duration = DEFAULT_RETRY_DELAY;
        value max_retry_delay: Duration = DEFAULT_MAX_RETRY_DELAY;
        #[serde(default)]
        stored rotation: SecretRotation;
        #[serde(default)]
        stored written: ConfigWriteId;
    }
}

/// A change of the configuration; `None` keeps a value.
#[derive(Clone, Default)]
pub(crate) struct CloudbConfigChange {
    pub(crate) tenant_id: Option<String>,
    pub(crate) resource: Option<String>,
    pub(crate) environment: Option<String>,
    pub(crate) client_id: Option<String>,
    pub(crate) client_secret: Option<Secret>,
    pub(crate) root_password_ttl: Option<Duration>,
    pub(crate) max_retries: Option<i64>,
    pub(crate) retry_delay: Option<Duration>,
    pub(crate) max_retry_delay: Option<Duration>,
}

/// The configuration with defaults from the environment.
#[derive(Clone)]
pub(super) struct EffectiveCloudbConfig {
    pub(super) tenant: String,
    /// Expected audience of tokens.
    pub(super) resource: String,
    pub(super) cloud: &'static Cloud,
    pub(super) client_id: String,
    pub(super) client_secret: Secret,
    pub(super) tries: RetryPolicy,
}

impl CloudbConfig {
    /// Applies a change.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    pub(crate) fn changed(current: Option<&Self>, change: CloudbConfigChange) -> Result<Self> {
        let mut config = current.cloned().unwrap_or_default();
        if let Some(tenant) = &change.tenant_id {
            check_tenant(tenant)?;
        }
        if let Some(name) = &change.environment {
            find_cloud(name)?;
        }
        let is_other = |written: &Option<String>, current: &str| written.as_deref().is_some_and(|id| id != current);
        if change.root_password_ttl.is_some_and(|ttl| !ROOT_PASSWORD_TTL_RANGE.contains(&ttl)) {
            return Err(Error::invalid("root_password_ttl: must be between an hour and ten years"));
        }
        if change.max_retries.is_some_and(|retries| retries > MAX_CONFIGURABLE_RETRIES) {
            return Err(Error::invalid(format!("max_retries: at most {MAX_CONFIGURABLE_RETRIES}")));
        }
        if is_other(&change.client_id, &config.client_id)
            || is_other(&change.tenant_id, &config.tenant_id)
            || is_other(&change.environment, &config.environment)
            || change.client_secret.as_ref().is_some_and(|secret| *secret != config.client_secret)
        {
            // The rotation state belongs to the previous secret.
            config.rotation = SecretRotation::default();
        }
        set_if_given(&mut config.tenant_id, change.tenant_id);
        set_if_given(&mut config.resource, change.resource);
        set_if_given(&mut config.environment, change.environment);
        set_if_given(&mut config.client_id, change.client_id);
        set_if_given(&mut config.client_secret, change.client_secret);
        set_if_given(&mut config.root_password_ttl, change.root_password_ttl);
        set_if_given(&mut config.max_retries, change.max_retries);
        set_if_given(&mut config.retry_delay, change.retry_delay);
        set_if_given(&mut config.max_retry_delay, change.max_retry_delay);
        config.written = ConfigWriteId::now();
        Ok(config)
    }

    /// Expiry of the secret as RFC 3339, if a rotation created it.
    pub(crate) fn secret_expiry(&self) -> Option<String> {
        self.rotation.expires().map(format_rfc3339)
    }

    /// Combines the configuration with defaults from the environment.
    ///
    /// # Errors
    /// `Invalid`, naming the value that is missing or wrong.
    pub(super) fn effective(current: Option<&Self>, fallback: &Fallback) -> Result<EffectiveCloudbConfig> {
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
            tries: RetryPolicy {
                more: u32::try_from(config.max_retries).unwrap_or(0),
                first: config.retry_delay,
                max_wait: config.max_retry_delay,
                max_retry_after: Duration::MAX,
            },
        })
    }

    /// `true` if `other` is of the same write with the same connection settings; the rotation state is ignored.
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
        self.rotation = SecretRotation::ending(at);
        self
    }
}

fn set_if_given<T>(current: &mut T, written: Option<T>) {
    if let Some(written) = written {
        *current = written;
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
    use super::*;

    const TENANT: &str = "3fd2a5bb-6a2b-4f2a-8d6e-000000000001";

    fn change(edit: impl FnOnce(&mut CloudbConfigChange)) -> CloudbConfigChange {
        let mut change = CloudbConfigChange::default();
        edit(&mut change);
        change
    }

    fn written(current: Option<&CloudbConfig>, edit: impl FnOnce(&mut CloudbConfigChange)) -> Result<CloudbConfig> {
        CloudbConfig::changed(current, change(edit))
    }

    #[test]
    fn config_fields_that_are_not_written_stay() {
        let first = written(None, |c| {
            c.max_retries = Some(7);
            c.retry_delay = Some(Duration::from_millis(1500));
            c.root_password_ttl = Some(Duration::from_secs(3600));
        });
        let second = written(first.ok().as_ref(), |c| c.client_id = Some("app".to_owned())).ok().unwrap();
        assert_eq!((second.client_id.as_str(), second.max_retries), ("app", 7));
        assert_eq!(second.max_retry_delay, DEFAULT_MAX_RETRY_DELAY);
        assert_eq!((second.retry_delay, second.root_password_ttl.as_secs()), (Duration::from_millis(1500), 3600));
    }

    #[test]
    fn config_refuses_unknown_clouds_and_invalid_tenants() {
        for good in ["AzurePublicCloud", "azurepubliccloud", "AzureUSGovernmentCloud", "AzureChinaCloud", ""] {
            assert!(written(None, |c| c.environment = Some(good.to_owned())).is_ok(), "{good}");
        }
        let error = written(None, |c| c.environment = Some("azuresomething".to_owned())).err().unwrap();
        assert_eq!(error.text(), "err: no cloud configuration matching the name \"azuresomething\"");
        for good in [TENANT, "contoso.onmicrosoft.com", ""] {
            assert!(written(None, |c| c.tenant_id = Some(good.to_owned())).is_ok(), "{good}");
        }
        for bad in ["../evil", "a/b?x", "..", ".", "a..b", "a b", "ä", "a%2f", "a.", &"a".repeat(254)] {
            let error = written(None, |c| c.tenant_id = Some(bad.to_owned())).err().unwrap();
            assert_eq!(error.text(), "tenant_id: must be a GUID or the name of a domain", "{bad}");
        }
    }

    #[test]
    fn config_falls_back_to_the_environment() {
        let fallback = Fallback {
            tenant_id: TENANT.to_owned(),
            resource: "https://env.example/".to_owned(),
            environment: "AzureChinaCloud".to_owned(),
            client_id: "env-app".to_owned(),
            client_secret: Secret::new("hunter2"),
        };
        let effective = CloudbConfig::effective(None, &fallback).ok().unwrap();
        assert_eq!((effective.tenant.as_str(), effective.client_id.as_str()), (TENANT, "env-app"));
        assert!(effective.client_secret.expose() == b"hunter2" && effective.tries.more == 3);
        let config = written(None, |c| {
            c.resource = Some("https://own.example/".to_owned());
            c.max_retries = Some(-1);
        });
        let config = config.ok().unwrap();
        assert_eq!(config.tenant_id, "");
        let effective = CloudbConfig::effective(Some(&config), &fallback).ok().unwrap();
        assert_eq!((effective.resource.as_str(), effective.tries.more), ("https://own.example/", 0));
        let missing = |fallback: Fallback| CloudbConfig::effective(None, &fallback).err().unwrap().text().to_owned();
        assert_eq!(missing(Fallback::default()), "tenant_id is required");
        assert_eq!(missing(Fallback { resource: String::new(), ..fallback.clone() }), "resource is required");
        assert!(missing(Fallback { tenant_id: "../evil".to_owned(), ..fallback }).starts_with("tenant_id: must be"));
    }

    #[test]
    fn changed_credential_discards_the_secret_expiry() {
        let at = time::macros::datetime!(2030-01-02 03:04:05 UTC);
        let config = written(None, |c| c.client_secret = Some(Secret::new("a"))).ok().unwrap().with_expiry(at);
        let date = CloudbConfig::secret_expiry;
        assert_eq!(date(&config).as_deref(), Some("2030-01-02T03:04:05Z"));
        let kept = written(Some(&config), |c| {
            c.client_secret = Some(Secret::new("a"));
            c.resource = Some("r".to_owned());
        });
        assert!(date(&kept.ok().unwrap()).is_some());
        let other = written(Some(&config), |c| c.client_secret = Some(Secret::new("b")));
        assert!(date(&other.ok().unwrap()).is_none());
        let other = written(Some(&config), |c| c.client_id = Some("b".to_owned()));
        assert!(date(&other.ok().unwrap()).is_none());
    }
}
