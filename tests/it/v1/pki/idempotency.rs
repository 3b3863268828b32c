//! Idempotent requests: the header `Idempotency-Key`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use signet::clock::Time;

use super::external_policy::engine::{Engine, Reply, Template, consent_to};
use super::external_policy::settings;
use super::foreign::{Ca, csr};
use super::mount::{Pki, until, with};
use crate::faults::double::{Fault, Faults};
use crate::support::{Answer, App, Client, send};
use crate::v1::{login, rights};

/// Sends a request below the mount with a key.
pub async fn keyed(client: &Client, path: &str, key: &str, body: &Value) -> Answer {
    send(client.request("POST", &format!("pki/{path}")).header("Idempotency-Key", key).json(body)).await
}

/// Asserts that a request with a key is rejected with 400 and with `rule` in the error, and changes nothing.
async fn refused(pki: &Pki, client: &Client, path: &str, key: &str, body: &Value, rule: &str) {
    let before = pki.stored().await;
    let answer = keyed(client, path, key, body).await;
    assert_eq!(answer.status, 400, "{path} {key}: {}", answer.text);
    assert!(answer.error().contains(rule), "{path} {key}: {} does not say {rule:?}", answer.error());
    assert_eq!(pki.stored().await, before, "{path}: something was stored");
}

/// `true` if the response repeats an earlier one.
fn is_repeat(answer: &Answer) -> bool {
    answer.header("idempotent-replayed") == "true"
}

fn serial(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["data"]["serial_number"].as_str().unwrap().to_owned()
}

fn request() -> String {
    csr("ec-256", "/CN=a.test", "")
}

/// Returns a client whose only right is `update` on this path.
async fn only(pki: &Pki, path: &str) -> Client {
    let name = path.replace(['/', '*'], "-");
    rights::only(&pki.app, &name, &rights::granted(&format!("pki/{path}"), &["update"])).await
}

#[actix_web::test]
async fn same_key_repeats_the_certificate_on_every_sign_endpoint() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true, "generate_lease": true })).await;
    let sign = json!({ "csr": request(), "ttl": "1h" });
    let authority = with(&sign, json!({ "common_name": "Below" }));
    for (path, body) in [
        ("sign/r", &sign),
        ("issuer/root/sign/r", &sign),
        ("sign-verbatim", &sign),
        ("sign-verbatim/r", &sign),
        ("issuer/root/sign-verbatim", &sign),
        ("issuer/root/sign-verbatim/r", &sign),
        ("root/sign-intermediate", &authority),
        ("issuer/root/sign-intermediate", &authority),
    ] {
        let client = only(&pki, path).await;
        let key = format!("key of {path}").replace(' ', "-");
        let first = keyed(&client, path, &key, body).await;
        assert!(!is_repeat(&first));
        let stored = pki.list("certs").await;
        assert!(stored.contains(&serial(&first)));
        for again in [&key, &format!("\"{key}\"")] {
            let repeat = keyed(&client, path, again, body).await;
            assert!(is_repeat(&repeat), "{path}: {}", repeat.text);
            for member in ["data", "lease_id", "renewable"] {
                assert_eq!(repeat.body[member], first.body[member], "{path} {member}");
            }
            assert_eq!((repeat.warnings(), repeat.body["lease_duration"].is_u64()), (String::new(), true));
        }
        assert_eq!(pki.list("certs").await, stored, "{path}");
        let other = keyed(&client, path, "another", body).await;
        let plain = format!("pki/{path}");
        let without = client.post(&plain, body.clone()).await;
        let nor = client.post(&plain, body.clone()).await;
        let all = BTreeSet::from([&first, &other, &without, &nor].map(serial));
        assert_eq!(all.len(), 4, "{path}");
    }
    // Neither the order of the members nor the format of the body matters.
    let client = only(&pki, "sign/*").await;
    let first = keyed(&client, "sign/r", "order", &sign).await;
    let text = format!("{{ \"ttl\": \"1h\",\n \"csr\": {} }}", sign["csr"]);
    let request = client.request("POST", "pki/sign/r").header("Idempotency-Key", "order");
    assert_eq!(serial(&send(request.header(CONTENT_TYPE, "application/json").body(text)).await), serial(&first));
    // The key is not stored in clear text.
    let asked = keyed(&client, "sign/r", "a-key-that-nobody-else-has", &sign).await;
    assert_eq!(asked.status, 200);
    for file in std::fs::read_dir(pki.app.folder()).unwrap() {
        let content = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!content.windows(26).any(|part| part == b"a-key-that-nobody-else-has"));
    }
    pki.stop().await;
}

