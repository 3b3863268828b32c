//! The files that a setup writes: the configuration and the files next to it. No file with content is ever overwritten.

use std::path::{Path, PathBuf};

use crate::config::{Config, ConfigEnvironment, SealKeySource, StoreLocation, TlsFiles};
use crate::error::{Error, Kind, Result, describe_io_error};
use crate::storage::backup;
use rustix::fs::{Access, access};

use super::super::files;
pub(super) use super::super::files::FileContent;
use super::arguments::InstallationArguments;
use super::plan::{LISTENER_ROLE, SetupPlan};
use crate::cli::files::folder_of;

pub(super) const DEFAULT_LISTEN_ADDRESS: &str = "127.0.0.1:8200";
pub(super) const DEFAULT_HOST_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Returns the default data folder: `data` next to the configuration, or `/var/lib/signet` for a configuration below
/// `/etc`.
pub(super) fn default_data_dir(config: &Path) -> PathBuf {
    if config.starts_with("/etc") {
        PathBuf::from("/var/lib/signet")
    } else {
        make_absolute(&config.with_file_name("data"))
    }
}

pub(super) fn render_configuration(
    file: &Path,
    installation: &InstallationArguments,
    plan: &SetupPlan,
    environment: &ConfigEnvironment,
) -> Result<String> {
    let from_environment = environment.get("SIGNET_DATABASE_URL").is_some();
    let folder = match (&installation.data_dir, &installation.database_url) {
        (Some(folder), _) => Some(make_absolute(folder)),
        (None, Some(_)) => None,
        (None, None) if from_environment => None,
        (None, None) => Some(default_data_dir(file)),
    };
    let in_folder = |name: &str| make_absolute(&file.with_file_name(name));
    let seal_key = installation.seal_key_file.as_deref().map_or_else(|| in_folder("seal.key"), make_absolute);
    let tls = installation.tls_dir.as_deref().map(make_absolute).or_else(|| folder.clone());
    // With a configuration below `/etc`, the TLS files are in the default data folder, because the server replaces them
    // itself and cannot write below `/etc`.
    let tls = tls.or_else(|| file.starts_with("/etc").then(|| default_data_dir(file)));
    let in_tls = |name: &str| tls.as_ref().map_or_else(|| in_folder(name), |folder| folder.join(name));
    let names = match installation.name.is_empty() {
        true => DEFAULT_HOST_NAMES.map(str::to_owned).to_vec(),
        false => installation.name.clone(),
    };
    let listen = installation.listen.map_or_else(|| DEFAULT_LISTEN_ADDRESS.to_owned(), |address| address.to_string());
    let store = match (&folder, &installation.database_url) {
        (Some(folder), _) => format!("data_dir = {}", quote_path(folder)?),
        (None, Some(url)) => format!("database_url = {}", quote_toml(url)),
        (None, None) => "# database_url is in the environment: SIGNET_DATABASE_URL".to_owned(),
    };
    let seal = if environment.get("SIGNET_SEAL_KEY").is_some() {
        "# seal_key is in the environment: SIGNET_SEAL_KEY".to_owned()
    } else {
        format!("seal_key_file = {}", quote_path(&seal_key)?)
    };
    let names: Vec<String> = names.iter().map(|name| quote_toml(name)).collect();
    let public_listen = match installation.public_listen {
        Some(address) => format!("public_listen = {}", quote_toml(&address.to_string())),
        None => "# public_listen = \"0.0.0.0:8080\"".to_owned(),
    };
    let metrics_listen = match installation.metrics_listen {
        Some(address) => format!("metrics_listen = {}", quote_toml(&address.to_string())),
        None => "# metrics_listen = \"127.0.0.1:8201\"".to_owned(),
    };
    let audit = match &installation.audit_file {
        Some(file) => {
            format!("audit = [{{ type = \"file\", file_path = {} }}]", quote_path(&make_absolute(file))?)
        }
        None => "# audit = [{ type = \"file\", file_path = \"/var/log/signet/audit.log\" }]".to_owned(),
    };
    let public_url = match &plan.public_url {
        Some(url) => format!("public_url = {}", quote_toml(url)),
        None => "# public_url = \"http://pki.example\"".to_owned(),
    };
    Ok(format!(
        "# Configuration of this Signet server, created by `signet setup`. signet.example.toml explains all settings.\n\
         # After a change, run `signet check --config FILE`. Environment variables take precedence: SIGNET_LISTEN, ….\n\
         \n\
         # Address and port; TLS is required except on the loopback. A change needs a restart.\n\
         listen = {listen}\n\
         \n\
         # The store. A folder is for one server at a time; any number of nodes share a database.\n\
         {store}\n\
         \n\
         # The seal key, which decrypts the store. Keep a copy apart from the data: without the key the data is lost.\n\
         {seal}\n\
         \n\
         # The audit log: a line for each request and response. SIGHUP reopens the file.\n\
         {audit}\n\
         \n\
         # /metrics for Prometheus without a token.\n\
         {metrics_listen}\n\
         \n\
         # Serves only CRLs, OCSP and CA certificates, over plain HTTP, to relying parties.\n\
         {public_listen}\n\
         {public_url}\n\
         \n\
         # The server's certificate with its chain, and its private key.\n\
         tls_certificate_file = {certificate}\n\
         tls_key_file = {key}\n\
         \n\
         # The server renews this certificate by itself when a third of its lifetime is left. The role\n\
         # {mount}/roles/{LISTENER_ROLE} must allow all names. Without this table, replace the files yourself and send\n\
         # SIGHUP.\n\
         [tls_renew]\n\
         mount = {quoted_mount}\n\
         role = \"{LISTENER_ROLE}\"\n\
         names = [{names}]\n",
        listen = quote_toml(&listen),
        certificate = quote_path(&in_tls("tls.pem"))?,
        key = quote_path(&in_tls("tls-key.pem"))?,
        mount = plan.mount,
        quoted_mount = quote_toml(&plan.mount),
        names = names.join(", "),
    ))
}

