//! CPU time and memory of processes from `/proc` (proc(5)).
//!
//! CPU time is that of a process and all its descendants. Threads and processes that end during the run are included:
//! the kernel adds ended threads to their process, and an ended child to the parent that waited for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Clock ticks per second in `/proc`, the same on every Linux for userspace (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the user and system CPU seconds of a process and all its descendants; `None` if it does not exist.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    tree_seconds(Path::new("/proc"), pid)
}

/// Returns the resident memory of a process in MiB.
pub(crate) fn resident_mib(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Returns name and number of a process: `bao (pid 4711)`.
pub(crate) fn title(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim_end();
    if name.is_empty() { format!("pid {pid}") } else { format!("{name} (pid {pid})") }
}

/// `true` if a process of the group is alive; zombies do not count.
pub(crate) fn has_running_member(group: u32) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let texts = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()))
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    texts.into_iter().any(|text| is_running_in_group(&text, group))
}

/// `true` if a line of `/proc/PID/stat` belongs to a live process of the group.
fn is_running_in_group(stat: &str, group: u32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ended = matches!(fields.first(), None | Some(&("Z" | "X" | "x")));
    !ended && fields.get(2).and_then(|field| field.parse().ok()) == Some(group)
}

/// Returns the process that listens on a port of the loopback or of all addresses; of several, the one with the lowest
/// id.
pub(crate) fn listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<String> = tables.iter().flat_map(|table| listening(table, port)).collect();
    let mut pids: Vec<u32> =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids.into_iter().find(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|file| fs::read_link(file.path()).ok())
            .any(|link| link.to_str().is_some_and(|link| sockets.iter().any(|socket| socket == link)))
    })
}

/// Returns the sockets of a kernel table that listen on a port, in the format of `/proc/PID/fd`.
fn listening(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let is_local = |address: &str| {
        let address = address.trim_start_matches('0');
        // 127.0.0.0/8 and ::1 in little-endian words; all zeros is the wildcard address.
        address.is_empty() || address.ends_with("7F") || address == "1000000"
    };
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (address, of) = fields.get(1)?.rsplit_once(':')?;
        let matches = fields.get(3) == Some(&LISTEN) && u16::from_str_radix(of, 16) == Ok(port) && is_local(address);
        matches.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    table.lines().filter_map(socket).collect()
}

/// Fields of `/proc/PID/stat`. Times in seconds, in whole ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProcessStat {
    parent: u32,
    /// CPU time of its threads, including those that ended.
    own: f64,
    /// CPU time of its ended children that were waited for, including their descendants.
    ended_children: f64,
}

impl ProcessStat {
    fn parse(text: &str) -> Option<Self> {
        // The command's name is in parentheses and may contain blanks and parentheses; the state follows.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
            ended_children: (ticks(13)? + ticks(14)?) / TICKS_PER_SECOND,
        })
    }
}

/// Returns the sum for `pid` and all its descendants.
fn tree_seconds(proc: &Path, pid: u32) -> Option<f64> {
    let mut stats = BTreeMap::new();
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir(proc).ok()?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process that ends during this loop is, or will be, included in the figures of its parent.
        let Some(stat) = fs::read_to_string(entry.path().join("stat")).ok().and_then(|text| ProcessStat::parse(&text))
        else {
            continue;
        };
        children.entry(stat.parent).or_default().push(id);
        stats.insert(id, stat);
    }
    stats.get(&pid)?;
    let mut sum = 0.0;
    let mut left = vec![pid];
    while let Some(id) = left.pop() {
        let stat = &stats[&id];
        // Both counts may be too low and neither is too high, so the larger one is used: ticks are truncated, and the
        // count in nanoseconds lacks ended threads.
        sum += stat.own.max(thread_seconds(&proc.join(id.to_string()))) + stat.ended_children;
        left.extend(children.remove(&id).unwrap_or_default());
    }
    Some(sum)
}

/// Returns the CPU seconds of the live threads of a process, counted in nanoseconds; 0 if the kernel has no such count.
fn thread_seconds(process: &Path) -> f64 {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    texts.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok()).sum::<u64>() as f64 / 1e9
}

/// Processes whose CPU time is measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WatchedProcesses {
    pub(crate) server: Option<u32>,
    pub(crate) postgres: Option<u32>,
}

/// CPU seconds of the watched processes.
#[derive(Clone, Copy, Default)]
pub(crate) struct CpuSeconds {
    pub(crate) server: Option<f64>,
    pub(crate) postgres: Option<f64>,
}

impl WatchedProcesses {
    pub(crate) fn read(self) -> CpuSeconds {
        CpuSeconds { server: self.server.and_then(cpu_seconds), postgres: self.postgres.and_then(cpu_seconds) }
    }
}

impl CpuSeconds {
    pub(crate) fn since(self, before: Self) -> Self {
        let spent = |after: Option<f64>, before: Option<f64>| after.zip(before).map(|(after, before)| after - before);
        Self { server: spent(self.server, before.server), postgres: spent(self.postgres, before.postgres) }
    }

