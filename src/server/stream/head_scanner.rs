//! Detects bare line feeds in the heads of HTTP/1.1 requests.
//!
//! The HTTP/1.1 implementation of actix (“HTTP”) accepts a bare line feed as the end of a line; a proxy in front of the
//! server may not. If both parse different requests from the same bytes, request smuggling is possible (RFC 9112, 2.2
//! and 11.2). The scanner tracks the requests on a connection and replaces each bare line feed in a head by a NUL byte,
//! so that HTTP rejects the head.

/// Length of the longest field name that the scanner recognizes, in bytes.
const MAX_FIELD_NAME_BYTES: usize = "transfer-encoding".len();

/// Error for a bare line feed outside a head, where HTTP might accept the NUL byte that would replace it.
#[derive(Debug)]
pub(super) struct BareLineFeed;

/// Tracks the position of a connection's input in the sequence of requests. It need not detect malformed requests,
/// because HTTP rejects them.
#[derive(Default)]
pub(super) struct HeadScanner {
    part: RequestPart,
    /// `true` if the previous byte was a carriage return.
    after_return: bool,
    line: HeadLine,
    has_begun: bool,
    is_chunked: bool,
    /// Declared length of the current request's body, in bytes.
    length: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestPart {
    #[default]
    Head,
    /// Within a body, or within a chunk including its line end. `left` is the number of remaining bytes.
    Body {
        left: u64,
        is_chunk: bool,
    },
    ChunkSize,
    Trailers,
}

#[derive(Default)]
struct HeadLine {
    bytes: usize,
    name: [u8; MAX_FIELD_NAME_BYTES],
    name_length: usize,
    has_value: bool,
    /// The number in the field value, as for `Content-Length`, or the size of a chunk.
    number: u64,
}

impl HeadScanner {
    /// Scans the next bytes of a connection, and replaces bare line feeds in request heads by NUL bytes.
    ///
    /// # Errors
    /// [`BareLineFeed`] for a bare line feed in a chunk size or trailer. The caller must not pass the bytes to HTTP.
    pub(super) fn scan(&mut self, bytes: &mut [u8]) -> Result<(), BareLineFeed> {
        let mut at = 0;
        while at < bytes.len() {
            match self.part {
                RequestPart::Body { left, is_chunk } => {
                    let some = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    at += some;
                    self.part = match left - some as u64 {
                        0 if is_chunk => RequestPart::ChunkSize,
                        0 => RequestPart::Head,
                        left => RequestPart::Body { left, is_chunk },
                    };
                }
                RequestPart::Head | RequestPart::ChunkSize | RequestPart::Trailers => {
                    self.scan_byte(&mut bytes[at])?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    fn scan_byte(&mut self, byte: &mut u8) -> Result<(), BareLineFeed> {
        match *byte {
            b'\n' if self.after_return => self.end_line(),
            b'\n' if self.part == RequestPart::Head => *byte = 0,
            b'\n' => return Err(BareLineFeed),
            b'\r' => {}
            other => self.line.push(other, self.part == RequestPart::ChunkSize),
        }
        self.after_return = *byte == b'\r';
        Ok(())
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        match self.part {
            RequestPart::ChunkSize if line.number == 0 => self.part = RequestPart::Trailers,
            RequestPart::ChunkSize => {
                self.part = RequestPart::Body { left: line.number.saturating_add(2), is_chunk: true }
            }
            RequestPart::Trailers if line.bytes == 0 => self.part = RequestPart::Head,
            RequestPart::Head if line.bytes > 0 => self.note_field(&line),
            RequestPart::Head if self.has_begun => {
                self.part = match (std::mem::take(&mut self.is_chunked), std::mem::take(&mut self.length)) {
                    (true, _) => RequestPart::ChunkSize,
                    (false, 0) => RequestPart::Head,
                    (false, left) => RequestPart::Body { left, is_chunk: false },
                };
                self.has_begun = false;
            }
            // An empty line before the request line, or a line of the trailers, is ignored.
            RequestPart::Head | RequestPart::Trailers | RequestPart::Body { .. } => {}
        }
    }

    fn note_field(&mut self, line: &HeadLine) {
        if !std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        match line.name() {
            b"content-length" => self.length = line.number,
            b"transfer-encoding" => self.is_chunked = true,
            _ => {}
        }
    }
}

impl HeadLine {
    /// Adds a byte to the line. `is_chunk_size` is `true` for a line with the size of a chunk, which is hexadecimal and
    /// has no field name.
    fn push(&mut self, byte: u8, is_chunk_size: bool) {
        self.bytes += 1;
        if is_chunk_size {
            match char::from(byte).to_digit(16).filter(|_| !self.has_value) {
                Some(digit) => self.number = self.number.saturating_mul(16).saturating_add(digit.into()),
                None => self.has_value = true,
            }
        } else if self.has_value {
            if let Some(digit) = char::from(byte).to_digit(10) {
                self.number = self.number.saturating_mul(10).saturating_add(digit.into());
            }
        } else if byte == b':' {
            self.has_value = true;
        } else {
            if let Some(slot) = self.name.get_mut(self.name_length) {
                *slot = byte.to_ascii_lowercase();
            }
            self.name_length += 1;
        }
    }

    fn name(&self) -> &[u8] {
        self.name.get(..self.name_length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans `text` in pieces of length `piece`. Returns the text that HTTP would get; `None` if the scan fails.
    fn scanned(text: &str, piece: usize) -> Option<String> {
        let mut scanner = HeadScanner::default();
        let mut bytes = text.as_bytes().to_vec();
        for piece in bytes.chunks_mut(piece) {
            scanner.scan(piece).ok()?;
        }
        Some(String::from_utf8(bytes).unwrap().replace('\0', "!"))
    }

    #[test]
    fn bare_line_feed_in_a_head_becomes_an_invalid_byte() {
        for (text, spoilt) in [
            ("GET / HTTP/1.1\nHost: t\r\n\r\n", "GET / HTTP/1.1!Host: t\r\n\r\n"),
            ("GET / HTTP/1.1\r\nHost: t\n\r\n", "GET / HTTP/1.1\r\nHost: t!\r\n"),
            ("GET / HTTP/1.1\r\nHost: t\r\n\n", "GET / HTTP/1.1\r\nHost: t\r\n!"),
            ("\nGET / HTTP/1.1\r\n", "!GET / HTTP/1.1\r\n"),
            ("GET / HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/1.1!"),
            (
                "POST / HTTP/1.1\r\nCONTENT-Length:  003\r\n\r\na\nb\r\nGET / HTTP/1.1\n",
                "POST / HTTP/1.1\r\nCONTENT-Length:  003\r\n\r\na\nb\r\nGET / HTTP/1.1!",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nA;x=1\r\n\n\n\n\n\n\n\n\n\n\n\r\n0\r\nA: b\r\n\r\n\nGET",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nA;x=1\r\n\n\n\n\n\n\n\n\n\n\n\r\n0\r\nA: b\r\n\r\n!GET",
            ),
        ] {
            for piece in [1, 2, 7, 1024] {
                assert_eq!(scanned(text, piece).as_deref(), Some(spoilt), "{text:?} {piece}");
            }
        }
    }

    #[test]
    fn line_feeds_in_a_body_are_not_replaced() {
        for text in [
            "\r\nPOST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\n\n\n\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\n\n",
            "POST / HTTP/1.1\r\nX-Content-Length: 9\r\ntransfer-encoding: chunked\r\n\r\n1 \r\n\n\r\n00002\r\n\n\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            for piece in [1, 3, 1024] {
                assert_eq!(scanned(text, piece).as_deref(), Some(text), "{piece}");
            }
        }
    }

    #[test]
    fn bare_line_feed_in_chunk_framing_ends_the_connection() {
        for text in [
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
        ] {
            assert_eq!(scanned(text, 5), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn scan_result_is_independent_of_chunk_boundaries(
            text in "(GET / HTTP/1.1|Content-Length: ?[0-9]{0,2}|Transfer-Encoding: chunked|[0-9a-f]{1,2}|\r\n|\r\n|\n|\r|[a-z:;]{0,3}){0,24}",
            piece in 1usize..9,
        ) {
            let whole = scanned(&text, usize::MAX);
            proptest::prop_assert!(scanned(&text, piece) == whole);
        }
    }
}
