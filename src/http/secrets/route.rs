//! Routes of the secrets service: what can be asked, by whom, with which fields.
//!
//! One [`Route`] per method and pattern. Dispatch, authorisation, the access metrics and the
//! generated tests all read the same tables (`sys`, `token`, `pki`), so a path cannot be reachable in
//! one of them and unknown in another.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use super::answer::Answer;
use super::dialect::Dialect;
use super::request::Token;
use crate::auth::Caller;
use crate::auth::mounts::Mount;
pub use crate::auth::policy::Operation;
use crate::error::{Error, Result};
use crate::fields::{Fields, MAX_TEXT};
use crate::http::budget::Room;
use crate::http::request_id::RequestId;
use crate::http::state::State;
use crate::telemetry::Exposition;

/// One list of fields out of several; `N` is their number.
pub(super) const fn joined<const N: usize>(lists: &[&[&'static str]]) -> [&'static str; N] {
    let mut all = [""; N];
    let (mut list, mut to) = (0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            all[to] = lists[list][at];
            (at, to) = (at + 1, to + 1);
        }
        list += 1;
    }
    assert!(to == N);
    all
}

/// The word of an operation in metrics, logs and capability lists.
pub fn operation_word(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::List => "list",
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Patch => "patch",
        Operation::Delete => "delete",
    }
}

/// The methods of the operations that are taken, as `Allow` lists them (RFC 9110, 10.2.1).
pub(super) fn methods(takes: impl Fn(Operation) -> bool, compat: bool) -> String {
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

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anyone, without a token.
    Open,
    /// Anyone with a live token; the handler decides what it shows.
    Caller,
    /// A token whose policies grant the operation on the path.
    Token,
    /// As `Token`, and the policies grant `sudo` on the path too.
    Sudo,
}

/// The code behind a route. Runs on the worker that took the request.
pub type Handler = fn(Call) -> LocalBoxFuture<'static, Result<Answer>>;

/// A write whose route may have to say what is there: asked before the caller's policies are.
pub struct Named<'a> {
    /// The worker's state.
    pub state: &'a State,
    /// The mount that the path led to.
    pub mount: &'a Arc<Mount>,
    /// Who writes.
    pub caller: &'a Caller,
    /// The path below the mount.
    pub(super) below: &'a str,
    pub(super) params: Params,
}

impl Named<'_> {
    /// As [`Call::param`].
    pub fn param(&self, name: &str) -> &str {
        self.params.named(name, self.below)
    }
}

/// Whether there is already what a write names.
pub type Exists = for<'a> fn(Named<'a>) -> LocalBoxFuture<'a, Result<bool>>;

/// How the pipeline reads a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A JSON object (or form), read into [`Call::fields`].
    Fields,
    /// As `Fields`, for somebody else to judge: nothing is replaced by the path, no member is unknown.
    Verbatim,
    /// Bytes of another protocol, left alone in [`Call::body`]: the request's body, or what a `**tail`
    /// took of the path.
    Raw,
}

/// Most bytes of a body that is read of somebody whom nobody knows.
pub(super) const OPEN_BODY: usize = 16 << 10;

/// One method on one pattern of one kind of mount.
pub struct Route {
    /// The operation.
    pub operation: Operation,
    /// Path below the mount, without a trailing `/`. `:serial` takes one segment of
    /// `(0x)?[0-9A-Fa-f:-]+`, any other `:name` one of the name grammar, and `*rest` one or more segments
    /// of any text; literal segments may follow a `*rest`. `**tail`, behind literals and at the end, takes
    /// everything as it was sent, `/` and `%` included, into [`Call::body`].
    ///
    /// `:serial`, `:…_ref`, `:backend`, `:managed_key`, `:login_role` and `*name` (of a policy or an entity) are names with several
    /// [spellings](crate::auth::policy::Spelling): decision, handler and audit see the canonical one.
    pub pattern: &'static str,
    /// Who may call it.
    pub access: Access,
    /// The body (or query) fields it reads; others are ignored with a warning.
    pub fields: &'static [&'static str],
    /// Pairs of them that it reads as one: rules of policies for either hold for both.
    pub synonyms: &'static [(&'static str, &'static str)],
    /// How the body is read.
    pub body: BodyKind,
    /// Most bytes of it; `None` for what the settings say. Of a longer [`BodyKind::Raw`] the handler sees
    /// one octet more, any other is refused.
    pub body_limit: Option<usize>,
    /// The member that alone can make a body too long: one that is, is refused for it, as any member is that
    /// breaks its rule.
    pub long_member: Option<&'static str>,
    /// Most bytes of a text in it.
    pub longest_text: usize,
    /// Whether none of its answers holds a secret, so that they may be compressed
    /// ([`encoding`](crate::http::encoding)).
    pub compressible: bool,
    /// Whether the audit is told of its requests: not of those that ask whether the server lives.
    pub audited: bool,
    /// Whether an open route's handler is given the token that was sent, if any. Nobody has looked at it.
    pub names_token: bool,
    /// Whether its requests may be [sent again](crate::http::secrets::request::repeat_key).
    pub repeatable: bool,
    /// Whether the [public listener](crate::http::public) answers it, too.
    pub public: bool,
    /// What tells a write that makes something, which needs the capability `create`, from one that changes what is
    /// there, which needs `update`. Where there is no such check every write needs `update`.
    pub exists: Option<Exists>,
    /// The code.
    pub handler: Handler,
}

