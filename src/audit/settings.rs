//! Settings of audit devices. Devices can only be declared in the server configuration, so that API callers cannot make
//! the server write files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::device::AuditSink;
use super::file::{FileSink, StdoutSink, describe_open_error};
use super::line::EntryFormat;
use super::mask::Mask;
use super::socket::{CollectorAddress, SocketSink};
use crate::error::{Error, Result};

/// The settings of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditDeviceSettings {
    /// The unique name of the device in `sys/audit` and in metrics.
    pub name: String,
    /// The output to which the device writes.
    pub target: AuditTarget,
    /// `true` to record texts unhashed, secrets included. This is meant for debugging and does not affect other
    /// devices.
    pub log_raw: bool,
    /// `true` to hash accessors.
    pub hmac_accessor: bool,
    /// `true` to record only the number of names in LIST responses.
    pub elide_list_responses: bool,
}

/// The output of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTarget {
    /// A file.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The permissions of the file, as a Unix mode.
        mode: u32,
        /// `true` to sync each write to disk before its lines count as written.
        fsync: bool,
    },
    /// Standard output.
    Stdout,
    /// A connection to a log collector.
    Socket {
        /// The address of the collector.
        peer: CollectorAddress,
        /// Time limit for connecting, and for a write.
        write_timeout: Duration,
    },
}

impl AuditDeviceSettings {
    /// Creates settings with this name and target, and defaults for all options.
    pub fn new(name: impl Into<String>, target: AuditTarget) -> Self {
        Self { name: name.into(), target, log_raw: false, hmac_accessor: true, elide_list_responses: true }
    }

    /// Creates settings for a device that writes to a file, with defaults for all options.
    pub fn file(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self::new(name, AuditTarget::File { path: path.into(), mode: 0o600, fsync: false })
    }

    /// Returns `file`, `stdout` or `socket`.
    pub fn kind_name(&self) -> &'static str {
        match self.target {
            AuditTarget::File { .. } => "file",
            AuditTarget::Stdout => "stdout",
            AuditTarget::Socket { .. } => "socket",
        }
    }

    /// Returns the options by name, with their values as texts.
    pub fn options(&self) -> BTreeMap<&'static str, String> {
        let mut options = BTreeMap::from([
            ("log_raw", self.log_raw.to_string()),
            ("hmac_accessor", self.hmac_accessor.to_string()),
            ("elide_list_responses", self.elide_list_responses.to_string()),
        ]);
        match &self.target {
            AuditTarget::File { path, mode, fsync } => options.extend([
                ("file_path", path.display().to_string()),
                ("mode", format!("{mode:04o}")),
                ("fsync", fsync.to_string()),
            ]),
            AuditTarget::Stdout => {}
            AuditTarget::Socket { peer, write_timeout } => {
                let (kind, address) = match peer {
                    CollectorAddress::Tcp(address) => ("tcp", address.clone()),
                    CollectorAddress::Unix(path) => ("unix", path.display().to_string()),
                };
                options.extend([
                    ("socket_type", kind.to_owned()),
                    ("address", address),
                    ("write_timeout", crate::clock::format_duration(*write_timeout)),
                ]);
            }
        }
        options
    }

    /// Opens the output. A socket connects only at the first write.
    ///
    /// # Errors
    /// `Invalid`, with the name of the device, when it cannot be opened.
    pub fn open(&self) -> Result<Box<dyn AuditSink>> {
        let failed = |what: &str, path: &Path, e: std::io::Error| {
            let why = describe_open_error(path, &e);
            Error::invalid(format!("audit: the device {:?}{what} cannot be opened ({why})", self.name))
        };
        Ok(match &self.target {
            AuditTarget::File { path, mode, fsync } => {
                let opened = FileSink::open(path.clone(), *mode, *fsync);
                Box::new(opened.map_err(|e| failed(&format!(", {},", path.display()), path, e))?)
            }
            AuditTarget::Stdout => Box::new(StdoutSink::open().map_err(|e| failed("", Path::new("/dev/stdout"), e))?),
            AuditTarget::Socket { peer, write_timeout } => Box::new(SocketSink::new(peer.clone(), *write_timeout)),
        })
    }

    pub(super) fn entry_format(&self, key: &[u8]) -> EntryFormat {
        let mask = Mask::new(key, self.log_raw, !self.hmac_accessor);
        EntryFormat::new(mask, self.elide_list_responses)
    }
}
