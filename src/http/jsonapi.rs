//! The projects API (`/api/v2`): one pipeline for all requests.
//!
//! Route → token (401) → rate (429) → media type (415) → parsing of body and query → session → rendering. A session is
//! one unit of work on a store connection, and one transaction if it writes. In the session, the handler checks
//! permissions first and the request's content second, so that an unauthorized caller learns nothing from validation
//! errors. For the same reason, errors in a body are stored until a handler uses the body ([`body::RequestDocument`]).
//! A session returns values of the domain ([`reply::HandlerResult`]), which are rendered after the session. Documents
//! and errors follow JSON:API 1.1. Each resource has a route table in `resources`; [`table`] joins them.

mod audit;
pub mod body;
mod documents;
mod list;
mod query;
mod render;
pub mod reply;
pub mod request;
mod resources;
pub mod route;
pub mod table;

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use actix_web::http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, IF_MATCH};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::FutureExt as _;

use super::access::{AccessLogEntry, parse_trace_context};
use super::address::caller_address;
use super::body::{self as bodies, BodyBudget, discard, exceeds_limit_before_continue, read_truncated};
use super::encoding::{self, ENCODED_BODY_ERROR, is_encoded};
use super::entity_tag::EntityTags;
use super::fair_scheduler::CpuAccount;
use super::rate::RemainingRate;
use super::refusal_delay;
use super::request_id::RequestId;
use super::response_budget;
use super::sender::{Sender, SenderCache};
use super::state::WorkerState;
use crate::error::{Error, Kind};
use crate::projects::caller::ProjectsCaller;
use crate::projects::rejection::{ApiRejection, Fault, WorkError, WorkResult};
use crate::projects::{SessionAccess, Tx};
use crate::rationing::{QueueCaller, caller_id, cpu};
use crate::secret::Secret;
use crate::telemetry::{self, RouteMeter};
use audit::ProjectsRequestAudit;
use body::RequestDocument;
use query::Query;
use render::{MEDIA_TYPE, RenderedResponse};
use reply::HandlerResult;
use request::{ProjectsCall, ProjectsRequest};
use route::ProjectsRoute;
use table::ResolvedProjectsRoute;

/// Header by which a client reports that it runs plans and applies.
static TERRAFORM_INTEGRATION: HeaderName = HeaderName::from_static("x-terraform-integration");

/// Handles one request. `raw_path` is the part of the request target after `/api/v2/`, still encoded.
pub async fn handle(state: WorkerState, request: &HttpRequest, raw_path: &str, payload: Payload) -> HttpResponse {
    state.scheduler().run_charged(|cpu_account| respond(cpu_account, &state, request, raw_path, payload)).await
}

async fn respond(
    cpu_account: CpuAccount,
    state: &WorkerState,
    request: &HttpRequest,
    raw_path: &str,
    payload: Payload,
) -> HttpResponse {
    static UNROUTED_METER: LazyLock<RouteMeter> =
        LazyLock::new(|| RouteMeter::new("projects", "none", "none".to_owned()));
    let payload = cpu_account.pace_body(request, payload);
    cpu_account.wait_if_target_is_long(request).await;
    let id = RequestId::of(request.headers());
    let mut rate = state.projects_rate_limits.uncounted_rate();
    let found = table::resolve_route(raw_path, request.method());
    let trace = parse_trace_context(request.headers());
    if let Some(trace) = trace {
        cpu_account.set_trace(trace);
    }
    let mut log_entry = AccessLogEntry::begin(id, trace, found.as_ref().map_or(&*UNROUTED_METER, |found| found.meter));
    let mut trail = ProjectsRequestAudit::new(state, request, raw_path, &id, trace);
    let outcome = match found {
        Ok(found) => {
            run_pipeline(state, request, found, payload, &mut rate, (&mut trail, &mut log_entry, &cpu_account)).await
        }
        Err(refusal) => Err(refusal),
    };
    let mut recorded = trail.record_outcome(outcome).await;
    let reservation = recorded.as_mut().map(|written| std::mem::take(&mut written.reservation)).unwrap_or_default();
    let response = match recorded {
        // A token appears only in the response that creates it, so reads have no secrets and may be compressed.
        Ok(written) if written.status == StatusCode::OK && matches!(*request.method(), Method::GET | Method::HEAD) => {
            let not_modified = render::not_modified(&written, request.headers(), &id, rate);
            let response = not_modified.unwrap_or_else(|| render::build_response(written, &id, rate));
            encoding::compress_if_accepted(response, request.headers()).await
        }
        Ok(written) => render::build_response(written, &id, rate),
        Err(refusal) => {
            render::log_refusal(&refusal, &id);
            refusal_delay::wait(refusal.kind).await;
            let mut response = render::build_refusal(&refusal, &id, rate);
            if refusal.kind == Kind::UnsupportedMethod {
                render::set_header(response.headers_mut(), ALLOW, &table::allowed_methods(raw_path));
            }
            encoding::add_accept_encoding(&mut response, request.headers());
            response
        }
    };
    log_entry.complete(response.status().as_u16());
    response_budget::schedule_response(response, reservation, &cpu_account)
}

