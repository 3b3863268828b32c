//! A directory or provider that is unavailable, slow or malicious.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{World, config};
use crate::directory::{TokenKey, now};
use crate::faults::double;
use crate::provider::{CLIENT, Fault, OTHER_TENANT, Provider, S1, TENANT, identity};
use crate::support::{send, tests_on};

tests_on!(
    enabled: World::start() =>
        provider_statuses_are_distinguished,
        login_without_cached_keys_survives_a_busy_directory,
        retry_delay_grows_and_follows_retry_after,
        rejected_secret_is_reported,
        server_without_secret_uses_its_machine_identity,
        redirects_are_not_followed,
        next_page_link_must_stay_at_the_provider,
        unavailable_identity_page_is_503_not_403,
        inconsistent_directory_documents_are_rejected,
        oversized_response_is_rejected,
        login_with_retries_ends_within_thirty_seconds,
        outcomes_are_counted;
    still: World::still(|builder| builder) =>
        invalid_key_set_leaves_cached_keys_valid_for_a_day,
        removed_key_is_rejected_after_a_configuration_write;
);

fn web() -> Value {
    json!({"vm_name": "web"})
}

async fn provider_statuses_are_distinguished(world: &World) {
    let machine = world.machine().await;
    let claims = || json!({ "xms_mirid": machine });
    assert_eq!(world.at(claims(), web()).await.status, 200);
    let refused = "cloudb: the provider refused the service's credential";
    for (times, status, expected, text) in [
        (1, 404, 403, "resource not found"),
        // A single 401 could be a revoked access token, which is replaced.
        (2, 401, 502, refused),
        (1, 403, 502, refused),
        (1, 400, 503, "cloudb: the provider: answered with status 400"),
        (4, 503, 503, "cloudb: the provider: answered with status 503"),
        (4, 429, 503, "cloudb: the provider: answered with status 429"),
    ] {
        let before = world.provider.lock().count("/virtualMachines/");
        world.provider.fault(Fault::status("/virtualMachines/", times, status));
        let answer = world.at(claims(), web()).await;
        answer.assert_error(expected, text);
        assert_eq!(answer.header("retry-after").is_empty(), expected != 503, "{status}");
        assert!(!answer.text.contains("canary"));
        assert_eq!(world.provider.lock().count("/virtualMachines/") - before, times, "{status}");
    }
    for (times, status) in [(3, 503), (1, 401), (2, 408)] {
        world.provider.fault(Fault::status("/virtualMachines/", times, status));
        assert_eq!(world.at(claims(), web()).await.status, 200, "{status}");
    }
}

async fn login_without_cached_keys_survives_a_busy_directory(world: &World) {
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    for part in ["openid-configuration", "discovery/keys"] {
        for times in [1, 2] {
            // A new configuration has no cached keys.
            world.configure(config()).await;
            world.provider.fault(Fault::status(part, times, 503));
            let answer = world.with(json!({})).await;
            assert_eq!(answer.status, 200, "{part} {times}: {}", answer.text);
        }
    }
}

#[actix_web::test]
async fn concurrent_logins_share_one_failed_token_fetch() {
    const LOGINS: usize = 20;
    let world = World::start().await;
    let machine = world.machine().await;
    let prime = json!({"bound_service_principal_ids": "o1"});
    assert_eq!(world.app.client.post("auth/cloudb/role/claims", prime).await.status, 204);
    let token = world.provider.mint(json!({}));
    assert_eq!(world.login(json!({"role": "claims", "jwt": token})).await.status, 200);
    world.provider.fault(Fault { wait: Duration::from_secs(2), ..Fault::status("oauth2", 99, 401) });
    let all = join_all((0..LOGINS).map(|_| world.as_machine(&machine))).await;
    for answer in all {
        answer.assert_error(502, "cloudb: the directory refused the service's credential (status 401)");
    }
    // A late login may have fetched again.
    let fetched = world.provider.lock().count("oauth2");
    assert!(fetched <= 3, "{fetched} for {LOGINS} logins");
}

