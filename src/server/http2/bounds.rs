//! The limits of an HTTP/2 connection.
//!
//! A client that exceeds [`MAX_EXCESS_RESETS`], [`MAX_ERROR_RESETS`], the frame `allowance` or the library's limits on
//! continuation and empty frames gets `ENHANCE_YOUR_CALM`, and its connection ends. Concurrent requests beyond the
//! first of each connection also need a permit of the listener (`capacity`), so that all connections together hold no
//! more requests than over HTTP/1.1.

use std::time::Duration;

use h2::server::Builder;

/// Maximum number of concurrent requests of a connection: the least value that RFC 9113 (6.5.2) recommends.
pub(super) const MAX_STREAMS_PER_CONNECTION: usize = 100;
/// Maximum number of bytes of a request's header fields, as RFC 9113 (6.5.2) counts them. The limit of HTTP/1.1.
pub(super) const MAX_HEADER_BYTES: u32 = 64 << 10;
/// Maximum number of bytes of a request body that wait for the handler. The default of the library.
pub(super) const STREAM_WINDOW_BYTES: u32 = 64 << 10;
/// Maximum number of bytes of all request bodies of a connection that wait for handlers: four full windows.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;
/// Maximum number of requests that a client may reset beyond the number of completed ones. A gateway may have reason to
/// reset all of its requests.
pub(super) const MAX_EXCESS_RESETS: usize = 100;
/// Maximum number of streams that are reset because of a client's errors.
pub(super) const MAX_ERROR_RESETS: usize = 1000;
/// Maximum number of bytes of a response body that are buffered for writing. The next piece is read when the client
/// accepts them.
pub(super) const MAX_BUFFERED_RESPONSE_BYTES: usize = 16 << 10;
/// Total time that a response may wait for its client. Each accepted byte adds a millisecond; a
/// slow trickle is not enough.
pub(super) const RESPONSE_WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of bytes of an unread request body that are discarded: a client may send them before it sees the
/// response.
pub(super) const MAX_DISCARDED_BODY_BYTES: usize = STREAM_WINDOW_BYTES as usize;
/// Time limit for receiving the rest of an unread request body once the response is complete.
pub(super) const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for sending the final GOAWAY frame. Progress restarts it while the connection is closing.
pub(super) const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the settings of the `h2` library, which announces them to clients.
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
