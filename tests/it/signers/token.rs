//! Behaviour per token instead of per key: login and PINs, session limits, removed tokens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use signet::error::Kind;
use signet::keys::pkcs11::TokenAddress;
use signet::keys::{Libraries, Pkcs11Config, RemoteSigner, SignerActor, TestSign};
use signet::secret::Secret;
use signet::x509::algorithm::{Curve, KeyKind};

use super::contract::{assert_error, input, sign, signs, usual};
use super::hsm::{ECDSA, Hsm, PIN, actor, backend, config, tests_alone, wide};

tests_alone!(
    ["one"] =>
    wrong_pin_is_tried_once_and_right_pin_recovers,
    keys_of_one_token_share_its_login_and_other_pin_is_not_tried,
    token_at_its_last_pin_attempt_is_not_tried,
    a_token_with_few_sessions_is_shared_and_none_starves,
    session_limit_of_a_token_is_respected,
    token_with_unreadable_information_works_by_slot,
    a_token_that_is_pulled_and_put_back_signs_again,
    a_test_signature_finds_a_token_that_is_back_within_seconds,
    absent_tokens_share_rate_limited_reinitialization,
    absent_token_does_not_block_others_during_a_hanging_call,
    missing_key_is_reported_without_reinitialization,
);

const P256: KeyKind = KeyKind::Ec(Curve::P256);

fn with_pin(label: &str, pin: &str) -> Pkcs11Config {
    Pkcs11Config { pin: Secret::new(pin), ..config(ECDSA, label, Some(P256)) }
}

async fn kind_of(actor: &SignerActor) -> (Kind, String) {
    let error = actor.find_key(false).await.unwrap_err();
    (error.kind(), error.text().to_owned())
}

async fn wrong_pin_is_tried_once_and_right_pin_recovers(hsm: &Hsm) {
    let libraries = hsm.shim();
    let key = wide(&libraries, with_pin("web", "wrong"), 4);
    let tried = join_all((0..8).map(|_| kind_of(&key))).await;
    assert!(tried.iter().all(|(kind, _)| *kind == Kind::BadGateway), "{tried:?}");
    assert_eq!(hsm.calls("C_Login"), 1);
    // Another key with the same PIN, configured earlier, and the first key again.
    assert_eq!(kind_of(&key).await.0, Kind::BadGateway);
    assert_eq!(hsm.calls("C_Login"), 0);
    // A test signature always makes one attempt.
    let outcome = key.test_sign(TestSign::default()).await;
    assert_error(outcome, Kind::Invalid, "configuration: pkcs11 module: C_Login: CKR_PIN_INCORRECT");
    assert_eq!(hsm.calls("C_Login"), 1);
    kind_of(&key).await;
    assert_eq!(hsm.calls("C_Login"), 0);
    // Configured again with the same PIN: one attempt. With the right PIN: it works.
    key.configure(backend(&libraries, with_pin("web", "wrong")), 4).unwrap();
    join_all((0..8).map(|_| kind_of(&key))).await;
    assert_eq!(hsm.calls("C_Login"), 1);
    key.configure(backend(&libraries, with_pin("web", PIN)), 4).unwrap();
    signs(&key.signer(key.find_key(true).await.unwrap()), usual(P256), b"message").await;
    assert_eq!(hsm.calls("C_Login"), 1);
}

async fn keys_of_one_token_share_its_login_and_other_pin_is_not_tried(hsm: &Hsm) {
    let libraries = hsm.shim();
    let web = wide(&libraries, with_pin("web", PIN), 4);
    let mail = wide(&libraries, with_pin("mail", PIN), 4);
    let web_key = web.find_key(true).await.unwrap();
    let mail_key = mail.find_key(true).await.unwrap();
    let web_signer = web.signer(web_key);
    let mail_signer = mail.signer(mail_key);
    join_all((0..16).map(|_| signs(&web_signer, usual(P256), b"web"))).await;
    join_all((0..16).map(|_| signs(&mail_signer, usual(P256), b"mail"))).await;
    assert_eq!(hsm.calls("C_Login"), 1);
    let other = actor(&libraries, with_pin("other", "guess"));
    let text = "a different pin is in use for this token".to_owned();
    assert_eq!(kind_of(&other).await, (Kind::BadGateway, text));
    assert_eq!(hsm.calls("C_Login"), 0);
    signs(&web_signer, usual(P256), b"web").await;
}

