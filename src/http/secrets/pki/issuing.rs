//! The endpoint `issue` and the four sign endpoints.

pub(super) mod fields;

use super::rendering::{self, PASSWORD, Rendering};
use crate::error::{Error, Result};
use crate::http::secrets::answer::{Answer, Lease};
use crate::http::secrets::dialect::{Dates, Dialect};
use crate::http::secrets::route::Call;
use crate::pki::check::validity::Limits;
use crate::pki::issue::issued::Issued;
use crate::pki::issue::operation::Operation;
use crate::pki::issue::repeats::{self, AskedFor, Asker, Repeatable};
use crate::pki::issue::request::{Filler, Origin, Request, Requester};
use crate::pki::issue::signer;
use crate::secret::Secret;

/// Header of a response that repeats an earlier one.
const REPEATED: &str = "idempotent-replayed";

pub(super) async fn issue(mut call: Call) -> Result<Answer> {
    // Removed from the fields, so that it does not become part of the idempotency record.
    let password = call.fields.take_secret(PASSWORD);
    let read = |call: &Call| Ok((Rendering::of_issue(&call.fields)?, Request::Issue(fields::issue(call)?)));
    run(call, Operation::Issue, read, leaf, password).await
}

pub(super) async fn sign(call: Call) -> Result<Answer> {
    let read = |call: &Call| Ok((Rendering::of(&call.fields)?, Request::Sign(fields::sign(call)?)));
    run(call, Operation::Sign, read, leaf, Ok(None)).await
}

pub(super) async fn sign_verbatim(call: Call) -> Result<Answer> {
    let read = |call: &Call| Ok((Rendering::of(&call.fields)?, Request::SignVerbatim(fields::verbatim(call)?)));
    run(call, Operation::SignVerbatim, read, leaf, Ok(None)).await
}

pub(super) async fn sign_intermediate(call: Call) -> Result<Answer> {
    let read = |call: &Call| {
        let rendering = Rendering::of(&call.fields)?;
        Ok((rendering, Request::SignIntermediate(Box::new(fields::intermediate(call)?))))
    };
    run(call, Operation::SignIntermediate, read, authority, Ok(None)).await
}

pub(super) async fn sign_self_issued(call: Call) -> Result<Answer> {
    // The response has only one form.
    let read = |call: &Call| Ok((Rendering::default(), Request::SignSelfIssued(fields::self_issued(call)?)));
    let show: Show = |issued, _, dialect| Ok(Answer::data(rendering::self_issued(issued, dialect)));
    run(call, Operation::SignSelfIssued, read, show, Ok(None)).await
}

/// Reads a request and the requested form of its response.
type Read = fn(&Call) -> Result<(Rendering, Request)>;

pub(super) type Show = fn(&Issued, &Rendering, Dialect) -> Result<Answer>;

pub(super) fn leaf(issued: &Issued, rendering: &Rendering, dialect: Dialect) -> Result<Answer> {
    let dates = Dates { not_before: Some(issued.not_before), ..dates(issued) };
    Ok(Answer::rendered(dialect.with_dates(rendering::issued(issued, rendering)?, dates)))
}

/// Renders a CA certificate, with notAfter as its only date.
pub(super) fn authority(issued: &Issued, rendering: &Rendering, dialect: Dialect) -> Result<Answer> {
    Ok(Answer::rendered(dialect.with_dates(rendering::issued_authority(issued, rendering)?, dates(issued))))
}

fn dates(issued: &Issued) -> Dates {
    Dates { not_before: None, expiration: issued.not_after, renew_after: issued.renew_after }
}

