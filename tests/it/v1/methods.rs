//! HTTP methods, response envelopes and statuses.

use serde_json::{Value, json};

use crate::support::{App, send, tests_on};

tests_on!(server: App::start() =>
    health_has_its_keys_and_no_envelope,
    health_head_has_no_body_and_bad_flags_are_rejected,
    absent_object_and_empty_list_are_404_in_every_spelling,
    write_without_output_is_204_unless_it_warns,
    token_headers_must_agree,
    form_content_type_accepts_json_and_form_bodies,
    patch_needs_its_content_type_and_unknown_methods_are_405,
    write_to_a_path_ending_in_slash_is_rejected,
    mounts_are_not_revealed_without_rights,
    responses_are_json_with_a_request_id,
    help_is_given_for_paths,
    fields_and_headers_do_not_change_the_operation,
);

async fn health_has_its_keys_and_no_envelope(app: &App) {
    let health = app.client.with_token("").get("sys/health").await;
    assert_eq!((health.status, health.header("cache-control")), (200, "no-store"));
    for key in [
        "initialized",
        "sealed",
        "standby",
        "performance_standby",
        "replication_performance_mode",
        "replication_dr_mode",
        "server_time_utc",
        "version",
        "cluster_name",
        "cluster_id",
        "writes_fail",
    ] {
        assert!(health.body.get(key).is_some(), "{key}");
    }
    assert!(health.body.get("request_id").is_none() && health.body.get("data").is_none());
}

async fn health_head_has_no_body_and_bad_flags_are_rejected(app: &App) {
    let head = send(app.client.request("HEAD", "sys/health")).await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    assert_eq!(app.client.get("sys/health?standbyok=xx").await.status, 400);
    assert_eq!(app.client.get("sys/health?sealedcode=abc").await.status, 400);
    assert_eq!(app.client.get("sys/health?activecode=299&standbyok=true").await.status, 299);
}

async fn absent_object_and_empty_list_are_404_in_every_spelling(app: &App) {
    let verb = app.client.list("pki/roles").await;
    for absent in [&verb, &app.client.get("sys/policies/acl/absent").await, &app.client.get("pki/roles/absent").await] {
        assert_eq!((absent.status, absent.text.as_str()), (404, "{\"errors\":[]}"));
    }
    for query in ["list=true", "list=T", "list=1"] {
        let get = app.client.get(&format!("pki/roles?{query}")).await;
        assert_eq!((get.status, get.text.as_str()), (verb.status, verb.text.as_str()));
        let names = app.client.get(&format!("sys/policies/acl?{query}")).await;
        assert!(names.body["data"]["keys"].as_array().unwrap().contains(&json!("root")));
    }
    assert_eq!(app.client.get("pki/roles?list=zz").await.status, 400);
    assert_eq!(app.client.get("pki/roles").await.status, 405);
}

async fn write_without_output_is_204_unless_it_warns(app: &App) {
    let policy = "path \"x\" { capabilities = [\"read\"] }";
    let own = json!({ "policy": policy, "name": "other" });
    // Known clients repeat path parameters in the body.
    app.client.post("sys/policies/acl/web", own.clone()).await.assert_status(204);
    let misspelt = json!({ "policy": policy, "polcy": "", "bogus": 1, "name": "other" });
    for (name, own) in [("web", 0), ("WEB2", 1)] {
        let answer = app.client.post(&format!("sys/policies/acl/{name}"), misspelt.clone()).await;
        assert_eq!((answer.status, &answer.body["data"]), (200, &Value::Null), "{name}");
        let warnings: Vec<_> = answer.body["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(warnings.len(), own + 3, "{warnings:?}");
        assert!(warnings[own].ends_with("unrecognized parameters: [bogus polcy]"), "{warnings:?}");
        assert_eq!(warnings[own + 1], "did you mean policy instead of polcy?");
        assert!(warnings[own + 2].ends_with("captured from the endpoint's path: [name]"), "{warnings:?}");
    }
}

async fn token_headers_must_agree(app: &App) {
    let bare = app.client.with_token("");
    let token = &app.client.token;
    let lookup = || bare.request("GET", "auth/token/lookup-self");
    for request in [
        lookup().header("X-Service-Token", token).header("X-Vault-Token", token),
        lookup().header("X-Vault-Token", token),
        lookup().header("Authorization", format!("Bearer {token}")),
    ] {
        assert_eq!(send(request).await.status, 200);
    }
    let differing = lookup().header("X-Service-Token", token).header("X-Vault-Token", "other");
    assert_eq!(send(differing).await.status, 400);
    send(lookup()).await.assert_denied();
    send(lookup().header("X-Service-Token", "s.unknown")).await.assert_denied();
}

async fn form_content_type_accepts_json_and_form_bodies(app: &App) {
    let form = |body: &'static str| {
        let request = app.client.request("POST", "sys/capabilities-self");
        request.header("Content-Type", "application/x-www-form-urlencoded").body(body)
    };
    for body in ["{\"path\":\"sys/mounts\"}", "path=sys/mounts", "path=sys%2Fmounts"] {
        let answer = send(form(body)).await;
        assert_eq!(answer.body["data"]["sys/mounts"], json!(["root"]), "{body}: {}", answer.text);
    }
}

