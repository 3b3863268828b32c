//! The bodies of requests: how much is kept of one, and of all of them at once.
//!
//! What is kept counts against a budget of the whole process until its request is answered; a request whose body finds
//! no room there is answered 503, and 429 where its sender has a full share of it ([`budget`](super::budget)). A small
//! body counts nothing: there are only so many connections and requests. What is refused anyway is read without being
//! kept, so that its sender sees the answer: a connection that is closed on a sender in full flow resets. That too has
//! an end, in octets and in time: whoever needs no right to a path has less of it, and nobody waits long for the body of
//! a request that has no use for one. A sender that waits to be told to go on is not told to send what nobody keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::error::PayloadError;
use actix_web::http::header::{CONTENT_LENGTH, EXPECT, HeaderMap};
use actix_web::web::Payload;
use actix_web::{FromRequest as _, HttpMessage as _, HttpRequest, dev};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};

use super::budget::{Budget, Lack, Room};
use super::sender::Sender;
use crate::error::{Error, Kind, Result};

/// How much of a refused body is still read.
const DISCARD: usize = 64 << 20;
/// How long the body of somebody without a right is still read.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long the body of somebody may take who needs no right.
pub const OPEN: Duration = Duration::from_secs(10);
/// How long it is waited for the body of a request that has no use for one.
pub const USELESS: Duration = Duration::from_secs(1);
/// Longest body that counts nothing.
const FREE: usize = 16 << 10;

/// What a body takes its room of, and who sends it.
#[derive(Clone, Copy)]
pub struct Share<'a> {
    /// The budget.
    pub bodies: &'a Budget,
    /// Tells the sender, when there is a large body.
    pub sender: &'a dyn Fn() -> Sender,
}

impl Share<'_> {
    /// Makes the room of a body as large as so many octets.
    fn cover(self, room: &mut Room, octets: usize) -> Result<()> {
        room.cover(self.bodies, self.sender, octets).map_err(|lack| match lack {
            Lack::Room => Error::new(Kind::Busy, "too many request bodies at once"),
            Lack::Share => Error::new(Kind::Quota, "too many large request bodies of one sender at once"),
        })
    }
}

/// What a request carries for its connection to learn that it is known who asks: whoever is known sends a body in peace
/// where others have to leave.
pub struct Known(pub Arc<AtomicBool>);

/// It is known who sends this request.
pub fn known(request: &HttpRequest) {
    if let Some(Known(known)) = request.extensions().get() {
        known.store(true, Ordering::Relaxed);
    }
}

/// Reads a body of at most `limit` octets within a time. Its room is to be kept as long as what is made of it.
///
/// # Errors
/// `TooLarge` above the limit, `Busy` when there is no room, `Quota` when the sender has a full share of it,
/// `Malformed` when it ends early or takes too long.
pub async fn kept(
    headers: &HeaderMap,
    mut payload: Payload,
    limit: usize,
    share: Share<'_>,
    time: Duration,
) -> Result<(Bytes, Room)> {
    let read = async {
        if is_too_long_to_begin(headers, limit) {
            return Err(too_large());
        }
        if declared(headers).is_some_and(|length| length > limit as u64) {
            return Err(discarded(payload, too_large()).await);
        }
        match collected(headers, &mut payload, limit, share).await {
            Ok((body, _)) if body.len() > limit => {
                drop(body);
                Err(discarded(payload, too_large()).await)
            }
            Err(error) if is_for_room(&error) => Err(discarded(payload, error).await),
            other => other,
        }
    };
    in_time(time, read).await
}

/// As [`kept`], of bytes that nobody reads beyond `limit`: of a longer body one octet more is kept. The
/// bytes hold their room themselves.
///
/// # Errors
/// `Busy` and `Quota` when there is no room, `Malformed` when it ends early or takes too long.
pub async fn raw(
    headers: &HeaderMap,
    mut payload: Payload,
    limit: usize,
    share: Share<'_>,
    time: Duration,
) -> Result<Bytes> {
    let read = async {
        match collected(headers, &mut payload, limit, share).await {
            Ok((bytes, room)) => {
                if bytes.len() > limit {
                    skipped(payload, DISCARD).await?;
                }
                Ok(room.held_by(bytes))
            }
            Err(error) if is_for_room(&error) => Err(discarded(payload, error).await),
            Err(error) => Err(error),
        }
    };
    in_time(time, read).await
}

