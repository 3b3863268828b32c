//! HTTP/2 (RFC 9113), for clients that negotiate it by ALPN.
//!
//! The `h2` library implements the protocol; this module limits the number and rate of the frames that a client may
//! send (`bounds`, `allowance`). A connection and its requests run in one task (`dispatch`), so that dropping the task
//! drops them all. The app and its limits are those of HTTP/1.1. The phase of the connection is *busy* while a handler
//! processes a request, *receiving* while all handlers wait for request bodies, *opening* while a frame of the client
//! is incomplete, otherwise *idle*.

mod allowance;
mod body;
mod bounds;
mod dispatch;
mod exchange;
mod frames;
mod request;
mod response;
mod time_slice;
mod transport;

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use actix_http::body::{BoxBody, MessageBody};
use actix_http::error::{DispatchError, ParseError};
use actix_http::{Protocol, Request, Response};
use actix_service::{Service, ServiceFactory, fn_factory, forward_ready};
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::connection::Connection;
use super::connections;
use super::expect::AppCell;
use super::stream::ConnectionStream;
use dispatch::Dispatch;
use exchange::IncomingRequest;
use response::DateHeader;
use transport::{Http2Activity, ObservedTransport};

type AcceptedStream = (ConnectionStream, Protocol, Option<SocketAddr>);

/// Extends the HTTP/1.1 service `http1` of a worker by HTTP/2. Both protocols call the same app.
pub(super) fn with_http2<H, S, B>(
    http1: H,
    app: AppCell<S>,
) -> impl ServiceFactory<AcceptedStream, Config = (), Response = (), Error = DispatchError, InitError = ()>
where
    H: ServiceFactory<AcceptedStream, Config = (), Response = (), Error = DispatchError, InitError = ()> + 'static,
    S: Service<Request> + 'static,
    S::Response: Into<Response<B>>,
    S::Error: Into<Response<BoxBody>>,
    B: MessageBody + 'static,
{
    fn_factory(move || {
        let http1 = http1.new_service(());
        let app = app.clone();
        async move {
            let http1 = http1.await?;
            let app = app.get().ok_or(())?;
            Ok(NegotiatedService { http1, app, date: Rc::default(), body: PhantomData })
        }
    })
}

/// The service of a worker for accepted connections. It serves each with the negotiated HTTP version.
struct NegotiatedService<H, S, B> {
    http1: H,
    app: Rc<S>,
    date: Rc<DateHeader>,
    body: PhantomData<B>,
}

impl<H, S, B> Service<AcceptedStream> for NegotiatedService<H, S, B>
where
    H: Service<AcceptedStream, Response = (), Error = DispatchError>,
    H::Future: 'static,
    S: Service<Request> + 'static,
    S::Response: Into<Response<B>>,
    S::Error: Into<Response<BoxBody>>,
    B: MessageBody + 'static,
{
    type Response = ();
    type Error = DispatchError;
    type Future = LocalBoxFuture<'static, Result<(), DispatchError>>;

    forward_ready!(http1);

    fn call(&self, (stream, protocol, peer): AcceptedStream) -> Self::Future {
        match (protocol, peer) {
            (Protocol::Http2, Some(peer)) => {
                let served = serve(stream, peer, Rc::clone(&self.app), Rc::clone(&self.date));
                served.map(Ok).boxed_local()
            }
            _ => {
                let connection = Arc::clone(stream.connection());
                let mut served = Box::pin(self.http1.call((stream, protocol, peer)));
                // `served` owns the socket. It is dropped at the end of this future, so that the socket closes only
                // after `count_rejected` has counted the result.
                Box::pin(async move {
                    let ended = served.as_mut().await;
                    count_rejected(&connection, &ended);
                    ended
                })
            }
        }
    }
}

/// Counts a request that the HTTP/1.1 implementation rejected without calling the app, and a connection that it closed
/// because the request head was late.
fn count_rejected(connection: &Connection, ended: &Result<(), DispatchError>) {
    match ended {
        Err(DispatchError::Parse(ParseError::TooLarge)) => connections::count_rejected_request("431"),
        Err(DispatchError::Parse(_)) => connections::count_rejected_request("400"),
        _ if connection.is_head_overdue() => connections::count_closed("head", 1),
        _ => {}
    }
}

