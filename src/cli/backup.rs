//! `signet operator backup`, `restore` and `after-restore`.
//!
//! `backup` copies the embedded store; PostgreSQL databases are backed up with their own tools. If a server is running,
//! the command asks it, over the socket in the data folder, not to change its database file during the copy.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::clock::Clock;
use crate::config::StoreLocation;
use crate::error::{Error, Kind, Result};
use crate::server::operator::OperatorClient;
use crate::storage::backup::{self, CopyPace, PendingBackup};
use crate::storage::verify::{Findings, VerifyTarget, check_restorable_file};
use crate::storage::{Database, ProgressCounters};
use serde_json::json;

use super::copies;
use super::files::{FolderLock, require_file};
use super::issue::format_time;
use super::output::{self, try_print};
use super::owner;
use super::progress::{ProgressDisplay, ProgressUnit, QuietArgument};
use super::target_installation::{TargetInstallation, embedded_only_error};
use super::verify_backup::{print_findings, verify_with_progress};

const PG_TOOLS_ADVICE: &str = "copy it with pg_dump or pg_basebackup";
/// Nice value (scheduling priority) of the backup process, so that the copy does not slow the server down.
const COPY_NICE_VALUE: i32 = 15;

#[derive(clap::Args)]
pub(crate) struct BackupArguments {
    #[command(flatten)]
    installation: TargetInstallation,
    #[command(flatten)]
    target: BackupDestination,
    /// Number of copies to keep in the folder. Older ones are removed after the new one has been verified.
    #[arg(long, value_name = "COUNT", conflicts_with = "to", value_parser = clap::value_parser!(u16).range(1..))]
    keep: Option<u16>,
    #[command(flatten)]
    quiet: QuietArgument,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct BackupDestination {
    /// File to create, mode 0600. It must not exist.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Folder for a copy that is named by its time (signet-20260131T030000Z.db) and verified after it is made.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    installation: TargetInstallation,
    /// Copy to restore, made by `backup`.
    file: PathBuf,
    #[command(flatten)]
    quiet: QuietArgument,
}

#[derive(clap::Args)]
pub(crate) struct AfterRestoreArguments {
    #[command(flatten)]
    installation: TargetInstallation,
}

pub(super) fn backup(arguments: &BackupArguments) -> Result<()> {
    let BackupDestination { to, folder } = &arguments.target;
    match (to, folder) {
        (Some(file), _) => {
            let data = require_embedded(&arguments.installation, PG_TOOLS_ADVICE)?;
            let copy = copy_to(&data, file, &arguments.quiet)?;
            report_copy(&data, copy);
            Ok(())
        }
        (None, Some(folder)) => add_copy(folder, arguments),
        (None, None) => Err(Error::invalid("--to or --folder: one of them must be given")),
    }
}

/// Copies the store to a new file in a folder and verifies the file. Only then notifies the server of the backup and
/// removes older backups.
fn add_copy(folder: &Path, arguments: &BackupArguments) -> Result<()> {
    let clock = Clock::system();
    let options = arguments.installation.options(clock.clone())?;
    let Database::Embedded(data) = options.database else { return Err(embedded_only_error(PG_TOOLS_ADVICE)) };
    let system = actix_rt::System::new();
    let file = copies::copy_path(folder, clock.now())?;
    let _lock = system.block_on(FolderLock::of(&file))?;
    let copy = copy_to(&data, &file, &arguments.quiet)?;
    let target = VerifyTarget::File(file.clone());
    let findings = system.block_on(verify_with_progress(target, options.seal_key, clock, &arguments.quiet))?;
    print_findings(&file.display().to_string(), &findings)?;
    report_copy(&data, copy);
    arguments.keep.map_or(Ok(()), |keep| copies::prune(folder, usize::from(keep), &file))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyMethod {
    WithServer,
    WithoutServer,
}

fn copy_to(data: &Path, file: &Path, quiet: &QuietArgument) -> Result<CopyMethod> {
    owner::require_folder_owner(data)?;
    // The result is ignored: if the system refuses, the copy runs at the normal priority.
    let _ = rustix::process::setpriority_process(None, COPY_NICE_VALUE);
    let display = ProgressDisplay::start("copying", ProgressUnit::Bytes, quiet);
    let (partial, copied) = match OperatorClient::connect(data)? {
        Some(server) => (copy_through_server(server, data, file, &display.progress)?, CopyMethod::WithServer),
        None => (copy_offline(data, file, &display.progress)?, CopyMethod::WithoutServer),
    };
    drop(display);
    let bytes = partial.finish(Clock::system().now())?;
    let text = format!("{}: {bytes} bytes", file.display());
    try_print(&json!({ "file": file, "bytes": bytes }), text);
    Ok(copied)
}

fn report_copy(data: &Path, copied: CopyMethod) {
    if copied == CopyMethod::WithServer
        && let Err(error) = notify_server(data)
    {
        let text = "the copy is complete, but the server could not be notified, so its metrics do not include it";
        output::print_warnings(&[format!("{text}: {error}")]);
    }
}

fn notify_server(folder: &Path) -> Result<()> {
    let Some(mut server) = OperatorClient::connect(folder)? else { return Ok(()) };
    server.request(&json!({ "command": "backup-made" })).map(drop)
}

/// Copies the database file of a running server. The copy is valid only if the server confirms afterwards that the file
/// did not change during the copy.
fn copy_through_server(
    mut server: OperatorClient,
    folder: &Path,
    to: &Path,
    progress: &ProgressCounters,
) -> Result<PendingBackup> {
    server.request(&json!({ "command": "backup" }))?;
    let copy = |stop: &AtomicBool| backup::copy(folder, to, CopyPace::Shared, stop, progress);
    let (partial, released) = server.run_then_send(copy, &json!({ "release": true }))?;
    if released["held"] != true {
        return Err(Error::new(
            Kind::Unavailable,
            "the server did not keep its database file unchanged during the copy, so no copy was made: try again",
        ));
    }
    Ok(partial)
}

fn copy_offline(folder: &Path, to: &Path, progress: &ProgressCounters) -> Result<PendingBackup> {
    let _locked = backup::lock(folder).map_err(|error| match error.kind() {
        Kind::Conflict => Error::new(
            Kind::Conflict,
            format!(
                "{error}; the operator socket of that server is unavailable: the server is starting, stopping, or of \
                 an older version"
            ),
        ),
        _ => error,
    })?;
    backup::copy(folder, to, CopyPace::Full, &AtomicBool::new(false), progress)
}

pub(super) fn restore(arguments: &RestoreArguments) -> Result<()> {
    let RestoreArguments { installation, file, quiet } = arguments;
    require_file("FILE", file)?;
    let options = installation.options(Clock::system())?;
    let Database::Embedded(folder) = options.database else {
        return Err(embedded_only_error("restore it with its own tools and run signet operator after-restore"));
    };
    owner::require_owner_for_restore(&folder, installation.seal_key_file()?.as_deref())?;
    let copied_at = actix_rt::System::new().block_on(async {
        let opened = backup::require_seal_key_opens(file, &options.seal_key).await;
        let copied_at = opened.map_err(|error| explain_seal_key_error(file, error))?;
        require_intact(file).await.map(|()| copied_at)
    })?;
    let display = ProgressDisplay::start("restoring", ProgressUnit::Bytes, quiet);
    let bytes = backup::restore(file, &folder, &display.progress)?;
    drop(display);
    let copied_at = copied_at.map(|at| format_time(at.unix_timestamp()));
    let text = format!(
        "{}: restored, {bytes} bytes, from a copy of {}\nlater changes, such as certificates and revocations, are \
         lost: see What is lost in docs/backup-embedded.md; CRL numbers continue above all earlier ones",
        folder.display(),
        copied_at.as_deref().unwrap_or("an unknown time")
    );
    try_print(&json!({ "data_dir": folder, "bytes": bytes, "copied_at": copied_at }), text);
    Ok(())
}

/// Fails if a backup file is damaged. Without this check, a server could start on the restored file and fail later,
/// when it reads the damaged part.
async fn require_intact(copy: &Path) -> Result<()> {
    let mut findings = Findings::default();
    if check_restorable_file(copy, &mut findings).await? {
        return Ok(());
    }
    print_findings(&copy.display().to_string(), &findings)
}

/// Adds the path of the backup to an error, and advice if the backup was made under another seal key.
fn explain_seal_key_error(copy: &Path, error: Error) -> Error {
    let name = copy.display().to_string();
    if error.kind() != Kind::Invalid || !error.text().starts_with("seal") {
        return if error.text().contains(&name) { error } else { error.within(&name) };
    }
    let text = format!(
        "{name}: {error}: a copy that was made under another seal key requires that key (SIGNET_SEAL_KEY_FILE=…, or a \
         configuration that names its file), here and for the server"
    );
    Error::new(error.kind(), text)
}

pub(super) fn after_restore(arguments: &AfterRestoreArguments) -> Result<()> {
    let options = arguments.installation.options(Clock::system())?;
    if let Database::Embedded(folder) = &options.database {
        owner::require_folder_owner(folder)?;
    }
    actix_rt::System::new().block_on(backup::record_restore(options))?;
    let text = "the store is marked as restored: CRL numbers continue above all published ones";
    try_print(&json!({ "restored": true }), text);
    Ok(())
}

fn require_embedded(installation: &TargetInstallation, otherwise: &str) -> Result<PathBuf> {
    match installation.store()? {
        StoreLocation::Embedded(folder) => Ok(folder),
        StoreLocation::Database(_) => Err(embedded_only_error(otherwise)),
    }
}
