//! Conditional requests for public resources: certificates and chains. CRLs and OCSP responses have their own tests.

use std::time::Duration;

use serde_json::json;
use signet::clock::Time;

use super::mount::Pki;
use super::ocsp::client::{date, sha256};

/// Paths of the default issuer, and of an issuer by its name.
const ISSUERS: [&str; 7] =
    ["ca", "ca/pem", "ca_chain", "cert/ca/raw", "cert/ca/raw/pem", "issuer/root/der", "issuer/root/pem"];
/// Paths whose response has an envelope, which differs in every response.
const ENVELOPED: [&str; 3] = ["cert/ca", "cert/ca_chain", "issuer/root/json"];

async fn status(pki: &Pki, path: &str, header: (&str, &str)) -> u16 {
    let response = pki.fetch("GET", path, &[header]).await;
    let status = response.status().as_u16();
    if status == 304 {
        assert!(response.headers().contains_key("last-modified") && !response.headers().contains_key("content-type"));
        assert!(response.bytes().await.unwrap().is_empty(), "{path}");
    }
    status
}

async fn tag(pki: &Pki, path: &str) -> String {
    let response = pki.fetch("GET", path, &[]).await;
    response.headers().get("etag").map_or_else(String::new, |tag| tag.to_str().unwrap().to_owned())
}

#[actix_web::test]
async fn certificates_and_chains_have_tags_dates_and_heads() {
    let start = Time::from_unix_timestamp(1_900_000_000).unwrap();
    let pki = Pki::at(start).await;
    pki.app.clock.advance(Duration::from_secs(10));
    let leaf = pki.leaf().await;
    // There is no date within the second of a change: a further change in that second would have the same date.
    let fresh = pki.fetch("GET", &format!("cert/{}/raw", leaf.serial()), &[]).await;
    assert!(!fresh.headers().contains_key("last-modified") && fresh.headers().contains_key("etag"));
    pki.app.clock.advance(Duration::from_secs(1));
    let [raw, pem] = ["raw", "raw/pem"].map(|form| format!("cert/{}/{form}", leaf.serial()));
    let issuers = ISSUERS.map(|path| (path, 0));
    for (path, since) in issuers.into_iter().chain([(raw.as_str(), 10), (pem.as_str(), 10)]) {
        let at = |seconds: i64| date(start.unix_timestamp() + since + seconds);
        let response = pki.fetch("GET", path, &[]).await;
        let headers = response.headers().clone();
        let body = response.bytes().await.unwrap();
        let tag = format!("\"{}\"", sha256(&body));
        assert_eq!(headers["etag"], tag, "{path}");
        assert_eq!(headers["last-modified"], at(1), "{path}");
        assert_eq!(headers["cache-control"], "public, max-age=60", "{path}");
        let head = pki.fetch("HEAD", path, &[]).await;
        assert_eq!((head.status().as_u16(), &head.headers()["etag"]), (200, &headers["etag"]), "{path}");
        assert_eq!(head.headers()["content-length"], &*body.len().to_string(), "{path}");
        assert!(head.bytes().await.unwrap().is_empty(), "{path}");
        for (sent, expected) in [(&*tag, 304), ("*", 304), (&format!("W/{tag}"), 304), ("\"other\"", 200)] {
            assert_eq!(status(&pki, path, ("if-none-match", sent)).await, expected, "{path} {sent}");
        }
        let head = pki.fetch("HEAD", path, &[("if-none-match", &tag)]).await;
        assert_eq!(head.status(), 304, "{path}");
        for (seconds, expected) in [(-1, 200), (0, 200), (1, 304)] {
            assert_eq!(status(&pki, path, ("if-modified-since", &at(seconds))).await, expected, "{path} {seconds}");
        }
        assert_eq!(status(&pki, path, ("if-modified-since", "yesterday")).await, 200, "{path}");
    }
    for path in ENVELOPED {
        assert_eq!(tag(&pki, path).await, "", "{path}");
        for (seconds, expected) in [(0, 200), (1, 304)] {
            let at = date(start.unix_timestamp() + seconds);
            assert_eq!(status(&pki, path, ("if-modified-since", &at)).await, expected, "{path}");
        }
    }
    // A revocation does not change the certificate, and a missing certificate is not cacheable.
    let before = tag(&pki, &raw).await;
    pki.revoke(&leaf).await;
    assert_eq!(tag(&pki, &raw).await, before);
    for (path, status) in [("cert/00:11/raw", 204), (&format!("cert/{}", leaf.serial()), 200)] {
        let read = pki.fetch("GET", path, &[("if-none-match", "*")]).await;
        assert_eq!((read.status().as_u16(), read.headers()["cache-control"].to_str().unwrap()), (status, "no-store"));
    }
    pki.stop().await;
}

#[actix_web::test]
async fn change_of_default_issuer_invalidates_tags_and_dates() {
    let start = Time::from_unix_timestamp(1_900_000_000).unwrap();
    let pki = Pki::at(start).await;
    let mut seconds = 0;
    let mut later = || {
        pki.app.clock.advance(Duration::from_secs(10));
        seconds += 10;
        date(start.unix_timestamp() + seconds - 1)
    };
    later();
    pki.root(json!({ "common_name": "Other", "issuer_name": "other" })).await;
    let old = tag(&pki, "ca").await;
    // After a change, an earlier date and an earlier tag both return the new content.
    let since = later();
    for path in ISSUERS.into_iter().chain(ENVELOPED) {
        assert_eq!(status(&pki, path, ("if-modified-since", &since)).await, 304, "{path}");
    }
    pki.post("config/issuers", json!({ "default": "other" })).await;
    for path in ["ca", "ca/pem", "ca_chain", "cert/ca", "cert/ca_chain"] {
        assert_eq!(status(&pki, path, ("if-modified-since", &since)).await, 200, "{path}");
    }
    assert_eq!(status(&pki, "ca", ("if-none-match", &old)).await, 200);
    // A write without an effect does not change the date.
    let since = later();
    pki.post("config/issuers", json!({ "default": "other" })).await;
    assert_eq!(status(&pki, "ca", ("if-modified-since", &since)).await, 304);
    pki.post("issuer/other", json!({ "issuer_name": "another" })).await;
    assert_eq!(status(&pki, "issuer/another/json", ("if-modified-since", &since)).await, 200);
    let since = later();
    assert_eq!(pki.app.client.delete("pki/issuer/root").await.status, 200);
    assert_eq!(status(&pki, "ca_chain", ("if-modified-since", &since)).await, 200, "chains may have gone through it");
    assert_eq!(pki.app.client.delete("pki/root").await.status, 200);
    assert_eq!(pki.fetch("GET", "ca", &[("if-none-match", "*")]).await.status(), 204);
    pki.stop().await;
}
