//! A TCP proxy in front of a server, which delays, cuts, and falls silent.

use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

/// What it does with what comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Hands it on.
    Pass,
    /// Hands it on so much later.
    Delay(Duration),
    /// Ends every connection, and takes no new one.
    Cut,
    /// Takes what is sent and says nothing, also to new connections. A connection that was there meanwhile stays
    /// dead, as behind a firewall that has forgotten it.
    HalfOpen,
    /// Of a connection's two directions, only what the client sends is handed on.
    Mute,
}

/// A proxy; it ends when it is dropped.
pub struct Proxy {
    pub port: u16,
    mode: Option<watch::Sender<Mode>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// In front of a port of this machine.
    pub fn new(upstream: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mode, modes) = watch::channel(Mode::Pass);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(listener, upstream, modes));
        });
        Self { port, mode: Some(mode), thread: Some(thread) }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.as_ref().unwrap().send(mode).unwrap();
    }

    /// Ends the connections that there are, and goes on.
    pub fn forget(&self) {
        self.set(Mode::Cut);
        // Every connection has seen it.
        std::thread::sleep(Duration::from_millis(50));
        self.set(Mode::Pass);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.mode.take();
        self.thread.take().unwrap().join().unwrap();
    }
}

async fn serve(listener: TcpListener, upstream: u16, mut modes: watch::Receiver<Mode>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            changed = modes.changed() => if changed.is_ok() { continue } else { return },
        };
        let mode = *modes.borrow();
        if mode != Mode::Cut {
            tokio::spawn(connection(client, upstream, modes.clone()));
        }
    }
}

async fn connection(client: TcpStream, upstream: u16, mut modes: watch::Receiver<Mode>) {
    if *modes.borrow() == Mode::HalfOpen {
        return dead(&client, &mut modes).await;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = relay(from_client, to_server, modes.clone(), false) => {}
        () = relay(from_server, to_client, modes.clone(), true) => {}
    }
}

/// Says nothing until connections are ended.
async fn dead(_held: &TcpStream, modes: &mut watch::Receiver<Mode>) {
    silent(modes).await;
}

async fn silent(modes: &mut watch::Receiver<Mode>) {
    // The end of the proxy is the end of everything.
    let _ = modes.wait_for(|mode| *mode == Mode::Cut).await;
}

/// One direction, until it ends or is ended.
async fn relay(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut modes: watch::Receiver<Mode>, is_answer: bool) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let mode = *modes.borrow_and_update();
        if mode == Mode::Cut {
            return;
        }
        if mode == Mode::HalfOpen || (mode == Mode::Mute && is_answer) {
            return silent(&mut modes).await;
        }
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            changed = modes.changed() => if changed.is_ok() { continue } else { return },
        };
        let Ok(read @ 1..) = read else { return };
        // The mode may have changed with what came, and then it counts for that, too.
        let mode = *modes.borrow();
        match mode {
            Mode::Cut => return,
            Mode::HalfOpen => continue,
            Mode::Mute if is_answer => continue,
            Mode::Delay(by) => tokio::time::sleep(by).await,
            Mode::Pass | Mode::Mute => {}
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
