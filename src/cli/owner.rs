//! Checks that a command runs as the owner of an installation. Root can write to every folder, but a server that runs
//! as another user could not open the files that root creates.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::config::{Config, SealKeySource, StoreLocation};
use crate::error::{Error, Kind, Result};
use crate::storage::backup;
use crate::users;

use super::files::folder_of;

/// Fails if root runs this process and the store of a configuration belongs to another user.
///
/// # Errors
/// `Forbidden`, with the user who may run the command.
pub(super) fn require_owner(config: &Config) -> Result<()> {
    require_owner_of(&owned_files(config))
}

/// If root runs this process and the store belongs to another user, returns the prefix of a command line that runs a
/// command as that user, such as `runuser -u signet --`.
pub(super) fn prefix_for_owner(config: &Config) -> Option<String> {
    first_file_of_other_owner(&owned_files(config)).map(|(_, found)| command_prefix(&found))
}

/// As [`require_owner`]. If the data folder does not exist yet, or the store is a database, also fails if the folder of
/// the configuration file belongs to another user.
///
/// # Errors
/// Those of [`require_owner`].
pub(super) fn require_owner_for_setup(config: &Config, file: &Path) -> Result<()> {
    require_owner(config)?;
    match &config.store {
        StoreLocation::Embedded(data) if data.exists() => Ok(()),
        _ => require_owner_of(&[folder_of(file).to_owned()]),
    }
}

/// Fails if root runs this process and a data folder belongs to another user.
///
/// # Errors
/// Those of [`require_owner`].
pub(super) fn require_folder_owner(folder: &Path) -> Result<()> {
    require_owner_of(&data_files(folder))
}

/// As [`require_folder_owner`]. If the data folder does not exist yet, fails if the seal key file or the parent folder
/// belongs to another user.
///
/// # Errors
/// Those of [`require_owner`].
pub(super) fn require_owner_for_restore(folder: &Path, seal_key: Option<&Path>) -> Result<()> {
    if folder.exists() {
        return require_folder_owner(folder);
    }
    require_owner_of(seal_key.map(Path::to_path_buf).as_slice())?;
    require_owner_of(&[folder_of(folder).to_owned()])
}

/// Returns the files whose owner is the owner of the installation. The first file that exists counts.
fn owned_files(config: &Config) -> Vec<PathBuf> {
    match (&config.store, &config.seal_key) {
        (StoreLocation::Embedded(folder), _) => data_files(folder).to_vec(),
        (StoreLocation::Database(_), SealKeySource::File(key)) => vec![key.clone()],
        (StoreLocation::Database(_), _) => Vec::new(),
    }
}

fn data_files(folder: &Path) -> [PathBuf; 2] {
    [backup::database_path(folder), folder.to_owned()]
}

fn require_owner_of(files: &[PathBuf]) -> Result<()> {
    let Some((file, found)) = first_file_of_other_owner(files) else { return Ok(()) };
    let text = format!(
        "{}: belongs to another user, who could not read files that root creates there; run this command as \
         that user: {} signet …",
        file.display(),
        command_prefix(&found)
    );
    Err(Error::new(Kind::Forbidden, text))
}

/// Returns the first of the files that exists, with its metadata, if root runs this process and the file belongs to
/// another user.
fn first_file_of_other_owner(files: &[PathBuf]) -> Option<(&Path, Metadata)> {
    let (file, found) = files.iter().find_map(|file| Some((file, std::fs::metadata(file).ok()?)))?;
    (rustix::process::geteuid().is_root() && found.uid() != 0).then_some((file.as_path(), found))
}

fn command_prefix(owned: &Metadata) -> String {
    match users::find_name(owned.uid()) {
        Some(name) => format!("runuser -u {name} --"),
        None => format!("setpriv --reuid {} --regid {} --clear-groups", owned.uid(), owned.gid()),
    }
}
