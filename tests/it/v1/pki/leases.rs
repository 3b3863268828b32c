//! Leases of certificates.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::clock::Time;
use time::macros::datetime;

use super::foreign::csr;
use super::mount::{Leaf, Pki, text, until, with};
use crate::support::{Answer, App, Client, send};

const NOON: Time = datetime!(2030-06-01 12:00 UTC);

fn leasing() -> Value {
    json!({ "generate_lease": true, "key_type": "ec" })
}

fn name() -> Value {
    json!({ "common_name": "localhost" })
}

/// Issues a leased certificate of role `r` for `client`. Returns its serial number and the id of its lease.
async fn leased(pki: &Pki, client: &Client) -> (String, String) {
    let answer = client.post("pki/issue/r", name()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let id = text(&answer.body, "lease_id").to_owned();
    let serial = text(&answer.body["data"], "serial_number").to_owned();
    assert!(!id.is_empty() && pki.list("certs").await.contains(&serial), "{}", answer.text);
    (serial, id)
}

async fn lookup(pki: &Pki, id: &str) -> Answer {
    pki.app.client.post("sys/leases/lookup", json!({ "lease_id": id })).await
}

fn lease_of(leaf: &Leaf) -> &str {
    leaf.answer.body["lease_id"].as_str().unwrap()
}

/// Waits until the CRL lists exactly these serial numbers.
async fn until_revoked(pki: &Pki, serials: &[String]) {
    let mut wanted = serials.to_vec();
    wanted.sort();
    until("the revocations", async || {
        let mut listed = pki.crl("default").await.serials();
        listed.sort();
        assert!(listed.iter().all(|serial| wanted.contains(serial)), "{listed:?}");
        listed == wanted
    })
    .await;
}

async fn put(pki: &Pki, path: &str, body: Value) -> u16 {
    let answer = send(pki.app.client.request("PUT", path).body(body.to_string())).await;
    assert!(answer.status >= 400 || answer.text.is_empty(), "{}", answer.text);
    answer.status
}

async fn lease_life(pki: Pki) {
    assert!(pki.role(&leasing()).await.contains("generate_lease: "), "a warning that leases cost");
    let leaf = pki.ask("issue/r", json!({ "common_name": "localhost", "ttl": "2h" })).await;
    let id = lease_of(&leaf).to_owned();
    let random = id.strip_prefix("pki/issue/r/").unwrap();
    assert!(random.len() == 24 && random.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
    let body = &leaf.answer.body;
    assert_eq!((&body["lease_duration"], &body["renewable"]), (&json!(7200), &json!(false)));
    let pki = pki.restart().await;
    pki.app.clock.advance(Duration::from_secs(60));
    let shown = lookup(&pki, &id).await;
    let expected = json!({ "id": id, "path": "pki/issue/r", "issue_time": "2030-06-01T12:00:00Z", "last_renewal": null,
        "expire_time": "2030-06-01T14:00:00Z", "renewable": false, "ttl": 7140 });
    assert_eq!(shown.body["data"], expected, "{}", shown.text);
    for path in ["sys/leases/renew".to_owned(), format!("sys/leases/renew/{id}")] {
        let answer = pki.app.client.post(&path, json!({ "lease_id": id, "increment": 0 })).await;
        assert_eq!((answer.status, answer.error()), (400, "lease is not renewable"), "{path}");
    }
    let number = pki.crl("default").await.number();
    assert_eq!(put(&pki, "sys/leases/revoke", json!({ "lease_id": id })).await, 204);
    let crl = pki.crl("default").await;
    assert_eq!((crl.serials(), crl.number()), (vec![leaf.serial()], number + 1));
    assert_ne!(pki.get(&format!("cert/{}", leaf.serial())).await["revocation_time"], 0);
    let gone = lookup(&pki, &id).await;
    assert_eq!((gone.status, gone.error()), (400, "invalid lease"));
    let renewed = pki.app.client.post("sys/leases/renew", json!({ "lease_id": id })).await;
    assert!(renewed.status == 400 && renewed.error().contains("no such lease"), "{}", renewed.text);
    assert_eq!(put(&pki, "sys/leases/revoke", json!({ "lease_id": id })).await, 204, "of an unknown lease");
    // The certificate may be revoked before its lease: ending the lease then has no further effect.
    let leaf = pki.ask("issue/r", name()).await;
    let data = pki.revoke(&leaf).await;
    assert_eq!(lookup(&pki, lease_of(&leaf)).await.status, 200);
    let number = pki.crl("default").await.number();
    assert_eq!(put(&pki, &format!("sys/leases/revoke/{}", lease_of(&leaf)), json!({})).await, 204);
    assert_eq!(pki.crl("default").await.number(), number);
    let cert = pki.get(&format!("cert/{}", leaf.serial())).await;
    assert_eq!(cert["revocation_time"], data["revocation_time"]);
    pki.stop().await;
}

#[actix_web::test]
async fn lease_life_cycle_on_both_stores() {
    for builder in [App::builder(), App::builder().postgres()] {
        lease_life(Pki::on(builder.manual_clock(NOON).start().await).await).await;
    }
}

#[actix_web::test]
async fn every_role_based_issue_path_creates_a_lease() {
    let pki = Pki::at(NOON).await;
    pki.role(&leasing()).await;
    let signed = || json!({ "csr": csr("ec-256", "/CN=localhost", ""), "ttl": "5h" });
    for (path, body) in [
        ("issue/r", with(&name(), json!({ "ttl": "5h" }))),
        ("sign/r", signed()),
        ("sign-verbatim/r", signed()),
        ("issuer/root/issue/r", with(&name(), json!({ "ttl": "5h" }))),
        ("issuer/default/sign/r", signed()),
        ("issuer/root/sign-verbatim/r", signed()),
    ] {
        let leaf = pki.ask(path, body).await;
        assert_eq!(leaf.answer.body["lease_duration"], 18_000, "{path}");
        let random = lease_of(&leaf).strip_prefix(&format!("pki/{path}/")).unwrap();
        assert_eq!(random.len(), 24, "{path}");
        assert_eq!(lookup(&pki, lease_of(&leaf)).await.body["data"]["ttl"], 18_000);
    }
    for plain in [pki.ask("sign-verbatim", signed()).await, pki.leaf().await] {
        assert_eq!((lease_of(&plain), &plain.answer.body["lease_duration"]), ("", &json!(0)));
    }
    pki.stop().await;
}

#[actix_web::test]
async fn no_store_disables_leases_with_a_warning() {
    let pki = Pki::start().await;
    let role = json!({ "generate_lease": true, "no_store": true });
    assert!(pki.role(&role).await.contains("mutually exclusive"));
    assert_eq!(pki.get("roles/r").await["generate_lease"], false);
    assert_eq!(lease_of(&pki.ask("issue/r", name()).await), "");
    pki.stop().await;
}

#[actix_web::test]
async fn lease_revocation_is_synchronous_or_queued() {
    let pki = Pki::start().await;
    pki.role(&leasing()).await;
    let client = pki.app.client.clone();
    let mut revoked = Vec::new();
    for (body, status) in [(json!({ "sync": false }), 202), (json!({ "sync": true }), 204), (json!({}), 204)] {
        for in_body in [false, true] {
            let (serial, id) = leased(&pki, &client).await;
            revoked.push(serial);
            let answered = match in_body {
                false => put(&pki, &format!("sys/leases/revoke/{id}"), body.clone()).await,
                true => put(&pki, "sys/leases/revoke", with(&body, json!({ "lease_id": id }))).await,
            };
            assert_eq!(answered, status, "{body}");
            assert_eq!(lookup(&pki, &id).await.error(), "invalid lease", "{body}");
            if status == 204 {
                assert_eq!(pki.crl("default").await.serials().len(), revoked.len(), "{body}");
            }
            until_revoked(&pki, &revoked).await;
        }
        let mut last = String::new();
        let kept = pki.ask("sign/r", json!({ "csr": csr("ec-256", "/CN=localhost", "") })).await;
        for _ in 0..3 {
            let (serial, id) = leased(&pki, &client).await;
            revoked.push(serial);
            last = id;
        }
        assert_eq!(put(&pki, "sys/leases/revoke-prefix/pki/issue/r", body.clone()).await, status);
        assert_eq!(lookup(&pki, &last).await.error(), "invalid lease");
        until_revoked(&pki, &revoked).await;
        assert_eq!(lookup(&pki, lease_of(&kept)).await.status, 200, "another prefix");
        assert_eq!(put(&pki, &format!("sys/leases/revoke-prefix/{}", lease_of(&kept)), body.clone()).await, status);
        revoked.push(kept.serial());
        until_revoked(&pki, &revoked).await;
    }
    let (serial, _) = leased(&pki, &client).await;
    revoked.push(serial);
    assert_eq!(put(&pki, "sys/leases/revoke-force/pki", json!({})).await, 204);
    until_revoked(&pki, &revoked).await;
    for path in ["revoke/none", "revoke-prefix/none/at/all", "revoke-force/none"] {
        assert_eq!(put(&pki, &format!("sys/leases/{path}"), json!({})).await, 204, "{path}");
    }
    let unknown = json!({ "lease_id": "none", "sync": false });
    assert_eq!(put(&pki, "sys/leases/revoke", unknown).await, 202);
    for path in ["renew", "renew/a/b", "revoke", "revoke/a/b", "revoke-prefix/a", "revoke-force/a"] {
        assert_eq!(pki.app.client.post(&format!("sys/{path}"), json!({ "lease_id": "a" })).await.status, 404, "{path}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn bad_input_is_refused() {
    let pki = Pki::start().await;
    for path in ["lookup", "renew", "revoke"] {
        let answer = pki.app.client.post(&format!("sys/leases/{path}"), json!({})).await;
        assert_eq!((answer.status, answer.error()), (400, "lease_id must be specified"), "{path}");
    }
    for id in ["none", "pki/issue/r/none", "\u{0}", "ä/b", &"a/".repeat(5000), "../../x"] {
        let answer = lookup(&pki, id).await;
        assert_eq!((answer.status, answer.error()), (400, "invalid lease"), "{id:?}");
        assert_eq!(put(&pki, "sys/leases/revoke", json!({ "lease_id": id })).await, 204, "{id:?}");
    }
    let null = json!({ "lease_id": "none", "increment": null });
    assert!(pki.app.client.post("sys/leases/renew", null).await.error().contains("no such lease"));
    assert_eq!(pki.app.client.get("sys/leases/count").await.status, 404);
    assert_eq!(pki.app.client.get("sys/leases/count?type=other").await.status, 400);
    let count = pki.app.client.get("sys/leases/count?type=irrevocable").await;
    assert_eq!(count.body["data"], json!({ "lease_count": 0, "counts": {} }));
    assert_eq!(pki.app.client.post("sys/leases/tidy", json!({})).await.status, 204);
    pki.stop().await;
}

#[actix_web::test]
async fn lease_lists_show_entries_directly_below_a_path() {
    let pki = Pki::start().await;
    pki.role(&leasing()).await;
    pki.post("roles/r-2", with(&leasing(), json!({}))).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(leased(&pki, &pki.app.client).await.1.rsplit_once('/').unwrap().1.to_owned());
    }
    ids.sort();
    pki.ask("issue/r-2", name()).await;
    pki.ask("sign/r", json!({ "csr": csr("ec-256", "/CN=localhost", "") })).await;
    let list = async |path: &str| {
        let answer = pki.app.client.list(&format!("sys/leases/lookup{path}")).await;
        answer.body["data"]["keys"].clone()
    };
    assert_eq!(list("").await, json!(["pki/"]));
    assert_eq!(list("/pki").await, json!(["issue/", "sign/"]));
    assert_eq!(list("/pki/issue/").await, json!(["r-2/", "r/"]));
    assert_eq!(list("/pki/issue/r").await, json!(ids));
    assert_eq!(list("/pki/issue/r/?limit=2").await, json!(ids[..2]));
    assert_eq!(list(&format!("/pki/issue/r?after={}", ids[0])).await, json!(ids[1..]));
    assert_eq!(list("/pki/issue?limit=1").await, json!(["r-2/"]));
    assert_eq!(list("/pki/issue?after=r-2/").await, json!(["r/"]));
    let nothing = pki.app.client.list("sys/leases/lookup/pki/issue/none").await;
    assert_eq!((nothing.status, nothing.text.as_str()), (404, "{\"errors\":[]}"));
    pki.stop().await;
}

#[actix_web::test]
async fn lease_lookup_and_revocation_need_their_rights() {
    let pki = Pki::start().await;
    pki.role(&leasing()).await;
    let (_, id) = leased(&pki, &pki.app.client).await;
    let plain = pki.app.with_policies(&["default"]).await;
    assert_eq!(plain.post("sys/leases/lookup", json!({ "lease_id": id })).await.status, 200);
    assert_eq!(plain.post("sys/leases/renew", json!({ "lease_id": id })).await.error(), "lease is not renewable");
    plain.post("sys/leases/revoke", json!({ "lease_id": id })).await.assert_denied();
    pki.app.policy("revoker", "path \"sys/leases/*\" { capabilities = [\"update\", \"list\", \"read\"] }").await;
    let revoker = pki.app.with_policies(&["revoker"]).await;
    for path in ["revoke-prefix/pki", "revoke-force/pki"] {
        revoker.post(&format!("sys/leases/{path}"), json!({})).await.assert_denied();
    }
    revoker.list("sys/leases/lookup/pki").await.assert_denied();
    revoker.list("sys/leases/lookup").await.assert_denied();
    assert!(pki.crl("default").await.serials().is_empty());
    assert_eq!(revoker.post("sys/leases/revoke", json!({ "lease_id": id })).await.status, 204);
    pki.app.policy("chief", "path \"sys/leases/*\" { capabilities = [\"update\", \"list\", \"sudo\"] }").await;
    let chief = pki.app.with_policies(&["chief"]).await;
    let (_, id) = leased(&pki, &pki.app.client).await;
    assert_eq!(chief.list("sys/leases/lookup/pki").await.body["data"]["keys"], json!(["issue/"]));
    assert_eq!(chief.post("sys/leases/revoke-prefix/pki", json!({})).await.status, 204);
    assert_eq!(lookup(&pki, &id).await.status, 400);
    pki.stop().await;
}

/// Creates a token that may issue certificates and create tokens.
async fn issuer(pki: &Pki, by: &Client, more: Value) -> Client {
    let text = "path \"pki/issue/r\" { capabilities = [\"update\"] }
        path \"auth/token/create\" { capabilities = [\"update\"] }";
    pki.app.policy("issuer", text).await;
    let answer = by.post("auth/token/create", with(&json!({ "policies": ["issuer"] }), more)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    by.with_token(answer.body["auth"]["client_token"].as_str().unwrap())
}

async fn revoke_token(by: &Client, of: &Client) {
    assert_eq!(by.post("auth/token/revoke", json!({ "token": of.token })).await.status, 204);
}

#[actix_web::test]
async fn leases_end_with_their_token_or_its_parent_on_both_stores() {
    for app in [App::start().await, App::builder().postgres().start().await] {
        let pki = Pki::on(app).await;
        pki.role(&leasing()).await;
        let root = &pki.app.client;
        let parent = issuer(&pki, root, json!({})).await;
        let child = issuer(&pki, &parent, json!({})).await;
        let other = issuer(&pki, root, json!({})).await;
        let by_parent = leased(&pki, &parent).await;
        let by_child = leased(&pki, &child).await;
        let by_other = leased(&pki, &other).await;
        revoke_token(root, &parent).await;
        for (_, id) in [&by_parent, &by_child] {
            assert_eq!(lookup(&pki, id).await.error(), "invalid lease", "at once");
        }
        until_revoked(&pki, &[by_parent.0, by_child.0]).await;
        assert_eq!(lookup(&pki, &by_other.1).await.status, 200);
        assert_eq!(pki.get(&format!("cert/{}", by_other.0)).await["revocation_time"], 0);
        pki.stop().await;
    }
}

#[actix_web::test]
async fn last_token_use_creates_no_lease_and_ends_earlier_ones() {
    let pki = Pki::start().await;
    pki.role(&leasing()).await;
    let root = pki.app.client.clone();
    let limited = issuer(&pki, &root, json!({ "num_uses": 2 })).await;
    let (serial, id) = leased(&pki, &limited).await;
    let certs = pki.list("certs").await;
    let refused = limited.post("pki/issue/r", name()).await;
    assert!(refused.status == 400 && refused.error().contains("last use"), "{}", refused.text);
    assert_eq!(pki.list("certs").await, certs, "nothing was stored");
    assert_eq!(lookup(&pki, &id).await.error(), "invalid lease", "its token is used up");
    until_revoked(&pki, &[serial]).await;
    // Without a lease, the last use of a token may issue a certificate.
    let limited = issuer(&pki, &root, json!({ "num_uses": 1 })).await;
    pki.role(&json!({})).await;
    assert_eq!(limited.post("pki/issue/r", name()).await.status, 200);
    limited.post("pki/issue/r", name()).await.assert_denied();
    pki.stop().await;
}

#[actix_web::test]
async fn lease_revocation_of_an_ended_token_survives_a_restart() {
    let pki = Pki::start().await;
    pki.role(&leasing()).await;
    let maker = issuer(&pki, &pki.app.client, json!({})).await;
    let mut serials = Vec::new();
    for _ in 0..5 {
        serials.push(leased(&pki, &maker).await.0);
    }
    revoke_token(&pki.app.client, &maker).await;
    // The restart is immediate: the new server completes what the old one did not.
    let pki = pki.restart().await;
    until_revoked(&pki, &serials).await;
    pki.stop().await;
}

#[actix_web::test]
async fn a_lease_ends_with_its_certificate_and_nothing_is_revoked() {
    let pki = Pki::at(NOON).await;
    pki.role(&with(&leasing(), json!({ "ttl": "1h" }))).await;
    let (serial, id) = leased(&pki, &pki.app.client).await;
    pki.app.clock.advance(Duration::from_secs(3599));
    assert_eq!(lookup(&pki, &id).await.body["data"]["ttl"], 1);
    pki.app.clock.advance(Duration::from_secs(1));
    assert_eq!(lookup(&pki, &id).await.error(), "invalid lease");
    assert_eq!(pki.app.client.post("sys/leases/tidy", json!({})).await.status, 204);
    assert_eq!(pki.app.client.list("sys/leases/lookup").await.status, 404);
    assert_eq!(put(&pki, "sys/leases/revoke", json!({ "lease_id": id })).await, 204);
    assert_eq!(pki.get(&format!("cert/{serial}")).await["revocation_time"], 0);
    assert!(pki.crl("default").await.serials().is_empty());
    pki.stop().await;
}

#[actix_web::test]
async fn more_leases_than_one_step_takes_are_listed_and_revoked() {
    const COUNT: usize = 1_020;
    let pki = Pki::start().await;
    pki.role(&leasing()).await;
    pki.post("roles/z", leasing()).await;
    for _ in 0..COUNT / 102 {
        let answers = join_all((0..102).map(|_| pki.app.client.post("pki/issue/r", name()))).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
    }
    let kept = pki.ask("issue/z", name()).await;
    let list = async |path: &str| {
        let answer = pki.app.client.list(&format!("sys/leases/lookup/{path}")).await;
        answer.body["data"]["keys"].as_array().cloned().unwrap_or_default()
    };
    assert_eq!(list("pki/issue").await, ["r/", "z/"]);
    let keys = list("pki/issue/r").await;
    assert_eq!(keys.len(), COUNT);
    assert!(keys.is_sorted_by(|a, b| a.as_str() < b.as_str()));
    assert_eq!(list("pki/issue/r?limit=700").await, keys[..700]);
    assert_eq!(list(&format!("pki/issue/r?after={}", keys[599].as_str().unwrap())).await, keys[600..]);
    let number = pki.crl("default").await.number();
    assert_eq!(put(&pki, "sys/leases/revoke-prefix/pki/issue/r", json!({})).await, 204);
    let crl = pki.crl("default").await;
    assert_eq!(crl.serials().len(), COUNT);
    assert!(crl.number() < number + 6, "the list is built when all are revoked, not for each step");
    assert_eq!(list("pki/issue").await, ["z/"]);
    assert_eq!(lookup(&pki, lease_of(&kept)).await.status, 200);
    pki.stop().await;
}

#[actix_web::test]
async fn leases_go_with_their_mount() {
    let pki = Pki::start().await;
    pki.role(&leasing()).await;
    let (_, id) = leased(&pki, &pki.app.client).await;
    assert_eq!(pki.app.client.delete("sys/mounts/pki").await.status, 204);
    assert_eq!(lookup(&pki, &id).await.error(), "invalid lease");
    assert_eq!(pki.app.client.list("sys/leases/lookup").await.status, 404);
    assert_eq!(put(&pki, &format!("sys/leases/revoke/{id}"), json!({})).await, 204);
    // A new mount at the same path has none of the old leases.
    assert_eq!(pki.app.client.post("sys/mounts/pki", json!({ "type": "pki" })).await.status, 204);
    assert_eq!(pki.app.client.list("sys/leases/lookup").await.status, 404);
    pki.stop().await;
}