async fn run(
    call: Call,
    operation: Operation,
    read: Read,
    show: Show,
    password: Result<Option<Secret>>,
) -> Result<Answer> {
    let (replica, dialect) = (call.replica().await?, call.dialect);
    let (password, rendering, request) = match read_with(password, read(&call)) {
        Ok(read) => read,
        Err(unreadable) => {
            operation.count_refusal(call.mount.meter());
            return Err(without_role(&call).await.unwrap_or(unreadable));
        }
    };
    let repeatable = repeatable(&call, matches!(request, Request::Issue(_)))?;
    if let Some(earlier) = earlier(&call, repeatable.as_deref()).await? {
        return answer(earlier, show, &rendering, dialect);
    }
    // Before the certificate is signed: if the CPU queue is full, no certificate must be lost.
    let protected = Box::pin(rendering.protected_by(password)).await;
    let rendering = protected.inspect_err(|_| operation.count_refusal(call.mount.meter()))?;
    let issued = replica.run(Origin { repeatable, ..origin(call) }, request).await?;
    answer(issued, show, &rendering, dialect)
}

/// Combines the results of reading the password and the rest of a request.
pub(super) fn read_with<A, B>(
    password: Result<Option<Secret>>,
    rest: Result<(A, B)>,
) -> Result<(Option<Secret>, A, B)> {
    let (first, second) = rest?;
    Ok((password?, first, second))
}

/// Builds the idempotency record of a request with an idempotency key. The caller is identified by entity, so that
/// later tokens can repeat the request, or else by token, including its renewals.
pub(super) fn repeatable(call: &Call, makes_key: bool) -> Result<Option<Box<Repeatable>>> {
    let Some(key) = call.repeat_key.as_deref() else { return Ok(None) };
    let caller = call.caller()?;
    let asker = match caller.entity_id.as_str() {
        "" => Asker::Token(&caller.recorded_as),
        entity => Asker::Entity(entity),
    };
    // The fields are sorted by name, so their order in the body has no effect.
    let body = serde_json::to_vec(&call.fields).map_err(Error::internal)?;
    let asked = AskedFor { path: &call.full_path, body: &body, makes_key };
    Ok(Some(Box::new(Repeatable::new(call.mount.id, asker, key, asked))))
}

/// Returns the certificate of an earlier identical request. The future is boxed because most requests skip it.
pub(super) async fn earlier(call: &Call, repeatable: Option<&Repeatable>) -> Result<Option<Issued>> {
    let Some(repeatable) = repeatable else { return Ok(None) };
    let look = async {
        let authority = call.authority().await?;
        repeats::earlier(repeatable, &authority.view(), authority.tools()).await
    };
    Box::pin(look).await
}

/// Returns the error for a missing role in the path, which takes precedence over errors in fields.
async fn without_role(call: &Call) -> Option<Error> {
    let name = Some(call.param("name")).filter(|name| !name.is_empty())?;
    signer::role(&call.authority().await.ok()?.view(), name).err()
}

pub(super) fn origin(call: Call) -> Origin {
    Origin {
        issuer_ref: Some(call.param("issuer_ref")).filter(|r| !r.is_empty()).map(str::to_owned),
        requester: requester(&call),
        limits: limits(&call),
        repeatable: None,
        mount: call.mount.meter().clone(),
        path: call.full_path,
    }
}

fn requester(call: &Call) -> Requester {
    call.caller.as_deref().map_or_else(Requester::default, |caller| Requester {
        recorded_as: caller.requester.clone(),
        display_name: caller.display_name.clone(),
        identity: caller.entity.as_ref().map(|entity| Filler(entity.entity())),
        token: caller.lease_owner(),
        last_use: caller.uses_left() == Some(0),
        ..Requester::default()
    })
}

pub(super) fn limits(call: &Call) -> Limits {
    crate::mounts::lifetimes(&call.mount)
}

pub(super) fn answer(issued: Issued, show: Show, rendering: &Rendering, dialect: Dialect) -> Result<Answer> {
    let mut answer = show(&issued, rendering, dialect)?;
    if issued.repeated {
        answer.headers.push((REPEATED, "true".to_owned()));
    }
    let lease = issued.lease.map(|lease| Lease { id: lease.id, seconds: lease.seconds, renewable: false });
    Ok(Answer { lease, ..answer }.with_warnings(issued.warnings))
}
