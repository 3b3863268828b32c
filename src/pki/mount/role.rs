//! Roles: the rules for certificates that callers of a mount may obtain.
//!
//! A [`Role`] is the stored record. [`Role::checked`] rejects roles with rules that this server cannot enforce at
//! issuance. [`names`](crate::pki::check::names) and [`validity`](crate::pki::check::validity) apply the rules to
//! requests. Roles stored by an older version get defaults for missing fields.
//!
//! [`CompiledRole`] holds the parsed lists; [`CompiledRole::filled_for`] fills in templates for each request.

mod allowed;
mod check;
mod field_types;
mod policies;
mod templates;

use serde::{Deserialize, Serialize};

pub use self::allowed::{AllowedNames, CompiledRole};
pub use self::field_types::{NotAfterBound, NotBeforeBound, RoleKeys, SerialNumberSource, SignatureBits};
pub use self::policies::{CertificatePolicies, POLICY_LIST_LIMITS, PolicyInformation};
use crate::error::Result;
use crate::fields::{ListFieldSlot, ListLimit, Resource as _, resource};
use crate::pki::values::original_text::{Rfc3339Text, or_empty};
use crate::x509::algorithm::KeyKind;
use crate::x509::oid;
use crate::x509::usage::{KeyUsage, eku_oids};

/// Default of a role's `not_before_duration` in seconds, also used for 0.
pub const DEFAULT_NOT_BEFORE_DURATION: u64 = 30;

/// Value of `key_usage` in a role that sets none.
const DEFAULT_KEY_USAGE: [&str; 3] = ["DigitalSignature", "KeyAgreement", "KeyEncipherment"];

/// Limits of lists whose entries are all compared with the names in every request.
const PATTERN_LIST_LIMITS: ListLimit = ListLimit::new(1_000, 1_024);
const KEYWORD_LIST_LIMITS: ListLimit = ListLimit::new(64, 128);
/// Limits of the values of a subject attribute, which every certificate contains. The largest upper bounds of RFC 5280
/// appendix A.1 are 256 characters.
pub const SUBJECT_LIST_LIMITS: ListLimit = ListLimit::new(64, 1_024);

