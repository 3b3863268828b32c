//! The projects API (`/api/v2`): one pipeline for every request.
//!
//! Route → token (401) → rate (429) → media type (415) → body and query, parsed → session: what the caller may see
//! and do, then what was sent, its shape, its attributes, the state → rendering. Who may not act hears so before
//! anything that was sent is judged: what is wrong with a body is kept until it is asked for
//! ([`body::Document`]).
//!
//! A session is asked for when everything is parsed, and is over when rendering begins: it gives values of the
//! domain ([`reply::Answer`]), whose documents are made on the worker that took the request, or beside it when many
//! rows were read for them. Sessions that write stand where everything is committed. Documents and errors follow
//! JSON:API 1.1; every answer has the headers that known clients need. What is asked and what is answered is told to the
//! [`audit`](crate::audit), if anybody listens.
//!
//! From below: what was sent (`body`, `query`, [`request`]) and what is shown ([`reply`], `list`, `documents`),
//! [`route`], the `resources` with their tables, all tables ([`table`]), this pipeline.

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

use super::access::{Line, trace_of};
use super::address::caller_address;
use super::answers;
use super::body::{self as bodies, Share, is_too_long_to_begin, passed_over, raw};
use super::encoding::{self, ENCODED, is_encoded};
use super::entity_tag::EntityTags;
use super::passes::Times;
use super::pause;
use super::rate::Left;
use super::request_id::RequestId;
use super::sender::{Sender, Senders};
use super::state::State;
use crate::error::{Error, Kind};
use crate::projects::caller::Caller;
use crate::projects::refusal::{Fault, Outcome, Refusal, Stop};
use crate::projects::{Access, Tx};
use crate::secret::Secret;
use crate::telemetry::{self, RouteMeter};
use crate::turns::{self, asker_of, cpu};
use audit::Trail;
use body::Document;
use query::Query;
use render::{MEDIA_TYPE, Written};
use reply::Answer;
use request::{Call, Request};
use route::Route;
use table::Found;

/// What a client sends along that plans and applies.
static INTEGRATION: HeaderName = HeaderName::from_static("x-terraform-integration");

/// Answers one request. `raw_path` is what follows `/api/v2/` in the request line, still encoded.
pub async fn answer(state: State, request: &HttpRequest, raw_path: &str, payload: Payload) -> HttpResponse {
    state.passes().account(|times| answered(times, &state, request, raw_path, payload)).await
}

async fn answered(
    times: Times,
    state: &State,
    request: &HttpRequest,
    raw_path: &str,
    payload: Payload,
) -> HttpResponse {
    static UNROUTED: LazyLock<RouteMeter> = LazyLock::new(|| RouteMeter::new("projects", "none", "none".to_owned()));
    let payload = times.paced(request, payload);
    times.begin(request).await;
    let id = RequestId::of(request.headers());
    let mut rate = state.limits.untouched();
    let found = table::find(raw_path, request.method());
    let trace = trace_of(request.headers());
    if let Some(trace) = trace {
        times.belong_to(trace);
    }
    let mut line = Line::begin(id, trace, found.as_ref().map_or(&*UNROUTED, |found| found.meter));
    let mut trail = Trail::new(state, request, raw_path, &id, trace);
    let outcome = match found {
        Ok(found) => steps(state, request, found, payload, &mut rate, (&mut trail, &mut line, &times)).await,
        Err(refusal) => Err(refusal),
    };
    let mut recorded = trail.recorded(outcome).await;
    let room = recorded.as_mut().map(|written| std::mem::take(&mut written.room)).unwrap_or_default();
    let response = match recorded {
        // Tokens are shown where they are made, and nothing that is read holds one.
        Ok(written) if written.status == StatusCode::OK && matches!(*request.method(), Method::GET | Method::HEAD) => {
            let kept = render::not_modified(&written, request.headers(), &id, rate);
            let response = kept.unwrap_or_else(|| render::response(written, &id, rate));
            encoding::offered(response, request.headers()).await
        }
        Ok(written) => render::response(written, &id, rate),
        Err(refusal) => {
            render::log(&refusal, &id);
            pause::before(refusal.kind).await;
            let mut response = render::refusal(&refusal, &id, rate);
            if refusal.kind == Kind::UnsupportedMethod {
                render::set(response.headers_mut(), ALLOW, &table::allowed(raw_path));
            }
            encoding::tell_what_is_taken(&mut response, request.headers());
            response
        }
    };
    line.end(response.status().as_u16());
    answers::sent(response, room, &times)
}

