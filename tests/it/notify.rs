//! Notifications of `signet serve` to a service manager over a socket like systemd's.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::crash::strace;
use crate::serve::{Served, Site};

const SOON: Duration = Duration::from_secs(20);

pub struct Heard(UnixDatagram);

impl Heard {
    fn at(path: &std::path::Path) -> Self {
        Self::with(UnixDatagram::bind(path).unwrap())
    }

    /// Binds an abstract name, which needs no shared file system.
    pub fn at_abstract(name: &str) -> Self {
        Self::with(UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap())
    }

    fn with(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self(socket)
    }

    fn next_within(&self, time: Duration) -> Option<String> {
        let started = Instant::now();
        let mut datagram = [0; 4096];
        loop {
            if let Ok(length) = self.0.recv(&mut datagram) {
                return Some(String::from_utf8(datagram[..length].to_vec()).unwrap());
            }
            if started.elapsed() >= time {
                return None;
            }
        }
    }

    pub fn next(&self) -> String {
        self.next_within(SOON).unwrap()
    }
}

fn serve(site: &Site, variables: &[(&str, &str)]) -> Served {
    Served::start(site.command(&["serve"]).envs(variables.iter().copied()), &site.path("log"))
}

#[actix_web::test]
async fn service_manager_is_notified_of_ready_reload_and_stop() {
    let site = Site::new();
    let token = site.init();
    let name = format!("signet-test-{}", std::process::id());
    for (heard, address) in [
        (Heard::at(&site.path("notify")), site.path("notify").display().to_string()),
        (Heard::at_abstract(&name), format!("@{name}")),
    ] {
        let served = serve(&site, &[("NOTIFY_SOCKET", &address)]);
        assert_eq!(heard.next(), "READY=1");
        assert_eq!(served.client(&token).get("sys/mounts").await.status, 200);
        served.signal(Signal::HUP);
        let reloading = heard.next();
        let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0);
        assert_eq!(heard.next(), "READY=1");
        served.terminate();
        assert_eq!(heard.next(), "STOPPING=1");
        assert_eq!(heard.next_within(Duration::ZERO), None);
    }
}

#[test]
fn unreachable_service_manager_does_not_stop_the_server() {
    let site = Site::initialized();
    for address in ["/nowhere/notify", "nowhere", "@nowhere"] {
        let served = serve(&site, &[("NOTIFY_SOCKET", address)]);
        served.wait_for_log(&format!("NOTIFY_SOCKET: {address}: "));
        served.terminate();
    }
    let served = serve(&site, &[]);
    assert!(!served.log().contains("NOTIFY_SOCKET"));
    served.terminate();
}

/// The ids of all threads that run an Actix system, without the main thread.
fn workers(served: &Served) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", served.pid())).unwrap().map(|task| task.unwrap().path());
    let of_actix = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with("actix-rt|system"))
    };
    tasks.filter(of_actix).map(|task| task.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn watchdog_is_notified_only_while_workers_respond() {
    if !strace::sees_the_server() {
        return;
    }
    let site = Site::initialized();
    let heard = Heard::at(&site.path("notify"));
    let socket = site.path("notify").display().to_string();
    let served = serve(&site, &[("NOTIFY_SOCKET", &socket), ("WATCHDOG_USEC", "4000000")]);
    assert_eq!(heard.next(), "READY=1");
    for _ in 0..3 {
        assert_eq!(heard.next(), "WATCHDOG=1");
    }
    let workers = workers(&served);
    assert!(!workers.is_empty());
    // Delays each poll of their event loops by half a minute, while the main thread goes on.
    let wait = "epoll_wait,epoll_pwait,epoll_pwait2";
    let trace = format!("trace={wait}");
    let inject = format!("inject={wait}:delay_enter=30000000");
    let threads: Vec<&str> = workers.iter().flat_map(|thread| ["-p", thread]).collect();
    let arguments = [&["-e", &trace, "-e", &inject][..], &threads].concat();
    let Some(hung) = strace::Traced::attach_to(&arguments) else { return };
    served.wait_for_log("an HTTP worker is blocked");
    while heard.next_within(Duration::ZERO).is_some() {}
    assert_eq!(heard.next_within(Duration::from_secs(5)), None, "longer than the watchdog allows");
    drop(hung);
    assert_eq!(heard.next(), "WATCHDOG=1");
    served.terminate();
}

#[test]
fn watchdog_of_another_process_is_not_notified() {
    let site = Site::initialized();
    let heard = Heard::at(&site.path("notify"));
    let socket = site.path("notify").display().to_string();
    let other = std::process::id().to_string();
    let variables = [("NOTIFY_SOCKET", socket.as_str()), ("WATCHDOG_USEC", "400000"), ("WATCHDOG_PID", &other)];
    let served = serve(&site, &variables);
    assert_eq!(heard.next(), "READY=1");
    assert_eq!(heard.next_within(Duration::from_secs(1)), None);
    served.terminate();
}
