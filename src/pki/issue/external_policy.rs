//! External policy: a service of the operator decides about certificates, and this server signs them.
//!
//! The *policy engine* receives the request with the caller's CSR, or with an empty CSR of a generated key, and returns
//! a certificate as a template. Private keys are never sent. Roles do not apply, but the structural checks of every
//! certificate do. If the engine fails, nothing is issued. `wire` has the JSON messages, `template` converts templates,
//! [`policy_engine`](crate::pki::policy_engine) is the client, and
//! [`settings`](crate::pki::mount::settings::external_policy) configures it.

mod template;
mod wire;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;

pub use self::wire::{PolicyCallerIdentity, PolicyRequestBody};
use super::issuance::Issuance;
use super::issued::IssuedCertificate;
use super::{csr, signer};
use crate::error::{Error, Result};
use crate::keys::local::{KeySpec, PrivateKey};
use crate::keys::pool::CallerWatch;
use crate::keys::signing::{NoSigners, SigningKey};
use crate::pki::check::linted_tbs::LintedTbs;
use crate::pki::check::request::RequestedKey;
use crate::pki::mount::view::MountView;
use crate::pki::policy_engine::PolicyEngine;
use crate::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};
use crate::x509::csr::{Csr, encode_request_info};
use crate::x509::pieces::Extensions;
use crate::x509::public_key::PublicKey;
use crate::x509::{name, pem};

/// The issuing operation that the policy engine decides on.
#[derive(Clone, Debug)]
pub enum PolicyOperation {
    /// Issues a certificate for a key that this server generates: RSA if the request names no key type.
    Issue(RequestedKey),
    /// Issues a certificate for the key of a CSR. The CSR's signature is verified before the engine is called.
    Sign(Csr),
    /// Like `Sign`, but the engine's template may be a CA certificate.
    SignIntermediate(Csr),
}

impl PolicyOperation {
    /// Returns the operation's name for the field `issuance_mode` of the message to the engine.
    fn name(&self) -> &'static str {
        match self {
            Self::Issue(_) => "issue",
            Self::Sign(_) => "sign",
            Self::SignIntermediate(_) => "ica",
        }
    }
}

/// A certificate request on which the engine decides.
pub struct ExternalPolicyRequest {
    /// The requested operation.
    pub operation: PolicyOperation,
    /// Name of the policy in the request path, or empty.
    pub policy: String,
    /// Path of the mount, with a trailing `/`.
    pub mount: String,
    /// The caller's request body, which is sent to the engine.
    pub body: PolicyRequestBody,
    /// Identity of the caller; `None` if the token has no entity.
    pub caller: Option<PolicyCallerIdentity>,
}

/// The key to certify, with its private key if this server generated it.
struct PolicySubjectKey {
    csr_pem: String,
    key: PublicKey,
    private: Option<Arc<PrivateKey>>,
}

/// Calls the external policy engine and signs the certificate template that it returns. The call may take long, so the
/// state of the mount is loaded again after it: issuers that were disabled or revoked during the call do not sign.
///
/// # Errors
/// `Invalid` when external policy is not configured, when request or template violate a rule, or when the engine
/// rejects the request; `Unavailable`, `Busy` and `BadGateway` of the call.
pub(super) async fn issue_with_engine(
    views: &ArcSwap<MountView>,
    issuance: Issuance<'_>,
    request: &ExternalPolicyRequest,
    started: Instant,
) -> Result<IssuedCertificate> {
    let Issuance { view, deps, origin, .. } = issuance;
    let engine = Arc::clone(view.policy_engine()?);
    let ExternalPolicyRequest { operation, policy, mount, body, caller } = request;
    let issuer = match &origin.issuer_ref {
        Some(reference) => Some(signer::find_signer(view, reference)?),
        None => view.signer("default").cloned(),
    };
    let subject = prepare_subject_key(&engine, issuance, operation, started).await?;
    let uuid = crate::random::uuid();
    let context =
        wire::PolicyRequestContext { caller: caller.as_ref(), policy, mount, operation, limits: origin.limits };
    let message = wire::encode_policy_request(view, &context, body.clone(), &uuid, subject.csr_pem, issuer.as_deref())?;
    drop(issuer);
    let reply = engine
        .call(message, &deps.clock, deps.egress_policy, |body| wire::PolicyEngineReply::read(body, &uuid))
        .await?;
    let view = &views.load_full();
    view.policy_engine()?;
    let approval = reply.decision.map_err(|text| Error::invalid(format!("external policy: {text}")))?;
    let issued = template::issue(Issuance { view, ..issuance }, operation, &approval, &subject.key).await?;
    Ok(IssuedCertificate { key: subject.private, ..issued.with_warnings(reply.warnings) })
}

/// Verifies the caller's CSR, or generates a key and a CSR without contents. Cheap checks precede key generation.
async fn prepare_subject_key(
    engine: &PolicyEngine,
    Issuance { deps, origin, stages, .. }: Issuance<'_>,
    operation: &PolicyOperation,
    started: Instant,
) -> Result<PolicySubjectKey> {
    let requested = match operation {
        PolicyOperation::Issue(requested) => requested,
        PolicyOperation::Sign(csr) | PolicyOperation::SignIntermediate(csr) => {
            csr::verify(csr)?;
            stages.record_rules_stage(started);
            engine.require_available(deps.clock.now())?;
            return Ok(PolicySubjectKey {
                csr_pem: pem::encode(CSR_LABEL, csr.der()),
                key: csr.key.clone(),
                private: None,
            });
        }
    };
    let key_type = requested.key_type.as_deref().filter(|t| !t.is_empty()).unwrap_or("rsa");
    let spec = KeySpec::new(key_type, requested.bits.unwrap_or(0))?;
    let started = stages.record_rules_stage(started);
    engine.require_available(deps.clock.now())?;
    let key = Arc::new(deps.pool.generate(spec, &origin.requester.watch).await?);
    stages.record_key_stage(started);
    let csr_pem = sign_empty_csr(&key).await?;
    Ok(PolicySubjectKey { csr_pem, key: key.public().clone(), private: Some(key) })
}

const CSR_LABEL: &str = "CERTIFICATE REQUEST";

/// Creates a CSR without subject and extensions, which only proves possession of the key; returns it as PEM.
async fn sign_empty_csr(key: &Arc<PrivateKey>) -> Result<String> {
    let kind = key.kind();
    let algorithm = match kind {
        KeyKind::Rsa { .. } => SignatureAlgorithm::RsaPkcs1(Hash::Sha256),
        KeyKind::Ec(curve) => SignatureAlgorithm::Ecdsa(curve.hash()),
        KeyKind::Ed25519 => SignatureAlgorithm::Ed25519,
    };
    let info = encode_request_info(&name::name(&[]), key.public().spki(), &Extensions::default());
    let prepared = LintedTbs::for_request(info, algorithm, &SigningKey::Local(Arc::clone(key)));
    let der = prepared.sign(&NoSigners, &CallerWatch::ALWAYS).await?.der();
    Ok(pem::encode(CSR_LABEL, &der))
}
