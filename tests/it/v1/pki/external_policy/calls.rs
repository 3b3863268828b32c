//! Failures between this server and the engine: TLS, timeouts, size, too many concurrent calls, outages.

use std::time::Duration;

use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use signet::clock::Clock;

use super::engine::{Engine, Reply, Site, Template, consent_to};
use super::{Governed, csr};
use crate::support::{App, send};
use crate::v1::pki::mount::with;

/// Configures this engine for the mount, with further settings.
async fn governed_by(governed: &Governed, engine: &Engine, settings: Value) {
    let settings = with(&json!({ "external_service_url": engine.url() }), settings);
    governed.pki.post("config/external-policy", settings).await;
}

#[actix_web::test]
async fn engine_and_server_reject_each_other_without_trust() {
    let governed = Governed::start().await;
    let site = Site::shared();
    let stranger = Engine::showing("stranger", "stranger").await;
    let misnamed = Engine::showing("misnamed", "misnamed").await;
    let thief = Engine::showing("server", "stranger").await;
    let pins = |names: &[&str]| names.iter().map(|name| site.pem(name)).collect::<String>();
    for (engine, settings, trusted) in [
        // The system's CA certificates do not help: they issued none of these certificates.
        (&stranger, json!({}), false),
        (&misnamed, json!({}), false),
        (&governed.engine, json!({ "trusted_leaf_certificate_bundle": pins(&["client"]) }), false),
        (&governed.engine, json!({ "trusted_leaf_certificate_bundle": pins(&["client", "server"]) }), true),
        (&stranger, json!({ "trusted_leaf_certificate_bundle": pins(&["stranger"]) }), false),
        (&stranger, json!({ "trusted_ca": "" }), true),
        (&governed.engine, json!({ "trusted_ca": "" }), false),
        // A pinned certificate is accepted under any name.
        (&misnamed, json!({ "trusted_leaf_certificate_bundle": pins(&["misnamed"]) }), true),
        (&governed.engine, json!({ "trusted_ca": site.pem("ca"), "trusted_leaf_certificate_bundle": "" }), true),
        // A certificate is worth nothing without its key.
        (&thief, json!({}), false),
        (&governed.engine, json!({}), true),
        (&thief, json!({ "trusted_leaf_certificate_bundle": pins(&["server"]) }), false),
        (&governed.engine, json!({}), true),
        (&thief, json!({ "trusted_ca": "" }), false),
        (&governed.engine, json!({}), true),
    ] {
        governed_by(&governed, engine, settings.clone()).await;
        let asked = engine.asked();
        if trusted {
            governed.sign(json!({})).await;
            assert_eq!(engine.asked(), asked + 1);
        } else {
            governed.sign_fails(503, "not trusted").await;
            assert_eq!(engine.asked(), asked, "{settings}");
        }
    }
    // The engine gets only the configured client certificate.
    governed_by(&governed, &governed.engine, json!({ "trusted_ca": site.pem("ca") })).await;
    let asked = governed.engine.asked();
    for bundle in [String::new(), site.bundle("stranger")] {
        governed_by(&governed, &governed.engine, json!({ "service_client_cert_bundle": bundle })).await;
        governed.sign_fails(503, "external policy: ").await;
    }
    assert_eq!(governed.engine.asked(), asked);
    governed_by(&governed, &governed.engine, json!({ "service_client_cert_bundle": site.bundle("client") })).await;
    governed.sign(json!({})).await;
    for engine in [stranger, misnamed, thief] {
        engine.stop().await;
    }
    governed.stop().await;
}

#[actix_web::test]
async fn invalid_response_is_502_and_missing_response_is_503() {
    let governed = Governed::start().await;
    let engine = &governed.engine;
    for answer in ["", "the remote's own words", "[]", "{}", "{\"request_uuid\":1}"] {
        engine.says(move |_| Reply { status: 200, body: answer.into(), location: None });
        governed.sign_fails(502, "the engine's answer").await;
    }
    engine.says(|q| {
        let mut answer = consent_to(q, &Template::default());
        answer.as_object_mut().unwrap().remove("issuer_ref");
        Reply::json(answer)
    });
    governed.sign_fails(502, "issuer_ref").await;
    engine.consents(&Template::default(), json!({ "x": "x".repeat(2 << 20) }));
    governed.sign_fails(502, "larger than 1 MiB").await;
    let other = Engine::start().await;
    let elsewhere = other.url();
    for status in [301, 302, 307, 308] {
        let location = Some(elsewhere.clone());
        engine.says(move |_| Reply { location: location.clone(), ..Reply::status(status) });
        governed.sign_fails(502, &format!("status {status}")).await;
    }
    assert_eq!(other.asked(), 0, "redirects are not followed");
    engine.consents(&Template::default(), json!({}));
    governed.sign(json!({})).await;
    // An engine that is slow or down.
    governed.pki.post("config/external-policy", json!({ "timeout": 1 })).await;
    engine.hold().await;
    let asked = engine.asked();
    governed.sign_fails(503, "did not answer within 1 s").await;
    assert_eq!(engine.asked(), asked + 1, "asked once, not again");
    engine.release();
    governed.sign(json!({})).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    governed.pki.post("config/external-policy", json!({ "external_service_url": format!("https://{gone}/") })).await;
    governed.sign_fails(503, "cannot be reached").await;
    governed.fails("issue", json!({ "key_type": "ec" }), 503, "cannot be reached").await;
    other.stop().await;
    governed.stop().await;
}