/// Checks that the files that a new installation writes do not exist yet, and that its data folder is empty.
///
/// # Errors
/// `Conflict`, with the existing file.
pub(super) fn require_no_existing_files(config: &Config, plan: &SetupPlan) -> Result<()> {
    if let StoreLocation::Embedded(folder) = &config.store
        && backup::database_path(folder).exists()
    {
        let folder = folder.display();
        let file = plan.config.display();
        let text = format!(
            "--data-dir: {folder} has a store, but {file} does not exist: give its configuration with --config; if \
             that file is lost, write it again first (see docs/getting-started.md)"
        );
        return Err(Error::new(Kind::Conflict, text));
    }
    let tls = config.tls.iter().flat_map(|files| [&files.certificate, &files.key]);
    let others = [&plan.admin_token_file, &plan.root_file];
    if let Some(file) = tls.chain(others).chain(plan.outside_csr_file.as_ref()).find(|file| file.exists()) {
        return Err(Error::file_exists(file.display()));
    }
    if let StoreLocation::Embedded(folder) = &config.store
        && std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
    {
        let text = format!(
            "--data-dir: {} is not empty: give its configuration with --config, or use an empty folder",
            folder.display()
        );
        return Err(Error::new(Kind::Conflict, text));
    }
    Ok(())
}

/// Fails if only one of the listener's certificate and key files exists.
///
/// # Errors
/// `Conflict`, with the existing file and advice.
pub(super) fn check_tls_pair(files: &TlsFiles) -> Result<()> {
    let (there, lost) = match (files.certificate.exists(), files.key.exists()) {
        (true, false) => (&files.certificate, &files.key),
        (false, true) => (&files.key, &files.certificate),
        _ => return Ok(()),
    };
    let there = there.display();
    let text = format!(
        "{there}: exists, but {} does not, and neither is of use without the other: remove {there} and run the setup \
         again, which creates both",
        lost.display()
    );
    Err(Error::new(Kind::Conflict, text))
}

/// Returns those of the root certificate file and the administrator's token file that exist and are not empty. An
/// earlier setup has written them, and they belong to the contents of its store.
pub(super) fn existing_setup_files(plan: &SetupPlan) -> Vec<&Path> {
    [&plan.root_file, &plan.admin_token_file]
        .into_iter()
        .map(PathBuf::as_path)
        .filter(|file| exists_and_is_not_empty(file))
        .collect()
}

pub(super) fn exists_and_is_not_empty(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| found.len() > 0)
}

/// Returns the error for a file of an earlier setup that exists although the store is missing or empty. `what` is the
/// missing object, for the message.
pub(super) fn missing_store_error(file: &Path, what: &str, config: &Config) -> Error {
    let (location, mounted) = match &config.store {
        StoreLocation::Embedded(folder) => (folder.display().to_string(), "is its volume mounted?"),
        StoreLocation::Database(_) => ("the database".to_owned(), "does database_url name the right one?"),
    };
    let file = file.display();
    let text = format!(
        "{file}: exists from an earlier setup, but {what} in {location}: {mounted} For a new installation move {file} \
         away"
    );
    Error::new(Kind::Conflict, text)
}

