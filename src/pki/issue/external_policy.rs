//! External policy: a service of the operator's decides about certificates, this server signs.
//!
//! A request goes to the *policy engine* with an empty CSR of a key made here, or with the caller's CSR,
//! and comes back with a certificate as a template. No private key leaves, no role is asked; what holds
//! for everything that is signed holds for templates too. Without an answer nothing is issued.
//!
//! | part | holds |
//! |---|---|
//! | [`policy_engine`](crate::pki::policy_engine) | one exchange, inside of bounds |
//! | [`settings`](crate::pki::mount::settings::external_policy) | the settings of a mount and their rules |
//! | `wire` | the question and the answer |
//! | `template` | what becomes of the engine's template |
//!
//! Called by the mount's replica ([`run`]).

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

/// What is asked of the engine.
#[derive(Clone, Debug)]
pub enum Mode {
    /// A certificate for a key that is made here; it is of RSA when no type is named.
    Issue(RequestedKey),
    /// A certificate for the key of a CSR, whose signature is verified before anybody is asked.
    Sign(Csr),
    /// The same, and it may be an authority's.
    SignIntermediate(Csr),
}

impl Mode {
    /// The word that the engine is told.
    fn word(&self) -> &'static str {
        match self {
            Self::Issue(_) => "issue",
            Self::Sign(_) => "sign",
            Self::SignIntermediate(_) => "ica",
        }
    }
}

/// A request that the engine decides about.
pub struct Request {
    /// What is wanted.
    pub mode: Mode,
    /// The policy that the path names, or empty.
    pub policy: String,
    /// Path of the mount, with a trailing `/`.
    pub mount: String,
    /// The caller's own words, which the engine is told.
    pub body: Body,
    /// Who the caller is, as far as the settings have the engine told; `None` without an entity.
    pub who: Option<Who>,
}

/// What is certified, and the key when it was made here.
struct Subject {
    csr_pem: String,
    key: PublicKey,
    private: Option<Arc<PrivateKey>>,
}

/// Asks the engine and signs what it answers. The mount's state is taken anew after the call, which may
/// take long: what was disabled, deleted or revoked meanwhile does not sign.
///
/// # Errors
/// `Invalid` when external policy is not configured, naming the field and rule that the request breaks or
/// the rule that the engine's template breaks, or with the engine's own refusal; `Unavailable`, `Busy` and
/// `BadGateway` of the call.
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

/// Reads and verifies the caller's CSR, or makes a key and an empty CSR. Every cheap refusal comes before
/// a key is generated.
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

/// A CSR without subject and extensions: proof of the key, and nothing else.
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
