//! Keys that are not in the process, without the server around them: every backend goes through one suite
//! (`contract`), and a PKCS #11 module through everything that can happen to it (`healing`, `token`, `turns`).
//!
//! A module is loaded once per process and reads its configuration there, so each of these tests runs in a
//! process of its own ([`hsm::alone`]), with tokens of its own. Cloud services are spoken to over HTTP on the
//! loopback (`cloud`).

pub mod cloud;
mod contract;
mod double;
mod healing;
pub mod hsm;
mod metrics;
mod softhsm;
mod token;
mod turns;

use signet::keys::SignerActor;

/// One signature of a managed key, for its metrics, which last as long as the key.
pub async fn sign_once(name: &str) -> SignerActor {
    let actor = double::actor(name);
    let signer = actor.signer(actor.key(true).await.unwrap());
    contract::signs(&signer, contract::usual(signer.public().kind()), b"message").await;
    actor
}
