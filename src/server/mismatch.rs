//! Clients that speak the other protocol: TLS to a port of plain HTTP, plain HTTP to one with TLS. Both are told in
//! words that they can show, and the log is told at most once a minute.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::clock::Clock;

/// What TLS begins with: the type of a record of the handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 0x16;
/// How much of a request is taken before its connection closes, and how long: an end with octets unread would take
/// the answer from whoever sends them.
const MOST_UNREAD: usize = 64 << 10;
const LINGER: Duration = Duration::from_secs(1);

/// Whether somebody speaks TLS who begins with this octet. No method of HTTP does.
pub(super) fn is_tls(first: u8) -> bool {
    first == HANDSHAKE
}

/// Answers TLS on a port of plain HTTP, with the text that TLS libraries call a wrong version and tools show.
pub(super) fn plain_only(stream: &TcpStream) {
    tell(
        &TLS_TO_PLAIN,
        "a client speaks TLS to a port of plain HTTP: it needs http://, or the server a certificate \
         (tls_certificate_file, tls_key_file)",
    );
    // Whatever does not go out at once is not waited for.
    let _ = stream.try_write(answer("this port speaks plain HTTP: use http://\n").as_bytes());
}

/// Waits for the first octet of a port with TLS. When it begins a method of HTTP, answers that; whether it did.
pub(super) async fn answered_plain(stream: &mut TcpStream) -> io::Result<bool> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 || !first[0].is_ascii_uppercase() {
        return Ok(false);
    }
    tell(&PLAIN_TO_TLS, "a client speaks plain HTTP to a port with TLS: it needs https://");
    stream.write_all(answer("this port speaks TLS: use https://\n").as_bytes()).await?;
    stream.shutdown().await?;
    let _ = tokio::time::timeout(LINGER, passed_over(stream)).await;
    Ok(true)
}

async fn passed_over(stream: &TcpStream) -> io::Result<()> {
    let (mut unread, mut room) = (MOST_UNREAD, [0; 4096]);
    while unread > 0 {
        stream.readable().await?;
        match stream.try_read(&mut room) {
            Ok(0) => break,
            Ok(read) => unread = unread.saturating_sub(read),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn answer(text: &str) -> String {
    format!(
        "HTTP/1.0 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}

/// The minute in which a line was written last.
static TLS_TO_PLAIN: AtomicI64 = AtomicI64::new(0);
static PLAIN_TO_TLS: AtomicI64 = AtomicI64::new(0);

fn tell(last: &AtomicI64, what: &str) {
    if is_new_minute(last, Clock::system().now().unix_timestamp()) {
        tracing::warn!("{what}; said at most once a minute");
    }
}

/// Whether no line was written in the minute of these epoch seconds.
fn is_new_minute(last: &AtomicI64, seconds: i64) -> bool {
    let minute = seconds / 60;
    last.swap(minute, Ordering::Relaxed) != minute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_once_a_minute() {
        let last = AtomicI64::new(0);
        let told: Vec<i64> = (6000..6300).filter(|second| is_new_minute(&last, *second)).collect();
        assert_eq!(told, [6000, 6060, 6120, 6180, 6240]);
    }

    #[test]
    fn no_request_begins_as_tls_does() {
        assert!(is_tls(0x16) && (b' '..=b'~').all(|octet| !is_tls(octet)));
    }
}
