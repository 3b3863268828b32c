//! Reads request bodies within limits on size, time and total memory.
//!
//! A body above 16 KiB counts against a memory budget of the process until its request ends ([`SenderBudget`]). The
//! request gets 503 when the budget is used up, and 429 when the sender is at its limit. A rejected body is read and
//! discarded up to a limit of bytes and time, so that the client sees the response and no connection reset. Bodies of
//! unauthorized requests, and of routes that need no permission, must arrive within a shorter time. A client that sent
//! `Expect: 100-continue` is not asked to send a body that would be discarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::error::PayloadError;
use actix_web::http::header::{CONTENT_LENGTH, EXPECT, HeaderMap};
use actix_web::web::Payload;
use actix_web::{FromRequest as _, HttpMessage as _, HttpRequest, dev};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};

use super::sender::{Sender, SenderBudget, SenderReservation};
use crate::error::{Error, Kind, Result};
use crate::rationing::Exhausted;

/// Maximum number of bytes of a rejected body that are read and discarded.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// Maximum time to read the body of an unauthorized request.
pub const UNAUTHORIZED_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to read the body of a request to a route that needs no permission.
pub const OPEN_ROUTE_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to read the body of a request whose route ignores the body.
pub const UNUSED_BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// Largest body, in bytes, that does not count against the memory budget.
const UNCOUNTED_BODY_BYTES: usize = 16 << 10;

/// The memory budget that a request body counts against, and the sender that it is charged to.
#[derive(Clone, Copy)]
pub struct BodyBudget<'a> {
    /// The memory budget that all request bodies share.
    pub bodies: &'a SenderBudget,
    /// Returns the sender of the request. Called for large bodies only.
    pub sender: &'a dyn Fn() -> Sender,
}

impl BodyBudget<'_> {
    fn grow_to(self, reservation: &mut SenderReservation, bytes: usize) -> Result<()> {
        reservation.grow_to(self.bodies, self.sender, bytes).map_err(|exhausted| match exhausted {
            Exhausted::Total => Error::new(Kind::Busy, "request body: the memory for bodies is used up; retry"),
            Exhausted::PerCaller => {
                Error::new(Kind::Quota, "request body: too many large concurrent bodies of this caller; retry")
            }
        })
    }
}

/// Request extension shared with the connection: `true` after a caller is identified. When the server must close
/// connections, those that receive a body from an identified caller are closed last.
pub struct CallerIdentified(pub Arc<AtomicBool>);

/// Marks the connection of a request as used by an identified caller.
pub fn mark_identified(request: &HttpRequest) {
    if let Some(CallerIdentified(known)) = request.extensions().get() {
        known.store(true, Ordering::Relaxed);
    }
}

/// Reads a body of at most `limit` bytes within `time`. The reservation must live as long as the values parsed from it.
///
/// # Errors
/// `TooLarge` above the limit, `Busy` when the budget is used up, `Quota` when the sender is at its limit, `Malformed`
/// when the body ends early or takes too long.
pub async fn read_limited(
    headers: &HeaderMap,
    mut payload: Payload,
    limit: usize,
    budget: BodyBudget<'_>,
    time: Duration,
) -> Result<(Bytes, SenderReservation)> {
    let read = async {
        if exceeds_limit_before_continue(headers, limit) {
            return Err(too_large());
        }
        if content_length(headers).is_some_and(|length| length > limit as u64) {
            return Err(discard_and_return(payload, too_large()).await);
        }
        match collect_chunks(headers, &mut payload, limit, budget).await {
            Ok((body, _)) if body.len() > limit => {
                drop(body);
                Err(discard_and_return(payload, too_large()).await)
            }
            Err(error) if is_reservation_error(&error) => Err(discard_and_return(payload, error).await),
            other => other,
        }
    };
    with_timeout(time, read).await
}

