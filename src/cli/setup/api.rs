//! The temporary server of a setup, and its client.
//!
//! It listens on a free port of the loopback. The root token of the setup is known only to this process and revoked at
//! its end. If the setup is interrupted, the next one revokes that token.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::http::state::ServerState;
use crate::server::{RunningServer, Server};
use crate::storage::IfMissing;
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::Value;

use crate::cli::client::texts_in;
use crate::cli::installation::{SETUP_TOKEN_NAME, server_options};

pub(super) struct SetupApi {
    running: RunningServer,
    client: reqwest::Client,
    base: String,
    token: String,
}

impl SetupApi {
    /// Starts the server.
    ///
    /// # Errors
    /// Those of opening the store.
    pub(super) async fn start(config: &Config, if_missing: IfMissing) -> Result<Self> {
        let mut options = server_options(config, None)?;
        options.storage.if_missing = if_missing;
        options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        options.metrics_listen = None;
        options.workers = 1;
        let server = Server::open(options).await?;
        let token = match server.shared().auth.root_token(None, SETUP_TOKEN_NAME).await {
            Ok(token) => token,
            Err(error) => {
                server.close().await?;
                return Err(error);
            }
        };
        let running = server.start().await?;
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(300))
            .no_proxy()
            // The client keeps no idle connections, because the server would wait for them when it stops.
            .pool_max_idle_per_host(0)
            .redirect(reqwest::redirect::Policy::none());
        let client = client.build().map_err(Error::internal)?;
        Ok(Self { base: format!("http://{}/v1", running.address()), running, client, token })
    }

    pub(super) fn shared(&self) -> &Arc<ServerState> {
        self.running.shared()
    }

    /// Reads a path; `None` if it does not exist.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>> {
        let (status, body) = self.request(Method::GET, path, None).await?;
        match status {
            200 => Ok(Some(body)),
            404 => Ok(None),
            _ => Err(rejection_error(path, &body)),
        }
    }

    /// Lists the names below a path; empty if the path does not exist.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<String>> {
        let list = Method::from_bytes(b"LIST").map_err(Error::internal)?;
        let (status, body) = self.request(list, path, None).await?;
        match status {
            200 => Ok(serde_json::from_value(body["data"]["keys"].clone()).unwrap_or_default()),
            404 => Ok(Vec::new()),
            _ => Err(rejection_error(path, &body)),
        }
    }

    /// `true` if a secrets engine is mounted at a path.
    pub(super) async fn is_mounted(&self, path: &str) -> Result<bool> {
        Ok(self.get(&format!("sys/mounts/{path}")).await.is_ok_and(|found| found.is_some()))
    }

    /// Posts to a path and returns the response.
    ///
    /// # Errors
    /// The server's error, with the path.
    pub(super) async fn post(&self, path: &str, body: Value) -> Result<Value> {
        match self.request(Method::POST, path, Some(body)).await? {
            (200 | 204, body) => Ok(body),
            (_, body) => Err(rejection_error(path, &body)),
        }
    }

    pub(super) async fn delete(&self, path: &str) -> Result<()> {
        match self.request(Method::DELETE, path, None).await? {
            (200 | 204, _) => Ok(()),
            (_, body) => Err(rejection_error(path, &body)),
        }
    }

    async fn request(&self, method: Method, path: &str, body: Option<Value>) -> Result<(u16, Value)> {
        let failed = |e| Error::unavailable(format!("{path}: no response"), e);
        let mut token = HeaderValue::from_str(&self.token).map_err(Error::internal)?;
        token.set_sensitive(true);
        let request = self.client.request(method, format!("{}/{path}", self.base)).header("X-Service-Token", token);
        let request = if let Some(body) = body { request.json(&body) } else { request };
        let answer = request.send().await.map_err(failed)?;
        let status = answer.status().as_u16();
        let text = answer.bytes().await.map_err(failed)?;
        Ok((status, serde_json::from_slice(&text).unwrap_or_default()))
    }

    /// Revokes the token and stops the server.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn stop(self) -> Result<()> {
        let revoked = self.running.shared().auth.revoke(&self.token).await;
        self.running.stop().await?;
        revoked.map(drop)
    }
}

fn rejection_error(path: &str, body: &Value) -> Error {
    let errors: Vec<&str> = texts_in(&body["errors"]).collect();
    Error::new(Kind::Invalid, format!("{path}: {}", errors.join("; ")))
}
