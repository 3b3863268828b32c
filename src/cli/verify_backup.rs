//! `signet operator verify-backup`: verifies a backup file, or a database that was restored elsewhere. It prints one
//! line per finding (defect), and exits with status 3 if there are findings.

use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::server::verify::verify;
use crate::storage::seal::SealKey;
use crate::storage::verify::{Findings, VerifyTarget};
use crate::storage::{Database, PostgresUrl};
use serde_json::json;

use super::copies;
use super::failure::CommandFailure;
use super::files::require_file;
use super::output::try_print;
use super::progress::{ProgressDisplay, ProgressUnit, QuietArgument};
use super::target_installation::{TargetInstallation, embedded_only_error};

#[derive(clap::Args)]
pub(crate) struct VerifyBackupArguments {
    #[command(flatten)]
    installation: TargetInstallation,
    /// Copy of an embedded store, or a folder, of which the newest copy that `backup --folder` made is used. By default
    /// verifies the database that the configuration names; no node may run on it.
    file: Option<PathBuf>,
    /// Another database instead of a file: one that was restored elsewhere. Put a password into the environment or the
    /// file that `passfile` names.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "file",
        env = "SIGNET_VERIFY_DATABASE_URL",
        hide_env_values = true
    )]
    database_url: Option<String>,
    #[command(flatten)]
    quiet: QuietArgument,
}

pub(super) fn run(arguments: &VerifyBackupArguments) -> Result<(), CommandFailure> {
    if let Some(file) = &arguments.file {
        require_file("FILE", file)?;
    }
    let clock = Clock::system();
    let options = arguments.installation.options(clock.clone())?;
    let (subject, name) = match (&arguments.file, &arguments.database_url) {
        (Some(file), _) => {
            let copy = resolve_copy(file, &options.database)?;
            let name = copy.display().to_string();
            (VerifyTarget::File(copy), name)
        }
        (None, Some(url)) => (VerifyTarget::Postgres(PostgresUrl::parse(url)?), "the database".to_owned()),
        (None, None) => {
            let own = VerifyTarget::of_postgres_store(&options)
                .ok_or_else(|| Error::invalid("FILE: must be given for an embedded store: the copy to verify"))?;
            (own, "the database".to_owned())
        }
    };
    let checked = verify_with_progress(subject, options.seal_key, clock, &arguments.quiet);
    let findings = actix_rt::System::new().block_on(checked)?;
    print_findings(&name, &findings).map_err(CommandFailure::Finding)
}

/// Verifies a backup or database, and shows the progress on the terminal.
///
/// # Errors
/// Those of [`verify`].
pub(super) async fn verify_with_progress(
    subject: VerifyTarget,
    seal_key: SealKey,
    clock: Clock,
    quiet: &QuietArgument,
) -> Result<Findings> {
    let display = ProgressDisplay::start("checking", ProgressUnit::Items("certificates"), quiet);
    verify(subject, seal_key, clock, &display.progress).await
}

/// Resolves a path to a backup file. For a folder, returns the newest backup in it; with PostgreSQL, a folder is an
/// error.
fn resolve_copy(path: &Path, database: &Database) -> Result<PathBuf> {
    match database {
        _ if !path.is_dir() => Ok(path.to_owned()),
        Database::Embedded(_) => copies::find_newest(path),
        Database::Postgres(_) => Err(embedded_only_error(
            "restore its last copy into a database of its own, and name that one by --database-url",
        )),
    }
}

pub(super) fn print_findings(name: &str, findings: &Findings) -> Result<()> {
    let mut lines: Vec<String> = findings.lines().collect();
    let ok = findings.count() == 0;
    let object = json!({ "subject": name, "ok": ok, "findings": lines });
    lines.extend(ok.then(|| format!("{name}: ok")));
    try_print(&object, lines.join("\n"));
    match findings.count() {
        0 => Ok(()),
        count => Err(Error::new(Kind::Conflict, format!("{name}: {count} findings"))),
    }
}
