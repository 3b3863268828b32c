//! `signet operator seal-status` and `rotate-seal-key`: by what a store is sealed, and another seal for it.
//!
//! Both open the store themselves: an embedded one must not be in use, PostgreSQL may be. Nodes that run meanwhile go
//! on; they need the new seal when they start again, or were cut off meanwhile.

use std::path::{Path, PathBuf};

use serde_json::json;
use signet::clock::{Clock, rfc3339};
use signet::config::{self, Config, SealKeySource};
use signet::error::{Error, Kind, Result};
use signet::storage::seal::{About, Replacement, SealKey};
use signet::storage::{self, Absent, Storage};

use super::installation::{closed, prepared, seal_key, storage_options};
use super::{output, owner};

/// The arguments of `signet operator seal-status`.
#[derive(clap::Args)]
pub(crate) struct Status {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// The arguments of `signet operator rotate-seal-key`.
#[derive(clap::Args)]
pub(crate) struct Rotate {
    /// The configuration file of the store as it is sealed now, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A configuration of the same store with another seal, which it is to have from now on. Its environment is
    /// SIGNET_NEW_SEAL_KEY and so on. Without one a key in a file takes the place of the one before, and what a device
    /// keeps wraps the store's keys anew.
    #[arg(long, value_name = "NEW")]
    to: Option<PathBuf>,
}

/// Prints the seal, the data key, and what is left of earlier ones.
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
    // What others have noted is known after a note of one's own.
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

/// Gives the store another seal.
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

/// What is to be done when a store has got a seal that is elsewhere than the one before.
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

/// The seal of another configuration. Run again it finds that the store has it: the store takes it in one commit, behind
/// which nothing is left to be done, whatever ended the command then.
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

/// Another key in the place of the one in a file. Both are there until the store has taken the new one, whatever ends
/// the command in the middle: run again it goes on.
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
        // The store has taken the new key before.
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
