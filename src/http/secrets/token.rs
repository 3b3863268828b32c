//! Tokens (`auth/token/`): create, look up, renew, revoke; and the roles for creating them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;

use super::handler_response::HandlerResponse;
use super::listing::{self, ListPageFuture, ListRow, RowSource};
use super::page::{PAGE_FIELDS, PageParams};
use super::route::{Call, ExistenceQuery, Route, routes};
use super::sys::run_detached;
use crate::auth::Auth;
use crate::auth::store::TokenHash;
use crate::auth::token::{CreatePath, TOKEN_ROLE_FIELDS, TOKEN_ROLE_SYNONYMS, TokenResponse};
use crate::error::{Error, Result, Warnings};
use crate::telemetry;

const CREATE_FIELDS: &[&str] = &[
    "policies",
    "meta",
    "no_parent",
    "no_default_policy",
    "renewable",
    "ttl",
    "lease",
    "type",
    "explicit_max_ttl",
    "period",
    "num_uses",
    "display_name",
    "entity_alias",
    "id",
];

/// Deprecated names of fields, with their current names.
const DEPRECATED_FIELDS: &[(&str, &str)] = &[("lease", "ttl")];

/// Maximum number of accessors in a list that is sorted. A longer list is sent in the order of storage.
const MAX_SORTED_ACCESSORS: usize = 10_000;

const RENEW_FIELDS: &[&str] = &["increment", "token", "accessor"];

/// The routes below `auth/token/`.
pub static ROUTES: &[Route] = routes! {
    (token.with_synonyms(DEPRECATED_FIELDS)) Update
        "create", "create/:role_name" CREATE_FIELDS => create::<false>;
    (token.with_synonyms(DEPRECATED_FIELDS)) Update "create-orphan" CREATE_FIELDS => create::<true>;
    token List "roles" PAGE_FIELDS => list_roles;
    token Read "roles/:role_name" &[] => read_role;
    (token.with_synonyms(TOKEN_ROLE_SYNONYMS).with_existence_check(role_exists)) Update
        "roles/:role_name" TOKEN_ROLE_FIELDS => write_role;
    token Delete "roles/:role_name" &[] => delete_role;
    token Read "lookup-self" &[] => lookup_self;
    token Update "lookup-self" &["token"] => lookup_self;
    token Read "lookup" &["token"] => lookup;
    token Update "lookup" &["token"] => lookup;
    token Update "lookup-accessor" &["accessor"] => lookup_accessor;
    token Update "renew-self" RENEW_FIELDS => renew_self;
    token Update "renew" RENEW_FIELDS => renew;
    token Update "renew-accessor" RENEW_FIELDS => renew_accessor;
    token Update "revoke-self" &["token"] => revoke_self;
    token Update "revoke" &["token"] => revoke;
    token Update "revoke-accessor" &["accessor"] => revoke_accessor;
    sudo Update "revoke-orphan" &["token"] => revoke_orphan;
    (sudo.uncompressed()) List "accessors" PAGE_FIELDS => list_accessors;
    token Update "tidy" &[] => tidy;
};

/// Creates a token. On the path `create-orphan` the token has no parent, whatever `no_parent` says, and the caller gets
/// no other privilege. On the path of a token role, the role may lift restrictions.
async fn create<const ORPHAN: bool>(call: Call) -> Result<HandlerResponse> {
    let path = match (ORPHAN, call.param("role_name")) {
        (true, _) => CreatePath::Orphan,
        (false, "") => CreatePath::Child,
        (false, role) => CreatePath::Role(role),
    };
    let (given, warnings) = call.state.auth.create_token(call.caller()?, call.sudo, path, &call.fields).await?;
    Ok(HandlerResponse::auth(given).with_warnings(warnings))
}

async fn list_roles(call: Call) -> Result<HandlerResponse> {
    let names = call.state.auth.token_roles();
    HandlerResponse::keys(PageParams::of(&call.fields)?.take_page(names.iter().map(String::as_str)), None)
}

async fn read_role(call: Call) -> Result<HandlerResponse> {
    call.state.auth.token_role_read(call.param("role_name")).map(HandlerResponse::data).ok_or_else(Error::not_found)
}

fn role_exists(named: ExistenceQuery<'_>) -> LocalBoxFuture<'_, Result<bool>> {
    let known = named.state.auth.token_role_read(named.param("role_name"));
    Box::pin(std::future::ready(Ok(known.is_some())))
}

async fn write_role(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.auth.token_role_write(call.param("role_name"), &call.fields).await }).await
}

/// Deletes a token role. Also succeeds if the role does not exist.
async fn delete_role(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.auth.token_role_delete(call.param("role_name")).await }).await
}

async fn lookup_self(call: Call) -> Result<HandlerResponse> {
    Ok(HandlerResponse::data(call.state.auth.lookup_self(call.caller()?, call.token()?).await?))
}

/// Looks up a token by its text. If the request contains no text, looks up the caller's own token.
async fn lookup(call: Call) -> Result<HandlerResponse> {
    match call.fields.nonempty_text("token")? {
        Some(token) => Ok(HandlerResponse::data(call.state.auth.lookup(&token).await?)),
        None => lookup_self(call).await,
    }
}

async fn lookup_accessor(call: Call) -> Result<HandlerResponse> {
    Ok(HandlerResponse::data(call.state.auth.lookup_accessor(&required_accessor(&call)?).await?))
}

async fn renew_self(call: Call) -> Result<HandlerResponse> {
    Ok(render_renewed(call.state.auth.renew_self(call.caller()?, call.token()?, requested_increment(&call)?).await?))
}

