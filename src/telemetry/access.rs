//! The access line: one for every request, when it is answered.
//!
//! It is on the way of every request, so it is no event of the logging library, which would cost several times as
//! much: it is put together in place and left to a thread ([`output`](super::output)). It has the form of all other
//! lines, text or JSON, and the target [`TARGET`], by which the log filter lets it through (`info,signet::access=off`
//! does not). What it tells is the route as the table has it, never a path or a query as it was sent; names are short
//! and escaped.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;

use super::RouteMeter;
use super::logs::LogFormat;
use super::output::OUTPUT;

/// The target of access lines; they are at level info.
pub const TARGET: &str = "signet::access";

/// Most characters of a name: of a caller, of a mount.
const LONGEST: usize = 64;

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

/// A request that was answered.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its route.
    pub route: &'a RouteMeter,
    /// The path of its mount; `""` for none.
    pub mount: &'a str,
    /// The display name of whoever asked; `""` for nobody.
    pub caller: &'a str,
    /// Where they are.
    pub from: Option<IpAddr>,
    /// The status of the answer; 499 when nobody waited for one any more.
    pub status: u16,
    /// From the head of the request to the answer.
    pub took: Duration,
}

impl Access<'_> {
    /// Has the line written soon; never waits.
    pub fn log(&self) {
        thread_local! {
            static LINE: RefCell<String> = const { RefCell::new(String::new()) };
        }
        let json = match FORM.load(Ordering::Relaxed) {
            OFF => return,
            form => form == JSON,
        };
        // A thread that ends has no place for it any more.
        let _ = LINE.try_with(|line| {
            let mut line = line.borrow_mut();
            line.clear();
            self.write(json, now(), &mut line);
            OUTPUT.push(line.as_bytes());
        });
    }

    fn write(&self, json: bool, now: SystemTime, line: &mut String) {
        let [service, operation, route] = self.route.names();
        let mut put = Line::begin(json, now, "INFO", line);
        put.word("request", self.id);
        put.word("service", service);
        put.word("operation", operation);
        put.word("route", route);
        if !self.mount.is_empty() {
            put.name("mount", self.mount);
        }
        put.number("status", format_args!("{}", self.status));
        put.number("ms", format_args!("{}.{:03}", self.took.as_millis(), self.took.subsec_micros() % 1000));
        if !self.caller.is_empty() {
            put.name("caller", self.caller);
        }
        if let Some(from) = self.from {
            put.display("from", format_args!("{from}"));
        }
        put.end();
    }
}

/// The time of a line is the machine's own, as that of all other lines.
#[allow(clippy::disallowed_methods)]
fn now() -> SystemTime {
    SystemTime::now()
}

/// The line that tells how many there was no room for.
pub(super) fn left_out(count: u64, to: &mut Vec<u8>) {
    let mut line = String::new();
    let mut put = Line::begin(FORM.load(Ordering::Relaxed) == JSON, now(), "WARN", &mut line);
    put.message(&format!("{count} access lines were left out: standard error is not read fast enough"));
    put.end();
    to.extend_from_slice(line.as_bytes());
}

/// A line as the logging library would write it, in one of its forms.
struct Line<'a> {
    json: bool,
    to: &'a mut String,
}

impl<'a> Line<'a> {
    /// Writing to a text does not fail, here and below.
    fn begin(json: bool, now: SystemTime, level: &str, to: &'a mut String) -> Self {
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
    fn word(&mut self, key: &str, value: &str) {
        self.display(key, format_args!("{value}"));
    }

    fn display(&mut self, key: &str, value: std::fmt::Arguments<'_>) {
        self.key(key);
        let quote = if self.json { "\"" } else { "" };
        let _ = write!(self.to, "{quote}{value}{quote}");
    }

    fn number(&mut self, key: &str, value: std::fmt::Arguments<'_>) {
        self.key(key);
        let _ = self.to.write_fmt(value);
    }

    /// A value that somebody chose.
    fn name(&mut self, key: &str, value: &str) {
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

    fn end(self) {
        if self.json {
            let _ = write!(self.to, ",\"target\":\"{TARGET}\"}}");
        }
        self.to.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(json: bool, mount: &str, caller: &str) -> String {
        let route = RouteMeter::new("secrets", "update", "pki/issue/:role".to_owned());
        let took = Duration::from_micros(1_204_007);
        let from = Some([192, 0, 2, 1].into());
        let access = Access { id: "4c", route: &route, mount, caller, from, status: 200, took };
        let mut line = String::new();
        access.write(json, SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_158_830_000_012), &mut line);
        line
    }

    #[test]
    fn a_line_has_the_form_of_all_others() {
        assert_eq!(
            line(false, "pki/", "token-dev"),
            "2026-11-20T07:13:50.000012Z  INFO signet::access: request=4c service=secrets operation=update \
             route=pki/issue/:role mount=\"pki/\" status=200 ms=1204.007 caller=\"token-dev\" from=192.0.2.1\n"
        );
        let read: Value = serde_json::from_str(&line(true, "pki/", "token-dev")).unwrap();
        assert_eq!(
            read,
            json!({ "timestamp": "2026-11-20T07:13:50.000012Z", "level": "INFO", "request": "4c",
                "service": "secrets", "operation": "update", "route": "pki/issue/:role", "mount": "pki/",
                "status": 200, "ms": 1204.007, "caller": "token-dev", "from": "192.0.2.1",
                "target": "signet::access" })
        );
        assert!(!line(false, "", "").contains("mount=") && !line(true, "", "").contains("caller"));
    }

    #[test]
    fn names_are_short_and_begin_no_line_of_their_own() {
        let name = "a\"b\\c\n2026 ERROR\u{1b}[2J\u{202e}\u{1f600}é";
        for json in [false, true] {
            let line = line(json, "p/", name);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(line.chars().all(|c| c == '\n' || c == 'é' || (' '..='~').contains(&c)), "{line}");
        }
        let read: Value = serde_json::from_str(&line(true, "p/", name)).unwrap();
        assert_eq!(read["caller"], name);
        let long: Value = serde_json::from_str(&line(true, "p/", &"x".repeat(1000))).unwrap();
        assert_eq!(long["caller"].as_str().unwrap().chars().count(), LONGEST + 1);
    }

    #[test]
    fn what_was_left_out_is_told() {
        let mut told = Vec::new();
        left_out(7, &mut told);
        let told = String::from_utf8(told).unwrap();
        assert!(told.contains("WARN") && told.contains("7 access lines were left out"), "{told}");
    }
}
