//! Line charts over time as static SVG, without external resources or scripts. Colors come from the page's style, for
//! light and dark mode; lines also differ in their dashes.

use crate::format::{escape, number};

use std::fmt::Write as _;

/// Size and margins of a chart in SVG units.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;
/// Approximate number of steps on an axis.
const STEPS: f64 = 5.0;

/// A line of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Pairs of seconds and value.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A line chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) series: Vec<Series>,
    /// `true`: logarithmic value axis; `false`: linear axis from 0.
    pub(crate) logarithmic: bool,
}

/// The ranges of both axes. Charts side by side share them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extent {
    /// Smallest value above 0.
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Last time in seconds.
    pub(crate) end: f64,
}

impl Extent {
    /// Returns the union of both ranges.
    pub(crate) fn with(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max), end: self.end.max(other.end) }
    }
}

impl Chart {
    /// Returns the ranges of the chart's own values; `None` without values.
    pub(crate) fn extent(&self) -> Option<Extent> {
        let of = |&(at, value): &(f64, f64)| Extent {
            min: if value > 0.0 { value } else { f64::INFINITY },
            max: value,
            end: at,
        };
        self.series.iter().flat_map(|series| &series.points).map(of).reduce(Extent::with)
    }

    /// Renders the chart with axes for `extent`.
    pub(crate) fn svg(&self, extent: Extent) -> String {
        let scale = Scale::new(extent, self.logarithmic);
        let title = format!("{}, {}", self.title, self.unit);
        let mut svg = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&title)
        );
        let _ = writeln!(svg, "<text class=\"title\" x=\"{LEFT}\" y=\"16\">{}</text>", escape(&title));
        let right = WIDTH - RIGHT;
        let bottom = HEIGHT - BOTTOM;
        for tick in scale.ticks() {
            let y = scale.y(tick);
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>");
            let _ = writeln!(
                svg,
                "<text class=\"tick end\" x=\"{}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                number(tick)
            );
        }
        for tick in steps(extent.end) {
            let x = scale.x(tick);
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {bottom}v4\"/>");
            let _ = writeln!(
                svg,
                "<text class=\"tick middle\" x=\"{x:.1}\" y=\"{}\">{} s</text>",
                bottom + 17.0,
                number(tick)
            );
        }
        for (n, series) in self.series.iter().enumerate() {
            let points = series.points.iter().filter(|(_, value)| !self.logarithmic || *value > 0.0);
            let mut line = String::new();
            for (n, &(at, value)) in points.enumerate() {
                let _ = write!(line, "{}{:.1} {:.1}", if n == 0 { "M" } else { "L" }, scale.x(at), scale.y(value));
            }
            // A single point needs a segment to be visible.
            let _ = writeln!(
                svg,
                "<path class=\"line s{n}\" stroke-linecap=\"round\" d=\"{line}{}\"/>",
                if line.contains('L') { "" } else { "h0.1" }
            );
            let x = LEFT + 130.0 * n as f64;
            let y = HEIGHT - 10.0;
            let _ = writeln!(svg, "<path class=\"line s{n}\" d=\"M{x} {}h24\"/>", y - 4.0);
            let _ = writeln!(svg, "<text class=\"tick\" x=\"{}\" y=\"{y}\">{}</text>", x + 30.0, escape(&series.name));
        }
        svg + "</svg>\n"
    }
}

/// Maps values to positions in the chart.
struct Scale {
    min: f64,
    max: f64,
    end: f64,
    logarithmic: bool,
}

impl Scale {
    fn new(extent: Extent, logarithmic: bool) -> Self {
        let end = extent.end.max(1.0);
        if !logarithmic {
            let step = step(extent.max.max(1e-9));
            return Self { min: 0.0, max: (extent.max.max(1e-9) / step).ceil() * step, end, logarithmic };
        }
        let min = if extent.min.is_finite() { extent.min } else { 1.0 };
        let (min, max) = (10_f64.powf(min.log10().floor()), 10_f64.powf(extent.max.max(min).log10().ceil()));
        Self { min, max: max.max(min * 10.0), end, logarithmic }
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (at / self.end).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value / self.min).log10() / (self.max / self.min).log10()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return steps(self.max);
        }
        let decades = (self.max / self.min).log10().round() as i32;
        (0..=decades).map(|decade| self.min * 10_f64.powi(decade)).collect()
    }
}

/// Returns a round step for an axis up to a value: 1, 2 or 5 times a power of ten.
fn step(max: f64) -> f64 {
    let rough = max / STEPS;
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough)
}

/// Returns the axis values from 0 up to a value.
fn steps(max: f64) -> Vec<f64> {
    let step = step(max.max(1e-9));
    (0..=(max / step + 1e-6) as u32).map(|n| f64::from(n) * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>, logarithmic: bool) -> Chart {
        let series = vec![Series { name: "p99 <x>".to_owned(), points }];
        Chart { title: "latency".to_owned(), unit: "ms", series, logarithmic }
    }

    #[test]
    fn axes_have_round_steps() {
        assert_eq!(steps(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(steps(7.3), [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(step(21_300.0), 5_000.0);
        let scale = Scale::new(Extent { min: 0.3, max: 42.0, end: 60.0 }, true);
        assert_eq!(scale.ticks().iter().map(|tick| number(*tick)).collect::<Vec<_>>(), ["0.1", "1", "10", "100"]);
    }

    #[test]
    fn values_lie_where_the_axis_says() {
        let scale = Scale::new(Extent { min: 1.0, max: 100.0, end: 60.0 }, false);
        assert_eq!((scale.y(0.0), scale.y(100.0)), (HEIGHT - BOTTOM, TOP));
        assert_eq!((scale.x(0.0), scale.x(60.0)), (LEFT, WIDTH - RIGHT));
        let scale = Scale::new(Extent { min: 1.0, max: 100.0, end: 60.0 }, true);
        assert!((scale.y(10.0) - (TOP + HEIGHT - BOTTOM) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_plot_draws_every_point_and_escapes_names() {
        let chart = chart(vec![(1.0, 2.0), (2.0, 4.0), (3.0, 0.0)], false);
        let svg = chart.svg(chart.extent().unwrap());
        assert_eq!(svg.matches('L').count(), 2, "{svg}");
        assert!(svg.contains("p99 &lt;x&gt;") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }

    #[test]
    fn empty_and_zero_charts_are_drawn() {
        assert_eq!(chart(Vec::new(), true).extent(), None);
        for chart in [chart(vec![(0.0, 0.0)], true), chart(vec![(0.0, 0.0)], false)] {
            let svg = chart.svg(chart.extent().unwrap());
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
