//! Reads and validates the value of a single setting. Problems are collected, so that all of them are reported
//! together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Result;
use crate::fields::Fields;

pub(super) struct SettingReader<'a> {
    pub(super) fields: &'a Fields,
    pub(super) problems: &'a mut Vec<String>,
}

impl SettingReader<'_> {
    pub(super) fn report(&mut self, name: &str, rule: &str) {
        self.problems.push(format!("{name}: {rule}"));
    }

    /// Returns the value of a setting; `None` if it is not given. A value of the wrong type is reported as a problem.
    pub(super) fn optional<T>(
        &mut self,
        name: &str,
        read: impl Fn(&Fields, &str) -> Result<Option<T>>,
        rule: &str,
    ) -> Option<T> {
        read(self.fields, name).unwrap_or_else(|_| {
            self.report(name, &format!("must be {rule}"));
            None
        })
    }

    /// Returns a number that must be between `low` and `high`, both included. Returns `low` for an invalid value.
    pub(super) fn number(&mut self, name: &str, low: usize, high: usize) -> usize {
        let value = self.fields.int(name).ok().flatten().and_then(|n| usize::try_from(n).ok());
        value.filter(|n| (low..=high).contains(n)).unwrap_or_else(|| {
            self.report(name, &format!("must be a number between {low} and {high}"));
            low
        })
    }

    /// Returns a duration that must be in the given range of seconds. Returns zero for an invalid value.
    pub(super) fn duration(&mut self, name: &str, seconds: std::ops::RangeInclusive<u64>, rule: &str) -> Duration {
        let value = self.fields.duration(name).ok().flatten();
        value.filter(|d| seconds.contains(&d.as_secs())).unwrap_or_else(|| {
            self.report(name, &format!("must be {rule}"));
            Duration::ZERO
        })
    }

    /// Returns a path; `None` if it is not given. An empty path is reported as a problem.
    pub(super) fn path(&mut self, name: &str, rule: &str) -> Option<PathBuf> {
        let path = self.optional(name, Fields::text, rule)?;
        if path.is_empty() {
            self.report(name, &format!("must be {rule}"));
        }
        Some(PathBuf::from(path))
    }

    /// Returns the value that `parse` makes of a text; `None` if the setting is not given, or invalid.
    pub(super) fn parsed<T>(&mut self, name: &str, rule: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = parse(&self.optional(name, Fields::text, rule)?);
        if value.is_none() {
            self.report(name, &format!("must be {rule}"));
        }
        value
    }

    /// Returns an IP address with a port; `None` if it is not given, or invalid.
    pub(super) fn address(&mut self, name: &str) -> Option<SocketAddr> {
        self.parsed(name, "an address and a port, such as 127.0.0.1:8200", |text| text.parse().ok())
    }

    /// Returns a boolean setting; `false` if it is not given.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.optional(name, Fields::bool, "true or false").unwrap_or_default()
    }
}
