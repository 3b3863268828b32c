//! What is asked of a certificate, whoever asks and however it came: names, validity, key, usages, signature.
//!
//! Nothing is decided here. What a role, an issuer or the mount fills in is absent, and stays so until names are
//! held against the role in [`names`](super::names), dates in [`validity`](super::validity), what makes an
//! authority in `ca_request`.

use std::time::Duration;

use crate::clock::Time;
use crate::error::Result;
use crate::keys::signing::{Signers, SigningKey};
use crate::pki::mount::signer::requested_algorithm;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::usage::KeyUsage;

/// The names of a certificate, but for the other attributes of an authority's subject. Texts are trimmed; empty
/// ones stand for absent.
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
    /// Keeps the common name out of the SANs.
    pub exclude_cn_from_sans: bool,
}

/// What happens to a requested lifetime above the limit of the role or mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExcessiveTtl {
    /// The request is refused.
    #[default]
    Refused,
    /// The lifetime is capped, with a warning.
    Capped,
}

/// When a certificate starts and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedValidity {
    /// Lifetime in whole seconds, above zero.
    pub ttl: Option<Duration>,
    /// What happens to `ttl` when it is above the limit.
    pub excessive_ttl: ExcessiveTtl,
    /// End, in the place of a lifetime.
    pub not_after: Option<Time>,
    /// Start.
    pub not_before: Option<Time>,
}

/// The key that is to be generated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedKey {
    /// `rsa`, `ec` or `ed25519`.
    pub key_type: Option<String>,
    /// Its size; 0 is the default of the type.
    pub bits: Option<i64>,
}

/// What the subject's key may be used for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedUsages {
    /// keyUsage.
    pub key_usage: Option<KeyUsage>,
    /// extKeyUsage: the content octets of each identifier.
    pub ext_key_usage: Vec<Vec<u8>>,
}

/// How a certificate, or a CSR, is signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedSignature {
    /// Bits of the hash; 0 takes the default of the signing key.
    pub bits: u32,
    /// RSASSA-PSS, where the key is of RSA.
    pub pss: bool,
}

impl RequestedSignature {
    /// The algorithm, by a key of this kind in this process.
    ///
    /// # Errors
    /// `Invalid` for a hash of another size than 256, 384 and 512 bits, and for a P-224 key.
    pub(crate) fn local_algorithm(self, key: KeyKind) -> Result<SignatureAlgorithm> {
        SignatureAlgorithm::for_issuer(key, self.bits, self.pss)
    }

    /// The algorithm, by the key that signs.
    ///
    /// # Errors
    /// As [`requested_algorithm`].
    pub(crate) fn algorithm(self, key: &SigningKey, signers: &dyn Signers) -> Result<SignatureAlgorithm> {
        requested_algorithm(key, signers, self.bits, self.pss)
    }
}

/// The attributes of an authority's subject beside its [names](RequestedNames); each may have several values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedSubject {
    /// C.
    pub country: Vec<String>,
    /// ST.
    pub province: Vec<String>,
    /// L.
    pub locality: Vec<String>,
    /// STREET.
    pub street_address: Vec<String>,
    /// POSTALCODE.
    pub postal_code: Vec<String>,
    /// O.
    pub organization: Vec<String>,
    /// OU.
    pub ou: Vec<String>,
    /// Each value has an RDN of its own, in the order of its list.
    pub separate_rdns: bool,
}
