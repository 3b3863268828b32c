//! The access metrics of a route.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Histogram, Label};

use super::catalogue::{HTTP_REQUESTS, HTTP_SECONDS};

/// The statuses that answers have; anything else is counted as the last one.
const STATUSES: [u16; 21] =
    [200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 409, 412, 413, 415, 422, 429, 431, 500, 502, 503, 0];

/// The access metrics of one route.
pub struct RouteMeter {
    labels: [Label; 3],
    seconds: OnceLock<Histogram>,
    answers: [OnceLock<Counter>; STATUSES.len()],
}

impl RouteMeter {
    /// The meter of one operation on one route of a service. All three come from closed sets.
    pub fn new(service: &'static str, operation: &'static str, route: String) -> Self {
        let labels = [
            Label::from_static_parts("service", service),
            Label::from_static_parts("operation", operation),
            Label::new("route", route),
        ];
        Self { labels, seconds: OnceLock::new(), answers: [const { OnceLock::new() }; STATUSES.len()] }
    }

    /// The service, the operation and the route.
    pub fn names(&self) -> [&str; 3] {
        self.labels.each_ref().map(Label::value)
    }

    /// Records one answer.
    pub fn record(&self, status: u16, took: Duration) {
        let seconds = self.seconds.get_or_init(|| metrics::histogram!(HTTP_SECONDS, self.labels.to_vec()));
        seconds.record(took.as_secs_f64());
        let slot = STATUSES.iter().position(|s| *s == status).unwrap_or(STATUSES.len() - 1);
        self.answers[slot]
            .get_or_init(|| {
                let word = if STATUSES[slot] == 0 { "other".to_owned() } else { status.to_string() };
                let labels = self.labels.iter().cloned().chain([Label::new("status", word)]).collect::<Vec<_>>();
                metrics::counter!(HTTP_REQUESTS, labels)
            })
            .increment(1);
    }
}
