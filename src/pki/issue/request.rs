//! Requests for certificates: who asks, and for what. They come from any wire, already read; what they ask for is
//! held against role, issuer and the rules by whoever runs them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::repeats::Repeatable;
use crate::error::Warnings;
use crate::keys::pool::Watch;
use crate::pki::check::request::{
    RequestedKey, RequestedNames, RequestedSignature, RequestedSubject, RequestedUsages, RequestedValidity,
};
use crate::pki::check::validity::Limits;
use crate::telemetry::MountMeter;
use crate::templates::Identity;
use crate::x509::certificate::Certificate;
use crate::x509::csr::Csr;
use crate::x509::extension::NameConstraints;

/// Who asks, as far as rules and records care.
#[derive(Clone, Debug, Default)]
pub struct Requester {
    /// How the record names the requester (never a token or accessor in clear).
    pub recorded_as: String,
    /// The token's display name: roles may allow it as a name.
    pub display_name: String,
    /// Who fills the templates of roles.
    pub identity: Option<Filler>,
    /// The hash of the token with which leases end; `None` where there is none.
    pub token: Option<[u8; 32]>,
    /// Whether the token ends with this request.
    pub last_use: bool,
    /// Whether the caller still waits for the answer.
    pub watch: Watch,
}

impl Requester {
    /// Who fills the templates of roles.
    pub(crate) fn identity(&self) -> Option<&dyn Identity> {
        self.identity.as_ref().map(|filler| &*filler.0)
    }
}

/// An identity, of which nothing is shown.
#[derive(Clone)]
pub struct Filler(pub Arc<dyn Identity>);

impl fmt::Debug for Filler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filler")
    }
}

/// Where a request comes from: who asks, on which path, within which limits.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The path of the request, mount included: leases are named after it.
    pub path: String,
    /// The issuer that the path names; else the role's, or the default one.
    pub issuer_ref: Option<String>,
    /// Who asks.
    pub requester: Requester,
    /// The mount's lifetimes.
    pub limits: Limits,
    /// What the request is remembered by, when it may be sent again.
    pub repeatable: Option<Box<Repeatable>>,
    /// The metrics of the mount.
    pub mount: MountMeter,
}

impl Origin {
    /// The issuer of the path, else `other`.
    pub(crate) fn issuer_or<'a>(&'a self, other: &'a str) -> &'a str {
        self.issuer_ref.as_deref().unwrap_or(other)
    }
}

/// What a mount's replica makes a certificate of.
pub enum Request {
    /// `issue`.
    Issue(IssueRequest),
    /// `sign`.
    Sign(SignRequest),
    /// `sign-verbatim`.
    SignVerbatim(VerbatimRequest),
    /// `sign-intermediate`.
    SignIntermediate(Box<IntermediateRequest>),
    /// `sign-self-issued`.
    SignSelfIssued(SelfIssuedRequest),
}

/// A leaf by a role, for a key that is made here.
#[derive(Clone, Debug, Default)]
pub struct IssueRequest {
    /// The role's name.
    pub role: String,
    /// Its names.
    pub names: RequestedNames,
    /// Its dates.
    pub validity: RequestedValidity,
    /// Its key, where the role permits any.
    pub key: RequestedKey,
    /// What is kept beside the certificate: standard base64.
    pub metadata: Option<String>,
}

/// A leaf by a role, for the key of a CSR.
#[derive(Clone, Debug)]
pub struct SignRequest {
    /// The role's name.
    pub role: String,
    /// The CSR; its signature is verified when the request is run.
    pub csr: Csr,
    /// Its names, where the role does not take those of the CSR.
    pub names: RequestedNames,
    /// Its dates.
    pub validity: RequestedValidity,
    /// What is kept beside the certificate: standard base64.
    pub metadata: Option<String>,
}

/// A leaf of what a CSR says as it stands.
#[derive(Clone, Debug)]
pub struct VerbatimRequest {
    /// The role that decides lifetimes, issuer and storage; without one nothing narrows them.
    pub role: Option<String>,
    /// The CSR; its signature is verified when the request is run.
    pub csr: Csr,
    /// UID attributes that join the CSR's subject.
    pub user_ids: Vec<String>,
    /// Its dates.
    pub validity: RequestedValidity,
    /// Whether the issuer's own setting holds for a certificate that would outlive it; else it is truncated.
    pub enforce_leaf_not_after_behavior: bool,
    /// Its usages, where the CSR has none.
    pub usages: RequestedUsages,
    /// Whether it says that it is no authority's; else as the role has it.
    pub basic_constraints_valid_for_non_ca: Option<bool>,
    /// How it is signed.
    pub signature: RequestedSignature,
    /// What is kept beside the certificate: standard base64.
    pub metadata: Option<String>,
}

/// An authority below an issuer, for the key of a CSR.
#[derive(Clone, Debug)]
pub struct IntermediateRequest {
    /// The CSR; its signature is verified when the request is run.
    pub csr: Csr,
    /// What it is called.
    pub names: AuthorityNames,
    /// Its dates.
    pub validity: RequestedValidity,
    /// How far it is backdated; zero is the default.
    pub not_before_duration: Duration,
    /// Whether the issuer's own setting holds for a certificate that would outlive it; else it is truncated.
    pub enforce_leaf_not_after_behavior: bool,
    /// How many authorities may follow below it; `None` is as many as the issuer allows.
    pub max_path_length: Option<u8>,
    /// Its usages beside those of every authority.
    pub usages: RequestedUsages,
    /// Which names it may certify.
    pub constraints: NameConstraints,
    /// Its key identifier; else the CSR's, or one of its key.
    pub key_id: Option<Vec<u8>>,
    /// How it is signed.
    pub signature: RequestedSignature,
}

/// What an authority is called.
#[derive(Clone, Debug)]
pub enum AuthorityNames {
    /// As the request says; the common name may be the CSR's.
    Requested {
        /// Names.
        names: Box<RequestedNames>,
        /// The other attributes of its subject.
        subject: Box<RequestedSubject>,
    },
    /// As the CSR says, whose extensions count, too.
    OfCsr {
        /// otherNames that join the CSR's: `<oid>;UTF8:<value>`.
        other_sans: Vec<String>,
        /// What else the caller said of names: it has no effect, and a warning says so.
        ignored: Vec<&'static str>,
    },
}

/// Another authority's self-issued certificate, to be signed as it is.
#[derive(Clone, Debug)]
pub struct SelfIssuedRequest {
    /// The certificate.
    pub certificate: Certificate,
    /// Whether its key must be of the type of the issuer's.
    pub matching_key_types: bool,
    /// What other verifiers refuse in it: its bytes are kept.
    pub warnings: Warnings,
}
