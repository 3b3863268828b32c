//! Issuers and keys of a mount: what is stored of them, their names, their usages.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::signatures::Signatures;
use super::urls::Urls;
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::fields::{MAX_NAME, is_name};
use crate::keys::local::PrivateKey;
use crate::keys::signing::{ManagedKey, SigningKey};
use crate::pki::constraints::Constraints;
use crate::pki::store::Grounds;
use crate::pki::values::hex;
use crate::x509::certificate::Certificate;
use crate::x509::extension::KeyUsage;
use crate::x509::name::CanonicalName;
use crate::x509::ocsp::IssuerHashes;
use crate::x509::public_key::PublicKey;
use aws_lc_rs::digest::{SHA256, digest};

/// What an issuer does with a certificate that would outlive it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeafNotAfter {
    /// Refuse it.
    #[default]
    Err,
    /// End it with the issuer.
    Truncate,
    /// Let it outlive the issuer.
    Permit,
    /// Refuse it, also where the endpoint would truncate by default.
    AlwaysEnforceErr,
}

impl LeafNotAfter {
    /// Reads the setting's word.
    ///
    /// # Errors
    /// `Invalid` for any other word.
    pub fn parse(word: &str) -> Result<Self> {
        match word {
            "err" => Ok(Self::Err),
            "truncate" => Ok(Self::Truncate),
            "permit" => Ok(Self::Permit),
            "always_enforce_err" => Ok(Self::AlwaysEnforceErr),
            _ => Err(Error::invalid("leaf_not_after_behavior: must be err, truncate, permit or always_enforce_err")),
        }
    }

    /// The setting's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Err => "err",
            Self::Truncate => "truncate",
            Self::Permit => "permit",
            Self::AlwaysEnforceErr => "always_enforce_err",
        }
    }

    /// What holds on endpoints that truncate by default (`sign-verbatim`, `sign-intermediate`), with
    /// their `enforce_leaf_not_after_behavior` flag.
    pub fn truncating_unless(self, enforced: bool) -> Self {
        if enforced || self == Self::AlwaysEnforceErr { self } else { Self::Truncate }
    }
}

/// What an issuer may be used for; reading is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Sign certificates.
    pub issuing: bool,
    /// Sign CRLs.
    pub crl: bool,
    /// Sign OCSP answers.
    pub ocsp: bool,
}

impl Usage {
    /// Everything.
    pub const ALL: Self = Self { issuing: true, crl: true, ocsp: true };

