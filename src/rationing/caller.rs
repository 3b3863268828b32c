//! The caller on whose behalf work is queued.
//!
//! The [current caller](QueueCaller::current) belongs to the running task: the HTTP pipeline sets it for each request,
//! so that the functions below it need no argument for it.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::rc::Rc;

use crate::telemetry::TraceContext;

/// Numeric id of a caller. It is a hash, so two callers may share an id in rare cases.
pub type CallerId = u64;

/// Returns the id of a caller, from any hashable identification of the caller.
pub fn caller_id(caller: &(impl Hash + ?Sized)) -> CallerId {
    let mut hasher = DefaultHasher::new();
    caller.hash(&mut hasher);
    hasher.finish()
}

/// Class of a caller. It decides the order of service, and whether the queue of the caller is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallerClass {
    /// The server itself. Requests wait for its work, so its queue has no bound.
    Server,
    /// A caller with a valid token, or a client that is connecting.
    WithToken,
    /// A caller without a valid token: served only when no caller of another class waits.
    WithoutToken,
}

/// The caller on whose behalf a job is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCaller {
    pub(super) class: CallerClass,
    pub(super) caller_id: CallerId,
    /// `true` if its jobs must not be refused: its response or handshake has begun, or its change is stored already.
    pub(super) must_run: bool,
    /// The trace of the request, which outbound calls continue.
    pub(super) trace: Option<TraceContext>,
}

tokio::task_local! {
    /// The caller of the request that the task handles.
    static REQUEST_CALLER: Rc<Cell<QueueCaller>>;
    /// The caller of a part of a request, or of a task that a request has spawned.
    static TASK_CALLER: QueueCaller;
}

impl QueueCaller {
    /// The server, for work that belongs to no request.
    pub const SERVER: Self = Self { class: CallerClass::Server, caller_id: 0, must_run: false, trace: None };

    /// A caller with a valid token.
    pub fn with_token(caller: &(impl Hash + ?Sized)) -> Self {
        Self { class: CallerClass::WithToken, caller_id: caller_id(caller), must_run: false, trace: None }
    }

    /// A caller without a valid token.
    pub fn without_token(caller: &(impl Hash + ?Sized)) -> Self {
        Self { class: CallerClass::WithoutToken, caller_id: caller_id(caller), must_run: false, trace: None }
    }

    /// A client that is connecting and cannot have sent a token yet. The limits on connections bound its queue.
    pub fn connecting(network: &(impl Hash + ?Sized)) -> Self {
        Self::with_token(network).must_run()
    }

    /// A part of the server with a queue of its own, such as the changes of one mount.
    pub fn server(part: &(impl Hash + ?Sized)) -> Self {
        Self { class: CallerClass::Server, caller_id: caller_id(part), must_run: false, trace: None }
    }

    /// The caller of the request that the current task handles; [`QueueCaller::SERVER`] outside of requests.
    pub fn current() -> Self {
        let request_caller = || REQUEST_CALLER.try_with(|caller| caller.get());
        TASK_CALLER.try_with(|caller| *caller).or_else(|_| request_caller()).unwrap_or(Self::SERVER)
    }

    /// Runs a future on behalf of this caller. A task that a request spawns needs this, because it does not inherit the
    /// caller.
    pub async fn scope<W: Future>(self, work: W) -> W::Output {
        TASK_CALLER.scope(self, work).await
    }

    /// Returns this caller, marked so that its jobs are not refused.
    pub fn must_run(self) -> Self {
        Self { must_run: true, ..self }
    }

    /// `true` if the caller's queue is limited. The server's own work and jobs that must run have no limit.
    pub(super) fn is_bounded(self) -> bool {
        self.class != CallerClass::Server && !self.must_run
    }

    /// Returns the trace of the request.
    pub fn trace(self) -> Option<TraceContext> {
        self.trace
    }

    /// Returns the id of the caller.
    pub fn caller_id(self) -> CallerId {
        self.caller_id
    }
}

/// The caller of one request, which becomes known while the request is handled.
#[derive(Clone)]
pub struct CurrentCaller(Rc<Cell<QueueCaller>>);

impl Default for CurrentCaller {
    fn default() -> Self {
        Self(Rc::new(Cell::new(QueueCaller::SERVER)))
    }
}

impl CurrentCaller {
    /// Sets the caller of the request. The trace stays.
    pub fn set(&self, caller: QueueCaller) {
        self.0.set(QueueCaller { trace: self.0.get().trace, ..caller });
    }

    /// Sets the trace of the request.
    pub fn set_trace(&self, trace: TraceContext) {
        self.0.set(QueueCaller { trace: Some(trace), ..self.0.get() });
    }

    /// Polls a part of the request on behalf of its caller.
    pub fn scope<T>(&self, poll: impl FnOnce() -> T) -> T {
        REQUEST_CALLER.sync_scope(Rc::clone(&self.0), poll)
    }

    /// Polls the response body on behalf of the caller. Its jobs must run: the response has begun.
    pub fn scope_of_body<T>(&self, poll: impl FnOnce() -> T) -> T {
        TASK_CALLER.sync_scope(self.0.get().must_run(), poll)
    }
}
