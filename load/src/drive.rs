//! The load: classes of clients, each in a closed loop or at a rate, limited by requests and time.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::{Method, StatusCode};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::task::LocalSet;

use crate::client::{Client, ServerEndpoint};
use crate::figures::{ClassFigures, Figures};
use crate::pace::{Pace, Pacer, Schedule};
use crate::proc::{self, WatchedProcesses};
use crate::provision::Provisioner;
use crate::run_context::{interrupted, is_interrupted};
use crate::timeline::Sampler;

/// Time limit after the end of the run for responses to requests already sent.
const RESPONSE_GRACE: Duration = Duration::from_secs(30);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Default sampling: one response in this many is parsed and checked.
const DEFAULT_SAMPLE_INTERVAL: u64 = 500;

/// Clients that send the same kind of request.
#[derive(Clone)]
pub(crate) struct RequestClass {
    /// Name in the report.
    pub(crate) name: String,
    pub(crate) clients: usize,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Request bodies, sent in rotation. A text that begins with a slash replaces the path; its body, if any, follows
    /// after a line break.
    pub(crate) bodies: Vec<Bytes>,
    /// Checks that a response has the expected content. A response that is not JSON is passed as the list of its bytes.
    pub(crate) plausible: fn(&Value) -> bool,
    /// One response in this many is checked. Must be 1 if the server can return success without having done anything.
    pub(crate) check_interval: u64,
    /// Media type of bodies, if the server requires one.
    pub(crate) media_type: Option<&'static str>,
    /// Expected status if requests must be rejected; `None` if they must succeed.
    pub(crate) expected_rejection: Option<StatusCode>,
}

impl Default for RequestClass {
    fn default() -> Self {
        Self {
            name: String::new(),
            clients: 1,
            method: Method::GET,
            path: String::new(),
            bodies: vec![Bytes::new()],
            plausible: |_| true,
            check_interval: DEFAULT_SAMPLE_INTERVAL,
            media_type: None,
            expected_rejection: None,
        }
    }
}

impl RequestClass {
    /// Returns clients that repeat a GET.
    pub(crate) fn get(name: impl Into<String>, clients: usize, path: impl Into<String>) -> Self {
        Self { name: name.into(), clients, path: path.into(), ..Self::default() }
    }

    /// Returns clients that send POST requests; `plausible` checks their responses.
    pub(crate) fn post(
        name: impl Into<String>,
        clients: usize,
        path: impl Into<String>,
        bodies: Vec<Bytes>,
        plausible: fn(&Value) -> bool,
    ) -> Self {
        Self { method: Method::POST, bodies, plausible, ..Self::get(name, clients, path) }
    }

    fn accepts(&self, status: StatusCode) -> bool {
        self.expected_rejection.map_or(status.is_success(), |expected| status == expected)
    }

    fn request<'a>(&'a self, body: &'a Bytes) -> (&'a str, Bytes) {
        let own = std::str::from_utf8(body).ok().filter(|text| text.starts_with('/'));
        let Some(text) = own else { return (&self.path, body.clone()) };
        match text.split_once('\n') {
            Some((path, rest)) => (path, body.slice_ref(rest.as_bytes())),
            None => (text, Bytes::new()),
        }
    }
}

/// Limits of a run; the first one reached ends it.
pub(crate) struct RunLimits {
    /// Number of requests of the first class.
    pub(crate) requests: u64,
    pub(crate) time: Duration,
    /// Pace of the first class; all others run in a closed loop.
    pub(crate) pace: Pace,
    pub(crate) quiet: bool,
}

/// Where requests go: server, token and mount, and the provisioner that creates and removes the objects they need.
#[derive(Clone, Copy)]
pub(crate) struct ServerAccess<'a> {
    pub(crate) endpoint: &'a ServerEndpoint,
    pub(crate) token: &'a str,
    pub(crate) mount: &'a str,
    pub(crate) provisioner: &'a Provisioner,
}

impl ServerAccess<'_> {
    /// Connects with the token.
    pub(crate) async fn connect(&self) -> Result<Client, String> {
        Client::connect(self.endpoint, self.token).await
    }

    /// Returns a path of the mount.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v1/{}/{rest}", self.mount)
    }
}

