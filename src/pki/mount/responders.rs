//! Who answers for whom: worked out once for every change of issuers, so that a request only looks up.
//!
//! Issuers with one subject and key are one [`Responder`]: certificates of each are certificates of all,
//! and whichever of them has its key here and the usage `ocsp-signing` signs for them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::chains::Parents;
use super::issuer::{Issuer, authority_id};
use super::signer::{Signer, revocation_algorithm};
use crate::keys::signing::SigningKey;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::ocsp::{CertId, IdHash, IssuerHashes};
use crate::x509::pieces::Name;
use crate::x509::serial::Serial;

/// Issuers of one subject and key.
pub struct Responder {
    /// Ids.
    issuers: HashSet<String>,
    /// One of them: name, key and hashes are the same in all.
    one: Arc<Issuer>,
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
    /// What identifies its issuers.
    pub(crate) fn hashes(&self) -> &IssuerHashes {
        &self.one.hashes
    }

    /// The subject of its issuers.
    pub(crate) fn name(&self) -> &Name {
        self.one.certificate.subject()
    }

    /// What stands for the name and key of its issuers.
    pub(crate) fn authority(&self) -> String {
        authority_id(&self.one.certificate)
    }

    /// Whether one of its issuers has this id.
    pub(crate) fn has(&self, issuer: &str) -> bool {
        self.issuers.contains(issuer)
    }

    /// Whether a CertID names one of its issuers.
    pub(crate) fn is_meant(&self, id: &CertId<'_>) -> bool {
        let own = self.hashes().of(id.hash);
        let (name, key) = own.split_at(own.len() / 2);
        (name, key) == (id.name_hash, id.key_hash)
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
        for (id, signer) in signers {
            let place = responders.place(&signer.issuer);
            place_of.insert(id, place);
            let responder = &mut responders.all[place];
            responder.issuers.insert(id.clone());
            responder.signing = responder.signing.take().or_else(|| Signing::of(signer));
        }
        for (id, signer) in signers {
            let issuer = &signer.issuer;
            let own = issuer.self_signed.then_some(id);
            for place in own.into_iter().chain(&parents[id]).filter_map(|above| place_of.get(above.as_str())) {
                let revoked_at = responders.all[*place].certified.entry(issuer.certificate.serial()).or_default();
                *revoked_at = revoked_at.or(issuer.record.revoked_at);
            }
        }
        responders
    }

    /// The place of an issuer's responder, which may be a new one.
    fn place(&mut self, issuer: &Arc<Issuer>) -> usize {
        let next = self.all.len();
        let place = *self.by_hashes.entry(issuer.hashes.of(IdHash::ALL[1]).to_vec()).or_insert(next);
        if place == next {
            for hash in IdHash::ALL {
                self.by_hashes.insert(issuer.hashes.of(hash).to_vec(), place);
            }
            self.all.push(Responder {
                issuers: HashSet::new(),
                one: Arc::clone(issuer),
                signing: None,
                certified: HashMap::new(),
            });
        }
        place
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
