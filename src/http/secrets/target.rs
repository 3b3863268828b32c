//! Resolves a request to its mount and route, and reads the body as the route requires.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::HeaderMap;
use actix_web::web::Payload;
use bytes::Bytes;

use super::handler_response::{HandlerResponse, ResponseBody};
use super::index::{MAX_NAME_LEN, PathPattern, RouteMatch};
use super::request::{self, ParsedRequest, RequestToken};
use super::route::{self, BodyKind, ExistenceQuery, Operation, PathParams, Route, RouteAccess};
use super::{index_of, routes_of, sudo};
use crate::auth::Caller;
use crate::auth::mounts::{Mount, MountKind, MountTable};
use crate::auth::policy::{Decision, NameSegments, RequestParameters, RequestPath};
use crate::error::{Error, Kind, Result};
use crate::fields::{Fields, MAX_TEXT_BYTES};
use crate::http::body::{self, BodyBudget};
use crate::http::encoding;
use crate::http::fair_scheduler::CpuAccount;
use crate::http::sender::Sender;
use crate::http::sender::SenderReservation;
use crate::http::settings::HttpSettings;
use crate::http::state::WorkerState;
use crate::telemetry::RouteMeter;

pub(super) struct ResolvedRoute {
    pub(super) mount: Option<Arc<Mount>>,
    /// The range of the path below the mount, without the trailing `/` of a list.
    pub(super) below_mount: Range<usize>,
    found: RouteMatch<'static>,
    /// The path segments whose names have alternative spellings.
    spelt: Vec<NameSegments>,
    /// `true` if the client sent a name that was not in canonical spelling.
    pub(super) was_normalized: bool,
    /// `true` if the client's path named a type of managed keys as a compatible server does. That name was replaced by
    /// this server's name.
    pub(super) used_alias: bool,
    /// `true` if the path has no route for the operation, but requires `sudo`.
    needs_sudo: bool,
}

impl ResolvedRoute {
    /// Resolves the path of a request, and replaces it by its canonical spelling.
    pub(super) fn resolve(table: &MountTable, parsed: &mut ParsedRequest) -> Self {
        let Some((mount, rest)) = table.route(&parsed.path) else {
            return Self {
                mount: None,
                below_mount: 0..0,
                found: RouteMatch::NoMatch,
                spelt: Vec::new(),
                was_normalized: false,
                used_alias: false,
                needs_sudo: false,
            };
        };
        let from = parsed.path.len() - rest.len();
        let mut found = match (index_of(&mount.kind), &parsed.tail) {
            (Some(index), None) => index.find(rest, parsed.operation),
            (Some(index), Some(_)) => index.find_tail_route(rest.strip_suffix('/').unwrap_or(rest), parsed.operation),
            (None, _) => RouteMatch::NoMatch,
        };
        let needs_sudo =
            !matches!(found, RouteMatch::Route(..)) && sudo::requires_sudo(&mount.kind, rest, parsed.operation);
        let mut spelt = Vec::new();
        let mut was_normalized = false;
        let mut used_alias = false;
        if let RouteMatch::Route(entry, _, params) = &mut found
            && let Some(canonical) = entry.canonical(rest, params)
        {
            (*params, spelt) = (canonical.params, offset_spellings(&parsed.path[..from], canonical.spelt));
            (was_normalized, used_alias) = (canonical.was_normalized, canonical.used_alias);
            parsed.path.replace_range(from.., &canonical.path);
        }
        let end = parsed.path.strip_suffix('/').unwrap_or(&parsed.path).len();
        Self {
            mount: Some(mount.clone()),
            below_mount: from..end.max(from),
            found,
            spelt,
            was_normalized,
            used_alias,
            needs_sudo,
        }
    }

