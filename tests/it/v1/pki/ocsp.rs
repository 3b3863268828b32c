//! The OCSP responder, with requests created here and by openssl; openssl verifies the responses.

pub mod client;
mod transport;

use base64::Engine as _;
use serde_json::json;
use signet::clock::Time;
use signet::x509::certificate::Certificate;
use signet::x509::ocsp::{CertIdHash, OcspCertStatus, ResponseData, SingleResponse};
use signet::x509::serial::Serial;
use signet::x509::writer::{DerWriter, NULL, OCTET_STRING, SEQUENCE, build, context_constructed};

use self::client::{openssl_judges, read};
use super::foreign::{Ca, Files, run};
use super::mount::{FAR, Leaf, Pki, parse, text, with};
use crate::judges::{judge, refusal};

/// Encodes a CertID.
pub fn cert_id(hash: CertIdHash, issuer: &Certificate, serial: &Serial) -> Vec<u8> {
    build(SEQUENCE, 128, |w| {
        w.nest(SEQUENCE, |w| {
            w.oid(hash.oid());
            w.tlv(NULL, &[]);
        });
        w.tlv(OCTET_STRING, hash.digest(issuer.subject().as_der()).as_ref());
        w.tlv(OCTET_STRING, hash.digest(issuer.key().bits()).as_ref());
        w.unsigned(serial.octets());
    })
}

/// Encodes a request for these certificates.
pub fn request(ids: &[Vec<u8>], nonce: Option<&[u8]>) -> Vec<u8> {
    let nonce_extension = |w: &mut DerWriter, octets: &[u8]| {
        w.nest(SEQUENCE, |w| {
            w.oid(signet::x509::oid::OCSP_NONCE);
            w.nest(OCTET_STRING, |w| w.tlv(OCTET_STRING, octets));
        });
    };
    build(SEQUENCE, 256, |w| {
        w.nest(SEQUENCE, |w| {
            w.nest(SEQUENCE, |w| ids.iter().for_each(|id| w.tlv(SEQUENCE, id)));
            if let Some(octets) = nonce {
                w.nest(context_constructed(2), |w| w.nest(SEQUENCE, |w| nonce_extension(w, octets)));
            }
        });
    })
}

/// Encodes a request for one leaf of this issuer.
pub fn about(issuer: &str, leaf: &Leaf) -> Vec<u8> {
    request(&[cert_id(CertIdHash::Sha1, &parse(issuer), &leaf.certificate.serial())], None)
}

/// A response of the responder.
pub struct Reply {
    pub status: u16,
    headers: reqwest::header::HeaderMap,
    pub der: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Asserts that the response consists of this HTTP status and this OCSP status.
    pub fn assert_fails(&self, status: u16, ocsp: u8) {
        assert_eq!((self.status, &self.der[..]), (status, &[0x30, 3, 0x0a, 1, ocsp][..]));
        assert_eq!(
            (self.header("content-type"), self.header("cache-control")),
            ("application/ocsp-response", "no-store")
        );
    }

    /// Returns openssl's output for a successful response.
    pub fn text(&self) -> String {
        assert_eq!(self.status, 200, "{:x?}", self.der);
        assert_eq!(self.header("content-type"), "application/ocsp-response");
        let text = read(&self.der);
        assert!(text.contains("OCSP Response Status: successful"), "{text}");
        text
    }

    /// Returns the statuses of the certificates, in order.
    pub fn statuses(&self) -> Vec<String> {
        values(&self.text(), "Cert Status: ")
    }

    /// Returns one line of openssl's output.
    pub fn line(&self, name: &str) -> Option<String> {
        values(&self.text(), name).into_iter().next()
    }
}

fn values(text: &str, name: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.trim().strip_prefix(name)).map(str::to_owned).collect()
}

impl Pki {
    /// Sends a request by POST.
    pub async fn ocsp(&self, der: &[u8]) -> Reply {
        let client = self.app.client.with_token("");
        let request = client.request("POST", "pki/ocsp").header("content-type", "application/ocsp-request");
        reply(request.body(der.to_vec())).await
    }

