//! What was found, a line each.

use std::fmt::Display;
use std::io::Write as _;

/// How something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Ok,
    /// Worth a word; a server starts all the same.
    Note,
    Wrong,
}

/// What was found, a line each.
#[derive(Default)]
pub(super) struct Report(Vec<(Level, &'static str, String)>);

impl Report {
    pub(super) fn ok(&mut self, what: &'static str, text: impl Display) {
        self.0.push((Level::Ok, what, text.to_string()));
    }

    pub(super) fn note(&mut self, what: &'static str, text: impl Display) {
        self.0.push((Level::Note, what, text.to_string()));
    }

    pub(super) fn wrong(&mut self, what: &'static str, text: impl Display) {
        self.0.push((Level::Wrong, what, text.to_string()));
    }

    /// How many lines say that something is wrong.
    pub(super) fn wrong_lines(&self) -> usize {
        self.0.iter().filter(|(level, ..)| *level == Level::Wrong).count()
    }

    /// Prints it.
    pub(super) fn print(&self) -> std::io::Result<()> {
        let mut out = crate::cli::output::stdout();
        for (level, what, text) in &self.0 {
            let word = match level {
                Level::Ok => "ok",
                Level::Note => "note",
                Level::Wrong => "wrong",
            };
            // A line each, whatever a text holds.
            writeln!(out, "{word:<6} {what:<16} {}", text.replace('\n', " "))?;
        }
        out.flush()
    }
}