/// Checks the folders of the files that the last steps of the setup write: each folder is writable, or
/// [`create_folders`] will create it.
///
/// # Errors
/// `Invalid`, with the flag and the folder.
pub(super) fn check_folders(config: &Config, plan: &SetupPlan, installation: &InstallationArguments) -> Result<()> {
    let made: Vec<PathBuf> = config_folders(config, &plan.config).map(|(folder, _)| make_absolute(folder)).collect();
    let files = [("--admin-token-file", &plan.admin_token_file), ("--config", &plan.root_file)];
    let files = files.into_iter().chain(plan.outside_csr_file.iter().map(|file| ("--csr", file)));
    let files = files.chain(installation.audit_file.iter().map(|file| ("--audit-file", file)));
    for (flag, file) in files.filter(|(_, file)| !file.exists()) {
        let folder = folder_of(file);
        let is_there = folder.is_dir();
        if !is_there && !made.contains(&make_absolute(folder)) {
            let rule = "is not a folder: create it first, or specify another file";
            return Err(Error::invalid(format!("{flag}: {} {rule}", folder.display())));
        }
        if is_there && let Err(e) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
            let why = describe_io_error(std::io::Error::from(e).kind());
            let rule = format!(
                "cannot be written to ({why}): specify another file, or make the folder writable for this user"
            );
            return Err(Error::invalid(format!("{flag}: {} {rule}", folder.display())));
        }
    }
    Ok(())
}

pub(super) fn create_folders(config: &Config, file: &Path) -> Result<()> {
    for (folder, mode) in config_folders(config, file) {
        files::create_folder(folder.display(), folder, mode)?;
    }
    Ok(())
}

/// Returns the folders that a setup creates if they are missing, each with its mode.
fn config_folders<'a>(config: &'a Config, file: &'a Path) -> impl Iterator<Item = (&'a Path, u32)> {
    let seal_key = if let SealKeySource::File(key) = &config.seal_key { Some(folder_of(key)) } else { None };
    let data = if let StoreLocation::Embedded(folder) = &config.store { Some(folder.as_path()) } else { None };
    let tls = config.tls.iter().flat_map(|files| [folder_of(&files.key), folder_of(&files.certificate)]);
    std::iter::once((folder_of(file), 0o755)).chain(seal_key.into_iter().chain(data).chain(tls).map(|one| (one, 0o700)))
}

/// Writes a new file atomically. An existing file is replaced only if it is empty.
///
/// # Errors
/// `Conflict` when the file has content; `Unavailable` when it cannot be written.
pub(super) fn write_new(file: &Path, bytes: &[u8], content: FileContent) -> Result<()> {
    files::write_new(file, &[bytes], content)
        .map_err(|e| if e.kind() == Kind::Conflict { Error::file_exists(file.display()) } else { e })
}

/// Makes a path absolute, because the server may run in another working directory than the setup.
pub(super) fn make_absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn quote_path(path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| Error::invalid(format!("{}: is not text", path.display())))?;
    Ok(quote_toml(text))
}

/// Encodes a text as a TOML string. A JSON string is also a valid TOML string.
fn quote_toml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::arguments::SetupArguments;
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: SetupArguments,
    }

    #[test]
    fn certificate_folder_is_one_the_server_can_write() {
        let text = |file: &str, flags: &[&str]| {
            let line = [&["setup", "--domain", "example.test"], flags].concat();
            let SetupArguments { installation, wanted, .. } = Line::parse_from(line).arguments;
            let plan = SetupPlan::new(wanted, Path::new(file)).unwrap();
            let environment = ConfigEnvironment::for_file(Path::new(file)).unwrap();
            render_configuration(Path::new(file), &installation, &plan, &environment).unwrap()
        };
        let database = ["--database-url", "postgres:///signet"];
        for (file, flags, folder) in [
            ("/etc/signet/signet.toml", &[][..], "/var/lib/signet"),
            ("/etc/signet/signet.toml", &database, "/var/lib/signet"),
            ("/srv/signet/signet.toml", &database, "/srv/signet"),
            ("/srv/signet/signet.toml", &[], "/srv/signet/data"),
        ] {
            let text = text(file, flags);
            assert!(text.contains(&format!("tls_key_file = \"{folder}/tls-key.pem\"")), "{file} {flags:?}: {text}");
        }
    }
}
