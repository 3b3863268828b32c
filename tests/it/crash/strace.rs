//! Uses `strace` to record system calls and to inject disk errors.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::left_out;

/// `true` if processes may be traced here; otherwise reports the skipped test.
pub fn is_allowed() -> bool {
    let traced = Command::new("strace").args(["-f", "-qq", "-e", "trace=none", "true"]).output();
    match traced {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            left_out(&format!("strace cannot trace: {}", String::from_utf8_lossy(&output.stderr).trim()));
            false
        }
        Err(error) => {
            left_out(&format!("strace does not start ({error}); tests/run installs it"));
            false
        }
    }
}

/// `true` if the program itself may be traced, which only root may do; otherwise reports the skipped test.
pub fn sees_the_server() -> bool {
    if !rustix::process::geteuid().is_root() {
        left_out("the program lets nobody but root look into it");
        return false;
    }
    is_allowed()
}

/// A running process under `strace`, detached on drop.
pub struct Traced(Child);

impl Traced {
    /// Attaches to all threads of a process; `None`, with a message, if that is forbidden.
    pub fn attach(pid: u32, arguments: &[&str]) -> Option<Self> {
        Self::attach_to(&[&["-f"], arguments, &["-p", &pid.to_string()]].concat())
    }

    /// Like [`attach`](Self::attach), to the threads in the arguments.
    pub fn attach_to(arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new("strace");
        command.args(["-o", "/dev/null"]).args(arguments);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
        let attached = lines.by_ref().find(|line| line.contains("attached") || line.contains("attach:"));
        // Drains the output, so that strace does not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let traced = Self(child);
        if attached.as_ref().is_some_and(|line| line.contains("attached")) {
            return Some(traced);
        }
        left_out(&format!("strace cannot attach: {attached:?}"));
        None
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // On SIGTERM, strace detaches from the process first.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}
