//! Roles: what a mount lets its callers have in a certificate.
//!
//! A [`Role`] is a plain record, and what is stored of it. [`Role::checked`] refuses what could not be honoured at
//! issuance. Who is allowed what is decided in [`names`](crate::pki::check::names) and
//! [`validity`](crate::pki::check::validity). A role stored by an older version reads back with the defaults of
//! the fields that it lacks.
//!
//! Lists are taken apart once ([`CompiledRole`]); those that are templates are filled in for each request
//! ([`CompiledRole::filled_for`]).
//!
//! A field whose enforcement does not exist (patterns from identities) may be false and is refused as true: a role
//! must never promise a rule that nobody keeps.

mod allowed;
mod check;
mod policies;
mod templates;
mod terms;

use serde::{Deserialize, Serialize};

pub use self::allowed::{Allowed, CompiledRole};
pub use self::check::{LISTS, RoleList, SUBJECT_VALUES};
pub use self::policies::{CertificatePolicies, MOST_POLICIES, PolicyInformation};
pub use self::terms::{NotAfterBound, NotBeforeBound, RoleKeys, SerialNumberSource, SignatureBits};
use crate::error::Result;
use crate::pki::values::written::{WrittenTime, or_empty};
use crate::x509::algorithm::KeyKind;
use crate::x509::oid;
use crate::x509::usage::{KeyUsage, eku_oids};

/// Backdating when a role says nothing, or zero: 30 seconds.
pub const DEFAULT_NOT_BEFORE_DURATION: u64 = 30;

/// `key_usage` as it reads when nobody named any.
const DEFAULT_KEY_USAGE: [&str; 3] = ["DigitalSignature", "KeyAgreement", "KeyEncipherment"];

/// A role. Durations are whole seconds, 0 for unset; lists are empty for none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Role {
    /// Issuer of role-selected paths: id, name or `default`; resolved at each use.
    pub issuer_ref: String,
    /// Lifetime when the request names none; 0 is the mount's default.
    pub ttl: u64,
    /// Longest lifetime; 0 is the mount's.
    pub max_ttl: u64,
    /// Allows `localhost` and `localdomain`.
    pub allow_localhost: bool,
    /// Domains that the three flags below refer to.
    pub allowed_domains: Vec<String>,
    /// Identity templates in `allowed_domains`.
    pub allowed_domains_template: bool,
    /// `*` from identity templates; always false.
    pub allow_globs_in_identity_templates: bool,
    /// Allows the domains themselves.
    pub allow_bare_domains: bool,
    /// Allows names at any depth below the domains, and wildcards directly on them.
    pub allow_subdomains: bool,
    /// Takes domains with `*` as patterns for the whole name.
    pub allow_glob_domains: bool,
    /// Allows names with a wildcard at all.
    pub allow_wildcard_certificates: bool,
    /// Lifts the domain rules; wildcard and host name rules stay.
    pub allow_any_name: bool,
    /// Requires host names where host names belong.
    pub enforce_hostnames: bool,
    /// Allows IP SANs.
    pub allow_ip_sans: bool,
    /// Networks that IP SANs must lie in, in canonical form; empty for any.
    pub allowed_ip_sans_cidr: Vec<String>,
    /// Patterns for URI SANs; empty allows none.
    pub allowed_uri_sans: Vec<String>,
    /// Identity templates in `allowed_uri_sans`.
    pub allowed_uri_sans_template: bool,
    /// `<oid>;UTF8:<pattern>` for otherName SANs, or the one entry `*`; empty allows none.
    pub allowed_other_sans: Vec<String>,
    /// Patterns for the subject's serialNumber attribute; empty allows none.
    pub allowed_serial_numbers: Vec<String>,
    /// Patterns for the subject's UID attributes; empty allows none.
    pub allowed_user_ids: Vec<String>,
    /// Allows the caller's display name as a name.
    pub allow_token_displayname: bool,
    /// Adds extended usage serverAuth.
    pub server_flag: bool,
    /// Adds extended usage clientAuth.
    pub client_flag: bool,
    /// Adds extended usage codeSigning.
    pub code_signing_flag: bool,
    /// Adds extended usage emailProtection.
    pub email_protection_flag: bool,
    /// The keys that are certified; stored as `key_type` and `key_bits`.
    #[serde(flatten)]
    pub keys: RoleKeys,
    /// `key_bits` as it was written under a key type without sizes: shown, without effect.
    #[serde(skip_serializing_if = "is_zero")]
    pub unused_key_bits: u32,
    /// Hash size under an RSA issuer.
    pub signature_bits: SignatureBits,
    /// RSASSA-PSS under an RSA issuer.
    pub use_pss: bool,
    /// Key usage names; see [`Role::key_usage_for`].
    pub key_usage: Vec<String>,
    /// Whether a write named `key_usage`; never shown.
    pub key_usage_is_named: bool,
    /// Extended key usage names, beside the flags.
    pub ext_key_usage: Vec<String>,
    /// Extended key usages as dotted OIDs.
    pub ext_key_usage_oids: Vec<String>,
    /// `sign` takes the common name of the CSR.
    pub use_csr_common_name: bool,
    /// `sign` takes the SANs of the CSR.
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
    /// Refuses subjects beyond the types and bounds of RFC 5280 A.1, in place of warning.
    pub strict_subject: bool,
    /// Gives each value of a subject attribute an RDN of its own, in the order of the list. Without it an attribute's values
    /// are one RDN, a SET in DER order, as peers of this server have them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub separate_rdns: bool,
    /// Requires a common name.
    pub require_cn: bool,
    /// Kinds of common name: `email` and `hostname`, or the one word `disabled`.
    pub cn_validations: Vec<String>,
    /// Certificate policies (RFC 5280 4.2.1.4).
    pub policy_identifiers: CertificatePolicies,
    /// Puts basicConstraints with cA FALSE into leaf certificates.
    pub basic_constraints_valid_for_non_ca: bool,
    /// How far the start of validity lies before now; 0 is 30 seconds.
    pub not_before_duration: u64,
    /// Start of validity of every certificate.
    #[serde(with = "or_empty")]
    pub not_before: Option<WrittenTime>,
    /// Whether requests may set `not_before`.
    pub not_before_bound: NotBeforeBound,
    /// End of validity of every certificate.
    #[serde(with = "or_empty")]
    pub not_after: Option<WrittenTime>,
    /// Whether requests may set `not_after`.
    pub not_after_bound: NotAfterBound,
    /// A lease comes with every certificate; never with `no_store`.
    pub generate_lease: bool,
    /// Certificates are not stored.
    pub no_store: bool,
    /// Forbids `cert_metadata`.
    pub no_store_metadata: bool,
    /// Where the subject's serialNumber may come from.
    pub serial_number_source: SerialNumberSource,
}