async fn token_at_its_last_pin_attempt_is_not_tried(hsm: &Hsm) {
    let libraries = hsm.shim();
    // The third read of the token information precedes the login.
    hsm.order("C_GetTokenInfo", &["", "", "final"]);
    let key = actor(&libraries, with_pin("web", PIN));
    let (kind, text) = kind_of(&key).await;
    assert_eq!(kind, Kind::BadGateway);
    assert!(text.contains("one more pin attempt"), "{text}");
    assert_eq!(hsm.calls("C_Login"), 0);
    key.find_key(true).await.unwrap();
}

async fn a_token_with_few_sessions_is_shared_and_none_starves(hsm: &Hsm) {
    let libraries = hsm.shim();
    let made = actor(&libraries, with_pin("web", PIN)).find_key(true).await.unwrap();
    actor(&libraries, with_pin("mail", PIN)).find_key(true).await.unwrap();
    // The first key uses the last free session, and releases it when another key needs it.
    hsm.order("C_OpenSession", &["", "0xb1"]);
    let web = actor(&libraries, with_pin("web", PIN));
    let other = actor(&libraries, with_pin("mail", PIN));
    let signer = web.signer(made);
    signs(&signer, usual(P256), b"message").await;
    let since = Instant::now();
    other.find_key(false).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(3));
    signs(&signer, usual(P256), b"message").await;
}

async fn session_limit_of_a_token_is_respected(hsm: &Hsm) {
    let libraries = hsm.shim();
    // Of three sessions, one is left to other applications.
    hsm.order("C_GetTokenInfo", &["sessions 3"; 20]);
    let key = wide(&libraries, with_pin("web", PIN), 8);
    let signer = key.signer(key.find_key(true).await.unwrap());
    hsm.order("C_SignInit", &["sleep 50"; 16]);
    join_all((0..16).map(|_| signs(&signer, usual(P256), b"message"))).await;
    assert_eq!(hsm.most_open(), 2);
}

async fn token_with_unreadable_information_works_by_slot(hsm: &Hsm) {
    let token = TokenAddress::Slot(hsm.slot("one"));
    let libraries = hsm.shim();
    hsm.order("C_GetTokenInfo", &["nonsense"; 50]);
    let key = actor(&libraries, Pkcs11Config { token, ..with_pin("web", PIN) });
    signs(&key.signer(key.find_key(true).await.unwrap()), usual(P256), b"message").await;
    assert!(hsm.calls("C_GetTokenInfo") > 0);
}

async fn a_token_that_is_pulled_and_put_back_signs_again(hsm: &Hsm) {
    let libraries = hsm.libraries();
    pulled_and_put_back(hsm, wide(&libraries, with_pin("web", PIN), 2)).await;
    let token = TokenAddress::Slot(hsm.slot("one"));
    pulled_and_put_back(hsm, wide(&libraries, Pkcs11Config { token, ..with_pin("web", PIN) }, 2)).await;
}

