//! What the access line of a request tells ([`telemetry::access`]), gathered on its way.

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
use crate::telemetry::access::{self, Access};
use crate::telemetry::{Answered, RouteMeter, TraceContext, traffic};

/// Who asks.
pub enum Who {
    /// Nobody who is known.
    Nobody,
    /// The holder of a token of the secrets service.
    Token(Arc<Caller>),
    /// The subject of a token of the projects API, by its name.
    Subject(String),
}

impl Who {
    /// The holder of a token of the secrets service.
    pub fn token(&self) -> Option<&Caller> {
        if let Self::Token(caller) = self { Some(caller) } else { None }
    }
}

/// The trace that a request belongs to: its `traceparent`, if there is one and it is valid.
pub fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
    let mut given = headers.get_all(&TRACEPARENT);
    let only = given.next()?;
    if given.next().is_some() {
        return None;
    }
    TraceContext::parse(only.as_bytes())
}

/// The line of one request. Of a request whose client has left it is written too, when the request is dropped.
pub struct Line {
    /// When the request began.
    pub started: Instant,
    /// Its id.
    pub id: RequestId,
    /// Its trace.
    pub trace: Option<TraceContext>,
    /// Its route.
    pub route: &'static RouteMeter,
    /// Its mount.
    pub mount: Option<Arc<Mount>>,
    /// Who asks.
    pub who: Who,
    /// Where they are.
    pub from: Option<IpAddr>,
    written: bool,
}

impl Line {
    /// Of a request that begins now, on a route that is not known yet.
    pub fn begin(id: RequestId, trace: Option<TraceContext>, route: &'static RouteMeter) -> Self {
        let (started, mount, who, from) = (Instant::now(), None, Who::Nobody, None);
        traffic::note(started);
        Self { started, id, trace, route, mount, who, from, written: !access::is_on() }
    }

    /// Takes note of who asks in the projects API.
    pub fn subject(&mut self, caller: Option<&projects::caller::Caller>) {
        if let (false, Some(caller)) = (self.written, caller) {
            self.who = Who::Subject(caller.name());
        }
    }

    /// Measures the request, and writes its line.
    pub fn end(&mut self, status: u16) {
        let at = Instant::now();
        self.route.record(Answered {
            mount: self.mount.as_deref().map(Mount::meter),
            status,
            at,
            took: at - self.started,
            request_id: self.id.as_str(),
            trace: self.trace.as_ref(),
        });
        self.write(status);
    }

    fn write(&mut self, status: u16) {
        if std::mem::replace(&mut self.written, true) {
            return;
        }
        let caller = match &self.who {
            Who::Nobody => "",
            Who::Token(caller) => &caller.display_name,
            Who::Subject(name) => name,
        };
        let mount = self.mount.as_ref().map_or("", |mount| &mount.path);
        let (id, took) = (self.id.as_str(), self.started.elapsed());
        let trace_id = self.trace.as_ref().map_or("", TraceContext::trace_id);
        Access { id, trace_id, route: self.route, mount, caller, from: self.from, status, took }.log();
    }
}

impl Drop for Line {
    /// What a client that leaves does not wait for has the status that proxies write for it.
    fn drop(&mut self) {
        const LEFT: u16 = 499;
        self.write(LEFT);
        traffic::note(Instant::now());
    }
}

/// The line of a request that belongs to no wire, and is answered at once: it is not measured.
pub fn beside_the_wires(request: &HttpRequest, id: &RequestId, route: &'static RouteMeter, status: StatusCode) {
    traffic::note(Instant::now());
    in_passing(request, id, route, status);
}

/// The line of a request that keeps nobody from anything: whoever collects metrics comes every few seconds, and is no
/// traffic.
pub fn in_passing(request: &HttpRequest, id: &RequestId, route: &'static RouteMeter, status: StatusCode) {
    if access::is_on() {
        let started = Instant::now();
        let from = request.peer_addr().map(|peer| peer.ip().to_canonical());
        let trace = trace_of(request.headers());
        let trace_id = trace.as_ref().map_or("", TraceContext::trace_id);
        let (id, status) = (id.as_str(), status.as_u16());
        Access { id, trace_id, route, mount: "", caller: "", from, status, took: started.elapsed() }.log();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn a_request_beside_the_wires_is_traffic_whether_or_not_it_leaves_a_line() {
        assert!(!access::is_on(), "nobody has set up the log of this process");
        let request = TestRequest::get().uri("/favicon.ico").to_http_request();
        let route = Box::leak(Box::new(RouteMeter::new("server", "read", "none".to_owned())));
        std::thread::sleep(Duration::from_millis(50));
        let before = Instant::now();
        beside_the_wires(&request, &RequestId::random(), route, StatusCode::NOT_FOUND);
        assert!(traffic::quiet_for() < Duration::from_millis(20) + before.elapsed());
    }
}
