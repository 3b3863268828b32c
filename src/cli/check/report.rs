//! The report of `signet check`: the result of each check.

use std::fmt::Display;

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckLevel {
    Ok,
    /// Something that needs attention, although a server would start.
    Note,
    Wrong,
}

#[derive(Default)]
pub(super) struct CheckReport(Vec<(CheckLevel, &'static str, String)>);

impl CheckReport {
    pub(super) fn ok(&mut self, what: &'static str, text: impl Display) {
        self.0.push((CheckLevel::Ok, what, text.to_string()));
    }

    pub(super) fn note(&mut self, what: &'static str, text: impl Display) {
        self.0.push((CheckLevel::Note, what, text.to_string()));
    }

    pub(super) fn wrong(&mut self, what: &'static str, text: impl Display) {
        self.0.push((CheckLevel::Wrong, what, text.to_string()));
    }

    pub(super) fn count_wrong(&self) -> usize {
        self.0.iter().filter(|(level, ..)| *level == CheckLevel::Wrong).count()
    }

    /// Renders each result as one line of text. Line feeds in its text become blanks.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(level, what, text): &(CheckLevel, &str, String)| {
            format!("{:<6} {what:<16} {}", level.name(), text.replace('\n', " "))
        };
        self.0.iter().map(line).collect()
    }

    pub(super) fn objects(&self) -> Vec<Value> {
        let object = |(level, what, text): &(CheckLevel, &str, String)| json!({ "level": level.name(), "what": what, "text": text });
        self.0.iter().map(object).collect()
    }
}

impl CheckLevel {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Wrong => "wrong",
        }
    }
}
