//! Secret ids of `approle`: creation, use counts, expiry.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{approle, log_in, role, role_with_secret_id, secret_id, with_approle, with_clock};
use crate::support::{App, send, tests_on};

tests_on!(clocked: with_clock() =>
    secret_id_is_shown_once_and_found_by_value_and_accessor,
    secret_id_without_a_ttl_gets_the_maximum_of_the_mount,
    expired_secret_id_is_invalid_immediately,
    a_chosen_secret_id_is_taken_once_in_a_role,
);

tests_on!(method: approle() =>
    a_secret_id_keeps_within_its_role,
    concurrent_logins_do_not_exceed_the_secret_id_uses,
    a_secret_id_ends_by_text_by_accessor_and_with_its_role,
    a_login_that_is_refused_takes_no_use_of_its_secret_id,
);

const INVALID: &str = "invalid role or secret ID";

async fn secret_id_is_shown_once_and_found_by_value_and_accessor(app: &App) {
    role(app, "machine", json!({ "secret_id_ttl": "1h", "secret_id_num_uses": 9 })).await;
    let wanted = json!({ "metadata": { "a": "b" }, "cidr_list": "127.0.0.0/8", "num_uses": 3, "ttl": "10m" });
    let made = secret_id(app, "machine", wanted).await;
    assert_eq!((&made["secret_id_ttl"], &made["secret_id_num_uses"]), (&json!(600), &json!(3)));
    let accessor = &made["secret_id_accessor"];
    let want = json!({ "secret_id_accessor": accessor, "secret_id_num_uses": 3, "secret_id_ttl": 600,
        "creation_time": "2030-01-01T00:00:00Z", "last_updated_time": "2030-01-01T00:00:00Z",
        "expiration_time": "2030-01-01T00:10:00Z", "metadata": { "a": "b" }, "cidr_list": ["127.0.0.0/8"],
        "token_bound_cidrs": [] });
    let client = &app.client;
    for (by, body) in [
        ("secret-id", json!({ "secret_id": made["secret_id"] })),
        ("secret-id-accessor", json!({ "secret_id_accessor": accessor })),
    ] {
        let found = client.post(&format!("auth/approle/role/machine/{by}/lookup"), body.clone()).await;
        assert_eq!(found.body["data"], want, "{}", found.text);
        let answer = client.post(&format!("auth/approle/role/absent/{by}/lookup"), body).await;
        answer.assert_error(400, "role \"absent\" does not exist");
        let text = format!("missing {}", by.replace('-', "_"));
        client.post(&format!("auth/approle/role/machine/{by}/lookup"), json!({})).await.assert_error(400, &text);
    }
    app.clock.advance(Duration::from_secs(60));
    assert_eq!(log_in(client, "machine", &made["secret_id"]).await.status, 200);
    let found =
        client.post("auth/approle/role/machine/secret-id/lookup", json!({ "secret_id": made["secret_id"] })).await;
    let data = &found.body["data"];
    assert_eq!((&data["secret_id_num_uses"], &data["last_updated_time"]), (&json!(2), &json!("2030-01-01T00:01:00Z")));
    client.post("auth/approle/role/machine/secret-id/lookup", json!({ "secret_id": "other" })).await.assert_status(204);
    let other = json!({ "secret_id_accessor": "other" });
    assert_eq!(client.post("auth/approle/role/machine/secret-id-accessor/lookup", other).await.status, 404);
}

