//! OCSP responders of a mount, computed once per change of issuers, so that a request needs only a lookup.
//!
//! Issuers with the same subject (RFC 5280 7.1) and key form one [`Responder`]. Any of them with a key in the mount and
//! the usage `ocsp-signing` signs for all. A CertID hashes the issuer's name as encoded in the client's certificate, so
//! every encoding found in the mount's issuers is indexed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::chains::Parents;
use super::issuer::Issuer;
use super::signer::{IssuerSigner, revocation_algorithm};
use crate::keys::signing::SigningKey;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::name::CanonicalName;
use crate::x509::ocsp::{CertId, CertIdHash, IssuerHashes};
use crate::x509::pieces::Name;
use crate::x509::serial::Serial;

/// The OCSP responder of all issuers with the same subject and key.
pub struct Responder {
    issuers: HashSet<String>,
    /// Authority ids of the issuers. Revocations of deleted issuers are assigned to a responder by authority id.
    authorities: HashSet<String>,
    /// Any of the issuers: all have the same key and matching names.
    representative: Arc<Issuer>,
    /// Encodings of the issuers' name. `hashes` has the hashes for each encoding, in the same order.
    names: Vec<Name>,
    hashes: Vec<Arc<IssuerHashes>>,
    /// The key that signs the responses; `None` when no issuer may sign OCSP responses.
    pub(crate) signing: Option<ResponderKey>,
    /// Serial numbers of the mount's issuers that this responder's key certifies; each with its revocation time, epoch
    /// seconds.
    certified_issuers: HashMap<Serial, Option<i64>>,
}

/// The key and the signature algorithm of OCSP responses.
#[derive(Clone)]
pub(crate) struct ResponderKey {
    pub(crate) key: SigningKey,
    pub(crate) algorithm: SignatureAlgorithm,
}

impl ResponderKey {
    /// Returns the key and algorithm of an issuer; `None` if the mount lacks its private key, if it has no usage
    /// `ocsp-signing`, or if the key has no algorithm to sign with.
    fn of(signer: &IssuerSigner) -> Option<Self> {
        let key = signer.key.as_ref().filter(|_| signer.issuer.record.usage.ocsp)?;
        Some(Self { key: key.signing.clone(), algorithm: revocation_algorithm(signer).ok()? })
    }
}

impl Responder {
    fn new(issuer: &Arc<Issuer>) -> Self {
        Self {
            issuers: HashSet::new(),
            authorities: HashSet::new(),
            representative: Arc::clone(issuer),
            names: Vec::new(),
            hashes: Vec::new(),
            signing: None,
            certified_issuers: HashMap::new(),
        }
    }

    /// Returns the hashes of the issuers, one for each encoding of their name.
    pub(crate) fn hashes(&self) -> &[Arc<IssuerHashes>] {
        &self.hashes
    }

    /// Returns the subject of the issuers, encoded as in the client's certificate if a requested CertID matches; else
    /// in any encoding.
    pub(crate) fn name<'i>(&self, mut requested: impl Iterator<Item = &'i CertId<'i>>) -> &Name {
        let known = requested.find_map(|id| self.name_encoding_index(id));
        known.map_or_else(|| self.representative.certificate.subject(), |at| &self.names[at])
    }

    /// Returns `true` if `id` is an authority id of the responder's issuers.
    pub(crate) fn is_authority(&self, id: &str) -> bool {
        self.authorities.contains(id)
    }

    /// Returns the index of the name encoding from which a CertID was computed.
    fn name_encoding_index(&self, id: &CertId<'_>) -> Option<usize> {
        let issuer = id.issuer_hashes();
        self.hashes.iter().position(|hashes| hashes.for_hash(id.hash) == issuer)
    }

    /// Returns `true` if one of the responder's issuers has this id.
    pub(crate) fn has_issuer(&self, issuer: &str) -> bool {
        self.issuers.contains(issuer)
    }

    /// Returns `true` if a CertID identifies one of the responder's issuers.
    pub(crate) fn matches_cert_id(&self, id: &CertId<'_>) -> bool {
        self.name_encoding_index(id).is_some()
    }

    /// Looks up an issuer of the mount that the responder's key certifies. The inner value is its revocation time
    /// (epoch seconds), if it is revoked.
    pub(crate) fn find_certified_issuer(&self, serial: &Serial) -> Option<Option<i64>> {
        self.certified_issuers.get(serial).copied()
    }

    /// Returns `true` if the certificate names this responder as its issuer, and the responder's key signed it.
    pub(crate) fn has_signed(&self, certificate: &crate::x509::certificate::Certificate) -> bool {
        let own = &self.representative.certificate;
        certificate.issuer().matches(own.subject()) && certificate.is_signed_by_allowing_sha1(own.key())
    }
}

