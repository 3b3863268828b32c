//! The seal key: its location, and the format of a key file.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroize;

use crate::error::{Error, Kind, Result};
use crate::files;
use crate::keys::store::SealDevice;
use crate::secret::{PRIVATE_FILE_RULE, Secret};

const SEAL_KEY_BYTES: usize = 32;
/// Maximum size of a key file in bytes, more than any accepted format of a key needs.
const MAX_KEY_FILE_BYTES: u64 = 256;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The key that unseals a store: 32 bytes, or a key in a device. Its holder can read the whole store.
#[derive(Clone)]
pub struct SealKey {
    pub(super) location: SealKeyLocation,
    /// The file from which the key was read; `None` for a key from another source.
    file: Option<PathBuf>,
}

/// The location of a seal key.
#[derive(Clone)]
pub(super) enum SealKeyLocation {
    /// The bytes of the key are in memory.
    Memory(Secret),
    /// A device or service holds the key and uses it on request.
    Device(Arc<dyn SealDevice>),
}

/// The source of a seal key, from which it can be read again. For a file this is only the path, because the content may
/// change.
pub(crate) enum SealKeyOrigin {
    /// The path of a key file.
    File(PathBuf),
    /// A key from the environment or a device, which does not change.
    Fixed(SealKey),
}

impl SealKeyOrigin {
    /// Reads the seal key from its source again. Blocks for a file.
    ///
    /// # Errors
    /// As [`SealKey::from_file`].
    pub(crate) fn read(&self) -> Result<SealKey> {
        match self {
            Self::File(file) => SealKey::from_file(file),
            Self::Fixed(key) => Ok(key.clone()),
        }
    }
}

impl SealKey {
    /// Creates a random key.
    pub fn random() -> Self {
        let mut bytes: [u8; SEAL_KEY_BYTES] = crate::random::bytes();
        let key = Self::of_bytes(Secret::new(bytes));
        bytes.zeroize();
        key
    }

    /// Returns the seal key that a device or service holds.
    pub fn in_device(device: Arc<dyn SealDevice>) -> Self {
        Self { location: SealKeyLocation::Device(device), file: None }
    }

    fn of_bytes(bytes: Secret) -> Self {
        Self { location: SealKeyLocation::Memory(bytes), file: None }
    }

    /// Parses a key in text form: 64 hexadecimal digits, or base64 of 32 bytes.
    ///
    /// # Errors
    /// `Invalid` for anything else; the text never quotes the value.
    pub fn from_text(text: &str) -> Result<Self> {
        let text = text.trim();
        let bytes =
            if text.len() == 2 * SEAL_KEY_BYTES { decode_hex(text) } else { BASE64.decode(text).ok().map(Secret::new) };
        bytes
            .filter(|b| b.expose().len() == SEAL_KEY_BYTES)
            .map(Self::of_bytes)
            .ok_or_else(|| Error::invalid("seal key: must be 64 hexadecimal digits or base64 of 32 bytes"))
    }

    /// Reads a key file: 32 raw bytes, or a text that [`SealKey::from_text`] accepts.
    ///
    /// # Errors
    /// `Invalid` when it is [not private](crate::secret::is_private) or contains no key; `Unavailable` when it cannot
    /// be read.
    pub fn from_file(path: &Path) -> Result<Self> {
        let Some(content) = Secret::read_private_file(path, MAX_KEY_FILE_BYTES).map_err(|e| read_error(path, e))?
        else {
            return Err(Error::invalid(format!("seal key file {}: {PRIVATE_FILE_RULE}", path.display())));
        };
        let text = || std::str::from_utf8(content.expose()).ok().and_then(|text| Self::from_text(text).ok());
        let key = if content.expose().len() == SEAL_KEY_BYTES { Some(Self::of_bytes(content.clone())) } else { text() };
        key.map(|key| Self { file: Some(path.to_owned()), ..key }).ok_or_else(|| {
            Error::invalid(format!(
                "seal key file {}: must contain 64 hexadecimal digits, base64 of 32 bytes, or 32 raw bytes",
                path.display()
            ))
        })
    }

