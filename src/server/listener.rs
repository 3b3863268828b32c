//! A listener: accepts connections, assigns slots to them, performs TLS handshakes and serves HTTP on the streams.
//!
//! The accept loop, the workers and HTTP/1.1 are those of actix; HTTP/2 is in [`http2`]. In contrast to actix's own
//! server, this one tracks every connection: [`Connections`] decides which of them may stay open, and a
//! [`ConnectionStream`] ends when it is asked to close. So a shutdown reaches all connections immediately.

mod handshake;
mod host;
mod request_body;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::body::{BodySize, MessageBody};
use actix_http::error::DispatchError;
use actix_http::{HttpServiceBuilder, KeepAlive, Protocol, Request, Response};
use actix_service::{IntoServiceFactory, ServiceFactoryExt as _, map_config};
use actix_web::dev::{
    AppConfig, Server, ServerHandle, Service, ServiceFactory, ServiceRequest, ServiceResponse, fn_service,
};
use actix_web::error::InternalError;
use actix_web::http::ConnectionType;
use actix_web::http::header::{self, HeaderMap};
use actix_web::{HttpMessage as _, HttpResponse};
use bytes::Bytes;
use futures_util::future::{Either, ready};
use rustls::ServerConfig;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use super::connection::{BusyGuard, Connection, ConnectionPhase, HEAD_TIMEOUT, SendingGuard};
use super::connections::{self, Connections};
use super::expect::AppCell;
use super::http2;
use super::stream::{ConnectionStream, Transport};
use crate::error::{Error, Result};
use handshake::Handshakes;
use request_body::{CHUNKED_READ_AHEAD_BYTES, track_body_reads};

/// Time limit for completing running requests when the listener stops, in seconds.
const DRAIN_TIMEOUT_SECONDS: u64 = 7;
/// Maximum time for which a client may continue to send a request after the server has responded to it.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum size of a response body, in bytes, that HTTP/1.1 certainly fetches from the app at once: it fetches until
/// its buffer contains twice as many bytes.
const MAX_UNTRACKED_BODY_BYTES: u64 = 16 << 10;
/// Maximum number of connections that the kernel queues until they are accepted.
const ACCEPT_BACKLOG_CONNECTIONS: u32 = 1024;

pub(super) struct ListenerSetup {
    pub(super) address: SocketAddr,
    /// The setting (and flag) that gives the address, for error messages.
    pub(super) setting: &'static str,
    pub(super) tls: Option<ServerConfig>,
    pub(super) workers: usize,
    pub(super) connections: Arc<Connections>,
}

/// A listener with a bound address that does not accept connections yet.
pub(super) struct BoundListener<F> {
    pub(super) address: SocketAddr,
    connections: Arc<Connections>,
    run: F,
}

/// Binds the address of a listener, whose workers run `app`.
///
/// # Errors
/// `Unavailable` when the address cannot be bound.
pub(super) fn bind<F, I, S, B>(setup: ListenerSetup, app: F) -> Result<BoundListener<impl FnOnce() -> Server>>
where
    F: Fn() -> I + Clone + Send + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<actix_web::Error> + 'static,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    S::Service: 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let ListenerSetup { address, setting, tls, workers, connections } = setup;
    let refused = |e: io::Error| {
        let text =
            format!("{address}: cannot listen on this address ({}){}", e.kind(), bind_error_advice(e.kind(), setting));
        Error::unavailable(text, e)
    };
    let socket = listen(address).map_err(refused)?;
    let address = socket.local_addr().map_err(refused)?;
    let admitting = Arc::clone(&connections);
    let handshakes = tls.map(Handshakes::new);
    let entrance = move || {
        let connections = Arc::clone(&admitting);
        let handshakes = handshakes.clone();
        fn_service(move |stream: TcpStream| admit(stream, Arc::clone(&connections), handshakes.clone()))
            .and_then(http_service(app()))
    };
    let server = Server::build()
        .workers(workers)
        .max_concurrent_connections((connections.max_connections() / workers).max(1))
        .shutdown_timeout(DRAIN_TIMEOUT_SECONDS)
        .disable_signals()
        .listen("signet", socket, entrance)
        .map_err(refused)?;
    Ok(BoundListener { address, connections, run: || server.run() })
}