impl Route {
    /// A route for tokens whose policies grant it.
    pub const fn token(
        op: Operation,
        pattern: &'static str,
        fields: &'static [&'static str],
        handler: Handler,
    ) -> Self {
        let (access, body) = (Access::Token, BodyKind::Fields);
        let (synonyms, body_limit, longest_text) = (&[], None, MAX_TEXT);
        let (compressible, audited, names_token) = (matches!(op, Operation::List), true, false);
        let (repeatable, public) = (false, false);
        Self {
            operation: op,
            pattern,
            access,
            fields,
            synonyms,
            body,
            body_limit,
            long_member: None,
            longest_text,
            compressible,
            audited,
            names_token,
            repeatable,
            public,
            exists: None,
            handler,
        }
    }

    /// A route that needs no token.
    pub const fn open(op: Operation, pattern: &'static str, fields: &'static [&'static str], handler: Handler) -> Self {
        let route = Self::token(op, pattern, fields, handler).with_body_limit(OPEN_BODY);
        // Nobody makes the server work on an answer without saying who they are.
        Self { access: Access::Open, compressible: false, ..route }
    }

    /// A route that also needs `sudo`.
    pub const fn sudo(op: Operation, pattern: &'static str, fields: &'static [&'static str], handler: Handler) -> Self {
        Self { access: Access::Sudo, ..Self::token(op, pattern, fields, handler) }
    }

    /// The same route for anyone with a live token.
    #[must_use]
    pub const fn for_callers(self) -> Self {
        Self { access: Access::Caller, ..self }
    }

    /// The same route, which reads some fields under two names.
    #[must_use]
    pub const fn with_synonyms(self, synonyms: &'static [(&'static str, &'static str)]) -> Self {
        Self { synonyms, ..self }
    }

    /// The same route, which makes what is not there.
    #[must_use]
    pub const fn making(self, exists: Exists) -> Self {
        Self { exists: Some(exists), ..self }
    }

    /// The same route, whose answers hold no secret and may be large. Lists that need a right are so by themselves.
    #[must_use]
    pub const fn compressible(self) -> Self {
        Self { compressible: true, ..self }
    }

    /// The same open route, whose handler wants to see the token that was sent.
    #[must_use]
    pub const fn with_token_as_sent(self) -> Self {
        Self { names_token: true, ..self }
    }

    /// The same route, whose answers hold what is as good as a secret, such as handles that end or find one.
    #[must_use]
    pub const fn uncompressed(self) -> Self {
        Self { compressible: false, ..self }
    }

    /// The same route, whose requests may be sent again with a key.
    #[must_use]
    pub const fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    /// The same open route, which relying parties ask wherever they are: on the public listener, too.
    #[must_use]
    pub const fn public(self) -> Self {
        Self { public: true, ..self }
    }

    /// The same route, of which the audit is not told.
    #[must_use]
    pub const fn unaudited(self) -> Self {
        Self { audited: false, ..self }
    }

    /// The same route with every body member passed on as it came.
    #[must_use]
    pub const fn with_verbatim_body(self) -> Self {
        Self { body: BodyKind::Verbatim, ..self }
    }

    /// The same route with its body left unread, in [`Call::body`].
    #[must_use]
    pub const fn with_raw_body(self, limit: usize) -> Self {
        Self { body: BodyKind::Raw, ..self.with_body_limit(limit) }
    }

    /// The same route with texts that are as long as the body may be.
    #[must_use]
    pub const fn with_long_texts(self) -> Self {
        Self { longest_text: usize::MAX, ..self }
    }

    /// The same route with a body of at most `bytes`, which only this member can make longer.
    #[must_use]
    pub const fn with_long_member(self, member: &'static str, bytes: usize) -> Self {
        Self { long_member: Some(member), ..self.with_body_limit(bytes) }
    }

    /// The same route with a body of at most `bytes`.
    #[must_use]
    pub const fn with_body_limit(self, bytes: usize) -> Self {
        Self { body_limit: Some(bytes), ..self }
    }
}

/// The values of a pattern's parameters: places in the path, so that matching copies nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    items: [(&'static str, u16, u16); Self::MAX],
    len: u8,
}

