//! Sets the clocks of processes by libfaketime. Only the wall clock changes, not the monotonic clock.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// A clock shared by the processes that run with its environment.
pub struct FakeClock {
    folder: tempfile::TempDir,
    library: PathBuf,
}

/// The library of Debian's package `faketime`.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.exists())
}

impl FakeClock {
    pub fn new() -> Option<Self> {
        let Some(library) = library() else {
            crate::crash::left_out("no libfaketime (tests/run installs it)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        // PostgreSQL runs as another user.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let clock = Self { folder, library };
        clock.step("+0");
        Some(clock)
    }

    /// Sets the clock to an offset from the true time, such as `+1d`, `-1d`, `+13y`, `+0`.
    pub fn step(&self, offset: &str) {
        let next = self.folder.path().join("next");
        std::fs::write(&next, format!("{offset}\n")).unwrap();
        std::fs::set_permissions(&next, Permissions::from_mode(0o644)).unwrap();
        // Replaced atomically: a process that reads a half-written file would exit.
        std::fs::rename(next, self.folder.path().join("offset")).unwrap();
    }

    /// The environment of a process with this clock.
    pub fn environment(&self) -> Vec<(String, String)> {
        let offset = self.folder.path().join("offset");
        let all = [
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ];
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }
}