impl Default for Role {
    /// What a write without any member gives.
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

/// The key usages of a certificate for a key of this kind, where nobody named any. No keyEncipherment for EC
/// (RFC 8813 3), neither it nor keyAgreement for Ed25519 (RFC 9295 3), no keyAgreement for RSA (RFC 3279 2.3.1).
pub(crate) fn default_key_usage(kind: KeyKind) -> KeyUsage {
    match kind {
        KeyKind::Rsa { .. } => KeyUsage::DIGITAL_SIGNATURE.union(KeyUsage::KEY_ENCIPHERMENT),
        KeyKind::Ec(_) => KeyUsage::DIGITAL_SIGNATURE.union(KeyUsage::KEY_AGREEMENT),
        KeyKind::Ed25519 => KeyUsage::DIGITAL_SIGNATURE,
    }
}

impl Role {
    /// Bits of the hash that certificates are signed with; 0 leaves the hash to the issuer's key. Roles for RSA keys
    /// show 256 where none was written, so that 256 stands for none there.
    pub(crate) fn requested_signature_bits(&self) -> u32 {
        match self.signature_bits {
            SignatureBits::SHA_256 if self.keys.are_rsa() => 0,
            bits => bits.bits(),
        }
    }

    /// The key usages of a certificate for a key of this kind: those that were named, else what of the
    /// default suits the key.
    ///
    /// A role that was stored before the difference was known has named its usages when they are not the
    /// default. Unknown names of such a role count for nothing.
    pub fn key_usage_for(&self, kind: KeyKind) -> KeyUsage {
        if self.names_key_usage() {
            return KeyUsage::from_names(&self.key_usage);
        }
        // Verifiers of time stamps refuse other usages next to this one (RFC 3161 2.3).
        if self.purposes().is_ok_and(|purposes| purposes == [oid::TIME_STAMPING]) {
            return KeyUsage::DIGITAL_SIGNATURE;
        }
        default_key_usage(kind)
    }

    /// Whether the role's writer named key usages.
    pub(crate) fn names_key_usage(&self) -> bool {
        self.key_usage_is_named || self.key_usage != DEFAULT_KEY_USAGE
    }

    /// The identifiers of extKeyUsage in certificates of this role, DER content octets; none for no such extension.
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

    /// Whether TLS servers can use certificates of this role: extKeyUsage is absent, or holds id-kp-serverAuth or
    /// anyExtendedKeyUsage (RFC 5280 4.2.1.12).
    pub(crate) fn is_for_tls_servers(&self) -> bool {
        let serves = |purpose: &Vec<u8>| [oid::SERVER_AUTH, oid::ANY_EXT_KEY_USAGE].contains(&purpose.as_slice());
        self.purposes().is_ok_and(|purposes| purposes.is_empty() || purposes.iter().any(serves))
    }

    /// What of this role holds for `sign-verbatim`: lifetimes, issuer, storage, `strict_subject` and
    /// `basic_constraints_valid_for_non_ca`; everything else at its default.
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

/// A role of the members that a test names: lists also as texts with commas, lifetimes also as durations.
#[cfg(test)]
pub(crate) fn role_of(body: &serde_json::Value) -> Role {
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
