//! Routes of the secrets service: paths, operations, permissions and fields.
//!
//! Each combination of operation and pattern is a [`Route`]. Dispatch, authorization, metrics and generated tests share
//! the same tables, so that no path is reachable in one and unknown in another.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use super::dialect::Dialect;
use super::handler_response::HandlerResponse;
use super::request::RequestToken;
use crate::auth::Caller;
use crate::auth::mounts::Mount;
pub use crate::auth::policy::Operation;
use crate::error::{Error, Result};
use crate::fields::{Fields, MAX_TEXT_BYTES};
use crate::http::request_id::RequestId;
use crate::http::sender::SenderReservation;
use crate::http::state::WorkerState;
use crate::telemetry::Exposition;

/// Concatenates lists of field names without duplicates. `N` is the number of distinct names.
pub(super) const fn concat_fields<const N: usize>(lists: &[&[&'static str]]) -> [&'static str; N] {
    let mut all = [""; N];
    let mut list = 0;
    let mut to = 0;
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            if !contains_name(&all, lists[list][at]) {
                all[to] = lists[list][at];
                to += 1;
            }
            at += 1;
        }
        list += 1;
    }
    assert!(to == N);
    all
}

const fn contains_name(names: &[&str], name: &str) -> bool {
    let mut at = 0;
    while at < names.len() {
        if are_equal(names[at].as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn are_equal(one: &[u8], other: &[u8]) -> bool {
    match (one, other) {
        ([], []) => true,
        ([a, one @ ..], [b, other @ ..]) => *a == *b && are_equal(one, other),
        _ => false,
    }
}

/// Returns the name of an operation in metrics, logs and capability lists.
pub fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::List => "list",
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Patch => "patch",
        Operation::Delete => "delete",
    }
}

/// Returns the value of the `Allow` header (RFC 9110, 10.2.1) for the operations that `takes` accepts.
pub(super) fn allow_header(takes: impl Fn(Operation) -> bool, compat: bool) -> String {
    let lists = takes(Operation::List);
    let reads = takes(Operation::Read) || (lists && compat);
    let writes = takes(Operation::Update) || takes(Operation::Create);
    let all = [
        ("GET", reads),
        ("HEAD", reads),
        ("LIST", lists),
        ("POST", writes),
        ("PUT", writes && compat),
        ("PATCH", takes(Operation::Patch)),
        ("DELETE", takes(Operation::Delete)),
    ];
    all.iter().filter(|(_, taken)| *taken).map(|(method, _)| *method).collect::<Vec<_>>().join(", ")
}

/// The permission that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// No token.
    Open,
    /// Any valid token. The handler decides what the caller may see.
    Caller,
    /// A token with policies that grant the operation on the path.
    Token,
    /// As [`RouteAccess::Token`]; the policies must also grant `sudo` on the path.
    Sudo,
}

/// Handles an authorized request, on the worker that received it.
pub type RouteHandler = fn(Call) -> LocalBoxFuture<'static, Result<HandlerResponse>>;

/// A write whose required capability depends on whether its resource exists.
pub struct ExistenceQuery<'a> {
    /// The worker's state.
    pub state: &'a WorkerState,
    /// The mount of the path.
    pub mount: &'a Arc<Mount>,
    /// The caller.
    pub caller: &'a Caller,
    /// The path of the resource below the mount.
    pub(super) below_mount: &'a str,
    pub(super) params: PathParams,
}

impl ExistenceQuery<'_> {
    /// Returns a path parameter; `""` if the route's pattern has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.named(name, self.below_mount)
    }
}

/// Resolves to `true` if the resource of a write exists.
pub type ExistenceCheck = for<'a> fn(ExistenceQuery<'a>) -> LocalBoxFuture<'a, Result<bool>>;

/// Rule for reading a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A JSON object or a form, parsed into [`Call::fields`].
    Fields,
    /// As [`BodyKind::Fields`], but an external service validates the fields: path parameters replace no field, and no
    /// field counts as unknown.
    Verbatim,
    /// Bytes of another protocol in [`Call::body`]: the body of the request, or the part of the path that matches
    /// `**tail`.
    Raw,
}

/// Maximum size of the body of a request to a route that needs no token, in bytes.
pub(super) const MAX_UNAUTHENTICATED_BODY_BYTES: usize = 16 << 10;

