//! Issuers and keys of a mount: what is stored of them, their names, their usages, their chains.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

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
use crate::x509::ocsp::IssuerHashes;
use crate::x509::public_key::PublicKey;
use aws_lc_rs::digest::{SHA256, digest};

/// Longest chain that is worked out, or listed by an operator.
pub const MAX_CHAIN: usize = 64;
/// Most issuers of one subject in a mount: who certifies whom is a signature check for every pair of them.
const MAX_OF_SUBJECT: usize = 128;
/// Most issuers of one subject and key in a mount: each of them certifies all others.
const MAX_OF_KEY: usize = 16;

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
        let self_signed = certificate.subject() == certificate.issuer() && certificate.is_signed_by(certificate.key());
        let hashes = Arc::new(IssuerHashes::new(certificate.subject(), certificate.key().bits()));
        let constraints = Constraints::of(&certificate).map(|c| c.map(Arc::new)).map_err(|e| e.text().to_owned());
        Ok(Self { record, version, certificate, self_signed, hashes, constraints })
    }

    /// The same issuer with another record; the certificate stays.
    pub fn with_record(&self, record: IssuerRecord, version: u64) -> Self {
        Self {
            record,
            version,
            certificate: self.certificate.clone(),
            self_signed: self.self_signed,
            hashes: Arc::clone(&self.hashes),
            constraints: self.constraints.clone(),
        }
    }

    /// Whether `parent` certifies this issuer: its subject is our issuer and its key verifies us.
    fn is_certified_by(&self, parent: &Issuer) -> bool {
        self.record.id != parent.record.id
            && self.certificate.issuer() == parent.certificate.subject()
            && self.certificate.is_signed_by(parent.certificate.key())
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

/// What issuers with one subject and key have in common: the group of their lists.
pub(crate) fn authority_id(certificate: &Certificate) -> String {
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

/// Who certifies whom: for every issuer the ids of its parents, self-signed ones first, each group by id.
pub type Parents = BTreeMap<String, Vec<String>>;

/// Works out who certifies whom: a signature check for every pair whose names fit.
pub fn parents(issuers: &BTreeMap<String, Arc<Issuer>>) -> Parents {
    issuers.iter().map(|(id, issuer)| (id.clone(), parents_of(issuer, issuers.values()))).collect()
}

fn parents_of<'a>(child: &Issuer, issuers: impl Iterator<Item = &'a Arc<Issuer>>) -> Vec<String> {
    let mut found: Vec<_> = issuers.filter(|p| child.is_certified_by(p)).collect();
    found.sort_by_key(|p| (!p.self_signed, p.record.id.clone()));
    found.into_iter().map(|p| p.record.id.clone()).collect()
}

/// Adds a new issuer to what is known, checking only the pairs that it is in.
pub fn add_parents(parents: &mut Parents, issuers: &BTreeMap<String, Arc<Issuer>>, new: &Arc<Issuer>) {
    parents.insert(new.record.id.clone(), parents_of(new, issuers.values()));
    for child in issuers.values().filter(|child| child.is_certified_by(new)) {
        let list = parents.entry(child.record.id.clone()).or_default();
        let rank = |id: &String| (!issuers.get(id).unwrap_or(new).self_signed, id.clone());
        list.push(new.record.id.clone());
        list.sort_by_key(rank);
    }
}

/// Refuses an issuer of whose subject, or subject and key, there are as many as a mount takes.
///
/// # Errors
/// `Invalid` with the limit.
pub fn check_room(issuers: &BTreeMap<String, Arc<Issuer>>, new: &Certificate) -> Result<()> {
    let same: Vec<_> = issuers.values().filter(|known| known.certificate.subject() == new.subject()).collect();
    let of_key = same.iter().filter(|known| known.certificate.key() == new.key()).count();
    if of_key >= MAX_OF_KEY {
        return Err(Error::invalid(format!(
            "certificate: this mount has {MAX_OF_KEY} issuers of this subject and key already, the most that it takes"
        )));
    }
    if same.len() >= MAX_OF_SUBJECT {
        return Err(Error::invalid(format!(
            "certificate: this mount has {MAX_OF_SUBJECT} issuers of this subject already, the most that it takes"
        )));
    }
    Ok(())
}

/// Takes an issuer out of what is known.
pub fn remove_parents(parents: &mut Parents, id: &str) {
    parents.remove(id);
    parents.values_mut().for_each(|list| list.retain(|parent| parent != id));
}

/// How many authorities may follow below an issuer (RFC 5280 4.2.1.9, 6.1.4): the least of its own path
/// length and of those above it, each less the authorities in between. Authorities that certify
/// themselves do not count. Of several parents (a root that was issued again) each has its say, whichever
/// of them a relying party knows; where there are roots among them, the roots alone.
pub fn path_length(id: &str, issuers: &BTreeMap<String, Arc<Issuer>>, parents: &Parents) -> Option<u32> {
    let mut least: Option<u32> = None;
    let mut seen = HashSet::new();
    let mut next = VecDeque::from([(id, 0)]);
    while let Some((id, between)) = next.pop_front() {
        let Some(issuer) = issuers.get(id).filter(|_| seen.len() < MAX_CHAIN && seen.insert(id)) else { continue };
        if let Some(length) = issuer.certificate.path_length() {
            let left = length.saturating_sub(between);
            least = Some(least.map_or(left, |least| least.min(left)));
        }
        if issuer.self_signed {
            continue;
        }
        let between = between + u32::from(issuer.certificate.subject() != issuer.certificate.issuer());
        let is_root = |id: &&String| issuers.get(*id).is_some_and(|parent| parent.self_signed);
        let above = parents.get(id).into_iter().flatten();
        let roots = above.clone().any(|id| is_root(&id));
        next.extend(above.filter(|id| !roots || is_root(id)).map(|id| (id.as_str(), between)));
    }
    least
}

/// The name constraints that hold below an issuer (RFC 5280 6.1.4): its own and those of everyone who
/// certifies it, directly or not, whichever chain a relying party knows and whatever an operator lists in a
/// manual chain. Each once.
///
/// # Errors
/// `Invalid` when some of them cannot be read.
pub fn constraints(
    id: &str,
    issuers: &BTreeMap<String, Arc<Issuer>>,
    parents: &Parents,
) -> Result<Vec<Arc<Constraints>>> {
    let mut all: Vec<Arc<Constraints>> = Vec::new();
    let mut seen = HashSet::new();
    let mut next = vec![id];
    while let Some(id) = next.pop() {
        let Some(issuer) = issuers.get(id).filter(|_| seen.insert(id)) else { continue };
        match &issuer.constraints {
            Ok(Some(own)) if !all.contains(own) => all.push(Arc::clone(own)),
            Ok(_) => {}
            Err(text) => return Err(Error::invalid(text.clone())),
        }
        next.extend(parents.get(id).into_iter().flatten().map(String::as_str));
    }
    Ok(all)
}

/// The chain of an issuer: itself, then depth-first its parents' chains, nobody twice. A manual chain
/// is taken as it is; its unknown ids are skipped.
pub fn chain(id: &str, issuers: &BTreeMap<String, Arc<Issuer>>, parents: &Parents) -> Vec<Arc<Issuer>> {
    let mut chain = Vec::new();
    let mut seen = HashSet::new();
    let mut stack = vec![id.to_owned()];
    while let Some(id) = stack.pop() {
        let Some(issuer) = issuers.get(&id) else { continue };
        if chain.len() >= MAX_CHAIN || !seen.insert(id.clone()) {
            continue;
        }
        chain.push(Arc::clone(issuer));
        if issuer.record.manual_chain.is_empty() {
            stack.extend(parents.get(&id).into_iter().flatten().rev().cloned());
            continue;
        }
        for id in &issuer.record.manual_chain {
            if let Some(listed) = issuers.get(id).filter(|_| seen.insert(id.clone())) {
                chain.push(Arc::clone(listed));
            }
        }
    }
    chain
}
