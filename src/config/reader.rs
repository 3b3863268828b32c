//! Reads single settings and collects problems.

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

    /// Returns the value of a setting, if it is given. A value of the wrong type is a problem.
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

    /// Returns a number in an inclusive range.
    pub(super) fn number(&mut self, name: &str, low: usize, high: usize) -> usize {
        let value = self.fields.int(name).ok().flatten().and_then(|n| usize::try_from(n).ok());
        value.filter(|n| (low..=high).contains(n)).unwrap_or_else(|| {
            self.report(name, &format!("must be a number between {low} and {high}"));
            low
        })
    }

    /// Returns a duration in this range of seconds.
    pub(super) fn duration(&mut self, name: &str, seconds: std::ops::RangeInclusive<u64>, rule: &str) -> Duration {
        let value = self.fields.duration(name).ok().flatten();
        value.filter(|d| seconds.contains(&d.as_secs())).unwrap_or_else(|| {
            self.report(name, &format!("must be {rule}"));
            Duration::ZERO
        })
    }

    /// Returns a non-empty path, if it is given.
    pub(super) fn path(&mut self, name: &str, rule: &str) -> Option<PathBuf> {
        let path = self.optional(name, Fields::text, rule)?;
        if path.is_empty() {
            self.report(name, &format!("must be {rule}"));
        }
        Some(PathBuf::from(path))
    }

    /// Returns a text that `parse` accepts, if it is given.
    pub(super) fn parsed<T>(&mut self, name: &str, rule: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = parse(&self.optional(name, Fields::text, rule)?);
        if value.is_none() {
            self.report(name, &format!("must be {rule}"));
        }
        value
    }

    /// Returns an address with a port, if it is given.
    pub(super) fn address(&mut self, name: &str) -> Option<SocketAddr> {
        self.parsed(name, "an address and a port, such as 127.0.0.1:8200", |text| text.parse().ok())
    }

    /// Returns a flag; `false` if it is not given.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.optional(name, Fields::bool, "true or false").unwrap_or_default()
    }
}
