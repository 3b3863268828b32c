//! The dashboards and alerting rules: their documentation ([`boards`], [`rules`]), the metrics that they query
//! ([`queries`]), and their results on the metrics of a real server ([`scrape`]).

mod boards;
mod queries;
mod rules;
mod scrape;

use std::path::{Path, PathBuf};

use serde_json::Value;

struct Board {
    name: String,
    body: Value,
}

struct Asked {
    /// Dashboard and panel.
    place: String,
    expression: String,
    legend: String,
    unit: String,
}

impl Board {
    fn panels(&self) -> impl Iterator<Item = &Value> {
        self.groups().into_iter().flatten().filter(|panel| panel["type"] != "row")
    }

    /// The panels with a common layout: those of the dashboard, and those of each collapsed row.
    fn groups(&self) -> Vec<Vec<&Value>> {
        let of_board: Vec<&Value> = self.body["panels"].as_array().unwrap().iter().collect();
        let folded = of_board.iter().filter_map(|panel| panel["panels"].as_array());
        let folded: Vec<Vec<&Value>> = folded.map(|panels| panels.iter().collect()).collect();
        std::iter::once(of_board).chain(folded).collect()
    }

    fn asked(&self) -> Vec<Asked> {
        let of_panel = |panel: &Value| {
            let place = format!("{}: {}", self.name, panel["title"].as_str().unwrap());
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or_default().to_owned();
            let targets = panel["targets"].as_array().unwrap().clone();
            targets.into_iter().map(move |target| Asked {
                place: place.clone(),
                expression: target["expr"].as_str().unwrap().to_owned(),
                legend: target["legendFormat"].as_str().unwrap_or_default().to_owned(),
                unit: unit.clone(),
            })
        };
        self.panels().flat_map(of_panel).collect()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn promtool() -> PathBuf {
    let unpacked = root().join("target/promtool/usr/bin/promtool");
    if unpacked.exists() { unpacked } else { "promtool".into() }
}

fn boards() -> Vec<Board> {
    let folder = std::fs::read_dir(root().join("grafana/dashboards")).unwrap();
    let read = |file: PathBuf| Board {
        name: file.file_stem().unwrap().to_str().unwrap().to_owned(),
        body: serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap(),
    };
    let mut boards: Vec<Board> = folder.map(|entry| read(entry.unwrap().path())).collect();
    boards.sort_by(|one, other| one.name.cmp(&other.name));
    boards
}