async fn a_secret_id_keeps_within_its_role(app: &App) {
    let role_terms = json!({ "secret_id_ttl": "1h", "secret_id_num_uses": 9, "secret_id_bound_cidrs": "10.0.0.0/8",
        "token_bound_cidrs": "10.0.0.0/16" });
    role(app, "machine", role_terms).await;
    let path = "auth/approle/role/machine/secret-id";
    for (body, text) in [
        (json!({ "num_uses": 10 }), "num_uses cannot be higher than the role's secret_id_num_uses"),
        (json!({ "num_uses": 0 }), "num_uses cannot be higher than the role's secret_id_num_uses"),
        (json!({ "num_uses": -1 }), "num_uses cannot be negative"),
        (json!({ "ttl": "61m" }), "ttl cannot be longer than the role's secret_id_ttl"),
        (json!({ "ttl": 0 }), "ttl cannot be longer than the role's secret_id_ttl"),
        (json!({ "cidr_list": "0.0.0.0/0" }), "cidr_list: must lie within the role's secret_id_bound_cidrs"),
        (json!({ "cidr_list": "10.1.0.0/16,11.0.0.1" }), "cidr_list: must lie within the role's secret_id_bound_cidrs"),
        (json!({ "token_bound_cidrs": "10.1.0.1" }), "token_bound_cidrs: must lie within the role's token_bound_cidrs"),
    ] {
        app.client.post(path, body).await.assert_error(400, text);
    }
    for (field, value) in [
        ("metadata", json!("x")),
        ("metadata", json!({ "a": "b".repeat(5_000) })),
        ("cidr_list", json!("10.0.0.300")),
        ("token_bound_cidrs", json!("10.0.0.0/64")),
        ("ttl", json!("-1s")),
    ] {
        app.client.post(path, json!({ field: value })).await.assert_error_has(400, field);
    }
    let answer = app.client.post("auth/approle/role/absent/secret-id", json!({})).await;
    answer.assert_error(404, "role \"absent\" does not exist");
    let made = secret_id(app, "machine", json!({ "cidr_list": "10.1.0.0/16", "ttl": "5m" })).await;
    assert_eq!((&made["secret_id_ttl"], &made["secret_id_num_uses"]), (&json!(300), &json!(9)));
    app.client.post("sys/auth/approle/tune", json!({ "default_lease_ttl": "1m", "max_lease_ttl": "2m" })).await;
    assert_eq!(secret_id(app, "machine", json!({})).await["secret_id_ttl"], 120, "the mount's longest life");
}

async fn secret_id_without_a_ttl_gets_the_maximum_of_the_mount(app: &App) {
    let tune = json!({ "default_lease_ttl": "5m", "max_lease_ttl": "10m" });
    assert_eq!(app.client.post("sys/auth/approle/tune", tune).await.status, 204);
    role(app, "machine", json!({})).await;
    let path = "auth/approle/role/machine/secret-id";
    let above = "ttl: 24h is above the mount's max_lease_ttl: 10m is used";
    let endless = "ttl: secret IDs must expire; the mount's max_lease_ttl, 10m, is used";
    let mut made = Vec::new();
    for (body, ttl, warnings) in [
        (json!({}), 600, Value::Null),
        (json!({ "ttl": "24h" }), 600, json!([above])),
        (json!({ "ttl": 0 }), 600, json!([endless])),
        (json!({ "ttl": "10m" }), 600, Value::Null),
        (json!({ "ttl": "1m" }), 60, Value::Null),
    ] {
        let answer = app.client.post(path, body.clone()).await;
        assert_eq!(answer.body["data"]["secret_id_ttl"], ttl, "{body}");
        assert_eq!(answer.body["warnings"], warnings, "{body}");
        made.push(answer.body["data"]["secret_id"].clone());
    }
    let found = app.client.post(&format!("{path}/lookup"), json!({ "secret_id": made[0] })).await;
    assert_eq!(found.body["data"]["expiration_time"], "2030-01-01T00:10:00Z");
    let custom = json!({ "secret_id": "chosen", "ttl": "24h" });
    let custom = app.client.post("auth/approle/role/machine/custom-secret-id", custom).await;
    assert_eq!(custom.body["warnings"], json!([above]));
    // The role's own lifetime is capped, too; its writer and its user get a warning.
    let cut = json!(["secret_id_ttl: 1h is above the mount's max_lease_ttl: 10m is used"]);
    for path in ["auth/approle/role/machine", "auth/approle/role/machine/secret-id-ttl"] {
        let written = app.client.post(path, json!({ "secret_id_ttl": "1h" })).await;
        assert_eq!((written.status, &written.body["warnings"]), (200, &cut), "{}", written.text);
    }
    let answer = app.client.post(path, json!({})).await;
    assert_eq!((&answer.body["data"]["secret_id_ttl"], &answer.body["warnings"]), (&json!(600), &cut));
    app.clock.advance(Duration::from_secs(600));
    for secret in &made {
        log_in(&app.client, "machine", secret).await.assert_error(400, INVALID);
    }
}

async fn expired_secret_id_is_invalid_immediately(app: &App) {
    let made = role_with_secret_id(app, "machine", json!({ "secret_id_ttl": "10m" })).await;
    let counted = secret_id(app, "machine", json!({ "num_uses": 5 })).await;
    app.clock.advance(Duration::from_secs(599));
    for secret in [&made, &counted] {
        assert_eq!(log_in(&app.client, "machine", &secret["secret_id"]).await.status, 200);
    }
    app.clock.advance(Duration::from_secs(1));
    for secret in [&made, &counted] {
        log_in(&app.client, "machine", &secret["secret_id"]).await.assert_error(400, INVALID);
    }
    assert_eq!(app.client.list("auth/approle/role/machine/secret-id").await.status, 404, "nobody is shown it");
    let named = json!({ "secret_id": made["secret_id"] });
    assert_eq!(app.client.post("auth/approle/role/machine/secret-id/lookup", named).await.status, 204);
    let tidied = app.client.post("auth/approle/tidy/secret-id", json!({})).await;
    assert!(tidied.status == 202 && tidied.body["warnings"][0].as_str().unwrap().starts_with("Tidy operation"));
}

