//! Audit output to files and standard output.
//!
//! A file is opened for appending, with the configured mode, and reopened on SIGHUP after a log rotation. A deleted
//! file is created again before an entry counts as written. After a partial write, the file is truncated to whole
//! lines. Disk space is allocated some MiB ahead if the file system supports it. Writes to allocated space change no
//! metadata, so a sync of other files on the same disk does not delay them. A pipe works like a file while it has a
//! reader.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl, fstatfs};

use super::device::AuditSink;
use crate::error::describe_io_error;
use crate::users;

/// Bytes of disk space that are allocated ahead.
const PREALLOCATED_BYTES: u64 = 4 << 20;

/// Magic numbers (`statfs(2)`) of local file systems, where a write does not block: ext2 to ext4, XFS, Btrfs,
/// F2FS, tmpfs and overlayfs.
const LOCAL_FILE_SYSTEMS: &[u64] = &[0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994, 0x794c_7630];

/// Options to open a file for appending. Opening a pipe without a reader fails instead of blocking.
pub fn append_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    options
}

/// Describes why opening a file failed.
pub fn describe_open_error(path: &Path, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => {
            "is a pipe without a reader, or a socket".to_owned()
        }
        // Opening creates a missing file, so this error means that the folder is missing.
        _ if error.kind() == io::ErrorKind::NotFound => "its folder does not exist".to_owned(),
        _ if error.kind() == io::ErrorKind::PermissionDenied => describe_denial(path),
        _ => describe_io_error(error.kind()),
    }
}

/// Describes a denied permission. Names the owner of the file if it is another user: a server that root once started by
/// hand leaves such files.
fn describe_denial(path: &Path) -> String {
    let denied = describe_io_error(io::ErrorKind::PermissionDenied);
    let own = rustix::process::geteuid().as_raw();
    match std::fs::metadata(path) {
        Ok(found) if found.uid() != own => format!(
            "{denied}: the file belongs to {}; run chown {} {} as root",
            users::display_name(found.uid()),
            users::display_name(own),
            path.display()
        ),
        _ => denied,
    }
}

pub(super) struct FileSink {
    path: PathBuf,
    mode: u32,
    /// `true` to sync each write to disk before its lines count as written.
    fsync: bool,
    file: Option<File>,
    /// `true` if the file does not end with a line feed.
    ends_with_partial_line: bool,
    /// Position in the file up to which disk space was requested. The allocation may have failed.
    allocated_bytes: u64,
    /// `true` for a regular file on a local file system.
    is_local: bool,
}

impl FileSink {
    /// Opens the file.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(super) fn open(path: PathBuf, mode: u32, fsync: bool) -> io::Result<Self> {
        let mut log =
            Self { path, mode, fsync, file: None, ends_with_partial_line: false, allocated_bytes: 0, is_local: false };
        log.reopen()?;
        Ok(log)
    }

    /// Appends all lines or nothing. Returns the metadata of the file after the write.
    fn append(&mut self, lines: &[u8]) -> io::Result<Metadata> {
        if self.file.is_none() {
            self.reopen()?;
        }
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let begin: &[u8] = if self.ends_with_partial_line { b"\n" } else { b"" };
        let mut written = 0;
        let ended = write_all(file, begin, &mut written).and_then(|()| write_all(file, lines, &mut written));
        if let Err(error) = ended {
            // Assumes that no other process appends to this file: the truncation would also cut off lines of the other
            // process.
            self.ends_with_partial_line |= truncate_partial_write(file, written).is_err();
            return Err(error);
        }
        self.ends_with_partial_line = false;
        if self.fsync {
            file.sync_data()?;
        }
        file.metadata()
    }

    /// Allocates disk space for the next lines. A failure does not matter, because each write then allocates its own
    /// space.
    fn preallocate(&mut self, metadata: &Metadata) {
        let len = metadata.len();
        if len + PREALLOCATED_BYTES / 2 < self.allocated_bytes || !metadata.is_file() {
            return;
        }
        if let Some(file) = &self.file {
            let _ = fallocate(file, FallocateFlags::KEEP_SIZE, len, PREALLOCATED_BYTES);
            self.allocated_bytes = len + PREALLOCATED_BYTES;
        }
    }
}

