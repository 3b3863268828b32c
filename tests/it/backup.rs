//! Backups of a store: made under load, verified, restored, and copied to another store.

mod damages;
mod drill;
mod moves;
mod questionable_stores;
mod socket;

use std::path::Path;
use std::process::{Command, Output};

use crate::process::signet;

/// `signet operator WORDS --data-dir FOLDER`.
fn operator(words: &[&str], folder: &Path) -> Command {
    let mut command = signet();
    command.arg("operator").args(words).arg("--data-dir").arg(folder);
    command
}

/// Runs a command. Returns its standard output if it succeeds, else its standard error.
fn run(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(if status.success() { stdout } else { stderr }).unwrap();
    if status.success() { Ok(text) } else { Err(text) }
}

/// Backs up the store of a data folder to a new file.
pub fn backup(folder: &Path, to: &Path) -> Result<String, String> {
    run(operator(&["backup"], folder).arg("--to").arg(to))
}

/// Restores a backup into a new data folder, with the seal key of the old one.
fn restore(old: &Path, copy: &Path, new: &Path) -> Result<String, String> {
    std::fs::create_dir_all(new).unwrap();
    std::fs::copy(old.join("seal.key"), new.join("seal.key")).unwrap();
    run(operator(&["restore"], new).arg(copy))
}