resource! {
    /// A role. Durations are in whole seconds, and 0 means unset; an empty list means none.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Role {
        /// Issuer for requests that name only the role: id, name or `default`; resolved at each use.
        text issuer_ref = "default".to_owned();
        /// Lifetime of a certificate if the request sets none; 0 uses the mount's default.
        seconds ttl = 0;
        /// Maximum lifetime of a certificate; 0 uses the mount's.
        seconds max_ttl = 0;
        /// Allows the names `localhost` and `localdomain`.
        flag allow_localhost = true;
        /// Domains for `allow_bare_domains`, `allow_subdomains` and `allow_glob_domains`.
        list(PATTERN_LIST_LIMITS) allowed_domains;
        /// Treats `allowed_domains` as identity templates.
        flag allowed_domains_template = false;
        /// Permits `*` in values from identity templates; not implemented, always false.
        flag allow_globs_in_identity_templates = false;
        /// Allows the `allowed_domains` themselves as names.
        flag allow_bare_domains = false;
        /// Allows subdomains of `allowed_domains` at any depth, and wildcards directly below these domains.
        flag allow_subdomains = false;
        /// Treats `allowed_domains` with `*` as patterns for the whole name.
        flag allow_glob_domains = false;
        /// Allows wildcard names.
        flag allow_wildcard_certificates = true;
        /// Lifts the rules for domains; the rules for wildcards and host names still apply.
        flag allow_any_name = false;
        /// Requires host name syntax in common names, DNS names and the hosts of e-mail addresses.
        flag enforce_hostnames = true;
        /// Allows IP SANs.
        flag allow_ip_sans = true;
        /// Networks that IP SANs must belong to, in canonical form; empty allows all.
        list(PATTERN_LIST_LIMITS.rejecting_only_empty()) allowed_ip_sans_cidr;
        /// Patterns for URI SANs; empty allows none.
        list(PATTERN_LIST_LIMITS) allowed_uri_sans;
        /// Treats `allowed_uri_sans` as identity templates.
        flag allowed_uri_sans_template = false;
        /// `<oid>;UTF8:<pattern>` for otherName SANs, or the single entry `*`; empty allows none.
        list(PATTERN_LIST_LIMITS) allowed_other_sans;
        /// Patterns for the subject's serialNumber attribute; empty allows none.
        list(PATTERN_LIST_LIMITS) allowed_serial_numbers;
        /// Patterns for the subject's UID attributes; empty allows none.
        list(PATTERN_LIST_LIMITS) allowed_user_ids;
        /// Allows the display name of the caller's token as a requested name.
        flag allow_token_displayname = false;
        /// Adds serverAuth to extKeyUsage.
        flag server_flag = true;
        /// Adds clientAuth to extKeyUsage.
        flag client_flag = true;
        /// Adds codeSigning to extKeyUsage.
        flag code_signing_flag = false;
        /// Adds emailProtection to extKeyUsage.
        flag email_protection_flag = false;
        /// Types and sizes of the keys to certify; stored as `key_type` and `key_bits`.
        #[serde(flatten)]
        stored keys: RoleKeys as ["key_type", "key_bits"] = RoleKeys::DEFAULT;
        /// `key_bits` written with a key type that has no sizes: returned on reads, otherwise unused.
        #[serde(skip_serializing_if = "is_zero")]
        stored unused_key_bits: u32 = 0;
        /// Hash size of signatures by an RSA issuer.
        value signature_bits: SignatureBits = SignatureBits::SHA_256;
        /// Uses RSASSA-PSS for signatures by an RSA issuer.
        flag use_pss = false;
        /// Key usage names; see [`Role::key_usage_for`].
        list(KEYWORD_LIST_LIMITS) key_usage = to_strings(&DEFAULT_KEY_USAGE);
        /// `true` if a write set `key_usage`; not returned on reads.
        stored key_usage_is_named: bool = false;
        /// Extended key usage names, in addition to the flags.
        list(KEYWORD_LIST_LIMITS) ext_key_usage;
        /// Extended key usages as dotted OIDs.
        list(KEYWORD_LIST_LIMITS) ext_key_usage_oids;
        /// `sign` uses the common name of the CSR.
        flag use_csr_common_name = true;
        /// `sign` uses the SANs of the CSR.
        flag use_csr_sans = true;
        /// OU values of the subject.
        list(SUBJECT_LIST_LIMITS) ou;
        /// O values of the subject.
        list(SUBJECT_LIST_LIMITS) organization;
        /// C values of the subject.
        list(SUBJECT_LIST_LIMITS) country;
        /// L values of the subject.
        list(SUBJECT_LIST_LIMITS) locality;
        /// ST values of the subject.
        list(SUBJECT_LIST_LIMITS) province;
        /// STREET values of the subject.
        list(SUBJECT_LIST_LIMITS) street_address;
        /// postalCode values of the subject.
        list(SUBJECT_LIST_LIMITS) postal_code;
        /// Rejects subjects that exceed the types and bounds of RFC 5280 A.1, instead of warning.
        flag strict_subject = false;
        /// Encodes each value of a subject attribute as its own RDN, in list order. Otherwise all values of an
        /// attribute form one RDN, a SET in DER order, as in compatible servers.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        flag separate_rdns = false;
        /// Requires a common name in requests.
        flag require_cn = true;
        /// Permitted kinds of common names: `email` and `hostname`, or only `disabled`, which permits any.
        list(KEYWORD_LIST_LIMITS) cn_validations = to_strings(&["email", "hostname"]);
        /// Certificate policies (RFC 5280 4.2.1.4).
        value policy_identifiers: CertificatePolicies = CertificatePolicies::default();
        /// Adds basicConstraints with cA FALSE to leaf certificates.
        flag basic_constraints_valid_for_non_ca = false;
        /// Seconds by which notBefore precedes the time of issuance; 0 means 30 seconds.
        seconds not_before_duration = DEFAULT_NOT_BEFORE_DURATION;
        /// Fixed notBefore of all certificates.
        #[serde(with = "or_empty")]
        value not_before: Option<Rfc3339Text> = None;
        /// Rule for `not_before` in requests.
        value not_before_bound: NotBeforeBound = NotBeforeBound::Permit;
        /// Fixed notAfter of all certificates.
        #[serde(with = "or_empty")]
        value not_after: Option<Rfc3339Text> = None;
        /// Rule for `not_after` in requests.
        value not_after_bound: NotAfterBound = NotAfterBound::Permit;
        /// Creates a lease for every certificate; cannot be combined with `no_store`.
        flag generate_lease = false;
        /// Does not store issued certificates.
        flag no_store = false;
        /// Rejects requests with `cert_metadata`.
        flag no_store_metadata = false;
        /// Source of the subject's serialNumber attribute.
        value serial_number_source: SerialNumberSource = SerialNumberSource::JsonCsr;
    }
}

/// Returns the default key usages for a key of this kind: no keyEncipherment for EC (RFC 8813 3), no keyEncipherment
/// and no keyAgreement for Ed25519 (RFC 9295 3), no keyAgreement for RSA (RFC 3279 2.3.1).
pub(crate) fn default_key_usage(kind: KeyKind) -> KeyUsage {
    match kind {
        KeyKind::Rsa { .. } => KeyUsage::DIGITAL_SIGNATURE.union(KeyUsage::KEY_ENCIPHERMENT),
        KeyKind::Ec(_) => KeyUsage::DIGITAL_SIGNATURE.union(KeyUsage::KEY_AGREEMENT),
        KeyKind::Ed25519 => KeyUsage::DIGITAL_SIGNATURE,
    }
}

