//! Process metrics from the operating system, under the names that Prometheus client libraries use.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::catalogue::{
    PROCESS_CPU, PROCESS_MAX_FDS, PROCESS_MEMORY, PROCESS_OPEN_FDS, PROCESS_START, PROCESS_THREADS,
};
use super::series::Series;

/// Returns the available metrics; `/proc` may be missing.
pub(super) fn read_series() -> Vec<Series> {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let stat = stat.as_deref().and_then(ProcessStat::read);
    let limit = getrlimit(Resource::Nofile).current;
    let from_stat = stat.map(|stat| {
        let start = boot_time().map(|boot| boot + stat.start);
        [
            (PROCESS_CPU, Some(stat.cpu)),
            (PROCESS_MEMORY, Some(stat.memory)),
            (PROCESS_THREADS, Some(stat.threads)),
            (PROCESS_START, start),
        ]
    });
    let files = [(PROCESS_OPEN_FDS, open_files()), (PROCESS_MAX_FDS, limit.map(|limit| limit as f64))];
    let all = from_stat.into_iter().flatten().chain(files);
    all.filter_map(|(metric, value)| Some(Series { metric, labels: Vec::new(), value: value? })).collect()
}

/// Fields of `/proc/self/stat`, see `proc_pid_stat(5)`.
#[derive(Debug, PartialEq)]
struct ProcessStat {
    /// User and system time of all threads, in seconds.
    cpu: f64,
    threads: f64,
    /// Seconds from system boot to process start.
    start: f64,
    /// Resident memory, in bytes.
    memory: f64,
}

impl ProcessStat {
    /// Parses the file. The program name is in parentheses and may contain any character; the numbers follow it.
    fn read(text: &str) -> Option<Self> {
        let (_, behind) = text.rsplit_once(')')?;
        let fields: Vec<&str> = behind.split_whitespace().collect();
        // The first one is field 3 of the manual page.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let ticks = clock_ticks_per_second() as f64;
        Some(Self {
            cpu: (field(14)? + field(15)?) / ticks,
            threads: field(20)?,
            start: field(22)? / ticks,
            memory: field(24)? * page_size() as f64,
        })
    }
}

fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the number of open file descriptors: the size of the folder on newer kernels, else its number of entries.
fn open_files() -> Option<f64> {
    const FOLDER: &str = "/proc/self/fd";
    let size = fs::metadata(FOLDER).ok()?.len();
    if size > 0 {
        return Some(size as f64);
    }
    // Minus the descriptor that the count itself uses.
    Some(fs::read_dir(FOLDER).ok()?.count().saturating_sub(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_may_have_blanks_and_parentheses() {
        let numbers: Vec<String> = (4..=52).map(|n: u64| (n * 100).to_string()).collect();
        let stat = ProcessStat::read(&format!("7 (a) b (c)) S {}\n", numbers.join(" "))).unwrap();
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!((stat.cpu, stat.threads), (2900.0 / ticks, 2000.0));
        assert_eq!((stat.start, stat.memory), (2200.0 / ticks, 2400.0 * page_size() as f64));
        for text in ["", "7 (a", "7 (a) S 1 2", "7 (a) S x"] {
            assert_eq!(ProcessStat::read(text), None, "{text}");
        }
    }
}
