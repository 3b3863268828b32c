//! Compromised keys are not certified again, and only authorized callers create OCSP responders.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::auth::policy::Operation;
use signet::documents::{DocumentKey, DocumentWrite, SYSTEM_MOUNT};
use signet::http::secrets::all_routes;
use signet::pki::compromised::KeyHash;
use signet::pki::store::PkiWrite;
use time::macros::datetime;

use super::external_policy::engine::{Engine, Reply, Template, consent_to};
use super::external_policy::settings;
use super::foreign::{Ca, Files, csr, key, openssl, openssl_text, printed, run};
use super::mount::{Pki, text, until, with};
use crate::faults::double::Faults;
use crate::support::{App, Client};
use crate::v1::rights::{granted, only};

const REFUSED: &str = "this key is known to be compromised";

fn any() -> Value {
    json!({ "key_type": "any" })
}

/// Returns the body of a request to sign the key of this kind.
fn request(kind: &str) -> Value {
    json!({ "csr": csr(kind, "/CN=localhost", "") })
}

fn public(kind: &str) -> String {
    openssl_text(&["pkey", "-pubout"], key(kind).as_bytes())
}

/// Adds the key of this kind to the list. Returns the path of its entry.
async fn add_key(client: &Client, kind: &str) -> String {
    let answer = client.post("sys/compromised-keys", json!({ "public_key": public(kind) })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    format!("sys/compromised-keys/{}", text(&answer.body["data"], "hash"))
}

/// Creates a mount whose role `r` certifies every key.
async fn mount(client: &Client, path: &str) {
    let root = json!({ "common_name": "Other Root", "key_type": "ec", "ttl": "8760h" });
    assert_eq!(client.post(&format!("sys/mounts/{path}"), json!({ "type": "pki" })).await.status, 204);
    assert_eq!(client.post(&format!("{path}/root/generate/internal"), root).await.status, 200);
    // Without a ttl, a leaf would get the maximum lease of the mount and end a second after the root.
    let role = with(&any(), json!({ "allow_any_name": true, "ttl": "1h" }));
    assert_eq!(client.post(&format!("{path}/roles/r"), role).await.status, 200);
}

async fn compromise_blocks_the_key(app: App) -> App {
    let pki = Pki::on(app).await;
    let leaf = pki.sign(&any(), request("ec-256")).await;
    let body = json!({ "serial_number": leaf.serial(), "private_key": key("ec-256") });
    assert_eq!(pki.data("revoke-with-key", body).await["state"], "revoked");
    assert!(pki.crl("default").await.entry(&leaf.serial()).unwrap().contains("Key Compromise"));
    for path in ["sign/r", "sign-verbatim", "sign-verbatim/r", "root/sign-intermediate", "issuer/default/sign/r"] {
        pki.refused(path, with(&request("ec-256"), json!({ "common_name": "Sub" })), REFUSED).await;
    }
    mount(&pki.app.client, "other").await;
    let elsewhere = pki.app.client.post("other/sign/r", request("ec-256")).await;
    assert!(elsewhere.status == 400 && elsewhere.error().contains(REFUSED), "{}", elsewhere.text);

    // The revocation reason keyCompromise blocks a key as well. Other keys are certified, also after a restart.
    let second = pki.sign(&any(), request("ec-384")).await;
    pki.post("revoke", json!({ "serial_number": second.serial(), "reason": "superseded" })).await;
    pki.sign(&any(), request("ec-384")).await;
    pki.post("revoke", json!({ "serial_number": second.serial(), "reason": "keyCompromise" })).await;
    pki.refused("sign/r", request("ec-384"), REFUSED).await;
    let pki = pki.restart().await;
    pki.refused("sign/r", request("ec-384"), REFUSED).await;
    pki.sign(&any(), request("ed25519")).await;
    pki.app
}

#[actix_web::test]
async fn reported_compromise_blocks_the_key_in_every_mount() {
    compromise_blocks_the_key(App::start().await).await.stop().await;
}

/// Waits until a request to sign a key returns this status.
async fn until_signing_gives(client: &Client, status: u16, request: &Value) {
    let signs = async || {
        let answer = client.post("pki/sign/r", request.clone()).await;
        assert!(answer.status != 400 || answer.error().contains(REFUSED), "{}", answer.text);
        answer.status == status
    };
    until("the other node to follow", signs).await;
}

#[actix_web::test]
async fn compromised_key_is_rejected_on_postgresql_and_other_nodes() {
    let app = compromise_blocks_the_key(App::builder().postgres().start().await).await;
    let other = app.another().await;
    let path = add_key(&app.client, "ed25519").await;
    let request = request("ed25519");
    until_signing_gives(&other.client, 400, &request).await;
    assert_eq!(other.client.delete(&path).await.status, 204);
    until_signing_gives(&app.client, 200, &request).await;
    // Concurrent revocations on both nodes add the same key: one of the two entries is rejected, but not its
    // revocation.
    let certified = async |node: &App| node.client.post("pki/sign/r", request.clone()).await.body["data"].clone();
    let proof = async |node: &App, leaf: Value| {
        let body = json!({ "serial_number": leaf["serial_number"], "private_key": key("ed25519") });
        node.client.post("pki/revoke-with-key", body).await
    };
    let leaves = (certified(&app).await, certified(&other).await);
    let answers = tokio::join!(proof(&app, leaves.0), proof(&other, leaves.1));
    for answer in [&answers.0, &answers.1] {
        assert_eq!((answer.status, &answer.body["data"]["state"]), (200, &json!("revoked")), "{}", answer.text);
    }
    for node in [&app, &other] {
        let answer = node.client.post("pki/sign/r", request.clone()).await;
        assert!(answer.status == 400 && answer.error().contains(REFUSED), "at once: {}", answer.text);
    }
    other.stop().await;
    app.stop().await;
}

/// Routes whose pattern contains such a word but which certify no key of the caller, and why.
const NOT_CERTIFYING: [(&str, &str); 11] = [
    ("issue/:name", "the key is new"),
    ("issuer/:issuer_ref/issue/:name", "the key is new"),
    ("external-policy/issue", "the key is new"),
    ("external-policy/issue/:policy", "the key is new"),
    ("issuer/:issuer_ref/external-policy/issue", "the key is new"),
    ("issuer/:issuer_ref/external-policy/issue/:policy", "the key is new"),
    ("keys/generate/:type", "the key is new, or a managed one that is not certified yet"),
    ("issuer/:issuer_ref/sign-revocation-list", "a list of revocations"),
    ("issuer/:issuer_ref/resign-crls", "lists of revocations"),
    ("issuers/import/crl", "a list of revocations"),
    ("config/external-policy", "settings"),
];

/// Returns the request to a route that certifies or imports a key; `None` for other routes.
fn request_for_certification(pattern: &str, own: &str, key_id: &Value) -> Option<Value> {
    let words = ["sign", "issue/", "generate", "root/rotate", "import", "config/ca", "external-policy"];
    // There are no ACME directories.
    let is_other = pattern.contains("acme/") || NOT_CERTIFYING.iter().any(|(route, _)| *route == pattern);
    if is_other || !words.iter().any(|word| pattern.contains(word)) {
        return None;
    }
    Some(match pattern {
        "keys/import" => json!({ "pem_bundle": key("ec-256") }),
        "issuers/import/bundle" | "config/ca" => json!({ "pem_bundle": format!("{}\n{own}", key("ec-256")) }),
        "issuers/import/cert" => json!({ "pem_bundle": own }),
        "intermediate/set-signed" => json!({ "certificate": own }),
        _ if pattern.contains("self-issued") => json!({ "certificate": own }),
        _ if pattern.contains("generate") || pattern.contains("rotate") || pattern.contains("cross-sign") => {
            json!({ "common_name": "Existing", "key_ref": key_id, "ttl": "1h" })
        }
        _ => with(&request("ec-256"), json!({ "common_name": "localhost" })),
    })
}

#[actix_web::test]
async fn every_route_that_certifies_a_key_refuses_a_compromised_one() {
    let pki = Pki::start().await;
    pki.role(&with(&any(), json!({ "allow_any_name": true }))).await;
    let engine = Engine::start().await;
    engine.says(|question| {
        let authority = question["mode"] == "ica" || question.to_string().contains("\"ica\"");
        let template = if authority { Template::authority(None) } else { Template::default() };
        Reply::json(consent_to(question, &template))
    });
    pki.post("config/external-policy", settings(&engine)).await;
    let key_id = pki.data("keys/import", json!({ "pem_bundle": key("ec-256") })).await["key_id"].clone();
    let own =
        openssl_text(&["req", "-x509", "-new", "-key", "/dev/stdin", "-subj", "/CN=Foreign"], key("ec-256").as_bytes());
    let entry = add_key(&pki.app.client, "ec-256").await;
    let mut refused = Vec::new();
    for (_, route) in all_routes().filter(|(kind, route)| *kind == "pki" && route.operation == Operation::Update) {
        let Some(body) = request_for_certification(route.pattern, &own, &key_id) else { continue };
        let path = route.pattern.replace(":name", "r").replace(":issuer_ref", "root").replace(":type", "existing");
        pki.refused(&path.replace(":policy", "web"), body, REFUSED).await;
        refused.push(route.pattern);
    }
    assert_eq!(refused.len(), 29, "{refused:#?}");
    // Without the entry in the list, the requests succeed.
    assert_eq!(pki.app.client.delete(&entry).await.status, 204);
    for path in ["sign/r", "sign-verbatim", "external-policy/sign"] {
        pki.post(path, request("ec-256")).await;
    }
    engine.stop().await;
    pki.stop().await;
}

#[actix_web::test]
async fn the_list_outlives_tidied_certificates_and_a_restart() {
    let pki = Pki::at(datetime!(2031-01-01 00:00 UTC)).await;
    let leaf = pki.sign(&any(), with(&request("ec-256"), json!({ "ttl": "1h" }))).await;
    let other = pki.sign(&any(), with(&request("ec-384"), json!({ "ttl": "1h" }))).await;
    pki.post("revoke-with-key", json!({ "serial_number": leaf.serial(), "private_key": key("ec-256") })).await;
    pki.post("revoke", json!({ "serial_number": other.serial(), "reason": "keyCompromise" })).await;
    let listed = pki.app.client.list("sys/compromised-keys").await.body["data"]["keys"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    pki.app.clock.advance(Duration::from_secs(90 * 86_400));
    let all = json!({ "tidy_cert_store": true, "tidy_revoked_certs": true, "tidy_expired_issuers": true,
        "safety_buffer": "1s", "issuer_safety_buffer": "1s" });
    // An expired certificate is on one more CRL before it is removed, so one run may not be enough.
    let tidied = async || {
        pki.app.client.post("pki/tidy", all.clone()).await;
        pki.list("certs").await.len() == 1 && pki.list("certs/revoked").await.is_empty()
    };
    until("the removal of both certificates", tidied).await;
    let check = async |pki: &Pki| {
        assert_eq!(pki.app.client.list("sys/compromised-keys").await.body["data"]["keys"], listed);
        for kind in ["ec-256", "ec-384"] {
            pki.refused("sign/r", request(kind), REFUSED).await;
        }
    };
    check(&pki).await;
    let pki = pki.restart().await;
    check(&pki).await;
    // A start without any mount; then the mount is created again.
    assert_eq!(pki.app.client.delete("sys/mounts/pki").await.status, 204);
    let app = pki.app.restart().await;
    assert_eq!(app.client.list("sys/compromised-keys").await.body["data"]["keys"], listed);
    mount(&app.client, "pki").await;
    check(&Pki { app }).await;
}

/// Writes 50,000 entries, as an operator's import of a published list would.
#[actix_web::test]
async fn full_compromised_key_list_rejects_more_keys() {
    const MAX_KEYS: usize = 50_000;
    let faults = Arc::new(Faults::default());
    let pki = Pki::on(App::builder().faults(&faults).start().await).await;
    let body = serde_json::to_vec(&json!({ "added_at": 0, "source": "operator", "note": "" })).unwrap();
    let write = |n: usize| {
        let key = DocumentKey { mount: SYSTEM_MOUNT, kind: "compromised-key", name: format!("{n:064x}") };
        PkiWrite::Document(DocumentWrite { key, expected: 0, body: Some(body.clone()) })
    };
    for page in (0..MAX_KEYS - 20).collect::<Vec<_>>().chunks(5_000) {
        faults.real().pki.commit(page.iter().map(|n| write(*n)).collect()).await.unwrap();
    }
    pki.app.shared().engine.compromised().reload().await.unwrap();
    let client = &pki.app.client;
    let started = Instant::now();
    for n in MAX_KEYS - 20..MAX_KEYS {
        assert_eq!(client.post(&format!("sys/compromised-keys/{n:064x}"), json!({})).await.status, 200);
    }
    println!("20 entries beside 50,000 take {:?}", started.elapsed());
    let answer = client.post(&format!("sys/compromised-keys/{MAX_KEYS:064x}"), json!({})).await;
    let rule = "the list is full (at most 50000 keys)";
    assert!(answer.status == 400 && answer.error().contains(rule), "{}", answer.text);
    let page = client.list(&format!("sys/compromised-keys?after={:064x}&limit=2", 41)).await;
    assert_eq!(page.body["data"]["keys"], json!([format!("{:064x}", 42), format!("{:064x}", 43)]));
    assert_eq!(client.list("sys/compromised-keys").await.body["data"]["keys"].as_array().unwrap().len(), MAX_KEYS);
    // The revocation is recorded nevertheless.
    let leaf = pki.sign(&any(), request("ec-256")).await;
    let body = json!({ "serial_number": leaf.serial(), "private_key": key("ec-256") });
    let revoked = pki.warns("revoke-with-key", body, "sys/compromised-keys: the list is full").await;
    assert_eq!(revoked.body["data"]["state"], "revoked");
    pki.stop().await;
}

#[actix_web::test]
async fn operators_list_add_and_remove_compromised_keys() {
    let pki = Pki::start().await;
    let client = pki.app.client.clone();
    assert_eq!(client.list("sys/compromised-keys").await.status, 404);
    let hash = "ab".repeat(32);
    let path = format!("sys/compromised-keys/{hash}");
    let added = client.post(&path, json!({ "note": "boot image 7" })).await;
    assert_eq!((added.status, &added.body["data"]["hash"]), (200, &json!(hash)), "{}", added.text);
    assert_eq!(client.list("sys/compromised-keys").await.body["data"]["keys"], json!([hash]));
    for form in [public("ec-256"), csr("ec-256", "/CN=localhost", "")] {
        let added = client.post("sys/compromised-keys", json!({ "public_key": form })).await;
        assert_eq!(added.status, 200, "{}", added.text);
    }
    let listed = client.list("sys/compromised-keys").await.body["data"]["keys"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 2, "one key however it was given");
    pki.role(&any()).await;
    pki.refused("sign/r", request("ec-256"), REFUSED).await;
    for hash in listed.as_array().unwrap() {
        let path = format!("sys/compromised-keys/{}", hash.as_str().unwrap());
        assert_eq!((client.delete(&path).await.status, client.delete(&path).await.status), (204, 204));
    }
    pki.ask("sign/r", request("ec-256")).await;
    let long = "A".repeat(4_000_000);
    let block = format!("-----BEGIN PUBLIC KEY-----\n{long}\n-----END PUBLIC KEY-----\n");
    for (path, body, text) in [
        ("sys/compromised-keys", json!({ "public_key": long }), "public_key: "),
        ("sys/compromised-keys", json!({ "public_key": block }), "public_key: "),
        (&path[..], json!({ "note": long }), "note: "),
        ("sys/compromised-keys/abc", json!({}), "hash: "),
        ("sys/compromised-keys", json!({}), "public_key: "),
        ("sys/compromised-keys", json!({ "public_key": key("ec-256") }), "public_key: must be a PEM block"),
        (&path[..], json!({ "note": "x".repeat(600) }), "note: "),
    ] {
        let answer = client.post(path, body).await;
        assert!(answer.status == 400 && answer.error().contains(text), "{path}: {} {}", answer.status, answer.text);
        assert!(answer.text.len() < 500, "{path}: the value is not repeated");
    }
    assert_eq!(client.list("sys/compromised-keys").await.status, 404, "nothing was listed");
    let rights = granted("sys/compromised-keys*", &["update", "list", "delete", "read"]);
    let plain = only(&pki.app, "keys", &rights).await;
    plain.list("sys/compromised-keys").await.assert_denied();
    plain.post(&path, json!({})).await.assert_denied();
    plain.delete(&path).await.assert_denied();
    pki.stop().await;
}

/// Concurrent additions, removals and reloads of a few keys.
#[actix_web::test]
async fn cached_list_matches_the_store_after_concurrent_changes() {
    let faults = Arc::new(Faults::default());
    let app = App::builder().faults(&faults).start().await;
    let client = &app.client;
    let engine = &app.shared().engine;
    let changes = (0..8).map(|task| async move {
        for n in 0..40 {
            let path = format!("sys/compromised-keys/{:064x}", (n * 7 + task) % 5);
            let answer = match (n + task) % 2 {
                0 => client.post(&path, json!({})).await,
                _ => client.delete(&path).await,
            };
            assert!(matches!(answer.status, 200 | 204 | 503), "{path}: {}", answer.text);
        }
    });
    let reloads = async {
        for _ in 0..100 {
            engine.compromised().reload().await.unwrap();
        }
    };
    tokio::join!(join_all(changes), reloads);
    let stored = faults.real().pki.documents_of_kind(SYSTEM_MOUNT, "compromised-key").await.unwrap();
    let stored: Vec<_> = stored.into_iter().map(|document| document.key.name).collect();
    assert_eq!(engine.compromised().hashes().iter().map(KeyHash::text).collect::<Vec<_>>(), stored);
    app.stop().await;
}

#[actix_web::test]
async fn only_leaves_of_roles_that_allow_it_are_ocsp_responders() {
    const WHY: &str = "which lets its holder sign OCSP responses for the issuer (RFC 6960 4.2.2.2)";
    let pki = Pki::start().await;
    let responder = csr("ec-256", "/CN=localhost", "extendedKeyUsage=critical,OCSPSigning");
    pki.role(&any()).await;
    for path in ["sign-verbatim", "sign-verbatim/r"] {
        pki.refused(path, json!({ "csr": responder }), "csr: extKeyUsage has OCSPSigning").await;
        for usage in [json!({ "ext_key_usage": "OCSPSigning" }), json!({ "ext_key_usage_oids": "1.3.6.1.5.5.7.3.9" })] {
            pki.refused(path, with(&request("ec-256"), usage), "ext_key_usage: the request has OCSPSigning").await;
        }
    }
    let warnings = pki.role(&with(&any(), json!({ "ext_key_usage": "OCSPSigning" }))).await;
    assert!(warnings.contains("OCSP responders"), "{warnings}");
    pki.ask("sign-verbatim/r", json!({ "csr": responder })).await;
    // A CA that may sign OCSP responses for its issuer can report any status for the issuer's certificates.
    let responder = csr("ec-256", "/CN=Sub", "extendedKeyUsage=serverAuth,OCSPSigning");
    let plain = csr("ec-256", "/CN=Sub", "");
    for path in ["root/sign-intermediate", "issuer/root/sign-intermediate"] {
        let copied = json!({ "csr": responder, "use_csr_values": true });
        pki.refused(path, copied, &format!("csr: extKeyUsage has OCSPSigning, {WHY}")).await;
        for values in [true, false] {
            for asked in
                [json!({ "ext_key_usage": "OCSPSigning" }), json!({ "ext_key_usage_oids": "1.3.6.1.5.5.7.3.9" })]
            {
                let body = with(&json!({ "csr": plain, "common_name": "Sub", "use_csr_values": values }), asked);
                pki.refused(path, body, &format!("ext_key_usage: the request has OCSPSigning, {WHY}")).await;
            }
        }
        // Without `use_csr_values` the purpose in the CSR is not copied.
        let leaf = pki.certify(path, json!({ "csr": responder, "common_name": "Sub" })).await;
        assert!(leaf.extension("extendedKeyUsage").is_none());
    }
    let usage = "basicConstraints=critical,CA:TRUE\nextendedKeyUsage=OCSPSigning";
    let own = Ca::root_with(key("ec-384"), "/CN=Self", usage, &[]).pem;
    for path in ["root/sign-self-issued", "issuer/root/sign-self-issued"] {
        let rule = format!("certificate: extKeyUsage has OCSPSigning, {WHY}");
        pki.refused(path, json!({ "certificate": own }), &rule).await;
    }
    pki.stop().await;
}

/// anyExtendedKeyUsage does not include OCSPSigning (RFC 6960 section 4.2.2.2), so callers may request it.
#[actix_web::test]
async fn a_certificate_for_any_purpose_forges_no_ocsp_answer() {
    let pki = Pki::start().await;
    pki.role(&with(&any(), json!({ "ext_key_usage": "OCSPSigning" }))).await;
    let files = Files::new();
    let revoked = pki.ask("sign-verbatim", json!({ "csr": csr("ec-384", "/CN=revoked", "") })).await;
    let root = files.save("root.pem", pki.default_pem().await);
    let leaf = files.save("leaf.pem", &revoked.pem);
    let private = files.save("key.pem", key("ec-256"));
    let serial = revoked.serial().replace(':', "").to_uppercase();
    let index = files.save("index.txt", format!("V\t350101000000Z\t\t{serial}\tunknown\t/CN=revoked\n"));
    let [query, answer] = ["query.der", "answer.der"].map(|name| files.save(name, ""));
    let verifies = async |path: &str, purpose: &str| {
        let request = csr("ec-256", "/CN=signer", &format!("extendedKeyUsage={purpose}"));
        let signer = files.save("signer.pem", pki.ask(path, json!({ "csr": request })).await.pem);
        openssl(&["ocsp", "-issuer", &root, "-cert", &leaf, "-no_nonce", "-reqout", &query], b"");
        let forge = ["ocsp", "-index", &index, "-CA", &root, "-rsigner", &signer, "-rkey", &private, "-ndays", "1"];
        openssl(&[&forge[..], &["-reqin", &query, "-respout", &answer]].concat(), b"");
        let judge = ["ocsp", "-issuer", &root, "-cert", &leaf, "-no_nonce", "-respin", &answer, "-CAfile", &root];
        let said = printed(&run("openssl", &judge, b""));
        assert!(said.contains(": good"), "{said}");
        said.contains("Response verify OK")
    };
    assert!(verifies("sign-verbatim/r", "OCSPSigning").await, "the forgery is well made");
    assert!(!verifies("sign-verbatim", "anyExtendedKeyUsage").await, "openssl wants the purpose itself");
    pki.stop().await;
}
