//! Lenient parsing of request bodies on real endpoints.

use serde_json::{Value, json};

use crate::support::{App, assert_has, send, tests_on, with};

tests_on!(server: App::start() =>
    booleans_and_durations_have_known_spellings,
    null_counts_as_absent,
    rejection_names_unknown_fields,
    unknown_fields_are_named_where_there_is_a_body,
    unknown_field_warning_truncates_count_and_names,
    unknown_mount_type_error_truncates_the_type,
    a_variable_without_a_value_lifts_no_limit,
);

async fn booleans_and_durations_have_known_spellings(app: &App) {
    let booleans = [json!("true"), json!(true), json!(1), json!("T")].map(|value| ("renewable", value, 200));
    let no_booleans = [json!("yes"), json!(2)].map(|value| ("renewable", value, 400));
    let durations = [json!("1h30m"), json!(5400), json!("5400"), json!("90m")].map(|value| ("ttl", value, 200));
    let no_durations = [json!("-1s"), json!("1x"), json!(1.5)].map(|value| ("ttl", value, 400));
    for (field, value, status) in booleans.into_iter().chain(no_booleans).chain(durations).chain(no_durations) {
        let body = with(json!({ "ttl": "90m", "policies": ["default"] }), json!({ field: value }));
        let answer = app.client.post("auth/token/create", body).await;
        assert_eq!(answer.status, status, "{field} {value}: {}", answer.text);
        if status == 200 {
            assert_eq!(answer.body["auth"]["lease_duration"], json!(5400), "{field} {value}");
        }
    }
}

async fn null_counts_as_absent(app: &App) {
    let body = json!({ "type": "pki", "config": null, "options": null, "description": null, "plugin_name": null });
    assert_eq!(app.client.post("sys/mounts/other", body).await.status, 204);
    let answer = send(app.client.request("PUT", "sys/capabilities-self").body("null")).await;
    answer.assert_error(400, "paths must be supplied");
    send(app.client.request("PUT", "auth/token/create").body("null")).await.assert_status(200);
}

async fn rejection_names_unknown_fields(app: &App) {
    let ignored = "Endpoint ignored these unrecognized parameters: [keytype]";
    // A misspelt field is often the reason of the error.
    let misspelt = json!({ "key_bits": 256, "keytype": "ec" });
    let refused = app.client.post("pki/roles/web", misspelt).await.assert_status(400);
    assert!(refused.error().starts_with("key_bits: ") && refused.body["errors"].as_array().unwrap().len() == 1);
    assert_eq!(refused.body["warnings"], json!([ignored, "did you mean key_type instead of keytype?"]));
    let absent = app.client.get("pki/roles/web?keytype=ec").await;
    assert_eq!((absent.status, &absent.body), (404, &json!({ "errors": [], "warnings": [ignored] })));
    let named = app.client.post("pki/roles/web", json!({ "name": "other", "key_bits": 1 })).await;
    assert!(named.body["warnings"][0].as_str().unwrap().contains("captured from the endpoint's path: [name]"));
    // Without unknown fields there are no warnings, and a caller without the right learns nothing about fields.
    let plain = app.client.post("pki/roles/web", json!({ "key_bits": 1 })).await;
    assert_eq!(plain.body.as_object().unwrap().keys().collect::<Vec<_>>(), ["errors"]);
    let powerless = app.with_policies(&["default"]).await;
    let denied = powerless.post("pki/roles/web", json!({ "keytype": "ec" })).await;
    assert_eq!((denied.status, denied.text.trim()), (403, "{\"errors\":[\"permission denied\"]}"));
}

async fn unknown_fields_are_named_where_there_is_a_body(app: &App) {
    let answer = app.client.post("sys/capabilities-self", json!({ "path": "x", "bogus": 1, "also": {} })).await;
    assert_has(&answer.body, json!({ "warnings": ["Endpoint ignored these unrecognized parameters: [also bogus]"] }));
    let nothing_new = app.client.post("sys/capabilities-self", json!({ "path": "x" })).await;
    assert_eq!(nothing_new.body["warnings"], Value::Null);
    app.client.delete("sys/mounts/absent?bogus=1").await.assert_status(204);
}

