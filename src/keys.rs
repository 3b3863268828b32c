//! Private keys: local ones ([`local`]) and keys that a device or service keeps and signs with ([`signer`]).
//!
//! RSA keys take 60 ms to seconds to generate and would block an HTTP worker, so background threads generate them
//! ([`pool`]). EC and Ed25519 keys take 10 to 20 µs and are generated in the request. Each managed key has an actor
//! ([`actor`]) in front of a PKCS #11 module ([`pkcs11`]) or a cloud service ([`cloudakms`], [`cloudckms`],
//! [`cloudbkeyvault`]). The registry ([`managed`]) stores their configurations and grants to mounts. [`signing`] is the
//! common interface to both kinds of key. [`seal`] has the seal keys, which wrap the root key of a store.

pub mod actor;
mod cloud;
pub mod cloudakms;
pub mod cloudbkeyvault;
pub mod cloudckms;
pub mod local;
mod local_der;
pub mod managed;
pub mod pkcs11;
pub mod pool;
pub(crate) mod redaction;
pub mod seal;
pub mod signer;
pub mod signing;
pub mod store;
pub mod test_sign;
#[cfg(test)]
pub(crate) mod testing;

pub use actor::{KeyBackend, SignerActor, SignerLimits};
pub use cloud::{
    AzureSettings, CloudKeyConfig, CloudServices, CloudSettings, GoogleSettings, MAX_CLOUD_PARAMETER_BYTES,
};
pub use cloudakms::CloudAkmsConfig;
pub use cloudbkeyvault::CloudBkeyvaultConfig;
pub use cloudckms::CloudCkmsConfig;
pub use local::{KeySpec, PrivateKey};
pub use managed::{Devices, ManagedKeys};
pub use pkcs11::{Libraries, Pkcs11Config, Pkcs11Key};
pub use pool::{CallerGuard, CallerWatch, KeyPool, StockSizes};
pub use signer::{KeyIdentity, RemoteSigner, SigningInput, SigningInputKind, VerifiedSignature};
pub use signing::{ManagedKey, ManagedKeyLookup, ManagedKeyRef, NoSigners, Signers, SigningKey};
pub use test_sign::{TestHash, TestSign};
