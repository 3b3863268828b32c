//! One exchange with a service over HTTP.
//!
//! An attempt is bounded in time, an answer in size. What a service is too busy for, and what did not arrive, is
//! tried again after a moment where that is safe. Redirects are not followed and proxies of the environment not
//! used: a request has a credential in it. What a service says in a body that is no answer reaches nobody but
//! whoever reads the log at debug level.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, redirect, retry};
use zeroize::Zeroizing;

use crate::error::{Error, Kind, Result};

/// Longest time of one attempt, and of that for the connection.
const ATTEMPT: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(3);
/// How long a connection without a request is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Largest answer, octets.
const MAX_ANSWER: usize = 64 * 1024;
/// The wait before the second attempt; it doubles with each one.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait that a service is granted by its `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How often a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::keys) enum Tries {
    /// Once: sent twice, it would be done twice.
    One,
    /// Up to four times.
    Four,
}

/// The HTTP client of all keys.
pub(in crate::keys) struct Rest(Client);

/// What a service answered, be it a refusal.
pub(in crate::keys) struct Reply {
    status: u16,
    body: Zeroizing<Vec<u8>>,
}

impl Reply {
    #[cfg(test)]
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: Zeroizing::new(body.into()) }
    }

    pub(in crate::keys) fn status(&self) -> u16 {
        self.status
    }

    pub(in crate::keys) fn body(&self) -> &[u8] {
        &self.body
    }

    /// The begin of the body, for the log at debug level. Not for an answer with a secret in it.
    pub(in crate::keys) fn for_the_log(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(512)]).into_owned()
    }

    /// The answer, read.
    ///
    /// # Errors
    /// `BadGateway` when it is not what was asked for.
    pub(in crate::keys) fn read<'r, T: serde::Deserialize<'r>>(&'r self, who: &str) -> Result<T> {
        serde_json::from_slice(&self.body)
            .map_err(|_| Error::new(Kind::BadGateway, format!("{who}: its answer is not understood")))
    }
}

impl Rest {
    /// # Errors
    /// `Internal` when TLS cannot be set up.
    pub(in crate::keys) fn new() -> Result<Self> {
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .connect_timeout(CONNECT)
            .timeout(ATTEMPT)
            .pool_idle_timeout(IDLE)
            .build()
            .map_err(|e| Error::internal(e.without_url()))?;
        Ok(Self(client))
    }

    /// To begin a request with. It goes to [`send`].
    pub(in crate::keys) fn client(&self) -> &Client {
        &self.0
    }
}

/// Sends a request and gives the answer, whatever its status; `who` is the subject of errors.
///
/// # Errors
/// `Unavailable` when the last attempt brought no answer or one that asks to come back later, `BadGateway` for an
/// answer that is too large.
pub(in crate::keys) async fn send(request: RequestBuilder, tries: Tries, who: &str) -> Result<Reply> {
    let mut wait = FIRST_WAIT;
    for left in (0..if tries == Tries::Four { 4 } else { 1 }).rev() {
        let attempt = request.try_clone().ok_or_else(|| Error::internal("a request that cannot be sent twice"))?;
        let (failure, asked) = match attempt.send().await {
            Ok(response) if is_passing(response.status().as_u16()) => {
                let text = format!("{who}: answered with status {}", response.status().as_u16());
                (Error::new(Kind::Unavailable, text), retry_after(response.headers()))
            }
            Ok(response) => match read(response, who).await {
                Err(error) if error.kind() == Kind::Unavailable => (error, None),
                answer => return answer,
            },
            Err(error) => (unreachable(error, who), None),
        };
        if left == 0 {
            return Err(failure);
        }
        tracing::debug!(error = %failure, left, "a request to a cloud service is sent again");
        tokio::time::sleep(jittered(wait).max(asked.unwrap_or_default())).await;
        wait *= 2;
    }
    Err(Error::internal("a request without an attempt"))
}

/// Whether a status says that it may be another one in a moment.
fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// A wait, give or take a fifth: those that failed together do not come back together.
fn jittered(wait: Duration) -> Duration {
    let [random] = crate::random::bytes::<1>();
    wait.mul_f64(0.8 + 0.4 * f64::from(random) / 255.0)
}

async fn read(mut response: Response, who: &str) -> Result<Reply> {
    let status = response.status().as_u16();
    let mut body = Zeroizing::new(Vec::new());
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(error, who))? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(Error::new(Kind::BadGateway, format!("{who}: its answer is larger than 64 KiB")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Reply { status, body })
}

fn unreachable(error: reqwest::Error, who: &str) -> Error {
    let text = if error.is_timeout() {
        format!("{who}: did not answer in time")
    } else if error.is_connect() {
        format!("{who}: cannot be reached, or its TLS certificate is not trusted")
    } else {
        format!("{who}: the connection failed")
    };
    Error::unavailable(text, error.without_url())
}