/// As [`read_limited`], but a longer body is cut off after `limit + 1` bytes instead of rejected. The returned bytes
/// own their reservation.
///
/// # Errors
/// `Busy` when the budget is used up, `Quota` when the sender is at its limit, `Malformed` when the body ends early or
/// takes too long.
pub async fn read_truncated(
    headers: &HeaderMap,
    mut payload: Payload,
    limit: usize,
    budget: BodyBudget<'_>,
    time: Duration,
) -> Result<Bytes> {
    let read = async {
        match collect_chunks(headers, &mut payload, limit, budget).await {
            Ok((bytes, reservation)) => {
                if bytes.len() > limit {
                    read_and_discard(payload, MAX_DISCARDED_BYTES).await?;
                }
                Ok(reservation.attach_to(bytes))
            }
            Err(error) if is_reservation_error(&error) => Err(discard_and_return(payload, error).await),
            Err(error) => Err(error),
        }
    };
    with_timeout(time, read).await
}

/// Reads and discards a body of at most `limit` bytes within `time`.
///
/// # Errors
/// `TooLarge` above the limit, `Malformed` when it ends early or takes too long.
pub async fn discard(headers: &HeaderMap, payload: Payload, limit: usize, time: Duration) -> Result<()> {
    let large = content_length(headers).is_some_and(|length| length > limit as u64);
    if expects_continue(headers) {
        return if large { Err(too_large()) } else { Ok(()) };
    }
    match with_timeout(time, read_and_discard(payload, MAX_DISCARDED_BYTES)).await {
        Ok(length) if length <= limit && !large => Ok(()),
        Err(error) if !large => Err(error),
        _ => Err(too_large()),
    }
}

/// `true` if a body was rejected because the memory budget is used up or the sender is at its limit.
fn is_reservation_error(error: &Error) -> bool {
    matches!(error.kind(), Kind::Busy | Kind::Quota)
}

async fn with_timeout<T>(time: Duration, read: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || {
        Err(Error::malformed(format!("request body: took too long to arrive (limit {} s); retry", time.as_secs_f64())))
    };
    tokio::time::timeout(time, read).await.unwrap_or_else(|_| late())
}

/// Builds the body of a request from a stream of chunks.
pub fn payload_from_stream(
    request: &HttpRequest,
    pieces: impl Stream<Item = std::result::Result<Bytes, PayloadError>> + 'static,
) -> Payload {
    payload_for_request(request, dev::Payload::Stream { payload: Box::pin(pieces) })
}

/// Builds the body of a request from a payload of the HTTP library.
pub fn payload_for_request(request: &HttpRequest, mut body: dev::Payload) -> Payload {
    Payload::from_request(request, &mut body).into_inner().expect("an actix payload extractor never fails")
}

/// Returns the value of `Content-Length`, if it is valid.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// `true` if the client sends the body only after a 100 response (RFC 9110, 10.1.1). The server sends that response
/// when it starts to read the body.
fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// `true` if the client waits for a 100 response and declared a body above the limit.
pub fn exceeds_limit_before_continue(headers: &HeaderMap, limit: usize) -> bool {
    expects_continue(headers) && content_length(headers).is_some_and(|length| length > limit as u64)
}

fn too_large() -> Error {
    Error::new(Kind::TooLarge, "http: request body too large")
}

async fn next_chunk(payload: &mut Payload) -> Result<Option<Bytes>> {
    let ended_early = |_: PayloadError| Error::malformed("request body: could not be received completely; retry");
    payload.next().await.transpose().map_err(ended_early)
}

