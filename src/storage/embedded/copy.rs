//! Copies of the database of a running or stopped server, and their restore into a new data folder.
//!
//! While checkpoints are paused (`checkpoint_lock`), the database file does not change. The log is copied up to its
//! length at the start of the copy; later content is ignored, so that the copy ends. So the copied files are in the
//! same state as after a crash, and SQLite recovers every earlier commit. Plain file reads are used, because a database
//! connection would block the writer's recovery from a failed sync. A copy appears under its name only when it is
//! complete and synced, and never replaces a file.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Result as IoResult, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use rustix::fs::CWD;

use super::access;
use super::connection;
use super::query::resolve_ready;
use super::schema;
use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::files::{self, append_suffix};
use crate::storage::backend::Fact;
use crate::storage::progress::ProgressCounters;
use crate::storage::restore_facts::{
    self, COPIED_FACT, SELECT_CRL_MAXIMA, copied_fact, copy_time, crl_floor, encode_restore_times, restore_fact,
};
use crate::storage::statements::meta as sql;
use crate::storage::tables::facts;

/// Name of the database file in a data folder.
pub(crate) const DATABASE_FILE: &str = "signet.db";
/// First characters of the suffix of the temporary folder in which a copy is created. Random characters follow.
pub const PARTIAL_SUFFIX: &str = ".partial-";
/// Suffixes of the files that SQLite creates next to a database file.
const SIDE_FILE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Length in bytes of the log's header. SQLite changes the header when it reuses the log from the beginning.
const LOG_HEADER_BYTES: u64 = 32;
/// Maximum pause after copying a slice. So a slow disk does not extend the copy, and the pause of checkpoints, by
/// minutes.
const MAX_COPY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of attempts at reading the log. SQLite reuses the log from the beginning at most once during a copy.
const MAX_LOG_READ_ATTEMPTS: usize = 3;

/// The share of the disk's time that a copy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPace {
    /// The copy never pauses, because nothing else uses the disk.
    Full,
    /// The copy pauses for four fifths of the time, because a running server uses the same disk.
    Shared,
}

impl CopyPace {
    /// Returns the bytes per slice. Each slice is synced, so that commits never wait for a large amount of copied data
    /// to reach the disk.
    const fn slice_bytes(self) -> u64 {
        match self {
            Self::Full => 16 << 20,
            Self::Shared => 4 << 20,
        }
    }

    /// Returns the pause after a slice that took the time `worked`.
    fn pause_after(self, worked: Duration) -> Duration {
        match self {
            Self::Full => Duration::ZERO,
            Self::Shared => (4 * worked).min(MAX_COPY_PAUSE),
        }
    }
}

/// An incomplete copy, in a temporary folder next to the target. Dropping it removes the folder.
pub(crate) struct PartialCopy {
    folder: PathBuf,
    partial_file: PathBuf,
    target: PathBuf,
}

impl PartialCopy {
    /// Copies the database file and log of a folder. Checkpoints must be paused, or no process may use the folder.
    /// After `stop` is set, the copy ends within one slice and pause.
    ///
    /// # Errors
    /// `NotFound` when the folder has no database; `Conflict` when `to` exists; `Unavailable`, also when stopped.
    pub(crate) fn of_folder(
        folder: &Path,
        to: &Path,
        pace: CopyPace,
        stop: &AtomicBool,
        progress: &ProgressCounters,
    ) -> Result<Self> {
        let failed = |e| copy_error(folder, to, e);
        let database = open_database(folder)?;
        let log = WalFile::open(&append_suffix(&folder.join(DATABASE_FILE), SIDE_FILE_SUFFIXES[0])).map_err(failed)?;
        progress.expect(database.metadata().map_err(failed)?.len() + log.as_ref().map_or(0, |log| log.bytes));
        let partial = Self::create_next_to(to)?;
        copy(&database, &partial.create_file("")?, pace, stop, progress).map_err(failed)?;
        if let Some(mut log) = log {
            log.copy(&mut partial.create_file(SIDE_FILE_SUFFIXES[0])?, pace, stop, progress).map_err(failed)?;
        }
        Ok(partial)
    }

    fn of_file(from: &Path, to: &Path, progress: &ProgressCounters) -> Result<Self> {
        let failed = |e| copy_error(from, to, e);
        let file = File::open(from).map_err(failed)?;
        progress.expect(file.metadata().map_err(failed)?.len());
        let partial = Self::create_next_to(to)?;
        copy(&file, &partial.create_file("")?, CopyPace::Full, &AtomicBool::new(false), progress).map_err(failed)?;
        Ok(partial)
    }

