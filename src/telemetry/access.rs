//! The access log: a line for every request, written when it completes.
//!
//! The logging library would cost several times as much per line, so [`line`](mod@super::line) formats the line in
//! place, and the thread of [`output`](super::output) writes it. Lines have the format of all other log lines, text or
//! JSON, and the target [`ACCESS_LOG_TARGET`], so that the log filter applies (`info,signet::access=off` suppresses
//! them). They contain the route pattern, never the path or query of the request; names are truncated and escaped.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::line::{self, LogLine};
pub use super::line::{ACCESS_LOG_TARGET, is_access_log_enabled};
use super::meter::RouteMeter;
use super::output::LOG_OUTPUT;

/// The data of a completed request for its access log line.
#[derive(Clone, Copy)]
pub struct AccessLogLine<'a> {
    /// The request id.
    pub id: &'a str,
    /// The trace id; empty without a trace.
    pub trace_id: &'a str,
    /// The route.
    pub route: &'a RouteMeter,
    /// The mount path; empty without a mount.
    pub mount: &'a str,
    /// The display name of the caller; empty if the caller has none.
    pub caller: &'a str,
    /// The address of the client.
    pub client_address: Option<IpAddr>,
    /// The response status; 499 if the client disconnected before the response.
    pub status: u16,
    /// Time from the request head to the response.
    pub took: Duration,
}

impl AccessLogLine<'_> {
    /// Queues the line for writing; never waits.
    pub fn log(&self) {
        thread_local! {
            static LINE_BUFFER: RefCell<String> = const { RefCell::new(String::new()) };
        }
        let Some(json) = line::is_access_log_json() else { return };
        // The thread-local buffer may already be dropped while the thread ends; then the line is lost.
        let _ = LINE_BUFFER.try_with(|text| {
            let mut text = text.borrow_mut();
            text.clear();
            self.write(json, line::system_time(), &mut text);
            LOG_OUTPUT.push_access_line(text.as_bytes());
        });
    }

    fn write(&self, json: bool, now: SystemTime, line: &mut String) {
        let [service, operation, route] = self.route.names();
        let mut log_line = LogLine::begin(json, now, "INFO", line);
        log_line.push_unescaped("request", self.id);
        if !self.trace_id.is_empty() {
            log_line.push_unescaped("trace_id", self.trace_id);
        }
        log_line.push_unescaped("service", service);
        log_line.push_unescaped("operation", operation);
        log_line.push_unescaped("route", route);
        if !self.mount.is_empty() {
            log_line.push_name("mount", self.mount);
        }
        log_line.push_number("status", format_args!("{}", self.status));
        log_line.push_number("ms", format_args!("{}.{:03}", self.took.as_millis(), self.took.subsec_micros() % 1000));
        if !self.caller.is_empty() {
            log_line.push_name("caller", self.caller);
        }
        if let Some(address) = self.client_address {
            log_line.push_display("from", format_args!("{address}"));
        }
        log_line.end();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::telemetry::line::{MAX_NAME_CHARS, write_dropped_warning};

    fn line(json: bool, mount: &str, caller: &str) -> String {
        line_with_trace("", json, mount, caller)
    }

    fn line_with_trace(trace_id: &str, json: bool, mount: &str, caller: &str) -> String {
        let route = RouteMeter::new("secrets", "update", "pki/issue/:role".to_owned());
        let took = Duration::from_micros(1_204_007);
        let client_address = Some([192, 0, 2, 1].into());
        let access =
            AccessLogLine { id: "4c", trace_id, route: &route, mount, caller, client_address, status: 200, took };
        let mut line = String::new();
        access.write(json, SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_158_830_000_012), &mut line);
        line
    }

    #[test]
    fn access_log_lines_have_one_format() {
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
    fn trace_id_follows_the_request_id() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let text = line_with_trace(trace, false, "pki/", "token-dev");
        assert!(text.contains(&format!(" request=4c trace_id={trace} service=secrets ")), "{text}");
        let read: Value = serde_json::from_str(&line_with_trace(trace, true, "pki/", "token-dev")).unwrap();
        assert_eq!((&read["trace_id"], &read["request"]), (&json!(trace), &json!("4c")));
    }

    #[test]
    fn names_in_access_lines_are_truncated_and_escaped() {
        let name = "a\"b\\c\n2026 ERROR\u{1b}[2J\u{202e}\u{1f600}é";
        for json in [false, true] {
            let line = line(json, "p/", name);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(line.chars().all(|c| c == '\n' || c == 'é' || (' '..='~').contains(&c)), "{line}");
        }
        let read: Value = serde_json::from_str(&line(true, "p/", name)).unwrap();
        assert_eq!(read["caller"], name);
        let long: Value = serde_json::from_str(&line(true, "p/", &"x".repeat(1000))).unwrap();
        assert_eq!(long["caller"].as_str().unwrap().chars().count(), MAX_NAME_CHARS + 1);
    }

    #[test]
    fn dropped_access_lines_are_reported() {
        let mut warning = Vec::new();
        write_dropped_warning(7, &mut warning);
        let warning = String::from_utf8(warning).unwrap();
        assert!(warning.contains("WARN") && warning.contains("7 log lines were dropped"), "{warning}");
    }
}