async fn retry_delay_grows_and_follows_retry_after(world: &World) {
    let machine = world.machine().await;
    let slower = json!({"retry_delay": "100ms", "max_retry_delay": "1s"});
    world.configure(slower).await;
    assert_eq!(world.as_machine(&machine).await.status, 200);
    for (fault, least) in [
        // 100, 200 and 400 ms, each ± 20 %.
        (Fault::status("/virtualMachines/", 3, 503), 560),
        (Fault::header("/virtualMachines/", 1, 429, ("Retry-After", "1".to_owned())), 1000),
    ] {
        world.provider.fault(fault);
        let begun = Instant::now();
        assert_eq!(world.as_machine(&machine).await.status, 200);
        let took = begun.elapsed().as_millis();
        assert!((least..least + 20_000).contains(&took), "{took} ms");
    }
}

async fn rejected_secret_is_reported(world: &World) {
    let machine = world.machine().await;
    world.configure(json!({"client_secret": "wrong"})).await;
    let answer = world.as_machine(&machine).await;
    answer.assert_error(502, "cloudb: the directory refused the service's credential (status 401)");
    assert_eq!(world.provider.lock().arm_calls(), 0);
}

async fn server_without_secret_uses_its_machine_identity(world: &World) {
    let machine = world.machine().await;
    world.configure(json!({"client_secret": ""})).await;
    assert_eq!(world.as_machine(&machine).await.status, 200);
    let state = world.provider.lock();
    assert_eq!((state.count("metadata/identity"), state.count("oauth2/v2.0")), (1, 0));
}

async fn redirects_are_not_followed(world: &World) {
    let machine = world.machine().await;
    let location = || ("Location", format!("{}/evil", world.provider.url));
    world.provider.fault(Fault::header("openid-configuration", 1, 302, location()));
    let answer = world.as_machine(&machine).await;
    answer.assert_error(503, "cloudb: the issuer's discovery document: answered with status 302");
    assert_eq!(answer.header("retry-after").parse::<u64>().unwrap(), 1);
    // The failure is cached for ten seconds.
    assert_eq!(world.as_machine(&machine).await.status, 503);
    assert_eq!(world.provider.lock().count("openid-configuration"), 1);
    // A new configuration has its own cache.
    world.configure(json!({"max_retries": 1})).await;
    world.provider.fault(Fault::header("/virtualMachines/", 1, 302, location()));
    assert_eq!(world.as_machine(&machine).await.status, 503);
    assert_eq!(world.provider.lock().count("evil"), 0);
    assert_eq!(world.as_machine(&machine).await.status, 200);
}

async fn next_page_link_must_stay_at_the_provider(world: &World) {
    let machine = world.machine().await;
    let elsewhere = Provider::start();
    let pages = vec![vec![identity("c1")], vec![identity("c2")]];
    world.provider.lock().identities.insert(format!("{S1}/rg1"), pages);
    world.provider.lock().next_link = Some(format!("{}/subscriptions/x", elsewhere.url));
    let with = |app: &str| json!({"oid": "o9", "appid": app, "xms_mirid": machine});
    let answer = world.at(with("c2"), web()).await;
    answer
        .assert_error(503, "cloudb: the provider: the next-page link in the response has another origin than the API");
    assert!(elsewhere.lock().asked.is_empty());
    assert_eq!(world.at(with("c1"), web()).await.status, 200);
    // An endless list is abandoned.
    let own =
        format!("{}/subscriptions/{S1}/resourceGroups/rg1/providers/Microsoft.ManagedIdentity", world.provider.url);
    world.provider.lock().next_link = Some(format!("{own}/userAssignedIdentities?api-version=2023-01-31"));
    let before = world.provider.lock().count("userAssignedIdentities");
    assert_eq!(world.at(with("c2"), web()).await.status, 503);
    assert_eq!(world.provider.lock().count("userAssignedIdentities") - before, 50);
}