    /// Returns the sum; without a watched PostgreSQL the server alone.
    pub(crate) fn sum(self) -> Option<f64> {
        self.server.map(|server| server + self.postgres.unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write as _};
    use std::process::{Command, Stdio};

    /// Adds a process to a fake `/proc`: times in ticks, threads in nanoseconds.
    fn process(proc: &Path, pid: u32, parent: u32, own: (u64, u64), ended: (u64, u64), threads: &[u64]) {
        let folder = proc.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let (user, system) = own;
        let (ended_user, ended_system) = ended;
        let stat = format!(
            "{pid} (a (b) c) S {parent} 1 1 0 -1 4194304 9 9 9 9 {user} {system} {ended_user} {ended_system} 20 0 1 0 77 9 9"
        );
        fs::write(folder.join("stat"), stat).unwrap();
        for (n, nanos) in threads.iter().enumerate() {
            let thread = folder.join("task").join(n.to_string());
            fs::create_dir_all(&thread).unwrap();
            fs::write(thread.join("schedstat"), format!("{nanos} 5 6\n")).unwrap();
        }
    }

    fn is(found: Option<f64>, wanted: f64) -> bool {
        found.is_some_and(|found| (found - wanted).abs() < 1e-9)
    }

    #[test]
    fn stat_line_with_blanks_and_parentheses_in_the_name_is_parsed() {
        let text = "12 (postgres: a) b) S 7 1 1 0 -1 4194304 9 9 9 9 150 50 300 25 20 0 1 0 77";
        assert_eq!(ProcessStat::parse(text), Some(ProcessStat { parent: 7, own: 2.0, ended_children: 3.25 }));
        for wrong in ["", "12 (x) S 7 1", "12 x S 7 1 1 0 -1 4194304 9 9 9 9 150 50 300 25 20"] {
            assert_eq!(ProcessStat::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn process_title_has_name_and_pid() {
        let pid = std::process::id();
        let title = title(pid);
        assert!(title.ends_with(&format!(" (pid {pid})")) && title.len() > format!(" (pid {pid})").len(), "{title}");
        assert_eq!(super::title(u32::MAX), format!("pid {}", u32::MAX));
    }

    #[test]
    fn ended_process_does_not_count_as_group_member() {
        let line = |state: &str, group: &str| format!("12 (a (b) c) {state} 7 {group} 1 0 -1");
        assert!(is_running_in_group(&line("S", "10"), 10) && is_running_in_group(&line("R", "10"), 10));
        assert!(!is_running_in_group(&line("Z", "10"), 10) && !is_running_in_group(&line("S", "11"), 10));
        assert!(!is_running_in_group("", 10));
    }

    #[test]
    fn listening_process_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(super::listener(listener.local_addr().unwrap().port()), Some(std::process::id()));
        let line = |address: &str, state: &str| format!("0: {address} 00000000:0000 {state} 0:0 00:0 0 0 0 77 1\n");
        for (address, state, found) in [
            ("0100007F:2008", "0A", true),
            ("00000000:2008", "0A", true),
            ("00000000000000000000000001000000:2008", "0A", true),
            ("0100007F:2008", "01", false),
            ("0100007F:2009", "0A", false),
            ("0100A8C0:2008", "0A", false),
        ] {
            assert_eq!(listening(&line(address, state), 8200) == ["socket:[77]"], found, "{address} {state}");
        }
    }

    #[test]
    fn process_tree_includes_descendants_and_ended_children() {
        let proc = tempfile::tempdir().unwrap();
        let at = proc.path();
        process(at, 10, 1, (100, 50), (400, 100), &[]);
        process(at, 11, 10, (20, 0), (0, 0), &[]);
        process(at, 12, 11, (0, 30), (7, 0), &[]);
        process(at, 13, 1, (100_000, 0), (100_000, 0), &[]);
        fs::create_dir(at.join("self")).unwrap();
        fs::create_dir(at.join("99")).unwrap();
        assert!(is(tree_seconds(at, 10), 1.5 + 5.0 + 0.2 + 0.3 + 0.07));
        assert!(is(tree_seconds(at, 12), 0.37));
        assert_eq!(tree_seconds(at, 14), None);
        assert_eq!(tree_seconds(at, 99), None);
    }

    #[test]
    fn cpu_time_is_that_of_threads_unless_some_have_ended() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 10, 1, (100, 50), (0, 0), &[1_000_000_000, 507_654_321]);
        assert!(is(tree_seconds(proc.path(), 10), 1.507_654_321));
        process(proc.path(), 11, 1, (100, 50), (0, 0), &[3_000_000]);
        assert!(is(tree_seconds(proc.path(), 11), 1.5));
    }

    #[test]
    fn children_of_a_real_process_count_before_and_after_they_end() {
        // The child works, reports it and waits for input before it ends; then its parent waits for it.
        let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo worked; read end";
        let mut parent = Command::new("sh")
            .args(["-c", &format!("sh -c '{work}'; echo ended; read end")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(parent.stdout.take().unwrap()).lines();
        let mut hears = parent.stdin.take().unwrap();
        assert_eq!(output.next().unwrap().unwrap(), "worked");
        let working = cpu_seconds(parent.id()).unwrap();
        hears.write_all(b"\n").unwrap();
        assert_eq!(output.next().unwrap().unwrap(), "ended");
        let ended = cpu_seconds(parent.id()).unwrap();
        hears.write_all(b"\n").unwrap();
        parent.wait().unwrap();
        assert!(working > 0.02, "{working}");
        // The time of an ended child is in whole ticks.
        assert!(ended > working - 2.0 / TICKS_PER_SECOND, "{ended} after {working}");
    }

    #[test]
    fn cpu_sum_without_the_server_is_unknown() {
        let cpu = |server, postgres| CpuSeconds { server, postgres };
        assert_eq!(cpu(Some(3.0), Some(2.0)).since(cpu(Some(1.0), Some(0.5))).sum(), Some(3.5));
        assert_eq!(cpu(Some(3.0), None).since(cpu(Some(1.0), None)).sum(), Some(2.0));
        assert_eq!(cpu(None, Some(2.0)).sum(), None);
        assert_eq!(cpu(None, Some(2.0)).since(cpu(Some(1.0), Some(1.0))).server, None);
    }
}
