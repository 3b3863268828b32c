//! Formats log lines that bypass the logging library, in the same format: the [access log](super::access) and the
//! warning about dropped lines.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use time::OffsetDateTime;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The log target of access log lines, which have the level `info`.
pub const ACCESS_LOG_TARGET: &str = "signet::access";

/// Maximum length of the name of a caller or mount in a log line, in characters.
pub(super) const MAX_NAME_CHARS: usize = 64;

const FORMAT_OFF: u8 = 0;
const FORMAT_TEXT: u8 = 1;
const FORMAT_JSON: u8 = 2;
static ACCESS_LOG_FORMAT: AtomicU8 = AtomicU8::new(FORMAT_OFF);

/// Enables the access log in this format, or disables it for `None`.
pub(super) fn set_access_log_format(format: Option<LogFormat>) {
    let format = match format {
        None => FORMAT_OFF,
        Some(LogFormat::Text) => FORMAT_TEXT,
        Some(LogFormat::Json) => FORMAT_JSON,
    };
    ACCESS_LOG_FORMAT.store(format, Ordering::Relaxed);
}

/// `true` if the access log is enabled.
pub fn is_access_log_enabled() -> bool {
    ACCESS_LOG_FORMAT.load(Ordering::Relaxed) != FORMAT_OFF
}

/// `true` if the access log has the format JSON; `None` if it is disabled.
pub(super) fn is_access_log_json() -> Option<bool> {
    match ACCESS_LOG_FORMAT.load(Ordering::Relaxed) {
        FORMAT_OFF => None,
        format => Some(format == FORMAT_JSON),
    }
}

/// Returns the system time. Like all other log lines, access log lines do not use the server's own clock.
#[allow(clippy::disallowed_methods)]
pub(super) fn system_time() -> SystemTime {
    SystemTime::now()
}

/// Writes the warning about `count` dropped lines.
pub(super) fn write_dropped_warning(count: u64, to: &mut Vec<u8>) {
    let mut line = String::new();
    let mut log_line =
        LogLine::begin(ACCESS_LOG_FORMAT.load(Ordering::Relaxed) == FORMAT_JSON, system_time(), "WARN", &mut line);
    log_line.push_message(&format!("{count} log lines were dropped: standard error is not read fast enough"));
    log_line.end();
    to.extend_from_slice(line.as_bytes());
}

pub(super) struct LogLine<'a> {
    json: bool,
    to: &'a mut String,
}

impl<'a> LogLine<'a> {
    /// Begins a line. Writing to a string cannot fail, here and below.
    pub(super) fn begin(json: bool, now: SystemTime, level: &str, to: &'a mut String) -> Self {
        let now = OffsetDateTime::from(now);
        let date = now.date();
        let (hour, minute, second, micros) = now.time().as_hms_micro();
        let year = date.year();
        let month = u8::from(date.month());
        let day = date.day();
        to.push_str(if json { "{\"timestamp\":\"" } else { "" });
        let _ = write!(to, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z");
        let _ = match json {
            true => write!(to, "\",\"level\":\"{level}\""),
            false => write!(to, " {level:>5} {ACCESS_LOG_TARGET}:"),
        };
        Self { json, to }
    }

    fn push_key(&mut self, key: &str) {
        let (open, close) = if self.json { (",\"", "\":") } else { (" ", "=") };
        self.to.push_str(open);
        self.to.push_str(key);
        self.to.push_str(close);
    }

    /// Appends a value that needs no escapes, because no user chose it.
    pub(super) fn push_unescaped(&mut self, key: &str, value: &str) {
        self.push_key(key);
        let quote = if self.json { "\"" } else { "" };
        self.to.extend([quote, value, quote]);
    }

    pub(super) fn push_display(&mut self, key: &str, value: std::fmt::Arguments<'_>) {
        self.push_key(key);
        let quote = if self.json { "\"" } else { "" };
        let _ = write!(self.to, "{quote}{value}{quote}");
    }

    pub(super) fn push_number(&mut self, key: &str, value: std::fmt::Arguments<'_>) {
        self.push_key(key);
        let _ = self.to.write_fmt(value);
    }

    /// Appends a name that a user chose, escaped and truncated.
    pub(super) fn push_name(&mut self, key: &str, value: &str) {
        self.push_key(key);
        self.to.push('"');
        let mut characters = value.chars();
        for c in characters.by_ref().take(MAX_NAME_CHARS) {
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

    fn push_message(&mut self, text: &str) {
        match self.json {
            true => self.push_unescaped("message", text),
            false => self.to.extend([" ", text]),
        }
    }

    pub(super) fn end(self) {
        if self.json {
            let _ = write!(self.to, ",\"target\":\"{ACCESS_LOG_TARGET}\"}}");
        }
        self.to.push('\n');
    }
}
