//! Counters of answered requests, by route and status, each resolved once.

use std::sync::OnceLock;

use metrics::{Counter, Label, SharedString};

use super::catalogue::HTTP_REQUESTS;

/// The statuses that responses have; any other one counts as the last.
const STATUSES: [u16; 21] =
    [200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 409, 412, 413, 415, 422, 429, 431, 500, 502, 503, 0];

/// The counters of one route for one mount.
pub(super) struct Answers([OnceLock<Counter>; STATUSES.len()]);

impl Answers {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; STATUSES.len()])
    }

    /// Counts one response. `mount` and `labels` matter for the first response with its status.
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

/// Routes of one block.
const BLOCK: usize = 32;
/// Blocks: there are far fewer routes than these hold.
const BLOCKS: usize = 32;

type Block = [OnceLock<Box<Answers>>; BLOCK];

/// The counters of one mount by the number of the route. Blocks exist from their first request on.
pub(super) struct AnswersByRoute([OnceLock<Box<Block>>; BLOCKS]);

impl AnswersByRoute {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; BLOCKS])
    }

    /// The counters of a route; `None` for a number beyond the last block.
    pub(super) fn get(&self, route: usize) -> Option<&Answers> {
        let block = self.0.get(route / BLOCK)?;
        let block = block.get_or_init(|| Box::new([const { OnceLock::new() }; BLOCK]));
        Some(block[route % BLOCK].get_or_init(|| Box::new(Answers::new())))
    }
}
