//! TLS handshakes, scheduled fairly among client networks and outside the HTTP workers.
//!
//! A handshake costs the server a signature and a key agreement: 0.2 to 10 ms of CPU time, depending on the type of its
//! key. A client can start many handshakes concurrently, so they run in the [CPU queue](crate::rationing::cpu), as
//! jobs of the client's network. The HTTP worker only waits for the client's messages.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use actix_http::Protocol;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, LazyConfigAcceptor};

use crate::caller_network::CallerNetwork;
use crate::rationing::{QueueCaller, cpu};
use crate::server::connection::HEAD_TIMEOUT;
use crate::server::connections::{self, ConnectionSlot};
use crate::server::mismatch;
use crate::server::stream::Transport;
use crate::server::tls::ALPN_HTTP2;

#[derive(Clone)]
pub(super) struct Handshakes(Arc<ServerConfig>);

impl Handshakes {
    pub(super) fn new(config: ServerConfig) -> Self {
        Self(Arc::new(config))
    }

    /// Performs the TLS handshake of a connection, which negotiates the HTTP version. Fails after [`HEAD_TIMEOUT`], or
    /// when the connection is asked to close.
    pub(super) async fn negotiate(
        &self,
        stream: TcpStream,
        slot: &ConnectionSlot,
    ) -> io::Result<(Transport, Protocol)> {
        let stream = tokio::select! {
            agreed = tokio::time::timeout(HEAD_TIMEOUT, self.accept(stream, slot)) => {
                agreed.inspect_err(|_| connections::count_closed("head", 1))??
            }
            () = slot.connection().close_requested() => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let wants_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
        let protocol = if wants_http2 { Protocol::Http2 } else { Protocol::Http1 };
        Ok((Transport::Tls(Box::new(stream)), protocol))
    }

    async fn accept(&self, mut stream: TcpStream, slot: &ConnectionSlot) -> io::Result<TlsStream<TcpStream>> {
        if mismatch::reject_plain_http(&mut stream).await? {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.handshake(stream, slot.connection().source).await
    }

    async fn handshake(&self, stream: TcpStream, network: CallerNetwork) -> io::Result<TlsStream<TcpStream>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = Arc::clone(&self.0);
        // The server signs after the first message of the client, or after the second if it accepts none of the
        // client's key shares (RFC 8446, 4.1.4). So every message is processed in the CPU queue.
        let (mut polled, mut handshake) = run_queued(network, move || step(hello.into_stream(config))).await?;
        loop {
            if let Poll::Ready(agreed) = polled {
                return agreed;
            }
            let stream = handshake.get_ref().ok_or_else(|| io::Error::other("a handshake without its connection"))?;
            stream.readable().await?;
            (polled, handshake) = run_queued(network, move || step(handshake)).await?;
        }
    }
}

/// The result of processing the received messages, and the handshake, to be continued if the result is pending.
type HandshakeStep = (Poll<io::Result<TlsStream<TcpStream>>>, Accept<TcpStream>);

/// Processes the messages that the client has sent so far.
fn step(mut handshake: Accept<TcpStream>) -> HandshakeStep {
    let polled = Pin::new(&mut handshake).poll(&mut Context::from_waker(Waker::noop()));
    (polled, handshake)
}

/// Runs a step of a handshake in the CPU queue, as a job of the client's network.
async fn run_queued(
    network: CallerNetwork,
    step: impl FnOnce() -> HandshakeStep + Send + 'static,
) -> io::Result<HandshakeStep> {
    cpu::run_as(QueueCaller::connecting(&network), step).await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::x509::testing::root;

    /// A resolver that returns the same certificate for every handshake, and records the threads that call it.
    #[derive(Debug)]
    struct Recording {
        certificate: Arc<CertifiedKey>,
        threads: Mutex<Vec<String>>,
    }

    impl ResolvesServerCert for Recording {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            self.threads.lock().unwrap().push(thread);
            Some(Arc::clone(&self.certificate))
        }
    }

    fn provider(groups: &[&'static dyn SupportedKxGroup]) -> Arc<CryptoProvider> {
        Arc::new(CryptoProvider { kx_groups: groups.to_vec(), ..aws_lc_rs::default_provider() })
    }

    #[tokio::test]
    async fn every_message_of_a_handshake_is_answered_in_the_cpu_queue() {
        use aws_lc_rs::kx_group::{SECP256R1, X25519};
        let (key, certificate) = root("ec", 256);
        let der = CertificateDer::from(certificate.der().to_vec());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.pkcs8()));
        let certificate = CertifiedKey::from_der(vec![der.clone()], key, &provider(&[SECP256R1])).unwrap();
        let recording = Arc::new(Recording { certificate: Arc::new(certificate), threads: Mutex::default() });
        let server = ServerConfig::builder_with_provider(provider(&[SECP256R1])).with_safe_default_protocol_versions();
        let server = server.unwrap().with_no_client_auth().with_cert_resolver(recording.clone());
        // The client sends a key share of a group that the server does not accept, so the server requests another key
        // share.
        let client = ClientConfig::builder_with_provider(provider(&[X25519, SECP256R1]));
        let client = client.with_safe_default_protocol_versions().unwrap();
        let mut trusted = RootCertStore::empty();
        trusted.add(der).unwrap();
        let client = Arc::new(client.with_root_certificates(trusted).with_no_client_auth());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connecting = tokio::spawn(async move {
            let stream = TcpStream::connect(address).await.unwrap();
            TlsConnector::from(client).connect("a.test".try_into().unwrap(), stream).await.map(drop)
        });
        let (stream, peer) = listener.accept().await.unwrap();
        // The result is ignored: the client may reject the name in the certificate, but the test is only about the
        // threads.
        let _ = Handshakes::new(server).handshake(stream, CallerNetwork::of(peer.ip())).await;
        let _ = connecting.await.unwrap();
        let threads = recording.threads.lock().unwrap();
        assert!(threads.len() == 2 && threads.iter().all(|thread| thread.starts_with("cpu-")), "{threads:?}");
    }
}
