//! Client addresses, behind proxies and without them.

use serde_json::Value;

use crate::support::{Answer, App, http_client, send};

/// A server that trusts these proxies and limits requests without a token by address.
async fn app(trusted: &[&str]) -> App {
    let trusted = trusted.iter().map(|network| network.parse().unwrap()).collect();
    let builder = App::builder().settings(|settings| {
        settings.projects_rate_limit = 4;
        settings.trusted_proxies = trusted;
    });
    builder.start().await
}

async fn ask(app: &App, path: &str, forwarded: &[&str]) -> Answer {
    let base = app.client.url("").replace("/v1/", "");
    let request = http_client().get(format!("{base}/{path}"));
    send(forwarded.iter().fold(request, |request, line| request.header("X-Forwarded-For", *line))).await
}

const PROJECTS: &str = "api/v2/organizations";

async fn exhaust(app: &App, forwarded: &[&str]) {
    for _ in 0..20 {
        let asked = futures_util::future::join_all((0..10).map(|_| ask(app, PROJECTS, forwarded))).await;
        if asked.iter().any(|answer| answer.status == 429) {
            return;
        }
    }
    panic!("never refused");
}

#[actix_web::test]
async fn rate_limit_behind_trusted_proxy_counts_the_client_address() {
    let app = app(&["127.0.0.0/8", "10.0.0.0/8"]).await;
    exhaust(&app, &["198.51.100.1"]).await;
    let other = ask(&app, PROJECTS, &["198.51.100.2"]).await;
    assert_eq!((other.status, other.header("x-ratelimit-remaining")), (401, "3"), "a bucket of their own");
    // The right-most address that is not a proxy, over all header lines, in any notation.
    for forwarded in [
        &["203.0.113.5, 198.51.100.1"][..],
        &["203.0.113.5", "198.51.100.1"],
        &["198.51.100.1, 10.1.1.1"],
        &["198.51.100.1:4711", "10.1.1.1"],
        &["[::ffff:198.51.100.1]:4711"],
    ] {
        exhaust(&app, &["198.51.100.1"]).await;
        let asked = futures_util::future::join_all((0..4).map(|_| ask(&app, PROJECTS, forwarded))).await;
        assert!(asked.iter().any(|answer| answer.status == 429), "{forwarded:?}");
    }
    app.stop().await;
}

#[actix_web::test]
async fn forwarded_header_of_untrusted_peer_is_ignored() {
    for trusted in [&[][..], &["10.0.0.0/8"]] {
        let app = app(trusted).await;
        exhaust(&app, &["198.51.100.1"]).await;
        let asked = futures_util::future::join_all((0..4).map(|_| ask(&app, PROJECTS, &["198.51.100.2"]))).await;
        assert!(asked.iter().any(|answer| answer.status == 429), "all are the socket's peer");
        assert_eq!(ask(&app, "v1/sys/health", &["no address"]).await.status, 200);
        assert_ne!(ask(&app, PROJECTS, &["no address"]).await.status, 400);
        app.stop().await;
    }
}

#[actix_web::test]
async fn malformed_forwarded_header_is_rejected_in_both_apis() {
    let app = app(&["127.0.0.1/32"]).await;
    let many = vec!["198.51.100.1"; 33].join(", ");
    for line in ["no address", "198.51.100.1, ", "", "198.51.100.1:port", &many] {
        let secrets = ask(&app, "v1/sys/health", &[line]).await;
        assert_eq!(secrets.status, 400, "{line}: {}", secrets.text);
        assert!(secrets.error().starts_with("X-Forwarded-For: must be"), "{}", secrets.text);
        let projects = ask(&app, PROJECTS, &["198.51.100.1", line]).await;
        assert_eq!((projects.status, &projects.body["errors"][0]["status"]), (400, &Value::from("400")), "{line}");
        assert!(projects.text.contains("X-Forwarded-For"), "{}", projects.text);
    }
    assert_eq!(ask(&app, "v1/sys/health", &["198.51.100.1", "127.0.0.1"]).await.status, 200);
    app.stop().await;
}
