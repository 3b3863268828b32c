//! Starts the use of a managed key (held by a remote signer): checks that the mount may use it and that it suits a CA.

use crate::error::Result;
use crate::keys::signing::{ManagedKey, ManagedKeyRef};
use crate::pki::check::ca_request::check_ca_key;
use crate::pki::engine::Authority;
use crate::pki::mount::signer::first_supported_algorithm;
use crate::x509::public_key::PublicKey;
use crate::x509::weak_key;

/// Resolves a managed key. The backend may create a missing key if its configuration allows that, so this runs after
/// all other checks of a request.
///
/// # Errors
/// `Invalid` with the same text whether the key is missing or the mount may not use it; `Invalid` when the backend has
/// no such key or the key does not suit a CA; `Busy`, `Unavailable` and `BadGateway` from the backend.
pub(super) async fn resolve_managed_key(authority: &Authority, named: ManagedKeyRef) -> Result<ManagedKey> {
    let field = match named {
        ManagedKeyRef::Name(_) => "managed_key_name",
        ManagedKeyRef::Uuid(_) => "managed_key_id",
    };
    let signers = &*authority.deps().signers;
    let view = authority.view();
    let candidates: Vec<PublicKey> = view.issuers().map(|issuer| issuer.certificate.key().clone()).collect();
    let taking = signers.start_use_with_candidates(authority.mount(), named, &candidates);
    let taking = taking.map_err(|e| e.within("unable to determine managed key id"))?;
    let key = taking.await.map_err(|e| e.within("failed to lookup public key from managed key"))?;
    check_ca_key(field, key.public.kind())?;
    weak_key::reject(field, &key.public)?;
    first_supported_algorithm(&key, signers).map_err(|e| e.within(field))?;
    Ok(key)
}

pub(super) fn is_reference_to(named: &ManagedKeyRef, key: &ManagedKey) -> bool {
    match named {
        ManagedKeyRef::Name(name) => key.name == *name,
        ManagedKeyRef::Uuid(uuid) => key.uuid == *uuid,
    }
}
