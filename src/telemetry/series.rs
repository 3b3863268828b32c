//! A value on the metrics page that is determined when the page is requested.

/// One series of a [live](super::Metric::live) metric, with its current value.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name of the metric in the catalogue.
    pub metric: &'static str,
    /// The label values, in the order of the catalogue.
    pub labels: Vec<String>,
    /// The current value of the series.
    pub value: f64,
}
