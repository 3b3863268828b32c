//! Issuers and keys of a mount: stored records, names and usages.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::signatures::IssuerSignatures;
use super::urls::Urls;
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::fields::{MAX_NAME_LEN, is_name};
use crate::keys::local::PrivateKey;
use crate::keys::signing::{ManagedKey, SigningKey};
use crate::pki::constraints::Constraints;
use crate::pki::store::RevocationReason;
use crate::pki::values::{Keyword, hex};
use crate::x509::certificate::Certificate;
use crate::x509::extension::KeyUsage;
use crate::x509::name::CanonicalName;
use crate::x509::ocsp::IssuerHashes;
use crate::x509::public_key::PublicKey;
use aws_lc_rs::digest::{SHA256, digest};

/// Handling of a certificate that would outlive its issuer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeafNotAfterBehavior {
    /// Rejects the request.
    #[default]
    Err,
    /// Issues the certificate with the notAfter of its issuer.
    Truncate,
    /// Issues the certificate unchanged; it may outlive the issuer.
    Permit,
    /// Rejects the request, also on endpoints that truncate by default.
    AlwaysEnforceErr,
}

impl Keyword for LeafNotAfterBehavior {
    const FIELD: &'static str = "leaf_not_after_behavior";
    const KEYWORDS: &'static [(Self, &'static str)] = &[
        (Self::Err, "err"),
        (Self::Truncate, "truncate"),
        (Self::Permit, "permit"),
        (Self::AlwaysEnforceErr, "always_enforce_err"),
    ];
}

impl LeafNotAfterBehavior {
    /// Returns the effective setting on endpoints that truncate by default (`sign-verbatim`, `sign-intermediate`).
    /// `enforced` is the request's `enforce_leaf_not_after_behavior` flag.
    pub fn on_truncating_endpoint(self, enforced: bool) -> Self {
        if enforced || self == Self::AlwaysEnforceErr { self } else { Self::Truncate }
    }
}

/// Permitted uses of an issuer; reading is always permitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerUsage {
    /// The issuer may sign certificates.
    pub issuing: bool,
    /// The issuer may sign CRLs.
    pub crl: bool,
    /// The issuer may sign OCSP responses.
    pub ocsp: bool,
}

impl IssuerUsage {
    /// Permits all uses.
    pub const ALL: Self = Self { issuing: true, crl: true, ocsp: true };

    /// Parses the `usage` field.
    ///
    /// # Errors
    /// `Invalid` listing the accepted values.
    pub fn parse(words: &[String]) -> Result<Self> {
        let mut usage = Self { issuing: false, crl: false, ocsp: false };
        for word in words {
            match word.as_str() {
                "read-only" => {}
                "issuing-certificates" => usage.issuing = true,
                "crl-signing" => usage.crl = true,
                "ocsp-signing" => usage.ocsp = true,
                _ => {
                    return Err(Error::invalid(
                        "usage: every word must be read-only, issuing-certificates, crl-signing or ocsp-signing",
                    ));
                }
            }
        }
        Ok(usage)
    }
}

/// Formats the permitted uses in alphabetical order, separated by commas.
impl fmt::Display for IssuerUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (on, word) in
            [(self.crl, "crl-signing,"), (self.issuing, "issuing-certificates,"), (self.ocsp, "ocsp-signing,")]
        {
            if on {
                f.write_str(word)?;
            }
        }
        f.write_str("read-only")
    }
}

/// Stored record of an issuer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IssuerRecord {
    /// Id of the issuer: a random UUID that is never reused.
    pub id: String,
    /// Name of the issuer, or empty.
    #[serde(default)]
    pub name: String,
    /// Id of the issuer's private key; empty when the mount does not have the key.
    #[serde(default)]
    pub key_id: String,
    /// DER encoding of the certificate, in base64.
    pub certificate: String,
    /// Ids of the issuers in the chain set by the operator; empty if the server computes the chain.
    #[serde(default)]
    pub manual_chain: Vec<String>,
    /// Handling of leaf certificates that would outlive the issuer.
    pub leaf_not_after_behavior: LeafNotAfterBehavior,
    /// Permitted uses of the issuer.
    pub usage: IssuerUsage,
    /// Signature algorithm of CRLs and OCSP responses; if empty, it is derived from the issuer's key.
    #[serde(default)]
    pub revocation_signature_algorithm: String,
    /// The issuer's own URLs; if there is any, they replace all of the mount's URLs.
    #[serde(default)]
    pub urls: Urls,
    /// Time at which the issuer was revoked, epoch seconds.
    #[serde(default)]
    pub revoked_at: Option<i64>,
    /// Reason for the issuer's revocation.
    #[serde(default, skip_serializing_if = "RevocationReason::is_empty")]
    pub revoked_for: RevocationReason,
    /// Last CRL number that this CA used before it was imported into this mount; CRLs of this mount get higher numbers.
    /// 0 if none is known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crl_number: u64,
    /// Time of the last change of the issuer, epoch seconds (`Last-Modified`).
    pub modified_at: i64,
    /// Known results of signature checks with other issuers. The view fills them in; callers may leave them empty.
    #[serde(default, skip_serializing_if = "IssuerSignatures::are_unknown")]
    pub signatures: IssuerSignatures,
    /// The authority id, if it was taken from an earlier issuer with the same key and a matching subject; `None` if it
    /// equals the id computed from this certificate. Issuers of one authority share CRLs. The view sets this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An issuer: its record and its parsed certificate.
