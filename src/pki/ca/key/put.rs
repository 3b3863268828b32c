//! Adds a key to a mount's state. A mount has one entry per public key; the first key becomes the default; issuers with
//! this public key that had no private key are linked to the key.

use std::sync::Arc;

use crate::error::{Result, Warnings};
use crate::keys::signing::{Signers, SigningKey};
use crate::pki::mount::issuer::{IssuerRecord, MountKey};
use crate::pki::mount::signer::default_revocation_algorithm;
use crate::pki::mount::view::MountView;
use crate::pki::store::PkiWrite;
use crate::x509::algorithm::SignatureAlgorithm;

/// Result of adding a key to a mount's state.
pub(crate) struct PutKeyResult {
    /// The new entry, or the existing entry of the same public key.
    pub(crate) key: Arc<MountKey>,
    /// `true` if the mount already had a key with this public key.
    pub(crate) known: bool,
    /// Storage writes that the caller must commit.
    pub(crate) writes: Vec<PkiWrite>,
    /// Ids of issuers that were linked to the key.
    pub(crate) linked: Vec<String>,
    /// Warnings for the caller.
    pub(crate) warnings: Warnings,
}

impl PutKeyResult {
    /// Creates the result for a key that the mount already has.
    pub(crate) fn for_existing_key(key: Arc<MountKey>) -> Self {
        Self { key, known: true, writes: Vec::new(), linked: Vec::new(), warnings: Warnings::default() }
    }

    /// Makes the first linked issuer the default issuer if the mount has none.
    pub(crate) fn set_default_issuer(&mut self, next: &mut MountView) {
        let mut config = next.issuers_config.value.clone();
        if let Some(first) = self.linked.first().filter(|_| config.default.is_empty()) {
            config.default.clone_from(first);
            self.writes.push(next.set_issuers_config(config));
        }
    }
}

/// Adds a key to the mount's state `next`, makes it the default key if there is none, and links the issuers with this
/// public key to it. The modification time of these issuers becomes `now` (epoch seconds).
///
/// If the mount already has a key with this public key, the existing entry keeps its name. If the existing key and
/// `key` are both managed, the entry then signs with the managed key of `key`.
///
/// # Errors
/// `Invalid` when the name of a new key is in use.
pub(crate) fn put_key(next: &mut MountView, key: MountKey, signers: &dyn Signers, now: i64) -> Result<PutKeyResult> {
    if let Some(known) = next.key_by_public_key(key.public()) {
        let known = Arc::clone(known);
        return update_existing_key(next, known, &key, signers, now);
    }
    let mut writes = Vec::with_capacity(2);
    if next.keys_config.value.default.is_empty() {
        let mut config = next.keys_config.value.clone();
        config.default.clone_from(&key.id);
        writes.push(next.set_keys_config(config));
    }
    let id = key.id.clone();
    let algorithm = default_revocation_algorithm(&key.signing, signers);
    writes.push(next.put_key(key.clone())?);
    let waiting = next.issuers().filter(|issuer| issuer.certificate.key() == key.public());
    let waiting: Vec<IssuerRecord> = waiting
        .map(|issuer| {
            let mut record = IssuerRecord { key_id: id.clone(), modified_at: now, ..issuer.record.clone() };
            if record.revocation_signature_algorithm.is_empty() {
                record.revocation_signature_algorithm.clone_from(&algorithm);
            }
            record
        })
        .collect();
    let mut linked = Vec::with_capacity(waiting.len());
    for record in waiting {
        linked.push(record.id.clone());
        writes.push(next.put_issuer(record)?);
    }
    Ok(PutKeyResult { key: Arc::new(key), known: false, writes, linked, warnings: Warnings::default() })
}

fn update_existing_key(
    next: &mut MountView,
    known: Arc<MountKey>,
    key: &MountKey,
    signers: &dyn Signers,
    now: i64,
) -> Result<PutKeyResult> {
    let mut put = PutKeyResult::for_existing_key(known);
    if !key.name.is_empty() && key.name != put.key.name {
        put.warnings.add("key_name ignored: the key already exists in the mount and keeps its name");
    }
    match (&put.key.signing, &key.signing) {
        (SigningKey::Managed(before), SigningKey::Managed(after)) if before.uuid != after.uuid => {
            let name = &after.name;
            put.warnings.add(format!("the key already exists in the mount; it now signs with managed key {name:?}"));
            let relinked = MountKey { signing: key.signing.clone(), ..MountKey::clone(&put.key) };
            put.writes.push(next.put_key(relinked.clone())?);
            put.writes.extend(replace_unsupported_revocation_algorithms(next, &relinked, signers, now)?);
            put.key = Arc::new(relinked);
        }
        (SigningKey::Local(_), SigningKey::Managed(_)) => {
            put.warnings
                .add("the mount already has the private key and keeps signing with it, not with the managed key");
        }
        _ => {}
    }
    Ok(put)
}

/// Changes the CRL and OCSP signature algorithm of issuers whose new managed key does not support the current one.
fn replace_unsupported_revocation_algorithms(
    next: &mut MountView,
    key: &MountKey,
    signers: &dyn Signers,
    now: i64,
) -> Result<Vec<PkiWrite>> {
    // A key that the mount may not use is no error here: the permission is checked again for every signature.
    let Some(signer) = key.signing.managed().and_then(|managed| signers.signer(managed).ok()) else {
        return Ok(Vec::new());
    };
    let algorithm = default_revocation_algorithm(&key.signing, signers);
    let is_unfit = |record: &IssuerRecord| {
        let setting = SignatureAlgorithm::parse_name(&record.revocation_signature_algorithm);
        let current = setting.or_else(|| SignatureAlgorithm::for_issuer(key.signing.kind(), 0, false).ok());
        current.is_some_and(|current| signer.input_kind(current).is_err())
    };
    let issuers = next.issuers().map(|issuer| &issuer.record);
    let unfit = issuers.filter(|record| record.key_id == key.id && is_unfit(record)).cloned();
    let changed = unfit.map(|record| IssuerRecord {
        revocation_signature_algorithm: algorithm.clone(),
        modified_at: now,
        ..record
    });
    let changed: Vec<IssuerRecord> = changed.collect();
    changed.into_iter().map(|record| next.put_issuer(record)).collect()
}
