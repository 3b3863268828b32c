//! Replacement of the key in a seal key file. All steps that may fail run before the store is sealed with the new key:
//! by then, the files of both keys are on disk and belong to the owner of the key file. The last step is a rename. A
//! command that was interrupted can be repeated and continues.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::key::{SealKey, change_owner, file_error, read_error, write_new};
use crate::error::{Error, Kind, Result};
use crate::files::{append_suffix, folder_of, sync_folder};
use crate::secret::{Secret, is_private};

/// Suffix of the file with the new key.
const NEW_SUFFIX: &str = ".new";
/// Suffix of the file with the previous key; the name of that key follows the suffix.
const OLD_SUFFIX: &str = ".old-";
/// Minimum length in bytes of a key as text: base64 without padding.
const MIN_KEY_TEXT_BYTES: u64 = 43;

/// The replacement of the key in a key file: the new key and the files of both keys.
pub struct SealKeyReplacement {
    file: PathBuf,
    new_file: PathBuf,
    previous_file: PathBuf,
    key: SealKey,
}

impl SealKeyReplacement {
    /// Creates a file with a new key next to the key file (`….new`), or reuses the one of an earlier attempt. Also
    /// keeps the previous key in a file `….old-NAME`.
    ///
    /// # Errors
    /// The errors of the key file; `Conflict` when a file of that name has another key; `Unavailable` when a file
    /// cannot be written, or cannot be given to the owner of the key file, so that the server could not read it.
    pub fn prepare(file: &Path) -> Result<Self> {
        Self::prepare_with(file, |from, to| std::fs::hard_link(from, to))
    }

    /// Continues an earlier attempt, if there is one. The store may already be sealed with the new key of that attempt.
    ///
    /// # Errors
    /// As [`SealKeyReplacement::prepare`].
    pub fn resume(file: &Path) -> Result<Option<Self>> {
        if read_earlier_key(&append_suffix(file, NEW_SUFFIX))?.is_some() {
            Self::prepare(file).map(Some)
        } else {
            Ok(None)
        }
    }

    fn prepare_with(file: &Path, link: impl Fn(&Path, &Path) -> io::Result<()>) -> Result<Self> {
        let before = SealKey::from_file(file)?;
        let owner = std::fs::metadata(file).map_err(|e| read_error(file, e))?;
        let fresh = append_suffix(file, NEW_SUFFIX);
        let old = append_suffix(file, &format!("{OLD_SUFFIX}{}", before.describe().key));
        let key = match read_earlier_key(&fresh)? {
            Some(key) => {
                // The owner is set and the file is synced again, because the earlier attempt may have ended before
                // that.
                let opened = File::open(&fresh).map_err(|e| file_error(&fresh, "read", e))?;
                change_owner(&opened, &fresh, &owner)?;
                opened.sync_all().map_err(|e| file_error(&fresh, "written", e))?;
                key
            }
            None => SealKey::create(&fresh, Some(&owner))?,
        };
        match read_earlier_key(&old)? {
            Some(kept) if kept.bytes() == before.bytes() => {}
            Some(_) => {
                let text = format!("{}: exists already with a different key; move it away", old.display());
                return Err(Error::new(Kind::Conflict, text));
            }
            // A copy is written if this fails, because some file systems have no hard links.
            None if link(file, &old).is_ok() => {}
            None => {
                let content = Secret::new(std::fs::read(file).map_err(|e| file_error(file, "read", e))?);
                write_new(&old, Some(&owner), content.expose())?;
            }
        }
        let prepared = Self { file: file.to_owned(), new_file: fresh, previous_file: old, key };
        prepared.sync()?;
        Ok(prepared)
    }

    /// Returns the new seal key.
    pub fn key(&self) -> &SealKey {
        &self.key
    }

    /// Returns the path of the file with the previous key.
    pub fn previous_key_file(&self) -> &Path {
        &self.previous_file
    }

    /// Renames the file with the new key to the name of the key file, after the store was sealed with the new key. The
    /// key file contains a complete key at all times.
    ///
    /// # Errors
    /// `Unavailable` when the file cannot be renamed, and then the files of both keys still exist.
    pub fn finish(&self) -> Result<()> {
        std::fs::rename(&self.new_file, &self.file).map_err(|e| file_error(&self.file, "replaced", e))?;
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        sync_folder(&self.file).map_err(|e| file_error(folder_of(&self.file), "written", e))
    }
}

