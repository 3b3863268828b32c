//! Roles of `approle`, and logins.

use std::time::Duration;

use serde_json::{Value, json};

use super::{approle, log_in, role, role_with_secret_id, secret_id, with_approle, with_clock};
use crate::support::{App, send, tests_on};

tests_on!(method: approle() =>
    login_returns_a_token_with_the_role_settings,
    wrong_credentials_get_one_error_and_missing_ones_are_named,
    role_is_written_read_and_deleted_ignoring_letter_case,
    a_role_that_breaks_a_rule_is_refused_with_the_field,
    role_id_is_unique_until_released,
    each_field_of_a_role_has_a_path_of_its_own,
);

const INVALID: &str = "invalid role or secret ID";

async fn login_returns_a_token_with_the_role_settings(app: &App) {
    let terms = json!({ "token_policies": "web,db", "token_ttl": "20m", "token_max_ttl": "30m", "token_num_uses": 0 });
    role(app, "machine", terms).await;
    let shown = secret_id(app, "machine", json!({ "metadata": "{\"tag\":\"blue\",\"role_name\":\"mine\"}" })).await;
    let made = log_in(&app.client, "machine", &shown["secret_id"]).await;
    let auth = &made.body["auth"];
    assert_eq!((made.status, &auth["lease_duration"]), (200, &json!(1200)), "{}", made.text);
    assert_eq!(auth["policies"], json!(["db", "default", "web"]));
    assert_eq!(auth["metadata"], json!({ "role_name": "machine", "tag": "blue" }));
    assert_eq!((&auth["orphan"], &auth["renewable"]), (&json!(true), &json!(true)));
    let own = app.client.with_token(auth["client_token"].as_str().unwrap());
    let found = own.get("auth/token/lookup-self").await.body["data"].clone();
    assert_eq!((&found["path"], &found["display_name"]), (&json!("auth/approle/login"), &json!("approle")));
    assert_eq!(found["meta"], auth["metadata"]);
    assert_eq!(log_in(&app.client, "machine", &shown["secret_id"]).await.status, 200);
}

async fn wrong_credentials_get_one_error_and_missing_ones_are_named(app: &App) {
    role(app, "machine", json!({})).await;
    role(app, "other", json!({})).await;
    let own = secret_id(app, "machine", json!({})).await;
    let others = secret_id(app, "other", json!({})).await;
    let stranger = app.client.with_token("");
    for (body, text) in [
        (json!({}), "missing role_id"),
        (json!({ "role_id": "  " }), "missing role_id"),
        (json!({ "role_id": "machine-id" }), "missing secret_id"),
        (json!({ "role_id": "machine-id", "secret_id": " " }), "missing secret_id"),
        (json!({ "role_id": "nobody", "secret_id": own["secret_id"] }), INVALID),
        (json!({ "role_id": "nobody" }), "missing secret_id"),
        (json!({ "role_id": "machine", "secret_id": own["secret_id"] }), INVALID),
        (json!({ "role_id": "machine-id", "secret_id": "wrong" }), INVALID),
        (json!({ "role_id": "machine-id", "secret_id": own["secret_id_accessor"] }), INVALID),
        (json!({ "role_id": "machine-id", "secret_id": others["secret_id"] }), INVALID),
        (json!({ "role_id": "machine-id", "secret_id": "a".repeat(5_000) }), INVALID),
    ] {
        stranger.post("auth/approle/login", body).await.assert_error(400, text);
    }
    for body in [json!({ "role_id": ["x"] }), json!({ "role_id": "machine-id", "secret_id": 7 })] {
        stranger.post("auth/approle/login", body).await.assert_status(400);
    }
    let text = format!(" {} ", own["secret_id"].as_str().unwrap());
    let body = json!({ "role_id": " machine-id\n", "secret_id": text });
    assert_eq!(stranger.post("auth/approle/login", body).await.status, 200);
}

async fn role_is_written_read_and_deleted_ignoring_letter_case(app: &App) {
    let client = &app.client;
    assert_eq!(client.list("auth/approle/role").await.status, 404);
    let written = json!({ "secret_id_ttl": "10m", "secret_id_num_uses": 40, "policies": "Web,web", "period": "1h",
        "bound_cidr_list": "127.0.0.0/8,::1" });
    assert_eq!(client.post("auth/approle/role/Machine", written).await.status, 204);
    assert_eq!(client.post("auth/approle/role/MACHINE", json!({ "token_ttl": "5m" })).await.status, 204);
    let shown = client.get("auth/approle/role/machine").await.body["data"].clone();
    let want = json!({ "bind_secret_id": true, "local_secret_ids": false, "secret_id_bound_cidrs": ["127.0.0.0/8", "::1"],
        "secret_id_num_uses": 40, "secret_id_ttl": 600, "token_ttl": 300, "token_max_ttl": 0, "token_period": 3600,
        "period": 3600, "token_policies": ["web"], "policies": ["web"], "token_explicit_max_ttl": 0,
        "token_num_uses": 0, "token_bound_cidrs": [], "token_no_default_policy": false, "token_type": "default",
        "token_strictly_bind_ip": false });
    assert_eq!(shown, want);
    assert_eq!(client.post("auth/approle/role/abc", json!({})).await.status, 204);
    assert_eq!(client.list("auth/approle/role").await.body["data"]["keys"], json!(["abc", "machine"]));
    let page = client.request("LIST", "auth/approle/role?after=abc&limit=1");
    assert_eq!(send(page).await.body["data"]["keys"], json!(["machine"]));
    for _ in 0..2 {
        assert_eq!(client.delete("auth/approle/role/mAchine").await.status, 204);
    }
    assert_eq!(client.get("auth/approle/role/machine").await.text, "{\"errors\":[]}");
}

