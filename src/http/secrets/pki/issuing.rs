//! The endpoint `issue` and the four sign endpoints.

pub(super) mod fields;

use super::rendering::{self, CertificateRendering, PASSWORD_FIELD};
use super::request_fields;
use crate::error::{Error, Result};
use crate::http::secrets::dialect::{CertificateDates, Dialect};
use crate::http::secrets::handler_response::{HandlerResponse, ResponseLease};
use crate::http::secrets::route::Call;
use crate::pki::check::validity::MountLifetimes;
use crate::pki::issue::idempotency::{self, IdempotencyCaller, IdempotentContent, IdempotentRequest};
use crate::pki::issue::issued::IssuedCertificate;
use crate::pki::issue::operation::IssuingOperation;
use crate::pki::issue::pipeline::CertificateRequest;
use crate::pki::issue::request::{IssueContext, IssueRequester, RequestedSubjectKey, TemplateIdentity};
use crate::pki::issue::signer;
use crate::secret::Secret;

/// Header of a response that repeats the response to an earlier request.
const REPLAYED_HEADER: &str = "idempotent-replayed";

pub(super) async fn issue(mut call: Call) -> Result<HandlerResponse> {
    // The password is removed from the fields, so that it does not become part of the idempotency record.
    let password = call.fields.take_secret(PASSWORD_FIELD);
    let read = |call: &Call| {
        let rendering = CertificateRendering::of_issue(&call.fields)?;
        let key = |fields: &_| request_fields::key(fields).map(RequestedSubjectKey::Generated);
        Ok((rendering, CertificateRequest::Leaf(fields::leaf_request(call, key)?)))
    };
    run_issuance(call, IssuingOperation::Issue, read, render_leaf, password).await
}

pub(super) async fn sign(call: Call) -> Result<HandlerResponse> {
    let read = |call: &Call| {
        let rendering = CertificateRendering::of(&call.fields)?;
        let key = |fields: &_| request_fields::csr(fields).map(RequestedSubjectKey::Csr);
        Ok((rendering, CertificateRequest::Leaf(fields::leaf_request(call, key)?)))
    };
    run_issuance(call, IssuingOperation::Sign, read, render_leaf, Ok(None)).await
}

pub(super) async fn sign_verbatim(call: Call) -> Result<HandlerResponse> {
    let read = |call: &Call| {
        Ok((CertificateRendering::of(&call.fields)?, CertificateRequest::SignVerbatim(fields::verbatim_request(call)?)))
    };
    run_issuance(call, IssuingOperation::SignVerbatim, read, render_leaf, Ok(None)).await
}

pub(super) async fn sign_intermediate(call: Call) -> Result<HandlerResponse> {
    let read = |call: &Call| {
        let rendering = CertificateRendering::of(&call.fields)?;
        Ok((rendering, CertificateRequest::SignIntermediate(Box::new(fields::intermediate_request(call)?))))
    };
    run_issuance(call, IssuingOperation::SignIntermediate, read, render_authority, Ok(None)).await
}

pub(super) async fn sign_self_issued(call: Call) -> Result<HandlerResponse> {
    // The request cannot select a format for the response.
    let read = |call: &Call| {
        Ok((CertificateRendering::default(), CertificateRequest::SignSelfIssued(fields::self_issued_request(call)?)))
    };
    let render: IssuedRenderer =
        |issued, _, dialect| Ok(HandlerResponse::data(rendering::render_self_issued(issued, dialect)));
    run_issuance(call, IssuingOperation::SignSelfIssued, read, render, Ok(None)).await
}

/// Parses a certificate request, and the requested format of its response.
pub(super) type IssueRequestParser = fn(&Call) -> Result<(CertificateRendering, CertificateRequest)>;

type IssuedRenderer = fn(&IssuedCertificate, &CertificateRendering, Dialect) -> Result<HandlerResponse>;

pub(super) fn render_leaf(
    issued: &IssuedCertificate,
    rendering: &CertificateRendering,
    dialect: Dialect,
) -> Result<HandlerResponse> {
    let dates = CertificateDates { not_before: Some(issued.not_before), ..certificate_dates(issued) };
    Ok(HandlerResponse::rendered(dialect.with_dates(rendering::render_certificate(issued, rendering, false)?, dates)))
}

/// Renders a CA certificate. Of its validity, only notAfter is included.
pub(super) fn render_authority(
    issued: &IssuedCertificate,
    rendering: &CertificateRendering,
    dialect: Dialect,
) -> Result<HandlerResponse> {
    Ok(HandlerResponse::rendered(
        dialect.with_dates(rendering::render_certificate(issued, rendering, true)?, certificate_dates(issued)),
    ))
}

fn certificate_dates(issued: &IssuedCertificate) -> CertificateDates {
    CertificateDates { not_before: None, expiration: issued.not_after, renew_after: issued.renew_after }
}

