//! Audit: what is asked of this server and what became of it, told to devices.
//!
//! Every request of either wire leaves two entries: what was asked, before anything is done about it, and what
//! is answered, before the answer leaves. The first is a [`Step::Intent`] when the request passed every check
//! and its handler is about to run, else a [`Step::Refusal`]. A server with devices that none of them takes an
//! entry of does nothing and answers nothing: 503. Of somebody who leaves meanwhile there is no second entry.
//!
//! Each wire opens a [`Record`] for a request and hands it what it has learnt; an [`Entry`] is made of that,
//! by reference, when there is a device, and not otherwise. A [`Writer`] is a device of the configuration: lines of JSON
//! (`audit/line.rs`) with keyed hashes in the place of texts (`audit/mask.rs`), to a file, standard output or a
//! socket. With several devices one that takes the entry is enough. An entry has secrets in it and therefore no
//! `Debug`.

mod device;
mod echo;
mod entry;
mod file;
mod line;
mod mask;
mod settings;
mod socket;
mod writer;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};

use self::device::PATIENCE;
pub use self::device::{Device, Sink};
pub use self::entry::{Caller, Data, Entry, Outcome, Refused, Request, Response, Step};
pub use self::file::{appending, why_not};
pub use self::settings::{DeviceSettings, Target};
pub use self::socket::Peer;
pub use self::writer::Writer;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::telemetry;
use crate::telemetry::outage::OTHERS;

/// What an answer may take to be recorded when its request has used up all of its time.
const GRACE: Duration = Duration::from_secs(1);

/// The devices of a server.
pub struct Audit {
    devices: Vec<Arc<dyn Device>>,
    /// Those of them that are configured.
    writers: Vec<Arc<Writer>>,
    clock: Clock,
}

/// The record of one request.
pub struct Record<'a> {
    /// `None` when nobody listens.
    audit: Option<&'a Audit>,
    asked: Asked,
}

/// What is recorded of what was asked.
enum Asked {
    Nothing,
    /// What each device writes of the request.
    Kept(Vec<Vec<u8>>),
    /// No device took it: nothing may be done, and there is nothing to tell of it.
    Lost,
}

impl Audit {
    /// With no device nothing is recorded.
    pub fn new(writers: Vec<Arc<Writer>>, others: Vec<Arc<dyn Device>>, clock: Clock) -> Self {
        let configured = writers.iter().map(|writer| Arc::clone(writer) as Arc<dyn Device>);
        Self { devices: configured.chain(others).collect(), writers, clock }
    }

    /// The devices of the configuration.
    pub fn writers(&self) -> &[Arc<Writer>] {
        &self.writers
    }

    /// Opens files anew: log rotation has moved them.
    pub fn reopen(&self) {
        self.writers.iter().for_each(|writer| writer.reopen());
    }

    /// The record of one more request.
    pub fn record(&self) -> Record<'_> {
        Record { audit: (!self.devices.is_empty()).then_some(self), asked: Asked::Nothing }
    }

    /// Tells every device, and is content when one of them has it. Boxed: without devices a request does not
    /// even carry the room for it.
    fn tell<'e>(
        &'e self,
        asked: &'e [Vec<u8>],
        request: &'e Request<'e>,
        step: Step<'e>,
        until: Instant,
    ) -> BoxFuture<'e, Result<()>> {
        async move {
            let entry = Entry { time: self.clock.now(), request, step };
            let mut each = self.devices.iter().zip(asked).map(|(device, asked)| took(&**device, asked, &entry, until));
            let told = match self.devices.len() {
                1 => each.next().expect("one device").await,
                _ => join_all(each).await.contains(&true),
            };
            if told {
                return Ok(());
            }
            metrics::counter!(telemetry::AUDIT_LOST).increment(1);
            Err(Error::new(Kind::Unavailable, "audit: the request cannot be recorded"))
        }
        .boxed()
    }
}

