//! How much room the disk of a data folder has.

use std::path::Path;

/// Less than this is too little: the database's log and its index have no room to grow, or none to be made.
pub const LEAST: u64 = 4 << 20;

/// Octets that this user may still write there.
///
/// # Errors
/// What the system says when it does not tell.
pub fn free(folder: &Path) -> std::io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// How much there is where that is [too little](LEAST). A disk that does not tell has enough.
pub fn lacking(folder: &Path) -> Option<u64> {
    free(folder).ok().filter(|free| *free < LEAST)
}
