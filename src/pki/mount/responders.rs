//! Who answers for whom: worked out once for every change of issuers, so that a request only looks up.
//!
//! Issuers with one subject (RFC 5280 7.1) and key are one [`Responder`]: certificates of each are certificates of all,
//! and whichever of them has its key here and the usage `ocsp-signing` signs for them. A CertID has a hash of the bytes
//! of the issuer's name in the client's certificate: each encoding of the name that is in the mount's issuers counts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::chains::Parents;
use super::issuer::Issuer;
use super::signer::{Signer, revocation_algorithm};
use crate::keys::signing::SigningKey;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::name::CanonicalName;
use crate::x509::ocsp::{CertId, IdHash, IssuerHashes};
use crate::x509::pieces::Name;
use crate::x509::serial::Serial;

/// Issuers of one subject and key.
pub struct Responder {
    /// Ids.
    issuers: HashSet<String>,
    /// The ids of their authority in stored documents.
    authorities: HashSet<String>,
    /// One of them: the key is the same in all, and the names match.
    one: Arc<Issuer>,
    /// The encodings of the name; `hashes` has what identifies the issuers under each of them, in the same order.
    names: Vec<Name>,
    hashes: Vec<Arc<IssuerHashes>>,
    /// Who signs; `None` when none of them may.
    pub(crate) signing: Option<Signing>,
    /// Certificates of issuers of the mount that this one certifies, with the time of their revocation.
    certified: HashMap<Serial, Option<i64>>,
}

/// What an answer is signed with.
#[derive(Clone)]
pub(crate) struct Signing {
    pub(crate) key: SigningKey,
    pub(crate) algorithm: SignatureAlgorithm,
}

impl Signing {
    /// `None` for an issuer without its key here, without the usage, or whose key signs nothing.
    fn of(signer: &Signer) -> Option<Self> {
        let key = signer.key.as_ref().filter(|_| signer.issuer.record.usage.ocsp)?;
        Some(Self { key: key.signing.clone(), algorithm: revocation_algorithm(signer).ok()? })
    }
}

impl Responder {
    fn new(issuer: &Arc<Issuer>) -> Self {
        Self {
            issuers: HashSet::new(),
            authorities: HashSet::new(),
            one: Arc::clone(issuer),
            names: Vec::new(),
            hashes: Vec::new(),
            signing: None,
            certified: HashMap::new(),
        }
    }

    /// What identifies its issuers, under each encoding of their name.
    pub(crate) fn hashes(&self) -> &[Arc<IssuerHashes>] {
        &self.hashes
    }

    /// The subject of its issuers, in the encoding that the client knows: that of the first of the certificates asked
    /// about which is theirs.
    pub(crate) fn name<'i>(&self, mut asked: impl Iterator<Item = &'i CertId<'i>>) -> &Name {
        let known = asked.find_map(|id| self.encoding(id));
        known.map_or_else(|| self.one.certificate.subject(), |at| &self.names[at])
    }

    /// True for an id of the authority of its issuers.
    pub(crate) fn is_authority(&self, id: &str) -> bool {
        self.authorities.contains(id)
    }

    /// The place of the encoding of the name that a CertID of its issuers was made from.
    fn encoding(&self, id: &CertId<'_>) -> Option<usize> {
        let issuer = id.issuer();
        self.hashes.iter().position(|hashes| hashes.of(id.hash) == issuer)
    }

    /// Whether one of its issuers has this id.
    pub(crate) fn has(&self, issuer: &str) -> bool {
        self.issuers.contains(issuer)
    }

    /// Whether a CertID names one of its issuers.
    pub(crate) fn is_meant(&self, id: &CertId<'_>) -> bool {
        self.encoding(id).is_some()
    }

    /// Of an issuer's certificate that it signed: when that was revoked, if it was.
    pub(crate) fn certified(&self, serial: &Serial) -> Option<Option<i64>> {
        self.certified.get(serial).copied()
    }

    /// Whether the certificate was signed by its key, under its name.
    pub(crate) fn signed(&self, certificate: &crate::x509::certificate::Certificate) -> bool {
        let own = &self.one.certificate;
        certificate.issuer().matches(own.subject()) && certificate.was_signed_by(own.key())
    }
}

/// The responders of a mount.
#[derive(Default)]
pub struct Responders {
    all: Vec<Responder>,
    /// Place by name and key under every hash; their lengths tell the hashes apart.
    by_hashes: HashMap<Vec<u8>, usize>,
}

impl Responders {
    /// Of these issuers, by id.
    pub fn new(signers: &BTreeMap<String, Arc<Signer>>, parents: &Parents) -> Self {
        let mut responders = Self::default();
        let mut place_of: HashMap<&str, usize> = HashMap::new();
        let mut known: HashMap<(&CanonicalName, &[u8]), usize> = HashMap::new();
        for (id, signer) in signers {
            let issuer = &signer.issuer;
            let place =
                *known.entry((&issuer.subject, issuer.certificate.key().spki())).or_insert(responders.all.len());
            if place == responders.all.len() {
                responders.all.push(Responder::new(issuer));
            }
            responders.add_encoding(place, issuer.certificate.subject(), |_| Arc::clone(&issuer.hashes));
            place_of.insert(id, place);
            let responder = &mut responders.all[place];
            responder.issuers.insert(id.clone());
            responder.authorities.insert(signer.issuer.authority_id());
            responder.signing = responder.signing.take().or_else(|| Signing::of(signer));
        }
        for (id, signer) in signers {
            let issuer = &signer.issuer;
            let own = issuer.self_signed.then_some(id);
            for place in own.into_iter().chain(&parents[id]).filter_map(|above| place_of.get(above.as_str())) {
                let name = issuer.certificate.issuer();
                responders.add_encoding(*place, name, |above| {
                    Arc::new(IssuerHashes::new(name, above.certificate.key().bits()))
                });
                let revoked_at = responders.all[*place].certified.entry(issuer.certificate.serial()).or_default();
                *revoked_at = revoked_at.or(issuer.record.revoked_at);
            }
        }
        responders
    }

    /// Lets a responder be found by its name in this encoding.
    fn add_encoding(&mut self, place: usize, name: &Name, hashes: impl FnOnce(&Issuer) -> Arc<IssuerHashes>) {
        let responder = &mut self.all[place];
        if responder.names.contains(name) {
            return;
        }
        let hashes = hashes(&responder.one);
        for hash in IdHash::ALL {
            self.by_hashes.entry(hashes.of(hash).to_vec()).or_insert(place);
        }
        responder.names.push(name.clone());
        responder.hashes.push(hashes);
    }

    /// The responder that a CertID means.
    pub(crate) fn meant(&self, id: &CertId<'_>) -> Option<&Responder> {
        Some(&self.all[*self.by_hashes.get(&id.issuer())?])
    }

    /// The responder of an issuer that may sign itself.
    pub(crate) fn of(&self, signer: &Signer) -> Option<&Responder> {
        Signing::of(signer)?;
        Some(&self.all[*self.by_hashes.get(signer.issuer.hashes.of(IdHash::Sha1))?])
    }
}