/// Extends the error of a key that does not open the store with the names of other key files next to the seal key file.
pub(crate) fn with_other_keys(key: &SealKey, error: Error) -> Error {
    let is_of_key = error.kind() == Kind::Invalid && error.text().starts_with("seal key");
    match key.file().filter(|_| is_of_key).and_then(|file| other_keys(file, key)) {
        Some(others) => Error::new(error.kind(), format!("{error}; key files next to the configured one: {others}")),
        None => error,
    }
}

/// Lists the key files that a complete or interrupted replacement has left next to `file`, except those that contain
/// `key`; `None` if there are none.
fn other_keys(file: &Path, key: &SealKey) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let fresh = append_suffix(file, NEW_SUFFIX);
    let is_ours = |path: &PathBuf| {
        let end = path.file_name().and_then(OsStr::to_str).and_then(|found| found.strip_prefix(name));
        *path == fresh || end.is_some_and(|end| end.starts_with(OLD_SUFFIX))
    };
    let holds_another = |path: &PathBuf| SealKey::from_file(path).is_ok_and(|other| other.bytes() != key.bytes());
    // These paths are built from the path of the key file, so that they can be compared with `fresh`.
    let names =
        std::fs::read_dir(folder_of(file)).ok()?.filter_map(|entry| Some(file.with_file_name(entry.ok()?.file_name())));
    let mut others: Vec<PathBuf> = names.filter(is_ours).filter(holds_another).collect();
    others.sort();
    let lines = others.iter().map(|path| match *path == fresh {
        true => format!("{} (run signet operator rotate-seal-key again to complete the replacement)", path.display()),
        false => format!("{} (from before a signet operator rotate-seal-key)", path.display()),
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// Reads the new key that an earlier attempt has created. Removes an incomplete file, because its key was never used.
fn read_earlier_key(file: &Path) -> Result<Option<SealKey>> {
    let metadata = match std::fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error(file, "read", error)),
    };
    match SealKey::from_file(file) {
        // A file that is not private is rejected before its content is read. It may contain a used key, so it is not
        // removed.
        Err(error) if error.kind() == Kind::Invalid && is_private(&metadata) && metadata.len() < MIN_KEY_TEXT_BYTES => {
            std::fs::remove_file(file).map_err(|e| file_error(file, "removed", e))?;
            Ok(None)
        }
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

    fn folder_with_key_file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("seal.key");
        SealKey::create_file(&file).unwrap();
        (dir, file)
    }

    fn file_names(dir: &tempfile::TempDir) -> Vec<String> {
        let files = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap());
        let mut names: Vec<_> = files.map(|file| file.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn has_key(file: &Path, key: &SealKey) -> bool {
        SealKey::from_file(file).unwrap().bytes() == key.bytes()
    }

    fn write_private_file(file: &Path, content: &str) {
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).unwrap();
        std::fs::write(file, content).unwrap();
    }

    #[test]
    fn replacement_has_both_key_files_until_it_finishes() {
        let (dir, file) = folder_with_key_file();
        let before = SealKey::from_file(&file).unwrap();
        let first = SealKeyReplacement::prepare(&file).unwrap();
        let old = format!("seal.key.old-{}", before.describe().key);
        assert_eq!(file_names(&dir), ["seal.key", "seal.key.new", &old]);
        assert!(
            has_key(&file, &before)
                && has_key(first.previous_key_file(), &before)
                && has_key(&dir.path().join("seal.key.new"), first.key())
        );
        let second = SealKeyReplacement::resume(&file).unwrap().unwrap();
        assert!(second.key().bytes() == first.key().bytes());
        second.finish().unwrap();
        assert_eq!(file_names(&dir), ["seal.key", &old]);
        assert!(has_key(&file, first.key()) && has_key(&dir.path().join(&old), &before));
        assert!(SealKeyReplacement::resume(&file).unwrap().is_none());
    }

    #[test]
    fn replacement_key_file_keeps_the_owner() {
        let (_dir, file) = folder_with_key_file();
        let owner = |file: &Path| {
            let found = std::fs::metadata(file).unwrap();
            (found.uid(), found.gid(), found.mode() & 0o777)
        };
        // Only root can change owners; other users own both files.
        if owner(&file).0 == 0 {
            std::os::unix::fs::chown(&file, Some(4711), Some(4712)).unwrap();
        }
        let expected = owner(&file);
        for links in [true, false] {
            let link = |from: &Path, to: &Path| match links {
                true => std::fs::hard_link(from, to),
                false => Err(ErrorKind::Unsupported.into()),
            };
            let replacement = SealKeyReplacement::prepare_with(&file, link).unwrap();
            assert_eq!((owner(&replacement.new_file), owner(replacement.previous_key_file())), (expected, expected));
            replacement.finish().unwrap();
            assert_eq!(owner(&file), expected);
        }
        SealKey::create_file(&append_suffix(&file, NEW_SUFFIX)).unwrap();
        SealKeyReplacement::prepare(&file).unwrap().finish().unwrap();
        assert_eq!(owner(&file), expected);
    }

    #[test]
    fn previous_key_is_copied_if_hard_links_fail() {
        let (_dir, file) = folder_with_key_file();
        let before = SealKey::from_file(&file).unwrap();
        let no_links = |_: &Path, _: &Path| Err(ErrorKind::PermissionDenied.into());
        // An incomplete file with the previous key, from an earlier attempt, is replaced.
        write_private_file(&append_suffix(&file, &format!("{OLD_SUFFIX}{}", before.describe().key)), "5a5a");
        for _ in 0..2 {
            let replacement = SealKeyReplacement::prepare_with(&file, no_links).unwrap();
            assert!(has_key(replacement.previous_key_file(), &before));
            assert_eq!(std::fs::metadata(replacement.previous_key_file()).unwrap().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn partly_written_new_key_file_is_replaced() {
        for content in ["", "5a5a5a"] {
            let (_dir, file) = folder_with_key_file();
            write_private_file(&append_suffix(&file, NEW_SUFFIX), content);
            assert!(SealKeyReplacement::resume(&file).unwrap().is_none(), "{content}");
            write_private_file(&append_suffix(&file, NEW_SUFFIX), content);
            let replacement = SealKeyReplacement::prepare(&file).unwrap();
            assert!(has_key(&append_suffix(&file, NEW_SUFFIX), replacement.key()), "{content}");
        }
    }

    #[test]
    fn other_key_files_in_the_folder_are_named() {
        let (dir, file) = folder_with_key_file();
        let others = || other_keys(&file, &SealKey::from_file(&file).unwrap());
        let described = |name: &str, what: &str| Some(format!("{} ({what})", dir.path().join(name).display()));
        write_private_file(&dir.path().join("seal.key.old-torn"), "5a5a");
        write_private_file(&dir.path().join("other.key.old-1"), &"5a".repeat(32));
        assert_eq!(others(), None);
        let replacement = SealKeyReplacement::prepare(&file).unwrap();
        let again = "run signet operator rotate-seal-key again to complete the replacement";
        assert_eq!(others(), described("seal.key.new", again), "the old one is the same by now");
        replacement.finish().unwrap();
        let old = replacement.previous_key_file().file_name().unwrap().to_str().unwrap();
        assert_eq!(others(), described(old, "from before a signet operator rotate-seal-key"));
    }

    #[test]
    fn file_that_may_contain_a_key_is_never_removed() {
        let (_dir, file) = folder_with_key_file();
        let fresh = append_suffix(&file, NEW_SUFFIX);
        write_private_file(&fresh, &"x".repeat(64));
        assert_eq!(SealKeyReplacement::prepare(&file).err().unwrap().kind(), Kind::Invalid);
        std::fs::write(&fresh, [7; 32]).unwrap();
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(SealKeyReplacement::prepare(&file).err().unwrap().kind(), Kind::Invalid);
        assert_eq!(std::fs::read(&fresh).unwrap(), [7; 32]);
        std::fs::remove_file(&fresh).unwrap();
        let old = append_suffix(&file, &format!("{OLD_SUFFIX}{}", SealKey::from_file(&file).unwrap().describe().key));
        let other = SealKey::create_file(&old).unwrap();
        assert_eq!(SealKeyReplacement::prepare(&file).err().unwrap().kind(), Kind::Conflict);
        assert!(has_key(&old, &other));
    }
}
