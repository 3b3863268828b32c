//! Requests that a client repeats on another node: one certificate for each.

use futures_util::future::{join, join_all};
use serde_json::json;

use super::{Pair, until};
use crate::support::{Answer, Client, tests_on};
use crate::v1::pki::foreign::csr;
use crate::v1::pki::idempotency::keyed;

tests_on!(pair: Pair::start() =>
    repeated_request_on_two_nodes_issues_one_certificate,
);

fn serial(answer: &Answer) -> &str {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["data"]["serial_number"].as_str().unwrap()
}

async fn repeated_request_on_two_nodes_issues_one_certificate(Pair { a, b }: &Pair) {
    a.policy("sign", "path \"pki/sign/web\" { capabilities = [\"update\"] }").await;
    let client = a.with_policies(&["sign"]).await;
    let other = b.client.with_token(&client.token);
    until("the policy", async || other.post("pki/sign/web", json!({})).await.status == 400).await;
    let count = || a.database().psql("SELECT COUNT(*) FROM certificate").parse::<u64>().unwrap();
    let body = json!({ "csr": csr("ec-256", "/CN=a.test", ""), "ttl": "1h" });
    for round in 0..20 {
        let before = count();
        // Several keys concurrently, in reverse order on the other node.
        let keys: Vec<String> = (0..6).map(|n| format!("{round}-{n}")).collect();
        let ask = |client: &Client, keys: Vec<String>| {
            let client = client.clone();
            let body = body.clone();
            async move { join_all(keys.iter().map(|key| keyed(&client, "sign/web", key, &body))).await }
        };
        let backwards = keys.iter().rev().cloned().collect();
        let (here, mut there) = join(ask(&client, keys.clone()), ask(&other, backwards)).await;
        there.reverse();
        for (one, two) in here.iter().zip(&there) {
            assert_eq!(serial(one), serial(two));
            assert_eq!(one.body["data"], two.body["data"]);
            let repeats = [one, two].iter().filter(|answer| answer.header("idempotent-replayed") == "true").count();
            assert_eq!(repeats, 1, "one of them made it");
        }
        assert_eq!(count(), before + 6);
        for client in [&client, &other] {
            assert_eq!(serial(&keyed(client, "sign/web", &keys[0], &body).await), serial(&here[0]));
        }
        // For `issue`, only one node returns the certificate: the private key is not stored.
        let key = format!("issue-{round}");
        let body = json!({ "common_name": "a.test", "ttl": "1h" });
        let (one, two) =
            join(keyed(&a.client, "issue/web", &key, &body), keyed(&b.client, "issue/web", &key, &body)).await;
        let (issued, refused) = if one.status == 200 { (one, two) } else { (two, one) };
        assert!(refused.status == 400 && refused.error().contains(serial(&issued)), "{}", refused.text);
        assert_eq!(count(), before + 7);
    }
}
