//! Leases of certificates and tokens (`sys/leases/`): look up, list, revoke. Revoking a lease revokes its certificate
//! or token. No lease can be renewed here: a certificate's lease ends with the certificate, and tokens are renewed by
//! `auth/token/renew`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::super::handler_response::HandlerResponse;
use super::super::listing::{self, ListPageFuture, ListRow, RowSource};
use super::super::page::PageParams;
use super::super::route::Call;
use super::run_detached;
use crate::auth::Auth;
use crate::auth::token::{TokenLease, UnreadableTokens};
use crate::clock::{Time, format_rfc3339};
use crate::documents::PathScope;
use crate::error::{Error, Kind, Result};
use crate::pki::revocation::leases::LeaseKeys;
use crate::pki::store::LeaseRow;

fn lease_id(call: &Call) -> Result<String> {
    let id = match call.param("lease_id") {
        "" => call.fields.text("lease_id")?.unwrap_or_default(),
        id => id.to_owned(),
    };
    if id.is_empty() { Err(Error::invalid("lease_id must be specified")) } else { Ok(id) }
}

pub(super) async fn lookup(call: Call) -> Result<HandlerResponse> {
    let id = lease_id(&call)?;
    let now = call.state.clock.now();
    if is_token_lease_path(&id) {
        let lease = call.state.auth.token_lease(&id).await?;
        return lease.map(|lease| render_token_lease(&lease, now)).ok_or_else(|| Error::invalid("invalid lease"));
    }
    let lease = call.state.engine.lease(&id, &lease_scopes(&call, &id)).await?;
    lease.map(|lease| render_certificate_lease(&lease, now)).ok_or_else(|| Error::invalid("invalid lease"))?
}

/// `true` for a path or lease id below `auth/`. Leases there belong to tokens, all other leases to certificates.
fn is_token_lease_path(path: &str) -> bool {
    path == "auth" || path.starts_with("auth/")
}

/// Returns the stored path prefixes of the leases that were created at or below a path.
fn lease_scopes(call: &Call, path: &str) -> Vec<PathScope> {
    call.state.auth.mounts().path_scopes(path)
}

fn render_certificate_lease(lease: &LeaseRow, now: Time) -> Result<HandlerResponse> {
    let at = |seconds| Time::from_unix_timestamp(seconds).map(format_rfc3339).map_err(Error::internal);
    Ok(HandlerResponse::data(json!({
        "id": lease.id,
        "path": lease.id.rsplit_once('/').map_or("", |(path, _)| path),
        "issue_time": at(lease.issued_at)?,
        "expire_time": at(lease.expires_at)?,
        "last_renewal": Value::Null,
        "renewable": false,
        "ttl": lease.expires_at - now.unix_timestamp(),
    })))
}

fn render_token_lease(lease: &TokenLease, now: Time) -> HandlerResponse {
    HandlerResponse::data(json!({
        "id": lease.id(),
        "path": lease.path,
        "issue_time": format_rfc3339(lease.issued_at),
        "expire_time": format_rfc3339(lease.expires_at),
        "last_renewal": lease.last_renewal.map(format_rfc3339),
        "renewable": lease.renewable,
        "ttl": lease.expires_at.unix_timestamp() - now.unix_timestamp(),
    }))
}

/// `LIST sys/leases/lookup/:prefix`: the next segments of the lease ids below the prefix.
pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    let PageParams { after, limit } = PageParams::of(&call.fields)?;
    let prefix = call.param("prefix");
    if is_token_lease_path(prefix) {
        let unreadable = Arc::new(AtomicU64::new(0));
        let auth = Arc::clone(&call.state.auth);
        let keys = TokenLeaseSource { auth, prefix: prefix.to_owned(), unreadable: Arc::clone(&unreadable) };
        let answer = listing::build_response(&call, keys, after, limit).await;
        return match (answer, unreadable.load(Ordering::Relaxed)) {
            (answer, 0) => answer,
            // The list may lack leases of unreadable tokens, so it is not reported as missing (404).
            (Err(error), unreadable) if error.kind() == Kind::NotFound => {
                Ok(HandlerResponse::data(json!({ "keys": [] })).with_warnings([unlisted_tokens_warning(unreadable)]))
            }
            (answer, unreadable) => answer.map(|answer| answer.with_warnings([unlisted_tokens_warning(unreadable)])),
        };
    }
    let keys = call.state.engine.lease_keys(lease_scopes(&call, prefix), &after);
    let (keys, from) = keys.ok_or_else(Error::not_found)?;
    let with_tokens = prefix.is_empty() && call.state.auth.has_token_leases().await?;
    listing::build_response(&call, CertificateLeaseSource { keys, with_tokens }, from, limit).await
}

