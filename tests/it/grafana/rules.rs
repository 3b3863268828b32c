//! The alerting rules: their annotations, and their promtool tests.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::{boards, promtool, root};

const RULES: &str = include_str!("../../../grafana/alerts.yml");
const CASES: [&str; 2] =
    [include_str!("../../../grafana/alerts_test.yml"), include_str!("../../../grafana/alerts_days_test.yml")];

/// An alert: its fields, labels and annotations by name.
type Rule = BTreeMap<&'static str, &'static str>;

/// All alerts. The file has one field per line.
pub(super) fn rules() -> Vec<Rule> {
    let parts = RULES.split("      - alert: ").skip(1);
    let rules: Vec<Rule> = parts
        .map(|part| {
            let (name, fields) = part.split_once('\n').unwrap();
            let fields = fields.lines().filter_map(|line| line.trim().split_once(": "));
            fields.map(|(field, text)| (field, text.trim_matches('"'))).chain([("alert", name)]).collect()
        })
        .collect();
    assert_eq!(rules.len(), RULES.matches("- alert: ").count());
    rules
}

#[test]
fn alerts_have_severity_summary_description_and_action() {
    let boards: BTreeSet<String> = boards().into_iter().map(|board| format!("/d/{}", board.name)).collect();
    for rule in rules() {
        let name = rule["alert"];
        assert!(["critical", "warning"].contains(&rule["severity"]), "{name}");
        let [summary, description, action] = ["summary", "description", "action"]
            .map(|field| *rule.get(field).unwrap_or_else(|| panic!("{name}: {field}")));
        assert!(!summary.is_empty() && !summary.ends_with('.'), "{name}: {summary}");
        assert!(description.ends_with('.'), "{name}: {description}");
        assert!(action.ends_with('.') && !action.contains(". "), "{name}: {action}");
        assert!(boards.contains(rule["dashboard"]), "{name}: {}", rule["dashboard"]);
    }
}

/// The anchor of a Markdown heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

#[test]
fn every_alert_links_to_an_existing_runbook_section() {
    for rule in rules() {
        let name = rule["alert"];
        let url = rule.get("runbook_url").unwrap_or_else(|| panic!("{name}: no runbook_url"));
        let (page, wanted) = url.split_once('#').unwrap();
        let text = std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{name}: {page}: {error}"));
        let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
        let heading =
            headings.map(|line| line.trim_start_matches('#').trim()).find(|heading| anchor(heading) == wanted);
        assert_eq!(heading, Some(name), "{name}: {url}");
    }
}

#[test]
fn monitoring_page_has_valid_scrape_config_and_runbook_base() {
    let page = std::fs::read_to_string(root().join("docs/monitoring.md")).unwrap();
    let (_, block) = page.split_once("```yaml\n").unwrap();
    let (config, _) = block.split_once("```").unwrap();
    assert!(config.contains("credentials_file:") && config.contains("rule_files:"), "{config}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("signet-token"), "s.token\n").unwrap();
    let (_, command) = page.split_once("sed '").unwrap();
    let (program, _) = command.split_once('\'').unwrap();
    let rules = Command::new("sed").arg(program).arg(root().join("grafana/alerts.yml")).output().unwrap();
    let rules = String::from_utf8(rules.stdout).unwrap();
    let based = "          runbook_url: https://docs.example.test/signet/docs/incidents.md#signetstoredown\n";
    assert!(rules.contains(based), "{program}");
    std::fs::write(folder.path().join("alerts.yml"), rules).unwrap();
    std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
    let check = || {
        let mut command = Command::new(promtool());
        command.args(["check", "config", "prometheus.yml"]).current_dir(folder.path()).output().unwrap()
    };
    let checked = check();
    let said = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(checked.status.success() && said.contains("48 rules found"), "{said}");
    std::fs::remove_file(folder.path().join("signet-token")).unwrap();
    assert!(!check().status.success(), "the file of the token is looked at");
}

#[test]
fn every_alert_has_a_firing_and_a_non_firing_test() {
    // An expected alert has its name on a line of its own; an alert that must not fire is in braces.
    let lines = || CASES.iter().flat_map(|cases| cases.lines());
    let raised: BTreeSet<&str> = lines().filter_map(|line| line.trim().strip_prefix("alertname: ")).collect();
    for rule in rules() {
        let name = rule["alert"];
        assert!(raised.contains(name), "{name}: no promtool test raises it");
        let not = format!("alertname: {name} }}");
        assert!(CASES.iter().any(|cases| cases.contains(&not)), "{name}: no promtool test is without it");
    }
}
