//! Bounded calls to an external policy engine.
//!
//! At most `MAX_CALLS_IN_FLIGHT` calls of a mount run at once; further calls fail with `Busy`, and calls fail
//! immediately while the circuit breaker is open. One timeout covers connecting, sending and reading. Redirects, proxy
//! variables and retries are disabled. Only the expected members of a response reach callers or logs. A
//! [`PolicyEngine`] is created when the settings change and is part of the mount's view. It does not interpret
//! requests.

mod breaker;
pub(crate) mod tls;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, Url, redirect, retry};
use rustls::ClientConfig;
use tokio::sync::Semaphore;

use self::breaker::CircuitBreaker;
use self::tls::EngineTlsMaterial;
use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::outbound::{EgressPolicy, EgressResolver, with_trace_context};
use crate::telemetry;

/// Maximum number of concurrent calls to the policy engine of a mount.
const MAX_CALLS_IN_FLIGHT: usize = 32;
/// Maximum size of a response of the policy engine, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Maximum idle time of a pooled connection; short, because policy engines close idle connections as well.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

const MEDIA_TYPE: &str = "application/json";

/// Client of a mount's policy engine.
pub struct PolicyEngine {
    /// HTTP client, created by the first call.
    client: OnceLock<Client>,
    tls: ClientConfig,
    url: Url,
    timeout: Duration,
    permits: Semaphore,
    breaker: CircuitBreaker,
    /// Time of the last successful call, epoch seconds; 0 for never.
    last_success: AtomicI64,
}

struct EngineCallFailure {
    result: &'static str,
    /// `true` if the policy engine responded in a way that shows it is available, even without a decision.
    answered: bool,
    error: Error,
}

impl EngineCallFailure {
    fn of(result: &'static str, answered: bool, error: Error) -> Self {
        Self { result, answered, error }
    }
}

impl PolicyEngine {
    /// Creates a client for `url` that trusts `trust`; `timeout` limits one call. Does not connect yet.
    ///
    /// # Errors
    /// `Invalid` naming the field; `Internal` when TLS cannot be configured.
    pub(crate) fn new(url: &str, timeout: Duration, trust: EngineTlsMaterial) -> Result<Self> {
        Ok(Self {
            client: OnceLock::new(),
            tls: trust.client_config()?,
            url: Url::parse(url).map_err(|_| Error::invalid("external_service_url: is not a URL"))?,
            timeout,
            permits: Semaphore::new(MAX_CALLS_IN_FLIGHT),
            breaker: CircuitBreaker::new(),
            last_success: AtomicI64::new(0),
        })
    }

    /// Returns the time of the last successful call since the settings changed or the server started.
    pub fn last_success(&self) -> Option<Time> {
        let at = self.last_success.load(Ordering::Relaxed);
        Time::from_unix_timestamp(at).ok().filter(|_| at > 0)
    }

    /// Rejects a request whose call would be rejected now, before a key is generated for it.
    ///
    /// # Errors
    /// `Unavailable` while the breaker is open; `Busy` when too many calls are in flight.
    pub(crate) fn require_available(&self, now: Time) -> Result<()> {
        if self.breaker.refuses(now) {
            return Err(count_error("open", breaker_open_error()));
        }
        if self.permits.available_permits() == 0 {
            return Err(count_error("busy", busy_error()));
        }
        Ok(())
    }

    /// Returns the HTTP client, which connects only to addresses that `egress_policy` permits.
    fn client(&self, egress_policy: EgressPolicy) -> Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let made = Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .https_only(true)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
            .dns_resolver(Arc::new(EgressResolver(egress_policy)))
            .build()
            .map_err(|e| Error::internal(e.without_url()))?;
        Ok(self.client.get_or_init(|| made))
    }

    /// Posts a request body and returns what `read` parses from the response. `egress_policy` must be the same for
    /// every call, because the first call creates the client.
    ///
    /// # Errors
    /// `Unavailable` when the address is not permitted or the call times out; `Busy` when too many calls are in flight;
    /// `BadGateway` for an unusable response; those of `read`.
    pub(crate) async fn call<T>(
        &self,
        request_body: Vec<u8>,
        clock: &Clock,
        egress_policy: EgressPolicy,
        read: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let Ok(_permit) = self.permits.try_acquire() else { return Err(count_error("busy", busy_error())) };
        let Some(ticket) = self.breaker.admit(clock.now()) else {
            return Err(count_error("open", breaker_open_error()));
        };
        let started = Instant::now();
        let exchange = tokio::time::timeout(self.timeout, self.exchange(request_body, egress_policy)).await;
        let outcome = exchange.unwrap_or_else(|_| {
            let text = format!("external policy: the engine did not answer within {} s", self.timeout.as_secs());
            Err(EngineCallFailure::of("failed", false, Error::unavailable(text, "timed out")))
        });
        metrics::histogram!(telemetry::PKI_POLICY_CALL_SECONDS).record(started.elapsed().as_secs_f64());
        let now = clock.now();
        ticket.record(outcome.as_ref().map_or_else(|failure| failure.answered, |_| true), now);
        let body = outcome.map_err(|failure| count_error(failure.result, failure.error))?;
        let answer = read(&body).map_err(|error| count_error("malformed", error))?;
        count_call("answered");
        self.last_success.store(now.unix_timestamp(), Ordering::Relaxed);
        Ok(answer)
    }

    async fn exchange(&self, request_body: Vec<u8>, egress_policy: EgressPolicy) -> Result<Vec<u8>, EngineCallFailure> {
        let refused = |error: Error| {
            let text = format!("external policy: {}", error.text());
            EngineCallFailure::of("failed", false, Error::new(Kind::Unavailable, text))
        };
        egress_policy.validate_url("external_service_url", self.url.as_str()).map_err(refused)?;
        let client = self.client(egress_policy).map_err(|error| EngineCallFailure::of("failed", false, error))?;
        let request = client.post(self.url.clone()).header(CONTENT_TYPE, MEDIA_TYPE).header(ACCEPT, MEDIA_TYPE);
        let response = with_trace_context(request.body(request_body)).send().await.map_err(connection_failure)?;
        let status = response.status();
        if status != StatusCode::OK {
            let text = format!("external policy: the engine responded with status {}", status.as_u16());
            return Err(EngineCallFailure::of(
                "rejected",
                !status.is_server_error(),
                Error::new(Kind::BadGateway, text),
            ));
        }
        read_body(response).await
    }
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, EngineCallFailure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(connection_failure)? {
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            let error = Error::new(Kind::BadGateway, "external policy: the engine's answer is larger than 1 MiB");
            return Err(EngineCallFailure::of("malformed", true, error));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn connection_failure(error: reqwest::Error) -> EngineCallFailure {
    let text = if error.is_connect() {
        "external policy: the engine cannot be reached, or its TLS certificate is not trusted"
    } else {
        "external policy: the connection to the engine failed"
    };
    EngineCallFailure::of("failed", false, Error::unavailable(text, format_causes(&error.without_url())))
}

fn format_causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn busy_error() -> Error {
    Error::new(Kind::Busy, "external policy: too many concurrent calls to the engine; retry shortly")
}

fn breaker_open_error() -> Error {
    Error::new(Kind::Unavailable, "external policy: the engine failed several times in a row; try again shortly")
}

fn count_call(result: &'static str) {
    metrics::counter!(telemetry::PKI_POLICY_CALLS, "result" => result).increment(1);
}

fn count_error(result: &'static str, error: Error) -> Error {
    count_call(result);
    error
}