/// Reads a body that nobody wants within a time, keeping nothing.
///
/// # Errors
/// `TooLarge` above the limit, `Malformed` when it ends early or takes too long.
pub async fn passed_over(headers: &HeaderMap, payload: Payload, limit: usize, time: Duration) -> Result<()> {
    let large = declared(headers).is_some_and(|length| length > limit as u64);
    if waits(headers) {
        return if large { Err(too_large()) } else { Ok(()) };
    }
    match in_time(time, skipped(payload, DISCARD)).await {
        Ok(length) if length <= limit && !large => Ok(()),
        Err(error) if !large => Err(error),
        _ => Err(too_large()),
    }
}

/// Whether a body was refused because there is no room for it.
fn is_for_room(error: &Error) -> bool {
    matches!(error.kind(), Kind::Busy | Kind::Quota)
}

async fn in_time<T>(time: Duration, read: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Err(Error::malformed("request body: took too long to arrive"));
    tokio::time::timeout(time, read).await.unwrap_or_else(|_| late())
}

/// The body of a request, made of its pieces.
pub fn of_pieces(
    request: &HttpRequest,
    pieces: impl Stream<Item = std::result::Result<Bytes, PayloadError>> + 'static,
) -> Payload {
    of_request(request, dev::Payload::Stream { payload: Box::pin(pieces) })
}

/// The body of a request.
pub fn of_request(request: &HttpRequest, mut body: dev::Payload) -> Payload {
    Payload::from_request(request, &mut body).into_inner().expect("a body is taken as it is")
}