async fn pulled_and_put_back(hsm: &Hsm, key: SignerActor) {
    let signer = key.signer(key.find_key(true).await.unwrap());
    signs(&signer, usual(P256), b"message").await;
    hsm.remove_tokens();
    let sign = || signer.sign(usual(P256), input(&*signer, usual(P256), b"message"));
    for _ in 0..8 {
        let error = sign().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    }
    // Wait until a lookup on the missing token has failed.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(sign().await.unwrap_err().kind(), Kind::Unavailable);
    hsm.restore_tokens();
    let since = Instant::now();
    let mut heard = Vec::new();
    while let Err(error) = sign().await {
        heard.push(error.text().to_owned());
        heard.dedup();
        assert!(since.elapsed() < Duration::from_secs(10), "it does not come back: {heard:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    join_all((0..8).map(|_| signs(&signer, usual(P256), b"message"))).await;
}

async fn a_test_signature_finds_a_token_that_is_back_within_seconds(hsm: &Hsm) {
    let key = actor(&hsm.libraries(), with_pin("web", PIN));
    key.test_sign(TestSign::default()).await.unwrap();
    hsm.remove_tokens();
    let error = key.test_sign(TestSign::default()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.text().starts_with("backend: "), "{error}");
    assert!(key.test_sign(TestSign::default()).await.is_err());
    hsm.restore_tokens();
    let since = Instant::now();
    while let Err(error) = key.test_sign(TestSign::default()).await {
        assert!(since.elapsed() < Duration::from_secs(20), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    key.find_key(false).await.unwrap();
}

/// A key on a token that does not exist.
fn absent(libraries: &Libraries, label: &str) -> SignerActor {
    actor(libraries, Pkcs11Config { token: TokenAddress::Label("absent".to_owned()), ..with_pin(label, PIN) })
}

async fn loops(key: &SignerActor, time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        assert_eq!(key.test_sign(TestSign::default()).await.unwrap_err().kind(), Kind::Unavailable);
    }
}

async fn slowest(signer: &Arc<dyn RemoteSigner>, time: Duration) -> Duration {
    let since = Instant::now();
    let mut slowest = Duration::ZERO;
    while since.elapsed() < time {
        let began = Instant::now();
        signs(signer, usual(P256), b"message").await;
        slowest = slowest.max(began.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    slowest
}

async fn absent_tokens_share_rate_limited_reinitialization(hsm: &Hsm) {
    let libraries = hsm.shim();
    let time = Duration::from_millis(2500);
    let web = actor(&libraries, with_pin("web", PIN));
    let signer = web.signer(web.find_key(true).await.unwrap());
    hsm.calls("C_Initialize");
    let keys = ["a", "b", "c"].map(|label| absent(&libraries, label));
    tokio::join!(slowest(&signer, time), loops(&keys[0], time), loops(&keys[1], time), loops(&keys[2], time));
    // Immediately and after one second; the next is after three.
    let initialised = hsm.calls("C_Initialize");
    assert!((1..=3).contains(&initialised), "{initialised}");
}

async fn absent_token_does_not_block_others_during_a_hanging_call(hsm: &Hsm) {
    let libraries = hsm.shim();
    let time = Duration::from_secs(3);
    let web = actor(&libraries, with_pin("web", PIN));
    let stuck = actor(&libraries, with_pin("stuck", PIN));
    let signer = web.signer(web.find_key(true).await.unwrap());
    let hanging = stuck.signer(stuck.find_key(true).await.unwrap());
    hsm.order("C_SignInit", &["sleep 5000"]);
    let hangs = tokio::spawn(async move { signs(&hanging, usual(P256), b"message").await });
    // The call is now older than a re-initialization waits for.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    hsm.calls("C_Initialize");
    let gone = absent(&libraries, "gone");
    let (slowest, ()) = tokio::join!(slowest(&signer, time), loops(&gone, time));
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert_eq!(hsm.calls("C_Initialize"), 0);
    hangs.await.unwrap();
}

async fn missing_key_is_reported_without_reinitialization(hsm: &Hsm) {
    let libraries = hsm.shim();
    let public = actor(&libraries, with_pin("web", PIN)).find_key(true).await.unwrap();
    hsm.calls("C_Initialize");
    let missing = actor(&libraries, config(ECDSA, "missing", None));
    let signer = missing.signer(public);
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1500) {
        let text = "the managed key no longer exists in its backend";
        assert_error(sign(&signer, usual(P256)).await, Kind::Unavailable, text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(hsm.calls("C_Initialize"), 0);
}
