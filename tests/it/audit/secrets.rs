//! Audit entries of the secrets service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signet::audit::AuditDevice;
use signet::documents::MountId;

use super::double::{Double, Mood};
use crate::support::{Answer, App, Builder, send, tests_on};

tests_on!(audited: AuditedSecrets::start() =>
    quota_rejection_is_recorded_only_if_configured,
    every_request_that_runs_leaves_its_intent_and_its_outcome,
    health_and_status_requests_are_not_recorded,
    entries_contain_caller_request_address_and_response,
    request_without_audit_entry_is_rejected_without_effect,
    wrapped_response_is_recorded_only_when_unwrapped,
);

/// A server with an authority and an audit device.
struct AuditedSecrets {
    app: App,
    device: Arc<Double>,
}

impl AuditedSecrets {
    async fn start() -> Self {
        Self::by(App::builder()).await
    }

    async fn by(builder: Builder) -> Self {
        let device = Double::new();
        let app = builder.audit([device.clone() as Arc<dyn AuditDevice>]).start().await;
        app.client.authority("pki", json!({})).await;
        Self { app, device }
    }

    async fn stop(self) {
        self.app.stop().await;
    }
}

fn leaf() -> Value {
    json!({ "common_name": "web.test" })
}

async fn stored(app: &App) -> u64 {
    let mount: MountId = app.shared().auth.mounts().get("pki").unwrap().id;
    app.shared().engine.authority(mount).unwrap().deps().store.counts(mount).await.unwrap().0
}

#[actix_web::test]
async fn every_rejected_request_is_recorded_with_its_outcome() {
    let AuditedSecrets { app, device } =
        AuditedSecrets::by(App::builder().settings(|settings| settings.max_body = 10_000)).await;
    app.policy("some", "path \"pki/issue/web\" { capabilities = [\"update\"]\n denied_parameters = { \"ttl\" = [] } }")
        .await;
    let root = &app.client;
    let some = app.with_policies(&["some"]).await;
    let stranger = root.with_token("");
    let issue = |client: &crate::support::Client| client.request("POST", "pki/issue/web");
    for (what, request, status) in [
        ("no token", issue(&stranger).json(&leaf()), 403),
        ("an unknown token", issue(&root.with_token("s.unknown")).json(&leaf()), 403),
        ("no right to the path", some.request("GET", "pki/roles/web"), 403),
        ("no right to the parameter", issue(&some).json(&json!({ "common_name": "a.test", "ttl": "1h" })), 403),
        ("two tokens", issue(root).header("X-Vault-Token", "other").json(&leaf()), 400),
        ("a path that does not read", root.request("GET", "pki//roles"), 400),
        ("a path without a mount", root.request("GET", "nothing/here"), 404),
        ("a path without a route", root.request("GET", "pki/nothing"), 404),
        ("a method that the path does not take", root.request("DELETE", "pki/issue/web"), 405),
        ("no method of this wire", root.request("FETCH", "pki/issue/web"), 405),
        ("a body that does not read", issue(root).body("{\"common_name\":"), 400),
        ("a body that is too large", issue(root).body("x".repeat(20_000)), 413),
        ("a body that is packed", issue(root).header("Content-Encoding", "gzip").body("x"), 415),
        ("another namespace", issue(root).header("X-Vault-Namespace", "team").json(&leaf()), 404),
        ("an answer wrapped for no time", issue(root).header("X-Vault-Wrap-TTL", "soon").json(&leaf()), 400),
        ("a query that does not read", root.request("GET", "pki/roles/web?list=maybe"), 400),
        ("no right to sudo", some.request("DELETE", "pki/root"), 403),
        ("an open path without a method", stranger.request("DELETE", "pki/ca/pem"), 405),
    ] {
        let answer = send(request).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text);
        device.assert_told(&answer, "refusal", what);
    }
    app.stop().await;
}

async fn quota_rejection_is_recorded_only_if_configured(AuditedSecrets { app, device }: &AuditedSecrets) {
    let quota = json!({ "path": "pki/roles/*", "rate": 1, "interval": "1h" });
    assert_eq!(app.client.post("sys/quotas/rate-limit/seldom", quota).await.status, 204);
    let granted = app.client.get("pki/roles/web").await;
    device.assert_told(&granted, "intent", "within the quota");
    let quiet = app.client.get("pki/roles/web").await;
    assert_eq!((quiet.status, device.of(&quiet).len()), (429, 0));
    let config = json!({ "enable_rate_limit_audit_logging": true });
    assert_eq!(app.client.post("sys/quotas/config", config).await.status, 204);
    let told = app.client.get("pki/roles/web").await.assert_status(429);
    device.assert_told(&told, "refusal", "beyond the quota");
}

