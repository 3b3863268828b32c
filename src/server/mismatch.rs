//! Responses to clients that speak TLS to a plain HTTP port, or plain HTTP to a TLS port. The client gets a text that
//! it can display. Each kind of mismatch is logged at most once a minute.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::clock::Clock;

/// The first byte that a TLS client sends: the record type of a handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE_RECORD: u8 = 0x16;
/// Maximum number of bytes of a plain HTTP request that are read and discarded before the connection closes. Closing a
/// socket with unread bytes would discard the response.
const MAX_DISCARDED_BYTES: usize = 64 << 10;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// `true` if the first byte from a client shows that it speaks TLS. No HTTP method begins with this byte.
pub(super) fn is_tls(first: u8) -> bool {
    first == TLS_HANDSHAKE_RECORD
}

/// Responds to TLS on a plain HTTP port. TLS libraries report the response as a wrong version number.
pub(super) fn reject_tls(stream: &TcpStream) {
    warn_once_a_minute(
        &TLS_TO_PLAIN_WARNED_MINUTE,
        "a client speaks TLS to a plain HTTP port: use http:// in the client, or configure a certificate \
         (tls_certificate_file, tls_key_file)",
    );
    // Sent without waiting, and errors are ignored, because the text only helps to find the mistake.
    let _ = stream.try_write(render_response("this port speaks plain HTTP: use http://\n").as_bytes());
}

/// Waits for the first byte from a client of a TLS port. If it is the first letter of an HTTP method, sends a response
/// and returns `true`.
pub(super) async fn reject_plain_http(stream: &mut TcpStream) -> io::Result<bool> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 || !first[0].is_ascii_uppercase() {
        return Ok(false);
    }
    warn_once_a_minute(
        &PLAIN_TO_TLS_WARNED_MINUTE,
        "a client speaks plain HTTP to a TLS port: use https:// in the client",
    );
    stream.write_all(render_response("this port speaks TLS: use https://\n").as_bytes()).await?;
    stream.shutdown().await?;
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, discard_input(stream)).await;
    Ok(true)
}

async fn discard_input(stream: &TcpStream) -> io::Result<()> {
    let mut unread = MAX_DISCARDED_BYTES;
    let mut buffer = [0; 4096];
    while unread > 0 {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => unread = unread.saturating_sub(read),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn render_response(text: &str) -> String {
    format!(
        "HTTP/1.0 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}

static TLS_TO_PLAIN_WARNED_MINUTE: AtomicI64 = AtomicI64::new(0);
static PLAIN_TO_TLS_WARNED_MINUTE: AtomicI64 = AtomicI64::new(0);

fn warn_once_a_minute(last: &AtomicI64, what: &str) {
    if is_new_minute(last, Clock::system().now().unix_timestamp()) {
        tracing::warn!("{what} (logged at most once a minute)");
    }
}

/// Stores the minute of `seconds` (Unix time) in `last`. Returns `true` if `last` contained another minute before.
fn is_new_minute(last: &AtomicI64, seconds: i64) -> bool {
    let minute = seconds / 60;
    last.swap(minute, Ordering::Relaxed) != minute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mismatch_is_logged_once_a_minute() {
        let last = AtomicI64::new(0);
        let told: Vec<i64> = (6000..6300).filter(|second| is_new_minute(&last, *second)).collect();
        assert_eq!(told, [6000, 6060, 6120, 6180, 6240]);
    }

    #[test]
    fn no_http_request_starts_like_tls() {
        assert!(is_tls(0x16) && (b' '..=b'~').all(|octet| !is_tls(octet)));
    }
}
