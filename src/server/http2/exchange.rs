//! One HTTP/2 request: from the call of the app to the end of the response and of a short unread body, or until the
//! client resets the stream.

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

/// A request as it arrived, its guard for the phase of the connection, and its permit.
pub(super) struct Incoming {
    pub(super) request: http_types::Request<RecvStream>,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) handled: Handled,
    pub(super) taken: Option<Taken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    Reset,
}

/// Calls the app and sends its response. Drops the call when the client resets the stream.
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
        // A panic must end only its own request.
        let mut call = pin!(AssertUnwindSafe(async { app.call(request).await }).catch_unwind());
        poll_fn(|cx| {
            if respond.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            let polled = call.as_mut().poll(cx);
            // An unread body must not occupy the connection window that other bodies need.
            let _ = rest.poll(cx);
            if polled.is_pending() && wanted.as_ref().is_some_and(|wanted| wanted.take()) {
                // A client that misses the 100 sends its body anyway, a little later.
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

/// Sends the response while the rest of the body is discarded.
async fn ended(sent: impl Future<Output = Result<(), h2::Error>>, rest: Rest) -> End {
    try_join(sent, rest.ended().map(Ok)).await.map_or(End::Reset, |_| End::Answered)
}

/// `true` if the client waits for a 100 before it sends the body (RFC 9110, 10.1.1).
fn waits(request: &Request) -> bool {
    let expectation = request.head().headers.get(EXPECT);
    expectation.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn go_on() -> http_types::Response<()> {
    let mut response = http_types::Response::new(());
    *response.status_mut() = http_types::StatusCode::CONTINUE;
    response
}
