//! Roles: the rules for certificates that callers of a mount may obtain.
//!
//! A [`Role`] is the stored record. [`Role::checked`] rejects roles that cannot be honoured at issuance, including
//! fields whose enforcement is not implemented. [`names`](crate::pki::check::names) and
//! [`validity`](crate::pki::check::validity) apply the rules to requests. Roles stored by an older version get defaults
//! for missing fields.
//!
//! [`CompiledRole`] holds the parsed lists; [`CompiledRole::filled_for`] fills in templates for each request.

mod allowed;
mod check;
mod field_types;
mod policies;
mod templates;

use serde::{Deserialize, Serialize};

pub use self::allowed::{AllowedNames, CompiledRole};
pub use self::check::{ROLE_LISTS, RoleList, SUBJECT_LIST_LIMITS};
pub use self::field_types::{NotAfterBound, NotBeforeBound, RoleKeys, SerialNumberSource, SignatureBits};
pub use self::policies::{CertificatePolicies, POLICY_LIST_LIMITS, PolicyInformation};
use crate::error::Result;
use crate::pki::values::original_text::{Rfc3339Text, or_empty};
use crate::x509::algorithm::KeyKind;
use crate::x509::oid;
use crate::x509::usage::{KeyUsage, eku_oids};

/// Backdating in seconds when a role sets none, or zero.
pub const DEFAULT_NOT_BEFORE_DURATION: u64 = 30;

/// Value of `key_usage` in a role that sets none.
const DEFAULT_KEY_USAGE: [&str; 3] = ["DigitalSignature", "KeyAgreement", "KeyEncipherment"];