#[actix_web::test]
async fn key_belongs_to_one_request_of_one_caller() {
    let pki = Pki::on(login::with_approle(App::start().await).await).await;
    pki.role(&json!({ "allow_any_name": true })).await;
    pki.post("roles/other", json!({ "allow_any_name": true, "key_type": "ec" })).await;
    let body = json!({ "csr": request(), "ttl": "1h" });
    let client = only(&pki, "sign/*").await;
    let first = serial(&keyed(&client, "sign/r", "k", &body).await);
    let other = "Idempotency-Key: was used for another request, on another path or with another body";
    for (path, body) in [
        ("sign/r", with(&body, json!({ "ttl": "2h" }))),
        ("sign/r", with(&body, json!({ "csr": request() + "\n" }))),
        ("sign/other", body.clone()),
    ] {
        refused(&pki, &client, path, "k", &body, other).await;
    }
    assert_eq!(serial(&keyed(&client, "sign/r", "k", &body).await), first);
    // Another caller has separate keys.
    let stranger = pki.app.with_policies(&["sign--"]).await;
    let theirs = keyed(&stranger, "sign/r", "k", &with(&body, json!({ "ttl": "3h" }))).await;
    assert!(serial(&theirs) != first && !is_repeat(&theirs));
    // Without a right to the path, its earlier responses are not accessible.
    let reader = rights::only(&pki.app, "reader", &rights::granted("pki/roles/r", &["read"])).await;
    assert_eq!(keyed(&reader, "sign/r", "k", &body).await.status, 403);
    // A renewed token is the same caller.
    let renewed = pki.app.client.post("auth/token/renew", json!({ "token": client.token, "increment": "2h" })).await;
    assert_eq!(renewed.status, 200, "{}", renewed.text);
    assert_eq!(serial(&keyed(&client, "sign/r", "k", &body).await), first);
    // Another token of the same entity is the same caller as well.
    login::role(&pki.app, "web", json!({ "token_policies": ["sign--"] })).await;
    let log_in = async || {
        let secret = login::secret_id(&pki.app, "web", json!({})).await["secret_id"].clone();
        let answer = login::log_in(&pki.app.client, "web", &secret).await;
        pki.app.client.with_token(answer.body["auth"]["client_token"].as_str().unwrap())
    };
    let one = log_in().await;
    let next = log_in().await;
    let of_entity = serial(&keyed(&one, "sign/r", "k", &body).await);
    assert_ne!(of_entity, first);
    assert_eq!(pki.app.client.post("auth/token/revoke", json!({ "token": one.token })).await.status, 204);
    assert_eq!(serial(&keyed(&next, "sign/r", "k", &body).await), of_entity);
    pki.stop().await;
}

#[actix_web::test]
async fn issue_is_not_repeated_because_its_key_is_not_stored() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let client = only(&pki, "issue/r").await;
    let body = json!({ "common_name": "a.test", "ttl": "1h" });
    let first = keyed(&client, "issue/r", "k", &body).await;
    assert!(first.body["data"]["private_key"].is_string() && !is_repeat(&first));
    let rule =
        format!("Idempotency-Key: the request was answered with certificate {}, whose private key", serial(&first));
    refused(&pki, &client, "issue/r", "k", &body, &rule).await;
    refused(&pki, &client, "issue/r", "k", &json!({ "common_name": "b.test" }), "was used for another request").await;
    // Of concurrent requests, one gets the certificate, and the others get an error with its serial number.
    for round in 0..5 {
        let key = format!("round-{round}");
        let before = pki.list("certs").await.len();
        let answers = join_all((0..12).map(|_| keyed(&client, "issue/r", &key, &body))).await;
        let (issued, others): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
        assert_eq!((issued.len(), others.len()), (1, 11));
        for other in others {
            assert!(other.status == 400 && other.error().contains(&serial(issued[0])), "{}", other.text);
            assert!(!other.text.contains("PRIVATE KEY"));
        }
        assert_eq!(pki.list("certs").await.len(), before + 1);
    }
    pki.stop().await;
}