async fn run_pipeline(
    state: &WorkerState,
    request: &HttpRequest,
    found: ResolvedProjectsRoute,
    payload: Payload,
    rate: &mut Option<RemainingRate>,
    (trail, log_entry, cpu_account): (&mut ProjectsRequestAudit<'_>, &mut AccessLogEntry, &CpuAccount),
) -> Result<RenderedResponse, ApiRejection> {
    let deadline = trail.deadline();
    if found.route.needs_no_token {
        trail.skip();
    }
    let address = caller_address(request, &state.settings.trusted_proxies)?;
    log_entry.address = address;
    if found.route.needs_no_token {
        return Ok(RenderedResponse::empty());
    }
    state.clock.require_synchronized()?;
    let token = bearer_token(request.headers());
    trail.set_token(token.as_ref().ok());
    let sender = state.sender_cache.cached_or_network(token.as_ref().ok(), address);
    cpu_account.set_sender(&sender);
    cpu_account.wait_for_slice().await;
    let reads = *found.route.method == Method::GET;
    if reads
        && !trail.is_enabled()
        && let Ok(token) = token
    {
        let read = run_guarded(deadline, handle_read(state, request, (&sender, address), found, token)).await;
        let ReadOutcome { caller, remaining_rate, answer } = read?;
        log_entry.set_projects_caller(caller.as_ref());
        *rate = remaining_rate;
        let sender = Sender::of_subject(caller.as_ref(), address);
        cpu_account.set_sender(&sender);
        let answer = answer?;
        state.response_budget.check(|| sender.clone())?;
        cpu_account.wait_for_slice().await;
        let mut written = run_guarded(deadline, render_response(answer, QueueCaller::current())).await?;
        written.reservation = state.response_budget.reserve(written.byte_len(), reads, || sender)?;
        return Ok(written);
    }
    let caller = match token {
        Ok(token) => run_guarded(deadline, identify(state, &sender, token)).await,
        Err(refusal) => Err(refusal),
    };
    trail.set_caller(caller.as_ref().ok());
    log_entry.set_projects_caller(caller.as_ref().ok());
    match state.projects_rate_limits.count_request(caller.as_ref().ok(), address) {
        Ok(remaining_rate) => *rate = remaining_rate,
        Err((refusal, remaining_rate)) => {
            *rate = Some(remaining_rate);
            return Err(refusal);
        }
    }
    let caller = caller?;
    state.projects.record_token_use(&caller);
    let headers = request.headers();
    let sender = Sender::of_subject(Some(&caller), address);
    cpu_account.set_sender(&sender);
    bodies::mark_identified(request);
    let body = if reads { Bytes::new() } else { read_body(state, found.route, headers, payload, &caller).await? };
    cpu_account.wait_for_slice().await;
    trail.set_body(&body);
    let document = RequestDocument::parse(&body);
    drop(body);
    let query = Query::parse(request.query_string()).map_err(malformed)?;
    let if_match = EntityTags::of(headers, IF_MATCH).filter(|_| !reads);
    let route = found.route;
    let request_data = ProjectsRequest { query, document, if_match, ..build_request(state, request, found) };
    let call = Arc::new(ProjectsCall { caller, request: Arc::new(request_data) });
    state.response_budget.check(|| sender.clone())?;
    trail.record_intent().await?;
    let (answer, pending_removal) = run_guarded(deadline, handle_in_session(state, route, call, &sender)).await?;
    if let Some(organization) = pending_removal {
        // The deletion is committed: the response waits only briefly for the removal of the organization's remaining
        // rows.
        let until = deadline.min(Instant::now() + MAX_CLEANUP_WAIT);
        let access = SessionAccess::Write(caller_id(&sender));
        let _ = tokio::time::timeout_at(
            until.into(),
            state.projects.remove_rows_of_ended_organization(organization, access),
        )
        .await;
    }
    cpu_account.wait_for_slice().await;
    // A write is committed by now, so its rendering must not be refused.
    let queued = if reads { QueueCaller::current() } else { QueueCaller::current().must_run() };
    let mut written = run_guarded(deadline, render_response(answer, queued)).await?;
    written.reservation = state.response_budget.reserve(written.byte_len(), reads, || sender)?;
    Ok(written)
}

/// Maximum time that a request waits for the removal of the remaining rows of a deleted organization.
const MAX_CLEANUP_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of rows that are rendered on the worker; longer responses are rendered in the CPU queue.
const MAX_ROWS_ON_WORKER: usize = 500;

/// Renders the response body, a long one in the CPU queue.
async fn render_response(answer: HandlerResult, queued: QueueCaller) -> Result<RenderedResponse, ApiRejection> {
    match answer.row_count() > MAX_ROWS_ON_WORKER {
        true => Ok(cpu::run_as(queued, move || RenderedResponse::of(answer.render())).await?),
        false => Ok(RenderedResponse::of(answer.render())),
    }
}

fn build_request(state: &WorkerState, request: &HttpRequest, found: ResolvedProjectsRoute) -> ProjectsRequest {
    ProjectsRequest {
        params: found.params,
        query: Query::default(),
        document: RequestDocument::default(),
        if_match: None,
        runs_terraform: request.headers().contains_key(&TERRAFORM_INTEGRATION),
        origin: state.origin().to_owned(),
        path: found.path,
    }
}

struct ReadOutcome {
    /// The caller; `None` if the token is not valid, the rate limit refuses the request or the query is malformed.
    caller: Option<ProjectsCaller>,
    remaining_rate: Option<RemainingRate>,
    answer: Result<HandlerResult, ApiRejection>,
}

/// Identifies the caller, counts the request and runs the handler in one session.
async fn handle_read(
    state: &WorkerState,
    request: &HttpRequest,
    (sender, address): (&Sender, Option<IpAddr>),
    found: ResolvedProjectsRoute,
    token: Secret,
) -> Result<ReadOutcome, ApiRejection> {
    let shared = Arc::clone(state.shared());
    let route = found.route;
    let query = Query::parse(request.query_string());
    let request_data = build_request(state, request, found);
    let request_data = query.map(|query| Arc::new(ProjectsRequest { query, ..request_data }));
    let found = state.projects.run(route.name, SessionAccess::Read(caller_id(sender)), move |mut tx| {
        let shared = Arc::clone(&shared);
        let request_data = request_data.clone();
        let token = token.clone();
        async move {
            let caller = capture_refusal(identify_in_session(&mut tx, &shared.sender_cache, &token).await)?;
            let remaining_rate = match shared.projects_rate_limits.count_request(caller.as_ref().ok(), address) {
                Ok(remaining_rate) => remaining_rate,
                Err((refusal, remaining_rate)) => {
                    return Ok(ReadOutcome {
                        caller: None,
                        remaining_rate: Some(remaining_rate),
                        answer: Err(refusal),
                    });
                }
            };
            let call = caller.and_then(|caller| Ok(ProjectsCall { caller, request: request_data.map_err(malformed)? }));
            let call = match call {
                Ok(call) => call,
                Err(refusal) => return Ok(ReadOutcome { caller: None, remaining_rate, answer: Err(refusal) }),
            };
            let answer = capture_refusal((route.handler)(&mut tx, &call).await)?
                .map(|answer| answer.with_row_count(tx.rows_read()));
            Ok(ReadOutcome { caller: Some(call.caller), remaining_rate, answer })
        }
        .boxed_local()
    });
    let read = found.await?;
    if let Some(caller) = &read.caller {
        state.projects.record_token_use(caller);
    }
    Ok(read)
}

/// Converts a refusal into a successful result, so that it does not roll back the session.
fn capture_refusal<T>(outcome: WorkResult<T>) -> WorkResult<Result<T, ApiRejection>> {
    match outcome {
        Err(WorkError::Refused(refusal)) => Ok(Err(refusal)),
        other => other.map(Ok),
    }
}

fn malformed(fault: Fault) -> ApiRejection {
    ApiRejection::of(Kind::Malformed, vec![fault])
}

fn bearer_token(headers: &HeaderMap) -> Result<Secret, ApiRejection> {
    let refused = || ApiRejection::new(Kind::Unauthenticated, "a bearer token is required");
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).ok_or_else(refused)?;
    let (scheme, token) = given.split_once(' ').ok_or_else(refused)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(refused());
    }
    Ok(Secret::new(token.trim()))
}

