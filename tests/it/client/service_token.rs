//! The token of `signet renew`: every run renews it, and warns if it cannot; a service logs in again if it has the
//! credentials.

use serde_json::{Value, json};

use super::{Desk, SIGN_DEV, Service, ran, wait_until};
use crate::directory::Issuer;

async fn desk() -> Desk {
    let desk = Desk::new();
    desk.run(&["issue", "web.example.test", "--ttl", "72h"]);
    desk.post("sys/policies/acl/renew", json!({ "policy": SIGN_DEV })).await;
    desk
}

/// Writes a new token with the policy to the file `token`. Returns the `auth` part of the response.
async fn token(desk: &Desk, mut body: Value) -> Value {
    body["policies"] = json!(["renew"]);
    let auth = desk.dev.client().post("auth/token/create-orphan", body).await.body["auth"].clone();
    std::fs::write(desk.path("token"), auth["client_token"].as_str().unwrap()).unwrap();
    auth
}

async fn looked_up(desk: &Desk, auth: &Value) -> Value {
    desk.dev.client().post("auth/token/lookup-accessor", json!({ "accessor": auth["accessor"] })).await.body["data"]
        .clone()
}

#[actix_web::test]
async fn single_run_renews_its_token() {
    let desk = desk().await;
    let auth = token(&desk, json!({ "ttl": "72h" })).await;
    assert_eq!(looked_up(&desk, &auth).await["last_renewal_time"], Value::Null);
    let renew = ["renew", "web.example.test.pem", "--role", "dev", "--token-file", "token"];
    let (out, err) = desk.run(&renew);
    assert!(out.contains("to be renewed at") && err.is_empty(), "{out}{err}");
    assert!(looked_up(&desk, &auth).await["last_renewal_time"].is_u64());
}

#[actix_web::test]
async fn single_run_warns_of_token_that_ends_before_the_renewal() {
    let desk = desk().await;
    let renew = ["renew", "web.example.test.pem", "--role", "dev", "--token-file", "token"];
    let auth = token(&desk, json!({ "ttl": "1h", "renewable": false })).await;
    let (out, err) = desk.run(&renew);
    let due = out.trim().rsplit(' ').next().unwrap();
    assert!(err.starts_with("warning: token: ends at 20"), "{err}");
    assert!(err.contains(&format!("before web.example.test.pem is due at {due}, and cannot be renewed")), "{err}");
    assert!(err.contains("replace the token in token, or use --login"), "{err}");
    desk.post("auth/token/revoke-accessor", json!({ "accessor": auth["accessor"] })).await;
    let (_, err) = desk.run(&renew);
    assert!(err.starts_with("warning: token: not renewed: ") && err.contains("the token is from token)"), "{err}");
    // A token that ends after the certificate is due.
    token(&desk, json!({ "ttl": "72h", "renewable": false })).await;
    assert_eq!(desk.run(&renew).1, "");
}

#[actix_web::test]
async fn service_logs_certificate_and_token_at_the_start() {
    let desk = desk().await;
    token(&desk, json!({ "ttl": "72h" })).await;
    let words = ["renew", "web.example.test.pem", "--service", "--role", "dev", "--token-file", "token"];
    let service = Service::of(&desk, desk.command(&words).env("SIGNET_LOG", "info"));
    wait_until("the certificate", || desk.text("log").contains("file=web.example.test.pem"));
    service.terminate();
    let log = desk.text("log");
    let line = |words: &str| log.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{log}"));
    let certificate = line("the certificate will be renewed when it is due");
    assert!(certificate.contains("ends=20") && certificate.contains("due=20"), "{log}");
    let token = line("the token is valid");
    assert!(token.contains("ends=20") && token.contains("source=token"), "{log}");
}

