//! The secrets service (`/v1`): one pipeline for all requests.
//!
//! Route, count (quotas), identify the caller, read the body, authorize, audit the request, run the handler, wrap the
//! response if requested, audit the outcome, render. Requests that are refused before the handler are audited too. The
//! body of an unauthorized request is discarded, and only authorized callers learn if a mount exists.
//!
//! Each kind of mount has a route table ([`sys`], [`token`], [`cubbyhole`], [`identity`], [`pki`], and those of
//! authentication methods in `login`), shared by the pipeline, the metrics and the tests. `target` resolves paths.

mod audit;
mod cors;
pub mod cubbyhole;
pub mod dialect;
mod error_hints;
pub mod handler_response;
pub mod identity;
pub mod index;
mod json_object;
mod listing;
mod login;
mod page;
pub mod path;
pub mod pki;
mod quota;
pub mod render;
pub mod request;
mod request_context;
pub mod route;
pub mod sudo;
pub mod sys;
mod target;
pub mod token;
mod warnings;
mod wrapped;

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use actix_web::http::header::{ALLOW, HeaderMap};
use actix_web::http::{Method, Version};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::FutureExt;
use tracing::Instrument;

use super::access::{AccessLogEntry, RequestCaller, parse_trace_context};
use super::address::caller_address;
use super::body;
use super::encoding;
use super::exposition;
use super::fair_scheduler::CpuAccount;
use super::refusal_delay;
use super::request_id::RequestId;
use super::response_budget;
use super::sender::Sender;
use super::settings::HttpSettings;
use super::state::{ServerState, WorkerState};
use crate::auth::Caller;
use crate::auth::mounts::{MountKind, MountTable};
use crate::auth::policy::{RequestParameters, RequestPath};
use crate::error::{Error, Kind, Result};
use crate::telemetry::{self, Exposition, RouteMeter, outage};
use dialect::Dialect;
use handler_response::HandlerResponse;
use index::RouteIndex;
use quota::QuotaGate;
use request::{ParsedRequest, RequestToken};
use request_context::RequestContext;
use route::{Call, Operation, Route, RouteAccess};
use target::{ParsedBody, ResolvedRoute, offset_spellings};
use wrapped::ResponseWrapRequest;

/// Error text of the public listener for each path that it does not serve.
pub const PUBLIC_NOT_FOUND_ERROR: &str = "not found: this address serves only CRLs, OCSP and CA certificates";

/// The listener or page through which a request arrives; it limits the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// The main listener, which serves all routes.
    Main,
    /// The metrics page: a read of `sys/metrics`, in the Prometheus format unless the query selects another.
    Metrics,
    /// The public listener. All paths but its [routes](Route::on_public_listener) get the same response.
    Public,
}

/// Handles one request. `raw_path` is the part of the request target after `/v1/`, still encoded.
pub async fn handle(state: WorkerState, request: &HttpRequest, raw_path: &str, payload: Payload) -> HttpResponse {
    handle_at(EntryPoint::Main, state, request, raw_path, payload).await
}

/// As [`handle`], for a request that arrived through `entry_point`.
pub async fn handle_at(
    entry_point: EntryPoint,
    state: WorkerState,
    request: &HttpRequest,
    raw_path: &str,
    payload: Payload,
) -> HttpResponse {
    state
        .scheduler()
        .run_charged(|cpu_account| respond(cpu_account, entry_point, &state, request, raw_path, payload))
        .await
}

