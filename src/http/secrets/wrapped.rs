//! Answers that their askers want wrapped: put away, with a token in their place
//! ([`auth::wrapping`](crate::auth::wrapping)).
//!
//! What is put away is the answer as it would have been sent, raw bodies too. What has no body, and what is no
//! success, is answered as always, and so are the pages that tell whether the server lives. When an answer cannot be
//! stored its asker hears that and nothing of the answer: what it made stands, and nobody knows its secrets.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use super::answer::{Answer, Body};
use super::render::{self, Context};
use crate::auth::Caller;
use crate::auth::wrapping::{MAX_ANSWER, Terms, Wrapped};
use crate::error::{Error, Result};
use crate::http::request_id::RequestId;
use crate::http::sender::Sender;
use crate::http::state::State;
use crate::secret::Secret;

/// Most octets of what is put away for somebody whom nobody knows.
const OPEN_ANSWER: usize = 64 << 10;
/// Longest time that it is kept, unless they have logged in: what anybody may make the store keep goes soon.
const OPEN_TTL: Duration = Duration::from_secs(300);

/// What is wanted, of a request that is answered soon.
pub(super) struct Wanted {
    ttl: Duration,
    path: String,
    display_name: String,
    /// Whether it is somebody whom nobody knows.
    open: bool,
    sender: Sender,
}

impl Wanted {
    /// For so long, in answer to a request for this path.
    ///
    /// # Errors
    /// `Quota` when the sender has had too much put away.
    pub(super) fn of(
        state: &State,
        ttl: Duration,
        path: &str,
        caller: Option<&Caller>,
        address: Option<IpAddr>,
    ) -> Result<Self> {
        let sender = Sender::of_token(caller, address);
        state.put_away.check(&sender)?;
        let display_name = caller.map(|caller| caller.display_name.clone()).unwrap_or_default();
        Ok(Self { ttl, path: path.to_owned(), display_name, open: caller.is_none(), sender })
    }
}

/// Whether an answer is put away when its asker wants that.
pub(super) fn can_be(answer: &Answer) -> bool {
    render::status_of(answer, None) == 200 && !matches!(answer.body, Body::Wrapped(_))
}

/// Puts an answer away; what its asker gets in its place.
///
/// # Errors
/// `Invalid` when it is too long, or is to be kept too long for somebody whom nobody knows; those of the store.
pub(super) async fn put_away(
    state: &State,
    answer: Answer,
    wanted: Wanted,
    id: &RequestId,
    context: Context<'_>,
) -> Result<Answer> {
    let Wanted { ttl, path, display_name, open, sender } = wanted;
    if open && ttl > OPEN_TTL && !matches!(answer.body, Body::Auth(_)) {
        let rule = format!("wrap-ttl: without a token at most {}s", OPEN_TTL.as_secs());
        return Err(Error::invalid(rule));
    }
    let longest = if open { OPEN_ANSWER } else { MAX_ANSWER };
    let wrapped_accessor = accessor_in(&answer.body, context.mount_type);
    let (media_type, body) = render::whole(answer, id, context, longest).await?;
    let kept = Wrapped { media_type, body: Secret::new(body.into_bytes()) };
    state.put_away.take(sender, kept.body.expose().len());
    let wrapping = state.auth.wrap(&kept, Terms { ttl, path, display_name, wrapped_accessor }).await?;
    Ok(Body::Wrapped(Box::new(wrapping)).into())
}

/// The handle of the token, or of the secret id, that is in an answer.
fn accessor_in(body: &Body, mount_type: &str) -> Option<String> {
    /// What is read of an answer with a secret id.
    #[derive(Deserialize)]
    struct SecretId {
        secret_id_accessor: String,
    }
    let accessor = match body {
        Body::Auth(given) => Some(given.accessor.clone()),
        Body::Rendered(json) if mount_type == "approle" => {
            serde_json::from_slice(json.expose()).ok().map(|id: SecretId| id.secret_id_accessor)
        }
        _ => None,
    };
    accessor.filter(|text| !text.is_empty())
}
