//! Every setting: its name, its environment name, its default, its rule.
//!
//! A configuration file is TOML with the names of [`SETTINGS`] at top level; the environment wins
//! over the file. Unknown names and values outside the rules are refused, all of them at once, so
//! that one run of `signet check` shows everything there is to mend.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::http::secrets::state::Settings;
use crate::telemetry::LogFormat;

/// One setting, for people.
pub struct Setting {
    /// Its name in the file.
    pub name: &'static str,
    /// Its name in the environment.
    pub env: &'static str,
    /// Its default, as it would be written; empty when there is none.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
}

const fn setting(name: &'static str, env: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, env, default, help }
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    setting("listen", "SIGNET_LISTEN", "127.0.0.1:8200", "Address and port to listen on."),
    setting("data_dir", "SIGNET_DATA_DIR", "", "Folder of the embedded store. Required."),
    setting("seal_key_file", "SIGNET_SEAL_KEY_FILE", "", "File of the seal key, mode 0600; seal.key in data_dir."),
    setting("workers", "SIGNET_WORKERS", "0", "Threads that serve requests; 0 is one per core."),
    setting("compat", "SIGNET_COMPAT", "true", "Accept the header names and verbs of known clients."),
    setting("max_request_size", "SIGNET_MAX_REQUEST_SIZE", "4194304", "Largest request body, bytes."),
    setting("max_request_duration", "SIGNET_MAX_REQUEST_DURATION", "90s", "Longest time a request may take."),
    setting("body_timeout", "SIGNET_BODY_TIMEOUT", "30s", "Longest time a request body may take to arrive."),
    setting("log", "SIGNET_LOG", "info", "Log filter: a level, or target=level pairs joined by commas."),
    setting("log_format", "SIGNET_LOG_FORMAT", "text", "Form of log lines: text or json."),
];

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The folder of the embedded store.
    pub data_dir: PathBuf,
    /// The file of the seal key.
    pub seal_key_file: PathBuf,
    /// Threads that serve requests; 0 is one per core.
    pub workers: usize,
    /// Settings of the secrets service's wire.
    pub http: Settings,
    /// The log filter.
    pub log: String,
    /// The form of log lines.
    pub log_format: LogFormat,
}

/// Reads and checks a file, with the environment of this process.
///
/// # Errors
/// `Invalid` with every problem, one per line.
pub fn load(file: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::invalid(format!("{}: cannot be read ({})", file.display(), e.kind())))?;
    parse(&text, |name| std::env::var(name).ok())
}

/// Checks the text of a file under the given environment.
///
/// # Errors
/// `Invalid` with every problem, one per line.
pub fn parse(text: &str, env: impl Fn(&str) -> Option<String>) -> Result<Config> {
    let file: Map<String, Value> = toml::from_str(text).map_err(|e| {
        // The message of the parser quotes the line; only its place is passed on.
        let line = e.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
        Error::invalid(format!("line {line}: not valid TOML"))
    })?;
    let mut problems = Problems::default();
    for name in file.keys().filter(|name| SETTINGS.iter().all(|s| s.name != name.as_str())) {
        problems.0.push(format!("{name}: unknown setting"));
    }
    let mut fields = Fields::default();
    for setting in SETTINGS {
        let given = env(setting.env).map(Value::String).or_else(|| file.get(setting.name).cloned());
        let default = || Some(Value::from(setting.default)).filter(|_| !setting.default.is_empty());
        if let Some(value) = given.or_else(default) {
            fields.set(setting.name, value);
        }
    }
    let config = checked(&fields, &mut problems);
    if problems.0.is_empty() { Ok(config) } else { Err(Error::invalid(problems.0.join("\n"))) }
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    /// The value, or a stand-in and a note.
    fn take<T: Default>(&mut self, name: &str, value: Result<Option<T>>, ok: impl Fn(&T) -> bool, rule: &str) -> T {
        match value {
            Ok(Some(value)) if ok(&value) => return value,
            Ok(_) => self.0.push(format!("{name}: must be {rule}")),
            Err(_) => self.0.push(format!("{name}: must be {rule}")),
        }
        T::default()
    }
}