async fn renew(call: Call) -> Result<HandlerResponse> {
    let token = call.fields.nonempty_text("token")?.ok_or_else(missing_token)?;
    Ok(render_renewed(call.state.auth.renew(&token, requested_increment(&call)?).await?))
}

async fn renew_accessor(call: Call) -> Result<HandlerResponse> {
    Ok(render_renewed(call.state.auth.renew_accessor(&required_accessor(&call)?, requested_increment(&call)?).await?))
}

fn render_renewed((given, warnings): (TokenResponse, Warnings)) -> HandlerResponse {
    HandlerResponse::auth(given).with_warnings(warnings)
}

/// Reads the requested increment. Clients send the field in every request: zero or an empty text means that they
/// request no increment.
fn requested_increment(call: &Call) -> Result<Option<Duration>> {
    Ok(call.fields.duration("increment")?.filter(|d| !d.is_zero()))
}

async fn revoke_self(call: Call) -> Result<HandlerResponse> {
    revoke_detached(call, async |call| call.state.auth.revoke(call.token()?).await.map(drop)).await
}

/// Revokes a token by its text. An unknown token gets the same response.
async fn revoke(call: Call) -> Result<HandlerResponse> {
    revoke_detached(call, async |call| {
        let token = call.fields.nonempty_text("token")?.ok_or_else(missing_token)?;
        call.state.auth.revoke(&token).await.map(drop)
    })
    .await
}

async fn revoke_accessor(call: Call) -> Result<HandlerResponse> {
    revoke_detached(call, async |call| {
        let known = call.state.auth.revoke_accessor(&required_accessor(call)?).await?;
        let warning = (!known).then(|| "No token found with this accessor".to_owned());
        Ok(HandlerResponse::empty().with_warnings(warning))
    })
    .await
}

async fn revoke_orphan(call: Call) -> Result<HandlerResponse> {
    revoke_detached(call, async |call| {
        let token = call.fields.nonempty_text("token")?.ok_or_else(missing_token)?;
        call.state.auth.revoke_orphan(&token).await
    })
    .await
}

/// Revokes tokens even if the caller disconnects, and notifies the mounts, which remove the leases and other data of
/// the tokens.
async fn revoke_detached<T: Into<HandlerResponse> + 'static>(
    call: Call,
    end: impl AsyncFnOnce(&Call) -> Result<T> + 'static,
) -> Result<HandlerResponse> {
    run_detached(async move {
        let answer = end(&call).await?;
        call.state.mounts.notify_tokens_ended();
        Ok(answer)
    })
    .await
}

async fn list_accessors(call: Call) -> Result<HandlerResponse> {
    let page = PageParams::of(&call.fields)?;
    let auth = Arc::clone(&call.state.auth);
    if page.limit.is_some() {
        let start = auth.accessor_position(&page.after);
        return listing::build_response(
            &call,
            TokenAccessorSource { auth, after_accessor: String::new() },
            start,
            page.limit,
        )
        .await;
    }
    match auth.accessors(&page.after, MAX_SORTED_ACCESSORS).await? {
        Some(accessors) => HandlerResponse::keys(accessors, None),
        None => {
            listing::build_response(
                &call,
                TokenAccessorSource { auth, after_accessor: page.after },
                TokenHash::default(),
                None,
            )
            .await
        }
    }
}

/// The list of accessors of valid tokens, in the order of storage. Accessors up to `after_accessor` in sort order are
/// hidden.
struct TokenAccessorSource {
    auth: Arc<Auth>,
    after_accessor: String,
}

impl RowSource for TokenAccessorSource {
    type Position = TokenHash;

    fn page(&self, after: &TokenHash, max: usize, _: bool) -> ListPageFuture<TokenHash> {
        let auth = Arc::clone(&self.auth);
        let after_accessor = self.after_accessor.clone();
        let after = *after;
        let row = move |(position, accessor): (TokenHash, Option<String>)| {
            let accessor = accessor.filter(|accessor| *accessor > after_accessor);
            ListRow { position, shown: accessor.map(|accessor| (Value::from(accessor).to_string(), None)) }
        };
        let found = async move { auth.accessor_page(after, max as u32).await };
        listing::ListPage::read(found, max, row)
    }

    /// Pages are smaller than the default, because each token record is decrypted to read its accessor.
    fn max_page_rows(&self) -> usize {
        500
    }
}

/// Starts the removal of expired tokens, which the server also does periodically. It continues after the response is
/// sent.
async fn tidy(call: Call) -> Result<HandlerResponse> {
    let Some(permit) = call.state.auth.try_tidy_permit() else {
        return Ok(HandlerResponse::empty().with_warnings(["Token tidy operation already in progress.".to_owned()]));
    };
    let state = call.state;
    tokio::task::spawn_local(async move {
        let _only_one = permit;
        let mut removed = 0;
        let end = loop {
            match state.auth.sweep().await {
                Ok(0) => break Ok(()),
                Ok(step) => removed += u64::from(step),
                Err(error) => break Err(error),
            }
        };
        state.mounts.notify_tokens_ended();
        match end {
            Ok(()) => tracing::info!(removed, "the token tidy removed expired tokens"),
            Err(error) => telemetry::warn_task_failed("the token tidy failed before it completed", &error),
        }
    });
    let started = "Tidy operation successfully started. Any information from the operation will be printed to the \
                   server's logs.";
    Ok(HandlerResponse::empty().with_status(202).with_warnings([started.to_owned()]))
}

fn missing_token() -> Error {
    Error::invalid("missing token ID")
}

fn required_accessor(call: &Call) -> Result<String> {
    call.fields.nonempty_text("accessor")?.ok_or_else(|| Error::invalid("missing accessor"))
}
