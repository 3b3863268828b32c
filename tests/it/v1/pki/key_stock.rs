//! The stock of pre-generated RSA keys: over HTTP, and its settings.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use crate::process::{Dev, dev, dev_with, openssl, refused, signet};

/// Starts a server with a stock of `keys` 2048-bit keys and a role for such keys.
async fn with_stock(keys: usize) -> Dev {
    let dev = dev_with(signet().env("SIGNET_RSA_KEY_STOCK_2048", keys.to_string()), &[]);
    add_role(&dev).await;
    dev
}

async fn add_role(dev: &Dev) {
    let role = json!({ "allow_any_name": true, "key_type": "rsa", "key_bits": 2048 });
    assert_eq!(dev.client().post("pki/roles/rsa", role).await.status, 200);
}

async fn sample(dev: &Dev, name: &str) -> u32 {
    let page = dev.client().page("/metrics").await.text;
    let series = format!("signet_rsa_key_stock{name}{{bits=\"2048\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&series));
    value.unwrap_or_else(|| panic!("{series} is missing: {page}")).parse().unwrap()
}

/// Waits until the stock has `keys` keys. It polls rarely, because the stock is filled only while the server is idle.
async fn filled(dev: &Dev, keys: u32) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while sample(dev, "").await < keys {
        assert!(Instant::now() < deadline, "the stock does not fill");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(sample(dev, "").await, keys);
}

/// Issues `number` certificates concurrently and returns their private keys.
async fn keys(dev: &Dev, number: usize) -> Vec<String> {
    let client = dev.client();
    let issue = |_| client.post("pki/issue/rsa", json!({ "common_name": "a.test" }));
    let answers = join_all((0..number).map(issue)).await;
    let key = |answer: &crate::support::Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["data"]["private_key"].as_str().unwrap().to_owned()
    };
    answers.iter().map(key).collect()
}

#[actix_web::test]
async fn stock_keys_are_valid_used_once_and_replaced() {
    let dev = with_stock(6).await;
    filled(&dev, 6).await;
    let taken = keys(&dev, 4).await;
    assert_eq!((sample(&dev, "_hits_total").await, sample(&dev, "_misses_total").await), (4, 0));
    let folder = tempfile::tempdir().unwrap();
    for key in &taken {
        std::fs::write(folder.path().join("key.pem"), key).unwrap();
        let said = openssl(folder.path(), &["rsa", "-in", "key.pem", "-check", "-noout"]);
        assert!(said.contains("RSA key ok"), "{said}");
    }
    // The key of a root comes from the stock as well, and no key is used twice.
    let root = json!({ "common_name": "root.test", "key_type": "rsa", "issuer_name": "second" });
    let root = dev.client().post("pki/root/generate/exported", root).await;
    assert_eq!(root.status, 200, "{}", root.text);
    assert_eq!(sample(&dev, "_hits_total").await, 5);
    filled(&dev, 6).await;
    let again = keys(&dev, 8).await;
    assert_eq!(sample(&dev, "_hits_total").await + sample(&dev, "_misses_total").await, 13);
    assert!(sample(&dev, "_hits_total").await >= 11);
    let all: BTreeSet<&str> = taken.iter().chain(&again).map(String::as_str).collect();
    assert_eq!(all.len(), 12);
    assert!(!all.contains(root.body["data"]["private_key"].as_str().unwrap()));
    dev.terminate();
}

#[actix_web::test]
async fn without_stock_no_key_is_generated_in_advance() {
    let dev = dev(&[]);
    add_role(&dev).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(keys(&dev, 2).await.len(), 2);
    for name in ["", "_hits_total", "_misses_total"] {
        assert_eq!(sample(&dev, name).await, 0, "{name}");
    }
    dev.terminate();
}

#[actix_web::test]
async fn filling_the_stock_does_not_delay_start_requests_or_stop() {
    let dev = with_stock(4096).await;
    let deadline = Instant::now() + Duration::from_secs(300);
    while sample(&dev, "").await == 0 {
        assert!(Instant::now() < deadline, "nothing is made");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let issued = dev.client().post("pki/issue/dev", json!({ "common_name": "a.test" })).await;
    assert_eq!(issued.status, 200, "{}", issued.text);
    let took = dev.terminate();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn stock_size_out_of_range_is_rejected_by_name() {
    for (bits, value) in [("2048", "4097"), ("3072", "-1"), ("4096", "many")] {
        let mut command = signet();
        let command = command.args(["dev", "--listen", "127.0.0.1:0"]);
        let error = refused(command.env(format!("SIGNET_RSA_KEY_STOCK_{bits}"), value));
        let rule = format!(
            "rsa_key_stock.{bits} (SIGNET_RSA_KEY_STOCK_{bits} of the environment): must be a number between 0 and 4096"
        );
        assert!(error.contains(&rule), "{error}");
    }
}