    /// Creates a random key and writes it in hexadecimal to a new file of mode 0600.
    ///
    /// # Errors
    /// `Conflict` when the file exists, because it is never overwritten; `Unavailable` when it cannot be written.
    pub fn create_file(path: &Path) -> Result<Self> {
        Self::create(path, None)
    }

    /// As [`SealKey::create_file`], but gives the new file the owner of another file.
    pub(super) fn create(path: &Path, owner: Option<&Metadata>) -> Result<Self> {
        let key = Self { file: Some(path.to_owned()), ..Self::random() };
        let mut text = Vec::with_capacity(2 * SEAL_KEY_BYTES + 1);
        for byte in key.bytes().map(Secret::expose).unwrap_or_default() {
            text.extend([byte >> 4, byte & 15].map(|n| b"0123456789abcdef"[usize::from(n)]));
        }
        text.push(b'\n');
        write_new(path, owner, Secret::new(text).expose())?;
        Ok(key)
    }

    /// Returns the bytes of the key; `None` for a key in a device.
    pub(crate) fn bytes(&self) -> Option<&Secret> {
        if let SealKeyLocation::Memory(bytes) = &self.location { Some(bytes) } else { None }
    }

    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the source from which the key can be read again.
    pub(crate) fn origin(&self) -> SealKeyOrigin {
        self.file.clone().map_or_else(|| SealKeyOrigin::Fixed(self.clone()), SealKeyOrigin::File)
    }
}

pub(super) fn read_error(path: &Path, error: io::Error) -> Error {
    Error::of_file("seal key file", path, "read", error).with_kind(Kind::Unavailable)
}

pub(super) fn file_error(path: &Path, action: &str, error: io::Error) -> Error {
    Error::of_io(format_args!("seal key file {}", path.display()), action, error)
}

/// Changes the owner of a new key file to that of the previous one (`owner`).
pub(super) fn change_owner(file: &File, path: &Path, owner: &Metadata) -> Result<()> {
    fchown(file, Some(owner.uid()), Some(owner.gid())).map_err(|e| {
        let text = format!(
            "seal key file {}: cannot change the owner to user {}, group {} (the owner of the previous key); run this \
             command as that user",
            path.display(),
            owner.uid(),
            owner.gid()
        );
        Error::unavailable(text, e)
    })
}

/// Writes a new file of mode 0600 and syncs it; removes it on failure.
pub(super) fn write_new(path: &Path, owner: Option<&Metadata>, content: &[u8]) -> Result<()> {
    write_new_with(path, owner, |file| files::write_synced(file, &[content]))
}

fn write_new_with(path: &Path, owner: Option<&Metadata>, write: impl FnOnce(&File) -> io::Result<()>) -> Result<()> {
    let file = files::create_new(path, 0o600).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Error::file_exists(format_args!("seal key file {}", path.display())),
        _ => file_error(path, "written", e),
    })?;
    let owner_changed = owner.map_or(Ok(()), |owner| change_owner(&file, path, owner));
    let written = owner_changed.and_then(|()| {
        // The folder is synced as well. Otherwise a power failure could lose the file with the only key of a store.
        write(&file).and_then(|()| files::sync_folder(path)).map_err(|e| file_error(path, "written", e))
    });
    if written.is_err() {
        // An incomplete file is removed. Otherwise it would block the next attempt, because no file is ever
        // overwritten.
        let _ = std::fs::remove_file(path);
    }
    written
}

