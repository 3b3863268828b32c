//! One request of a connection: from the app's call to the end of its answer and of a short body that nobody read,
//! or until the client does not want it any more.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use actix_http::body::{BoxBody, MessageBody};
use actix_http::header::EXPECT;
use actix_http::{HttpMessage as _, Method, Request, Response};
use actix_service::Service;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::try_join;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};

use super::answer::{self, Date};
use super::body::{self, Rest};
use super::request;
use super::wire::{Activity, Handled};
use crate::server::capacity::Taken;
use crate::server::expect::watched;

/// A request as it came, what says that it is under way, and the room it takes.
pub(super) struct Incoming {
    pub(super) request: http_types::Request<RecvStream>,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) handled: Handled,
    pub(super) taken: Option<Taken>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With an answer.
    Answered,
    /// The client did not want it any more.
    Reset,
}

/// Calls the app and sends what it answers. The call is dropped when the client takes its request back.
pub(super) async fn exchange<S, B>(
    app: Rc<S>,
    incoming: Incoming,
    peer: SocketAddr,
    date: Rc<Date>,
    activity: Rc<Activity>,
) -> End
where
    S: Service<Request>,
    S::Response: Into<Response<B>>,
    S::Error: Into<Response<BoxBody>>,
    B: MessageBody,
{
    let Incoming { request, mut respond, handled, taken: _taken } = incoming;
    let (parts, body) = request.into_parts();
    let (body, mut rest) = body::parted(&parts.headers, body, &activity);
    let mut request = match request::request(parts, body, peer) {
        Ok(request) => request,
        Err(refused) => {
            let refusal = refused.answer();
            return ended(answer::sent(refusal, false, &mut respond, &date, &activity), rest).await;
        }
    };
    request.extensions_mut().insert(activity.connection.known());
    let only_head = request.method() == Method::HEAD;
    let wanted = waits(&request).then(|| {
        let (payload, wanted) = watched(request.take_payload());
        *request.payload() = payload;
        wanted
    });
    let answered = {
        // A panic must end its request, not those beside it.
        let mut call = pin!(AssertUnwindSafe(async { app.call(request).await }).catch_unwind());
        poll_fn(|cx| {
            if respond.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            let polled = call.as_mut().poll(cx);
            // What nobody will read keeps no room from other bodies.
            let _ = rest.poll(cx);
            if polled.is_pending() && wanted.as_ref().is_some_and(|wanted| wanted.take()) {
                // Who is not told sends its body all the same, a little later.
                let _ = respond.send_informational(go_on());
            }
            polled.map(Some)
        })
        .await
    };
    drop(handled);
    activity.connection.answered();
    let date = &*date;
    match answered {
        None => End::Reset,
        Some(Ok(Ok(answer))) => {
            ended(answer::sent(answer.into(), only_head, &mut respond, date, &activity), rest).await
        }
        Some(Ok(Err(error))) => ended(answer::sent(error.into(), only_head, &mut respond, date, &activity), rest).await,
        Some(Err(_panicked)) => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            End::Answered
        }
    }
}

/// Sends the answer, and takes what is left of the body beside it.
async fn ended(sent: impl Future<Output = Result<(), h2::Error>>, rest: Rest) -> End {
    try_join(sent, rest.ended().map(Ok)).await.map_or(End::Reset, |_| End::Answered)
}

/// Whether the client keeps its body back until it is told to send it (RFC 9110, 10.1.1).
fn waits(request: &Request) -> bool {
    let expectation = request.head().headers.get(EXPECT);
    expectation.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn go_on() -> http_types::Response<()> {
    let mut response = http_types::Response::new(());
    *response.status_mut() = http_types::StatusCode::CONTINUE;
    response
}
