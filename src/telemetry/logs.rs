//! The log setup: filter, format, colours, access log, and suppression of library output.

use std::io::IsTerminal;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::line;
pub use super::line::LogFormat;
use super::output::{EventWriter, LOG_OUTPUT};
use crate::error::{Error, Result};

/// Libraries that log request heads or bodies at low levels: only their warnings and errors are logged.
const QUIET_LIBRARIES: [&str; 15] = [
    "actix_http",
    "actix_web",
    "aws_config",
    "aws_credential_types",
    "aws_runtime",
    "aws_sdk_sts",
    "aws_sigv4",
    "aws_smithy_http_client",
    "aws_smithy_runtime",
    "aws_smithy_runtime_api",
    "aws_smithy_types",
    "hyper",
    "hyper_util",
    "reqwest",
    "rustls",
];
/// The HTTP/2 library. It warns about single frames, and a client may send any number of them.
const HTTP2_LIBRARY: &str = "h2";
/// The library of the accept loop. It logs startup and shutdown, which matters for debugging only.
const SERVER_LIBRARY: &str = "actix_server";

/// `true` if log lines of a library are suppressed at this level; `debugging` is `true` if the log filter enables any
/// debug output.
fn is_suppressed(library: &str, level: Level, debugging: bool) -> bool {
    let most_verbose = match library {
        SERVER_LIBRARY if debugging => Level::INFO,
        SERVER_LIBRARY => Level::WARN,
        HTTP2_LIBRARY => Level::ERROR,
        _ if QUIET_LIBRARIES.contains(&library) => Level::WARN,
        _ => return false,
    };
    level > most_verbose
}

fn passes_library_filter(metadata: &Metadata<'_>, debugging: bool) -> bool {
    let library = metadata.target().split("::").next().unwrap_or_default();
    !is_suppressed(library, *metadata.level(), debugging)
}

/// Suppresses HTTP library errors that are caused by clients (an unparsable request or a closed connection), because
/// clients could fill the log with them. Also suppresses errors of aborted bodies: the reader of the body logs them
/// with request and reason.
struct ClientErrorFilter;

const HTTP_LIBRARY: &str = "actix_http";
/// Lines to suppress: module, prefix of the message, and a text in the rest of the message.
const CLIENT_ERRORS: [(&str, &str, &str); 3] = [
    ("::h1::dispatcher", "stream error: ", ""),
    ("::h1::dispatcher", "Response payload stream error: ", "AbortedBody"),
    ("::h1::decoder", "MAX_BUFFER_SIZE unprocessed data", ""),
];

impl<S: Subscriber> Layer<S> for ClientErrorFilter {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let module = event.metadata().target().strip_prefix(HTTP_LIBRARY);
        let Some(module) = module.filter(|module| CLIENT_ERRORS.iter().any(|(of, ..)| of == module)) else {
            return true;
        };
        let mut message = MessageVisitor(String::new());
        event.record(&mut message);
        let rest = |begin: &str| message.0.strip_prefix(begin);
        !CLIENT_ERRORS
            .iter()
            .any(|(of, begin, has)| *of == module && rest(begin).is_some_and(|rest| rest.contains(has)))
    }
}

struct MessageVisitor(String);

impl Visit for MessageVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// `true` if standard error is a terminal and `NO_COLOR` is unset or empty (<https://no-color.org>).
fn wants_colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// `true` if [`install_logs`] accepts the filter.
pub fn is_log_filter(filter: &str) -> bool {
    parse_filter(filter).is_some()
}

/// Parses a filter: levels and `target=level`, joined by commas. A word alone must be a level. Otherwise a mistyped
/// level would be a target, and nothing else would be logged.
fn parse_filter(filter: &str) -> Option<Targets> {
    let is_directive = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
    let parts: Vec<_> = filter.split(',').filter(|part| !part.is_empty()).collect();
    parts.iter().all(|part| is_directive(part)).then(|| parts.join(",").parse().ok()).flatten()
}

/// Returns `true` if the filter logs the debug level of a target.
fn is_debugging(filter: &Targets) -> bool {
    let levels = filter.iter().map(|(_, level)| level);
    levels.chain(filter.default_level()).any(|level| level >= LevelFilter::DEBUG)
}

/// Settings of the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The filter, for example `info` or `signet=debug,warn`.
    pub filter: String,
    /// The format of lines.
    pub format: LogFormat,
    /// `true` to log every request, if the filter permits it.
    pub access: bool,
}

/// Sends logs to standard error. Panics are logged with their location, but without their message, which could quote
/// secret data.
///
/// # Errors
/// `Invalid` for an unparsable filter or a second call.
pub fn install_logs(settings: &LogSettings) -> Result<()> {
    let LogSettings { filter, format, access } = settings;
    let unreadable = || Error::invalid("log filter: must be levels such as info, or target=level, joined by commas");
    let filter = parse_filter(filter).ok_or_else(unreadable)?;
    let debugging = is_debugging(&filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(|| EventWriter).with_ansi(wants_colours());
    let registry =
        tracing_subscriber::registry().with(filter).with(filter_fn(move |line| passes_library_filter(line, debugging)));
    let registry = registry.with(ClientErrorFilter);
    match format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    }
    .map_err(|_| Error::invalid("logs: already set up"))?;
    let is_access_enabled = tracing::enabled!(target: line::ACCESS_LOG_TARGET, Level::INFO);
    line::set_access_log_format(Some(*format).filter(|_| *access && is_access_enabled));
    std::panic::set_hook(Box::new(|info| {
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(location, "panic");
    }));
    Ok(())
}

/// Writes pending access log lines; call it before the process ends.
pub fn flush_logs() {
    LOG_OUTPUT.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_request_and_startup_logs_are_suppressed() {
        for (library, level, debugging, quiet) in [
            ("signet", Level::TRACE, true, false),
            ("actix_http", Level::TRACE, true, true),
            ("hyper", Level::INFO, true, true),
            ("hyper", Level::WARN, false, false),
            ("h2", Level::WARN, true, true),
            ("h2", Level::ERROR, false, false),
            ("actix_server", Level::INFO, false, true),
            ("actix_server", Level::INFO, true, false),
            ("actix_server", Level::TRACE, true, true),
            ("actix_server", Level::ERROR, false, false),
        ] {
            assert_eq!(is_suppressed(library, level, debugging), quiet, "{library} {level} {debugging}");
        }
    }
    #[test]
    fn single_word_is_a_level_and_typos_are_refused() {
        for filter in ["info", "WARN", "off", "signet=debug,warn", "error,signet::http=trace,hyper=off", "", "info,"] {
            assert!(is_log_filter(filter), "{filter}");
        }
        for filter in ["warning", "errro", "signet", "info,warning", "signet=warning", "warning,signet=debug", "[span]"]
        {
            assert!(!is_log_filter(filter), "{filter}");
        }
    }
}
