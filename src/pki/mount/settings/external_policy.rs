//! `config/external-policy`: address of the policy engine, its trust anchors, and the identity data sent to it.
//!
//! Each field is validated on every write; enabling requires a URL and trust anchors. The client's private key is
//! stored encrypted (sealed), like every document, and never returned.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fields::{Resource as _, resource};
use crate::pki::policy_engine::PolicyEngine;
use crate::pki::policy_engine::tls::{CLIENT_BUNDLE_FIELD, EngineTlsMaterial, certificates_only};
use crate::secret::{Secret, sealed};

/// Maximum timeout of a call to the policy engine, seconds. Certificate requests wait no longer than this.
const MAX_TIMEOUT_SECONDS: u64 = 60;

/// Maximum length of a text field, bytes; PEM texts with certificates may be longer.
pub fn max_text_bytes(field: &str) -> usize {
    if field.starts_with("trusted_") { 256 << 10 } else { 2_048 }
}

resource! {
    /// The settings of external policy. No `Debug`, because they contain a private key.
    #[derive(Clone, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct ExternalPolicyConfig {
        /// Enables the external policy endpoints.
        flag enabled = false;
        /// HTTPS URL to which the server posts the requests.
        #[serde(rename = "url")]
        text external_service_url;
        /// Timeout of a call to the policy engine, seconds.
        seconds timeout = 15;
        /// Trust anchors for the engine's TLS certificate, PEM.
        text trusted_ca;
        /// Accepted TLS certificates of the engine, PEM.
        #[serde(rename = "trusted_leaves")]
        text trusted_leaf_certificate_bundle;
        /// Client certificate chain and private key for the engine, PEM.
        #[serde(with = "sealed")]
        stored client_bundle: Secret as [CLIENT_BUNDLE_FIELD];
        /// JMESPath of the entity data to send in addition to the entity id; empty sends only the id.
        text entity_jmespath;
        /// JMESPath of the group data to send; empty sends none.
        text group_jmespath;
        /// Time of the last write, epoch seconds; 0 for never.
        stored updated_at: i64;
    }
}

impl ExternalPolicyConfig {
    /// Validates the settings.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule, never the value.
    pub fn checked(self) -> Result<Self> {
        for slot in Self::TEXTS {
            let max = max_text_bytes(slot.name);
            if (slot.get)(&self).len() > max {
                return Err(Error::invalid(format!("{}: longer than {max} bytes", slot.name)));
            }
        }
        self.check().map(|()| self)
    }

    fn check(&self) -> Result<()> {
        if !(1..=MAX_TIMEOUT_SECONDS).contains(&self.timeout) {
            return Err(Error::invalid(format!("timeout: must be 1s to {MAX_TIMEOUT_SECONDS}s")));
        }
        if !self.external_service_url.is_empty() {
            check_url(&self.external_service_url)?;
        }
        self.tls_material()?;
        check_jmespath("entity_jmespath", &self.entity_jmespath)?;
        check_jmespath("group_jmespath", &self.group_jmespath)?;
        if self.enabled && self.external_service_url.is_empty() {
            return Err(Error::invalid("external_service_url: must be set while enabled is true"));
        }
        if self.enabled && self.trusted_ca.trim().is_empty() && self.trusted_leaf_certificate_bundle.trim().is_empty() {
            return Err(Error::invalid(
                "trusted_ca: it or trusted_leaf_certificate_bundle must be set while enabled is true",
            ));
        }
        Ok(())
    }

    fn tls_material(&self) -> Result<EngineTlsMaterial> {
        EngineTlsMaterial::read(&self.trusted_ca, &self.trusted_leaf_certificate_bundle, &self.client_bundle)
    }

    /// Creates a policy engine client for these settings. Does not connect yet.
    ///
    /// # Errors
    /// `Invalid` naming the field, `Internal` when TLS cannot be set up.
    pub(crate) fn create_engine(&self) -> Result<PolicyEngine> {
        PolicyEngine::new(&self.external_service_url, Duration::from_secs(self.timeout), self.tls_material()?)
    }

