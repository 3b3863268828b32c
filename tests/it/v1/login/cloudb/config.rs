//! The configuration of `cloudb`.

use serde_json::{Value, json};
use signet::auth::{CloudbFallback, CloudbSettings};
use signet::secret::Secret;

use super::{World, config};
use crate::provider::{CLIENT, OTHER_TENANT, Provider, RESOURCE, SECRET, TENANT};
use crate::support::{App, assert_has, tests_on, with};

tests_on!(enabled: World::start() =>
    configuration_is_merged_and_read_back_without_its_secret,
    absent_configuration_is_404_and_can_be_deleted,
    cloud_names_ignore_letter_case,
    login_error_names_missing_configuration,
    configuration_write_does_not_fail_running_logins,
    tenant_with_path_characters_is_rejected_without_requests,
    fields_of_other_editions_are_refused_by_name,
);

const PATH: &str = "auth/cloudb/config";

async fn configuration_is_merged_and_read_back_without_its_secret(world: &World) {
    let client = &world.app.client;
    let shown = client.get(PATH).await;
    let expected = json!({"tenant_id": TENANT, "resource": RESOURCE, "environment": "", "client_id": CLIENT,
        "root_password_ttl": 15_768_000, "max_retries": 3, "retry_delay": 1, "max_retry_delay": 1});
    assert_eq!(shown.body["data"], expected);
    assert!(!shown.text.contains(SECRET));
    world.configure(json!({"max_retries": 7, "retry_delay": "1500ms", "root_password_ttl": "1h"})).await;
    world.configure(json!({"client_id": "other"})).await;
    let changed = json!({"max_retries": 7, "retry_delay": 2, "root_password_ttl": 3600, "client_id": "other"});
    assert_has(&client.get(PATH).await.body["data"], with(expected, changed));
}

async fn absent_configuration_is_404_and_can_be_deleted(world: &World) {
    let client = &world.app.client;
    for _ in 0..2 {
        assert_eq!(client.delete(PATH).await.status, 204);
        let answer = client.get(PATH).await;
        assert_eq!((answer.status, answer.text.as_str()), (404, r#"{"errors":[]}"#));
    }
}

#[actix_web::test]
async fn environment_supplies_missing_configuration() {
    let provider = Provider::start();
    let fallback = CloudbFallback {
        tenant_id: TENANT.to_owned(),
        resource: "api://of-the-environment".to_owned(),
        client_secret: Secret::new("env-canary"),
        ..CloudbFallback::default()
    };
    let settings = CloudbSettings { fallback, ..provider.settings() };
    let app = App::builder().cloudb(settings).start().await;
    assert_eq!(app.client.post("sys/auth/cloudb", json!({"type": "cloudb"})).await.status, 204);
    let world = World { app, provider };
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    let of = |audience: &str| json!({"aud": audience});
    assert_eq!(world.with(of("api://of-the-environment")).await.status, 200);
    assert_eq!(world.app.client.get(PATH).await.status, 404);
    world.configure(json!({"resource": "api://written"})).await;
    assert_eq!(world.with(of("api://of-the-environment")).await.status, 403);
    assert_eq!(world.with(of("api://written")).await.status, 200);
    let shown = world.app.client.get(PATH).await;
    assert_eq!((&shown.body["data"]["tenant_id"], shown.text.contains("env-canary")), (&json!(""), false));
}

async fn cloud_names_ignore_letter_case(world: &World) {
    let client = &world.app.client;
    assert_eq!(client.post(PATH, json!({"environment": "azurepubliccloud"})).await.status, 204);
    let answer = client.post(PATH, json!({"environment": "azuresomething"})).await;
    answer.assert_error(400, "err: no cloud configuration matching the name \"azuresomething\"");
    assert_eq!(client.get(PATH).await.body["data"]["environment"], "azurepubliccloud");
}

async fn login_error_names_missing_configuration(world: &World) {
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    for name in ["tenant_id", "resource"] {
        let mut partly = config();
        partly[name] = json!("");
        world.configure(partly).await;
        world.with(json!({})).await.assert_error(400, &format!("{name} is required"));
    }
    assert!(world.provider.lock().asked.is_empty());
}

async fn configuration_write_does_not_fail_running_logins(world: &World) {
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    assert_eq!(world.with(json!({})).await.status, 200);
    // Writing a role keeps the cached keys; writing the configuration clears them.
    world.role(json!({"token_ttl": "1h"})).await;
    assert_eq!(world.with(json!({})).await.status, 200);
    assert_eq!(world.provider.lock().count("discovery/keys"), 1);
    world.configure(json!({"root_password_ttl": "2h"})).await;
    assert_eq!(world.with(json!({})).await.status, 200);
    assert_eq!(world.provider.lock().count("discovery/keys"), 2);
    let logins = (0..20).map(|_| world.with(json!({})));
    let write = world.app.client.post(PATH, json!({"tenant_id": OTHER_TENANT}));
    let (logins, written) = futures_util::future::join(futures_util::future::join_all(logins), write).await;
    assert_eq!(written.status, 204);
    // Logins before the change succeed; later ones have the wrong tenant.
    assert!(logins.iter().all(|login| matches!(login.status, 200 | 403)), "{}", logins[0].text);
    assert_eq!(world.with(json!({})).await.status, 403);
    let issuer = format!("https://sts.windows.net/{OTHER_TENANT}/");
    assert_eq!(world.with(json!({"iss": issuer, "tid": OTHER_TENANT})).await.status, 200);
    assert_eq!(world.provider.lock().count("discovery/keys"), 3);
}

async fn tenant_with_path_characters_is_rejected_without_requests(world: &World) {
    for bad in ["../evil", "a/b?x", "..", "a%2fb", "a b"] {
        let answer = world.app.client.post(PATH, json!({ "tenant_id": bad })).await;
        answer.assert_error(400, "tenant_id: must be a GUID or the name of a domain");
    }
    assert!(world.provider.lock().asked.is_empty());
}

async fn fields_of_other_editions_are_refused_by_name(world: &World) {
    let federation = "workload identity federation is not supported";
    let one = "only one of 'client_secret' or 'identity_token_audience' can be set";
    for (body, text) in [
        (json!({"identity_token_audience": "a"}), federation),
        (json!({"identity_token_audience": "a", "client_secret": "s"}), one),
        (json!({"rotation_period": "1h"}), "scheduled rotation is not supported"),
        (json!({"rotation_schedule": "* * * * *"}), "scheduled rotation is not supported"),
    ] {
        world.app.client.post(PATH, body).await.assert_error(400, text);
    }
    let neutral: Value = json!({"identity_token_audience": "", "identity_token_ttl": 3600, "rotation_period": 0,
        "disable_automated_rotation": false});
    world.configure(neutral).await;
    for body in [json!({"retry_delay": "1x"}), json!({"max_retries": 1.5}), json!({"client_secret": 7})] {
        assert_eq!(world.app.client.post(PATH, body).await.status, 400);
    }
}