/// A route: an operation on a path pattern of a kind of mount.
pub struct Route {
    /// The operation.
    pub operation: Operation,
    /// The path below the mount, without a trailing `/`. Placeholders:
    ///
    /// - `:serial`: one segment that matches `(0x)?[0-9A-Fa-f:-]+`.
    /// - `:name` (any other word): one segment that is a name ([`is_name`](crate::fields::is_name)).
    /// - `*rest`: one or more segments of any text. Literal segments may follow.
    /// - `**tail`: the rest of the path as the client sent it, including `/` and `%`, stored in [`Call::body`]. It must
    ///   be the last segment, and follows only literal segments.
    ///
    /// `:serial`, `:…_ref`, `:backend`, `:managed_key`, `:login_role` and `*name` (of a policy or an entity) have
    /// alternative [spellings](crate::auth::policy::Spelling). Authorization, handler and audit use the canonical one.
    pub pattern: &'static str,
    /// The required permission.
    pub access: RouteAccess,
    /// The fields of the body or query. Other fields are ignored with a warning.
    pub fields: &'static [&'static str],
    /// Pairs of field names with the same meaning. Policy rules for one apply to the other.
    pub synonyms: &'static [(&'static str, &'static str)],
    /// Rule for reading the body.
    pub body: BodyKind,
    /// Maximum size of the body in bytes; `None` for the configured limit. A longer [`BodyKind::Raw`] body is cut off
    /// one byte after the limit; other bodies are rejected.
    pub body_limit: Option<usize>,
    /// The only member of the body that may be long. A body above the limit is reported as an error of this member.
    pub long_member: Option<&'static str>,
    /// Maximum length of each text in the body, in bytes.
    pub max_text_bytes: usize,
    /// `true` if no response contains secrets, so that responses may be compressed
    /// ([`encoding`](crate::http::encoding)).
    pub compressible: bool,
    /// `true` if requests are audited. Health checks and metrics are not audited.
    pub audited: bool,
    /// `true` if the handler receives the token of the request although the route needs none; the token is not
    /// validated.
    pub passes_unvalidated_token: bool,
    /// `true` if requests may have an [idempotency key](crate::http::secrets::request::idempotency_key).
    pub accepts_idempotency_key: bool,
    /// `true` if the route is available on the [public listener](crate::http::public).
    pub on_public_listener: bool,
    /// Checks whether the resource exists. With this check, writes that create a resource need the capability `create`,
    /// and writes that change an existing resource need `update`. Without it, all writes need `update`.
    pub exists: Option<ExistenceCheck>,
    /// The handler.
    pub handler: RouteHandler,
}

