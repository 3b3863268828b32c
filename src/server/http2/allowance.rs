//! Rate limit on the HTTP/2 frames of a client, except for body data, against floods such as CVE-2019-9512 and
//! CVE-2019-9515.
//!
//! Each frame costs the server processing time and often a response frame. A well-behaved client sends such frames
//! (window updates, resets, an occasional ping) in proportion to its requests and to the data that it receives. So the
//! client pays tokens for each frame, and gains tokens for each request, for bytes that the server sends to it, and
//! over time. A client without tokens gets `ENHANCE_YOUR_CALM`. Unlike in
//! [`TokenBuckets`](crate::rationing::TokenBuckets), work earns tokens as well, and each connection owns its tokens
//! without a lock.

use std::cell::Cell;

/// Tokens that a client pays for a frame. For each byte that the server sends, the client gains one token.
const FRAME_COST_TOKENS: u64 = 512;
/// Tokens that a client gains with a request, for the request's own frame and some related ones.
pub(super) const TOKENS_PER_REQUEST: u64 = 10 * FRAME_COST_TOKENS;
/// Tokens that a client gains per millisecond: enough for 200 frames a second.
const TOKENS_PER_MILLISECOND: u64 = FRAME_COST_TOKENS / 5;
/// Initial and maximum number of tokens of a client.
const MAX_TOKENS: u64 = 2000 * FRAME_COST_TOKENS;

pub(super) struct FrameAllowance {
    tokens_left: Cell<u64>,
    updated_at: Cell<u64>,
    spent: Cell<bool>,
}

impl FrameAllowance {
    /// Creates an allowance of [`MAX_TOKENS`]. `now` is the current time in milliseconds.
    pub(super) fn new(now: u64) -> Self {
        Self { tokens_left: Cell::new(MAX_TOKENS), updated_at: Cell::new(now), spent: Cell::new(false) }
    }

    pub(super) fn add_tokens(&self, more: u64) {
        self.tokens_left.set(self.tokens_left.get().saturating_add(more).min(MAX_TOKENS));
    }

    pub(super) fn spend(&self, frames: usize, now: u64) {
        let since = now.saturating_sub(self.updated_at.replace(now));
        self.add_tokens(since.saturating_mul(TOKENS_PER_MILLISECOND));
        match self.tokens_left.get().checked_sub(FRAME_COST_TOKENS * frames as u64) {
            Some(left) => self.tokens_left.set(left),
            None => self.spent.set(true),
        }
    }

    /// `true` once the client has sent a frame for which it had not enough tokens.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_allowance_is_earned_by_time_requests_and_sent_bytes() {
        let allowance = FrameAllowance::new(5);
        allowance.spend(2000, 5);
        allowance.spend(199, 1005);
        for _ in 0..10 {
            allowance.add_tokens(TOKENS_PER_REQUEST);
        }
        allowance.spend(100, 1005);
        allowance.add_tokens(16 << 10);
        allowance.spend(32, 1005);
        assert!(!allowance.is_spent());
        allowance.spend(1, 1005);
        assert!(allowance.is_spent());
    }

    #[test]
    fn allowance_never_exceeds_its_initial_tokens() {
        let allowance = FrameAllowance::new(0);
        allowance.spend(2000, 1 << 40);
        assert!(!allowance.is_spent());
        allowance.spend(1, 1 << 40);
        assert!(allowance.is_spent());
    }
}
