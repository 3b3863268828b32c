//! Metrics whose values are determined when the metrics page is requested, so that they are never stale, and the page
//! has no series of deleted objects.

use std::fmt::Write as _;

use super::catalogue::{BUILD_INFO, CATALOGUE, MetricKind};
use super::process;
use super::series::Series;

/// Maximum number of series of one metric on a page.
const MAX_SERIES_PER_METRIC: usize = 1000;

/// Returns the series about this process, which every metrics page contains.
pub(super) fn process_series() -> Vec<Series> {
    let version = env!("CARGO_PKG_VERSION");
    let commit = env!("BUILD_COMMIT_OF_SOURCES");
    let build = Series { metric: BUILD_INFO, labels: vec![version.to_owned(), commit.to_owned()], value: 1.0 };
    process::read_series().into_iter().chain([build]).collect()
}

/// Appends the series to a page, grouped by metric. If a metric has too many series, those with the smallest values are
/// kept: these are the objects that expire first.
pub(super) fn write(page: &mut String, series: &[Series]) {
    for metric in CATALOGUE.iter().filter(|metric| metric.live) {
        let mut samples: Vec<&Series> = series.iter().filter(|series| series.metric == metric.name).collect();
        if samples.is_empty() {
            continue;
        }
        samples.sort_by(|one, other| one.value.total_cmp(&other.value));
        let kind = if metric.kind == MetricKind::Counter { "counter" } else { "gauge" };
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(page, "# HELP {0} {1}\n# TYPE {0} {kind}", metric.name, metric.help);
        for Series { labels, value, .. } in samples.into_iter().take(MAX_SERIES_PER_METRIC) {
            let pairs = metric
                .labels
                .iter()
                .zip(labels)
                .map(|(name, value)| format!("{name}=\"{}\"", escape_label_value(value)));
            let pairs = pairs.collect::<Vec<_>>().join(",");
            let _ = match pairs.is_empty() {
                true => writeln!(page, "{} {value}", metric.name),
                false => writeln!(page, "{}{{{pairs}}} {value}", metric.name),
            };
        }
        page.push('\n');
    }
}

fn escape_label_value(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{
        PKI_ISSUER_NOT_AFTER, PROCESS_CPU, PROCESS_MAX_FDS, PROCESS_MEMORY, PROCESS_OPEN_FDS, PROCESS_START,
        PROCESS_THREADS,
    };

    fn issuer(mount: &str, name: &str, value: f64) -> Series {
        Series { metric: PKI_ISSUER_NOT_AFTER, labels: vec![mount.to_owned(), name.to_owned()], value }
    }

    #[test]
    fn live_metrics_follow_their_help_with_escaped_labels() {
        let mut page = String::new();
        write(&mut page, &[issuer("b/", "r", 1_795_158_830.0), issuer("a\"\\\n/", "r", 5.0)]);
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "# TYPE signet_pki_issuer_not_after_seconds gauge",
                "signet_pki_issuer_not_after_seconds{mount=\"a\\\"\\\\\\n/\",issuer=\"r\"} 5",
                "signet_pki_issuer_not_after_seconds{mount=\"b/\",issuer=\"r\"} 1795158830",
                "",
            ]
        );
        assert!(lines[0].starts_with("# HELP signet_pki_issuer_not_after_seconds "));
    }

    #[test]
    fn live_metrics_above_the_limit_keep_the_earliest_expiry() {
        let all: Vec<Series> =
            (0..MAX_SERIES_PER_METRIC + 5).rev().map(|n| issuer("p/", &n.to_string(), n as f64)).collect();
        let mut page = String::new();
        write(&mut page, &all);
        assert_eq!(page.matches("_seconds{").count(), MAX_SERIES_PER_METRIC);
        assert!(page.contains("issuer=\"0\"") && !page.contains(&format!("issuer=\"{MAX_SERIES_PER_METRIC}\"")));
    }

    #[test]
    fn process_and_build_metrics_are_exported() {
        let of = |name: &str| process_series().into_iter().find(|series| series.metric == name).unwrap();
        for name in [PROCESS_MEMORY, PROCESS_OPEN_FDS, PROCESS_MAX_FDS, PROCESS_THREADS, PROCESS_START] {
            assert!(of(name).value >= 1.0, "{name}");
        }
        let started = of(PROCESS_START).value;
        let now = crate::clock::Clock::system().now().unix_timestamp() as f64;
        assert!((started - now).abs() < 3600.0, "{started} {now}");
        let before = of(PROCESS_CPU).value;
        let begun = std::time::Instant::now();
        while of(PROCESS_CPU).value < before + 0.05 {
            assert!(
                begun.elapsed() < std::time::Duration::from_secs(60),
                "the process works, but its CPU time stays {before} s"
            );
        }
        let files: Vec<_> = (0..5).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        assert!(of(PROCESS_OPEN_FDS).value >= files.len() as f64);
        assert_eq!(of(BUILD_INFO).labels[0], env!("CARGO_PKG_VERSION"));
    }
}