async fn a_role_that_breaks_a_rule_is_refused_with_the_field(app: &App) {
    role(app, "taken", json!({})).await;
    let visible = "role_id: must have 1 to 512 bytes and no control or invisible characters";
    for (body, text) in [
        (json!({ "secret_id_num_uses": -1 }), "secret_id_num_uses cannot be negative"),
        (json!({ "bind_secret_id": false }), "at least one constraint should be enabled on the role"),
        (json!({ "role_id": "taken-id" }), "role_id already in use"),
        (json!({ "role_id": "" }), visible),
        (json!({ "role_id": "a".repeat(513) }), visible),
        (json!({ "secret_id_ttl": "5ms" }), "secret_id_ttl: must be zero, or at least one second"),
        (json!({ "token_policies": "ROOT" }), "auth methods cannot create root tokens"),
        (json!({ "token_ttl": "2h", "token_max_ttl": "1h" }), "ttl should not be greater than max_ttl"),
    ] {
        app.client.post("auth/approle/role/wrong", body).await.assert_error(400, text);
    }
    for field in ["secret_id_bound_cidrs", "token_bound_cidrs", "bound_cidr_list", "secret_id_ttl", "bind_secret_id"] {
        for value in [json!("x"), json!({ "a": 1 }), json!([{}])] {
            app.client.post("auth/approle/role/wrong", json!({ field: value })).await.assert_error_has(400, field);
        }
    }
    assert_eq!(app.client.get("auth/approle/role/wrong").await.status, 404);
    let adjusted = app.client.post("auth/approle/role/old", json!({ "token_type": "default-service" })).await;
    let warning = "default-service has no useful meaning; adjusting to service";
    assert_eq!((adjusted.status, &adjusted.body["warnings"]), (200, &json!([warning])));
    assert_eq!(app.client.get("auth/approle/role/old").await.body["data"]["token_type"], "service");
    app.client.post("auth/approle/role/local", json!({ "local_secret_ids": true })).await;
    let text = "local_secret_ids can only be modified during role creation";
    app.client.post("auth/approle/role/local", json!({ "local_secret_ids": false })).await.assert_error(400, text);
    assert_eq!(app.client.post("auth/approle/role/local", json!({ "local_secret_ids": true })).await.status, 204);
}

async fn role_id_is_unique_until_released(app: &App) {
    let client = &app.client;
    let stranger = client.with_token("");
    client.post("auth/approle/role/one", json!({ "bind_secret_id": false, "token_bound_cidrs": "127.0.0.1" })).await;
    client.post("auth/approle/role/two", json!({ "bind_secret_id": false, "token_bound_cidrs": "127.0.0.1" })).await;
    let id_of = async |name: &str| {
        client.get(&format!("auth/approle/role/{name}/role-id")).await.body["data"]["role_id"].clone()
    };
    let one = id_of("one").await;
    let two = id_of("two").await;
    assert!(one.as_str().unwrap().len() == 36 && one != two);
    let enters = async |role_id: &Value| {
        let made = stranger.post("auth/approle/login", json!({ "role_id": role_id })).await;
        made.body["auth"]["metadata"]["role_name"].clone()
    };
    assert_eq!((enters(&one).await, enters(&two).await), (json!("one"), json!("two")));
    let set = async |name: &str, role_id: Value| {
        client.post(&format!("auth/approle/role/{name}/role-id"), json!({ "role_id": role_id })).await
    };
    set("two", one.clone()).await.assert_error(400, "role_id already in use");
    set("two", Value::Null).await.assert_error(400, "missing role_id");
    assert_eq!(set("one", json!("chosen")).await.status, 204);
    assert_eq!((enters(&json!("chosen")).await, enters(&one).await), (json!("one"), Value::Null));
    assert_eq!(set("two", one.clone()).await.status, 204, "it is free again");
    assert_eq!(enters(&one).await, "two");
    client.delete("auth/approle/role/two").await;
    assert_eq!(enters(&one).await, Value::Null);
    assert_eq!(set("one", one.clone()).await.status, 204);
    set("absent", json!("x")).await.assert_error(404, "role \"absent\" does not exist");
}