impl Role {
    /// Returns the list fields in the order in which they are read and checked: those with subject values last.
    pub fn lists() -> impl Iterator<Item = &'static ListFieldSlot<Self>> {
        let others = Self::LISTS.iter().filter(|list| list.limit != SUBJECT_LIST_LIMITS);
        others.chain(Self::subject_lists())
    }

    /// Returns the list fields with subject values, which are encoded unchanged.
    pub fn subject_lists() -> impl Iterator<Item = &'static ListFieldSlot<Self>> {
        Self::LISTS.iter().filter(|list| list.limit == SUBJECT_LIST_LIMITS)
    }

    /// Returns the requested hash size for signatures in bits; 0 means the default of the issuer's key. Roles for RSA
    /// keys store 256 if none was set, so 256 counts as not set for such roles.
    pub(crate) fn requested_signature_bits(&self) -> u32 {
        match self.signature_bits {
            SignatureBits::SHA_256 if self.keys.are_rsa() => 0,
            bits => bits.bits(),
        }
    }

    /// Returns the key usages for a key of this kind: those that were set by a write of the role, else the defaults
    /// that suit the key.
    ///
    /// Roles of older versions do not record whether `key_usage` was set. Any list other than the default counts as
    /// set; unknown names in it are ignored.
    pub fn key_usage_for(&self, kind: KeyKind) -> KeyUsage {
        if self.has_explicit_key_usage() {
            return KeyUsage::from_names(&self.key_usage);
        }
        // Time-stamp verifiers reject any other key usage in addition to digitalSignature (RFC 3161 2.3).
        if self.purposes().is_ok_and(|purposes| purposes == [oid::TIME_STAMPING]) {
            return KeyUsage::DIGITAL_SIGNATURE;
        }
        default_key_usage(kind)
    }

    /// Returns `true` if a write of the role set `key_usage`.
    pub(crate) fn has_explicit_key_usage(&self) -> bool {
        self.key_usage_is_named || self.key_usage != DEFAULT_KEY_USAGE
    }

    /// Returns the extKeyUsage OIDs (DER contents) in certificates of this role; empty if the extension is absent.
    ///
    /// # Errors
    /// `Invalid` when an entry of `ext_key_usage_oids` does not parse.
    pub(crate) fn purposes(&self) -> Result<Vec<Vec<u8>>> {
        eku_oids(
            &self.ext_key_usage,
            self.server_flag,
            self.client_flag,
            self.code_signing_flag,
            self.email_protection_flag,
            &self.ext_key_usage_oids,
        )
    }

    /// Returns `true` if TLS servers can use the certificates: extKeyUsage is absent, or has id-kp-serverAuth or
    /// anyExtendedKeyUsage (RFC 5280 4.2.1.12).
    pub(crate) fn is_for_tls_servers(&self) -> bool {
        let serves = |purpose: &Vec<u8>| [oid::SERVER_AUTH, oid::ANY_EXT_KEY_USAGE].contains(&purpose.as_slice());
        self.purposes().is_ok_and(|purposes| purposes.is_empty() || purposes.iter().any(serves))
    }

    /// Returns the role as applied by `sign-verbatim`: it keeps lifetimes, issuer, storage, `strict_subject` and
    /// `basic_constraints_valid_for_non_ca`; all other fields have their defaults.
    pub fn for_verbatim(&self) -> Self {
        Self {
            issuer_ref: self.issuer_ref.clone(),
            ttl: self.ttl,
            max_ttl: self.max_ttl,
            not_before_duration: self.not_before_duration,
            generate_lease: self.generate_lease,
            no_store: self.no_store,
            no_store_metadata: self.no_store_metadata,
            strict_subject: self.strict_subject,
            basic_constraints_valid_for_non_ca: self.basic_constraints_valid_for_non_ca,
            ..Self::default()
        }
    }
}

fn to_strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Builds a role from JSON for tests; lists may be comma-separated texts, lifetimes may be durations.
#[cfg(test)]
pub(crate) fn parse_role(body: &serde_json::Value) -> Role {
    use serde_json::{Value, json};
    let default = json!(Role::default());
    let mut body = body.clone();
    for (name, value) in body.as_object_mut().into_iter().flatten() {
        let Value::String(text) = &*value else { continue };
        match &default[name] {
            Value::Array(_) => *value = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect(),
            Value::Number(_) => *value = crate::clock::parse_duration(text).unwrap().as_secs().into(),
            _ => {}
        }
    }
    serde_json::from_value::<Role>(body).unwrap().checked().unwrap().0
}
