//! Managed keys without the server: every backend passes one suite (`contract`); PKCS #11 modules are also tested for
//! failures (`healing`, `token`, `turns`).
//!
//! A module is loaded once per process, so these tests run in processes of their own ([`hsm::alone`]). Cloud services
//! are simulated on the loopback (`cloud`).

pub mod cloud;
mod contract;
mod double;
mod generation_lease;
pub mod hsm;
mod metrics;
mod recovery;
mod softhsm;
mod token;

use signet::keys::SignerActor;

/// Makes one signature with a managed key, for its metrics, which exist as long as the key.
pub async fn sign_once(name: &str) -> SignerActor {
    let actor = double::actor(name);
    let signer = actor.signer(actor.find_key(true).await.unwrap());
    contract::signs(&signer, contract::usual(signer.public().kind()), b"message").await;
    actor
}