async fn each_field_of_a_role_has_a_path_of_its_own(app: &App) {
    let client = &app.client;
    role(app, "machine", json!({})).await;
    for (field, sent, shown, cleared) in [
        ("token_policies", json!("b,a"), json!(["a", "b"]), json!([])),
        ("token_period", json!("1m"), json!(60), json!(0)),
        ("bind_secret_id", json!(true), json!(true), json!(true)),
        ("secret_id_num_uses", json!("5"), json!(5), json!(0)),
        ("secret_id_ttl", json!("2m"), json!(120), json!(0)),
        ("token_num_uses", json!(7), json!(7), json!(0)),
        ("token_ttl", json!(90), json!(90), json!(0)),
        ("token_max_ttl", json!("3m"), json!(180), json!(0)),
        ("bound_cidr_list", json!(["::1"]), json!(["::1"]), json!([])),
        ("secret_id_bound_cidrs", json!("10.0.0.0/8,10.0.0.1/32"), json!(["10.0.0.0/8", "10.0.0.1/32"]), json!([])),
        ("token_bound_cidrs", json!("10.0.0.1/32"), json!(["10.0.0.1"]), json!([])),
    ] {
        let part = match field {
            "token_policies" | "token_period" => field.trim_start_matches("token_").to_owned(),
            field => field.replace('_', "-"),
        };
        let path = format!("auth/approle/role/machine/{part}");
        let sent = json!({ field: sent });
        client.post(&path, json!({ "role_id": "x" })).await.assert_error_begins(400, "missing ");
        client.post(&path, sent.clone()).await.assert_status(204);
        assert_eq!(client.get(&path).await.body["data"], json!({ field: shown }), "{part}");
        client.delete(&path).await.assert_status(204);
        assert_eq!(client.get(&path).await.body["data"][field], cleared, "{part}");
        let absent = path.replace("machine", "absent");
        assert_eq!(client.get(&absent).await.text, "{\"errors\":[]}", "{part}");
        client.post(&absent, sent).await.assert_status(404);
        client.delete(&absent).await.assert_status(204);
    }
    client.post("auth/approle/role/machine/policies", json!({ "policies": "old" })).await;
    let both = json!({ "policies": ["old"], "token_policies": ["old"] });
    assert_eq!(client.get("auth/approle/role/machine/policies").await.body["data"], both);
    client.delete("auth/approle/role/machine/policies").await;
    assert_eq!(client.get("auth/approle/role/machine/policies").await.body["data"], json!({ "token_policies": [] }));
    let local = client.get("auth/approle/role/machine/local-secret-ids").await;
    assert_eq!(local.body["data"], json!({ "local_secret_ids": false }));
    let answer = client.post("auth/approle/role/machine/bind-secret-id", json!({ "bind_secret_id": false })).await;
    answer.assert_error(400, "at least one constraint should be enabled on the role");
}

#[actix_web::test]
async fn role_without_secret_ids_accepts_only_its_networks() {
    let app = with_approle(App::builder().behind_proxy().start().await).await;
    role(&app, "near", json!({ "bind_secret_id": false, "secret_id_bound_cidrs": "192.0.2.0/24" })).await;
    role(&app, "bound", json!({ "bind_secret_id": false, "token_bound_cidrs": "192.0.2.7" })).await;
    let from = async |address: &str, role: &str| {
        let body = json!({ "role_id": format!("{role}-id") });
        app.client.with_token("").at(address).post("auth/approle/login", body).await
    };
    assert_eq!(from("192.0.2.9", "near").await.status, 200);
    from("192.0.3.9", "near").await.assert_error(400, "source address unauthorized by CIDR restrictions on the role");
    assert_eq!(from("192.0.2.7", "bound").await.status, 200);
    from("192.0.2.8", "bound").await.assert_denied();
    let text = "bind_secret_id is not set on the role";
    app.client.post("auth/approle/role/near/secret-id", json!({})).await.assert_error(400, text);
    app.stop().await;
}

/// A token from a login.
#[actix_web::test]
async fn renewal_gives_the_role_ttl_up_to_the_max_ttl() {
    let app = with_clock().await;
    let shown = role_with_secret_id(&app, "machine", json!({ "token_ttl": "2h", "token_max_ttl": "5h" })).await;
    let own = app.client.holder(&log_in(&app.client, "machine", &shown["secret_id"]).await);
    // Minutes that pass before, the requested increment, and the granted minutes.
    let renewals =
        [(0, "", 120), (0, "3h", 180), (0, "", 120), (90, "", 120), (90, "", 120), (60, "", 60), (0, "9h", 60)];
    for (passed, increment, granted) in renewals {
        app.clock.advance(Duration::from_secs(60 * passed));
        let renewed = own.post("auth/token/renew-self", json!({ "increment": increment })).await;
        assert_eq!(renewed.body["auth"]["lease_duration"], 60 * granted, "{}", renewed.text);
        assert_eq!(renewed.body["warnings"].is_array(), granted == 60, "{}", renewed.text);
    }
    role(&app, "machine", json!({ "token_max_ttl": "3h" })).await;
    own.post("auth/token/renew-self", json!({})).await.assert_error(400, "past the max TTL, cannot renew");
    app.clock.advance(Duration::from_secs(3600));
    own.post("auth/token/renew-self", json!({})).await.assert_denied();
    app.stop().await;
}
