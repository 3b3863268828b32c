//! Metrics and logs: the metric [`catalogue`], the exporter, request metrics by route and mount, the
//! log setup ([`logs`]), the [`access`] log, trace contexts, [`outage`] logging and the time since the
//! last request ([`traffic`]).
//!
//! Label values come from closed sets (route pattern, operation, status) or are names that operators gave to mounts and
//! keys, never from a request. Requests record through handles that were registered once.

pub mod access;
mod bounds;
pub mod catalogue;
mod exemplars;
mod line;
mod live;
pub mod logs;
mod managed_keys;
mod meter;
mod metric;
mod mount_meter;
mod openmetrics;
pub mod outage;
mod output;
mod paths;
mod process;
mod response_counters;
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
pub use self::meter::{CompletedResponse, RouteMeter};
pub use self::mount_meter::{LazyMountMeter, MountMeter, NO_MOUNT};
pub use self::outage::warn_task_failed;
pub use self::paths::{mount_path, set_mount_paths};
pub use self::series::Series;
pub use self::trace_context::TraceContext;
use crate::error::{Error, Result};

static EXPORTER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs the exporter of metrics for the process. Further calls have no effect.
///
/// # Errors
/// `Internal` when another recorder of metrics is installed in the process.
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

/// Registers the unit and the help text of a metric in the exporter. Series without labels, or with a small known set
/// of label values, are created with the value zero, so that an alert notices the first event.
fn register(metric: &Metric) {
    let Metric { name, unit, help, .. } = *metric;
    let has_no_labels = metric.labels.is_empty();
    match metric.kind {
        MetricKind::Counter => {
            metrics::describe_counter!(name, unit, help);
            has_no_labels.then(|| metrics::counter!(name));
            for value in metric.initial_values {
                let _registered = metrics::counter!(name, metric.labels[0] => *value);
            }
        }
        MetricKind::Gauge => {
            metrics::describe_gauge!(name, unit, help);
            has_no_labels.then(|| metrics::gauge!(name));
        }
        MetricKind::Histogram(_) => {
            metrics::describe_histogram!(name, unit, help);
            has_no_labels.then(|| metrics::histogram!(name));
        }
    }
}

/// A format of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// The Prometheus text format.
    Text,
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
}

impl Exposition {
    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Renders the metrics page; `looked_up` are series whose values the caller determined for this page. The page is empty
/// before [`install_metrics`].
pub fn render_metrics(exposition: Exposition, looked_up: &[Series]) -> String {
    match exposition {
        Exposition::Text => render_text_page(looked_up),
        Exposition::OpenMetrics => {
            let exemplars = exemplars::ExemplarSnapshot::take();
            openmetrics::render(&render_text_page(looked_up), &exemplars)
        }
    }
}

fn render_text_page(looked_up: &[Series]) -> String {
    let Some(exporter) = EXPORTER.get() else { return String::new() };
    let mut page = stale::remove_stale(&exporter.render());
    live::write(&mut page, &live::process_series());
    live::write(&mut page, looked_up);
    page
}

/// Renders the metrics as a JSON object with the lists `Gauges`, `Counters` and `Samples`, and the empty list `Points`.
pub fn summarize_metrics(looked_up: &[Series]) -> serde_json::Map<String, serde_json::Value> {
    summary::summarize(&render_text_page(looked_up))
}

/// Moves recorded samples into their buckets. Must run every few seconds, or samples accumulate in memory.
pub fn run_metrics_upkeep() {
    if let Some(handle) = EXPORTER.get() {
        handle.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn responses_are_counted_by_mount_and_status() {
        install_metrics().unwrap();
        let meter = RouteMeter::new("test", "read", "kind/:name".to_owned());
        let mount = MountMeter::of("counted/");
        let record = |mount, status| {
            let at = Instant::now();
            let took = Duration::from_millis(3);
            meter.record(CompletedResponse { mount, status, at, took, request_id: "counted-id", trace: None });
        };
        for (mount, status) in [(Some(&mount), 200), (Some(&mount), 200), (Some(&mount), 299), (None, 200)] {
            record(mount, status);
        }
        let text = render_metrics(Exposition::Text, &[]);
        let line = |mount, status| {
            let of_route = "service=\"test\",operation=\"read\",route=\"kind/:name\"";
            format!("{HTTP_REQUESTS}{{mount=\"{mount}\",{of_route},status=\"{status}\"}}")
        };
        for (mount, status, count) in [("counted/", "200", 2), ("counted/", "other", 1), ("none", "200", 1)] {
            assert!(text.contains(&format!("{} {count}\n", line(mount, status))), "{text}");
        }
        assert!(text.contains(&format!("# HELP {HTTP_SECONDS}")) && !text.contains("counted-id"), "{text}");
        let page = render_metrics(Exposition::OpenMetrics, &[]);
        assert!(page.contains("le=\"0.005\"} 4 # {request_id=\"counted-id\"} 0.003 "), "{page}");
        drop(mount);
        assert!(!render_metrics(Exposition::Text, &[]).contains("counted/"));
    }
}
