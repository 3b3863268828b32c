//! Every row of the PKCS #11 recovery table, with a module that returns given errors.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use signet::error::Kind;
use signet::keys::{SignerLimits, TestSign};
use signet::x509::algorithm::{Curve, KeyKind};

use super::contract::{assert_error, assert_error_has, input, sign, signs, usual};
use super::hsm::{ECDSA, Hsm, actor, backend, config, start, tests_alone, wide};

tests_alone!(
    ["one"] =>
    every_row_of_the_recovery_table_holds,
    recovery_works_at_session_open_and_key_lookup,
    externally_closed_sessions_are_reopened,
    reinitialized_library_does_not_disturb_other_keys,
    a_flood_of_errors_initialises_the_library_once_for_all,
    wrong_signature_of_a_module_is_rejected,
    key_replaced_under_its_label_is_refused,
    hanging_module_blocks_only_its_own_key,
    key_generation_falls_back_without_optional_attributes,
    closed_libraries_are_initialized_again,
);

const P256: KeyKind = KeyKind::Ec(Curve::P256);

/// Error codes, whether the backend recovers from one of them, and the error after two.
struct Row {
    codes: &'static [&'static str],
    heals: bool,
    answer: Kind,
}

const ROWS: [Row; 6] = [
    // SESSION_HANDLE_INVALID, SESSION_CLOSED, OPERATION_NOT_INITIALIZED
    Row { codes: &["0xb3", "0xb0", "0x91"], heals: true, answer: Kind::Unavailable },
    // USER_NOT_LOGGED_IN, OBJECT_HANDLE_INVALID, KEY_HANDLE_INVALID
    Row { codes: &["0x101", "0x82", "0x60"], heals: true, answer: Kind::Unavailable },
    // TOKEN_NOT_PRESENT, DEVICE_REMOVED, TOKEN_NOT_RECOGNIZED, SLOT_ID_INVALID
    Row { codes: &["0xe0", "0x32", "0xe1", "0x3"], heals: true, answer: Kind::Unavailable },
    // CRYPTOKI_NOT_INITIALIZED
    Row { codes: &["0x190"], heals: true, answer: Kind::Unavailable },
    // DEVICE_ERROR, DEVICE_MEMORY, HOST_MEMORY, GENERAL_ERROR, FUNCTION_FAILED, vendor-defined
    Row { codes: &["0x30", "0x31", "0x2", "0x5", "0x6", "0x80000001"], heals: true, answer: Kind::Unavailable },
    // MECHANISM_INVALID, KEY_TYPE_INCONSISTENT, KEY_FUNCTION_NOT_PERMITTED, MECHANISM_PARAM_INVALID, DATA_LEN_RANGE
    Row { codes: &["0x70", "0x63", "0x68", "0x71", "0x21"], heals: false, answer: Kind::Invalid },
];

async fn every_row_of_the_recovery_table_holds(hsm: &Hsm) {
    let libraries = hsm.shim();
    let key = actor(&libraries, config(ECDSA, "web", Some(P256)));
    let signer = key.signer(key.find_key(true).await.unwrap());
    for row in &ROWS {
        for code in row.codes {
            for function in ["C_SignInit", "C_Sign"] {
                signs(&signer, usual(P256), b"before").await;
                hsm.calls("C_Sign");
                hsm.order(function, &[code]);
                let once = signer.sign(usual(P256), input(&*signer, usual(P256), b"message")).await;
                assert_eq!(once.is_ok(), row.heals, "{code} {function}: {once:?}");
                hsm.order(function, &[code, code]);
                let error = signer.sign(usual(P256), input(&*signer, usual(P256), b"message")).await.unwrap_err();
                assert_eq!(error.kind(), row.answer, "{code} {function}: {error}");
                assert!(hsm.calls("C_Sign") <= 4, "{code} {function}: repeated once");
                hsm.order(function, &[]);
            }
        }
    }
    signs(&signer, usual(P256), b"after").await;
}

async fn recovery_works_at_session_open_and_key_lookup(hsm: &Hsm) {
    let libraries = hsm.shim();
    let first = actor(&libraries, config(ECDSA, "web", Some(P256))).find_key(true).await.unwrap();
    for code in ["0xb3", "0x101", "0x3", "0x190", "0x30"] {
        for function in ["C_OpenSession", "C_FindObjectsInit", "C_Login", "C_GetTokenInfo"] {
            // A new actor has no session yet.
            let key = actor(&libraries, config(ECDSA, "web", None));
            hsm.order(function, &[code]);
            let found = key.find_key(false).await;
            assert!(found.as_ref().is_ok_and(|found| *found == first), "{code} {function}: {found:?}");
            hsm.order(function, &[]);
            key.stop(Duration::from_secs(5)).await;
        }
    }
}

async fn externally_closed_sessions_are_reopened(hsm: &Hsm) {
    let libraries = hsm.shim();
    let key = wide(&libraries, config(ECDSA, "web", Some(P256)), 4);
    let signer = key.signer(key.find_key(true).await.unwrap());
    join_all((0..32).map(|_| signs(&signer, usual(P256), b"before"))).await;
    hsm.calls("C_Login");
    hsm.order("C_SignInit", &["close"]);
    join_all((0..32).map(|_| signs(&signer, usual(P256), b"after"))).await;
    let logins = hsm.calls("C_Login");
    assert!((1..=4).contains(&logins), "{logins}");
}

