//! The load itself: classes of clients, each in a closed loop, within bounds of number and time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::task::LocalSet;

use crate::client::Client;
use crate::proc;

/// One answer in so many is opened and looked at.
const LOOK_AT: u64 = 500;

/// Clients that ask for the same.
pub(crate) struct Class {
    /// What it is called in the report.
    pub(crate) name: String,
    pub(crate) clients: usize,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Sent in turn, from the first again when all were sent. One that begins with a slash is a path, and
    /// after a line break the body, if there is one.
    pub(crate) bodies: Vec<Bytes>,
    /// Whether an answer holds what was asked for; one that is no JSON is shown as the list of its octets.
    pub(crate) plausible: fn(&Value) -> bool,
}

impl Class {
    /// Path and body of a request.
    fn request<'a>(&'a self, body: &'a Bytes) -> (&'a str, Bytes) {
        let own = std::str::from_utf8(body).ok().filter(|text| text.starts_with('/'));
        let Some(text) = own else { return (&self.path, body.clone()) };
        match text.split_once('\n') {
            Some((path, rest)) => (path, body.slice_ref(rest.as_bytes())),
            None => (text, Bytes::new()),
        }
    }
}

/// Where a run ends, whichever comes first.
pub(crate) struct Bounds {
    /// Requests of the first class.
    pub(crate) requests: u64,
    pub(crate) time: Duration,
    pub(crate) quiet: bool,
}

/// A server, and who asks it.
pub(crate) struct Place<'a> {
    pub(crate) addr: &'a str,
    pub(crate) token: &'a str,
}

/// The processes whose CPU time counts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Watched {
    pub(crate) server: Option<u32>,
    pub(crate) postgres: Option<u32>,
}

/// CPU seconds of the watched processes.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) server: Option<f64>,
    pub(crate) postgres: Option<f64>,
}

impl Watched {
    fn read(self) -> Cpu {
        Cpu { server: self.server.and_then(proc::cpu_seconds), postgres: self.postgres.and_then(proc::cpu_seconds) }
    }
}

impl Cpu {
    fn since(self, before: Self) -> Self {
        let spent = |after: Option<f64>, before: Option<f64>| after.zip(before).map(|(after, before)| after - before);
        Self { server: spent(self.server, before.server), postgres: spent(self.postgres, before.postgres) }
    }

    /// Both; of the server alone where there is no PostgreSQL of ours.
    pub(crate) fn sum(self) -> Option<f64> {
        self.server.map(|server| server + self.postgres.unwrap_or(0.0))
    }
}

/// What a run measured. It ends with the first class; what the others get later does not count.
pub(crate) struct Figures {
    pub(crate) elapsed: Duration,
    pub(crate) classes: Vec<Answered>,
    pub(crate) cpu: Cpu,
    /// The server's resident memory at the end, MiB.
    pub(crate) server_mib: Option<f64>,
}

/// What a class got.
pub(crate) struct Answered {
    pub(crate) name: String,
    pub(crate) clients: usize,
    /// Latencies of successful requests in microseconds, sorted.
    pub(crate) latencies: Vec<u32>,
    /// Failures by status or cause.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Answered {
    /// Milliseconds below which `percent` of the successful requests were answered.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        if self.latencies.is_empty() {
            return 0.0;
        }
        let rank = (self.latencies.len() as f64 * percent / 100.0).ceil() as usize;
        f64::from(self.latencies[rank.clamp(1, self.latencies.len()) - 1]) / 1000.0
    }
}

/// A class while it runs.
struct Crowd {
    class: Class,
    /// Requests begun, and how many may be.
    begun: Cell<u64>,
    most: u64,
    /// The run is over: nobody begins another request, and answers do not count.
    over: Cell<bool>,
    deadline: Instant,
    latencies: RefCell<Vec<u32>>,
    errors: RefCell<BTreeMap<String, u64>>,
    bar: ProgressBar,
}

