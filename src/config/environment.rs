//! The environment variables that apply to a configuration file: those of this process, and those of the Debian
//! package's systemd unit (`EnvironmentFile=`), so that commands see the same settings as the server.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::MAX_CONFIG_BYTES;
use crate::error::{Error, Result, describe_io_error};

/// Folder of the systemd unit's configuration file.
const UNIT_CONFIG_FOLDER: &str = "/etc/signet";
/// File with the environment variables of the systemd unit (`EnvironmentFile=`).
const UNIT_VARIABLES_FILE: &str = "/etc/default/signet";

/// The environment variables that apply to a configuration file.
pub struct ConfigEnvironment {
    unit_variables: BTreeMap<String, String>,
    /// The error of reading the systemd unit's variables; `None` if they were read or do not apply.
    unit_read_error: Option<ErrorKind>,
}

impl ConfigEnvironment {
    /// Reads the environment variables that apply to a configuration file. Those of the systemd unit apply only to
    /// files in `/etc/signet`.
    ///
    /// # Errors
    /// `Invalid`, with the line of the unit's `EnvironmentFile` that is not `NAME=VALUE`.
    pub fn for_file(config: &Path) -> Result<Self> {
        let mut environment = Self { unit_variables: BTreeMap::new(), unit_read_error: None };
        if !std::path::absolute(config).is_ok_and(|path| path.parent() == Some(Path::new(UNIT_CONFIG_FOLDER))) {
            return Ok(environment);
        }
        let mut text = String::new();
        match std::fs::File::open(UNIT_VARIABLES_FILE)
            .and_then(|file| file.take(MAX_CONFIG_BYTES).read_to_string(&mut text))
        {
            Ok(_) => environment.unit_variables = parse_variables(&text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => environment.unit_read_error = Some(error.kind()),
        }
        Ok(environment)
    }

    /// Returns the value of a variable. This process's variables override those of the systemd unit. An empty variable
    /// of this process counts as unset.
    pub fn get(&self, name: &str) -> Option<String> {
        process_variable(name).or_else(|| self.unit_variables.get(name).cloned())
    }

    /// Names a variable and where its value comes from, for messages.
    pub(super) fn describe(&self, name: &str) -> String {
        let is_of_unit = process_variable(name).is_none() && self.unit_variables.contains_key(name);
        format!("{name} of {}", if is_of_unit { UNIT_VARIABLES_FILE } else { "the environment" })
    }

    /// Returns advice for the user if this process cannot read the variables of the systemd unit.
    pub(super) fn hint(&self) -> Option<String> {
        let why = describe_io_error(self.unit_read_error?);
        Some(format!(
            "{UNIT_VARIABLES_FILE}: cannot be read ({why}), so this command may lack server settings; run as root: \
             chgrp signet {UNIT_VARIABLES_FILE} && chmod 640 {UNIT_VARIABLES_FILE}"
        ))
    }
}

/// Returns the value of an environment variable of this process; `None` if it is unset or empty.
fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Parses lines `NAME=VALUE` as systemd does (systemd.exec(5), `EnvironmentFile=`): comments begin with `#` or `;`, and
/// values may be quoted. Multi-line values are rejected.
fn parse_variables(text: &str) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let wrong = |rule: &str| Error::invalid(format!("{UNIT_VARIABLES_FILE}: line {}: {rule}", index + 1));
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("must be NAME=VALUE"))?;
        let value = unquote(value.trim()).ok_or_else(|| wrong("must be a value on one line, its quotes closed"))?;
        found.insert(name.trim().to_owned(), value);
    }
    Ok(found)
}

/// Removes the quotes around a value and resolves backslash escapes. `None` if a quote is not closed or the value ends
/// with a backslash.
fn unquote(value: &str) -> Option<String> {
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
    let inner = match quote {
        Some(quote) => value.strip_prefix(quote)?.strip_suffix(quote)?,
        None => value,
    };
    if quote == Some('\'') {
        return Some(inner.to_owned());
    }
    let mut plain = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        plain.push(if character == '\\' { characters.next()? } else { character });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_systemd_reads_them() {
        let text = "# comment\n; other\n\nA=one two \nB=\"a \\\"b\\\" $c\"\nC='d\\e'\n D = f\\\\g\nE=\n";
        let found = parse_variables(text).unwrap();
        let expected = [("A", "one two"), ("B", "a \"b\" $c"), ("C", "d\\e"), ("D", "f\\g"), ("E", "")];
        assert_eq!(found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>(), expected);
        for (text, rule) in [
            ("A=1\nwords", "line 2: must be NAME=VALUE"),
            ("A=\"open", "line 1: must be a value on one line"),
            ("A=next\\", "line 1: must be a value on one line"),
            ("A='", "line 1: must be a value on one line"),
        ] {
            let error = parse_variables(text).err().unwrap();
            assert!(error.text().contains(rule), "{text}: {error}");
        }
    }
}
