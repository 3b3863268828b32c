//! A symmetric key of AWS KMS that wraps the root key of a store. The encryption context binds a
//! wrapped key to its store.

use std::sync::Arc;

#[cfg(feature = "keys-aws")]
use super::config::CloudAkmsConfig;
#[cfg(not(feature = "keys-aws"))]
use super::config::TYPE_NAME;
use crate::error::{Error, Result};
use crate::keys::cloud::rules;
use crate::keys::seal::SecretSource;
use crate::keys::store::SealDevice;

/// The configuration of a seal key in AWS KMS.
#[derive(Clone, PartialEq, Eq)]
pub struct AkmsSealSettings {
    /// Key ID, key ARN, alias or alias ARN.
    pub kms_key: String,
    /// The region; default: that of the environment, or `us-east-1`.
    pub region: String,
    /// URL of the service; overrides that of the region.
    pub endpoint: String,
    /// Access key ID. Without `access_key` and `secret_key`, the credential comes from the environment: variables,
    /// profile, container or machine.
    pub access_key: String,
    /// Secret access key.
    pub secret_key: Option<SecretSource>,
}

impl AkmsSealSettings {
    /// Returns the invalid settings by name, each with the rule that it breaks.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let word = |name: &str, text: &str, more: &str, length| rules::validate_url_part(name, text, more, length);
        let region = if self.region.is_empty() { Ok(()) } else { word("region", &self.region, "-", 1..=32) };
        let endpoint = match self.endpoint.as_str() {
            "" => Ok(()),
            url => crate::outbound::validate_base_url("endpoint", url).map(drop),
        };
        let both = match (self.access_key.is_empty(), &self.secret_key) {
            (true, None) | (false, Some(_)) => Ok(()),
            _ => Err(Error::invalid("access_key: must be set together with secret_key")),
        };
        let kms_key = match self.kms_key.as_str() {
            "" => Err(Error::invalid("is required for a seal of type cloudakms")),
            key => word("kms_key", key, ":/_-", 1..=rules::MAX_CLOUD_PARAMETER_BYTES),
        };
        let names = ["seal.kms_key", "seal.region", "seal.endpoint", "seal.access_key"];
        let problems = names.into_iter().zip([kms_key, region, endpoint, both]);
        let rule = |text: &str| text.split_once(": ").map_or(text, |(_, rule)| rule).to_owned();
        problems.filter_map(|(name, held)| held.err().map(|error| (name, rule(error.text())))).collect()
    }
}

/// Always fails: a build without the cargo feature `keys-aws` has no seal device for AWS KMS.
///
/// # Errors
/// `Invalid`.
#[cfg(not(feature = "keys-aws"))]
pub fn seal_device(_: &AkmsSealSettings) -> Result<Arc<dyn SealDevice>> {
    Err(Error::invalid(format!("seal.type: this build does not support {TYPE_NAME}")))
}

/// Creates the seal device of a configuration. Makes no request.
///
/// # Errors
/// Errors of reading the file with the secret access key.
#[cfg(feature = "keys-aws")]
pub fn seal_device(settings: &AkmsSealSettings) -> Result<Arc<dyn SealDevice>> {
    let secret_key = settings.secret_key.as_ref().map(|source| source.read("seal.secret_key_file")).transpose()?;
    let config = CloudAkmsConfig {
        access_key: crate::secret::Secret::new(settings.access_key.as_bytes()),
        secret_key: secret_key.unwrap_or_default(),
        kms_key: settings.kms_key.clone(),
        endpoint: settings.endpoint.clone(),
        region: settings.region.clone(),
        ..CloudAkmsConfig::default()
    };
    Ok(Arc::new(device::AkmsSealDevice::new(config)))
}

#[cfg(feature = "keys-aws")]
mod device {
    use std::sync::Arc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use futures_util::future::BoxFuture;
    use serde::Deserialize;
    use serde_json::json;
    use tokio::sync::OnceCell;
    use zeroize::Zeroizing;

