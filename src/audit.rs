//! Audit: records requests and their outcomes on audit devices.
//!
//! Each API request has two entries: an [`Intent`](AuditStep::Intent) before its handler runs, or a
//! [`Refusal`](AuditStep::Refusal) if a check rejects it, and an [`AuditOutcome`](AuditStep::Outcome) before the
//! response is sent. If the server has devices and none of them accepts an entry, the request fails with 503. A client
//! that disconnects early causes no second entry. An [`AuditWriter`] is a configured device; it writes lines of JSON to
//! a file, standard output or a socket, with HMACs instead of sensitive values. Entries contain secrets and therefore
//! do not implement `Debug`.

mod device;
mod entry;
mod file;
mod health;
mod line;
mod mask;
mod message_mask;
mod settings;
mod socket;
mod writer;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use futures_util::poll;

use self::device::ENTRY_TIMEOUT;
pub use self::device::{AuditDevice, AuditSink};
pub use self::entry::{
    AuditCaller, AuditData, AuditEntry, AuditOutcome, AuditRefusal, AuditRequest, AuditResponse, AuditStep,
};
pub use self::file::{append_options, describe_open_error};
pub use self::settings::{AuditDeviceSettings, AuditTarget};
pub use self::socket::CollectorAddress;
pub use self::writer::{AuditWriter, register_worker};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::telemetry;
use crate::telemetry::outage::OUTAGES;

/// Minimum time limit for recording the outcome of a request on the devices, even if the request's own deadline is
/// closer.
const MIN_OUTCOME_TIME: Duration = Duration::from_secs(1);

/// The audit devices of a server.
pub struct Audit {
    devices: Vec<Arc<dyn AuditDevice>>,
    writers: Vec<Arc<AuditWriter>>,
    clock: Clock,
}

/// Records the entries of one request, in their order.
pub struct AuditRecorder<'a> {
    /// `None` if there are no devices.
    audit: Option<&'a Audit>,
    request_entry: RequestEntryState,
}

/// The state of the request's first entry.
enum RequestEntryState {
    NotRecorded,
    /// The first entry was recorded. Contains the rendered description of the request, one for each device.
    Recorded(Vec<Vec<u8>>),
    /// No device accepted the entry: the request must fail, and it has no outcome to record.
    Failed,
}

impl Audit {
    /// Creates an audit whose devices are the `writers` and the `others`. Without devices, it records nothing.
    pub fn new(writers: Vec<Arc<AuditWriter>>, others: Vec<Arc<dyn AuditDevice>>, clock: Clock) -> Self {
        let configured = writers.iter().map(|writer| Arc::clone(writer) as Arc<dyn AuditDevice>);
        Self { devices: configured.chain(others).collect(), writers, clock }
    }

    /// The devices that the server's configuration declares.
    pub fn writers(&self) -> &[Arc<AuditWriter>] {
        &self.writers
    }

    /// Reopens the files after a log rotation.
    pub fn reopen(&self) {
        self.writers.iter().for_each(|writer| writer.reopen());
    }

    /// `true` if there are devices and all of them are down, so that every request fails.
    pub fn is_down(&self) -> bool {
        !self.devices.is_empty() && self.devices.iter().all(|device| device.is_down())
    }