/// Whether a device took an entry in time.
async fn took(device: &dyn Device, asked: &[u8], entry: &Entry<'_>, until: Instant) -> bool {
    let work = AssertUnwindSafe(device.record(asked, entry)).catch_unwind();
    let until = until.min(Instant::now() + PATIENCE);
    let taken = tokio::time::timeout_at(until.into(), work).await;
    let why = match taken {
        Ok(Ok(Ok(()))) => return true,
        Ok(Ok(Err(error))) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error} {cause}")
        }
        Ok(Err(_)) => "it panicked".to_owned(),
        Err(_) => "it took too long".to_owned(),
    };
    device.missed();
    let what = format!("audit device {}", device.name());
    if let Some(why) = OTHERS.told(&what, format!("{what}: an entry was not taken: {why}")) {
        tracing::error!(request = entry.request.id, "{why}");
    }
    false
}

impl Record<'_> {
    /// Whether anybody listens: nothing has to be kept for entries otherwise.
    pub fn is_kept(&self) -> bool {
        self.audit.is_some()
    }

    /// Of this request nothing is recorded: it asks whether the server lives, and nobody has to be known for it.
    pub fn skip(&mut self) {
        self.audit = None;
    }

    /// To be called before a handler runs, which it must not do after an error. The request is looked at when
    /// somebody listens.
    ///
    /// # Errors
    /// `Unavailable` when there are devices and none takes the entry before `until`.
    pub async fn intent<'r>(&mut self, request: impl FnOnce() -> Option<Request<'r>>, until: Instant) -> Result<()> {
        let Some((audit, request)) = self.audit.and_then(|audit| Some((audit, request()?))) else { return Ok(()) };
        self.ask(audit, &request, Step::Intent, until).await
    }

    /// To be called with what is to be answered, before it leaves; after an error that error is the answer. Of
    /// a request that had no intent its refusal is recorded first.
    ///
    /// # Errors
    /// As [`Record::intent`].
    pub async fn outcome(&mut self, request: &Request<'_>, outcome: &Outcome<'_>, until: Instant) -> Result<()> {
        let Some(audit) = self.audit else { return Ok(()) };
        if let Asked::Nothing = self.asked {
            let step = outcome.answer.as_ref().map_or_else(Step::Refusal, |_| Step::Intent);
            self.ask(audit, request, step, until).await?;
        }
        let Asked::Kept(asked) = &self.asked else { return Ok(()) };
        audit.tell(asked, request, Step::Outcome(outcome), until.max(Instant::now() + GRACE)).await
    }

    async fn ask(&mut self, audit: &Audit, request: &Request<'_>, step: Step<'_>, until: Instant) -> Result<()> {
        // For the case that this is dropped half-way.
        self.asked = Asked::Lost;
        let asked = audit.devices.iter().map(|device| device.asked(request)).collect::<Vec<_>>();
        audit.tell(&asked, request, step, until).await?;
        self.asked = Asked::Kept(asked);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Takes nothing, and says nothing; how often it hears of that.
    #[derive(Default)]
    struct Hung(AtomicUsize);

    impl Device for Hung {
        fn name(&self) -> &str {
            "hung"
        }

        fn record<'e>(&'e self, _: &'e [u8], _: &'e Entry<'e>) -> BoxFuture<'e, Result<()>> {
            pending().boxed()
        }

        fn missed(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn an_entry_that_is_not_taken_in_the_time_of_its_request_is_counted_as_that() {
        let device = Arc::new(Hung::default());
        let audit = Audit::new(Vec::new(), vec![device.clone()], Clock::system());
        let request = Request {
            id: "id",
            operation: "read",
            path: "sys/mounts",
            mount: None,
            remote_address: None,
            token: None,
            caller: None,
            data: Data::None,
        };
        let until = Instant::now() + Duration::from_millis(20);
        let told = audit.record().intent(|| Some(request), until).await;
        assert_eq!(told.unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(device.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn without_devices_no_request_is_looked_at_and_nothing_waited_for() {
        let audit = Audit::new(Vec::new(), Vec::new(), Clock::system());
        let mut record = audit.record();
        assert!(!record.is_kept());
        let work = record.intent(|| panic!("a request is looked at"), Instant::now());
        assert!(work.now_or_never().is_some_and(|intent| intent.is_ok()));
        assert!(size_of::<Record<'_>>() <= 4 * size_of::<usize>());
    }
}
