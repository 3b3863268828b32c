//! The operator socket: the user that owns the data sends commands to a running server.
//!
//! A server with an embedded store listens on `signet.sock` in its data folder, with mode 0600. It accepts only
//! processes of its own user, as the kernel reports it, so no token is needed. [`OperatorClient`] is the client. A
//! connection is for one command. All messages are lines of JSON of at most 64 KiB. The client sends `{"command": NAME,
//! …}`; the server sends `{"working": true}` from time to time, then `{"result": …}` or `{"error": TEXT}`. Each command
//! has a time limit. To add a command, add a module and a case in [`run_command`].

mod backup;
mod client;
mod context;
mod root_token;
mod socket_path;
mod token_issue;
mod user_token;
mod wire;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::error::{Error, Kind, Result};
use crate::http::state::ServerState;
use crate::storage::Storage;
use crate::telemetry::outage::OUTAGES;
pub use client::OperatorClient;
use context::OperatorContext;
pub use root_token::{FIRST_ROOT_TOKEN_PATH, NEW_ROOT_TOKEN_PATH, ROOT_TOKEN_NAME, new_root_token};
use token_issue::TOKEN_ISSUE_TIMEOUT;
pub use token_issue::open_audit;
pub use user_token::{delete_user_token, new_user_token};
use wire::OperatorConnection;

/// Maximum number of concurrent connections to the operator socket. Further ones are rejected.
const MAX_OPERATOR_CONNECTIONS: usize = 8;
/// Time limit for receiving the command after a client has connected.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failure to accept a connection, so that a lack of file descriptors does not cause a busy loop.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The operator socket of a running server. Call [`end`](Self::end) to close it.
pub(super) struct OperatorSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl OperatorSocket {
    /// Creates the socket in a data folder that this process has locked, and accepts commands. Must run in a context in
    /// which local tasks can be spawned.
    ///
    /// # Errors
    /// `Unavailable` when the socket cannot be created.
    pub(super) fn listen(folder: &Path, storage: Storage, shared: Arc<ServerState>) -> Result<Self> {
        let failed =
            |e| Error::unavailable(format!("data folder {}: cannot create the operator socket", folder.display()), e);
        let listener = socket_path::bind(folder).map_err(failed)?;
        let task = tokio::task::spawn_local(serve(listener, Rc::new(OperatorContext { storage, shared })));
        Ok(Self { path: folder.join(socket_path::SOCKET_NAME), task })
    }

    /// Closes and removes the socket, and aborts running commands.
    pub(super) async fn end(self) {
        self.task.abort();
        // The result is ignored: it is an error, because the task was aborted.
        let _ = self.task.await;
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "cannot remove the operator socket");
        }
    }
}

async fn serve(listener: UnixListener, context: Rc<OperatorContext>) {
    let mut conversations = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = conversations.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let free = conversations.len() < MAX_OPERATOR_CONNECTIONS;
                    conversations.spawn_local(handle_connection(stream, Rc::clone(&context), free));
                }
                Err(error) => {
                    let what = "the operator socket cannot accept a connection";
                    if let Some(why) = OUTAGES.record_failure(what, format!("{what}: {error}")) {
                        tracing::warn!("{why}");
                    }
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
}

async fn handle_connection(stream: UnixStream, context: Rc<OperatorContext>, free: bool) {
    let caller = stream.peer_cred().map(|caller| caller.uid());
    let mut conversation = OperatorConnection::new(stream);
    let answer = match caller {
        Ok(user) if user != rustix::process::geteuid().as_raw() => {
            Err(Error::new(Kind::Forbidden, "operator socket: only processes of the server's user may use it"))
        }
        Err(error) => Err(Error::internal(error)),
        Ok(_) if !free => Err(Error::new(
            Kind::Busy,
            format!("operator socket: too many concurrent commands (limit {MAX_OPERATOR_CONNECTIONS}); retry later"),
        )),
        Ok(_) => run_command(&context, &mut conversation).await,
    };
    let answer = match answer {
        Ok(result) => json!({ "result": result }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    // An error is ignored, because the client may have disconnected.
    let _ = conversation.send(&answer).await;
}

async fn run_command(context: &OperatorContext, conversation: &mut OperatorConnection) -> Result<Value> {
    let first = tokio::time::timeout(FIRST_LINE_TIMEOUT, conversation.receive()).await;
    let line = first.map_err(|_| Error::malformed("operator socket: no command received in time"))??;
    let name = line["command"].as_str().unwrap_or_default();
    let (limit, work) = match name {
        "backup" => (backup::MAX_HOLD_TIME, backup::run(context, conversation).boxed_local()),
        "backup-made" => (backup::BACKUP_MADE_TIMEOUT, backup::record_backup(context).boxed_local()),
        "new-root-token" => (TOKEN_ISSUE_TIMEOUT, root_token::run(context, conversation).boxed_local()),
        "new-user-token" => (TOKEN_ISSUE_TIMEOUT, user_token::run(context, &line, conversation).boxed_local()),
        _ => {
            return Err(Error::malformed(
                "command: unknown to this server; use the signet command of the version of the server",
            ));
        }
    };
    tracing::info!(command = name, "operator command received");
    let done = tokio::time::timeout(limit, work).await;
    done.unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, "operator socket: the command took too long")))
}
