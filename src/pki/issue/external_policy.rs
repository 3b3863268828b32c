//! External policy: a service of the operator decides about certificates, and this server signs them.
//!
//! The *policy engine* receives the request with the caller's CSR, or with an empty CSR of a generated key, and returns
//! a certificate as a template. Private keys are never sent, and roles do not apply, but all checks of signed
//! certificates do. If the engine fails, nothing is issued. `wire` has the JSON messages, `template` converts
//! templates, [`policy_engine`](crate::pki::policy_engine) is the client, and
//! [`settings`](crate::pki::mount::settings::external_policy) configures it.

mod template;
mod wire;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;

pub use self::wire::{Body, Who};
use super::issued::Issued;
use super::request::Origin;
use super::stages::Stages;
use super::{csr, signer};
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::keys::local::{KeySpec, PrivateKey};
use crate::keys::pool::Watch;
use crate::keys::signing::{NoSigners, SigningKey};
use crate::pki::check::prepared::Prepared;
use crate::pki::check::request::RequestedKey;
use crate::pki::mount::view::View;
use crate::pki::policy_engine::PolicyEngine;
use crate::pki::tools::Tools;
use crate::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};
use crate::x509::csr::{Csr, request_info};
use crate::x509::pieces::Extensions;
use crate::x509::public_key::PublicKey;
use crate::x509::{name, pem};

/// The operation to ask the engine about.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Certificate for a key generated here; RSA if no type is given.
    Issue(RequestedKey),
    /// Certificate for the key of a CSR. The CSR's signature is verified before the engine is called.
    Sign(Csr),
    /// Like `Sign`, but the certificate may be a CA's.
    SignIntermediate(Csr),
}

impl Mode {
    /// Value of `issuance_mode`.
    fn word(&self) -> &'static str {
        match self {
            Self::Issue(_) => "issue",
            Self::Sign(_) => "sign",
            Self::SignIntermediate(_) => "ica",
        }
    }
}

/// A request for the engine to decide.
pub struct Request {
    /// The operation.
    pub mode: Mode,
    /// The policy named in the path, or empty.
    pub policy: String,
    /// Path of the mount, with a trailing `/`.
    pub mount: String,
    /// The caller's body, sent to the engine.
    pub body: Body,
    /// Identity of the caller; `None` without an entity.
    pub who: Option<Who>,
}

/// The key to certify, with its private key if generated here.
struct Subject {
    csr_pem: String,
    key: PublicKey,
    private: Option<Arc<PrivateKey>>,
}

/// Calls the engine and signs its template. After the call, which may take long, the state of the mount is loaded
/// again, so that issuers disabled or revoked since do not sign.
///
/// # Errors
/// `Invalid` when external policy is not configured, when request or template violate a rule, or when the engine
/// rejects the request; `Unavailable`, `Busy` and `BadGateway` of the call.
pub async fn run(
    views: Arc<ArcSwap<View>>,
    tools: Tools,
    origin: Origin,
    request: Request,
    stages: Stages,
) -> Result<Issued> {
    let started = Instant::now();
    let view = views.load_full();
    let engine = Arc::clone(view.policy_engine()?);
    let Request { mode, policy, mount, body, who } = request;
    let issuer = match &origin.issuer_ref {
        Some(reference) => Some(signer::signer(&view, reference)?),
        None => view.signer("default").cloned(),
    };
    let subject = subject(&engine, &tools, &mode, &origin.requester.watch, view.mount, &stages, started).await?;
    let uuid = crate::random::uuid();
    let who = who.as_ref();
    let asked = wire::Asked { who, policy: &policy, mount: &mount, mode: &mode, limits: origin.limits };
    let question = wire::question(&view, &asked, body, &uuid, subject.csr_pem, issuer.as_deref())?;
    drop((view, issuer));
    let answer = engine.ask(question, &tools.clock, tools.reach, |body| wire::Answer::read(body, &uuid)).await?;
    let view = views.load_full();
    view.policy_engine()?;
    let consent = answer.decision.map_err(|text| Error::invalid(format!("external policy: {text}")))?;
    let issued = template::issue(&view, &tools, &origin, &mode, &consent, &subject.key, &stages).await?;
    Ok(Issued { key: subject.private, ..issued.with_warnings(answer.warnings) })
}

/// Verifies the caller's CSR, or generates a key and an empty CSR. Cheap checks come before key generation.
async fn subject(
    engine: &PolicyEngine,
    tools: &Tools,
    mode: &Mode,
    watch: &Watch,
    mount: MountId,
    stages: &Stages,
    started: Instant,
) -> Result<Subject> {
    let asked = match mode {
        Mode::Issue(asked) => asked,
        Mode::Sign(csr) | Mode::SignIntermediate(csr) => {
            csr::verify(csr)?;
            stages.rules(started);
            engine.check(tools.clock.now())?;
            return Ok(Subject { csr_pem: pem::encode(CSR_LABEL, csr.der()), key: csr.key.clone(), private: None });
        }
    };
    let key_type = asked.key_type.as_deref().filter(|t| !t.is_empty()).unwrap_or("rsa");
    let spec = KeySpec::new(key_type, asked.bits.unwrap_or(0))?;
    let started = stages.rules(started);
    engine.check(tools.clock.now())?;
    let key = Arc::new(tools.pool.generate(spec, mount, watch).await?);
    stages.key(started);
    let csr_pem = empty_csr(&key).await?;
    Ok(Subject { csr_pem, key: key.public().clone(), private: Some(key) })
}

const CSR_LABEL: &str = "CERTIFICATE REQUEST";

/// A CSR without subject and extensions, which only proves possession of the key.
async fn empty_csr(key: &Arc<PrivateKey>) -> Result<String> {
    let kind = key.kind();
    let algorithm = match kind {
        KeyKind::Rsa { .. } => SignatureAlgorithm::RsaPkcs1(Hash::Sha256),
        KeyKind::Ec(curve) => SignatureAlgorithm::Ecdsa(curve.hash()),
        KeyKind::Ed25519 => SignatureAlgorithm::Ed25519,
    };
    let info = request_info(&name::name(&[]), key.public().spki(), &Extensions::default());
    let prepared = Prepared::request(info, algorithm, &SigningKey::Local(Arc::clone(key)));
    let der = prepared.sign(&NoSigners, &Watch::ALWAYS).await?.der();
    Ok(pem::encode(CSR_LABEL, &der))
}
