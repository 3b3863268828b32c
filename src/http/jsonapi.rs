//! The projects API (`/api/v2`): one pipeline for every request.
//!
//! Route → token (401) → rate (429) → media type (415) → session: what the caller may see and do, then the
//! body, its shape, its attributes, the state. Who may not act hears so before anything that was sent is
//! judged. Body and query are parsed before the session begins, and what is wrong with a body is kept until it
//! is asked for ([`body::Document`]): sessions that write stand where everything is committed. Documents and errors
//! follow JSON:API 1.1; every answer has the headers that known clients need.
//!
//! What can be asked stands in route tables, one file per resource; the handlers of a file parse what was
//! sent, call the rules in `projects` and render documents.

mod account;
mod agent_pools;
pub mod body;
mod limit;
mod list;
mod locks;
mod memberships;
mod organizations;
mod projects;
mod query;
mod render;
pub mod route;
mod tags;
mod team_projects;
mod teams;
mod tokens;
mod workspaces;

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use actix_web::http::Method;
use actix_web::http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, IF_MATCH};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::FutureExt as _;

use super::address::caller_address;
use super::encoding::{self, ENCODED, is_encoded};
use super::secrets::body::{is_too_long_to_begin, passed_over, raw};
use super::secrets::route::RequestId;
use super::secrets::state::State;
use crate::error::{Error, Kind};
use crate::projects::caller::Caller;
use crate::projects::refusal::{Fault, Outcome, Refusal, Stop};
use crate::projects::{Access, Tx};
use crate::secret::Secret;
use crate::telemetry::{self, RouteMeter};
use body::Document;
pub use limit::Limits;
use query::Query;
use render::Reply;
use route::{Call, Found, Route};

/// The media type of everything here.
pub const MEDIA_TYPE: &str = "application/vnd.api+json";
/// What a client sends along that plans and applies.
static INTEGRATION: HeaderName = HeaderName::from_static("x-terraform-integration");

/// Answers one request. `raw_path` is what follows `/api/v2/` in the request line, still encoded.
pub async fn answer(state: State, request: &HttpRequest, raw_path: &str, payload: Payload) -> HttpResponse {
    static UNROUTED: LazyLock<RouteMeter> = LazyLock::new(|| RouteMeter::new("projects", "none", "none".to_owned()));
    let started = Instant::now();
    let id = RequestId::random();
    let mut rate = None;
    let found = route::find(raw_path, request.method());
    let meter = found.as_ref().map_or(&*UNROUTED, |found| found.meter);
    let outcome = match found {
        Ok(found) => steps(&state, request, found, payload, &mut rate).await,
        Err(refusal) => Err(refusal),
    };
    let response = match outcome {
        // Tokens are shown where they are made, and nothing that is read holds one.
        Ok(reply @ Reply::Document(_)) if matches!(*request.method(), Method::GET | Method::HEAD) => {
            encoding::offered(render::reply(reply, &id, rate), request.headers()).await
        }
        Ok(reply) => render::reply(reply, &id, rate),
        Err(refusal) => {
            log(&refusal, &id);
            let mut response = render::refusal(&refusal, &id, rate);
            if refusal.kind == Kind::UnsupportedMethod {
                render::set(response.headers_mut(), ALLOW, &route::allowed(raw_path));
            }
            encoding::tell_what_is_taken(&mut response, request.headers());
            response
        }
    };
    meter.record(response.status().as_u16(), started.elapsed());
    response
}

async fn steps(
    state: &State,
    request: &HttpRequest,
    found: Found,
    payload: Payload,
    rate: &mut Option<limit::Left>,
) -> Result<Reply, Refusal> {
    let deadline = Instant::now() + state.settings.max_duration;
    let address = caller_address(request, &state.settings.trusted_proxies)?;
    if found.route.open {
        return Ok(Reply::Empty);
    }
    let token = bearer(request.headers());
    if *found.route.method == Method::GET
        && let Ok(token) = token
    {
        let read = guarded(deadline, read(state, request, address, found, token)).await;
        let (reply, left) = read?;
        *rate = left;
        return reply;
    }
    let caller = match token {
        Ok(token) => guarded(deadline, identify(state, token)).await,
        Err(refusal) => Err(refusal),
    };
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
    let body = body(state, found.route, headers, payload).await?;
    let document = Document::parse(&body);
    drop(body);
    let call = Arc::new(Call {
        caller,
        params: found.params,
        query: Query::parse(request.query_string()).map_err(malformed)?,
        document,
        if_match: if_match(headers)?,
        plans: headers.contains_key(&INTEGRATION),
        origin: state.origin().to_owned(),
        path: found.path,
    });
    guarded(deadline, in_session(state, found.route, call)).await
}

