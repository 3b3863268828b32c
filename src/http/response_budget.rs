//! Memory limits for responses that wait for their clients, and fair sending of long responses.
//!
//! A response above 8 KiB counts against a budget of the process until its last byte is sent
//! ([`SenderBudget`]). A sender at its limit gets 429 before the request is handled; a read gets 503 when the
//! budget is used up. The response to a change is never discarded, because the caller may have no other way to get it.
//! Bodies that are generated or shared while they are sent do not count. Long responses are sent in pieces, scheduled
//! with all other work of the worker ([`fair_scheduler`](super::fair_scheduler)).

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use bytes::Bytes;

use super::fair_scheduler::{COST_PER_BYTE, CpuAccount, SliceWait};
use super::sender::{Sender, SenderBudget, SenderReservation};
use crate::error::{Error, Kind, Result};
use crate::rationing::Exhausted;

/// Largest response, in bytes, that does not count against the memory budget.
const UNCOUNTED_RESPONSE_BYTES: usize = 8 << 10;
/// Largest response, in bytes, that is sent without scheduling.
const UNSCHEDULED_RESPONSE_BYTES: u64 = 16 << 10;
/// Largest piece, in bytes, that is passed to the HTTP library at a time, because the library copies it.
const MAX_PIECE_BYTES: usize = 32 << 10;
/// Bytes that are sent before the response is scheduled again: less than a millisecond of work.
const BYTES_PER_SLICE: usize = 128 << 10;

/// The memory budget of the process for responses.
pub struct ResponseBudget(SenderBudget);

impl ResponseBudget {
    /// Creates a budget of `max` bytes.
    pub fn new(max: usize) -> Self {
        Self(SenderBudget::new(max))
    }

    /// Checks the sender's limit, before a request is handled.
    ///
    /// # Errors
    /// `Quota` when the sender is at its limit.
    pub fn check(&self, sender: impl FnOnce() -> Sender) -> Result<()> {
        if self.0.is_within_limit(sender) { Ok(()) } else { Err(reservation_error(Exhausted::PerCaller)) }
    }

    /// Reserves memory for a response. Only the response to a read may be refused.
    ///
    /// # Errors
    /// `Busy` when the budget is used up, `Quota` when the sender is at its limit.
    pub fn reserve(&self, bytes: usize, reads: bool, sender: impl FnOnce() -> Sender) -> Result<SenderReservation> {
        match bytes > UNCOUNTED_RESPONSE_BYTES {
            true if reads => {
                SenderReservation::reserve_if_any_left(&self.0, sender(), bytes).map_err(reservation_error)
            }
            true => Ok(SenderReservation::reserve_unchecked(&self.0, sender(), bytes)),
            false => Ok(SenderReservation::default()),
        }
    }
}

fn reservation_error(exhausted: Exhausted) -> Error {
    match exhausted {
        Exhausted::Total => Error::new(Kind::Busy, "response: the memory for responses is used up; retry"),
        Exhausted::PerCaller => Error::new(
            Kind::Quota,
            "response: too many large responses of this caller are still being sent; read them first",
        ),
    }
}

/// Holds the reservation until the body is sent, and schedules a long body fairly.
pub fn schedule_response(
    response: HttpResponse,
    reservation: SenderReservation,
    cpu_account: &CpuAccount,
) -> HttpResponse {
    response.map_body(|_, body| {
        if body.size() == BodySize::None {
            return body;
        }
        let body = match (reservation.units(), body.try_into_bytes()) {
            (1.., Ok(bytes)) => BoxBody::new(reservation.attach_to(bytes)),
            (_, Ok(bytes)) => BoxBody::new(bytes),
            (_, Err(body)) => body,
        };
        match body.size() {
            BodySize::Sized(length) if length <= UNSCHEDULED_RESPONSE_BYTES => body,
            _ => BoxBody::new(ScheduledBody {
                body,
                ready: Bytes::new(),
                slice_bytes: 0,
                cpu_account: cpu_account.clone(),
                waiting: None,
            }),
        }
    })
}

/// A long body that is sent in scheduled pieces.
struct ScheduledBody {
    body: BoxBody,
    /// The unsent rest of the last chunk that `body` returned.
    ready: Bytes,
    /// Bytes sent since the response was last scheduled.
    slice_bytes: usize,
    cpu_account: CpuAccount,
    /// The wait for the next time slice, if one is pending.
    waiting: Option<SliceWait>,
}