    /// Returns the recorder for the entries of a new request.
    pub fn recorder(&self) -> AuditRecorder<'_> {
        AuditRecorder {
            audit: (!self.devices.is_empty()).then_some(self),
            request_entry: RequestEntryState::NotRecorded,
        }
    }

    /// Sends an entry to every device, and succeeds if one accepts it. The future is boxed, so that the futures of
    /// requests stay small on servers without devices.
    fn send<'e>(
        &'e self,
        request_parts: &'e [Vec<u8>],
        request: &'e AuditRequest<'e>,
        step: AuditStep<'e>,
        until: Instant,
    ) -> BoxFuture<'e, Result<()>> {
        async move {
            let entry = AuditEntry { time: self.clock.now(), request, step };
            let is_recorded = match &self.devices[..] {
                [device] => record_on_device(&**device, &request_parts[0], &entry, until).await,
                _ => self.record_on_any(request_parts, &entry, until).await,
            };
            if is_recorded {
                return Ok(());
            }
            metrics::counter!(telemetry::AUDIT_LOST).increment(1);
            Err(Error::new(Kind::Unavailable, "audit: no audit device can record the request; see the server's log"))
        }
        .boxed()
    }

    /// Sends an entry to several devices; returns `true` if any of them accepted it. Always waits for the trusted
    /// devices. Waits for the untrusted devices only if no trusted device accepted the entry.
    async fn record_on_any<'e>(
        &'e self,
        request_parts: &'e [Vec<u8>],
        entry: &'e AuditEntry<'e>,
        until: Instant,
    ) -> bool {
        let all = self.devices.iter().zip(request_parts);
        let (trusted, others): (Vec<_>, Vec<_>) = all.partition(|(device, _)| device.is_trusted());
        let each = |some: Vec<(&'e Arc<dyn AuditDevice>, &'e Vec<u8>)>| {
            join_all(
                some.into_iter().map(|(device, request_part)| record_on_device(&**device, request_part, entry, until)),
            )
        };
        let mut others = each(others);
        let others_done = poll!(&mut others);
        if each(trusted).await.contains(&true) {
            return true;
        }
        match others_done {
            Poll::Ready(accepted) => accepted.contains(&true),
            Poll::Pending => others.await.contains(&true),
        }
    }
}

async fn record_on_device(
    device: &dyn AuditDevice,
    request_part: &[u8],
    entry: &AuditEntry<'_>,
    until: Instant,
) -> bool {
    let work = AssertUnwindSafe(device.record(request_part, entry)).catch_unwind();
    let until = until.min(Instant::now() + ENTRY_TIMEOUT);
    let outcome = tokio::time::timeout_at(until.into(), work).await;
    let cause = match outcome {
        Ok(Ok(Ok(()))) => return true,
        Ok(Ok(Err(error))) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{error}{cause}")
        }
        Ok(Err(_)) => "the audit device panicked".to_owned(),
        Err(_) => "the audit device did not answer in time".to_owned(),
    };
    if !device.record_missed_entry() {
        return false;
    }
    let what = format!("audit device {}", device.name());
    if let Some(why) = OUTAGES.record_failure(&what, format!("{what}: write failed: {cause}")) {
        tracing::error!(request = entry.request.id, "{why}");
    }
    false
}

