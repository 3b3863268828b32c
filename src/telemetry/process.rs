//! Process metrics from the operating system, under the names that Prometheus client libraries use.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::catalogue::{
    PROCESS_CPU, PROCESS_MAX_FDS, PROCESS_MEMORY, PROCESS_OPEN_FDS, PROCESS_START, PROCESS_THREADS,
};
use super::series::Series;

/// Returns the available metrics. Without `/proc`, most metrics are unavailable.
pub(super) fn read_series() -> Vec<Series> {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let stat = stat.as_deref().and_then(ProcessStat::parse);
    let limit = getrlimit(Resource::Nofile).current;
    let from_stat = stat.map(|stat| {
        let start = boot_epoch_seconds().map(|boot| boot + stat.start_seconds);
        [
            (PROCESS_CPU, Some(stat.cpu_seconds)),
            (PROCESS_MEMORY, Some(stat.memory_bytes)),
            (PROCESS_THREADS, Some(stat.thread_count)),
            (PROCESS_START, start),
        ]
    });
    let files = [(PROCESS_OPEN_FDS, count_open_files()), (PROCESS_MAX_FDS, limit.map(|limit| limit as f64))];
    let all = from_stat.into_iter().flatten().chain(files);
    all.filter_map(|(metric, value)| Some(Series { metric, labels: Vec::new(), value: value? })).collect()
}

/// Fields of `/proc/self/stat`, see `proc_pid_stat(5)`.
#[derive(Debug, PartialEq)]
struct ProcessStat {
    /// User and system time of all threads, in seconds.
    cpu_seconds: f64,
    thread_count: f64,
    /// Seconds from system boot to process start.
    start_seconds: f64,
    /// Resident memory, in bytes.
    memory_bytes: f64,
}

impl ProcessStat {
    /// Parses the file. The program name is in parentheses and may contain any character; the numbers follow it.
    fn parse(text: &str) -> Option<Self> {
        let (_, numbers) = text.rsplit_once(')')?;
        let fields: Vec<&str> = numbers.split_whitespace().collect();
        // The first number after the program name is field 3 in the manual page.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let ticks = clock_ticks_per_second() as f64;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            thread_count: field(20)?,
            start_seconds: field(22)? / ticks,
            memory_bytes: field(24)? * page_size() as f64,
        })
    }
}

fn boot_epoch_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the number of open file descriptors: the size of the folder on newer kernels, else its number of entries.
fn count_open_files() -> Option<f64> {
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
    fn process_stat_accepts_blanks_and_parentheses_in_the_name() {
        let numbers: Vec<String> = (4..=52).map(|n: u64| (n * 100).to_string()).collect();
        let stat = ProcessStat::parse(&format!("7 (a) b (c)) S {}\n", numbers.join(" "))).unwrap();
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!((stat.cpu_seconds, stat.thread_count), (2900.0 / ticks, 2000.0));
        assert_eq!((stat.start_seconds, stat.memory_bytes), (2200.0 / ticks, 2400.0 * page_size() as f64));
        for text in ["", "7 (a", "7 (a) S 1 2", "7 (a) S x"] {
            assert_eq!(ProcessStat::parse(text), None, "{text}");
        }
    }
}
