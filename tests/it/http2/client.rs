//! Clients of HTTP/2 over TLS: a conforming one, and one that writes raw frames.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http_types::{HeaderMap, Request, Response};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::serve::{Served, Site};

/// Opens a TLS connection that offers these protocols. Trusts the site's CA.
pub async fn agree(site: &Site, served: &Served, offered: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(site.path("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(served.socket()).await?;
    // Without Nagle's algorithm, a small write is sent immediately.
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

pub struct Client {
    pub requests: SendRequest<Bytes>,
    pub ended: JoinHandle<Result<(), h2::Error>>,
    base: String,
    token: String,
}

impl Client {
    pub async fn open(site: &Site, served: &Served, token: &str) -> Self {
        let stream = agree(site, served, &["h2"]).await.unwrap();
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        let ended = actix_web::rt::spawn(connection);
        Self { requests, ended, base: served.url(""), token: token.to_owned() }
    }

    pub fn request(&self, method: &str, path: &str) -> http_types::request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if self.token.is_empty() { request } else { request.header("x-service-token", &self.token) }
    }

    pub async fn begin(
        &self,
        request: http_types::request::Builder,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.requests.clone().ready().await?.send_request(request.body(()).unwrap(), false)
    }

    pub async fn send(&self, request: http_types::request::Builder, body: &str) -> Result<Answer, h2::Error> {
        let (answer, mut stream) = self.begin(request).await?;
        let mut rest = Bytes::copy_from_slice(body.as_bytes());
        // The server may respond without reading the body.
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(room)) => drop(stream.send_data(rest.split_to(room.min(rest.len())), false)),
                _ => break,
            }
        }
        let _ = stream.send_data(Bytes::new(), true);
        read(answer.await?).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request("GET", path), "").await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(self.request("POST", path), body).await.unwrap()
    }

    /// Asserts that the server ends the connection within `most`, and returns its error.
    pub async fn until_ended(self, most: Duration) -> Result<(), h2::Error> {
        tokio::time::timeout(most, self.ended).await.unwrap().unwrap()
    }
}

/// Reads a response whose head has arrived.
pub async fn read(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut body) = response.into_parts();
    let mut octets = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        octets.extend_from_slice(&chunk);
    }
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, text: String::from_utf8(octets).unwrap() })
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Encodes a frame (RFC 9113, 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const PRIORITY: u8 = 2;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const CALM: u32 = 11;

pub fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    assert!(name.len() < 127 && value.len() < 127);
    [vec![0], text(name), text(value)].concat()
}

pub fn fields(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "https"), (":path", path), (":authority", "127.0.0.1")];
    pseudo.iter().chain(more).flat_map(|(name, value)| field(name, value)).collect()
}

/// A connection with raw frames.
pub struct Wire(pub TlsStream<TcpStream>);

impl Wire {
    /// Opens a connection with empty settings and a large receive window.
    pub async fn open(site: &Site, served: &Served) -> Self {
        let mut wire = Self(agree(site, served, &["h2"]).await.unwrap());
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        wire.send(&[frame(SETTINGS, 0, 0, &[]), frame(WINDOW_UPDATE, 0, 0, &[0x40, 0, 0, 0])].concat()).await;
        wire
    }

    pub async fn send(&mut self, octets: &[u8]) {
        self.try_send(octets).await.unwrap();
    }

    pub async fn try_send(&mut self, octets: &[u8]) -> std::io::Result<()> {
        self.0.write_all(octets).await?;
        self.0.flush().await
    }

    pub async fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, _, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((kind, u32::from_be_bytes(stream), payload))
    }

    pub async fn next_of(&mut self, kind: u8) -> Option<(u32, Vec<u8>)> {
        loop {
            let (found, stream, payload) = self.next().await?;
            if found == kind {
                return Some((stream, payload));
            }
        }
    }

    /// Waits until every request sent so far has begun; `None` if the server closed first. The first PING response may
    /// precede the start of requests that arrived with the PING, the second cannot.
    pub async fn all_begun(&mut self) -> Option<()> {
        for _ in 0..2 {
            self.try_send(&frame(PING, 0, 0, &[0; 8])).await.ok()?;
            self.next_of(PING).await?;
        }
        Some(())
    }

    /// Reads until the server closes. Returns the error codes of its GOAWAY frames (RFC 9113, 6.8).
    pub async fn until_closed(&mut self, most: Duration) -> Vec<u32> {
        let read = async {
            let mut reasons = Vec::new();
            while let Some((_, payload)) = self.next_of(GOAWAY).await {
                reasons.push(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
            reasons
        };
        tokio::time::timeout(most, read).await.expect("still open")
    }
}
