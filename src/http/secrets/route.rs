//! Routes of the secrets service: what can be asked, by whom, with which fields.
//!
//! One [`Route`] per method and pattern. Dispatch, authorisation, the access metrics and the
//! generated tests all read the same tables (`sys`, `token`, `pki`), so a path cannot be reachable in
//! one of them and unknown in another.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use super::answer::Answer;
use super::state::State;
use crate::auth::Caller;
use crate::auth::mounts::Mount;
pub use crate::auth::policy::Operation;
use crate::error::Result;
use crate::fields::Fields;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anyone, without a token.
    Open,
    /// A token whose policies grant the operation on the path.
    Token,
    /// As `Token`, and the policies grant `sudo` on the path too.
    Sudo,
}

/// The code behind a route. Runs on the worker that took the request.
pub type Handler = fn(Call) -> LocalBoxFuture<'static, Result<Answer>>;

/// One method on one pattern of one kind of mount.
pub struct Route {
    /// The operation.
    pub operation: Operation,
    /// Path below the mount; `:name` takes one segment of the name grammar, `:serial` one of
    /// `[0-9A-Fa-f:-]+`, `*rest` everything that follows.
    pub pattern: &'static str,
    /// Who may call it.
    pub access: Access,
    /// The body (or query) fields it reads; others are ignored with a warning.
    pub fields: &'static [&'static str],
    /// The code.
    pub handler: Handler,
}

/// One authorised request on its way to a handler.
pub struct Call {
    /// The worker's state.
    pub state: State,
    /// The mount that the path led to.
    pub mount: Arc<Mount>,
    /// The route that matched.
    pub route: &'static Route,
    /// Path below the mount, as matched.
    pub path: String,
    /// Values of the pattern's parameters, in order.
    pub params: Vec<(&'static str, String)>,
    /// Body members (for reads, lists and deletes: the query).
    pub fields: Fields,
    /// Who asks; `None` on open routes (a token sent there is not looked at).
    pub caller: Option<Arc<Caller>>,
    /// Whether the caller's policies grant sudo on this path (or it holds root).
    pub sudo: bool,
    /// The request's id.
    pub request_id: String,
    /// `If-Modified-Since`, as sent.
    pub if_modified_since: Option<String>,
    /// `If-None-Match`, as sent.
    pub if_none_match: Option<String>,
}

impl Call {
    /// The value of a path parameter; `""` when the pattern has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v.as_str())
    }
}
