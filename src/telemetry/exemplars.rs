//! Exemplars of the request histogram: for each bucket the id of a request that fell into it.
//!
//! Only the first request of a second replaces the exemplar of its bucket, so most requests read one atomic and write
//! nothing. An exemplar contains ids and a time, never names that a caller chose.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use metrics::Label;

use super::bounds::REQUEST_SECONDS_BOUNDS;
use super::line;
use super::trace_context::TraceContext;

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
/// The exemplars of all routes that have had a request.
static ALL_EXEMPLARS: Mutex<Vec<Arc<Exemplars>>> = Mutex::new(Vec::new());

pub(super) struct Exemplars {
    /// The labels of the series, as the exporter renders them.
    series: String,
    /// The exemplars by bucket; the last bucket is `+Inf`.
    buckets: [ExemplarBucket; REQUEST_SECONDS_BOUNDS.len() + 1],
}

#[derive(Default)]
struct ExemplarBucket {
    /// The second in which the exemplar was stored, counted from 1 at [`EPOCH`]; 0 without an exemplar.
    second: AtomicU64,
    exemplar: Mutex<Option<Exemplar>>,
}

#[derive(Clone)]
struct Exemplar {
    request_id: String,
    /// The trace of the request. `None` if the client does not record the trace, because an unrecorded trace cannot be
    /// looked up.
    trace: Option<TraceContext>,
    seconds: f64,
    epoch_seconds: f64,
}

impl Exemplars {
    /// Creates the exemplars of the series with these labels, and adds them to [`ALL_EXEMPLARS`].
    pub(super) fn register(labels: &[Label]) -> Arc<Self> {
        let pairs = labels.iter().map(|label| format!("{}=\"{}\"", label.key(), label.value()));
        let series = pairs.collect::<Vec<_>>().join(",");
        let new = Arc::new(Self { series, buckets: Default::default() });
        ALL_EXEMPLARS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&new));
        new
    }

    /// Stores a request as the exemplar of its bucket, unless the bucket has one from the same second.
    pub(super) fn offer(&self, at: Instant, took: Duration, request_id: &str, trace: Option<&TraceContext>) {
        let seconds = took.as_secs_f64();
        let bucket = &self.buckets[REQUEST_SECONDS_BOUNDS.partition_point(|bound| *bound < seconds)];
        let second = at.saturating_duration_since(*EPOCH).as_secs() + 1;
        if bucket.second.load(Ordering::Relaxed) == second {
            return;
        }
        // If the lock is taken, another worker is storing an exemplar, which is enough.
        let Ok(mut exemplar) = bucket.exemplar.try_lock() else { return };
        bucket.second.store(second, Ordering::Relaxed);
        let epoch_seconds = line::system_time().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let trace = trace.copied().filter(TraceContext::is_sampled);
        *exemplar = Some(Exemplar { request_id: request_id.to_owned(), trace, seconds, epoch_seconds });
    }
}

/// A snapshot of all exemplars. Take it before the page is rendered, so that no bucket that is still empty on the page
/// gets an exemplar.
pub(super) struct ExemplarSnapshot(HashMap<String, Vec<Option<Exemplar>>>);

impl ExemplarSnapshot {
    pub(super) fn take() -> Self {
        let all = ALL_EXEMPLARS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let exemplar_of =
            |bucket: &ExemplarBucket| bucket.exemplar.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let by_series = |all: &Arc<Exemplars>| (all.series.clone(), all.buckets.iter().map(exemplar_of).collect());
        Self(all.iter().map(by_series).collect())
    }

    /// Appends an exemplar to `line`, the line of a bucket with the upper bound `bound`. Appends nothing if the bucket
    /// has no exemplar.
    pub(super) fn append(&self, series: &str, bound: f64, line: &mut String) {
        let bucket = REQUEST_SECONDS_BOUNDS.partition_point(|known| *known < bound);
        let exemplar = self.0.get(series).and_then(|buckets| buckets.get(bucket)?.as_ref());
        let Some(exemplar) = exemplar else { return };
        let Exemplar { request_id, trace, seconds, epoch_seconds } = exemplar;
        // Writing to a string cannot fail, here and below.
        let _ = write!(line, " # {{request_id=\"{request_id}\"");
        if let Some(trace) = trace {
            let _ = write!(line, ",trace_id=\"{}\"", trace.trace_id());
        }
        let _ = write!(line, "}} {seconds} {epoch_seconds:.3}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered_exemplar(exemplars: &Exemplars, bound: f64) -> String {
        let mut line = String::new();
        ExemplarSnapshot::take().append(&exemplars.series, bound, &mut line);
        line
    }

    #[test]
    fn exemplar_stays_for_its_second_and_has_a_sampled_trace_only() {
        let exemplars = Exemplars::register(&[Label::new("route", "exemplar_stays")]);
        let begin = *EPOCH + Duration::from_secs(1000);
        let trace = |flags| TraceContext::parse(format!("00-{:032x}-{:016x}-{flags}", 7, 1).as_bytes());
        let took = Duration::from_millis(20);
        exemplars.offer(begin, took, "one", trace("00").as_ref());
        exemplars.offer(begin + Duration::from_millis(900), took, "two", None);
        let line = rendered_exemplar(&exemplars, 0.025);
        assert!(line.starts_with(" # {request_id=\"one\"} 0.02 "), "{line}");
        exemplars.offer(begin + Duration::from_secs(1), took, "three", trace("01").as_ref());
        let line = rendered_exemplar(&exemplars, 0.025);
        assert!(line.starts_with(&format!(" # {{request_id=\"three\",trace_id=\"{:032x}\"}} 0.02 ", 7)), "{line}");
        for other in [0.015, 0.035, f64::INFINITY] {
            assert_eq!(rendered_exemplar(&exemplars, other), "");
        }
        exemplars.offer(begin, Duration::from_secs(60), "long", None);
        assert!(rendered_exemplar(&exemplars, f64::INFINITY).contains("long"));
    }

    #[test]
    fn labels_of_an_exemplar_stay_within_the_limit_of_openmetrics() {
        let exemplars = Exemplars::register(&[Label::new("route", "exemplar_limit")]);
        let trace = TraceContext::parse(format!("00-{}-{}-01", "a".repeat(32), "b".repeat(16)).as_bytes());
        exemplars.offer(*EPOCH, Duration::ZERO, &"0".repeat(36), trace.as_ref());
        let line = rendered_exemplar(&exemplars, REQUEST_SECONDS_BOUNDS[0]);
        let (labels, _) = line.split_once('}').unwrap();
        let characters = labels.chars().filter(|c| !" #{},=\"".contains(*c)).count();
        assert!((86..=128).contains(&characters), "{characters}: {line}");
    }
}
