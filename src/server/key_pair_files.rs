//! Replaces a TLS key and certificate in two files.
//!
//! Both new versions are written to `.new` files and then renamed, first the key, then the certificate. A crash between
//! the two renames leaves the new key with the old certificate; [`finish_interrupted`] then renames the new
//! certificate. Readers never see a partial file.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::config::TlsFiles;
use crate::error::{Error, Result};
use crate::files::{self, folder_of};

const KEY_SETTING: &str = "tls_key_file";
const CERTIFICATE_SETTING: &str = "tls_certificate_file";

#[derive(Clone, Copy)]
pub(super) struct KeyPairContents<'p> {
    pub(super) certificate: &'p [u8],
    pub(super) key: &'p [u8],
}

/// Replaces the key file and the certificate file. The new key is readable only by the owner, the certificate by all
/// users.
///
/// # Errors
/// As [`require_distinct_files`]; `Unavailable`, with the setting and the file, when a file cannot be written. The old
/// files stay then, except if only the rename of the certificate failed.
pub(super) fn replace(files: &TlsFiles, pair: KeyPairContents<'_>) -> Result<()> {
    require_distinct_files(files)?;
    write_new_version(KEY_SETTING, &files.key, pair.key, 0o600)?;
    write_new_version(CERTIFICATE_SETTING, &files.certificate, pair.certificate, 0o644)?;
    publish(KEY_SETTING, &files.key)?;
    publish(CERTIFICATE_SETTING, &files.certificate)
}

/// Fails if the key file or its `.new` file is the same file as the certificate file or its `.new` file, because one
/// would overwrite the other.
///
/// # Errors
/// `Invalid`, with the setting and the file.
pub(super) fn require_distinct_files(files: &TlsFiles) -> Result<()> {
    let of = |file: &Path| std::fs::metadata(file).map(|found| (found.dev(), found.ino())).ok();
    let location = |file: &Path| (of(folder_of(file)), file.file_name().map(OsString::from));
    let [key, certificate] =
        [&files.key, &files.certificate].map(|file| [location(file), location(&sibling_path(file))]);
    let is_one = of(&files.key).is_some() && of(&files.key) == of(&files.certificate);
    if is_one || key.iter().any(|location| certificate.contains(location)) {
        let text = "must not be the certificate file or its .new file";
        return Err(Error::invalid(format!("tls_key_file: {}: {text}", files.key.display())));
    }
    Ok(())
}

/// Writes the key file and the certificate file, which must not exist yet.
///
/// # Errors
/// `Conflict` when one of the files exists; those of [`replace`].
pub(super) fn create(files: &TlsFiles, pair: KeyPairContents<'_>) -> Result<()> {
    check_absent(files)?;
    replace(files, pair)
}

/// Fails if the key file or the certificate file exists.
///
/// # Errors
/// `Conflict`, with the file that exists.
pub(super) fn check_absent(files: &TlsFiles) -> Result<()> {
    for file in [&files.key, &files.certificate] {
        if file.exists() {
            return Err(Error::file_exists(file.display()));
        }
    }
    Ok(())
}

/// Completes an interrupted [`replace`]: renames the `.new` file of the certificate. Returns `false` if there is
/// nothing to complete.
///
/// # Errors
/// `Unavailable` when the file cannot be renamed.
pub(super) fn finish_interrupted(files: &TlsFiles) -> Result<bool> {
    if !sibling_path(&files.certificate).exists() || sibling_path(&files.key).exists() {
        return Ok(false);
    }
    publish(CERTIFICATE_SETTING, &files.certificate).map(|()| true)
}

fn write_error(setting: &str, file: &Path, e: std::io::Error) -> Error {
    Error::of_io(format_args!("{setting}: {}", file.display()), "written", e)
}

fn sibling_path(file: &Path) -> PathBuf {
    files::append_suffix(file, ".new")
}

/// Writes the `.new` file of `file`. Replaces one that an earlier attempt has left.
fn write_new_version(setting: &str, file: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let new = sibling_path(file);
    let created = files::remove_if_exists(&new).and_then(|()| files::create_new(&new, mode));
    created.and_then(|new| files::write_synced(&new, &[bytes])).map_err(|e| write_error(setting, file, e))
}

/// Renames the `.new` file of `file` to `file`.
fn publish(setting: &str, file: &Path) -> Result<()> {
    files::replace(&sibling_path(file), file).map_err(|e| write_error(setting, file, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn key_pair_replacement_is_atomic_and_finished_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: folder.path().join("c.pem"), key: folder.path().join("k.pem") };
        let pair = |certificate: &'static str, key: &'static str| KeyPairContents {
            certificate: certificate.as_bytes(),
            key: key.as_bytes(),
        };
        let read = || [&files.certificate, &files.key].map(|file| std::fs::read_to_string(file).unwrap());
        create(&files, pair("c1", "k1")).unwrap();
        assert_eq!(read(), ["c1", "k1"]);
        assert!(create(&files, pair("c9", "k9")).unwrap_err().text().contains("never overwritten"));
        replace(&files, pair("c2", "k2")).unwrap();
        assert_eq!(read(), ["c2", "k2"]);
        let mode = |file: &Path| std::fs::metadata(file).unwrap().mode() & 0o777;
        assert_eq!((mode(&files.key), mode(&files.certificate)), (0o600, 0o644));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
        assert!(!finish_interrupted(&files).unwrap());
        // After a crash before the first rename, the old pair is still in place, and the next replacement succeeds.
        std::fs::write(sibling_path(&files.key), "k3").unwrap();
        std::fs::write(sibling_path(&files.certificate), "c3").unwrap();
        assert!(!finish_interrupted(&files).unwrap());
        assert_eq!(read(), ["c2", "k2"]);
        // After a crash between the two renames, `finish_interrupted` completes the replacement.
        publish(KEY_SETTING, &files.key).unwrap();
        assert!(finish_interrupted(&files).unwrap());
        assert_eq!(read(), ["c3", "k3"]);
        let nowhere = TlsFiles { certificate: folder.path().join("no/c.pem"), key: folder.path().join("no/k.pem") };
        let error = replace(&nowhere, pair("c", "k")).unwrap_err();
        assert!(error.text().starts_with("tls_key_file: "), "{error}");
    }
    #[test]
    fn key_and_certificate_with_the_same_path_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::os::unix::fs::symlink("real", at("way")).unwrap();
        std::fs::write(at("real/both.pem"), "both").unwrap();
        std::fs::hard_link(at("real/both.pem"), at("second.pem")).unwrap();
        let pair = KeyPairContents { certificate: b"certificate", key: b"key" };
        for [certificate, key] in [
            ["real/both.pem", "real/both.pem"],
            ["real/both.pem", "way/both.pem"],
            ["real/both.pem", "second.pem"],
            ["real/new.pem", "way/new.pem"],
            ["a.pem", "a.pem.new"],
            ["a.pem.new", "a.pem"],
        ] {
            let refused = replace(&TlsFiles { certificate: at(certificate), key: at(key) }, pair).unwrap_err();
            assert_eq!(refused.kind(), Kind::Invalid, "{certificate} {key}: {refused}");
            assert!(refused.text().starts_with("tls_key_file: "), "{refused}");
        }
        assert_eq!(std::fs::read(at("real/both.pem")).unwrap(), b"both");
        assert_eq!(std::fs::read_dir(at("real")).unwrap().count(), 1);
        replace(&TlsFiles { certificate: at("real/a.pem"), key: at("a.pem") }, pair).unwrap();
    }
}
