//! The type of a metric in the catalogue, the constructors for each kind of metric, and the macro that declares them.

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
    /// For a metric with one label: label values whose series exist from the start, at zero.
    pub initial_values: &'static [&'static str],
    /// The help text.
    pub help: &'static str,
    /// `true` if the value is determined when the metrics page is requested.
    pub live: bool,
}

impl Metric {
    const fn new(kind: MetricKind, labels: &'static [&'static str]) -> Self {
        Self { name: "", kind, unit: Unit::Count, labels, initial_values: &[], help: "", live: false }
    }

    /// Sets the unit to seconds, for a duration or a time since the epoch.
    pub(super) const fn in_seconds(self) -> Self {
        Self { unit: Unit::Seconds, ..self }
    }

    pub(super) const fn live(self) -> Self {
        Self { live: true, ..self }
    }

    pub(super) const fn starting(self, initial_values: &'static [&'static str]) -> Self {
        Self { initial_values, ..self }
    }
}

pub(super) const fn counter(labels: &'static [&'static str]) -> Metric {
    Metric::new(MetricKind::Counter, labels)
}

pub(super) const fn gauge(labels: &'static [&'static str]) -> Metric {
    Metric::new(MetricKind::Gauge, labels)
}

pub(super) const fn histogram(labels: &'static [&'static str], bounds: &'static [f64]) -> Metric {
    Metric::new(MetricKind::Histogram(bounds), labels)
}

/// Declares the metrics as `CONSTANT = "name": constructor;`. The doc comment of a metric is its help text. Defines the
/// constants with the names, and `CATALOGUE`.
macro_rules! catalogue {
    ($($(#[doc = $help:literal])+ $constant:ident = $name:literal: $metric:expr;)+) => {
        $($(#[doc = $help])+ pub const $constant: &str = $name;)+

        /// All metrics of the program; no others are registered.
        pub const CATALOGUE: &[Metric] = &[
            // Each line of a doc comment begins with a blank.
            $(Metric { name: $name, help: concat!($($help),+).split_at(1).1, ..$metric },)+
        ];
    };
}
pub(super) use catalogue;