impl Route {
    /// Creates a route that needs a token whose policies grant the operation.
    pub const fn token(
        op: Operation,
        pattern: &'static str,
        fields: &'static [&'static str],
        handler: RouteHandler,
    ) -> Self {
        Self {
            operation: op,
            pattern,
            access: RouteAccess::Token,
            fields,
            synonyms: &[],
            body: BodyKind::Fields,
            body_limit: None,
            long_member: None,
            max_text_bytes: MAX_TEXT_BYTES,
            compressible: matches!(op, Operation::List),
            audited: true,
            passes_unvalidated_token: false,
            accepts_idempotency_key: false,
            on_public_listener: false,
            exists: None,
            handler,
        }
    }

    /// Creates a route that needs no token.
    pub const fn open(
        op: Operation,
        pattern: &'static str,
        fields: &'static [&'static str],
        handler: RouteHandler,
    ) -> Self {
        let route = Self::token(op, pattern, fields, handler).with_body_limit(MAX_UNAUTHENTICATED_BODY_BYTES);
        // Unauthenticated callers must not cause the work of compressing responses.
        Self { access: RouteAccess::Open, compressible: false, ..route }
    }

    /// Creates a route whose callers need `sudo`.
    pub const fn sudo(
        op: Operation,
        pattern: &'static str,
        fields: &'static [&'static str],
        handler: RouteHandler,
    ) -> Self {
        Self { access: RouteAccess::Sudo, ..Self::token(op, pattern, fields, handler) }
    }

    /// Allows all valid tokens, whatever their policies.
    #[must_use]
    pub const fn for_any_token(self) -> Self {
        Self { access: RouteAccess::Caller, ..self }
    }

    /// Sets pairs of field names with the same meaning.
    #[must_use]
    pub const fn with_synonyms(self, synonyms: &'static [(&'static str, &'static str)]) -> Self {
        Self { synonyms, ..self }
    }

    /// Requires the capability `create` for writes to resources that do not exist.
    #[must_use]
    pub const fn with_existence_check(self, exists: ExistenceCheck) -> Self {
        Self { exists: Some(exists), ..self }
    }

    /// Allows compression: responses contain no secrets and may be large. By default it is allowed for lists that need
    /// a token.
    #[must_use]
    pub const fn compressible(self) -> Self {
        Self { compressible: true, ..self }
    }

    /// Passes the unvalidated token to the handler of a route that needs no token.
    #[must_use]
    pub const fn with_unvalidated_token(self) -> Self {
        Self { passes_unvalidated_token: true, ..self }
    }

    /// Forbids compression, because responses contain sensitive values, such as accessors.
    #[must_use]
    pub const fn uncompressed(self) -> Self {
        Self { compressible: false, ..self }
    }

    /// Allows idempotency keys in requests.
    #[must_use]
    pub const fn with_idempotency_key(self) -> Self {
        Self { accepts_idempotency_key: true, ..self }
    }

    /// Makes a route that needs no token available on the public listener.
    #[must_use]
    pub const fn on_public_listener(self) -> Self {
        Self { on_public_listener: true, ..self }
    }

    /// Excludes the route's requests from the audit.
    #[must_use]
    pub const fn unaudited(self) -> Self {
        Self { audited: false, ..self }
    }

    /// Passes all body members to the handler unchanged.
    #[must_use]
    pub const fn with_verbatim_body(self) -> Self {
        Self { body: BodyKind::Verbatim, ..self }
    }

    /// Passes the body to the handler unparsed, at most `limit` bytes of it.
    #[must_use]
    pub const fn with_raw_body(self, limit: usize) -> Self {
        Self { body: BodyKind::Raw, ..self.with_body_limit(limit) }
    }

    /// Removes the limit on the length of each text, so that only the limit on the body applies.
    #[must_use]
    pub const fn without_text_limit(self) -> Self {
        Self { max_text_bytes: usize::MAX, ..self }
    }

    /// Limits the body to `bytes` bytes. Only `member` is expected to be that long.
    #[must_use]
    pub const fn with_long_member(self, member: &'static str, bytes: usize) -> Self {
        Self { long_member: Some(member), ..self.with_body_limit(bytes) }
    }

    /// Limits the body to `bytes` bytes.
    #[must_use]
    pub const fn with_body_limit(self, bytes: usize) -> Self {
        Self { body_limit: Some(bytes), ..self }
    }
}

/// Declares a route table with one row per handler: `access operation patterns fields => handler;`. Each pattern of a
/// row becomes a route. Options are written in parentheses with the access: `(token.with_idempotency_key())`.
macro_rules! routes {
    ($($access:tt $operation:ident $($pattern:literal),+ $fields:expr => $handler:path;)*) => {
        &[$($(
            $crate::http::secrets::route::route!($access $operation $pattern $fields => $handler),
        )+)*]
    };
}
pub(super) use routes;

/// Builds one route of a [`routes`] table.
macro_rules! route {
    (($access:ident $($option:tt)*) $operation:ident $pattern:literal $fields:expr => $handler:path) => {
        $crate::http::secrets::route::route!($access $operation $pattern $fields => $handler)$($option)*
    };
    ($access:ident $operation:ident $pattern:literal $fields:expr => $handler:path) => {
        $crate::http::secrets::route::Route::$access(
            $crate::http::secrets::route::Operation::$operation,
            $pattern,
            $fields,
            |call| Box::pin($handler(call)),
        )
    };
}
pub(super) use route;