impl AuditRecorder<'_> {
    /// `true` if there are devices; otherwise callers need not collect data for entries.
    pub fn is_enabled(&self) -> bool {
        self.audit.is_some()
    }

    /// Excludes this request from the audit, for liveness checks without authentication.
    pub fn skip(&mut self) {
        self.audit = None;
    }

    /// Records the entry of a request that passed all checks. Call it before the handler, which must not run after an
    /// error. `request` is evaluated only if there are devices.
    ///
    /// # Errors
    /// `Unavailable` when there are devices and none accepts the entry before `until`.
    pub async fn record_intent<'r>(
        &mut self,
        request: impl FnOnce() -> Option<AuditRequest<'r>>,
        until: Instant,
    ) -> Result<()> {
        let Some((audit, request)) = self.audit.and_then(|audit| Some((audit, request()?))) else { return Ok(()) };
        self.record_request(audit, &request, AuditStep::Intent, until).await
    }

    /// Records the outcome of a request. Call it before the response is sent; after an error, send that error instead.
    /// If the request has no first entry yet, records an intent or a refusal before the outcome.
    ///
    /// # Errors
    /// As [`AuditRecorder::record_intent`].
    pub async fn record_outcome(
        &mut self,
        request: &AuditRequest<'_>,
        outcome: &AuditOutcome<'_>,
        until: Instant,
    ) -> Result<()> {
        let Some(audit) = self.audit else { return Ok(()) };
        if let RequestEntryState::NotRecorded = self.request_entry {
            let step = outcome.answer.as_ref().map_or_else(AuditStep::Refusal, |_| AuditStep::Intent);
            self.record_request(audit, request, step, until).await?;
        }
        let RequestEntryState::Recorded(request_parts) = &self.request_entry else { return Ok(()) };
        audit
            .send(request_parts, request, AuditStep::Outcome(outcome), until.max(Instant::now() + MIN_OUTCOME_TIME))
            .await
    }

    async fn record_request(
        &mut self,
        audit: &Audit,
        request: &AuditRequest<'_>,
        step: AuditStep<'_>,
        until: Instant,
    ) -> Result<()> {
        // The state remains `Failed` if this future is dropped before it completes.
        self.request_entry = RequestEntryState::Failed;
        let request_parts = audit.devices.iter().map(|device| device.render_request(request)).collect::<Vec<_>>();
        audit.send(&request_parts, request, step, until).await?;
        self.request_entry = RequestEntryState::Recorded(request_parts);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A device that never accepts an entry and counts the missed ones.
    #[derive(Default)]
    struct HungDevice(AtomicUsize);

    impl AuditDevice for HungDevice {
        fn name(&self) -> &str {
            "hung"
        }

        fn record<'e>(&'e self, _: &'e [u8], _: &'e AuditEntry<'e>) -> BoxFuture<'e, Result<()>> {
            pending().boxed()
        }

        fn record_missed_entry(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            true
        }
    }

    fn request() -> AuditRequest<'static> {
        AuditRequest { id: "id", operation: "read", path: "sys/mounts", ..AuditRequest::default() }
    }

    #[tokio::test]
    async fn audit_entry_missed_at_the_deadline_is_counted() {
        let device = Arc::new(HungDevice::default());
        let audit = Audit::new(Vec::new(), vec![device.clone()], Clock::system());
        let until = Instant::now() + Duration::from_millis(20);
        let recorded = audit.recorder().record_intent(|| Some(request()), until).await;
        assert_eq!(recorded.unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(device.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn audit_without_devices_does_no_work() {
        let audit = Audit::new(Vec::new(), Vec::new(), Clock::system());
        let mut record = audit.recorder();
        assert!(!record.is_enabled());
        let work = record.record_intent(|| panic!("a request is looked at"), Instant::now());
        assert!(work.now_or_never().is_some_and(|intent| intent.is_ok()));
        assert!(size_of::<AuditRecorder<'_>>() <= 4 * size_of::<usize>());
    }
    struct TestDevice {
        down: bool,
        trusted: bool,
        hangs: bool,
        calls: AtomicUsize,
    }

    impl AuditDevice for TestDevice {
        fn name(&self) -> &str {
            "test"
        }

        fn record<'e>(&'e self, _: &'e [u8], _: &'e AuditEntry<'e>) -> BoxFuture<'e, Result<()>> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let Self { down, hangs, .. } = *self;
            async move {
                if hangs {
                    pending::<()>().await;
                }
                tokio::task::yield_now().await;
                if down { Err(Error::new(Kind::Unavailable, "the device is down")) } else { Ok(()) }
            }
            .boxed()
        }

        fn is_down(&self) -> bool {
            self.down
        }

        fn is_trusted(&self) -> bool {
            self.trusted
        }
    }

    fn test_device(down: bool, trusted: bool, hangs: bool) -> Arc<TestDevice> {
        Arc::new(TestDevice { down, trusted, hangs, calls: AtomicUsize::new(0) })
    }

    async fn is_recorded(devices: Vec<Arc<dyn AuditDevice>>) -> bool {
        let audit = Audit::new(Vec::new(), devices, Clock::system());
        let until = Instant::now() + Duration::from_secs(20);
        audit.recorder().record_intent(|| Some(request()), until).await.is_ok()
    }

    #[tokio::test]
    async fn audit_does_not_wait_for_a_trial_device_if_another_wrote() {
        let well = test_device(false, true, false);
        let trial = test_device(false, false, false);
        let hung = test_device(false, false, true);
        let begun = Instant::now();
        assert!(is_recorded(vec![hung.clone(), well.clone(), trial.clone()]).await);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!([&hung, &well, &trial].map(|device| device.calls.load(Ordering::Relaxed)), [1; 3]);
        let down = test_device(true, false, false);
        assert!(
            is_recorded(vec![down.clone(), trial.clone()]).await,
            "a device on trial is waited for if no other device wrote"
        );
        assert!(!is_recorded(vec![down.clone(), down]).await);
    }

    #[test]
    fn audit_is_down_when_all_devices_are_down() {
        let is_down = |devices: &[bool]| {
            let device = |down: &bool| test_device(*down, !down, false) as Arc<dyn AuditDevice>;
            Audit::new(Vec::new(), devices.iter().map(device).collect(), Clock::system()).is_down()
        };
        assert!(is_down(&[true]) && is_down(&[true, true]));
        assert!(!is_down(&[]) && !is_down(&[false]) && !is_down(&[true, false]));
    }
}