#[actix_web::test]
async fn circuit_breaker_opens_after_failures_until_a_probe_succeeds() {
    let governed = Governed::on(App::builder().manual_clock(Clock::system().now()).start().await).await;
    let engine = &governed.engine;
    engine.says(|_| Reply::status(500));
    for _ in 0..5 {
        governed.sign_fails(502, "status 500").await;
    }
    for path in ["sign", "sign-intermediate", "issue"] {
        governed.fails(path, json!({ "csr": csr() }), 503, "failed several times in a row").await;
    }
    assert_eq!(engine.asked(), 5, "an open breaker asks nobody");
    // The metrics include other tests of this process.
    let page = governed.pki.app.client.page("/metrics").await.text;
    let value = |series: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap().parse::<f64>().unwrap()
    };
    assert!(value("signet_pki_policy_breakers_open") >= 1.0);
    assert!(value("signet_pki_policy_calls_total{result=\"open\"}") >= 3.0);
    assert!(value("signet_pki_policy_calls_total{result=\"rejected\"}") >= 5.0);
    assert!(value("signet_pki_policy_call_seconds_count") >= 5.0);
    assert!(value("signet_pki_refusals_total{mount=\"pki/\",operation=\"external_policy\"}") >= 8.0);
    governed.pki.app.clock.advance(Duration::from_secs(10));
    governed.sign_fails(502, "status 500").await;
    governed.sign_fails(503, "failed several times in a row").await;
    assert_eq!(engine.asked(), 6, "one probe");
    engine.consents(&Template::default(), json!({}));
    governed.sign_fails(503, "failed several times in a row").await;
    governed.pki.app.clock.advance(Duration::from_secs(10));
    governed.sign(json!({})).await;
    governed.sign(json!({})).await;
    assert_eq!(engine.asked(), 8);
    // An error status of the engine is a response, so it does not open the breaker.
    engine.says(|_| Reply::status(403));
    for _ in 0..8 {
        governed.sign_fails(502, "status 403").await;
    }
    governed.stop().await;
}

#[actix_web::test]
async fn external_policy_call_beyond_the_limit_is_busy() {
    const BOUND: usize = 32;
    let governed = Governed::start().await;
    let engine = &governed.engine;
    engine.hold().await;
    let client = &governed.pki.app.client;
    let request = json!({ "csr": csr() });
    let waiting = join_all((0..BOUND).map(|_| client.post("pki/external-policy/sign", request.clone())));
    let beyond = async {
        engine.wait_for(BOUND).await;
        governed.sign_fails(503, "too many concurrent calls").await;
        governed.fails("issue", json!({ "key_type": "rsa" }), 503, "too many concurrent calls").await;
        assert_eq!(client.get("pki/cert/ca").await.status, 200);
        engine.release();
    };
    let (answers, ()) = join(waiting, beyond).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(engine.asked(), BOUND);
    governed.sign(json!({})).await;
    governed.stop().await;
}

#[actix_web::test]
async fn configuration_change_during_a_call_applies_at_its_end() {
    let governed = Governed::start().await;
    let pki = &governed.pki;
    let engine = &governed.engine;
    for (path, change, rule) in [
        ("issuer/root", json!({ "usage": "crl-signing", "issuer_name": "root" }), "usage lacks issuing-certificates"),
        ("config/external-policy", json!({ "enabled": false }), "external policy is not configured"),
    ] {
        engine.hold().await;
        let request = pki.app.client.post("pki/external-policy/sign", json!({ "csr": csr() }));
        let asked = engine.asked();
        let meanwhile = async {
            engine.wait_for(asked + 1).await;
            pki.post(path, change).await;
            engine.release();
        };
        let (answer, ()) = join(request, meanwhile).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.error().contains(rule), "{}", answer.text);
    }
    governed.stop().await;
}

#[actix_web::test]
async fn engine_call_continues_the_trace_of_the_request() {
    let governed = Governed::start().await;
    let sign = |trace: &str| {
        let request = governed.pki.app.client.request("POST", "pki/external-policy/sign");
        request.header("traceparent", trace).json(&json!({ "csr": csr() }))
    };
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    for given in [format!("00-{trace}-00f067aa0ba902b7-01"), format!("00-{trace}-00f067aa0ba902b7-zz")] {
        let answer = send(sign(&given)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let seen = governed.engine.traces();
    assert!(crate::traces::is_child(&seen[0], trace, "00f067aa0ba902b7", "01"), "{seen:?}");
    assert_eq!(seen[1], "", "an invalid one is ignored");
    governed.stop().await;
}
