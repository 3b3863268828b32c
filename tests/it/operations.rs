//! The page for operators has a section for every alert.

use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../docs/incidents.md");
const ALERTS: &str = include_str!("../../grafana/alerts.yml");

#[test]
fn alerts_and_runbook_sections_correspond() {
    let alerts: BTreeSet<&str> = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let (_, section) = PAGE.split_once("\n## Alerts\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let parts: Vec<(&str, &str)> = section.split("\n### ").skip(1).map(|part| part.split_once('\n').unwrap()).collect();
    assert_eq!(parts.iter().map(|(heading, _)| *heading).collect::<BTreeSet<_>>(), alerts);
    for (heading, text) in parts {
        assert!(text.trim().len() > 80, "{heading}: says too little");
    }
}
