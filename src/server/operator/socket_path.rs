//! The path of the operator socket. The system limits a socket's path to 107 bytes. If the path of the data folder is
//! too long, the socket is addressed through a file descriptor of the folder.

use std::fs::{File, Permissions};
use std::io::Result;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::files::remove_if_exists;

/// File name of the operator socket in the data folder.
pub(super) const SOCKET_NAME: &str = "signet.sock";
/// Temporary file name of the operator socket, until its mode is 0600.
const TEMPORARY_SOCKET_NAME: &str = "signet.sock.new";
/// Maximum length of a socket's path, in bytes.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The data folder of an operator socket. If its path is too long, `folder` is a path below `/proc` that refers to the
/// open descriptor `_open`.
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

    /// Returns the path of the socket. It is valid only while `self` exists.
    pub(super) fn socket_path(&self) -> PathBuf {
        self.folder.join(SOCKET_NAME)
    }
}

/// Creates the socket in a data folder that this process has locked, and listens. Replaces the socket of an earlier
/// process. The socket gets its final name only after its mode is 0600.
pub(super) fn bind(folder: &Path) -> Result<UnixListener> {
    let socket_folder = SocketFolder::of(folder)?;
    let new = socket_folder.folder.join(TEMPORARY_SOCKET_NAME);
    remove_if_exists(&new)?;
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    std::fs::rename(&new, socket_folder.socket_path())?;
    Ok(listener)
}
