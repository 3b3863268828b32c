//! One keep-alive connection with one request in flight.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HeaderValue;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// A connection to the server.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// The header that carries the token, and its value.
    token: (&'static str, String),
    /// The media type of bodies, where they need one.
    media_type: Option<&'static str>,
}

/// Which of the server's wires a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// `/v1`.
    Secrets,
    /// `/api/v2`.
    Projects,
}

/// The answer to one request.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Client {
    /// Connects to `addr` (`http://host:port`); requests carry `token`, which says by its form which wire it
    /// is for.
    pub(crate) async fn connect(addr: &str, token: &str) -> Result<Self, String> {
        let wire = if token.contains(".pjv1.") { Wire::Projects } else { Wire::Secrets };
        Self::connect_as(addr, token, wire).await
    }

    /// As [`Client::connect`], with a token that is for both wires.
    pub(crate) async fn connect_as(addr: &str, token: &str, wire: Wire) -> Result<Self, String> {
        let host =
            addr.strip_prefix("http://").ok_or("the address must start with http://")?.trim_end_matches('/').to_owned();
        let stream = TcpStream::connect(&host).await.map_err(|e| format!("connecting to {host}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        tokio::spawn(connection);
        let (token, media_type) = match wire {
            Wire::Projects => (("Authorization", format!("Bearer {token}")), Some("application/vnd.api+json")),
            Wire::Secrets => (("X-Service-Token", token.to_owned()), None),
        };
        Ok(Self { sender, host, token, media_type })
    }

    /// Sends one request and reads the whole answer.
    pub(crate) async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Answer, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", &self.host)
            .header(self.token.0, &self.token.1)
            .body(Full::new(body))
            .map_err(|e| e.to_string())?;
        if let Some(media_type) = self.media_type {
            request.headers_mut().insert("Content-Type", HeaderValue::from_static(media_type));
        }
        self.sender.ready().await.map_err(|e| e.to_string())?;
        let response = self.sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
        Ok(Answer { status, body })
    }

    /// Sends JSON that must succeed; gives the answer's JSON (null for an empty one).
    pub(crate) async fn must(&mut self, path: &str, body: &Value) -> Result<Value, String> {
        let answer = self.send(Method::POST, path, Bytes::from(body.to_string())).await?;
        if !answer.status.is_success() {
            return Err(format!("{path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body)));
        }
        Ok(serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }
}
