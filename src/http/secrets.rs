//! The secrets service (`/v1`): one pipeline for every request.
//!
//! Route, recognise (token, policy of the path), read the body, decide (token, policy), audit the intent, run
//! the handler, audit the outcome, render. The limits come first and hold for everyone: path, headers,
//! body, JSON. Whose policies do not grant the path is refused without his body being kept, after it went
//! by. Whether a mount exists is only told to those whose policies grant the path.
//!
//! What can be asked stands in route tables, one file per area ([`sys`], [`token`], [`pki`]); the
//! pipeline, the metrics and the tests that visit every route read the same ones.

pub mod answer;
pub mod audit;
pub mod body;
pub mod dialect;
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
use actix_web::http::header::{ALLOW, HeaderMap};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::FutureExt;
use tracing::Instrument;

use super::address::caller_address;
use super::encoding;
use crate::auth::Caller;
use crate::auth::mounts::{Mount, MountTable};
use crate::auth::policy::{Decision, Parameters, Place, Spelt};
use crate::error::{Error, Kind, Result};
use crate::fields::{Fields, MAX_TEXT};
use crate::telemetry::{self, RouteMeter};
use answer::{Answer, Body};
use body::Room;
use dialect::Dialect;
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
            let context = render::Context { mount_type, courtesies, headers: conditions, head };
            let response = render::answer(answer, &id, context);
            if trail.compressible { encoding::offered(response, request.headers()).await } else { response }
        }
        Err(error) => {
            log(&error, &id);
            let mut response = render::error(&error, &id, &trail.courtesies);
            if error.kind() == Kind::UnsupportedMethod {
                // Before anybody is known no path may say what it is.
                let methods = trail.methods.unwrap_or_else(|| route::methods(|_| true, state.settings.compat));
                render::set_text(&mut response, ALLOW, &methods);
            }
            encoding::tell_what_is_taken(&mut response, request.headers());
            response
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
    compressible: bool,
    /// The methods of a path that does not take the one of the request.
    methods: Option<String>,
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
    let mut asked = asked(&state.auth.mounts(), request, raw_path, settings)?;
    let target = Target::of(&state.auth.mounts(), &mut asked);
    trail.mount.clone_from(&target.mount);
    trail.meter = target.meter(asked.operation);
    let address = caller_address(request, &settings.trusted_proxies)?;
    let deadline = Instant::now() + settings.max_duration;
    let known = guarded(deadline, recognise(state, headers, &target, &asked)).await;
    let welcome = known.as_ref().is_ok_and(|known| known.may);
    let Sent { mut fields, body, room } = target.read(&asked, headers, payload, state, welcome).await?;
    request::root_namespace(headers, settings.compat)?;
    request::no_wrapping(headers, settings.compat)?;
    let deadline = Instant::now() + settings.max_duration;
    let admitted = guarded(deadline, admit(state, known?, &target, &asked, &fields)).await?;
    if asked.help {
        return target.help(&asked);
    }
    let found = target.found(&asked);
    if found.is_err() {
        trail.methods = target.methods(&asked, settings.compat);
    }
    let (mount, route, params) = found?;
    trail.compressible = route.compressible;
    trail.courtesies = courtesies(route, &params, &mut fields, &asked.path[target.below.clone()]);
    let call = Call {
        state: state.clone(),
        mount,
        route,
        below: target.below.clone(),
        full_path: asked.path,
        respelt: target.respelt,
        params,
        fields,
        media_type: if route.body == BodyKind::Raw { request::media_type(headers) } else { String::new() },
        body,
        _room: room,
        caller: admitted.caller,
        dialect: Dialect::of(headers, settings.compat),
        token: admitted.token,
        sudo: admitted.sudo,
        address,
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
    /// Where in the path names with several spellings are, and whether one was sent in another than the
    /// canonical spelling.
    spelt: Vec<Spelt>,
    respelt: bool,
}

impl Target {
    /// Where the path leads, which is put into canonical spelling.
    fn of(table: &MountTable, asked: &mut Asked) -> Self {
        let Some((mount, rest)) = table.route(&asked.path) else {
            return Self { mount: None, below: 0..0, found: Found::Nothing, spelt: Vec::new(), respelt: false };
        };
        let from = asked.path.len() - rest.len();
        let mut found = match (index(&mount.kind), &asked.tail) {
            (Some(index), None) => index.find(rest, asked.operation),
            (Some(index), Some(_)) => index.find_tailed(rest.strip_suffix('/').unwrap_or(rest), asked.operation),
            (None, _) => Found::Nothing,
        };
        let (mut spelt, mut respelt) = (Vec::new(), false);
        if let Found::Route(entry, _, params) = &mut found
            && let Some(canonical) = entry.canonical(rest, params)
        {
            (*params, spelt) = (canonical.params, below_mount(&asked.path[..from], canonical.spelt));
            respelt = canonical.path != rest;
            asked.path.replace_range(from.., &canonical.path);
        }
        let end = asked.path.strip_suffix('/').unwrap_or(&asked.path).len();
        Self { mount: Some(mount.clone()), below: from..end.max(from), found, spelt, respelt }
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

    /// The path as policies see it.
    fn place<'a>(&'a self, asked: &'a Asked) -> Place<'a> {
        Place { path: &asked.path, spelt: &self.spelt }
    }

    /// Whether a decision lets a request pass. Help is for everybody with a token.
    fn allows(&self, decision: Decision, asked: &Asked) -> bool {
        asked.help
            || match self.access() {
                Access::Open | Access::Caller => true,
                Access::Token => decision.allowed,
                Access::Sudo => decision.allowed && decision.sudo,
            }
    }

    /// A decision over fields, as the route reads them. Where there is no route, none is read.
    fn decided(&self, fields: &Fields, decide: impl FnOnce(Option<&Parameters<'_>>) -> Decision) -> Decision {
        let Found::Route(_, route, params) = &self.found else { return decide(None) };
        let read = (route.body != BodyKind::Verbatim).then_some(route.fields);
        decide(Some(&Parameters { fields, read, in_path: &params.names(), synonyms: route.synonyms }))
    }

    /// What was sent, when its sender is welcome and the route reads it.
    async fn read(
        &self,
        asked: &Asked,
        headers: &HeaderMap,
        payload: Payload,
        state: &State,
        welcome: bool,
    ) -> Result<Sent> {
        let (settings, bodies) = (&state.settings, &state.bodies);
        let route = match &self.found {
            Found::Route(_, route, _) => Some(*route),
            Found::OtherOperation(_) | Found::Nothing => None,
        };
        let raw = route.is_some_and(|route| route.body == BodyKind::Raw);
        let writes = matches!(asked.operation, Operation::Create | Operation::Update | Operation::Patch);
        let limit = match route.and_then(|route| route.body_limit) {
            Some(limit) if raw => limit,
            Some(limit) => settings.max_body.min(limit),
            None if self.access() == Access::Open => settings.max_body.min(route::OPEN_BODY),
            None => settings.max_body,
        };
        if welcome && writes && encoding::is_encoded(headers) {
            body::passed_over(headers, payload, limit, settings, welcome).await?;
            return Err(Error::new(Kind::UnsupportedMedia, encoding::ENCODED));
        }
        if raw && welcome {
            let body = match &asked.tail {
                Some(tail) => tail.slice(..tail.len().min(limit + 1)),
                None => body::raw(headers, payload, limit, bodies, settings).await?,
            };
            return Ok(Sent { body, ..Sent::default() });
        }
        if !welcome || !writes || route.is_none() {
            let passed = body::passed_over(headers, payload, limit, settings, welcome).await;
            // Who is refused anyway hears that, but for what holds before anybody is known.
            passed.or_else(|error| if welcome || error.kind() == Kind::TooLarge { Err(error) } else { Ok(()) })?;
            let query = asked.query.iter().filter(|_| !writes).cloned();
            return Ok(Sent { fields: Fields::from_pairs(query), ..Sent::default() });
        }
        let (body, room) = body::kept(headers, payload, limit, bodies, settings).await?;
        let longest = route.map_or(MAX_TEXT, |route| route.longest_text);
        Ok(Sent { fields: request::fields(&body, headers, longest)?, body: Bytes::new(), room })
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

    /// The methods that the path takes, when it does not take the one that was asked for.
    fn methods(&self, asked: &Asked, compat: bool) -> Option<String> {
        let (Found::OtherOperation(entry), Some(mount)) = (&self.found, &self.mount) else { return None };
        let (index, rest) = (index(&mount.kind)?, asked.path.get(self.below.start..)?);
        let path = if asked.operation == Operation::List { rest.strip_suffix('/').unwrap_or(rest) } else { rest };
        let takes = |operation| match &asked.tail {
            Some(_) => entry.route(operation).is_some(),
            None => matches!(index.find(path, operation), Found::Route(..)),
        };
        Some(route::methods(takes, compat))
    }

    fn help(&self, asked: &Asked) -> Result<Answer> {
        let entry = match &self.found {
            Found::Route(entry, ..) | Found::OtherOperation(entry) => entry,
            Found::Nothing => return self.found(asked).map(|_| Answer::empty()),
        };
        Ok(Body::Plain(serde_json::json!({ "help": help_text(entry), "see_also": null, "openapi": null })).into())
    }
}

/// Places below a mount, counted from the begin of the whole path.
fn below_mount(mount: &str, spelt: Vec<Spelt>) -> Vec<Spelt> {
    let depth = mount.matches('/').count();
    spelt.into_iter().map(|place| place.behind(depth)).collect()
}

/// The words of what `holder` may do on a path, whatever its spelling.
fn capabilities(state: &State, holder: &Caller, path: &str) -> Vec<&'static str> {
    let table = state.auth.mounts();
    // No request has a longer path.
    let asked = Some(path).filter(|path| path.len() <= path::MAX_PATH);
    let canonical = asked.and_then(|path| table.route(path)).and_then(|(mount, rest)| {
        let found = index(&mount.kind)?.canonical(rest)?;
        let prefix = &path[..path.len() - rest.len()];
        Some((format!("{prefix}{}", found.path), below_mount(prefix, found.spelt)))
    });
    match &canonical {
        Some((path, spelt)) => state.auth.capabilities(holder, Place { path, spelt }),
        None => state.auth.capabilities(holder, path.into()),
    }
}

fn help_text(entry: &Entry) -> String {
    let lines = entry.routes().map(|route| {
        let fields = if route.fields.is_empty() { "none".to_owned() } else { route.fields.join(", ") };
        format!("{} {}\n    fields: {fields}\n", route::operation_word(route.operation), route.pattern)
    });
    lines.collect()
}

/// What a request carries beside its head.
#[derive(Default)]
struct Sent {
    fields: Fields,
    body: Bytes,
    room: Room,
}

/// Who asks, as far as the head of a request says.
struct Known {
    caller: Option<(Arc<Caller>, Token)>,
    /// Whether some request for this operation on this path would be admitted.
    may: bool,
}

#[derive(Default)]
struct Admitted {
    caller: Option<Arc<Caller>>,
    token: Option<Token>,
    sudo: bool,
}

/// Finds out who asks, before the body is read. One text for every refusal: absent, unknown and ended
/// tokens look alike, and so do paths with and without a mount.
async fn recognise(state: &State, headers: &HeaderMap, target: &Target, asked: &Asked) -> Result<Known> {
    if target.access() == Access::Open {
        return Ok(Known { caller: None, may: true });
    }
    let token = request::token(headers, state.settings.compat)?.ok_or_else(Error::forbidden)?;
    // What was granted once may have been taken away on another node since.
    state.nodes.fresh().await?;
    let caller = state.auth.recognise(token.expose()).await.map_err(one_refusal)?;
    let decision = state.auth.decide(&caller, asked.operation, target.place(asked), None);
    Ok(Known { may: target.allows(decision, asked), caller: Some((caller, token)) })
}

/// Finds out whether they may do what the whole request says.
async fn admit(state: &State, known: Known, target: &Target, asked: &Asked, fields: &Fields) -> Result<Admitted> {
    let Some((caller, token)) = known.caller else { return Ok(Admitted::default()) };
    // The body may have taken its time.
    state.nodes.fresh().await?;
    let caller = state.auth.admit(caller).await.map_err(one_refusal)?;
    if caller.uses_left() == Some(0) {
        // The token ended with this use, and with it the leases that it made.
        state.engine.wake_leases();
    }
    let decide = |sent: Option<&Parameters<'_>>| state.auth.decide(&caller, asked.operation, target.place(asked), sent);
    let decision = target.decided(fields, decide);
    if !known.may || !target.allows(decision, asked) {
        return Err(Error::forbidden());
    }
    Ok(Admitted { caller: Some(caller), token: Some(token), sudo: decision.sudo })
}

fn one_refusal(error: Error) -> Error {
    match error.kind() {
        Kind::Unauthenticated => Error::forbidden(),
        _ => error,
    }
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
    let mut warnings: Vec<String> = unrecognised(unknown).into_iter().collect();
    if !replaced.is_empty() {
        warnings.push(format!(
            "Endpoint replaced the value of these parameters with the values captured from the endpoint's path: [{}]",
            replaced.join(" ")
        ));
    }
    warnings
}

/// The warning about fields that nobody reads. Their names are the caller's: it repeats so many, and so many
/// characters of each.
fn unrecognised<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<String> {
    const MOST: usize = 20;
    const LONGEST: usize = 64;
    let begin = |name: &'a str| name.char_indices().nth(LONGEST).map_or(name, |(end, _)| &name[..end]);
    let first: Vec<_> = names.by_ref().take(MOST).map(begin).collect();
    let more = match names.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!first.is_empty()).then(|| format!("Endpoint ignored these unrecognized parameters: [{}]{more}", first.join(" ")))
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
            let name = pattern.split_once("*name").map_or("", |(_, behind)| behind);
            assert!(name.is_empty(), "{kind} {pattern}: the name of a policy is the rest of its path");
            let folded = |name: &&str| name.chars().any(|c| !c.is_ascii_lowercase() && c != '_' && !c.is_ascii_digit());
            assert_eq!(route.fields.iter().find(|name| folded(name)), None, "{kind} {pattern}");
            let known = |name: &str| route.fields.contains(&name);
            assert!(route.synonyms.iter().all(|(one, other)| known(one) && known(other)), "{kind} {pattern}");
            let bounded = route.body_limit.is_some_and(|limit| limit <= 64 << 10);
            assert!(route.access != Access::Open || bounded, "{kind} {pattern}: a body of anybody");
            assert!(seen.insert((kind, pattern, route.operation)), "twice: {kind} {pattern} {:?}", route.operation);
            assert_ne!(route.operation, Operation::Create, "{kind} {pattern}: writes are Update");
        }
    }
}