fn unlisted_tokens_warning(unreadable: u64) -> String {
    format!(
        "{unreadable} tokens that may have been created below this path are not listed: their records cannot be read; \
         sys/leases/revoke-force revokes them"
    )
}

struct TokenLeaseSource {
    auth: Arc<Auth>,
    prefix: String,
    /// Number of tokens whose records could not be read, in the latest page.
    unreadable: Arc<AtomicU64>,
}

impl RowSource for TokenLeaseSource {
    type Position = String;

    /// Pages are large, because reading each page scans all tokens. A page takes some megabytes of memory.
    fn max_page_rows(&self) -> usize {
        50_000
    }

    fn page(&self, from: &String, max: usize, _: bool) -> ListPageFuture<String> {
        let auth = Arc::clone(&self.auth);
        let prefix = self.prefix.clone();
        let from = from.clone();
        let unreadable = Arc::clone(&self.unreadable);
        let keys = async move {
            let found = auth.token_lease_keys(&prefix, &from, max).await?;
            unreadable.store(found.unreadable, Ordering::Relaxed);
            Ok(found.keys)
        };
        listing::ListPage::read(keys, max, |key: String| ListRow::named(key.clone(), &key, None))
    }
}

/// The list of lease keys of certificates. At the root it includes `auth/` if tokens have leases.
struct CertificateLeaseSource {
    keys: LeaseKeys,
    with_tokens: bool,
}

impl RowSource for CertificateLeaseSource {
    /// The last lease id that was read, or the end of the segment that contains it.
    type Position = String;

    fn page(&self, from: &String, max: usize, _: bool) -> ListPageFuture<String> {
        /// The path segment of token leases, and the first text that sorts after all their ids: `0` follows `/` in
        /// ASCII.
        const TOKEN_PREFIX_AND_POSITION: [&str; 2] = ["auth/", "auth0"];
        let found = self.keys.page(from, max as u32);
        let is_behind = self.with_tokens && from.as_str() < TOKEN_PREFIX_AND_POSITION[1];
        async move {
            let (mut keys, next) = found.await?;
            if is_behind && next.as_ref().is_none_or(|next| TOKEN_PREFIX_AND_POSITION[1] <= next.as_str()) {
                keys.push((TOKEN_PREFIX_AND_POSITION[1].to_owned(), TOKEN_PREFIX_AND_POSITION[0].to_owned()));
                keys.sort_unstable();
            }
            let rows = keys.into_iter().map(|(at, key)| ListRow::named(at, &key, None)).collect();
            Ok(listing::ListPage { rows, next })
        }
        .boxed()
    }
}

/// `POST sys/leases/renew`: always fails. The error text depends on whether the lease exists.
pub(super) async fn renew(call: Call) -> Result<HandlerResponse> {
    call.fields.duration("increment")?;
    let id = lease_id(&call)?;
    if is_token_lease_path(&id) && call.state.auth.token_lease(&id).await?.is_some() {
        return Err(Error::invalid("tokens cannot be renewed through this endpoint; use auth/token/renew"));
    }
    Err(Error::invalid(match call.state.engine.lease(&id, &lease_scopes(&call, &id)).await? {
        Some(_) => "lease is not renewable",
        None => "lease not found: there is no such lease",
    }))
}

/// `POST sys/leases/revoke`; also succeeds if the lease does not exist.
pub(super) async fn revoke(call: Call) -> Result<HandlerResponse> {
    let id = lease_id(&call)?;
    let wait = read_wait_flag(&call)?;
    if is_token_lease_path(&id) {
        return revoke_tokens(call, wait, async move |auth| auth.revoke_token_lease(&id).await.map(|_| None)).await;
    }
    call.state.engine.revoke_lease(&id, &lease_scopes(&call, &id), wait).await?;
    Ok(empty_response(wait))
}

