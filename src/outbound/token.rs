//! Access tokens of services, cached and shared: the first caller fetches a token, concurrent callers wait for it and
//! share its result, and it is used until shortly before it expires.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::exchange::{OutboundRequest, OutboundResponse, RetryPolicy};
use crate::error::{Error, Kind, Result};
use crate::secret::{Secret, sealed};

/// A token is replaced this long before it expires, or after half of its lifetime if that is later.
const EXPIRY_MARGIN: Duration = Duration::from_secs(300);
/// Time for which no other token is fetched after the service rejected a new one: another would probably be rejected,
/// too.
const REJECTED_TOKEN_PAUSE: Duration = Duration::from_secs(5);
/// Limit on the lifetime of a token, in seconds; longer ones are capped.
const MAX_LIFETIME_SECONDS: u64 = 24 * 3600;

#[derive(Clone)]
pub(crate) struct AccessToken {
    secret: Secret,
    replace_at: Instant,
}

/// The response of an authorization server (RFC 6749, 5.1). Some servers send `expires_in` as a string.
#[derive(Deserialize)]
struct AccessTokenResponse {
    #[serde(with = "sealed")]
    access_token: Secret,
    expires_in: ExpiresIn,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ExpiresIn {
    Number(u64),
    Text(String),
}

impl AccessToken {
    /// Parses the response of an authorization server; the error begins with `service`.
    ///
    /// # Errors
    /// `BadGateway` when the response is an error, or has no token that is valid in a header.
    pub(crate) fn read(reply: &OutboundResponse, service: &str) -> Result<Self> {
        let status = reply.status();
        if status != 200 {
            tracing::debug!(status, reason = reply.error_code(), "the service refused to issue an access token");
            let text = format!("{service} refused the service's credential (status {status})");
            return Err(Error::new(Kind::BadGateway, text));
        }
        let wrong = || Error::new(Kind::BadGateway, format!("{service}: its response has no access token"));
        let grant: AccessTokenResponse = reply.read(service).map_err(|_| wrong())?;
        let lifetime = match grant.expires_in {
            ExpiresIn::Number(seconds) => seconds,
            ExpiresIn::Text(text) => text.parse().map_err(|_| wrong())?,
        };
        let is_header_byte = |b: &u8| b.is_ascii_graphic();
        if grant.access_token.expose().is_empty() || !grant.access_token.expose().iter().all(is_header_byte) {
            return Err(wrong());
        }
        let lifetime = Duration::from_secs(lifetime.min(MAX_LIFETIME_SECONDS));
        Ok(Self { secret: grant.access_token, replace_at: Instant::now() + lifetime - EXPIRY_MARGIN.min(lifetime / 2) })
    }
}

/// A credential that the first caller fetches and all callers use until it is replaced. Concurrent callers also share
/// the error of a failed fetch.
pub(crate) struct SharedCredential<T>(tokio::sync::Mutex<SharedCredentialState<T>>);

struct SharedCredentialState<T> {
    value: Option<T>,
    /// The end time and the error of the last fetch, if it failed.
    failed: Option<(Instant, Error)>,
}

impl<T> Default for SharedCredential<T> {
    fn default() -> Self {
        Self(tokio::sync::Mutex::new(SharedCredentialState { value: None, failed: None }))
    }
}

impl<T: Clone> SharedCredential<T> {
    /// Returns the cached value if it `is_usable`, or else the result of `fetch`.
    ///
    /// # Errors
    /// Those of `fetch`.
    pub(crate) async fn get(
        &self,
        is_usable: impl Fn(&T) -> bool,
        fetch: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let requested_at = Instant::now();
        let mut state = self.0.lock().await;
        if let Some(value) = state.value.as_ref().filter(|value| is_usable(value)) {
            return Ok(value.clone());
        }
        if let Some((_, error)) = state.failed.as_ref().filter(|(at, _)| requested_at < *at) {
            return Err(error.clone());
        }
        *state = SharedCredentialState { value: None, failed: None };
        match fetch.await {
            Ok(value) => {
                state.value = Some(value.clone());
                Ok(value)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

/// The cached access token of a service.
#[derive(Default)]
pub(crate) struct AccessTokenCache {
    credential: SharedCredential<AccessToken>,
    /// Time at which the service rejected a new token; `None` after it has accepted a token.
    rejected_at: Mutex<Option<Instant>>,
}

impl AccessTokenCache {
    /// Sends a call with an access token. If the service rejects the token, sends the call once more with a new token.
    /// If the service rejects the new token, too, rejected tokens are not replaced for [`REJECTED_TOKEN_PAUSE`].
    ///
    /// # Errors
    /// Those of [`OutboundRequest::send`] and of `fetch`.
    pub(crate) async fn send<F: Future<Output = Result<AccessToken>>>(
        &self,
        call: OutboundRequest,
        retries: RetryPolicy,
        service: &str,
        fetch: impl Fn() -> F,
    ) -> Result<OutboundResponse> {
        let token = self.get(None, fetch()).await?;
        let reply = call.with_bearer_token(&token.secret)?.send(retries, service).await?;
        if reply.status() != 401 {
            self.set_rejection(None);
            return Ok(reply);
        }
        if self.is_paused() {
            return Ok(reply);
        }
        let token = self.get(Some(&token), fetch()).await?;
        let reply = call.with_bearer_token(&token.secret)?.send(retries, service).await?;
        self.set_rejection((reply.status() == 401).then(Instant::now));
        Ok(reply)
    }

    fn set_rejection(&self, refused: Option<Instant>) {
        *self.rejected_at.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    fn is_paused(&self) -> bool {
        self.rejected_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|at| at.elapsed() < REJECTED_TOKEN_PAUSE)
    }

    /// Returns the cached token, or else the result of `fetch`. `refused` is a token that the service rejected; it is
    /// not returned again.
    ///
    /// # Errors
    /// Those of `fetch`.
    async fn get(
        &self,
        refused: Option<&AccessToken>,
        fetch: impl Future<Output = Result<AccessToken>>,
    ) -> Result<AccessToken> {
        let is_refused = |token: &AccessToken| refused.is_some_and(|refused| refused.secret == token.secret);
        self.credential.get(|token| Instant::now() < token.replace_at && !is_refused(token), fetch).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::outbound::{Method, Outbound};

    fn token(text: &str, lifetime: u64) -> Result<AccessToken> {
        AccessToken::read(
            &OutboundResponse::new(200, format!(r#"{{"access_token":"{text}","expires_in":{lifetime}}}"#)),
            "directory",
        )
    }

    #[test]
    fn token_that_does_not_fit_a_header_is_refused() {
        assert!(token("t", 3599).unwrap().secret.expose() == b"t");
        let texts = [
            r#"{"access_token":"t"}"#,
            r#"{"access_token":"","expires_in":1}"#,
            r#"{"access_token":"a b","expires_in":1}"#,
            r#"{"access_token":"a\nb","expires_in":1}"#,
            r#"{"access_token":"t","expires_in":"soon"}"#,
            r#"{"access_token":7,"expires_in":1}"#,
            "not json",
        ];
        for text in texts {
            let error = AccessToken::read(&OutboundResponse::new(200, text), "directory").map(drop).unwrap_err();
            assert_eq!((error.kind(), error.text()), (Kind::BadGateway, "directory: its response has no access token"));
        }
        let text = r#"{"access_token":"t","expires_in":"3599","token_type":"Bearer"}"#;
        assert!(AccessToken::read(&OutboundResponse::new(200, text), "directory").is_ok());
    }

    #[tokio::test]
    async fn token_is_refetched_when_rejected_or_expired() {
        let tokens = AccessTokenCache::default();
        let fetched = std::cell::Cell::new(0);
        let fetch = |lifetime| {
            let fetched = &fetched;
            async move {
                tokio::task::yield_now().await;
                fetched.set(fetched.get() + 1);
                token(&format!("t{}", fetched.get()), lifetime)
            }
        };
        let all = join_all((0..8).map(|_| tokens.get(None, fetch(3600)))).await;
        assert!(all.iter().all(|token| token.as_ref().is_ok_and(|token| token.secret.expose() == b"t1")));
        let refused = tokens.get(None, fetch(3600)).await.unwrap();
        assert!(tokens.get(Some(&refused), fetch(0)).await.unwrap().secret.expose() == b"t2");
        // The cached token `t2` has a lifetime of 0, so it has expired.
        assert!(tokens.get(Some(&refused), fetch(3600)).await.unwrap().secret.expose() == b"t3");
        assert_eq!(fetched.get(), 3);
    }

    #[tokio::test]
    async fn failed_token_fetch_is_shared_and_the_next_caller_retries() {
        let tokens = AccessTokenCache::default();
        let fetched = std::cell::Cell::new(0);
        let fetch = || async {
            fetched.set(fetched.get() + 1);
            tokio::task::yield_now().await;
            match fetched.get() {
                1 => Err(Error::new(Kind::Unavailable, "no answer")),
                _ => token("t", 3600),
            }
        };
        let all = join_all((0..8).map(|_| tokens.get(None, fetch()))).await;
        assert!(all.iter().all(|token| token.as_ref().is_err_and(|error| error.text() == "no answer")));
        assert_eq!(fetched.get(), 1);
        assert!(tokens.get(None, fetch()).await.is_ok());
        assert_eq!(fetched.get(), 2);
    }

    #[tokio::test]
    async fn service_that_rejects_new_tokens_causes_only_two_fetches() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // The statuses of successive responses of the test server.
        let statuses = [vec![401; 8], vec![200, 401, 200]].concat();
        tokio::spawn(async move {
            for status in statuses {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let outbound = Outbound::for_configured_urls("", "").unwrap();
        let tokens = AccessTokenCache::default();
        let fetched = std::cell::Cell::new(0);
        let send = async || {
            let fetch = || async {
                fetched.set(fetched.get() + 1);
                token(&format!("t{}", fetched.get()), 3600)
            };
            let call = outbound.request(Method::GET, &url).unwrap();
            tokens.send(call, RetryPolicy::SINGLE_ATTEMPT, "service", fetch).await.unwrap().status()
        };
        for _ in 0..7 {
            assert_eq!(send().await, 401);
        }
        assert_eq!(fetched.get(), 2);
        // A token was accepted before, so the next rejected token is replaced again.
        assert_eq!((send().await, send().await), (200, 200));
        assert_eq!(fetched.get(), 3);
    }
}
