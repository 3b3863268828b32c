//! The form of lines that the logging library does not write: it is the same, text or JSON. Such are the
//! [line of a request](super::access) and the one that tells how many of those there was no room for.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use time::OffsetDateTime;

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The target of access lines; they are at level info.
pub const TARGET: &str = "signet::access";

/// Most characters of a name: of a caller, of a mount.
pub(super) const LONGEST: usize = 64;

const OFF: u8 = 0;
const TEXT: u8 = 1;
const JSON: u8 = 2;
static FORM: AtomicU8 = AtomicU8::new(OFF);

/// Lets access lines through, in this form, or none.
pub(super) fn set(form: Option<LogFormat>) {
    let form = match form {
        None => OFF,
        Some(LogFormat::Text) => TEXT,
        Some(LogFormat::Json) => JSON,
    };
    FORM.store(form, Ordering::Relaxed);
}

/// Whether there are access lines.
pub fn is_on() -> bool {
    FORM.load(Ordering::Relaxed) != OFF
}

/// Whether they are JSON; `None` when there are none.
pub(super) fn is_json() -> Option<bool> {
    match FORM.load(Ordering::Relaxed) {
        OFF => None,
        form => Some(form == JSON),
    }
}

/// The time of a line is the machine's own, as that of all other lines.
#[allow(clippy::disallowed_methods)]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// The line that tells how many there was no room for.
pub(super) fn left_out(count: u64, to: &mut Vec<u8>) {
    let mut line = String::new();
    let mut put = Line::begin(FORM.load(Ordering::Relaxed) == JSON, now(), "WARN", &mut line);
    put.message(&format!("{count} lines were left out: standard error is not read fast enough"));
    put.end();
    to.extend_from_slice(line.as_bytes());
}

/// A line as the logging library would write it, in one of its forms.
pub(super) struct Line<'a> {
    json: bool,
    to: &'a mut String,
}

impl<'a> Line<'a> {
    /// Writing to a text does not fail, here and below.
    pub(super) fn begin(json: bool, now: SystemTime, level: &str, to: &'a mut String) -> Self {
        let now = OffsetDateTime::from(now);
        let (date, (hour, minute, second, micros)) = (now.date(), now.time().as_hms_micro());
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        to.push_str(if json { "{\"timestamp\":\"" } else { "" });
        let _ = write!(to, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z");
        let _ = match json {
            true => write!(to, "\",\"level\":\"{level}\""),
            false => write!(to, " {level:>5} {TARGET}:"),
        };
        Self { json, to }
    }

    fn key(&mut self, key: &str) {
        let (open, close) = if self.json { (",\"", "\":") } else { (" ", "=") };
        self.to.push_str(open);
        self.to.push_str(key);
        self.to.push_str(close);
    }

    /// A value of our own making, which needs no escapes.
    pub(super) fn word(&mut self, key: &str, value: &str) {
        self.key(key);
        let quote = if self.json { "\"" } else { "" };
        self.to.extend([quote, value, quote]);
    }

    pub(super) fn display(&mut self, key: &str, value: std::fmt::Arguments<'_>) {
        self.key(key);
        let quote = if self.json { "\"" } else { "" };
        let _ = write!(self.to, "{quote}{value}{quote}");
    }

    pub(super) fn number(&mut self, key: &str, value: std::fmt::Arguments<'_>) {
        self.key(key);
        let _ = self.to.write_fmt(value);
    }

    /// A value that somebody chose.
    pub(super) fn name(&mut self, key: &str, value: &str) {
        self.key(key);
        self.to.push('"');
        let mut characters = value.chars();
        for c in characters.by_ref().take(LONGEST) {
            match c {
                '"' | '\\' => self.to.extend(['\\', c]),
                ' ' | '!'..='~' => self.to.push(c),
                _ if c.is_alphanumeric() => self.to.push(c),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.to, "\\u{unit:04x}");
                    }
                }
            }
        }
        self.to.push_str(if characters.next().is_some() { "…\"" } else { "\"" });
    }

    fn message(&mut self, text: &str) {
        match self.json {
            true => self.word("message", text),
            false => self.to.extend([" ", text]),
        }
    }

    pub(super) fn end(self) {
        if self.json {
            let _ = write!(self.to, ",\"target\":\"{TARGET}\"}}");
        }
        self.to.push('\n');
    }
}
