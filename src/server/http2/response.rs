//! Sends responses of the app over HTTP/2, as fast as the client accepts them.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, UNIX_EPOCH};

use actix_http::body::{BodySize, MessageBody};
use actix_http::header::{self, HttpDate};
use actix_http::{Response, ResponseHead, StatusCode};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http_types::HeaderMap;
use http_types::header::{CONTENT_LENGTH, DATE, HeaderName, HeaderValue};
use tokio::time::timeout;

use super::bounds::{MAX_BUFFERED_RESPONSE_BYTES, RESPONSE_WRITE_TIMEOUT};
use super::transport::{HandlerGuard, Http2Activity};
use crate::clock::Clock;

/// The `Date` header field of responses. The formatted value is cached for a second.
#[derive(Default)]
pub(super) struct DateHeader(RefCell<Option<(u64, HeaderValue)>>);

impl DateHeader {
    fn now(&self) -> Option<HeaderValue> {
        let second = Clock::system().now().unix_timestamp().unsigned_abs();
        let mut last = self.0.borrow_mut();
        if last.as_ref().is_none_or(|(of, _)| *of != second) {
            let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string();
            *last = HeaderValue::try_from(date).ok().map(|date| (second, date));
        }
        last.as_ref().map(|(_, date)| date.clone())
    }
}