async fn respond(
    cpu_account: CpuAccount,
    entry_point: EntryPoint,
    state: &WorkerState,
    request: &HttpRequest,
    raw_path: &str,
    payload: Payload,
) -> HttpResponse {
    static UNROUTED_METER: LazyLock<RouteMeter> =
        LazyLock::new(|| RouteMeter::new("secrets", "none", "none".to_owned()));
    let payload = cpu_account.pace_body(request, payload);
    cpu_account.wait_if_target_is_long(request).await;
    let id = RequestId::of(request.headers());
    let trace = parse_trace_context(request.headers());
    if let Some(trace) = trace {
        cpu_account.set_trace(trace);
    }
    let mut context =
        RequestContext::new(entry_point, state, request, raw_path, AccessLogEntry::begin(id, trace, &UNROUTED_METER));
    let conditions = matches!(*request.method(), Method::GET | Method::HEAD).then(|| request.headers());
    // The span is at debug level, because a span per request costs more than the rest of the pipeline. Refusals and
    // failures log the request id themselves.
    let span = tracing::debug_span!("request", %id);
    // Boxed, because the future is large and each enclosing future would copy it.
    let work = Box::pin(async {
        let outcome = run_pipeline(state, request, payload, (&mut context, &cpu_account)).await;
        context.audit_outcome(outcome, conditions).await
    });
    let outcome = work.instrument(span).await;
    let mut response = match outcome {
        Ok(mut answer) => {
            let reservation = std::mem::take(&mut answer.reservation);
            let mount_type = context.log_entry.mount.as_ref().map_or("", |m| m.kind.name());
            let head = request.method() == Method::HEAD;
            let field_warnings = context.field_warnings.texts;
            let now = state.clock.now().unix_timestamp();
            let render_context = render::RenderContext { mount_type, field_warnings, headers: conditions, head, now };
            let response = render::render_response(answer, &id, render_context);
            let response = match context.compressible {
                true => encoding::compress_if_accepted(response, request.headers()).await,
                false => response,
            };
            response_budget::schedule_response(response, reservation, &cpu_account)
        }
        Err(error) => {
            log_error(&error, &id);
            refusal_delay::wait(error.kind()).await;
            let mount = context.log_entry.mount.as_ref().map_or("", |mount| &mount.path);
            let hint = error_hints::hint_for(&error, mount, context.body_limit, state.settings.max_body);
            context.field_warnings.texts.extend(hint);
            let mut response = render::render_error(&error, &id, &context.field_warnings.texts);
            if error.kind() == Kind::UnsupportedMethod {
                // Before the caller is identified, the response must not reveal the methods that a path supports.
                let methods =
                    context.allowed_methods.unwrap_or_else(|| route::allow_header(|_| true, state.settings.compat));
                render::set_text(&mut response, ALLOW, &methods);
            }
            encoding::add_accept_encoding(&mut response, request.headers());
            response
        }
    };
    if let Some(quota) = &context.quota {
        quota.write_headers(&mut response);
    }
    std::mem::take(&mut context.page_origin).write_headers(&mut response);
    context.log_entry.complete(response.status().as_u16());
    response
}