struct RunningClass {
    class: RequestClass,
    /// Number of started requests, and its limit.
    begun: Cell<u64>,
    max: u64,
    /// `true` after the end of the run: no client starts a request, and responses do not count.
    over: Cell<bool>,
    started: Instant,
    deadline: Instant,
    /// Time over which the start of the connections is spread.
    ramp: Duration,
    /// Schedule of the requests; `None` in a closed loop.
    pacer: Option<Pacer>,
    answered: RefCell<ClassFigures>,
}

/// Runs the classes concurrently until a limit is reached. There must be at least one class.
pub(crate) async fn drive(
    access: &ServerAccess<'_>,
    classes: Vec<RequestClass>,
    bounds: &RunLimits,
    watched: WatchedProcesses,
) -> Result<Figures, String> {
    let mut connected = Vec::with_capacity(classes.len());
    for class in classes {
        let mut clients = Vec::with_capacity(class.clients);
        for _ in 0..class.clients {
            clients.push(Client::connect(access.endpoint, access.token).await?.with_media_type(class.media_type));
        }
        connected.push((class, clients));
    }
    let sampler = Sampler::start(watched);
    let before = watched.read();
    let started = Instant::now();
    let local = LocalSet::new();
    let mut running_classes = Vec::new();
    let mut running = Vec::new();
    for (n, (class, clients)) in connected.into_iter().enumerate() {
        let class_run = Rc::new(RunningClass::new(class, bounds, started, n == 0));
        let tasks = clients
            .into_iter()
            .enumerate()
            .map(|(n, client)| local.spawn_local(one_client(client, n, Rc::clone(&class_run))));
        running.push(tasks.collect::<Vec<_>>());
        running_classes.push(class_run);
    }
    let [first, ..] = &running_classes[..] else { return Err("no class of requests given".to_owned()) };
    let bar = progress_bar(bounds);
    local.spawn_local(progress(bar.clone(), Rc::clone(first)));
    local
        .run_until(async {
            let all = async {
                for task in running.remove(0) {
                    task.await.map_err(|e| e.to_string())?;
                }
                Ok::<(), String>(())
            };
            tokio::select! {
                biased;
                () = interrupted() => Ok(()),
                result = all => result,
            }
        })
        .await?;
    let elapsed = started.elapsed();
    let cpu = watched.read().since(before);
    running_classes.iter().for_each(|class_run| class_run.over.set(true));
    let interrupted = is_interrupted();
    // After an interruption the server may never respond to pending requests.
    if interrupted {
        drop(local)
    } else {
        local.await
    }
    bar.finish_and_clear();
    let samples = sampler.stop();
    let due = |pacer: &Pacer| match interrupted {
        true => pacer.schedule.due_before(elapsed.as_secs_f64()),
        false => pacer.schedule.all(),
    };
    let unsent = first.pacer.as_ref().map_or(0, |pacer| due(pacer).saturating_sub(first.begun.get()));
    let classes = running_classes.iter().map(|class_run| class_run.answered.take()).collect();
    let server_mib = watched.server.and_then(proc::resident_mib);
    Ok(Figures { elapsed, classes, cpu, server_mib, samples, unsent, interrupted })
}

impl RunningClass {
    fn new(class: RequestClass, bounds: &RunLimits, started: Instant, first: bool) -> Self {
        let max = if first { bounds.requests } else { u64::MAX };
        let rate = bounds.pace.rate.filter(|_| first);
        let answered = ClassFigures { name: class.name.clone(), clients: class.clients, ..ClassFigures::default() };
        Self {
            class,
            begun: Cell::new(0),
            max,
            over: Cell::new(false),
            started,
            deadline: started + bounds.time,
            ramp: if rate.is_none() { bounds.pace.ramp } else { Duration::ZERO },
            pacer: rate.map(|rate| Pacer::start(Schedule::new(rate, bounds.pace.ramp, bounds.time, max))),
            answered: RefCell::new(answered),
        }
    }

    /// Waits until the client may send a request. Returns the number of the request and the time from which its latency
    /// counts; `None` when a limit of the run is reached.
    async fn next(&self) -> Option<(u64, Instant)> {
        if let Some(pacer) = &self.pacer
            && !pacer.wait().await
        {
            return None;
        }
        let number = self.begun.get();
        let now = Instant::now();
        if self.over.get() || number >= self.max || now >= self.deadline {
            return None;
        }
        self.begun.set(number + 1);
        let Some(pacer) = &self.pacer else { return Some((number, now)) };
        if number + 1 == self.max {
            pacer.end();
        }
        Some((number, pacer.begun + pacer.schedule.due(number)))
    }

