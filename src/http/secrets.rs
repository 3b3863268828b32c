//! The secrets service (`/v1`): one pipeline for every request.
//!
//! Route, decide (token, policy), audit the intent, run the handler, audit the outcome, render. The
//! limits come first and hold for everyone: path, headers, body, JSON. Whether a mount exists is only
//! told to those whose policies grant the path.
//!
//! What can be asked stands in route tables, one file per area ([`sys`], [`token`], [`pki`]); the
//! pipeline, the metrics and the tests that visit every route read the same ones.

pub mod answer;
pub mod audit;
pub mod index;
mod page;
pub mod path;
pub mod pki;
pub mod reach;
pub mod render;
pub mod request;
pub mod route;
pub mod state;
pub mod sys;
pub mod token;

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use actix_web::http::Method;
use actix_web::http::header::HeaderMap;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::FutureExt;
use tracing::Instrument;

use crate::auth::Caller;
use crate::auth::mounts::{Mount, MountTable};
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use crate::telemetry::{self, RouteMeter};
use answer::{Answer, Body};
use index::{Entry, Found, Index};
use request::Asked;
use route::{Access, BodyKind, Call, Operation, Params, RequestId, Route, Token};
use state::{Settings, State};

/// Answers one request. `raw_path` is what follows `/v1/` in the request line, still encoded.
pub async fn answer(state: State, request: &HttpRequest, raw_path: &str, payload: Payload) -> HttpResponse {
    static UNROUTED: LazyLock<RouteMeter> = LazyLock::new(|| RouteMeter::new("secrets", "none", "none".to_owned()));
    let started = Instant::now();
    let id = RequestId::random();
    let mut trail = Trail::default();
    // At debug: a span for every request costs more than the rest of the pipeline; refusals and
    // failures carry the id themselves.
    let span = tracing::debug_span!("request", %id);
    let outcome = steps(&state, request, raw_path, payload, id, &mut trail).instrument(span.clone()).await;
    let response = match outcome {
        Ok(answer) => {
            let mount_type = trail.mount.as_ref().map_or("", |m| &m.kind[..]);
            let head = request.method() == Method::HEAD;
            let conditions = matches!(*request.method(), Method::GET | Method::HEAD).then(|| request.headers());
            let courtesies = trail.courtesies;
            render::answer(answer, &id, render::Context { mount_type, courtesies, headers: conditions, head })
        }
        Err(error) => {
            log(&error, &id);
            render::error(&error, &id, &trail.courtesies)
        }
    };
    trail.meter.unwrap_or(&UNROUTED).record(response.status().as_u16(), started.elapsed());
    response
}

/// What is learnt on the way and needed for the answer, whatever the outcome.
#[derive(Default)]
struct Trail {
    mount: Option<Arc<Mount>>,
    meter: Option<&'static RouteMeter>,
    courtesies: Vec<String>,
}

async fn steps(
    state: &State,
    request: &HttpRequest,
    raw_path: &str,
    payload: Payload,
    id: RequestId,
    trail: &mut Trail,
) -> Result<Answer> {
    let (settings, headers) = (&state.settings, request.headers());
    let asked = asked(&state.auth.mounts(), request, raw_path, settings)?;
    let target = Target::of(&state.auth.mounts(), &asked);
    trail.mount.clone_from(&target.mount);
    trail.meter = target.meter(asked.operation);
    let (mut fields, body) = target.read(&asked, headers, payload, settings).await?;
    request::root_namespace(headers, settings.compat)?;
    request::no_wrapping(headers, settings.compat)?;
    let deadline = Instant::now() + settings.max_duration;
    let admitted = guarded(deadline, admit(state, headers, &target, &asked, &fields)).await?;
    if asked.help {
        return target.help(&asked);
    }
    let (mount, route, params) = target.found(&asked)?;
    trail.courtesies = courtesies(route, &params, &mut fields, &asked.path[target.below.clone()]);
    let call = Call {
        state: state.clone(),
        mount,
        route,
        below: target.below.clone(),
        full_path: asked.path,
        params,
        fields,
        media_type: if matches!(route.body, BodyKind::Raw { .. }) {
            request::media_type(headers)
        } else {
            String::new()
        },
        body,
        caller: admitted.caller,
        token: admitted.token,
        sudo: admitted.sudo,
        request_id: id,
    };
    run(state, call, deadline).await
}

/// What is asked for. A tail that a route takes as it was sent never meets the rules for paths.
fn asked(table: &MountTable, request: &HttpRequest, raw_path: &str, settings: &Settings) -> Result<Asked> {
    let reads = matches!(request.method().as_str(), "GET" | "HEAD");
    let tail = table.route(raw_path).filter(|_| reads).and_then(|(mount, rest)| {
        let at = index(&mount.kind)?.tail(rest)?;
        Some(raw_path.len() - rest.len() + at)
    });
    let Some(at) = tail else { return request::asked(request, raw_path, settings) };
    // The path ends before the slash.
    let asked = request::asked(request, &raw_path[..at - 1], settings)?;
    Ok(Asked { tail: Some(Bytes::copy_from_slice(&raw_path.as_bytes()[at..])), ..asked })
}