    use crate::error::{Error, Result};
    use crate::keys::cloudakms::client::{AkmsClient, IDEMPOTENT_RETRY_POLICY};
    use crate::keys::cloudakms::config::{CloudAkmsConfig, TYPE_NAME};
    use crate::keys::cloudakms::failure::unexpected_response;
    use crate::keys::seal::with_timeout;
    use crate::keys::store::SealDevice;
    use crate::secret::Secret;

    const ENCRYPTION_ALGORITHM: &str = "SYMMETRIC_DEFAULT";
    /// Name of the entry in the encryption context whose value identifies the store.
    const CONTEXT_KEY: &str = "store";

    pub(super) struct AkmsSealDevice(Arc<AkmsSealService>);

    struct AkmsSealService {
        config: CloudAkmsConfig,
        client: OnceCell<AkmsClient>,
    }

    impl AkmsSealDevice {
        pub(super) fn new(config: CloudAkmsConfig) -> Self {
            Self(Arc::new(AkmsSealService { config, client: OnceCell::new() }))
        }
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct AkmsEncryptResponse {
        ciphertext_blob: String,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct AkmsDecryptResponse {
        plaintext: Zeroizing<String>,
    }

    impl AkmsSealService {
        async fn client(&self) -> Result<&AkmsClient> {
            self.client.get_or_try_init(|| AkmsClient::connect(&self.config, None)).await
        }

        async fn encrypt(&self, context: String, root: Secret) -> Result<Vec<u8>> {
            let body = json!({
                "KeyId": self.config.kms_key,
                "EncryptionAlgorithm": ENCRYPTION_ALGORITHM,
                "EncryptionContext": { CONTEXT_KEY: context },
                "Plaintext": STANDARD.encode(root.expose()),
            });
            let encrypted: AkmsEncryptResponse =
                self.client().await?.call("Encrypt", &body, IDEMPOTENT_RETRY_POLICY).await?;
            STANDARD.decode(encrypted.ciphertext_blob).map_err(|_| unexpected_response())
        }

        async fn decrypt(&self, context: String, wrapped: Vec<u8>) -> Result<Secret> {
            let body = json!({
                "KeyId": self.config.kms_key,
                "EncryptionAlgorithm": ENCRYPTION_ALGORITHM,
                "EncryptionContext": { CONTEXT_KEY: context },
                "CiphertextBlob": STANDARD.encode(wrapped),
            });
            let decrypted: AkmsDecryptResponse =
                match self.client().await?.call("Decrypt", &body, IDEMPOTENT_RETRY_POLICY).await {
                    Err(failure)
                        if failure.has_code("InvalidCiphertextException")
                            || failure.has_code("IncorrectKeyException") =>
                    {
                        return Err(Error::invalid(format!(
                            "{TYPE_NAME}: the seal key cannot decrypt the root key; use the key that sealed this store"
                        )));
                    }
                    answer => answer?,
                };
            STANDARD.decode(decrypted.plaintext.as_bytes()).map(Secret::new).map_err(|_| unexpected_response())
        }
    }

    impl SealDevice for AkmsSealDevice {
        fn kind(&self) -> &'static str {
            TYPE_NAME
        }

        fn mechanism(&self) -> &'static str {
            ENCRYPTION_ALGORITHM
        }

        fn key(&self) -> String {
            self.0.config.kms_key.clone()
        }

        fn wrap(&self, context: &str, root: Secret) -> BoxFuture<'static, Result<Vec<u8>>> {
            let service = Arc::clone(&self.0);
            let context = context.to_owned();
            let call = async move { service.encrypt(context, root).await };
            with_timeout("seal: the key service", async move { call.await.map_err(|error| error.within("seal")) })
        }

        fn unwrap(&self, context: &str, wrapped: Vec<u8>) -> BoxFuture<'static, Result<Secret>> {
            let service = Arc::clone(&self.0);
            let context = context.to_owned();
            let call = async move { service.decrypt(context, wrapped).await };
            with_timeout("seal: the key service", async move { call.await.map_err(|error| error.within("seal")) })
        }
    }
}
