//! Errors that new users are likely to meet: each says what to do next.

mod commands;

use std::net::TcpListener;
use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use crate::process::{dev_with, refused, signet};
use crate::serve::Site;
use crate::support::{Answer, App, exchange, send, tests_on};
use crate::v2::fixture::World;

tests_on!(server: App::start() =>
    unknown_mount_error_names_the_route_that_lists_mounts,
    misspelt_type_error_names_the_received_fields,
    role_and_issuer_expiry_errors_name_the_next_step,
    unknown_path_and_method_errors_have_a_text,
);

/// The warnings next to an error, as one text.
fn step(answer: &Answer) -> String {
    let warnings = answer.body["warnings"].as_array().unwrap_or_else(|| panic!("{}", answer.text));
    warnings.iter().map(|warning| warning.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

async fn unknown_mount_error_names_the_route_that_lists_mounts(app: &App) {
    let answer = app.client.post("pkki/issue/web", json!({ "common_name": "a.test" })).await;
    assert_eq!((answer.status, answer.error()), (404, "no handler for route \"pkki/issue/web\""));
    assert!(step(&answer).contains("GET /v1/sys/mounts lists the mounts"), "{}", answer.text);
    // A caller who may not list mounts gets the generic error.
    let denied = app.client.with_token("").post("pkki/issue/web", json!({})).await;
    assert_eq!((denied.status, denied.text.as_str()), (403, "{\"errors\":[\"permission denied\"]}"));
}

async fn misspelt_type_error_names_the_received_fields(app: &App) {
    let answer = app.client.post("sys/mounts/ca", json!({ "typ": "pki" })).await;
    assert_eq!((answer.status, answer.error()), (400, "backend type must be specified as a string"));
    let step = step(&answer);
    assert!(step.contains("[typ]") && step.contains("{\"type\": \"pki\"}"), "{step}");
    let other = app.client.post("sys/mounts/ca", json!({ "type": "kv" })).await;
    assert!(other.status == 400 && self::step(&other).contains("have the type pki"), "{}", other.text);
}

async fn role_and_issuer_expiry_errors_name_the_next_step(app: &App) {
    assert_eq!(app.client.post("sys/mounts/ca", json!({ "type": "pki" })).await.status, 204);
    let root = json!({ "common_name": "root.test", "key_type": "ec", "ttl": "1h" });
    assert_eq!(app.client.post("ca/root/generate/internal", root).await.status, 200);
    let name = json!({ "common_name": "a.other" });
    let absent = app.client.post("ca/issue/web", name.clone()).await;
    assert_eq!((absent.status, absent.error()), (400, "unknown role: web"));
    assert!(step(&absent).contains("POST /v1/ca/roles/NAME creates a role"), "{}", absent.text);
    let role = json!({ "allowed_domains": "example.test", "key_type": "ec", "ttl": "30m" });
    assert_eq!(app.client.post("ca/roles/web", role).await.status, 200);
    let narrow = app.client.post("ca/issue/web", name).await;
    assert!(narrow.status == 400 && narrow.error().contains("not allowed by this role"), "{}", narrow.text);
    let told = step(&narrow);
    assert!(told.contains("GET /v1/ca/roles/NAME") && told.contains("allow_subdomains"), "{told}");
    assert_eq!(app.client.post("ca/roles/any", json!({ "allow_any_name": true, "key_type": "ec" })).await.status, 200);
    let long = app.client.post("ca/issue/any", json!({ "common_name": "a.test", "ttl": "2h" })).await;
    assert!(long.status == 400 && long.error().contains("beyond the expiration"), "{}", long.text);
    let told = step(&long);
    assert!(told.contains("leaf_not_after_behavior") && told.contains("/v1/ca/root/rotate/internal"), "{told}");
}

#[actix_web::test]
async fn too_large_body_error_names_the_limit_in_both_apis() {
    let app = App::builder().settings(|settings| settings.max_body = 10_000).start().await;
    let body = format!("{{\"path\":\"{}\"}}", "a".repeat(20_000));
    let secrets = send(app.client.request("POST", "sys/capabilities-self").body(body.clone())).await;
    assert_eq!((secrets.status, secrets.error()), (413, "http: request body too large"));
    assert!(step(&secrets).contains("the limit is 10000 bytes"), "{}", secrets.text);
    // Without a token, the limit is lower.
    let open = send(app.client.with_token("").request("POST", "sys/wrapping/lookup").body("a".repeat(200_000))).await;
    assert_eq!(open.status, 413);
    assert!(step(&open).contains("the limit is "), "{}", open.text);
    app.stop().await;

    let world = World::of(App::builder().settings(|settings| settings.max_body = 10_000)).await;
    let request = world.owner.request(Method::POST, "organizations/acme/projects");
    let answer = send(request.header("Content-Type", "application/vnd.api+json").body(body)).await;
    let error = &answer.body["errors"][0];
    assert_eq!((answer.status, error["status"].as_str()), (413, Some("413")), "{}", answer.text);
    assert_eq!(error["detail"], "the body is larger than 10000 bytes");
    world.app.stop().await;
}

async fn unknown_path_and_method_errors_have_a_text(app: &App) {
    let elsewhere = app.raw_get("/ui/").await;
    assert!(elsewhere.starts_with("HTTP/1.1 404 ") && elsewhere.contains("is below /v1/"), "{elsewhere}");
    let verb = send(app.client.request("FOO", "sys/mounts")).await;
    assert_eq!((verb.status, verb.error()), (405, "unsupported operation"));
}

#[test]
fn occupied_port_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = refused(signet().args(["dev", "--listen", &address]));
    assert!(text.contains(&address) && text.contains("the port is in use") && text.contains("--listen"), "{text}");
}

#[test]
fn invalid_toml_error_names_the_position_without_the_value() {
    let site = Site::new();
    std::fs::write(site.path("signet.toml"), "listen = \"127.0.0.1:0\"\ndata_dir = hunter2/data\n").unwrap();
    for command in [&["check"][..], &["serve"]] {
        let text = refused(&mut site.command(command));
        assert!(text.contains("line 2, column 12: not valid TOML: a line is name = value"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn tls_to_plain_port_is_answered_and_logged_once_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let dev = dev_with(signet().stderr(std::fs::File::create(&log).unwrap()), &[]);
    for _ in 0..3 {
        let url = format!("https://{}/v1/sys/health", dev.socket());
        let output = Command::new("curl").args(["-sS", "--noproxy", "*", "--max-time", "5", &url]).output().unwrap();
        assert!(!output.status.success());
    }
    let answer = exchange(dev.socket(), &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]);
    assert!(
        answer.starts_with("HTTP/1.0 400 ") && answer.contains("this port speaks plain HTTP: use http://"),
        "{answer}"
    );
    let health =
        Command::new("curl").args(["-sS", "--noproxy", "*", &format!("{}/v1/sys/health", dev.address)]).output();
    assert!(serde_json::from_slice::<Value>(&health.unwrap().stdout).unwrap()["initialized"] == true);
    dev.terminate();
    let log = std::fs::read_to_string(&log).unwrap();
    let told = log.matches("speaks TLS to a plain HTTP port").count();
    // Two if the minute ended in between.
    assert!((1..=2).contains(&told), "{log}");
}

#[test]
fn plain_http_to_tls_port_is_answered_and_logged_once_a_minute() {
    let site = Site::new().with_tls("0x1001");
    site.init();
    let served = site.serve();
    for request in
        ["GET /v1/sys/health HTTP/1.1\r\nHost: t\r\n\r\n".to_owned(), format!("POST /{}", "a".repeat(20_000))]
    {
        let answer = exchange(served.socket(), request.as_bytes());
        assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nthis port speaks TLS: use https://\n"), "{answer}");
    }
    let health = site.curl(&[&served.url("v1/sys/health")]);
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    served.wait_for_log("speaks plain HTTP to a TLS port");
    let told = served.log().matches("speaks plain HTTP to a TLS port").count();
    assert!((1..=2).contains(&told), "{}", served.log());
    served.terminate();
}
