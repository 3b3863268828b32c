//! Complete and delta CRLs: how they are fetched, the effect of the settings, and CRLs with content from the caller.

mod judges;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::auth::mounts::MountKind;
use signet::clock::Time;

use self::judges::judged;
use super::foreign::{Crl, openssl, openssl_text};
use super::mount::{FAR, Leaf, Pki, text, until};
use crate::support::App;

async fn delta(pki: &Pki) -> Crl {
    let response = pki.fetch("GET", "crl/delta", &[]).await;
    assert_eq!(
        (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()),
        (200, "application/pkix-crl")
    );
    Crl::new(response.bytes().await.unwrap().to_vec())
}

/// Returns the base of a delta CRL from its critical extension.
fn base(crl: &Crl) -> u64 {
    let (_, after) = crl.text.split_once("X509v3 Delta CRL Indicator: critical").unwrap();
    after.split_whitespace().next().unwrap().parse().unwrap()
}

async fn config(pki: &Pki, body: Value) {
    assert_eq!(pki.post("config/crl", body).await.warnings(), "");
}

#[actix_web::test]
async fn auto_rebuild_defers_revocations_until_rotation() {
    let pki = Pki::start().await;
    config(&pki, json!({ "auto_rebuild": true })).await;
    let before = pki.crl("default").await;
    let leaf = pki.leaf().await;
    assert_eq!(pki.revoke(&leaf).await["state"], "revoked");
    assert_ne!(pki.get(&format!("cert/{}", leaf.serial())).await["revocation_time"], 0);
    assert_eq!(pki.crl("default").await.der, before.der);
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    assert_eq!(pki.crl("default").await.serials(), [leaf.serial()]);
    // Disabling `auto_rebuild` publishes pending revocations.
    let next = pki.leaf().await;
    pki.revoke(&next).await;
    config(&pki, json!({ "auto_rebuild": false })).await;
    assert!(pki.crl("default").await.serials().contains(&next.serial()));
    pki.stop().await;
}

#[actix_web::test]
async fn delta_crls_contain_revocations_since_the_complete_crl() {
    let pki = Pki::start().await;
    pki.warns("crl/rotate-delta", json!({}), "delta CRLs: not enabled").await;
    let empty = delta(&pki).await;
    let complete = pki.crl("default").await;
    assert!(!complete.text.contains("Freshest"));
    // Complete and delta CRLs that are issued together have the same number and contents (RFC 5280 section 5.2.3).
    assert_eq!((empty.number(), base(&empty)), (complete.number(), complete.number()));
    assert_eq!(empty.serials(), [""; 0]);
    // openssl uses delta CRLs only if a certificate or a CRL says where they are.
    pki.post("config/urls", json!({ "delta_crl_distribution_points": "http://ca.test/delta" })).await;
    config(&pki, json!({ "auto_rebuild": true, "enable_delta": true, "delta_rebuild_interval": "24h" })).await;
    let complete = pki.crl("default").await;
    let one = pki.leaf().await;
    let two = pki.leaf().await;
    pki.revoke(&one).await;
    assert_eq!(pki.get("crl/rotate-delta").await["success"], true);
    let first = delta(&pki).await;
    assert_eq!((first.number(), base(&first)), (complete.number() + 1, complete.number()));
    assert_eq!(first.serials(), [one.serial()]);
    assert_eq!(pki.crl("default").await.der, complete.der);
    pki.revoke(&two).await;
    pki.get("crl/rotate-delta").await;
    let second = delta(&pki).await;
    assert_eq!((second.number(), second.serials().len()), (first.number() + 1, 2), "everything since the complete one");
    let root = pki.default_pem().await;
    assert!(second.is_signed_by(&root));
    judged(&root, &complete, &second, &one.pem, [false, true]);
    judged(&root, &complete, &second, &pki.leaf().await.pem, [false, false]);
    let pki = pki.restart().await;
    assert!(delta(&pki).await.der == second.der && pki.crl("default").await.der == complete.der);
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    let all = pki.crl("default").await;
    let none = delta(&pki).await;
    assert_eq!((all.number(), all.serials().len()), (second.number() + 1, 2));
    assert_eq!((none.number(), base(&none), none.serials().len()), (all.number(), all.number(), 0));
    assert!(all.text.contains("X509v3 Freshest CRL") && all.text.contains("http://ca.test/delta"), "{}", all.text);
    assert!(!none.text.contains("Freshest"));
    pki.stop().await;
}

