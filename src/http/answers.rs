//! Answers on their way: how many octets wait for their clients, and how the server sends them.
//!
//! An answer that is made is there until its client has taken it. So large ones count against a budget of the whole
//! process from when they are made until the last octet has gone ([`budget`](super::budget)). Who has a full share of it
//! is answered 429 before anything is done; a read that finds no room when it is made is refused, too. The answer to a
//! change is never thrown away: its caller may have no other one. A small answer counts nothing: there are only so many
//! connections and requests. Nor does what is made, or taken from where it is shared, while it is sent.
//!
//! A long answer is sent in pieces, and in turns like whatever a worker does ([`passes`](super::passes)): to make, to
//! encrypt and to copy it takes time that others wait for.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use bytes::Bytes;

use super::budget::{Budget, Lack, Room};
use super::passes::{OCTET, Times, Waiting};
use super::sender::Sender;
use crate::error::{Error, Kind, Result};

/// Longest answer that counts nothing, octets.
const FREE: usize = 8 << 10;
/// Longest answer that is sent without a turn, octets.
const SMALL: u64 = 16 << 10;
/// Most of an answer that is given to HTTP at once, octets: it copies it.
const PIECE: usize = 32 << 10;
/// So much of an answer is sent in one turn, octets: less than a millisecond's work.
const PORTION: usize = 128 << 10;

/// The budget of a process for answers.
pub struct Answers(Budget);

impl Answers {
    /// Room for `most` octets.
    pub fn new(most: usize) -> Self {
        Self(Budget::new(most))
    }

    /// Whether a sender may have one more answer. Asked before anything is done.
    ///
    /// # Errors
    /// `Quota` when the sender has a full share.
    pub fn check(&self, sender: impl FnOnce() -> Sender) -> Result<()> {
        if self.0.has_share(sender) { Ok(()) } else { Err(refused(Lack::Share)) }
    }

    /// Room for an answer of so many octets; one that `reads` may be refused.
    ///
    /// # Errors
    /// `Busy` when there is no room, `Quota` when the sender has a full share of it.
    pub fn take(&self, octets: usize, reads: bool, sender: impl FnOnce() -> Sender) -> Result<Room> {
        match octets > FREE {
            true if reads => Room::last(&self.0, sender(), octets).map_err(refused),
            true => Ok(Room::anyhow(&self.0, sender(), octets)),
            false => Ok(Room::default()),
        }
    }
}

fn refused(lack: Lack) -> Error {
    match lack {
        Lack::Room => Error::new(Kind::Busy, "too many large answers wait for their clients"),
        Lack::Share => Error::new(Kind::Quota, "too many large answers of one sender wait to be taken"),
    }
}

/// An answer as it is sent: whole in the memory it holds its room; a long one goes in turns.
pub fn sent(response: HttpResponse, room: Room, times: &Times) -> HttpResponse {
    response.map_body(|_, body| {
        if body.size() == BodySize::None {
            return body;
        }
        let body = match (room.octets(), body.try_into_bytes()) {
            (1.., Ok(bytes)) => BoxBody::new(room.held_by(bytes)),
            (_, Ok(bytes)) => BoxBody::new(bytes),
            (_, Err(body)) => body,
        };
        match body.size() {
            BodySize::Sized(length) if length <= SMALL => body,
            _ => BoxBody::new(InTurns { body, ready: Bytes::new(), given: 0, times: times.clone(), waiting: None }),
        }
    })
}

/// A long body.
struct InTurns {
    body: BoxBody,
    /// What was made of it and is not given yet.
    ready: Bytes,
    /// Octets that were given in this turn.
    given: usize,
    times: Times,
    /// For the next turn.
    waiting: Option<Waiting>,
}

impl InTurns {
    /// Waits for the next turn when this one is over.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.given >= PORTION {
            self.given = 0;
            self.waiting = self.times.place();
            if self.waiting.is_none() {
                // Whoever is ready comes first, whoever asks.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        if let Some(waiting) = &mut self.waiting {
            ready!(Pin::new(waiting).poll(cx));
            self.waiting = None;
        }
        Poll::Ready(())
    }
}

