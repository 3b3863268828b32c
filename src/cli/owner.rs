//! Ownership of an installation. Root can write to every folder, but a server of another user cannot open the
//! files that root creates.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use signet::config::{Config, SealKeySource, StoreLocation};
use signet::error::{Error, Kind, Result};
use signet::storage::backup;

use super::files::folder_of;

const PASSWD_FILE: &str = "/etc/passwd";

/// Rejects root if the store of a configuration belongs to another user.
///
/// # Errors
/// `Forbidden`, with the user who may run the command.
pub(super) fn require_owner(config: &Config) -> Result<()> {
    match (&config.store, &config.seal_key) {
        (StoreLocation::Embedded(folder), _) => require_folder_owner(folder),
        (StoreLocation::Database(_), SealKeySource::File(key)) => require_owner_of(std::slice::from_ref(key)),
        (StoreLocation::Database(_), _) => Ok(()),
    }
}

/// As [`require_owner`], also for a new installation: then the owner of the configuration's folder counts.
///
/// # Errors
/// As [`require_owner`].
pub(super) fn require_owner_for_setup(config: &Config, file: &Path) -> Result<()> {
    require_owner(config)?;
    match &config.store {
        StoreLocation::Embedded(data) if data.exists() => Ok(()),
        _ => require_owner_of(&[folder_of(file).to_owned()]),
    }
}

/// Rejects root if a data folder belongs to another user.
///
/// # Errors
/// As [`require_owner`].
pub(super) fn require_folder_owner(folder: &Path) -> Result<()> {
    require_owner_of(&[backup::database_path(folder), folder.to_owned()])
}

/// The first existing file determines the owner.
fn require_owner_of(files: &[PathBuf]) -> Result<()> {
    let found = files.iter().find_map(|file| Some((file, std::fs::metadata(file).ok()?)));
    match found {
        Some((file, of)) if rustix::process::geteuid().is_root() && of.uid() != 0 => Err(wrong_owner_error(file, &of)),
        _ => Ok(()),
    }
}

fn wrong_owner_error(file: &Path, of: &Metadata) -> Error {
    let users = std::fs::read_to_string(PASSWD_FILE).unwrap_or_default();
    let run = match find_user_name(of.uid(), &users) {
        Some(name) => format!("runuser -u {name} -- signet …"),
        None => format!("setpriv --reuid {} --regid {} --clear-groups signet …", of.uid(), of.gid()),
    };
    let text = format!(
        "{}: belongs to another user, who could not read files that root creates there; run this as that user: {run}",
        file.display()
    );
    Error::new(Kind::Forbidden, text)
}

/// Finds the name of a user in the lines of `/etc/passwd`.
fn find_user_name(user: u32, users: &str) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(user)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_called_as_the_machine_says() {
        let users = "root:x:0:0:root:/root:/bin/bash\n\nsignet:x:998:997::/var/lib/signet:/usr/sbin/nologin\n";
        assert_eq!((find_user_name(998, users), find_user_name(0, users)), (Some("signet"), Some("root")));
        assert_eq!((find_user_name(997, users), find_user_name(998, "signet:x")), (None, None));
    }
}
