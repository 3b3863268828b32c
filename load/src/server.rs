//! A server started for one run, and any server's CPU time.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server process of ours; it is stopped when this is dropped.
pub(crate) struct Started {
    child: Child,
    pub(crate) addr: String,
    pub(crate) token: String,
}

impl Started {
    /// Starts `binary dev` on a free port with its data in `data_dir`, and waits until it listens.
    pub(crate) fn new(binary: &Path, data_dir: &Path) -> Result<Self, String> {
        let token = "load-generator-root".to_owned();
        let mut child = Command::new(binary)
            .args(["dev", "--listen", "127.0.0.1:0", "--root-token", &token, "--data-dir"])
            .arg(data_dir)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("starting {}: {e}", binary.display()))?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        let mut lines = BufReader::new(output).lines();
        let addr = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
            .ok_or("the server ended before it listened")?;
        // The rest of its output is read, so that it never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, addr, token })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Clock ticks per second in `/proc`, the same on every Linux that userspace sees (USER_HZ).
const TICKS: f64 = 100.0;

/// CPU time of a process so far, user and system, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in parentheses and may hold blanks; utime and stime are fields 14 and 15.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

/// Resident memory of a process, in MiB.
pub(crate) fn resident_mib(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}
