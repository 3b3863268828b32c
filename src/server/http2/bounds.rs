//! The limits of an HTTP/2 connection.
//!
//! If a client exceeds [`MAX_EXCESS_RESETS`], [`MAX_ERROR_RESETS`], the frame `allowance` or the library's limits on
//! continuation and empty frames, the server sends `ENHANCE_YOUR_CALM` and closes the connection. Each concurrent
//! request beyond the first of a connection also needs a permit of the listener (`capacity`), which limits the total
//! number of requests of all connections.

use std::time::Duration;

use h2::server::Builder;

/// Maximum number of concurrent requests of a connection. RFC 9113 (6.5.2) recommends at least this value.
pub(super) const MAX_STREAMS_PER_CONNECTION: usize = 100;
/// Maximum size of a request's header fields, in bytes as RFC 9113 (6.5.2) counts them. HTTP/1.1 has the same limit.
pub(super) const MAX_HEADER_BYTES: u32 = 64 << 10;
/// Maximum number of bytes of a request body that the server buffers until the handler reads them. The library's
/// default.
pub(super) const STREAM_WINDOW_BYTES: u32 = 64 << 10;
/// Maximum number of bytes of all request bodies of a connection that the server buffers: four full stream windows.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;
/// Maximum number of requests that a client may reset beyond the number of its completed requests. A gateway may have
/// reason to reset all requests of a connection.
pub(super) const MAX_EXCESS_RESETS: usize = 100;
/// Maximum number of streams of a connection that the server resets because of protocol errors of the client.
pub(super) const MAX_ERROR_RESETS: usize = 1000;
/// Maximum number of bytes of a response body that are buffered for writing. The next piece is taken from the app when
/// the client has accepted them.
pub(super) const MAX_BUFFERED_RESPONSE_BYTES: usize = 16 << 10;
/// Total time that the writing of a response may wait for the client. Each byte that the client accepts adds a
/// millisecond, so that a client that accepts only a few bytes now and then exceeds it.
pub(super) const RESPONSE_WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of bytes of an unread request body that the server discards. A client may send as many before it sees
/// the response.
pub(super) const MAX_DISCARDED_BODY_BYTES: usize = STREAM_WINDOW_BYTES as usize;
/// Time limit for discarding the rest of an unread request body after the response is complete.
pub(super) const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for sending the final GOAWAY frame. If the connection was asked to close, progress of its client restarts
/// the time.
pub(super) const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns a builder of the `h2` library with these limits, which it announces to clients.
pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION as u32)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(MAX_BUFFERED_RESPONSE_BYTES)
        .max_pending_accept_reset_streams(MAX_EXCESS_RESETS)
        .max_concurrent_reset_streams(MAX_STREAMS_PER_CONNECTION)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS));
    builder
}