/// Reads a body, or the first `limit + 1` bytes of a longer one. The reservation grows before the buffer does. Both
/// grow with the bytes received, so a declared length alone allocates nothing.
async fn collect_chunks(
    headers: &HeaderMap,
    payload: &mut Payload,
    limit: usize,
    budget: BodyBudget<'_>,
) -> Result<(Bytes, SenderReservation)> {
    let mut reservation = SenderReservation::default();
    // Most bodies are one chunk, which is returned without a copy.
    let Some(first) = next_chunk(payload).await? else { return Ok((Bytes::new(), reservation)) };
    if first.len() > limit {
        return Ok((first.slice(..=limit), reservation));
    }
    if first.len() > UNCOUNTED_BODY_BYTES {
        budget.grow_to(&mut reservation, first.len())?;
    }
    let Some(mut chunk) = next_chunk(payload).await? else { return Ok((first, reservation)) };
    let max = content_length(headers).and_then(|length| usize::try_from(length).ok()).unwrap_or(limit + 1);
    let mut body = BytesMut::from(first);
    loop {
        let taken = chunk.len().min(limit + 1 - body.len());
        let wanted = body.len() + taken;
        if wanted > reservation.units().max(UNCOUNTED_BODY_BYTES) {
            let grown = wanted.max((2 * body.len()).min(max).min(limit + 1));
            budget.grow_to(&mut reservation, grown)?;
            body.reserve(grown - body.len());
        }
        body.extend_from_slice(&chunk[..taken]);
        if body.len() > limit {
            return Ok((body.freeze(), reservation));
        }
        match next_chunk(payload).await? {
            Some(more) => chunk = more,
            None => return Ok((body.freeze(), reservation)),
        }
    }
}

async fn discard_and_return(payload: Payload, error: Error) -> Error {
    // An error while discarding the body does not matter: the request is rejected anyway.
    let _ = read_and_discard(payload, MAX_DISCARDED_BYTES).await;
    error
}