pub struct Issuer {
    /// The stored record.
    pub record: IssuerRecord,
    /// Version of the stored issuer document.
    pub version: u64,
    /// The parsed certificate.
    pub certificate: Certificate,
    /// `true` if the certificate is self-signed ([`Certificate::certifies_itself`]).
    pub self_signed: bool,
    /// Canonical form of the certificate's subject, for comparisons.
    pub subject: Arc<CanonicalName>,
    /// Canonical form of the certificate's issuer name, for comparisons.
    pub issuer: Arc<CanonicalName>,
    /// Hashes of name and key by which OCSP requests identify the issuer.
    pub hashes: Arc<IssuerHashes>,
    /// Name constraints of the certificate, or why they cannot be parsed.
    pub constraints: Result<Option<Arc<Constraints>>, String>,
}

impl Issuer {
    /// Parses the certificate of a record.
    ///
    /// # Errors
    /// When the certificate does not parse.
    pub fn new(record: IssuerRecord, version: u64) -> Result<Self> {
        use base64::Engine as _;
        let der = base64::engine::general_purpose::STANDARD
            .decode(&record.certificate)
            .map_err(|_| Error::internal(format!("issuer {}: the stored certificate is not base64", record.id)))?;
        let certificate = Certificate::parse(&der)?;
        let known = record.signatures.signed_by.get(&record.id).copied();
        let self_signed = known.unwrap_or_else(|| certificate.certifies_itself());
        let hashes = Arc::new(IssuerHashes::new(certificate.subject(), certificate.key().bits()));
        let constraints = Constraints::of(&certificate).map(|c| c.map(Arc::new)).map_err(|e| e.text().to_owned());
        let subject = Arc::new(certificate.subject().canonical());
        let issuer = Arc::new(certificate.issuer().canonical());
        Ok(Self { record, version, certificate, self_signed, subject, issuer, hashes, constraints })
    }

    /// Returns the issuer with another record and version; the parsed certificate and the authority are unchanged.
    pub fn with_record(&self, record: IssuerRecord, version: u64) -> Self {
        Self {
            record: IssuerRecord { authority: self.record.authority.clone(), ..record },
            version,
            certificate: self.certificate.clone(),
            self_signed: self.self_signed,
            subject: Arc::clone(&self.subject),
            issuer: Arc::clone(&self.issuer),
            hashes: Arc::clone(&self.hashes),
            constraints: self.constraints.clone(),
        }
    }

    /// Returns `true` if issuer and subject of the certificate match (RFC 5280 3.2).
    pub(crate) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Returns the id of the issuer's authority. Issuers of one authority share their key, CRLs and OCSP responder.
    pub(crate) fn authority_id(&self) -> String {
        self.record.authority.clone().unwrap_or_else(|| authority_id(&self.certificate))
    }

    /// Adopts the authority id of the first issuer in `others` that has the same key and a matching subject.
    pub(crate) fn with_shared_authority_id<'i>(mut self, mut others: impl Iterator<Item = &'i Arc<Self>>) -> Self {
        self.record.authority = None;
        let own = self.authority_id();
        let same = others.find(|other| other.is_same_authority(&self));
        self.record.authority = same.map(|other| other.authority_id()).filter(|id| *id != own);
        self
    }

    /// Returns `true` if both issuers have the same key, and subjects that match by RFC 5280 7.1.
    pub(crate) fn is_same_authority(&self, other: &Self) -> bool {
        self.subject == other.subject && self.certificate.key() == other.certificate.key()
    }

    /// Returns `true` if the certificate's key may sign CRLs; see [`may_sign_crls`].
    pub fn may_sign_crls(&self) -> bool {
        may_sign_crls(&self.certificate)
    }
}

/// Returns `true` if the certificate's key may sign CRLs: it has no keyUsage, or one with cRLSign (RFC 5280 4.2.1.3).
pub fn may_sign_crls(certificate: &Certificate) -> bool {
    certificate.key_usage().is_none_or(|usage| usage.contains(KeyUsage::CRL_SIGN))
}

/// Location of a private key of the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyLocation {
    /// The private key is in the record.
    #[default]
    Local,
    /// The private key is at a managed key's backend; the record has a reference.
    Managed,
}