fn decode_hex(text: &str) -> Option<Secret> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    let mut bytes = Vec::with_capacity(text.len() / 2);
    for pair in text.as_bytes().chunks_exact(2) {
        bytes.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Some(Secret::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn bytes(key: &SealKey) -> &[u8] {
        key.bytes().unwrap().expose()
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn created_key_file_is_0600_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.key");
        let key = SealKey::create_file(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(bytes(&SealKey::from_file(&path).unwrap()) == bytes(&key));
        assert_eq!(SealKey::create_file(&path).err().unwrap().kind(), Kind::Conflict);
        assert!(bytes(&SealKey::from_file(&path).unwrap()) == bytes(&key));
    }

    #[test]
    fn partially_written_key_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.key");
        let full = |file: &File| files::write_synced(file, &[b"5a5a"]).and(Err(ErrorKind::StorageFull.into()));
        assert_eq!(write_new_with(&path, None, full).unwrap_err().kind(), Kind::Unavailable);
        assert!(!path.exists());
        SealKey::create_file(&path).unwrap();
        assert_eq!(write_new_with(&path, None, full).unwrap_err().kind(), Kind::Conflict);
        assert!(SealKey::from_file(&path).is_ok());
    }

    #[test]
    fn missing_key_file_or_folder_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("seal.key");
        let refused = |made: Result<SealKey>| made.err().unwrap().to_string();
        let text = refused(SealKey::from_file(&file));
        assert!(text.starts_with("seal key file: file does not exist: "), "{text}");
        let text = refused(SealKey::create_file(&file.join("seal.key")));
        assert!(text.ends_with("seal.key: cannot be written (no such file or folder)"), "{text}");
    }

    #[test]
    fn key_file_accessible_to_group_or_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.key");
        SealKey::create_file(&path).unwrap();
        for mode in [0o604, 0o620, 0o610, 0o601] {
            set_mode(&path, mode);
            assert_eq!(SealKey::from_file(&path).err().unwrap().kind(), Kind::Invalid, "{mode:o}");
        }
        set_mode(&path, 0o400);
        assert!(SealKey::from_file(&path).is_ok());
        // The file may belong to root and be readable for the group of the service.
        set_mode(&path, 0o440);
        let is_of_root = std::fs::metadata(&path).unwrap().uid() == 0;
        assert_eq!(SealKey::from_file(&path).is_ok(), is_of_root);
    }

    #[test]
    fn hex_base64_and_raw_bytes_are_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k");
        let raw = [0xfb; 32];
        let base64 = base64::engine::general_purpose::STANDARD.encode(raw);
        for content in
            [vec![0xfb; 32], "fB".repeat(32).into_bytes(), base64.clone().into_bytes(), format!("{base64}\n").into()]
        {
            std::fs::write(&path, content).unwrap();
            set_mode(&path, 0o600);
            assert!(bytes(&SealKey::from_file(&path).unwrap()) == raw);
        }
        assert!(bytes(&SealKey::from_text(base64.trim_end_matches('=')).unwrap()) == raw);
    }

    #[test]
    fn key_source_rereads_a_file_and_retains_a_key_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.key");
        let made = SealKey::create_file(&path).unwrap();
        let given = SealKey::random();
        let sources = [made.origin(), SealKey::from_file(&path).unwrap().origin()];
        std::fs::write(&path, [7; 32]).unwrap();
        for source in sources {
            assert!(bytes(&source.read().unwrap()) == [7; 32]);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(made.origin().read().err().unwrap().kind(), Kind::Unavailable);
        assert!(bytes(&given.origin().read().unwrap()) == bytes(&given));
    }

    #[test]
    fn invalid_key_text_is_rejected_without_being_quoted() {
        for text in ["", "abc", &"zz".repeat(32), &"ab".repeat(31), &"ab".repeat(33), "+f".repeat(32).as_str()] {
            let error = SealKey::from_text(text).err().unwrap();
            assert!(text.is_empty() || !error.to_string().contains(text));
        }
    }

    proptest! {
        #[test]
        fn key_text_of_any_content_does_not_panic(text in "\\PC{0,80}") {
            let _ = SealKey::from_text(&text);
        }

        #[test]
        fn every_key_reads_back_from_hex(raw in proptest::array::uniform32(any::<u8>())) {
            let text: String = raw.iter().map(|b| format!("{b:02x}")).collect();
            prop_assert!(bytes(&SealKey::from_text(&text).unwrap()) == raw);
        }
    }
}