impl Params {
    /// Most parameters of one pattern.
    pub const MAX: usize = 4;

    /// Adds one; beyond [`Params::MAX`] it is dropped (the index refuses such patterns).
    pub(super) fn push(&mut self, name: &'static str, from: usize, to: usize) {
        let (Ok(from), Ok(to)) = (u16::try_from(from), u16::try_from(to)) else { return };
        if let Some(slot) = self.items.get_mut(usize::from(self.len)) {
            *slot = (name, from, to);
            self.len += 1;
        }
    }

    /// Where the values are in the path that was matched.
    pub(super) fn places(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let (items, len) = (self.items, usize::from(self.len));
        items.into_iter().take(len).map(|(_, from, to)| usize::from(from)..usize::from(to))
    }

    /// The names, in the order of the pattern; empty texts behind them.
    pub(super) fn names(&self) -> [&'static str; Self::MAX] {
        self.items.map(|(name, ..)| name)
    }

    /// The value of one; `""` when the pattern has none of that name. `path` is the one that was matched.
    pub fn named<'p>(&self, name: &str, path: &'p str) -> &'p str {
        self.iter(path).find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// Names and values, in the order of the pattern; `path` is the one that was matched.
    pub fn iter<'p>(&self, path: &'p str) -> impl Iterator<Item = (&'static str, &'p str)> {
        let (items, len) = (self.items, usize::from(self.len));
        items
            .into_iter()
            .take(len)
            .map(|(name, from, to)| (name, path.get(usize::from(from)..usize::from(to)).unwrap_or_default()))
    }
}

/// One authorised request on its way to a handler.
pub struct Call {
    /// The worker's state.
    pub state: State,
    /// The mount that the path led to.
    pub mount: Arc<Mount>,
    /// The route that matched.
    pub route: &'static Route,
    /// The whole path below `/v1`, as the policies saw it: in canonical spelling.
    pub full_path: String,
    /// Whether a name in it was sent in another spelling.
    pub respelt: bool,
    /// Whether it was sent with a word of known clients in the place of this server's.
    pub aliased: bool,
    /// Where the part below the mount starts in [`Call::full_path`], and where it ends (a list's
    /// trailing `/` is left out).
    pub(super) below: std::ops::Range<usize>,
    /// Values of the pattern's parameters.
    pub params: Params,
    /// Body members (for reads, lists and deletes: the query).
    pub fields: Fields,
    /// The bytes as sent, for routes with [`BodyKind::Raw`]; else empty.
    pub body: bytes::Bytes,
    /// The media type of the body, without parameters, for routes with [`BodyKind::Raw`]; else empty.
    pub media_type: String,
    /// What the body takes of the room for bodies, as long as its members are there.
    pub(super) _room: Room,
    /// Who asks; `None` on open routes (a token sent there is not looked at).
    pub caller: Option<Arc<Caller>>,
    /// The types that the sender of the request reads.
    pub dialect: Dialect,
    /// The caller's token; on open routes `None`, or as it was sent ([`Route::names_token`]).
    pub token: Option<Token>,
    /// How long the answer is to be kept wrapped, if that is asked for.
    pub wrap_ttl: Option<std::time::Duration>,
    /// What the caller calls the request, to have the same answer when it is sent again.
    pub repeat_key: Option<Box<str>>,
    /// Whether the caller's policies grant sudo on this path (or it holds root).
    pub sudo: bool,
    /// Where the caller is, as [`caller_address`](crate::http::address::caller_address) decides it.
    pub address: Option<std::net::IpAddr>,
    /// The request's id.
    pub request_id: RequestId,
    /// The form of the metrics that its client prefers, for the route that has them.
    pub exposition: Exposition,
}

impl Call {
    /// The path below the mount, without a trailing `/`.
    pub fn path(&self) -> &str {
        self.full_path.get(self.below.clone()).unwrap_or_default()
    }

    /// The value of a path parameter; `""` when the pattern has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.named(name, self.path())
    }

    /// Who asks.
    ///
    /// # Errors
    /// `Forbidden` on an open route: nobody was identified there.
    pub fn caller(&self) -> Result<&Arc<Caller>> {
        self.caller.as_ref().ok_or_else(Error::forbidden)
    }

    /// The caller's token text.
    ///
    /// # Errors
    /// `Forbidden` on an open route.
    pub fn token(&self) -> Result<&str> {
        self.token.as_ref().map(Token::expose).ok_or_else(Error::forbidden)
    }
}
