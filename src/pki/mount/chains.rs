//! Finds the parents of each issuer of a mount: the issuers whose keys signed its certificate. Each pair with matching
//! names costs a signature check, unless a record already [has](super::signatures::IssuerSignatures) the result.
//! [paths](super::paths) builds the chains from the parents.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::issuer::Issuer;
use super::signatures::IssuerSignatures;
use crate::error::{Error, Result};
use crate::x509::certificate::Certificate;

/// Maximum length of a chain, computed or listed by an operator.
pub const MAX_CHAIN_LENGTH: usize = 64;
/// Maximum number of issuers in a mount: every change computes all of their chains.
const MAX_ISSUERS: usize = 1000;
/// Maximum number of issuers with the same subject in a mount: each pair of them may cost a signature check.
const MAX_ISSUERS_PER_SUBJECT: usize = 128;
/// Maximum number of issuers with the same subject and key in a mount: each of them certifies all self-signed ones.
const MAX_ISSUERS_PER_SUBJECT_AND_KEY: usize = 16;

/// The issuers of a mount by id.
pub type Issuers = BTreeMap<String, Arc<Issuer>>;

/// The ids of the parents of each issuer: self-signed parents come first, then all others, both sorted by id.
pub type Parents = BTreeMap<String, Vec<String>>;

/// Computes the parents of all issuers. Signature results that the records lack are taken from `earlier`, or else
/// computed.
pub fn compute_parents(issuers: &Issuers, earlier: &Parents) -> Parents {
    issuers.iter().map(|(id, issuer)| (id.clone(), find_parents(issuer, issuers.values(), earlier))).collect()
}

/// Returns `true` if `parent` certifies `child`: according to the record of either issuer, else according to `earlier`,
/// else according to a signature check.
fn certifies_issuer(parent: &Issuer, child: &Issuer, earlier: &Parents) -> bool {
    let above = &parent.record;
    let below = &child.record;
    if above.id == below.id || child.issuer != parent.subject {
        return false;
    }
    let recorded =
        below.signatures.signed_by.get(&above.id).or_else(|| above.signatures.signed.get(&below.id)).copied();
    let known = || {
        // All pairs of issuers in `earlier` were checked.
        let parents = earlier.get(&below.id).filter(|_| earlier.contains_key(&above.id));
        parents.map(|parents| parents.contains(&above.id))
    };
    recorded.or_else(known).unwrap_or_else(|| child.certificate.is_signed_by(parent.certificate.key()))
}

fn find_parents<'a>(child: &Issuer, issuers: impl Iterator<Item = &'a Arc<Issuer>>, earlier: &Parents) -> Vec<String> {
    let mut found: Vec<_> = issuers.filter(|parent| certifies_issuer(parent, child, earlier)).collect();
    found.sort_by_key(|p| (!p.self_signed, p.record.id.clone()));
    found.into_iter().map(|p| p.record.id.clone()).collect()
}

/// Adds a new issuer to `parents`. Checks only pairs that include the new issuer.
pub fn add_parents(parents: &mut Parents, issuers: &Issuers, new: &Issuer) {
    let no_parents = Parents::new();
    parents.insert(new.record.id.clone(), find_parents(new, issuers.values(), &no_parents));
    for child in issuers.values().filter(|child| certifies_issuer(new, child, &no_parents)) {
        let list = parents.entry(child.record.id.clone()).or_default();
        let rank = |id: &String| {
            let self_signed = issuers.get(id).map_or(new.self_signed, |issuer| issuer.self_signed);
            (!self_signed, id.clone())
        };
        list.push(new.record.id.clone());
        list.sort_by_key(rank);
    }
}

/// Removes an issuer from `parents`.
pub fn remove_parents(parents: &mut Parents, id: &str) {
    parents.remove(id);
    parents.values_mut().for_each(|list| list.retain(|parent| parent != id));
}

/// Returns the results of all signature checks between one issuer and the others, derived from `parents`.
pub fn check_signatures(issuer: &Issuer, issuers: &Issuers, parents: &Parents) -> IssuerSignatures {
    let id = &issuer.record.id;
    let certifies = |parent: &String, child: &String| parents.get(child).is_some_and(|all| all.contains(parent));
    let others = || issuers.iter().filter(|(other, _)| *other != id);
    let above = others().filter(|(_, other)| other.subject == issuer.issuer);
    let below = others().filter(|(_, other)| other.issuer == issuer.subject);
    let own = (issuer.subject == issuer.issuer).then(|| (id.clone(), issuer.self_signed));
    IssuerSignatures {
        signed_by: above.map(|(other, _)| (other.clone(), certifies(other, id))).chain(own).collect(),
        signed: below.map(|(other, _)| (other.clone(), certifies(id, other))).collect(),
    }
}

/// Returns the issuer that signed a certificate; of several with the same key, the first.
///
/// Each key is tried once. Keys that match the authorityKeyIdentifier come first, but all others are tried too: the
/// signer may have used another identifier for its key. SHA-1 signatures count, because the certificate already exists.
pub fn find_signing_issuer<'a>(
    certificate: &Certificate,
    issuers: impl Iterator<Item = &'a Arc<Issuer>>,
) -> Option<&'a Arc<Issuer>> {
    let name = certificate.issuer().canonical();
    let mut named: Vec<_> = issuers.filter(|issuer| *issuer.subject == name).collect();
    // Byte-equal names come first: some verifiers do not accept names that match only by RFC 5280 7.1.
    named.sort_by_key(|issuer| issuer.certificate.subject() != certificate.issuer());
    let key_id = certificate.authority_key_id();
    let is_meant = |issuer: &Certificate| key_id.is_some() && issuer.subject_key_id() == key_id.as_deref();
    let (meant, others): (Vec<_>, Vec<_>) =
        named.iter().map(|issuer| &issuer.certificate).partition(|issuer| is_meant(issuer));
    let mut tried = HashSet::new();
    let mut keys = meant.into_iter().chain(others).map(Certificate::key);
    let key = keys.find(|key| tried.insert(key.spki()) && certificate.is_signed_by_allowing_sha1(key))?;
    named.iter().find(|issuer| issuer.certificate.key() == key).copied()
}

/// Rejects an issuer that would exceed a limit of the mount: total, per subject, or per subject and key.
///
/// # Errors
/// `Invalid` with the limit.
pub fn check_issuer_limits(issuers: &Issuers, new: &Certificate) -> Result<()> {
    if issuers.len() >= MAX_ISSUERS {
        return Err(Error::invalid(format!(
            "certificate: this mount has {MAX_ISSUERS} issuers already, the maximum: delete some, or use another mount"
        )));
    }
    let subject = new.subject().canonical();
    let same: Vec<_> = issuers.values().filter(|known| *known.subject == subject).collect();
    let of_key = same.iter().filter(|known| known.certificate.key() == new.key()).count();
    if of_key >= MAX_ISSUERS_PER_SUBJECT_AND_KEY {
        return Err(Error::invalid(format!(
            "certificate: this mount has {MAX_ISSUERS_PER_SUBJECT_AND_KEY} issuers of this subject and key already, \
             the maximum: delete some"
        )));
    }
    if same.len() >= MAX_ISSUERS_PER_SUBJECT {
        return Err(Error::invalid(format!(
            "certificate: this mount has {MAX_ISSUERS_PER_SUBJECT} issuers of this subject already, the maximum: \
             delete some"
        )));
    }
    Ok(())
}
