//! The path of the operator's socket. A socket path has at most 107 bytes. In a data folder with a longer path the
//! socket is reached through a file descriptor of the folder.

use std::fs::{File, Permissions};
use std::io::Result;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::files::remove_if_exists;

/// Name of the socket in the data folder.
pub(super) const SOCKET_NAME: &str = "signet.sock";
/// Temporary name, until only the owner has access.
const TEMPORARY_SOCKET_NAME: &str = "signet.sock.new";
/// Longest path of a socket, in bytes.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// A folder, with the descriptor through which it is reached if its path is too long.
pub(super) struct SocketFolder {
    folder: PathBuf,
    _open: Option<File>,
}

impl SocketFolder {
    pub(super) fn of(folder: &Path) -> Result<Self> {
        if folder.join(TEMPORARY_SOCKET_NAME).as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
            return Ok(Self { folder: folder.to_owned(), _open: None });
        }
        let open = File::open(folder)?;
        Ok(Self { folder: PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())), _open: Some(open) })
    }

    /// The path of the socket, valid as long as `self`.
    pub(super) fn socket_path(&self) -> PathBuf {
        self.folder.join(SOCKET_NAME)
    }
}

/// Listens in a folder that this process has locked, replacing the socket of an earlier process. The socket gets its
/// name only after its mode is 0600.
pub(super) fn bind(folder: &Path) -> Result<UnixListener> {
    let socket_folder = SocketFolder::of(folder)?;
    let new = socket_folder.folder.join(TEMPORARY_SOCKET_NAME);
    remove_if_exists(&new)?;
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    std::fs::rename(&new, socket_folder.socket_path())?;
    Ok(listener)
}
