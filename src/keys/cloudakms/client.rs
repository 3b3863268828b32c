//! A client of AWS KMS: JSON requests with Signature Version 4, which the AWS signing library creates, and retries
//! while the service is busy.

use std::time::{Duration, SystemTime};

use aws_config::Region;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials as _;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::config::{CloudAkmsConfig, TYPE_NAME};
use super::endpoints;
use super::failure::{AkmsFailure, parse_failure, unexpected_response};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::keys::redaction::is_set;
use crate::outbound::{
    EgressPolicy, Method, Outbound, OutboundRequest, OutboundResponse, RetryPolicy, SharedCredential,
};

const SERVICE_LABEL: &str = "cloudakms: the key service";
/// The name of the service in Signature Version 4.
const SIGNING_SERVICE_NAME: &str = "kms";
const MEDIA_TYPE: &str = "application/x-amz-json-1.1";
/// The retry policy of idempotent calls.
pub(super) const IDEMPOTENT_RETRY_POLICY: RetryPolicy = RetryPolicy {
    max_retries: 2,
    first_delay: Duration::from_millis(200),
    max_delay: Duration::from_secs(5),
    max_retry_after: Duration::from_secs(1),
};
/// Maximum duration of a call, with all attempts and pauses.
const CALL_TIMEOUT: Duration = Duration::from_secs(25);
/// A credential is replaced this long before it expires, or after half of its lifetime if that is later.
const CREDENTIAL_MARGIN: Duration = Duration::from_secs(300);
/// Time until a credential without an expiry is looked up again.
const CREDENTIAL_LIFETIME: Duration = Duration::from_secs(900);
/// The region if neither the configuration nor the environment names one.
const DEFAULT_REGION: &str = "us-east-1";

pub(super) struct AkmsClient {
    outbound: Outbound,
    url: String,
    region: String,
    credentials: CredentialSource,
}

/// The source of the credential that signs requests.
enum CredentialSource {
    Configured(Credentials),
    /// The environment of the process: variables, profile, container or machine.
    Environment {
        chain: Box<DefaultCredentialsChain>,
        cache: SharedCredential<CachedCredential>,
    },
}

#[derive(Clone)]
struct CachedCredential {
    credentials: Credentials,
    /// The time from which the credential is looked up again.
    renew_at: SystemTime,
}

impl AkmsClient {
    /// Creates a client for the key of `config`. `egress_policy` restricts endpoints that callers configure; `None`
    /// is for an endpoint from the server's configuration.
    ///
    /// # Errors
    /// `Internal` when TLS cannot be set up.
    pub(super) async fn connect(config: &CloudAkmsConfig, egress_policy: Option<EgressPolicy>) -> Result<Self> {
        // The AWS library reads the region and credential of a machine from a fixed link-local address.
        let provider_config = ProviderConfig::default()
            .with_http_client(Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https());
        let region = match config.region.as_str() {
            "" => environment_region(&provider_config).await,
            region => region.to_owned(),
        };
        let credentials = match (config.access_key.expose_text(), config.secret_key.expose_text()) {
            (Some(access), Some(secret)) if is_set(&config.access_key) => {
                CredentialSource::Configured(Credentials::new(access, secret, None, None, "configuration"))
            }
            _ => {
                let chain =
                    DefaultCredentialsChain::builder().configure(provider_config).region(Region::new(region.clone()));
                CredentialSource::Environment {
                    chain: Box::new(chain.build().await),
                    cache: SharedCredential::default(),
                }
            }
        };
        let endpoint = match config.endpoint.as_str() {
            "" => endpoints::region_endpoint(&region),
            endpoint => endpoint.to_owned(),
        };
        let outbound = match egress_policy {
            Some(egress_policy) => Outbound::for_caller_urls(egress_policy, "", "")?,
            None => Outbound::for_configured_urls("", "")?,
        };
        Ok(Self { outbound, url: format!("{}/", endpoint.trim_end_matches('/')), region, credentials })
    }

