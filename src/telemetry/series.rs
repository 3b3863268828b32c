//! A metric value that is determined when the metrics page is requested.

/// A sample of a [live](super::Metric::live) metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name of the metric in the catalogue.
    pub metric: &'static str,
    /// The label values, in the order of the catalogue.
    pub labels: Vec<String>,
    /// The value.
    pub value: f64,
}
