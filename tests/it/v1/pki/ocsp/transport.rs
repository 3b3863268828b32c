//! OCSP over HTTP: invalid bodies and paths, media types and methods.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use signet::x509::ocsp::CertIdHash;

use super::client::{openssl, openssl_judges};
use super::{Reply, about, cert_id, reply, request};
use crate::v1::pki::foreign::Files;
use crate::v1::pki::mount::{Pki, parse};

/// The rules of a request are unit tests in `src/x509/ocsp/tests.rs`.
#[actix_web::test]
async fn malformed_requests_are_rejected() {
    let pki = Pki::start().await;
    let id = cert_id(CertIdHash::Sha1, &parse(&pki.default_pem().await), &pki.leaf().await.certificate.serial());
    for body in [Vec::new(), b"garbage".to_vec(), vec![0x30; 2048], vec![0x30; 3 << 20], request(&[], None)] {
        pki.ocsp(&body).await.assert_fails(400, 1);
        if body.len() < 10_000 {
            pki.ocsp_get(&body).await.assert_fails(400, 1);
        }
    }
    let reply_with_nonce = pki.ocsp(&request(&[id], Some(&[0xab; 128]))).await;
    let shown = reply_with_nonce.text().replace([' ', '\n'], "");
    assert!(shown.contains("OCSPNonce:") && shown.contains(&"AB".repeat(12)), "{shown}");
    for path in ["!!!", "%", "%zz", "a", "AAAA=AAAA", &"A".repeat(9_000)] {
        let answer = reply(pki.app.client.request("GET", &format!("pki/ocsp/{path}"))).await;
        answer.assert_fails(400, 1);
    }
    reply(pki.app.client.request("GET", "pki/ocsp/")).await.assert_fails(400, 1);
    assert_eq!(pki.app.client.get("pki/ocsp").await.status, 405);
    assert_eq!(pki.app.client.post("pki/ocsp/AAAA", json!({})).await.status, 405);
    pki.stop().await;
}

#[actix_web::test]
async fn the_media_type_of_a_body() {
    let pki = Pki::start().await;
    let der = about(&pki.default_pem().await, &pki.leaf().await);
    let send = async |media_type: Option<&str>| -> Reply {
        let request = pki.app.client.with_token("").request("POST", "pki/ocsp").body(der.clone());
        reply(media_type.map_or(request.try_clone().unwrap(), |t| request.header("content-type", t))).await
    };
    for taken in [None, Some("application/ocsp-request"), Some("Application/OCSP-Request; x=y")] {
        assert_eq!(send(taken).await.statuses(), ["good"], "{taken:?}");
    }
    for refused in ["application/json", "application/x-www-form-urlencoded", "application/ocsp-response", "x"] {
        send(Some(refused)).await.assert_fails(415, 1);
    }
    pki.stop().await;
}

/// Returns a request whose base64 has all the characters that are special in a path.
async fn awkward(pki: &Pki) -> String {
    let root = parse(&pki.default_pem().await);
    let leaf = pki.leaf().await;
    let id = cert_id(CertIdHash::Sha1, &root, &leaf.certificate.serial());
    for n in 0_u32..100_000 {
        let mut nonce = [0xff; 12];
        nonce[8..].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_be_bytes());
        let text = STANDARD.encode(request(std::slice::from_ref(&id), Some(&nonce)));
        if text.contains("//") && text.contains('+') {
            return text;
        }
    }
    panic!("no such request");
}

#[actix_web::test]
async fn base64_survives_the_path_however_it_is_written() {
    let pki = Pki::start().await;
    let text = awkward(&pki).await;
    let spellings = [
        text.clone(),
        text.trim_end_matches('=').to_owned(),
        text.replace('/', "%2F").replace('+', "%2b").replace('=', "%3D"),
        text.replace('+', "%20"),
        text.bytes().map(|b| format!("%{b:02X}")).collect(),
    ];
    for path in spellings {
        for mount in ["pki", "deep/er"] {
            // The HTTP client of the tests would normalize the path.
            let answer = pki.app.raw_get(&format!("/v1/{mount}/ocsp/{path}")).await;
            let expected = if mount == "pki" { "HTTP/1.1 200" } else { "HTTP/1.1 400" };
            assert!(answer.starts_with(expected), "{mount} {path}: {answer}");
        }
    }
    // Such paths are still rejected elsewhere, and in all other parts of the path.
    for path in ["pki//ocsp/AAAA", "pki/../pki/ocsp/AAAA", "pki/cert//AAAA", "pki/ocspx//A", "pki%2Focsp/AAAA"] {
        let answer = pki.app.raw_get(&format!("/v1/{path}")).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("application/json"), "{path}: {answer}");
    }
    pki.app.client.post("sys/mounts/deep/er", json!({ "type": "pki" })).await;
    let answer = pki.app.raw_get(&format!("/v1/deep/er/ocsp/{text}")).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "a mount without issuers: {answer}");
    pki.stop().await;
}

#[actix_web::test]
async fn curl_get_of_an_openssl_request_works() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    let leaf = pki.leaf().await;
    let files = Files::new();
    let ca = files.save("ca.pem", &root);
    let cert = files.save("leaf.pem", &leaf.pem);
    let [ask, answer] = ["ask.der", "answer.der"].map(|name| files.path(name).to_str().unwrap().to_owned());
    openssl(&["ocsp", "-no_nonce", "-issuer", &ca, "-cert", &cert, "-reqout", &ask]).await;
    let url = pki.app.client.url(&format!("pki/ocsp/{}", STANDARD.encode(std::fs::read(&ask).unwrap())));
    let fetched = tokio::task::spawn_blocking(move || {
        std::process::Command::new("curl")
            .args(["-sS", "--noproxy", "*", "--path-as-is", "-o", &answer, &url])
            .status()
            .unwrap();
        std::fs::read(answer).unwrap()
    });
    openssl_judges(&root, &leaf.pem, &fetched.await.unwrap(), "good");
    pki.stop().await;
}

#[actix_web::test]
async fn head_has_the_headers_of_get_and_no_body() {
    let pki = Pki::start().await;
    let text = STANDARD.encode(about(&pki.default_pem().await, &pki.leaf().await)).replace('+', "%2B");
    let get = reply(pki.app.client.request("GET", &format!("pki/ocsp/{text}"))).await;
    let head = reply(pki.app.client.request("HEAD", &format!("pki/ocsp/{text}"))).await;
    assert_eq!((head.status, head.der.len(), head.header("etag")), (200, 0, get.header("etag")));
    pki.stop().await;
}

#[actix_web::test]
async fn the_unified_paths_answer_when_they_are_switched_on() {
    let pki = Pki::start().await;
    let der = about(&pki.default_pem().await, &pki.leaf().await);
    let text = STANDARD.encode(&der).replace('+', "%2B");
    let both = async || {
        let post =
            pki.app.client.request("POST", "pki/unified-ocsp").header("content-type", "application/ocsp-request");
        [
            reply(post.body(der.clone())).await,
            reply(pki.app.client.request("GET", &format!("pki/unified-ocsp/{text}"))).await,
        ]
    };
    both().await.iter().for_each(|reply| reply.assert_fails(401, 6));
    pki.post("config/crl", json!({ "auto_rebuild": true, "unified_crl": true })).await;
    both().await.iter().for_each(|reply| assert_eq!(reply.statuses(), ["good"]));
    pki.stop().await;
}