    /// Calls an operation, within [`CALL_TIMEOUT`].
    ///
    /// # Errors
    /// A failure with the code of the service; `Unavailable` without a response or credential; `BadGateway` for
    /// a malformed response.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        operation: &str,
        body: &Value,
        tries: RetryPolicy,
    ) -> Result<T, AkmsFailure> {
        let late = |_| {
            Error::new(
                Kind::Unavailable,
                format!("{SERVICE_LABEL}: did not answer within {} s", CALL_TIMEOUT.as_secs()),
            )
        };
        let reply = tokio::time::timeout(CALL_TIMEOUT, self.send(operation, body, tries)).await.map_err(late)??;
        match reply.status() {
            200 => reply.read(SERVICE_LABEL).map_err(|_| unexpected_response().into()),
            _ => Err(parse_failure(&reply)),
        }
    }

    async fn send(&self, operation: &str, body: &Value, tries: RetryPolicy) -> Result<OutboundResponse> {
        let call = self.sign_request(&self.credentials.credentials().await?, operation, body.to_string())?;
        // The service reports overload by an error code, not by the status.
        let is_busy = |reply: &OutboundResponse| {
            Some(parse_failure(reply).error).filter(|error| error.kind() == Kind::Unavailable)
        };
        call.send_retrying(tries, SERVICE_LABEL, is_busy).await
    }

    fn sign_request(&self, credentials: &Credentials, operation: &str, body: String) -> Result<OutboundRequest> {
        let target = format!("TrentService.{operation}");
        let headers = [("content-type", MEDIA_TYPE), ("x-amz-target", &target)];
        let identity = credentials.clone().into();
        let parameters = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(SIGNING_SERVICE_NAME)
            .time(now())
            .settings(SigningSettings::default())
            .build()
            .map_err(Error::internal)?;
        let body_bytes = SignableBody::Bytes(body.as_bytes());
        let request = SignableRequest::new("POST", self.url.as_str(), headers.into_iter(), body_bytes);
        let signed = sign(request.map_err(Error::internal)?, &parameters.into()).map_err(Error::internal)?;
        let (instructions, _) = signed.into_parts();
        let (added, _) = instructions.into_parts();
        let call = self.outbound.request(Method::POST, &self.url)?.header("x-amz-target", &target);
        let call = added.iter().fold(call, |call, header| call.header(header.name(), header.value()));
        Ok(call.body(MEDIA_TYPE, body))
    }
}

impl CredentialSource {
    async fn credentials(&self) -> Result<Credentials> {
        let (chain, cache) = match self {
            Self::Configured(credentials) => return Ok(credentials.clone()),
            Self::Environment { chain, cache } => (chain, cache),
        };
        let fetch = async {
            let credentials = chain.provide_credentials().await.map_err(|error| {
                Error::unavailable(
                    format!("{TYPE_NAME}: no credential in the environment; set access_key and secret_key"),
                    error,
                )
            })?;
            let now = now();
            let lifetime = credentials.expiry().map(|end| end.duration_since(now).unwrap_or_default());
            let use_for =
                lifetime.map_or(CREDENTIAL_LIFETIME, |lifetime| lifetime - CREDENTIAL_MARGIN.min(lifetime / 2));
            Ok(CachedCredential { credentials, renew_at: now + use_for })
        };
        let cached = cache.get(|cached| now() < cached.renew_at, fetch).await?;
        Ok(cached.credentials)
    }
}

/// The system time, even if a test sets the server's clock: the service rejects requests that are signed with a wrong
/// time.
fn now() -> SystemTime {
    Clock::system().now().into()
}

async fn environment_region(provider_config: &ProviderConfig) -> String {
    let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(ImdsRegionProvider::builder().configure(provider_config).build());
    chain.region().await.map_or_else(|| DEFAULT_REGION.to_owned(), |region| region.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::secret::Secret;

    /// A configuration whose endpoint is this listener, addressed as `localhost`.
    fn config_for(listener: &TcpListener) -> CloudAkmsConfig {
        CloudAkmsConfig {
            access_key: Secret::new("AK"),
            secret_key: Secret::new("SK"),
            endpoint: format!("http://localhost:{}", listener.local_addr().unwrap().port()),
            region: "eu-central-1".to_owned(),
            ..CloudAkmsConfig::default()
        }
    }

    async fn error_of(config: &CloudAkmsConfig, egress_policy: Option<EgressPolicy>) -> Error {
        let client = AkmsClient::connect(config, egress_policy).await.unwrap();
        let body = json!({ "KeyId": "alias/x" });
        client.call::<Value>("DescribeKey", &body, RetryPolicy::SINGLE_ATTEMPT).await.unwrap_err().into()
    }

    #[tokio::test]
    async fn client_calls_only_addresses_that_the_policy_permits() {
        for (egress_policy, may) in [
            (None, true),
            (Some(EgressPolicy { loopback: true }), true),
            (Some(EgressPolicy { loopback: false }), false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let config = config_for(&listener);
            let is_called = tokio::select! {
                accepted = listener.accept() => accepted.is_ok(),
                _ = error_of(&config, egress_policy) => false,
            };
            assert_eq!(is_called, may, "{egress_policy:?}");
        }
    }

    #[tokio::test]
    async fn truncated_response_is_reported_as_unavailable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = config_for(&listener);
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 8192];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{").await.unwrap();
            String::from_utf8(request[..length].to_vec()).unwrap()
        });
        let error = error_of(&config, None).await;
        assert_eq!(
            (error.kind(), error.text()),
            (Kind::Unavailable, "cloudakms: the key service: the connection failed")
        );
        let request = served.await.unwrap();
        assert!(request.starts_with("POST / HTTP/1.1\r\n"), "{request}");
        let signed = "SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=";
        let scope = "authorization: AWS4-HMAC-SHA256 Credential=AK/";
        for part in [scope, "/eu-central-1/kms/aws4_request, ", signed, "x-amz-target: TrentService.DescribeKey\r\n"] {
            assert!(request.contains(part), "{part} is not in {request}");
        }
        assert_eq!(request.matches("content-type: ").count(), 1, "{request}");
    }
}
