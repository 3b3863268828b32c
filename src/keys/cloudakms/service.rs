//! Calls to AWS KMS for one key.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::client::{AkmsClient, IDEMPOTENT_RETRY_POLICY};
use super::config::{CloudAkmsConfig, TYPE_NAME};
use super::failure::{AkmsFailure, unexpected_response};
use crate::error::{Error, Kind, Result};
use crate::keys::cloud::CloudKeyService;
use crate::keys::signer::KeyIdentity;
use crate::outbound::{EgressPolicy, RetryPolicy};
use crate::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

/// Days that the service waits before it deletes a key; the minimum that it accepts.
const DELETION_WINDOW_DAYS: u32 = 7;
const NOT_FOUND_CODE: &str = "NotFoundException";
/// Pauses between attempts to create the alias of a new key that the service does not find yet.
const ALIAS_PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

pub(super) struct AkmsKeyClient {
    config: CloudAkmsConfig,
    egress_policy: EgressPolicy,
    client: OnceCell<AkmsClient>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeKeyResponse {
    key_metadata: KeyMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KeyMetadata {
    key_id: String,
    #[serde(default)]
    arn: String,
    #[serde(default = "unknown_value")]
    key_usage: String,
    #[serde(default = "unknown_value")]
    key_state: String,
    #[serde(default = "unknown_value")]
    key_spec: String,
    #[serde(default)]
    enabled: bool,
}

fn unknown_value() -> String {
    "unknown".to_owned()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AkmsPublicKey {
    public_key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AkmsSignResponse {
    signature: String,
}

impl AkmsKeyClient {
    pub(super) fn new(config: CloudAkmsConfig, egress_policy: EgressPolicy) -> Self {
        Self { config, egress_policy, client: OnceCell::new() }
    }

    async fn client(&self) -> Result<&AkmsClient> {
        self.client.get_or_try_init(|| AkmsClient::connect(&self.config, Some(self.egress_policy))).await
    }

    /// Checks that a key matches the configuration and returns its ARN.
    fn check_key(&self, key: KeyMetadata) -> Result<String> {
        let differs = |what: &str, is: &str, wanted: &str| {
            let is: String = is.chars().take(64).collect();
            Err(Error::invalid(format!("{TYPE_NAME}: the {what} of the key is {is}, but must be {wanted}")))
        };
        if key.key_usage != "SIGN_VERIFY" {
            return differs("key usage", &key.key_usage, "SIGN_VERIFY");
        }
        if key.key_state != "Enabled" {
            return differs("state", &key.key_state, "Enabled");
        }
        if !key.enabled {
            return Err(Error::invalid(format!("{TYPE_NAME}: the key is disabled")));
        }
        match self.config.kind().and_then(aws_key_spec) {
            Some(wanted) if wanted != key.key_spec => return differs("key spec", &key.key_spec, wanted),
            None if !key.key_spec.starts_with("ECC_NIST_P") => {
                return differs("key spec", &key.key_spec, "one of ECC_NIST_P256, ECC_NIST_P384, ECC_NIST_P521");
            }
            _ => {}
        }
        if key.arn.is_empty() { Err(unexpected_response()) } else { Ok(key.arn) }
    }

    /// Creates the alias of a new key. Deletes the key if that fails.
    async fn create_alias_or_delete_key(&self, client: &AkmsClient, id: &str) -> Result<()> {
        let alias =
            self.config.alias().ok_or_else(|| Error::internal("kms_key: must be an alias for a generated key"))?;
        let Err(failure) = create_alias(client, alias, id).await else { return Ok(()) };
        let body = json!({ "KeyId": id, "PendingWindowInDays": DELETION_WINDOW_DAYS });
        if let Err(deletion) = client.call::<IgnoredAny>("ScheduleKeyDeletion", &body, IDEMPOTENT_RETRY_POLICY).await {
            let text = "a new key without an alias could not be deleted at the key service; delete it there";
            tracing::warn!(key = id, error = %deletion.error, "{text}");
        }
        // Another node created the alias first, and the key of that node is used.
        if failure.has_code("AlreadyExistsException") { Ok(()) } else { Err(failure.error) }
    }
}

impl CloudKeyService for AkmsKeyClient {
    const NAME: &'static str = TYPE_NAME;

    fn check_algorithm(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<()> {
        if aws_key_spec(kind).is_some() && algorithm.is_usual_for(kind) {
            return Ok(());
        }
        let name = kind.name();
        let bits = kind.bits();
        Err(Error::invalid(format!(
            "{TYPE_NAME}: an {name} key of {bits} bits does not sign with {}",
            algorithm.name()
        )))
    }

    async fn find_key(&self) -> Result<Option<KeyIdentity>> {
        let client = self.client().await?;
        let body = json!({ "KeyId": self.config.kms_key });
        let described: DescribeKeyResponse = match client.call("DescribeKey", &body, IDEMPOTENT_RETRY_POLICY).await {
            Err(failure) if failure.has_code(NOT_FOUND_CODE) => return Ok(None),
            answer => answer?,
        };
        let spec = described.key_metadata.key_spec.clone();
        let arn = self.check_key(described.key_metadata)?;
        let response: AkmsPublicKey =
            match client.call("GetPublicKey", &json!({ "KeyId": arn }), IDEMPOTENT_RETRY_POLICY).await {
                // `DescribeKey` has just found this key, so it is new and not visible everywhere yet: the service is
                // eventually consistent.
                Err(failure) if failure.has_code(NOT_FOUND_CODE) => {
                    let text = format!("{TYPE_NAME}: the new key is not visible everywhere yet; retry shortly");
                    return Err(Error::new(Kind::Unavailable, text));
                }
                answer => answer?,
            };
        let public = PublicKey::parse(&decode_base64(&response.public_key)?)?;
        if aws_key_spec(public.kind()) != Some(spec.as_str()) {
            let text = format!("{TYPE_NAME}: the type of the public key differs from the key spec of the service");
            return Err(Error::new(Kind::BadGateway, text));
        }
        Ok(Some(KeyIdentity { public, locator: arn }))
    }

    async fn create_key(&self) -> Result<()> {
        let client = self.client().await?;
        let spec = self.config.kind().and_then(aws_key_spec);
        let spec = spec.ok_or_else(|| Error::internal("key_bits, curve: no key spec for a generated key"))?;
        let body = json!({ "KeyUsage": "SIGN_VERIFY", "KeySpec": spec, "Description": "made by signet" });
        let created: DescribeKeyResponse = client.call("CreateKey", &body, RetryPolicy::SINGLE_ATTEMPT).await?;
        self.create_alias_or_delete_key(client, &created.key_metadata.key_id).await
    }

    async fn sign(&self, arn: &str, algorithm: SignatureAlgorithm, digest: &[u8]) -> Result<Vec<u8>> {
        let unsupported =
            || Error::internal(format!("{TYPE_NAME}: signature algorithm {} is unsupported", algorithm.name()));
        let aws_algorithm = signing_algorithm(algorithm).ok_or_else(unsupported)?;
        let body = json!({
            "KeyId": arn,
            "Message": STANDARD.encode(digest),
            "MessageType": "DIGEST",
            "SigningAlgorithm": aws_algorithm,
        });
        let signed: AkmsSignResponse = self.client().await?.call("Sign", &body, IDEMPOTENT_RETRY_POLICY).await?;
        decode_base64(&signed.signature)
    }
}

async fn create_alias(client: &AkmsClient, alias: &str, id: &str) -> Result<(), AkmsFailure> {
    let body = json!({ "AliasName": alias, "TargetKeyId": id });
    for pause in ALIAS_PAUSES {
        match client.call::<Value>("CreateAlias", &body, IDEMPOTENT_RETRY_POLICY).await {
            Err(failure) if failure.has_code(NOT_FOUND_CODE) => tokio::time::sleep(pause).await,
            outcome => return outcome.map(drop),
        }
    }
    client.call::<Value>("CreateAlias", &body, IDEMPOTENT_RETRY_POLICY).await.map(drop)
}

fn decode_base64(text: &str) -> Result<Vec<u8>> {
    STANDARD.decode(text).map_err(|_| unexpected_response())
}

fn aws_key_spec(kind: KeyKind) -> Option<&'static str> {
    Some(match kind {
        KeyKind::Rsa { bits: 2048 } => "RSA_2048",
        KeyKind::Rsa { bits: 3072 } => "RSA_3072",
        KeyKind::Rsa { bits: 4096 } => "RSA_4096",
        KeyKind::Ec(Curve::P256) => "ECC_NIST_P256",
        KeyKind::Ec(Curve::P384) => "ECC_NIST_P384",
        KeyKind::Ec(Curve::P521) => "ECC_NIST_P521",
        _ => return None,
    })
}

fn signing_algorithm(algorithm: SignatureAlgorithm) -> Option<&'static str> {
    use Hash::{Sha256, Sha384, Sha512};
    Some(match algorithm {
        SignatureAlgorithm::RsaPkcs1(Sha256) => "RSASSA_PKCS1_V1_5_SHA_256",
        SignatureAlgorithm::RsaPkcs1(Sha384) => "RSASSA_PKCS1_V1_5_SHA_384",
        SignatureAlgorithm::RsaPkcs1(Sha512) => "RSASSA_PKCS1_V1_5_SHA_512",
        SignatureAlgorithm::RsaPss(Sha256) => "RSASSA_PSS_SHA_256",
        SignatureAlgorithm::RsaPss(Sha384) => "RSASSA_PSS_SHA_384",
        SignatureAlgorithm::RsaPss(Sha512) => "RSASSA_PSS_SHA_512",
        SignatureAlgorithm::Ecdsa(Sha256) => "ECDSA_SHA_256",
        SignatureAlgorithm::Ecdsa(Sha384) => "ECDSA_SHA_384",
        SignatureAlgorithm::Ecdsa(Sha512) => "ECDSA_SHA_512",
        SignatureAlgorithm::Ed25519 => return None,
    })
}
