//! The handling of one HTTP/2 request, from the call of the app until the response is sent and the unread rest of the
//! request body is discarded, or until the client resets the stream.

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
use tokio::sync::OwnedSemaphorePermit;

use super::body::{self, UnreadBodyRest};
use super::request;
use super::response::{self, DateHeader};
use super::transport::{HandlerGuard, Http2Activity};
use crate::server::expect::flag_reads;

/// A request that was accepted, with the guard that marks its connection as busy, and its permit if it needs one.
pub(super) struct IncomingRequest {
    pub(super) request: http_types::Request<RecvStream>,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) handled: HandlerGuard,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeEnd {
    Answered,
    Reset,
}

/// Calls the app with a request and sends its response. Drops the call of the app when the client resets the stream.
pub(super) async fn handle_request<S, B>(
    app: Rc<S>,
    incoming: IncomingRequest,
    peer: SocketAddr,
    date: Rc<DateHeader>,
    activity: Rc<Http2Activity>,
) -> ExchangeEnd
where
    S: Service<Request>,
    S::Response: Into<Response<B>>,
    S::Error: Into<Response<BoxBody>>,
    B: MessageBody,
{
    let IncomingRequest { request, mut respond, handled, permit: _permit } = incoming;
    let (parts, body) = request.into_parts();
    let (body, mut rest) = body::split_body(&parts.headers, body, &activity);
    let mut request = match request::convert_request(parts, body, peer) {
        Ok(request) => request,
        Err(rejection) => {
            let refusal = rejection.into_response();
            return finish_response(response::send_response(refusal, false, &mut respond, &date, &activity), rest)
                .await;
        }
    };
    request.extensions_mut().insert(activity.connection.identified_flag());
    let only_head = request.method() == Method::HEAD;
    let wanted = expects_continue(&request).then(|| {
        let (payload, wanted) = flag_reads(request.take_payload());
        *request.payload() = payload;
        wanted
    });
    let answered = {
        // A panic of the app must end only this request and not the whole connection.
        let mut call = pin!(AssertUnwindSafe(async { app.call(request).await }).catch_unwind());
        poll_fn(|cx| {
            if respond.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            let polled = call.as_mut().poll(cx);
            // Discards the rest of a body that the handler has dropped, because it uses the connection's flow control
            // window, which other request bodies need.
            let _ = rest.poll(cx);
            if polled.is_pending() && wanted.as_ref().is_some_and(|wanted| wanted.take()) {
                // The result is ignored: a client that gets no `100 Continue` sends its body anyway, after a while.
                let _ = respond.send_informational(continue_response());
            }
            polled.map(Some)
        })
        .await
    };
    drop(handled);
    activity.connection.note_response();
    let date = &*date;
    match answered {
        None => ExchangeEnd::Reset,
        Some(Ok(Ok(answer))) => {
            finish_response(response::send_response(answer.into(), only_head, &mut respond, date, &activity), rest)
                .await
        }
        Some(Ok(Err(error))) => {
            finish_response(response::send_response(error.into(), only_head, &mut respond, date, &activity), rest).await
        }
        Some(Err(_panicked)) => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            ExchangeEnd::Answered
        }
    }
}

/// Sends the response, and discards the unread rest of the request body at the same time.
async fn finish_response(sent: impl Future<Output = Result<(), h2::Error>>, rest: UnreadBodyRest) -> ExchangeEnd {
    try_join(sent, rest.discard_rest().map(Ok)).await.map_or(ExchangeEnd::Reset, |_| ExchangeEnd::Answered)
}

/// `true` if the client waits for `100 Continue` before it sends the body (RFC 9110, 10.1.1).
fn expects_continue(request: &Request) -> bool {
    let expectation = request.head().headers.get(EXPECT);
    expectation.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn continue_response() -> http_types::Response<()> {
    let mut response = http_types::Response::new(());
    *response.status_mut() = http_types::StatusCode::CONTINUE;
    response
}
