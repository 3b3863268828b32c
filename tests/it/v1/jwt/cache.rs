//! The cache of published keys: how often they are fetched, and logins while they are unavailable.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::clock::Clock;

use super::Bed;
use crate::directory::{TokenKey, now};
use crate::signers::cloud::server::Told;
use crate::support::{App, tests_on};

tests_on!(prepared: bed() =>
    new_key_is_fetched_once_for_concurrent_logins,
    unknown_keys_cause_a_fetch_every_ten_seconds_at_most,
    reused_key_id_is_found_and_removed_key_ends_in_an_hour,
    cached_keys_are_valid_for_a_day_without_the_issuer,
    invalid_key_set_leaves_cached_keys_unchanged,
    only_configuration_writes_clear_the_cached_keys,
    removed_key_is_rejected_after_a_configuration_write,
);

/// A server with a manual clock.
async fn bed() -> Bed {
    let bed = Bed::of(App::builder().manual_clock(Clock::system().now())).await;
    assert_eq!(bed.log_in("ci", &bed.token()).await.status, 200);
    bed
}

/// A token valid for three days, signed by this key.
fn lasting(bed: &Bed, key: &TokenKey) -> String {
    key.token(&bed.issuer.claims(json!({"aud": "signet", "exp": now() + 3 * 86_400})))
}

async fn new_key_is_fetched_once_for_concurrent_logins(bed: &Bed) {
    let new = TokenKey::rsa("k2", 1);
    bed.issuer.publish(&new);
    bed.app.clock.advance(Duration::from_secs(11));
    let before = bed.issuer.lock().key_sets;
    let token = lasting(bed, &new);
    let all = join_all((0..100).map(|_| bed.log_in("ci", &token))).await;
    assert!(all.iter().all(|answer| answer.status == 200), "{}", all[0].text);
    assert_eq!(bed.issuer.lock().key_sets, before + 1);
}

async fn unknown_keys_cause_a_fetch_every_ten_seconds_at_most(bed: &Bed) {
    let before = bed.issuer.lock().key_sets;
    let stranger = |n: usize| TokenKey { kid: format!("r{n}"), ..TokenKey::rsa("", 2) };
    let unknown = "the token is signed with a key that is not known";
    let flood = async |from: usize| {
        let tokens: Vec<String> = (from..from + 100).map(|n| lasting(bed, &stranger(n))).collect();
        for answer in join_all(tokens.iter().map(|token| bed.log_in("ci", token))).await {
            answer.assert_error(403, unknown);
        }
    };
    flood(0).await;
    assert_eq!(bed.issuer.lock().key_sets, before, "they were asked for this moment");
    bed.app.clock.advance(Duration::from_secs(9));
    flood(100).await;
    assert_eq!(bed.issuer.lock().key_sets, before);
    bed.app.clock.advance(Duration::from_secs(1));
    flood(200).await;
    assert_eq!(bed.issuer.lock().key_sets, before + 1);
    // A wrong signature by a known key causes a fetch, no more often than an unknown key does.
    let wrong = TokenKey { kid: "k1".to_owned(), ..TokenKey::rsa("", 2) };
    bed.log_in("ci", &lasting(bed, &wrong)).await.assert_error(403, "the token's signature is wrong");
    assert_eq!(bed.issuer.lock().key_sets, before + 1);
    bed.app.clock.advance(Duration::from_secs(10));
    bed.log_in("ci", &lasting(bed, &wrong)).await.assert_error(403, "the token's signature is wrong");
    assert_eq!(bed.issuer.lock().key_sets, before + 2);
}

async fn reused_key_id_is_found_and_removed_key_ends_in_an_hour(bed: &Bed) {
    let old = lasting(bed, &bed.issuer.key);
    let successor = TokenKey::rsa("k1", 1);
    bed.issuer.lock().keys = vec![successor.public()];
    bed.app.clock.advance(Duration::from_secs(3599));
    assert_eq!(bed.log_in("ci", &old).await.status, 200, "nobody has asked since");
    assert_eq!(bed.log_in("ci", &lasting(bed, &successor)).await.status, 200);
    bed.log_in("ci", &old).await.assert_error(403, "the token's signature is wrong");
    bed.issuer.lock().keys = vec![TokenKey::rsa("k3", 2).public()];
    bed.app.clock.advance(Duration::from_secs(3600));
    let unknown = "the token is signed with a key that is not known";
    bed.log_in("ci", &lasting(bed, &successor)).await.assert_error(403, unknown);
}

async fn cached_keys_are_valid_for_a_day_without_the_issuer(bed: &Bed) {
    let known = lasting(bed, &bed.issuer.key);
    let unknown = lasting(bed, &TokenKey::rsa("k2", 1));
    bed.issuer.lock().down = Some(500);
    bed.app.clock.advance(Duration::from_secs(10));
    let gone = "jwt: the issuer's discovery document: answered with status 500";
    // An unknown key cannot be checked while the issuer is unavailable.
    for _ in 0..2 {
        let answer = bed.log_in("ci", &unknown).await;
        answer.assert_error(503, gone);
        assert_eq!(answer.headers["retry-after"], "1");
    }
    let asked = bed.issuer.lock().documents;
    for hours in [1, 22] {
        bed.app.clock.advance(Duration::from_secs(hours * 3600));
        for _ in 0..3 {
            assert_eq!(bed.log_in("ci", &known).await.status, 200);
        }
    }
    assert_eq!(bed.issuer.lock().documents, asked + 2, "once at a time");
    bed.app.clock.advance(Duration::from_secs(3600));
    bed.log_in("ci", &known).await.assert_error(503, gone);
    bed.issuer.lock().down = None;
    bed.log_in("ci", &known).await.assert_error(503, gone);
    bed.app.clock.advance(Duration::from_secs(10));
    assert_eq!(bed.log_in("ci", &known).await.status, 200);
}