pub(super) async fn revoke_prefix(call: Call) -> Result<HandlerResponse> {
    let wait = read_wait_flag(&call)?;
    revoke_by_prefix(call, wait, UnreadableTokens::Keep).await
}

/// `POST sys/leases/revoke-force/:prefix`: as revocation by prefix, but also revokes the tokens whose records cannot be
/// read.
pub(super) async fn revoke_force(call: Call) -> Result<HandlerResponse> {
    revoke_by_prefix(call, true, UnreadableTokens::Revoke).await
}

async fn revoke_by_prefix(call: Call, wait: bool, unreadable: UnreadableTokens) -> Result<HandlerResponse> {
    let prefix = call.param("prefix").to_owned();
    if is_token_lease_path(&prefix) {
        return revoke_tokens(call, wait, async move |auth| {
            let count = auth.revoke_tokens_by_path(&prefix, unreadable).await?;
            Ok((count > 0).then(|| unreadable_tokens_warning(count, unreadable)))
        })
        .await;
    }
    call.state.engine.revoke_leases(&prefix, &lease_scopes(&call, &prefix), wait).await?;
    Ok(empty_response(wait))
}

/// Revokes tokens before the response is sent, even if the caller disconnects: a revocation in the background could be
/// lost. `wait` affects only the status.
async fn revoke_tokens(
    call: Call,
    wait: bool,
    end: impl AsyncFnOnce(Arc<Auth>) -> Result<Option<String>> + 'static,
) -> Result<HandlerResponse> {
    run_detached(async move {
        let warning = end(Arc::clone(&call.state.auth)).await?;
        call.state.mounts.notify_tokens_ended();
        Ok(match warning {
            Some(warning) => HandlerResponse::empty().with_warnings([warning]),
            None => empty_response(wait),
        })
    })
    .await
}

fn unreadable_tokens_warning(count: u64, what: UnreadableTokens) -> String {
    match what {
        UnreadableTokens::Keep => format!(
            "{count} tokens were not revoked: their records cannot be read, so the path that created them is unknown; \
             sys/leases/revoke-force revokes them"
        ),
        UnreadableTokens::Revoke => format!(
            "{count} tokens were revoked whose records cannot be read: they may have been created below this path"
        ),
    }
}

/// Returns the field `sync`: `true` if the caller wants to wait until the revocations are done.
fn read_wait_flag(call: &Call) -> Result<bool> {
    Ok(call.fields.bool("sync")?.unwrap_or(true))
}

fn empty_response(wait: bool) -> HandlerResponse {
    HandlerResponse::empty().with_status(if wait { 204 } else { 202 })
}

/// `GET sys/leases/count?type=irrevocable`: the number of leases whose revocation failed for good. It is always zero,
/// because failed revocations are retried without limit.
pub(super) async fn count(call: Call) -> Result<HandlerResponse> {
    require_irrevocable(&call)?;
    Ok(HandlerResponse::data(json!({ "lease_count": 0, "counts": {} })))
}

fn require_irrevocable(call: &Call) -> Result<()> {
    match call.fields.text("type")?.as_deref() {
        None | Some("") => Err(Error::not_found()),
        Some("irrevocable") => Ok(()),
        Some(_) => Err(Error::invalid("type: must be \"irrevocable\"")),
    }
}

/// `GET sys/leases?type=irrevocable`: the list that [`count`] counts, which is always empty.
pub(super) async fn list_irrevocable(call: Call) -> Result<HandlerResponse> {
    let limit = call.fields.text("limit")?.unwrap_or_default();
    if !matches!(limit.as_str(), "" | "none") && !limit.parse().is_ok_and(|limit: u32| limit > 0) {
        return Err(Error::invalid("limit: must be \"none\" or a positive number"));
    }
    require_irrevocable(&call)?;
    Ok(HandlerResponse::data(json!({ "lease_count": 0, "counts": {}, "leases": [] })))
}

/// `POST sys/leases/tidy`: removes expired leases now. The server also removes them periodically.
pub(super) async fn tidy(call: Call) -> Result<HandlerResponse> {
    call.state.engine.sweep_leases().await.map(HandlerResponse::from)
}