    /// Reads the words of the `usage` field.
    ///
    /// # Errors
    /// `Invalid` naming the words that are taken.
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

/// The words in alphabetical order, joined by commas.
impl fmt::Display for Usage {
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

/// What is stored of an issuer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IssuerRecord {
    /// Random UUID, never used again.
    pub id: String,
    /// Name, or empty.
    #[serde(default)]
    pub name: String,
    /// The key's id, or empty when the mount does not hold the key.
    #[serde(default)]
    pub key_id: String,
    /// The certificate, DER in base64.
    pub certificate: String,
    /// Ids of the operator's own chain; empty for the computed one.
    #[serde(default)]
    pub manual_chain: Vec<String>,
    /// What to do with leaves that would outlive the issuer.
    pub leaf_not_after_behavior: LeafNotAfter,
    /// Allowed uses.
    pub usage: Usage,
    /// Signature algorithm of CRLs and OCSP answers; empty derives it from the key.
    #[serde(default)]
    pub revocation_signature_algorithm: String,
    /// The issuer's own URLs; used wholly when there is any.
    #[serde(default)]
    pub urls: Urls,
    /// When it was revoked, epoch seconds.
    #[serde(default)]
    pub revoked_at: Option<i64>,
    /// Why it was revoked.
    #[serde(default, skip_serializing_if = "Grounds::are_unsaid")]
    pub revoked_for: Grounds,
    /// The CRL number that it had reached elsewhere: those of the lists that are made here are above it. 0 when it was
    /// nowhere else, as far as is known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crl_number: u64,
    /// When it last changed, epoch seconds (`Last-Modified`).
    pub modified_at: i64,
    /// What is known of its signature, and of those that its key made; whoever puts the record into a view need not say.
    #[serde(default, skip_serializing_if = "Signatures::are_unknown")]
    pub signatures: Signatures,
    /// The id of the authority whose CRLs it shares, when that is not the id of its own bytes: another issuer with its
    /// key and a name that matches its subject was in the mount before it. The view that takes the record sets this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An issuer: its record and its parsed certificate.
pub struct Issuer {
    /// What is stored.
    pub record: IssuerRecord,
    /// Version of the stored document.
    pub version: u64,
    /// The certificate.
    pub certificate: Certificate,
    /// Whether it certifies itself ([`Certificate::is_self_signed`]).
    pub self_signed: bool,
    /// Its subject, for look-ups.
    pub subject: Arc<CanonicalName>,
    /// The name of its issuer, for look-ups.
    pub issuer: Arc<CanonicalName>,
    /// How OCSP requests name it.
    pub hashes: Arc<IssuerHashes>,
    /// The name constraints of its certificate; the error is why they cannot be read.
    pub constraints: Result<Option<Arc<Constraints>>, String>,
}

impl Issuer {
    /// From a record.
    ///
    /// # Errors
    /// When the certificate in it does not parse.
    pub fn new(record: IssuerRecord, version: u64) -> Result<Self> {
        use base64::Engine as _;
        let der = base64::engine::general_purpose::STANDARD
            .decode(&record.certificate)
            .map_err(|_| Error::internal("stored issuer certificate is not base64"))?;
        let certificate = Certificate::parse(&der)?;
        let known = record.signatures.by.get(&record.id).copied();
        let self_signed = known.unwrap_or_else(|| certificate.certifies_itself());
        let hashes = Arc::new(IssuerHashes::new(certificate.subject(), certificate.key().bits()));
        let constraints = Constraints::of(&certificate).map(|c| c.map(Arc::new)).map_err(|e| e.text().to_owned());
        let subject = Arc::new(certificate.subject().canonical());
        let issuer = Arc::new(certificate.issuer().canonical());
        Ok(Self { record, version, certificate, self_signed, subject, issuer, hashes, constraints })
    }

    /// The same issuer with another record; the certificate and the authority stay.
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

    /// Returns `true` if the names of issuer and subject of the certificate match (RFC 5280 3.2).
    pub(crate) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// The id of its authority: issuers of one authority share CRLs and the OCSP responder.
    pub(crate) fn authority_id(&self) -> String {
        self.record.authority.clone().unwrap_or_else(|| authority_id(&self.certificate))
    }

    /// The same issuer, in the authority of those among `others` that have its key and a matching subject.
    pub(crate) fn in_authority_of<'i>(mut self, mut others: impl Iterator<Item = &'i Arc<Self>>) -> Self {
        self.record.authority = None;
        let own = self.authority_id();
        let same = others.find(|other| other.is_same_authority(&self));
        self.record.authority = same.map(|other| other.authority_id()).filter(|id| *id != own);
        self
    }

    /// Returns `true` if both are one authority: the same key, and subjects that match by RFC 5280 7.1.
    pub(crate) fn is_same_authority(&self, other: &Self) -> bool {
        self.subject == other.subject && self.certificate.key() == other.certificate.key()
    }

    /// As [`may_sign_crls`], of its certificate.
    pub fn may_sign_crls(&self) -> bool {
        may_sign_crls(&self.certificate)
    }
}

/// Whether a certificate lets its key sign CRLs: no keyUsage, or one with cRLSign (RFC 5280 4.2.1.3).
pub fn may_sign_crls(certificate: &Certificate) -> bool {
    certificate.key_usage().is_none_or(|usage| usage.contains(KeyUsage::CRL_SIGN))
}

/// Where a stored key is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptIn {
    /// In the record itself.
    #[default]
    Local,
    /// Behind a signer; the record names it.
    Managed,
}

/// What is stored of a key. Every kind has its own members: a tagged enum would be read through copies that
/// nobody overwrites.
#[derive(Clone, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Random UUID, never used again.
    pub id: String,
    /// Name, or empty.
    #[serde(default)]
    pub name: String,
    /// Where the key is; in the record when it does not say.
    #[serde(default)]
    pub kind: KeptIn,
    /// Local: the private key, PKCS#8 DER in base64; overwritten on drop.
    #[serde(default, skip_serializing_if = "is_none")]
    pub pkcs8: Zeroizing<String>,
    /// Managed: which key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedRecord>,
}

