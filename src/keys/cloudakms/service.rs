//! The calls of the service, for one key.

use std::time::Duration;

use aws_sdk_kms::Client;
use aws_sdk_kms::config::http::HttpResponse;
use aws_sdk_kms::error::SdkError;
use aws_sdk_kms::operation::create_alias::CreateAliasError;
use aws_sdk_kms::primitives::Blob;
use aws_sdk_kms::types::{KeyMetadata, KeySpec, KeyState, KeyUsageType, MessageType, SigningAlgorithmSpec};
use tokio::sync::OnceCell;

use super::client::{connect, once};
use super::config::{CloudAkmsConfig, NAME};
use super::failure::failed;
use crate::error::{Error, Kind, Result};
use crate::keys::cloud::Service;
use crate::keys::signer::Known;
use crate::outbound::Reach;
use crate::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

/// How long the service keeps a key that it was told to delete, days; it knows no less.
const DELETION_DAYS: i32 = 7;
/// Pauses between the attempts to name a new key that the service does not find yet.
const ALIAS_PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

/// One key at the service.
pub(super) struct Kms {
    config: CloudAkmsConfig,
    reach: Reach,
    client: OnceCell<Client>,
}

impl Kms {
    pub(super) fn new(config: CloudAkmsConfig, reach: Reach) -> Self {
        Self { config, reach, client: OnceCell::new() }
    }

    async fn client(&self) -> &Client {
        self.client.get_or_init(|| connect(&self.config, Some(self.reach))).await
    }

    /// Gives the ARN of a key that is what the configuration says.
    fn hold(&self, key: KeyMetadata) -> Result<String> {
        let differs = |what: &str, is: &str, wanted: &str| {
            Err(Error::invalid(format!("{NAME}: the {what} of the key is {is}, and has to be {wanted}")))
        };
        match key.key_usage() {
            Some(KeyUsageType::SignVerify) => {}
            usage => return differs("key usage", usage.map_or("unknown", KeyUsageType::as_str), "SIGN_VERIFY"),
        }
        match key.key_state() {
            Some(KeyState::Enabled) if key.enabled() => {}
            Some(KeyState::Enabled) => return Err(Error::invalid(format!("{NAME}: the key is disabled"))),
            state => return differs("state", state.map_or("unknown", KeyState::as_str), "Enabled"),
        }
        let spec = key.key_spec().map_or("unknown", KeySpec::as_str);
        match self.config.kind().and_then(spec_of) {
            Some(wanted) if wanted.as_str() != spec => return differs("key spec", spec, wanted.as_str()),
            None if !spec.starts_with("ECC_NIST_P") => {
                return differs("key spec", spec, "one of ECC_NIST_P256, ECC_NIST_P384, ECC_NIST_P521");
            }
            _ => {}
        }
        key.arn.filter(|arn| !arn.is_empty()).ok_or_else(not_understood)
    }

    /// Gives a new key its alias. A key that does not get it is nobody's, and goes again.
    async fn name(&self, client: &Client, id: &str) -> Result<()> {
        let alias = self.config.alias().ok_or_else(|| Error::internal("a key is made for an alias"))?;
        let Err(error) = create_alias(client, alias, id).await else { return Ok(()) };
        let deletion = client.schedule_key_deletion().key_id(id).pending_window_in_days(DELETION_DAYS).send().await;
        if let Err(error) = deletion {
            tracing::warn!(key = id, error = %failed(error), "a key without an alias is left at the key service");
        }
        // Somebody else was faster: theirs is the key.
        if error.as_service_error().is_some_and(|error| error.is_already_exists_exception()) {
            return Ok(());
        }
        Err(failed(error))
    }
}

impl Service for Kms {
    const NAME: &'static str = NAME;

