//! Minimum cost of an HTTP request on this machine: a fixed response over a loopback connection, by a thread without
//! other work. No HTTP server can be cheaper here.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::anchors::thread_micros;
use crate::client::{ServerEndpoint, VAULT_HEADER};
use crate::drive::{RequestClass, RunLimits, ServerAccess, drive};
use crate::pace::Pace;
use crate::proc::WatchedProcesses;
use crate::provision::Provisioner;

const FIXED_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok";
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// Cost of an empty GET.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmptyGet {
    pub(crate) cpu_us: f64,
    pub(crate) per_second: f64,
    pub(crate) p99_ms: f64,
}

impl std::fmt::Display for EmptyGet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cpu_us, per_second, p99_ms } = self;
        write!(f, "{cpu_us:.1} µs of CPU, {per_second:.0} per second, p99 {p99_ms:.2} ms")
    }
}

/// Measures an empty GET with `clients` connections for `time`.
pub(crate) async fn empty_get(clients: usize, time: Duration) -> Result<EmptyGet, String> {
    let server = BareServer::start().map_err(|e| format!("a listener on the loopback: {e}"))?;
    let endpoint = ServerEndpoint::new(&format!("http://{}", server.addr), VAULT_HEADER, None)?;
    let provisioner = Provisioner::new(&endpoint, "", false)?;
    let access = ServerAccess { endpoint: &endpoint, token: "", mount: "", provisioner: &provisioner };
    let class = RequestClass::get("empty GET", clients, "/");
    let bounds = RunLimits { requests: u64::MAX, time, pace: Pace::default(), quiet: true };
    let figures = drive(&access, vec![class], &bounds, WatchedProcesses::default()).await?;
    let class = figures.only()?;
    let cpu_us = server.stop()? / class.count().max(1) as f64;
    Ok(EmptyGet { cpu_us, per_second: figures.rate(class), p99_ms: class.latencies.percentile_ms(99.0) })
}

/// A thread that returns one fixed response to every request.
struct BareServer {
    addr: String,
    over: Arc<AtomicBool>,
    /// The thread returns its own CPU time in microseconds.
    thread: JoinHandle<Result<f64, String>>,
}

impl BareServer {
    fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?.to_string();
        let over = Arc::<AtomicBool>::default();
        let ended = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            let before = thread_micros();
            runtime.block_on(serve(listener, &ended)).map_err(|e| e.to_string())?;
            Ok(thread_micros() - before)
        });
        Ok(Self { addr, over, thread })
    }

    fn stop(self) -> Result<f64, String> {
        self.over.store(true, Ordering::Relaxed);
        // Another connection makes the accept loop check the flag.
        if let Ok(mut last) = TcpStream::connect(&self.addr) {
            let _ = last.read(&mut [0]);
        }
        self.thread.join().map_err(|_| "a measuring thread panicked".to_owned())?
    }
}

async fn serve(listener: TcpListener, over: &AtomicBool) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        if over.load(Ordering::Relaxed) {
            return Ok(());
        }
        stream.set_nodelay(true)?;
        tokio::spawn(answer(stream));
    }
}

/// Responds to each request of a connection. Requests have no body.
async fn answer(mut stream: tokio::net::TcpStream) -> std::io::Result<()> {
    let mut read = Vec::with_capacity(1024);
    while stream.read_buf(&mut read).await? > 0 {
        while let Some(end) = read.windows(END_OF_HEAD.len()).position(|four| four == END_OF_HEAD) {
            read.drain(..end + END_OF_HEAD.len());
            stream.write_all(FIXED_RESPONSE).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn empty_get_is_measured() {
        let EmptyGet { cpu_us, per_second, p99_ms } = empty_get(4, Duration::from_millis(200)).await.unwrap();
        assert!(cpu_us > 0.1 && per_second > 100.0 && p99_ms > 0.0, "{cpu_us} {per_second} {p99_ms}");
    }
}
