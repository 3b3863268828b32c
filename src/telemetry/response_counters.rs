//! Response counters by route and status. The counter of each series is looked up in the exporter only once.

use std::sync::OnceLock;

use metrics::{Counter, Label, SharedString};

use super::catalogue::HTTP_REQUESTS;

/// Statuses with their own counter; the last one counts all others.
const COUNTED_STATUSES: [u16; 21] =
    [200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 409, 412, 413, 415, 422, 429, 431, 500, 502, 503, 0];

pub(super) struct ResponseCounters([OnceLock<Counter>; COUNTED_STATUSES.len()]);

impl ResponseCounters {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; COUNTED_STATUSES.len()])
    }

    /// Counts a response. `mount` and `labels` are used for the first response with its status only.
    pub(super) fn count(&self, mount: &SharedString, labels: &[Label], status: u16) {
        let slot = COUNTED_STATUSES.iter().position(|known| *known == status).unwrap_or(COUNTED_STATUSES.len() - 1);
        let counter = self.0[slot].get_or_init(|| {
            let status_label = if COUNTED_STATUSES[slot] == 0 { "other".to_owned() } else { status.to_string() };
            let mount = Label::new("mount", mount.clone());
            let labels = [mount].into_iter().chain(labels.iter().cloned()).chain([Label::new("status", status_label)]);
            metrics::counter!(HTTP_REQUESTS, labels.collect::<Vec<_>>())
        });
        counter.increment(1);
    }
}

/// Routes per block.
const ROUTES_PER_BLOCK: usize = 32;
/// Number of blocks. Together they hold far more routes than the server has.
const BLOCK_COUNT: usize = 32;

type ResponseCounterBlock = [OnceLock<Box<ResponseCounters>>; ROUTES_PER_BLOCK];

/// The counters of a mount by route number. A block is allocated by the first request to one of its routes.
pub(super) struct ResponseCountersByRoute([OnceLock<Box<ResponseCounterBlock>>; BLOCK_COUNT]);

impl ResponseCountersByRoute {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; BLOCK_COUNT])
    }

    /// Returns the counters of a route; `None` for a number beyond the last block.
    pub(super) fn get(&self, route: usize) -> Option<&ResponseCounters> {
        let block = self.0.get(route / ROUTES_PER_BLOCK)?;
        let block = block.get_or_init(|| Box::new([const { OnceLock::new() }; ROUTES_PER_BLOCK]));
        Some(block[route % ROUTES_PER_BLOCK].get_or_init(|| Box::new(ResponseCounters::new())))
    }
}