impl ScheduledBody {
    /// Waits for the sender's next time slice if [`BYTES_PER_SLICE`] bytes have been sent.
    fn poll_slice(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.slice_bytes >= BYTES_PER_SLICE {
            self.slice_bytes = 0;
            self.waiting = self.cpu_account.join_queue();
            if self.waiting.is_none() {
                // The sender has time left; other tasks that are ready run first.
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

impl MessageBody for ScheduledBody {
    type Error = Box<dyn StdError>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        ready!(this.poll_slice(cx));
        let begun = Instant::now();
        if this.ready.is_empty() {
            match ready!(this.cpu_account.scope_of_body(|| Pin::new(&mut this.body).poll_next(cx))) {
                Some(Ok(bytes)) => this.ready = bytes,
                other => return Poll::Ready(other),
            }
        }
        let piece = this.ready.split_to(this.ready.len().min(MAX_PIECE_BYTES));
        this.slice_bytes += piece.len();
        this.cpu_account.charge(begun.elapsed() + sending_cost(piece.len()));
        Poll::Ready(Some(Ok(piece)))
    }
}

/// Returns the estimated time to send `bytes` bytes.
fn sending_cost(bytes: usize) -> Duration {
    COST_PER_BYTE * u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::super::fair_scheduler::FairScheduler;
    use super::*;

    fn first_sender() -> Sender {
        Sender::User(1)
    }

    fn second_sender() -> Sender {
        Sender::User(2)
    }

    fn kind<T>(outcome: Result<T>) -> Option<Kind> {
        outcome.err().map(|error| error.kind())
    }

    #[test]
    fn response_budget_limits_reads_but_never_completed_changes() {
        let budget = ResponseBudget::new(1_000_000);
        let take = |bytes, reads, sender: fn() -> Sender| budget.reserve(bytes, reads, sender);
        assert_eq!(take(UNCOUNTED_RESPONSE_BYTES, true, first_sender).unwrap().units(), 0);
        let first = take(150_000, true, first_sender).unwrap();
        assert_eq!(kind(take(60_000, true, first_sender)), Some(Kind::Quota));
        assert_eq!(kind(budget.check(first_sender)), None);
        let change = take(60_000, false, first_sender).unwrap();
        assert_eq!((kind(budget.check(first_sender)), kind(budget.check(second_sender))), (Some(Kind::Quota), None));
        assert_eq!(
            take(UNCOUNTED_RESPONSE_BYTES, true, first_sender).unwrap().units(),
            0,
            "a small response needs no budget"
        );
        // The last reservation may exceed the rest of the budget.
        let last = take(2_000_000, true, second_sender).unwrap();
        assert_eq!(kind(take(UNCOUNTED_RESPONSE_BYTES + 1, true, || Sender::User(3))), Some(Kind::Busy));
        drop((first, change, last));
        assert_eq!((budget.0.left(), budget.0.keys_with_reservations()), (1_000_000, 0));
        assert_eq!(kind(budget.check(first_sender)), None);
    }

    async fn next(body: &mut BoxBody) -> Option<Bytes> {
        std::future::poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await.map(std::result::Result::unwrap)
    }

    #[actix_web::test]
    async fn response_budget_is_reserved_until_the_last_byte_is_sent() {
        let budget = ResponseBudget::new(1_000_000);
        let whole: Bytes = (0..300_000).map(|n| n as u8).collect::<Vec<_>>().into();
        let response = HttpResponse::Ok().body(whole.clone());
        let reservation = budget.reserve(whole.len(), true, first_sender).unwrap();
        let work = async |cpu_account: CpuAccount| {
            cpu_account.set_sender(&first_sender());
            let mut body = schedule_response(response, reservation, &cpu_account).into_body();
            assert_eq!(body.size(), BodySize::Sized(300_000));
            let mut pieces = Vec::new();
            while let Some(piece) = next(&mut body).await {
                assert!(piece.len() <= MAX_PIECE_BYTES);
                pieces.push(piece);
            }
            drop(body);
            assert_eq!((pieces.concat(), budget.0.left()), (whole.to_vec(), 700_000));
            pieces.truncate(1);
            assert_eq!(budget.0.left(), 700_000, "the reservation lasts while a piece exists");
        };
        FairScheduler::default().run_charged(work).await;
        assert_eq!(budget.0.left(), 1_000_000);
    }

    #[actix_web::test]
    async fn long_response_yields_to_other_tasks() {
        let scheduler = FairScheduler::default();
        let polled_pieces = Rc::new(Cell::new(0));
        let counted = Rc::clone(&polled_pieces);
        let pieces = (0..64).map(move |_| {
            counted.set(counted.get() + 1);
            Ok::<_, std::io::Error>(Bytes::from_static(&[0; MAX_PIECE_BYTES]))
        });
        let body = actix_web::body::SizedStream::new(64 * MAX_PIECE_BYTES as u64, futures_util::stream::iter(pieces));
        let send = scheduler.run_charged(async |cpu_account: CpuAccount| {
            cpu_account.set_sender(&first_sender());
            let mut body = schedule_response(HttpResponse::Ok().body(body), SenderReservation::default(), &cpu_account)
                .into_body();
            let mut sent = 0;
            while let Some(piece) = next(&mut body).await {
                sent += piece.len();
            }
            sent
        });
        let mut max = 0;
        let background = async {
            let mut before = 0;
            while polled_pieces.get() < 64 {
                max = max.max(polled_pieces.get() - before);
                before = polled_pieces.get();
                tokio::task::yield_now().await;
            }
        };
        let (sent, ()) = futures_util::future::join(send, background).await;
        assert_eq!(sent, 64 * MAX_PIECE_BYTES);
        assert!((1..=BYTES_PER_SLICE / MAX_PIECE_BYTES).contains(&max), "{max} pieces without a yield");
    }
}