/// A read is one session: it finds out who asks, counts the request, and answers. What it answers, with
/// what is left of the caller's rate.
async fn read(
    state: &State,
    request: &HttpRequest,
    address: Option<IpAddr>,
    found: Found,
    token: Secret,
) -> Result<(Result<Reply, Refusal>, Option<limit::Left>), Refusal> {
    let shared = state.shared().clone();
    let query = Query::parse(request.query_string());
    let plans = request.headers().contains_key(&INTEGRATION);
    let asked = Arc::new((token, found, query));
    let answered = state.projects.run(asked.1.route.name, Access::Read, move |mut tx| {
        let (shared, asked) = (shared.clone(), asked.clone());
        async move {
            let (token, found, query) = &*asked;
            let caller = match identified(&mut tx, token).await {
                Err(Stop::Refused(refusal)) => Err(refusal),
                other => Ok(other?),
            };
            let left = match shared.limits.take(caller.as_ref().ok(), address) {
                Ok(left) => left,
                Err((refusal, left)) => return Ok((Err(refusal), Some(left))),
            };
            let query = || query.clone().map_err(malformed);
            let (caller, query) = match caller.and_then(|caller| Ok((caller, query()?))) {
                Ok(both) => both,
                Err(refusal) => return Ok((Err(refusal), left)),
            };
            shared.projects.note_use(&caller);
            let (params, path, origin) = (found.params.clone(), found.path.clone(), shared.origin().to_owned());
            let document = Document::default();
            let call = Call { caller, params, query, document, if_match: None, plans, origin, path };
            match (found.route.handler)(&mut tx, &call).await {
                Err(Stop::Refused(refusal)) => Ok((Err(refusal), left)),
                reply => Ok((Ok(reply?), left)),
            }
        }
        .boxed_local()
    });
    answered.await
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
async fn identify(state: &State, token: Secret) -> Result<Caller, Refusal> {
    let caller = state.projects.run("projects_identify", Access::Read, move |mut tx| {
        let token = token.clone();
        async move { identified(&mut tx, &token).await }.boxed_local()
    });
    caller.await
}

async fn identified(tx: &mut Tx<'_>, token: &Secret) -> Outcome<Caller> {
    Caller::identify(tx, std::str::from_utf8(token.expose()).unwrap_or_default()).await
}

/// The body, when the route takes one and its media type is right.
async fn body(state: &State, route: &Route, headers: &HeaderMap, payload: Payload) -> Result<Bytes, Refusal> {
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
        passed_over(headers, payload, limit, &state.settings, true).await?;
        return Err(Refusal::new(Kind::UnsupportedMedia, ENCODED));
    }
    let body = raw(headers, payload, limit, &state.bodies, &state.settings).await?;
    if body.len() > limit {
        return Err(too_large());
    }
    if !takes && !body.is_empty() && *route.method == Method::DELETE {
        media_type(headers)?;
    }
    Ok(body)
}

/// JSON:API's media type, without parameters but `charset=utf-8`.
fn media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = given.split(';').map(str::trim);
    let right = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(MEDIA_TYPE))
        && parts.all(|parameter| parameter.eq_ignore_ascii_case("charset=utf-8"));
    if right {
        return Ok(());
    }
    Err(Refusal::new(Kind::UnsupportedMedia, format!("Content-Type must be {MEDIA_TYPE}, without parameters")))
}

/// The entity tag that a change demands, as it was sent; `*` demands nothing more than the resource.
fn if_match(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let text = value.to_str().map_err(|_| Refusal::new(Kind::Malformed, "If-Match: does not read"))?.trim();
    Ok(Some(text.to_owned()).filter(|text| text != "*"))
}

/// A change, in one transaction.
async fn in_session(state: &State, route: &'static Route, call: Arc<Call>) -> Result<Reply, Refusal> {
    let answered = state.projects.run(route.name, Access::Write, move |mut tx| {
        let call = Arc::clone(&call);
        async move {
            precondition(&mut tx, route, &call).await?;
            (route.handler)(&mut tx, &call).await
        }
        .boxed_local()
    });
    answered.await
}

/// `If-Match` on a change: held against the document that a read would show right now (RFC 9110, 13.1.1).
/// The resource is locked first, so that of two changes under the same condition one is refused.
async fn precondition(tx: &mut Tx<'_>, route: &Route, call: &Call) -> Outcome<()> {
    let (Some(demanded), Some(show)) = (&call.if_match, route::show_of(route)) else { return Ok(()) };
    tx.hold();
    let current = (show.handler)(tx, call).await?;
    let tag = render::entity_tag(&current);
    if demanded.split(',').any(|one| Some(encoding::plain_tag(one.trim())) == tag) {
        return Ok(());
    }
    Err(Refusal::new(Kind::Precondition, "If-Match: the resource has changed since").into())
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

/// Causes go to the log, where an operator can act on them.
fn log(refusal: &Refusal, id: &RequestId) {
    let cause = refusal.cause.as_ref().and_then(std::error::Error::source).map(ToString::to_string);
    let detail = refusal.faults.first().map_or("", |fault| &fault.detail);
    match refusal.kind {
        Kind::Internal | Kind::Unavailable | Kind::BadGateway => {
            tracing::error!(request = %id, cause = cause.unwrap_or_default(), "{detail}");
        }
        _ => tracing::debug!(request = %id, "refused: {:?}", refusal.kind),
    }
}

/// How long a client should wait after a 503, seconds.
const RETRY_AFTER: Duration = Duration::from_secs(1);
