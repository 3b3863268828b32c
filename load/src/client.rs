//! A keep-alive connection with one request in flight, to the APIs `/v1` and `/api/v2`.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::run_context::unless_interrupted;

/// Token headers: the default, and the one of Signet servers that are started here.
pub(crate) const VAULT_HEADER: &str = "X-Vault-Token";
pub(crate) const OWN_HEADER: &str = "X-Service-Token";

/// Address of a server, and how to connect to it.
#[derive(Clone)]
pub(crate) struct ServerEndpoint {
    /// `host:port`.
    host: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Header for tokens of `/v1`.
    token_header: HeaderName,
    /// Source address of connections; `None` for any. If it is set, every request opens its own connection.
    source_address: Option<IpAddr>,
}

impl ServerEndpoint {
    /// Creates the endpoint for `http://host:port` or `https://host:port`. The latter needs its CA certificate in
    /// `ca_file` (PEM).
    pub(crate) fn new(addr: &str, token_header: &str, ca_file: Option<&Path>) -> Result<Self, String> {
        let invalid = || format!("addr: must be http://HOST:PORT or https://HOST:PORT, and is {addr}");
        let (scheme, host) = addr.split_once("://").ok_or_else(invalid)?;
        let host = host.trim_end_matches('/');
        let default_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(invalid()),
        };
        if host.is_empty() || host.contains(['/', '?', '#', '@']) {
            return Err(invalid());
        }
        // An IPv6 address has colons of its own, inside brackets.
        let (name, host) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, host.to_owned()),
            _ => (host, format!("{host}:{default_port}")),
        };
        let tls = match (scheme, ca_file) {
            ("https", None) => return Err("ca_file: an https address needs one".to_owned()),
            ("https", Some(file)) => Some((connector(file)?, server_name(name)?)),
            (_, Some(_)) => return Err("ca_file: only valid with an https address".to_owned()),
            _ => None,
        };
        let token_header = HeaderName::from_bytes(token_header.as_bytes())
            .map_err(|_| format!("token_header: must be the name of a header, and is {token_header}"))?;
        Ok(Self { host, tls, token_header, source_address: None })
    }

    /// Returns the same server with a separate connection from `address` for each request.
    pub(crate) fn with_source_address(&self, address: IpAddr) -> Self {
        Self { source_address: Some(address), ..self.clone() }
    }

    /// Returns `host:port`.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    let name = name.trim_matches(['[', ']']).to_owned();
    ServerName::try_from(name.clone()).map_err(|_| format!("addr: {name} is neither a host name nor an address"))
}

