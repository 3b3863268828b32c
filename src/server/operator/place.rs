//! Where the socket is. The name of a socket has at most 107 octets, and data folders are longer than that where
//! people like them so: then the folder is opened, and the socket found by its descriptor.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Result};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The socket's name in the data folder.
pub(super) const NAME: &str = "signet.sock";
/// Its name until it is for its owner only.
const NEW: &str = "signet.sock.new";
/// Longest path that the system takes for a socket.
const LONGEST: usize = 107;

/// A folder, and the descriptor through which it is found when its name is too long.
pub(super) struct Place {
    folder: PathBuf,
    _open: Option<File>,
}

impl Place {
    pub(super) fn of(folder: &Path) -> Result<Self> {
        if folder.join(NEW).as_os_str().len() <= LONGEST {
            return Ok(Self { folder: folder.to_owned(), _open: None });
        }
        let open = File::open(folder)?;
        Ok(Self { folder: PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())), _open: Some(open) })
    }

    /// The path of the socket, for as long as this lives.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join(NAME)
    }
}

/// A listener in a folder that is this process's own. One that an earlier process left there gives way. Nobody
/// finds it before it has mode 0600.
pub(super) fn bind(folder: &Path) -> Result<UnixListener> {
    let place = Place::of(folder)?;
    let new = place.folder.join(NEW);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    std::fs::rename(&new, place.socket())?;
    Ok(listener)
}