/// The audited run of a handler.
async fn run(state: &State, call: Call, deadline: Instant) -> Result<Answer> {
    let recorded = state.audit.intent(&call)?;
    let handler = call.route.handler;
    let outcome = guarded(deadline, async move { handler(call).await }).await;
    state.audit.outcome(recorded, outcome.as_ref())?;
    outcome
}

/// Ends work that panics or takes too long, so that neither costs more than its own request.
async fn guarded<T>(deadline: Instant, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout_at(deadline.into(), AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => {
            metrics::counter!(telemetry::PANICS).increment(1);
            Err(Error::internal("a request panicked"))
        }
        Err(_) => Err(Error::new(Kind::Unavailable, "the request took too long")),
    }
}

/// Where a path leads.
struct Target {
    mount: Option<Arc<Mount>>,
    /// The part of the path below the mount, without a list's trailing `/`.
    below: Range<usize>,
    found: Found<'static>,
}

impl Target {
    fn of(table: &MountTable, asked: &Asked) -> Self {
        let Some((mount, rest)) = table.route(&asked.path) else {
            return Self { mount: None, below: 0..0, found: Found::Nothing };
        };
        let from = asked.path.len() - rest.len();
        let below = from..from + rest.strip_suffix('/').unwrap_or(rest).len();
        let found = match (index(&mount.kind), &asked.tail) {
            (Some(index), None) => index.find(rest, asked.operation),
            (Some(index), Some(_)) => index.find_tailed(rest.strip_suffix('/').unwrap_or(rest), asked.operation),
            (None, _) => Found::Nothing,
        };
        Self { mount: Some(mount.clone()), below, found }
    }

    fn meter(&self, operation: Operation) -> Option<&'static RouteMeter> {
        match &self.found {
            Found::Route(entry, ..) => entry.meter(operation),
            Found::OtherOperation(_) | Found::Nothing => None,
        }
    }

    /// Who may learn what is there. A pattern whose every route is open may tell anyone that it
    /// lacks a method.
    fn access(&self) -> Access {
        match &self.found {
            Found::Route(_, route, _) => route.access,
            Found::OtherOperation(entry) if entry.routes().all(|r| r.access == Access::Open) => Access::Open,
            Found::OtherOperation(_) | Found::Nothing => Access::Token,
        }
    }

    async fn read(
        &self,
        asked: &Asked,
        headers: &HeaderMap,
        payload: Payload,
        settings: &Settings,
    ) -> Result<(Fields, Bytes)> {
        if let Found::Route(_, Route { body: BodyKind::Raw { limit }, .. }, _) = self.found {
            let body = match &asked.tail {
                Some(tail) => tail.slice(..tail.len().min(limit + 1)),
                None => request::raw_body(payload, *limit, settings).await?,
            };
            return Ok((Fields::default(), body));
        }
        let body = request::body(headers, payload, settings).await?;
        let fields = match asked.operation {
            Operation::Create | Operation::Update | Operation::Patch => request::fields(&body, headers)?,
            Operation::Read | Operation::List | Operation::Delete => Fields::from_pairs(asked.query.iter().cloned()),
        };
        Ok((fields, Bytes::new()))
    }

    fn found(&self, asked: &Asked) -> Result<(Arc<Mount>, &'static Route, Params)> {
        let Some(mount) = &self.mount else {
            return Err(Error::new(Kind::NotFound, format!("no handler for route \"{}\"", asked.path)));
        };
        match &self.found {
            Found::Route(_, route, params) => {
                let below = &asked.path[self.below.clone()];
                match params.iter(below).find(|(_, value)| value.len() > index::MAX_NAME && !value.contains('/')) {
                    Some((name, _)) => {
                        Err(Error::invalid(format!("{name}: longer than {} characters", index::MAX_NAME)))
                    }
                    None => Ok((mount.clone(), route, *params)),
                }
            }
            Found::OtherOperation(_) => Err(Error::new(Kind::UnsupportedMethod, "unsupported operation")),
            Found::Nothing => Err(Error::new(Kind::NotFound, "unsupported path")),
        }
    }

    fn help(&self, asked: &Asked) -> Result<Answer> {
        let entry = match &self.found {
            Found::Route(entry, ..) | Found::OtherOperation(entry) => entry,
            Found::Nothing => return self.found(asked).map(|_| Answer::empty()),
        };
        Ok(Body::Plain(serde_json::json!({ "help": help_text(entry), "see_also": null, "openapi": null })).into())
    }
}

fn help_text(entry: &Entry) -> String {
    let lines = entry.routes().map(|route| {
        let fields = if route.fields.is_empty() { "none".to_owned() } else { route.fields.join(", ") };
        format!("{} {}\n    fields: {fields}\n", route::operation_word(route.operation), route.pattern)
    });
    lines.collect()
}

#[derive(Default)]
struct Admitted {
    caller: Option<Arc<Caller>>,
    token: Option<Token>,
    sudo: bool,
}