async fn invalid_key_set_leaves_cached_keys_unchanged(bed: &Bed) {
    let known = lasting(bed, &bed.issuer.key);
    let elsewhere = format!("{}/elsewhere", bed.issuer.url);
    let many: Vec<Value> =
        (0..101).map(|n| TokenKey { kid: format!("k{n}"), ..TokenKey::rsa("", 0) }.public()).collect();
    let weak = json!({"kty": "RSA", "kid": "k1", "e": "AQAB", "n": "w".repeat(171)});
    for (told, reason) in [
        (Told(302, json!({}), Some(("Location", elsewhere))), "answered with status 302"),
        (Told::new(404, json!({})), "answered with status 404"),
        (Told::new(200, json!({"keys": ["x".repeat(5 << 20)]})), "its response is larger than 1 MiB"),
        (Told::new(200, json!([])), "its response has an unexpected form"),
        (Told::new(200, json!({"keys": {}})), "its response has an unexpected form"),
        (Told::new(200, json!({"keys": []})), "contains no usable key"),
        (Told::new(200, json!({"keys": [7, {"kty": "oct", "k": "AAAA"}, weak]})), "contains no usable key"),
        (Told::new(200, json!({"keys": many})), "contains more than 100 keys"),
    ] {
        bed.app.clock.advance(Duration::from_secs(10));
        bed.issuer.lock().instead.push_back(told);
        let answer = bed.log_in("ci", &lasting(bed, &TokenKey::rsa("k2", 1))).await;
        answer.assert_error(503, &format!("jwt: the issuer's key set: {reason}"));
        assert_eq!(bed.log_in("ci", &known).await.status, 200, "the keys from before are still there");
    }
    assert_eq!(bed.issuer.lock().others, [""; 0], "redirects are not followed");
    bed.app.clock.advance(Duration::from_secs(10));
    bed.issuer.lock().issuer = "https://issuer.example".to_owned();
    let answer = bed.log_in("ci", &lasting(bed, &TokenKey::rsa("k2", 1))).await;
    answer.assert_error(
        503,
        "jwt: the issuer's discovery document was rejected: \"issuer\" differs from oidc_discovery_url",
    );
    for address in
        ["http://169.254.169.254/keys", "https://169.254.169.254/keys", "file:///etc/passwd", "http://10.0.0.1/"]
    {
        bed.app.clock.advance(Duration::from_secs(10));
        let url = bed.issuer.url.clone();
        bed.issuer.lock().issuer = url;
        bed.issuer.lock().jwks_uri = address.to_owned();
        let answer = bed.log_in("ci", &lasting(bed, &TokenKey::rsa("k2", 1))).await;
        answer.assert_error_begins(503, "jwt: the issuer's key set: url: ");
    }
    assert_eq!(bed.log_in("ci", &known).await.status, 200);
    let metrics = bed.app.client.page("/metrics").await.text;
    let count = |result: &str| {
        let name = format!("signet_auth_key_set_refreshes_total{{result=\"{result}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap_or_default()
    };
    assert!(count("done") >= 1 && count("failed") >= 13, "{metrics}");
}

async fn only_configuration_writes_clear_the_cached_keys(bed: &Bed) {
    let asked = bed.issuer.lock().key_sets;
    bed.role("other", json!({"bound_subject": "x"})).await;
    assert_eq!(bed.app.client.delete("auth/jwt/role/other").await.status, 204);
    assert_eq!(bed.log_in("ci", &lasting(bed, &bed.issuer.key)).await.status, 200);
    assert_eq!(bed.issuer.lock().key_sets, asked);
    let other = crate::directory::Issuer::start();
    other.lock().keys = vec![TokenKey::rsa("k1", 1).public()];
    bed.configure(json!({"oidc_discovery_url": other.url})).await;
    bed.log_in("ci", &lasting(bed, &bed.issuer.key)).await.assert_error(403, "the token's signature is wrong");
    let token = TokenKey::rsa("k1", 1).token(&other.claims(json!({"aud": "signet"})));
    assert_eq!(bed.log_in("ci", &token).await.status, 200);
}

async fn removed_key_is_rejected_after_a_configuration_write(bed: &Bed) {
    let old = lasting(bed, &bed.issuer.key);
    let new = TokenKey::rsa("k2", 1);
    bed.issuer.lock().keys = vec![new.public()];
    assert_eq!(bed.log_in("ci", &old).await.status, 200, "nobody has asked since");
    bed.configure(json!({"oidc_discovery_url": bed.issuer.url})).await;
    bed.log_in("ci", &old).await.assert_error(403, "the token is signed with a key that is not known");
    assert_eq!(bed.log_in("ci", &lasting(bed, &new)).await.status, 200);
}
