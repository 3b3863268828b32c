//! The operator's socket: commands to a server that runs, from whoever owns its data anyway.
//!
//! A server with an embedded store listens on `signet.sock` in its data folder: mode 0600, and only processes of the
//! same user are heard, by what the kernel says of them. There is no address and no token. Owned by the running
//! server, which ends it before the store closes; [`Client`] is the commands' end of it.
//!
//! The protocol is JSON, a line each, one command to a connection: `{"command": NAME, …}`, and what comes back is
//! `{"result": …}`, `{"error": TEXT}` or, while work goes on, `{"working": true}`. A command that needs more of its
//! caller than the first line says so in its own page. Lines have at most 64 KiB, every command has a time, and there
//! are few connections at a time: nobody who has the socket needs more.
//!
//! A new command is a line in [`COMMANDS`] and a file of its own.

mod backup;
mod client;
mod context;
mod handover;
mod place;
mod root_token;
mod user_token;
mod wire;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::error::{Error, Kind, Result};
use crate::http::state::Shared;
use crate::storage::Storage;
use crate::telemetry::outage::OTHERS;
pub use client::Client;
use context::Context;
pub use handover::audit;
pub use root_token::{ANOTHER, FIRST, ROOT_NAME, new_root_token};
pub use user_token::{end_user_token, new_user_token};
use wire::Conversation;

/// Connections at a time; more are told to come again.
const MOST: usize = 8;
/// How long the first line may take.
const FIRST_LINE: Duration = Duration::from_secs(5);
/// After a connection was not to be had, so that a lack of files is no busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// A command: what it works on, its line, and the rest of the conversation.
type Command = for<'a> fn(&'a Context, &'a Value, &'a mut Conversation) -> LocalBoxFuture<'a, Result<Value>>;

/// Every command, and the longest time that it may take.
const COMMANDS: &[(&str, Duration, Command)] = &[
    ("backup", backup::LONGEST, backup::run),
    ("backup-made", backup::LONGEST_WORD, backup::made),
    ("new-root-token", handover::LONGEST, root_token::run),
    ("new-user-token", handover::LONGEST, user_token::run),
];

/// The socket of a server that runs. Nobody is heard any more once this has [ended](Self::end).
pub(super) struct Socket {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Socket {
    /// Listens in a data folder that is this process's own. Must run where tasks can be local.
    ///
    /// # Errors
    /// `Unavailable` when the folder takes no socket.
    pub(super) fn listen(folder: &Path, storage: Storage, shared: Arc<Shared>) -> Result<Self> {
        let failed = |e| Error::unavailable(format!("data folder {}: takes no socket", folder.display()), e);
        let listener = place::bind(folder).map_err(failed)?;
        let task = tokio::task::spawn_local(serve(listener, Rc::new(Context { storage, shared })));
        Ok(Self { path: folder.join(place::NAME), task })
    }

    /// Hears nobody any more; commands under way are dropped.
    pub(super) async fn end(self) {
        self.task.abort();
        // It was aborted, which is what this says.
        let _ = self.task.await;
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "the operator's socket stays behind");
        }
    }
}

async fn serve(listener: UnixListener, context: Rc<Context>) {
    let mut conversations = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = conversations.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let free = conversations.len() < MOST;
                    conversations.spawn_local(converse(stream, Rc::clone(&context), free));
                }
                Err(error) => {
                    let what = "the operator's socket takes no connection";
                    if let Some(why) = OTHERS.told(what, format!("{what}: {error}")) {
                        tracing::warn!("{why}");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
}

async fn converse(stream: UnixStream, context: Rc<Context>, free: bool) {
    let caller = stream.peer_cred().map(|caller| caller.uid());
    let mut conversation = Conversation::new(stream);
    let answer = match caller {
        Ok(user) if user != rustix::process::geteuid().as_raw() => {
            Err(Error::new(Kind::Forbidden, "the operator's socket is for the user of the server only"))
        }
        Err(error) => Err(Error::internal(error)),
        Ok(_) if !free => Err(Error::new(Kind::Busy, "too many operator commands at once")),
        Ok(_) => command(&context, &mut conversation).await,
    };
    let answer = match answer {
        Ok(result) => json!({ "result": result }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    // A caller who has left hears nothing.
    let _ = conversation.say(&answer).await;
}

async fn command(context: &Context, conversation: &mut Conversation) -> Result<Value> {
    let first = tokio::time::timeout(FIRST_LINE, conversation.hear()).await;
    let line = first.map_err(|_| Error::malformed("no command came"))??;
    let name = line["command"].as_str().unwrap_or_default();
    let known = COMMANDS.iter().find(|(known, ..)| *known == name);
    let Some((_, longest, run)) = known else {
        return Err(Error::malformed("command: this server does not know it"));
    };
    tracing::info!(command = name, "operator command");
    let done = tokio::time::timeout(*longest, run(context, &line, conversation)).await;
    done.unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, "the command took too long")))
}