/// Sends a response on an HTTP/2 stream. `only_head` is `true` for the response to a HEAD request, which has no body.
///
/// # Errors
/// When the client has reset the stream.
pub(super) async fn send_response<B: MessageBody>(
    response: Response<B>,
    only_head: bool,
    respond: &mut SendResponse<Bytes>,
    date: &DateHeader,
    activity: &Rc<Http2Activity>,
) -> Result<(), h2::Error> {
    let (response, body) = response.into_parts();
    let size = body_size(response.status(), body.size());
    let ends = only_head || matches!(size, BodySize::None | BodySize::Sized(0));
    let mut stream = respond.send_response(response_head(response.head(), size, date), ends)?;
    if ends {
        return Ok(());
    }
    let mut left = match size {
        BodySize::Sized(length) => Some(length),
        _ => None,
    };
    let mut body = pin!(body);
    let mut write_budget = WriteBudget(RESPONSE_WRITE_TIMEOUT);
    while left != Some(0) {
        // While the response body has no data ready, the connection counts as busy and not as waiting for its client.
        let mut handled = None;
        let next = poll_fn(|cx| {
            if let Some(error) = check_reset(&mut stream, cx) {
                return Poll::Ready(Err(error));
            }
            let polled = body.as_mut().poll_next(cx);
            if polled.is_pending() && handled.is_none() {
                handled = Some(HandlerGuard::begin(activity));
            }
            polled.map(Ok)
        });
        let next = next.await?;
        drop(handled);
        let mut chunk = match next {
            Some(Ok(chunk)) => chunk,
            Some(Err(_)) => {
                // The response body failed. The reset tells the client that the body is incomplete.
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
            None => break,
        };
        if let Some(left) = &mut left {
            chunk.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= chunk.len() as u64;
        }
        while !chunk.is_empty() {
            let started_at = Instant::now();
            let Ok(capacity) = timeout(write_budget.0, wait_for_capacity(&mut stream, chunk.len())).await else {
                // The client accepts the response too slowly. The reset frees the memory of the response.
                stream.send_reset(Reason::CANCEL);
                return Ok(());
            };
            let piece = chunk.split_to(capacity?.min(chunk.len()));
            write_budget.record_write(piece.len(), started_at.elapsed());
            stream.send_data(piece, left == Some(0) && chunk.is_empty())?;
            activity.note_progress();
        }
    }
    match left {
        Some(0) => {}
        None => stream.send_data(Bytes::new(), true)?,
        // The body is shorter than the declared length. The reset tells the client that it is incomplete.
        Some(_) => stream.send_reset(Reason::INTERNAL_ERROR),
    }
    Ok(())
}

/// Remaining time that the writing of a response may wait for the client.
struct WriteBudget(Duration);

impl WriteBudget {
    /// Subtracts the time `waited` until the client opened its flow control window, and adds a millisecond for each
    /// byte sent.
    fn record_write(&mut self, bytes: usize, waited: Duration) {
        self.0 = self.0.saturating_sub(waited) + Duration::from_millis(bytes as u64);
    }
}

/// Waits until the flow control window allows sending some of `wanted` bytes. Returns how many.
async fn wait_for_capacity(stream: &mut SendStream<Bytes>, wanted: usize) -> Result<usize, h2::Error> {
    stream.reserve_capacity(wanted.min(MAX_BUFFERED_RESPONSE_BYTES));
    poll_fn(|cx| {
        if stream.capacity() > 0 {
            return Poll::Ready(Ok(stream.capacity()));
        }
        match stream.poll_capacity(cx) {
            Poll::Ready(Some(capacity)) => Poll::Ready(capacity),
            Poll::Ready(None) => Poll::Ready(Err(check_reset(stream, cx).unwrap_or_else(|| Reason::CANCEL.into()))),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn check_reset(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Option<h2::Error> {
    match stream.poll_reset(cx) {
        Poll::Ready(Ok(reason)) => Some(reason.into()),
        Poll::Ready(Err(error)) => Some(error),
        Poll::Pending => None,
    }
}

/// Returns the size of a response body: none if the status does not allow a body (RFC 9110, 6.4.1), otherwise `size`.
fn body_size(status: StatusCode, size: BodySize) -> BodySize {
    match status {
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => BodySize::None,
        status if status.is_informational() => BodySize::None,
        _ => size,
    }
}

fn response_head(head: &ResponseHead, size: BodySize, date: &DateHeader) -> http_types::Response<()> {
    let mut response = http_types::Response::new(());
    // The conversion cannot fail, because both crates accept the same status codes.
    *response.status_mut() = http_types::StatusCode::from_u16(head.status.as_u16()).unwrap_or_default();
    let fields = response.headers_mut();
    fields.reserve(head.headers.len() + 2);
    append_headers(fields, head, size);
    if let BodySize::Sized(length) = size {
        fields.insert(CONTENT_LENGTH, length.into());
    }
    if !fields.contains_key(DATE)
        && let Some(date) = date.now()
    {
        fields.insert(DATE, date);
    }
    response
}

/// Copies the header fields of a response, except connection-specific ones (RFC 9113, 8.2.2).
fn append_headers(fields: &mut HeaderMap, head: &ResponseHead, size: BodySize) {
    // Keep a `Content-Length` from the app only if the body does not determine it: for a 304 response, and for a
    // streamed body of declared length.
    let keeps_length = head.status == StatusCode::NOT_MODIFIED || size == BodySize::Stream && !head.chunked();
    for (name, value) in head.headers.iter() {
        match *name {
            header::CONNECTION | header::TRANSFER_ENCODING | header::UPGRADE => continue,
            header::CONTENT_LENGTH if !keeps_length => continue,
            _ if matches!(name.as_str(), "keep-alive" | "proxy-connection") => continue,
            _ => {}
        }
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            fields.append(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_http::header::HeaderMap as Headers;

    use super::*;

    fn converted_head(status: StatusCode, lines: &[(&str, &str)], size: BodySize) -> http_types::Response<()> {
        let mut response = Response::new(status);
        let headers: Headers =
            lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        *response.headers_mut() = headers;
        response_head(response.head(), body_size(status, size), &DateHeader::default())
    }

    #[test]
    fn write_budget_is_restored_in_proportion_to_bytes_taken() {
        let left = |bytes, waited| {
            let mut write_budget = WriteBudget(RESPONSE_WRITE_TIMEOUT);
            (0..100).for_each(|_| write_budget.record_write(bytes, waited));
            write_budget.0
        };
        assert!(left(1, Duration::from_secs(1)) < Duration::from_millis(2));
        assert_eq!(left(1000, Duration::from_secs(1)), RESPONSE_WRITE_TIMEOUT);
        assert!(left(64 << 10, Duration::from_millis(1)) > RESPONSE_WRITE_TIMEOUT);
    }

    #[test]
    fn http2_response_has_no_connection_headers_or_wrong_length() {
        let lines = [
            ("connection", "close"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("content-length", "7"),
            ("vary", "a"),
            ("vary", "b"),
        ];
        for (status, size, length) in [
            (StatusCode::OK, BodySize::Sized(3), Some("3")),
            (StatusCode::OK, BodySize::Sized(0), Some("0")),
            (StatusCode::OK, BodySize::Stream, None),
            (StatusCode::NO_CONTENT, BodySize::Sized(3), None),
            (StatusCode::NOT_MODIFIED, BodySize::Sized(3), Some("7")),
        ] {
            let response = converted_head(status, &lines, size);
            let length = length.map(HeaderValue::from_static);
            assert_eq!(response.headers().get(CONTENT_LENGTH), length.as_ref(), "{status} {size:?}");
            assert_eq!(response.headers().get_all("vary").iter().collect::<Vec<_>>(), ["a", "b"]);
            let date = response.headers()[DATE].to_str().unwrap();
            assert!(date.parse::<HttpDate>().is_ok(), "{date}");
            let names = response.headers().keys().map(HeaderName::as_str).filter(|name| *name != "content-length");
            assert_eq!(names.collect::<std::collections::BTreeSet<_>>(), ["date", "vary"].into());
        }
        assert_eq!(converted_head(StatusCode::OK, &[("date", "then")], BodySize::None).headers()[DATE], "then");
    }
}