    fn succeeded(&self, latency: Duration) {
        if !self.over.get() {
            let micros = latency.as_micros().min(u128::from(u64::MAX)) as u64;
            let mut answered = self.answered.borrow_mut();
            answered.latencies.record(micros);
            answered.timeline.at(self.started.elapsed()).latencies.record(micros);
        }
    }

    fn failed(&self, cause: String) {
        if !self.over.get() {
            let mut answered = self.answered.borrow_mut();
            *answered.errors.entry(cause).or_default() += 1;
            answered.timeline.at(self.started.elapsed()).errors += 1;
        }
    }
}

const PROGRESS_STEPS: f64 = 1000.0;

/// Returns a hidden bar if `quiet` is set or standard error is not a terminal.
fn progress_bar(bounds: &RunLimits) -> ProgressBar {
    if bounds.quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(PROGRESS_STEPS as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent} % {msg}") {
        bar.set_style(style);
    }
    bar
}

async fn progress(bar: ProgressBar, class_run: Rc<RunningClass>) {
    while !bar.is_hidden() && !class_run.over.get() {
        let done = class_run.answered.borrow().count();
        let since = class_run.started.elapsed();
        let time = class_run.deadline - class_run.started;
        let share = (done as f64 / class_run.max as f64).max(since.as_secs_f64() / time.as_secs_f64().max(1e-3));
        bar.set_position((share * PROGRESS_STEPS) as u64);
        bar.set_message(format!("{done} answered, {:.0}/s", done as f64 / since.as_secs_f64().max(1e-3)));
        tokio::time::sleep(PROGRESS_INTERVAL).await;
    }
}

async fn one_client(mut client: Client, access: usize, class_run: Rc<RunningClass>) {
    let class = &class_run.class;
    if !class_run.ramp.is_zero() {
        let begin = class_run.started + class_run.ramp.mul_f64(access as f64 / class.clients as f64);
        tokio::time::sleep_until(begin.min(class_run.deadline).into()).await;
    }
    let last = tokio::time::Instant::from_std(class_run.deadline + RESPONSE_GRACE);
    while let Some((number, from)) = class_run.next().await {
        let (path, body) = class.request(&class.bodies[(number % class.bodies.len() as u64) as usize]);
        let Ok(outcome) = tokio::time::timeout_at(last, client.exchange(class.method.clone(), path, body)).await else {
            return class_run
                .failed(format!("no response within {} s after the end of the run", RESPONSE_GRACE.as_secs()));
        };
        let latency = from.elapsed();
        match outcome {
            Ok(answer) if !class.accepts(answer.status) => class_run.failed(answer.status.as_u16().to_string()),
            Ok(answer) if !plausible(class, number, &answer.body) => {
                class_run.failed("success status, but the response lacks the expected content".to_owned());
            }
            Ok(_) => class_run.succeeded(latency),
            Err(cause) => {
                class_run.failed(cause);
                // The client reconnects with its next request, but it stops if the server no longer accepts
                // connections.
                if Client::connect(client.endpoint(), "").await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Checks the response if it is part of the sample.
fn plausible(class: &RequestClass, number: u64, body: &Bytes) -> bool {
    let shown = || serde_json::from_slice(body).unwrap_or_else(|_| Value::from(body.to_vec()));
    !number.is_multiple_of(class.check_interval) || (class.plausible)(&shown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_after_the_end_are_not_counted() {
        let time = Duration::from_secs(1);
        let bounds = RunLimits { requests: 5, time, pace: Pace::default(), quiet: true };
        let class_run = RunningClass::new(RequestClass::default(), &bounds, Instant::now(), false);
        let twice = |class_run: &RunningClass| {
            class_run.succeeded(time);
            class_run.failed("503".to_owned());
        };
        twice(&class_run);
        class_run.over.set(true);
        twice(&class_run);
        let answered = class_run.answered.take();
        assert_eq!((answered.count(), answered.errors["503"]), (1, 1));
        assert_eq!(answered.timeline.slots.iter().map(|slot| slot.errors).sum::<u64>(), 1);
    }
}
