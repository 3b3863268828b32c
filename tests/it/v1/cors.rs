//! CORS: response headers for pages of other origins, and their configuration.

use serde_json::{Value, json};
use signet::audit::AuditDeviceSettings;

use crate::support::{Answer, App, Client, send, tests_on};

tests_on!(server: App::start() =>
    cors_headers_are_absent_until_origins_are_configured,
    configured_origins_are_served_and_others_rejected,
    invalid_cors_configuration_is_rejected_without_change,
);

const CONFIG: &str = "sys/config/cors";
const PAGE: &str = "https://console.test:8443";

/// Sends a request like a page of `origin`.
async fn ask(client: &Client, method: &str, path: &str, origin: &str) -> Answer {
    send(client.request(method, path).header("Origin", origin)).await
}

async fn preflight(client: &Client, path: &str, origin: &str, method: &str) -> Answer {
    let request = client.with_token("").request("OPTIONS", path).header("Origin", origin);
    let request = request.header("Access-Control-Request-Headers", "x-service-token");
    send(request.header("Access-Control-Request-Method", method)).await
}

fn told(answer: &Answer) -> [&str; 4] {
    let named = |name: &str| answer.header(name);
    [
        named("access-control-allow-origin"),
        named("access-control-allow-methods"),
        named("access-control-max-age"),
        named("access-control-allow-credentials"),
    ]
}

async fn cors_headers_are_absent_until_origins_are_configured(app: &App) {
    let off = app.client.get(CONFIG).await;
    assert_eq!((off.status, &off.body["data"]), (200, &json!({ "enabled": false })), "{}", off.text);
    for (answer, status) in [
        (preflight(&app.client, "sys/mounts", PAGE, "GET").await, 405),
        (ask(&app.client, "GET", "sys/mounts", PAGE).await, 200),
    ] {
        assert_eq!((answer.status, told(&answer)), (status, ["", "", "", ""]));
        assert!(answer.headers.get_all("vary").iter().all(|vary| vary != "origin"));
    }
}

async fn configured_origins_are_served_and_others_rejected(app: &App) {
    let body = json!({ "allowed_origins": format!("{PAGE},http://localhost"), "allowed_headers": ["X-Mine", "x-vault-token"] });
    assert_eq!(app.client.post(CONFIG, body).await.status, 204);
    let shown = app.client.get(CONFIG).await;
    let data = &shown.body["data"];
    assert_eq!((&data["enabled"], &data["allowed_origins"]), (&json!(true), &json!([PAGE, "http://localhost"])));
    assert_eq!(shown.body["allowed_origins"], data["allowed_origins"], "at the top level, too");
    let headers: Vec<&str> = data["allowed_headers"].as_array().unwrap().iter().map(|h| h.as_str().unwrap()).collect();
    for header in ["Content-Type", "Authorization", "X-Vault-Token", "X-Service-Token", "X-Vault-Wrap-TTL", "X-Mine"] {
        assert_eq!(headers.iter().filter(|h| h.eq_ignore_ascii_case(header)).count(), 1, "{header}");
    }

    let methods = "DELETE, GET, OPTIONS, POST, PUT, LIST, PATCH";
    for method in methods.split(", ") {
        let answer = preflight(&app.client, "pki/issue/web", PAGE, method).await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""), "{method}");
        assert_eq!((told(&answer), answer.header("vary")), ([PAGE, methods, "300", ""], "origin"));
        assert_eq!(answer.header("access-control-allow-headers"), headers.join(", "));
    }
    for answer in [
        preflight(&app.client, "sys/mounts", PAGE, "BREW").await,
        ask(&app.client, "OPTIONS", "sys/mounts", PAGE).await,
        // Without an origin it is not a CORS request.
        send(app.client.request("OPTIONS", "sys/mounts").header("Access-Control-Request-Method", "GET")).await,
    ] {
        assert_eq!((answer.status, answer.error()), (405, "unsupported operation"));
    }

    // A permitted page may read every response; without an origin there are no CORS headers.
    for (path, status) in [("sys/mounts", 200), ("pki/roles/none", 404), ("pki/../x", 404), ("sys/health", 200)] {
        let answer = ask(&app.client, "GET", path, PAGE).await;
        assert_eq!((answer.status, told(&answer)), (status, [PAGE, "", "", ""]), "{path}: {}", answer.text);
        assert!(answer.headers.get_all("vary").iter().any(|vary| vary == "origin"), "{path}");
    }
    let denied = ask(&app.client.with_token("s.none"), "GET", "sys/mounts", PAGE).await;
    assert_eq!((denied.status, denied.header("access-control-allow-origin")), (403, PAGE));
    let plain = app.client.get("sys/mounts").await;
    assert_eq!((plain.status, told(&plain)), (200, ["", "", "", ""]));

    for origin in ["https://other.test", "https://console.test", "http://console.test:8443", "null", ""] {
        for answer in [
            ask(&app.client, "GET", "sys/mounts", origin).await,
            ask(&app.client, "POST", "pki/root/generate/internal", origin).await,
            ask(&app.client, "GET", "sys/health", origin).await,
            preflight(&app.client, "sys/mounts", origin, "GET").await,
        ] {
            assert_eq!((answer.status, answer.error()), (403, "origin not allowed"), "{origin}");
            assert_eq!((told(&answer), answer.header("vary")), (["", "", "", ""], "origin"));
        }
    }
    let twice = app.client.request("GET", "sys/mounts").header("Origin", PAGE).header("Origin", "https://other.test");
    assert_eq!(send(twice).await.status, 403);

    assert_eq!(app.client.delete(CONFIG).await.status, 204);
    assert_eq!(app.client.delete(CONFIG).await.status, 204);
    assert_eq!(ask(&app.client, "GET", "sys/mounts", "https://other.test").await.status, 200);
}

