//! A symmetric key of the service that wraps the root key of a store. What it wraps is bound to its store by the
//! encryption context.

use std::sync::Arc;

#[cfg(feature = "keys-aws")]
use super::config::CloudAkmsConfig;
#[cfg(not(feature = "keys-aws"))]
use super::config::NAME;
use crate::error::{Error, Result};
use crate::keys::cloud::rules;
use crate::keys::seal::SecretSource;
use crate::keys::store::SealDevice;

/// The configuration of a seal key at the service.
#[derive(Clone, PartialEq, Eq)]
pub struct AkmsSealSettings {
    /// Identifier, ARN, alias or ARN of the alias of the key.
    pub kms_key: String,
    /// The region; without one that of the process's environment, or else `us-east-1`.
    pub region: String,
    /// URL of the service, in place of the region's own.
    pub endpoint: String,
    /// Identifier of the access key. Without the two of them the credential is the one of the process's
    /// environment: variables, profile, container or machine.
    pub access_key: String,
    /// The access key.
    pub secret_key: Option<SecretSource>,
}

impl AkmsSealSettings {
    /// What is wrong with it: settings, below `seal`, and rules.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let word = |name: &str, text: &str, more: &str, length| rules::word(name, text, more, length);
        let region = if self.region.is_empty() { Ok(()) } else { word("region", &self.region, "-", 1..=32) };
        let endpoint = match self.endpoint.as_str() {
            "" => Ok(()),
            url => crate::outbound::base_url("endpoint", url).map(drop),
        };
        let both = match (self.access_key.is_empty(), &self.secret_key) {
            (true, None) | (false, Some(_)) => Ok(()),
            _ => Err(Error::invalid("access_key: must be given with secret_key, or neither of them")),
        };
        let kms_key = match self.kms_key.as_str() {
            "" => Err(Error::invalid("must be given with a seal of type cloudakms")),
            key => word("kms_key", key, ":/_-", 1..=rules::LONGEST),
        };
        let names = ["seal.kms_key", "seal.region", "seal.endpoint", "seal.access_key"];
        let problems = names.into_iter().zip([kms_key, region, endpoint, both]);
        let rule = |text: &str| text.split_once(": ").map_or(text, |(_, rule)| rule).to_owned();
        problems.filter_map(|(name, held)| held.err().map(|error| (name, rule(error.text())))).collect()
    }
}

/// The seal key of a configuration. Asks nobody.
///
/// # Errors
/// Those of the file of the secret; `Invalid` in a build without the SDK.
#[cfg(not(feature = "keys-aws"))]
pub fn seal_device(_: &AkmsSealSettings) -> Result<Arc<dyn SealDevice>> {
    Err(Error::invalid(format!("seal.type: this build has no {NAME}")))
}

/// The seal key of a configuration. Asks nobody.
///
/// # Errors
/// Those of the file of the secret; `Invalid` in a build without the SDK.
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
    Ok(Arc::new(device::KmsSeal::new(config)))
}

#[cfg(feature = "keys-aws")]
mod device {
    use std::sync::Arc;

    use aws_sdk_kms::Client;
    use aws_sdk_kms::primitives::Blob;
    use aws_sdk_kms::types::EncryptionAlgorithmSpec::SymmetricDefault;
    use futures_util::future::BoxFuture;
    use tokio::sync::OnceCell;

    use crate::error::{Error, Kind, Result};
    use crate::keys::cloudakms::client::connect;
    use crate::keys::cloudakms::config::{CloudAkmsConfig, NAME};
    use crate::keys::cloudakms::failure::failed;
    use crate::keys::seal::in_time;
    use crate::keys::store::SealDevice;
    use crate::secret::Secret;

    /// The name of the store in the encryption context.
    const CONTEXT: &str = "store";

    pub(super) struct KmsSeal(Arc<Service>);

    struct Service {
        config: CloudAkmsConfig,
        client: OnceCell<Client>,
    }

    impl KmsSeal {
        pub(super) fn new(config: CloudAkmsConfig) -> Self {
            Self(Arc::new(Service { config, client: OnceCell::new() }))
        }
    }

    impl Service {
        async fn client(&self) -> &Client {
            self.client.get_or_init(|| connect(&self.config, None)).await
        }

        async fn encrypt(&self, context: String, root: Secret) -> Result<Vec<u8>> {
            let call = self.client().await.encrypt().key_id(&self.config.kms_key).encryption_context(CONTEXT, context);
            let call = call.encryption_algorithm(SymmetricDefault).plaintext(Blob::new(root.expose()));
            let answer = call.send().await.map_err(failed)?;
            answer.ciphertext_blob.map(Blob::into_inner).ok_or_else(not_understood)
        }

        async fn decrypt(&self, context: String, wrapped: Vec<u8>) -> Result<Secret> {
            let call = self.client().await.decrypt().key_id(&self.config.kms_key).encryption_context(CONTEXT, context);
            let call = call.encryption_algorithm(SymmetricDefault).ciphertext_blob(Blob::new(wrapped));
            let answer = call.send().await.map_err(|error| {
                let refused = error.as_service_error();
                match refused.is_some_and(|e| e.is_invalid_ciphertext_exception() || e.is_incorrect_key_exception()) {
                    true => Error::invalid(format!("{NAME}: the key does not open the root key of this store")),
                    false => failed(error),
                }
            })?;
            answer.plaintext.map(|plain| Secret::new(plain.into_inner())).ok_or_else(not_understood)
        }
    }

    impl SealDevice for KmsSeal {
        fn kind(&self) -> &'static str {
            NAME
        }

        fn mechanism(&self) -> &'static str {
            "SYMMETRIC_DEFAULT"
        }

        fn key(&self) -> String {
            self.0.config.kms_key.clone()
        }

        fn wrap(&self, context: &str, root: Secret) -> BoxFuture<'static, Result<Vec<u8>>> {
            let (service, context) = (Arc::clone(&self.0), context.to_owned());
            let call = async move { service.encrypt(context, root).await };
            in_time("seal: the key service", async move { call.await.map_err(|error| error.within("seal")) })
        }

        fn unwrap(&self, context: &str, wrapped: Vec<u8>) -> BoxFuture<'static, Result<Secret>> {
            let (service, context) = (Arc::clone(&self.0), context.to_owned());
            let call = async move { service.decrypt(context, wrapped).await };
            in_time("seal: the key service", async move { call.await.map_err(|error| error.within("seal")) })
        }
    }

    fn not_understood() -> Error {
        Error::new(Kind::BadGateway, format!("{NAME}: the answer of the service is not understood"))
    }
}