/// Identifies the caller in a separate session, so that no write transaction begins for an unknown caller.
async fn identify(state: &WorkerState, sender: &Sender, token: Secret) -> Result<ProjectsCaller, ApiRejection> {
    let shared = Arc::clone(state.shared());
    let caller = state.projects.run("projects_identify", SessionAccess::Read(caller_id(sender)), move |mut tx| {
        let shared = Arc::clone(&shared);
        let token = token.clone();
        async move { identify_in_session(&mut tx, &shared.sender_cache, &token).await }.boxed_local()
    });
    caller.await
}

async fn identify_in_session(tx: &mut Tx<'_>, senders: &SenderCache, token: &Secret) -> WorkResult<ProjectsCaller> {
    let caller = ProjectsCaller::identify(tx, std::str::from_utf8(token.expose()).unwrap_or_default()).await;
    if !matches!(caller, Err(WorkError::Store(_))) {
        senders.remember(token, caller.as_ref().ok());
    }
    caller
}

async fn read_body(
    state: &WorkerState,
    route: &ProjectsRoute,
    headers: &HeaderMap,
    payload: Payload,
    caller: &ProjectsCaller,
) -> Result<Bytes, ApiRejection> {
    let has_body = matches!(*route.method, Method::POST | Method::PATCH);
    if has_body {
        require_media_type(headers)?;
    }
    let limit = state.settings.max_body;
    let too_large = || ApiRejection::new(Kind::TooLarge, format!("the body is larger than {limit} bytes"));
    if exceeds_limit_before_continue(headers, limit) {
        return Err(too_large());
    }
    if is_encoded(headers) {
        discard(headers, payload, limit, state.settings.body_timeout).await?;
        return Err(ApiRejection::new(Kind::UnsupportedMedia, ENCODED_BODY_ERROR));
    }
    let budget = BodyBudget { bodies: &state.body_budget, sender: &|| Sender::of_subject(Some(caller), None) };
    let body = read_truncated(headers, payload, limit, budget, state.settings.body_timeout).await?;
    if body.len() > limit {
        return Err(too_large());
    }
    if !has_body && !body.is_empty() && *route.method == Method::DELETE {
        require_media_type(headers)?;
    }
    Ok(body)
}

