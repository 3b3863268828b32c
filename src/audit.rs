//! Audit: what is asked of this server and what became of it, told to devices.
//!
//! Every request of either wire leaves two entries: what was asked, before anything is done about it, and what
//! is answered, before the answer leaves. The first is a [`Step::Intent`] when the request passed every check
//! and its handler is about to run, else a [`Step::Refusal`]. A server with devices that none of them takes an
//! entry of does nothing and answers nothing: 503. Of somebody who leaves meanwhile there is no second entry.
//!
//! Each wire opens a [`Record`] for a request and hands it what it has learnt; an [`Entry`] is made of that,
//! by reference, when there is a device, and not otherwise. No device exists yet: [`Device`] is what one will
//! be (a file, a socket), and what tests put in its place. What it writes of an entry, and which values it
//! only writes the keyed hash of, is its own affair; an entry has secrets in it and therefore no `Debug`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use serde_json::Value;

use crate::auth::mounts::Mount;
use crate::auth::wrapping::Wrapping;
use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use crate::secret::Secret;

/// What an answer may take to be recorded when its request has used up all of its time.
const GRACE: Duration = Duration::from_secs(1);

/// Where entries go.
pub trait Device: Send + Sync {
    /// What the log calls it.
    fn name(&self) -> &str;

    /// Takes an entry; when it is done, the entry is kept. It may take its time, which only the entry's own
    /// request waits for, and is dropped when that has none left.
    fn record<'e>(&'e self, entry: &'e Entry<'e>) -> BoxFuture<'e, Result<()>>;
}

/// One line of the record.
pub struct Entry<'e> {
    /// When it was made.
    pub time: Time,
    /// What was asked.
    pub request: &'e Request<'e>,
    /// How far that has come.
    pub step: Step<'e>,
}

/// How far a request has come.
#[derive(Clone, Copy)]
pub enum Step<'e> {
    /// Its handler runs once this is kept.
    Intent,
    /// No handler runs.
    Refusal(&'e Refused<'e>),
    /// What its sender is about to get.
    Outcome(&'e Outcome<'e>),
}

/// What was asked, as far as it was understood.
pub struct Request<'r> {
    /// The request's id, which its answer shows too.
    pub id: &'r str,
    /// `read`, `list`, `update` …; the method, as sent, of what is no operation.
    pub operation: &'r str,
    /// The path as policies see it, without `/v1/`, or the one below `/api/v2/`; as sent when it does not read.
    pub path: &'r str,
    /// The mount that the path leads to: its path, type and accessor, and which fields are written in clear.
    pub mount: Option<&'r Mount>,
    /// Where the caller is.
    pub remote_address: Option<IpAddr>,
    /// The token as it was sent, whether it is known or not.
    pub token: Option<&'r str>,
    /// Who asks; `None` of a stranger.
    pub caller: Option<Caller<'r>>,
    /// What was sent along, when anybody read it.
    pub data: Data<'r>,
}

/// Who asks.
pub struct Caller<'r> {
    /// The name for people.
    pub display_name: Cow<'r, str>,
    /// The token's handle, with which it can be ended; empty where tokens have none.
    pub accessor: &'r str,
    /// The entity behind the token; empty for none.
    pub entity_id: &'r str,
    /// Names of its own policies.
    pub policies: &'r [String],
    /// Names of the policies that it has by its entity.
    pub identity_policies: &'r [String],
    /// What the token's maker attached to it.
    pub metadata: Option<&'r BTreeMap<String, String>>,
    /// When the token was made, where that is known.
    pub created_at: Option<Time>,
    /// When it ends; `None` never, or not known.
    pub expires_at: Option<Time>,
}

/// Why there is no answer but an error.
pub struct Refused<'r> {
    /// The kind.
    pub kind: Kind,
    /// What its sender is told.
    pub texts: Vec<&'r str>,
}

/// What a request leads to.
pub struct Outcome<'r> {
    /// The status of HTTP.
    pub status: u16,
    /// The answer, or the error.
    pub answer: Result<Response<'r>, Refused<'r>>,
}

