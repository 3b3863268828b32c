//! A metric of the catalogue, and the constructors of each type.

use metrics::Unit;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// A distribution over the given upper bounds.
    Histogram(&'static [f64]),
}

/// An entry of the catalogue.
pub struct Metric {
    /// The name, with the unit as suffix.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// The unit.
    pub unit: Unit,
    /// The label names. Their values come from closed sets.
    pub labels: &'static [&'static str],
    /// Labels and values of the series that exist from the start, at zero.
    pub starts: &'static [(&'static str, &'static str)],
    /// The help text.
    pub help: &'static str,
    /// `true` if the value is determined when the metrics page is requested.
    pub live: bool,
}

pub(super) type LabelNames = &'static [&'static str];
pub(super) type InitialSeries = &'static [(&'static str, &'static str)];

impl Metric {
    pub(super) const fn looked_up(self) -> Self {
        Self { live: true, ..self }
    }

    pub(super) const fn starting(self, starts: InitialSeries) -> Self {
        Self { starts, ..self }
    }
}

pub(super) const fn counter(name: &'static str, labels: LabelNames, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, unit: Unit::Count, labels, starts: &[], help, live: false }
}

pub(super) const fn gauge(name: &'static str, labels: LabelNames, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, unit: Unit::Count, labels, starts: &[], help, live: false }
}

/// A gauge of a duration or a point in time.
pub(super) const fn seconds(name: &'static str, labels: LabelNames, help: &'static str) -> Metric {
    Metric { unit: Unit::Seconds, ..gauge(name, labels, help) }
}

pub(super) const fn histogram(
    name: &'static str,
    labels: LabelNames,
    unit: Unit,
    bounds: &'static [f64],
    help: &'static str,
) -> Metric {
    Metric { name, kind: MetricKind::Histogram(bounds), unit, labels, starts: &[], help, live: false }
}
