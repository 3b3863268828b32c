//! Finds environment variables with the prefix `SIGNET_` that no command reads, such as misspelled ones.

use std::collections::BTreeSet;

use crate::config::{SETTINGS, Setting};

use super::report::CheckReport;
use crate::cli::token;

/// Maximum edit distance between an unknown variable and the name that is suggested instead.
const MAX_EDIT_DISTANCE: usize = 3;
/// Variables that a command reads although they are neither settings nor arguments.
const VARIABLES_WITHOUT_SETTING: [&str; 1] = ["SIGNET_BOOTSTRAP_TOKEN"];

pub(super) fn check(report: &mut CheckReport, commands: &clap::Command) {
    let known = known_variables(commands);
    let given = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut unknown: Vec<String> = given.filter(|name| is_unknown(name, &known)).collect();
    unknown.sort_unstable();
    for name in &unknown {
        let meant = known
            .iter()
            .map(|other| (edit_distance(name, other), other))
            .min()
            .filter(|(off, _)| *off <= MAX_EDIT_DISTANCE);
        let meant = meant.map(|(_, other)| format!(" (is {other} meant?)")).unwrap_or_default();
        report.note("environment", format!("{name}: not a known variable{meant}"));
    }
    if unknown.is_empty() {
        report.ok("environment", "every SIGNET_ variable is recognized");
    }
}

fn known_variables(commands: &clap::Command) -> BTreeSet<String> {
    let mut known: BTreeSet<String> =
        VARIABLES_WITHOUT_SETTING.into_iter().chain(token::TOKEN_VARIABLES).map(str::to_owned).collect();
    known.extend(SETTINGS.iter().map(Setting::variable_name));
    collect_variables(commands, &mut known);
    known
}

fn collect_variables(command: &clap::Command, known: &mut BTreeSet<String>) {
    known.extend(command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_str()?.to_owned())));
    command.get_subcommands().for_each(|word| collect_variables(word, known));
}

/// `true` if no command reads the variable. The prefix `SIGNET_NEW_` marks a setting of the new configuration in
/// `rotate-seal-key --to`.
fn is_unknown(name: &str, known: &BTreeSet<String>) -> bool {
    name.starts_with("SIGNET_") && !known.contains(name) && !known.contains(&name.replacen("SIGNET_NEW_", "SIGNET_", 1))
}

fn edit_distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = n + 1;
        for (m, b) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[m + 1];
            row[m + 1] = changed.min(row[m] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn variables_of_settings_and_arguments_are_known() {
        let known = known_variables(&crate::cli::CommandLine::command());
        for name in ["SIGNET_LISTEN", "SIGNET_SEAL_KEY", "SIGNET_NEW_SEAL_KEY", "SIGNET_ADDR", "SIGNET_DEV_ROOT_TOKEN"]
            .into_iter()
            .chain(["SIGNET_TOKEN", "SIGNET_TOKEN_FILE"])
        {
            assert!(!is_unknown(name, &known), "{name}");
        }
        assert!(is_unknown("SIGNET_LISTNE", &known) && !is_unknown("OTHER", &known));
    }

    #[test]
    fn edit_distance_counts_differing_letters() {
        for (one, other, off) in [("", "", 0), ("abc", "abc", 0), ("abc", "abd", 1), ("abc", "ab", 1), ("ba", "ab", 2)]
        {
            assert_eq!(edit_distance(one, other), off, "{one} {other}");
        }
    }
}
