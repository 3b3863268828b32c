//! Metrics and logs: the catalogue of every metric ([`catalogue`]), the exporter, the access metrics of a route and of
//! a mount, the log set-up ([`logs`]), the line of every request ([`access`]), the trace of a request, a store that fails
//! ([`outage`]), the time since the last request ([`traffic`]).
//!
//! Labels come from closed sets (a route's pattern, an operation, a status) and from the names that operators give to
//! mounts and keys, never from a request. What a request records goes through handles that were registered once.

pub mod access;
mod answers;
mod bounds;
pub mod catalogue;
mod exemplars;
mod line;
mod live;
pub mod logs;
mod managed_keys;
mod meter;
mod mount_meter;
mod openmetrics;
pub mod outage;
mod output;
mod paths;
mod process;
mod series;
mod stale;
mod summary;
mod trace_context;
pub mod traffic;

use std::sync::{LazyLock, OnceLock};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

pub use self::catalogue::*;
pub use self::line::LogFormat;
pub use self::logs::{LogSettings, flush_logs, install_logs, is_log_filter};
pub use self::managed_keys::ExportedKey;
pub use self::meter::{Answered, RouteMeter};
pub use self::mount_meter::{LazyMountMeter, MountMeter, NO_MOUNT};
pub use self::outage::not_done;
pub use self::paths::{mount_path, name_mounts};
pub use self::series::Series;
pub use self::trace_context::TraceContext;
use crate::error::{Error, Result};

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
    CATALOGUE.iter().filter(|metric| !metric.live).for_each(register);
    let _ = EXPORTER.set(handle);
    Ok(())
}

/// Tells the exporter unit and help. What has no labels, or one whose values are few and known, is there
/// from the start, at zero: so an alert sees the first event, too.
fn register(metric: &Metric) {
    let Metric { name, unit, help, .. } = *metric;
    let shown = metric.labels.is_empty();
    match metric.kind {
        MetricKind::Counter => {
            metrics::describe_counter!(name, unit, help);
            shown.then(|| metrics::counter!(name));
            for (label, value) in metric.starts {
                let _shown = metrics::counter!(name, *label => *value);
            }
        }
        MetricKind::Gauge => {
            metrics::describe_gauge!(name, unit, help);
            shown.then(|| metrics::gauge!(name));
        }
        MetricKind::Histogram(_) => {
            metrics::describe_histogram!(name, unit, help);
            shown.then(|| metrics::histogram!(name));
        }
    }
}

/// A form of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// The Prometheus text format.
    Text,
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
}

impl Exposition {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The metrics page, with the figures of the server that were looked up for it; no metrics before [`install_metrics`].
pub fn rendered_metrics(exposition: Exposition, looked_up: &[Series]) -> String {
    match exposition {
        Exposition::Text => text_page(looked_up),
        Exposition::OpenMetrics => {
            let exemplars = exemplars::Snapshot::take();
            openmetrics::render(&text_page(looked_up), &exemplars)
        }
    }
}

fn text_page(looked_up: &[Series]) -> String {
    let Some(exporter) = EXPORTER.get() else { return String::new() };
    let mut page = stale::without(&exporter.render());
    live::write(&mut page, &live::of_process());
    live::write(&mut page, looked_up);
    page
}

/// The metrics as JSON: lists `Gauges`, `Counters`, `Samples` and the empty `Points`.
pub fn summarised_metrics(looked_up: &[Series]) -> serde_json::Map<String, serde_json::Value> {
    summary::of(&text_page(looked_up))
}

/// Moves recorded samples into their buckets. Must run every few seconds, or samples pile up.
pub fn metrics_upkeep() {
    if let Some(handle) = EXPORTER.get() {
        handle.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn answers_are_counted_by_mount_and_status() {
        install_metrics().unwrap();
        let meter = RouteMeter::new("test", "read", "kind/:name".to_owned());
        let mount = MountMeter::of("counted/");
        let record = |mount, status| {
            let (at, took) = (Instant::now(), Duration::from_millis(3));
            meter.record(Answered { mount, status, at, took, request_id: "counted-id", trace: None });
        };
        for (mount, status) in [(Some(&mount), 200), (Some(&mount), 200), (Some(&mount), 299), (None, 200)] {
            record(mount, status);
        }
        let text = rendered_metrics(Exposition::Text, &[]);
        let line = |mount, status| {
            let of_route = "service=\"test\",operation=\"read\",route=\"kind/:name\"";
            format!("{HTTP_REQUESTS}{{mount=\"{mount}\",{of_route},status=\"{status}\"}}")
        };
        for (mount, status, count) in [("counted/", "200", 2), ("counted/", "other", 1), ("none", "200", 1)] {
            assert!(text.contains(&format!("{} {count}\n", line(mount, status))), "{text}");
        }
        assert!(text.contains(&format!("# HELP {HTTP_SECONDS}")) && !text.contains("counted-id"), "{text}");
        let page = rendered_metrics(Exposition::OpenMetrics, &[]);
        assert!(page.contains("le=\"0.005\"} 4 # {request_id=\"counted-id\"} 0.003 "), "{page}");
        drop(mount);
        assert!(!rendered_metrics(Exposition::Text, &[]).contains("counted/"));
    }
}
