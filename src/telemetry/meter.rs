//! The request metrics of a route: counters, durations and exemplars.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use metrics::{Histogram, Label, SharedString};

use super::catalogue::HTTP_SECONDS;
use super::exemplars::Exemplars;
use super::mount_meter::{MountMeter, NO_MOUNT};
use super::response_counters::ResponseCounters;
use super::trace_context::TraceContext;

/// The request metrics of a route: counters, durations and exemplars.
pub struct RouteMeter {
    /// Number of the route, unique in the process.
    number: usize,
    labels: [Label; 3],
    seconds: OnceLock<(Histogram, Arc<Exemplars>)>,
    without_mount: ResponseCounters,
}

/// The data of a response from which its metrics are recorded.
#[derive(Clone, Copy)]
pub struct CompletedResponse<'a> {
    /// The mount of the request.
    pub mount: Option<&'a MountMeter>,
    /// The HTTP status code.
    pub status: u16,
    /// Time at which the response was ready.
    pub at: Instant,
    /// Time from the request head to the response.
    pub took: Duration,
    /// The id of the request, for exemplars.
    pub request_id: &'a str,
    /// The trace of the request, for exemplars.
    pub trace: Option<&'a TraceContext>,
}

impl RouteMeter {
    /// Creates the meter of one operation on one route of a service. These names become labels, so they must come from
    /// closed sets.
    pub fn new(service: &'static str, operation: &'static str, route: String) -> Self {
        static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);
        let labels = [
            Label::from_static_parts("service", service),
            Label::from_static_parts("operation", operation),
            Label::new("route", route),
        ];
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { number, labels, seconds: OnceLock::new(), without_mount: ResponseCounters::new() }
    }

    /// Returns the label values: service, operation and route.
    pub fn names(&self) -> [&str; 3] {
        self.labels.each_ref().map(Label::value)
    }

    /// Records the metrics of a response.
    pub fn record(&self, answered: CompletedResponse<'_>) {
        let CompletedResponse { mount, status, at, took, request_id, trace } = answered;
        let (seconds, exemplars) = self.seconds.get_or_init(|| {
            (metrics::histogram!(HTTP_SECONDS, self.labels.to_vec()), Exemplars::register(&self.labels))
        });
        seconds.record(took.as_secs_f64());
        exemplars.offer(at, took, request_id, trace);
        match mount {
            Some(mount) => mount.count_response(self.number, &self.labels, status),
            None => self.without_mount.count(&SharedString::const_str(NO_MOUNT), &self.labels, status),
        }
    }
}