/// The responders of a mount.
#[derive(Default)]
pub struct Responders {
    all: Vec<Responder>,
    /// Index into `all` by the hashes of name and key in a CertID. One map has the hashes of every hash function,
    /// because they differ in length.
    by_hashes: HashMap<Vec<u8>, usize>,
}

impl Responders {
    /// Builds the responders of these issuers.
    pub fn new(signers: &BTreeMap<String, Arc<IssuerSigner>>, parents: &Parents) -> Self {
        let mut responders = Self::default();
        let mut index_of: HashMap<&str, usize> = HashMap::new();
        let mut known: HashMap<(&CanonicalName, &[u8]), usize> = HashMap::new();
        for (id, signer) in signers {
            let issuer = &signer.issuer;
            let index =
                *known.entry((&issuer.subject, issuer.certificate.key().spki())).or_insert(responders.all.len());
            if index == responders.all.len() {
                responders.all.push(Responder::new(issuer));
            }
            responders.add_encoding(index, issuer.certificate.subject(), |_| Arc::clone(&issuer.hashes));
            index_of.insert(id, index);
            let responder = &mut responders.all[index];
            responder.issuers.insert(id.clone());
            responder.authorities.insert(signer.issuer.authority_id());
            responder.signing = responder.signing.take().or_else(|| ResponderKey::of(signer));
        }
        for (id, signer) in signers {
            let issuer = &signer.issuer;
            let own = issuer.self_signed.then_some(id);
            for index in own.into_iter().chain(&parents[id]).filter_map(|above| index_of.get(above.as_str())) {
                let name = issuer.certificate.issuer();
                responders.add_encoding(*index, name, |above| {
                    Arc::new(IssuerHashes::new(name, above.certificate.key().bits()))
                });
                let revoked_at =
                    responders.all[*index].certified_issuers.entry(issuer.certificate.serial()).or_default();
                *revoked_at = revoked_at.or(issuer.record.revoked_at);
            }
        }
        responders
    }

    /// Makes a responder findable by another encoding of its name.
    fn add_encoding(&mut self, index: usize, name: &Name, hashes: impl FnOnce(&Issuer) -> Arc<IssuerHashes>) {
        let responder = &mut self.all[index];
        if responder.names.contains(name) {
            return;
        }
        let hashes = hashes(&responder.representative);
        for hash in CertIdHash::ALL {
            self.by_hashes.entry(hashes.for_hash(hash).to_vec()).or_insert(index);
        }
        responder.names.push(name.clone());
        responder.hashes.push(hashes);
    }

    /// Returns the responder that a CertID identifies.
    pub(crate) fn find(&self, id: &CertId<'_>) -> Option<&Responder> {
        Some(&self.all[*self.by_hashes.get(&id.issuer_hashes())?])
    }

    /// Returns the responder of an issuer; `None` if this issuer may not sign OCSP responses.
    pub(crate) fn of(&self, signer: &IssuerSigner) -> Option<&Responder> {
        ResponderKey::of(signer)?;
        Some(&self.all[*self.by_hashes.get(signer.issuer.hashes.for_hash(CertIdHash::Sha1))?])
    }
}
