//! Checks the store, the seal key that opens the store, and the connection to a database with its TLS.

use std::os::unix::fs::MetadataExt as _;

use crate::config::{Config, SealKeySource, StoreLocation};
use crate::documents::Document;
use crate::error::{Error, Kind};
use crate::keys::managed;
use crate::storage::inspection::{StoreInspection, inspect};
use crate::storage::seal::SealKey;
use crate::storage::{Database, database_message, disk_space};

use super::report::CheckReport;
use crate::cli::installation::seal_key;

const STORE_CHECK: &str = "store";
const SEAL_CHECK: &str = "seal";

pub(super) async fn check(report: &mut CheckReport, config: &Config, database: Database) {
    let mut has_capacity = true;
    let name = match &config.store {
        StoreLocation::Embedded(folder) => {
            if std::fs::metadata(folder).is_ok_and(|found| found.mode() & 0o077 != 0) {
                report.note(STORE_CHECK, format!("{}: is open to group or others; use mode 0700", folder.display()));
            }
            if let Some(free) = disk_space::insufficient_free_bytes(folder) {
                has_capacity = false;
                let free = free >> 10;
                let least = disk_space::MIN_FREE_BYTES >> 10;
                let text = format!("{free} KiB free on its disk; the store needs more than {least}");
                report.wrong(STORE_CHECK, format!("{}: {text}", folder.display()));
            }
            folder.display().to_string()
        }
        StoreLocation::Database(_) => "the database".to_owned(),
    };
    let missing = match &config.seal_key {
        SealKeySource::File(file) if !file.exists() => Some(file),
        _ => None,
    };
    // If the key file is missing, a random key is used. It cannot open an existing store, but suffices to find out
    // whether the store is empty.
    let key = if missing.is_some() { Ok(SealKey::random()) } else { seal_key(config) };
    let key = match key {
        Ok(key) => key,
        Err(error) => return report.wrong(SEAL_CHECK, error.text()),
    };
    let found = inspect(database, &key).await;
    match (found, missing) {
        (Ok(StoreInspection::Nothing), None) => {
            report.ok(SEAL_CHECK, format!("{}", key.describe()));
            report.note(
                STORE_CHECK,
                format!("{name}: is still empty: signet operator init creates the store and the first token"),
            );
        }
        (Ok(StoreInspection::Nothing), Some(file)) => {
            let text = "is still empty: signet operator init creates the store, the seal key and the first token";
            report.note(SEAL_CHECK, format!("{}: does not exist yet", file.display()));
            report.note(STORE_CHECK, format!("{name}: {text}"));
        }
        (Ok(StoreInspection::InUse), None) => {
            report.ok(SEAL_CHECK, format!("{}", key.describe()));
            report.ok(STORE_CHECK, format!("{name}: in use by a running server"));
        }
        (Ok(StoreInspection::Opened { seal, schema, newest, managed_keys }), None) => {
            report.ok(SEAL_CHECK, format!("{seal}: opens the store"));
            let done = if has_capacity { "can be read and written" } else { "can be read" };
            report.ok(STORE_CHECK, format!("{name}: {done}; {}", describe_version(schema, newest)));
            check_managed_keys(report, config, managed_keys);
        }
        (Ok(StoreInspection::InUse | StoreInspection::Opened { .. }), Some(file)) => {
            report.wrong(
                SEAL_CHECK,
                format!("seal_key_file: file does not exist: {}: restore the seal key", file.display()),
            );
        }
        (Err(error), _) => report.wrong(error_label(&error), describe_error(&error, missing.is_some())),
    }
}

/// Reports managed keys (keys in a device) whose PKCS#11 library is not configured, so that they cannot sign.
fn check_managed_keys(report: &mut CheckReport, config: &Config, managed_keys: Vec<Document>) {
    let libraries = match managed::libraries_by_key(managed_keys) {
        Ok(libraries) => libraries,
        Err(error) => return report.wrong("managed_key", describe_error(&error, false)),
    };
    for (key, library) in libraries {
        if !config.pkcs11_libraries.keys().any(|name| name.eq_ignore_ascii_case(&library)) {
            let text = format!("{key:?} cannot be used: pkcs11_libraries has no {library:?}");
            report.wrong("managed_key", text);
        }
    }
}

fn describe_version(schema: usize, newest: usize) -> String {
    if schema == newest {
        return format!("schema version {schema}");
    }
    format!("schema version {schema}, which the next start brings to {newest}")
}

fn error_label(error: &Error) -> &'static str {
    if error.text().starts_with("seal") { SEAL_CHECK } else { STORE_CHECK }
}

fn describe_error(error: &Error, missing: bool) -> String {
    if missing && error.kind() == Kind::Invalid && !error.text().starts_with("storage: the database has") {
        return "the seal key is missing, and the store is sealed with one: restore the seal key".to_owned();
    }
    match database_message(error) {
        Some(said) => format!("{error} ({said})"),
        None => error.text().to_owned(),
    }
}