/// Returns advice for the operator when an address cannot be bound.
fn bind_error_advice(kind: io::ErrorKind, setting: &str) -> String {
    match kind {
        io::ErrorKind::AddrInUse => format!(": the port is in use; end the other program, or change {setting}"),
        io::ErrorKind::AddrNotAvailable => format!(": this machine does not have the address; correct {setting}"),
        io::ErrorKind::PermissionDenied => ": ports below 1024 require CAP_NET_BIND_SERVICE".to_owned(),
        _ => String::new(),
    }
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_BACKLOG_CONNECTIONS)?.into_std()
}

/// Creates the service that serves HTTP on the connections of one worker. It has no idle timeout, because the
/// connection table closes idle connections.
fn http_service<I, S, B>(
    app: I,
) -> impl ServiceFactory<
    (ConnectionStream, Protocol, Option<SocketAddr>),
    Config = (),
    Response = (),
    Error = DispatchError,
    InitError = (),
>
where
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<actix_web::Error> + 'static,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    S::Service: 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let app = app.into_factory().map_err(|error: S::Error| Response::from(error.into()));
    let shared = AppCell::new();
    let factory = shared.app_service(map_config(app, |()| AppConfig::default()));
    let http1 = HttpServiceBuilder::default()
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(HEAD_TIMEOUT)
        .client_disconnect_timeout(DISCONNECT_TIMEOUT)
        // Otherwise an unparsable request would abort the request before it. [`ConnectionStream`] handles clients that
        // close their sending side.
        .h1_allow_half_closed(true)
        .on_connect_ext(|stream: &ConnectionStream, data| drop(data.insert(Arc::clone(stream.connection()))))
        .expect(shared.expect_service::<B>())
        .finish::<_, B>(factory);
    http2::with_http2::<_, _, B>(http1, shared)
}

/// Assigns a slot to an accepted connection and performs the TLS handshake, if the listener has TLS.
async fn admit(
    stream: TcpStream,
    connections: Arc<Connections>,
    handshakes: Option<Handshakes>,
) -> std::result::Result<(ConnectionStream, Protocol, Option<SocketAddr>), DispatchError> {
    let peer = stream.peer_addr().map_err(DispatchError::Io)?;
    let slot = connections.admit(peer.ip()).ok_or_else(|| DispatchError::Io(io::ErrorKind::ResourceBusy.into()))?;
    // Disables Nagle's algorithm: a response is usually one small write, which must be sent immediately.
    let _ = stream.set_nodelay(true);
    let (transport, protocol) = match handshakes {
        None => (Transport::Tcp(stream), Protocol::Http1),
        Some(handshakes) => handshakes.negotiate(stream, &slot).await.map_err(DispatchError::Io)?,
    };
    Ok((ConnectionStream::new(transport, slot), protocol, Some(peer)))
}

/// Middleware for every request. Rejects malformed `Host` fields. Rejects WebSocket upgrades, because actix would treat
/// all following input as the request body, regardless of its declared length. Over HTTP/1.1, marks the connection as
/// busy, and sends `Connection: close` if the connection was asked to close; the HTTP/2 modules do this for HTTP/2.
pub(super) fn track_request<S, B>(
    mut request: ServiceRequest,
    app: &S,
) -> impl Future<Output = std::result::Result<ServiceResponse<TrackedResponseBody<B>>, actix_web::Error>> + use<S, B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = actix_web::Error>,
    B: MessageBody + Unpin,
{
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let body = if is_chunked { CHUNKED_READ_AHEAD_BYTES } else { declared_body_bytes(request.headers()) };
    let exchange = request.conn_data::<Arc<Connection>>().map(|connection| BusyGuard::begin(connection, body));
    if let Some(exchange) = exchange.as_ref().filter(|_| body > 0) {
        request.extensions_mut().insert(exchange.connection().identified_flag());
        let payload = track_body_reads(request.take_payload(), exchange.connection(), is_chunked);
        request.set_payload(payload);
    }
    let refusal = if !host::is_valid(request.headers()) {
        connections::count_rejected_request("400");
        Some("host: must be a host name or an address, with or without a port")
    } else if is_websocket_upgrade(&request) {
        Some("upgrade: not supported")
    } else {
        None
    };
    let answered = match refusal {
        Some(text) => Either::Left(ready(Err(rejection(text)))),
        None => Either::Right(app.call(request)),
    };
    async move {
        let mut response = answered.await?.map_body(|_, body| TrackedResponseBody::new(body, exchange.as_ref()));
        if exchange.is_some_and(|exchange| exchange.is_last()) {
            response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
        }
        Ok(response)
    }
}

