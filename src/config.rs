//! The configuration: settings from a TOML file and the environment, with defaults and rules.
//!
//! [`SETTINGS`] declares all settings; a name with a dot is a member of a TOML table. The environment overrides the
//! file, and an empty variable counts as unset. Unknown names and invalid values (`rules`) are all reported together. A
//! test checks `signet.example.toml` against [`SETTINGS`]. Secrets, except a password in `database_url`, are in
//! separate files or in the environment. Errors never quote values, and [`Config`] does not implement `Debug`, because
//! values may be secret.

mod audit;
mod cloud;
mod cloudb;
mod environment;
mod reader;
mod rules;
mod seal;
mod settings;
mod tls;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

pub use self::environment::ConfigEnvironment;
use self::reader::SettingReader;
pub use self::settings::{SETTINGS, Setting};
use crate::audit::AuditDeviceSettings;
use crate::auth::{CloudbSettings, LoginSettings};
use crate::error::{Error, Result};
use crate::fields::{Fields, closest_name};
use crate::http::settings::HttpSettings;
use crate::keys::cloudakms::AkmsSealSettings;
use crate::keys::pkcs11::Pkcs11SealSettings;
use crate::keys::{CloudSettings, StockSizes};
use crate::secret::Secret;
use crate::telemetry::LogSettings;

/// Maximum size of a configuration file, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// A validated configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Address of the main listener.
    pub listen: SocketAddr,
    /// Files of the TLS certificate; `None` for plain HTTP, which requires a loopback address.
    pub tls: Option<TlsFiles>,
    /// Automatic renewal of the TLS certificate, if configured.
    pub tls_renewal: Option<TlsRenewal>,
    /// Address of the metrics listener.
    pub metrics_listen: Option<SocketAddr>,
    /// Address of the public listener for CRLs, OCSP and CA certificates.
    pub public_listen: Option<SocketAddr>,
    /// Location of the store.
    pub store: StoreLocation,
    /// Source of the seal key, which unseals the store.
    pub seal_key: SealKeySource,
    /// HTTP worker threads; 0 means one per CPU core.
    pub workers: usize,
    /// Maximum number of connections of the main listener; 0 means as many as the limit of open files allows.
    pub max_connections: usize,
    /// Maximum number of connections of the main listener from one address; 0 means half of the total.
    pub max_connections_per_address: usize,
    /// Maximum number of connections of the public listener; 0 means a quarter of all connections.
    pub public_max_connections: usize,
    /// Maximum number of write units in progress. A unit is a set of rows that are stored together or not at all.
    pub commit_queue: usize,
    /// Maximum number of PostgreSQL connections for the projects API.
    pub projects_connections: usize,
    /// Number of RSA keys of each size to generate in advance.
    pub rsa_key_stock: StockSizes,
    /// Settings of the HTTP APIs.
    pub http: HttpSettings,
    /// The audit devices.
    pub audit: Vec<AuditDeviceSettings>,
    /// Settings of the logs.
    pub log: LogSettings,
    /// Paths of the PKCS #11 libraries that managed keys and the seal may use, by name.
    pub pkcs11_libraries: BTreeMap<String, PathBuf>,
    /// Settings of the cloud key services for managed keys, without those from the cloud provider's own environment
    /// variables.
    pub cloud: CloudSettings,
    /// Settings of authentication methods.
    pub logins: LoginSettings,
}

/// The files of a TLS certificate, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, leaf first.
    pub certificate: PathBuf,
    /// The private key, not encrypted.
    pub key: PathBuf,
}

/// Settings of the automatic renewal of the TLS certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsRenewal {
    /// Path of the mount that issues the certificate.
    pub mount: String,
    /// Role of the mount with which the certificate is issued.
    pub role: String,
    /// Host names in the certificate.
    pub hosts: Vec<String>,
    /// IP addresses in the certificate.
    pub addresses: Vec<IpAddr>,
}

/// The location of the store.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// The embedded store in this folder.
    Embedded(PathBuf),
    /// A PostgreSQL database. Its URL may contain a password.
    Database(Secret),
}

/// The source of the seal key.
#[derive(Clone, PartialEq, Eq)]
pub enum SealKeySource {
    /// A file of mode 0600.
    File(PathBuf),
    /// The text of the key, from the environment.
    Text(Secret),
    /// A key in a PKCS #11 token.
    Pkcs11(Pkcs11SealSettings),
    /// A key in the key service of AWS.
    CloudAkms(AkmsSealSettings),
}

