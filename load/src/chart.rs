//! Line charts over time as static SVG. The style of the page maps their colors to those of light and dark mode.

use std::error::Error;
use std::ops::Range;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::figures::Figures;
use crate::format::{escape, number};
use crate::timeline::{self, Timeline, TimelineSlot};

/// Width and height of a chart in SVG units.
const CHART_SIZE: (u32, u32) = (640, 240);
/// Colors of the lines, grid and text. `style.css` refers to them.
const LINE_COLORS: [RGBColor; 4] =
    [RGBColor(0x0b, 0x62, 0xc4), RGBColor(0xb1, 0x4a, 0x00), RGBColor(0x2b, 0x7a, 0x35), RGBColor(0x8a, 0x2a, 0x8f)];
const GRID_COLOR: RGBColor = RGBColor(0xd7, 0xdc, 0xe0);

/// A line of a chart.
#[derive(Clone, Debug)]
struct ChartSeries {
    name: &'static str,
    /// Pairs of seconds and value.
    points: Vec<(f64, f64)>,
}

/// A line chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    series: Vec<ChartSeries>,
    /// `true`: logarithmic value axis; `false`: linear axis from 0.
    logarithmic: bool,
}

/// The ranges of both axes, which charts of the same title share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AxisRanges {
    /// Smallest value above 0.
    min: f64,
    max: f64,
    end_seconds: f64,
}

impl AxisRanges {
    /// Returns the union of both ranges.
    pub(crate) fn with(self, other: Self) -> Self {
        let end_seconds = self.end_seconds.max(other.end_seconds);
        Self { min: self.min.min(other.min), max: self.max.max(other.max), end_seconds }
    }
}

impl Chart {
    /// Returns the ranges of the chart's own values; `None` without values.
    pub(crate) fn extent(&self) -> Option<AxisRanges> {
        let of = |&(at, value): &(f64, f64)| AxisRanges {
            min: if value > 0.0 { value } else { f64::INFINITY },
            max: value,
            end_seconds: at,
        };
        self.series.iter().flat_map(|series| &series.points).map(of).reduce(AxisRanges::with)
    }

    /// Renders the chart with axes for `extent`.
    pub(crate) fn svg(&self, extent: AxisRanges) -> Result<String, Box<dyn Error>> {
        let end_seconds = extent.end_seconds.max(1.0);
        if !self.logarithmic {
            return self.draw(end_seconds, 0.0..extent.max.max(1e-9) * 1.05);
        }
        let min = if extent.min.is_finite() { extent.min } else { 1.0 };
        let decades: Range<f64> =
            10_f64.powf(min.log10().floor())..10_f64.powf(extent.max.max(min * 1.01).log10().ceil());
        self.draw(end_seconds, decades.log_scale())
    }

    fn draw<Y>(&self, end_seconds: f64, values: Y) -> Result<String, Box<dyn Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, CHART_SIZE).into_drawing_area();
            let mut chart = ChartBuilder::on(&area)
                .caption(&self.title, ("sans-serif", 13))
                .margin(6)
                .x_label_area_size(24)
                .y_label_area_size(60)
                .build_cartesian_2d(0.0..end_seconds, values)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID_COLOR)
                .axis_style(GRID_COLOR)
                .x_label_formatter(&|seconds| format!("{} s", number(*seconds)))
                .y_label_formatter(&|value| number(*value))
                .draw()?;
            for (series, color) in self.series.iter().zip(LINE_COLORS) {
                let points = series.points.iter().copied().filter(|(_, value)| !self.logarithmic || *value > 0.0);
                chart
                    .draw_series(LineSeries::new(points, color.stroke_width(2)))?
                    .label(series.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
            }
            chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).draw()?;
            area.present()?;
        }
        // The page embeds the image, so it needs no name space.
        let attributes = format!(" class=\"chart\" role=\"img\" aria-label=\"{}\"", escape(&self.title));
        Ok(svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", &attributes, 1))
    }
}

/// Returns throughput and latency charts of every class, then CPU and memory of the server.
pub(crate) fn charts(figures: &Figures) -> Vec<Chart> {
    let mut charts = Vec::new();
    let mut add = |title: String, series: Vec<ChartSeries>, logarithmic: bool| {
        let chart = Chart { title, series, logarithmic };
        charts.extend(chart.extent().map(|_| chart));
    };
    let elapsed = figures.elapsed.as_secs_f64();
    for class in &figures.classes {
        let timeline = &class.timeline;
        let mut series = vec![rate_series("answered", timeline, elapsed, |slot| slot.latencies.count())];
        if !class.errors.is_empty() {
            series.push(rate_series("errors", timeline, elapsed, |slot| slot.errors));
        }
        add(format!("throughput of {}, per second", class.name), series, false);
        let series = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)]
            .map(|(name, percent)| latency_series(name, timeline, elapsed, percent));
        add(format!("latency of {}, ms", class.name), series.to_vec(), true);
    }
    let memory = figures.samples.iter().filter_map(|sample| Some((sample.at, sample.resident_mib?))).collect();
    let cores = ChartSeries { name: "cores", points: timeline::cores(&figures.samples) };
    add("CPU of the server, cores".to_owned(), vec![cores], false);
    add("memory of the server, MiB resident".to_owned(), vec![ChartSeries { name: "MiB", points: memory }], false);
    charts
}

fn rate_series(name: &'static str, timeline: &Timeline, elapsed: f64, count: fn(&TimelineSlot) -> u64) -> ChartSeries {
    let width = timeline.width.as_secs_f64();
    // The last slot is rarely complete: its counts are divided by the time it covers.
    let seconds = |end: f64| (elapsed.min(end) - (end - width)).clamp(1e-3, width);
    let points = slots(timeline)
        .filter(|(end, _)| seconds(*end) > width / 2.0 || *end <= width)
        .map(|(end, slot)| (end, count(slot) as f64 / seconds(end)))
        .collect();
    ChartSeries { name, points }
}

fn latency_series(name: &'static str, timeline: &Timeline, elapsed: f64, percent: f64) -> ChartSeries {
    let points = slots(timeline)
        .filter(|(_, slot)| slot.latencies.count() > 0)
        .map(|(end, slot)| (end.min(elapsed), slot.latencies.percentile_ms(percent)))
        .collect();
    ChartSeries { name, points }
}

/// Returns each slot with its end in seconds.
fn slots(timeline: &Timeline) -> impl Iterator<Item = (f64, &TimelineSlot)> {
    let width = timeline.width.as_secs_f64();
    timeline.slots.iter().enumerate().map(move |(n, slot)| ((n + 1) as f64 * width, slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>, logarithmic: bool) -> Chart {
        Chart { title: "latency <x>".to_owned(), series: vec![ChartSeries { name: "p99", points }], logarithmic }
    }

    #[test]
    fn chart_draws_every_point_and_escapes_its_title() {
        let chart = chart(vec![(1.0, 2.0), (2.0, 4.0), (3.0, 0.0)], false);
        let svg = chart.svg(chart.extent().unwrap()).unwrap();
        let line = svg.lines().find(|line| line.contains("<polyline") && line.contains("#0B62C4")).unwrap();
        assert_eq!(line.matches(',').count(), 3, "{line}");
        assert!(svg.contains("latency &lt;x&gt;") && svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
    }

    #[test]
    fn empty_and_zero_charts_are_drawn() {
        assert_eq!(chart(Vec::new(), true).extent(), None);
        for chart in [chart(vec![(0.0, 0.0)], true), chart(vec![(0.0, 0.0)], false)] {
            let svg = chart.svg(chart.extent().unwrap()).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
