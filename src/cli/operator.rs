//! `signet operator`: what an operator does with an installation. `init` is here, the other words in files of their
//! own.
//!
//! `signet operator init` makes the first root token of an installation, once. It works on the store of a server that
//! does not run. A new installation that has no seal key yet gets one; over data that is there already no key is ever
//! made.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use signet::auth::Auth;
use signet::clock::Clock;
use signet::config::{Config, SealKeySource, Store};
use signet::error::{Error, Kind, Result, io_words};
use signet::server::operator::{FIRST, ROOT_NAME};
use signet::storage::seal::SealKey;
use signet::storage::{self, Absent, Storage};

use super::failure::Failure;
use super::installation::{closed, prepared, storage_options};
use super::{backup, copy_store, owner, root_token, seal, user_token, verify_backup};

/// What to do with the first root token.
const AFTERWARDS: &str = "\
This root token is shown once. It may do everything and never ends, so revoke it when it has made an administrator:
  1. a policy with the rights of daily work:     POST /v1/sys/policies/acl/admin
  2. a token without a parent that has it:       POST /v1/auth/token/create-orphan
         {\"policies\": \"admin\", \"period\": \"768h\"}, renewed by auth/token/renew-self before it ends
  3. then, and not before, the end of this one:  POST /v1/auth/token/revoke-self
A token that auth/token/create makes is a child of its maker and is revoked with it.
Who has the seal key gets another root token at any time: signet operator new-root-token.";

/// The words of `signet operator`.
#[derive(Subcommand)]
pub(crate) enum Word {
    /// Make the first root token and print it, once. The server must not run. A new installation
    /// without a seal key gets a key file.
    Init(Arguments),
    /// Make another root token and print it, for who has the seal key. A server may run or not.
    NewRootToken(root_token::Arguments),
    /// Make a token of the projects API for a user, such as one who was invited, and print it, for who has the seal key.
    /// A server may run or not.
    NewUserToken(user_token::Arguments),
    /// Say by what the store is sealed, and how much its data keys are in use. The server of an embedded store must
    /// not run.
    SealStatus(seal::Status),
    /// Give the store another seal key, or move it to another seal. The server of an embedded store must not run;
    /// nodes on PostgreSQL may.
    RotateSealKey(seal::Rotate),
    /// Copy the embedded store to a file, whether the server runs or not.
    Backup(backup::Backup),
    /// Look through a copy, or a restored database: whether it is whole, opens, and agrees with itself.
    VerifyBackup(verify_backup::Arguments),
    /// Put a copy into a data folder that has no store. The server must not run.
    Restore(backup::Restore),
    /// Tell a store that it was restored by other means than `restore`, or an embedded one that it goes on after
    /// `copy-store`. No server may run on it, and it refuses where one does.
    AfterRestore(backup::AfterRestore),
    /// Copy the embedded store into an empty PostgreSQL database. No server starts on the store itself afterwards.
    CopyStore(copy_store::Arguments),
}

/// The arguments of `signet operator init`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs one word.
pub(crate) fn run(word: &Word) -> Result<(), Failure> {
    match word {
        Word::Init(arguments) => {
            let config = prepared(&arguments.config)?;
            owner::require(&config)?;
            actix_rt::System::new().block_on(init(&config))?;
        }
        Word::NewRootToken(arguments) => root_token::run(arguments)?,
        Word::NewUserToken(arguments) => user_token::run(arguments)?,
        Word::SealStatus(arguments) => seal::status(arguments)?,
        Word::RotateSealKey(arguments) => seal::rotate(arguments)?,
        Word::Backup(arguments) => backup::backup(arguments)?,
        Word::VerifyBackup(arguments) => verify_backup::run(arguments)?,
        Word::Restore(arguments) => backup::restore(arguments)?,
        Word::AfterRestore(arguments) => backup::after_restore(arguments)?,
        Word::CopyStore(arguments) => copy_store::run(arguments)?,
    }
    Ok(())
}

async fn init(config: &Config) -> Result<()> {
    let new_key = make_seal_key(config)?;
    let storage = match storage::open(storage_options(config, Clock::system(), Absent::Made)?).await {
        Ok(storage) => storage,
        Err(error) => {
            // The database has data under another key: the new one is of no use to anybody.
            if let (Some(file), Store::Database(_), Kind::Invalid) = (&new_key, &config.store, error.kind()) {
                let _ = std::fs::remove_file(file);
            }
            return Err(error);
        }
    };
    let shown = first_token(&storage, config, |token| show(token, new_key.as_deref())).await;
    closed(&storage, shown).await
}

/// Prints the first token, which nobody has when this fails, and where the new seal key is.
fn show(token: &str, new_key: Option<&Path>) -> Result<()> {
    let key = new_key.map_or_else(String::new, |file| {
        let rule = "Keep a copy of it away from the data: without it nothing can be read.";
        format!("seal key: {}\n{rule}\n\n", file.display())
    });
    root_token::print(
        &json!({ "token": token, "seal_key_file": new_key }),
        &format!("{key}token: {token}\n{AFTERWARDS}"),
    )
}

async fn first_token(storage: &Storage, config: &Config, show: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let auth = Auth::open(storage.auth(), Clock::system()).await?;
    if auth.has_root_token(ROOT_NAME).await? {
        return Err(Error::new(
            Kind::Conflict,
            "the first root token was made before, and init makes no second one: signet operator new-root-token does",
        ));
    }
    root_token::hand_out(storage, &auth, config, FIRST, show).await
}

/// Makes the seal key's file when there is none and the data folder is new or empty; whether a database
/// is new shows when it is opened.
///
/// # Errors
/// `Invalid` when there is none and the data folder is in use already; `Conflict` and `Unavailable` from the file.
pub(super) fn make_seal_key(config: &Config) -> Result<Option<PathBuf>> {
    let SealKeySource::File(file) = &config.seal_key else { return Ok(None) };
    let folder = match &config.store {
        Store::Embedded(folder) => folder,
        Store::Database(_) if file.exists() => return Ok(None),
        Store::Database(_) => {
            SealKey::create_file(file)?;
            return Ok(Some(file.clone()));
        }
    };
    if file.exists() {
        return Ok(None);
    }
    if !is_new(folder)? {
        return Err(no_key_for(file, folder));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| {
        Error::unavailable(format!("data_dir: {} cannot be made ({})", folder.display(), io_words(e.kind())), e)
    })?;
    SealKey::create_file(file)?;
    Ok(Some(file.clone()))
}

/// Why no seal key is made, and what is to be done.
fn no_key_for(file: &Path, folder: &Path) -> Error {
    let has_store = storage::backup::database(folder).exists();
    let (file, folder) = (file.display(), folder.display());
    Error::invalid(match has_store {
        true => format!(
            "seal_key_file: file does not exist: {file}. {folder} has a store, which no new key opens: put back the key \
             that the store was made with"
        ),
        false => format!(
            "seal_key_file: file does not exist: {file}. {folder} is not empty: a key is only made for a new \
             installation. Put the key back, or let data_dir name an empty folder"
        ),
    })
}

fn is_new(folder: &Path) -> Result<bool> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(Error::unavailable(
            format!("data_dir: {} cannot be read ({})", folder.display(), io_words(e.kind())),
            e,
        )),
    }
}