#[actix_web::test]
async fn concurrent_requests_with_one_key_get_one_certificate() {
    for app in [App::start().await, App::builder().postgres().start().await] {
        let pki = Pki::on(app).await;
        pki.role(&json!({ "allow_any_name": true })).await;
        let client = only(&pki, "sign/r").await;
        let body = json!({ "csr": request(), "ttl": "1h" });
        let other = json!({ "csr": request(), "ttl": "2h" });
        for round in 0..10 {
            let key = format!("round-{round}");
            let before = pki.list("certs").await.len();
            let beside = join_all((0..8).map(|_| client.post("pki/sign/r", body.clone())));
            let (same, beside) = tokio::join!(join_all((0..16).map(|_| keyed(&client, "sign/r", &key, &body))), beside);
            let serials: Vec<_> = same.iter().map(serial).collect();
            assert!(serials.iter().all(|one| *one == serials[0]), "{serials:?}");
            assert_eq!(same.iter().filter(|answer| !is_repeat(answer)).count(), 1);
            assert!(same.iter().all(|answer| answer.body["data"] == same[0].body["data"]));
            assert!(beside.iter().all(|answer| answer.status == 200), "those beside them are not held up");
            assert_eq!(pki.list("certs").await.len(), before + 1 + 8);
            // Two different requests with one key: one of them is rejected.
            let key = format!("different-{round}");
            let both = join_all([&body, &other].map(|body| keyed(&client, "sign/r", &key, body))).await;
            assert_eq!(BTreeSet::from([both[0].status, both[1].status]), BTreeSet::from([200, 400]));
        }
        pki.stop().await;
    }
}

#[actix_web::test]
async fn unstored_certificates_are_not_repeated() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true, "no_store": true })).await;
    let client = &pki.app.client;
    let body = json!({ "csr": request(), "ttl": "1h" });
    for path in ["sign/r", "sign-verbatim/r"] {
        refused(&pki, client, path, "k", &body, "Idempotency-Key: the role sets no_store").await;
    }
    refused(&pki, client, "issue/r", "k", &json!({ "common_name": "a.test" }), "no_store").await;
    let own = json!({ "certificate": Ca::root("/CN=Own").pem });
    for path in ["root/sign-self-issued", "issuer/root/sign-self-issued"] {
        refused(&pki, client, path, "k", &own, "Idempotency-Key: sign-self-issued stores no certificate").await;
    }
    // The rejected requests did not use up the key.
    pki.role(&json!({ "allow_any_name": true })).await;
    let first = keyed(client, "sign/r", "k", &body).await;
    assert!(!is_repeat(&first));
    // The response is repeated even if the role has changed.
    pki.role(&json!({ "allow_any_name": true, "no_store": true })).await;
    assert_eq!(serial(&keyed(client, "sign/r", "k", &body).await), serial(&first));
    pki.stop().await;
}

#[actix_web::test]
async fn a_key_is_free_again_after_a_day() {
    let pki = Pki::at(Time::from_unix_timestamp(1_900_000_000).unwrap()).await;
    pki.role(&json!({ "allow_any_name": true, "max_ttl": "240h" })).await;
    let client = &pki.app.client;
    let clock = pki.app.clock.clone();
    let body = json!({ "csr": request(), "ttl": "240h" });
    let ask = async || keyed(client, "sign/r", "k", &body).await;
    let first = ask().await;
    clock.advance(Duration::from_secs(24 * 3600 - 1));
    let repeat = ask().await;
    assert!(is_repeat(&repeat));
    assert_eq!(repeat.body["data"], first.body["data"], "the time of renewal, too");
    clock.advance(Duration::from_secs(1));
    let second = ask().await;
    assert!(!is_repeat(&second) && serial(&second) != serial(&first), "whether it was swept or not");
    clock.advance(Duration::from_secs(3600));
    assert_eq!(serial(&ask().await), serial(&second));
    refused(&pki, client, "sign/r", "k", &with(&body, json!({ "ttl": "1h" })), "another request").await;
    pki.stop().await;
}

#[actix_web::test]
async fn repeat_warns_of_revoked_or_expired_certificate() {
    let pki = Pki::at(Time::from_unix_timestamp(1_900_000_000).unwrap()).await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let client = &pki.app.client;
    let body = json!({ "csr": request(), "ttl": "1h" });
    let first = keyed(client, "sign/r", "k", &body).await;
    pki.post("revoke", json!({ "serial_number": serial(&first) })).await;
    let repeat = keyed(client, "sign/r", "k", &body).await;
    assert_eq!((&repeat.body["data"], is_repeat(&repeat)), (&first.body["data"], true));
    assert!(repeat.warnings().contains("the certificate was revoked at 2030-"), "{}", repeat.warnings());
    pki.app.clock.advance(Duration::from_secs(7200));
    assert!(keyed(client, "sign/r", "k", &body).await.warnings().contains("has expired"));
    // After tidying, there is no certificate to return, and none is issued instead.
    let tidy = json!({ "tidy_cert_store": true, "tidy_revoked_certs": true, "safety_buffer": "1s" });
    assert_eq!(client.post("pki/tidy", tidy).await.status, 202);
    // The run continues with the revocations after it has removed the certificate.
    until("the end of the run", async || pki.get("tidy-status").await["state"] == "Finished").await;
    assert!(!pki.list("certs").await.contains(&serial(&first)));
    let rule = format!("answered with certificate {}, which has been deleted", serial(&first));
    refused(&pki, client, "sign/r", "k", &body, &rule).await;
    pki.stop().await;
}

