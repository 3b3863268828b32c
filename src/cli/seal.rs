//! `signet operator seal-status` and `rotate-seal-key`: shows and changes the seal of a store.
//!
//! Both commands open the store: an embedded one must not be in use, a PostgreSQL database may be. Running nodes
//! continue; they need the new seal for their next start, or if they were disconnected during the change.

use std::path::{Path, PathBuf};

use serde_json::json;
use signet::clock::{Clock, rfc3339};
use signet::config::{self, Config, SealKeySource};
use signet::error::{Error, Kind, Result};
use signet::storage::seal::{About, Replacement, SealKey};
use signet::storage::{self, Absent, Storage};

use super::installation::{closed, prepared, seal_key, storage_options};
use super::{output, owner};

#[derive(clap::Args)]
pub(crate) struct Status {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct Rotate {
    /// Configuration file with the current seal of the store, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Configuration file of the same store with the new seal. Its environment variables are
    /// SIGNET_NEW_SEAL_KEY and so on. Without this argument, a key file is replaced by a new key, or the key in
    /// the device wraps the store's keys again.
    #[arg(long, value_name = "NEW")]
    to: Option<PathBuf>,
}

/// Prints the seal, the current data key, and the number of values under earlier data keys.
pub(crate) fn status(arguments: &Status) -> Result<()> {
    let config = prepared(&arguments.config)?;
    owner::require(&config)?;
    actix_rt::System::new().block_on(async {
        let storage = storage::open(storage_options(&config, Clock::system(), Absent::Missed)?).await?;
        closed(&storage, tell(&storage).await).await
    })
}

async fn tell(storage: &Storage) -> Result<()> {
    let (seal, keyring) = (storage.seal_status().await?, storage.keyring());
    // The counts of other nodes are known after this node has stored its own.
    keyring.note_use().await?;
    let (key, older) = (keyring.status().await?, storage.count_older().await?);
    let since = seal.since.map(rfc3339);
    let object = json!({
        "seal_type": seal.kind.to_string(),
        "seal_key": seal.key.to_string(),
        "mechanism": seal.mechanism.to_string(),
        "sealed_since": since,
        "data_key_term": key.term,
        "data_key_created": rfc3339(key.made_at),
        "encryptions": key.sealed,
        "left_to_reseal": older,
    });
    let lines = [
        format!("seal type:      {}", seal.kind),
        format!("seal key:       {} ({})", seal.key, seal.mechanism),
        format!("sealed since:   {}", since.as_deref().unwrap_or("the store was made")),
        format!("data key term:  {}", key.term),
        format!("made:           {}", rfc3339(key.made_at)),
        format!("encryptions:    {}", key.sealed),
        format!("left to re-seal: {older}"),
    ];
    output::write(&object, lines.join("\n")).map_err(output::unwritten)
}

pub(crate) fn rotate(arguments: &Rotate) -> Result<()> {
    let config = prepared(&arguments.config)?;
    owner::require(&config)?;
    let new = arguments.to.as_deref().map(config::load_new).transpose()?;
    if new.as_ref().is_some_and(|new| new.store != config.store) {
        return Err(Error::invalid("--to: names another store than --config: only the seal may differ"));
    }
    actix_rt::System::new().block_on(async {
        match (&new, &config.seal_key) {
            (Some(new), _) => moved_to(&config, new).await,
            (None, SealKeySource::Pkcs11(_) | SealKeySource::CloudAkms(_)) => moved(&config, &seal_key(&config)?).await,
            (None, SealKeySource::File(file)) => in_place(&config, file).await,
            (None, SealKeySource::Text(_)) => Err(Error::invalid(
                "the seal key is in SIGNET_SEAL_KEY: give --to with a configuration of the same store, and the new key in \
                 SIGNET_NEW_SEAL_KEY",
            )),
        }
    })
}

const NEXT: &str = "Start every node with this seal from now on; those that run go on until then.";

async fn moved(config: &Config, seal: &SealKey) -> Result<()> {
    give(&opened(config).await?, seal).await
}

async fn opened(config: &Config) -> Result<Storage> {
    storage::open(storage_options(config, Clock::system(), Absent::Missed)?).await
}

async fn give(storage: &Storage, seal: &SealKey) -> Result<()> {
    let changed = closed(storage, storage.change_seal(seal).await).await?;
    say(&changed, NEXT)
}

/// Changes to the seal of another configuration. The store changes in one commit, so a repeated command only has to
/// detect that it has the new seal.
async fn moved_to(config: &Config, new: &Config) -> Result<()> {
    let seal = seal_key(new)?;
    let error = match opened(config).await {
        Ok(storage) => return give(&storage, &seal).await,
        Err(error) => error,
    };
    let options = storage_options(new, Clock::system(), Absent::Missed)?;
    let Ok(storage) = storage::open(storage::Options { seal_key: seal, ..options }).await else { return Err(error) };
    let status = closed(&storage, storage.seal_status().await).await?;
    say(&status, NEXT)
}

/// Replaces the key in a file. Both keys exist until the store has the new one, so an interrupted
/// command can be repeated.
async fn in_place(config: &Config, file: &Path) -> Result<()> {
    let options = || storage_options(config, Clock::system(), Absent::Missed);
    let (replacement, changed) = match storage::open(options()?).await {
        Ok(storage) => {
            let changed = async {
                let replacement = Replacement::prepare(file)?;
                let about = storage.change_seal(replacement.key()).await?;
                Ok((replacement, about))
            };
            closed(&storage, changed.await).await?
        }
        // An earlier run has changed the store to the new key.
        Err(error) if error.kind() == Kind::Invalid => {
            let Some(replacement) = Replacement::left(file)? else { return Err(error) };
            let seal_key = replacement.key().clone();
            let Ok(storage) = storage::open(storage::Options { seal_key, ..options()? }).await else {
                return Err(error);
            };
            (replacement, closed(&storage, storage.seal_status().await).await?)
        }
        Err(error) => return Err(error),
    };
    replacement.finish()?;
    let next = format!(
        "The new key is in {}: keep a copy of it away from the data, and give it to every node. The one before is in {}: \
         it opens copies that were made before. If it may be in other hands, make a new data key next: sys/rotate.",
        file.display(),
        replacement.old().display()
    );
    say(&changed, &next)
}

fn say(seal: &About, next: &str) -> Result<()> {
    let object = json!({
        "seal_type": seal.kind.to_string(),
        "seal_key": seal.key.to_string(),
        "mechanism": seal.mechanism.to_string(),
        "next_step": next,
    });
    output::result(&object, format!("the store is sealed by the {seal}\n{next}"))
}
