//! `signet operator seal-status` and `rotate-seal-key`: shows and changes the seal of a store.
//!
//! Both commands open the store. The server of an embedded store must be stopped. Nodes on a PostgreSQL database may
//! run and continue to work. They need the new seal when they start again, or if they lose the connection to the
//! database during the change.

use std::path::{Path, PathBuf};

use crate::clock::{Clock, format_rfc3339};
use crate::config::{self, Config, SealKeySource};
use crate::error::{Error, Kind, Result};
use crate::storage::seal::{SealInfo, SealKey, SealKeyReplacement};
use crate::storage::{self, IfMissing, Storage};
use serde_json::json;

use super::installation::{ConfigFileArgument, close_store, load_as_owner, seal_key, storage_options};
use super::output;

#[derive(clap::Args)]
pub(crate) struct RotateSealKeyArguments {
    /// Configuration file with the current seal of the store, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Configuration file of the same store with the new seal. Its environment variables are
    /// SIGNET_NEW_SEAL_KEY and so on. Without this argument, a key file is replaced by a new key, or the key in
    /// the device wraps the store's keys again.
    #[arg(long, value_name = "NEW")]
    to: Option<PathBuf>,
}

/// Prints the seal, the age and use of the current data key, and the number of values that are still encrypted with
/// earlier data keys.
pub(crate) fn status(arguments: &ConfigFileArgument) -> Result<()> {
    let config = load_as_owner(&arguments.file)?;
    actix_rt::System::new().block_on(async {
        let storage = storage::open(storage_options(&config, Clock::system(), IfMissing::Fail)?).await?;
        close_store(&storage, print_status(&storage).await).await
    })
}

async fn print_status(storage: &Storage) -> Result<()> {
    let seal = storage.seal_status().await?;
    let keyring = storage.keyring();
    // Adds this process's number of encryptions to the stored total, and loads the numbers of other nodes.
    keyring.record_use().await?;
    let key = keyring.status().await?;
    let older = storage.count_old_values().await?;
    let since = seal.since.map(format_rfc3339);
    let object = json!({
        "seal_type": seal.kind.to_string(),
        "seal_key": seal.key.to_string(),
        "mechanism": seal.mechanism.to_string(),
        "sealed_since": since,
        "data_key_term": key.term,
        "data_key_created": format_rfc3339(key.created_at),
        "encryptions": key.sealed,
        "left_to_reseal": older,
    });
    let lines = [
        format!("seal type:      {}", seal.kind),
        format!("seal key:       {} ({})", seal.key, seal.mechanism),
        format!("sealed since:   {}", since.as_deref().unwrap_or("the store was created")),
        format!("data key term:  {}", key.term),
        format!("data key since: {}", format_rfc3339(key.created_at)),
        format!("encryptions:    {}", key.sealed),
        format!("left to re-seal: {older}"),
    ];
    output::write_result(&object, lines.join("\n")).map_err(output::stdout_error)
}

pub(crate) fn rotate(arguments: &RotateSealKeyArguments) -> Result<()> {
    let config = load_as_owner(&arguments.config)?;
    let new = arguments.to.as_deref().map(config::load_new).transpose()?;
    if new.as_ref().is_some_and(|new| new.store != config.store) {
        return Err(Error::invalid("--to: must have the same store as --config; only the seal may differ"));
    }
    actix_rt::System::new().block_on(async {
        match (&new, &config.seal_key) {
            (Some(new), _) => move_to_config(&config, new).await,
            (None, SealKeySource::Pkcs11(_) | SealKeySource::CloudAkms(_)) => move_seal(&config, &seal_key(&config)?).await,
            (None, SealKeySource::File(file)) => replace_key_file(&config, file).await,
            (None, SealKeySource::Text(_)) => Err(Error::invalid(
                "the seal key is in SIGNET_SEAL_KEY: give --to with a configuration of the same store, and the new key in \
                 SIGNET_NEW_SEAL_KEY",
            )),
        }
    })
}

const RESTART_ADVICE: &str =
    "Start every node with this seal from now on; running nodes keep working until they are restarted.";

async fn move_seal(config: &Config, seal: &SealKey) -> Result<()> {
    change_and_print(&open_store(config).await?, seal).await
}

async fn open_store(config: &Config) -> Result<Storage> {
    storage::open(storage_options(config, Clock::system(), IfMissing::Fail)?).await
}

async fn change_and_print(storage: &Storage, seal: &SealKey) -> Result<()> {
    let changed = close_store(storage, storage.change_seal(seal).await).await?;
    print_change(&changed, RESTART_ADVICE)
}

/// Changes the seal of the store to that of the configuration `new`, in one commit. If an earlier run has already
/// changed it, the command is repeated without effect.
async fn move_to_config(config: &Config, new: &Config) -> Result<()> {
    let seal = seal_key(new)?;
    let error = match open_store(config).await {
        Ok(storage) => return change_and_print(&storage, &seal).await,
        Err(error) => error,
    };
    let options = storage_options(new, Clock::system(), IfMissing::Fail)?;
    let Ok(storage) = storage::open(storage::StorageOptions { seal_key: seal, ..options }).await else {
        return Err(error);
    };
    let status = close_store(&storage, storage.seal_status().await).await?;
    print_change(&status, RESTART_ADVICE)
}

/// Replaces the seal key in `file` by a new one. Until the store has the new key, both keys exist in files, so that an
/// interrupted command can be repeated.
async fn replace_key_file(config: &Config, file: &Path) -> Result<()> {
    let options = || storage_options(config, Clock::system(), IfMissing::Fail);
    let (replacement, changed) = match storage::open(options()?).await {
        Ok(storage) => {
            let changed = async {
                let replacement = SealKeyReplacement::prepare(file)?;
                let about = storage.change_seal(replacement.key()).await?;
                Ok((replacement, about))
            };
            close_store(&storage, changed.await).await?
        }
        // The key in `file` does not open the store. An interrupted run may already have changed the store to the new
        // key.
        Err(error) if error.kind() == Kind::Invalid => {
            let Some(replacement) = SealKeyReplacement::resume(file)? else { return Err(error) };
            let seal_key = replacement.key().clone();
            let Ok(storage) = storage::open(storage::StorageOptions { seal_key, ..options()? }).await else {
                return Err(error);
            };
            (replacement, close_store(&storage, storage.seal_status().await).await?)
        }
        Err(error) => return Err(error),
    };
    replacement.finish()?;
    let next = format!(
        "The new key is in {}: keep a copy of it away from the data, and give it to every node. The previous key is \
         in {}: it opens backups that were made before. If the previous key may have been exposed, create a new data \
         key next: POST sys/rotate.",
        file.display(),
        replacement.previous_key_file().display()
    );
    print_change(&changed, &next)
}

fn print_change(seal: &SealInfo, next: &str) -> Result<()> {
    let object = json!({
        "seal_type": seal.kind.to_string(),
        "seal_key": seal.key.to_string(),
        "mechanism": seal.mechanism.to_string(),
        "next_step": next,
    });
    output::print_result(&object, format!("the store is sealed by the {seal}\n{next}"))
}