async fn invalid_cors_configuration_is_rejected_without_change(app: &App) {
    assert_eq!(app.client.post(CONFIG, json!({ "allowed_origins": [PAGE] })).await.status, 204);
    let before = app.client.get(CONFIG).await.body["data"].clone();
    let many: Vec<String> = (0..65).map(|n| format!("https://a{n}.test")).collect();
    let headers = |headers: Value| json!({ "allowed_origins": PAGE, "allowed_headers": headers });
    let origin = "allowed_origins: entry 2: must be an origin (scheme://host[:port], lower case, without path and \
                  default port), such as https://console.example:8443";
    let list =
        "field validation failed: error converting input for field \"allowed_origins\": must be a list of strings";
    for (body, text) in [
        (json!({}), "allowed_origins: must contain at least one origin, or '*'"),
        (json!({ "allowed_origins": "" }), "allowed_origins: must contain at least one origin, or '*'"),
        (json!({ "allowed_origins": ["*", PAGE] }), "allowed_origins: '*' cannot be combined with other origins"),
        (json!({ "allowed_origins": [PAGE, "a.test"] }), origin),
        (json!({ "allowed_origins": "x".repeat(4_000_000) }), "allowed_origins: longer than 1048576 bytes"),
        (json!({ "allowed_origins": { "a": 1 } }), list),
        (json!({ "allowed_origins": many }), "allowed_origins: at most 64 entries are allowed"),
        (headers(json!("X Y")), "allowed_headers: entry 1: must be the name of a header"),
        (headers(json!(["x".repeat(129)])), "allowed_headers: an entry is longer than 128 bytes"),
    ] {
        app.client.post(CONFIG, body).await.assert_error(400, text);
    }
    assert_eq!(app.client.get(CONFIG).await.body["data"], before);
    app.client.post(CONFIG, json!({ "allowed_origins": "*" })).await.assert_status(204);
    assert_eq!(told(&ask(&app.client, "GET", "sys/mounts", "null").await)[0], "null");
}

#[actix_web::test]
async fn rejected_origins_are_audited_and_preflights_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.log");
    let app = App::builder().audit_devices([AuditDeviceSettings::file("main", &file)]).start().await;
    assert_eq!(app.client.post(CONFIG, json!({ "allowed_origins": PAGE })).await.status, 204);
    let lines = || std::fs::read_to_string(&file).unwrap().lines().count();
    let before = lines();
    assert_eq!(preflight(&app.client, "sys/mounts", PAGE, "GET").await.status, 204);
    assert_eq!(lines(), before);
    assert_eq!(ask(&app.client, "GET", "sys/mounts", "https://other.test").await.status, 403);
    assert_eq!(lines(), before + 2);
    assert!(std::fs::read_to_string(&file).unwrap().contains("origin not allowed"));
    app.stop().await;
}
