//! The parameters of a key in Azure Key Vault and their validation. All are texts; `""` means absent.

use serde::{Deserialize, Serialize};

use super::suffixes::is_trusted_suffix;
use crate::error::{Error, Result};
use crate::fields::resource;
use crate::keys::cloud::{CloudKeyConfig, CloudServices, rules};
use crate::keys::redaction;
use crate::outbound::cloudb::{Cloud, check_tenant};
use crate::secret::sealed;

pub(super) const TYPE_NAME: &str = "cloudbkeyvault";
/// The only supported type of key.
pub(super) const SUPPORTED_KEY_TYPE: &str = "RSA-HSM";

resource! {
    /// The configuration of one key in Azure Key Vault.
    #[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CloudBkeyvaultConfig {
        /// The tenant of the directory that issues access tokens, a GUID or a domain.
        text tenant_id;
        /// The application that `client_secret` belongs to. Without both, the machine's managed identity is used.
        text client_id;
        /// The secret of the application `client_id`.
        #[serde(with = "sealed")]
        secret client_secret;
        /// Name of the Azure cloud; default: `AZUREPUBLICCLOUD`.
        text environment;
        /// Name of the vault.
        text vault_name;
        /// Name of the key in the vault.
        text key_name;
        /// DNS suffix of the vault; default: that of the environment.
        text resource;
        /// Size of the key in bits, decimal.
        text key_bits;
        /// Type of the key; only `RSA-HSM` is supported.
        text key_type;
    }
}

impl CloudKeyConfig for CloudBkeyvaultConfig {
    fn normalize(name: &str, text: String) -> String {
        match name {
            "resource" => text.to_ascii_lowercase(),
            "key_bits" if text == "0" => String::new(),
            "key_type" => text.to_ascii_uppercase(),
            _ => text,
        }
    }

    fn default_value(&self, name: &str) -> String {
        match name {
            "environment" => Cloud::named("").map_or("", |cloud| cloud.name).to_ascii_uppercase(),
            "resource" => self.resource().to_owned(),
            _ => String::new(),
        }
    }
}

impl CloudBkeyvaultConfig {
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
        // `resource` becomes a part of the URL to which an access token is sent.
        rules::validate_url_part("resource", self.resource(), ".-", 1..=253)?;
        if !is_trusted_suffix(self.resource(), &services.settings.azure.extra_suffixes) {
            return Err(Error::invalid("resource: must be a DNS suffix of Azure Key Vault or in azure_extra_suffixes"));
        }
        rules::require_value("key_type", &self.key_type)?;
        if self.key_type != SUPPORTED_KEY_TYPE {
            return Err(Error::invalid("key_type must be RSA-HSM"));
        }
        rules::parse_rsa_bits(&self.key_bits, generate).map(drop)
    }

    pub(super) fn cloud(&self) -> Result<&'static Cloud> {
        Cloud::named(&self.environment).ok_or_else(|| Error::internal("environment: unknown cloud"))
    }

    pub(super) fn resource(&self) -> &str {
        match self.resource.as_str() {
            "" => Cloud::named(&self.environment).map_or("", Cloud::default_key_store_suffix),
            resource => resource,
        }
    }

    /// Size of the key in bits; 0 if it is not configured.
    pub(super) fn bits(&self) -> u32 {
        rules::parse_rsa_bits(&self.key_bits, false).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::cloud::CloudSettings;
    use crate::secret::Secret;

    fn services() -> std::sync::Arc<CloudServices> {
        CloudServices::new(CloudSettings::default(), crate::clock::Clock::system()).unwrap()
    }

    fn valid_config() -> CloudBkeyvaultConfig {
        CloudBkeyvaultConfig {
            tenant_id: "11111111-2222-3333-4444-555555555555".to_owned(),
            client_id: "app".to_owned(),
            client_secret: Secret::new("hunter2"),
            vault_name: "store".to_owned(),
            key_name: "key".to_owned(),
            key_type: "RSA-HSM".to_owned(),
            ..CloudBkeyvaultConfig::default()
        }
    }

    #[test]
    fn invalid_parameters_are_refused() {
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
                "resource: must be a DNS suffix of Azure Key Vault or in azure_extra_suffixes",
            ),
            (
                |c| c.resource = "evil.example/vault.azure.net".into(),
                false,
                "resource: must be 1 to 253 letters, digits or any of . -",
            ),
        ];
        valid_config().check(false, &services()).unwrap();
        for (edit, generate, text) in cases {
            let mut config = valid_config();
            edit(&mut config);
            assert_eq!(config.check(generate, &services()).unwrap_err().text(), text);
        }
        let managed =
            CloudBkeyvaultConfig { client_id: String::new(), client_secret: Secret::default(), ..valid_config() };
        managed.check(false, &services()).unwrap();
    }
}
