//! A temporary machine for installations: an overlay in memory over this machine's file system, in its own mount
//! namespace. Nothing is written to this machine, and everything vanishes with the process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::crash::left_out;

/// Creates the file systems, reports it, and keeps them until its input ends.
const HOLDER: &str = r#"mount -t tmpfs -o mode=755 signet-test "$1" && cd "$1" && mkdir upper work root \
    && mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root \
    && mount --rbind /proc root/proc && mount --rbind /dev root/dev && mount -t tmpfs -o mode=1777 tmp root/tmp \
    && mount -t tmpfs -o mode=755 run root/run && echo mounted && read -r end"#;

pub struct Machine {
    mountpoint: tempfile::TempDir,
    holder: Child,
}

impl Machine {
    /// `None`, with a message, if it cannot be created.
    pub fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            left_out("nobody but root can install a package, even on a machine of its own");
            return None;
        }
        let mountpoint = tempfile::tempdir().unwrap();
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", HOLDER, "holder"]).arg(mountpoint.path());
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let machine = Self { mountpoint, holder };
        if line.trim() == "mounted" {
            return Some(machine);
        }
        left_out("no file system can be mounted over this one; see above");
        None
    }

    /// A command on the machine. `words` may start with variables.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-m", "chroot"]).arg(self.mountpoint.path().join("root"));
        command.args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]);
        command.args(["DEBIAN_FRONTEND=noninteractive", "SYSTEMD_LOG_LEVEL=warning"]).args(words);
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{words:?}: {said}");
        said
    }

    pub fn install(&self, package: &Path) {
        let name = package.file_name().unwrap().to_str().unwrap();
        std::fs::copy(package, self.seen("tmp").join(name)).unwrap();
        self.run(&["dpkg", "--install", &format!("/tmp/{name}")]);
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.seen(path.trim_start_matches('/'))).unwrap()
    }

    /// A file outside the machine for a server's log.
    pub fn log(&self) -> PathBuf {
        self.mountpoint.path().join("log")
    }

    /// The path of a file, from outside the namespace.
    fn seen(&self, path: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.mountpoint.path().strip_prefix("/").unwrap()).join("root").join(path)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}