    fn check(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<()> {
        if spec_of(kind).is_some() && algorithm.is_usual_for(kind) {
            return Ok(());
        }
        let (name, bits) = (kind.name(), kind.bits());
        Err(Error::invalid(format!("{NAME}: an {name} key of {bits} bits does not sign with {}", algorithm.name())))
    }

    async fn find(&self) -> Result<Option<Known>> {
        let client = self.client().await;
        let described = match client.describe_key().key_id(&self.config.kms_key).send().await {
            Ok(described) => described,
            Err(error) if error.as_service_error().is_some_and(|error| error.is_not_found_exception()) => {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        let key = described.key_metadata.ok_or_else(not_understood)?;
        let spec = key.key_spec().cloned();
        let arn = self.hold(key)?;
        let given = match client.get_public_key().key_id(&arn).send().await {
            Ok(given) => given,
            // Described a moment ago: it was just made, or the service's machines do not agree yet.
            Err(error) if error.as_service_error().is_some_and(|error| error.is_not_found_exception()) => {
                let text = format!("{NAME}: the service does not show the key everywhere yet, try again shortly");
                return Err(Error::new(Kind::Unavailable, text));
            }
            Err(error) => return Err(failed(error)),
        };
        let public = PublicKey::parse(given.public_key().ok_or_else(not_understood)?.as_ref())?;
        if spec_of(public.kind()) != spec {
            let text = format!("{NAME}: the public key is of another kind than the service says");
            return Err(Error::new(Kind::BadGateway, text));
        }
        Ok(Some(Known { public, locator: arn }))
    }

    async fn create(&self) -> Result<()> {
        let client = self.client().await;
        let spec = self.config.kind().and_then(spec_of);
        let spec = spec.ok_or_else(|| Error::internal("a key is made with a curve or a size"))?;
        let made = client
            .create_key()
            .key_usage(KeyUsageType::SignVerify)
            .key_spec(spec)
            .description("made by signet")
            .customize()
            .config_override(once())
            .send()
            .await
            .map_err(failed)?;
        let id = made.key_metadata.ok_or_else(not_understood)?.key_id;
        self.name(client, &id).await
    }

    async fn sign(&self, arn: &str, algorithm: SignatureAlgorithm, digest: &[u8]) -> Result<Vec<u8>> {
        let by = signing_algorithm(algorithm).ok_or_else(|| Error::internal("an algorithm that was not checked"))?;
        let request = self.client().await.sign().key_id(arn).message_type(MessageType::Digest);
        let signed = request.message(Blob::new(digest)).signing_algorithm(by).send().await.map_err(failed)?;
        Ok(signed.signature.ok_or_else(not_understood)?.into_inner())
    }
}

/// Names a key that was made a moment ago, which the service may not find everywhere yet.
async fn create_alias(
    client: &Client,
    alias: &str,
    id: &str,
) -> std::result::Result<(), SdkError<CreateAliasError, HttpResponse>> {
    for pause in ALIAS_PAUSES {
        match client.create_alias().alias_name(alias).target_key_id(id).send().await {
            Err(error) if error.as_service_error().is_some_and(CreateAliasError::is_not_found_exception) => {
                tokio::time::sleep(pause).await;
            }
            outcome => return outcome.map(drop),
        }
    }
    client.create_alias().alias_name(alias).target_key_id(id).send().await.map(drop)
}

fn spec_of(kind: KeyKind) -> Option<KeySpec> {
    Some(match kind {
        KeyKind::Rsa { bits: 2048 } => KeySpec::Rsa2048,
        KeyKind::Rsa { bits: 3072 } => KeySpec::Rsa3072,
        KeyKind::Rsa { bits: 4096 } => KeySpec::Rsa4096,
        KeyKind::Ec(Curve::P256) => KeySpec::EccNistP256,
        KeyKind::Ec(Curve::P384) => KeySpec::EccNistP384,
        KeyKind::Ec(Curve::P521) => KeySpec::EccNistP521,
        _ => return None,
    })
}

fn signing_algorithm(algorithm: SignatureAlgorithm) -> Option<SigningAlgorithmSpec> {
    use Hash::{Sha256, Sha384, Sha512};
    Some(match algorithm {
        SignatureAlgorithm::RsaPkcs1(Sha256) => SigningAlgorithmSpec::RsassaPkcs1V15Sha256,
        SignatureAlgorithm::RsaPkcs1(Sha384) => SigningAlgorithmSpec::RsassaPkcs1V15Sha384,
        SignatureAlgorithm::RsaPkcs1(Sha512) => SigningAlgorithmSpec::RsassaPkcs1V15Sha512,
        SignatureAlgorithm::RsaPss(Sha256) => SigningAlgorithmSpec::RsassaPssSha256,
        SignatureAlgorithm::RsaPss(Sha384) => SigningAlgorithmSpec::RsassaPssSha384,
        SignatureAlgorithm::RsaPss(Sha512) => SigningAlgorithmSpec::RsassaPssSha512,
        SignatureAlgorithm::Ecdsa(Sha256) => SigningAlgorithmSpec::EcdsaSha256,
        SignatureAlgorithm::Ecdsa(Sha384) => SigningAlgorithmSpec::EcdsaSha384,
        SignatureAlgorithm::Ecdsa(Sha512) => SigningAlgorithmSpec::EcdsaSha512,
        SignatureAlgorithm::Ed25519 => return None,
    })
}

fn not_understood() -> Error {
    Error::new(Kind::BadGateway, format!("{NAME}: the answer of the service is not understood"))
}