impl MessageBody for InTurns {
    type Error = Box<dyn StdError>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        ready!(this.poll_turn(cx));
        let begun = Instant::now();
        if this.ready.is_empty() {
            match ready!(this.times.scope_of_body(|| Pin::new(&mut this.body).poll_next(cx))) {
                Some(Ok(bytes)) => this.ready = bytes,
                other => return Poll::Ready(other),
            }
        }
        let piece = this.ready.split_to(this.ready.len().min(PIECE));
        this.given += piece.len();
        this.times.spent(begun.elapsed() + octets(piece.len()));
        Poll::Ready(Some(Ok(piece)))
    }
}

/// What it costs to send so many octets.
fn octets(many: usize) -> Duration {
    OCTET * u32::try_from(many).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::super::passes::Passes;
    use super::*;

    fn one() -> Sender {
        Sender::User(1)
    }

    fn other() -> Sender {
        Sender::User(2)
    }

    fn kind<T>(outcome: Result<T>) -> Option<Kind> {
        outcome.err().map(|error| error.kind())
    }

    #[test]
    fn a_sender_has_a_share_and_what_is_done_is_answered_all_the_same() {
        let answers = Answers::new(1_000_000);
        let take = |octets, reads, sender: fn() -> Sender| answers.take(octets, reads, sender);
        assert_eq!(take(FREE, true, one).unwrap().octets(), 0);
        let first = take(150_000, true, one).unwrap();
        assert_eq!(kind(take(60_000, true, one)), Some(Kind::Quota));
        assert_eq!(kind(answers.check(one)), None);
        let change = take(60_000, false, one).unwrap();
        assert_eq!((kind(answers.check(one)), kind(answers.check(other))), (Some(Kind::Quota), None));
        assert_eq!(take(FREE, true, one).unwrap().octets(), 0, "it takes nothing");
        // The last one may be larger than what is left.
        let last = take(2_000_000, true, other).unwrap();
        assert_eq!(kind(take(FREE + 1, true, || Sender::User(3))), Some(Kind::Busy));
        drop((first, change, last));
        assert_eq!((answers.0.left(), answers.0.senders()), (1_000_000, 0));
        assert_eq!(kind(answers.check(one)), None);
    }

    async fn next(body: &mut BoxBody) -> Option<Bytes> {
        std::future::poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await.map(std::result::Result::unwrap)
    }

    #[actix_web::test]
    async fn an_answer_has_its_room_until_its_last_octet_has_gone() {
        let answers = Answers::new(1_000_000);
        let whole: Bytes = (0..300_000).map(|n| n as u8).collect::<Vec<_>>().into();
        let (response, room) = (HttpResponse::Ok().body(whole.clone()), answers.take(whole.len(), true, one).unwrap());
        let work = async |times: Times| {
            times.are_of(&one());
            let mut body = sent(response, room, &times).into_body();
            assert_eq!(body.size(), BodySize::Sized(300_000));
            let mut pieces = Vec::new();
            while let Some(piece) = next(&mut body).await {
                assert!(piece.len() <= PIECE);
                pieces.push(piece);
            }
            drop(body);
            assert_eq!((pieces.concat(), answers.0.left()), (whole.to_vec(), 700_000));
            pieces.truncate(1);
            assert_eq!(answers.0.left(), 700_000, "all of it is there");
        };
        Passes::default().account(work).await;
        assert_eq!(answers.0.left(), 1_000_000);
    }

    #[actix_web::test]
    async fn others_have_their_turn_while_a_long_answer_is_made() {
        let passes = Passes::default();
        let made = Rc::new(Cell::new(0));
        let counted = Rc::clone(&made);
        let pieces = (0..64).map(move |_| {
            counted.set(counted.get() + 1);
            Ok::<_, std::io::Error>(Bytes::from_static(&[0; PIECE]))
        });
        let body = actix_web::body::SizedStream::new(64 * PIECE as u64, futures_util::stream::iter(pieces));
        let send = passes.account(async |times: Times| {
            times.are_of(&one());
            let mut body = sent(HttpResponse::Ok().body(body), Room::default(), &times).into_body();
            let mut sent = 0;
            while let Some(piece) = next(&mut body).await {
                sent += piece.len();
            }
            sent
        });
        let mut most = 0;
        let beside = async {
            let mut before = 0;
            while made.get() < 64 {
                most = most.max(made.get() - before);
                before = made.get();
                tokio::task::yield_now().await;
            }
        };
        let (sent, ()) = futures_util::future::join(send, beside).await;
        assert_eq!(sent, 64 * PIECE);
        assert!((1..=PORTION / PIECE).contains(&most), "{most} pieces in one turn");
    }
}
