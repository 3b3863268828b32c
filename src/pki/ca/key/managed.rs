//! Taking a managed key into use: whether the mount may, and whether the key can be an authority's.

use crate::error::Result;
use crate::keys::signing::{ManagedKey, ManagedKeyRef};
use crate::pki::check::ca_request::check_key;
use crate::pki::engine::Authority;
use crate::pki::mount::signer::first_algorithm;
use crate::x509::public_key::PublicKey;
use crate::x509::weak_key;

/// The managed key that a request names. One that is not in its backend is made where its configuration allows
/// that, so this comes after every other check of a request.
///
/// # Errors
/// `Invalid` when there is no such key or the mount may not use it, in the same words; when the backend has none,
/// or one that no authority may have, or that signs with no algorithm of certificates; `Busy`, `Unavailable` and
/// `BadGateway` of the backend.
pub(super) async fn take(authority: &Authority, named: ManagedKeyRef) -> Result<ManagedKey> {
    let field = match named {
        ManagedKeyRef::Name(_) => "managed_key_name",
        ManagedKeyRef::Uuid(_) => "managed_key_id",
    };
    let signers = &*authority.tools().signers;
    let view = authority.view();
    let candidates: Vec<PublicKey> = view.issuers().map(|issuer| issuer.certificate.key().clone()).collect();
    let taking = signers.take_among(authority.mount(), named, &candidates);
    let taking = taking.map_err(|e| e.within("unable to determine managed key id"))?;
    let key = taking.await.map_err(|e| e.within("failed to lookup public key from managed key"))?;
    check_key(field, key.public.kind())?;
    weak_key::refuse(field, &key.public)?;
    first_algorithm(&key, signers).map_err(|e| e.within(field))?;
    Ok(key)
}

/// Whether a request that names a managed key like this may mean `key`.
pub(super) fn is_meant(named: &ManagedKeyRef, key: &ManagedKey) -> bool {
    match named {
        ManagedKeyRef::Name(name) => key.name == *name,
        ManagedKeyRef::Uuid(uuid) => key.uuid == *uuid,
    }
}