/// Returns the value of `Content-Length` in bytes; 0 if it is missing or invalid.
fn declared_body_bytes(headers: &HeaderMap) -> u64 {
    headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0)
}

fn is_websocket_upgrade(request: &ServiceRequest) -> bool {
    let mut named = request.headers().get_all(header::UPGRADE).filter_map(|value| value.to_str().ok());
    named.any(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

/// Creates the response to a request that is rejected before the app is called. It closes the connection.
fn rejection(text: &'static str) -> actix_web::Error {
    let response = HttpResponse::BadRequest().force_close().json(serde_json::json!({ "errors": [text] }));
    InternalError::from_response(text, response).into()
}

/// A response body that updates the phase of its connection. A closing connection stays open until the body is sent or
/// dropped. While a streamed body has no data ready, the connection counts as busy and not as waiting for its client.
pub(super) struct TrackedResponseBody<B> {
    body: B,
    /// `None` for a body of at most [`MAX_UNTRACKED_BODY_BYTES`], and over HTTP/2.
    sending: Option<SendingGuard>,
    /// `true` for a streamed body, which the app produces while it is sent. A body of known length waits only for the
    /// client.
    is_streamed: bool,
}

impl<B: MessageBody> TrackedResponseBody<B> {
    /// Wraps a response body. `exchange` is the guard of an HTTP/1.1 request; for HTTP/2 it is `None` and the body is
    /// not tracked.
    fn new(body: B, exchange: Option<&BusyGuard>) -> Self {
        let (is_streamed, is_long) = match body.size() {
            BodySize::Stream => (true, true),
            BodySize::Sized(length) => (false, length > MAX_UNTRACKED_BODY_BYTES),
            BodySize::None => (false, false),
        };
        let sending = exchange.filter(|_| is_long).map(|exchange| SendingGuard::begin(exchange.connection()));
        Self { body, sending, is_streamed }
    }
}

impl<B: MessageBody + Unpin> MessageBody for TrackedResponseBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::result::Result<Bytes, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_next(cx);
        if let Some(connection) = this.sending.as_ref().filter(|_| this.is_streamed).map(SendingGuard::connection) {
            match polled {
                Poll::Pending => connection.set_phase(ConnectionPhase::Busy, 0),
                Poll::Ready(_) => connection.set_phase(ConnectionPhase::Idle, connection.now()),
            }
        }
        polled
    }

    fn try_into_bytes(self) -> std::result::Result<Bytes, Self> {
        let Self { body, sending, is_streamed } = self;
        body.try_into_bytes().map_err(|body| Self { body, sending, is_streamed })
    }
}

impl<F: FnOnce() -> Server> BoundListener<F> {
    pub(super) fn serve(self) -> RunningListener {
        let server = (self.run)();
        let sweep = actix_rt::spawn(Arc::clone(&self.connections).sweep());
        let address = self.address;
        let connections = self.connections;
        let handle = server.handle();
        RunningListener { address, connections, handle, sweep, task: actix_rt::spawn(server) }
    }
}

pub(super) struct RunningListener {
    pub(super) address: SocketAddr,
    connections: Arc<Connections>,
    handle: ServerHandle,
    sweep: JoinHandle<()>,
    task: JoinHandle<io::Result<()>>,
}

impl RunningListener {
    /// Stops accepting connections and closes existing ones: after the current request if `graceful`, else immediately.
    ///
    /// # Errors
    /// `Internal` when the listener had already ended with an error.
    pub(super) async fn stop(self, graceful: bool) -> Result<()> {
        self.connections.close();
        self.handle.stop(graceful).await;
        self.sweep.abort();
        self.task.await.map_err(Error::internal)?.map_err(Error::internal)
    }
}

