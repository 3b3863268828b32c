//! The parameters of a key and their validation. All are texts; `""` means absent.

use serde::{Deserialize, Serialize};

use super::suffixes::is_trusted;
use crate::error::{Error, Result};
use crate::keys::cloud::{CloudServices, rules};
use crate::keys::redaction;
use crate::outbound::cloudb::{Cloud, check_tenant};
use crate::secret::{Secret, sealed};

pub(super) const NAME: &str = "cloudbkeyvault";
/// The only supported type of key.
pub(super) const KEY_TYPE: &str = "RSA-HSM";

/// The configuration of one key.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudBkeyvaultConfig {
    /// The tenant of the directory, a GUID or a domain.
    pub tenant_id: String,
    /// The application that `client_secret` belongs to. Without both, the machine's managed identity is used.
    pub client_id: String,
    /// The client secret.
    #[serde(with = "sealed")]
    pub client_secret: Secret,
    /// The cloud; default: the public one.
    pub environment: String,
    /// Name of the vault.
    pub vault_name: String,
    /// Name of the key in the vault.
    pub key_name: String,
    /// DNS suffix of the vault; default: that of the environment.
    pub resource: String,
    /// Size of the key in bits, decimal.
    pub key_bits: String,
    /// `RSA-HSM`.
    pub key_type: String,
}

/// A change of a configuration. `None` keeps the current value.
#[derive(Default)]
#[allow(missing_docs)] // As the members of [`CloudBkeyvaultConfig`].
pub struct CloudBkeyvaultChange {
    pub tenant_id: Option<String>,
    pub client_id: Option<String>,
    pub client_secret: Option<Secret>,
    pub environment: Option<String>,
    pub vault_name: Option<String>,
    pub key_name: Option<String>,
    pub resource: Option<String>,
    pub key_bits: Option<String>,
    pub key_type: Option<String>,
}

impl CloudBkeyvaultConfig {
    /// Applies `change` to the configuration `current`, and normalizes the spelling. Except for the errors below,
    /// [`CloudBkeyvaultConfig::check`] validates the result.
    ///
    /// # Errors
    /// `Invalid` for a text that is too long, or a redacted secret that has no current value.
    pub fn changed(current: Option<&Self>, change: CloudBkeyvaultChange) -> Result<Self> {
        let mut config = current.cloned().unwrap_or_default();
        rules::replace_if_given(&mut config.tenant_id, change.tenant_id);
        rules::replace_if_given(&mut config.client_id, change.client_id);
        redaction::replace_secret("client_secret", &mut config.client_secret, change.client_secret)?;
        rules::replace_if_given(&mut config.environment, change.environment);
        rules::replace_if_given(&mut config.vault_name, change.vault_name);
        rules::replace_if_given(&mut config.key_name, change.key_name);
        rules::replace_if_given(&mut config.resource, change.resource.map(|text| text.to_ascii_lowercase()));
        rules::replace_if_given(
            &mut config.key_bits,
            change.key_bits.map(|text| if text == "0" { String::new() } else { text }),
        );
        rules::replace_if_given(&mut config.key_type, change.key_type.map(|text| text.to_ascii_uppercase()));
        let texts = config.parameters().map(|(name, text)| (name, text.as_bytes()));
        rules::check_lengths(texts.into_iter().chain([("client_secret", config.client_secret.expose())]))?;
        Ok(config)
    }

    /// Validates the parameters. `generate` allows generating the key.
    ///
    /// # Errors
    /// `Invalid`, with the parameter and the rule.
    pub fn check(&self, generate: bool, services: &CloudServices) -> Result<()> {
        rules::require_value("tenant_id", &self.tenant_id)?;
        check_tenant(&self.tenant_id)?;
        if self.client_id.is_empty() == redaction::is_set(&self.client_secret) {
            let text = "client_id and client_secret are required together, or neither of them for a managed identity";
            return Err(Error::invalid(text));
        }
        if Cloud::named(&self.environment).is_none() {
            return Err(Error::invalid(
                "environment must be one of AZUREPUBLICCLOUD, AZUREUSGOVERNMENTCLOUD, AZURECHINACLOUD",
            ));
        }
        rules::validate_url_part("vault_name", &self.vault_name, "-", 3..=24)?;
        rules::validate_url_part("key_name", &self.key_name, "-", 1..=127)?;
        // Becomes a part of a URL to which a token is sent.
        rules::validate_url_part("resource", self.resource(), ".-", 1..=253)?;
        if !is_trusted(self.resource(), &services.settings.azure.extra_suffixes) {
            return Err(Error::invalid("resource: must be the DNS suffix of a key store of the provider"));
        }
        rules::require_value("key_type", &self.key_type)?;
        if self.key_type != KEY_TYPE {
            return Err(Error::invalid("key_type must be RSA-HSM"));
        }
        rules::parse_rsa_bits(&self.key_bits, generate).map(drop)
    }

