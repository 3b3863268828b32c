//! Rate-limit quotas, with a manual clock.

use std::time::Duration;

use serde_json::{Value, json};
use time::macros::datetime;

use super::jwt::Bed;
use crate::support::{Answer, App, Builder, send, tests_on};

tests_on!(clocked: builder().start() =>
    request_above_the_rate_is_429_with_and_without_headers,
    request_is_counted_before_authentication_and_body,
    exempt_paths_are_not_counted_and_block_interval_applies,
    quota_path_matches_every_spelling,
    role_quota_applies_on_every_path_of_the_role,
    global_quota_applies_to_the_secrets_service_only,
);

const QUOTA: &str = "sys/quotas/rate-limit";

fn builder() -> Builder {
    App::builder().manual_clock(datetime!(2031-01-01 00:00 UTC))
}

async fn quota(app: &App, name: &str, body: Value) {
    app.client.post(&format!("{QUOTA}/{name}"), body).await.assert_status(204);
}

fn assert_exceeded(answer: &Answer, path: &str) {
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert_eq!(answer.error(), format!("request path \"{path}\": rate limit quota exceeded"));
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
}

async fn request_above_the_rate_is_429_with_and_without_headers(app: &App) {
    quota(app, "pki", json!({ "path": "pki/", "rate": 5 })).await;
    for shown in [false, true] {
        let config = json!({ "enable_rate_limit_response_headers": shown });
        assert_eq!(app.client.post("sys/quotas/config", config).await.status, 204);
        app.clock.advance(Duration::from_secs(1));
        for left in (0..5).rev() {
            let answer = app.client.get("pki/roles/none").await.assert_status(404);
            let told = [("x-ratelimit-limit", 5), ("x-ratelimit-remaining", left)];
            for (name, number) in told {
                assert_eq!(answer.header(name), if shown { number.to_string() } else { String::new() }, "{name}");
            }
        }
        let refused = app.client.get("pki/roles/none").await;
        assert_exceeded(&refused, "pki/roles/none");
        assert_eq!(refused.header("retry-after"), "1");
        assert_eq!(refused.header("x-ratelimit-reset"), if shown { "1" } else { "" });
        for path in ["sys/health", "sys/mounts"] {
            assert_eq!(app.client.get(path).await.status, 200, "{path}");
        }
    }
    app.clock.advance(Duration::from_millis(200));
    assert_eq!(app.client.get("pki/roles/none").await.status, 404);
    assert_exceeded(&app.client.get("pki/roles/none").await, "pki/roles/none");
    assert_eq!(app.client.delete(&format!("{QUOTA}/pki")).await.status, 204);
    assert_eq!(app.client.get("pki/roles/none").await.status, 404);
}

async fn request_is_counted_before_authentication_and_body(app: &App) {
    quota(app, "all", json!({ "path": "", "rate": 3, "interval": "1h" })).await;
    let stranger = app.client.with_token("");
    stranger.get("pki/roles/web").await.assert_denied();
    assert_eq!(send(app.client.request("POST", "pki/roles/web").body("{\"a\":")).await.status, 400);
    assert_eq!(app.client.get("nothing/here").await.status, 404);
    for client in [&stranger, &app.client] {
        assert_exceeded(&client.get("pki/roles/web").await, "pki/roles/web");
        assert_exceeded(&client.list("pki/roles").await, "pki/roles/");
        let body = send(client.request("POST", "sys/policies/acl/x").body(vec![b' '; 1 << 20])).await;
        assert_exceeded(&body, "sys/policies/acl/x");
        assert_eq!(body.header("retry-after"), "1200");
        assert_eq!(client.get("sys/health").await.status, 200, "it is exempt");
    }
}

async fn exempt_paths_are_not_counted_and_block_interval_applies(app: &App) {
    quota(app, "pki", json!({ "path": "pki", "rate": 1, "block_interval": "10m" })).await;
    let exempt = json!({ "rate_limit_exempt_paths": ["pki/ca", "pki/cert/*"] });
    assert_eq!(app.client.post("sys/quotas/config", exempt).await.status, 204);
    assert_eq!(app.client.get("pki/roles/none").await.status, 404);
    assert_eq!(app.client.get("pki/roles/none").await.header("retry-after"), "600");
    app.clock.advance(Duration::from_secs(599));
    let refused = app.client.get("pki/roles/none").await;
    assert_exceeded(&refused, "pki/roles/none");
    assert_eq!(refused.header("retry-after"), "1");
    for path in ["pki/ca", "pki/ca/pem", "pki/cert/0a"] {
        assert_ne!(app.client.get(path).await.status, 429, "{path}");
    }
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(app.client.get("pki/roles/none").await.status, 404);
    let config = app.client.get("sys/quotas/config").await;
    let expected = json!({ "rate_limit_exempt_paths": ["pki/ca", "pki/cert/*"], "absolute_rate_limit_exempt_paths": [],
        "enable_rate_limit_audit_logging": false, "enable_rate_limit_response_headers": false });
    assert_eq!(config.body["data"], expected);
}

