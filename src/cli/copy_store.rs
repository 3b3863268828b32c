//! `signet operator copy-store`: copies the embedded store to PostgreSQL.
//!
//! The server must be stopped, because its writes after the copy would be lost. With `--from`, a backup is copied
//! instead of the store, and the server may run. The original store is marked as moved, so that no server starts on it.
//! The mark is written before the first row is copied, and removed only if the copy failed and the database is
//! certainly empty.

use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::storage::seal::SealKey;
use crate::storage::transfer::{self, TransferOutcome};
use crate::storage::verify::{self, Findings, VerifyTarget};
use crate::storage::{self, Database, PostgresUrl, StorageOptions, backup};
use serde_json::json;

use super::files::require_file;
use super::installation::close_store;
use super::output::try_print;
use super::owner;
use super::progress::{ProgressDisplay, ProgressUnit, QuietArgument};
use super::target_installation::TargetInstallation;
use super::verify_backup::{print_findings, verify_with_progress};

const MOVED_STORE_ADVICE: &str = " Servers no longer start on this store. To continue with it instead, without the \
                                  database, run signet operator after-restore.";

#[derive(clap::Args)]
pub(crate) struct CopyStoreArguments {
    #[command(flatten)]
    installation: TargetInstallation,
    /// Destination database, which must be empty: postgres://user@host/database. Put a password into the environment or
    /// the file that `passfile` names.
    #[arg(long, value_name = "URL", env = "SIGNET_COPY_STORE_TO", hide_env_values = true)]
    to: String,
    /// A copy that `backup` made, instead of the store itself; then the server may be running.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    #[command(flatten)]
    quiet: QuietArgument,
}

pub(super) fn run(arguments: &CopyStoreArguments) -> Result<()> {
    let to = PostgresUrl::parse(&arguments.to)?;
    if let Some(file) = &arguments.from {
        require_file("--from", file)?;
    }
    let clock = Clock::system();
    let options = arguments.installation.options(clock.clone())?;
    let Database::Embedded(folder) = options.database.clone() else {
        return Err(Error::invalid("the store is a PostgreSQL database already: copy it with pg_dump"));
    };
    if arguments.from.is_none() {
        owner::require_folder_owner(&folder)?;
    }
    actix_rt::System::new().block_on(copy_store(options, &folder, arguments, to, clock))
}

async fn copy_store(
    options: StorageOptions,
    folder: &Path,
    arguments: &CopyStoreArguments,
    to: PostgresUrl,
    clock: Clock,
) -> Result<()> {
    let quiet = &arguments.quiet;
    let seal_key = options.seal_key.clone();
    let Some(file) = &arguments.from else { return move_store(options, folder, quiet, to, clock).await };
    require_intact(file).await?;
    require_known_outcome(copy_rows(file.to_owned(), seal_key.clone(), &to, &clock, quiet).await?, "")?;
    verify_copy(to, seal_key, clock, quiet).await
}

/// Copies the store itself, not a backup, and marks it as moved before the copy begins.
async fn move_store(
    options: StorageOptions,
    folder: &Path,
    quiet: &QuietArgument,
    to: PostgresUrl,
    clock: Clock,
) -> Result<()> {
    let seal_key = options.seal_key.clone();
    let is_repeated = {
        let _locked = backup::lock(folder)?;
        backup::is_moved(folder)?
    };
    if !is_repeated {
        // Opening and closing the store updates its schema and merges the write-ahead log into the database file. If
        // the store is already marked as moved, an earlier, interrupted run has done this.
        storage::open(options).await?.shutdown().await?;
    }
    let locked = backup::lock(folder)?;
    if !is_repeated {
        // The store is marked before the first row is copied. Otherwise, after a failed copy, a server could start on
        // this store although the database may be complete.
        backup::record_move(folder, clock.now())?;
    }
    let copied = copy_rows(backup::database_path(folder), seal_key.clone(), &to, &clock, quiet).await;
    // `copy_rows` returns an error only if the database is empty, so a server may start on this store again.
    if copied.is_err() && !is_repeated {
        backup::remove_move_record(folder)?;
    }
    drop(locked);
    require_known_outcome(copied?, MOVED_STORE_ADVICE)?;
    verify_copy(to, seal_key, clock, quiet).await
}

/// Returns an error if it is unknown whether the database committed the copy. `more` is appended to the error text.
fn require_known_outcome(outcome: TransferOutcome, more: &str) -> Result<()> {
    let TransferOutcome::Unknown(lost) = outcome else { return Ok(()) };
    let text = format!(
        "{lost}: the commit was not confirmed, and the database is unreachable: it contains either the whole store or \
         nothing. Run copy-store again when the database is available. If it reports that the database is not empty, \
         the copy is complete: check it (signet operator verify-backup --database-url URL) and use it. If it copies, \
         the first attempt was lost, and no further step is needed.{more}"
    );
    Err(Error::unavailable(text, lost))
}

async fn verify_copy(database: PostgresUrl, seal_key: SealKey, clock: Clock, quiet: &QuietArgument) -> Result<()> {
    let findings = verify_with_progress(VerifyTarget::Postgres(database), seal_key, clock, quiet).await;
    let findings = findings.map_err(|e| e.within("the copy is complete, but could not be verified"))?;
    match (findings.count_certain(), findings.count()) {
        (0, 1..) => {
            // Only CRLs are missing. The server publishes new ones when it starts, because all revocations were copied.
            let lines: Vec<String> = findings.lines().collect();
            let text = "the database: ok except for its CRLs, which the first start publishes again";
            let object = json!({ "subject": "the database", "ok": true, "findings": lines });
            try_print(&object, format!("{}\n{text}", lines.join("\n")));
            Ok(())
        }
        _ => print_findings("the database", &findings),
    }
}

/// Fails if a backup is damaged or has the schema of another version. Opening the backup would not detect this.
async fn require_intact(file: &Path) -> Result<()> {
    let mut findings = Findings::default();
    if verify::check_file(&VerifyTarget::File(file.to_owned()), &mut findings).await? {
        return Ok(());
    }
    print_findings(&file.display().to_string(), &findings)
}

/// Copies the rows of the store in `file` to the database.
///
/// # Errors
/// Those of opening the store and of [`transfer::copy`]. After any of them, the database is empty.
async fn copy_rows(
    file: PathBuf,
    seal_key: SealKey,
    to: &PostgresUrl,
    clock: &Clock,
    quiet: &QuietArgument,
) -> Result<TransferOutcome> {
    let source =
        verify::open(VerifyTarget::File(file), seal_key, clock.clone()).await.map_err(|error| match error.kind() {
            Kind::Invalid => error.within("the store that is copied"),
            _ => error,
        })?;
    let display = ProgressDisplay::start("copying", ProgressUnit::Items("rows"), quiet);
    let report_table = |table: &str, rows: i64| {
        display.without_progress_line(|| {
            try_print(&json!({ "table": table, "rows": rows }), format!("{table}: {rows} rows"))
        });
    };
    let copied = transfer::copy(&source, to, clock.now(), &display.progress, report_table).await;
    drop(display);
    // `source` was only read, so an error while closing it does not affect the copy.
    close_store(&source, copied).await
}
