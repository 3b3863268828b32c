//! The call: one question posted to the policy engine, one answer, inside of bounds.
//!
//! At most `MAX_IN_FLIGHT` calls of a mount are on their way, one more is Busy at once; behind an open
//! breaker nobody waits. One time limit covers connecting, asking and reading.
//! Redirects are not followed, proxies of the environment not used, calls not repeated. What the engine
//! says beyond the answer's members reaches neither callers nor logs.
//!
//! A [`PolicyEngine`] is made when the settings change and lives in the mount's view. It carries bytes: what
//! a question and an answer say is the caller's.

mod breaker;
pub(crate) mod tls;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, Url, redirect, retry};
use rustls::ClientConfig;
use tokio::sync::Semaphore;

use self::breaker::Breaker;
use self::tls::Material;
use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::outbound::{Guarded, Reach, traced};
use crate::telemetry;

/// Calls of one mount that may be on their way.
const MAX_IN_FLIGHT: usize = 32;
/// Largest answer, octets.
const MAX_ANSWER: usize = 1 << 20;
/// How long a connection without a call is kept. Engines close theirs, too; a short time leaves little
/// room for a call on a connection that is about to go.
const IDLE: Duration = Duration::from_secs(5);

const MEDIA_TYPE: &str = "application/json";

/// The way to a mount's policy engine.
pub struct PolicyEngine {
    /// Made for the first question.
    client: OnceLock<Client>,
    tls: ClientConfig,
    url: Url,
    timeout: Duration,
    permits: Semaphore,
    breaker: Breaker,
    /// Epoch seconds; 0 is never.
    last_success: AtomicI64,
}

/// How a call ended without an answer.
struct Failure {
    /// The label in the metrics.
    result: &'static str,
    /// Whether the engine is there and at work, whatever it said.
    answered: bool,
    error: Error,
}

impl Failure {
    fn of(result: &'static str, answered: bool, error: Error) -> Self {
        Self { result, answered, error }
    }
}

impl PolicyEngine {
    /// The way to `url` under this trust; one exchange takes no longer than `timeout`. Nothing is called yet.
    ///
    /// # Errors
    /// `Invalid` naming the member, `Internal` when TLS cannot be set up.
    pub(crate) fn new(url: &str, timeout: Duration, trust: Material) -> Result<Self> {
        Ok(Self {
            client: OnceLock::new(),
            tls: trust.client_config()?,
            url: Url::parse(url).map_err(|_| Error::invalid("external_service_url: is not a URL"))?,
            timeout,
            permits: Semaphore::new(MAX_IN_FLIGHT),
            breaker: Breaker::new(),
            last_success: AtomicI64::new(0),
        })
    }

    /// When the last exchange succeeded since the settings changed or the server started.
    pub fn last_success(&self) -> Option<Time> {
        let at = self.last_success.load(Ordering::Relaxed);
        Time::from_unix_timestamp(at).ok().filter(|_| at > 0)
    }

    /// Refuses what a call would refuse now: asked before a key is generated for nothing.
    ///
    /// # Errors
    /// `Unavailable` behind an open breaker, `Busy` when too many calls are on their way.
    pub(crate) fn check(&self, now: Time) -> Result<()> {
        if self.breaker.refuses(now) {
            return Err(counted("open", resting()));
        }
        if self.permits.available_permits() == 0 {
            return Err(counted("busy", busy()));
        }
        Ok(())
    }

    /// The client, which calls the addresses of the engine's host that `reach` admits.
    fn client(&self, reach: Reach) -> Result<&Client> {
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
            .pool_idle_timeout(IDLE)
            .dns_resolver(Arc::new(Guarded(reach)))
            .build()
            .map_err(|e| Error::internal(e.without_url()))?;
        Ok(self.client.get_or_init(|| made))
    }

    /// Posts a question, and gives what `read` makes of the bytes that come back. `reach` has the rules for the address,
    /// the same for every question.
    ///
    /// # Errors
    /// `Unavailable` when the address must not be called and when there is no answer in time, `Busy` when too many calls are on their way,
    /// `BadGateway` for anything that is no answer; those of `read`.
    pub(crate) async fn ask<T>(
        &self,
        question: Vec<u8>,
        clock: &Clock,
        reach: Reach,
        read: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let Ok(_permit) = self.permits.try_acquire() else { return Err(counted("busy", busy())) };
        let Some(ticket) = self.breaker.enter(clock.now()) else { return Err(counted("open", resting())) };
        let started = Instant::now();
        let exchange = tokio::time::timeout(self.timeout, self.exchange(question, reach)).await;
        let outcome = exchange.unwrap_or_else(|_| {
            let text = format!("external policy: the engine did not answer within {} s", self.timeout.as_secs());
            Err(Failure::of("failed", false, Error::unavailable(text, "timed out")))
        });
        metrics::histogram!(telemetry::PKI_POLICY_CALL_SECONDS).record(started.elapsed().as_secs_f64());
        let now = clock.now();
        ticket.tell(outcome.as_ref().map_or_else(|failure| failure.answered, |_| true), now);
        let body = outcome.map_err(|failure| counted(failure.result, failure.error))?;
        let answer = read(&body).map_err(|error| counted("malformed", error))?;
        count("answered");
        self.last_success.store(now.unix_timestamp(), Ordering::Relaxed);
        Ok(answer)
    }

    async fn exchange(&self, question: Vec<u8>, reach: Reach) -> Result<Vec<u8>, Failure> {
        let refused = |error: Error| {
            let text = format!("external policy: {}", error.text());
            Failure::of("failed", false, Error::new(Kind::Unavailable, text))
        };
        reach.url("external_service_url", self.url.as_str()).map_err(refused)?;
        let client = self.client(reach).map_err(|error| Failure::of("failed", false, error))?;
        let request = client.post(self.url.clone()).header(CONTENT_TYPE, MEDIA_TYPE).header(ACCEPT, MEDIA_TYPE);
        let response = traced(request.body(question)).send().await.map_err(unreachable)?;
        let status = response.status();
        if status != StatusCode::OK {
            let text = format!("external policy: the engine answered with status {}", status.as_u16());
            return Err(Failure::of("rejected", !status.is_server_error(), Error::new(Kind::BadGateway, text)));
        }
        body(response).await
    }
}

async fn body(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > MAX_ANSWER {
            let error = Error::new(Kind::BadGateway, "external policy: the engine's answer is larger than 1 MiB");
            return Err(Failure::of("malformed", true, error));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn unreachable(error: reqwest::Error) -> Failure {
    let text = if error.is_connect() {
        "external policy: the engine cannot be reached, or its TLS certificate is not trusted"
    } else {
        "external policy: the connection to the engine failed"
    };
    Failure::of("failed", false, Error::unavailable(text, causes(&error.without_url())))
}

/// The errors behind an error, for the log.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn busy() -> Error {
    Error::new(Kind::Busy, "external policy: too many calls to the engine are on their way")
}

fn resting() -> Error {
    Error::new(Kind::Unavailable, "external policy: the engine failed several times in a row; try again shortly")
}

fn count(result: &'static str) {
    metrics::counter!(telemetry::PKI_POLICY_CALLS, "result" => result).increment(1);
}

fn counted(result: &'static str, error: Error) -> Error {
    count(result);
    error
}
