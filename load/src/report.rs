//! The report of a command: text on standard output, a JSON file and an HTML page with charts.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::chart::{AxisRanges, Chart, charts};
use crate::environment::{Facts, environment};
use crate::figures::Figures;
use crate::format::escape;
use crate::run_context::{ServerFacts, servers};
use crate::table::{Column, Table};

const STYLE: &str = include_str!("style.css");
/// Members of the results of a class that the report shows.
const CLASS_COLUMNS: [Column; 10] = [
    ("", "/key"),
    ("clients", "/clients"),
    ("answered", "/requests"),
    ("per second", "/requests_per_second"),
    ("p50 ms", "/latency_ms/p50"),
    ("p90", "/latency_ms/p90"),
    ("p99", "/latency_ms/p99"),
    ("p99.9", "/latency_ms/p999"),
    ("max", "/latency_ms/max"),
    ("errors", "/errors"),
];

/// Output files, in addition to standard output.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Outputs {
    /// Write the figures to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a report with charts to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Commit of the server, for the report.
    #[arg(long, value_name = "ID")]
    pub(crate) commit: Option<String>,
}

/// A run and its title.
pub(crate) struct ReportedRun<'a> {
    pub(crate) title: String,
    pub(crate) figures: &'a Figures,
}

/// A report. Its text has the tables, or the runs if there are no tables.
#[derive(Default)]
pub(crate) struct Report<'a> {
    pub(crate) title: String,
    /// Names and texts of facts about the measurement.
    pub(crate) facts: Facts,
    pub(crate) tables: Vec<Table>,
    pub(crate) runs: Vec<ReportedRun<'a>>,
    /// The results as an object, to which the machine and the commit are added.
    pub(crate) json: Value,
}

impl<'a> Report<'a> {
    pub(crate) fn new(title: impl Into<String>, json: Value) -> Self {
        Self { title: title.into(), json, ..Self::default() }
    }

    pub(crate) fn fact(mut self, name: &str, text: impl ToString) -> Self {
        self.facts.push((name.to_owned(), text.to_string()));
        self
    }

    pub(crate) fn facts(mut self, facts: Facts) -> Self {
        self.facts.extend(facts);
        self
    }

    /// Adds a table of the objects in a member of the JSON.
    pub(crate) fn table(mut self, title: &str, pointer: &str, columns: &[Column]) -> Self {
        let objects = self.json.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        self.tables.push(Table::new(title, columns, objects));
        self
    }

    pub(crate) fn run(mut self, title: impl Into<String>, figures: &'a Figures) -> Self {
        self.runs.push(ReportedRun { title: title.into(), figures });
        self
    }

