//! `signet operator copy-store`: from the embedded store to PostgreSQL.
//!
//! The server must not run, or its copy be named in its place: what a server stores after this is not in the database.
//! The store itself is marked as moved then, so that no server starts on it beside the database.

use std::path::{Path, PathBuf};

use signet::clock::Clock;
use signet::error::{Error, Kind, Result};
use signet::server;
use signet::storage::seal::SealKey;
use signet::storage::verify::{self, Findings, Subject};
use signet::storage::{self, Database, Options, PostgresUrl, backup, transfer};

use super::output::line;
use super::owner;
use super::place::Place;
use super::verify_backup::tell;

/// The arguments of `signet operator copy-store`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// The database, which must be empty: postgres://user@host/database. A password belongs into the environment, or
    /// into the file that `passfile` names.
    #[arg(long, value_name = "URL", env = "SIGNET_COPY_STORE_TO", hide_env_values = true)]
    to: String,
    /// A copy that `backup` made, instead of the store itself: the server may run then.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// Copies all of it, and looks through what came of that.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let to = PostgresUrl::parse(&arguments.to)?;
    let clock = Clock::system();
    let options = arguments.place.options(clock.clone())?;
    let Database::Embedded(folder) = options.database.clone() else {
        return Err(Error::invalid("the store is a PostgreSQL database already: copy it with pg_dump"));
    };
    if arguments.from.is_none() {
        owner::require_of_folder(&folder)?;
    }
    actix_rt::System::new().block_on(copy(options, &folder, arguments.from.as_deref(), to, clock))
}

async fn copy(options: Options, folder: &Path, from: Option<&Path>, to: PostgresUrl, clock: Clock) -> Result<()> {
    let seal_key = options.seal_key.clone();
    let Some(file) = from else { return move_store(options, folder, to, clock).await };
    require_whole(file).await?;
    carry(file.to_owned(), seal_key.clone(), &to, &clock).await?;
    look_through(to, seal_key, clock).await
}

/// Copies the store itself, on which no server starts any more once it may be in the database.
async fn move_store(options: Options, folder: &Path, to: PostgresUrl, clock: Clock) -> Result<()> {
    let seal_key = options.seal_key.clone();
    let was_moved = {
        let _locked = backup::lock(folder)?;
        backup::take_back(folder)?
    };
    // Brings the schema up to date and the log into the file.
    let opened = async { storage::open(options).await?.shutdown().await }.await;
    if opened.is_err() && !was_moved {
        return opened;
    }
    let locked = backup::lock(folder)?;
    // Before the first row: whatever ends this, no server starts beside a database that has it all.
    backup::note_moved(folder, clock.now())?;
    opened?;
    let carried = carry(backup::database(folder), seal_key.clone(), &to, &clock).await;
    if carried.is_err() && !was_moved {
        backup::take_back(folder)?;
    }
    drop(locked);
    carried?;
    look_through(to, seal_key, clock).await
}

/// Looks through what came of it.
async fn look_through(database: PostgresUrl, seal_key: SealKey, clock: Clock) -> Result<()> {
    let findings = server::verify::verify(Subject::Postgres(database), seal_key, clock).await?;
    match (findings.count_certain(), findings.count()) {
        (0, 1..) => {
            // The first start publishes new lists of the revocations, all of which came along.
            findings.lines().for_each(line);
            line("the database: ok but for its CRLs, which the first start makes anew");
            Ok(())
        }
        _ => tell("the database", &findings),
    }
}

/// That a copy is whole and of this program's version, which nobody else looks at before it is read.
async fn require_whole(file: &Path) -> Result<()> {
    let mut findings = Findings::default();
    if verify::file(&Subject::File(file.to_owned()), &mut findings).await? {
        return Ok(());
    }
    tell(&file.display().to_string(), &findings)
}

async fn carry(file: PathBuf, seal_key: SealKey, to: &PostgresUrl, clock: &Clock) -> Result<()> {
    let source =
        verify::open(Subject::File(file), seal_key, clock.clone()).await.map_err(|error| match error.kind() {
            Kind::Invalid => error.within("the store that is copied"),
            _ => error,
        })?;
    let copied = transfer::copy(&source, to, clock.now(), |table, rows| line(format!("{table}: {rows} rows"))).await;
    source.shutdown().await.and(copied)
}