#[actix_web::test]
async fn complete_crls_are_published_by_the_timer_before_expiry() {
    let pki = Pki::start().await;
    config(&pki, json!({ "auto_rebuild": true, "expiry": "4s", "auto_rebuild_grace_period": "2s" })).await;
    pki.get("crl/rotate").await;
    let before = pki.crl("default").await.number();
    let leaf = pki.leaf().await;
    pki.revoke(&leaf).await;
    until("a CRL", async || pki.crl("default").await.number() > before).await;
    assert_eq!(pki.crl("default").await.serials(), [leaf.serial()]);
    pki.stop().await;
}

#[actix_web::test]
async fn disabled_crls_are_empty_and_frozen() {
    let mut pki = Pki::start().await;
    let leaf = pki.leaf().await;
    pki.revoke(&leaf).await;
    config(&pki, json!({ "disable": true })).await;
    let empty = pki.crl("default").await;
    let root = pki.default_pem().await;
    assert!(empty.serials().is_empty() && empty.is_signed_by(&root));
    let late = pki.leaf().await;
    assert_eq!(pki.revoke(&late).await["state"], "revoked");
    assert_eq!(pki.crl("default").await.der, empty.der, "frozen");
    pki = pki.restart().await;
    assert_eq!(pki.crl("default").await.der, empty.der);
    pki.get("crl/rotate").await;
    let again = pki.crl("default").await;
    assert_eq!((again.serials().len(), again.number()), (0, empty.number() + 1));
    config(&pki, json!({ "disable": false })).await;
    assert_eq!(pki.crl("default").await.serials().len(), 2);
    pki.stop().await;
}

#[actix_web::test]
async fn crl_beyond_max_entries_is_503_and_revocation_is_recorded() {
    let pki = Pki::start().await;
    config(&pki, json!({ "max_crl_entries": 2 })).await;
    let leaves = [pki.leaf().await, pki.leaf().await, pki.leaf().await];
    pki.revoke(&leaves[0]).await;
    pki.revoke(&leaves[1]).await;
    let before = pki.crl("default").await;
    let refused = pki.app.client.post("pki/revoke", json!({ "serial_number": leaves[2].serial() })).await;
    assert!(refused.status == 503 && refused.error().starts_with("max_crl_entries: "), "{}", refused.text);
    assert_eq!(pki.app.client.get("pki/crl/rotate").await.status, 400);
    assert_eq!(pki.crl("default").await.der, before.der);
    assert_ne!(pki.get(&format!("cert/{}", leaves[2].serial())).await["revocation_time"], 0, "recorded all the same");
    config(&pki, json!({ "max_crl_entries": -1 })).await;
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    assert_eq!(pki.crl("default").await.serials().len(), 3);
    pki.stop().await;
}

#[actix_web::test]
async fn issuers_of_one_key_and_subject_share_a_crl() {
    let pki = Pki::start().await;
    let key = pki.get("issuer/root").await["key_id"].clone();
    for (name, common_name) in [("twin", "Test Root"), ("other", "Other Root")] {
        let root = json!({ "common_name": common_name, "key_ref": key, "issuer_name": name, "not_after": FAR });
        pki.post("root/rotate/existing", root).await;
    }
    let mut leaves = Vec::new();
    pki.role(&json!({})).await;
    for issuer in ["root", "twin", "other"] {
        let before = pki.crl("root").await.number();
        let leaf = pki.leaf_of(issuer).await;
        pki.revoke(&leaf).await;
        let one = pki.crl("root").await;
        let same = pki.crl("twin").await;
        assert!(one.der == same.der, "one list");
        assert_eq!(one.number() > before, issuer != "other", "one series of numbers");
        leaves.push(leaf.serial());
    }
    let other = leaves.pop().unwrap();
    leaves.sort();
    assert_eq!(pki.crl("root").await.serials(), leaves);
    assert_eq!(pki.crl("other").await.serials(), [other], "one key, but another name");
    pki.stop().await;
}