/// As [`load`], for the new configuration of `rotate-seal-key --to`. Its environment variables begin with `SIGNET_NEW_`
/// instead of `SIGNET_`.
///
/// # Errors
/// As [`load`].
pub fn load_new(file: &Path) -> Result<Config> {
    load_with("--to", file, |name| name.replacen("SIGNET_", "SIGNET_NEW_", 1))
}

/// Reads and validates a configuration file, with the environment variables of this process and of the package's
/// systemd unit.
///
/// # Errors
/// `Invalid` with every problem, one per line.
pub fn load(file: &Path) -> Result<Config> {
    load_with("--config", file, str::to_owned)
}

/// Loads a configuration file. `variable_name` maps the name of a setting's environment variable to the one to read.
/// `flag` is the command line option that gave the file, for messages.
fn load_with(flag: &str, file: &Path, variable_name: impl Fn(&str) -> String) -> Result<Config> {
    let text = read_config_text(file).map_err(|error| describe_unreadable(flag, file, error))?;
    if text.len() as u64 > MAX_CONFIG_BYTES {
        return Err(Error::invalid(format!("{}: larger than the limit of 1 MiB", file.display())));
    }
    let environment = ConfigEnvironment::for_file(file)?;
    let describe = |name: &str| environment.describe(&variable_name(name));
    parse_with(&text, |name| environment.get(&variable_name(name)), describe).map_err(|error| {
        let hint = environment.hint().map_or_else(String::new, |hint| format!("\n{hint}"));
        Error::invalid(format!("{}:\n{}{hint}", file.display(), error.text()))
    })
}

