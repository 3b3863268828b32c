//! The way to the service: credentials, region, endpoint; bounds of time and size.

use std::time::Duration;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::meta::region::RegionProviderChain;
use aws_sdk_kms::config::interceptors::BeforeDeserializationInterceptorContextMut;
use aws_sdk_kms::config::retry::RetryConfig;
use aws_sdk_kms::config::timeout::TimeoutConfig;
use aws_sdk_kms::config::{BehaviorVersion, ConfigBag, Credentials, Intercept, Region, RuntimeComponents};
use aws_sdk_kms::error::BoxError;
use aws_sdk_kms::{Client, Config};
use aws_smithy_types::body::SdkBody;
use http_body_util::Limited;

use super::config::CloudAkmsConfig;
use crate::keys::redacted::is_set;

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

pub(super) async fn connect(config: &CloudAkmsConfig) -> Client {
    let region = match config.region.as_str() {
        "" => RegionProviderChain::default_provider().or_else(REGION).region().await.unwrap_or(Region::new(REGION)),
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
        .interceptor(Bounded);
    settings = match (config.access_key.expose_text(), config.secret_key.expose_text()) {
        (Some(access), Some(secret)) if is_set(&config.access_key) => {
            settings.credentials_provider(Credentials::new(access, secret, None, None, "managed key"))
        }
        _ => settings.credentials_provider(DefaultCredentialsChain::builder().region(region).build().await),
    };
    if !config.endpoint.is_empty() {
        settings = settings.endpoint_url(&config.endpoint);
    }
    Client::from_conf(settings.build())
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
