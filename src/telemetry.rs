//! Metrics and logs: the catalogue of every metric, the exporter, the log set-up.
//!
//! Labels come from closed sets (a route's pattern, an operation, a status), never from what a
//! caller sent. What a request records goes through handles that were registered once.

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use metrics::{Counter, Histogram, Label, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::{Error, Result};

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution over the given upper bounds.
    Histogram(&'static [f64]),
}

/// One metric of the catalogue.
pub struct Metric {
    /// Its name, with the unit as suffix.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: MetricKind,
    /// Its unit.
    pub unit: Unit,
    /// What it counts, for people.
    pub help: &'static str,
}

/// Requests answered, by service, operation, route and status.
pub const HTTP_REQUESTS: &str = "signet_http_requests_total";
/// Time from the request's head to its answer, by service, operation and route.
pub const HTTP_SECONDS: &str = "signet_http_request_seconds";
/// Handlers that panicked.
pub const PANICS: &str = "signet_handler_panics_total";
/// Tokens removed because they had ended.
pub const TOKENS_SWEPT: &str = "signet_tokens_swept_total";

const REQUEST_BOUNDS: &[f64] = &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

/// Every metric of the program; nothing else is registered.
pub const CATALOGUE: &[Metric] = &[
    Metric {
        name: HTTP_REQUESTS,
        kind: MetricKind::Counter,
        unit: Unit::Count,
        help: "Requests answered, by service, operation, route pattern and status.",
    },
    Metric {
        name: HTTP_SECONDS,
        kind: MetricKind::Histogram(REQUEST_BOUNDS),
        unit: Unit::Seconds,
        help: "Time from a request's head to its answer, by service, operation and route pattern.",
    },
    Metric {
        name: PANICS,
        kind: MetricKind::Counter,
        unit: Unit::Count,
        help: "Handlers that panicked; each is a defect.",
    },
    Metric {
        name: TOKENS_SWEPT,
        kind: MetricKind::Counter,
        unit: Unit::Count,
        help: "Tokens removed because they had ended.",
    },
];

static EXPORTER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs the exporter; of several calls in one process the first counts.
///
/// # Errors
/// `Internal` when the process has another recorder.
pub fn install_metrics() -> Result<()> {
    static INSTALLED: LazyLock<std::result::Result<(), String>> =
        LazyLock::new(|| install().map_err(|e| e.to_string()));
    INSTALLED.clone().map_err(Error::internal)
}

fn install() -> std::result::Result<(), metrics_exporter_prometheus::BuildError> {
    let mut builder = PrometheusBuilder::new();
    for metric in CATALOGUE {
        if let MetricKind::Histogram(bounds) = metric.kind {
            builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), bounds)?;
        }
    }
    let handle = builder.install_recorder()?;
    for metric in CATALOGUE {
        match metric.kind {
            MetricKind::Counter => metrics::describe_counter!(metric.name, metric.unit, metric.help),
            MetricKind::Gauge => metrics::describe_gauge!(metric.name, metric.unit, metric.help),
            MetricKind::Histogram(_) => metrics::describe_histogram!(metric.name, metric.unit, metric.help),
        }
    }
    let _ = EXPORTER.set(handle);
    Ok(())
}

/// The metrics in Prometheus text form; empty before [`install_metrics`].
pub fn rendered_metrics() -> String {
    EXPORTER.get().map(PrometheusHandle::render).unwrap_or_default()
}

/// Moves recorded samples into their buckets. Must run every few seconds, or samples pile up.
pub fn metrics_upkeep() {
    if let Some(handle) = EXPORTER.get() {
        handle.run_upkeep();
    }
}

/// The statuses that answers have; anything else is counted as the last one.
const STATUSES: [u16; 19] =
    [200, 201, 202, 204, 304, 400, 403, 404, 405, 409, 412, 413, 415, 429, 431, 500, 502, 503, 0];

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

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Libraries that write request heads or bodies at their lowest levels: only their warnings count.
const QUIET: [&str; 8] = ["actix_http", "actix_web", "actix_server", "hyper", "hyper_util", "reqwest", "rustls", "h2"];

fn is_quiet(metadata: &tracing::Metadata<'_>) -> bool {
    let library = metadata.target().split("::").next().unwrap_or_default();
    *metadata.level() > tracing::Level::WARN && QUIET.contains(&library)
}

/// Sends logs to standard error, filtered by `filter` (`info`, `signet=debug,warn` …), and panics
/// too: with their place, but without their text, which could quote what was being handled.
///
/// # Errors
/// `Invalid` for a filter that cannot be read or a second call.
pub fn install_logs(filter: &str, format: LogFormat) -> Result<()> {
    let unreadable = |_| Error::invalid("log filter: must be levels such as info, or target=level, joined by commas");
    let filter = EnvFilter::builder().parse(filter).map_err(unreadable)?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter).with(filter_fn(|metadata| !is_quiet(metadata)));
    match format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    }
    .map_err(|_| Error::invalid("logs: already set up"))?;
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panic");
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_names_units_and_has_no_duplicates() {
        for metric in CATALOGUE {
            let suffix = match (metric.kind, metric.unit) {
                (MetricKind::Counter, _) => "_total",
                (_, Unit::Seconds) => "_seconds",
                _ => "",
            };
            assert!(metric.name.starts_with("signet_") && metric.name.ends_with(suffix), "{}", metric.name);
            assert!(metric.help.ends_with('.'));
            assert_eq!(CATALOGUE.iter().filter(|m| m.name == metric.name).count(), 1, "{}", metric.name);
        }
    }

    #[test]
    fn answers_are_counted_by_status() {
        install_metrics().unwrap();
        let meter = RouteMeter::new("test", "read", "kind/:name".to_owned());
        meter.record(200, Duration::from_millis(3));
        meter.record(200, Duration::from_millis(3));
        meter.record(299, Duration::from_millis(3));
        let text = rendered_metrics();
        let line = |status| {
            format!("{HTTP_REQUESTS}{{service=\"test\",operation=\"read\",route=\"kind/:name\",status=\"{status}\"}}")
        };
        assert!(text.contains(&format!("{} 2", line("200"))), "{text}");
        assert!(text.contains(&format!("{} 1", line("other"))), "{text}");
        assert!(text.contains(&format!("# HELP {HTTP_SECONDS}")), "{text}");
    }
}
