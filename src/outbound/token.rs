//! An access token of a service: fetched by the first who needs it, waited for by the others, and used until
//! shortly before it ends.

use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::Mutex;

use super::exchange::{Call, Reply, Tries};
use crate::error::{Error, Kind, Result};
use crate::secret::{Secret, sealed};

/// How long before its end a token is replaced; half its life where that is less.
const MARGIN: Duration = Duration::from_secs(300);
/// Longest life that is believed.
const LONGEST: u64 = 24 * 3600;

/// An access token.
#[derive(Clone)]
pub(crate) struct Token {
    secret: Secret,
    until: Instant,
}

/// The answer of an authority (RFC 6749 5.1). There are some that write the number as a text.
#[derive(Deserialize)]
struct Grant {
    #[serde(with = "sealed")]
    access_token: Secret,
    expires_in: Seconds,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(u64),
    Text(String),
}

impl Token {
    /// Reads the answer of an authority; `who` is the subject of the error.
    ///
    /// # Errors
    /// `BadGateway` when it is a refusal, has no token, or one that cannot stand in a header.
    pub(crate) fn read(reply: &Reply, who: &str) -> Result<Self> {
        let status = reply.status();
        if status != 200 {
            tracing::debug!(status, body = %reply.for_the_log(), "an access token was refused");
            let text = format!("{who} refused the service's credential (status {status})");
            return Err(Error::new(Kind::BadGateway, text));
        }
        let wrong = || Error::new(Kind::BadGateway, format!("{who}: its answer has no access token"));
        let grant: Grant = serde_json::from_slice(reply.body()).map_err(|_| wrong())?;
        let life = match grant.expires_in {
            Seconds::Number(seconds) => seconds,
            Seconds::Text(text) => text.parse().map_err(|_| wrong())?,
        };
        let is_header = |b: &u8| b.is_ascii_graphic();
        if grant.access_token.expose().is_empty() || !grant.access_token.expose().iter().all(is_header) {
            return Err(wrong());
        }
        let life = Duration::from_secs(life.min(LONGEST));
        Ok(Self { secret: grant.access_token, until: Instant::now() + life - MARGIN.min(life / 2) })
    }
}

/// The token that is held now.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<Option<Token>>);

impl Tokens {
    /// Sends a call with a token. One that the service does not take is replaced once.
    ///
    /// # Errors
    /// Those of [`Call::send`] and of `fetch`.
    pub(crate) async fn send<F: Future<Output = Result<Token>>>(
        &self,
        call: Call,
        tries: Tries,
        who: &str,
        fetch: impl Fn() -> F,
    ) -> Result<Reply> {
        let token = self.get(None, fetch()).await?;
        let reply = call.bearing(&token.secret)?.send(tries, who).await?;
        if reply.status() != 401 {
            return Ok(reply);
        }
        let token = self.get(Some(&token), fetch()).await?;
        call.bearing(&token.secret)?.send(tries, who).await
    }

    /// The token that is held, or else the one of `fetch`. `refused` is one that the service does not take,
    /// which is not given again.
    ///
    /// # Errors
    /// Those of `fetch`.
    async fn get(&self, refused: Option<&Token>, fetch: impl Future<Output = Result<Token>>) -> Result<Token> {
        let mut held = self.0.lock().await;
        let is_refused = |token: &Token| refused.is_some_and(|refused| refused.secret == token.secret);
        if let Some(token) = held.as_ref().filter(|token| Instant::now() < token.until && !is_refused(token)) {
            return Ok(token.clone());
        }
        *held = None;
        let token = fetch.await?;
        *held = Some(token.clone());
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    fn token(text: &str, life: u64) -> Result<Token> {
        Token::read(&Reply::new(200, format!(r#"{{"access_token":"{text}","expires_in":{life}}}"#)), "directory")
    }

    #[test]
    fn an_answer_without_a_token_that_fits_a_header_is_refused() {
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
            let error = Token::read(&Reply::new(200, text), "directory").map(drop).unwrap_err();
            assert_eq!((error.kind(), error.text()), (Kind::BadGateway, "directory: its answer has no access token"));
        }
        let text = r#"{"access_token":"t","expires_in":"3599","token_type":"Bearer"}"#;
        assert!(Token::read(&Reply::new(200, text), "directory").is_ok());
    }

    #[tokio::test]
    async fn a_token_is_fetched_once_and_again_when_it_is_refused_or_old() {
        let tokens = Tokens::default();
        let fetched = std::cell::Cell::new(0);
        let fetch = |life| {
            let fetched = &fetched;
            async move {
                tokio::task::yield_now().await;
                fetched.set(fetched.get() + 1);
                token(&format!("t{}", fetched.get()), life)
            }
        };
        let all = join_all((0..8).map(|_| tokens.get(None, fetch(3600)))).await;
        assert!(all.iter().all(|token| token.as_ref().is_ok_and(|token| token.secret.expose() == b"t1")));
        let refused = tokens.get(None, fetch(3600)).await.unwrap();
        assert!(tokens.get(Some(&refused), fetch(0)).await.unwrap().secret.expose() == b"t2");
        // That one has no life left.
        assert!(tokens.get(Some(&refused), fetch(3600)).await.unwrap().secret.expose() == b"t3");
        assert_eq!(fetched.get(), 3);
    }
}