async fn every_request_that_runs_leaves_its_intent_and_its_outcome(AuditedSecrets { app, device }: &AuditedSecrets) {
    let root = &app.client;
    let stranger = app.client.with_token("");
    for (what, request, status) in [
        ("a certificate", root.request("POST", "pki/issue/web").json(&leaf()), 200),
        ("a role that is not there", root.request("POST", "pki/issue/none").json(&leaf()), 400),
        ("a rule that is broken", root.request("POST", "pki/issue/web").json(&json!({ "ttl": "soon" })), 400),
        ("a read", root.request("GET", "pki/roles/web"), 200),
        ("its head", root.request("HEAD", "pki/roles/web"), 200),
        ("a list", root.request("LIST", "pki/roles"), 200),
        ("a removal", root.request("DELETE", "pki/roles/other"), 204),
        (
            "a merge",
            root.request("PATCH", "pki/roles/web").header("Content-Type", "application/merge-patch+json").body("{}"),
            200,
        ),
        ("an open read", stranger.request("GET", "pki/ca/pem"), 200),
        ("an open read of pieces", stranger.request("GET", "pki/crl"), 200),
        ("an OCSP request in a path", stranger.request("GET", "pki/ocsp/MA=="), 400),
        ("an OCSP request in a body", stranger.request("POST", "pki/ocsp").body("x"), 400),
        ("help", root.request("GET", "pki/roles/web?help=1"), 200),
        ("a token", root.request("POST", "auth/token/create").json(&json!({})), 200),
        ("a mount", root.request("POST", "sys/mounts/other").json(&json!({ "type": "pki" })), 204),
        ("a mount of an unknown type", root.request("POST", "sys/mounts/kv").json(&json!({ "type": "kv" })), 400),
    ] {
        let answer = send(request).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text);
        device.assert_told(&answer, "intent", what);
    }
    let ca = root.get("pki/ca/pem").await;
    let again = send(stranger.request("GET", "pki/ca/pem").header("If-None-Match", ca.header("etag"))).await;
    assert_eq!(again.status, 304);
    device.assert_told(&again, "intent", "a read that changed nothing");
}