async fn quota_path_matches_every_spelling(app: &App) {
    let paths = [
        ("sys/policies/acl/Secret", "sys/policies/acl/SECRET"),
        ("sys/policies/acl/Other*", "sys/policies/acl/OTHERS"),
        ("pki/issuer/DEFAULT", "pki/issuer/Default"),
    ];
    for (number, (of, asked)) in paths.into_iter().enumerate() {
        quota(app, &format!("q{number}"), json!({ "path": of, "rate": 1, "interval": "60s" })).await;
        assert_ne!(app.client.get(asked).await.status, 429, "{of}");
        assert_eq!(app.client.get(asked).await.status, 429, "{of}");
    }
    let exempt = ["/sys/policies/acl/SEC*", "/pki/issuer/DEFAULT/", "nothing/HERE"];
    app.client.post("sys/quotas/config", json!({ "rate_limit_exempt_paths": exempt })).await.assert_status(204);
    assert_ne!(app.client.get(paths[0].1).await.status, 429);
    assert_ne!(app.client.get(paths[2].1).await.status, 429);
    assert_eq!(app.client.get(paths[1].1).await.status, 429);
    let kept = &app.client.get("sys/quotas/config").await.body["data"]["rate_limit_exempt_paths"];
    assert_eq!(*kept, json!(["sys/policies/acl/sec*", "pki/issuer/default/", "nothing/HERE"]));
}

async fn role_quota_applies_on_every_path_of_the_role(app: &App) {
    quota(app, "role", json!({ "path": "pki", "role": "web", "rate": 2, "interval": "1h" })).await;
    for path in ["pki/issue/web", "pki/issuer/default/sign/web"] {
        assert_ne!(app.client.post(path, json!({})).await.status, 429, "{path}");
    }
    for path in ["pki/issue/web", "pki/sign/web", "pki/sign-verbatim/web", "pki/issuer/default/issue/web"] {
        assert_exceeded(&app.client.post(path, json!({})).await, path);
    }
    for path in ["pki/issue/other", "pki/sign/Web"] {
        assert_ne!(app.client.post(path, json!({})).await.status, 429, "{path}");
    }
    assert_eq!(app.client.get("pki/roles/web").await.status, 404, "to read a role is not to ask for it");
}

#[actix_web::test]
async fn forwarded_header_of_untrusted_peer_is_ignored() {
    let app = builder().start().await;
    quota(&app, "pki", json!({ "path": "pki", "rate": 1, "interval": "1h" })).await;
    assert_ne!(app.client.at("198.51.100.1").get("pki/ca").await.status, 429);
    assert_exceeded(&app.client.at("198.51.100.2").get("pki/ca").await, "pki/ca");
    let app = app.restart_as(Builder::behind_proxy).await;
    for (address, refused) in [
        ("198.51.100.1", false),
        ("198.51.100.2", false),
        ("198.51.100.1", true),
        ("2001:db8::1", false),
        ("2001:db8::2", true),
        ("2001:db8:0:1::1", false),
    ] {
        assert_eq!(app.client.at(address).get("pki/ca").await.status == 429, refused, "{address}");
    }
    app.stop().await;
}

#[actix_web::test]
async fn new_client_gets_its_own_bucket_despite_many_quotas() {
    let app = builder().behind_proxy().start().await;
    for n in 0..250 {
        quota(&app, &format!("other-{n}"), json!({ "path": format!("pki/other/{n}"), "rate": 1 })).await;
    }
    quota(&app, "ca", json!({ "path": "pki/ca", "rate": 2, "interval": "10m" })).await;
    let from = async |address: &str| app.client.at(address).get("pki/ca").await;
    for n in 0..400 {
        let address = format!("2001:db8:1:{n:x}::1");
        assert_ne!(from(&address).await.status, 429, "{address}");
    }
    for n in 0..400 {
        let address = format!("198.51.{}.{}", n / 100, n % 100);
        assert_ne!(from(&address).await.status, 429, "{address}");
    }
    for address in ["198.51.0.7", "2001:db8:1:7::2"] {
        assert_ne!(from(address).await.status, 429, "{address}");
        assert_exceeded(&from(address).await, "pki/ca");
    }
    app.stop().await;
}