fn connector(file: &Path) -> Result<TlsConnector, String> {
    let invalid = |cause: String| format!("ca_file {}: {cause}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| invalid(e.to_string()))? {
        roots.add(certificate.map_err(|e| invalid(e.to_string()))?).map_err(|e| invalid(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(invalid("holds no certificate in PEM".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Every reconnect performs a full handshake.
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A connection to a server.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    endpoint: ServerEndpoint,
    host: HeaderValue,
    /// Header and value of the token; `None` without a token.
    token: Option<(HeaderName, HeaderValue)>,
    media_type: Option<&'static str>,
    gzip: bool,
}

/// The API that a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// `/v1`.
    Secrets,
    /// `/api/v2`.
    Projects,
}

/// The response to a request.
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl ApiResponse {
    /// Returns the JSON of a response that must be a success; null if it is not JSON.
    pub(crate) fn success(self, path: &str) -> Result<Value, String> {
        if !self.status.is_success() {
            return Err(self.unexpected(path));
        }
        Ok(serde_json::from_slice(&self.body).unwrap_or(Value::Null))
    }

    /// Describes a response with an unexpected status.
    pub(crate) fn unexpected(&self, path: &str) -> String {
        format!("{path}: {} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

impl Client {
    /// Connects to the server. The form of `token` selects the API.
    pub(crate) async fn connect(endpoint: &ServerEndpoint, token: &str) -> Result<Self, String> {
        let api = if token.contains(".pjv1.") { Api::Projects } else { Api::Secrets };
        Self::connect_as(endpoint, token, api).await
    }

    /// Connects with an explicit API, for a token that both APIs accept.
    pub(crate) async fn connect_as(endpoint: &ServerEndpoint, token: &str, api: Api) -> Result<Self, String> {
        let value = |text: String| {
            HeaderValue::from_str(&text).map_err(|_| "token: must be of printable characters".to_owned())
        };
        let (token, media_type) = match api {
            Api::Projects => {
                (Some((AUTHORIZATION, value(format!("Bearer {token}"))?)), Some("application/vnd.api+json"))
            }
            Api::Secrets if token.is_empty() => (None, None),
            Api::Secrets => (Some((endpoint.token_header.clone(), value(token.to_owned())?)), None),
        };
        let host = HeaderValue::from_str(&endpoint.host).map_err(|e| e.to_string())?;
        let sender = unless_interrupted(open_connection(endpoint)).await?;
        Ok(Self { sender, endpoint: endpoint.clone(), host, token, media_type, gzip: false })
    }

    /// Returns the server at the other end.
    pub(crate) fn endpoint(&self) -> &ServerEndpoint {
        &self.endpoint
    }

    /// Sets the media type of request bodies, if one is given.
    pub(crate) fn with_media_type(mut self, media_type: Option<&'static str>) -> Self {
        self.media_type = media_type.or(self.media_type);
        self
    }

    /// Allows compressed responses; they are not decompressed.
    pub(crate) fn accepting_gzip(mut self, gzip: bool) -> Self {
        self.gzip = gzip;
        self
    }

    /// Sends one request and reads the whole response. Reconnects first if the server has closed the connection. Fails
    /// if the command is interrupted.
    pub(crate) async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<ApiResponse, String> {
        unless_interrupted(self.exchange(method, path, body)).await
    }

    /// Same as [`Client::send`], but ignores interruptions: a run stops all of its clients itself.
    pub(crate) async fn exchange(&mut self, method: Method, path: &str, body: Bytes) -> Result<ApiResponse, String> {
        if self.endpoint.source_address.is_some() || self.sender.ready().await.is_err() {
            self.sender = open_connection(&self.endpoint).await?;
            self.sender.ready().await.map_err(|e| e.to_string())?;
        }
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.host.clone())
            .body(Full::new(body))
            .map_err(|e| e.to_string())?;
        if let Some((name, value)) = &self.token {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        if self.gzip {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let Some(media_type) = self.media_type {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        let response = self.sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
        Ok(ApiResponse { status, body })
    }

    /// Sends a GET whose response must be 200, and returns its body.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Bytes, String> {
        let answer = self.send(Method::GET, path, Bytes::new()).await?;
        if answer.status == StatusCode::OK { Ok(answer.body) } else { Err(format!("{path}: {}", answer.status)) }
    }

    /// Sends a GET whose response must be 200, and returns its JSON.
    pub(crate) async fn get_json(&mut self, path: &str) -> Result<Value, String> {
        serde_json::from_slice(&self.get(path).await?).map_err(|e| format!("{path}: {e}"))
    }

    /// Sends a POST that must succeed. Returns the JSON of the response, or null if the response is not JSON.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<Value, String> {
        self.send(Method::POST, path, Bytes::from(body.to_string())).await?.success(path)
    }
}

async fn open_connection(endpoint: &ServerEndpoint) -> Result<SendRequest<Full<Bytes>>, String> {
    let failed = |cause: String| format!("connecting to {}: {cause}", endpoint.host);
    let stream = match endpoint.source_address {
        None => TcpStream::connect(&endpoint.host).await,
        Some(address) => open_socket_from(address, &endpoint.host).await,
    };
    let stream = stream.map_err(|e| failed(e.to_string()))?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let Some((connector, name)) = &endpoint.tls else {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| failed(e.to_string()))?;
        tokio::spawn(connection);
        return Ok(sender);
    };
    let stream = connector.connect(name.clone(), stream).await.map_err(|e| failed(e.to_string()))?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| failed(e.to_string()))?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn open_socket_from(address: IpAddr, host: &str) -> std::io::Result<TcpStream> {
    let to: SocketAddr = host.parse().map_err(std::io::Error::other)?;
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(address, 0))?;
    socket.connect(to).await
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn refused(addr: &str, header: &str, ca_file: Option<&Path>) -> String {
        ServerEndpoint::new(addr, header, ca_file).err().unwrap_or_default()
    }

    #[test]
    fn address_needs_scheme_and_host_and_port_has_a_default() {
        let host = |addr: &str| ServerEndpoint::new(addr, VAULT_HEADER, None).unwrap().host;
        assert_eq!(host("http://127.0.0.1:8200/"), "127.0.0.1:8200");
        assert_eq!(host("http://bao.example"), "bao.example:80");
        assert_eq!(host("http://[::1]"), "[::1]:80");
        assert_eq!(host("http://[::1]:8200"), "[::1]:8200");
        for invalid in ["127.0.0.1:8200", "ftp://a", "http://", "http://a/v1", "http://a@b"] {
            assert!(refused(invalid, VAULT_HEADER, None).starts_with("addr: must be http"), "{invalid}");
        }
        assert!(refused("http://a", "X Y", None).starts_with("token_header: "));
    }

    #[test]
    fn https_needs_a_ca_file_and_http_rejects_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let made = rcgen::generate_simple_self_signed(vec!["ca.example".to_owned()]).unwrap();
        std::fs::write(&file, made.cert.pem()).unwrap();
        assert!(ServerEndpoint::new("https://bao.example", VAULT_HEADER, Some(&file)).unwrap().tls.is_some());
        assert_eq!(refused("https://a", VAULT_HEADER, None), "ca_file: an https address needs one");
        assert_eq!(refused("http://a", VAULT_HEADER, Some(&file)), "ca_file: only valid with an https address");
        std::fs::write(&file, "no PEM").unwrap();
        assert!(refused("https://a", VAULT_HEADER, Some(&file)).ends_with("holds no certificate in PEM"));
    }

    #[tokio::test]
    async fn tls_server_must_have_a_certificate_of_the_ca_file() {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = format!("https://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // A client that does not trust the certificate aborts the handshake.
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut read = [0; 1024];
                if stream.read(&mut read).await.is_ok_and(|read| read > 0) {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                }
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, made.cert.pem()).unwrap();
        let endpoint = ServerEndpoint::new(&addr, VAULT_HEADER, Some(&file)).unwrap();
        let mut client = Client::connect(&endpoint, "t").await.unwrap();
        let answer = client.send(Method::GET, "/v1/sys/health", Bytes::new()).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"ok"[..]));
        let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&file, other.cert.pem()).unwrap();
        let endpoint = ServerEndpoint::new(&addr, VAULT_HEADER, Some(&file)).unwrap();
        assert!(Client::connect(&endpoint, "t").await.is_err());
    }
}