/// Writes all bytes. Adds the number of written bytes to `written`, also if an error occurs after some of them.
fn write_all(file: &mut File, mut bytes: &[u8], written: &mut u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(some) => {
                *written += some as u64;
                bytes = &bytes[some..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Cuts the last `written` bytes off the end of the file.
fn truncate_partial_write(file: &File, written: u64) -> io::Result<()> {
    if written == 0 {
        return Ok(());
    }
    let metadata = file.metadata()?;
    let whole = metadata.len().checked_sub(written).filter(|_| metadata.is_file());
    file.set_len(whole.ok_or(io::ErrorKind::Unsupported)?)
}

impl AuditSink for FileSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut file = self.append(lines)?;
        // The file was deleted, so the lines that were just appended are lost. Write them again, to a new file.
        if file.nlink() == 0 {
            self.file = None;
            file = self.append(lines)?;
        }
        self.preallocate(&file);
        Ok(())
    }

    fn has_fast_writes(&self) -> bool {
        self.is_local && !self.fsync
    }

    fn reopen(&mut self) -> io::Result<()> {
        let file = append_options().create(true).mode(self.mode).open(&self.path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            // Writes to a pipe with a slow reader must block.
            fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
        }
        if metadata.is_file() && metadata.mode() & 0o7777 != self.mode {
            file.set_permissions(Permissions::from_mode(self.mode))?;
        }
        self.ends_with_partial_line = metadata.is_file() && ends_with_partial_line(&self.path)?;
        self.is_local = metadata.is_file()
            && fstatfs(&file).is_ok_and(|system| LOCAL_FILE_SYSTEMS.contains(&(system.f_type as u64)));
        (self.file, self.allocated_bytes) = (Some(file), 0);
        Ok(())
    }
}

/// `true` if a crash left an incomplete line at the end of the file.
fn ends_with_partial_line(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let mut last = [0];
    let len = file.metadata()?.len();
    Ok(len > 0 && file.read_at(&mut last, len - 1)? == 1 && last != *b"\n")
}

pub(super) struct StdoutSink(File);

impl StdoutSink {
    /// # Errors
    /// Errors of the operating system.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }
}

impl AuditSink for StdoutSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.0.write_all(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn lines_are_appended_with_the_mode_of_the_settings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(&path, "one\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        FileSink::open(path.clone(), 0o600, true).unwrap().write(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn audit_file_that_was_renamed_is_written_until_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let moved = folder.path().join("audit.log.1");
        let mut log = FileSink::open(path.clone(), 0o600, false).unwrap();
        log.write(b"one\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        log.write(b"two\n").unwrap();
        log.reopen().unwrap();
        log.write(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn audit_file_that_was_removed_is_recreated_without_loss() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut log = FileSink::open(path.clone(), 0o600, false).unwrap();
        log.write(b"one\n").unwrap();
        fs::remove_file(&path).unwrap();
        log.write(b"two\n").unwrap();
        log.write(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\nthree\n");
    }

    #[test]
    fn audit_file_ends_a_half_written_line_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(&path, "one\ntw").unwrap();
        let mut log = FileSink::open(path.clone(), 0o600, false).unwrap();
        log.write(b"three\n").unwrap();
        log.write(b"four\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntw\nthree\nfour\n");
    }

    #[test]
    fn pipe_needs_a_reader_to_open_and_blocks_until_it_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let refused = FileSink::open(path.clone(), 0o600, false).err().unwrap();
        assert_eq!(describe_open_error(&path, &refused), "is a pipe without a reader, or a socket");
        let mut reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut log = FileSink::open(path, 0o600, false).unwrap();
        let read = std::thread::spawn(move || {
            // The reader starts late and reads more than a pipe can hold.
            std::thread::sleep(std::time::Duration::from_millis(50));
            let mut all = vec![0; 1 << 20];
            io::Read::read_exact(&mut reader, &mut all).unwrap();
            all
        });
        log.write(&vec![b'x'; 1 << 20]).unwrap();
        assert!(read.join().unwrap().iter().all(|octet| *octet == b'x'));
    }

    #[test]
    fn unwritable_device_reports_an_error() {
        let mut full = FileSink::open("/dev/full".into(), 0o600, false).unwrap();
        assert_eq!(full.write(b"one\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(FileSink::open("/".into(), 0o600, false).is_err());
    }
}