/// Reads at most one byte more than [`MAX_CONFIG_BYTES`], because the path may be a device without an end.
fn read_config_text(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn describe_unreadable(flag: &str, file: &Path, error: std::io::Error) -> Error {
    let hint = if error.kind() == ErrorKind::NotFound { " (signet setup creates one)" } else { "" };
    Error::invalid(format!("{}{hint}", Error::of_file(flag, file, "read", error)))
}

/// Parses and validates the text of a configuration file. `env` returns the value of an environment variable.
///
/// # Errors
/// `Invalid` with every problem, one per line.
pub fn parse(text: &str, env: impl Fn(&str) -> Option<String>) -> Result<Config> {
    parse_with(text, env, describe_process_variable)
}

/// Describes an environment variable of this process, for messages.
fn describe_process_variable(name: &str) -> String {
    format!("{name} of the environment")
}

fn parse_with(text: &str, env: impl Fn(&str) -> Option<String>, describe: impl Fn(&str) -> String) -> Result<Config> {
    let file: Map<String, Value> = toml::from_str(text).map_err(|e| {
        // The parser's message quotes the line, which may contain a secret. So only its position is used.
        let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        Error::invalid(format!(
            "line {line}, column {}: not valid TOML: a line is name = value, text is in quotes \
             (listen = \"127.0.0.1:8200\"), and no name is given twice",
            column + 1
        ))
    })?;
    let file = flatten_tables(file);
    let mut problems = Vec::new();
    for name in file.keys() {
        match SETTINGS.iter().find(|s| s.name == name.as_str()) {
            None if is_settings_table(name) => problems.push(format!("{name}: must be a table, [{name}]")),
            None => problems.push(describe_unknown_name(name)),
            Some(s) if s.env_only => {
                problems.push(format!("{name}: can only be set in the environment, as {}", s.variable_name()));
            }
            Some(_) => {}
        }
    }
    let mut rule_problems = Vec::new();
    let config = rules::validate(&collect_values(&file, &env), &mut rule_problems);
    problems.extend(add_variable_names(rule_problems, env, describe));
    fail_on_problems(problems).map(|()| config)
}

/// Returns the message for an unknown setting. A top-level setting below a table header is a common mistake: TOML makes
/// it a member of the table.
fn describe_unknown_name(name: &str) -> String {
    let is_setting = |name: &str| SETTINGS.iter().any(|setting| setting.name == name);
    match name.split_once('.') {
        Some((table, member)) if is_setting(member) => {
            format!("{name}: unknown setting: {member} belongs above the first table ([{table}])")
        }
        _ => {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            let meant = closest_name(name, &names).map(|meant| format!(": did you mean {meant}?")).unwrap_or_default();
            format!("{name}: unknown setting{meant}")
        }
    }
}

fn fail_on_problems(problems: Vec<String>) -> Result<()> {
    if problems.is_empty() { Ok(()) } else { Err(Error::invalid(problems.join("\n"))) }
}

/// Adds the name of the environment variable to each problem with a value that comes from the environment and not from
/// the file.
fn add_variable_names(
    problems: Vec<String>,
    env: impl Fn(&str) -> Option<String>,
    describe: impl Fn(&str) -> String,
) -> impl Iterator<Item = String> {
    let variable = move |name: &str| {
        let setting = SETTINGS.iter().find(|setting| setting.name == name)?;
        environment_value(setting, &env).map(|_| describe(&setting.variable_name()))
    };
    problems.into_iter().map(move |problem| match problem.split_once(": ") {
        Some((name, rule)) => match variable(name) {
            Some(variable) => format!("{name} ({variable}): {rule}"),
            None => problem,
        },
        None => problem,
    })
}

/// Returns the value of a setting's environment variable; `None` if it is unset or empty.
fn environment_value(setting: &Setting, env: impl Fn(&str) -> Option<String>) -> Option<String> {
    env(&setting.variable_name()).filter(|value| !value.is_empty())
}

/// Reads the settings of the cloud key services and of the authentication method `cloudb` from the environment, for a
/// server without a configuration file.
///
/// # Errors
/// `Invalid` with every problem, one per line.
pub fn cloud_settings_from_environment(
    env: impl Fn(&str) -> Option<String>,
) -> Result<(CloudSettings, CloudbSettings)> {
    read_from_environment(env, |reader| (cloud::read_settings(reader), cloudb::read_settings(reader)))
}

/// Reads the sizes of the RSA key stock from the environment, for a server without a configuration file.
///
/// # Errors
/// `Invalid` with every problem, one per line.
pub fn rsa_key_stock_from_environment(env: impl Fn(&str) -> Option<String>) -> Result<StockSizes> {
    read_from_environment(env, |reader| reader.rsa_key_stock())
}

/// Reads the log settings from the environment, for commands without a configuration file.
///
/// # Errors
/// `Invalid` with every problem, one per line.
pub fn log_settings_from_environment(env: impl Fn(&str) -> Option<String>) -> Result<LogSettings> {
    read_from_environment(env, |reader| reader.log())
}

fn read_from_environment<T>(
    env: impl Fn(&str) -> Option<String>,
    read: impl FnOnce(&mut SettingReader<'_>) -> T,
) -> Result<T> {
    let fields = collect_values(&Map::new(), &env);
    let mut problems = Vec::new();
    let settings = read(&mut SettingReader { fields: &fields, problems: &mut problems });
    fail_on_problems(add_variable_names(problems, env, describe_process_variable).collect()).map(|()| settings)
}

/// Collects the value of each setting: from the environment, else from the configuration file, else the default. A
/// secret can be given directly or as the name of a file; either form in the environment overrides both forms in the
/// configuration file.
fn collect_values(file: &Map<String, Value>, env: impl Fn(&str) -> Option<String>) -> Fields {
    let is_in_env =
        |name: &str| SETTINGS.iter().any(|setting| setting.name == name && environment_value(setting, &env).is_some());
    let is_replaced = |name: &str| seal::other_secret_form(name).is_some_and(is_in_env);
    let mut fields = Fields::default();
    for setting in SETTINGS {
        let value = match (environment_value(setting, &env), file.get(setting.name)) {
            (Some(value), _) => Value::String(value),
            (None, Some(value)) if !setting.env_only && !is_replaced(setting.name) => value.clone(),
            _ if setting.default.is_empty() => continue,
            _ => Value::from(setting.default),
        };
        fields.set(setting.name, value);
    }
    fields
}

/// Replaces each TOML table of settings by its members, whose names get the table's name and a dot as prefix.
fn flatten_tables(file: Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in file {
        match value {
            Value::Object(members) if is_settings_table(&name) => {
                all.extend(members.into_iter().map(|(member, value)| (format!("{name}.{member}"), value)));
            }
            value => drop(all.insert(name, value)),
        }
    }
    all
}

/// `true` if some settings are members of a TOML table with this name.
fn is_settings_table(name: &str) -> bool {
    SETTINGS.iter().any(|s| s.name.split_once('.').is_some_and(|(table, _)| table == name))
}

/// `true` if two listeners conflict: they have the same port, and either the same IP address, or one of them listens on
/// all addresses, which include that of the other.
pub fn listeners_overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_over = |one: IpAddr, other: IpAddr| one.is_unspecified() && (one.is_ipv6() || other.is_ipv4());
    let a = one.ip();
    let b = other.ip();
    one.port() == other.port() && one.port() != 0 && (a == b || is_over(a, b) || is_over(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::serials::SerialPrefix;
    use crate::telemetry::LogFormat;
    use proptest::prelude::*;

    fn no_variables(_: &str) -> Option<String> {
        None
    }

    fn parse_error(text: &str) -> String {
        parse(text, no_variables).err().unwrap().text().to_owned()
    }

    #[test]
    fn defaults_match_the_settings_table() {
        let config = parse("data_dir = \"/var/lib/signet\"", no_variables).ok().unwrap();
        assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 8200)));
        assert!(config.store == StoreLocation::Embedded("/var/lib/signet".into()));
        assert!(config.seal_key == SealKeySource::File("/var/lib/signet/seal.key".into()));
        assert_eq!(config.http, HttpSettings::default());
        let log = LogSettings { filter: "info".to_owned(), format: LogFormat::Text, access: true };
        assert_eq!((config.log, config.workers), (log, 0));
        assert_eq!((config.tls, config.metrics_listen, config.commit_queue), (None, None, 4096));
        assert_eq!((config.max_connections, config.max_connections_per_address), (0, 0));
        assert_eq!(config.rsa_key_stock, StockSizes { rsa_2048: 512, rsa_3072: 0, rsa_4096: 0 });
        assert!(config.pkcs11_libraries.is_empty());
        assert_eq!(config.cloud, CloudSettings::default());
        assert_eq!(config.http.serial_numbers, SerialPrefix::Time);
        let random = parse("data_dir = \"d\"\nserial_numbers = \"random\"", no_variables).ok().unwrap();
        assert_eq!(random.http.serial_numbers, SerialPrefix::Random);
    }

    #[test]
    fn trusted_proxies_are_networks_or_addresses() {
        let networks = ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"].map(|network| network.parse().unwrap());
        let list = "data_dir = \"d\"\ntrusted_proxies = [\"10.1.2.3/8\", \"192.0.2.7\", \"2001:db8::/32\"]";
        assert_eq!(parse(list, no_variables).ok().unwrap().http.trusted_proxies, networks);
        let env = |name: &str| (name == "SIGNET_TRUSTED_PROXIES").then(|| "10.0.0.0/8, ::ffff:192.0.2.7".to_owned());
        assert_eq!(parse("data_dir = \"d\"", env).ok().unwrap().http.trusted_proxies, networks[..2]);
    }

    #[test]
    fn environment_overrides_file_and_empty_counts_as_unset() {
        let env = |name: &str| match name {
            "SIGNET_WORKERS" => Some("3".to_owned()),
            "SIGNET_LOG" => Some(String::new()),
            "SIGNET_PKCS11_LIBRARIES" => Some("a=/lib/a.so, b=/lib/b.so".to_owned()),
            _ => None,
        };
        let config = parse("data_dir = \"d\"\nworkers = 2\nlog = \"warn\"", env).ok().unwrap();
        assert_eq!((config.workers, &config.log.filter[..]), (3, "warn"));
        assert_eq!(config.pkcs11_libraries["b"], Path::new("/lib/b.so"));
    }

    #[test]
    fn cloud_services_are_read_from_file_and_environment() {
        let text = "data_dir = \"d\"\ngoogle_endpoint = \"https://kms.test\"\nazure_extra_suffixes = [\"a.test\"]";
        let env = |name: &str| match name {
            "SIGNET_GOOGLE_ENDPOINT" => Some("http://127.0.0.1:1".to_owned()),
            "SIGNET_GOOGLE_SOFTWARE_KEYS" => Some("true".to_owned()),
            "SIGNET_AZURE_EXTRA_SUFFIXES" => Some("a.test, b.test".to_owned()),
            _ => None,
        };
        let of_file = parse(text, no_variables).ok().unwrap().cloud;
        assert_eq!((of_file.google.endpoint.as_str(), of_file.google.software_keys), ("https://kms.test", false));
        assert_eq!(of_file.azure.extra_suffixes, ["a.test"]);
        let both = parse(text, env).ok().unwrap().cloud;
        assert_eq!((both.google.endpoint.as_str(), both.google.software_keys), ("http://127.0.0.1:1", true));
        assert_eq!(both.azure.extra_suffixes, ["a.test", "b.test"]);
        assert_eq!(cloud_settings_from_environment(env).unwrap().0, both);
        assert_eq!(cloud_settings_from_environment(no_variables).unwrap().0, CloudSettings::default());
        let wrong = |name: &str| (name == "SIGNET_AZURE_IMDS_URL").then(|| "http://hunter2.test".to_owned());
        assert!(
            cloud_settings_from_environment(wrong)
                .err()
                .unwrap()
                .text()
                .starts_with("azure_imds_url (SIGNET_AZURE_IMDS_URL of the environment): must be a URL of this")
        );
    }

    #[test]
    fn rsa_key_stock_is_read_from_file_and_environment() {
        let text = "data_dir = \"d\"\n[rsa_key_stock]\n2048 = 0\n4096 = 20";
        let env = |name: &str| match name {
            "SIGNET_RSA_KEY_STOCK_2048" => Some("4096".to_owned()),
            "SIGNET_RSA_KEY_STOCK_3072" => Some("3".to_owned()),
            _ => None,
        };
        let of_file = parse(text, no_variables).ok().unwrap().rsa_key_stock;
        assert_eq!(of_file, StockSizes { rsa_2048: 0, rsa_3072: 0, rsa_4096: 20 });
        let both = parse(text, env).ok().unwrap().rsa_key_stock;
        assert_eq!(both, StockSizes { rsa_2048: 4096, rsa_3072: 3, rsa_4096: 20 });
        let alone = rsa_key_stock_from_environment(env).unwrap();
        assert_eq!(alone, StockSizes { rsa_2048: 4096, rsa_3072: 3, rsa_4096: 0 });
        let wrong = |name: &str| (name == "SIGNET_RSA_KEY_STOCK_2048").then(|| "5000".to_owned());
        let error = rsa_key_stock_from_environment(wrong).unwrap_err();
        let variable = "SIGNET_RSA_KEY_STOCK_2048 of the environment";
        assert_eq!(error.text(), format!("rsa_key_stock.2048 ({variable}): must be a number between 0 and 4096"));
    }

    #[test]
    fn config_problems_are_all_reported_without_values() {
        let text =
            "worker = 1\nlisten = \"hunter2\"\nmax_request_size = 1\nbody_timeout = \"-1s\"\nlog_format = \"xml\"";
        let error = parse_error(text);
        for name in ["worker: unknown", "listen:", "data_dir:", "max_request_size:", "body_timeout:", "log_format:"] {
            assert!(error.contains(name), "{name} in {error}");
        }
        assert!(!error.contains("hunter2"));
        let unread = parse_error("a = 1\nlisten = \"hunter2");
        assert!(unread.starts_with("line 2, column 18: not valid TOML: ") && !unread.contains("hunter2"), "{unread}");
    }

    #[test]
    fn environment_error_names_the_variable_not_the_file() {
        let env = |name: &str| match name {
            "SIGNET_LISTEN" => Some("hunter2".to_owned()),
            "SIGNET_WORKERS" => Some(String::new()),
            "SIGNET_CLOUDB_IMDS_URL" => Some("http://10.0.0.1".to_owned()),
            "SIGNET_SEAL_KEY" => Some("00".to_owned()),
            _ => None,
        };
        let text = "data_dir = \"d\"\nseal_key = \"00\"\nlisten = \"127.0.0.1:1\"\nworkers = -1";
        let told = |describe: fn(&str) -> String| parse_with(text, env, describe).err().unwrap().text().to_owned();
        for (describe, prefix) in [
            (describe_process_variable as fn(&str) -> String, "SIGNET_"),
            (|name| describe_process_variable(&name.replacen("SIGNET_", "SIGNET_NEW_", 1)), "SIGNET_NEW_"),
        ] {
            let told = told(describe);
            for problem in [
                format!("listen ({prefix}LISTEN of the environment): must be an address"),
                "workers: must be a number".to_owned(),
                "seal_key: can only be set in the environment".to_owned(),
                format!("cloudb.imds_url ({prefix}CLOUDB_IMDS_URL of the environment): must be"),
            ] {
                assert!(told.lines().any(|line| line.starts_with(&problem)), "{problem}: {told}");
            }
        }
    }

    #[test]
    fn contradicting_config_settings_are_refused() {
        let good = "data_dir = \"d\"\n";
        for (text, problem) in [
            ("listen = \"0.0.0.0:8200\"", "listen: plain HTTP is for the loopback only"),
            ("tls_key_file = \"k\"", "tls_certificate_file: must be given with tls_key_file"),
            ("tls_certificate_file = \"c\"", "tls_key_file: must be given with tls_certificate_file"),
            (
                "database_url = \"postgres://h/d\"\nseal_key_file = \"s\"",
                "database_url: must not be given with data_dir",
            ),
            ("seal_key = \"00\"", "seal_key: can only be set in the environment, as SIGNET_SEAL_KEY"),
            ("tls_renew.mount = \"pki\"", "tls_renew.mount: requires tls_certificate_file"),
            ("metrics_listen = \"127.0.0.1:8200\"", "metrics_listen: overlaps with listen"),
            ("public_listen = \"127.0.0.1:8200\"", "public_listen: overlaps with listen"),
            ("public_listen = \"[::1]:1\"\nmetrics_listen = \"[::1]:1\"", "public_listen: overlaps with"),
            ("public_url = \"https://pki.example\"", "public_url: must be http and an authority"),
            ("public_url = \"http://pki.example/v1\"", "public_url: must be http and an authority"),
            ("metrics_listen = \"0.0.0.0:9\"\npublic_listen = \"127.0.0.1:9\"", "public_listen: overlaps with"),
            ("metrics_listen = \"[::]:8200\"", "metrics_listen: overlaps with listen"),
            ("rsa_key_stock = 5", "rsa_key_stock: must be a table, [rsa_key_stock]"),
            ("log = \"a=b=c\"", "log: must be"),
            ("log = \"warning\"", "log: must be off, error, warn, info, debug or trace, or target=level"),
            ("pkcs11_libraries = { \"a/b\" = \"/x\" }", "pkcs11_libraries: must be"),
            ("pkcs11_libraries = { a = \"x\" }", "pkcs11_libraries: must be"),
            ("pkcs11_libraries = { A = \"/x\" }", "pkcs11_libraries: must be"),
            ("pkcs11_libraries = \"a=/x,a=/y\"", "pkcs11_libraries: must be"),
            ("google_credentials_dir = \"keys\"", "google_credentials_dir: must be"),
            ("google_endpoint = \"http://kms.example\"", "google_endpoint: must be"),
            ("google_token_url = 7", "google_token_url: must be"),
            ("google_metadata_url = \"http://kms.example\"", "google_metadata_url: must be"),
            ("google_software_keys = \"maybe\"", "google_software_keys: must be"),
            ("azure_authority_url = \"http://login.example\"", "azure_authority_url: must be"),
            ("azure_vault_url_template = \"https://store.example\"", "azure_vault_url_template: must be"),
            ("azure_api_version = \"7.4&x\"", "azure_api_version: must be"),
            ("azure_extra_suffixes = [\"example\"]", "azure_extra_suffixes: must be"),
            ("azure_imds_url = \"http://10.0.0.1\"", "azure_imds_url: must be"),
            ("cloudb.authority_url = \"http://login.example\"", "cloudb.authority_url: must be an absolute https URL"),
            ("[cloudb]\nimds_url = \"http://10.0.0.1\"", "cloudb.imds_url: must be an absolute https URL"),
            ("[cloudb]\nca_file = \"ca.pem\"", "cloudb.ca_file: must be"),
            ("[cloudb]\nother = 1", "cloudb.other: unknown setting"),
            ("data_dri = \"d\"", "data_dri: unknown setting: did you mean data_dir?"),
            (
                "[cloudb]\nlisten = \"127.0.0.1:1\"",
                "cloudb.listen: unknown setting: listen belongs above the first table",
            ),
            ("cloudb = 1", "cloudb: must be a table, [cloudb]"),
            ("commit_queue = 0", "commit_queue: must be"),
            ("projects_connections = 3", "projects_connections: must be a number between 4 and 1000"),
            ("rsa_key_stock.2048 = 4097", "rsa_key_stock.2048: must be a number between 0 and 4096"),
            ("rsa_key_stock.3072 = -1", "rsa_key_stock.3072: must be a number between 0 and 4096"),
            ("[rsa_key_stock]\n4096 = \"many\"", "rsa_key_stock.4096: must be a number between 0 and 4096"),
            ("rsa_key_stock.8192 = 1", "rsa_key_stock.8192: unknown setting"),
            ("rsa_key_stock = 512", "rsa_key_stock: must be a table, [rsa_key_stock]"),
            ("serial_numbers = \"uuid\"", "serial_numbers: must be time or random"),
            ("max_connections = -1", "max_connections: must be"),
            ("max_connections_per_address = 2000000", "max_connections_per_address: must be"),
            ("trusted_proxies = [\"10.0.0.0/33\"]", "trusted_proxies: must be"),
            ("trusted_proxies = \"10.0.0.1, proxy.test\"", "trusted_proxies: must be"),
            ("trusted_proxies = 7", "trusted_proxies: must be"),
            (
                "max_request_size = 2097152\nmax_bodies_in_flight = 1048576",
                "max_bodies_in_flight: must not be less than max_request_size",
            ),
        ] {
            assert!(
                parse_error(&format!("{good}{text}")).starts_with(problem),
                "{text}: {}",
                parse_error(&format!("{good}{text}"))
            );
        }
        let alone = |text: &str| parse_error(&format!("{text}\nseal_key_file = \"s\""));
        for url in
            ["mysql://h/d", "postgres:///d", "hunter2", "postgres://h/", "postgres://hunter2@/d", "postgres://h?a=/d"]
        {
            let error = alone(&format!("database_url = \"{url}\""));
            assert!(error.starts_with("database_url: must be") && !error.contains("hunter2"), "{url}: {error}");
        }
        assert!(parse_error("database_url = \"postgres://h/d\"").starts_with("seal_key_file: must be given"));
        let both =
            |name: &str| ["SIGNET_SEAL_KEY", "SIGNET_SEAL_KEY_FILE"].contains(&name).then(|| "hunter2".to_owned());
        let error = parse(&format!("{good}seal_key_file = \"s\""), both).err().unwrap();
        let text = "seal_key_file (SIGNET_SEAL_KEY_FILE of the environment): must not be given with SIGNET_SEAL_KEY";
        assert_eq!(error.text(), text);
        let tls = format!("{good}listen = \"0.0.0.0:8200\"\ntls_certificate_file = \"c\"\ntls_key_file = \"k\"");
        assert!(parse(&tls, no_variables).is_ok());
        let renewed = |more: &str| format!("{tls}\n[tls_renew]\nmount = \"pki/\"\n{more}");
        for (more, problem) in [
            ("role = \"r\"", "tls_renew.names: must be given with tls_renew.mount"),
            ("names = \"a.test\"", "tls_renew.role: must be given with tls_renew.mount"),
            ("role = \"r\"\nnames = []", "tls_renew.names: must be host names and IP addresses"),
            ("role = \"r\"\nnames = [\"a b\"]", "tls_renew.names: must be host names and IP addresses"),
            ("role = \"a/b\"\nnames = \"a.test\"", "tls_renew.role: must be the name of a role"),
        ] {
            assert!(parse_error(&renewed(more)).starts_with(problem), "{more}: {}", parse_error(&renewed(more)));
        }
        let whole = renewed("role = \"r\"\nnames = \"a.test\"");
        for (good, bad, problem) in [
            ("\"k\"", "\"c\"", "tls_key_file: must differ from tls_certificate_file"),
            ("\"pki/\"", "\"../sys\"", "tls_renew.mount: must be the path of a mount"),
            ("\"pki/\"", "\"sys\"", "tls_renew.mount: must be the path of a mount"),
        ] {
            assert!(parse_error(&whole.replace(good, bad)).starts_with(problem), "{bad}");
        }
        let config =
            parse(&renewed("role = \"r\"\nnames = [\"a.test\", \"192.0.2.1\", \"::1\"]"), no_variables).ok().unwrap();
        let renewal = config.tls_renewal.unwrap();
        assert_eq!(
            (renewal.mount.as_str(), renewal.role.as_str(), &renewal.hosts[..]),
            ("pki", "r", &["a.test".to_owned()][..])
        );
        assert_eq!(renewal.addresses.len(), 2);
        for url in [
            "postgresql://u:p@h:5432/d",
            "postgres:///d?host=/run/postgresql",
            "postgres://u:p?/@a:5432,b:5433/d?sslmode=verify-full&sslrootcert=/ca.pem",
        ] {
            let sealed = |name: &str| (name == "SIGNET_SEAL_KEY").then(|| "hunter2".to_owned());
            assert!(parse(&format!("database_url = \"{url}\""), sealed).is_ok(), "{url}");
        }
    }

    #[test]
    fn listeners_overlap_if_one_address_covers_the_other() {
        let clash = |one: &str, other: &str| listeners_overlap(one.parse().unwrap(), other.parse().unwrap());
        for (one, other) in [("127.0.0.1:1", "127.0.0.1:1"), ("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "192.0.2.1:1")] {
            assert!(clash(one, other) && clash(other, one), "{one} {other}");
        }
        for (one, other) in
            [("127.0.0.1:1", "127.0.0.1:2"), ("127.0.0.1:1", "[::1]:1"), ("0.0.0.0:1", "[::1]:1"), ("[::]:0", "[::]:0")]
        {
            assert!(!clash(one, other) && !clash(other, one), "{one} {other}");
        }
    }

    #[test]
    fn config_file_read_stops_at_the_size_limit() {
        let error = load(Path::new("/dev/zero")).err().unwrap();
        assert_eq!(error.text(), "/dev/zero: larger than the limit of 1 MiB");
    }

    #[test]
    fn setting_names_are_unique_and_explained() {
        assert_eq!(SETTINGS[3].variable_name(), "SIGNET_TLS_RENEW_MOUNT");
        for setting in SETTINGS {
            assert!(setting.help.ends_with('.'));
            assert_eq!(SETTINGS.iter().filter(|s| s.name == setting.name).count(), 1);
        }
    }

    const EXAMPLE: &str = include_str!("../signet.example.toml");

    /// Returns the line of `signet.example.toml` that sets `name`, and `true` if the line is commented out.
    fn example_line(name: &str) -> Option<(&'static str, bool)> {
        EXAMPLE.lines().find_map(|line| {
            let (text, commented) = line.strip_prefix("# ").map_or((line, false), |text| (text, true));
            (text.split_once(" = ")?.0 == name).then_some((text, commented))
        })
    }

    #[test]
    fn example_lists_every_setting_with_its_default() {
        assert!(parse(EXAMPLE, no_variables).is_ok());
        for setting in SETTINGS {
            let Setting { name, default, env_only, help } = setting;
            assert!(EXAMPLE.contains(&format!("# {help}")), "{name}: its help");
            if *env_only {
                assert!(
                    EXAMPLE.contains(&format!("# {}", setting.variable_name())) && example_line(name).is_none(),
                    "{name}"
                );
                continue;
            }
            let (line, commented) = example_line(name).unwrap_or_else(|| panic!("{name}: missing"));
            let table = flatten_tables(toml::from_str(line).unwrap());
            let written = table[*name].as_str().map_or_else(|| table[*name].to_string(), str::to_owned);
            if default.is_empty() {
                assert!(commented || *name == "data_dir", "{name}: has no default");
            } else {
                assert_eq!(written, *default, "{name}");
            }
        }
        let set = EXAMPLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert!(set.clone().all(|line| SETTINGS.iter().any(|s| line.starts_with(&format!("{} = ", s.name)))));
    }

    #[test]
    fn every_example_line_is_accepted_when_uncommented() {
        // The members of the tables `tls_renew` and `seal` are valid only together; `seal` has its own test.
        let alone = |s: &&Setting| !s.env_only && !s.name.starts_with("tls_") && !s.name.starts_with("seal.");
        for setting in SETTINGS.iter().filter(alone) {
            let line = example_line(setting.name).unwrap().0;
            let other = match setting.name {
                "data_dir" => "",
                "database_url" => "seal_key_file = \"s\"",
                _ => "data_dir = \"d\"",
            };
            assert!(parse(&format!("{line}\n{other}"), no_variables).is_ok(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn configuration_parser_never_panics(text in "\\PC{0,80}") {
            let _ = parse(&text, no_variables);
        }

        #[test]
        fn config_value_never_panics_and_is_never_quoted(n in 0..SETTINGS.len(), value in "[ -~]{12,40}") {
            let name = SETTINGS[n].variable_name();
            if let Err(error) = parse("data_dir = \"d\"", |wanted_name| (wanted_name == name).then(|| value.clone())) {
                prop_assert!(!error.text().contains(&value));
            }
        }
    }
}
