//! `signet operator backup`, `restore` and `after-restore`.
//!
//! The command copies the embedded store itself. If a server is running, the command requests it over the socket in the
//! data folder to leave its database file unchanged during the copy. PostgreSQL has its own tools.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde_json::json;
use signet::clock::Clock;
use signet::config::Store;
use signet::error::{Error, Kind, Result};
use signet::server::operator::Client;
use signet::server::verify::verify;
use signet::storage::backup::{self, Pace, Partial};
use signet::storage::verify::{Findings, Subject, known_file};
use signet::storage::{Database, Progress};

use super::copies;
use super::files::{FolderLock, require_file};
use super::output::{self, line};
use super::owner;
use super::place::{Place, of_database};
use super::progress::{Display, Quiet, Unit};

const PG_TOOLS: &str = "copy it with pg_dump or pg_basebackup";
/// Nice value of a copy, so that it does not slow the server down.
const NICE: i32 = 15;

#[derive(clap::Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    target: Target,
    /// Number of copies to keep in the folder. Older ones are removed after the new one has been verified.
    #[arg(long, value_name = "COUNT", conflicts_with = "to", value_parser = clap::value_parser!(u16).range(1..))]
    keep: Option<u16>,
    #[command(flatten)]
    quiet: Quiet,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// File to create, mode 0600. It must not exist.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Folder for a copy that is named by its time (signet-20260131T030000Z.db) and verified after it is made.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Restore {
    #[command(flatten)]
    place: Place,
    /// The copy that `backup` made.
    file: PathBuf,
    #[command(flatten)]
    quiet: Quiet,
}

#[derive(clap::Args)]
pub(crate) struct AfterRestore {
    #[command(flatten)]
    place: Place,
}

pub(super) fn backup(arguments: &Backup) -> Result<()> {
    let Target { to, folder } = &arguments.target;
    match (to, folder) {
        (Some(file), _) => {
            let data = embedded(&arguments.place, PG_TOOLS)?;
            let copy = copy_to(&data, file, &arguments.quiet)?;
            report(&data, copy);
            Ok(())
        }
        (None, Some(folder)) => add_to(folder, arguments),
        (None, None) => Err(Error::invalid("--to or --folder: one of them must be given")),
    }
}