/// Reads and discards up to about `max` bytes, and returns how many were read.
async fn read_and_discard(mut payload: Payload, max: usize) -> Result<usize> {
    let mut length = 0;
    while let Some(chunk) = next_chunk(&mut payload).await? {
        length += chunk.len();
        if length > max {
            break;
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    const BODY_TIMEOUT: Duration = Duration::from_secs(30);

    fn budget_of_one_sender(bodies: &SenderBudget) -> BodyBudget<'_> {
        BodyBudget { bodies, sender: &|| Sender::User(1) }
    }

    async fn payload(body: Vec<u8>) -> Payload {
        let (request, mut inner) = TestRequest::default().set_payload(body).to_http_parts();
        Payload::from_request(&request, &mut inner).await.unwrap()
    }

    #[actix_web::test]
    async fn body_budget_is_reserved_and_released_with_the_body() {
        let bodies = SenderBudget::new(100_000);
        let left = || bodies.left();
        let none = HeaderMap::new();
        let small = read_limited(
            &none,
            payload(vec![1; UNCOUNTED_BODY_BYTES]).await,
            1 << 20,
            budget_of_one_sender(&bodies),
            BODY_TIMEOUT,
        )
        .await
        .unwrap();
        assert_eq!((small.0.len(), left()), (UNCOUNTED_BODY_BYTES, 100_000));
        let large =
            read_truncated(&none, payload(vec![2; 60_000]).await, 1 << 20, budget_of_one_sender(&bodies), BODY_TIMEOUT)
                .await
                .unwrap();
        assert_eq!((large.len(), left()), (60_000, 40_000));
        let busy =
            read_limited(&none, payload(vec![3; 40_001]).await, 1 << 20, budget_of_one_sender(&bodies), BODY_TIMEOUT)
                .await;
        assert_eq!((busy.err().unwrap().kind(), left()), (Kind::Busy, 40_000));
        let part = large.slice(..1);
        drop(large);
        assert_eq!(left(), 40_000);
        drop(part);
        let (body, reservation) =
            read_limited(&none, payload(vec![4; 40_001]).await, 1 << 20, budget_of_one_sender(&bodies), BODY_TIMEOUT)
                .await
                .unwrap();
        assert_eq!((body.len(), left()), (40_001, 59_999));
        drop((body, reservation));
        assert_eq!(left(), 100_000);
    }

    #[actix_web::test]
    async fn sender_of_several_bodies_has_a_quarter_of_the_rest() {
        let bodies = SenderBudget::new(240_000);
        let none = HeaderMap::new();
        let other = BodyBudget { bodies: &bodies, sender: &|| Sender::User(2) };
        let keep = |budget, bytes| {
            let none = &none;
            async move { read_limited(none, payload(vec![6; bytes]).await, 1 << 20, budget, BODY_TIMEOUT).await }
        };
        let text = |refused: Result<(Bytes, SenderReservation)>| refused.err().unwrap().text().to_owned();
        let single = keep(budget_of_one_sender(&bodies), 150_000).await.unwrap();
        assert_eq!(
            text(keep(budget_of_one_sender(&bodies), 20_000).await),
            "request body: too many large concurrent bodies of this caller; retry"
        );
        assert_eq!(text(keep(other, 100_000).await), "request body: the memory for bodies is used up; retry");
        drop(single);
        let some = [
            keep(budget_of_one_sender(&bodies), 20_000).await.unwrap(),
            keep(budget_of_one_sender(&bodies), 17_000).await.unwrap(),
        ];
        assert!(keep(budget_of_one_sender(&bodies), 20_000).await.is_err());
        let others = [keep(other, 17_000).await.unwrap(), keep(other, 17_000).await.unwrap()];
        assert!(keep(other, 20_000).await.is_err(), "the limit holds for each sender");
        drop((some, others));
        assert_eq!((bodies.left(), bodies.keys_with_reservations()), (240_000, 0));
    }

    #[actix_web::test]
    async fn small_body_in_many_pieces_reserves_no_budget() {
        let bodies = SenderBudget::new(0);
        let none = HeaderMap::new();
        let pieces = |bytes: usize| {
            let pieces = (0..bytes / 1024).map(|_| Ok(Bytes::from_static(&[5; 1024])));
            let pieces = futures_util::stream::iter(pieces.collect::<Vec<Result<_, PayloadError>>>());
            let mut inner = actix_web::dev::Payload::from(pieces.boxed_local());
            async move { Payload::from_request(&TestRequest::default().to_http_request(), &mut inner).await.unwrap() }
        };
        let small = read_limited(
            &none,
            pieces(UNCOUNTED_BODY_BYTES).await,
            1 << 20,
            budget_of_one_sender(&bodies),
            BODY_TIMEOUT,
        )
        .await
        .unwrap();
        assert_eq!(small.0.len(), UNCOUNTED_BODY_BYTES);
        let larger = read_limited(
            &none,
            pieces(UNCOUNTED_BODY_BYTES + 1024).await,
            1 << 20,
            budget_of_one_sender(&bodies),
            BODY_TIMEOUT,
        )
        .await;
        assert_eq!(larger.err().unwrap().kind(), Kind::Busy);
    }

    #[actix_web::test]
    async fn body_above_its_limit_is_refused_or_truncated() {
        let bodies = SenderBudget::new(1 << 20);
        let none = HeaderMap::new();
        let long = || payload(vec![0; 101]);
        assert_eq!(
            read_limited(&none, long().await, 100, budget_of_one_sender(&bodies), BODY_TIMEOUT)
                .await
                .err()
                .unwrap()
                .kind(),
            Kind::TooLarge
        );
        assert_eq!(
            read_limited(&none, long().await, 101, budget_of_one_sender(&bodies), BODY_TIMEOUT).await.unwrap().0.len(),
            101
        );
        assert_eq!(
            read_truncated(&none, long().await, 50, budget_of_one_sender(&bodies), BODY_TIMEOUT).await.unwrap().len(),
            51
        );
        let over = discard(&none, long().await, 100, BODY_TIMEOUT).await;
        assert_eq!(over.unwrap_err().kind(), Kind::TooLarge);
        discard(&none, long().await, 101, BODY_TIMEOUT).await.unwrap();
    }
}
