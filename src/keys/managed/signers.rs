//! Lookup of signers for mounts. Every use of a key is authorized here.

use std::sync::Arc;

use futures_util::FutureExt as _;

use super::registry::ManagedKeys;
use super::usage::ManagedKeyUsage;
use super::view::ManagedKeyEntry;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::keys::actor::SignerActor;
use crate::keys::signer::{KeyIdentity, RemoteSigner};
use crate::keys::signing::{ManagedKey, ManagedKeyLookup, ManagedKeyRef, Signers};
use crate::x509::public_key::PublicKey;

/// Maximum characters of a name that an error quotes.
const MAX_QUOTED_CHARACTERS: usize = 128;

impl ManagedKeys {
    /// Returns the key if it exists and the mount may use it. `requested` is its name in the error, which does not
    /// reveal which of the two conditions failed.
    fn require_grant(
        &self,
        mount: MountId,
        key: Option<&Arc<ManagedKeyEntry>>,
        requested: &str,
    ) -> Result<(Arc<ManagedKeyEntry>, SignerActor)> {
        let is_granted = |entry: &&Arc<ManagedKeyEntry>| {
            entry.record.terms.any_mount || self.grants.lists_key(mount, &entry.record.name)
        };
        let Some(entry) = key.filter(is_granted) else {
            let name = requested.chars().take(MAX_QUOTED_CHARACTERS).collect::<String>();
            let path = self.grants.mount_path(mount);
            return Err(Error::invalid(format!("managed key {name:?} is not allowed for mount {path:?}")));
        };
        entry.record.check_usage(ManagedKeyUsage::Sign)?;
        let actor = entry.actor_for_use().map_err(|error| {
            let text = format!("managed key {:?} cannot be used: {}", entry.record.name, error.text());
            Error::new(Kind::Unavailable, text)
        })?;
        Ok((Arc::clone(entry), actor.clone()))
    }
}

impl Signers for ManagedKeys {
    fn signer(&self, key: &ManagedKey) -> Result<Arc<dyn RemoteSigner>> {
        let view = self.view();
        let known = view.by_uuid(&key.uuid);
        if known.is_none() && self.require_grant(key.mount, view.by_name(&key.name), &key.name).is_ok() {
            let text = "was deleted, and its name now refers to another key; add that key (keys/generate/kms)";
            return Err(Error::invalid(format!("managed key {:?} {text}", key.name)));
        }
        let (_, actor) = self.require_grant(key.mount, known, &key.name)?;
        Ok(actor.signer(key.identity()))
    }

    fn start_use(&self, mount: MountId, key: ManagedKeyRef) -> Result<ManagedKeyLookup> {
        self.start_use_with_candidates(mount, key, &[])
    }

    fn start_use_with_candidates(
        &self,
        mount: MountId,
        key: ManagedKeyRef,
        candidates: &[PublicKey],
    ) -> Result<ManagedKeyLookup> {
        let view = self.view();
        let (entry, actor) = match &key {
            ManagedKeyRef::Name(name) => {
                let name = name.to_ascii_lowercase();
                self.require_grant(mount, view.by_name(&name), &name)
            }
            ManagedKeyRef::Uuid(uuid) => self.require_grant(mount, view.by_uuid(uuid), uuid),
        }?;
        actor.offer_candidates(candidates);
        let leases = Arc::clone(&self.leases);
        let lookup = async move {
            let KeyIdentity { public, locator } = match entry.record.location() {
                None => actor.find_key(true).await?,
                Some(location) => match actor.find_key(false).await {
                    // The key may be missing, and generating it needs the lease.
                    Err(error) if error.kind() == Kind::Invalid => {
                        leases.run(Some(location), async move { actor.find_key(true).await }).await?
                    }
                    found => found?,
                },
            };
            let uuid = entry.record.uuid.clone();
            let name = entry.record.name.clone();
            Ok(ManagedKey { mount, uuid, name, public, locator })
        };
        Ok(lookup.boxed())
    }
}
