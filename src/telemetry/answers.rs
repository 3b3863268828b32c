//! Response counters by route and status. Each series is resolved once.

use std::sync::OnceLock;

use metrics::{Counter, Label, SharedString};

use super::catalogue::HTTP_REQUESTS;

/// Known statuses; the last entry counts all others.
const STATUSES: [u16; 21] =
    [200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 409, 412, 413, 415, 422, 429, 431, 500, 502, 503, 0];

pub(super) struct Answers([OnceLock<Counter>; STATUSES.len()]);

impl Answers {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; STATUSES.len()])
    }

    /// Counts a response. `mount` and `labels` are used for the first response with its status only.
    pub(super) fn count(&self, mount: &SharedString, labels: &[Label], status: u16) {
        let slot = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        let counter = self.0[slot].get_or_init(|| {
            let word = if STATUSES[slot] == 0 { "other".to_owned() } else { status.to_string() };
            let mount = Label::new("mount", mount.clone());
            let labels = [mount].into_iter().chain(labels.iter().cloned()).chain([Label::new("status", word)]);
            metrics::counter!(HTTP_REQUESTS, labels.collect::<Vec<_>>())
        });
        counter.increment(1);
    }
}

/// Routes per block.
const BLOCK: usize = 32;
/// Number of blocks; far more than there are routes.
const BLOCKS: usize = 32;

type Block = [OnceLock<Box<Answers>>; BLOCK];

/// The counters of a mount by route number. Blocks are allocated by their first request.
pub(super) struct AnswersByRoute([OnceLock<Box<Block>>; BLOCKS]);

impl AnswersByRoute {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; BLOCKS])
    }

    /// Returns the counters of a route; `None` for a number beyond the last block.
    pub(super) fn get(&self, route: usize) -> Option<&Answers> {
        let block = self.0.get(route / BLOCK)?;
        let block = block.get_or_init(|| Box::new([const { OnceLock::new() }; BLOCK]));
        Some(block[route % BLOCK].get_or_init(|| Box::new(Answers::new())))
    }
}
