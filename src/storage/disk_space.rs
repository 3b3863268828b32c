//! Free space on the disk of a data folder.

use std::path::Path;

/// Minimum free bytes. With less, the database's log and its index cannot grow or be created.
pub const MIN_FREE_BYTES: u64 = 4 << 20;

/// Returns the bytes that this user may still write to the folder's file system.
///
/// # Errors
/// The error of the system call.
pub fn free_bytes(folder: &Path) -> std::io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Returns the free bytes if they are [too few](MIN_FREE_BYTES). An unknown amount counts as enough.
pub fn insufficient_free_bytes(folder: &Path) -> Option<u64> {
    free_bytes(folder).ok().filter(|free| *free < MIN_FREE_BYTES)
}
