//! The report as a single HTML page: facts, tables and charts over time, without external resources.

use std::fmt::Write as _;

use crate::chart::{Chart, Extent, Series};
use crate::drive::{Answered, Figures};
use crate::format::{escape, number};
use crate::timeline;

/// Styles for light and dark mode, used by the charts as well.
const STYLE: &str = "
:root { color-scheme: light dark; --back: #fff; --text: #1c2024; --soft: #5d666f; --grid: #d7dce0;
  --s0: #0b62c4; --s1: #b14a00; --s2: #2b7a35; --s3: #8a2a8f; --good: #1f7a34; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --text: #e6e9ec; --soft: #9aa4ad; --grid: #343b42;
  --s0: #6cb2ff; --s1: #ff9d57; --s2: #74d084; --s3: #e08be6; --good: #74d084; --bad: #ff8a80; } }
body { background: var(--back); color: var(--text); font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto;
  max-width: 88rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0; }
th, td { border-bottom: 1px solid var(--grid); padding: .25rem .9rem .25rem 0; text-align: right; vertical-align: top; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
td.held { color: var(--good); } td.missed { color: var(--bad); font-weight: 700; }
.facts th, .facts td { text-align: left; font-size: .9rem; }
.runs { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); }
@media (max-width: 60rem) { .runs { grid-template-columns: minmax(0, 1fr); } }
.chart { display: block; margin: .75rem 0; max-width: 46rem; width: 100%; }
.chart text { fill: var(--text); font: 12px system-ui, sans-serif; } .chart .title { font-weight: 600; }
.chart .tick { fill: var(--soft); } .chart .end { text-anchor: end; } .chart .middle { text-anchor: middle; }
.chart .grid { fill: none; stroke: var(--grid); stroke-width: 1; }
.chart .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.chart .s0 { stroke: var(--s0); } .chart .s1 { stroke: var(--s1); stroke-dasharray: 7 3; }
.chart .s2 { stroke: var(--s2); stroke-dasharray: 2 3; } .chart .s3 { stroke: var(--s3); stroke-dasharray: 9 3 2 3; }
";

/// A table with a heading for every column.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A run and its title.
pub(crate) struct Run<'a> {
    pub(crate) title: String,
    pub(crate) figures: &'a Figures,
}

/// A report.
pub(crate) struct Page<'a> {
    pub(crate) title: String,
    /// Names and texts of facts about the measurement and the machine.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) tables: Vec<Table>,
    pub(crate) runs: Vec<Run<'a>>,
    /// Number of runs side by side.
    pub(crate) columns: usize,
}

impl Page<'_> {
    /// Renders the page as a complete document.
    pub(crate) fn html(&self) -> String {
        let title = escape(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<table class=\"facts\">\n"
        );
        for (name, text) in &self.facts {
            let _ = writeln!(html, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(text));
        }
        html += "</table>\n";
        self.tables.iter().for_each(|table| html += &table.html());
        let plots: Vec<Vec<Chart>> = self.runs.iter().map(|run| charts(run.figures)).collect();
        let _ = writeln!(html, "<div class=\"runs\" style=\"--columns: {}\">", self.columns.clamp(1, 4));
        for (run, charts) in self.runs.iter().zip(&plots) {
            let _ = writeln!(html, "<section>\n<h2>{}</h2>", escape(&run.title));
            html += &summary(run.figures).html();
            for chart in charts {
                // Charts with the same title share one axis, across all runs.
                let all = plots.iter().flatten().filter(|other| other.title == chart.title).filter_map(Chart::extent);
                if let Some(extent) = all.reduce(Extent::with) {
                    html += &chart.svg(extent);
                }
            }
            html += "</section>\n";
        }
        html + "</div>\n</body>\n</html>\n"
    }
}

impl Table {
    /// Returns a table with these headings.
    pub(crate) fn new(title: impl Into<String>, head: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self { title: title.into(), head: head.iter().copied().map(str::to_owned).collect(), rows }
    }

    fn html(&self) -> String {
        let mut html = String::new();
        if !self.title.is_empty() {
            let _ = writeln!(html, "<h2>{}</h2>", escape(&self.title));
        }
        html += "<table>\n<tr>";
        self.head.iter().for_each(|text| html += &format!("<th>{}</th>", escape(text)));
        html += "</tr>\n";
        for row in &self.rows {
            html += "<tr>";
            for text in row {
                let class = match text.as_str() {
                    "held" => " class=\"held\"",
                    "missed" => " class=\"missed\"",
                    _ => "",
                };
                let _ = write!(html, "<td{class}>{}</td>", escape(text));
            }
            html += "</tr>\n";
        }
        html + "</table>\n"
    }
}