/// Returns the serial numbers on the CRLs of two issuers.
async fn on_lists(pki: &Pki, issuers: [&str; 2]) -> [Vec<String>; 2] {
    [pki.crl(issuers[0]).await.serials(), pki.crl(issuers[1]).await.serials()]
}

#[actix_web::test]
async fn entries_of_deleted_issuer_stay_with_its_name_and_key() {
    for app in [App::start().await, App::builder().postgres().start().await] {
        let mut pki = Pki::on(app).await;
        let key = pki.get("issuer/root").await["key_id"].clone();
        let root = pki.default_pem().await;
        pki.root(json!({ "common_name": "Other", "issuer_name": "other" })).await;
        pki.post("config/issuers", json!({ "default": "other" })).await;
        let twin = json!({ "common_name": "Test Root", "key_ref": key, "issuer_name": "twin" });
        pki.post("root/generate/existing", twin).await;
        pki.role(&json!({})).await;
        let leaf = pki.leaf_of("root").await;
        pki.revoke(&leaf).await;
        // Relying parties that trust the name and the key use the CRL of the twin.
        assert_eq!(pki.app.client.delete("pki/issuer/root").await.status, 200);
        assert_eq!(on_lists(&pki, ["twin", "other"]).await, [vec![leaf.serial()], vec![]]);
        pki = pki.restart().await;
        assert_eq!(on_lists(&pki, ["twin", "other"]).await, [vec![leaf.serial()], vec![]]);
        // Without such an issuer the default issuer's CRL has the entry; then an imported issuer with the name and the
        // key.
        let number = pki.crl("twin").await.number();
        assert_eq!(pki.app.client.delete("pki/issuer/twin").await.status, 200);
        assert_eq!(pki.crl("other").await.serials(), [leaf.serial()]);
        let id = pki.import_one(&root).await;
        assert_eq!(on_lists(&pki, [&id, "other"]).await, [vec![leaf.serial()], vec![]]);
        assert!(pki.crl(&id).await.number() > number);
        pki = pki.restart().await;
        assert_eq!(on_lists(&pki, [&id, "other"]).await, [vec![leaf.serial()], vec![]]);
        pki.stop().await;
    }
}

const RAW: [&str; 5] = ["crl", "crl/pem", "issuer/default/crl/der", "issuer/default/crl/pem", "crl/delta/pem"];

#[actix_web::test]
async fn every_crl_path_returns_the_same_crl_with_type_and_length() {
    let pki = Pki::start().await;
    for _ in 0..3 {
        pki.revoke(&pki.leaf().await).await;
    }
    let crl = pki.crl("default").await;
    let pem = crl.pem();
    for path in RAW {
        let response = pki.fetch("GET", path, &[]).await;
        let is_pem = path.ends_with("pem");
        let cache = response.headers()["cache-control"].to_str().unwrap().to_owned();
        assert!(cache.starts_with("public, max-age="), "{cache}");
        let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
        let body = response.bytes().await.unwrap();
        assert_eq!(body.len(), length);
        if !path.contains("delta") {
            assert_eq!(body, if is_pem { pem.as_bytes() } else { &crl.der }, "{path}");
        }
        let head = pki.fetch("HEAD", path, &[]).await;
        assert_eq!((head.status().as_u16(), &head.headers()["content-length"]), (200, &length.into()));
        assert!(head.bytes().await.unwrap().is_empty());
    }
    for (path, name) in [("cert/crl", "certificate"), ("issuer/default/crl", "crl")] {
        let data = pki.get(path).await;
        assert_eq!(data[name], pem.trim_end(), "{path}");
        assert_eq!(data.get("revocation_time").is_some(), name == "certificate");
    }
    let delta = delta(&pki).await.pem();
    assert_eq!(pki.get("cert/delta-crl").await["certificate"], delta.trim_end());
    assert_eq!(pki.get("issuer/root/crl/delta").await["crl"], delta.trim_end());
    pki.stop().await;
}

