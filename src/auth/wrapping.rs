//! Response wrapping: a response is stored instead of sent, and can be fetched once with a single-use wrapping token.
//!
//! [`Auth::wrap`] stores the response and its token in one commit; the client receives the token ([`WrapInfo`]) and
//! passes it on. A request that fetches the response deletes the token's row, which is possible only while the token
//! has a use left. So exactly one of several concurrent requests succeeds, on any node. The others get the error for an
//! invalid token. A recipient who gets that error knows that another client has fetched the response. The stored
//! response is encrypted, and is deleted when the token expires.

use std::time::Duration;

use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::mounts::{SYSTEM_TTL, TOKEN_MOUNT_PATH};
use super::policies::WRAPPING_POLICY_NAME;
use super::store::{AuthWrite, CubbyholeRow, TokenRow};
use super::token::{TokenOwners, TokenRecord, hash_of, new_token, token_row};
use super::{Auth, Caller};
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;
use crate::telemetry;

/// Path of the wrapped response in the cubbyhole of its token; clients cannot write an entry with this path.
const STORED_RESPONSE_PATH: &str = "";
/// Maximum size of a wrapped response in bytes.
pub const MAX_WRAPPED_RESPONSE_BYTES: usize = 1 << 20;
/// Minimum lifetime of a wrapped response. Responses show TTLs in whole seconds, so a shorter one would be shown as 0.
const MIN_WRAP_TTL: Duration = Duration::from_secs(1);

/// A response that is wrapped or was unwrapped.
pub struct WrappedResponse {
    /// Media type of the response body.
    pub media_type: String,
    /// Body of the response.
    pub body: Secret,
}

/// Parameters with which a response is wrapped.
pub struct WrapParameters {
    /// Lifetime of the wrapping token and of the stored response.
    pub ttl: Duration,
    /// Path of the request whose response is wrapped.
    pub path: String,
    /// Display name of the caller who made that request; `""` without a token.
    pub display_name: String,
    /// Accessor of the token or secret id that the wrapped response contains; `None` if it contains neither.
    pub wrapped_accessor: Option<String>,
}

/// The description of a wrapped response that the client receives instead of the response.
pub struct WrapInfo {
    /// The wrapping token, with which the response can be fetched once.
    pub token: Secret,
    /// Accessor of the wrapping token.
    pub accessor: String,
    /// Lifetime of the wrapping token and of the stored response.
    pub ttl: Duration,
    /// Time at which the response was wrapped.
    pub creation_time: Time,
    /// Path of the request whose response is wrapped.
    pub creation_path: String,
    /// Accessor of the token or secret id that the wrapped response contains; `None` if it contains neither.
    pub wrapped_accessor: Option<String>,
}

impl WrappedResponse {
    /// Encodes the response for storage: the media type, a line feed, and the body.
    fn to_body(&self) -> Vec<u8> {
        let body = self.body.expose();
        // The buffer is allocated at full size, because growing it would leave copies of the secret in memory.
        let mut encoded = Vec::with_capacity(self.media_type.len() + 1 + body.len());
        encoded.extend_from_slice(self.media_type.as_bytes());
        encoded.push(b'\n');
        encoded.extend_from_slice(body);
        encoded
    }

    fn of(encoded: &Zeroizing<Vec<u8>>) -> Result<Self> {
        let separator = encoded
            .iter()
            .position(|b| *b == b'\n')
            .ok_or_else(|| Error::internal("the stored wrapped response has no media type"))?;
        let media_type = std::str::from_utf8(&encoded[..separator]).map_err(Error::internal)?.to_owned();
        Ok(Self { media_type, body: Secret::new(&encoded[separator + 1..]) })
    }
}

fn invalid_wrapping_token() -> Error {
    Error::invalid("wrapping token is not valid or does not exist")
}

impl Auth {
    /// Checks the lifetime with which a client requests wrapping of a response.
    ///
    /// # Errors
    /// `Invalid` below one second and above the maximum lifetime of tokens.
    pub fn check_wrapping_ttl(&self, ttl: Duration) -> Result<()> {
        if ttl < MIN_WRAP_TTL {
            return Err(Error::invalid("wrap-ttl: must be at least one second"));
        }
        let longest = self.mounts.load().get(TOKEN_MOUNT_PATH).map_or(SYSTEM_TTL, |mount| mount.max_ttl());
        if ttl > longest {
            let seconds = longest.as_secs();
            return Err(Error::invalid(format!("wrap-ttl: exceeds the maximum token lifetime of {seconds}s")));
        }
        Ok(())
    }

    /// Stores the response `answer`, and creates the wrapping token with which it can be fetched.
    ///
    /// # Errors
    /// Store errors. The response may be stored nevertheless, but the client cannot fetch it.
    pub async fn wrap(&self, answer: &WrappedResponse, terms: WrapParameters) -> Result<WrapInfo> {
        self.wrap_and_consume(None, answer.to_body(), terms).await
    }

