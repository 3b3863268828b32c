//! External policy: a service of the operator's decides about certificates, this server signs.
//!
//! A request goes to the *policy engine* with an empty CSR of a key made here, or with the caller's CSR,
//! and comes back with a certificate as a template. No private key leaves, no role is asked; what holds
//! for everything that is signed holds for templates too. Without an answer nothing is issued.
//!
//! | part | holds |
//! |---|---|
//! | [`config`] | the settings of a mount and their rules |
//! | `tls` | whom to trust for the engine, what to show it |
//! | `call`, `breaker` | one exchange, inside of bounds |
//! | `wire` | the question and the answer |
//! | `template` | what becomes of the engine's template |
//!
//! Called by the mount's replica ([`run`]) and by the wire ([`write_config`]).

mod breaker;
mod call;
pub mod config;
mod template;
mod tls;
mod wire;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;

pub use self::call::PolicyEngine;
pub use self::config::Config;
use super::actor::Planned;
use super::issue::{self, Issued, Requester, Tools};
use super::metrics::Stages;
use super::prepared::Prepared;
use super::request::IssueRequest;
use super::validity::Limits;
use super::view::View;
use super::{Authority, answer};
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::keys::local::{KeySpec, PrivateKey};
use crate::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};
use crate::x509::csr::request_info;
use crate::x509::public_key::PublicKey;
use crate::x509::{name, pem};

/// Body members of `issue` that this server reads; all of the body goes to the engine.
pub const ISSUE_FIELDS: &[&str] = &["format", "private_key_format", "remove_roots_from_chain", "key_type", "key_bits"];
/// Body members of `sign` and `sign-intermediate` that this server reads.
pub const SIGN_FIELDS: &[&str] = &["csr", "format", "private_key_format", "remove_roots_from_chain"];

/// What is asked of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A certificate for a key that is made here.
    Issue,
    /// A certificate for the key of a CSR.
    Sign,
    /// The same, and it may be an authority's.
    SignIntermediate,
}

impl Mode {
    /// The word that the engine is told.
    fn word(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::Sign => "sign",
            Self::SignIntermediate => "ica",
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
    /// The path of the request, mount included: leases are named after it.
    pub path: String,
    /// Issuer of the path.
    pub issuer_ref: Option<String>,
    /// Body members, all of them.
    pub fields: Fields,
    /// Who asks.
    pub requester: Requester,
    /// The mount's lifetimes; the engine is told.
    pub limits: Limits,
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
pub async fn run(views: Arc<ArcSwap<View>>, tools: Tools, request: Request, stages: Stages) -> Result<Issued> {
    let started = Instant::now();
    let view = views.load_full();
    let engine = Arc::clone(view.policy_engine()?);
    let rendering = IssueRequest::rendering(&request.fields)?;
    let issuer = match &request.issuer_ref {
        Some(reference) => Some(issue::signer(&view, reference)?),
        None => view.signer("default").cloned(),
    };
    let subject = subject(&engine, &tools, &request, view.mount, &stages, started).await?;
    let uuid = crate::random::uuid();
    let question = wire::question(&view, &request, &uuid, subject.csr_pem, issuer.as_deref())?;
    drop((view, issuer));
    let answer = engine.ask(question, &uuid, &tools.clock).await?;
    let view = views.load_full();
    view.policy_engine()?;
    let consent = answer.decision.map_err(|text| Error::invalid(format!("external policy: {text}")))?;
    let made = template::issue(&view, &tools, &request, &consent, &subject.key, &stages).await?;
    let private = subject.private.as_deref();
    let dates = made.released.dates;
    let (json, dates) = match request.mode {
        Mode::Issue | Mode::Sign => (answer::issued(&made.signer, &rendering, &made.released, private)?, dates),
        Mode::SignIntermediate => {
            (answer::issued_authority(&made.signer, &rendering, &made.released)?, dates.of_authority())
        }
    };
    Ok(Issued {
        json,
        dates: Some(dates),
        warnings: [answer.warnings, made.warnings].concat(),
        lease: made.released.lease,
    })
}

/// Reads and verifies the caller's CSR, or makes a key and an empty CSR. Every cheap refusal comes before
/// a key is generated.
async fn subject(
    engine: &PolicyEngine,
    tools: &Tools,
    request: &Request,
    mount: MountId,
    stages: &Stages,
    started: Instant,
) -> Result<Subject> {
    let fields = &request.fields;
    if request.mode != Mode::Issue {
        let csr = issue::verified_csr(fields)?;
        stages.rules(started);
        engine.check(tools.clock.now())?;
        return Ok(Subject { csr_pem: pem::encode(CSR_LABEL, csr.der()), key: csr.key, private: None });
    }
    let key_type = fields.text("key_type")?.filter(|t| !t.is_empty()).unwrap_or_else(|| "rsa".to_owned());
    let spec = KeySpec::new(&key_type, fields.int("key_bits")?.unwrap_or(0))?;
    let started = stages.rules(started);
    engine.check(tools.clock.now())?;
    let key = Arc::new(tools.pool.generate(spec, mount, &request.requester.watch).await?);
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
    let info = request_info(&name::name(&[]), key.public().spki(), &[]);
    let der = Prepared::request(info, algorithm, key).sign().await?.der();
    Ok(pem::encode(CSR_LABEL, &der))
}

/// Writes `config/external-policy`; members that are absent stay. The engine is not called.
///
/// # Errors
/// `Invalid` naming the member and the rule.
pub async fn write_config(authority: &Authority, mut fields: Fields) -> Result<()> {
    let bundle = fields.take_secret(config::CLIENT_BUNDLE)?;
    let now = authority.tools().clock.now();
    authority
        .change(move |view| {
            let config = view.external_policy.value.merged(&fields, bundle.as_ref(), now)?;
            let mut next = view.clone();
            let writes = vec![next.set_external_policy(config)?];
            Ok((Planned { view: next, writes, crls: false }, ()))
        })
        .await
}
