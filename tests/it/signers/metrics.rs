//! Metrics of managed keys.

use signet::telemetry::{CATALOGUE, Exposition, install_metrics, render_metrics};

use super::contract::{input, signs, usual};
use super::double;

#[tokio::test]
async fn every_metric_of_a_managed_key_is_there_with_its_name() {
    install_metrics().unwrap();
    let actor = double::actor("measured");
    let signer = actor.signer(actor.find_key(true).await.unwrap());
    let algorithm = usual(signer.public().kind());
    signs(&signer, algorithm, b"message").await;
    let wrong = signer.sign(algorithm, signet::keys::SigningInput::Digest(vec![])).await;
    assert!(wrong.is_err() && matches!(input(&*signer, algorithm, b""), signet::keys::SigningInput::Message(_)));
    let page = render_metrics(Exposition::Text, &[]);
    let of_keys: Vec<_> = CATALOGUE.iter().filter(|metric| metric.labels.contains(&"key")).collect();
    assert_eq!(of_keys.len(), 7);
    for metric in of_keys {
        let mut lines = page.lines().filter(|line| line.starts_with(metric.name));
        assert!(lines.any(|line| line.contains("key=\"measured\"")), "{}:\n{page}", metric.name);
    }
    for line in [
        "signet_signer_queue{key=\"measured\"} 0",
        "signet_signer_calls_running{key=\"measured\"} 0",
        "signet_signer_sessions_open{key=\"measured\",state=\"idle\"} 1",
        "signet_signer_sessions_open{key=\"measured\",state=\"stuck\"} 0",
        "signet_signer_call_seconds_count{key=\"measured\"} 2",
        "signet_signer_wait_seconds_count{key=\"measured\"} 2",
        "signet_signer_errors_total{key=\"measured\",kind=\"wrong\"} 0",
        "signet_signer_recoveries_total{key=\"measured\",cause=\"session\"} 0",
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line}:\n{page}");
    }
}