#[actix_web::test]
async fn matching_crl_etag_or_date_is_304() {
    let pki = Pki::start().await;
    let old = pki.fetch("GET", "crl", &[]).await.headers()["etag"].to_str().unwrap().to_owned();
    pki.revoke(&pki.leaf().await).await;
    for path in RAW {
        let response = pki.fetch("GET", path, &[]).await;
        let tag = response.headers()["etag"].to_str().unwrap().to_owned();
        assert!(tag.starts_with('"') && tag != old, "{path}: {tag}");
        let weak = format!("\"other\", W/{tag}");
        for (sent, status) in [(tag.as_str(), 304), (&weak, 304), (&old, 200), ("*", 304)] {
            let response = pki.fetch("GET", path, &[("if-none-match", sent)]).await;
            assert_eq!(response.status(), status, "{path} {sent}");
            assert_eq!(response.headers()["etag"], tag.as_str());
            assert_eq!(response.bytes().await.unwrap().is_empty(), status == 304);
        }
    }
    for path in RAW.into_iter().chain(["cert/crl", "issuer/default/crl"]) {
        for (date, status) in
            [("Fri, 01 Jan 2100 00:00:00 GMT", 304), ("Thu, 01 Jan 2015 00:00:00 GMT", 200), ("now", 200)]
        {
            assert_eq!(pki.fetch("GET", path, &[("if-modified-since", date)]).await.status(), status, "{path} {date}");
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn if_modified_since_is_304_until_the_crl_changes() {
    let start = Time::from_unix_timestamp(1_900_000_000).unwrap();
    let pki = Pki::at(start).await;
    let date = async |path: &str| {
        let response = pki.fetch("GET", path, &[]).await;
        response.headers().get("last-modified").map(|date| date.to_str().unwrap().to_owned())
    };
    let asked = async |path: &str, date: &str| pki.fetch("GET", path, &[("if-modified-since", date)]).await.status();
    for path in ["crl", "crl/pem", "cert/crl", "issuer/default/crl"] {
        pki.revoke(&pki.leaf().await).await;
        assert_eq!(date(path).await, None, "{path}: it may change within this second");
        // It does change. A client that sends the time of its response does not have the new CRL.
        let then = super::ocsp::client::date(pki.app.clock.now().unix_timestamp());
        pki.revoke(&pki.leaf().await).await;
        pki.app.clock.advance(Duration::from_secs(1));
        assert_eq!(asked(path, &then).await, 200, "{path}");
        let told = date(path).await.unwrap();
        assert_eq!(asked(path, &told).await, 304, "{path}");
        pki.revoke(&pki.leaf().await).await;
        assert_eq!(asked(path, &told).await, 200, "{path}: changed in the very second");
        pki.app.clock.advance(Duration::from_secs(10));
        assert_eq!(asked(path, &told).await, 200, "{path}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn unified_crls_equal_the_crls_of_the_cluster() {
    let pki = Pki::start().await;
    let leaf = pki.leaf().await;
    let paths = [
        "unified-crl",
        "unified-crl/pem",
        "unified-crl/delta",
        "issuer/root/unified-crl/der",
        "issuer/root/unified-crl/delta/pem",
    ];
    for path in paths {
        assert_eq!(pki.fetch("GET", path, &[]).await.status(), 204, "{path}");
    }
    let enveloped =
        ["cert/unified-crl", "cert/unified-delta-crl", "issuer/root/unified-crl", "issuer/root/unified-crl/delta"];
    for path in enveloped {
        assert_eq!(pki.fetch("GET", path, &[]).await.status(), 404, "{path}");
    }
    config(&pki, json!({ "auto_rebuild": true, "unified_crl": true, "cross_cluster_revocation": true })).await;
    pki.revoke(&leaf).await;
    pki.get("crl/rotate").await;
    for (path, local) in paths.into_iter().chain(enveloped).map(|path| (path, path.replace("unified-", ""))) {
        let unified = pki.fetch("GET", path, &[]).await;
        let local = pki.fetch("GET", &local, &[]).await;
        assert_eq!((unified.status().as_u16(), local.status().as_u16()), (200, 200), "{path}");
        assert_eq!(unified.headers().get("etag"), local.headers().get("etag"), "{path}");
    }
    let listed = pki.app.client.list("pki/certs/unified-revoked").await;
    let cluster = pki.app.client.get("sys/health").await.body["cluster_id"].clone();
    assert_eq!(listed.body["data"]["keys"], json!([leaf.serial()]));
    assert_eq!(listed.body["data"]["key_info"][leaf.serial()], json!({ "revoking_clusters": [cluster] }));
    pki.stop().await;
}

#[actix_web::test]
async fn concurrent_revocations_share_crl_builds_and_are_all_listed() {
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    let ask = || pki.app.client.post("pki/issue/r", json!({ "common_name": "localhost" }));
    let issued = join_all((0..100).map(|_| ask())).await;
    let mut serials: Vec<String> =
        issued.iter().map(|a| a.body["data"]["serial_number"].as_str().unwrap().to_owned()).collect();
    let before = pki.crl("default").await.number();
    let storm = join_all(serials.iter().map(|s| pki.app.client.post("pki/revoke", json!({ "serial_number": s }))));
    let beside = join_all((0..200).map(|_| ask()));
    let (answers, more) = futures_util::future::join(storm, beside).await;
    assert!(answers.iter().chain(&more).all(|answer| answer.status == 200));
    let crl = pki.crl("default").await;
    let mut listed = crl.serials();
    listed.sort();
    serials.sort();
    assert_eq!(listed, serials);
    assert!(crl.number() > before && crl.number() <= before + 100);
    assert!(pki.list("certs").await.len() >= 300);
    pki.stop().await;
}

#[actix_web::test]
async fn sign_revocation_list_signs_the_entries_of_the_caller() {
    let pki = Pki::start().await;
    let path = "issuer/root/sign-revocation-list";
    let value = STANDARD.encode([10, 1, 1]);
    let entries = json!([
        { "serial_number": "0b:02", "revocation_time": "2051-02-03T04:05:06.9Z" },
        { "serial_number": "0a-01", "revocation_time": 1_700_000_000, "extensions": [{ "id": "2.5.29.21", "value": value }] },
    ]);
    let body = json!({ "revoked_certs": entries, "crl_number": 9, "next_update": "1h" });
    let data = pki.data(path, body.clone()).await;
    let crl = Crl::new(openssl(&["crl", "-outform", "DER"], text(&data, "crl").as_bytes()));
    assert_eq!((crl.number(), crl.serials()), (9, vec!["0a:01".to_owned(), "0b:02".to_owned()]));
    assert!(crl.entry("0a:01").unwrap().contains("Key Compromise"));
    assert!(crl.entry("0b:02").unwrap().contains("Feb  3 04:05:06 2051 GMT"));
    assert!(!crl.entry("0b:02").unwrap().contains("xtensions"));
    assert!(crl.is_signed_by(&pki.default_pem().await));
    let with = |name: &str, value: Value| super::mount::with(&body, json!({ (name): value }));
    let der = pki.data(path, with("format", "der".into())).await;
    let other = Crl::new(STANDARD.decode(text(&der, "crl")).unwrap());
    assert_eq!(other.serials(), crl.serials());
    let as_delta = pki.data(path, with("delta_crl_base_number", 7.into())).await;
    let printed = openssl_text(&["crl", "-noout", "-text"], text(&as_delta, "crl").as_bytes());
    assert!(printed.contains("Delta CRL Indicator: critical"), "{printed}");
    let one = |entry: Value| with("revoked_certs", json!([entry]));
    let ext = |id: &str, value: &str| with("extensions", json!([{ "id": id, "value": value }]));
    let same =
        json!([{ "serial_number": "01:02", "revocation_time": 1 }, { "serial_number": "01-02", "revocation_time": 1 }]);
    let same_id = json!([{ "id": "1.2.3", "value": "BQA=" }, { "id": "1.2.3", "value": "BQA=" }]);
    let bad_id = json!([{ "id": "x", "value": "" }]);
    for (body, rule) in [
        (with("revoked_certs", same), "revoked_certs[1]: duplicate serial_number"),
        (one(json!({ "revocation_time": 1 })), "serial_number must be a non-empty string"),
        (one(json!({ "serial_number": "01" })), "revocation_time must be given"),
        (one(json!({ "serial_number": "xyz", "revocation_time": 1 })), "revoked_certs[0]: "),
        (one(json!({ "serial_number": "01", "revocation_time": "later" })), "revocation_time"),
        (one(json!({ "serial_number": "01", "revocation_time": -5 })), "revocation_time"),
        (one(json!({ "serial_number": "01", "revocation_time": 1, "extensions": 5 })), "extensions"),
        (one(json!({ "serial_number": "01", "revocation_time": 1, "extensions": bad_id })), "extensions[0]"),
        (ext("2.5.29.35", "BQA="), "authorityKeyIdentifier"),
        (ext("2.5.29.20", "BQA="), "cRLNumber"),
        (ext("2.5.29.27", "BQA="), "deltaCRLIndicator"),
        (ext("1.2.x", "BQA="), "dotted OID"),
        (ext("1.2.3", "!"), "base64"),
        (with("extensions", same_id), "duplicate extension id"),
        (with("crl_number", Value::Null), "crl_number: must be given"),
        (with("delta_crl_base_number", (-2).into()), "delta_crl_base_number"),
    ] {
        pki.refused(path, body, rule).await;
    }
    assert_eq!(pki.crl("root").await.serials(), [""; 0], "nothing is stored");
    pki.stop().await;
}

#[actix_web::test]
async fn resign_crls_merges_crls_of_the_issuer() {
    let pki = Pki::start().await;
    pki.root(json!({ "common_name": "Other", "issuer_name": "other" })).await;
    let path = "issuer/root/resign-crls";
    let list = async |entries: Value| {
        let body = json!({ "revoked_certs": entries, "crl_number": 1 });
        text(&pki.data("issuer/root/sign-revocation-list", body).await, "crl").to_owned()
    };
    let reason = json!([{ "id": "2.5.29.21", "value": STANDARD.encode([10, 1, 1]) }]);
    let one = list(json!([{ "serial_number": "01", "revocation_time": 2_000 }, { "serial_number": "02", "revocation_time": 1_000, "extensions": reason }])).await;
    let two = list(json!([{ "serial_number": "01", "revocation_time": 1_000 }, { "serial_number": "03", "revocation_time": 1_000 }])).await;
    let der = STANDARD.encode(openssl(&["crl", "-outform", "DER"], two.as_bytes()));
    let answer = pki.warns(path, json!({ "crls": [one, der], "crl_number": 5 }), "earliest").await;
    assert!(answer.warnings().contains("dropped"), "{}", answer.text);
    let printed = openssl_text(&["crl", "-noout", "-text"], text(&answer.body["data"], "crl").as_bytes());
    assert_eq!(printed.matches("Serial Number: ").count(), 3);
    assert_eq!(printed.matches("Jan  1 00:16:40 1970").count(), 3, "{printed}");
    assert!(!printed.contains("Key Compromise"));
    let elsewhere = "CRL index 0 was not signed by the requested issuer";
    pki.refused("issuer/other/resign-crls", json!({ "crls": [one], "crl_number": 5 }), elsewhere).await;
    pki.refused(path, json!({ "crls": [one, "none"], "crl_number": 5 }), "CRL index 1").await;
    pki.refused(path, json!({ "crls": [one] }), "crl_number: must be given").await;
    pki.post("issuer/root", json!({ "issuer_name": "root", "usage": "read-only,issuing-certificates" })).await;
    pki.refused(path, json!({ "crls": [one], "crl_number": 5 }), "crl-signing").await;
    pki.stop().await;
}

#[actix_web::test]
async fn only_tidied_entries_leave_the_crl() {
    let now = Time::from_unix_timestamp(1_906_545_600).unwrap();
    let pki = Pki::at(now).await;
    let ask = |ttl: &str| json!({ "common_name": "localhost", "ttl": ttl });
    let short = pki.issue(&json!({}), ask("1h")).await;
    let long = pki.issue(&json!({}), ask("5h")).await;
    let kept = pki.issue(&json!({}), ask("5h")).await;
    for leaf in [&short, &long, &kept] {
        pki.revoke(leaf).await;
    }
    let remove = |leaf: &Leaf| {
        let db = rusqlite::Connection::open(pki.app.folder().join("signet.db")).unwrap();
        db.busy_timeout(Duration::from_secs(5)).unwrap();
        let serial = leaf.certificate.serial();
        assert_eq!(db.execute("DELETE FROM revocation WHERE serial = $1", [serial.octets()]).unwrap(), 1);
    };
    let shared = pki.app.shared();
    let mount = shared.auth.mounts().iter().find(|mount| mount.kind == MountKind::Pki).unwrap().id;
    let authority = shared.engine.authority(mount).unwrap();
    // The row of a valid certificate is missing: the current CRL stays, and a rebuild fails.
    remove(&long);
    let before = pki.crl("default").await;
    assert_eq!(before.serials().len(), 3);
    assert!(authority.reload_revocations(false).await.is_err());
    assert_eq!(pki.crl("default").await.der, before.der);
    let metrics = pki.app.client.page("/metrics").await.text;
    let refusals = metrics.lines().find(|l| l.starts_with("signet_pki_crl_refusals_total{rule=\"entries\"} ")).unwrap();
    assert!(!refusals.ends_with(" 0"), "{refusals}");
    assert_eq!(pki.app.client.get("pki/crl/rotate").await.status, 500);
    // After its expiry the row may be missing, and so may that of the short-lived certificate.
    pki.app.clock.set(now + Duration::from_secs(6 * 3600));
    remove(&short);
    assert!(authority.reload_revocations(false).await.unwrap().is_empty());
    let after = pki.crl("default").await;
    assert_eq!((after.serials(), after.number()), (vec![kept.serial()], before.number() + 1));
    let pki = pki.restart().await;
    assert_eq!(pki.crl("default").await.der, after.der);
    pki.stop().await;
}

/// An issuer that may no longer sign CRLs serves its last one until it expires, also after a restart.
#[actix_web::test]
async fn issuer_without_crl_signing_serves_its_crl_until_expiry() {
    for builder in [App::builder(), App::builder().postgres()] {
        let now = Time::from_unix_timestamp(1_906_545_600).unwrap();
        let pki = Pki::on(builder.manual_clock(now).start().await).await;
        let leaf = pki.leaf().await;
        pki.revoke(&leaf).await;
        let before = pki.crl("default").await;
        pki.post("issuer/root", json!({ "issuer_name": "root", "usage": "read-only,issuing-certificates" })).await;
        assert_eq!(pki.crl("default").await.der, before.der);
        if pki.app.is_postgres() {
            let other = pki.app.another().await;
            let there = other.client.get("pki/crl/pem").await;
            assert_eq!((there.status, &there.text), (200, &pki.app.client.get("pki/crl/pem").await.text));
            other.stop().await;
        }
        let pki = pki.restart().await;
        assert_eq!(pki.crl("default").await.der, before.der, "it is still valid");
        pki.app.clock.set(now + Duration::from_secs(80 * 3600));
        for _ in 0..2 {
            for path in ["pki/crl", "pki/crl/pem", "pki/cert/crl", "pki/issuer/root/crl", "pki/issuer/root/crl/der"] {
                let answer = pki.app.client.get(path).await;
                assert!(answer.status == 404 && answer.error().contains("crl-signing"), "{path}: {}", answer.text);
            }
        }
        let usage = "read-only,issuing-certificates,crl-signing";
        pki.post("issuer/root", json!({ "issuer_name": "root", "usage": usage })).await;
        pki.get("crl/rotate").await;
        let after = pki.crl("default").await;
        assert_eq!(after.serials(), [leaf.serial()]);
        assert!(after.number() > before.number());
        pki.stop().await;
    }
}