/// A role. Durations are whole seconds, 0 for unset; lists are empty for none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Role {
    /// Issuer for requests that name only the role: id, name or `default`; resolved at each use.
    pub issuer_ref: String,
    /// Lifetime if the request sets none; 0 uses the mount's default.
    pub ttl: u64,
    /// Maximum lifetime; 0 uses the mount's.
    pub max_ttl: u64,
    /// Allows `localhost` and `localdomain`.
    pub allow_localhost: bool,
    /// Domains for `allow_bare_domains`, `allow_subdomains` and `allow_glob_domains`.
    pub allowed_domains: Vec<String>,
    /// Treats `allowed_domains` as identity templates.
    pub allowed_domains_template: bool,
    /// Permits `*` in values from identity templates; not implemented, always false.
    pub allow_globs_in_identity_templates: bool,
    /// Allows the domains themselves.
    pub allow_bare_domains: bool,
    /// Allows subdomains at any depth, and wildcards directly below the domains.
    pub allow_subdomains: bool,
    /// Treats domains with `*` as patterns for the whole name.
    pub allow_glob_domains: bool,
    /// Allows wildcard names.
    pub allow_wildcard_certificates: bool,
    /// Lifts the domain rules; the rules for wildcards and host names still apply.
    pub allow_any_name: bool,
    /// Requires host name syntax in common names, DNS names and the hosts of e-mail addresses.
    pub enforce_hostnames: bool,
    /// Allows IP SANs.
    pub allow_ip_sans: bool,
    /// Networks that IP SANs must belong to, in canonical form; empty allows all.
    pub allowed_ip_sans_cidr: Vec<String>,
    /// Patterns for URI SANs; empty allows none.
    pub allowed_uri_sans: Vec<String>,
    /// Treats `allowed_uri_sans` as identity templates.
    pub allowed_uri_sans_template: bool,
    /// `<oid>;UTF8:<pattern>` for otherName SANs, or the single entry `*`; empty allows none.
    pub allowed_other_sans: Vec<String>,
    /// Patterns for the subject's serialNumber attribute; empty allows none.
    pub allowed_serial_numbers: Vec<String>,
    /// Patterns for the subject's UID attributes; empty allows none.
    pub allowed_user_ids: Vec<String>,
    /// Allows the caller's display name as a name.
    pub allow_token_displayname: bool,
    /// Adds serverAuth to extKeyUsage.
    pub server_flag: bool,
    /// Adds clientAuth to extKeyUsage.
    pub client_flag: bool,
    /// Adds codeSigning to extKeyUsage.
    pub code_signing_flag: bool,
    /// Adds emailProtection to extKeyUsage.
    pub email_protection_flag: bool,
    /// Keys to certify; stored as `key_type` and `key_bits`.
    #[serde(flatten)]
    pub keys: RoleKeys,
    /// `key_bits` written with a key type that has no sizes: returned on reads, otherwise unused.
    #[serde(skip_serializing_if = "is_zero")]
    pub unused_key_bits: u32,
    /// Hash size of signatures by an RSA issuer.
    pub signature_bits: SignatureBits,
    /// Use RSASSA-PSS for signatures by an RSA issuer.
    pub use_pss: bool,
    /// Key usage names; see [`Role::key_usage_for`].
    pub key_usage: Vec<String>,
    /// `true` if a write set `key_usage`; not returned on reads.
    pub key_usage_is_named: bool,
    /// Extended key usage names, in addition to the flags.
    pub ext_key_usage: Vec<String>,
    /// Extended key usages as dotted OIDs.
    pub ext_key_usage_oids: Vec<String>,
    /// `sign` uses the common name of the CSR.
    pub use_csr_common_name: bool,
    /// `sign` uses the SANs of the CSR.
    pub use_csr_sans: bool,
    /// Subject: OU values.
    pub ou: Vec<String>,
    /// Subject: O values.
    pub organization: Vec<String>,
    /// Subject: C values.
    pub country: Vec<String>,
    /// Subject: L values.
    pub locality: Vec<String>,
    /// Subject: ST values.
    pub province: Vec<String>,
    /// Subject: STREET values.
    pub street_address: Vec<String>,
    /// Subject: postalCode values.
    pub postal_code: Vec<String>,
    /// Rejects subjects that exceed the types and bounds of RFC 5280 A.1, instead of warning.
    pub strict_subject: bool,
    /// Encodes each value of a subject attribute as its own RDN, in list order. Otherwise all values of an attribute
    /// form one RDN, a SET in DER order, as in compatible servers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub separate_rdns: bool,
    /// Requires a common name.
    pub require_cn: bool,
    /// Kinds of common name: `email` and `hostname`, or only `disabled`.
    pub cn_validations: Vec<String>,
    /// Certificate policies (RFC 5280 4.2.1.4).
    pub policy_identifiers: CertificatePolicies,
    /// Adds basicConstraints with cA FALSE to leaf certificates.
    pub basic_constraints_valid_for_non_ca: bool,
    /// Backdating of the start of validity, seconds; 0 is 30 seconds.
    pub not_before_duration: u64,
    /// Fixed start of validity.
    #[serde(with = "or_empty")]
    pub not_before: Option<Rfc3339Text>,
    /// Controls `not_before` in requests.
    pub not_before_bound: NotBeforeBound,
    /// Fixed end of validity.
    #[serde(with = "or_empty")]
    pub not_after: Option<Rfc3339Text>,
    /// Controls `not_after` in requests.
    pub not_after_bound: NotAfterBound,
    /// Creates a lease for every certificate; excludes `no_store`.
    pub generate_lease: bool,
    /// Does not store certificates.
    pub no_store: bool,
    /// Rejects `cert_metadata`.
    pub no_store_metadata: bool,
    /// Source of the subject's serialNumber.
    pub serial_number_source: SerialNumberSource,
}

