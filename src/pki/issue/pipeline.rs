//! The pipeline of all certificate requests: check and draft, obtain the key, sign, record, release. Each kind of
//! request has a function that checks it and drafts the certificate; everything after it is shared.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;

use super::external_policy::{ExternalPolicyRequest, PolicyOperation};
use super::issuance::Issuance;
use super::issued::IssuedCertificate;
use super::release::{PreparedCertificate, SubjectKey};
use super::request::{
    IntermediateRequest, IssueContext, LeafRequest, RequestedSubjectKey, SelfIssuedRequest, VerbatimRequest,
};
use super::stages::IssuanceStages;
use super::{external_policy, intermediate, leaf, self_issued, verbatim};
use crate::error::Result;
use crate::pki::engine_deps::EngineDeps;
use crate::pki::mount::view::MountView;

/// A certificate request to a mount.
pub enum CertificateRequest {
    /// A request to `issue` or `sign`.
    Leaf(LeafRequest),
    /// A request to `sign-verbatim`.
    SignVerbatim(VerbatimRequest),
    /// A request to `sign-intermediate`.
    SignIntermediate(Box<IntermediateRequest>),
    /// A request to `sign-self-issued`.
    SignSelfIssued(SelfIssuedRequest),
    /// A request that the mount's external policy engine decides on.
    ExternalPolicy(Box<ExternalPolicyRequest>),
}

impl CertificateRequest {
    /// Returns `true` if the server generates the private key.
    pub fn generates_key(&self) -> bool {
        match self {
            Self::Leaf(request) => matches!(request.key, RequestedSubjectKey::Generated(_)),
            Self::ExternalPolicy(request) => matches!(request.operation, PolicyOperation::Issue(_)),
            Self::SignVerbatim(_) | Self::SignIntermediate(_) | Self::SignSelfIssued(_) => false,
        }
    }
}

/// Issues the certificate of a request; all kinds of requests enter here. The arguments are passed by reference, so
/// that the future stays small.
///
/// # Errors
/// `Invalid` naming field and rule; `Busy` when the server has no capacity; `Unavailable` when the record cannot be
/// stored, in which case no certificate is released.
pub(crate) async fn issue(
    views: &ArcSwap<MountView>,
    deps: &EngineDeps,
    origin: &IssueContext,
    request: &CertificateRequest,
    stages: &IssuanceStages,
) -> Result<IssuedCertificate> {
    let started = Instant::now();
    let view = views.load_full();
    let issuance = Issuance { view: &view, deps, origin, stages };
    let prepared = match request {
        CertificateRequest::Leaf(request) => leaf::prepare(issuance, request).await?,
        CertificateRequest::SignVerbatim(request) => verbatim::prepare(issuance, request)?,
        CertificateRequest::SignIntermediate(request) => intermediate::prepare(issuance, request)?,
        CertificateRequest::SignSelfIssued(request) => {
            return Box::pin(self_issued::sign(issuance, request, started)).await;
        }
        CertificateRequest::ExternalPolicy(request) => {
            return Box::pin(external_policy::issue_with_engine(views, issuance, request, started)).await;
        }
    };
    let PreparedCertificate { draft, record, subject_key, warnings } = prepared;
    let mut generated = None;
    let public_key = match subject_key {
        SubjectKey::Generated(spec) => {
            if let Some(stand_in) = spec.placeholder_key() {
                draft.check_with_placeholder(&stand_in)?;
            }
            let started = stages.record_rules_stage(started);
            let key = deps.pool.generate(spec, &origin.requester.watch).await?;
            stages.record_key_stage(started);
            generated.insert(Arc::new(key)).public()
        }
        SubjectKey::OfCsr(csr) => {
            stages.record_rules_stage(started);
            &csr.key
        }
    };
    let issued = draft.release(issuance, public_key, &record).await?;
    Ok(IssuedCertificate { key: generated, ..issued.with_warnings(warnings) })
}