async fn unavailable_identity_page_is_503_not_403(world: &World) {
    let machine = world.machine().await;
    world.provider.lock().identities.insert(format!("{S1}/rg1"), vec![vec![identity("c1")]]);
    world.provider.fault(Fault::status("userAssignedIdentities", 9, 500));
    let claims = json!({"oid": "o9", "appid": "c1", "xms_mirid": machine});
    assert_eq!(world.at(claims, web()).await.status, 503);
}

async fn inconsistent_directory_documents_are_rejected(world: &World) {
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    let sts = |tenant: &str| format!("https://sts.windows.net/{tenant}/");
    let elsewhere = Provider::start();
    let keys = format!("{}/common/discovery/keys", elsewhere.url);
    for (at, (issuer, jwks_uri, keyless)) in [
        (sts(OTHER_TENANT), None, false),
        (format!("https://sts.windows.net/x{TENANT}/"), None, false),
        (sts(TENANT), Some(keys), false),
        (sts(TENANT), None, true),
    ]
    .into_iter()
    .enumerate()
    {
        {
            let mut state = world.provider.lock();
            state.issuers.insert(TENANT, issuer.clone());
            state.jwks_uri = jwks_uri;
            state.keys = if keyless { Vec::new() } else { vec![world.provider.key.public()] };
        }
        world.configure(json!({"max_retries": at})).await;
        let answer = world.with(json!({ "iss": issuer })).await;
        assert_eq!(answer.status, 503, "{at}: {}", answer.text);
    }
    assert!(elsewhere.lock().asked.is_empty());
}

async fn invalid_key_set_leaves_cached_keys_valid_for_a_day(world: &World) {
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    assert_eq!(world.with(json!({})).await.status, 200);
    let new = TokenKey::rsa("k2", 2);
    let token = new.token(&world.provider.claims(json!({})));
    for body in [json!({"keys": ["x".repeat(5 << 20)]}), json!("x"), json!({"keys": []})] {
        world.app.clock.advance(Duration::from_secs(11));
        world.provider.fault(Fault::body("discovery/keys", 1, body));
        assert_eq!(world.login(json!({"role": "r", "jwt": token})).await.status, 503);
        assert_eq!(world.with(json!({})).await.status, 200);
    }
    // Old keys are used for a day while the directory is unavailable.
    world.provider.fault(Fault::status("openid-configuration", 99, 503));
    world.app.clock.advance(Duration::from_secs(2 * 3600));
    let long = world.provider.mint(json!({"exp": now() + 48 * 3600}));
    assert_eq!(world.login(json!({"role": "r", "jwt": long})).await.status, 200);
    assert!(world.provider.lock().faults[0].times < 99, "it was asked");
    world.app.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(world.login(json!({"role": "r", "jwt": long})).await.status, 503);
}

async fn removed_key_is_rejected_after_a_configuration_write(world: &World) {
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    assert_eq!(world.with(json!({})).await.status, 200);
    world.provider.lock().keys = vec![TokenKey::rsa("k2", 2).public()];
    assert_eq!(world.with(json!({})).await.status, 200, "nobody has asked since");
    world.configure(config()).await;
    world.with(json!({})).await.assert_error(403, "the token is signed with a key that is not known");
}

async fn oversized_response_is_rejected(world: &World) {
    let machine = world.machine().await;
    world.provider.fault(Fault::body("/virtualMachines/", 1, json!({"location": "x".repeat(2 << 20)})));
    let answer = world.as_machine(&machine).await;
    answer.assert_error(503, "cloudb: the provider: its response is larger than 1 MiB");
}

