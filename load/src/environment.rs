//! The machine, its load and the command line before the run, for reports.

use std::fs;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::macros::format_description;

use crate::command_line;

/// Name and text of each fact.
pub(crate) type Facts = Vec<(String, String)>;

/// Returns facts about the machine, read at the first call: `main` calls it before the run loads the machine.
pub(crate) fn environment() -> Facts {
    static BEFORE: OnceLock<Facts> = OnceLock::new();
    BEFORE.get_or_init(read_environment).clone()
}

fn read_environment() -> Facts {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let memory = read("/proc/meminfo");
    let command = command_line::redacted(std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()));
    let facts = [
        ("command", Some(command)),
        ("machine", field(&read("/proc/cpuinfo"), "model name")),
        ("cores", Some(cores.to_string())),
        ("memory", field(&memory, "MemTotal")),
        ("memory available before", field(&memory, "MemAvailable")),
        ("load average before", load_average(&read("/proc/loadavg"))),
        ("kernel", Some(read("/proc/sys/kernel/osrelease").trim().to_owned()).filter(|text| !text.is_empty())),
        ("when", Some(date(now()))),
        ("generator", Some(generator())),
    ];
    facts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
}

/// Returns this program's version, and its commit if `BUILD_COMMIT` was set at build time.
fn generator() -> String {
    let commit = option_env!("BUILD_COMMIT").filter(|commit| !commit.is_empty());
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    format!("signet-load {}{commit}", env!("CARGO_PKG_VERSION"))
}

/// Returns the load averages of 1, 5 and 15 minutes (proc(5)).
fn load_average(text: &str) -> Option<String> {
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    (averages.len() == 3).then(|| averages.join(" "))
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Formats seconds since 1970 as a date.
fn date(seconds: u64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    let time = OffsetDateTime::from_unix_timestamp(seconds as i64).ok();
    time.and_then(|time| time.format(format).ok()).unwrap_or_default()
}

/// Returns the system time in seconds since 1970: the times in the JWT must be valid for the server.
#[allow(clippy::disallowed_methods, reason = "the clocks of the server are the server's")]
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn proc_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 6\nmodel name\t: Some  Processor\nMemTotal:   24 kB\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some Processor"));
        assert_eq!(field(text, "MemTotal").as_deref(), Some("24 kB"));
        assert_eq!(field(text, "else"), None);
        let names: Vec<String> = environment().into_iter().map(|(name, _)| name).collect();
        for name in ["command", "cores", "memory", "load average before", "when", "generator"] {
            assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
        }
        assert_eq!(load_average("0.50 1.25 2.00 3/456 789\n").as_deref(), Some("0.50 1.25 2.00"));
        assert_eq!(load_average(""), None);
    }
}