impl Default for Role {
    /// The role that a write without fields creates.
    fn default() -> Self {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect();
        Self {
            issuer_ref: "default".to_owned(),
            ttl: 0,
            max_ttl: 0,
            allow_localhost: true,
            allowed_domains: Vec::new(),
            allowed_domains_template: false,
            allow_globs_in_identity_templates: false,
            allow_bare_domains: false,
            allow_subdomains: false,
            allow_glob_domains: false,
            allow_wildcard_certificates: true,
            allow_any_name: false,
            enforce_hostnames: true,
            allow_ip_sans: true,
            allowed_ip_sans_cidr: Vec::new(),
            allowed_uri_sans: Vec::new(),
            allowed_uri_sans_template: false,
            allowed_other_sans: Vec::new(),
            allowed_serial_numbers: Vec::new(),
            allowed_user_ids: Vec::new(),
            allow_token_displayname: false,
            server_flag: true,
            client_flag: true,
            code_signing_flag: false,
            email_protection_flag: false,
            keys: RoleKeys::DEFAULT,
            unused_key_bits: 0,
            signature_bits: SignatureBits::SHA_256,
            use_pss: false,
            key_usage: words(&DEFAULT_KEY_USAGE),
            key_usage_is_named: false,
            ext_key_usage: Vec::new(),
            ext_key_usage_oids: Vec::new(),
            use_csr_common_name: true,
            use_csr_sans: true,
            ou: Vec::new(),
            organization: Vec::new(),
            country: Vec::new(),
            locality: Vec::new(),
            province: Vec::new(),
            street_address: Vec::new(),
            postal_code: Vec::new(),
            strict_subject: false,
            separate_rdns: false,
            require_cn: true,
            cn_validations: words(&["email", "hostname"]),
            policy_identifiers: CertificatePolicies::default(),
            basic_constraints_valid_for_non_ca: false,
            not_before_duration: DEFAULT_NOT_BEFORE_DURATION,
            not_before: None,
            not_before_bound: NotBeforeBound::Permit,
            not_after: None,
            not_after_bound: NotAfterBound::Permit,
            generate_lease: false,
            no_store: false,
            no_store_metadata: false,
            serial_number_source: SerialNumberSource::JsonCsr,
        }
    }
}

/// Default key usages for a key of this kind: no keyEncipherment for EC (RFC 8813 3), neither it nor keyAgreement for
/// Ed25519 (RFC 9295 3), no keyAgreement for RSA (RFC 3279 2.3.1).
pub(crate) fn default_key_usage(kind: KeyKind) -> KeyUsage {
    match kind {
        KeyKind::Rsa { .. } => KeyUsage::DIGITAL_SIGNATURE.union(KeyUsage::KEY_ENCIPHERMENT),
        KeyKind::Ec(_) => KeyUsage::DIGITAL_SIGNATURE.union(KeyUsage::KEY_AGREEMENT),
        KeyKind::Ed25519 => KeyUsage::DIGITAL_SIGNATURE,
    }
}

impl Role {
    /// Hash size for signatures in bits; 0 leaves it to the issuer's key. Roles for RSA keys store 256 when none was
    /// set, so 256 counts as not set there.
    pub(crate) fn requested_signature_bits(&self) -> u32 {
        match self.signature_bits {
            SignatureBits::SHA_256 if self.keys.are_rsa() => 0,
            bits => bits.bits(),
        }
    }

    /// Key usages for a key of this kind: those set by the writer, else the defaults that suit the key.
    ///
    /// Roles of older versions do not record whether `key_usage` was set. Any list other than the default counts as
    /// set; unknown names in it are ignored.
    pub fn key_usage_for(&self, kind: KeyKind) -> KeyUsage {
        if self.names_key_usage() {
            return KeyUsage::from_names(&self.key_usage);
        }
        // Time-stamp verifiers reject other usages next to digitalSignature (RFC 3161 2.3).
        if self.purposes().is_ok_and(|purposes| purposes == [oid::TIME_STAMPING]) {
            return KeyUsage::DIGITAL_SIGNATURE;
        }
        default_key_usage(kind)
    }

    /// `true` if a write set key usages.
    pub(crate) fn names_key_usage(&self) -> bool {
        self.key_usage_is_named || self.key_usage != DEFAULT_KEY_USAGE
    }

    /// extKeyUsage OIDs (DER contents) in certificates of this role; empty if the extension is absent.
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

    /// `true` if TLS servers can use the certificates: extKeyUsage is absent, or has id-kp-serverAuth or
    /// anyExtendedKeyUsage (RFC 5280 4.2.1.12).
    pub(crate) fn is_for_tls_servers(&self) -> bool {
        let serves = |purpose: &Vec<u8>| [oid::SERVER_AUTH, oid::ANY_EXT_KEY_USAGE].contains(&purpose.as_slice());
        self.purposes().is_ok_and(|purposes| purposes.is_empty() || purposes.iter().any(serves))
    }

    /// The role as applied by `sign-verbatim`: keeps lifetimes, issuer, storage, `strict_subject` and
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
