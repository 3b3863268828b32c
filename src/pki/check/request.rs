//! The content of certificate requests, independent of endpoint and encoding: names, validity, key, usages, signature.
//!
//! The types only carry data. Values that the role, issuer or mount provides are absent. Checks are in
//! [`names`](super::names), [`validity`](super::validity) and, for CAs, `ca_request`.

use std::time::Duration;

use crate::clock::Time;
use crate::error::Result;
use crate::keys::signing::{Signers, SigningKey};
use crate::pki::mount::signer::requested_algorithm;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::usage::KeyUsage;

/// Requested names, except the other subject attributes of a CA. Texts are trimmed; an empty text means absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedNames {
    /// Common name of the subject.
    pub common_name: String,
    /// Host names and e-mail addresses.
    pub alt_names: Vec<String>,
    /// IP addresses.
    pub ip_sans: Vec<String>,
    /// URIs.
    pub uri_sans: Vec<String>,
    /// otherNames: `<oid>;UTF8:<value>`.
    pub other_sans: Vec<String>,
    /// serialNumber attribute of the subject.
    pub serial_number: String,
    /// UID attributes of the subject.
    pub user_ids: Vec<String>,
    /// `true` excludes the common name from the SANs.
    pub exclude_cn_from_sans: bool,
}

/// Handling of a requested lifetime above the limit of the role or mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExcessiveTtl {
    /// Rejects a request with a lifetime above the limit.
    #[default]
    Refused,
    /// Shortens the lifetime to the limit and adds a warning.
    Capped,
}

/// Requested start and end of a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedValidity {
    /// Lifetime in whole seconds, greater than zero.
    pub ttl: Option<Duration>,
    /// Handling of a `ttl` above the limit.
    pub excessive_ttl: ExcessiveTtl,
    /// Requested notAfter; alternative to `ttl`.
    pub not_after: Option<Time>,
    /// Requested notBefore.
    pub not_before: Option<Time>,
}

/// The key to generate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedKey {
    /// Type of the key: `rsa`, `ec` or `ed25519`.
    pub key_type: Option<String>,
    /// Key size in bits; 0 is the default of the type.
    pub bits: Option<i64>,
}

/// Requested usages of the subject's key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedUsages {
    /// Requested keyUsage.
    pub key_usage: Option<KeyUsage>,
    /// Requested extKeyUsage: OIDs as DER content bytes.
    pub ext_key_usage: Vec<Vec<u8>>,
}

/// Requested signature algorithm of a certificate or CSR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedSignature {
    /// Hash size in bits; 0 is the default of the signing key.
    pub bits: u32,
    /// `true` selects RSASSA-PSS if the key is RSA.
    pub pss: bool,
}

impl RequestedSignature {
    /// Selects the algorithm for a local key of this kind.
    ///
    /// # Errors
    /// `Invalid` for a hash size other than 256, 384 or 512 bits, and for a P-224 key.
    pub(crate) fn local_algorithm(self, key: KeyKind) -> Result<SignatureAlgorithm> {
        SignatureAlgorithm::for_issuer(key, self.bits, self.pss)
    }

    /// Selects the algorithm for the signing key.
    ///
    /// # Errors
    /// As [`requested_algorithm`].
    pub(crate) fn algorithm(self, key: &SigningKey, signers: &dyn Signers) -> Result<SignatureAlgorithm> {
        requested_algorithm(key, signers, self.bits, self.pss)
    }
}

/// Attributes of a CA's subject other than its [names](RequestedNames); each may have several values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedSubject {
    /// countryName (C).
    pub country: Vec<String>,
    /// stateOrProvinceName (ST).
    pub province: Vec<String>,
    /// localityName (L).
    pub locality: Vec<String>,
    /// streetAddress (STREET).
    pub street_address: Vec<String>,
    /// postalCode (POSTALCODE).
    pub postal_code: Vec<String>,
    /// organizationName (O).
    pub organization: Vec<String>,
    /// organizationalUnitName (OU).
    pub ou: Vec<String>,
    /// `true` encodes each value as its own RDN, in list order.
    pub separate_rdns: bool,
}
