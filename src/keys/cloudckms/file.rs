//! Credential files: the rules for their paths, and reading them.
//!
//! A request names a file on the server. So that requests cannot read other files, only two kinds are accepted: the
//! file from the server's environment, and files in the configured credentials folder without symbolic links on the
//! way. The path is checked before anything is opened. Each component of the path is checked again while it is opened.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};

use crate::error::{Error, Result};
use crate::keys::cloud::GoogleSettings;
use crate::secret::Secret;

/// Maximum size of a credential file, in bytes.
const MAX_CREDENTIAL_FILE_BYTES: u64 = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CredentialFile {
    /// The file that the server's environment names.
    FromEnvironment(PathBuf),
    /// A file in the credentials folder.
    InFolder {
        folder: PathBuf,
        /// The path relative to the folder; it has no `..` or other special components.
        path: PathBuf,
    },
}

impl CredentialFile {
    /// Returns the file that `credentials` names, or else that of the environment; `None` without either.
    ///
    /// # Errors
    /// `Invalid` for a file that may not be read.
    pub(super) fn resolve(credentials: &str, settings: &GoogleSettings) -> Result<Option<Self>> {
        let named = match (credentials, &settings.credentials) {
            ("", environment_path) => return Ok(environment_path.clone().map(Self::FromEnvironment)),
            (named, Some(environment_path)) if Path::new(named) == environment_path => {
                return Ok(Some(Self::FromEnvironment(environment_path.clone())));
            }
            (named, _) => Path::new(named),
        };
        let outside = "credentials: must be the file that the environment names, or a file in google_credentials_dir";
        let folder = settings.credentials_dir.clone().ok_or_else(|| Error::invalid(outside))?;
        let path = named.strip_prefix(&folder).map_err(|_| Error::invalid(outside))?.to_owned();
        let names = path.components().all(|step| matches!(step, Component::Normal(_)));
        if !names || path.as_os_str().is_empty() {
            return Err(Error::invalid(outside));
        }
        let mut step = folder.clone();
        for name in path.components() {
            step.push(name);
            if step.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
                return Err(unreadable_error());
            }
        }
        Ok(Some(Self::InFolder { folder, path }))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// `Invalid` when it cannot be read, is no regular file, is too large, or is behind a symbolic link.
    pub(super) fn read(&self) -> Result<Secret> {
        let file = match self {
            Self::FromEnvironment(path) => File::open(path).map_err(|_| unreadable_error())?,
            Self::InFolder { folder, path } => open_inside(folder, path).map_err(|_| unreadable_error())?,
        };
        // Checks the opened file, because another file may have replaced it at this path.
        let found = fstat(&file).map_err(|_| unreadable_error())?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(unreadable_error());
        }
        let content = Secret::read(file, MAX_CREDENTIAL_FILE_BYTES + 1).map_err(|_| unreadable_error())?;
        if content.expose().len() as u64 > MAX_CREDENTIAL_FILE_BYTES {
            return Err(Error::invalid("credentials: the file is larger than 64 KiB"));
        }
        Ok(content)
    }
}

/// Opens `path` component by component, beginning in `folder`, without following symbolic links.
fn open_inside(folder: &Path, path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut opened = open(folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut names = path.components().peekable();
    while let Some(name) = names.next() {
        let last = names.peek().is_none();
        // Without `NONBLOCK`, opening a pipe would block.
        let kind = if last { OFlags::NONBLOCK } else { OFlags::DIRECTORY };
        opened = openat(&opened, name.as_os_str(), flags | OFlags::NOFOLLOW | kind, Mode::empty())?;
    }
    Ok(File::from(opened))
}

fn unreadable_error() -> Error {
    Error::invalid("credentials: must be a regular file that the server can read, not behind a symbolic link")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn settings(folder: &Path) -> GoogleSettings {
        GoogleSettings { credentials_dir: Some(folder.to_owned()), ..GoogleSettings::default() }
    }

    fn resolve_path(path: &Path, settings: &GoogleSettings) -> Result<Option<CredentialFile>> {
        CredentialFile::resolve(path.to_str().unwrap(), settings)
    }

    #[test]
    fn files_of_the_folder_and_of_the_environment_are_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("credentials");
        std::fs::create_dir_all(folder.join("team")).unwrap();
        for (path, content) in [("a.json", "one"), ("team/b.json", "two")] {
            std::fs::write(folder.join(path), content).unwrap();
            let file = resolve_path(&folder.join(path), &settings(&folder)).unwrap().unwrap();
            assert!(file.read().unwrap().expose() == content.as_bytes());
        }
        let own = root.path().join("own.json");
        std::fs::write(&own, "own").unwrap();
        // The file from the environment may be a symbolic link, because only an operator can set it.
        let link = root.path().join("link.json");
        symlink(&own, &link).unwrap();
        let environment = GoogleSettings { credentials: Some(link.clone()), ..GoogleSettings::default() };
        for named in ["", link.to_str().unwrap()] {
            let file = CredentialFile::resolve(named, &environment).unwrap().unwrap();
            assert!(file.read().unwrap().expose() == b"own");
        }
        assert_eq!(CredentialFile::resolve("", &GoogleSettings::default()).unwrap(), None);
    }

    #[test]
    fn only_files_inside_the_folder_are_opened() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("credentials");
        std::fs::create_dir_all(folder.join("team")).unwrap();
        // The file outside the folder is a pipe, and a thread waits to open it for writing. If the code under test
        // opened the pipe, this thread would continue.
        let outside = root.path().join("outside.json");
        rustix::fs::mkfifoat(rustix::fs::CWD, &outside, Mode::RUSR | Mode::WUSR).unwrap();
        let (opened, was_opened) = mpsc::channel();
        let writer = std::thread::spawn({
            let outside = outside.clone();
            move || {
                let pipe = File::options().write(true).open(outside);
                opened.send(pipe.is_ok()).unwrap();
            }
        });
        symlink(&outside, folder.join("link.json")).unwrap();
        symlink(root.path(), folder.join("up")).unwrap();
        let settings = settings(&folder);
        for path in [
            outside.clone(),
            folder.join("../outside.json"),
            folder.join("team/../../outside.json"),
            folder.join("link.json"),
            folder.join("up/outside.json"),
            folder.clone(),
            PathBuf::from("outside.json"),
            PathBuf::from("/etc/passwd"),
        ] {
            let error = resolve_path(&path, &settings).unwrap_err();
            assert!(error.text().starts_with("credentials: must be "), "{path:?}: {error}");
        }
        // The symbolic link appears between the check of the path and the opening of the file.
        for path in ["link.json", "up/outside.json"] {
            let file = CredentialFile::InFolder { folder: folder.clone(), path: PathBuf::from(path) };
            assert!(file.read().is_err(), "{path}");
        }
        assert!(was_opened.recv_timeout(Duration::from_millis(100)).is_err(), "the pipe was opened");
        drop(File::open(&outside).unwrap());
        writer.join().unwrap();
        for path in ["absent.json", "team"] {
            assert!(resolve_path(&folder.join(path), &settings).unwrap().unwrap().read().is_err(), "{path}");
        }
        std::fs::write(folder.join("large.json"), vec![b' '; 70_000]).unwrap();
        let error = resolve_path(&folder.join("large.json"), &settings).unwrap().unwrap().read().map(drop).unwrap_err();
        assert_eq!(error.text(), "credentials: the file is larger than 64 KiB");
    }
}
