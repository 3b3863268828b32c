//! The structure of the dashboards: their common parts, and the parts of each panel.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Board, boards};

const KINDS: [&str; 4] = ["stat", "timeseries", "table", "heatmap"];

/// The uids of the dashboards, which equal their file names.
fn uids(boards: &[Board]) -> BTreeSet<&str> {
    boards.iter().map(|board| board.name.as_str()).collect()
}

#[test]
fn dashboards_exist_per_area_and_link_to_each_other() {
    let boards = boards();
    let names: Vec<&str> = boards.iter().map(|board| board.name.as_str()).collect();
    let rooms = ["audit", "http", "keys", "logins", "pki", "projects", "store"].map(|room| format!("signet-{room}"));
    assert_eq!(names, [&["signet".to_owned()][..], &rooms].concat());
    for Board { name, body } in &boards {
        assert_eq!(body["uid"], **name, "{name}");
        assert!(body["title"].as_str().unwrap().starts_with("Signet"), "{name}");
        assert!(body["description"].as_str().unwrap().ends_with('.'), "{name}");
        // The links select dashboards by this tag.
        assert_eq!(body["tags"], serde_json::json!(["signet"]), "{name}");
        assert_eq!((&body["links"][0]["type"], &body["links"][0]["tags"]), (&"dashboards".into(), &body["tags"]));
        assert!(body["links"][0]["includeVars"] == true && body["links"][0]["keepTime"] == true, "{name}");
        for same in ["links", "annotations", "schemaVersion", "refresh", "time"] {
            assert_eq!(body[same], boards[0].body[same], "{name}: {same}");
        }
        assert_eq!(variables(body), variables(&boards[0].body), "{name}");
    }
    let titles: BTreeSet<&str> = boards.iter().map(|board| board.body["title"].as_str().unwrap()).collect();
    assert_eq!(titles.len(), boards.len());
    let variables: Vec<String> =
        variables(&boards[0].body).iter().map(|v| format!("{}/{}", v["name"], v["type"])).collect();
    let expected = [["datasource"; 2], ["job", "query"], ["instance", "query"], ["mount", "query"]];
    assert_eq!(variables, expected.map(|[name, kind]| format!("\"{name}\"/\"{kind}\"")));
}

/// The variables of a dashboard. A dashboard may hide the selection of mounts, so `hide` is removed.
fn variables(board: &Value) -> Vec<Value> {
    let mut variables = board["templating"]["list"].as_array().unwrap().clone();
    for variable in variables.iter_mut().filter(|variable| variable["name"] == "mount") {
        variable.as_object_mut().unwrap().remove("hide");
    }
    variables
}

#[test]
fn rows_of_rarely_used_features_are_collapsed() {
    let mut folded = BTreeSet::new();
    for board in boards() {
        for row in board.body["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] == "row") {
            let is_folded = row["collapsed"].as_bool().unwrap();
            // Grafana reads the panels of an open row from the dashboard.
            assert_eq!(is_folded, !row["panels"].as_array().unwrap().is_empty(), "{}: {}", board.name, row["title"]);
            if is_folded {
                folded.insert(format!("{}: {}", board.name, row["title"].as_str().unwrap()));
            }
        }
    }
    let expected = [
        "signet-logins: Method cloudb",
        "signet-pki: External policy engines",
        "signet-store: Change log: nodes on one database",
        "signet-store: PostgreSQL",
    ];
    assert_eq!(folded.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn every_panel_has_description_unit_and_no_data_text() {
    for board in boards() {
        let mut ids = BTreeSet::new();
        for panel in board.groups().into_iter().flatten() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}: {panel}", board.name);
        }
        for panel in board.panels() {
            let place = format!("{}: {}", board.name, panel["title"]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            assert!(!text(&panel["title"]).is_empty(), "{place}");
            let description = text(&panel["description"]);
            assert!(description.len() > 10 && description.ends_with('.'), "{place}: {description}");
            assert!(KINDS.contains(&panel["type"].as_str().unwrap()), "{place}");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{place}");
            let defaults = &panel["fieldConfig"]["defaults"];
            assert!(defaults["unit"].is_string() || panel["options"]["yAxis"]["unit"].is_string(), "{place}: unit");
            assert!(!text(&defaults["noValue"]).is_empty(), "{place}: what is shown of nothing");
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{place}");
            let letters: BTreeSet<String> = targets.iter().map(|target| text(&target["refId"])).collect();
            assert_eq!(letters.len(), targets.len(), "{place}");
            for target in targets {
                assert_eq!(target["datasource"], panel["datasource"], "{place}");
                let named = !text(&target["legendFormat"]).is_empty();
                assert!(named || ["stat", "table"].contains(&panel["type"].as_str().unwrap()), "{place}: no legend");
            }
        }
    }
}

#[test]
fn panels_do_not_overlap_and_link_to_existing_dashboards() {
    let boards = boards();
    for board in &boards {
        let of_groups = board.groups().into_iter().enumerate();
        let mut taken: BTreeMap<(usize, u64, u64), &Value> = BTreeMap::new();
        for (group, panel) in of_groups.flat_map(|(group, panels)| panels.into_iter().map(move |panel| (group, panel)))
        {
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
            assert!(w > 0 && h > 0 && x + w <= 24, "{}: {}", board.name, panel["title"]);
            for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (group, x, y))) {
                let other = taken.insert(place, &panel["title"]);
                assert_eq!(other, None, "{}: {} stands there too", board.name, panel["title"]);
            }
            for link in panel["links"].as_array().into_iter().flatten() {
                let url = link["url"].as_str().unwrap();
                let (uid, rest) = url.strip_prefix("/d/").unwrap().split_once('?').unwrap();
                assert!(uids(&boards).contains(uid), "{}: {url}", board.name);
                assert_eq!(rest, "${__all_variables}&${__url_time_range}", "what is chosen stays chosen");
            }
        }
    }
}
