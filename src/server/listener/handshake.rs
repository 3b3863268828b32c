//! TLS handshakes: fair by client network, and off the HTTP workers.
//!
//! A handshake costs the server a signature and a key agreement, 0.2 to 10 ms of CPU by the type of its key. Any client can
//! ask for many at once, so they wait in a fair queue, and one network never has all its places. The worker waits for
//! the client; a place is held only while the handshake computes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use actix_http::Protocol;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, LazyConfigAcceptor, StartHandshake};

use crate::caller_network::CallerNetwork;
use crate::server::connection::HEAD_TIMEOUT;
use crate::server::connections::{self, Place};
use crate::server::mismatch;
use crate::server::stream::Transport;
use crate::server::tls::HTTP2;
use crate::turns::{Entrance, asker_of};

/// The handshakes of one listener; clones share the queue.
#[derive(Clone)]
pub(super) struct Handshakes {
    config: Arc<ServerConfig>,
    queue: Entrance,
}

impl Handshakes {
    /// Handshakes with these settings, on at most every second core.
    pub(super) fn new(config: ServerConfig) -> Self {
        Self { config: Arc::new(config), queue: Entrance::beside_workers() }
    }

    /// Agrees on TLS and on the version of HTTP, unless it takes too long or the connection has to leave.
    pub(super) async fn agree(&self, stream: TcpStream, place: &Place) -> io::Result<(Transport, Protocol)> {
        let stream = tokio::select! {
            agreed = tokio::time::timeout(HEAD_TIMEOUT, self.accept(stream, place)) => {
                agreed.inspect_err(|_| connections::closed("head", 1))??
            }
            () = place.connection().told() => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let wants_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        let protocol = if wants_http2 { Protocol::Http2 } else { Protocol::Http1 };
        Ok((Transport::Tls(Box::new(stream)), protocol))
    }

    async fn accept(&self, mut stream: TcpStream, place: &Place) -> io::Result<TlsStream<TcpStream>> {
        if mismatch::answered_plain(&mut stream).await? {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        match self.compute(hello, place.connection().source).await? {
            (Poll::Ready(agreed), _) => agreed,
            (Poll::Pending, rest) => rest.await,
        }
    }

    /// Answers the client's first message, in the turn of its network.
    async fn compute(&self, hello: StartHandshake<TcpStream>, network: CallerNetwork) -> io::Result<Computed> {
        let permit = self.queue.enter(asker_of(&network)).await;
        let config = Arc::clone(&self.config);
        let compute = move || {
            let _permit = permit;
            let mut rest = hello.into_stream(config);
            // Nothing more is needed from the client for the signature, so the first poll makes it.
            let first = Pin::new(&mut rest).poll(&mut Context::from_waker(Waker::noop()));
            (first, rest)
        };
        tokio::task::spawn_blocking(compute).await.map_err(io::Error::other)
    }
}

/// The outcome of the first poll of a handshake, and its rest.
type Computed = (Poll<io::Result<TlsStream<TcpStream>>>, Accept<TcpStream>);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::join_all;
    use futures_util::poll;
    use rustls::crypto::CryptoProvider;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use tokio::net::TcpListener;

    use super::*;
    use crate::x509::testing::root;

    /// Gives every client the same certificate, and notes the names that they ask for in the order of their handshakes.
    #[derive(Debug)]
    struct Recording {
        certificate: Arc<CertifiedKey>,
        names: Mutex<Vec<String>>,
    }

    impl ResolvesServerCert for Recording {
        fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            self.names.lock().unwrap().push(hello.server_name().unwrap_or_default().to_owned());
            Some(Arc::clone(&self.certificate))
        }
    }

    fn handshakes(places: usize) -> (Handshakes, Arc<Recording>) {
        let (key, certificate) = root("ec", 256);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.to_pkcs8().unwrap().expose().to_vec()));
        let builder = ServerConfig::builder().with_no_client_auth();
        let provider: &CryptoProvider = builder.crypto_provider();
        let certificate = CertifiedKey::from_der(vec![certificate.der().to_vec().into()], key, provider).unwrap();
        let recording = Arc::new(Recording { certificate: Arc::new(certificate), names: Mutex::default() });
        let config = Arc::new(builder.with_cert_resolver(recording.clone()));
        (Handshakes { config, queue: Entrance::new(places) }, recording)
    }

    /// A connection whose client has sent its first message for this name, and its client.
    async fn hello(name: String) -> (StartHandshake<TcpStream>, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let mut sent = ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
        sent.write_tls(&mut client).unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        (LazyConfigAcceptor::new(Acceptor::default(), accepted).await.unwrap(), client)
    }

    #[tokio::test]
    async fn handshakes_of_one_network_let_others_go_ahead() {
        let (handshakes, recording) = handshakes(1);
        let busy = handshakes.queue.enter(0).await;
        let (mut waiting, mut clients) = (Vec::new(), Vec::new());
        // Many of one /64, each from another address, and then one of another network.
        for n in 0..9_u16 {
            let address = if n < 8 { [0x2001, 0xdb8, 0, 1, 0, 0, 0, n] } else { [0x2001, 0xdb8, 0, 2, 0, 0, 0, 1] };
            let network = CallerNetwork::of(std::net::IpAddr::from(address));
            let (hello, client) = hello(format!("client-{n}.test")).await;
            clients.push(client);
            let handshakes = handshakes.clone();
            let mut one = Box::pin(async move { handshakes.compute(hello, network).await.is_ok() });
            assert!(poll!(&mut one).is_pending());
            waiting.push(one);
        }
        drop(busy);
        assert!(join_all(waiting).await.into_iter().all(|is_ok| is_ok));
        assert_eq!(recording.names.lock().unwrap()[..2], ["client-0.test", "client-8.test"]);
    }
}
