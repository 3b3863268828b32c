//! `signet check`: reports whether a server would start and serve with a configuration.
//!
//! It reads the configuration file and the environment, then checks everything that they name: files, the store and its
//! seal, the listeners. Each check prints a line with `ok`, `note` or `wrong`. The command changes nothing, and the
//! server may be running. Run it as the server's user, because it checks the permissions of that user.

mod environment;
mod listeners;
mod report;
mod store;
mod tls;

use std::path::Path;

use crate::audit::{AuditTarget, append_options, describe_open_error};
use crate::config::{self, Config, SealKeySource};
use crate::error::Error;
use serde_json::json;

use super::failure::{CommandFailure, fail_on_findings};
use super::installation::{self, ConfigFileArgument};
use super::output;
use super::owner;
use report::CheckReport;

#[derive(clap::Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    config: ConfigFileArgument,
    /// Check only the configuration: open no file that it names, no store and no listener.
    #[arg(long)]
    file_only: bool,
}

/// Runs and prints all checks. Fails if a server would not start or serve. `commands` is the definition of the whole
/// command line, which contains the environment variables of all arguments.
pub(crate) fn run(arguments: &CheckArguments, commands: &clap::Command) -> Result<(), CommandFailure> {
    let file = &arguments.config.file;
    let config = config::load(file)?;
    let database = installation::database(&config)?;
    if let SealKeySource::Text(_) = &config.seal_key {
        installation::seal_key(&config)?;
    }
    let mut report = CheckReport::default();
    if !arguments.file_only {
        if let Some(prefix) = owner::prefix_for_owner(&config) {
            let text = "checked as root, which may open every file; to check the permissions of the server's user, run";
            report.note("user", format!("{text} {prefix} signet check --config {}", file.display()));
        }
        environment::check(&mut report, commands);
        tls::check(&mut report, &config);
        check_files(&mut report, &config);
        actix_rt::System::new().block_on(async {
            store::check(&mut report, &config, database).await;
            listeners::check(&mut report, &config).await;
        });
    }
    let wrong = report.count_wrong();
    let mut lines = report.lines();
    if wrong == 0 {
        lines.push(format!("{}: ok", file.display()));
    }
    let object = json!({ "config": file, "ok": wrong == 0, "checks": report.objects() });
    output::print_result(&object, lines.join("\n"))?;
    fail_on_findings(wrong)
}

fn check_files(report: &mut CheckReport, config: &Config) {
    for (name, path) in &config.pkcs11_libraries {
        match std::fs::File::open(path) {
            Ok(_) => report.ok("pkcs11_libraries", format!("{name}: {}", path.display())),
            Err(e) => report.wrong("pkcs11_libraries", Error::of_file(name, path, "read", e)),
        }
    }
    if let Some(folder) = &config.cloud.google.credentials_dir
        && let Err(e) = std::fs::read_dir(folder)
    {
        report.wrong("google_credentials_dir", Error::of_file("google_credentials_dir", folder, "read", e));
    }
    if let Some(file) = &config.logins.cloudb.ca_file
        && let Err(error) = super::issue::read_leaf("cloudb.ca_file", file)
    {
        report.wrong("cloudb.ca_file", error.text());
    }
    for device in &config.audit {
        match &device.target {
            AuditTarget::File { path, .. } => match check_appendable(path) {
                Ok(()) => report.ok("audit", format!("{}: {}", device.name, path.display())),
                Err(e) => {
                    let why = describe_open_error(path, &e);
                    report.wrong("audit", format!("{}: {}: {why}", device.name, path.display()))
                }
            },
            AuditTarget::Stdout => report.ok("audit", format!("{}: standard output", device.name)),
            AuditTarget::Socket { .. } => report.note("audit", format!("{}: a socket, not checked", device.name)),
        }
    }
}

/// Checks that a file can be opened for appending or created, without changing or creating it.
fn check_appendable(path: &Path) -> std::io::Result<()> {
    match append_options().open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let folder = super::files::folder_of(path);
            rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?;
            Ok(())
        }
        other => other.map(drop),
    }
}
