//! The machine that a run was on, for its report.

use std::fs;

use crate::login::now;

/// Name and text of each fact.
pub(crate) type Facts = Vec<(String, String)>;

/// What is known of this machine and this moment.
pub(crate) fn environment() -> Facts {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let facts = [
        ("machine", field(&read("/proc/cpuinfo"), "model name")),
        ("cores", Some(cores.to_string())),
        ("memory", field(&read("/proc/meminfo"), "MemTotal")),
        ("kernel", Some(read("/proc/sys/kernel/osrelease").trim().to_owned()).filter(|text| !text.is_empty())),
        ("when", Some(date(now()))),
        ("generator", Some(concat!("signet-load ", env!("CARGO_PKG_VERSION")).to_owned())),
    ];
    facts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
}

/// The value of the first line with a name.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Seconds since 1970 as a date: days are counted from the first of March, so that the leap day is a year's last.
fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
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
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 6\nmodel name\t: Some  Processor\nMemTotal:   24 kB\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some Processor"));
        assert_eq!(field(text, "MemTotal").as_deref(), Some("24 kB"));
        assert_eq!(field(text, "else"), None);
        let names: Vec<String> = environment().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"cores".to_owned()) && names.contains(&"when".to_owned()), "{names:?}");
    }
}
