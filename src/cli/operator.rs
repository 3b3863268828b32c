//! `signet operator`: administration of an installation. This module contains `init`; the other commands have their own
//! modules.
//!
//! `signet operator init` creates the first root token of an installation, once. The server must not run. A new
//! installation without a seal key gets one; a key is never created for existing data.

use std::path::{Path, PathBuf};

use crate::auth::Auth;
use crate::clock::Clock;
use crate::config::{Config, SealKeySource, StoreLocation};
use crate::error::{Error, Kind, Result};
use crate::server::operator::{FIRST_ROOT_TOKEN_PATH, ROOT_TOKEN_NAME};
use crate::storage::seal::SealKey;
use crate::storage::{self, IfMissing, Storage};
use clap::Subcommand;
use serde_json::json;

use super::failure::CommandFailure;
use super::files::create_folder;
use super::installation::{ConfigFileArgument, close_store, load_as_owner, storage_options};
use super::{backup, copy_store, root_token, seal, user_token, verify_backup};

const ROOT_TOKEN_ADVICE: &str = "\
This root token is shown once. It has all rights and never expires, so create an administrator and revoke it:
  1. Create a policy for daily work:               POST /v1/sys/policies/acl/admin
  2. Create a token without a parent that has it:  POST /v1/auth/token/create-orphan
         {\"policies\": \"admin\", \"period\": \"768h\"}; renew it with auth/token/renew-self before it expires
  3. Only then revoke this root token:             POST /v1/auth/token/revoke-self
A token from auth/token/create is a child of the token that created it and is revoked with it.
With the seal key you can create another root token at any time: signet operator new-root-token --config FILE";

/// The commands of `signet operator`.
#[derive(Subcommand)]
pub(crate) enum OperatorSubcommand {
    /// Create the first root token and print it, once. The server must not run. A new installation without a seal
    /// key gets a key file.
    Init(ConfigFileArgument),
    /// Create another root token and print it. Needs the seal key; the server may be running or stopped.
    NewRootToken(root_token::RootTokenArguments),
    /// Create a token of the projects API for a user, such as an invited one, and print it. Needs the seal key; the
    /// server may be running or stopped.
    NewUserToken(user_token::UserTokenArguments),
    /// Show the seal of the store, and how much its data keys are used. The server of an embedded store must not run.
    SealStatus(ConfigFileArgument),
    /// Change the seal key of the store, or move it to another seal. The server of an embedded store must not run;
    /// nodes on PostgreSQL may.
    RotateSealKey(seal::RotateSealKeyArguments),
    /// Copy the embedded store to a file. The server may be running or stopped.
    Backup(backup::BackupArguments),
    /// Verify a copy, or a restored database: that it is intact, opens, and is consistent.
    VerifyBackup(verify_backup::VerifyBackupArguments),
    /// Restore a copy into a data folder that has no store. The server must not run.
    Restore(backup::RestoreArguments),
    /// Mark a store as restored by other means than `restore`, or an embedded one as in use again after `copy-store`.
    /// Fails while a server runs on it.
    AfterRestore(backup::AfterRestoreArguments),
    /// Copy the embedded store into an empty PostgreSQL database. No server starts on the original store afterwards.
    CopyStore(copy_store::CopyStoreArguments),
}

pub(crate) fn run(subcommand: &OperatorSubcommand) -> Result<(), CommandFailure> {
    match subcommand {
        OperatorSubcommand::Init(config) => {
            let config = load_as_owner(&config.file)?;
            actix_rt::System::new().block_on(init(&config))?;
        }
        OperatorSubcommand::NewRootToken(arguments) => root_token::run(arguments)?,
        OperatorSubcommand::NewUserToken(arguments) => user_token::run(arguments)?,
        OperatorSubcommand::SealStatus(arguments) => seal::status(arguments)?,
        OperatorSubcommand::RotateSealKey(arguments) => seal::rotate(arguments)?,
        OperatorSubcommand::Backup(arguments) => backup::backup(arguments)?,
        OperatorSubcommand::VerifyBackup(arguments) => verify_backup::run(arguments)?,
        OperatorSubcommand::Restore(arguments) => backup::restore(arguments)?,
        OperatorSubcommand::AfterRestore(arguments) => backup::after_restore(arguments)?,
        OperatorSubcommand::CopyStore(arguments) => copy_store::run(arguments)?,
    }
    Ok(())
}

async fn init(config: &Config) -> Result<()> {
    let new_key = create_seal_key(config)?;
    let storage = match storage::open(storage_options(config, Clock::system(), IfMissing::Create)?).await {
        Ok(storage) => storage,
        Err(error) => {
            // The error means that the database already has data that another key seals. The new key is useless, so
            // remove it.
            if let (Some(file), StoreLocation::Database(_), Kind::Invalid) = (&new_key, &config.store, error.kind()) {
                let _ = std::fs::remove_file(file);
            }
            return Err(error);
        }
    };
    let shown = create_first_token(&storage, config, |token| print_first_token(token, new_key.as_deref())).await;
    close_store(&storage, shown).await
}

fn print_first_token(token: &str, new_key: Option<&Path>) -> Result<()> {
    let key = new_key.map_or_else(String::new, |file| {
        let rule = "Keep a copy of it away from the data: without it nothing can be read.";
        format!("seal key: {}\n{rule}\n\n", file.display())
    });
    root_token::print_root_token(
        &json!({ "token": token, "seal_key_file": new_key }),
        &format!("{key}token: {token}\n{ROOT_TOKEN_ADVICE}"),
    )
}

async fn create_first_token(storage: &Storage, config: &Config, show: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let auth = Auth::open(storage.auth(), Clock::system()).await?;
    if auth.has_root_token(ROOT_TOKEN_NAME).await? {
        return Err(Error::new(
            Kind::Conflict,
            "the first root token exists already, and init creates only that one; create another with signet operator \
             new-root-token --config FILE",
        ));
    }
    root_token::issue_and_show(storage, &auth, config, FIRST_ROOT_TOKEN_PATH, show).await
}

/// Creates the seal key file if it is missing and the data folder is missing or empty. For a database, always creates a
/// missing file, because only opening the database shows whether it is new. Returns the path of a created file.
///
/// # Errors
/// `Invalid` when the file is missing but the data folder is not empty; `Conflict` and `Unavailable` when the file
/// cannot be created.
pub(super) fn create_seal_key(config: &Config) -> Result<Option<PathBuf>> {
    let SealKeySource::File(file) = &config.seal_key else { return Ok(None) };
    let folder = match &config.store {
        StoreLocation::Embedded(folder) => folder,
        StoreLocation::Database(_) if file.exists() => return Ok(None),
        StoreLocation::Database(_) => {
            SealKey::create_file(file)?;
            return Ok(Some(file.clone()));
        }
    };
    if file.exists() {
        return Ok(None);
    }
    if !is_missing_or_empty(folder)? {
        return Err(missing_key_error(file, folder));
    }
    create_folder(format_args!("data_dir: {}", folder.display()), folder, 0o700)?;
    SealKey::create_file(file)?;
    Ok(Some(file.clone()))
}

fn missing_key_error(file: &Path, folder: &Path) -> Error {
    let has_store = storage::backup::database_path(folder).exists();
    let file = file.display();
    let folder = folder.display();
    Error::invalid(match has_store {
        true => format!(
            "seal_key_file: file does not exist: {file}. {folder} has a store, which only its own key opens: restore \
             the key with which the store was created"
        ),
        false => format!(
            "seal_key_file: file does not exist: {file}. {folder} is not empty: a key is only created for a new \
             installation. Restore the key, or set data_dir to an empty folder"
        ),
    })
}

fn is_missing_or_empty(folder: &Path) -> Result<bool> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(Error::of_io(format_args!("data_dir: {}", folder.display()), "read", e)),
    }
}