async fn run_pipeline(
    state: &WorkerState,
    request: &HttpRequest,
    payload: Payload,
    (context, cpu_account): (&mut RequestContext<'_>, &CpuAccount),
) -> Result<HandlerResponse> {
    let settings = &state.settings;
    let headers = request.headers();
    if context.handle_cors(state, request)? {
        return Ok(HandlerResponse::empty());
    }
    let (parsed, target) = match (resolve_route(state, request, context.raw_path), context.entry_point) {
        (resolved, EntryPoint::Main) => resolved?,
        (resolved, EntryPoint::Metrics) => {
            let (mut parsed, target) = resolved?;
            if parsed.query.is_empty() {
                parsed.query.push(("format".to_owned(), "prometheus".to_owned()));
            }
            (parsed, target)
        }
        (Ok((parsed, target)), EntryPoint::Public) if target.is_on_public_listener() && !parsed.help => {
            (parsed, target)
        }
        (_, EntryPoint::Public) => return Err(context.reject_non_public()),
    };
    context.set_route(&target, &parsed);
    context.body_limit = target.body_limit(settings);
    let address = caller_address(request, &settings.trusted_proxies)?;
    context.log_entry.address = address;
    cpu_account.set_address(address);
    context.deadline = Instant::now() + settings.max_duration;
    let gate = state.auth.quotas().map(|quotas| QuotaGate::new(quotas, &target, address));
    let quota = gate.as_ref().and_then(|gate| gate.count_before_body(state, &target, &parsed));
    let counted = context.apply_quota(quota, &parsed);
    let known = match counted {
        Ok(()) => run_guarded(context.deadline, || identify_caller(state, headers, &target, &parsed, address)).await,
        Err(error) => Err(error),
    };
    let caller = known.as_ref().ok().and_then(|known| known.caller.as_ref());
    if let Some((caller, _)) = caller {
        context.log_entry.caller = RequestCaller::Token(Arc::clone(caller));
        body::mark_identified(request);
    }
    if let Some(audit_fields) = &mut context.audit_fields {
        audit_fields.token =
            caller.map_or_else(|| target.token(headers, settings.compat), |(_, token)| Some(token.clone()));
    }
    let is_authorized = known.as_ref().is_ok_and(|known| known.is_permitted);
    let sender = || Sender::of_token(caller.map(|(caller, _)| &**caller), address);
    cpu_account.set_sender(&sender());
    let read = target.read_body(&parsed, headers, payload, state, (is_authorized, &sender, cpu_account)).await;
    if read.is_err() {
        let quota = gate.as_ref().and_then(|gate| gate.count_without_body(state, &target, &parsed));
        context.apply_quota(quota, &parsed)?;
    }
    let mut sent = read?;
    if let Some(audit_fields) = &mut context.audit_fields {
        audit_fields.store_body(&mut sent);
    }
    let quota = gate.as_ref().and_then(|gate| gate.count_after_body(state, &target, &parsed, &sent.fields));
    context.apply_quota(quota, &parsed)?;
    request::require_root_namespace(headers, settings.compat)?;
    let wrap_ttl = match context.entry_point {
        EntryPoint::Main | EntryPoint::Metrics => request::wrap_ttl(headers, settings.compat)?,
        // A wrapped response contains a wrapping token, a credential that the public listener must not issue.
        EntryPoint::Public => None,
    };
    wrap_ttl.map_or(Ok(()), |ttl| state.auth.check_wrapping_ttl(ttl))?;
    context.deadline = Instant::now() + settings.max_duration;
    let known = known?;
    cpu_account.wait_for_slice().await;
    let admit = || authorize(state, known, &target, &parsed, &sent, address, wrap_ttl);
    let admitted = run_guarded(context.deadline, admit).await?;
    if parsed.help {
        context.audit_intent().await?;
        return target.help(&parsed);
    }
    let found = target.require_route(&parsed);
    if found.is_err() {
        context.allowed_methods = target.allowed_methods(&parsed, settings.compat);
    }
    let (mount, route, params) = found?;
    if let Some(caller) = &admitted.caller {
        state.response_budget.check(|| Sender::of_token(Some(caller), address))?;
    }
    let idempotency_key = if route.accepts_idempotency_key { request::idempotency_key(headers)? } else { None };
    context.audit_intent().await?;
    context.compressible = route.compressible;
    let ParsedBody { mut fields, body, media_type, reservation } = sent;
    context.field_warnings =
        warnings::check_fields(route, &params, &mut fields, &parsed.path[target.below_mount.clone()]);
    let token = match route.passes_unvalidated_token {
        true => request::token(headers, settings.compat)?,
        false => admitted.token,
    };
    // A HEAD response has no body to wrap. Responses of unaudited routes that need no token, such as the server's
    // health, contain no secrets.
    let is_open = !route.audited && route.access == RouteAccess::Open;
    let wrap_ttl = wrap_ttl.filter(|_| !is_open && request.method() != Method::HEAD);
    let wanted =
        wrap_ttl.map(|ttl| ResponseWrapRequest::of(state, ttl, &parsed.path, admitted.caller.as_deref(), address));
    let wanted = wanted.transpose()?;
    let reads = matches!(parsed.operation, Operation::Read | Operation::List);
    let call = Call {
        state: state.clone(),
        mount,
        route,
        below_mount: target.below_mount.clone(),
        full_path: parsed.path,
        was_normalized: target.was_normalized,
        used_alias: target.used_alias,
        params,
        fields,
        media_type,
        body,
        _reservation: reservation,
        caller: admitted.caller,
        dialect: Dialect::of(headers, settings.compat),
        token,
        wrap_ttl,
        idempotency_key,
        sudo: admitted.sudo,
        address,
        request_id: context.log_entry.id,
        exposition: if target.is_metrics() { exposition::negotiate(request) } else { Exposition::Text },
    };
    let mut answer = run_guarded(context.deadline, || (route.handler)(call)).await?;
    if context.field_warnings.write_ignored_field {
        answer.warnings.extend(std::mem::take(&mut context.field_warnings.texts));
    }
    let Some(wanted) = wanted.filter(|_| wrapped::is_wrappable(&answer)) else {
        let knows_chunks = request.version() >= Version::HTTP_11 || request.method() == Method::HEAD;
        if !knows_chunks {
            answer = run_guarded(context.deadline, || listing::buffer_for_http10(answer)).await?;
        }
        let bytes = answer.body.byte_len();
        answer.reservation = state
            .response_budget
            .reserve(bytes, reads, || Sender::of_token(context.log_entry.caller.token(), address))?;
        return Ok(answer);
    };
    // The response is replaced by a wrapping token, a secret that must not be compressed.
    context.compressible = false;
    let field_warnings = std::mem::take(&mut context.field_warnings.texts);
    let mount_type = context.log_entry.mount.as_ref().map_or("", |mount| mount.kind.name());
    let render_context = render::RenderContext { mount_type, field_warnings, ..render::RenderContext::default() };
    run_guarded(context.deadline, || {
        wrapped::wrap_response(state, answer, wanted, &context.log_entry.id, render_context)
    })
    .await
}

/// Parses a request and resolves its route.
fn resolve_route(state: &WorkerState, request: &HttpRequest, raw_path: &str) -> Result<(ParsedRequest, ResolvedRoute)> {
    let table = state.auth.mounts();
    let mut parsed = parse_request(&table, request, raw_path, &state.settings)?;
    let target = ResolvedRoute::resolve(&table, &mut parsed);
    Ok((parsed, target))
}

/// Parses a request. The part of the path that matches `**tail` in a route need not follow the rules for paths.
fn parse_request(
    table: &MountTable,
    request: &HttpRequest,
    raw_path: &str,
    settings: &HttpSettings,
) -> Result<ParsedRequest> {
    let reads = matches!(request.method().as_str(), "GET" | "HEAD");
    let tail = table.route(raw_path).filter(|_| reads).and_then(|(mount, rest)| {
        let at = index_of(&mount.kind)?.tail_start(rest)?;
        Some(raw_path.len() - rest.len() + at)
    });
    let Some(at) = tail else { return request::parse_head(request, raw_path, settings) };
    // The slash before the tail belongs neither to the path nor to the tail.
    let parsed = request::parse_head(request, &raw_path[..at - 1], settings)?;
    Ok(ParsedRequest { tail: Some(Bytes::copy_from_slice(&raw_path.as_bytes()[at..])), ..parsed })
}

/// Ends a request that panics or exceeds its deadline, without effect on other requests. The future is created inside,
/// because it may be large and moving it is expensive.
async fn run_guarded<T, W: Future<Output = Result<T>>>(deadline: Instant, begin: impl FnOnce() -> W) -> Result<T> {
    let work = pin!(begin());
    match tokio::time::timeout_at(deadline.into(), AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => {
            metrics::counter!(telemetry::HANDLER_PANICS).increment(1);
            Err(Error::internal("the request handler panicked"))
        }
        Err(_) => Err(Error::new(
            Kind::Unavailable,
            "request: not completed within the time limit (setting max_request_duration)",
        )),
    }
}

fn granted_capabilities(state: &WorkerState, holder: &Caller, path: &str) -> Vec<&'static str> {
    with_canonical_path(state, path, |request_path| state.auth.capabilities(holder, request_path))
}