fn summary(figures: &Figures) -> Table {
    let row = |class: &Answered| {
        let latencies = [50.0, 90.0, 99.0, 99.9, 100.0].map(|percent| number(class.percentile(percent)));
        let errors: u64 = class.errors.values().sum();
        let first =
            [class.name.clone(), number(class.count() as f64), number(errors as f64), number(figures.rate(class))];
        [first.to_vec(), latencies.to_vec()].concat()
    };
    let mut rows: Vec<Vec<String>> = figures.classes.iter().map(row).collect();
    let mut line = |name: &str, text: String| rows.push(vec![name.to_owned(), text]);
    if figures.unsent > 0 {
        line("due and not sent", number(figures.unsent as f64));
    }
    if let Some(cpu) = figures.per_request(figures.cpu.sum()) {
        line("CPU per request, µs", number(cpu));
    }
    if let Some(memory) = figures.server_mib {
        line("server memory, MiB", number(memory));
    }
    Table::new("", &["", "answered", "errors", "per second", "p50 ms", "p90", "p99", "p99.9", "max"], rows)
}

/// Returns throughput and latency charts of every class, then CPU and memory of the server.
fn charts(figures: &Figures) -> Vec<Chart> {
    let mut charts = Vec::new();
    let elapsed = figures.elapsed.as_secs_f64();
    for class in &figures.classes {
        let timeline = &class.timeline;
        let mut series = vec![rate_series("answered", timeline, elapsed, |slot| slot.latencies.count())];
        if !class.errors.is_empty() {
            series.push(rate_series("errors", timeline, elapsed, |slot| slot.errors));
        }
        let title = format!("throughput of {}", class.name);
        charts.push(Chart { title, unit: "per second", series, logarithmic: false });
        let series = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)]
            .map(|(name, percent)| latency_series(name, timeline, elapsed, percent))
            .to_vec();
        charts.push(Chart { title: format!("latency of {}", class.name), unit: "ms", series, logarithmic: true });
    }
    let cores = timeline::cores(&figures.samples);
    let memory = figures.samples.iter().filter_map(|sample| Some((sample.at, sample.resident_mib?))).collect();
    for (title, unit, points) in
        [("CPU of the server", "cores", cores), ("memory of the server", "MiB resident", memory)]
    {
        let series = vec![Series { name: unit.to_owned(), points }];
        charts.push(Chart { title: title.to_owned(), unit, series, logarithmic: false });
    }
    charts.retain(|chart| chart.extent().is_some());
    charts
}

fn rate_series(name: &str, timeline: &timeline::Timeline, elapsed: f64, count: fn(&timeline::Slot) -> u64) -> Series {
    let width = timeline.width.as_secs_f64();
    // The last slot is rarely complete: its counts are divided by the time it covers.
    let seconds = |end: f64| (elapsed.min(end) - (end - width)).clamp(1e-3, width);
    let points = slots(timeline)
        .filter(|(end, _)| seconds(*end) > width / 2.0 || *end <= width)
        .map(|(end, slot)| (end, count(slot) as f64 / seconds(end)))
        .collect();
    Series { name: name.to_owned(), points }
}

fn latency_series(name: &str, timeline: &timeline::Timeline, elapsed: f64, percent: f64) -> Series {
    let points = slots(timeline)
        .filter(|(_, slot)| slot.latencies.count() > 0)
        .map(|(end, slot)| (end.min(elapsed), slot.latencies.percentile(percent) as f64 / 1000.0))
        .collect();
    Series { name: name.to_owned(), points }
}