/// The path parameters, stored as ranges of the path, so that matching a path allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathParams {
    items: [(&'static str, u16, u16); Self::MAX_PARAMS],
    len: u8,
}

impl PathParams {
    /// Maximum number of parameters in a pattern.
    pub const MAX_PARAMS: usize = 4;

    /// Adds a parameter. Parameters beyond [`PathParams::MAX_PARAMS`] are dropped; a test rejects such patterns.
    pub(super) fn push(&mut self, name: &'static str, from: usize, to: usize) {
        let (Ok(from), Ok(to)) = (u16::try_from(from), u16::try_from(to)) else { return };
        if let Some(slot) = self.items.get_mut(usize::from(self.len)) {
            *slot = (name, from, to);
            self.len += 1;
        }
    }

    /// Returns the ranges of the parameter values in the path.
    pub(super) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let items = self.items;
        let len = usize::from(self.len);
        items.into_iter().take(len).map(|(_, from, to)| usize::from(from)..usize::from(to))
    }

    /// Returns the names of the parameters in the order of the pattern, padded with empty text.
    pub(super) fn names(&self) -> [&'static str; Self::MAX_PARAMS] {
        self.items.map(|(name, ..)| name)
    }

    /// Returns the value of a parameter in `path`; `""` if the pattern has none of that name.
    pub fn named<'p>(&self, name: &str, path: &'p str) -> &'p str {
        self.iter(path).find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// Iterates over the names and values of the parameters, in the order of the pattern. `path` is the path that the
    /// pattern matched.
    pub fn iter<'p>(&self, path: &'p str) -> impl Iterator<Item = (&'static str, &'p str)> {
        let items = self.items;
        let len = usize::from(self.len);
        items
            .into_iter()
            .take(len)
            .map(|(name, from, to)| (name, path.get(usize::from(from)..usize::from(to)).unwrap_or_default()))
    }
}

/// An authorized request, as passed to a handler.
pub struct Call {
    /// The worker's state.
    pub state: WorkerState,
    /// The mount of the path.
    pub mount: Arc<Mount>,
    /// The matched route.
    pub route: &'static Route,
    /// The path below `/v1` in canonical spelling. Policies apply to that spelling.
    pub full_path: String,
    /// `true` if the client sent a name that was not in canonical spelling.
    pub was_normalized: bool,
    /// `true` if the client's path named a type of managed keys as a compatible server does. That name was replaced by
    /// this server's name.
    pub used_alias: bool,
    /// The range of [`Call::full_path`] below the mount, without the trailing `/` of a list.
    pub(super) below_mount: std::ops::Range<usize>,
    /// The path parameters.
    pub params: PathParams,
    /// The fields of the body, or of the query for reads, lists and deletes.
    pub fields: Fields,
    /// The bytes of a [`BodyKind::Raw`] body; otherwise empty.
    pub body: bytes::Bytes,
    /// The media type of a [`BodyKind::Raw`] body, without parameters; otherwise empty.
    pub media_type: String,
    /// The memory reservation of the body, held until the fields parsed from it are dropped.
    pub(super) _reservation: SenderReservation,
    /// The caller; `None` on routes that need no token, where tokens are not validated.
    pub caller: Option<Arc<Caller>>,
    /// The member types that the client expects.
    pub dialect: Dialect,
    /// The caller's token. On routes that need no token it is `None`, or the unvalidated token
    /// ([`Route::passes_unvalidated_token`]).
    pub token: Option<RequestToken>,
    /// The lifetime of the wrapped response, if the client requested wrapping.
    pub wrap_ttl: Option<std::time::Duration>,
    /// The idempotency key that the client sent, if any.
    pub idempotency_key: Option<Box<str>>,
    /// `true` if the caller's policies grant `sudo` on this path, or the token is a root token.
    pub sudo: bool,
    /// The caller's address, from [`caller_address`](crate::http::address::caller_address).
    pub address: Option<std::net::IpAddr>,
    /// Id of the request.
    pub request_id: RequestId,
    /// The metrics format that the client prefers; only the metrics route uses it.
    pub exposition: Exposition,
}

impl Call {
    /// Returns the path below the mount, without a trailing `/`.
    pub fn path(&self) -> &str {
        self.full_path.get(self.below_mount.clone()).unwrap_or_default()
    }

    /// Returns a path parameter; `""` if the route's pattern has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.named(name, self.path())
    }

    /// Returns the caller.
    ///
    /// # Errors
    /// `Forbidden` on a route that needs no token, where callers are not identified.
    pub fn caller(&self) -> Result<&Arc<Caller>> {
        self.caller.as_ref().ok_or_else(Error::forbidden)
    }

    /// Returns the text of the caller's token.
    ///
    /// # Errors
    /// `Forbidden` if the call has no token, as on routes that need none.
    pub fn token(&self) -> Result<&str> {
        self.token.as_ref().map(RequestToken::expose).ok_or_else(Error::forbidden)
    }
}