    /// Creates the temporary folder of a copy to `to`. Only this user may create files in it, even if other users may
    /// write in the folder of `to`.
    fn create_next_to(to: &Path) -> Result<Self> {
        if to.symlink_metadata().is_ok() {
            return Err(Error::file_exists(to.display()));
        }
        let folder = append_suffix(to, &format!("{PARTIAL_SUFFIX}{}", crate::random::base62(8)));
        DirBuilder::new().mode(0o700).create(&folder).map_err(|e| create_error(&folder, e))?;
        Ok(Self { partial_file: folder.join(DATABASE_FILE), folder, target: to.to_owned() })
    }

    /// Creates a file in the temporary folder: the database file if `end` is empty, else the SQLite file with this
    /// suffix.
    fn create_file(&self, end: &str) -> Result<File> {
        let path = append_suffix(&self.partial_file, end);
        files::create_new(&path, 0o600).map_err(|e| create_error(&path, e))
    }

    /// Merges the log into the database file of the copy, records `now` in the file as the time of the copy, and
    /// renames it to its final name. Returns its size in bytes.
    ///
    /// # Errors
    /// `Invalid` when the file is not a store of a known version; `Conflict` when the name is taken; `Unavailable`.
    pub(crate) fn finish(self, now: Time) -> Result<u64> {
        self.finish_with(copied_fact(Some(now)))
    }

    /// As [`PartialCopy::finish`], but with `mark` as the fact that marks the file as a copy. If the file has that fact
    /// already, the fact stays unchanged.
    fn finish_with(self, mark: Fact) -> Result<u64> {
        let failed = |e: rusqlite::Error| {
            Error::unavailable(format!("{}: the copy cannot be finished ({e})", self.partial_file.display()), e)
        };
        let db = Connection::open_with_flags(&self.partial_file, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
        // SQLite does not sync during this work; the complete file is synced once, below.
        db.execute_batch("PRAGMA synchronous = OFF").map_err(failed)?;
        let left: i64 = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(failed)?;
        let mode: String = db.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0)).map_err(failed)?;
        if left != 0 || mode != "delete" {
            return Err(Error::new(
                Kind::Unavailable,
                format!(
                    "{}: the write-ahead log of the copy cannot be merged into its file",
                    self.partial_file.display()
                ),
            ));
        }
        schema::require_known(&db)?;
        let (name, value) = mark;
        db.execute(sql::INSERT, params![name, value]).map_err(failed)?;
        db.close().map_err(|(_, e)| failed(e))?;
        self.publish().map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => Error::file_exists(self.target.display()),
            _ => Error::of_io(self.target.display(), "written", e),
        })
    }

    fn publish(&self) -> IoResult<u64> {
        let file = File::open(&self.partial_file)?;
        file.sync_all()?;
        files::rename_new(CWD, &self.partial_file, &self.target)?;
        files::sync_folder(&self.target)?;
        Ok(file.metadata()?.len())
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        // After the rename to the final name, the file is missing and the removal fails.
        let _ = std::fs::remove_file(&self.partial_file);
        for side in SIDE_FILE_SUFFIXES {
            let _ = std::fs::remove_file(append_suffix(&self.partial_file, side));
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Locks a data folder, so that no server starts on it while its files are copied.
///
/// # Errors
/// `NotFound` when the folder has no database; `Conflict` when a process uses it.
pub(crate) fn lock(folder: &Path) -> Result<File> {
    open_database(folder)?;
    connection::lock(folder)
}

/// Lists the temporary folders of interrupted restores in a data folder.
fn interrupted_restores(folder: &Path) -> Vec<PathBuf> {
    let beginning = format!("{DATABASE_FILE}{PARTIAL_SUFFIX}");
    let is_left =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(beginning.as_bytes()));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_left).collect()
}

/// Checks that no interrupted restore has left files in a folder without a store. Otherwise a new, empty store would be
/// mistaken for the restored one.
///
/// # Errors
/// `Conflict` with the names of these files.
pub(super) fn require_no_interrupted_restore(folder: &Path) -> Result<()> {
    let Some(left) = interrupted_restores(folder).into_iter().next() else { return Ok(()) };
    let text = format!(
        "data folder {}: has no store, only {} from an interrupted restore; run signet operator restore again, or \
         remove that folder to create a new store",
        folder.display(),
        left.display()
    );
    Err(Error::new(Kind::Conflict, text))
}

