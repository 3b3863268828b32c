//! State shared by all parts of one command: the stop request, the measured servers, the log files of started servers,
//! and the objects left on a server.
//!
//! It is task-local, so that concurrent tests do not see each other's state.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::sync::watch;

/// Error text of work that a signal interrupted.
pub(crate) const INTERRUPTED: &str = "interrupted";

tokio::task_local! {
    static STOP: watch::Receiver<bool>;
    static NOTES: Rc<RefCell<CommandNotes>>;
}

/// A measured server, for reports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerFacts {
    pub(crate) name: String,
    pub(crate) address: String,
    /// Program, version and commit, as far as the server reports them.
    pub(crate) version: Option<String>,
}

impl ServerFacts {
    pub(crate) fn json(&self) -> Value {
        json!({ "name": self.name, "address": self.address, "version": self.version })
    }

    pub(crate) fn text(&self) -> String {
        format!("{}, {}", self.address, self.version.as_deref().unwrap_or("version unknown"))
    }
}

/// Notes that are collected during a command and printed at its end.
#[derive(Debug, Default)]
pub(crate) struct CommandNotes {
    servers: Vec<ServerFacts>,
    logs: BTreeSet<PathBuf>,
    /// Objects that the user asked to keep.
    pub(crate) kept: Vec<String>,
    /// Objects that could not be removed, with causes.
    pub(crate) left: Vec<String>,
}

impl CommandNotes {
    /// Returns the log files that still exist.
    pub(crate) fn logs(&self) -> Vec<&Path> {
        self.logs.iter().map(PathBuf::as_path).filter(|path| path.exists()).collect()
    }
}

/// Runs a command that should end early when `stop` becomes true.
pub(crate) async fn scope<T>(stop: watch::Receiver<bool>, command: impl Future<Output = T>) -> (T, CommandNotes) {
    let notes = Rc::<RefCell<CommandNotes>>::default();
    let output = NOTES.scope(Rc::clone(&notes), STOP.scope(stop, command)).await;
    (output, notes.take())
}

pub(crate) fn is_interrupted() -> bool {
    STOP.try_with(|stop| *stop.borrow()).unwrap_or(false)
}

/// Waits until the command should stop; outside of a command, forever.
pub(crate) async fn interrupted() {
    if let Ok(mut stop) = STOP.try_with(Clone::clone)
        && stop.wait_for(|stop| *stop).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Cancels work when the command should stop.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::select! {
        biased;
        () = interrupted() => Err(INTERRUPTED.to_owned()),
        result = work => result,
    }
}

/// Runs work to its end even if the command should stop, because it creates or restores something on the server.
pub(crate) async fn shielded<T>(work: impl Future<Output = T>) -> T {
    let (_open, never) = watch::channel(false);
    STOP.scope(never, work).await
}

fn note(change: impl FnOnce(&mut CommandNotes)) {
    let _ = NOTES.try_with(|notes| change(&mut notes.borrow_mut()));
}

pub(crate) fn note_server(server: ServerFacts) {
    note(|notes| {
        if !notes.servers.contains(&server) {
            notes.servers.push(server);
        }
    });
}

pub(crate) fn note_log(path: &Path) {
    note(|notes| {
        notes.logs.insert(path.to_owned());
    });
}

pub(crate) fn note_kept(what: String) {
    note(|notes| notes.kept.push(what));
}

pub(crate) fn note_left(what: String) {
    note(|notes| notes.left.push(what));
}

/// Returns the servers that the command has contacted so far.
pub(crate) fn servers() -> Vec<ServerFacts> {
    NOTES.try_with(|notes| notes.borrow().servers.clone()).unwrap_or_default()
}

/// Prints the current step to standard error, unless `quiet` is set.
pub(crate) fn print_progress(quiet: bool, text: &str) {
    if !quiet {
        print_to_stderr(text);
    }
}

/// Prints a line to standard error.
#[allow(clippy::print_stderr, reason = "standard output is for the figures")]
pub(crate) fn print_to_stderr(text: &str) {
    eprintln!("signet-load: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn interruption_cancels_work_unless_it_is_shielded() {
        let (stop, stopped) = watch::channel(false);
        let work = async {
            assert_eq!(unless_interrupted(async { Ok(1) }).await, Ok(1));
            stop.send(true).unwrap();
            let given_up = unless_interrupted(std::future::pending::<Result<(), String>>()).await;
            assert_eq!(given_up, Err(INTERRUPTED.to_owned()));
            assert_eq!(shielded(unless_interrupted(async { Ok(2) })).await, Ok(2));
            is_interrupted()
        };
        assert!(scope(stopped, work).await.0);
        assert!(!is_interrupted(), "only within the scope");
    }
}