#[actix_web::test]
async fn retry_after_a_lost_response_returns_the_stored_certificate() {
    let faults = Arc::new(Faults::default());
    let pki = Pki::on(App::builder().faults(&faults).start().await).await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let body = json!({ "csr": request(), "ttl": "1h" });
    let calls = BTreeSet::from(["token", "answered", "certificate", "commit (pki)"]);
    let mut lost = 0;
    for n in 1..20 {
        let key = format!("k{n}");
        let before = pki.list("certs").await.len();
        faults.arm_among(&calls, n, Fault::After);
        let answer = keyed(&pki.app.client, "sign/r", &key, &body).await;
        let met = faults.disarm();
        if answer.status == 200 {
            continue;
        }
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{}", answer.text);
        // After a failed commit the certificate is stored but the response is lost; a failed read rejects the request.
        let stored = pki.list("certs").await;
        let is_stored = met.unwrap().call.starts_with("commit");
        assert_eq!(stored.len(), before + usize::from(is_stored));
        let repeat = keyed(&pki.app.client, "sign/r", &key, &body).await;
        assert_eq!((is_repeat(&repeat), stored.contains(&serial(&repeat))), (is_stored, is_stored));
        assert_eq!(pki.list("certs").await.len(), before + 1);
        lost += usize::from(is_stored);
    }
    assert_eq!(lost, 1);
    pki.stop().await;
}

#[actix_web::test]
async fn idempotency_key_is_validated_before_processing() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let client = only(&pki, "sign/r").await;
    let body = json!({ "csr": request(), "ttl": "1h" });
    let rule = "Idempotency-Key: must be 1 to 255 printable ASCII characters without spaces";
    for key in [&"k".repeat(256), "", "\"\"", "two words", &"k".repeat(60_000)] {
        refused(&pki, &client, "sign/r", key, &body, rule).await;
    }
    assert_eq!(keyed(&client, "sign/r", &"k".repeat(255), &body).await.status, 200);
    let twice = client.request("POST", "pki/sign/r").header("Idempotency-Key", "a").header("Idempotency-Key", "b");
    let twice = send(twice.json(&body)).await;
    assert_eq!((twice.status, twice.error()), (400, "Idempotency-Key: must be sent only once"));
    // Routes that sign nothing ignore the header.
    let read = pki.app.client.request("GET", "pki/roles/r").header("Idempotency-Key", "two words");
    assert_eq!(send(read).await.status, 200);
    pki.stop().await;
}

#[actix_web::test]
async fn external_policy_response_is_repeated_without_a_new_call() {
    let pki = Pki::start().await;
    let engine = Engine::start().await;
    pki.post("config/external-policy", settings(&engine)).await;
    let client = &pki.app.client;
    let body = json!({ "csr": request(), "note": { "any": 1 } });
    // By default the engine does not store the certificate.
    let rule = "the policy engine set store_certificate to false";
    refused(&pki, client, "external-policy/sign/web", "k", &body, rule).await;
    // Each template has its own serial number.
    engine.says(|question| {
        Reply::json(with(&consent_to(question, &Template::default()), json!({ "store_certificate": true })))
    });
    let first = keyed(client, "external-policy/sign/web", "k", &body).await;
    let asked = engine.asked();
    let repeat = keyed(client, "external-policy/sign/web", "k", &body).await;
    assert_eq!((serial(&repeat), is_repeat(&repeat)), (serial(&first), true));
    assert_eq!(engine.asked(), asked);
    refused(&pki, client, "external-policy/sign/other", "k", &body, "another request").await;
    let issue = json!({ "key_type": "ec" });
    let first = keyed(client, "external-policy/issue", "i", &issue).await;
    refused(&pki, client, "external-policy/issue", "i", &issue, &serial(&first)).await;
    // Two concurrent requests get two templates, of which one is signed unchanged.
    let asked = engine.asked();
    engine.hold().await;
    let both = join_all((0..2).map(|_| keyed(client, "external-policy/sign/web", "both", &body)));
    let answered = async {
        engine.wait_for(asked + 2).await;
        engine.release();
    };
    let (both, ()) = tokio::join!(both, answered);
    assert_eq!(serial(&both[0]), serial(&both[1]));
    assert_eq!(both.iter().filter(|answer| is_repeat(answer)).count(), 1);
    for answer in &both {
        assert!(answer.body["warnings"].is_null(), "{}", answer.text);
    }
    pki.stop().await;
    engine.stop().await;
}
