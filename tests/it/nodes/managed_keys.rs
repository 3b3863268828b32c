//! Managed keys on several nodes: a missing key is generated only once.

use futures_util::future::join_all;
use serde_json::json;

use super::until;
use crate::cluster;
use crate::crash::place::Place;
use crate::process::{Dev, signet};
use crate::signers::hsm::{Hsm, PIN, SOFTHSM};

/// Starts a node that uses SoftHSM through the shim.
fn node(place: &Place, hsm: &Hsm) -> Dev {
    let mut command = signet();
    command
        .env("SOFTHSM2_CONF", hsm.settings())
        .env("SHIM_MODULE", SOFTHSM)
        .env("SHIM_ORDERS", hsm.folder())
        .env("SIGNET_PKCS11_LIBRARIES", format!("hsm={}", hsm.folder().join("shim.so").display()));
    place.start_by(command)
}

/// Two processes simulate two machines that share a network HSM.
#[actix_web::test]
async fn two_nodes_generate_a_missing_key_once() {
    let place = Place::postgres(cluster::shared().database());
    let devices = tempfile::tempdir().unwrap();
    let hsm = Hsm::new(devices.path());
    hsm.token("one");
    drop(hsm.shim());
    let a = node(&place, &hsm);
    let b = node(&place, &hsm);
    let token = place.client(&b).await.token;
    let nodes = [&a, &b].map(|node| node.client().with_token(&token));
    for (round, curve) in ["P256", "P384"].into_iter().enumerate() {
        // Two configured keys are the same key on the token.
        for name in ["web", "too"] {
            let key = json!({ "library": "hsm", "token_label": "one", "key_label": format!("made-{round}"),
                "mechanism": "0x1041", "pin": PIN, "allow_generate_key": "true", "curve": curve });
            let path = format!("sys/managed-keys/pkcs11/{name}-{round}");
            assert_eq!(nodes[0].post(&path, key).await.status, 200);
            until("the key", async || nodes[1].get(&path).await.status == 200).await;
        }
        // Delays key generation, so that the late node looks before the key exists.
        hsm.calls("C_GenerateKeyPair");
        hsm.order("C_GenerateKeyPair", &["sleep 1000"; 4]);
        let tests = (0..4).map(|n| {
            let client = &nodes[n % 2];
            let name = if n < 2 { "web" } else { "too" };
            async move { client.post(&format!("sys/managed-keys/pkcs11/{name}-{round}/test/sign"), json!({})).await }
        });
        for tested in join_all(tests).await {
            assert_eq!(tested.status, 204, "{}", tested.text);
        }
        assert_eq!(hsm.calls("C_GenerateKeyPair"), 1, "one key was made");
    }
    a.terminate();
    b.terminate();
}