#[cfg(test)]
mod tests {
    use actix_web::body::SizedStream;
    use actix_web::{App, HttpResponse, web};
    use futures_util::{StreamExt as _, stream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::server::capacity::ConnectionCaps;

    async fn connected(from: &str, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(to).await.unwrap()
    }

    /// Reads a response and returns its status, or 0 if the connection ends.
    async fn response_status(stream: &mut TcpStream) -> u16 {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(octet) => head.push(octet),
                Err(_) => return 0,
            }
        }
        String::from_utf8(head).unwrap()["HTTP/1.1 ".len()..][..3].parse().unwrap()
    }

    #[actix_web::test]
    async fn listener_closes_the_longest_idle_of_an_address_at_its_cap() {
        let connections = Connections::new("main", ConnectionCaps { total: 50, per_address: 3 }, Vec::new());
        let setup = ListenerSetup {
            address: ([127, 0, 0, 1], 0).into(),
            setting: "listen",
            tls: None,
            workers: 2,
            connections,
        };
        let app = || App::new().default_service(web::to(HttpResponse::Ok)).wrap_fn(track_request);
        let serving = bind(setup, app).unwrap().serve();
        let mut other = connected("127.0.0.2", serving.address).await;
        assert_eq!(response_status(&mut other).await, 200);
        let mut own = Vec::new();
        for _ in 0..5 {
            let mut stream = connected("127.0.0.1", serving.address).await;
            assert_eq!(response_status(&mut stream).await, 200);
            own.push(stream);
            // The connection table orders connections by milliseconds, so the next connection must be at least one
            // millisecond later.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for (n, status) in [(0, 0), (1, 0), (2, 200), (3, 200), (4, 200)] {
            assert_eq!(response_status(&mut own[n]).await, status, "{n}");
        }
        assert_eq!(response_status(&mut other).await, 200);
        serving.stop(true).await.unwrap();
        assert_eq!(response_status(&mut other).await, 0);
    }

    #[actix_web::test]
    async fn listener_keeps_a_connection_with_a_slow_handler() {
        let connections = Connections::new("main", ConnectionCaps { total: 1, per_address: 1 }, Vec::new());
        let setup = ListenerSetup {
            address: ([127, 0, 0, 1], 0).into(),
            setting: "listen",
            tls: None,
            workers: 1,
            connections,
        };
        let late = || async {
            let pieces = stream::iter([Bytes::from_static(b"12"), Bytes::from_static(b"345")]).then(async |piece| {
                tokio::time::sleep(Duration::from_millis(3000)).await;
                Ok::<_, actix_web::Error>(piece)
            });
            HttpResponse::Ok().streaming(pieces)
        };
        let app = move || App::new().default_service(web::to(late)).wrap_fn(track_request);
        let serving = bind(setup, app).unwrap().serve();
        let mut client = connected("127.0.0.1", serving.address).await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("2\r\n12\r\n3\r\n345\r\n0\r\n\r\n"), "{text}");
        serving.stop(true).await.unwrap();
    }

    #[actix_web::test]
    async fn listener_sends_a_slow_reader_the_whole_response_during_close() {
        const LENGTH: usize = 64 << 20;
        const PIECE: usize = 64 << 10;
        let pieces = || {
            let piece = Bytes::from(vec![b'x'; PIECE]);
            stream::iter(std::iter::repeat_n(piece, LENGTH / PIECE).map(Ok::<_, actix_web::Error>))
        };
        let chunked = move || async move { HttpResponse::Ok().streaming(pieces()) };
        let sized = move || async move { HttpResponse::Ok().body(SizedStream::new(LENGTH as u64, pieces())) };
        for path in ["/chunked", "/sized"] {
            let connections = Connections::new("main", ConnectionCaps { total: 9, per_address: 1 }, Vec::new());
            let setup = ListenerSetup {
                address: ([127, 0, 0, 1], 0).into(),
                setting: "listen",
                tls: None,
                workers: 1,
                connections,
            };
            let app = move || {
                let app = App::new().route("/chunked", web::get().to(chunked)).route("/sized", web::get().to(sized));
                app.default_service(web::to(HttpResponse::Ok)).wrap_fn(track_request)
            };
            let serving = bind(setup, app).unwrap().serve();
            let mut slow = connected("127.0.0.1", serving.address).await;
            let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
            slow.write_all(request.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            let mut next = connected("127.0.0.1", serving.address).await;
            assert_eq!(response_status(&mut next).await, 200);
            tokio::time::sleep(Duration::from_millis(1200)).await;
            let mut taken = Vec::new();
            slow.read_to_end(&mut taken).await.unwrap();
            assert_eq!(taken.iter().filter(|octet| **octet == b'x').count(), LENGTH, "{path}");
            assert!(path == "/sized" || taken.ends_with(b"\r\n0\r\n\r\n"), "{path}");
            serving.stop(false).await.unwrap();
        }
    }

    #[actix_web::test]
    async fn listener_disconnects_a_very_slow_reader_during_close() {
        let connections = Connections::new("main", ConnectionCaps { total: 9, per_address: 1 }, Vec::new());
        let counted = Arc::clone(&connections);
        let setup = ListenerSetup {
            address: ([127, 0, 0, 1], 0).into(),
            setting: "listen",
            tls: None,
            workers: 1,
            connections,
        };
        let large = || async { HttpResponse::Ok().body(vec![0; 64 << 20]) };
        let app = move || App::new().route("/large", web::get().to(large)).wrap_fn(track_request);
        let serving = bind(setup, app).unwrap().serve();
        let mut slow = connected("127.0.0.1", serving.address).await;
        slow.write_all(b"GET /large HTTP/1.1\r\nHost: t\r\n\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut next = connected("127.0.0.1", serving.address).await;
        assert_eq!(response_status(&mut next).await, 404);
        let started = std::time::Instant::now();
        let mut some = vec![0; 1 << 20];
        while counted.open() > 1 {
            assert!(started.elapsed() < Duration::from_secs(14), "it still has its slot");
            let _ = slow.read(&mut some).await;
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        assert!(started.elapsed() >= Duration::from_secs(9), "it had its time: {:?}", started.elapsed());
        serving.stop(false).await.unwrap();
    }

    #[actix_web::test]
    async fn listener_closes_a_failed_response_without_the_last_chunk() {
        let connections = Connections::new("main", ConnectionCaps { total: 9, per_address: 9 }, Vec::new());
        let setup = ListenerSetup {
            address: ([127, 0, 0, 1], 0).into(),
            setting: "listen",
            tls: None,
            workers: 1,
            connections,
        };
        let broken = || async {
            let pieces = [Ok(Bytes::from_static(b"12")), Err(actix_web::error::ErrorInternalServerError("no more"))];
            let pieces = stream::iter(pieces).then(async |piece| {
                tokio::time::sleep(Duration::from_millis(20)).await;
                piece
            });
            HttpResponse::Ok().streaming(pieces)
        };
        let app = move || App::new().default_service(web::to(broken)).wrap_fn(track_request);
        let serving = bind(setup, app).unwrap().serve();
        let mut client = connected("127.0.0.1", serving.address).await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("\r\n\r\n2\r\n12\r\n"), "{text}");
        serving.stop(true).await.unwrap();
    }

    #[actix_web::test]
    async fn listener_disconnects_a_client_that_reads_nothing() {
        let connections = Connections::new("main", ConnectionCaps { total: 1, per_address: 1 }, Vec::new());
        let counted = Arc::clone(&connections);
        let setup = ListenerSetup {
            address: ([127, 0, 0, 1], 0).into(),
            setting: "listen",
            tls: None,
            workers: 1,
            connections,
        };
        let large = || async { HttpResponse::Ok().body(vec![0; 32 << 20]) };
        let app = move || App::new().default_service(web::to(large)).wrap_fn(track_request);
        let serving = bind(setup, app).unwrap().serve();
        let mut greedy = connected("127.0.0.1", serving.address).await;
        assert_eq!(response_status(&mut greedy).await, 200);
        let mut next = connected("127.0.0.1", serving.address).await;
        assert_eq!(response_status(&mut next).await, 200);
        let started = std::time::Instant::now();
        while counted.open() > 1 {
            assert!(started.elapsed() < Duration::from_secs(8), "the first still has its socket");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        serving.stop(false).await.unwrap();
    }
}