/// Stored record of a key. Keys of both locations share one struct: serde would read a tagged enum through buffers that
/// are not zeroized.
#[derive(Clone, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Id of the key: a random UUID that is never reused.
    pub id: String,
    /// Name of the key, or empty.
    #[serde(default)]
    pub name: String,
    /// Location of the private key; `Local` if missing.
    #[serde(default)]
    pub kind: KeyLocation,
    /// For local keys, the private key as PKCS#8 DER in base64; zeroized on drop.
    #[serde(default, skip_serializing_if = "is_empty_secret")]
    pub pkcs8: Zeroizing<String>,
    /// For managed keys, the reference to the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<StoredManagedKeyRef>,
}

fn is_empty_secret(text: &Zeroizing<String>) -> bool {
    text.is_empty()
}

/// Stored reference to a managed key.
#[derive(Clone, Serialize, Deserialize)]
pub struct StoredManagedKeyRef {
    /// UUID of the managed key.
    pub uuid: String,
    /// Name of the managed key when it was added to the mount.
    pub name: String,
    /// SubjectPublicKeyInfo in base64, so that a mount loads without calling the key's backend.
    pub public: String,
    /// Identifier of the key at its backend; empty if the configuration of the managed key identifies it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub locator: String,
}

/// A key of the mount, ready to sign.
#[derive(Clone)]
pub struct MountKey {
    /// Id of the key: a random UUID.
    pub id: String,
    /// Name of the key, or empty.
    pub name: String,
    /// Version of the stored key document.
    pub version: u64,
    /// The key to sign with.
    pub signing: SigningKey,
}

impl MountKey {
    /// Loads a key from its record.
    ///
    /// # Errors
    /// When the stored key does not parse.
    pub fn new(record: &KeyRecord, version: u64, mount: MountId) -> Result<Self> {
        use base64::Engine as _;
        let decoded = |text: &str| {
            let der = base64::engine::general_purpose::STANDARD.decode(text);
            der.map(crate::secret::Secret::new)
                .map_err(|_| Error::internal(format!("key {}: the stored key is not base64", record.id)))
        };
        let signing = match (record.kind, &record.managed) {
            (KeyLocation::Local, _) => {
                SigningKey::Local(Arc::new(PrivateKey::from_pkcs8(decoded(&record.pkcs8)?.expose())?))
            }
            (KeyLocation::Managed, Some(StoredManagedKeyRef { uuid, name, public, locator })) => {
                let public = PublicKey::parse(decoded(public)?.expose())?;
                let uuid = uuid.clone();
                let name = name.clone();
                let locator = locator.clone();
                SigningKey::Managed(Arc::new(ManagedKey { mount, uuid, name, public, locator }))
            }
            (KeyLocation::Managed, None) => {
                return Err(Error::internal(format!("key {}: the stored record names no managed key", record.id)));
            }
        };
        Ok(Self { id: record.id.clone(), name: record.name.clone(), version, signing })
    }

    /// Returns the record to store for this key.
    ///
    /// # Errors
    /// When the key cannot be encoded.
    pub fn record(&self) -> Result<KeyRecord> {
        use base64::Engine as _;
        let encoded = |der: &[u8]| base64::engine::general_purpose::STANDARD.encode(der);
        let (kind, pkcs8, managed) = match &self.signing {
            SigningKey::Local(key) => (KeyLocation::Local, encoded(key.to_pkcs8()?.expose()), None),
            SigningKey::Managed(key) => {
                let uuid = key.uuid.clone();
                let name = key.name.clone();
                let locator = key.locator.clone();
                let record = StoredManagedKeyRef { uuid, name, public: encoded(key.public.spki()), locator };
                (KeyLocation::Managed, String::new(), Some(record))
            }
        };
        Ok(KeyRecord { id: self.id.clone(), name: self.name.clone(), kind, pkcs8: Zeroizing::new(pkcs8), managed })
    }

    /// Returns the public key.
    pub fn public(&self) -> &PublicKey {
        self.signing.public()
    }
}

/// Computes the id of an authority from the bytes of its subject and key. The id is stored with CRLs and deleted
/// issuers. Callers use [`Issuer::authority_id`], which also handles subjects in other encodings.
fn authority_id(certificate: &Certificate) -> String {
    let authority = [certificate.subject().as_der(), certificate.key().spki()].concat();
    hex(&digest(&SHA256, &authority).as_ref()[..16])
}

/// Checks the name of an issuer or key: valid characters, and not the reserved word `default`. An empty name is
/// accepted.
///
/// # Errors
/// `Invalid` naming the field (`what`) and the rule.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Ok(());
    }
    if name.eq_ignore_ascii_case("default") {
        return Err(Error::invalid(format!("{what}: name is reserved")));
    }
    if !is_name(name) || name.len() > MAX_NAME_LEN {
        return Err(Error::invalid(format!(
            "{what}: name contains characters outside the allowed set: letters, digits, '_' and, not at the ends, '-' and '.'; at most 128"
        )));
    }
    Ok(())
}
