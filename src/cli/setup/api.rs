//! The temporary server of a setup, and its client.
//!
//! The server listens on a free port of the loopback. Only this process knows the root token of the setup, and revokes
//! it at the end. If the setup is interrupted, the next setup revokes that token.

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
    /// Opens the store, creates the root token of the setup and starts the temporary server.
    ///
    /// # Errors
    /// The errors of opening the store and of binding the listener.
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
            // No idle connections are kept, because the server would wait for them when it stops.
            .pool_max_idle_per_host(0)
            .redirect(reqwest::redirect::Policy::none());
        let client = client.build().map_err(Error::internal)?;
        Ok(Self { base: format!("http://{}/v1", running.address()), running, client, token })
    }

    pub(super) fn shared(&self) -> &Arc<ServerState> {
        self.running.shared()
    }

    /// Sends a GET request and returns the response body; `None` if the path does not exist.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>> {
        let (status, body) = self.request(Method::GET, path, None).await?;
        match status {
            200 => Ok(Some(body)),
            404 => Ok(None),
            _ => Err(rejection_error(path, &body)),
        }
    }

    /// Sends a LIST request and returns the names below the path; empty if the path does not exist.
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

    /// Sends a POST request and returns the response body.
    ///
    /// # Errors
    /// The server's error response, with the path; `Unavailable` when there is no response.
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

    /// Revokes the root token of the setup and stops the temporary server.
    ///
    /// # Errors
    /// The errors of the store.
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
