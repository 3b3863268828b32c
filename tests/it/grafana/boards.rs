//! The shape of the dashboards: what all of them have in common, and what each panel has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Board, boards};

const KINDS: [&str; 4] = ["stat", "timeseries", "table", "heatmap"];

/// The words of a name such as `signet-store`, for links.
fn uids(boards: &[Board]) -> BTreeSet<&str> {
    boards.iter().map(|board| board.name.as_str()).collect()
}

#[test]
fn there_is_a_dashboard_for_each_room_and_one_for_all_and_each_leads_to_the_others() {
    let boards = boards();
    let names: Vec<&str> = boards.iter().map(|board| board.name.as_str()).collect();
    let rooms = ["audit", "http", "keys", "logins", "pki", "projects", "store"].map(|room| format!("signet-{room}"));
    assert_eq!(names, [&["signet".to_owned()][..], &rooms].concat());
    for Board { name, body } in &boards {
        assert_eq!(body["uid"], **name, "{name}");
        assert!(body["title"].as_str().unwrap().starts_with("Signet"), "{name}");
        assert!(body["description"].as_str().unwrap().ends_with('.'), "{name}");
        // The links are to whatever has this tag.
        assert_eq!(body["tags"], serde_json::json!(["signet"]), "{name}");
        assert_eq!((&body["links"][0]["type"], &body["links"][0]["tags"]), (&"dashboards".into(), &body["tags"]));
        assert!(body["links"][0]["includeVars"] == true && body["links"][0]["keepTime"] == true, "{name}");
        for same in ["links", "templating", "annotations", "schemaVersion", "refresh", "time"] {
            assert_eq!(body[same], boards[0].body[same], "{name}: {same}");
        }
    }
    let titles: BTreeSet<&str> = boards.iter().map(|board| board.body["title"].as_str().unwrap()).collect();
    assert_eq!(titles.len(), boards.len());
    let variables = boards[0].body["templating"]["list"].as_array().unwrap();
    let variables: Vec<[&str; 2]> =
        variables.iter().map(|v| ["name", "type"].map(|key| v[key].as_str().unwrap())).collect();
    assert_eq!(variables, [["datasource", "datasource"], ["job", "query"], ["instance", "query"]]);
}

#[test]
fn every_panel_says_what_it_shows_in_which_unit_and_what_it_means_when_there_is_nothing() {
    for board in boards() {
        let mut ids = BTreeSet::new();
        for panel in board.body["panels"].as_array().unwrap() {
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
fn panels_stand_beside_each_other_and_lead_to_dashboards_that_are_there() {
    let boards = boards();
    for board in &boards {
        let mut taken: BTreeMap<(u64, u64), &Value> = BTreeMap::new();
        for panel in board.body["panels"].as_array().unwrap() {
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
            assert!(w > 0 && h > 0 && x + w <= 24, "{}: {}", board.name, panel["title"]);
            for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
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