/// Calls `ask` with the canonical spelling of a path. Policies apply to that spelling.
fn with_canonical_path<T>(shared: &ServerState, path: &str, ask: impl FnOnce(RequestPath<'_>) -> T) -> T {
    let table = shared.auth.mounts();
    // Requests with a path above the limit are rejected, so such a path needs no canonical spelling.
    let routable = Some(path).filter(|path| path.len() <= path::MAX_PATH_BYTES);
    let canonical = routable.and_then(|path| table.route(path)).and_then(|(mount, rest)| {
        let found = index_of(&mount.kind)?.canonical(rest)?;
        let prefix = &path[..path.len() - rest.len()];
        Some((format!("{prefix}{}", found.path), offset_spellings(prefix, found.spelt)))
    });
    match &canonical {
        Some((path, spelt)) => ask(RequestPath { path, spelt }),
        None => ask(path.into()),
    }
}

/// The caller of a request, identified before the body is read.
struct IdentifiedCaller {
    caller: Option<(Arc<Caller>, RequestToken)>,
    /// `true` if policies allow this operation on this path, possibly only with certain fields in the body.
    is_permitted: bool,
    /// `true` if the caller was taken from the token cache, because the store is unavailable.
    from_cache: bool,
}

#[derive(Default)]
struct AuthorizedCaller {
    caller: Option<Arc<Caller>>,
    token: Option<RequestToken>,
    sudo: bool,
}

/// Identifies the caller before the body is read. Absent, unknown and expired tokens get the same error, whether or not
/// the path has a mount, so that clients cannot distinguish these cases.
async fn identify_caller(
    state: &WorkerState,
    headers: &HeaderMap,
    target: &ResolvedRoute,
    parsed: &ParsedRequest,
    address: Option<IpAddr>,
) -> Result<IdentifiedCaller> {
    if target.access() == RouteAccess::Open {
        return Ok(IdentifiedCaller { caller: None, is_permitted: true, from_cache: false });
    }
    let token = request::token(headers, state.settings.compat)?.ok_or_else(Error::forbidden)?;
    let remembered = || if target.is_metrics() { state.auth.remembered_caller(token.expose(), address) } else { None };
    // During an outage, do not wait for the store to fail again.
    let from_cache = if outage::STORE_OUTAGE.is_ongoing() { remembered() } else { None };
    let (caller, from_cache) = match from_cache {
        Some(caller) => (caller, true),
        None => match resolve_token(state, &token, address).await {
            Ok(caller) => (caller, false),
            Err(error) if error.kind() == Kind::Unavailable => (remembered().ok_or(error)?, true),
            Err(error) => return Err(error),
        },
    };
    let needs = if from_cache { parsed.operation } else { target.needed_operation(state, &caller, parsed).await? };
    let decision = state.auth.decide(&caller, needs, target.request_path(parsed), None);
    let is_permitted = target.allows(decision, parsed);
    // A request for help needs no permission, so `is_permitted` is `true` for it. `allowed` is `true` only if the
    // caller has the permission to read the metrics.
    if decision.allowed && is_permitted && !from_cache && target.is_metrics() {
        state.auth.remember_for_outage(&caller);
    }
    Ok(IdentifiedCaller { is_permitted, caller: Some((caller, token)), from_cache })
}

async fn resolve_token(state: &WorkerState, token: &RequestToken, address: Option<IpAddr>) -> Result<Arc<Caller>> {
    // Another node may have revoked the token since this node last read changes.
    state.nodes.require_fresh().await?;
    state.auth.recognise(token.expose(), address).await.map_err(unify_refusal)
}

/// Authorizes the complete request, body included.
async fn authorize(
    state: &WorkerState,
    known: IdentifiedCaller,
    target: &ResolvedRoute,
    parsed: &ParsedRequest,
    sent: &ParsedBody,
    address: Option<IpAddr>,
    wrap_ttl: Option<Duration>,
) -> Result<AuthorizedCaller> {
    let Some((caller, token)) = known.caller else { return Ok(AuthorizedCaller::default()) };
    // The token may have expired while the body was read, so it is checked again.
    let caller = if known.from_cache {
        caller
    } else {
        state.nodes.require_fresh().await?;
        state.auth.admit(caller, address).await.map_err(unify_refusal)?
    };
    if caller.uses_left() == Some(0) {
        // This was the last permitted use of the token, so the leases that it owns end too.
        state.mounts.notify_tokens_ended();
    }
    // The resource may have been created while the body was read, which changes the required capability.
    let needs =
        if known.from_cache { parsed.operation } else { target.needed_operation(state, &caller, parsed).await? };
    let decide =
        |sent: Option<&RequestParameters<'_>>| state.auth.decide(&caller, needs, target.request_path(parsed), sent);
    let decision = target.decide_with_fields(sent, wrap_ttl, decide);
    if !known.is_permitted || !target.allows(decision, parsed) {
        return Err(Error::forbidden());
    }
    Ok(AuthorizedCaller { caller: Some(caller), token: Some(token), sudo: decision.sudo })
}

fn unify_refusal(error: Error) -> Error {
    if error.kind() == Kind::Unauthenticated { Error::forbidden() } else { error }
}

fn log_error(error: &Error, id: &RequestId) {
    match error.kind() {
        Kind::Internal | Kind::Unavailable | Kind::BadGateway => {
            if let Some(why) = outage::describe_for_log(error) {
                tracing::error!(request = %id, "{why}");
            }
        }
        kind => tracing::debug!(request = %id, "refused: {}", kind.description()),
    }
}

fn routes_of(kind: &MountKind) -> Option<&'static [Route]> {
    match kind {
        MountKind::Pki => Some(pki::ROUTES),
        MountKind::AppRole => Some(login::approle::ROUTES),
        MountKind::Jwt => Some(login::jwt::ROUTES),
        MountKind::Cloudb => Some(login::cloudb::ROUTES),
        MountKind::Token => Some(token::ROUTES),
        MountKind::System => Some(sys::ROUTES),
        MountKind::Cubbyhole => Some(cubbyhole::ROUTES),
        MountKind::Identity => Some(identity::ROUTES),
        MountKind::Unknown(_) => None,
    }
}