/// How long it says that it is.
pub fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether the sender keeps the body back until it is told to send it (RFC 9110, 10.1.1): whoever reads tells it.
fn waits(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Whether a body is known to be too long while its sender still keeps it back.
pub fn is_too_long_to_begin(headers: &HeaderMap, limit: usize) -> bool {
    waits(headers) && declared(headers).is_some_and(|length| length > limit as u64)
}

fn too_large() -> Error {
    Error::new(Kind::TooLarge, "http: request body too large")
}

async fn next(payload: &mut Payload) -> Result<Option<Bytes>> {
    let ended_early = |_: PayloadError| Error::malformed("request body: ended early");
    payload.next().await.transpose().map_err(ended_early)
}

/// A body, or the first `limit + 1` octets of a longer one. Room is taken before memory is, and both grow
/// with what has arrived: a length that is only declared is no reason to hold anything.
async fn collected(
    headers: &HeaderMap,
    payload: &mut Payload,
    limit: usize,
    share: Share<'_>,
) -> Result<(Bytes, Room)> {
    let mut room = Room::default();
    // Nearly every body is one chunk, which is passed on without a copy.
    let Some(first) = next(payload).await? else { return Ok((Bytes::new(), room)) };
    if first.len() > limit {
        return Ok((first.slice(..=limit), room));
    }
    if first.len() > FREE {
        share.cover(&mut room, first.len())?;
    }
    let Some(mut chunk) = next(payload).await? else { return Ok((first, room)) };
    let most = declared(headers).and_then(|length| usize::try_from(length).ok()).unwrap_or(limit + 1);
    let mut body = BytesMut::from(first);
    loop {
        let taken = chunk.len().min(limit + 1 - body.len());
        let wanted = body.len() + taken;
        if wanted > room.octets().max(FREE) {
            let grown = wanted.max((2 * body.len()).min(most).min(limit + 1));
            share.cover(&mut room, grown)?;
            body.reserve(grown - body.len());
        }
        body.extend_from_slice(&chunk[..taken]);
        if body.len() > limit {
            return Ok((body.freeze(), room));
        }
        match next(payload).await? {
            Some(more) => chunk = more,
            None => return Ok((body.freeze(), room)),
        }
    }
}

/// The error, once what its sender still sends was read.
async fn discarded(payload: Payload, error: Error) -> Error {
    // Why it ended early does not matter any more.
    let _ = skipped(payload, DISCARD).await;
    error
}

/// Reads on without keeping anything, up to a bound; how much there was.
async fn skipped(mut payload: Payload, most: usize) -> Result<usize> {
    let mut length = 0;
    while let Some(chunk) = next(&mut payload).await? {
        length += chunk.len();
        if length > most {
            break;
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    /// Longer than any of these takes.
    const TIME: Duration = Duration::from_secs(30);

    /// The share of one sender.
    fn one(bodies: &Budget) -> Share<'_> {
        Share { bodies, sender: &|| Sender::User(1) }
    }

    async fn payload(body: Vec<u8>) -> Payload {
        let (request, mut inner) = TestRequest::default().set_payload(body).to_http_parts();
        Payload::from_request(&request, &mut inner).await.unwrap()
    }

    #[actix_web::test]
    async fn room_is_taken_for_what_is_kept_and_given_back() {
        let bodies = Budget::new(100_000);
        let left = || bodies.left();
        let none = HeaderMap::new();
        let small = kept(&none, payload(vec![1; FREE]).await, 1 << 20, one(&bodies), TIME).await.unwrap();
        assert_eq!((small.0.len(), left()), (FREE, 100_000));
        let large = raw(&none, payload(vec![2; 60_000]).await, 1 << 20, one(&bodies), TIME).await.unwrap();
        assert_eq!((large.len(), left()), (60_000, 40_000));
        let busy = kept(&none, payload(vec![3; 40_001]).await, 1 << 20, one(&bodies), TIME).await;
        assert_eq!((busy.err().unwrap().kind(), left()), (Kind::Busy, 40_000));
        let part = large.slice(..1);
        drop(large);
        assert_eq!(left(), 40_000);
        drop(part);
        let (body, room) = kept(&none, payload(vec![4; 40_001]).await, 1 << 20, one(&bodies), TIME).await.unwrap();
        assert_eq!((body.len(), left()), (40_001, 59_999));
        drop((body, room));
        assert_eq!(left(), 100_000);
    }

    #[actix_web::test]
    async fn a_sender_of_several_bodies_has_a_quarter_of_what_is_left() {
        let (bodies, none) = (Budget::new(240_000), HeaderMap::new());
        let other = Share { bodies: &bodies, sender: &|| Sender::User(2) };
        let keep = |share, octets| {
            let none = &none;
            async move { kept(none, payload(vec![6; octets]).await, 1 << 20, share, TIME).await }
        };
        let text = |refused: Result<(Bytes, Room)>| refused.err().unwrap().text().to_owned();
        let single = keep(one(&bodies), 150_000).await.unwrap();
        assert_eq!(text(keep(one(&bodies), 20_000).await), "too many large request bodies of one sender at once");
        assert_eq!(text(keep(other, 100_000).await), "too many request bodies at once");
        drop(single);
        let some = [keep(one(&bodies), 20_000).await.unwrap(), keep(one(&bodies), 17_000).await.unwrap()];
        assert!(keep(one(&bodies), 20_000).await.is_err());
        let others = [keep(other, 17_000).await.unwrap(), keep(other, 17_000).await.unwrap()];
        assert!(keep(other, 20_000).await.is_err(), "each");
        drop((some, others));
        assert_eq!((bodies.left(), bodies.senders()), (240_000, 0));
    }

    #[actix_web::test]
    async fn a_small_body_takes_no_room_in_however_many_pieces_it_comes() {
        let (bodies, none) = (Budget::new(0), HeaderMap::new());
        let pieces = |octets: usize| {
            let pieces = (0..octets / 1024).map(|_| Ok(Bytes::from_static(&[5; 1024])));
            let pieces = futures_util::stream::iter(pieces.collect::<Vec<Result<_, PayloadError>>>());
            let mut inner = actix_web::dev::Payload::from(pieces.boxed_local());
            async move { Payload::from_request(&TestRequest::default().to_http_request(), &mut inner).await.unwrap() }
        };
        let small = kept(&none, pieces(FREE).await, 1 << 20, one(&bodies), TIME).await.unwrap();
        assert_eq!(small.0.len(), FREE);
        let larger = kept(&none, pieces(FREE + 1024).await, 1 << 20, one(&bodies), TIME).await;
        assert_eq!(larger.err().unwrap().kind(), Kind::Busy);
    }

    #[actix_web::test]
    async fn what_is_longer_than_its_limit_is_refused_or_cut() {
        let (bodies, none) = (Budget::new(1 << 20), HeaderMap::new());
        let long = || payload(vec![0; 101]);
        assert_eq!(kept(&none, long().await, 100, one(&bodies), TIME).await.err().unwrap().kind(), Kind::TooLarge);
        assert_eq!(kept(&none, long().await, 101, one(&bodies), TIME).await.unwrap().0.len(), 101);
        assert_eq!(raw(&none, long().await, 50, one(&bodies), TIME).await.unwrap().len(), 51);
        let over = passed_over(&none, long().await, 100, TIME).await;
        assert_eq!(over.unwrap_err().kind(), Kind::TooLarge);
        passed_over(&none, long().await, 101, TIME).await.unwrap();
    }
}
