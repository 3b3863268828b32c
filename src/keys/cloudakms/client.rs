//! The way to the service: credentials, region, endpoint; bounds of time and size.

use std::time::Duration;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_sdk_kms::config::interceptors::{
    BeforeDeserializationInterceptorContextMut, BeforeTransmitInterceptorContextMut,
};
use aws_sdk_kms::config::retry::RetryConfig;
use aws_sdk_kms::config::timeout::TimeoutConfig;
use aws_sdk_kms::config::{
    BehaviorVersion, ConfigBag, Credentials, Intercept, Region, RuntimeComponents, SharedHttpClient,
};
use aws_sdk_kms::error::BoxError;
use aws_sdk_kms::{Client, Config};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns, ResolveDnsError};
use aws_smithy_types::body::SdkBody;
use http_body_util::Limited;

use super::config::CloudAkmsConfig;
use crate::keys::redacted::is_set;
use crate::outbound::{Reach, traceparent};

/// Attempts at one call; the SDK knows after which errors another one is of use.
const ATTEMPTS: u32 = 3;
const CONNECT: Duration = Duration::from_secs(3);
const ATTEMPT: Duration = Duration::from_secs(10);
/// All attempts at a call, and the waits between them.
const CALL: Duration = Duration::from_secs(25);
/// Largest answer, octets.
const MAX_ANSWER: usize = 64 * 1024;
/// The region where neither the configuration nor the environment names one.
const REGION: &str = "us-east-1";

/// The client for a key. `reach` has the rules for addresses of callers; `None` where the server's configuration says
/// the endpoint.
pub(super) async fn connect(config: &CloudAkmsConfig, reach: Option<Reach>) -> Client {
    // Region and credential of a machine come from a link-local address, by the SDK's own choice.
    let own = ProviderConfig::default().with_http_client(http(None));
    let region = match config.region.as_str() {
        "" => usual_region(&own).await,
        region => Region::new(region.to_owned()),
    };
    let times = TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_attempt_timeout(ATTEMPT)
        .operation_timeout(CALL)
        .build();
    let mut settings = Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(region.clone())
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
        .timeout_config(times)
        .http_client(http(reach))
        .interceptor(Bounded)
        .interceptor(Traced);
    settings = match (config.access_key.expose_text(), config.secret_key.expose_text()) {
        (Some(access), Some(secret)) if is_set(&config.access_key) => {
            settings.credentials_provider(Credentials::new(access, secret, None, None, "managed key"))
        }
        _ => settings
            .credentials_provider(DefaultCredentialsChain::builder().configure(own).region(region).build().await),
    };
    if !config.endpoint.is_empty() {
        settings = settings.endpoint_url(&config.endpoint);
    }
    Client::from_conf(settings.build())
}

/// The region of the process's environment: variables, profile or machine.
async fn usual_region(own: &ProviderConfig) -> Region {
    let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(ImdsRegionProvider::builder().configure(own).build());
    chain.region().await.unwrap_or(Region::new(REGION))
}

/// How requests leave: by rustls, and by no proxy of the environment.
fn http(reach: Option<Reach>) -> SharedHttpClient {
    let builder = Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
    match reach {
        Some(reach) => builder.build_with_resolver(Guarded(reach)),
        None => builder.build_https(),
    }
}

/// Looks names up, and gives the addresses that may be called.
#[derive(Clone, Debug)]
struct Guarded(Reach);

impl ResolveDns for Guarded {
    fn resolve_dns<'a>(&'a self, name: &'a str) -> DnsFuture<'a> {
        DnsFuture::new(async move { self.0.addresses(name).await.map_err(ResolveDnsError::new) })
    }
}

/// For a call that is not to be made twice.
pub(super) fn once() -> aws_sdk_kms::config::Builder {
    Config::builder().retry_config(RetryConfig::disabled())
}

/// Ends the reading of an answer that is too large.
#[derive(Debug)]
struct Bounded;

impl Intercept for Bounded {
    fn name(&self) -> &'static str {
        "bounded answers"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.response_mut().body_mut();
        let whole = std::mem::replace(body, SdkBody::taken());
        *body = SdkBody::from_body_1_x(Limited::new(whole, MAX_ANSWER));
        Ok(())
    }
}

/// Makes a call part of the trace of the request that needs it.
#[derive(Debug)]
struct Traced;

impl Intercept for Traced {
    fn name(&self) -> &'static str {
        "trace context"
    }

    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(value) = traceparent() {
            context.request_mut().headers_mut().insert("traceparent", value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::error::{Error, Kind};
    use crate::keys::cloudakms::failure::failed;
    use crate::secret::Secret;

    /// A key whose service listens on the loopback, under a name.
    fn at(listener: &TcpListener) -> CloudAkmsConfig {
        CloudAkmsConfig {
            access_key: Secret::new("AK"),
            secret_key: Secret::new("SK"),
            endpoint: format!("http://localhost:{}", listener.local_addr().unwrap().port()),
            region: "eu-central-1".to_owned(),
            ..CloudAkmsConfig::default()
        }
    }

    /// What is said of a question that has no answer.
    async fn asked(config: &CloudAkmsConfig, reach: Option<Reach>) -> Error {
        let client = connect(config, reach).await;
        let call = client.describe_key().key_id("alias/x").customize().config_override(once());
        failed(call.send().await.unwrap_err())
    }

    #[tokio::test]
    async fn a_name_is_called_where_what_it_means_may_be() {
        for (reach, may) in
            [(None, true), (Some(Reach { loopback: true }), true), (Some(Reach { loopback: false }), false)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let config = at(&listener);
            let is_called = tokio::select! {
                accepted = listener.accept() => accepted.is_ok(),
                error = asked(&config, reach) => error.kind() != Kind::Unavailable,
            };
            assert_eq!(is_called, may, "{reach:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_off_is_one_that_did_not_come() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = at(&listener);
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{").await.unwrap();
        });
        let error = asked(&config, None).await;
        let text = "cloudakms: the connection ended before an answer";
        assert_eq!((error.kind(), error.text()), (Kind::Unavailable, text));
    }
}