async fn unknown_field_warning_truncates_count_and_names(app: &App) {
    let mut body = json!({ "path": "x" });
    for n in 0..500 {
        body[format!("{n:03}{}", "a".repeat(300))] = json!(1);
    }
    let answer = app.client.post("sys/capabilities-self", body).await;
    let names: Vec<_> = (0..20).map(|n| format!("{n:03}{}", "a".repeat(61))).collect();
    let expected = format!("Endpoint ignored these unrecognized parameters: [{}] and 480 more", names.join(" "));
    assert_eq!((answer.status, &answer.body["warnings"]), (200, &json!([expected])), "{}", answer.text);
}

async fn unknown_mount_type_error_truncates_the_type(app: &App) {
    for path in ["sys/mounts/x", "sys/auth/x"] {
        let answer = app.client.post(path, json!({ "type": "k\u{1F600}".repeat(100_000) })).await;
        let expected = format!("unknown mount type: \"{}\"", "k\u{1F600}".repeat(32));
        answer.assert_error(400, &expected);
    }
}

async fn a_variable_without_a_value_lifts_no_limit(app: &App) {
    for method in ["approle", "jwt", "cloudb"] {
        app.client.enable(&format!("sys/auth/{method}"), method).await;
    }
    assert_eq!(app.client.post("auth/approle/role/web", json!({})).await.status, 204);
    app.client.post("auth/token/roles/web", json!({})).await;
    let key = json!({ "kms_key": "alias/x", "key_type": "RSA", "key_bits": "2048", "region": "eu-central-1" });
    let key_set = json!({ "jwks_url": "https://a.test/keys" });
    let subject = json!({ "bound_subject": "s", "user_claim": "sub" });
    let root = json!({ "common_name": "Root" });
    let cloudb = json!({ "bound_subscription_ids": ["11111111-2222-3333-4444-555555555555"] });
    for (path, body, fields) in [
        ("auth/token/create", json!({}), "policies"),
        ("auth/token/create/web", json!({}), "policies"),
        ("auth/token/create-orphan", json!({}), "policies"),
        ("auth/token/roles/web", json!({}), "allowed_policies allowed_policies_glob token_bound_cidrs bound_cidrs"),
        ("auth/token/roles/web", json!({}), "disallowed_policies disallowed_policies_glob"),
        ("auth/approle/role/web", json!({}), "token_bound_cidrs bound_cidrs secret_id_bound_cidrs bound_cidr_list"),
        ("auth/approle/role/web/secret-id", json!({}), "cidr_list token_bound_cidrs"),
        ("auth/jwt/role/web", subject, "bound_audiences bound_claims token_bound_cidrs"),
        ("auth/jwt/config", key_set, "jwt_supported_algs"),
        ("auth/cloudb/role/web", cloudb.clone(), "bound_service_principal_ids bound_group_ids bound_resource_groups"),
        ("auth/cloudb/role/web", cloudb, "bound_locations bound_scale_sets"),
        ("sys/managed-keys/cloudakms/web", key, "usages"),
        ("pki/roles/web", json!({ "allow_any_name": true }), "allowed_ip_sans_cidr"),
        ("pki/root/generate/internal", root, "permitted_dns_domains excluded_uri_domains permitted_ip_ranges"),
    ] {
        for field in fields.split(' ') {
            for blank in [json!([""]), json!([" ", ""])] {
                let refused = app.client.post(path, with(body.clone(), json!({ field: blank }))).await;
                refused.assert_error(400, &format!("{field}: all entries are empty; to send an empty list, send []"));
            }
        }
    }
    // An explicit empty value is permitted, also in lists that grant nothing when empty.
    for (path, body) in [
        ("auth/token/create", json!({ "policies": "" })),
        ("auth/token/create", json!({ "policies": [] })),
        ("auth/approle/role/web", json!({ "token_policies": [""], "token_bound_cidrs": "" })),
        ("pki/roles/web", json!({ "key_usage": [""], "allowed_domains": [""] })),
    ] {
        let taken = app.client.post(path, body).await;
        assert!(matches!(taken.status, 200 | 204), "{path}: {}", taken.text);
    }
}