async fn serve<S, B>(stream: ConnectionStream, peer: SocketAddr, app: Rc<S>, date: Rc<DateHeader>)
where
    S: Service<Request>,
    S::Response: Into<Response<B>>,
    S::Error: Into<Response<BoxBody>>,
    B: MessageBody,
{
    let (transport, slot) = stream.into_parts();
    let activity = Http2Activity::new(slot.connection().clone());
    let request_permits = slot.request_permits();
    let wire = ObservedTransport::new(transport, slot, &activity);
    let agreed = tokio::select! {
        agreed = bounds::builder().handshake(wire) => agreed,
        () = activity.connection.close_requested() => return,
    };
    // A failed handshake is not logged: the peer negotiated HTTP/2 but does not speak it.
    let Ok(http2) = agreed else { return };
    let begin = |incoming: IncomingRequest| {
        exchange::handle_request(Rc::clone(&app), incoming, peer, Rc::clone(&date), Rc::clone(&activity))
    };
    Dispatch::new(http2, begin, request_permits, Rc::clone(&activity)).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, poll_fn};
    use std::time::{Duration, Instant};

    use actix_web::body::SizedStream;
    use actix_web::{App, HttpRequest, HttpResponse, web};
    use bytes::Bytes;
    use futures_util::future::join_all;
    use futures_util::{StreamExt as _, stream};
    use h2::client::{ResponseFuture, SendRequest};
    use h2::{Reason, SendStream};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    use super::bounds::{CONNECTION_WINDOW_BYTES, MAX_STREAMS_PER_CONNECTION, STREAM_WINDOW_BYTES};
    use super::*;
    use crate::server::capacity::ConnectionCaps;
    use crate::server::connections::Connections;
    use crate::server::stream::Transport;

    struct Http2TestPair {
        requests: SendRequest<Bytes>,
        client: JoinHandle<Result<(), h2::Error>>,
        server: JoinHandle<()>,
    }

    /// Connects an HTTP/2 client, without TLS, to a server that runs `app`.
    async fn connected<F, R>(connections: &Arc<Connections>, app: F) -> Http2TestPair
    where
        F: Fn(HttpRequest, web::Payload) -> R + Clone + 'static,
        R: Future<Output = HttpResponse> + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, peer) = listener.accept().await.unwrap();
        let slot = connections.admit(peer.ip()).unwrap();
        let service = actix_web::test::init_service(App::new().default_service(web::to(app))).await;
        let accepted = ConnectionStream::new(Transport::Tcp(accepted), slot);
        let server = actix_rt::spawn(serve(accepted, peer, Rc::new(service), Rc::default()));
        let (requests, client) = h2::client::handshake(stream).await.unwrap();
        Http2TestPair { requests, client: actix_rt::spawn(client), server }
    }

    fn table(total: usize) -> Arc<Connections> {
        Connections::new("main", ConnectionCaps { total, per_address: total }, Vec::new())
    }

    impl Http2TestPair {
        async fn begin(&self, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
            let request = http_types::Request::post(format!("https://t/{path}")).body(()).unwrap();
            self.requests.clone().ready().await.unwrap().send_request(request, false).unwrap()
        }

        /// Sends a request. Returns the response head and the length of the response body.
        async fn request(&self, path: &str) -> Result<(http_types::Response<()>, usize), h2::Error> {
            let (answer, mut body) = self.begin(path).await;
            body.send_data(Bytes::new(), true)?;
            let (head, mut body) = answer.await?.into_parts();
            let mut length = 0;
            while let Some(chunk) = body.data().await {
                length += chunk.as_ref().map_or(0, Bytes::len);
                body.flow_control().release_capacity(chunk?.len())?;
            }
            Ok((http_types::Response::from_parts(head, ()), length))
        }
    }

    async fn wait_until(what: impl Fn() -> bool) {
        let started = Instant::now();
        while !what() {
            assert!(started.elapsed() < Duration::from_secs(8), "never");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Number of calls of the app that began, and number of calls that completed or were dropped.
    #[derive(Clone, Default)]
    struct CallCounts(Rc<(Cell<usize>, Cell<usize>)>);

    impl CallCounts {
        fn begin(&self) -> Self {
            self.0.0.set(self.0.0.get() + 1);
            self.clone()
        }

        fn counted(&self) -> (usize, usize) {
            (self.0.0.get(), self.0.1.get())
        }
    }

    struct CallGuard(CallCounts);

    impl Drop for CallGuard {
        fn drop(&mut self) {
            self.0.0.1.set(self.0.0.1.get() + 1);
        }
    }

    /// Returns an app that never responds and counts its calls.
    fn never_responding_app(
        calls: &CallCounts,
    ) -> impl Fn(HttpRequest, web::Payload) -> futures_util::future::LocalBoxFuture<'static, HttpResponse> + Clone + use<>
    {
        let calls = calls.clone();
        move |_, payload| {
            let call = CallGuard(calls.begin());
            async move {
                let _held = (call, payload);
                pending().await
            }
            .boxed_local()
        }
    }

    #[actix_web::test]
    async fn http2_call_ends_with_its_stream_or_its_connection() {
        let calls = CallCounts::default();
        let connections = table(10);
        let pair = connected(&connections, never_responding_app(&calls)).await;
        let mut begun = join_all((0..3).map(|_| pair.begin(""))).await;
        wait_until(|| calls.counted() == (3, 0)).await;
        begun[1].1.send_reset(Reason::CANCEL);
        wait_until(|| calls.counted() == (3, 1)).await;
        pair.client.abort();
        wait_until(|| calls.counted() == (3, 3)).await;
        pair.server.await.unwrap();
        assert_eq!(connections.open(), 0);
    }

    #[actix_web::test]
    async fn http2_panic_ends_only_its_own_request() {
        let app = async |request: HttpRequest, mut payload: web::Payload| {
            assert_ne!(request.path(), "/panic");
            while futures_util::StreamExt::next(&mut payload).await.is_some() {}
            HttpResponse::Ok().finish()
        };
        let pair = connected(&table(10), app).await;
        let (concurrent, mut body) = pair.begin("").await;
        assert_eq!(pair.request("panic").await.unwrap_err().reason(), Some(Reason::INTERNAL_ERROR));
        body.send_data(Bytes::new(), true).unwrap();
        assert_eq!(concurrent.await.unwrap().status(), 200);
        assert_eq!(pair.request("").await.unwrap().0.status(), 200);
    }

    #[actix_web::test]
    async fn http2_unread_bodies_are_limited_by_the_flow_windows() {
        let read = Rc::new(Notify::new());
        let waited = Rc::clone(&read);
        let app = move |_: HttpRequest, mut payload: web::Payload| {
            let read = Rc::clone(&waited);
            async move {
                read.notified().await;
                let mut length = 0;
                while let Some(chunk) = futures_util::StreamExt::next(&mut payload).await {
                    length += chunk.unwrap().len();
                }
                HttpResponse::Ok().body(length.to_string())
            }
        };
        let pair = connected(&table(10), app).await;
        const LENGTH: usize = 1 << 20;
        let sent = Rc::new(Cell::new(0));
        let send = async |mut body: SendStream<Bytes>, sent: Rc<Cell<usize>>| {
            let mut left = LENGTH;
            while left > 0 {
                body.reserve_capacity(left.min(16 << 10));
                let capacity = poll_fn(|cx| body.poll_capacity(cx)).await.unwrap().unwrap();
                left -= capacity.min(left);
                sent.set(sent.get() + capacity);
                body.send_data(vec![7; capacity].into(), left == 0).unwrap();
            }
        };
        let mut answers = Vec::new();
        for (requests, max) in [(1, STREAM_WINDOW_BYTES), (8, CONNECTION_WINDOW_BYTES)] {
            while answers.len() < requests {
                let (answer, body) = pair.begin("").await;
                actix_rt::spawn(send(body, Rc::clone(&sent)));
                answers.push(answer);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(sent.get(), max as usize, "{requests}");
        }
        read.notify_waiters();
        for answer in answers {
            let mut body = answer.await.unwrap().into_body();
            assert_eq!(body.data().await.unwrap().unwrap(), LENGTH.to_string());
        }
    }

    #[actix_web::test]
    async fn http2_dropped_body_frees_the_connection_window() {
        let app = async |request: HttpRequest, mut payload: web::Payload| {
            if request.path() == "/gone" {
                drop(payload);
                return pending().await;
            }
            while futures_util::StreamExt::next(&mut payload).await.is_some() {}
            HttpResponse::Ok().finish()
        };
        let pair = connected(&table(10), app).await;
        let mut begun = Vec::new();
        let each = 3 * STREAM_WINDOW_BYTES as usize / 4;
        for _ in 0..2 * CONNECTION_WINDOW_BYTES / STREAM_WINDOW_BYTES {
            let (answer, mut body) = pair.begin("gone").await;
            let mut left = each;
            while left > 0 {
                body.reserve_capacity(left);
                let capacity = poll_fn(|cx| body.poll_capacity(cx));
                let capacity =
                    tokio::time::timeout(Duration::from_secs(8), capacity).await.expect("capacity").unwrap().unwrap();
                body.send_data(vec![7; capacity.min(left)].into(), false).unwrap();
                left -= capacity.min(left);
            }
            begun.push((answer, body));
        }
        assert_eq!(pair.request("").await.unwrap().0.status(), 200);
    }

    #[actix_web::test]
    async fn http2_flood_of_tiny_data_frames_is_ended_as_excessive() {
        let pair = connected(&table(10), never_responding_app(&CallCounts::default())).await;
        let (_answer, mut body) = pair.begin("").await;
        for _ in 0..5000 {
            let _ = body.send_data(Bytes::from_static(b"x"), false);
        }
        pair.server.await.unwrap();
        let told = pair.client.await.unwrap().unwrap_err();
        assert!(told.is_io() || told.reason() == Some(Reason::ENHANCE_YOUR_CALM), "{told}");
    }

    #[actix_web::test]
    async fn http2_client_that_reads_nothing_is_disconnected() {
        let connections = table(1);
        actix_rt::spawn(Arc::clone(&connections).sweep());
        let large = async |_: HttpRequest, _: web::Payload| HttpResponse::Ok().body(vec![0; 32 << 20]);
        let greedy = connected(&connections, large).await;
        let (answer, _body) = greedy.begin("").await;
        let answer = answer.await.unwrap();
        let started = Instant::now();
        let next = connected(&connections, async |_, _| HttpResponse::Ok().finish()).await;
        assert_eq!(next.request("").await.unwrap().0.status(), 200);
        tokio::time::timeout(Duration::from_secs(8), greedy.server).await.unwrap().unwrap();
        assert!(started.elapsed() >= Duration::from_secs(2), "it had its time: {:?}", started.elapsed());
        drop(answer);
    }

    #[actix_web::test]
    async fn http2_slow_reader_gets_the_whole_response_during_close() {
        let connections = table(10);
        actix_rt::spawn(Arc::clone(&connections).sweep());
        let large = async |_: HttpRequest, _: web::Payload| HttpResponse::Ok().body(vec![0; 1 << 20]);
        let pair = connected(&connections, large).await;
        let (answer, mut body) = pair.begin("").await;
        body.send_data(Bytes::new(), true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        connections.close();
        let mut length = 0;
        let started = Instant::now();
        while let Some(chunk) = body.data().await {
            length += chunk.as_ref().unwrap().len();
            body.flow_control().release_capacity(chunk.unwrap().len()).unwrap();
            tokio::time::sleep(Duration::from_millis(70)).await;
        }
        assert_eq!(length, 1 << 20);
        assert!(started.elapsed() > Duration::from_secs(4), "longer than bytes may be stuck: {:?}", started.elapsed());
        pair.server.await.unwrap();
    }

    #[actix_web::test]
    async fn http2_very_slow_reader_is_disconnected_during_close() {
        let connections = table(10);
        actix_rt::spawn(Arc::clone(&connections).sweep());
        let large = async |_: HttpRequest, _: web::Payload| HttpResponse::Ok().body(vec![0; 32 << 20]);
        let pair = connected(&connections, large).await;
        let (answer, mut body) = pair.begin("").await;
        body.send_data(Bytes::new(), true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        connections.close();
        let started = Instant::now();
        let mut server = pair.server;
        let slowly = async {
            loop {
                let chunk = body.data().await.unwrap()?;
                body.flow_control().release_capacity(chunk.len())?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let (taken, ended) = tokio::join!(
            tokio::time::timeout(Duration::from_secs(16), slowly),
            tokio::time::timeout(Duration::from_secs(14), &mut server)
        );
        ended.expect("it still has its slot").unwrap();
        assert!(started.elapsed() >= Duration::from_secs(9), "it had its time: {:?}", started.elapsed());
        let cut: Result<(), h2::Error> = taken.expect("it is told");
        assert!(cut.is_err());
    }

    #[actix_web::test]
    async fn http2_response_shorter_than_its_length_is_reset() {
        let app = async |request: HttpRequest, _: web::Payload| {
            let pieces =
                stream::iter([Ok::<_, actix_web::Error>(Bytes::from_static(b"12")), Ok(Bytes::from_static(b"345"))]);
            match request.path() {
                "/short" => HttpResponse::Ok().body(SizedStream::new(10, pieces)),
                "/long" => HttpResponse::Ok().body(SizedStream::new(4, pieces)),
                "/broken" => {
                    let broken =
                        [Ok(Bytes::from_static(b"12")), Err(actix_web::error::ErrorInternalServerError("no more"))];
                    HttpResponse::Ok().streaming(stream::iter(broken))
                }
                _ => HttpResponse::Ok().streaming(pieces),
            }
        };
        let pair = connected(&table(10), app).await;
        for (path, length, read) in [("", None, 5), ("long", Some("4"), 4)] {
            let (head, found) = pair.request(path).await.unwrap();
            let declared = head.headers().get("content-length").map(|value| value.to_str().unwrap());
            assert_eq!((declared, found), (length, read), "{path}");
        }
        for path in ["short", "broken"] {
            assert_eq!(pair.request(path).await.unwrap_err().reason(), Some(Reason::INTERNAL_ERROR), "{path}");
        }
        assert_eq!(pair.request("").await.unwrap().1, 5, "the connection is fit for others");
    }

    #[actix_web::test]
    async fn http2_connection_with_a_slow_handler_stays_open() {
        let connections = table(1);
        actix_rt::spawn(Arc::clone(&connections).sweep());
        // The app takes longer than the time limits for idle clients and blocked writes, which must not apply to it.
        let late = async |_: HttpRequest, _: web::Payload| {
            let pieces = stream::iter([Bytes::from_static(b"12"), Bytes::from_static(b"345")]).then(async |piece| {
                tokio::time::sleep(Duration::from_millis(4500)).await;
                Ok::<_, actix_web::Error>(piece)
            });
            HttpResponse::Ok().streaming(pieces)
        };
        let pair = connected(&connections, late).await;
        assert_eq!(pair.request("").await.unwrap().1, 5);
        assert!(!pair.server.is_finished(), "nor does it leave afterwards at once");
    }

    #[actix_web::test]
    async fn http2_limits_the_requests_started_between_yields() {
        let calls = CallCounts::default();
        let counted = calls.clone();
        let app = move |_: HttpRequest, _: web::Payload| {
            counted.begin();
            std::future::ready(HttpResponse::Ok().finish())
        };
        let mut pair = connected(&table(10), app).await;
        let started = Instant::now();
        for (fields, at_most) in [(0, 16), (16, 2)] {
            let began = calls.counted().0;
            let mut answers = Vec::new();
            for _ in 0..24 {
                let mut request = http_types::Request::get("https://t/").body(()).unwrap();
                for _ in 0..fields {
                    request.headers_mut().append("x-long", "x".repeat(2900).parse().unwrap());
                }
                answers.push(pair.requests.send_request(request, true).unwrap().0);
            }
            let mut max = 0;
            let mut before = began;
            while before < began + 24 {
                tokio::task::yield_now().await;
                let now = calls.counted().0;
                max = max.max(now - before);
                before = now;
                assert!(started.elapsed() < Duration::from_secs(8), "never");
            }
            assert!((1..=at_most).contains(&max), "{fields}: {max}");
            join_all(answers).await;
        }
    }

    #[actix_web::test]
    async fn http2_extra_stream_limit_spares_first_of_each_connection() {
        let calls = CallCounts::default();
        let connections = table(20);
        let pairs = join_all((0..11).map(|_| connected(&connections, never_responding_app(&calls)))).await;
        let mut begun = Vec::new();
        for pair in &pairs {
            begun.extend(join_all((0..MAX_STREAMS_PER_CONNECTION).map(|_| pair.begin(""))).await);
        }
        // The listener has 1000 permits for concurrent requests beyond the first of each connection.
        let refused = Rc::new(Cell::new(0));
        for (answer, _body) in begun {
            let refused = Rc::clone(&refused);
            actix_rt::spawn(async move {
                let _held = _body;
                if answer.await.is_err_and(|error| error.reason() == Some(Reason::REFUSED_STREAM)) {
                    refused.set(refused.get() + 1);
                }
            });
        }
        wait_until(|| refused.get() == 11 * (MAX_STREAMS_PER_CONNECTION - 1) - 1000).await;
        assert_eq!(calls.counted(), (1011, 0));
        let late = connected(&connections, async |_, _| HttpResponse::Ok().finish()).await;
        assert_eq!(late.request("").await.unwrap().0.status(), 200);
        for pair in pairs {
            pair.client.abort();
            pair.server.await.unwrap();
        }
        assert_eq!(calls.counted(), (1011, 1011));
    }
}