async fn reinitialized_library_does_not_disturb_other_keys(hsm: &Hsm) {
    let libraries = hsm.shim();
    let web = wide(&libraries, config(ECDSA, "web", Some(P256)), 2);
    let mail = wide(&libraries, config(ECDSA, "mail", Some(P256)), 2);
    let signers = [web.signer(web.find_key(true).await.unwrap()), mail.signer(mail.find_key(true).await.unwrap())];
    hsm.calls("C_Initialize");
    for _ in 0..5 {
        hsm.order("C_SignInit", &["0x190"]);
        let all = (0..40).map(|n| signs(&signers[n % 2], usual(P256), b"message"));
        join_all(all).await;
    }
    assert_eq!(hsm.calls("C_Initialize"), 5, "once each");
}

async fn a_flood_of_errors_initialises_the_library_once_for_all(hsm: &Hsm) {
    let libraries = hsm.shim();
    let key = wide(&libraries, config(ECDSA, "web", Some(P256)), 8);
    let signer = key.signer(key.find_key(true).await.unwrap());
    // All eight calls are in the module before the first one fails.
    hsm.order("C_SignInit", &["later 0x190"; 8]);
    hsm.calls("C_Initialize");
    join_all((0..8).map(|_| signs(&signer, usual(P256), b"message"))).await;
    assert_eq!(hsm.calls("C_Initialize"), 1);
}

async fn wrong_signature_of_a_module_is_rejected(hsm: &Hsm) {
    let key = actor(&hsm.shim(), config(ECDSA, "web", Some(P256)));
    let signer = key.signer(key.find_key(true).await.unwrap());
    hsm.order("C_Sign", &["flip"]);
    assert_error_has(sign(&signer, usual(P256)).await, Kind::BadGateway, "wrong signature");
    hsm.order("C_Sign", &["flip"]);
    let outcome = key.test_sign(TestSign::default()).await;
    assert_error(outcome, Kind::Invalid, "verification: the test signature does not verify");
    signs(&signer, usual(P256), b"message").await;
}

async fn key_replaced_under_its_label_is_refused(hsm: &Hsm) {
    let p256 = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    hsm.import("one", "web", "0a", &p256);
    let libraries = hsm.shim();
    let key = actor(&libraries, config(ECDSA, "web", None));
    let signer = key.signer(key.find_key(false).await.unwrap());
    signs(&signer, usual(P256), b"message").await;
    // Replaces the token and the key with others with the same names.
    hsm.remove_tokens();
    hsm.token("one");
    hsm.import("one", "web", "0a", &p256);
    let sign = || signer.sign(usual(P256), input(&*signer, usual(P256), b"message"));
    let since = Instant::now();
    loop {
        let error = sign().await.unwrap_err();
        if error.text() == "managed key changed in backend" {
            assert_eq!(error.kind(), Kind::BadGateway);
            break;
        }
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(since.elapsed() < Duration::from_secs(10), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(sign().await.is_err());
    signs(&key.signer(key.find_key(false).await.unwrap()), usual(P256), b"message").await;
}

async fn hanging_module_blocks_only_its_own_key(hsm: &Hsm) {
    let libraries = hsm.shim();
    let limits = SignerLimits { call_timeout: Duration::from_secs(2), ..SignerLimits::default() };
    let key = |label: &str| start(label, backend(&libraries, config(ECDSA, label, Some(P256))), 1, limits);
    let web = key("web");
    let mail = key("mail");
    let web_signer = web.signer(web.find_key(true).await.unwrap());
    let mail_signer = mail.signer(mail.find_key(true).await.unwrap());
    hsm.order("C_SignInit", &["sleep 7000"]);
    hsm.calls("C_Sign");
    let sign = || web_signer.sign(usual(P256), input(&*web_signer, usual(P256), b"message"));
    let since = Instant::now();
    let outcomes = join_all((0..4).map(|_| sign())).await;
    assert!(since.elapsed() < Duration::from_secs(4));
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().unwrap_err().kind() == Kind::Unavailable));
    assert_eq!(hsm.calls("C_Sign"), 0, "its only session is in the module");
    join_all((0..16).map(|_| signs(&mail_signer, usual(P256), b"message"))).await;
    assert!(since.elapsed() < Duration::from_secs(6));
    assert!(sign().await.is_err());
    tokio::time::sleep(Duration::from_millis(7100).saturating_sub(since.elapsed())).await;
    signs(&web_signer, usual(P256), b"message").await;
}

async fn key_generation_falls_back_without_optional_attributes(hsm: &Hsm) {
    hsm.order("C_GenerateKeyPair", &["0xd1"]);
    let key = actor(&hsm.shim(), config(ECDSA, "web", Some(P256)));
    let public = key.find_key(true).await.unwrap();
    assert_eq!(hsm.calls("C_GenerateKeyPair"), 2);
    signs(&key.signer(public), usual(P256), b"message").await;
}

async fn closed_libraries_are_initialized_again(hsm: &Hsm) {
    let libraries = hsm.shim();
    let key = actor(&libraries, config(ECDSA, "web", Some(P256)));
    let public = key.find_key(true).await.unwrap();
    key.stop(Duration::from_secs(5)).await;
    assert_eq!((hsm.calls("C_OpenSession"), hsm.calls("C_CloseSession")), (2, 2), "one of them to make the key");
    libraries.close();
    hsm.calls("C_Initialize");
    let key = actor(&libraries, config(ECDSA, "web", None));
    signs(&key.signer(public), usual(P256), b"message").await;
    assert_eq!(hsm.calls("C_Initialize"), 1);
}