/// Restores a copy into a data folder without a database. Removes the files that earlier, interrupted attempts left.
///
/// # Errors
/// `Conflict` when the folder has files of a database or is in use; `Invalid` when the file is not a store of a known
/// version; `Unavailable` from the disk.
pub(crate) fn restore(copy: &Path, folder: &Path, progress: &ProgressCounters) -> Result<u64> {
    let failed = |e| Error::of_io(format_args!("data folder {}", folder.display()), "used", e);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    access::require_not_world_writable(folder)?;
    let _lock = connection::lock(folder)?;
    let database = folder.join(DATABASE_FILE);
    // If another database has left its log in the folder, SQLite would apply that log to the restored database.
    let names = SIDE_FILE_SUFFIXES.iter().map(|side| append_suffix(&database, side)).chain([database.clone()]);
    if let Some(there) = names.into_iter().find(|name| name.symlink_metadata().is_ok()) {
        let text = format!(
            "{}: exists, and is never overwritten: move the files of the data folder away, or restore into an \
             empty folder",
            there.display()
        );
        return Err(Error::new(Kind::Conflict, text));
    }
    let bytes = PartialCopy::of_file(copy, &database, progress)?.finish_with(copied_fact(None))?;
    for left in interrupted_restores(folder) {
        if let Err(error) = std::fs::remove_dir_all(&left) {
            tracing::warn!(left = %left.display(), %error, "the remains of an interrupted restore could not be removed; delete this folder");
        }
    }
    Ok(bytes)
}

/// Completes the restore of a copy: later CRL numbers will be above all earlier ones, and the mark of the copy is
/// removed. Does nothing to a store without that mark.
///
/// # Errors
/// `Invalid` when the clock is behind the copy, or no higher CRL numbers exist; `Unavailable` from the disk.
pub(super) fn complete_restore(db: &mut Connection, now: Time) -> Result<()> {
    let text = "storage: the restore of the copy in signet.db cannot be completed";
    let failed = |e| Error::unavailable(text, e);
    let fact = "SELECT 1 FROM meta WHERE name = $1";
    if db.query_row(fact, [COPIED_FACT], |_| Ok(())).optional().map_err(failed)?.is_none() {
        return Ok(());
    }
    let published = db.query_row(SELECT_CRL_MAXIMA, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    let facts = resolve_ready(facts::all(&*db)).map_err(|e| e.into_error(text))?;
    let (name, _) = restore_fact(now, published, &facts)?;
    let value = encode_restore_times(now, copy_time(&facts));
    let tx = db.transaction().map_err(failed)?;
    tx.execute(sql::INSERT, params![name, value]).map_err(failed)?;
    tx.execute("DELETE FROM meta WHERE name = $1", [COPIED_FACT]).map_err(failed)?;
    tx.commit().map_err(failed)?;
    tracing::warn!(
        above = crl_floor(&[(name, value)]),
        "store restored from a copy; new CRL numbers are higher than the number in `above`"
    );
    Ok(())
}

/// Checks that the store was not copied into a PostgreSQL database.
///
/// # Errors
/// `Conflict` when it was.
pub(super) fn require_unmoved(db: &Connection) -> Result<()> {
    let facts = resolve_ready(facts::all(db))
        .map_err(|e| e.into_error("storage: the table meta of the store cannot be read"))?;
    restore_facts::require_unmoved(&facts)
}

/// Records that the store was copied into a PostgreSQL database. No server starts on it until [`remove_move_record`]
/// removes the record. The folder must be [locked](lock).
///
/// # Errors
/// `Unavailable` from the disk.
pub(crate) fn record_move(folder: &Path, now: Time) -> Result<()> {
    let (name, value) = restore_facts::moved_fact(now);
    change_facts(folder, |db| db.execute(sql::INSERT, params![name, value])).map(drop)
}

/// Returns `true` if [`record_move`] has marked the store as copied into a PostgreSQL database. The folder must be
/// [locked](lock).
///
/// # Errors
/// `Unavailable` from the disk.
pub(crate) fn is_moved(folder: &Path) -> Result<bool> {
    let found = change_facts(folder, |db| {
        let found =
            db.query_row("SELECT 1 FROM meta WHERE name = $1", [restore_facts::MOVED_FACT], |_| Ok(())).optional()?;
        Ok(usize::from(found.is_some()))
    })?;
    Ok(found > 0)
}

/// Removes the mark of [`record_move`]; returns `true` if there was one. The folder must be [locked](lock).
///
/// # Errors
/// `Unavailable` from the disk.
pub(crate) fn remove_move_record(folder: &Path) -> Result<bool> {
    let taken = change_facts(folder, |db| db.execute("DELETE FROM meta WHERE name = $1", [restore_facts::MOVED_FACT]))?;
    Ok(taken > 0)
}

/// Opens a store that no server uses, runs `change` on its installation facts, and returns the number of changed facts;
/// 0 for an empty database.
fn change_facts(folder: &Path, change: impl FnOnce(&Connection) -> rusqlite::Result<usize>) -> Result<usize> {
    let path = folder.join(DATABASE_FILE);
    super::log::rewrite_log(&path)
        .map_err(|e| Error::of_io(format_args!("data folder {}", folder.display()), "used", e))?;
    let db = connection::open_writer(&path)?;
    if schema::known_version(&db)?.is_none() {
        return Ok(0);
    }
    change(&db).map_err(|e| Error::unavailable(format!("{}: cannot be changed ({e})", path.display()), e))
}

fn open_database(folder: &Path) -> Result<File> {
    let path = folder.join(DATABASE_FILE);
    File::open(&path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            Error::new(Kind::NotFound, format!("{}: the database file does not exist", path.display()))
        }
        _ => Error::of_io(path.display(), "read", e),
    })
}