/// What is answered.
#[derive(Default)]
pub struct Response<'r> {
    /// The body.
    pub data: Data<'r>,
    /// A token that is handed out, and what is told of it.
    pub auth: Option<(&'r Secret, &'r Value)>,
    /// The lease that the caller gets with it.
    pub lease: Option<&'r str>,
    /// What is told in the place of an answer that was put away; of that one nothing is told.
    pub wrapping: Option<&'r Wrapping>,
    /// Warnings.
    pub warnings: &'r [String],
}

/// What is in a body.
#[derive(Clone, Copy, Default)]
pub enum Data<'r> {
    /// Nothing.
    #[default]
    None,
    /// The members that a request was read as.
    Fields(&'r Fields),
    /// JSON.
    Json(&'r Value),
    /// JSON that is text already.
    JsonText(&'r [u8]),
    /// Bytes of another kind.
    Raw {
        /// The media type.
        media_type: &'r str,
        /// The bytes.
        bytes: &'r [u8],
    },
    /// Bytes that are made while they are sent: certificates and lists of them, which are public.
    Streamed {
        /// The media type.
        media_type: &'r str,
        /// How many.
        octets: usize,
    },
}

/// The devices of a server.
pub struct Audit {
    devices: Vec<Arc<dyn Device>>,
    clock: Clock,
}

/// The record of one request.
pub struct Record<'a> {
    /// `None` when nobody listens.
    audit: Option<&'a Audit>,
    asked: Asked,
}

/// What is recorded of what was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Kept,
    /// No device took it: nothing may be done, and there is nothing to tell of it.
    Lost,
}

impl Audit {
    /// With no device nothing is recorded.
    pub fn new(devices: Vec<Arc<dyn Device>>, clock: Clock) -> Self {
        Self { devices, clock }
    }

    /// The record of one more request.
    pub fn record(&self) -> Record<'_> {
        Record { audit: (!self.devices.is_empty()).then_some(self), asked: Asked::Nothing }
    }

    /// Tells every device, and is content when one of them has it. Boxed: without devices a request does not
    /// even carry the room for it.
    fn tell<'e>(&'e self, request: &'e Request<'e>, step: Step<'e>, until: Instant) -> BoxFuture<'e, Result<()>> {
        async move {
            let entry = Entry { time: self.clock.now(), request, step };
            let told = join_all(self.devices.iter().map(|device| took(&**device, &entry, until))).await;
            if told.contains(&true) {
                return Ok(());
            }
            Err(Error::new(Kind::Unavailable, "audit: the request cannot be recorded"))
        }
        .boxed()
    }
}

/// Whether a device took an entry in time.
async fn took(device: &dyn Device, entry: &Entry<'_>, until: Instant) -> bool {
    let work = AssertUnwindSafe(device.record(entry)).catch_unwind();
    let why = match tokio::time::timeout_at(until.into(), work).await {
        Ok(Ok(Ok(()))) => return true,
        Ok(Ok(Err(error))) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error} {cause}")
        }
        Ok(Err(_)) => "it panicked".to_owned(),
        Err(_) => "it took too long".to_owned(),
    };
    tracing::error!(request = entry.request.id, device = device.name(), "an audit entry was not taken: {why}");
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
        if self.asked == Asked::Nothing {
            let step = outcome.answer.as_ref().map_or_else(Step::Refusal, |_| Step::Intent);
            self.ask(audit, request, step, until).await?;
        }
        if self.asked == Asked::Lost {
            return Ok(());
        }
        audit.tell(request, Step::Outcome(outcome), until.max(Instant::now() + GRACE)).await
    }

    async fn ask(&mut self, audit: &Audit, request: &Request<'_>, step: Step<'_>, until: Instant) -> Result<()> {
        // For the case that this is dropped half-way.
        self.asked = Asked::Lost;
        audit.tell(request, step, until).await?;
        self.asked = Asked::Kept;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_devices_no_request_is_looked_at_and_nothing_waited_for() {
        let audit = Audit::new(Vec::new(), Clock::system());
        let mut record = audit.record();
        assert!(!record.is_kept());
        let work = record.intent(|| panic!("a request is looked at"), Instant::now());
        assert!(work.now_or_never().is_some_and(|intent| intent.is_ok()));
        assert!(size_of::<Record<'_>>() <= 2 * size_of::<usize>());
    }
}