    pub(super) fn cloud(&self) -> Result<&'static Cloud> {
        Cloud::named(&self.environment).ok_or_else(|| Error::internal("an environment that was not checked"))
    }

    pub(super) fn resource(&self) -> &str {
        match self.resource.as_str() {
            "" => Cloud::named(&self.environment).map_or("", Cloud::vault),
            resource => resource,
        }
    }

    /// Size of the key in bits; 0 if it is not configured.
    pub(super) fn bits(&self) -> u32 {
        rules::parse_rsa_bits(&self.key_bits, false).unwrap_or_default()
    }

    /// The parameters for reading, with a redacted secret and with defaults for absent values.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let environment = Cloud::named(&self.environment).map_or("", |cloud| cloud.name).to_ascii_uppercase();
        let effective = |(name, text): (&'static str, &String)| match name {
            "environment" if text.is_empty() => (name, environment.clone()),
            "resource" => (name, self.resource().to_owned()),
            _ => (name, text.clone()),
        };
        let shown = self.parameters().map(effective);
        shown.into_iter().chain([("client_secret", redaction::redact(&self.client_secret).to_owned())]).collect()
    }

    fn parameters(&self) -> [(&'static str, &String); 8] {
        [
            ("tenant_id", &self.tenant_id),
            ("client_id", &self.client_id),
            ("environment", &self.environment),
            ("vault_name", &self.vault_name),
            ("key_name", &self.key_name),
            ("resource", &self.resource),
            ("key_bits", &self.key_bits),
            ("key_type", &self.key_type),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::cloud::CloudSettings;

    fn services() -> std::sync::Arc<CloudServices> {
        CloudServices::new(CloudSettings::default(), crate::clock::Clock::system()).unwrap()
    }

    fn good() -> CloudBkeyvaultConfig {
        let change = CloudBkeyvaultChange {
            tenant_id: Some("11111111-2222-3333-4444-555555555555".to_owned()),
            client_id: Some("app".to_owned()),
            client_secret: Some(Secret::new("hunter2")),
            vault_name: Some("store".to_owned()),
            key_name: Some("key".to_owned()),
            key_type: Some("rsa-hsm".to_owned()),
            ..CloudBkeyvaultChange::default()
        };
        CloudBkeyvaultConfig::changed(None, change).unwrap()
    }

    #[test]
    fn the_parameters_have_rules() {
        type Edit = fn(&mut CloudBkeyvaultConfig);
        let pair = "client_id and client_secret are required together, or neither of them for a managed identity";
        let cases: [(Edit, bool, &str); 15] = [
            (|c| c.tenant_id.clear(), false, "tenant_id is required"),
            (|c| c.tenant_id = "a/b".into(), false, "tenant_id: must be a GUID or the name of a domain"),
            (|c| c.tenant_id = "..".into(), false, "tenant_id: must be a GUID or the name of a domain"),
            (|c| c.client_id.clear(), false, pair),
            (|c| c.client_secret = Secret::default(), false, pair),
            (
                |c| c.environment = "MARS".into(),
                false,
                "environment must be one of AZUREPUBLICCLOUD, AZUREUSGOVERNMENTCLOUD, AZURECHINACLOUD",
            ),
            (|c| c.vault_name = "a".into(), false, "vault_name: must be 3 to 24 letters, digits or -"),
            (|c| c.vault_name = "evil.example/".into(), false, "vault_name: must be 3 to 24 letters, digits or -"),
            (|c| c.key_name = "a/../b".into(), false, "key_name: must be 1 to 127 letters, digits or -"),
            (|c| c.key_type.clear(), false, "key_type is required"),
            (|c| c.key_type = "RSA".into(), false, "key_type must be RSA-HSM"),
            (|_| {}, true, "key_bits must be one of 2048, 3072, 4096"),
            (|c| c.key_bits = "1024".into(), false, "key_bits must be one of 2048, 3072, 4096"),
            (
                |c| c.resource = "evil.example".into(),
                false,
                "resource: must be the DNS suffix of a key store of the provider",
            ),
            (
                |c| c.resource = "evil.example/vault.azure.net".into(),
                false,
                "resource: must be 1 to 253 letters, digits or any of . -",
            ),
        ];
        good().check(false, &services()).unwrap();
        for (edit, generate, text) in cases {
            let mut config = good();
            edit(&mut config);
            assert_eq!(config.check(generate, &services()).unwrap_err().text(), text);
        }
        let managed = CloudBkeyvaultConfig { client_id: String::new(), client_secret: Secret::default(), ..good() };
        managed.check(false, &services()).unwrap();
    }

    #[test]
    fn client_secret_is_redacted_and_survives_a_rewrite() {
        let change = CloudBkeyvaultChange {
            client_secret: Some(Secret::new(redaction::REDACTED)),
            environment: Some("azurechinacloud".to_owned()),
            ..CloudBkeyvaultChange::default()
        };
        let config = CloudBkeyvaultConfig::changed(Some(&good()), change).unwrap();
        assert!(config.client_secret.expose() == b"hunter2");
        let shown =
            |config: &CloudBkeyvaultConfig| config.shown().into_iter().collect::<std::collections::BTreeMap<_, _>>();
        assert_eq!(
            (&shown(&config)["resource"][..], &shown(&config)["client_secret"][..]),
            ("vault.azure.cn", "redacted")
        );
        let shown = shown(&good());
        assert_eq!((&shown["environment"][..], &shown["resource"][..]), ("AZUREPUBLICCLOUD", "vault.azure.net"));
        assert!(!shown.values().any(|text| text.contains("hunter2")));
    }
}