    /// Prints the report and writes the requested files.
    pub(crate) fn publish(self, outputs: &Outputs) -> Result<(), String> {
        print!("{}", self.text());
        let failed = |path: &PathBuf, e: &dyn Error| format!("writing {}: {e}", path.display());
        if let Some(path) = &outputs.json {
            let mut json = self.json.clone();
            json["environment"] = environment().into_iter().map(|(name, text)| (name, Value::from(text))).collect();
            json["environment"]["servers"] = servers().iter().map(ServerFacts::json).collect();
            json["commit"] = json!(outputs.commit);
            std::fs::write(path, format!("{json:#}\n")).map_err(|e| failed(path, &e))?;
        }
        if let Some(path) = &outputs.html {
            let html = self.html(outputs).map_err(|e| failed(path, &*e))?;
            std::fs::write(path, html).map_err(|e| failed(path, &e))?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        let line = |(name, fact): &(String, String)| format!("  {name:<24}  {fact}\n");
        text.extend(self.facts.iter().map(line));
        text.extend(self.tables.iter().map(Table::text));
        let runs = if self.tables.is_empty() { &self.runs[..] } else { &[] };
        for run in runs {
            text += &run.classes(&run.title).text();
            text.extend(run.figures.facts().iter().map(line));
        }
        text
    }

    fn html(&self, outputs: &Outputs) -> Result<String, Box<dyn Error>> {
        let title = escape(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        let server = |facts: ServerFacts| (format!("server {}", facts.name), facts.text());
        let servers = servers().into_iter().map(server);
        let commit = outputs.commit.clone().map(|commit| ("commit".to_owned(), commit));
        let facts = environment().into_iter().chain(self.facts.clone()).chain(servers).chain(commit);
        html += &facts_html(facts.collect());
        html.extend(self.tables.iter().map(Table::html));
        let charts: Vec<Vec<Chart>> = self.runs.iter().map(|run| charts(run.figures)).collect();
        let _ = writeln!(html, "<div class=\"runs\" style=\"--columns: {}\">", self.runs.len().clamp(1, 2));
        for (run, own_charts) in self.runs.iter().zip(&charts) {
            let _ = write!(html, "<section>\n<h2>{}</h2>\n{}", escape(&run.title), run.classes("").html());
            html += &facts_html(run.figures.facts());
            for chart in own_charts {
                // Charts with the same title share one axis, across all runs.
                let same = charts.iter().flatten().filter(|other| other.title == chart.title);
                if let Some(extent) = same.filter_map(Chart::extent).reduce(AxisRanges::with) {
                    html += &chart.svg(extent)?;
                }
            }
            html += "</section>\n";
        }
        Ok(html + "</div>\n</body>\n</html>\n")
    }
}

impl ReportedRun<'_> {
    fn classes(&self, title: &str) -> Table {
        Table::new(title, &CLASS_COLUMNS, &self.figures.classes_json())
    }
}

/// Prints the results of a run that was interrupted before the report.
pub(crate) fn print_interrupted(figures: &Figures) {
    print!("{}", Report::default().run("interrupted", figures).text());
}

fn facts_html(facts: Facts) -> String {
    let row =
        |(name, text): (String, String)| format!("<tr><th>{}</th><td>{}</td></tr>\n", escape(&name), escape(&text));
    format!("<table class=\"facts\">\n{}</table>\n", facts.into_iter().map(row).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::figures::ClassFigures;
    use crate::histogram::LatencyHistogram;
    use crate::proc::CpuSeconds;
    use crate::timeline::{Sample, Timeline};

    fn figures(errors: &[(&str, u64)]) -> Figures {
        let mut latencies = LatencyHistogram::default();
        let mut timeline = Timeline::default();
        for n in 0..500_u64 {
            latencies.record(n * 10);
            timeline.at(Duration::from_millis(n * 10)).latencies.record(n * 10);
        }
        let errors: BTreeMap<String, u64> = errors.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
        let class = ClassFigures { name: "ec 256 <&\">".to_owned(), clients: 2, latencies, timeline, errors };
        let sample = |at: u32| Sample { at: at.into(), cpu: Some(f64::from(at) * 0.5), resident_mib: Some(50.0) };
        Figures {
            elapsed: Duration::from_secs(5),
            classes: vec![class],
            cpu: CpuSeconds { server: Some(2.5), postgres: None },
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
        let json = json!({ "limits": [{ "name": "a", "holds": true }, { "name": "b", "holds": false }] });
        let report = Report::new("a & b", json)
            .fact("machine", "two <cores> & more")
            .table("limits", "/limits", &[("", "/name"), ("verdict", "/holds")])
            .run("signet, round 1", &one)
            .run("other <1>", &other);
        let html = report.html(&Outputs::default()).unwrap();
        let elements = well_formed(&html).unwrap();
        assert_eq!(elements.iter().filter(|name| *name == "svg").count(), 8, "four charts of each run");
        for elsewhere in
            ["http:", "https:", "//", "url(", "@import", "src=", "href=", "<script", "<link", "NaN", "inf "]
        {
            assert!(!html.contains(elsewhere), "{elsewhere}");
        }
        for shown in [
            "prefers-color-scheme: dark",
            "class=\"missed\">missed",
            "two &lt;cores&gt; &amp; more",
            "NOT SENT",
            "3 × 503",
        ] {
            assert!(html.contains(shown), "{shown}");
        }
    }

    #[test]
    fn charts_side_by_side_have_one_axis() {
        let few = figures(&[]);
        let mut many = figures(&[]);
        many.samples.iter_mut().for_each(|sample| sample.resident_mib = Some(900.0));
        let report = Report::new("", json!({})).run("", &few).run("", &many);
        assert_eq!(report.html(&Outputs::default()).unwrap().matches(">\n800\n</text>").count(), 2);
    }

    #[test]
    fn text_has_the_runs_unless_there_are_tables() {
        let figures = figures(&[]);
        let report = Report::new("issue", json!({})).fact("store", "SQLite").run("round 1", &figures);
        let text = report.text();
        for shown in ["issue\n  store", "SQLite\nround 1\n", "p99.9", "NOT SENT", "server memory"] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert!(!report.table("", "/none", &[("", "")]).text().contains("round 1"));
    }

    #[test]
    fn well_formed_rejects_invalid_documents() {
        for wrong in ["<p>", "<!DOCTYPE html><p></a>", "<!DOCTYPE html><p>a > b</p>", "<!DOCTYPE html><p x=\"></p>"] {
            assert!(well_formed(wrong).is_err(), "{wrong}");
        }
        assert_eq!(well_formed("<!DOCTYPE html><p><br/></p>").unwrap(), ["p", "br"]);
    }
}