#[actix_web::test]
async fn slow_provider_delays_only_logins_that_need_it() {
    let world = Arc::new(World::start().await);
    let machine = world.machine().await;
    let role = json!({"bound_service_principal_ids": "o1"});
    assert_eq!(world.app.client.post("auth/cloudb/role/claims", role).await.status, 204);
    assert_eq!(world.as_machine(&machine).await.status, 200);
    world.provider.fault(Fault {
        wait: Duration::from_secs(8),
        told: None,
        ..Fault::status("/virtualMachines/", 1, 200)
    });
    let token = world.provider.mint(json!({}));
    let slow = world.as_machine(&machine);
    let others = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let begun = Instant::now();
        for _ in 0..20 {
            assert_eq!(world.login(json!({"role": "claims", "jwt": token})).await.status, 200);
            assert_eq!(world.app.client.get("auth/cloudb/config").await.status, 200);
        }
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    };
    let (slow, ()) = futures_util::future::join(slow, others).await;
    assert_eq!(slow.status, 200);
}

async fn login_with_retries_ends_within_thirty_seconds(world: &World) {
    let machine = world.machine().await;
    let patient = json!({"retry_delay": "60s", "max_retry_delay": "60s"});
    world.configure(patient).await;
    world.provider.fault(Fault::status("/virtualMachines/", 9, 503));
    let body = json!({"role": "r", "jwt": world.provider.mint(json!({ "xms_mirid": machine })), "subscription_id": S1,
        "resource_group_name": "rg1", "vm_name": "web"});
    let begun = Instant::now();
    let request = world.app.client.with_token("").request("POST", "auth/cloudb/login").json(&body);
    let answer = send(request.timeout(Duration::from_secs(60))).await;
    answer.assert_error(503, "cloudb: the directory or the provider did not answer in time; log in again");
    assert!((29..50).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[actix_web::test]
async fn cve_2026_46405_token_that_was_not_stored_is_not_returned() {
    let faults = Arc::new(double::Faults::default());
    let world = World::built(|builder| builder.faults(&faults)).await;
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    assert_eq!(world.with(json!({})).await.status, 200);
    for fault in [double::Fault::Before, double::Fault::After] {
        let mut failed = 0;
        for n in 1.. {
            faults.arm(n, fault);
            let answer = world.with(json!({})).await;
            let met = faults.disarm();
            if met.is_none() {
                break;
            }
            if answer.status != 200 {
                failed += 1;
                assert_eq!(answer.status, 503, "{}", answer.text);
                assert!(answer.body["auth"].is_null() && answer.header("retry-after") == "1");
            }
        }
        assert!(failed > 0);
    }
    assert_eq!(world.with(json!({})).await.status, 200);
}

async fn outcomes_are_counted(world: &World) {
    let machine = world.machine().await;
    let count = |text: &str, result: &str| {
        let series = format!("signet_cloudb_logins_total{{mount=\"auth/counted/\",result=\"{result}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("0").to_owned();
        line.parse::<u64>().unwrap()
    };
    world.enable("counted").await;
    let role = json!({"bound_subscription_ids": S1});
    assert_eq!(world.app.client.post("auth/counted/role/r", role).await.status, 204);
    let login = async |claims: Value, name: &str| {
        let body = json!({"role": "r", "jwt": world.provider.mint(claims), "subscription_id": S1,
            "resource_group_name": "rg1", "vm_name": name});
        world.app.client.with_token("").post("auth/counted/login", body).await.status
    };
    assert_eq!(login(json!({ "xms_mirid": machine }), "web").await, 200);
    assert_eq!(login(json!({ "xms_mirid": machine }), "9").await, 400);
    assert_eq!(login(json!({ "xms_mirid": machine }), "web2").await, 403);
    world.provider.fault(Fault::status("/virtualMachines/", 9, 503));
    assert_eq!(login(json!({ "xms_mirid": machine }), "web").await, 503);
    let text = world.app.client.page("/metrics").await.text;
    for result in ["ok", "bad_request", "denied", "provider_error"] {
        assert_eq!(count(&text, result), 1, "{result}");
    }
    assert!(text.contains("signet_cloudb_provider_call_seconds_count{call=\"vm\",status=\"failed\"}"));
    assert!(text.contains("signet_auth_key_set_refreshes_total{result=\"done\"}"));
    for secret in [CLIENT, TENANT, config()["client_secret"].as_str().unwrap()] {
        assert!(!text.contains(secret));
    }
}