async fn health_and_status_requests_are_not_recorded(AuditedSecrets { app, device }: &AuditedSecrets) {
    let before = device.count();
    for path in ["sys/health", "sys/live", "sys/seal-status", "sys/init", "sys/leader", "sys/metrics"] {
        let answer = app.client.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    assert_eq!(device.count(), before);
    device.set(Mood::Refuse);
    assert_eq!(app.client.get("sys/health").await.status, 200);
}

async fn entries_contain_caller_request_address_and_response(AuditedSecrets { app, device }: &AuditedSecrets) {
    app.policy("web", "path \"pki/issue/web\" { capabilities = [\"update\"] }").await;
    let wanted = json!({ "policies": ["web"], "display_name": "builder" });
    let made = app.client.post("auth/token/create", wanted).await;
    let auth = &made.body["auth"];
    let token = auth["client_token"].as_str().unwrap();
    let accessor = auth["accessor"].as_str().unwrap();
    assert_eq!(device.of(&made)[1].handed_out, token);
    let client = app.client.with_token(token);
    let issued = client.post("pki/issue/web", leaf()).await;
    let [intent, outcome] = <[_; 2]>::try_from(device.of(&issued)).unwrap();
    for line in [&intent, &outcome] {
        assert_eq!((&line.operation[..], &line.path[..], &line.mount[..]), ("update", "pki/issue/web", "pki/"));
        assert_eq!((&line.address[..], &line.token[..], &line.data), ("127.0.0.1", token, &leaf()));
        let policies = vec!["default".to_owned(), "web".to_owned()];
        assert_eq!(line.caller, Some(("token-builder".to_owned(), accessor.to_owned(), policies)));
    }
    assert_eq!(intent.answer, Value::Null);
    assert_eq!(outcome.answer["serial_number"], issued.body["data"]["serial_number"]);
    let refused = client.post("pki/roles/web", json!({})).await;
    let refusal = &device.of(&refused)[0];
    assert_eq!(refusal.errors, ["permission denied"]);
    assert!(refusal.caller.is_some(), "who has no right is known all the same");
    let unknown = app.client.with_token("s.unknown").get("pki/roles/web").await;
    let refusal = &device.of(&unknown)[0];
    assert_eq!((&refusal.token[..], &refusal.caller), ("s.unknown", &None));
    let crooked = app.client.get("pki//roles").await;
    let refusal = &device.of(&crooked)[0];
    assert_eq!((&refusal.path[..], &refusal.operation[..], &refusal.address[..]), ("pki//roles", "GET", "127.0.0.1"));
}

fn assert_held_back(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert_eq!(
        answer.body,
        json!({ "errors": ["audit: no audit device can record the request; see the server's log"] })
    );
    assert_eq!(answer.header("retry-after"), "1");
}

async fn request_without_audit_entry_is_rejected_without_effect(AuditedSecrets { app, device }: &AuditedSecrets) {
    let before = stored(app).await;
    for mood in [Mood::Refuse, Mood::Panic] {
        device.set(mood);
        let told = device.count();
        assert_held_back(&app.client.post("pki/issue/web", leaf()).await);
        assert_held_back(&app.client.with_token("").post("pki/issue/web", leaf()).await);
        assert_held_back(&app.client.get("pki//roles").await);
        assert_held_back(&app.client.post("sys/mounts/other", json!({ "type": "pki" })).await);
        assert_eq!((stored(app).await, device.count()), (before, told), "{mood:?}");
        assert!(app.shared().auth.mounts().get("other").is_none());
    }
    device.set(Mood::RefuseOutcomes);
    // The certificate is stored by then, and the caller gets no response with it.
    assert_held_back(&app.client.post("pki/issue/web", leaf()).await);
    assert_held_back(&app.client.post("auth/token/create", json!({})).await);
    assert_held_back(&app.client.get("pki/roles/none").await);
    assert_eq!(stored(app).await, before + 1);
    device.set(Mood::Keep);
    assert_eq!(app.client.post("pki/issue/web", leaf()).await.status, 200);
    assert_eq!(stored(app).await, before + 2);
}

#[actix_web::test]
async fn entry_goes_to_all_devices_and_one_success_suffices() {
    let devices = [Double::new(), Double::new()];
    let app = App::builder().audit(devices.iter().map(|device| device.clone() as Arc<dyn AuditDevice>)).start().await;
    let answer = app.client.get("sys/mounts").await;
    devices.iter().for_each(|device| device.assert_told(&answer, "intent", "both keep"));
    devices[0].set(Mood::Refuse);
    let answer = app.client.get("sys/mounts").await;
    assert_eq!((answer.status, devices[0].of(&answer).len()), (200, 0));
    devices[1].assert_told(&answer, "intent", "one keeps");
    app.stop().await;
}

#[actix_web::test]
async fn hanging_device_blocks_only_its_request_until_the_time_limit() {
    let limit = Duration::from_secs(5);
    let AuditedSecrets { app, device } =
        AuditedSecrets::by(App::builder().settings(|settings| settings.max_duration = limit)).await;
    let before = stored(&app).await;
    device.set(Mood::HangOn("pki/issue/web"));
    let started = Instant::now();
    let held = async {
        let answer = app.client.post("pki/issue/web", leaf()).await;
        (answer, started.elapsed())
    };
    let others = async {
        for _ in 0..20 {
            assert_eq!(app.client.get("pki/roles/web").await.status, 200);
        }
        started.elapsed()
    };
    let ((held, took), others) = futures_util::future::join(held, others).await;
    assert_held_back(&held);
    assert!(took >= limit && took < 4 * limit, "{took:?}");
    assert!(others < limit, "{others:?}");
    assert_eq!((stored(&app).await, device.of(&held).len()), (before, 0));
    device.set(Mood::HangOnOutcomesOf("pki/issue/web"));
    let started = Instant::now();
    assert_held_back(&app.client.post("pki/issue/web", leaf()).await);
    assert!(started.elapsed() < 4 * limit);
    app.stop().await;
}

async fn wrapped_response_is_recorded_only_when_unwrapped(AuditedSecrets { app, device }: &AuditedSecrets) {
    let wrapped = app.client.request("POST", "pki/issue/web").header("X-Vault-Wrap-TTL", "60").json(&leaf());
    let wrapped = send(wrapped).await;
    let token = wrapped.body["wrap_info"]["token"].as_str().unwrap();
    let [intent, outcome] = <[_; 2]>::try_from(device.of(&wrapped)).unwrap();
    assert_eq!((&intent.path[..], &intent.data), ("pki/issue/web", &leaf()));
    assert_eq!((&outcome.wrapping[..], &outcome.answer, outcome.status), (token, &Value::Null, 200));
    let fetched = app.client.post("sys/wrapping/unwrap", json!({ "token": token })).await;
    let [intent, outcome] = <[_; 2]>::try_from(device.of(&fetched)).unwrap();
    assert_eq!((&intent.token[..], &intent.data["token"]), (&app.client.token[..], &json!(token)));
    assert_eq!(outcome.answer["data"]["serial_number"], fetched.body["data"]["serial_number"]);
    let again = app.client.post("sys/wrapping/unwrap", json!({ "token": token })).await.assert_status(400);
    device.assert_told(&again, "intent", "a token that was used");
    device.set(Mood::RefuseOutcomes);
    let unrecorded = app.client.request("GET", "sys/mounts").header("X-Vault-Wrap-TTL", "60");
    assert_held_back(&send(unrecorded).await);
}