async fn steps(
    state: &State,
    request: &HttpRequest,
    found: Found,
    payload: Payload,
    rate: &mut Option<Left>,
    (trail, line, times): (&mut Trail<'_>, &mut Line, &Times),
) -> Result<Written, Refusal> {
    let deadline = trail.deadline();
    if found.route.open {
        trail.skip();
    }
    let address = caller_address(request, &state.settings.trusted_proxies)?;
    line.from = address;
    if found.route.open {
        return Ok(Written::empty());
    }
    state.clock.require_agreed()?;
    let token = bearer(request.headers());
    trail.shown(token.as_ref().ok());
    let sender = state.senders.of(token.as_ref().ok(), address);
    times.are_of(&sender);
    times.turn().await;
    let reads = *found.route.method == Method::GET;
    if reads
        && !trail.is_kept()
        && let Ok(token) = token
    {
        let read = guarded(deadline, read(state, request, (&sender, address), found, token)).await;
        let Read { caller, left, answer } = read?;
        line.subject(caller.as_ref());
        *rate = left;
        let sender = Sender::of_subject(caller.as_ref(), address);
        times.are_of(&sender);
        let answer = answer?;
        state.answers.check(|| sender.clone())?;
        times.turn().await;
        let mut written = guarded(deadline, written(answer, turns::Caller::current())).await?;
        written.room = state.answers.take(written.octets(), reads, || sender)?;
        return Ok(written);
    }
    let caller = match token {
        Ok(token) => guarded(deadline, identify(state, &sender, token)).await,
        Err(refusal) => Err(refusal),
    };
    trail.known(caller.as_ref().ok());
    line.subject(caller.as_ref().ok());
    match state.limits.take(caller.as_ref().ok(), address) {
        Ok(left) => *rate = left,
        Err((refusal, left)) => {
            *rate = Some(left);
            return Err(refusal);
        }
    }
    let caller = caller?;
    state.projects.note_use(&caller);
    let headers = request.headers();
    let sender = Sender::of_subject(Some(&caller), address);
    times.are_of(&sender);
    bodies::known(request);
    let body = if reads { Bytes::new() } else { body(state, found.route, headers, payload, &caller).await? };
    times.turn().await;
    trail.sent(&body);
    let document = Document::parse(&body);
    drop(body);
    let query = Query::parse(request.query_string()).map_err(malformed)?;
    let if_match = EntityTags::of(headers, IF_MATCH).filter(|_| !reads);
    let route = found.route;
    let asked = Request { query, document, if_match, ..asked(state, request, found) };
    let call = Arc::new(Call { caller, request: Arc::new(asked) });
    state.answers.check(|| sender.clone())?;
    trail.intent().await?;
    let (answer, buried) = guarded(deadline, in_session(state, route, call, &sender)).await?;
    if let Some(organization) = buried {
        // What is done is done: the answer does not wait for all of it.
        let until = deadline.min(Instant::now() + CLEARING);
        let access = Access::Write(asker_of(&sender));
        let _ = tokio::time::timeout_at(until.into(), state.projects.clear(organization, access)).await;
    }
    times.turn().await;
    // A write is stored by now, and its answer must not become a refusal.
    let queued = if reads { turns::Caller::current() } else { turns::Caller::current().must_run() };
    let mut written = guarded(deadline, written(answer, queued)).await?;
    written.room = state.answers.take(written.octets(), reads, || sender)?;
    Ok(written)
}

/// How long the rest of something large that a request deleted is removed before that is answered.
const CLEARING: Duration = Duration::from_secs(1);

/// Rows that an answer is rendered from on the worker; more are rendered in the CPU queue.
const ON_A_WORKER: usize = 500;

/// The response body. A long one is rendered in the CPU queue for this caller.
async fn written(answer: Answer, queued: turns::Caller) -> Result<Written, Refusal> {
    match answer.rows() > ON_A_WORKER {
        true => Ok(cpu::run_as(queued, move || Written::of(answer.render())).await?),
        false => Ok(Written::of(answer.render())),
    }
}

/// What is known of a request before its query and its body are read.
fn asked(state: &State, request: &HttpRequest, found: Found) -> Request {
    Request {
        params: found.params,
        query: Query::default(),
        document: Document::default(),
        if_match: None,
        plans: request.headers().contains_key(&INTEGRATION),
        origin: state.origin().to_owned(),
        path: found.path,
    }
}

/// What the session of a read gives.
struct Read {
    /// Who asks, once the request is counted and its query reads.
    caller: Option<Caller>,
    /// What is left of the caller's rate.
    left: Option<Left>,
    answer: Result<Answer, Refusal>,
}

/// A read is one session: it finds out who asks, counts the request, and answers.
async fn read(
    state: &State,
    request: &HttpRequest,
    (sender, address): (&Sender, Option<IpAddr>),
    found: Found,
    token: Secret,
) -> Result<Read, Refusal> {
    let (shared, route) = (Arc::clone(state.shared()), found.route);
    let query = Query::parse(request.query_string());
    let asked = asked(state, request, found);
    let asked = query.map(|query| Arc::new(Request { query, ..asked }));
    let found = state.projects.run(route.name, Access::Read(asker_of(sender)), move |mut tx| {
        let (shared, asked, token) = (Arc::clone(&shared), asked.clone(), token.clone());
        async move {
            let caller = refused(identified(&mut tx, &shared.senders, &token).await)?;
            let left = match shared.limits.take(caller.as_ref().ok(), address) {
                Ok(left) => left,
                Err((refusal, left)) => return Ok(Read { caller: None, left: Some(left), answer: Err(refusal) }),
            };
            let call = caller.and_then(|caller| Ok(Call { caller, request: asked.map_err(malformed)? }));
            let call = match call {
                Ok(call) => call,
                Err(refusal) => return Ok(Read { caller: None, left, answer: Err(refusal) }),
            };
            let answer = refused((route.handler)(&mut tx, &call).await)?.map(|answer| answer.of_rows(tx.read()));
            Ok(Read { caller: Some(call.caller), left, answer })
        }
        .boxed_local()
    });
    let read = found.await?;
    if let Some(caller) = &read.caller {
        state.projects.note_use(caller);
    }
    Ok(read)
}

/// A refusal as something that a session gives, so that the session is not undone for it.
fn refused<T>(outcome: Outcome<T>) -> Outcome<Result<T, Refusal>> {
    match outcome {
        Err(Stop::Refused(refusal)) => Ok(Err(refusal)),
        other => other.map(Ok),
    }
}

/// What does not read, whoever sends it.
fn malformed(fault: Fault) -> Refusal {
    Refusal::of(Kind::Malformed, vec![fault])
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Result<Secret, Refusal> {
    let refused = || Refusal::new(Kind::Unauthenticated, "a bearer token is required");
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).ok_or_else(refused)?;
    let (scheme, token) = given.split_once(' ').ok_or_else(refused)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(refused());
    }
    Ok(Secret::new(token.trim()))
}

