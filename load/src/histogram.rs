//! Statistics of measurements: a latency histogram with bounded memory and an exact maximum, and the median.

/// Significant decimal digits of a percentile: its error is below 1 %.
const SIGNIFICANT_DIGITS: u8 = 2;

/// A histogram of latencies in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LatencyHistogram {
    buckets: hdrhistogram::Histogram<u64>,
    max: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        let buckets = hdrhistogram::Histogram::new(SIGNIFICANT_DIGITS).expect("0 to 5 digits are valid");
        Self { buckets, max: 0 }
    }
}

impl LatencyHistogram {
    pub(crate) fn record(&mut self, micros: u64) {
        self.buckets.record(micros).expect("the histogram grows with its values");
        self.max = self.max.max(micros);
    }

    /// Adds the counts of another histogram.
    pub(crate) fn add(&mut self, other: &Self) {
        self.buckets.add(&other.buckets).expect("the histogram grows with its values");
        self.max = self.max.max(other.max);
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Returns a percentile in milliseconds; 0 without values. It is the upper end of a bucket, so it is never too low.
    pub(crate) fn percentile_ms(&self, percent: f64) -> f64 {
        self.buckets.value_at_percentile(percent).min(self.max) as f64 / 1000.0
    }
}

/// Returns the median; for an even count, the mean of the two middle values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::default();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }

    #[test]
    fn percentiles_follow_the_rank_and_the_maximum_is_exact() {
        let hundred = of((1..=100).map(|ms| ms * 1000));
        for percent in [50.0, 90.0, 99.0] {
            let said = hundred.percentile_ms(percent);
            assert!(said >= percent && said <= percent * 129.0 / 128.0, "p{percent}: {said}");
        }
        assert_eq!([99.9, 100.0].map(|percent| hundred.percentile_ms(percent)), [100.0; 2]);
        assert_eq!(of([250]).percentile_ms(50.0), 0.25);
        assert_eq!(of([9_999_999]).percentile_ms(1.0), 9_999.999);
        assert_eq!(of([]).percentile_ms(99.0), 0.0);
    }

    #[test]
    fn median_is_the_middle_value_or_the_mean_of_two() {
        assert_eq!(median([9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median([9.0, 1.0, 5.0, 6.0]), Some(5.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn histogram_sum_equals_joint_counting() {
        let few = of([3, 70_000]);
        let many = of((0..1000).map(|n| n * n));
        let mut sum = few.clone();
        sum.add(&many);
        assert_eq!(sum, of([3, 70_000].into_iter().chain((0..1000).map(|n| n * n))));
        assert_eq!(sum.count(), 1002);
    }
}
