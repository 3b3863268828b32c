//! A figure of the metrics that is looked up when somebody asks for them.

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// A metric of the catalogue that is [looked up](super::Metric::live).
    pub metric: &'static str,
    /// The values of its labels, in the order of the catalogue.
    pub labels: Vec<String>,
    /// The figure.
    pub value: f64,
}