    fn route(&self) -> Option<&'static Route> {
        match &self.found {
            RouteMatch::Route(_, route, _) => Some(route),
            RouteMatch::OtherOperation(_) | RouteMatch::NoMatch => None,
        }
    }

    pub(super) fn meter(&self, operation: Operation) -> Option<&'static RouteMeter> {
        match &self.found {
            RouteMatch::Route(entry, ..) => entry.meter(operation),
            RouteMatch::OtherOperation(_) | RouteMatch::NoMatch => None,
        }
    }

    /// Returns the maximum size of the body in bytes.
    pub(super) fn body_limit(&self, settings: &HttpSettings) -> usize {
        match self.route().and_then(|route| route.body_limit.map(|limit| (limit, route.body == BodyKind::Raw))) {
            Some((limit, true)) => limit,
            Some((limit, false)) => settings.max_body.min(limit),
            None if self.access() == RouteAccess::Open => settings.max_body.min(route::MAX_UNAUTHENTICATED_BODY_BYTES),
            None => settings.max_body,
        }
    }

    pub(super) fn pattern(&self) -> Option<&'static str> {
        self.route().map(|route| route.pattern)
    }

    pub(super) fn is_on_public_listener(&self) -> bool {
        self.route().is_some_and(|route| route.on_public_listener && route.access == RouteAccess::Open)
    }

    /// `true` for a read of the metrics. It must work while the store is unavailable, because the metrics report that.
    pub(super) fn is_metrics(&self) -> bool {
        let system = self.mount.as_ref().is_some_and(|mount| mount.kind == MountKind::System);
        system && self.pattern() == Some("metrics")
    }

    pub(super) fn is_audited(&self) -> bool {
        self.route().is_none_or(|route| route.audited)
    }

    /// Returns the permission that a caller needs to learn whether the path exists. If no route of a pattern needs a
    /// token, the caller may also learn without a token which methods the path lacks.
    pub(super) fn access(&self) -> RouteAccess {
        match &self.found {
            RouteMatch::Route(_, route, _) => route.access,
            RouteMatch::OtherOperation(entry) if entry.routes().all(|r| r.access == RouteAccess::Open) => {
                RouteAccess::Open
            }
            RouteMatch::OtherOperation(_) | RouteMatch::NoMatch if self.needs_sudo => RouteAccess::Sudo,
            RouteMatch::OtherOperation(_) | RouteMatch::NoMatch => RouteAccess::Token,
        }
    }

    /// Returns the operation whose capability the caller needs: `Create` for a write to a resource that does not exist,
    /// if the route distinguishes this. Existence is checked only if the caller has exactly one of `create` and the
    /// capability of the requested operation.
    ///
    /// # Errors
    /// Errors of the mount and its store.
    pub(super) async fn needed_operation(
        &self,
        state: &WorkerState,
        caller: &Caller,
        parsed: &ParsedRequest,
    ) -> Result<Operation> {
        let (Some(mount), RouteMatch::Route(_, route, params)) = (&self.mount, &self.found) else {
            return Ok(parsed.operation);
        };
        let Some(exists) = route.exists.filter(|_| self.depends_on_existence(state, caller, parsed)) else {
            return Ok(parsed.operation);
        };
        let below_mount = parsed.path.get(self.below_mount.clone()).unwrap_or_default();
        let named = ExistenceQuery { state, mount, caller, below_mount, params: *params };
        Ok(if exists(named).await? { parsed.operation } else { Operation::Create })
    }

    /// `true` if the needed capability depends on whether the resource exists, and the caller has exactly one of
    /// `create` and the operation's capability.
    pub(super) fn depends_on_existence(&self, state: &WorkerState, caller: &Caller, parsed: &ParsedRequest) -> bool {
        let may = |operation| state.auth.decide(caller, operation, self.request_path(parsed), None).allowed;
        self.route().is_some_and(|route| route.exists.is_some()) && may(Operation::Create) != may(parsed.operation)
    }

    /// Returns the path in the form to which policies apply.
    pub(super) fn request_path<'a>(&'a self, parsed: &'a ParsedRequest) -> RequestPath<'a> {
        RequestPath { path: &parsed.path, spelt: &self.spelt }
    }

    pub(super) fn is_login(&self) -> bool {
        let mount = self.mount.as_ref().is_some_and(|mount| mount.is_auth());
        mount && self.pattern() == Some("login")
    }

    /// Returns the role in the path of an issue or sign request; `""` for other paths.
    pub(super) fn role<'a>(&self, parsed: &'a ParsedRequest) -> &'a str {
        const PATTERN_ENDS_WITH_ROLE: [&str; 3] = ["issue/:name", "sign/:name", "sign-verbatim/:name"];
        let below_mount = parsed.path.get(self.below_mount.clone()).unwrap_or_default();
        match &self.found {
            RouteMatch::Route(_, route, params)
                if PATTERN_ENDS_WITH_ROLE.iter().any(|end| route.pattern.ends_with(end)) =>
            {
                params.named("name", below_mount)
            }
            _ => "",
        }
    }

    /// Returns the token of a rejected request for its audit record, if the route uses tokens.
    pub(super) fn token(&self, headers: &HeaderMap, compat: bool) -> Option<RequestToken> {
        let is_passed = self.route().is_some_and(|route| route.passes_unvalidated_token);
        let looks = is_passed || self.access() != RouteAccess::Open;
        looks.then(|| request::token(headers, compat).ok().flatten()).flatten()
    }

    /// `true` if the policy decision allows the request. A request for help is allowed for all tokens.
    pub(super) fn allows(&self, decision: Decision, parsed: &ParsedRequest) -> bool {
        parsed.help
            || match self.access() {
                RouteAccess::Open | RouteAccess::Caller => true,
                RouteAccess::Token => decision.allowed,
                RouteAccess::Sudo => decision.allowed && decision.sudo,
            }
    }

    /// Calls `decide` with the fields that the route reads, or with `None` if there is no route. An unparsed body
    /// counts as the route's only field, with any value.
    pub(super) fn decide_with_fields(
        &self,
        ParsedBody { fields, body, .. }: &ParsedBody,
        wrap_ttl: Option<Duration>,
        decide: impl FnOnce(Option<&RequestParameters<'_>>) -> Decision,
    ) -> Decision {
        let Some(route) = self.route() else { return decide(None) };
        let undecoded = route.fields.first().copied().filter(|_| route.body == BodyKind::Raw && !body.is_empty());
        self.with_parameters(fields, |parameters| {
            decide(parameters.map(|parameters| RequestParameters { undecoded, wrap_ttl, ..parameters }).as_ref())
        })
    }

    /// Calls `use_them` with the fields that the route reads, or with `None` if there is no route.
    pub(super) fn with_parameters<T>(
        &self,
        fields: &Fields,
        use_them: impl FnOnce(Option<RequestParameters<'_>>) -> T,
    ) -> T {
        let RouteMatch::Route(_, route, params) = &self.found else { return use_them(None) };
        let read_fields = (route.body != BodyKind::Verbatim).then_some(route.fields);
        let path_fields = &params.names();
        use_them(Some(RequestParameters {
            read_fields,
            path_fields,
            synonyms: route.synonyms,
            ..RequestParameters::verbatim(fields)
        }))
    }

    /// Reads the body or the query if the caller is authorized and the route uses it. Otherwise discards the body.
    pub(super) async fn read_body(
        &self,
        parsed: &ParsedRequest,
        headers: &HeaderMap,
        payload: Payload,
        state: &WorkerState,
        (is_authorized, sender, cpu_account): (bool, &dyn Fn() -> Sender, &CpuAccount),
    ) -> Result<ParsedBody> {
        let settings = &state.settings;
        let budget = BodyBudget { bodies: &state.body_budget, sender };
        let route = self.route();
        let raw = route.is_some_and(|route| route.body == BodyKind::Raw);
        let limit = self.body_limit(settings);
        let writes = matches!(parsed.operation, Operation::Create | Operation::Update | Operation::Patch);
        let time = match self.access() {
            _ if !is_authorized => settings.body_timeout.min(body::UNAUTHORIZED_BODY_TIMEOUT),
            RouteAccess::Open => settings.body_timeout.min(body::OPEN_ROUTE_BODY_TIMEOUT),
            _ => settings.body_timeout,
        };
        if is_authorized && writes && encoding::is_encoded(headers) {
            body::discard(headers, payload, limit, time).await?;
            return Err(Error::new(Kind::UnsupportedMedia, encoding::ENCODED_BODY_ERROR));
        }
        if raw && is_authorized {
            let body = match &parsed.tail {
                Some(tail) => tail.slice(..tail.len().min(limit + 1)),
                None => body::read_truncated(headers, payload, limit, budget, time).await?,
            };
            return Ok(ParsedBody { body, media_type: request::media_type(headers), ..ParsedBody::default() });
        }
        if !is_authorized || !writes || route.is_none() {
            let time = if writes { time } else { time.min(body::UNUSED_BODY_TIMEOUT) };
            let passed = body::discard(headers, payload, limit, time).await;
            // Authorization errors take precedence over errors in the body. Only the error for a body that is too long
            // comes first, because the length is checked before the caller is identified. Errors in an unused body are
            // ignored.
            passed.or_else(|error| {
                if is_authorized && writes || error.kind() == Kind::TooLarge { Err(error) } else { Ok(()) }
            })?;
            let query = parsed.query.iter().filter(|_| !writes).cloned();
            return Ok(ParsedBody { fields: Fields::from_pairs(query), ..ParsedBody::default() });
        }
        let kept = body::read_limited(headers, payload, limit, budget, time).await;
        let (body, reservation) = kept.map_err(|error| match route.and_then(|route| route.long_member) {
            Some(member) if error.kind() == Kind::TooLarge => {
                Error::invalid(format!("{member}: too long (the request body may have at most {limit} bytes)"))
            }
            _ => error,
        })?;
        let max_text_bytes = route.map_or(MAX_TEXT_BYTES, |route| route.max_text_bytes);
        cpu_account.wait_for_slice().await;
        Ok(ParsedBody {
            fields: request::parse_fields(&body, headers, max_text_bytes)?,
            reservation,
            ..ParsedBody::default()
        })
    }

    /// Returns the route. Only authorized requests call it, so its errors may reveal which routes exist.
    pub(super) fn require_route(&self, parsed: &ParsedRequest) -> Result<(Arc<Mount>, &'static Route, PathParams)> {
        let Some(mount) = &self.mount else {
            return Err(Error::new(Kind::NotFound, format!("no handler for route \"{}\"", parsed.path)));
        };
        match &self.found {
            RouteMatch::Route(_, route, params) => {
                let below_mount = &parsed.path[self.below_mount.clone()];
                match params.iter(below_mount).find(|(_, value)| value.len() > MAX_NAME_LEN && !value.contains('/')) {
                    Some((name, _)) => Err(Error::invalid(format!("{name}: longer than {} characters", MAX_NAME_LEN))),
                    None => Ok((mount.clone(), route, *params)),
                }
            }
            RouteMatch::OtherOperation(_) => Err(Error::new(Kind::UnsupportedMethod, "unsupported operation")),
            RouteMatch::NoMatch => Err(Error::new(Kind::NotFound, "unsupported path")),
        }
    }

    /// Returns the methods that the path supports, if the requested method is not among them.
    pub(super) fn allowed_methods(&self, parsed: &ParsedRequest, compat: bool) -> Option<String> {
        let (RouteMatch::OtherOperation(entry), Some(mount)) = (&self.found, &self.mount) else { return None };
        let index = index_of(&mount.kind)?;
        let rest = parsed.path.get(self.below_mount.start..)?;
        let path = if parsed.operation == Operation::List { rest.strip_suffix('/').unwrap_or(rest) } else { rest };
        let takes = |operation| match &parsed.tail {
            Some(_) => entry.route(operation).is_some(),
            None => matches!(index.find(path, operation), RouteMatch::Route(..)),
        };
        Some(route::allow_header(takes, compat))
    }

    pub(super) fn help(&self, parsed: &ParsedRequest) -> Result<HandlerResponse> {
        let text = match (&self.mount, &self.found) {
            (Some(mount), _) if self.below_mount.is_empty() => mount_help(mount),
            (_, RouteMatch::Route(entry, ..) | RouteMatch::OtherOperation(entry)) => pattern_help(entry),
            (_, RouteMatch::NoMatch) => return self.require_route(parsed).map(|_| HandlerResponse::empty()),
        };
        Ok(ResponseBody::Plain(serde_json::json!({ "help": text, "see_also": null, "openapi": null })).into())
    }
}

/// Converts segment positions below a mount to positions in the whole path.
pub(super) fn offset_spellings(mount: &str, spelt: Vec<NameSegments>) -> Vec<NameSegments> {
    let depth = mount.matches('/').count();
    spelt.into_iter().map(|segments| segments.shifted(depth)).collect()
}

fn mount_help(mount: &Mount) -> String {
    let mut paths: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for route in routes_of(&mount.kind).into_iter().flatten() {
        paths.entry(route.pattern).or_default().push(route::operation_name(route.operation));
    }
    let lines = paths.iter().map(|(pattern, operations)| format!("    {pattern}: {}\n", operations.join(", ")));
    format!("{} at {}\n{}", mount.kind.name(), mount.path, lines.collect::<String>())
}

fn pattern_help(entry: &PathPattern) -> String {
    let lines = entry.routes().map(|route| {
        let fields = if route.fields.is_empty() { "none".to_owned() } else { route.fields.join(", ") };
        format!("{} {}\n    fields: {fields}\n", route::operation_name(route.operation), route.pattern)
    });
    lines.collect()
}

/// The parsed fields of a request, or its unparsed body.
#[derive(Default)]
pub(super) struct ParsedBody {
    pub(super) fields: Fields,
    pub(super) body: Bytes,
    /// Media type of the unparsed body, without parameters.
    pub(super) media_type: String,
    pub(super) reservation: SenderReservation,
}
