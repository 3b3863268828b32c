//! Standard output and standard error. Who reads them may leave before the end, or be a file on a disk that is full.
//!
//! A server, a certificate or a file of others may hold control characters. None of them reaches a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, Result as IoResult, Stderr, Stdout, Write};

use signet::error::{Error, Result, io_words};
use signet::fields::is_control_or_bidi;

/// Standard output, for text.
pub(super) fn stdout() -> Escaping<Stdout> {
    Escaping(std::io::stdout())
}

/// Standard error, for text.
pub(crate) fn stderr() -> Escaping<Stderr> {
    Escaping(std::io::stderr())
}

/// A writer that escapes control characters other than line feeds and tabs.
pub(crate) struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, text: &[u8]) -> IoResult<usize> {
        let read = String::from_utf8_lossy(text);
        self.0.write_all(escaped(&read, |c| matches!(c, '\n' | '\t')).as_bytes())?;
        Ok(text.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        self.0.flush()
    }
}

/// One line of a text that others wrote: line feeds are escaped, too.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// The text with `\uXXXX`, as JSON has it, in the place of control characters and of those that change the direction
/// of text.
fn escaped(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let acts = |c: char| is_control_or_bidi(c) && !keeps(c);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if acts(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// That standard output takes nothing.
pub(super) fn unwritten(e: std::io::Error) -> Error {
    Error::unavailable(format!("standard output: cannot be written ({})", io_words(e.kind())), e)
}

/// What became of a line about work, which goes on when nobody reads it any more.
///
/// # Errors
/// `Unavailable` when it cannot be written for another reason.
pub(super) fn told(written: IoResult<()>) -> Result<()> {
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(unwritten),
    }
}

/// A line about work that is not stopped by whatever becomes of the line.
pub(super) fn line(text: impl Display) {
    let _ = writeln!(stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_json_stays_json() {
        let mut out = Escaping(Vec::new());
        let name = "a\u{1b}]0;x\u{7}\u{9b}31m\u{202e}b\r\u{e9}";
        writeln!(out, "{name}\tc").unwrap();
        let text = String::from_utf8(out.0).unwrap();
        assert_eq!(text, "a\\u001b]0;x\\u0007\\u009b31m\\u202eb\\u000d\u{e9}\tc\n");
        let mut out = Escaping(Vec::new());
        writeln!(out, "{}", serde_json::json!({ "name": name })).unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&out.0).unwrap()["name"], name);
        assert_eq!(one_line("a\nsignet: b"), "a\\u000asignet: b");
    }

    #[test]
    fn work_goes_on_when_nobody_reads_and_else_the_cause_is_named() {
        assert!(told(Ok(())).is_ok() && told(Err(ErrorKind::BrokenPipe.into())).is_ok());
        let error = told(Err(ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(error.text(), "standard output: cannot be written (no storage space)");
    }
}
