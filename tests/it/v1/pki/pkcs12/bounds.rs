//! Limit on the CPU time of a PKCS #12 file, and its effect on other callers.

use std::thread::available_parallelism;

use serde_json::json;
use signet::rationing::MAX_WAITING_PER_CALLER;
use tokio::task::JoinSet;

use super::{PASSWORD, exported, import_body};
use crate::process::dev;
use crate::v1::pki::foreign::Ca;
use crate::v1::pki::mount::{Pki, with};
use crate::v1::rights::{granted, only_by};

/// Maximum total iterations of a file's key derivations.
const MAX_ITERATIONS: u32 = 3_000_000;
/// Key derivations of a file from openssl: for the MAC, the certificates and the key.
const DERIVATIONS: u32 = 3;

#[actix_web::test]
async fn pkcs12_import_beyond_iteration_limit_is_rejected() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Slow");
    let file = |iterations: u32| exported(&ca, &["-iter", &iterations.to_string()]);
    let most = MAX_ITERATIONS / DERIVATIONS;
    let rule = "p12: the key derivations of the file take more than 3000000 iterations together";
    let beyond = import_body(&file(most + 1));
    for path in ["issuers/import/bundle", "config/ca", "keys/import"] {
        pki.refused(path, beyond.clone(), rule).await;
    }
    let imported = pki.post("issuers/import/bundle", import_body(&file(most))).await.body["data"].clone();
    assert_eq!(imported["imported_keys"].as_array().map(Vec::len), Some(1), "{imported}");
    pki.stop().await;
}

#[actix_web::test]
async fn pkcs12_imports_of_one_token_do_not_delay_issue_of_another() {
    let dev = dev(&[]);
    let root = dev.client();
    let importer = only_by(&root, "importer", &granted("pki/issuers/import/bundle", &["update"])).await;
    let issuer = only_by(&root, "issuer", &granted("pki/issue/dev", &["update"])).await;
    let file = exported(&Ca::root("/CN=Slow"), &["-nokeys", "-iter", &MAX_ITERATIONS.to_string()]);
    let body = with(&import_body(&file), json!({ "password": "wrong" }));
    let running = available_parallelism().map_or(1, usize::from);
    let mut imports = JoinSet::new();
    for _ in 0..MAX_WAITING_PER_CALLER + running + 16 {
        let importer = importer.clone();
        let body = body.clone();
        imports.spawn(async move { importer.post("pki/issuers/import/bundle", body).await });
    }
    let refused = loop {
        let answer = imports.join_next().await.expect("the queue of the importer is full").unwrap();
        if answer.status != 400 {
            break answer;
        }
        assert!(answer.error().starts_with("password: wrong"), "{}", answer.text);
    };
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"), "{}", refused.text);
    assert!(refused.error().contains("retry"), "{}", refused.text);
    let plain = json!({ "common_name": "a.dev.test" });
    let p12 = with(&plain, json!({ "format": "p12", "password": PASSWORD }));
    for request in [plain, p12] {
        let issued = issuer.post("pki/issue/dev", request).await;
        assert_eq!(issued.status, 200, "{}", issued.text);
    }
    while let Some(answer) = imports.try_join_next() {
        let answer = answer.unwrap();
        assert!(matches!(answer.status, 400 | 503), "{}: {}", answer.status, answer.text);
    }
    assert!(!imports.is_empty(), "imports wait while the other token is served");
    dev.kill();
}