/// Parses a request and issues the certificate. If the request repeats an earlier request with the same idempotency
/// key, returns the certificate of the earlier request.
pub(super) async fn run_issuance(
    call: Call,
    operation: IssuingOperation,
    read: IssueRequestParser,
    render: IssuedRenderer,
    password: Result<Option<Secret>>,
) -> Result<HandlerResponse> {
    let replica = call.replica().await?;
    let dialect = call.dialect;
    let parsed = read(&call).and_then(|(rendering, request)| Ok((password?, rendering, request)));
    let (password, rendering, request) = match parsed {
        Ok(parsed) => parsed,
        Err(unreadable) => {
            operation.count_refusal(call.mount.meter());
            return Err(missing_resource_error(&call, operation).await.unwrap_or(unreadable));
        }
    };
    let idempotent_request = idempotency_record(&call, request.generates_key())?;
    if let Some(earlier) = find_recorded_certificate(&call, idempotent_request.as_deref()).await? {
        return build_response(earlier, render, &rendering, dialect);
    }
    // Keys are derived before the certificate is signed: a refusal by a full CPU queue must not lose a signed
    // certificate.
    let protected = Box::pin(rendering.derive_p12_keys(password)).await;
    let rendering = protected.inspect_err(|_| operation.count_refusal(call.mount.meter()))?;
    let issued = replica.run(IssueContext { idempotent_request, ..issue_context(call) }, request).await?;
    build_response(issued, render, &rendering, dialect)
}

/// Builds the idempotency record of a request, if it has an idempotency key. The record names the caller's entity, so
/// that later tokens of the entity can repeat the request. For a caller without an entity, the record names the token.
/// Renewing the token does not change that name.
fn idempotency_record(call: &Call, generates_key: bool) -> Result<Option<Box<IdempotentRequest>>> {
    let Some(key) = call.idempotency_key.as_deref() else { return Ok(None) };
    let caller = call.caller()?;
    let caller = match caller.entity_id.as_str() {
        "" => IdempotencyCaller::Token(&caller.recorded_as),
        entity => IdempotencyCaller::Entity(entity),
    };
    // The fields are serialized in the order of their names, so their order in the body has no effect.
    let body = serde_json::to_vec(&call.fields).map_err(Error::internal)?;
    let content = IdempotentContent { path: &call.full_path, body: &body, generates_key };
    Ok(Some(Box::new(IdempotentRequest::new(call.mount.id, caller, key, content))))
}

/// Returns the certificate issued for an earlier identical request. The future is boxed because most requests skip it.
async fn find_recorded_certificate(
    call: &Call,
    idempotent_request: Option<&IdempotentRequest>,
) -> Result<Option<IssuedCertificate>> {
    let Some(idempotent_request) = idempotent_request else { return Ok(None) };
    let find_recorded = async {
        let authority = call.authority().await?;
        idempotency::find_recorded_response(idempotent_request, &authority.view(), authority.deps()).await
    };
    Box::pin(find_recorded).await
}

/// Returns an error if the request needs a role or a policy engine that does not exist. That error takes precedence
/// over errors in the fields.
async fn missing_resource_error(call: &Call, operation: IssuingOperation) -> Option<Error> {
    let view = call.authority().await.ok()?.view();
    match operation {
        IssuingOperation::ExternalPolicy => view.policy_engine().err(),
        _ => signer::find_role(&view, call.optional_param("name")?).err(),
    }
}

fn issue_context(call: Call) -> IssueContext {
    IssueContext {
        issuer_ref: call.optional_param("issuer_ref").map(str::to_owned),
        requester: requester(&call),
        limits: mount_lifetimes(&call),
        idempotent_request: None,
        mount: call.mount.meter().clone(),
        path: call.full_path,
    }
}

fn requester(call: &Call) -> IssueRequester {
    call.caller.as_deref().map_or_else(IssueRequester::default, |caller| IssueRequester {
        requester_record: caller.requester.clone(),
        display_name: caller.display_name.clone(),
        identity: caller.entity.as_ref().map(|entity| TemplateIdentity(entity.entity())),
        token: caller.lease_owner(),
        last_use: caller.uses_left() == Some(0),
        ..IssueRequester::default()
    })
}

pub(super) fn mount_lifetimes(call: &Call) -> MountLifetimes {
    crate::mounts::lifetime_limits(&call.mount)
}

fn build_response(
    issued: IssuedCertificate,
    render: IssuedRenderer,
    rendering: &CertificateRendering,
    dialect: Dialect,
) -> Result<HandlerResponse> {
    let mut answer = render(&issued, rendering, dialect)?;
    if issued.repeated {
        answer.headers.push((REPLAYED_HEADER, "true".to_owned()));
    }
    let lease = issued.lease.map(|lease| ResponseLease { id: lease.id, seconds: lease.seconds, renewable: false });
    Ok(HandlerResponse { lease, ..answer }.with_warnings(issued.warnings))
}
