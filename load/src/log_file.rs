//! Log files of servers that are started for a run.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::run_context;

/// Number of bytes at the end of a log that an error message contains.
const SHOWN_BYTES: usize = 2000;

/// A file for the output of a server. Only its owner can read it, because servers print tokens.
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Creates the file, or truncates that of an earlier run.
    pub(crate) fn create(path: PathBuf) -> Result<Self, String> {
        let file = private(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        run_context::note_log(&path);
        Ok(Self { path, file })
    }

    /// Returns a handle for the output of a process.
    pub(crate) fn stdio(&self) -> Result<Stdio, String> {
        self.file.try_clone().map(Stdio::from).map_err(|e| format!("{}: {e}", self.path.display()))
    }

    /// Returns the name of the file and its last bytes for an error message.
    pub(crate) fn shown(&self) -> String {
        let text = std::fs::read(&self.path).unwrap_or_default();
        let end = &text[text.len().saturating_sub(SHOWN_BYTES)..];
        format!("log file {}:\n{}", self.path.display(), String::from_utf8_lossy(end))
    }
}

fn private(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    // The mode in the options above applies only to a new file.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_file_is_emptied_and_readable_by_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        std::fs::write(&path, "of an earlier run").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        LogFile::create(path.clone()).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 0));
    }
}