    /// Returns `true` if the settings are equal except for the time of the last write.
    pub(crate) fn equals_except_update_time(&self, other: &Self) -> bool {
        let connection = |config: &Self| Self { updated_at: 0, ..config.clone() };
        connection(self) == connection(other)
    }

    /// Returns the certificates of the client bundle as PEM. The private key is never returned.
    pub fn client_certificates(&self) -> String {
        certificates_only(&self.client_bundle)
    }
}

fn check_url(text: &str) -> Result<()> {
    let refuse = |rule: &str| Err(Error::invalid(format!("external_service_url: {rule}")));
    let Ok(url) = url::Url::parse(text) else { return refuse("is not a URL") };
    if url.scheme() != "https" || !url.has_host() {
        return refuse("must begin with https:// and have a host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must not contain a user name or password; use service_client_cert_bundle");
    }
    if url.fragment().is_some() {
        return refuse("must have no fragment");
    }
    Ok(())
}

/// Accepts the JMESPath subset: empty, `@`, and names joined by dots (`metadata.team`).
fn check_jmespath(field: &str, text: &str) -> Result<()> {
    let is_member = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if matches!(text, "" | "@") || text.split('.').all(is_member) {
        return Ok(());
    }
    Err(Error::invalid(format!("{field}: only @ and names joined by dots (a.b) of JMESPath are supported")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: fn(&mut ExternalPolicyConfig)) -> ExternalPolicyConfig {
        let mut config = ExternalPolicyConfig::default();
        change(&mut config);
        config
    }

    #[test]
    fn invalid_external_policy_config_is_refused_by_name() {
        assert!(ExternalPolicyConfig::default().checked().is_ok());
        for (config, rule) in [
            (with(|c| c.timeout = 0), "timeout: must be"),
            (with(|c| c.timeout = 61), "timeout: must be"),
            (
                with(|c| c.external_service_url = "http://e.test".to_owned()),
                "external_service_url: must begin with https",
            ),
            (with(|c| c.external_service_url = "e.test".to_owned()), "external_service_url: is not a URL"),
            (
                with(|c| c.external_service_url = "https://u:p@e.test".to_owned()),
                "external_service_url: must not contain a user name",
            ),
            (
                with(|c| c.external_service_url = "https://e.test/#x".to_owned()),
                "external_service_url: must have no fragment",
            ),
            (with(|c| c.external_service_url = "x".repeat(2_049)), "external_service_url: longer than 2048 bytes"),
            (with(|c| c.trusted_ca = "x".to_owned()), "trusted_ca: "),
            (with(|c| c.trusted_leaf_certificate_bundle = "x".to_owned()), "trusted_leaf_certificate_bundle: "),
            (with(|c| c.client_bundle = Secret::new("x".to_owned())), "service_client_cert_bundle: "),
            (with(|c| c.entity_jmespath = "a[0]".to_owned()), "entity_jmespath: only @"),
            (with(|c| c.group_jmespath = "a..b".to_owned()), "group_jmespath: only @"),
            (with(|c| c.enabled = true), "external_service_url: must be set"),
        ] {
            let error = config.checked().err().unwrap();
            assert!(error.text().starts_with(rule), "{rule}: {error}");
        }
        let untrusting = ExternalPolicyConfig {
            enabled: true,
            external_service_url: "https://e.test".to_owned(),
            ..ExternalPolicyConfig::default()
        };
        assert!(untrusting.checked().err().unwrap().text().starts_with("trusted_ca: it or"));
    }

    #[test]
    fn changed_connection_is_distinguished_from_a_later_write() {
        let later = with(|c| c.updated_at = 5);
        assert!(later.equals_except_update_time(&ExternalPolicyConfig::default()));
        assert!(!with(|c| c.timeout = 3).equals_except_update_time(&later));
    }
}
