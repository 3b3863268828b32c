//! A TCP proxy that delays, closes or stalls connections.

use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Pass,
    Delay(Duration),
    /// Closes every connection, new ones included.
    Cut,
    /// Accepts data and connections, forwards nothing. Connections stay dead afterwards, as behind a firewall that has
    /// lost its state.
    HalfOpen,
    /// Forwards only what the client sends.
    Mute,
}

pub struct Proxy {
    pub port: u16,
    mode: Option<watch::Sender<Mode>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
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

    /// Closes the open connections and forwards new ones.
    pub fn forget(&self) {
        self.set(Mode::Cut);
        // Long enough for every connection to see the mode.
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
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = relay(from_client, to_server, modes.clone(), false) => {}
        () = relay(from_server, to_client, modes.clone(), true) => {}
    }
}

/// Keeps the socket open and silent until connections are closed.
async fn dead(_held: &TcpStream, modes: &mut watch::Receiver<Mode>) {
    silent(modes).await;
}

async fn silent(modes: &mut watch::Receiver<Mode>) {
    // The sender is dropped when the proxy stops.
    let _ = modes.wait_for(|mode| *mode == Mode::Cut).await;
}

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
        // The mode may have changed during the read, and applies to what was read.
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
