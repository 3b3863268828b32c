//! Checks the options of a setup whose configuration file exists already. The setup does not change that file, so
//! options may only repeat its values, for example when an interrupted setup is run again.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::audit::AuditTarget;
use crate::config::{Config, SealKeySource, StoreLocation};
use crate::error::{Error, Kind, Result};

use super::arguments::InstallationArguments;
use super::files::make_absolute;
use super::plan::SetupPlan;
use crate::cli::files::folder_of;

/// Rejects options whose values differ from those in the configuration.
///
/// # Errors
/// `Conflict`, with a line for each differing option.
pub(super) fn check(installation: &InstallationArguments, plan: &SetupPlan, config: &Config) -> Result<()> {
    let data_dir = if let StoreLocation::Embedded(folder) = &config.store { Some(absolute_text(folder)) } else { None };
    let seal_key_file = if let SealKeySource::File(file) = &config.seal_key { Some(absolute_text(file)) } else { None };
    let tls_dir = config.tls.as_ref().map(|files| absolute_text(folder_of(&files.certificate)));
    let audit_file = installation.audit_file.as_deref().map(absolute_text);
    let audit_files = audit_files(config);
    let audited = audit_files.iter().find(|file| Some(*file) == audit_file.as_ref()).or(audit_files.first()).cloned();
    let given_names = (!installation.name.is_empty()).then(|| join_names(installation.name.iter().cloned()));
    // If the configuration has no public URL, `--public-url` may be any URL.
    let public_url = config.http.public_url.as_ref().and(plan.public_url.clone());
    let compared = [
        ("--data-dir", "data_dir", installation.data_dir.as_deref().map(absolute_text), data_dir),
        ("--seal-key-file", "seal_key_file", installation.seal_key_file.as_deref().map(absolute_text), seal_key_file),
        ("--listen", "listen", address_text(installation.listen), address_text(Some(config.listen))),
        (
            "--public-listen",
            "public_listen",
            address_text(installation.public_listen),
            address_text(config.public_listen),
        ),
        (
            "--metrics-listen",
            "metrics_listen",
            address_text(installation.metrics_listen),
            address_text(config.metrics_listen),
        ),
        ("--audit-file", "audit file_path", audit_file, audited),
        ("--name", "tls_renew.names", given_names, renewal_names(config)),
        (
            "--tls-dir",
            "the folder of tls_certificate_file",
            installation.tls_dir.as_deref().map(absolute_text),
            tls_dir,
        ),
        ("--public-url", "public_url", public_url, config.http.public_url.clone()),
    ];
    let file = plan.config.display();
    let mut problems: Vec<String> = Vec::new();
    for (flag, setting, given, configured) in compared {
        if given.is_none() || given == configured {
            continue;
        }
        problems.push(match configured {
            Some(value) => format!("{flag}: {file} has {setting} = {value:?}"),
            None => format!("{flag}: {file} has no {setting}"),
        });
    }
    if installation.database_url.as_ref().is_some_and(|url| !is_database(config, url)) {
        // The message omits the URL, which may contain a password.
        problems.push(format!("--database-url: {file} has another store"));
    }
    if problems.is_empty() {
        return Ok(());
    }
    problems.push(format!("change the settings in {file}, or omit these options"));
    Err(Error::new(Kind::Conflict, problems.join("\n")))
}

/// Returns an absolute path as text, without a trailing slash, for comparison.
fn absolute_text(path: &Path) -> String {
    let path: PathBuf = make_absolute(path).components().collect();
    path.display().to_string()
}

fn address_text(address: Option<SocketAddr>) -> Option<String> {
    address.map(|address| address.to_string())
}

fn audit_files(config: &Config) -> Vec<String> {
    let files = config.audit.iter().filter_map(|device| match &device.target {
        AuditTarget::File { path, .. } => Some(absolute_text(path)),
        _ => None,
    });
    files.collect()
}

fn renewal_names(config: &Config) -> Option<String> {
    let renewal = config.tls_renewal.as_ref()?;
    let addresses = renewal.addresses.iter().map(ToString::to_string);
    Some(join_names(renewal.hosts.iter().cloned().chain(addresses)))
}

/// Joins host names and IP addresses in a canonical order and spelling, for comparison.
fn join_names(names: impl Iterator<Item = String>) -> String {
    let canonical = |name: String| name.parse::<IpAddr>().map_or(name, |address| address.to_string());
    names.map(canonical).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

fn is_database(config: &Config, url: &str) -> bool {
    matches!(&config.store, StoreLocation::Database(configured) if configured.expose_text() == Some(url))
}
