//! A hanging device during everything that a mount requests from it: the mount's own requests time out, and all other
//! requests continue.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use serde_json::json;

use super::device::{Device, Mode};
use super::kms_paths::PATHS;
use super::{LIMIT, accepted, issued, until, well, with_root};
use crate::support::Answer;
use crate::v1::pki::mount::{FAR, Pki, text};
use crate::v1::pki::ocsp::about;

/// Runs requests that do not need the device, and returns their duration.
async fn meanwhile(pki: &Pki) -> Duration {
    let client = &pki.app.client;
    let started = Instant::now();
    for _ in 0..4 {
        let serial = issued(client, "well").await;
        accepted(client.post("well/revoke", json!({ "serial_number": serial })).await);
    }
    pki.role(&json!({ "allow_any_name": true, "ttl": "1h" })).await;
    accepted(client.post("pki/keys/generate/internal", json!({ "key_type": "ec" })).await);
    pki.crl("root").await;
    assert_eq!(client.with_token("").get("sys/health").await.status, 200);
    started.elapsed()
}

/// Returns the status of a request that waited for the device and timed out.
async fn ended(answer: impl Future<Output = Answer>) -> u16 {
    let answer = answer.await;
    assert_eq!(
        answer.error(),
        "request: not completed within the time limit (setting max_request_duration)",
        "{}",
        answer.text
    );
    answer.status
}

/// Sends all requests while the device hangs; it then has `jobs` jobs.
async fn all_end_in_time(device: &Arc<Device>, pki: &Pki, jobs: usize, asked: Vec<BoxFuture<'_, u16>>) {
    let begun = || device.begun.load(Ordering::SeqCst) + device.taken.load(Ordering::SeqCst);
    let before = begun();
    let started = Instant::now();
    device.set(Mode::Hangs);
    let others = async {
        until(|| begun() >= before + jobs).await;
        meanwhile(pki).await
    };
    let (answers, took) = tokio::join!(join_all(asked), others);
    assert!(took < LIMIT, "{took:?}");
    assert!(started.elapsed() < LIMIT + Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(answers.iter().all(|status| *status == 503), "{answers:?}");
}

#[actix_web::test]
async fn hanging_key_lookup_blocks_no_other_request() {
    let (device, pki) = with_root("ec").await;
    let client = &pki.app.client;
    well(client).await;
    device.make("other", "ec");
    let body = json!({ "common_name": "Other", "managed_key_name": "other", "not_after": FAR });
    let ask = |path: &'static str| {
        let body = body.clone();
        async move { ended(client.post(&format!("pki/{path}"), body)).await }.boxed()
    };
    // More of each than there are workers.
    let asked: Vec<_> = PATHS.iter().flat_map(|path| std::iter::repeat_n(*path, 3)).map(ask).collect();
    all_end_in_time(&device, &pki, asked.len(), asked).await;
    // They withdrew their requests for a key, so nothing is stored afterwards.
    until(|| device.taken_back.load(Ordering::SeqCst) == 3 * PATHS.len()).await;
    let stored = pki.stored().await;
    device.set(Mode::Slow);
    pki.get("crl/rotate").await;
    assert_eq!(pki.stored().await, stored);
    pki.post("root/generate/kms", body).await;
    pki.stop().await;
}

#[actix_web::test]
async fn hanging_signature_blocks_no_other_request() {
    let (device, pki) = with_root("ec").await;
    let client = &pki.app.client;
    well(client).await;
    let leaf = pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
    let about = about(text(leaf.data(), "issuing_ca"), &leaf);
    pki.post("config/crl", json!({ "enable_delta": true, "auto_rebuild": true })).await;
    let body = json!({ "common_name": "Other", "not_after": FAR });
    let post = |path: &'static str| {
        let body = body.clone();
        async move { ended(client.post(&format!("pki/{path}"), body)).await }.boxed()
    };
    let get = |path: &'static str| async move { ended(client.get(&format!("pki/{path}"))).await }.boxed();
    let asked: Vec<BoxFuture<'_, u16>> = vec![
        async { pki.ocsp(&about).await.status }.boxed(),
        post("root/generate/existing"),
        post("intermediate/generate/existing"),
        post("issue/r"),
        post("issue/r"),
        get("crl/rotate"),
        get("crl/rotate-delta"),
    ];
    // One CRL build is running, and the other request waits for it.
    let jobs = asked.len() - 1;
    all_end_in_time(&device, &pki, jobs, asked).await;
    device.set(Mode::Slow);
    pki.get("crl/rotate").await;
    pki.get("crl/rotate-delta").await;
    assert_eq!(pki.ocsp(&about).await.statuses(), ["good"]);
    issued(client, "pki").await;
    pki.stop().await;
}
