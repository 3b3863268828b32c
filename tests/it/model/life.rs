//! A server that can crash inside this process. It has its own thread and runtime, which a crash ends abruptly:
//! requests, builds and tidy runs stop where they wait, and pending writes may or may not reach the store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use actix_web::rt::System;
use signet::error::Kind;
use signet::server::Server;
use tokio::sync::oneshot;

use crate::faults::double::Faults;
use crate::support::{Client, Place};

/// Maximum time until a crashed server has released its data.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Life {
    pub client: Client,
    pub faults: Arc<Faults>,
    end: oneshot::Sender<End>,
    thread: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Stop,
    Crash,
}

impl Life {
    pub async fn start(place: &Arc<Place>) -> Self {
        let (end, ended) = oneshot::channel();
        let (address, listens) = oneshot::channel();
        let faults = Arc::new(Faults::default());
        let own = Arc::clone(place);
        let script = Arc::clone(&faults);
        let thread = thread::spawn(move || {
            let system = System::new();
            system.block_on(serve(own, script, address, ended));
            // Stops the threads of its workers and actors.
            System::current().stop();
            let _ = system.run();
        });
        let client = Client::new(listens.await.expect("the server starts; see above"), &place.token);
        Self { client, faults, end, thread }
    }

    /// Ends the server, and waits until nothing of it can access the data.
    pub async fn end(self, how: End, place: &Place) {
        let _ = self.end.send(how);
        let thread = self.thread;
        tokio::task::spawn_blocking(move || thread.join()).await.unwrap().expect("the server ends; see above");
        let Some(database) = place.database() else { return };
        let started = Instant::now();
        let others = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{}'", database.name);
        // Terminates a crashed server's connections; twice, because one may just be opening.
        for _ in 0..2 {
            while database.psql(&format!("{others} AND pid <> pg_backend_pid()")) != "0" {
                assert!(started.elapsed() < PATIENCE, "connections of a server that has ended");
                database.end_connections();
            }
        }
    }
}

async fn serve(
    place: Arc<Place>,
    faults: Arc<Faults>,
    address: oneshot::Sender<SocketAddr>,
    ended: oneshot::Receiver<End>,
) {
    let started = Instant::now();
    let server = loop {
        // The previous server may still be closing the embedded store.
        match Server::open_with_stores(place.options(), |stores| faults.between(stores)).await {
            Err(error) if error.kind() == Kind::Conflict && started.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            opened => break opened.unwrap(),
        }
    };
    let running = server.start().await.unwrap();
    address.send(running.address()).unwrap();
    if let Ok(End::Stop) = ended.await {
        running.stop().await.unwrap();
    }
}