fn is_none(text: &Zeroizing<String>) -> bool {
    text.is_empty()
}

/// What is stored of a managed key.
#[derive(Clone, Serialize, Deserialize)]
pub struct ManagedRecord {
    /// The managed key's UUID.
    pub uuid: String,
    /// Its name when the mount took it.
    pub name: String,
    /// Its public half, SubjectPublicKeyInfo in base64: a mount loads without asking anybody for it.
    pub public: String,
    /// What names it at its backend; empty where its configuration does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub locator: String,
}

/// A key of the mount, ready to sign.
#[derive(Clone)]
pub struct Key {
    /// Random UUID.
    pub id: String,
    /// Name, or empty.
    pub name: String,
    /// Version of the stored document.
    pub version: u64,
    /// What signs.
    pub signing: SigningKey,
}

impl Key {
    /// Loads the key of a record of `mount`.
    ///
    /// # Errors
    /// When the stored key does not parse.
    pub fn new(record: &KeyRecord, version: u64, mount: MountId) -> Result<Self> {
        use base64::Engine as _;
        let decoded = |text: &str| {
            let der = base64::engine::general_purpose::STANDARD.decode(text);
            der.map(crate::secret::Secret::new).map_err(|_| Error::internal("stored key is not base64"))
        };
        let signing = match (record.kind, &record.managed) {
            (KeptIn::Local, _) => {
                SigningKey::Local(Arc::new(PrivateKey::from_pkcs8(decoded(&record.pkcs8)?.expose())?))
            }
            (KeptIn::Managed, Some(ManagedRecord { uuid, name, public, locator })) => {
                let public = PublicKey::parse(decoded(public)?.expose())?;
                let (uuid, name, locator) = (uuid.clone(), name.clone(), locator.clone());
                SigningKey::Managed(Arc::new(ManagedKey { mount, uuid, name, public, locator }))
            }
            (KeptIn::Managed, None) => return Err(Error::internal("a stored managed key does not say which")),
        };
        Ok(Self { id: record.id.clone(), name: record.name.clone(), version, signing })
    }

    /// The record to store.
    ///
    /// # Errors
    /// When the key cannot be encoded.
    pub fn record(&self) -> Result<KeyRecord> {
        use base64::Engine as _;
        let encoded = |der: &[u8]| base64::engine::general_purpose::STANDARD.encode(der);
        let (kind, pkcs8, managed) = match &self.signing {
            SigningKey::Local(key) => (KeptIn::Local, encoded(key.to_pkcs8()?.expose()), None),
            SigningKey::Managed(key) => {
                let (uuid, name, locator) = (key.uuid.clone(), key.name.clone(), key.locator.clone());
                let record = ManagedRecord { uuid, name, public: encoded(key.public.spki()), locator };
                (KeptIn::Managed, String::new(), Some(record))
            }
        };
        Ok(KeyRecord { id: self.id.clone(), name: self.name.clone(), kind, pkcs8: Zeroizing::new(pkcs8), managed })
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        self.signing.public()
    }
}

/// The id of an authority by the bytes of its subject and key. It is stored with CRLs and deleted issuers; ask
/// [`Issuer::authority_id`], which knows of subjects in other encodings.
fn authority_id(certificate: &Certificate) -> String {
    let authority = [certificate.subject().as_der(), certificate.key().spki()].concat();
    hex(&digest(&SHA256, &authority).as_ref()[..16])
}

/// Checks an issuer's or key's name: the name grammar, and not the reserved word `default`. `what` is
/// the field. An empty name is fine (no name).
///
/// # Errors
/// `Invalid` naming field and rule.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Ok(());
    }
    if name.eq_ignore_ascii_case("default") {
        return Err(Error::invalid(format!("{what}: name is reserved")));
    }
    if !is_name(name) || name.len() > MAX_NAME {
        return Err(Error::invalid(format!(
            "{what}: name contains characters outside the allowed set: letters, digits and '_', inside also '-' and '.', at most 128"
        )));
    }
    Ok(())
}
