//! A latency histogram with bounded memory: the width of the buckets grows with the value.
//!
//! Values below [`EXACT`] have a bucket each; above, each power of two has [`SPLIT`] buckets, so the relative error is
//! less than 1/[`SPLIT`]. A percentile is the upper end of a bucket, so it is never too low. The maximum is exact.

const EXACT: u64 = 2 * SPLIT;
/// Buckets per power of two.
const SPLIT: u64 = 128;

/// A histogram of values in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl Histogram {
    pub(crate) fn record(&mut self, micros: u64) {
        let bucket = bucket(micros);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(micros);
    }

    /// Adds the counts of another histogram.
    pub(crate) fn add(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns a percentile in microseconds; 0 without values.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let rank = ((self.count as f64 * percent / 100.0).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return upper_end(bucket).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(micros: u64) -> usize {
    if micros < EXACT {
        return micros as usize;
    }
    let octave = u64::from(micros.ilog2() - EXACT.ilog2());
    (EXACT + octave * SPLIT + (micros >> (octave + 1)) - SPLIT) as usize
}

/// Returns the largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let octave = (bucket - EXACT) / SPLIT;
    let part = (bucket - EXACT) % SPLIT;
    let first = (SPLIT + part) << (octave + 1);
    let width = 1 << (octave + 1);
    first + (width - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }

    #[test]
    fn bucket_end_exceeds_a_value_by_less_than_a_128th() {
        for value in (0..5000).chain((1..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let (bucket, end) = (bucket(value), upper_end(bucket(value)));
            assert!(end >= value && (end - value) as f64 <= value as f64 / SPLIT as f64, "{value} in {bucket}: {end}");
        }
        let buckets: Vec<usize> = (0..5000).map(bucket).collect();
        assert!(buckets.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1), "none is left out");
        assert_eq!(upper_end(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_follow_the_rank_and_the_maximum_is_exact() {
        let hundred = of((1..=100).map(|ms| ms * 1000));
        for (percent, exact) in [(50.0, 50_000), (90.0, 90_000), (99.0, 99_000)] {
            let said = hundred.percentile(percent);
            assert!(said >= exact && said <= exact + exact / 128, "p{percent}: {said}");
        }
        assert_eq!([99.9, 100.0].map(|percent| hundred.percentile(percent)), [100_000; 2]);
        assert_eq!(of([250]).percentile(50.0), 250);
        assert_eq!(of([9_999_999]).percentile(1.0), 9_999_999);
        assert_eq!(of([]).percentile(99.0), 0);
    }

    #[test]
    fn histogram_sum_equals_joint_counting_in_bounded_memory() {
        let few = of([3, 70_000]);
        let many = of((0..1000).map(|n| n * n));
        let mut sum = few.clone();
        sum.add(&many);
        assert_eq!(sum, of([3, 70_000].into_iter().chain((0..1000).map(|n| n * n))));
        assert_eq!(sum.count(), 1002);
        assert!(of([u64::MAX]).counts.len() < 7500);
    }
}