/// Finds out who asks and whether they may. One text for every refusal: absent, unknown and ended
/// tokens look alike, and so do paths with and without a mount.
async fn admit(
    state: &State,
    headers: &HeaderMap,
    target: &Target,
    asked: &Asked,
    fields: &Fields,
) -> Result<Admitted> {
    let access = target.access();
    if access == Access::Open {
        return Ok(Admitted::default());
    }
    let token = request::token(headers, state.settings.compat)?.ok_or_else(Error::forbidden)?;
    // What was granted once may have been taken away on another node since.
    state.nodes.fresh().await?;
    let caller = state.auth.identify(token.expose()).await.map_err(|error| match error.kind() {
        Kind::Unauthenticated => Error::forbidden(),
        _ => error,
    })?;
    if caller.uses_left() == Some(0) {
        // The token ended with this use, and with it the leases that it made.
        state.engine.wake_leases();
    }
    let decision = state.auth.decide(&caller, asked.operation, &asked.path, fields);
    let allowed = match access {
        Access::Open | Access::Caller => true,
        Access::Token => decision.allowed,
        Access::Sudo => decision.allowed && decision.sudo,
    };
    if !allowed && !asked.help {
        return Err(Error::forbidden());
    }
    Ok(Admitted { caller: Some(caller), token: Some(token), sudo: decision.sudo })
}

/// Lets path parameters win over fields of the same name, and says so; names fields nobody reads.
fn courtesies(route: &Route, params: &Params, fields: &mut Fields, below: &str) -> Vec<String> {
    if fields.is_empty() || route.body == BodyKind::Verbatim {
        return Vec::new();
    }
    let mut replaced = Vec::new();
    for (name, value) in params.iter(below).filter(|(name, _)| fields.has(name)).collect::<Vec<_>>() {
        fields.set(name, value);
        replaced.push(name);
    }
    let unknown = fields.unknown(route.fields).filter(|name| params.iter(below).all(|(n, _)| n != *name));
    let unknown: Vec<_> = unknown.collect();
    let mut warnings = Vec::new();
    if !unknown.is_empty() {
        warnings.push(format!("Endpoint ignored these unrecognized parameters: [{}]", unknown.join(" ")));
    }
    if !replaced.is_empty() {
        warnings.push(format!(
            "Endpoint replaced the value of these parameters with the values captured from the endpoint's path: [{}]",
            replaced.join(" ")
        ));
    }
    warnings
}

/// Causes go to the log, where an operator can act on them.
fn log(error: &Error, id: &RequestId) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    match error.kind() {
        Kind::Internal | Kind::Unavailable | Kind::BadGateway => tracing::error!(request = %id, cause, "{error}"),
        _ => tracing::debug!(request = %id, "refused: {:?}", error.kind()),
    }
}

/// The tables of every kind of mount: its word, the word in the metrics, the routes.
static TABLES: LazyLock<[(&'static str, &'static [Route], Index); 3]> = LazyLock::new(|| {
    let table = |kind, routes: &'static [Route]| (kind, routes, Index::new(kind, &[routes]));
    [table("pki", pki::ROUTES), table("token", token::ROUTES), table("system", sys::ROUTES)]
});

fn index(kind: &str) -> Option<&'static Index> {
    TABLES.iter().find(|(k, ..)| *k == kind).map(|(.., index)| index)
}

/// Every route with the kind of its mount, for tests that visit them all.
pub fn all_routes() -> impl Iterator<Item = (&'static str, &'static Route)> {
    TABLES.iter().flat_map(|(kind, routes, _)| routes.iter().map(|route| (*kind, route)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_web::test]
    async fn a_panic_or_a_long_run_costs_its_own_request_only() {
        let long = Instant::now() + std::time::Duration::from_secs(5);
        assert!(guarded(long, async { Ok(Answer::empty()) }).await.is_ok());
        let panicked = guarded::<Answer>(long, async { panic!("hunter2") }).await.err().unwrap();
        assert_eq!((panicked.kind(), panicked.text()), (Kind::Internal, "internal error"));
        let late = guarded::<Answer>(Instant::now(), std::future::pending()).await.err().unwrap();
        assert_eq!(late.kind(), Kind::Unavailable);
    }

    #[test]
    fn every_route_has_a_sound_pattern() {
        let mut seen = std::collections::HashSet::new();
        for (kind, route) in all_routes() {
            let pattern = route.pattern;
            let params = pattern.split('/').filter(|s| s.starts_with([':', '*'])).count();
            assert!(params <= Params::MAX, "{kind} {pattern}");
            let (rests, tails) = (pattern.matches('*').count(), pattern.matches("**").count());
            assert!(rests <= 1 + tails && tails <= 1 && !pattern.ends_with('/'), "{kind} {pattern}");
            let tail = pattern.split_once("**").map_or("", |(literals, _)| literals);
            assert!(!tail.contains(':') && (tail.is_empty() || route.access == Access::Open), "{kind} {pattern}");
            assert!(seen.insert((kind, pattern, route.operation)), "twice: {kind} {pattern} {:?}", route.operation);
            assert_ne!(route.operation, Operation::Create, "{kind} {pattern}: writes are Update");
        }
    }
}
