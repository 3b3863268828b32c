//! A folder of backups, each named by the time of the copy: `signet-20260131T030000Z.db`.
//!
//! Old copies are removed only after a new copy has been verified. The new copy is never removed, so at least one good
//! copy is left.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::storage::backup::PARTIAL_SUFFIX;
use serde_json::json;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{PrimitiveDateTime, UtcOffset};

use super::output::try_print;

/// Format of a backup's file name. The alphabetical order of the names is the order of their times.
const COPY_NAME_FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("signet-[year][month][day]T[hour][minute][second]Z.db");

/// Returns the path for a backup that is made at `now`.
///
/// # Errors
/// `Internal` for a time beyond the year 9999.
pub(super) fn copy_path(folder: &Path, now: Time) -> Result<PathBuf> {
    now.to_offset(UtcOffset::UTC).format(COPY_NAME_FORMAT).map(|name| folder.join(name)).map_err(Error::internal)
}

/// Returns the path of the newest backup in a folder.
///
/// # Errors
/// `NotFound` when the folder contains no backup; `Unavailable` when it cannot be read.
pub(super) fn find_newest(folder: &Path) -> Result<PathBuf> {
    let name = list_names(folder)?.into_iter().filter(|name| is_backup_name(name)).max();
    name.map(|name| folder.join(name)).ok_or_else(|| {
        let text = format!(
            "{}: holds no backup (a file signet-….db, made by signet operator backup --folder)",
            folder.display()
        );
        Error::new(Kind::NotFound, text)
    })
}

/// Removes all but the newest `keep` backups, and temporary files of killed commands. `new_copy` is always kept. The
/// caller must hold the `FolderLock` of the folder.
///
/// # Errors
/// `Unavailable`, with the path of the file that cannot be removed.
pub(super) fn prune(folder: &Path, keep: usize, new_copy: &Path) -> Result<()> {
    let names = list_names(folder)?;
    let mut others: Vec<&String> =
        names.iter().filter(|name| is_backup_name(name) && new_copy.file_name() != Some(name.as_ref())).collect();
    others.sort_unstable_by(|a, b| b.cmp(a));
    for name in others.into_iter().skip(keep.saturating_sub(1)) {
        let copy = folder.join(name);
        std::fs::remove_file(&copy).map_err(|e| Error::of_io(copy.display(), "removed", e))?;
        try_print(&json!({ "removed": copy }), format!("{}: removed", copy.display()));
    }
    for name in
        names.iter().filter(|name| name.split_once(PARTIAL_SUFFIX).is_some_and(|(copy, _)| is_backup_name(copy)))
    {
        let partial = folder.join(name);
        std::fs::remove_dir_all(&partial).map_err(|e| Error::of_io(partial.display(), "removed", e))?;
        let text = format!("{}: removed, left by a command that was killed", partial.display());
        try_print(&json!({ "removed": partial }), text);
    }
    Ok(())
}

fn is_backup_name(name: &str) -> bool {
    PrimitiveDateTime::parse(name, COPY_NAME_FORMAT).is_ok()
}

fn list_names(folder: &Path) -> Result<Vec<String>> {
    let unread = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound => Error::unavailable(format!("{}: does not exist", folder.display()), e),
        _ => Error::of_io(folder.display(), "read", e),
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unread)? {
        names.extend(entry.map_err(unread)?.file_name().into_string());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use crate::clock::parse_rfc3339;

    use super::*;

    fn folder_with(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        folder
    }

    fn remaining_names(folder: &Path) -> Vec<String> {
        let mut names = list_names(folder).unwrap();
        names.sort_unstable();
        names
    }

    #[test]
    fn copies_are_named_by_their_time_in_utc() {
        let at = parse_rfc3339("", "2026-01-31T04:00:00+01:00").unwrap();
        let file = copy_path(Path::new("/backup"), at).unwrap();
        assert_eq!(file, Path::new("/backup/signet-20260131T030000Z.db"));
        for other in
            ["signet-20260131T030000Z.dump", "signet-20261331T030000Z.db", "signet.db", "xsignet-20260131T030000Z.db"]
        {
            assert!(!is_backup_name(other), "{other}");
        }
    }

    #[test]
    fn retention_keeps_the_newest_and_other_files() {
        let [old, middle, new] =
            ["signet-20260101T000000Z.db", "signet-20260102T000000Z.db", "signet-20260103T000000Z.db"];
        let folder = folder_with(&[old, middle, new, "signet-20260101T000000Z.dump", "notes"]);
        let partial = folder.path().join("signet-20260102T120000Z.db.partial-abc");
        std::fs::create_dir(&partial).unwrap();
        std::fs::write(partial.join("signet.db"), "").unwrap();
        std::fs::create_dir(folder.path().join("other.partial-abc")).unwrap();
        assert_eq!(find_newest(folder.path()).unwrap(), folder.path().join(new));
        prune(folder.path(), 2, &folder.path().join(new)).unwrap();
        assert_eq!(
            remaining_names(folder.path()),
            ["notes", "other.partial-abc", "signet-20260101T000000Z.dump", middle, new]
        );
    }

    #[test]
    fn retention_never_removes_the_copy_just_made() {
        let [made, later] = ["signet-20260101T000000Z.db", "signet-20270101T000000Z.db"];
        let folder = folder_with(&[made, later]);
        prune(folder.path(), 1, &folder.path().join(made)).unwrap();
        assert_eq!(remaining_names(folder.path()), [made]);
    }

    #[test]
    fn folder_without_copies_is_an_error() {
        let folder = folder_with(&["notes"]);
        assert!(find_newest(folder.path()).unwrap_err().text().contains("holds no backup"));
        assert!(find_newest(&folder.path().join("none")).unwrap_err().text().ends_with("none: does not exist"));
    }
}