/// Adds a copy to a folder and verifies it before it counts as a backup and older ones are removed.
fn add_to(folder: &Path, arguments: &Backup) -> Result<()> {
    let clock = Clock::system();
    let options = arguments.place.options(clock.clone())?;
    let Database::Embedded(data) = options.database else { return Err(of_database(PG_TOOLS)) };
    let system = actix_rt::System::new();
    let file = copies::file_at(folder, clock.now())?;
    let _lock = system.block_on(FolderLock::of(&file))?;
    let copy = copy_to(&data, &file, &arguments.quiet)?;
    let display = Display::start("checking", super::verify_backup::CERTIFICATES, &arguments.quiet);
    let checked = verify(Subject::File(file.clone()), options.seal_key, clock, &display.progress);
    let findings = system.block_on(checked)?;
    drop(display);
    super::verify_backup::tell(&file.display().to_string(), &findings)?;
    report(&data, copy);
    arguments.keep.map_or(Ok(()), |keep| copies::prune(folder, usize::from(keep), &file))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Copied {
    BesideServer,
    Alone,
}

fn copy_to(data: &Path, file: &Path, quiet: &Quiet) -> Result<Copied> {
    owner::require_of_folder(data)?;
    // Without the permission to lower its priority, it runs at the usual one.
    let _ = rustix::process::setpriority_process(None, NICE);
    let display = Display::start("copying", Unit::Bytes, quiet);
    let (partial, copied) = match Client::connect(data)? {
        Some(server) => (beside(server, data, file, &display.progress)?, Copied::BesideServer),
        None => (alone(data, file, &display.progress)?, Copied::Alone),
    };
    drop(display);
    let octets = partial.finish(Clock::system().now())?;
    let text = format!("{}: {octets} octets", file.display());
    line(&json!({ "file": file, "bytes": octets }), text);
    Ok(copied)
}

fn report(data: &Path, copied: Copied) {
    if copied == Copied::BesideServer
        && let Err(error) = tell(data)
    {
        let text = "the copy is made, but its server could not be told, whose metrics do not count it";
        output::warn(&[format!("{text}: {error}")]);
    }
}

fn tell(folder: &Path) -> Result<()> {
    let Some(mut server) = Client::connect(folder)? else { return Ok(()) };
    server.ask(&json!({ "command": "backup-made" })).map(drop)
}

/// Copies while a server runs. The copy is valid only if the server confirms afterwards that it held
/// the file all the time.
fn beside(mut server: Client, folder: &Path, to: &Path, progress: &Progress) -> Result<Partial> {
    server.ask(&json!({ "command": "backup" }))?;
    let copy = |stop: &AtomicBool| backup::copy(folder, to, Pace::Shared, stop, progress);
    let (partial, released) = server.ask_after(copy, &json!({ "release": true }))?;
    if released["held"] != true {
        return Err(Error::new(Kind::Unavailable, "the server did not hold its file: nothing was copied"));
    }
    Ok(partial)
}

fn alone(folder: &Path, to: &Path, progress: &Progress) -> Result<Partial> {
    let _locked = backup::lock(folder).map_err(|error| match error.kind() {
        Kind::Conflict => Error::new(
            Kind::Conflict,
            format!("{error}; it does not listen to operators, for it is starting or stopping, or of an older version"),
        ),
        _ => error,
    })?;
    backup::copy(folder, to, Pace::Full, &AtomicBool::new(false), progress)
}

pub(super) fn restore(arguments: &Restore) -> Result<()> {
    let Restore { place, file, quiet } = arguments;
    require_file("FILE", file)?;
    let clock = Clock::system();
    let options = place.options(clock.clone())?;
    let Database::Embedded(folder) = options.database else {
        return Err(of_database("restore it with its own tools and run signet operator after-restore"));
    };
    owner::require_of_folder(&folder)?;
    actix_rt::System::new().block_on(async {
        backup::require_opened(file, &options.seal_key).await.map_err(|error| unopened(file, error))?;
        require_whole(file).await
    })?;
    let display = Display::start("restoring", Unit::Bytes, quiet);
    let octets = backup::restore(file, &folder, clock.now(), &display.progress)?;
    drop(display);
    let text = format!("{}: restored, {octets} octets; the next start goes on from there", folder.display());
    line(&json!({ "data_dir": folder, "bytes": octets }), text);
    Ok(())
}

/// Requires an intact copy: a server may start on a damaged one and fail only when it reads the damaged part.
async fn require_whole(copy: &Path) -> Result<()> {
    let mut findings = Findings::default();
    if known_file(copy, &mut findings).await? {
        return Ok(());
    }
    super::verify_backup::tell(&copy.display().to_string(), &findings)
}

/// Adds advice to an error that is due to the seal key.
fn unopened(copy: &Path, error: Error) -> Error {
    let name = copy.display().to_string();
    if error.kind() != Kind::Invalid || !error.text().starts_with("seal") {
        return if error.text().contains(&name) { error } else { error.within(&name) };
    }
    let text = format!(
        "{name}: {error}: a copy that was made under another seal key wants that one (SIGNET_SEAL_KEY_FILE=…, or a \
         configuration that names its file), here and for the server"
    );
    Error::new(error.kind(), text)
}

pub(super) fn after_restore(arguments: &AfterRestore) -> Result<()> {
    let options = arguments.place.options(Clock::system())?;
    if let Database::Embedded(folder) = &options.database {
        owner::require_of_folder(folder)?;
    }
    actix_rt::System::new().block_on(backup::note_restore(options))?;
    let text = "CRL numbers go on above all that were published before";
    line(&json!({ "restored": true }), text);
    Ok(())
}

fn embedded(place: &Place, otherwise: &str) -> Result<PathBuf> {
    match place.store()? {
        Store::Embedded(folder) => Ok(folder),
        Store::Database(_) => Err(of_database(otherwise)),
    }
}
