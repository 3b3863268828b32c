//! Free space on the disk of a data folder.

use std::path::Path;

/// Minimum free disk space in bytes. With less, SQLite cannot create or extend its log and the index of the log.
pub const MIN_FREE_BYTES: u64 = 4 << 20;

/// Returns the bytes that this user may still write to the folder's file system.
///
/// # Errors
/// The error of the system call.
pub fn free_bytes(folder: &Path) -> std::io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Returns the free bytes if they are fewer than [`MIN_FREE_BYTES`], else `None`; also `None` if they cannot be
/// determined.
pub fn insufficient_free_bytes(folder: &Path) -> Option<u64> {
    free_bytes(folder).ok().filter(|free| *free < MIN_FREE_BYTES)
}
