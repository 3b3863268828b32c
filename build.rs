//! Puts the commit into the version that `signet --version` prints, as `BUILD_VERSION`, and by itself into
//! `BUILD_COMMIT_OF_SOURCES`, for the metrics.
//!
//! The commit comes from the variable `BUILD_COMMIT` or from git; without both, such as in an archive of the sources, the
//! version has no commit. The script runs again when the sources change, not at every commit. Sources that differ from
//! the commit are marked `modified`.

use std::path::Path;
use std::process::Command;

/// Files and folders that the program is built from.
const SOURCES: [&str; 5] = ["Cargo.lock", "Cargo.toml", "build.rs", "migrations", "src"];

fn main() {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    let given = std::env::var("BUILD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(commit);
    println!("cargo::rustc-env=BUILD_COMMIT_OF_SOURCES={}", commit.as_deref().unwrap_or("unknown"));
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo::rustc-env=BUILD_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
}

/// The commit that is checked out here; nothing where this folder is not the root of a repository of its own.
fn commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().ok()?;
    (Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? == root).then_some(())?;
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&[&["status", "--porcelain", "--"][..], &SOURCES].concat())?;
    Some(if changed.is_empty() { commit } else { format!("{commit}, modified") })
}

fn git(arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("--no-optional-locks").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
