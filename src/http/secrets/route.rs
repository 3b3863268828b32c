//! Routes of the secrets service: paths, operations, permissions and fields.
//!
//! There is a [`Route`] for each operation and pattern. Dispatch, authorization, metrics and generated tests share the
//! same tables, so that no path is reachable in one and unknown in another.

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

/// Concatenates lists of fields. A name that is in several lists is taken once. `N` is the number of names.
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

/// Returns the word for an operation in metrics, logs and capability lists.
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

/// Returns the value of the `Allow` header for the supported operations (RFC 9110, 10.2.1).
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
    /// The route needs no token.
    Open,
    /// Any valid token; the handler decides what the caller may see.
    Caller,
    /// A token with policies that grant the operation on the path.
    Token,
    /// As `Token`, with `sudo` on the path too.
    Sudo,
}

/// A handler. It runs on the worker that received the request.
pub type RouteHandler = fn(Call) -> LocalBoxFuture<'static, Result<HandlerResponse>>;

/// A write, for the check before its authorization whether the resource exists.
pub struct ExistenceQuery<'a> {
    /// The worker's state.
    pub state: &'a WorkerState,
    /// The mount of the path.
    pub mount: &'a Arc<Mount>,
    /// The caller.
    pub caller: &'a Caller,
    /// The path below the mount.
    pub(super) below_mount: &'a str,
    pub(super) params: PathParams,
}

impl ExistenceQuery<'_> {
    /// Returns a path parameter; `""` when the pattern has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.named(name, self.below_mount)
    }
}

/// Returns `true` if the resource of a write exists.
pub type ExistenceCheck = for<'a> fn(ExistenceQuery<'a>) -> LocalBoxFuture<'a, Result<bool>>;

/// Rule for reading a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A JSON object or a form, parsed into [`Call::fields`].
    Fields,
    /// As `Fields`, but an external service validates them: path parameters replace no field, and no field counts as
    /// unknown.
    Verbatim,
    /// Bytes of another protocol in [`Call::body`]: the request's body, or the `**tail` of the path.
    Raw,
}

/// Maximum size of a body on open routes, in bytes.
pub(super) const MAX_OPEN_BODY_BYTES: usize = 16 << 10;

/// A route: an operation on a pattern of a kind of mount.
pub struct Route {
    /// The operation.
    pub operation: Operation,
    /// The path below the mount, without a trailing `/`. `:serial` matches a segment of `(0x)?[0-9A-Fa-f:-]+`, and any
    /// other `:name` a segment with the grammar of names. `*rest` matches one or more segments of any text; literal
    /// segments may follow. `**tail`, at the end and after literals only, matches all the rest as sent, including `/`
    /// and `%`, and is stored in [`Call::body`].
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
    /// one byte after the limit, other bodies are rejected.
    pub body_limit: Option<usize>,
    /// The only member that can make the body too long. A body above the limit is reported as an error of this member.
    pub long_member: Option<&'static str>,
    /// Maximum length of a text in the body, in bytes.
    pub max_text_bytes: usize,
    /// `true` if no response has secrets, so that responses may be compressed ([`encoding`](crate::http::encoding)).
    pub compressible: bool,
    /// `true` if requests are audited. Health checks and metrics are not.
    pub audited: bool,
    /// `true` if the handler of an open route receives the token of the request, which is not validated.
    pub passes_unvalidated_token: bool,
    /// `true` if requests may have an [idempotency key](crate::http::secrets::request::idempotency_key).
    pub repeatable: bool,
    /// `true` if the route is available on the [public listener](crate::http::public).
    pub public: bool,
    /// Distinguishes writes that create a resource, which need the capability `create`, from writes that change one,
    /// which need `update`. Without this check, all writes need `update`.
    pub exists: Option<ExistenceCheck>,
    /// The handler.
    pub handler: RouteHandler,
}

impl Route {
    /// A route for tokens with policies that grant it.
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
            repeatable: false,
            public: false,
            exists: None,
            handler,
        }
    }

    /// A route that needs no token.
    pub const fn open(
        op: Operation,
        pattern: &'static str,
        fields: &'static [&'static str],
        handler: RouteHandler,
    ) -> Self {
        let route = Self::token(op, pattern, fields, handler).with_body_limit(MAX_OPEN_BODY_BYTES);
        // Unauthenticated callers must not cause compression work.
        Self { access: RouteAccess::Open, compressible: false, ..route }
    }

    /// A route that requires `sudo`.
    pub const fn sudo(
        op: Operation,
        pattern: &'static str,
        fields: &'static [&'static str],
        handler: RouteHandler,
    ) -> Self {
        Self { access: RouteAccess::Sudo, ..Self::token(op, pattern, fields, handler) }
    }

    /// Allows all valid tokens.
    #[must_use]
    pub const fn for_callers(self) -> Self {
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

    /// Allows compression: responses have no secrets and may be large. It is the default for lists that need a token.
    #[must_use]
    pub const fn compressible(self) -> Self {
        Self { compressible: true, ..self }
    }

    /// Passes the unvalidated token of an open route to the handler.
    #[must_use]
    pub const fn with_token_as_sent(self) -> Self {
        Self { passes_unvalidated_token: true, ..self }
    }

    /// Disables compression: responses have sensitive values, such as accessors.
    #[must_use]
    pub const fn uncompressed(self) -> Self {
        Self { compressible: false, ..self }
    }

    /// Allows idempotency keys.
    #[must_use]
    pub const fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    /// Makes an open route available on the public listener.
    #[must_use]
    pub const fn public(self) -> Self {
        Self { public: true, ..self }
    }

    /// Excludes requests from the audit.
    #[must_use]
    pub const fn unaudited(self) -> Self {
        Self { audited: false, ..self }
    }

    /// Passes all body members to the handler unchanged.
    #[must_use]
    pub const fn with_verbatim_body(self) -> Self {
        Self { body: BodyKind::Verbatim, ..self }
    }

    /// Passes the body to the handler unparsed.
    #[must_use]
    pub const fn with_raw_body(self, limit: usize) -> Self {
        Self { body: BodyKind::Raw, ..self.with_body_limit(limit) }
    }

    /// Removes the limit on the length of a text; only that of the body applies.
    #[must_use]
    pub const fn without_text_limit(self) -> Self {
        Self { max_text_bytes: usize::MAX, ..self }
    }

    /// Limits the body to `bytes`, which only `member` can exceed.
    #[must_use]
    pub const fn with_long_member(self, member: &'static str, bytes: usize) -> Self {
        Self { long_member: Some(member), ..self.with_body_limit(bytes) }
    }

    /// Limits the body to `bytes`.
    #[must_use]
    pub const fn with_body_limit(self, bytes: usize) -> Self {
        Self { body_limit: Some(bytes), ..self }
    }
}

