//! The types in responses depend on the token header.

use serde_json::{Value, json};
use signet::x509::certificate::Certificate;

use super::pki::foreign::{Ca, csr};
use super::pki::mount::{Pki, parse};
use crate::support::{Answer, App, send, tests_on};

tests_on!(pki_mount: Pki::start() =>
    certificate_dates_are_numbers_with_the_peer_header_only,
    role_lifetimes_are_seconds_with_the_peer_header_only,
    excessive_ttl_is_capped_with_the_peer_header_else_rejected,
    common_number_fields_are_numbers_in_both_dialects,
    a_list_of_serials_begins_after_any_text,
);

/// Headers that send the token, and `true` if responses have the peers' types.
type Sender<'a> = (&'a [(&'static str, String)], bool);
type Headers = Vec<(&'static str, String)>;

fn request(pki: &Pki, method: &str, path: &str, headers: &[(&'static str, String)]) -> reqwest::RequestBuilder {
    let request = pki.app.client.with_token("").request(method, &format!("pki/{path}"));
    headers.iter().fold(request, |request, (name, value)| request.header(*name, value))
}

async fn ask(pki: &Pki, path: &str, headers: &[(&'static str, String)], body: &Value) -> Answer {
    send(request(pki, "POST", path, headers).json(body)).await
}

async fn made(pki: &Pki, path: &str, headers: &[(&'static str, String)], body: &Value) -> Value {
    ask(pki, path, headers, body).await.assert_status(200).body["data"].clone()
}

async fn read(pki: &Pki, path: &str, headers: &[(&'static str, String)]) -> Value {
    send(request(pki, "GET", path, headers)).await.assert_status(200).body["data"].clone()
}

fn senders(token: &str) -> Vec<(Headers, bool)> {
    let (token, bearer) = (token.to_owned(), format!("Bearer {token}"));
    let request = ("X-Vault-Request", "true".to_owned());
    vec![
        (vec![("X-Service-Token", token.clone())], false),
        (vec![("Authorization", bearer.clone())], false),
        (vec![("X-Service-Token", token.clone()), request.clone()], false),
        (vec![("X-Service-Token", token.clone()), ("X-Vault-Token", token.clone())], false),
        (vec![("X-Vault-Token", token.clone())], true),
        (vec![("X-Vault-Token", token), request.clone()], true),
        (vec![("Authorization", bearer), request], true),
    ]
}

/// Asserts that a date has the type for this header.
fn assert_date(data: &Value, member: &str, at: i64, (headers, peers): Sender<'_>) {
    let expected = if peers { json!(at) } else { json!(at.to_string()) };
    assert_eq!(data[member], expected, "{member} for {headers:?}");
}

/// Asserts the type of `renew_after`, and that it is after about two thirds of the certificate's lifetime.
fn assert_renewal(data: &Value, certificate: &Certificate, sender: Sender<'_>) {
    let at = data["renew_after"].as_i64().or_else(|| data["renew_after"].as_str()?.parse().ok()).unwrap();
    assert_date(data, "renew_after", at, sender);
    // Certificates are backdated by half a minute; renewals are spread over a twentieth of the lifetime.
    let life = certificate.not_after() - certificate.not_before();
    let range = life * 60 / 100..=life * 67 / 100 + 30;
    assert!(range.contains(&(at - certificate.not_before())), "{at} of {life}");
}

async fn certificate_dates_are_numbers_with_the_peer_header_only(pki: &Pki) {
    pki.role(&json!({ "allow_any_name": true })).await;
    let csr = csr("ec-256", "/CN=a.test", "");
    let name = json!({ "common_name": "a.test" });
    for (headers, peers) in &senders(&pki.app.client.token) {
        let sender: Sender<'_> = (headers, *peers);
        for (path, body) in [
            ("issue/r", &name),
            ("issuer/root/issue/r", &name),
            ("sign/r", &json!({ "csr": csr })),
            ("sign-verbatim", &json!({ "csr": csr })),
            ("sign-verbatim/r", &json!({ "csr": csr })),
        ] {
            let data = made(pki, path, headers, body).await;
            let certificate = parse(data["certificate"].as_str().unwrap());
            assert_date(&data, "expiration", certificate.not_after(), sender);
            assert_date(&data, "not_before", certificate.not_before(), sender);
            assert_renewal(&data, &certificate, sender);
        }
        let request = json!({ "csr": csr, "common_name": "An Intermediate" });
        let root = json!({ "common_name": "Another Root", "key_type": "ec" });
        for (path, body) in [("root/sign-intermediate", request), ("root/generate/internal", root)] {
            let data = made(pki, path, headers, &body).await;
            let certificate = parse(data["certificate"].as_str().unwrap());
            assert_date(&data, "expiration", certificate.not_after(), sender);
            assert_renewal(&data, &certificate, sender);
            assert_eq!(data.get("not_before"), None, "{path}");
        }
        let own = json!({ "certificate": Ca::root("/CN=Own").pem });
        let data = made(pki, "root/sign-self-issued", headers, &own).await;
        assert_renewal(&data, &parse(data["certificate"].as_str().unwrap()), sender);
    }
}

async fn role_lifetimes_are_seconds_with_the_peer_header_only(pki: &Pki) {
    for (headers, peers) in &senders(&pki.app.client.token) {
        let (ttl, max_ttl) = if *peers { (json!(21_600), json!(86_400)) } else { (json!("6h"), json!("24h")) };
        let body = json!({ "ttl": "6h", "max_ttl": 86_400, "not_before_duration": "1m" });
        let written = made(pki, "roles/r", headers, &body).await;
        let read = read(pki, "roles/r", headers).await;
        assert_eq!(written, read);
        assert_eq!((&read["ttl"], &read["max_ttl"]), (&ttl, &max_ttl), "{headers:?}");
        assert_eq!(read["not_before_duration"], 60, "{headers:?}");
        assert_eq!(made(pki, "roles/r", headers, &read).await, read);
        let patch = request(pki, "PATCH", "roles/r", headers);
        let patch = patch.header("Content-Type", "application/merge-patch+json").body("{\"ttl\":\"1h\"}");
        let ttl = if *peers { json!(3_600) } else { json!("1h") };
        assert_eq!(send(patch).await.body["data"]["ttl"], ttl, "{headers:?}");
    }
}

async fn excessive_ttl_is_capped_with_the_peer_header_else_rejected(pki: &Pki) {
    pki.role(&json!({ "allow_any_name": true, "ttl": "1h", "max_ttl": "720h" })).await;
    let csr = csr("ec-256", "/CN=a.test", "");
    let of_csr = json!({ "csr": csr, "common_name": "a.test", "ttl": "2160h" });
    for (headers, peers) in &senders(&pki.app.client.token) {
        for (path, body, limit) in [
            ("issue/r", json!({ "common_name": "a.test", "ttl": "2160h" }), 720),
            ("issuer/root/issue/r", json!({ "common_name": "a.test", "ttl": 7_776_000 }), 720),
            ("sign/r", of_csr.clone(), 720),
            ("sign-verbatim/r", of_csr.clone(), 720),
            ("sign-verbatim", of_csr.clone(), 768),
            ("root/sign-intermediate", of_csr.clone(), 768),
        ] {
            let answer = ask(pki, path, headers, &body).await;
            let of = if limit == 720 { "role's max_ttl" } else { "mount's max_lease_ttl" };
            let above = format!("ttl: 2160h is above the {of}, {limit}h");
            if *peers {
                assert_eq!(answer.status, 200, "{path} {headers:?}: {}", answer.text);
                let warnings = answer.body["warnings"].to_string();
                assert!(warnings.contains(&format!("{above}: {limit}h was used")), "{path}: {warnings}");
                let certificate = parse(answer.body["data"]["certificate"].as_str().unwrap());
                let life = certificate.not_after() - certificate.not_before();
                assert!((limit * 3600..=limit * 3600 + 60).contains(&life), "{path}: {life}");
            } else {
                answer.assert_error(400, &above);
            }
        }
        // A date and a contradictory role are rejected with every header.
        for (path, body) in [
            ("issue/r", json!({ "common_name": "a.test", "not_after": "2090-01-01T00:00:00Z" })),
            ("roles/other", json!({ "ttl": "2h", "max_ttl": "1h" })),
        ] {
            ask(pki, path, headers, &body).await.assert_status(400);
        }
    }
}

#[actix_web::test]
async fn without_compat_only_the_contract_types_are_used() {
    let pki = Pki::on(App::builder().settings(|settings| settings.compat = false).start().await).await;
    pki.role(&json!({ "allow_any_name": true, "ttl": "6h" })).await;
    let headers = [("X-Service-Token", pki.app.client.token.clone()), ("X-Vault-Request", "true".to_owned())];
    let issued = made(&pki, "issue/r", &headers, &json!({ "common_name": "a.test" })).await;
    assert!(issued["expiration"].is_string() && issued["not_before"].is_string(), "{issued}");
    assert_eq!(read(&pki, "roles/r", &headers).await["ttl"], "6h");
    pki.stop().await;
}

async fn common_number_fields_are_numbers_in_both_dialects(pki: &Pki) {
    pki.role(&json!({ "allow_any_name": true, "generate_lease": true })).await;
    for (headers, _) in &senders(&pki.app.client.token) {
        let issued = ask(pki, "issue/r", headers, &json!({ "common_name": "a.test" })).await;
        assert!(issued.body["lease_duration"].is_u64() && issued.body["warnings"].is_null(), "{}", issued.text);
        let serial = &issued.body["data"]["serial_number"];
        let revoked = made(pki, "revoke", headers, &json!({ "serial_number": serial })).await;
        assert!(revoked["revocation_time"].is_u64(), "{revoked}");
        let tidy = read(pki, "config/auto-tidy", headers).await;
        assert_eq!((&tidy["interval_duration"], &tidy["pause_duration"]), (&json!(43_200), &json!("0s")));
        assert_eq!(read(pki, "config/crl", headers).await["expiry"], "72h");
    }
}

#[actix_web::test]
async fn mount_reads_repeat_their_data_at_the_top_level() {
    let app = App::start().await;
    for path in ["mounts/pki", "mounts/pki/tune", "mounts/auth/token/tune", "auth/token", "auth/token/tune"] {
        let answer = app.client.get(&format!("sys/{path}")).await.assert_status(200);
        let members = answer.body["data"].as_object().unwrap();
        assert!(members.contains_key("description"), "{path}: {}", answer.text);
        for (name, value) in members {
            assert_eq!(&answer.body[name], value, "{path}: {name}");
        }
    }
    app.stop().await;
}

async fn a_list_of_serials_begins_after_any_text(pki: &Pki) {
    pki.role(&json!({ "allow_any_name": true })).await;
    for _ in 0..5 {
        pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
    }
    let all = pki.list("certs").await;
    let first = &all[0];
    let third = &all[2];
    for (after, expected) in [
        ("", &all[..]),
        ("!", &all[..]),
        ("zz", &[]),
        ("nothing of the kind", &[]),
        (third, &all[3..]),
        (&third.to_uppercase(), &all[3..]),
        (&third.replace(':', "-"), &all[3..]),
        // A prefix of a serial sorts before all serials with it, a longer text after them.
        (&third[..third.len() - 1], &all[2..]),
        (&format!("{third}:"), &all[3..]),
        (&format!("{third}x"), &all[3..]),
        (&first[..1], &all[..]),
    ] {
        for path in ["certs", "certs/detailed"] {
            let query: String = url::form_urlencoded::byte_serialize(after.as_bytes()).collect();
            assert_eq!(pki.list(&format!("{path}?after={query}")).await, expected, "{path} after {after:?}");
        }
    }
    for path in ["certs/revoked", "certs/unified-revoked", "cert-metadata"] {
        assert_eq!(pki.app.client.list(&format!("pki/{path}?after=zz")).await.status, 404, "{path}");
    }
}