async fn global_quota_applies_to_the_secrets_service_only(app: &App) {
    quota(app, "all", json!({ "path": "", "rate": 1, "interval": "1h" })).await;
    assert_eq!(app.client.get("sys/mounts").await.status, 200);
    assert_exceeded(&app.client.get("sys/mounts").await, "sys/mounts");
    for _ in 0..3 {
        assert_eq!(app.client.page("/api/v2/ping").await.status, 204);
    }
}

#[actix_web::test]
async fn quotas_are_written_read_listed_and_deleted() {
    let app = builder().start().await;
    assert_eq!(app.client.list(QUOTA).await.status, 404);
    quota(&app, "a", json!({ "path": "pki/issue/*", "rate": "2.5", "interval": "2m", "block_interval": 300 })).await;
    let shown = app.client.get(&format!("{QUOTA}/a")).await;
    let expected = json!({ "name": "a", "type": "rate-limit", "path": "pki/issue/*", "role": "", "rate": 2.5,
        "interval": 120, "block_interval": 300, "inheritable": false });
    assert_eq!(shown.body["data"], expected);
    quota(&app, "b", json!({ "rate": 1000 })).await;
    assert_eq!(app.client.list(QUOTA).await.body["data"]["keys"], json!(["a", "b"]));
    assert_eq!(app.client.get(&format!("{QUOTA}/none")).await.status, 404);
    let no_roles = "Mount path \"sys/\" does not support use with role-based quotas";
    for (body, text) in [
        (json!({}), "'rate' is invalid"),
        (json!({ "rate": 0 }), "'rate' is invalid"),
        (json!({ "rate": "often" }), "'rate' is invalid"),
        (json!({ "rate": 1, "block_interval": "-1s" }), "'block' is invalid"),
        (json!({ "rate": 1, "path": "none/" }), "invalid mount path: nothing is mounted there"),
        (json!({ "rate": 1 }), "quota rule with similar properties exists under the name \"b\""),
        (json!({ "rate": 1, "path": "sys", "role": "r" }), no_roles),
    ] {
        app.client.post(&format!("{QUOTA}/c"), body).await.assert_error(400, text);
    }
    // Quotas survive a restart and are removed with their mount.
    let app = app.restart().await;
    assert_eq!(app.client.get(&format!("{QUOTA}/a")).await.body["data"], expected);
    assert_eq!(app.client.delete("sys/mounts/pki").await.status, 204);
    assert_eq!(app.client.list(QUOTA).await.body["data"]["keys"], json!(["b"]));
    for _ in 0..2 {
        assert_eq!(app.client.delete(&format!("{QUOTA}/b")).await.status, 204);
    }
    app.stop().await;
}

/// A login without a role counts for the default role, and one with invalid JSON for the quota of the path.
#[actix_web::test]
async fn role_quota_does_not_bypass_other_quotas() {
    let bed = Bed::of(builder()).await;
    bed.configure(json!({ "default_role": "ci" })).await;
    // Role names are case-insensitive in quotas, as in logins.
    quota(&bed.app, "ops", json!({ "path": "auth/jwt", "role": "CI", "rate": 1, "interval": "1h" })).await;
    quota(&bed.app, "all", json!({ "path": "auth/jwt", "rate": 1, "interval": "1h" })).await;
    let stranger = bed.app.client.with_token("");
    stranger.post("auth/jwt/login", json!({ "jwt": "a.b.c" })).await.assert_status(403);
    assert_exceeded(&stranger.post("auth/jwt/login", json!({ "jwt": "a.b.c" })).await, "auth/jwt/login");
    assert_exceeded(&stranger.post("auth/jwt/login", json!({ "jwt": "a.b.c", "role": "" })).await, "auth/jwt/login");
    let broken = async || send(stranger.request("POST", "auth/jwt/login").body("{")).await;
    assert_eq!(broken().await.status, 400);
    assert_exceeded(&broken().await, "auth/jwt/login");
    bed.app.stop().await;
}