/// Returns the error of a failed copy. It names the target if the target's disk is full, else the source.
fn copy_error(from: &Path, to: &Path, error: io::Error) -> Error {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let (path, what) = match error.kind() {
        ErrorKind::NotFound => return Error::of_file("FILE", from, "copied", error).with_kind(Kind::Unavailable),
        FileTooLarge | QuotaExceeded | StorageFull => (to, "written"),
        _ => (from, "copied"),
    };
    Error::of_io(path.display(), what, error)
}

fn create_error(path: &Path, error: io::Error) -> Error {
    if error.kind() == ErrorKind::NotFound {
        return Error::unavailable(format!("{}: cannot be created: its folder does not exist", path.display()), error);
    }
    Error::of_io(path.display(), "created", error)
}

/// The log file of a database, and its length at the start of the copy.
struct WalFile {
    file: File,
    bytes: u64,
}

impl WalFile {
    /// Opens the log file; `None` if there is none.
    fn open(path: &Path) -> IoResult<Option<Self>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let bytes = file.metadata()?.len();
        Ok(Some(Self { file, bytes }))
    }

    fn copy(&mut self, to: &mut File, pace: CopyPace, stop: &AtomicBool, progress: &ProgressCounters) -> IoResult<()> {
        for _ in 0..MAX_LOG_READ_ATTEMPTS {
            to.rewind()?;
            to.set_len(0)?;
            let before = self.read_header()?;
            copy((&self.file).take(self.bytes), to, pace, stop, progress)?;
            if self.read_header()? == before {
                return Ok(());
            }
        }
        Err(io::Error::other("SQLite restarted the write-ahead log during each attempt to copy it"))
    }

    /// Reads the header of the log, and seeks back to the beginning of the file.
    fn read_header(&mut self) -> IoResult<Vec<u8>> {
        let mut header = Vec::new();
        self.file.rewind()?;
        (&self.file).take(LOG_HEADER_BYTES).read_to_end(&mut header)?;
        self.file.rewind()?;
        Ok(header)
    }
}