async fn patch_needs_its_content_type_and_unknown_methods_are_405(app: &App) {
    let patch = app.client.request("PATCH", "pki/roles/web").header("Content-Type", "application/json").body("{}");
    assert_eq!(send(patch).await.status, 415);
    for method in ["FOO", "OPTIONS", "TRACE"] {
        let answer = send(app.client.request(method, "pki/roles/web")).await;
        assert_eq!((answer.status, answer.error()), (405, "unsupported operation"), "{method}");
    }
    app.client.post("sys/health", json!({})).await.assert_error(405, "unsupported operation");
}

async fn write_to_a_path_ending_in_slash_is_rejected(app: &App) {
    app.client.post("pki/roles/", json!({})).await.assert_error(400, "cannot write to a path ending in '/'");
}

async fn mounts_are_not_revealed_without_rights(app: &App) {
    app.client.get("nowhere/x").await.assert_error(404, "no handler for route \"nowhere/x\"");
    app.client.get("pki/no/such/path").await.assert_error(404, "unsupported path");
    let powerless = app.with_policies(&["default"]).await;
    for path in ["nowhere/x", "pki/no/such/path", "pki/roles/web", "sys/mounts"] {
        powerless.get(path).await.assert_denied();
        powerless.post(path, json!({})).await.assert_denied();
        app.client.with_token("").get(path).await.assert_denied();
    }
}

async fn responses_are_json_with_a_request_id(app: &App) {
    for answer in [
        app.client.get("nowhere").await,
        app.client.post("pki/roles/", json!({})).await,
        app.client.with_token("").get("sys/mounts").await,
        app.client.page("/nothing").await,
        app.client.page("/v1/").await,
    ] {
        assert_eq!(answer.header("content-type"), "application/json", "{}", answer.text);
        assert!(answer.body["errors"].is_array());
    }
    let answer = app.client.get("sys/mounts").await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("x-request-id"), answer.body["request_id"]);
}

async fn help_is_given_for_paths(app: &App) {
    let help = app.client.get("sys/policies/acl/web?help=1").await;
    assert!(help.body["help"].as_str().unwrap().contains("fields: policy"), "{}", help.text);
    assert!(help.body.get("request_id").is_none());
    app.client.with_token("").get("sys/policies/acl/web?help=1").await.assert_denied();
}

async fn fields_and_headers_do_not_change_the_operation(app: &App) {
    const HEADERS: [&str; 5] =
        ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Operation", "X-Vault-Operation", "X-Service-Operation"];
    assert!(app.client.post("pki/roles/web", json!({ "key_type": "ec" })).await.status < 300);
    app.policy("reader", "path \"pki/roles/*\" { capabilities = [\"read\"] }").await;
    let reader = app.with_policies(&["reader"]).await;
    for operation in ["delete", "update", "renew", "revoke", "rollback", "alias-lookahead"] {
        let request = reader.request("GET", &format!("pki/roles/web?operation={operation}&_method={operation}"));
        let request = HEADERS.iter().fold(request, |all, header| all.header(*header, operation.to_uppercase()));
        let answer = send(request.json(&json!({ "operation": operation, "key_type": "rsa" }))).await;
        assert_eq!((answer.status, &answer.body["data"]["key_type"]), (200, &json!("ec")), "{operation}");
    }
    let write = reader.request("POST", "pki/roles/web").json(&json!({ "operation": "read" }));
    send(write.header("X-HTTP-Method-Override", "GET")).await.assert_denied();
}