#[actix_web::test]
async fn uses_are_counted_and_a_login_that_is_refused_takes_none() {
    let app = with_approle(App::builder().behind_proxy().start().await).await;
    role(&app, "machine", json!({})).await;
    let made = secret_id(&app, "machine", json!({ "num_uses": 2, "cidr_list": "192.0.2.0/24" })).await;
    let from = async |address: &str| log_in(&app.client.at(address), "machine", &made["secret_id"]).await;
    for _ in 0..3 {
        let text = "source address unauthorized by CIDR restrictions on the secret ID";
        from("192.0.3.1").await.assert_error(400, text);
    }
    assert_eq!(from("192.0.2.1").await.status, 200);
    assert_eq!(from("192.0.2.1").await.status, 200);
    from("192.0.2.1").await.assert_error(400, INVALID);
    assert_eq!(app.client.list("auth/approle/role/machine/secret-id").await.status, 404, "it is gone");
    // After the role's networks are narrowed, the secret id is rejected.
    let made = secret_id(&app, "machine", json!({ "cidr_list": "192.0.2.0/24" })).await;
    let narrow = json!({ "secret_id_bound_cidrs": "10.0.0.0/8" });
    app.client.post("auth/approle/role/machine/secret-id-bound-cidrs", narrow).await;
    let text = "secret ID: its networks no longer lie within those of the role; create a new secret ID";
    log_in(&app.client, "machine", &made["secret_id"]).await.assert_error(400, text);
    app.stop().await;
}

async fn concurrent_logins_do_not_exceed_the_secret_id_uses(app: &App) {
    role(app, "machine", json!({})).await;
    for uses in [1, 3] {
        let made = secret_id(app, "machine", json!({ "num_uses": uses })).await;
        let all = join_all((0..16).map(|_| log_in(&app.client, "machine", &made["secret_id"]))).await;
        let entered = all.iter().filter(|answer| answer.status == 200).count();
        assert_eq!(entered, uses);
        all.iter().filter(|answer| answer.status != 200).for_each(|answer| answer.assert_error(400, INVALID));
    }
    let made = secret_id(app, "machine", json!({ "num_uses": 1 })).await;
    assert_eq!(log_in(&app.client, "machine", &made["secret_id"]).await.status, 200);
}

#[actix_web::test]
async fn tokens_of_a_secret_id_are_bound_to_its_own_networks() {
    let app = with_approle(App::builder().behind_proxy().start().await).await;
    role(&app, "machine", json!({ "token_bound_cidrs": "192.0.2.0/24" })).await;
    let made = secret_id(&app, "machine", json!({ "token_bound_cidrs": "192.0.2.7", "num_uses": 1 })).await;
    let from = async |address: &str| log_in(&app.client.at(address), "machine", &made["secret_id"]).await;
    from("192.0.2.8").await.assert_denied();
    let entered = from("192.0.2.7").await;
    assert_eq!(entered.status, 200, "the refusal took no use: {}", entered.text);
    let own = app.client.holder(&entered);
    let look = async |address: &str| own.at(address).get("auth/token/lookup-self").await.status;
    assert_eq!((look("192.0.2.7").await, look("192.0.2.8").await), (200, 403));
    app.stop().await;
}

async fn a_chosen_secret_id_is_taken_once_in_a_role(app: &App) {
    role(app, "machine", json!({})).await;
    role(app, "other", json!({})).await;
    let client = &app.client;
    let chosen = |ttl: &str| json!({ "secret_id": " chosen ", "ttl": ttl });
    let made = client.post("auth/approle/role/machine/custom-secret-id", chosen("1h")).await;
    assert_eq!(made.body["data"]["secret_id"], "chosen", "{}", made.text);
    let again = client.post("auth/approle/role/machine/custom-secret-id", chosen("1h")).await;
    again.assert_error(400, "secret_id: is already registered");
    assert_eq!(client.post("auth/approle/role/other/custom-secret-id", chosen("1h")).await.status, 200);
    for body in [json!({}), json!({ "secret_id": "" })] {
        client.post("auth/approle/role/machine/custom-secret-id", body).await.assert_error(400, "missing secret_id");
    }
    let long = json!({ "secret_id": "a".repeat(4_097) });
    let text = "secret_id: must have 1 to 4096 bytes";
    client.post("auth/approle/role/machine/custom-secret-id", long).await.assert_error(400, text);
    assert_eq!(log_in(client, "machine", &json!("chosen")).await.status, 200);
    app.clock.advance(Duration::from_secs(3600));
    let again = client.post("auth/approle/role/machine/custom-secret-id", chosen("2h")).await;
    assert_eq!(again.status, 200, "the one that has ended is none: {}", again.text);
}