/// Copies `from` in slices, from the current position to the end. `io::copy` uses the kernel's copy functions if
/// possible.
fn copy(
    mut from: impl Read,
    mut to: &File,
    pace: CopyPace,
    stop: &AtomicBool,
    progress: &ProgressCounters,
) -> IoResult<()> {
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        let copied = std::io::copy(&mut from.by_ref().take(pace.slice_bytes()), &mut to)?;
        progress.add(copied);
        if copied < pace.slice_bytes() {
            return Ok(());
        }
        to.sync_data()?;
        thread::sleep(pace.pause_after(begun.elapsed()));
    }
    Err(io::Error::other("the copy was stopped"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::backend::{FactWrite, StoreBackend as _, WriteUnit};
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn copy_error_names_the_target_or_the_source_file() {
        let text =
            |kind: ErrorKind| copy_error(Path::new("/data"), Path::new("/backup/copy.db"), kind.into()).to_string();
        assert_eq!(text(ErrorKind::StorageFull), "/backup/copy.db: cannot be written (no storage space)");
        assert_eq!(text(ErrorKind::NotFound), "FILE: file does not exist: /data");
    }

    fn time_at(seconds: i64) -> Time {
        Time::from_unix_timestamp(seconds).unwrap()
    }

    fn fact_unit(name: usize) -> Vec<WriteUnit> {
        vec![WriteUnit::Facts(vec![FactWrite::new((format!("fact {name}"), vec![7; 3000]))])]
    }

    fn copy_folder(folder: &Path, to: &Path) -> Result<PartialCopy> {
        PartialCopy::of_folder(folder, to, CopyPace::Shared, &AtomicBool::new(false), &ProgressCounters::default())
    }

    fn count_facts(file: &Path) -> i64 {
        let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        db.query_row("SELECT COUNT(*) FROM meta WHERE name LIKE 'fact%'", [], |row| row.get(0)).unwrap()
    }

    #[tokio::test]
    async fn copy_contains_file_and_log_at_any_checkpoint_state() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        let file = dir.path().join("copy.db");
        let (mut writer, _pool) = super::super::open(&folder, time_at(0)).unwrap();
        let other = Connection::open(folder.join(DATABASE_FILE)).unwrap();
        let checkpoint = |mode: &str| {
            other.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())).unwrap();
        };
        for (round, mode) in ["NOOP", "PASSIVE", "RESTART", "TRUNCATE"].into_iter().enumerate() {
            for name in 0..20 {
                assert!(writer.apply(fact_unit(round * 100 + name)).await[0].is_ok());
            }
            checkpoint(mode);
            // This commit is only in the log, not in the database file.
            assert!(writer.apply(fact_unit(round * 100 + 50)).await[0].is_ok());
            copy_folder(&folder, &file).unwrap().finish(time_at(1)).unwrap();
            assert_eq!(count_facts(&file), (round as i64 + 1) * 21, "{mode}");
            assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
            std::fs::remove_file(&file).unwrap();
        }
    }

    #[tokio::test]
    async fn writes_during_paused_checkpoints_leave_the_file_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        let file = dir.path().join("copy.db");
        let (mut writer, pool) = super::super::open(&folder, time_at(0)).unwrap();
        let pause = pool.checkpoint_lock().pause().unwrap();
        assert!(pool.checkpoint_lock().run_if_not_paused(|| ()).is_none());
        let before = std::fs::read(folder.join(DATABASE_FILE)).unwrap();
        let partial = {
            for name in 0..40 {
                assert!(writer.apply(fact_unit(name)).await[0].is_ok());
            }
            let partial = copy_folder(&folder, &file).unwrap();
            for name in 40..60 {
                assert!(writer.apply(fact_unit(name)).await[0].is_ok());
            }
            partial
        };
        assert_eq!(std::fs::read(folder.join(DATABASE_FILE)).unwrap(), before);
        assert!(!file.exists(), "not before it is whole");
        partial.finish(time_at(1)).unwrap();
        assert_eq!(count_facts(&file), 40);
        drop(pause);
        assert!(pool.checkpoint_lock().run_if_not_paused(|| ()).is_some());
    }

    #[test]
    fn unfinished_copy_leaves_no_file_and_replaces_none() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        let file = dir.path().join("copy.db");
        let _open = super::super::open(&folder, time_at(0)).unwrap();
        drop(copy_folder(&folder, &file).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let partial = copy_folder(&folder, &file).unwrap();
        std::fs::write(&file, "mine").unwrap();
        assert_eq!(partial.finish(time_at(1)).unwrap_err().kind(), Kind::Conflict);
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn copy_is_built_in_a_private_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        let file = dir.path().join("copy.db");
        let (mut writer, _pool) = super::super::open(&folder, time_at(0)).unwrap();
        assert!(writer.apply(fact_unit(1)).await[0].is_ok());
        // Other users may write into the folder of the copy.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        let partial = copy_folder(&folder, &file).unwrap();
        let other_files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap()).collect();
        let other_files: Vec<_> = other_files.iter().filter(|entry| entry.file_name() != "data").collect();
        let [made] = other_files[..] else { panic!("{other_files:?}") };
        assert!(made.file_name().to_str().unwrap().starts_with("copy.db.partial-"));
        let metadata = made.metadata().unwrap();
        assert!(metadata.is_dir() && metadata.mode() & 0o777 == 0o700, "{metadata:?}");
        let mut within: Vec<_> =
            std::fs::read_dir(made.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        within.sort();
        assert_eq!(within, ["signet.db", "signet.db-wal"]);
        assert!(
            partial.create_file("-wal").unwrap_err().to_string().ends_with("cannot be created (entity already exists)")
        );
        partial.finish(time_at(1)).unwrap();
        assert_eq!(count_facts(&file), 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn stopped_copy_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        let file = dir.path().join("copy.db");
        let _open = super::super::open(&folder, time_at(0)).unwrap();
        let stop = AtomicBool::new(true);
        let error =
            PartialCopy::of_folder(&folder, &file, CopyPace::Full, &stop, &ProgressCounters::default()).err().unwrap();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn copy_is_restored_once_and_not_before_the_time_of_its_crls() {
        let mut db = Connection::open_in_memory().unwrap();
        schema::migrate(&mut db).unwrap();
        complete_restore(&mut db, time_at(5)).unwrap();
        let restores = |db: &Connection| -> Vec<String> {
            let mut names = db.prepare("SELECT name FROM meta WHERE name <> 'schema'").unwrap();
            names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        assert!(restores(&db).is_empty(), "no copy");
        let (name, value) = copied_fact(Some(time_at(3)));
        db.execute(sql::INSERT, params![name, value]).unwrap();
        let list = "INSERT INTO crl VALUES (0, 'g', 1, 0, 100, 200, x'')";
        db.execute(list, []).unwrap();
        assert_eq!(complete_restore(&mut db, time_at(99)).unwrap_err().kind(), Kind::Invalid);
        complete_restore(&mut db, time_at(100)).unwrap();
        complete_restore(&mut db, time_at(150)).unwrap();
        assert_eq!(restores(&db), ["restored/100000000"]);
        let restore = restore_facts::last_restore(&resolve_ready(facts::all(&db)).ok().unwrap()).unwrap();
        assert_eq!((restore.restored_at, restore.copied_at), (time_at(100), Some(time_at(3))));
        // A copy of the restored store, with a CRL number from a wrong clock.
        let (name, value) = copied_fact(Some(time_at(3)));
        db.execute(sql::INSERT, params![name, value]).unwrap();
        db.execute("UPDATE crl SET number = 900000000", []).unwrap();
        complete_restore(&mut db, time_at(200)).unwrap();
        let above = |name: &String| name.strip_prefix("restored/").unwrap().parse::<u64>().unwrap();
        assert!(restores(&db).iter().map(above).max() > Some(1_000_000_000_000));
    }

    #[test]
    fn folder_of_an_interrupted_restore_accepts_only_a_restore() {
        let dir = tempfile::tempdir().unwrap();
        let [folder, new, file] = ["data", "new", "copy.db"].map(|name| dir.path().join(name));
        drop(super::super::open(&folder, time_at(0)).unwrap());
        copy_folder(&folder, &file).unwrap().finish(time_at(1)).unwrap();
        // The temporary folder that an interrupted restore leaves.
        let left = new.join("signet.db.partial-0123abcd");
        std::fs::create_dir_all(&left).unwrap();
        for name in ["signet.db", "signet.db-wal"] {
            std::fs::write(left.join(name), "half").unwrap();
        }
        let error = super::super::open(&new, time_at(2)).err().expect("no store is made");
        assert_eq!(error.kind(), Kind::Conflict);
        for part in [left.to_str().unwrap(), "signet operator restore", "remove"] {
            assert!(error.text().contains(part), "{part}: {error}");
        }
        assert!(!new.join(DATABASE_FILE).exists());
        assert!(restore(&dir.path().join("absent"), &new, &ProgressCounters::default()).is_err());
        assert!(left.exists());
        restore(&file, &new, &ProgressCounters::default()).unwrap();
        assert!(!left.exists());
        std::fs::create_dir(&left).unwrap();
        assert!(super::super::open(&new, time_at(3)).is_ok(), "a store that is there opens");
    }
}
