//! Direct access to the file of the write-ahead log, for two cases that SQLite does not handle.
//!
//! After a failed sync, the kernel treats written pages as clean, although the disk lacks them. A process that starts
//! after a crash reads such log pages from the page cache and takes their transactions for committed. A power failure
//! would then lose them, and with them all commits appended later. So an existing log is rewritten and synced when the
//! store opens ([`rewrite_log`]). Before a running process reads the log from its beginning (`writer`), frames of a
//! rolled back transaction are cut off ([`truncate`]).

use std::fs::OpenOptions;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::files::append_suffix;

/// Size in bytes of the header of the log file (SQLite file format, section 4.1).
const LOG_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// Number of log frames per read and write.
const FRAMES_PER_BUFFER: usize = 256;

pub(super) fn log_path(path: &Path) -> PathBuf {
    append_suffix(path, "-wal")
}

/// Rewrites the valid frames of the log with the same bytes, and syncs the file.
///
/// # Errors
/// The errors of the file system. After an error, SQLite must not use the log.
pub(super) fn rewrite_log(path: &Path) -> Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(log_path(path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut header = [0; LOG_HEADER_BYTES];
    if file.metadata()?.len() < LOG_HEADER_BYTES as u64 {
        return Ok(());
    }
    file.read_exact_at(&mut header, 0)?;
    let Some(frame) = frame_len(&header) else { return Ok(()) };
    file.write_all_at(&header, 0)?;
    let mut buffer = vec![0; frame * FRAMES_PER_BUFFER];
    let mut at = LOG_HEADER_BYTES as u64;
    loop {
        let read = read_full(&file, &mut buffer, at)?;
        let current = buffer[..read].chunks_exact(frame).take_while(|f| f[8..16] == header[16..24]).count();
        file.write_all_at(&buffer[..current * frame], at)?;
        at += (current * frame) as u64;
        // The valid frames end in this buffer; frames from before the last reuse of the log file may follow.
        if current < FRAMES_PER_BUFFER {
            break;
        }
    }
    file.sync_all()
}

/// Truncates the log after `frames` frames. Must not run concurrently with a writer.
pub(super) fn truncate(path: &Path, frames: u64) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(log_path(path))?;
    let mut header = [0; LOG_HEADER_BYTES];
    let header_bytes = read_full(&file, &mut header, 0)?;
    let len = match frame_len(&header) {
        Some(frame) if header_bytes == LOG_HEADER_BYTES && frames > 0 => {
            LOG_HEADER_BYTES as u64 + frames * frame as u64
        }
        _ => 0,
    };
    // The file is never extended: if frames are missing, nothing can replace them.
    if file.metadata()?.len() > len { file.set_len(len) } else { Ok(()) }
}

/// Returns the length of a frame including its header; `None` if SQLite would ignore the log.
fn frame_len(header: &[u8; LOG_HEADER_BYTES]) -> Option<usize> {
    let page = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let is_one = page.is_power_of_two() && (512..=65_536).contains(&page);
    is_one.then_some(FRAME_HEADER_BYTES + page as usize)
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &std::fs::File, buffer: &mut [u8], at: u64) -> Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], at + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    fn database_with_log(path: &Path, rows: u32) -> Connection {
        let db = Connection::open(path).unwrap();
        db.execute_batch("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t (b BLOB)").unwrap();
        for _ in 0..rows {
            db.execute("INSERT INTO t VALUES (randomblob(3000))", []).unwrap();
        }
        db
    }

    fn count_rows(path: &Path) -> u32 {
        Connection::open(path).unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    fn copy_as_after_crash(db: &Path, to: &Path) {
        std::fs::copy(db, to).unwrap();
        std::fs::copy(log_path(db), log_path(to)).unwrap();
    }

    #[test]
    fn rewriting_any_log_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        rewrite_log(&path).unwrap();
        assert!(!log_path(&path).exists(), "no log is made");
        let db = database_with_log(&path, 700);
        db.execute_batch("PRAGMA wal_checkpoint(RESTART)").unwrap();
        // SQLite reuses the log from the beginning: these frames overwrite the first ones of the previous use.
        db.execute("DELETE FROM t WHERE rowid <= 100", []).unwrap();
        let before = std::fs::read(log_path(&path)).unwrap();
        rewrite_log(&path).unwrap();
        assert_eq!(std::fs::read(log_path(&path)).unwrap(), before);
        for broken in [&b""[..], b"short", &[0; 4096]] {
            std::fs::write(dir.path().join("y.db-wal"), broken).unwrap();
            rewrite_log(&dir.path().join("y.db")).unwrap();
            assert_eq!(std::fs::read(dir.path().join("y.db-wal")).unwrap(), broken);
        }
    }

    #[test]
    fn truncated_log_ends_with_the_last_valid_transaction() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let copy = dir.path().join("copy.db");
        let db = database_with_log(&path, 3);
        let frames: u64 = db.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get::<_, i64>(1)).unwrap() as u64;
        db.execute("INSERT INTO t VALUES (randomblob(3000))", []).unwrap();
        copy_as_after_crash(&path, &copy);
        truncate(&copy, frames).unwrap();
        assert_eq!(count_rows(&copy), 3);
        copy_as_after_crash(&path, &copy);
        truncate(&copy, frames * 100).unwrap();
        assert_eq!(count_rows(&copy), 4, "never longer, and nothing is lost");
        truncate(&path, 0).unwrap();
        assert_eq!(std::fs::metadata(log_path(&path)).unwrap().len(), 0);
    }
}
