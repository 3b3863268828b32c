//! Standard output and standard error: results, warnings and errors as text, or as JSON objects with `--json`.
//!
//! Commands pass each result in both forms ([`print_result`], [`try_print`]). This module handles a reader that closes
//! the stream early and an output file on a full disk. Control characters from servers, certificates and files are
//! escaped, because they could control a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, Result as IoResult, Stderr, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::fields::is_control_or_bidi;
use serde_json::{Value, json};

/// `true` if `--json` is given. Set before a command runs.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Switches results, warnings and errors to JSON.
pub(super) fn use_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

pub(super) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

pub(super) fn stdout() -> EscapingWriter<Stdout> {
    EscapingWriter(std::io::stdout())
}

pub(crate) fn stderr() -> EscapingWriter<Stderr> {
    EscapingWriter(std::io::stderr())
}

/// A writer that escapes control characters other than line feeds and tabs.
pub(crate) struct EscapingWriter<W>(W);

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, text: &[u8]) -> IoResult<usize> {
        let read = String::from_utf8_lossy(text);
        self.0.write_all(escape_control_characters(&read, |c| matches!(c, '\n' | '\t')).as_bytes())?;
        Ok(text.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        self.0.flush()
    }
}

/// Escapes control characters in an untrusted text. Line feeds are escaped too, so that the text stays on one line.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    escape_control_characters(text, |_| false)
}

/// Replaces control characters, and characters that change the text direction, with `\uXXXX` as in JSON. Characters for
/// which `keeps` returns `true` stay.
fn escape_control_characters(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let acts = |c: char| is_control_or_bidi(c) && !keeps(c);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if acts(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

pub(super) fn stdout_error(e: std::io::Error) -> Error {
    Error::of_io("standard output", "written", e)
}

/// Ignores the write error of a stream that its reader has closed, because the command must complete its work even if
/// its output is not read.
///
/// # Errors
/// `Unavailable` when the line cannot be written for another reason.
pub(super) fn ignore_broken_pipe(written: IoResult<()>) -> Result<()> {
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(stdout_error),
    }
}

/// Writes a result to standard output: `object` on one line with `--json`, otherwise `text`. A failed write is not
/// retried.
pub(super) fn write_result(object: &Value, text: impl Display) -> IoResult<()> {
    let mut out = stdout();
    if is_json() {
        writeln!(out, "{object}")?
    } else {
        writeln!(out, "{text}")?
    }
    out.flush()
}

/// Writes the result of a command to standard output.
///
/// # Errors
/// `Unavailable` when it cannot be written, except to a closed stream.
pub(super) fn print_result(object: &Value, text: impl Display) -> Result<()> {
    ignore_broken_pipe(write_result(object, text))
}

/// As [`print_result`], for a result with warnings. `object` must contain the warnings; without `--json` they are also
/// written to standard error.
///
/// # Errors
/// Those of [`print_result`].
pub(super) fn print_result_with_warnings(object: &Value, text: impl Display, warnings: &[String]) -> Result<()> {
    if !is_json() {
        print_warnings(warnings);
    }
    print_result(object, text)
}

/// As [`print_result`], for work that is already completed: write errors are ignored.
pub(super) fn try_print(object: &Value, text: impl Display) {
    let _ = write_result(object, text);
}

/// Writes a message to standard error: `WORD: TEXT`, or with `--json` the object `{"WORD": "TEXT"}`.
pub(super) fn print_notice(word: &str, text: &str) {
    // A write error is ignored, because the command must complete its work even if its output is not read.
    let _ = match is_json() {
        true => writeln!(stderr(), "{}", json!({ word.replace(' ', "_"): text })),
        false => writeln!(stderr(), "{word}: {}", one_line(text)),
    };
}

pub(super) fn print_warnings(warnings: &[String]) {
    warnings.iter().for_each(|warning| print_notice("warning", warning));
}

/// Writes the error that ends a command to standard error.
pub(crate) fn print_error(text: &str, exit_status: u8) {
    let _ = match is_json() {
        true => writeln!(stderr(), "{}", json!({ "error": text, "exit_status": exit_status })),
        false => writeln!(stderr(), "signet: {text}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_json_stays_json() {
        let mut out = EscapingWriter(Vec::new());
        let name = "a\u{1b}]0;x\u{7}\u{9b}31m\u{202e}b\r\u{e9}";
        writeln!(out, "{name}\tc").unwrap();
        let text = String::from_utf8(out.0).unwrap();
        assert_eq!(text, "a\\u001b]0;x\\u0007\\u009b31m\\u202eb\\u000d\u{e9}\tc\n");
        let mut out = EscapingWriter(Vec::new());
        writeln!(out, "{}", serde_json::json!({ "name": name })).unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&out.0).unwrap()["name"], name);
        assert_eq!(one_line("a\nsignet: b"), "a\\u000asignet: b");
    }

    #[test]
    fn broken_pipe_is_ignored_and_other_output_errors_are_named() {
        assert!(ignore_broken_pipe(Ok(())).is_ok() && ignore_broken_pipe(Err(ErrorKind::BrokenPipe.into())).is_ok());
        let error = ignore_broken_pipe(Err(ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(error.text(), "standard output: cannot be written (no storage space)");
    }
}