async fn a_secret_id_ends_by_text_by_accessor_and_with_its_role(app: &App) {
    let client = &app.client;
    role(app, "machine", json!({})).await;
    let mut made = Vec::new();
    for _ in 0..4 {
        made.push(secret_id(app, "machine", json!({})).await);
    }
    let mut accessors: Vec<&str> = made.iter().map(|one| one["secret_id_accessor"].as_str().unwrap()).collect();
    accessors.sort_unstable();
    assert_eq!(client.list("auth/approle/role/machine/secret-id").await.body["data"]["keys"], json!(accessors));
    let page = format!("auth/approle/role/machine/secret-id?after={}&limit=2", accessors[0]);
    assert_eq!(send(client.request("LIST", &page)).await.body["data"]["keys"], json!(accessors[1..3]));
    for (part, name, at) in [("secret-id", "secret_id", 0), ("secret-id-accessor", "secret_id_accessor", 1)] {
        let path = format!("auth/approle/role/machine/{part}/destroy");
        let body = json!({ name: made[at][name] });
        assert_eq!(client.post(&path, body.clone()).await.status, 204);
        log_in(client, "machine", &made[at]["secret_id"]).await.assert_error(400, INVALID);
        assert_eq!(client.post(&path, body).await.status, if at == 0 { 204 } else { 404 });
    }
    let query =
        format!("auth/approle/role/machine/secret-id/destroy?secret_id={}", made[2]["secret_id"].as_str().unwrap());
    assert_eq!(client.delete(&query).await.status, 204);
    log_in(client, "machine", &made[2]["secret_id"]).await.assert_error(400, INVALID);
    // Secret ids end with their role, and are invalid in a new role of the same name.
    assert_eq!(log_in(client, "machine", &made[3]["secret_id"]).await.status, 200);
    client.delete("auth/approle/role/machine").await;
    log_in(client, "machine", &made[3]["secret_id"]).await.assert_error(400, INVALID);
    role(app, "machine", json!({})).await;
    log_in(client, "machine", &made[3]["secret_id"]).await.assert_error(400, INVALID);
    assert_eq!(client.list("auth/approle/role/machine/secret-id").await.status, 404);
    client.list("auth/approle/role/absent/secret-id").await.assert_error(400, "role \"absent\" does not exist");
}

#[actix_web::test]
async fn secret_ids_and_roles_outlive_a_restart() {
    let app = approle().await;
    role(&app, "machine", json!({ "token_policies": "web" })).await;
    let made = secret_id(&app, "machine", json!({ "num_uses": 2 })).await;
    assert_eq!(log_in(&app.client, "machine", &made["secret_id"]).await.status, 200);
    let app = app.restart().await;
    let entered = log_in(&app.client, "machine", &made["secret_id"]).await;
    assert_eq!(entered.body["auth"]["token_policies"], json!(["default", "web"]), "{}", entered.text);
    log_in(&app.client, "machine", &made["secret_id"]).await.assert_error(400, INVALID);
    assert_eq!(app.client.list("auth/approle/role").await.body["data"]["keys"], json!(["machine"]));
    app.stop().await;
}

async fn a_login_that_is_refused_takes_no_use_of_its_secret_id(app: &App) {
    role(app, "machine", json!({ "token_num_uses": 5 })).await;
    let shown = secret_id(app, "machine", json!({ "num_uses": 2 })).await;
    let log_in = async || log_in(&app.client, "machine", &shown["secret_id"]).await;
    let entity = log_in().await.body["auth"]["entity_id"].clone();
    let entity = format!("identity/entity/id/{}", entity.as_str().unwrap());
    assert!(app.client.post(&entity, json!({ "disabled": true })).await.status < 300);
    log_in().await.assert_denied();
    assert!(app.client.post(&entity, json!({ "disabled": false })).await.status < 300);
    // Tokens with a use count cannot be batch tokens.
    let tuned = async |kind: &str| app.client.post("sys/auth/approle/tune", json!({ "token_type": kind })).await.status;
    assert_eq!(tuned("batch").await, 204);
    assert_eq!(log_in().await.status, 400);
    assert_eq!(tuned("default-service").await, 204);
    assert_eq!(log_in().await.status, 200);
    assert_eq!(log_in().await.status, 400, "its uses are taken");
}
