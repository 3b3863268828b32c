//! Clocks of processes that are set by a test: libfaketime under the real programs. Only the time of day is; what
//! measures how long something takes goes on as it does when a machine's clock is set.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// The clock of the processes that have its environment.
pub struct FakeClock {
    folder: tempfile::TempDir,
    library: PathBuf,
}

/// Where Debian's package `faketime` has it.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.exists())
}

impl FakeClock {
    /// One that shows the time that it is; nothing where there is no libfaketime.
    pub fn new() -> Option<Self> {
        let Some(library) = library() else {
            crate::crash::left_out("no libfaketime (tests/run installs it)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        // PostgreSQL runs as somebody else.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let clock = Self { folder, library };
        clock.step("+0");
        Some(clock)
    }

    /// Sets it to this much from the time that it is, such as `+1d`, `-1d`, `+13y`, `+0`.
    pub fn step(&self, offset: &str) {
        let next = self.folder.path().join("next");
        std::fs::write(&next, format!("{offset}\n")).unwrap();
        std::fs::set_permissions(&next, Permissions::from_mode(0o644)).unwrap();
        // At once: whoever reads it half-written would end.
        std::fs::rename(next, self.folder.path().join("offset")).unwrap();
    }

    /// What a process needs that has this clock.
    pub fn environment(&self) -> Vec<(String, String)> {
        let offset = self.folder.path().join("offset");
        let all = [
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            // The same in older versions of it.
            ("DONT_FAKE_MONOTONIC", "1"),
        ];
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }
}