static ROUTE_INDEXES: LazyLock<Vec<(&'static MountKind, RouteIndex)>> = LazyLock::new(|| {
    let table = |kind: &'static MountKind| Some((kind, RouteIndex::new(kind.name(), &[routes_of(kind)?])));
    MountKind::ALL.iter().filter_map(table).collect()
});

fn index_of(kind: &MountKind) -> Option<&'static RouteIndex> {
    ROUTE_INDEXES.iter().find(|(known, _)| *known == kind).map(|(_, index)| index)
}

/// Iterates over all routes with the kind of their mount, for tests.
pub fn all_routes() -> impl Iterator<Item = (&'static str, &'static Route)> {
    let of = |kind: &'static MountKind| routes_of(kind).into_iter().flatten().map(|route| (kind.name(), route));
    MountKind::ALL.iter().flat_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_web::test]
    async fn panic_or_timeout_ends_only_its_own_request() {
        let long = Instant::now() + std::time::Duration::from_secs(5);
        assert!(run_guarded(long, || async { Ok(HandlerResponse::empty()) }).await.is_ok());
        let panicked = run_guarded::<HandlerResponse, _>(long, || async { panic!("hunter2") }).await.err().unwrap();
        assert_eq!((panicked.kind(), panicked.text()), (Kind::Internal, "internal error"));
        let late = run_guarded::<HandlerResponse, _>(Instant::now(), std::future::pending).await.err().unwrap();
        assert_eq!(late.kind(), Kind::Unavailable);
    }

    /// The only field that is not in lower case: the API contract of managed keys names the identifier `UUID`, and a
    /// write accepts the document that a read returns.
    const UPPER_CASE_FIELDS: [(&str, &str); 1] = [("managed-keys/:backend/:managed_key", "UUID")];

    #[test]
    fn every_route_pattern_is_valid() {
        let mut seen = std::collections::HashSet::new();
        for (kind, route) in all_routes() {
            let pattern = route.pattern;
            let params = pattern.split('/').filter(|s| s.starts_with([':', '*'])).count();
            assert!(params <= route::PathParams::MAX_PARAMS, "{kind} {pattern}");
            let backoff = pattern.matches('*').count();
            let tails = pattern.matches("**").count();
            assert!(backoff <= 1 + tails && tails <= 1 && !pattern.ends_with('/'), "{kind} {pattern}");
            let tail = pattern.split_once("**").map_or("", |(literals, _)| literals);
            assert!(!tail.contains(':') && (tail.is_empty() || route.access == RouteAccess::Open), "{kind} {pattern}");
            let name = pattern.split_once("*name").map_or("", |(_, behind)| behind);
            assert!(name.is_empty(), "{kind} {pattern}: the name of a policy is the rest of its path");
            let folded = |name: &&str| name.chars().any(|c| !c.is_ascii_lowercase() && c != '_' && !c.is_ascii_digit());
            let mut odd = route.fields.iter().filter(|name| folded(name));
            let excepted = |name: &&str| UPPER_CASE_FIELDS.contains(&(pattern, *name));
            assert_eq!(odd.find(|name| !excepted(name)), None, "{kind} {pattern}");
            let known = |name: &str| route.fields.contains(&name);
            assert!(route.synonyms.iter().all(|(one, other)| known(one) && known(other)), "{kind} {pattern}");
            let bounded = route.body_limit.is_some_and(|limit| limit <= 64 << 10);
            assert!(
                route.access != RouteAccess::Open || bounded,
                "{kind} {pattern}: an open route needs a body limit of at most 64 KiB"
            );
            assert!(
                !route.on_public_listener || route.access == RouteAccess::Open,
                "{kind} {pattern}: public routes must be open"
            );
            assert!(
                seen.insert((kind, pattern, route.operation)),
                "duplicate route: {kind} {pattern} {:?}",
                route.operation
            );
            assert_ne!(
                route.operation,
                Operation::Create,
                "{kind} {pattern}: write routes must use Update, not Create"
            );
        }
    }
}
