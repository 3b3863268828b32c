//! Private keys: made and loaded here ([`local`]), with a pool of quiet threads for the slow kind
//! ([`pool`]), or kept in a device or a service that signs with them ([`signer`]): each of those has an
//! actor ([`actor`]) in front, and behind it a PKCS #11 module ([`pkcs11`]) or a cloud service
//! ([`cloudakms`], [`cloudckms`], [`cloudbkeyvault`]). How those are configured, and which mount may use which,
//! is the registry's ([`managed`]). What signs for a mount is one of both ([`signing`]). A device or service may keep
//! the key that opens the store, too ([`seal`]).
//!
//! EC and Ed25519 keys cost 10 to 20 µs and are made where the request is. An RSA key costs 60 ms to
//! seconds, which would hold up everything else on that worker, so it comes from the pool, which keeps some
//! ready. Private key operations happen in aws-lc-rs; P-224, which it does not sign with, in the `p224` crate.

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
pub(crate) mod redacted;
pub mod seal;
pub mod signer;
pub mod signing;
pub mod store;
pub mod test_sign;

pub use actor::{Backend, Limits, SignerActor};
pub use cloud::{AzureSettings, CloudServices, CloudSettings, GoogleSettings};
pub use cloudakms::{CloudAkmsChange, CloudAkmsConfig};
pub use cloudbkeyvault::{CloudBkeyvaultChange, CloudBkeyvaultConfig};
pub use cloudckms::{CloudCkmsChange, CloudCkmsConfig};
pub use local::{KeySpec, PrivateKey};
pub use managed::{Devices, ManagedKeys};
pub use pkcs11::{Libraries, Pkcs11Config, Pkcs11Key};
pub use pool::{KeyPool, Presence, StockSizes, Watch};
pub use signer::{Input, Known, RemoteSigner, Verified, Wants};
pub use signing::{ManagedKey, ManagedKeyRef, NoSigners, Signers, SigningKey, Taking};
pub use test_sign::{TestHash, TestSign};
