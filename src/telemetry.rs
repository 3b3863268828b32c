//! Metrics and logs: the catalogue of every metric ([`catalogue`]), the exporter, the access metrics of
//! a route, the log set-up ([`logs`]), the line of every request ([`access`]), a store that fails ([`outage`]),
//! whether anybody asks for anything ([`traffic`]).
//!
//! Labels come from closed sets (a route's pattern, an operation, a status), never from what a
//! caller sent. What a request records goes through handles that were registered once.

pub mod access;
pub mod catalogue;
mod line;
mod live;
pub mod logs;
mod managed_keys;
mod meter;
pub mod outage;
mod output;
mod paths;
mod process;
mod series;
mod summary;
pub mod traffic;

use std::sync::{LazyLock, OnceLock};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

pub use self::catalogue::*;
pub use self::line::LogFormat;
pub use self::logs::{LogSettings, flush_logs, install_logs, is_log_filter};
pub use self::managed_keys::ExportedKey;
pub use self::meter::RouteMeter;
pub use self::outage::not_done;
pub use self::paths::{mount_path, name_mounts};
pub use self::series::Series;
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

/// The media type of the Prometheus text form.
pub const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// The metrics in Prometheus text form, with the figures of the server that were looked up for them; none before
/// [`install_metrics`].
pub fn rendered_metrics(looked_up: &[Series]) -> String {
    let Some(exporter) = EXPORTER.get() else { return String::new() };
    let mut page = managed_keys::without_deleted(&exporter.render());
    live::write(&mut page, &live::of_process());
    live::write(&mut page, looked_up);
    page
}

/// The metrics as JSON: lists `Gauges`, `Counters`, `Samples` and the empty `Points`.
pub fn summarised_metrics(looked_up: &[Series]) -> serde_json::Map<String, serde_json::Value> {
    summary::of(&rendered_metrics(looked_up))
}

/// Moves recorded samples into their buckets. Must run every few seconds, or samples pile up.
pub fn metrics_upkeep() {
    if let Some(handle) = EXPORTER.get() {
        handle.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_are_counted_by_status() {
        install_metrics().unwrap();
        let meter = RouteMeter::new("test", "read", "kind/:name".to_owned());
        meter.record(200, Duration::from_millis(3));
        meter.record(200, Duration::from_millis(3));
        meter.record(299, Duration::from_millis(3));
        let text = rendered_metrics(&[]);
        let line = |status| {
            format!("{HTTP_REQUESTS}{{service=\"test\",operation=\"read\",route=\"kind/:name\",status=\"{status}\"}}")
        };
        assert!(text.contains(&format!("{} 2", line("200"))), "{text}");
        assert!(text.contains(&format!("{} 1", line("other"))), "{text}");
        assert!(text.contains(&format!("# HELP {HTTP_SECONDS}")), "{text}");
    }
}