/// Requires the media type of JSON:API. The only allowed parameter is `charset=utf-8` (RFC 9110, 5.6.6).
fn require_media_type(headers: &HeaderMap) -> Result<(), ApiRejection> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = given.split(';').map(str::trim);
    let is_json_api = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(MEDIA_TYPE))
        && parts.all(|one| ["charset=utf-8", "charset=\"utf-8\""].iter().any(|utf8| one.eq_ignore_ascii_case(utf8)));
    if is_json_api {
        return Ok(());
    }
    Err(ApiRejection::new(Kind::UnsupportedMedia, format!("Content-Type must be {MEDIA_TYPE}, without parameters")))
}

/// Runs the handler in one session, after checking that the caller identified earlier is still valid. If the handler
/// left rows to be removed in a deleted organization, also returns the row id of that organization.
async fn handle_in_session(
    state: &WorkerState,
    route: &'static ProjectsRoute,
    call: Arc<ProjectsCall>,
    sender: &Sender,
) -> Result<(HandlerResult, Option<i64>), ApiRejection> {
    let caller_id = caller_id(sender);
    let access =
        if *route.method == Method::GET { SessionAccess::Read(caller_id) } else { SessionAccess::Write(caller_id) };
    let answered = state.projects.run(route.name, access, move |mut tx| {
        let call = Arc::clone(&call);
        async move {
            call.caller.check_still_valid(&mut tx).await?;
            check_precondition(&mut tx, route, &call).await?;
            let answer = (route.handler)(&mut tx, &call).await?;
            Ok((answer.with_row_count(tx.rows_read()), tx.pending_removal()))
        }
        .boxed_local()
    });
    answered.await
}

