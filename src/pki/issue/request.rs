//! Certificate requests: the caller and the requested content, independent of the API. The endpoints check the content
//! against role, issuer and rules.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::idempotency::IdempotentRequest;
use crate::error::Warnings;
use crate::keys::pool::CallerWatch;
use crate::pki::check::request::{
    RequestedKey, RequestedNames, RequestedSignature, RequestedSubject, RequestedUsages, RequestedValidity,
};
use crate::pki::check::validity::MountLifetimes;
use crate::telemetry::MountMeter;
use crate::templates::TemplateValues;
use crate::x509::certificate::Certificate;
use crate::x509::csr::Csr;
use crate::x509::extension::NameConstraints;

/// The data about the caller that role rules and stored records need.
#[derive(Clone, Debug, Default)]
pub struct IssueRequester {
    /// The caller's requester record for storage (accessor hash, entity id, display name); never a token or accessor in
    /// clear text.
    pub requester_record: String,
    /// Display name of the token; a role may allow it as a requested name.
    pub display_name: String,
    /// Identity of the caller, which fills in the templates of roles.
    pub identity: Option<TemplateIdentity>,
    /// Hash of the token that leases are bound to; `None` if the caller's token cannot have leases.
    pub token: Option<[u8; 32]>,
    /// `true` if this request is the last permitted use of the token, which is revoked after the request.
    pub last_use: bool,
    /// Reports when the caller disconnects.
    pub watch: CallerWatch,
}

impl IssueRequester {
    /// Returns the values that fill in the templates of roles, if the caller has an identity.
    pub(crate) fn identity(&self) -> Option<&dyn TemplateValues> {
        self.identity.as_ref().map(|identity| &*identity.0)
    }
}

/// Values that fill in the templates of roles. `Debug` shows none of them, because they are personal data.
#[derive(Clone)]
pub struct TemplateIdentity(pub Arc<dyn TemplateValues>);

impl fmt::Debug for TemplateIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TemplateIdentity")
    }
}

/// Origin of a certificate request: caller, path and limits.
#[derive(Clone, Debug)]
pub struct IssueContext {
    /// Path of the request including the mount; it is the prefix of lease ids.
    pub path: String,
    /// Issuer named in the path; if `None`, the role's issuer or else the default issuer is used.
    pub issuer_ref: Option<String>,
    /// Data about the caller that sent the request.
    pub requester: IssueRequester,
    /// Default and maximum lifetime of the mount's certificates.
    pub limits: MountLifetimes,
    /// The request's idempotency key and content as hashes, if the client sent an `Idempotency-Key`.
    pub idempotent_request: Option<Box<IdempotentRequest>>,
    /// Metrics of the mount.
    pub mount: MountMeter,
}

/// A request for a leaf certificate under a role.
#[derive(Clone, Debug, Default)]
pub struct LeafRequest {
    /// Name of the role.
    pub role: String,
    /// The key to certify.
    pub key: RequestedSubjectKey,
    /// Requested names. The role may use those of the CSR instead.
    pub names: RequestedNames,
    /// Requested validity of the certificate.
    pub validity: RequestedValidity,
    /// Metadata to store with the certificate, in standard base64.
    pub metadata: Option<String>,
}

/// The key that a requested leaf certificate certifies.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum RequestedSubjectKey {
    /// A key to be generated; the request chooses its type and size only if the role permits any key.
    Generated(RequestedKey),
    /// The key of a CSR, whose signature is not yet verified.
    Csr(Csr),
}

impl Default for RequestedSubjectKey {
    fn default() -> Self {
        Self::Generated(RequestedKey::default())
    }
}

/// A request for a leaf certificate with the content of a CSR.
#[derive(Clone, Debug)]
pub struct VerbatimRequest {
    /// Name of the role that sets lifetimes, issuer and storage, if any.
    pub role: Option<String>,
    /// The CSR; its signature is not yet verified.
    pub csr: Csr,
    /// UID attributes to append to the CSR's subject.
    pub user_ids: Vec<String>,
    /// Requested validity of the certificate.
    pub validity: RequestedValidity,
    /// `true` applies the issuer's `leaf_not_after_behavior` to a certificate that would outlive the issuer; `false`
    /// truncates its validity.
    pub enforce_leaf_not_after_behavior: bool,
    /// Requested key usages and extended key usages; the corresponding extension of the CSR takes precedence.
    pub usages: RequestedUsages,
    /// `true` adds basicConstraints with cA FALSE; `None` uses the role's setting.
    pub basic_constraints_valid_for_non_ca: Option<bool>,
    /// Requested signature algorithm.
    pub signature: RequestedSignature,
    /// Metadata to store with the certificate, in standard base64.
    pub metadata: Option<String>,
}

/// A request for a CA certificate for the key of a CSR.
#[derive(Clone, Debug)]
pub struct IntermediateRequest {
    /// The CSR; its signature is not yet verified.
    pub csr: Csr,
    /// Requested names, or the choice to use those of the CSR.
    pub names: RequestedCaNames,
    /// Requested validity of the certificate.
    pub validity: RequestedValidity,
    /// Time by which notBefore precedes the current time; zero selects the default.
    pub not_before_duration: Duration,
    /// `true` applies the issuer's `leaf_not_after_behavior` to a certificate that would outlive the issuer; `false`
    /// truncates its validity.
    pub enforce_leaf_not_after_behavior: bool,
    /// Maximum number of CAs below the new CA; `None` allows as many as the issuer does.
    pub max_path_length: Option<u8>,
    /// Key usages and extended key usages in addition to those of every CA.
    pub usages: RequestedUsages,
    /// Name constraints of the new CA.
    pub constraints: NameConstraints,
    /// Subject key identifier. If `None`, the identifier comes from the CSR (only with `FromCsr`), or else it is
    /// derived from the key.
    pub key_id: Option<Vec<u8>>,
    /// Requested signature algorithm.
    pub signature: RequestedSignature,
}

/// Source of the names in a CA certificate.
#[derive(Clone, Debug)]
pub enum RequestedCaNames {
    /// The names come from the request; the common name may come from the CSR.
    Requested {
        /// Names in the subject and subjectAltName.
        names: Box<RequestedNames>,
        /// Other attributes of the subject.
        subject: Box<RequestedSubject>,
    },
    /// The names come from the CSR, and its extensions are copied.
    FromCsr {
        /// otherNames to add to those of the CSR, each as `<oid>;UTF8:<value>`.
        other_sans: Vec<String>,
        /// Names of the request fields that are ignored with a warning, because the CSR has the names.
        ignored: Vec<&'static str>,
    },
}

/// A request to sign the self-issued certificate of another CA.
#[derive(Clone, Debug)]
pub struct SelfIssuedRequest {
    /// The self-issued certificate of the other CA.
    pub certificate: Certificate,
    /// `true` requires that the certificate's key has the same type as the issuer's key.
    pub require_matching_key_types: bool,
    /// Warnings about contents of the certificate that some verifiers reject; the contents are signed unchanged.
    pub warnings: Warnings,
}
