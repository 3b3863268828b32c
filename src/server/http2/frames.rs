//! A scanner that counts the HTTP/2 frames that a client sends (RFC 9113, 4.1).
//!
//! It tracks frame boundaries only. It detects clients that begin a frame and never complete it, which the HTTP/2
//! library does not report.

/// Length of the connection preface, in bytes (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 9;
const DATA_FRAME: u8 = 0;
const HEADERS_FRAME: u8 = 1;
const CONTINUATION_FRAME: u8 = 9;
const END_HEADERS_FLAG: u8 = 4;

#[derive(Default)]
pub(super) struct FrameCounts {
    /// `true` if the scanned bytes contain the end of a frame, of a field block or of the connection preface.
    pub(super) any_ended: bool,
    /// Number of frame headers that the scanned bytes complete.
    pub(super) frames: usize,
    /// Number of these frames that cost tokens of the frame allowance: all except DATA and CONTINUATION, which have
    /// other limits.
    pub(super) charged: usize,
}

/// Tracks the position of a connection's input in the sequence of frames.
pub(super) struct FrameScanner {
    /// Number of bytes left of the connection preface, or of the current frame's payload.
    left: usize,
    head: [u8; FRAME_HEADER_BYTES],
    /// Number of received bytes of the current frame header.
    filled: usize,
    /// `true` if a field block continues in the next frame. The frames of a field block count as one frame.
    field_block_continues: bool,
}

impl FrameScanner {
    pub(super) fn new() -> Self {
        Self { left: PREFACE_BYTES, head: [0; FRAME_HEADER_BYTES], filled: 0, field_block_continues: false }
    }

    /// `true` if the input so far ends within a frame, a field block or the preface.
    pub(super) fn is_partial(&self) -> bool {
        self.left > 0 || self.filled > 0 || self.field_block_continues
    }

    pub(super) fn scan(&mut self, mut bytes: &[u8]) -> FrameCounts {
        let mut read = FrameCounts::default();
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                self.left -= taken;
                bytes = &bytes[taken..];
            } else {
                self.head[self.filled] = bytes[0];
                self.filled += 1;
                bytes = &bytes[1..];
                if self.filled < FRAME_HEADER_BYTES {
                    continue;
                }
                self.filled = 0;
                let [a, b, c, kind, flags, ..] = self.head;
                self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                read.frames += 1;
                if kind != CONTINUATION_FRAME && (kind != DATA_FRAME || self.left == 0) {
                    read.charged += 1;
                }
                if matches!(kind, HEADERS_FRAME | CONTINUATION_FRAME) {
                    self.field_block_continues = flags & END_HEADERS_FLAG == 0;
                }
            }
            read.any_ended |= !self.is_partial();
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [.., a, b, c] = length.to_be_bytes();
        [vec![a, b, c, kind, flags, 0, 0, 0, 1], vec![7; length]].concat()
    }

    #[test]
    fn frame_ends_are_found_in_any_chunking() {
        let whole = [vec![0; PREFACE_BYTES], frame(4, 0, 0), frame(6, 0, 8), frame(0, 1, 70_000)].concat();
        let ends = [PREFACE_BYTES, PREFACE_BYTES + 9, PREFACE_BYTES + 26, whole.len()];
        for step in [1, 2, 8, 9, 10, 4096] {
            let mut frames = FrameScanner::new();
            assert!(frames.is_partial(), "the preface is yet to come");
            let mut at = 0;
            for piece in whole.chunks(step) {
                let ended = frames.scan(piece).any_ended;
                assert_eq!(ended, ends.iter().any(|end| (at + 1..=at + piece.len()).contains(end)), "{step} {at}");
                at += piece.len();
                assert_eq!(frames.is_partial(), !ends.contains(&at), "{step} {at}");
            }
        }
    }

    #[test]
    fn header_frame_and_its_continuations_count_as_one() {
        let mut frames = FrameScanner::new();
        assert!(frames.scan(&[0; PREFACE_BYTES]).any_ended && !frames.is_partial());
        for (kind, flags, ended) in [(1, 0, false), (9, 0, false), (9, 4, true), (1, 4, true), (1, 5, true)] {
            assert_eq!(frames.scan(&frame(kind, flags, 10)).any_ended, ended, "{kind} {flags}");
            assert_eq!(frames.is_partial(), !ended);
        }
    }

    #[test]
    fn empty_frames_are_counted_separately() {
        let mut frames = FrameScanner::new();
        frames.scan(&[0; PREFACE_BYTES]);
        let sent = [(0, 5), (0, 0), (1, 5), (9, 5), (2, 5), (3, 4), (4, 0), (6, 8), (8, 4), (99, 0)];
        let bytes = sent.map(|(kind, length)| frame(kind, END_HEADERS_FLAG, length)).concat();
        let read = frames.scan(&bytes);
        assert_eq!((read.frames, read.charged), (10, 8));
    }
}
