//! What a client may do on a connection, and how much of it.
//!
//! | bound | value | why |
//! |---|---|---|
//! | requests at once, a connection | [`STREAMS`] | what RFC 9113 (6.5.2) calls the least that does not hinder |
//! | requests at once, all connections | one each, and together as many more as there may be connections, at least 1000 | what requests hold is bounded as over HTTP/1.1, and one client's many never keep another from its first |
//! | fields of a request | [`FIELDS`], 96 of them | as the wires take, as HTTP/1.1 does |
//! | body that nobody reads, a request | [`WINDOW`] | the library's default; it opens as its handler reads |
//! | the same, a connection | [`CONNECTION_WINDOW`] | four such bodies |
//! | rest of a body that is thrown away | [`REST`], [`PATIENCE`] after the answer | who nearly has sent all is not reset |
//! | answer that waits to be written, a request | [`PIECE`] | a body is asked for more when the client took it |
//! | time that an answer waits for its client | [`TAKING`], and a millisecond for each octet that was taken | one octet from time to time keeps no answer |
//! | requests taken back | [`RESETS`] more than were answered | a gateway that gives up may take all of its own back at once |
//! | requests refused, or malformed | [`ERRORS`] | a client that takes no notice of its bounds |
//! | frames that carry nothing, or begin a request | `allowance`: 2000 at once, 200 a second, and what requests and answers earn | each is work, whether or not there is a request in it |
//! | continued fields, small or empty frames of a body | the library's, by the bounds above | |
//!
//! Who goes beyond the last four is told `ENHANCE_YOUR_CALM`, and its connection ends.

use std::time::Duration;

use h2::server::Builder;

/// Most requests of a connection at once.
pub(super) const STREAMS: usize = 100;
/// Most octets of a request's fields, as they are counted there (RFC 9113, 6.5.2).
pub(super) const FIELDS: u32 = 64 << 10;
/// Most octets of a body that wait to be read.
pub(super) const WINDOW: u32 = 64 << 10;
/// Most octets of all bodies of a connection that wait to be read.
pub(super) const CONNECTION_WINDOW: u32 = 256 << 10;
/// Most requests that a client may take back beyond those that were answered.
pub(super) const RESETS: usize = 100;
/// Most streams that are reset because of what the client did wrong.
pub(super) const ERRORS: usize = 1000;
/// Most of a body that waits beside its answer's head to be written, octets.
pub(super) const PIECE: usize = 16 << 10;
/// How long an answer may wait for its client in all, besides a millisecond for each octet that was taken.
pub(super) const TAKING: Duration = Duration::from_secs(60);
/// Most of a body that is thrown away when nobody reads it, octets: what may be sent before the answer is known.
pub(super) const REST: usize = WINDOW as usize;
/// How long it is waited for the end of such a body once there is an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// How long it is waited for the client to take a farewell; since octets moved last where it was told to leave.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// What says so to the library, and by it to clients.
pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS as u32)
        .max_header_list_size(FIELDS)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(PIECE)
        .max_pending_accept_reset_streams(RESETS)
        .max_concurrent_reset_streams(STREAMS)
        .max_local_error_reset_streams(Some(ERRORS));
    builder
}