/// Checks the `If-Match` header of a change against the document that a read would return now (RFC 9110, 13.1.1). The
/// resource is locked first, so that only one of two concurrent changes with the same header succeeds. The entity tag
/// must be that of the state before the change, so the document is rendered inside the session.
async fn check_precondition(tx: &mut Tx<'_>, route: &ProjectsRoute, call: &ProjectsCall) -> WorkResult<()> {
    let Some(demanded) = &call.if_match else { return Ok(()) };
    let unmet = |detail| Err(ApiRejection::new(Kind::Precondition, detail).into());
    let current = match table::read_route_of(route) {
        Some(show) => match lock_and_compute_entity_tag(tx, show, call).await {
            // The request creates the resource that the read did not find.
            Err(WorkError::Refused(refusal)) if refusal.kind == Kind::NotFound && creates_resource(route, show) => None,
            current => Some(current?),
        },
        None => None,
    };
    match current {
        None => unmet("If-Match: the resource has no ETag; omit the header"),
        Some(tag) if demanded.contains(&tag) => Ok(()),
        Some(_) => unmet("If-Match: the resource has changed; read it again and send its current ETag"),
    }
}

/// `true` if `route` creates the resource that `show` reads.
fn creates_resource(route: &ProjectsRoute, show: &ProjectsRoute) -> bool {
    *route.method == Method::POST && route.pattern == show.pattern
}

/// Locks the resource to be changed and returns its entity tag.
async fn lock_and_compute_entity_tag(tx: &mut Tx<'_>, show: &ProjectsRoute, call: &ProjectsCall) -> WorkResult<String> {
    let read = call.as_read();
    // The first read refuses callers without permission before anything is locked.
    (show.handler)(tx, &read).await?;
    tx.lock_lookups_and_organization();
    let shown = (show.handler)(tx, &read).await?.render();
    Ok(RenderedResponse::of(shown).tag.unwrap_or_default())
}

/// Ends a request that panics or exceeds its deadline, without effect on other requests.
async fn run_guarded<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, ApiRejection>>,
) -> Result<T, ApiRejection> {
    match tokio::time::timeout_at(deadline.into(), AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => {
            metrics::counter!(telemetry::HANDLER_PANICS).increment(1);
            Err(Error::internal("the request handler panicked").into())
        }
        Err(_) => Err(ApiRejection::new(
            Kind::Unavailable,
            "request: not completed within the time limit (setting max_request_duration)",
        )),
    }
}