    /// Stores an encoded response under a new wrapping token. `consumed_token` is a write that deletes the previous
    /// wrapping token in the same commit.
    async fn wrap_and_consume(
        &self,
        consumed_token: Option<AuthWrite>,
        body: Vec<u8>,
        terms: WrapParameters,
    ) -> Result<WrapInfo> {
        let WrapParameters { ttl, path, display_name, wrapped_accessor } = terms;
        let mut record = self.new_token_record(vec![WRAPPING_POLICY_NAME.to_owned()], display_name, &path);
        (record.creation_ttl, record.grant, record.explicit_max_ttl) = (ttl, ttl, ttl);
        let token = Zeroizing::new(new_token(record.created_at));
        let row = token_row(&token, &record, Some(ttl), Some(1), TokenOwners::default())?;
        let entry = CubbyholeRow { token: row.hash, path: STORED_RESPONSE_PATH.to_owned(), body };
        let wrap = [AuthWrite::TokenInsert(row), AuthWrite::CubbyholePut(entry)];
        self.store.commit(consumed_token.into_iter().chain(wrap).collect()).await?;
        Ok(WrapInfo {
            token: Secret::new(token.as_bytes()),
            accessor: record.accessor,
            ttl,
            creation_time: record.created_at,
            creation_path: path,
            wrapped_accessor,
        })
    }

    /// Returns `creation_path`, `creation_time` and `creation_ttl` of a wrapped response, without fetching the
    /// response.
    ///
    /// # Errors
    /// `Invalid` if the token is no wrapping token or was used; store errors.
    pub async fn wrapping_lookup(&self, token: &str) -> Result<Value> {
        let (_, record) = self.wrapping_token(token).await?;
        Ok(json!({
            "creation_path": record.path,
            "creation_time": format_rfc3339(record.created_at),
            "creation_ttl": record.creation_ttl.as_secs(),
        }))
    }

    /// Returns the response of the wrapping token `token`, and deletes the token.
    ///
    /// # Errors
    /// `Invalid` if the token is no wrapping token or was used; store errors, after which the response may be lost.
    pub async fn unwrap_response(&self, token: &str) -> Result<WrappedResponse> {
        let (row, _) = self.wrapping_token(token).await?;
        let encoded = self.stored_response(&row).await?;
        self.store.commit(vec![AuthWrite::TokenTake(row.hash)]).await.map_err(conflict_as_invalid_token)?;
        WrappedResponse::of(&encoded)
    }

    /// Moves a wrapped response to a new wrapping token with the original lifetime, and deletes the old token.
    ///
    /// # Errors
    /// As [`Auth::unwrap_response`].
    pub async fn rewrap(&self, token: &str) -> Result<WrapInfo> {
        let (row, record) = self.wrapping_token(token).await?;
        let encoded = std::mem::take(&mut *self.stored_response(&row).await?);
        let TokenRecord { path, display_name, creation_ttl: ttl, .. } = record;
        let terms = WrapParameters { ttl, path, display_name, wrapped_accessor: None };
        self.wrap_and_consume(Some(AuthWrite::TokenTake(row.hash)), encoded, terms)
            .await
            .map_err(conflict_as_invalid_token)
    }

    /// Returns the wrapped response if the caller's own token is a wrapping token; `None` for other tokens. The current
    /// request has already taken the token's only use.
    ///
    /// # Errors
    /// Store errors.
    pub(super) async fn own_wrapped_response(&self, caller: &Caller) -> Result<Option<WrappedResponse>> {
        if caller.policies != [WRAPPING_POLICY_NAME] {
            return Ok(None);
        }
        let Some(entry) = self.store.cubbyhole(caller.hash, STORED_RESPONSE_PATH.to_owned()).await? else {
            return Ok(None);
        };
        // The request has taken the token's only use, so the response cannot be fetched again even if this write fails.
        // A sweep deletes the row then.
        if let Err(error) = self.store.commit(vec![AuthWrite::TokenRevoke(vec![caller.hash])]).await {
            telemetry::warn_task_failed("a used wrapping token was not deleted and stays until the next sweep", &error);
        }
        WrappedResponse::of(&Zeroizing::new(entry.body)).map(Some)
    }

    async fn wrapping_token(&self, token: &str) -> Result<(TokenRow, TokenRecord)> {
        let row = self
            .live_row(hash_of(token).ok_or_else(invalid_wrapping_token)?)
            .await?
            .ok_or_else(invalid_wrapping_token)?;
        let record = TokenRecord::of(&row)?;
        // Only wrapping tokens have exactly this policy.
        if record.policies == [WRAPPING_POLICY_NAME] { Ok((row, record)) } else { Err(invalid_wrapping_token()) }
    }

    async fn stored_response(&self, row: &TokenRow) -> Result<Zeroizing<Vec<u8>>> {
        let entry = self.store.cubbyhole(row.hash, STORED_RESPONSE_PATH.to_owned()).await?;
        entry.map(|entry| Zeroizing::new(entry.body)).ok_or_else(invalid_wrapping_token)
    }
}

