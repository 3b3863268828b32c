//! Leases (`sys/leases/`): looking them up, and revoking them with their certificates. None of them can be
//! renewed: a lease ends with its certificate.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::super::answer::Answer;
use super::super::listing::{self, Row, Source};
use super::super::page::Page;
use super::super::route::Call;
use crate::clock::{Time, rfc3339};
use crate::error::{Error, Result};
use crate::pki::revocation::leases::LeaseKeys;
use crate::pki::store::LeaseRow;

/// The id in the path, else in the body.
fn lease_id(call: &Call) -> Result<String> {
    let id = match call.param("lease_id") {
        "" => call.fields.text("lease_id")?.unwrap_or_default(),
        id => id.to_owned(),
    };
    if id.is_empty() { Err(Error::invalid("lease_id must be specified")) } else { Ok(id) }
}

/// `POST sys/leases/lookup`.
pub(super) async fn lookup(call: Call) -> Result<Answer> {
    let lease = call.state.engine.lease(&lease_id(&call)?).await?;
    lease.map(|lease| shown(&lease, call.state.clock.now())).ok_or_else(|| Error::invalid("invalid lease"))?
}

fn shown(lease: &LeaseRow, now: Time) -> Result<Answer> {
    let at = |seconds| Time::from_unix_timestamp(seconds).map(rfc3339).map_err(Error::internal);
    Ok(Answer::data(json!({
        "id": lease.id,
        "path": lease.id.rsplit_once('/').map_or("", |(path, _)| path),
        "issue_time": at(lease.issued_at)?,
        "expire_time": at(lease.expires_at)?,
        "last_renewal": Value::Null,
        "renewable": false,
        "ttl": lease.expires_at - now.unix_timestamp(),
    })))
}

/// `LIST sys/leases/lookup/:prefix`: what lies directly below it.
pub(super) async fn list(call: Call) -> Result<Answer> {
    let Page { after, limit } = Page::of(&call.fields)?;
    let keys = call.state.engine.lease_keys(call.param("prefix"), &after);
    let (keys, from) = keys.ok_or_else(Error::not_found)?;
    listing::answer(&call, keys, from, limit).await
}

impl Source for LeaseKeys {
    /// The last id that was read, or the end of the segment that it is in.
    type Place = String;

    fn page(&self, from: &String, most: usize, _: bool) -> BoxFuture<'static, Result<listing::Page<String>>> {
        let found = LeaseKeys::page(self, from, most as u32);
        async move {
            let (keys, next) = found.await?;
            let rows = keys.into_iter().map(|(at, key)| Row::named(at, &key, None)).collect();
            Ok(listing::Page { rows, next })
        }
        .boxed()
    }
}

/// `POST sys/leases/renew`: refused, and says whether for want of the lease.
pub(super) async fn renew(call: Call) -> Result<Answer> {
    call.fields.duration("increment")?;
    Err(Error::invalid(match call.state.engine.lease(&lease_id(&call)?).await? {
        Some(_) => "lease is not renewable",
        None => "lease not found: there is no such lease",
    }))
}

/// `POST sys/leases/revoke`, of an unknown lease too.
pub(super) async fn revoke(call: Call) -> Result<Answer> {
    let (id, wait) = (lease_id(&call)?, wait(&call)?);
    call.state.engine.revoke_lease(&id, wait).await?;
    Ok(done(wait))
}

/// `POST sys/leases/revoke-prefix/:prefix`.
pub(super) async fn revoke_prefix(call: Call) -> Result<Answer> {
    let wait = wait(&call)?;
    call.state.engine.revoke_leases(call.param("prefix"), wait).await?;
    Ok(done(wait))
}

/// `POST sys/leases/revoke-force/:prefix`: where nothing but this server revokes, the same as by prefix.
pub(super) async fn revoke_force(call: Call) -> Result<Answer> {
    call.state.engine.revoke_leases(call.param("prefix"), true).await?;
    Ok(done(true))
}

/// Whether the caller waits for the revocations; they happen in any case.
fn wait(call: &Call) -> Result<bool> {
    Ok(call.fields.bool("sync")?.unwrap_or(true))
}

fn done(wait: bool) -> Answer {
    Answer::empty().with_status(if wait { 204 } else { 202 })
}

/// `GET sys/leases/count?type=irrevocable`: a revocation that fails is tried again for ever, so none is
/// given up.
pub(super) async fn count(call: Call) -> Result<Answer> {
    match call.fields.text("type")?.as_deref() {
        None | Some("") => Err(Error::not_found()),
        Some("irrevocable") => Ok(Answer::data(json!({ "lease_count": 0, "counts": {} }))),
        Some(_) => Err(Error::invalid("type: only \"irrevocable\" is known")),
    }
}

/// `GET sys/leases?type=irrevocable`: none, as [`count`] says.
pub(super) async fn irrevocable(call: Call) -> Result<Answer> {
    let limit = call.fields.text("limit")?.unwrap_or_default();
    if !matches!(limit.as_str(), "" | "none") && !limit.parse().is_ok_and(|limit: u32| limit > 0) {
        return Err(Error::invalid("limit: must be \"none\" or a positive number"));
    }
    match call.fields.text("type")?.as_deref() {
        None | Some("") => Err(Error::not_found()),
        Some("irrevocable") => Ok(Answer::data(json!({ "lease_count": 0, "counts": {}, "leases": [] }))),
        Some(_) => Err(Error::invalid("type: only \"irrevocable\" is known")),
    }
}

/// `POST sys/leases/tidy`: what the server does by itself now and then.
pub(super) async fn tidy(call: Call) -> Result<Answer> {
    call.state.engine.sweep_leases().await?;
    Ok(Answer::empty())
}
