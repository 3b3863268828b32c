//! Cloud services on the loopback: ministack for `cloudakms`, simulations with real keys for the other two.

#[cfg(feature = "keys-aws")]
mod akms;
mod bkeyvault;
mod ckms;
pub mod key;
pub mod kms;
#[cfg(feature = "keys-aws")]
pub mod ministack;
pub mod server;
pub mod vault;

use std::sync::Arc;

use signet::keys::actor::AsyncBackend;
use signet::keys::{KeyBackend, SignerActor, SignerLimits, TestHash};

const PARALLEL: usize = 8;

fn actor(backend: Arc<dyn AsyncBackend>) -> SignerActor {
    SignerActor::start("cloud", KeyBackend::Async(backend), PARALLEL, SignerLimits::default())
}

/// Test signatures with hashes that no service supports, and those that `refuses` selects.
fn lacks(refuses: impl Fn(TestHash, bool) -> bool) -> Vec<(TestHash, bool)> {
    let all = TestHash::all().flat_map(|hash| [(hash, false), (hash, true)]);
    all.filter(|(hash, pss)| hash.as_signature_hash().is_none() || refuses(*hash, *pss)).collect()
}

async fn refusal(actor: &SignerActor) -> String {
    actor.test_sign(Default::default()).await.unwrap_err().text().to_owned()
}

#[cfg(not(feature = "keys-aws"))]
#[test]
fn build_without_sdk_reports_missing_backend() {
    let error = signet::keys::cloudakms::backend(Default::default(), Default::default(), false).map(drop).unwrap_err();
    assert_eq!(error.text(), "this build does not support cloudakms");
}