fn conflict_as_invalid_token(error: Error) -> Error {
    if error.kind() == Kind::Conflict { invalid_wrapping_token() } else { error }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use time::macros::datetime;

    use super::*;
    use crate::auth::store::AuthStore as _;
    use crate::auth::tests::TestStore;
    use crate::clock::Clock;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn open_auth() -> (Arc<Auth>, Arc<TestStore>, Clock) {
        let clock = Clock::manual(datetime!(2030-01-01 00:00 UTC));
        let store = TestStore::open(&clock).await;
        (Auth::open(store.clone(), clock.clone()).await.unwrap(), store, clock)
    }

    async fn wrap_response(auth: &Auth) -> WrapInfo {
        let answer =
            WrappedResponse { media_type: "application/json".to_owned(), body: Secret::new(b"{\n}\n".as_slice()) };
        let terms = WrapParameters {
            ttl: MINUTE,
            path: "pki/issue/web".to_owned(),
            display_name: "token".to_owned(),
            wrapped_accessor: None,
        };
        auth.wrap(&answer, terms).await.unwrap()
    }

    fn text(secret: &Secret) -> &str {
        secret.expose_text().unwrap()
    }

    #[tokio::test]
    async fn wrapped_response_can_be_fetched_once() {
        let (auth, store, _) = open_auth().await;
        let wrapping = wrap_response(&auth).await;
        let token = text(&wrapping.token);
        let described = auth.wrapping_lookup(token).await.unwrap();
        let expected = json!({ "creation_path": "pki/issue/web", "creation_time": "2030-01-01T00:00:00Z",
            "creation_ttl": 60 });
        assert_eq!(described, expected);
        let answer = auth.unwrap_response(token).await.unwrap();
        assert!(answer.media_type == "application/json" && answer.body.expose() == b"{\n}\n");
        let row = store.cubbyhole(hash_of(token).unwrap(), STORED_RESPONSE_PATH.to_owned()).await.unwrap();
        assert!(row.is_none() && store.all_tokens().await.is_empty());
        for error in [auth.unwrap_response(token).await.err(), auth.wrapping_lookup(token).await.err()] {
            assert_eq!(error.unwrap().text(), "wrapping token is not valid or does not exist");
        }
    }

    #[tokio::test]
    async fn rewrap_moves_the_response_and_ends_the_first_token() {
        let (auth, store, clock) = open_auth().await;
        let first = wrap_response(&auth).await;
        clock.advance(Duration::from_secs(50));
        let second = auth.rewrap(text(&first.token)).await.unwrap();
        assert!(auth.unwrap_response(text(&first.token)).await.is_err());
        assert_eq!((second.ttl, &second.creation_path[..]), (MINUTE, "pki/issue/web"));
        assert_eq!(second.creation_time, clock.now());
        clock.advance(Duration::from_secs(59));
        assert!(auth.unwrap_response(text(&second.token)).await.unwrap().body.expose() == b"{\n}\n");
        assert!(store.all_tokens().await.is_empty());
    }

    #[tokio::test]
    async fn only_live_wrapping_tokens_have_a_response() {
        let (auth, _, clock) = open_auth().await;
        let root = auth.root_token(None, "test").await.unwrap();
        let wrapping = wrap_response(&auth).await;
        clock.advance(MINUTE);
        for token in [root.as_str(), text(&wrapping.token), "", "s.unknown", &"x".repeat(1_000)] {
            assert_eq!(auth.unwrap_response(token).await.err().unwrap().kind(), Kind::Invalid, "{}", token.len());
            assert_eq!(auth.rewrap(token).await.err().unwrap().kind(), Kind::Invalid);
        }
    }

    #[tokio::test]
    async fn response_that_cannot_be_stored_is_not_wrapped() {
        let (auth, store, _) = open_auth().await;
        store.set_unavailable(true);
        let answer = WrappedResponse { media_type: "text/plain".to_owned(), body: Secret::new(b"hunter2".as_slice()) };
        let terms =
            WrapParameters { ttl: MINUTE, path: "a".to_owned(), display_name: String::new(), wrapped_accessor: None };
        let error = auth.wrap(&answer, terms).await.err().unwrap();
        assert!(error.kind() == Kind::Unavailable && !error.text().contains("hunter2"));
        store.set_unavailable(false);
        assert!(store.all_tokens().await.is_empty());
    }

    #[tokio::test]
    async fn wrap_ttl_has_bounds() {
        let (auth, ..) = open_auth().await;
        for (seconds, good) in [(0.999, false), (1.0, true), (2_764_800.0, true), (2_764_801.0, false)] {
            assert_eq!(auth.check_wrapping_ttl(Duration::from_secs_f64(seconds)).is_ok(), good, "{seconds}");
        }
    }
}