#[actix_web::test]
async fn service_renews_its_token_at_the_start_and_later() {
    let desk = desk().await;
    let auth = token(&desk, json!({ "ttl": "9s" })).await;
    let service = Service::start(&desk, &["--token-file", "token"]);
    let mut renewals = std::collections::BTreeSet::new();
    let begun = std::time::Instant::now();
    while renewals.len() < 3 {
        assert!(begun.elapsed().as_secs() < 60, "{renewals:?}: {}", desk.text("log"));
        let found = looked_up(&desk, &auth).await;
        renewals.extend(found["last_renewal_time"].as_u64());
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    service.terminate();
}

#[actix_web::test]
async fn service_warns_of_nonrenewable_or_revoked_token() {
    let desk = desk().await;
    let auth = token(&desk, json!({ "ttl": "72h", "renewable": false })).await;
    let service = Service::start(&desk, &["--token-file", "token"]);
    let warning = "the token cannot be renewed any more: give another one, or use --login";
    wait_until("the warning", || desk.text("log").contains(warning));
    assert!(desk.text("log").contains("ends=") && desk.text("log").contains("source=token"), "{}", desk.text("log"));
    service.terminate();
    desk.post("auth/token/revoke-accessor", json!({ "accessor": auth["accessor"] })).await;
    let service = Service::start(&desk, &["--token-file", "token"]);
    let dead =
        "the token is not known to the server, has expired, or is bound to other networks; the token is from token";
    wait_until("the cause", || desk.text("log").contains(dead));
    service.terminate();
}

#[actix_web::test]
async fn service_logs_in_again_when_its_token_is_revoked() {
    let desk = desk().await;
    let client = desk.dev.client();
    client.enable("sys/auth/approle", "approle").await;
    let role = json!({ "token_policies": ["renew"], "token_ttl": "1h" });
    client.post("auth/approle/role/web", role).await.assert_status(204);
    let id = client.get("auth/approle/role/web/role-id").await.body["data"]["role_id"].clone();
    std::fs::write(desk.path("role-id"), id.as_str().unwrap()).unwrap();
    let secret = desk.post("auth/approle/role/web/secret-id", json!({})).await["secret_id"].clone();
    std::fs::write(desk.path("secret-id"), format!("{}\n", secret.as_str().unwrap())).unwrap();
    let login = ["--login", "approle", "--role-id-file", "role-id", "--secret-id-file", "secret-id"];
    let before = desk.serial("web.example.test.pem");
    let mut command = desk.command(&[&["renew", "web.example.test.pem", "--force"][..], &login].concat());
    let (well, _, err) = ran(command.env_remove("SIGNET_TOKEN"));
    assert!(well, "{err}");
    assert_ne!(desk.serial("web.example.test.pem"), before);
    // A service whose tokens live at most four seconds.
    let role = json!({ "token_policies": ["renew"], "token_ttl": "3s", "token_max_ttl": "4s" });
    client.post("auth/approle/role/web", role).await.assert_status(204);
    let exec = "openssl x509 -in web.example.test.pem -noout -serial >> ran";
    let words = [
        &["renew", "web.example.test.pem", "--service", "--ttl", "4s", "--before", "1000h", "--exec", exec][..],
        &login,
    ];
    let mut command = desk.command(&words.concat());
    let service = Service::of(&desk, command.env("SIGNET_LOG", "info").env_remove("SIGNET_TOKEN"));
    let logins = || desk.text("log").matches("logged in").count();
    wait_until("three logins", || logins() >= 3);
    let ran = || std::fs::read_to_string(desk.path("ran")).unwrap_or_default().lines().count();
    let renewals = ran();
    wait_until("renewals with the new token", || ran() >= renewals + 2);
    service.terminate();
}

#[actix_web::test]
async fn service_logs_in_with_a_jwt_and_reads_its_file_at_every_login() {
    let desk = desk().await;
    let client = desk.dev.client();
    let issuer = Issuer::start();
    let post = async |path: &str, body: Value| client.post(path, body).await.assert_status(204);
    post("sys/auth/ci", json!({ "type": "jwt" })).await;
    post("auth/ci/config", json!({ "oidc_discovery_url": issuer.url })).await;
    let role = |ttl: &str| {
        json!({
            "role_type": "jwt", "user_claim": "sub", "bound_audiences": "signet", "token_policies": ["renew"],
            "token_ttl": ttl, "token_max_ttl": ttl,
        })
    };
    post("auth/ci/role/web", role("1h")).await;
    let write = |audience: &str| std::fs::write(desk.path("jwt"), issuer.token(json!({ "aud": audience }))).unwrap();
    let login = ["--login", "jwt", "--login-path", "ci", "--login-role", "web", "--jwt-file", "jwt"];

    // A single run, without any other token: a JWT that the role rejects, then one that it accepts.
    let once = || {
        let mut command = desk.command(&[&["renew", "web.example.test.pem", "--force"][..], &login].concat());
        ran(command.env_remove("SIGNET_TOKEN"))
    };
    let before = desk.serial("web.example.test.pem");
    write("elsewhere");
    let (well, _, text) = once();
    assert!(!well && text.contains("auth/ci/login: status 403"), "{text}");
    assert_eq!(desk.serial("web.example.test.pem"), before);
    write("signet");
    let (well, _, err) = once();
    assert!(well, "{err}");
    assert_ne!(desk.serial("web.example.test.pem"), before);

    // A service whose tokens expire after four seconds: the file is read at every login.
    post("auth/ci/role/web", role("4s")).await;
    let words =
        [&["renew", "web.example.test.pem", "--service", "--ttl", "4s", "--before", "1000h"][..], &login].concat();
    let mut command = desk.command(&words);
    let service = Service::of(&desk, command.env("SIGNET_LOG", "info").env_remove("SIGNET_TOKEN"));
    let logins = || desk.text("log").matches("logged in").count();
    wait_until("two logins", || logins() >= 2);
    std::fs::remove_file(desk.path("jwt")).unwrap();
    wait_until("the missing file", || desk.text("log").contains("--jwt-file: file does not exist: jwt"));
    service.terminate();
}