/// The caller behind the token, in a session of its own: a write is not begun for a stranger.
async fn identify(state: &State, sender: &Sender, token: Secret) -> Result<Caller, Refusal> {
    let shared = Arc::clone(state.shared());
    let caller = state.projects.run("projects_identify", Access::Read(asker_of(sender)), move |mut tx| {
        let (shared, token) = (Arc::clone(&shared), token.clone());
        async move { identified(&mut tx, &shared.senders, &token).await }.boxed_local()
    });
    caller.await
}

async fn identified(tx: &mut Tx<'_>, senders: &Senders, token: &Secret) -> Outcome<Caller> {
    let caller = Caller::identify(tx, std::str::from_utf8(token.expose()).unwrap_or_default()).await;
    if !matches!(caller, Err(Stop::Store(_))) {
        senders.note(token, caller.as_ref().ok());
    }
    caller
}

/// The body, when the route takes one and its media type is right.
async fn body(
    state: &State,
    route: &Route,
    headers: &HeaderMap,
    payload: Payload,
    caller: &Caller,
) -> Result<Bytes, Refusal> {
    let takes = matches!(*route.method, Method::POST | Method::PATCH);
    if takes {
        media_type(headers)?;
    }
    let limit = state.settings.max_body;
    let too_large = || Refusal::new(Kind::TooLarge, format!("the body is larger than {limit} bytes"));
    if is_too_long_to_begin(headers, limit) {
        return Err(too_large());
    }
    if is_encoded(headers) {
        passed_over(headers, payload, limit, state.settings.body_timeout).await?;
        return Err(Refusal::new(Kind::UnsupportedMedia, ENCODED));
    }
    let share = Share { bodies: &state.bodies, sender: &|| Sender::of_subject(Some(caller), None) };
    let body = raw(headers, payload, limit, share, state.settings.body_timeout).await?;
    if body.len() > limit {
        return Err(too_large());
    }
    if !takes && !body.is_empty() && *route.method == Method::DELETE {
        media_type(headers)?;
    }
    Ok(body)
}

