//! Child processes that the run starts and stops.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::proc;

/// Time limit for a process to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A child process. When it is dropped, it is signalled to stop and waited for.
pub(crate) struct Process {
    child: Child,
    stop: Signal,
    /// `true` if the process leads a process group; signals then go to the whole group.
    group: bool,
}

impl Process {
    pub(crate) fn new(child: Child, stop: Signal) -> Self {
        Self { child, stop, group: false }
    }

    /// Wraps a process that was started as the leader of a group: a shell with its children.
    pub(crate) fn group(child: Child, stop: Signal) -> Self {
        Self { child, stop, group: true }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `true` if the process has ended and, for a group leader, all processes of its group.
    pub(crate) fn ended(&mut self) -> bool {
        let ended = !matches!(self.child.try_wait(), Ok(None));
        ended && !(self.group && proc::has_running_member(self.pid()))
    }

    /// Sends a signal to the process or its group, ignoring a process that has just ended.
    fn signal(&self, signal: Signal) {
        let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) else { return };
        let _ = if self.group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ended() {
            self.signal(self.stop);
        }
        let until = Instant::now() + STOP_TIMEOUT;
        while !self.ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        if !self.ended() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
