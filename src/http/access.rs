//! Builds the access log entry of a request ([`telemetry::access`](crate::telemetry::access)) while it is handled.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName};

use super::request_id::RequestId;
use crate::auth::Caller;
use crate::auth::mounts::Mount;
use crate::projects;
use crate::telemetry::access::{self, AccessLogLine};
use crate::telemetry::{CompletedResponse, RouteMeter, TraceContext, traffic};

/// The caller of a request, as its access log entry names it.
pub enum RequestCaller {
    /// A caller without a token.
    Anonymous,
    /// The holder of a token of the secrets service.
    Token(Arc<Caller>),
    /// The name of the user, team or organization whose projects API token the caller sent.
    Subject(String),
}

impl RequestCaller {
    /// Returns the holder of the secrets service token, if the caller sent a valid one.
    pub fn token(&self) -> Option<&Caller> {
        if let Self::Token(caller) = self { Some(caller) } else { None }
    }
}

/// Returns the trace context of a request, if it has exactly one valid `traceparent` header.
pub fn parse_trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
    let mut values = headers.get_all(&TRACEPARENT);
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    TraceContext::parse(value.as_bytes())
}

/// The access log entry of one request. Dropping it logs the request if its client has disconnected.
pub struct AccessLogEntry {
    /// Time at which the request started.
    pub started: Instant,
    /// Id of the request, also sent to the client.
    pub id: RequestId,
    /// The trace context that the client sent, if any.
    pub trace: Option<TraceContext>,
    /// The access metrics of the route.
    pub route: &'static RouteMeter,
    /// The mount of the path; `None` until it is known, and if the path has no mount.
    pub mount: Option<Arc<Mount>>,
    /// Caller of the request.
    pub caller: RequestCaller,
    /// Address of the caller.
    pub address: Option<IpAddr>,
    /// `true` after the entry was logged; `true` from the start if the access log is disabled.
    is_logged: bool,
}

impl AccessLogEntry {
    /// Begins an entry for a request that starts now and whose route is not known yet.
    pub fn begin(id: RequestId, trace: Option<TraceContext>, route: &'static RouteMeter) -> Self {
        let started = Instant::now();
        let mount = None;
        let caller = RequestCaller::Anonymous;
        let address = None;
        traffic::record_activity(started);
        Self { started, id, trace, route, mount, caller, address, is_logged: !access::is_access_log_enabled() }
    }

    /// Sets the caller of a projects API request; `None` leaves it anonymous.
    pub fn set_projects_caller(&mut self, caller: Option<&projects::caller::ProjectsCaller>) {
        if let (false, Some(caller)) = (self.is_logged, caller) {
            self.caller = RequestCaller::Subject(caller.name());
        }
    }

    /// Records the metrics of the completed request and logs it.
    pub fn complete(&mut self, status: u16) {
        let at = Instant::now();
        self.route.record(CompletedResponse {
            mount: self.mount.as_deref().map(Mount::meter),
            status,
            at,
            took: at - self.started,
            request_id: self.id.as_str(),
            trace: self.trace.as_ref(),
        });
        self.write_line(status);
    }

    fn write_line(&mut self, status: u16) {
        if std::mem::replace(&mut self.is_logged, true) {
            return;
        }
        let caller = match &self.caller {
            RequestCaller::Anonymous => "",
            RequestCaller::Token(caller) => &caller.display_name,
            RequestCaller::Subject(name) => name,
        };
        let mount = self.mount.as_ref().map_or("", |mount| &mount.path);
        let id = self.id.as_str();
        let took = self.started.elapsed();
        let trace_id = self.trace.as_ref().map_or("", TraceContext::trace_id);
        AccessLogLine { id, trace_id, route: self.route, mount, caller, client_address: self.address, status, took }
            .log();
    }
}

impl Drop for AccessLogEntry {
    /// If the client has disconnected, logs the request with status 499, as proxies do.
    fn drop(&mut self) {
        const CLIENT_CLOSED_REQUEST_STATUS: u16 = 499;
        self.write_line(CLIENT_CLOSED_REQUEST_STATUS);
        traffic::record_activity(Instant::now());
    }
}

/// Logs a request outside both APIs. It counts as traffic, but its latency is not recorded.
pub fn log_unrouted(request: &HttpRequest, id: &RequestId, route: &'static RouteMeter, status: StatusCode) {
    traffic::record_activity(Instant::now());
    log_scrape(request, id, route, status);
}

/// Logs a scrape of the metrics. It does not count as traffic: scrapes come every few seconds, and must not delay
/// background work that waits for an idle server.
pub fn log_scrape(request: &HttpRequest, id: &RequestId, route: &'static RouteMeter, status: StatusCode) {
    if access::is_access_log_enabled() {
        let started = Instant::now();
        let from = request.peer_addr().map(|peer| peer.ip().to_canonical());
        let trace = parse_trace_context(request.headers());
        let trace_id = trace.as_ref().map_or("", TraceContext::trace_id);
        let id = id.as_str();
        let status = status.as_u16();
        AccessLogLine {
            id,
            trace_id,
            route,
            mount: "",
            caller: "",
            client_address: from,
            status,
            took: started.elapsed(),
        }
        .log();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn unrouted_request_counts_as_traffic_without_an_access_log() {
        assert!(!access::is_access_log_enabled(), "the access log is not set up in this process");
        let request = TestRequest::get().uri("/favicon.ico").to_http_request();
        let route = Box::leak(Box::new(RouteMeter::new("server", "read", "none".to_owned())));
        std::thread::sleep(Duration::from_millis(50));
        let before = Instant::now();
        log_unrouted(&request, &RequestId::random(), route, StatusCode::NOT_FOUND);
        assert!(traffic::idle_time() < Duration::from_millis(20) + before.elapsed());
    }
}