/// JSON:API's media type, without parameters but `charset=utf-8`, whose value may be in quotes (RFC 9110, 5.6.6).
fn media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = given.split(';').map(str::trim);
    let right = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(MEDIA_TYPE))
        && parts.all(|one| ["charset=utf-8", "charset=\"utf-8\""].iter().any(|utf8| one.eq_ignore_ascii_case(utf8)));
    if right {
        return Ok(());
    }
    Err(Refusal::new(Kind::UnsupportedMedia, format!("Content-Type must be {MEDIA_TYPE}, without parameters")))
}

/// A request of a caller who was known before its body came, and is still, in one transaction; with the ended
/// organization of what is left of something large that it deleted.
async fn in_session(
    state: &State,
    route: &'static Route,
    call: Arc<Call>,
    sender: &Sender,
) -> Result<(Answer, Option<i64>), Refusal> {
    let asker = asker_of(sender);
    let access = if *route.method == Method::GET { Access::Read(asker) } else { Access::Write(asker) };
    let answered = state.projects.run(route.name, access, move |mut tx| {
        let call = Arc::clone(&call);
        async move {
            call.caller.must_stand(&mut tx).await?;
            precondition(&mut tx, route, &call).await?;
            let answer = (route.handler)(&mut tx, &call).await?;
            Ok((answer.of_rows(tx.read()), tx.buried()))
        }
        .boxed_local()
    });
    answered.await
}

/// `If-Match` on a change: held against the document that a read would show right now (RFC 9110, 13.1.1).
/// The resource is locked first, so that of two changes under the same condition one is refused. What the tag is of
/// must be rendered before the change: nothing else is while a session is held.
async fn precondition(tx: &mut Tx<'_>, route: &Route, call: &Call) -> Outcome<()> {
    let Some(demanded) = &call.if_match else { return Ok(()) };
    let unmet = |detail| Err(Refusal::new(Kind::Precondition, detail).into());
    let current = match table::show_of(route) {
        Some(show) => match current(tx, show, call).await {
            // What is made where it is read is not there yet.
            Err(Stop::Refused(refusal)) if refusal.kind == Kind::NotFound && makes_it(route, show) => None,
            current => Some(current?),
        },
        None => None,
    };
    match current {
        None => unmet("If-Match: there is nothing here that has an entity tag"),
        Some(tag) if demanded.name(&tag) => Ok(()),
        Some(_) => unmet("If-Match: the resource has changed since"),
    }
}

/// Whether a route makes what is read at its own path.
fn makes_it(route: &Route, show: &Route) -> bool {
    *route.method == Method::POST && route.pattern == show.pattern
}

/// The entity tag of what is to be changed, which is held from here on.
async fn current(tx: &mut Tx<'_>, show: &Route, call: &Call) -> Outcome<String> {
    let read = call.before_the_change();
    // Whoever may not see it is refused before anything is held.
    (show.handler)(tx, &read).await?;
    tx.hold_with_organization();
    let shown = (show.handler)(tx, &read).await?.render();
    Ok(Written::of(shown).tag.unwrap_or_default())
}

/// Ends work that panics or takes too long, so that neither costs more than its own request.
async fn guarded<T>(deadline: Instant, work: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    match tokio::time::timeout_at(deadline.into(), AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => {
            metrics::counter!(telemetry::PANICS).increment(1);
            Err(Error::internal("a request panicked").into())
        }
        Err(_) => Err(Refusal::new(Kind::Unavailable, "the request took too long")),
    }
}