    /// Sends a request by GET.
    pub async fn ocsp_get(&self, der: &[u8]) -> Reply {
        reply(self.ocsp_getting(der)).await
    }

    fn ocsp_getting(&self, der: &[u8]) -> reqwest::RequestBuilder {
        let text = base64::engine::general_purpose::STANDARD.encode(der).replace('+', "%2B").replace('=', "%3D");
        self.app.client.with_token("").request("GET", &format!("pki/ocsp/{text}"))
    }

    pub async fn default_pem(&self) -> String {
        text(&self.get("cert/ca").await, "certificate").to_owned()
    }

    async fn usage(&self, issuer: &str, words: &str) {
        self.post(&format!("issuer/{issuer}"), json!({ "issuer_name": issuer, "usage": words })).await;
    }
}

async fn reply(request: reqwest::RequestBuilder) -> Reply {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    Reply { status, headers, der: response.bytes().await.unwrap().to_vec() }
}

#[actix_web::test]
async fn good_leaf_with_every_hash_by_get_and_post() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    let leaf = pki.leaf().await;
    for hash in CertIdHash::ALL {
        let der = request(&[cert_id(hash, &parse(&root), &leaf.certificate.serial())], None);
        for reply in [pki.ocsp(&der).await, pki.ocsp_get(&der).await] {
            assert_eq!(reply.statuses(), ["good"], "{hash:?}");
            let this = reply.line("This Update: ").unwrap();
            let next = reply.line("Next Update: ").unwrap();
            // thisUpdate is 30 seconds before the signature.
            assert_eq!(client::seconds(&next) - client::seconds(&this), 12 * 3600 + 30);
            assert_eq!(reply.line("Produced At: ").unwrap(), this);
            assert_eq!(reply.line("Responder Id: ").unwrap(), "CN = Test Root");
            assert!(!reply.text().contains("Certificate:"), "the issuer itself signs");
            openssl_judges(&root, &leaf.pem, &reply.der, "good");
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn never_issued_serial_is_unknown_or_good_as_configured() {
    let pki = Pki::start().await;
    let root = parse(&pki.default_pem().await);
    let der = request(&[cert_id(CertIdHash::Sha1, &root, &Serial::random())], None);
    let reply = pki.ocsp_get(&der).await;
    assert_eq!((reply.statuses(), reply.header("cache-control")), (vec!["unknown".to_owned()], "no-store"));
    let answer = pki.post("config/crl", json!({ "ocsp_unknown_serial": "good" })).await;
    assert_eq!(answer.body["data"]["ocsp_unknown_serial"], "good");
    assert_eq!(pki.ocsp_get(&der).await.statuses(), ["good"]);
    pki.refused("config/crl", json!({ "ocsp_unknown_serial": "revoked" }), "ocsp_unknown_serial: must be").await;
    assert_eq!(pki.get("config/crl").await["ocsp_unknown_serial"], "good");
    pki.stop().await;
}

#[actix_web::test]
async fn certificate_of_a_foreign_issuer_is_unknown() {
    let pki = Pki::start().await;
    let leaf = pki.leaf().await;
    let foreign = Ca::root("/CN=Test Root");
    // The name alone does not identify the issuer.
    let der = about(&foreign.pem, &leaf);
    let reply = pki.ocsp(&der).await;
    assert_eq!(reply.statuses(), ["unknown"]);
    assert_eq!(reply.line("Responder Id: ").unwrap(), "CN = Test Root");
    pki.post("config/crl", json!({ "ocsp_unknown_serial": "good" })).await;
    assert_eq!(pki.ocsp(&der).await.statuses(), ["unknown"], "nobody vouches for others' certificates");
    assert_eq!(pki.app.client.delete("pki/issuer/root").await.status, 200);
    pki.ocsp(&der).await.assert_fails(401, 6);
    pki.stop().await;
}

#[actix_web::test]
async fn revoked_leaf_has_time_and_reason() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    for reason in [None, Some(("keyCompromise", 1)), Some(("superseded", 4)), Some(("unspecified", 0))] {
        let leaf = pki.leaf().await;
        let der = about(&root, &leaf);
        // An earlier request puts a response into the cache.
        assert_eq!(pki.ocsp(&der).await.statuses(), ["good"]);
        let body = json!({ "serial_number": leaf.serial(), "reason": reason.map_or("", |(word, _)| word) });
        let at = pki.post("revoke", body).await.body["data"]["revocation_time"].as_i64().unwrap();
        for reply in [pki.ocsp(&der).await, pki.ocsp_get(&der).await] {
            assert_eq!(reply.statuses(), ["revoked"]);
            assert_eq!(client::seconds(&reply.line("Revocation Time: ").unwrap()), at);
            let shown = reply.line("Revocation Reason: ");
            let expected = reason.filter(|(_, code)| *code != 0).map(|(word, code)| format!("{word} (0x{code:x})"));
            assert_eq!(shown, expected);
            openssl_judges(&root, &leaf.pem, &reply.der, "revoked");
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn ocsp_disable_and_ocsp_expiry_apply() {
    let pki = Pki::start().await;
    let der = about(&pki.default_pem().await, &pki.leaf().await);
    pki.post("config/crl", json!({ "ocsp_disable": true })).await;
    pki.ocsp(&der).await.assert_fails(401, 6);
    pki.ocsp_get(&der).await.assert_fails(401, 6);
    pki.post("config/crl", json!({ "ocsp_disable": false, "ocsp_expiry": "90s" })).await;
    let reply = pki.ocsp_get(&der).await;
    let span = |name| client::seconds(&reply.line(name).unwrap());
    assert_eq!(span("Next Update: ") - span("This Update: "), 90 + 30);
    pki.post("config/crl", json!({ "ocsp_expiry": "0" })).await;
    let reply = pki.ocsp_get(&der).await;
    assert_eq!((reply.line("Next Update: "), reply.header("cache-control")), (None, "no-store"));
    pki.stop().await;
}

#[actix_web::test]
async fn response_is_signed_by_an_issuer_with_ocsp_signing() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    let leaf = pki.leaf().await;
    let der = about(&root, &leaf);
    let foreign = about(&Ca::root("/CN=Other").pem, &leaf);
    pki.usage("root", "read-only,issuing-certificates,crl-signing").await;
    pki.ocsp(&der).await.assert_fails(401, 6);
    pki.ocsp(&foreign).await.assert_fails(401, 6);
    // Another certificate with the same name and key.
    let key = pki.get("issuer/root").await["key_id"].clone();
    let twin = json!({ "common_name": "Test Root", "issuer_name": "twin", "key_ref": key, "not_after": FAR });
    pki.post("root/generate/existing", twin).await;
    let reply = pki.ocsp(&der).await;
    assert_eq!(reply.statuses(), ["good"]);
    openssl_judges(&root, &leaf.pem, &reply.der, "good");
    pki.revoke(&leaf).await;
    openssl_judges(&root, &leaf.pem, &pki.ocsp(&der).await.der, "revoked");
    pki.ocsp(&foreign).await.assert_fails(401, 6);
    // The revocations of the deleted issuer apply to its twin.
    assert_eq!(pki.app.client.delete("pki/issuer/root").await.status, 200);
    assert_eq!(pki.ocsp(&der).await.statuses(), ["revoked"]);
    pki.stop().await;
}

#[actix_web::test]
async fn several_certificates_are_answered_in_request_order() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    let good = pki.leaf().await;
    let revoked = pki.leaf().await;
    pki.revoke(&revoked).await;
    pki.root(json!({ "common_name": "Other", "issuer_name": "other" })).await;
    let other = pki.leaf_of("other").await;
    let other_root = text(other.data(), "issuing_ca");
    let id = |hash, issuer: &str, leaf: &Leaf| cert_id(hash, &parse(issuer), &leaf.certificate.serial());
    let ids = [
        id(CertIdHash::Sha1, &Ca::root("/CN=Nobody").pem, &good),
        id(CertIdHash::Sha1, &root, &revoked),
        id(CertIdHash::ALL[1], &root, &good),
        cert_id(CertIdHash::Sha1, &parse(&root), &Serial::random()),
        id(CertIdHash::Sha1, other_root, &other),
        // Issued here, by another issuer.
        id(CertIdHash::Sha1, &root, &other),
        id(CertIdHash::ALL[2], &root, &revoked),
    ];
    let reply = pki.ocsp(&request(&ids, None)).await;
    let expected = ["unknown", "revoked", "good", "unknown", "unknown", "unknown", "revoked"];
    assert_eq!(reply.statuses(), expected, "one issuer speaks, for its own");
    assert_eq!(reply.line("Responder Id: ").unwrap(), "CN = Test Root");
    let both = request(&[ids[1].clone(), ids[2].clone()], None);
    assert_eq!(pki.ocsp_get(&both).await.statuses(), ["revoked", "good"]);
    assert_eq!(pki.ocsp(&request(&ids[4..5], None)).await.statuses(), ["good"]);
    pki.stop().await;
}

#[actix_web::test]
async fn every_kind_of_issuer_key_signs_with_its_algorithm() {
    let pki = Pki::empty().await;
    let kinds = [
        (json!({ "key_type": "rsa", "key_bits": 2048 }), "", "sha256WithRSAEncryption"),
        (json!({ "key_type": "rsa", "key_bits": 3072 }), "SHA384WithRSA", "sha384WithRSAEncryption"),
        (json!({ "key_type": "rsa", "key_bits": 2048 }), "SHA512WithRSAPSS", "rsassaPss"),
        (json!({ "key_type": "ec", "key_bits": 256 }), "", "ecdsa-with-SHA256"),
        (json!({ "key_type": "ec", "key_bits": 384 }), "", "ecdsa-with-SHA384"),
        (json!({ "key_type": "ec", "key_bits": 521 }), "", "ecdsa-with-SHA512"),
        (json!({ "key_type": "ed25519" }), "", "ED25519"),
    ];
    let files = Files::new();
    for (n, (key, setting, algorithm)) in kinds.into_iter().enumerate() {
        let name = format!("root{n}");
        let root = pki.root(with(&key, json!({ "common_name": name, "issuer_name": name }))).await;
        let fields = json!({ "issuer_name": name, "revocation_signature_algorithm": setting });
        pki.post(&format!("issuer/{name}"), fields).await;
        pki.role(&json!({})).await;
        let leaf = pki.leaf_of(&name).await;
        let root = text(&root, "certificate");
        let reply = pki.ocsp(&about(root, &leaf)).await;
        assert_eq!(reply.line("Signature Algorithm: ").as_deref(), Some(algorithm), "{name}");
        openssl_judges(root, &leaf.pem, &reply.der, "good");
        files.write(&format!("{n}.der"), &reply.der);
    }
    assert!(judge("lint_status.py", &["ocsp", files.path("").to_str().unwrap()]).contains("7 answers linted"));
    pki.stop().await;
}

#[actix_web::test]
async fn ec_issuers_sign_lists_and_ocsp_answers_with_every_ecdsa_hash() {
    let pki = Pki::empty().await;
    pki.role(&json!({})).await;
    for bits in [256, 384, 521] {
        let name = format!("p{bits}");
        let key = json!({ "key_type": "ec", "key_bits": bits, "common_name": name, "issuer_name": name });
        let root = text(&pki.root(key).await, "certificate").to_owned();
        let leaf = pki.leaf_of(&name).await;
        for hash in ["SHA256", "SHA384", "SHA512"] {
            let setting = format!("ECDSAWith{hash}");
            let fields = json!({ "issuer_name": name, "revocation_signature_algorithm": setting });
            let written = pki.post(&format!("issuer/{name}"), fields).await;
            assert_eq!(written.body["data"]["revocation_signature_algorithm"], setting);
            let algorithm = format!("ecdsa-with-{hash}");
            let crl = pki.crl(&name).await;
            assert!(crl.text.contains(&algorithm) && crl.is_signed_by(&root), "{name} {hash}: {}", crl.text);
            let reply = pki.ocsp(&about(&root, &leaf)).await;
            assert_eq!(reply.line("Signature Algorithm: "), Some(algorithm), "{name} {hash}");
            openssl_judges(&root, &leaf.pem, &reply.der, "good");
        }
        for other in ["SHA256WithRSA", "Ed25519", "ECDSAWithSHA1"] {
            let fields = json!({ "issuer_name": name, "revocation_signature_algorithm": other });
            pki.refused(&format!("issuer/{name}"), fields, "revocation_signature_algorithm: ").await;
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn issuer_status_is_answered_like_any_certificate() {
    let pki = Pki::empty().await;
    let root = Ca::root("/CN=Root");
    let below = root.intermediate("/CN=Below", &[]);
    let ids = [pki.import_one(&root.bundle()).await, pki.import_one(&below.bundle()).await];
    let ask =
        |issuer: &Ca, of: &str| request(&[cert_id(CertIdHash::Sha1, &parse(&issuer.pem), &parse(of).serial())], None);
    assert_eq!(pki.ocsp(&ask(&root, &below.pem)).await.statuses(), ["good"]);
    assert_eq!(pki.ocsp(&ask(&root, &root.pem)).await.statuses(), ["good"]);
    assert_eq!(pki.ocsp(&ask(&below, &below.pem)).await.statuses(), ["unknown"], "it did not sign itself");
    for id in ids {
        pki.post(&format!("issuer/{id}/revoke"), json!({})).await;
    }
    let reply = pki.ocsp(&ask(&root, &below.pem)).await;
    assert_eq!(reply.statuses(), ["revoked"]);
    openssl_judges(&root.pem, &below.pem, &reply.der, "revoked");
    assert_eq!(pki.ocsp(&ask(&root, &root.pem)).await.statuses(), ["revoked"]);
    pki.stop().await;
}

#[actix_web::test]
async fn certificates_that_were_not_stored_and_issuers_that_came_back() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Root");
    let id = pki.import_one(&ca.bundle()).await;
    let kept = pki.leaf().await;
    let revoked = pki.leaf().await;
    let unstored = pki.issue(&json!({ "no_store": true }), json!({ "common_name": "localhost" })).await;
    assert_eq!(pki.ocsp(&about(&ca.pem, &unstored)).await.statuses(), ["unknown"]);
    pki.post("revoke", json!({ "certificate": unstored.pem })).await;
    assert_eq!(pki.ocsp(&about(&ca.pem, &unstored)).await.statuses(), ["revoked"]);
    pki.revoke(&revoked).await;
    // The issuer is deleted, another one with its name is created, and the first one is imported again.
    assert_eq!(pki.app.client.delete(&format!("pki/issuer/{id}")).await.status, 200);
    let other = pki.root(json!({ "common_name": "Root" })).await;
    let other = about(text(&other, "certificate"), &kept);
    assert_eq!(pki.ocsp(&other).await.statuses(), ["unknown"], "it did not sign that");
    pki.import_one(&ca.bundle()).await;
    for (leaf, status) in [(&kept, "good"), (&revoked, "revoked"), (&unstored, "revoked")] {
        assert_eq!(pki.ocsp(&about(&ca.pem, leaf)).await.statuses(), [status]);
    }
    pki.stop().await;
}

#[actix_web::test]
async fn cached_responses_are_used_until_the_status_changes() {
    let start = Time::from_unix_timestamp(1_900_000_000).unwrap();
    let pki = Pki::at(start).await;
    let root = pki.default_pem().await;
    let leaf = pki.leaf().await;
    let der = about(&root, &leaf);
    let first = pki.ocsp_get(&der).await;
    let date = |at: i64| client::date(start.unix_timestamp() + at);
    let caching =
        |reply: &Reply| ["cache-control", "last-modified", "expires"].map(|name| reply.header(name).to_owned());
    let age = |left: i64| format!("max-age={left}, public, no-transform, must-revalidate");
    assert_eq!(caching(&first), [age(43_200), date(-30), date(43_200)]);
    let tag = first.header("etag").to_owned();
    assert_eq!(tag, format!("\"{}\"", client::sha256(&first.der)));
    // For an hour the response is the same, with less remaining lifetime.
    for seconds in [1, 10, 3_588] {
        pki.app.clock.advance(std::time::Duration::from_secs(seconds));
        assert_eq!(pki.ocsp(&der).await.der, first.der);
    }
    assert_eq!(caching(&pki.ocsp_get(&der).await), [age(43_200 - 3_599), date(-30), date(43_200)]);
    pki.app.clock.advance(std::time::Duration::from_secs(1));
    let second = pki.ocsp_get(&der).await;
    assert_ne!(second.der, first.der, "its time has come");
    assert_eq!(caching(&second), [age(43_200), date(3_600 - 30), date(3_600 + 43_200)]);
    // A client that has it gets 304 by the tag alone, with the remaining lifetime.
    let ask = async |header: &str, value: &str| reply(pki.ocsp_getting(&der).header(header, value)).await;
    let weak = format!("W/{}", second.header("etag"));
    let kept = second.header("etag").to_owned();
    for (sent, status) in [(kept.as_str(), 304), (&weak, 304), ("*", 304), (&tag, 200)] {
        let reply = ask("if-none-match", sent).await;
        assert_eq!((reply.status, reply.der.is_empty()), (status, status == 304), "{sent}");
        assert_eq!((caching(&reply), reply.header("etag")), (caching(&second), kept.as_str()));
    }
    assert_eq!(ask("if-modified-since", &date(100_000)).await.status, 200);
    // A response with a nonce is not cacheable, and its times are current.
    let id = cert_id(CertIdHash::Sha1, &parse(&root), &leaf.certificate.serial());
    let asked = request(&[id], Some(&[7; 32]));
    let with_nonce = pki.ocsp_get(&asked).await;
    assert_eq!((with_nonce.header("cache-control"), with_nonce.header("etag")), ("no-store", ""));
    assert_eq!(reply(pki.ocsp_getting(&asked).header("if-none-match", "*")).await.status, 200);
    // A revocation takes effect immediately despite the cache, and so does the loss of the right to sign responses.
    pki.revoke(&leaf).await;
    assert_eq!(ask("if-none-match", &kept).await.statuses(), ["revoked"]);
    assert_eq!(pki.ocsp(&der).await.statuses(), ["revoked"]);
    pki.usage("root", "read-only").await;
    pki.ocsp(&der).await.assert_fails(401, 6);
    let page = pki.app.client.page("/metrics").await.text;
    let hits = page.lines().find(|line| line.starts_with("signet_pki_ocsp_kept_total{result=\"hit\"} ")).unwrap();
    assert!(!hits.ends_with(" 0"), "{hits}");
    pki.stop().await;
}

#[actix_web::test]
async fn a_lease_that_ends_is_revoked_for_ocsp_too() {
    let pki = Pki::start().await;
    let leaf = pki.issue(&json!({ "generate_lease": true }), json!({ "common_name": "localhost" })).await;
    let der = about(&pki.default_pem().await, &leaf);
    assert_eq!(pki.ocsp(&der).await.statuses(), ["good"]);
    let lease = leaf.answer.body["lease_id"].clone();
    assert_eq!(pki.app.client.post("sys/leases/revoke", json!({ "lease_id": lease })).await.status, 204);
    assert_eq!(pki.ocsp(&der).await.statuses(), ["revoked"]);
    pki.stop().await;
}

#[actix_web::test]
async fn pkilint_finds_nothing_in_any_answer() {
    let pki = Pki::start().await;
    let root = parse(&pki.default_pem().await);
    let good = pki.leaf().await;
    let revoked = pki.leaf().await;
    pki.post("revoke", json!({ "serial_number": revoked.serial(), "reason": "keyCompromise" })).await;
    let files = Files::new();
    for (at, hash) in CertIdHash::ALL.into_iter().enumerate() {
        let ids = [&good.certificate.serial(), &revoked.certificate.serial(), &Serial::random()]
            .map(|serial| cert_id(hash, &root, serial));
        files.write(&format!("all-{at}.der"), &pki.ocsp(&request(&ids, Some(&[9; 32]))).await.der);
        files.write(&format!("one-{at}.der"), &pki.ocsp(&request(&ids[..1], None)).await.der);
    }
    let folder = files.path("");
    assert!(judge("lint_status.py", &["ocsp", folder.to_str().unwrap()]).contains("8 answers linted"));
    // pkilint detects an error: an invalid responder name.
    let id = cert_id(CertIdHash::Sha1, &root, &good.certificate.serial());
    let data = ResponseData {
        responder: &signet::x509::pieces::Name::from_der(&[0x30, 2, 5, 0]).unwrap(),
        produced_at: 1_800_000_000,
        next_update: None,
        responses: &[SingleResponse { cert_id: &id, status: OcspCertStatus::Good }],
        nonce: None,
    };
    let algorithm = signet::x509::algorithm::SignatureAlgorithm::Ed25519;
    let basic = signet::x509::tbs::encode_signed(&data.encode(), algorithm, &[0; 64]);
    files.write("wrong.der", &signet::x509::ocsp::encode_successful(&basic));
    assert!(refusal("lint_status.py", &["ocsp", folder.to_str().unwrap()]).contains("wrong.der"));
    pki.stop().await;
}

#[actix_web::test]
async fn answer_verifies_against_the_authority_alone() {
    let pki = Pki::empty().await;
    for (name, key_type, bits) in [("p256", "ec", 256), ("rsa", "rsa", 2048), ("p384", "ec", 384)] {
        pki.root(json!({ "issuer_name": name, "common_name": name, "key_type": key_type, "key_bits": bits })).await;
        pki.post("config/issuers", json!({ "default": name })).await;
        let root = pki.default_pem().await;
        let good = pki.leaf().await;
        let revoked = pki.leaf().await;
        pki.revoke(&revoked).await;
        let files = Files::new();
        let ca = files.save("ca.pem", &root);
        for leaf in [&good, &revoked] {
            let reply = pki.ocsp(&about(&root, leaf)).await;
            assert!(reply.line("Responder Id: ").unwrap().ends_with(name), "{}", reply.text());
            let answer = files.save("answer.der", &reply.der);
            let output = run("ocsptool", &["-e", "--load-response", &answer, "--load-trust", &ca], b"");
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            let output = run("openssl", &["ocsp", "-respin", &answer, "-issuer", &ca, "-CAfile", &ca], b"");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("Response verify OK"), "{name}: {said}");
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn openssl_client_works_with_and_without_nonce() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    let leaf = pki.leaf().await;
    let revoked = pki.leaf().await;
    pki.post("revoke", json!({ "serial_number": revoked.serial(), "reason": "superseded" })).await;
    let files = Files::new();
    let ca = files.save("ca.pem", &root);
    let good = files.save("good.pem", &leaf.pem);
    let bad = files.save("bad.pem", &revoked.pem);
    let url = pki.app.client.url("pki/ocsp");
    let base = ["ocsp", "-url", &url, "-issuer", &ca, "-CAfile", &ca, "-VAfile", &ca];
    let expected =
        ["Response verify OK", "good.pem: good", "bad.pem: revoked", "Reason: superseded", "0x1234567890: unknown"];
    for nonce in ["-nonce", "-no_nonce"] {
        for hash in ["-sha1", "-sha256", "-sha384", "-sha512"] {
            let more = [nonce, hash, "-cert", &good, hash, "-cert", &bad, hash, "-serial", "0x1234567890"];
            let said = client::openssl(&[&base[..], &more].concat()).await;
            for line in expected {
                assert!(said.contains(line), "{nonce} {hash}: no {line:?} in {said}");
            }
            // openssl warns if the nonce is missing in the response.
            assert!(!said.contains("WARNING"), "{said}");
        }
    }
    pki.stop().await;
}