/// Runs the classes side by side until the bounds are reached. There must be at least one class.
pub(crate) async fn drive(
    place: &Place<'_>,
    classes: Vec<Class>,
    bounds: &Bounds,
    watched: Watched,
) -> Result<Figures, String> {
    let deadline = Instant::now() + bounds.time;
    let mut crowds = Vec::with_capacity(classes.len());
    for (n, class) in classes.into_iter().enumerate() {
        let mut clients = Vec::with_capacity(class.clients);
        for _ in 0..class.clients {
            clients.push(Client::connect(place.addr, place.token).await?);
        }
        let (most, bar) = if n == 0 { (bounds.requests, bar(bounds)) } else { (u64::MAX, ProgressBar::hidden()) };
        crowds.push((Rc::new(Crowd::new(class, most, deadline, bar)), clients));
    }
    let before = watched.read();
    let started = Instant::now();
    let local = LocalSet::new();
    let mut running = Vec::new();
    for (crowd, clients) in &mut crowds {
        let tasks = clients.drain(..).map(|client| local.spawn_local(one_client(client, Rc::clone(crowd))));
        running.push(tasks.collect::<Vec<_>>());
    }
    local
        .run_until(async {
            for task in running.remove(0) {
                task.await.map_err(|e| e.to_string())?;
            }
            Ok::<(), String>(())
        })
        .await?;
    let elapsed = started.elapsed();
    let cpu = watched.read().since(before);
    crowds.iter().for_each(|(crowd, _)| crowd.over.set(true));
    local.await;
    let classes = crowds.iter().map(|(crowd, _)| crowd.answered()).collect();
    Ok(Figures { elapsed, classes, cpu, server_mib: watched.server.and_then(proc::resident_mib) })
}

impl Crowd {
    fn new(class: Class, most: u64, deadline: Instant, bar: ProgressBar) -> Self {
        let (latencies, errors) = Default::default();
        Self { class, begun: Cell::new(0), most, over: Cell::new(false), deadline, latencies, errors, bar }
    }

    /// The number of the next request, unless the run has reached its bounds.
    fn next(&self) -> Option<u64> {
        let number = self.begun.get();
        if self.over.get() || number >= self.most || Instant::now() >= self.deadline {
            return None;
        }
        self.begun.set(number + 1);
        Some(number)
    }

    fn answered(&self) -> Answered {
        self.bar.finish_and_clear();
        let mut latencies = self.latencies.take();
        latencies.sort_unstable();
        let (name, clients) = (self.class.name.clone(), self.class.clients);
        Answered { name, clients, latencies, errors: self.errors.take() }
    }
}

fn bar(bounds: &Bounds) -> ProgressBar {
    if bounds.quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bounds.requests);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta}") {
        bar.set_style(style);
    }
    bar
}

async fn one_client(mut client: Client, crowd: Rc<Crowd>) {
    let class = &crowd.class;
    while let Some(number) = crowd.next() {
        let (path, body) = class.request(&class.bodies[(number % class.bodies.len() as u64) as usize]);
        let started = Instant::now();
        let outcome = client.send(class.method.clone(), path, body).await;
        let micros = started.elapsed().as_micros().min(u128::from(u32::MAX)) as u32;
        crowd.bar.inc(1);
        let failure = match outcome {
            Ok(answer) if answer.status.is_success() && plausible(class, number, &answer.body) => {
                if !crowd.over.get() {
                    crowd.latencies.borrow_mut().push(micros);
                }
                continue;
            }
            Ok(answer) if answer.status.is_success() => "success without what was asked for".to_owned(),
            Ok(answer) => answer.status.as_u16().to_string(),
            Err(cause) => cause,
        };
        let broken = failure.parse::<u16>().is_err();
        *crowd.errors.borrow_mut().entry(failure).or_default() += 1;
        if broken {
            return;
        }
    }
}

/// Looks into one answer of many.
fn plausible(class: &Class, number: u64, body: &Bytes) -> bool {
    let shown = || serde_json::from_slice(body).unwrap_or_else(|_| Value::from(body.to_vec()));
    !number.is_multiple_of(LOOK_AT) || (class.plausible)(&shown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_answer_at_that_rank() {
        let of = |latencies: Vec<u32>| Answered { name: String::new(), clients: 1, latencies, errors: BTreeMap::new() };
        let hundred = of((1..=100).map(|ms| ms * 1000).collect());
        assert_eq!([50.0, 99.0, 99.9, 100.0].map(|p| hundred.percentile(p)), [50.0, 99.0, 100.0, 100.0]);
        assert_eq!(of(vec![2500]).percentile(50.0), 2.5);
        assert_eq!(of(vec![]).percentile(99.0), 0.0);
    }

    #[test]
    fn a_sum_of_cpu_needs_the_server() {
        let cpu = |server, postgres| Cpu { server, postgres };
        assert_eq!(cpu(Some(3.0), Some(2.0)).since(cpu(Some(1.0), Some(0.5))).sum(), Some(3.5));
        assert_eq!(cpu(Some(3.0), None).since(cpu(Some(1.0), None)).sum(), Some(2.0));
        assert_eq!(cpu(None, Some(2.0)).sum(), None);
        assert_eq!(cpu(None, Some(2.0)).since(cpu(Some(1.0), Some(1.0))).server, None);
    }
}