/// Declares a route table with a row per handler: `access operation patterns fields => handler;`. Each pattern of a row
/// is a route. A row with options has them in parentheses, with the access: `(token.repeatable())`.
macro_rules! routes {
    ($($access:tt $operation:ident $($pattern:literal),+ $fields:expr => $handler:path;)*) => {
        &[$($(
            $crate::http::secrets::route::route!($access $operation $pattern $fields => $handler),
        )+)*]
    };
}
pub(super) use routes;

/// Builds one route of [`routes`].
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

/// The path parameters, stored as ranges of the path, so that matching allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathParams {
    items: [(&'static str, u16, u16); Self::MAX],
    len: u8,
}

impl PathParams {
    /// Maximum number of parameters in a pattern.
    pub const MAX: usize = 4;

    /// Adds a parameter. Parameters beyond [`PathParams::MAX`] are dropped; a test rejects such patterns.
    pub(super) fn push(&mut self, name: &'static str, from: usize, to: usize) {
        let (Ok(from), Ok(to)) = (u16::try_from(from), u16::try_from(to)) else { return };
        if let Some(slot) = self.items.get_mut(usize::from(self.len)) {
            *slot = (name, from, to);
            self.len += 1;
        }
    }

    /// Returns the ranges of the values in the path.
    pub(super) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let items = self.items;
        let len = usize::from(self.len);
        items.into_iter().take(len).map(|(_, from, to)| usize::from(from)..usize::from(to))
    }

    /// Returns the names in the order of the pattern, padded with empty text.
    pub(super) fn names(&self) -> [&'static str; Self::MAX] {
        self.items.map(|(name, ..)| name)
    }

    /// Returns the value of a parameter in `path`; `""` when the pattern has none of that name.
    pub fn named<'p>(&self, name: &str, path: &'p str) -> &'p str {
        self.iter(path).find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// Iterates over names and values in the order of the pattern. `path` is the path that was matched.
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
    /// The path below `/v1` in canonical spelling, as policies see it.
    pub full_path: String,
    /// `true` if a name was not sent in canonical spelling.
    pub was_normalized: bool,
    /// `true` if the path had another server's name of a managed key type, and it was replaced.
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
    /// The memory reservation of the body, which lasts as long as its fields.
    pub(super) _reservation: SenderReservation,
    /// The caller; `None` on open routes, where tokens are not validated.
    pub caller: Option<Arc<Caller>>,
    /// The member types that the client expects.
    pub dialect: Dialect,
    /// The caller's token; on open routes `None`, or the unvalidated token ([`Route::passes_unvalidated_token`]).
    pub token: Option<RequestToken>,
    /// The requested lifetime of the wrapped response, if wrapping was requested.
    pub wrap_ttl: Option<std::time::Duration>,
    /// The idempotency key.
    pub idempotency_key: Option<Box<str>>,
    /// `true` if the caller's policies grant `sudo` on this path, or the token is a root token.
    pub sudo: bool,
    /// The caller's address, from [`caller_address`](crate::http::address::caller_address).
    pub address: Option<std::net::IpAddr>,
    /// Id of the request.
    pub request_id: RequestId,
    /// The metrics format that the client prefers, for the metrics route.
    pub exposition: Exposition,
}

impl Call {
    /// Returns the path below the mount, without a trailing `/`.
    pub fn path(&self) -> &str {
        self.full_path.get(self.below_mount.clone()).unwrap_or_default()
    }

    /// Returns a path parameter; `""` when the pattern has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.named(name, self.path())
    }

    /// Returns the caller.
    ///
    /// # Errors
    /// `Forbidden` on an open route, where callers are not identified.
    pub fn caller(&self) -> Result<&Arc<Caller>> {
        self.caller.as_ref().ok_or_else(Error::forbidden)
    }

    /// Returns the text of the caller's token.
    ///
    /// # Errors
    /// `Forbidden` on an open route.
    pub fn token(&self) -> Result<&str> {
        self.token.as_ref().map(RequestToken::expose).ok_or_else(Error::forbidden)
    }
}