fn checked(fields: &Fields, problems: &mut Problems) -> Config {
    let listen = fields.text("listen").map(|t| t.and_then(|t| t.parse::<SocketAddr>().ok().map(Some)));
    let listen = problems.take("listen", listen, Option::is_some, "an address and a port, such as 127.0.0.1:8200");
    let data_dir = problems.take("data_dir", fields.text("data_dir"), |t| !t.is_empty(), "the path of a folder");
    let data_dir = PathBuf::from(data_dir);
    let seal_key_file =
        fields.text("seal_key_file").map(|t| t.map(PathBuf::from).or_else(|| Some(data_dir.join("seal.key"))));
    let between = |low: u64, high: u64| move |d: &Duration| (low..=high).contains(&d.as_secs());
    let whole = |n: &i64| (0..=1024).contains(n);
    let size = |n: &i64| (1024..=64 << 20).contains(n);
    let format = fields.text("log_format").map(|word| match word.as_deref() {
        Some("text") => Some(Some(LogFormat::Text)),
        Some("json") => Some(Some(LogFormat::Json)),
        _ => None,
    });
    Config {
        listen: listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))),
        seal_key_file: problems.take("seal_key_file", seal_key_file, |_| true, "the path of a file"),
        data_dir,
        workers: problems.take("workers", fields.int("workers"), whole, "a number between 0 and 1024") as usize,
        http: Settings {
            compat: problems.take("compat", fields.bool("compat"), |_| true, "true or false"),
            max_body: problems.take(
                "max_request_size",
                fields.int("max_request_size"),
                size,
                "between 1024 and 67108864 bytes",
            ) as usize,
            max_duration: problems.take(
                "max_request_duration",
                fields.duration("max_request_duration"),
                between(1, 3600),
                "between 1s and 1h",
            ),
            body_timeout: problems.take(
                "body_timeout",
                fields.duration("body_timeout"),
                between(1, 600),
                "between 1s and 10m",
            ),
            open_metrics: false,
        },
        log: problems.take("log", fields.text("log"), |_| true, "a log filter"),
        log_format: problems.take("log_format", format, Option::is_some, "text or json").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        let config = parse("data_dir = \"/var/lib/signet\"", none).unwrap();
        assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 8200)));
        assert_eq!(config.seal_key_file, Path::new("/var/lib/signet/seal.key"));
        assert_eq!(config.http, Settings::default());
        assert_eq!((config.log.as_str(), config.log_format, config.workers), ("info", LogFormat::Text, 0));
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let env = |name: &str| (name == "SIGNET_WORKERS").then(|| "3".to_owned());
        assert_eq!(parse("data_dir = \"d\"\nworkers = 2", env).unwrap().workers, 3);
    }

    #[test]
    fn all_problems_are_told_at_once_without_values() {
        let text =
            "worker = 1\nlisten = \"hunter2\"\nmax_request_size = 1\nbody_timeout = \"-1s\"\nlog_format = \"xml\"";
        let error = parse(text, none).unwrap_err();
        for name in ["worker: unknown", "listen:", "data_dir:", "max_request_size:", "body_timeout:", "log_format:"] {
            assert!(error.text().contains(name), "{name} in {error}");
        }
        assert!(!error.text().contains("hunter2"));
        let broken = parse("a = 1\nlisten = \"hunter2", none).unwrap_err();
        assert_eq!(broken.text(), "line 2: not valid TOML");
    }

    #[test]
    fn names_are_unique_and_explained() {
        for setting in SETTINGS {
            assert_eq!(setting.env, format!("SIGNET_{}", setting.name.to_uppercase()));
            assert!(setting.help.ends_with('.'));
            assert_eq!(SETTINGS.iter().filter(|s| s.name == setting.name).count(), 1);
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC{0,80}") {
            let _ = parse(&text, none);
        }
    }
}
