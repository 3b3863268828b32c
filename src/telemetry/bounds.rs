//! The upper bounds of histograms.
//!
//! A request and every part of it (a stage, a wait, a commit, a call) share [`REQUEST_SECONDS_BOUNDS`]. A quantile is
//! interpolated within a bucket, so with other bounds a part could look slower than the whole.

/// Upper bounds for requests and their parts, in seconds.
///
/// The bounds below 1 ms distinguish kinds of requests: the fastest responses take less than 0.1 ms, and issuing an EC
/// certificate without storing it takes less than 0.5 ms. A signature takes tens of microseconds, which falls into the
/// lowest bucket; its exact mean is `_sum` divided by `_count`.
pub(super) const REQUEST_SECONDS_BOUNDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.035, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0,
];
/// Upper bounds for work outside requests, in seconds.
pub(super) const BACKGROUND_SECONDS_BOUNDS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
/// Upper bounds for long background runs such as tidy, in seconds.
pub(super) const RUN_SECONDS_BOUNDS: &[f64] = &[0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 43_200.0];
/// Upper bounds for the time until a CRL with a new revocation is published, in seconds. The CRL may be built
/// immediately or by a timer.
pub(super) const PUBLISH_SECONDS_BOUNDS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0, 900.0, 3_600.0, 21_600.0, 86_400.0, 259_200.0];
/// Upper bounds for the number of write units in a commit.
pub(super) const BATCH_UNITS_BOUNDS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