/// Returns each slot with its end in seconds.
fn slots(timeline: &timeline::Timeline) -> impl Iterator<Item = (f64, &timeline::Slot)> {
    let width = timeline.width.as_secs_f64();
    timeline.slots.iter().enumerate().map(move |(n, slot)| ((n + 1) as f64 * width, slot))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::histogram::Histogram;
    use crate::proc::Cpu;
    use crate::timeline::{Sample, Timeline};

    fn figures(errors: &[(&str, u64)]) -> Figures {
        let mut latencies = Histogram::default();
        let mut timeline = Timeline::default();
        for n in 0..500_u64 {
            latencies.record(n * 10);
            timeline.at(Duration::from_millis(n * 10)).latencies.record(n * 10);
        }
        let errors: BTreeMap<String, u64> = errors.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
        let class = Answered { name: "ec 256 <&\">".to_owned(), clients: 2, latencies, timeline, errors };
        let sample = |at: u32| Sample { at: at.into(), cpu: Some(f64::from(at) * 0.5), resident_mib: Some(50.0) };
        Figures {
            elapsed: Duration::from_secs(5),
            classes: vec![class],
            cpu: Cpu { server: Some(2.5), postgres: None },
            server_mib: Some(50.0),
            samples: (0..6).map(sample).collect(),
            unsent: 7,
            interrupted: false,
        }
    }

    /// Returns the names of all elements in order, or an error if an element is not closed properly.
    fn well_formed(html: &str) -> Result<Vec<String>, String> {
        let body = html.strip_prefix("<!DOCTYPE html>").ok_or("no document type")?;
        let mut open = Vec::new();
        let mut seen = Vec::new();
        for part in body.split('<').skip(1) {
            let (tag, text) = part.split_once('>').ok_or_else(|| format!("no end: {part}"))?;
            if tag.matches('"').count() % 2 == 1 {
                return Err(format!("a quote is not closed: {tag}"));
            }
            if open.last().is_none_or(|last| last != "style") && text.contains('>') {
                return Err(format!("not escaped: {text}"));
            }
            let name: String = tag.trim_end_matches('/').chars().take_while(|letter| !letter.is_whitespace()).collect();
            match name.strip_prefix('/') {
                Some(closed) if open.pop().as_deref() == Some(closed) => {}
                Some(closed) => return Err(format!("{closed} is closed and was not open")),
                None if tag.ends_with('/') => seen.push(name),
                None => {
                    seen.push(name.clone());
                    open.push(name);
                }
            }
        }
        if open.is_empty() { Ok(seen) } else { Err(format!("left open: {open:?}")) }
    }

    #[test]
    fn page_is_well_formed_complete_and_self_contained() {
        let one = figures(&[]);
        let other = figures(&[("503", 3)]);
        let runs = vec![
            Run { title: "signet, round 1".to_owned(), figures: &one },
            Run { title: "other <1>".to_owned(), figures: &other },
        ];
        let table = Table {
            title: "limits".to_owned(),
            head: vec![String::new(), "verdict".to_owned()],
            rows: vec![vec!["a".to_owned(), "held".to_owned()], vec!["b".to_owned(), "missed".to_owned()]],
        };
        let facts = vec![("machine".to_owned(), "two <cores> & more".to_owned())];
        let page = Page { title: "a & b".to_owned(), facts, tables: vec![table], runs, columns: 2 };
        let html = page.html();
        let elements = well_formed(&html).unwrap();
        assert_eq!(elements.iter().filter(|name| *name == "svg").count(), 8, "four plots of each run");
        for elsewhere in
            ["http:", "https:", "//", "url(", "@import", "src=", "href=", "<script", "<link", "NaN", "inf "]
        {
            assert!(!html.contains(elsewhere), "{elsewhere}");
        }
        for shown in [
            "prefers-color-scheme: dark",
            "class=\"missed\">missed",
            "two &lt;cores&gt; &amp; more",
            "due and not sent",
        ] {
            assert!(html.contains(shown), "{shown}");
        }
    }

    #[test]
    fn plots_side_by_side_have_one_axis() {
        let few = figures(&[]);
        let mut many = figures(&[]);
        many.samples.iter_mut().for_each(|sample| sample.resident_mib = Some(900.0));
        let run = |figures| Run { title: String::new(), figures };
        let page =
            Page { title: String::new(), facts: vec![], tables: vec![], runs: vec![run(&few), run(&many)], columns: 2 };
        assert_eq!(page.html().matches(">1,000</text>").count(), 2);
    }

    #[test]
    fn the_check_of_the_tests_finds_what_is_wrong() {
        for wrong in ["<p>", "<!DOCTYPE html><p></a>", "<!DOCTYPE html><p>a > b</p>", "<!DOCTYPE html><p x=\"></p>"] {
            assert!(well_formed(wrong).is_err(), "{wrong}");
        }
        assert_eq!(well_formed("<!DOCTYPE html><p><br/></p>").unwrap(), ["p", "br"]);
    }
}
