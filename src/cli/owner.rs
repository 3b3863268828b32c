//! Whose an installation is. Root may write to every folder, and what it makes there the server of another user cannot
//! open.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use signet::config::{Config, SealKeySource, Store};
use signet::error::{Error, Kind, Result};
use signet::storage::backup;

use super::files::folder_of;

/// The users of this machine.
const USERS: &str = "/etc/passwd";

/// That this process is not root where the store of a configuration is somebody else's.
///
/// # Errors
/// `Forbidden` naming the user who may.
pub(super) fn require(config: &Config) -> Result<()> {
    match (&config.store, &config.seal_key) {
        (Store::Embedded(folder), _) => require_of_folder(folder),
        (Store::Database(_), SealKeySource::File(key)) => require_of(std::slice::from_ref(key)),
        (Store::Database(_), _) => Ok(()),
    }
}

/// As [`require`], also before anything of the installation exists: then the owner of its configuration's folder counts.
///
/// # Errors
/// `Forbidden` naming the user who may.
pub(super) fn require_to_make(config: &Config, file: &Path) -> Result<()> {
    require(config)?;
    match &config.store {
        Store::Embedded(data) if data.exists() => Ok(()),
        _ => require_of(&[folder_of(file).to_owned()]),
    }
}

/// That this process is not root where a data folder is somebody else's.
///
/// # Errors
/// `Forbidden` naming the user who may.
pub(super) fn require_of_folder(folder: &Path) -> Result<()> {
    require_of(&[backup::database(folder), folder.to_owned()])
}

/// The first of these that is there tells whose they are.
fn require_of(files: &[PathBuf]) -> Result<()> {
    let found = files.iter().find_map(|file| Some((file, std::fs::metadata(file).ok()?)));
    match found {
        Some((file, of)) if rustix::process::geteuid().is_root() && of.uid() != 0 => Err(of_another(file, &of)),
        _ => Ok(()),
    }
}

fn of_another(file: &Path, of: &Metadata) -> Error {
    let users = std::fs::read_to_string(USERS).unwrap_or_default();
    let run = match name_of(of.uid(), &users) {
        Some(name) => format!("runuser -u {name} -- signet …"),
        None => format!("setpriv --reuid {} --regid {} --clear-groups signet …", of.uid(), of.gid()),
    };
    let text = format!(
        "{}: belongs to another user, who could not open what root makes beside it; run this as that user: {run}",
        file.display()
    );
    Error::new(Kind::Forbidden, text)
}

/// What a user is called in the lines of `/etc/passwd`.
fn name_of(user: u32, users: &str) -> Option<&str> {
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
        assert_eq!((name_of(998, users), name_of(0, users)), (Some("signet"), Some("root")));
        assert_eq!((name_of(997, users), name_of(998, "signet:x")), (None, None));
    }
}
