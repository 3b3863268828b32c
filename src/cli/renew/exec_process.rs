//! The process of the `--exec` command of `signet renew`.

use std::process::{Child, ExitStatus};
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The shell that runs the `--exec` command. Dropping this kills the shell and its process group.
pub(super) struct ExecProcess(pub(super) Child);

impl ExecProcess {
    pub(super) async fn wait_until_ended(mut self, limit: Duration) -> std::result::Result<ExitStatus, String> {
        let end = async {
            loop {
                match self.0.try_wait() {
                    Ok(Some(status)) => return Ok(status),
                    Ok(None) => tokio::time::sleep(POLL_INTERVAL).await,
                    Err(e) => return Err(e.to_string()),
                }
            }
        };
        tokio::time::timeout(limit, end)
            .await
            .unwrap_or_else(|_| Err("the command took too long (--exec-timeout)".to_owned()))
    }
}

impl Drop for ExecProcess {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let group = rustix::process::Pid::from_child(&self.0);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.0.wait();
        }
    }
}
