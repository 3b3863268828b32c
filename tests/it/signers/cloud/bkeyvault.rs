//! `cloudbkeyvault` with its simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use signet::clock::Clock;
use signet::error::Kind;
use signet::keys::cloudbkeyvault::backend;
use signet::keys::{AzureSettings, CloudBkeyvaultConfig, CloudServices, CloudSettings, RemoteSigner, SignerActor};
use signet::secret::Secret;
use signet::x509::algorithm::KeyKind;

use super::super::contract::{Subject, assert_error, holds, input, sign, signs, usual};
use super::server::{Told, serve};
use super::vault::{CLIENT, SECRET, TENANT, Vault, settings};
use super::{actor, lacks, refusal};

const KIND: KeyKind = KeyKind::Rsa { bits: 2048 };

fn services(azure: AzureSettings) -> Arc<CloudServices> {
    CloudServices::new(CloudSettings { azure, ..CloudSettings::default() }, Clock::system()).unwrap()
}

fn config(secret: &str) -> CloudBkeyvaultConfig {
    CloudBkeyvaultConfig {
        tenant_id: TENANT.to_owned(),
        client_id: if secret.is_empty() { "" } else { CLIENT }.to_owned(),
        client_secret: Secret::new(secret),
        vault_name: "store".to_owned(),
        key_name: "key".to_owned(),
        key_type: "RSA-HSM".to_owned(),
        key_bits: "2048".to_owned(),
        ..CloudBkeyvaultConfig::default()
    }
}

fn key(vault: &Vault, generate: bool) -> SignerActor {
    actor(backend(&services(vault.settings()), config(SECRET), generate).unwrap())
}

#[tokio::test]
async fn rsa_keys_of_the_store_hold_the_contract_with_one_token() {
    let vault = Vault::start();
    holds(Subject {
        kind: KIND,
        maker: key(&vault, true),
        user: key(&vault, false),
        generates: true,
        refuses: vec![],
        lacks: lacks(|_, _| false),
    })
    .await;
    let state = vault.lock();
    assert_eq!(state.keys["key"].len(), 1);
    // One access token for each of the two actors.
    assert_eq!(state.grants, 2);
}

#[tokio::test]
async fn challenge_naming_another_authority_gets_no_credential() {
    let foreign = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&foreign);
    let elsewhere = serve(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        Told::new(200, json!({"access_token": "t", "expires_in": 3599}))
    });
    let vault = Vault::start();
    {
        let mut state = vault.lock();
        state.make("key", "RSA-HSM", 2048);
        state.closed = true;
        state.authority = elsewhere;
    }
    let key = key(&vault, false);
    let text = "configuration: cloudbkeyvault: the key store rejected the credential of this server";
    for _ in 0..4 {
        assert_eq!(refusal(&key).await, text);
    }
    assert_eq!(foreign.load(Ordering::SeqCst), 0);
    // The rejected token and its replacement; further replacements are delayed.
    assert_eq!(vault.lock().grants, 2);
    vault.lock().closed = false;
    key.test_sign(Default::default()).await.unwrap();
}

#[tokio::test]
async fn managed_identity_signs_without_a_secret() {
    let vault = Vault::start();
    let key = actor(backend(&services(vault.settings()), config(""), true).unwrap());
    key.test_sign(Default::default()).await.unwrap();
    assert!(vault.lock().tokens.iter().all(|token| token.starts_with("identity-token-")));
}

#[tokio::test]
async fn wrong_secret_and_unreachable_store_are_distinguished() {
    let vault = Vault::start();
    let wrong = actor(backend(&services(vault.settings()), config("another secret"), false).unwrap());
    let text = "cloudbkeyvault: the directory refused the service's credential (status 401)";
    assert_error(wrong.find_key(false).await, Kind::BadGateway, text);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = actor(backend(&services(settings(&format!("http://{free}"))), config(SECRET), false).unwrap());
    let error = away.find_key(false).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.text().starts_with("cloudbkeyvault: the directory: cannot be reached"), "{error}");
}

#[tokio::test]
async fn key_that_contradicts_the_configuration_is_rejected() {
    for (kty, bits, enabled, text) in [
        ("RSA", 2048, true, "the type of the key is \"RSA\", but must be RSA-HSM"),
        ("RSA-HSM", 3072, true, "the key has 3072 bits, but must have 2048"),
        ("RSA-HSM", 2048, false, "the key is disabled"),
    ] {
        let vault = Vault::start();
        vault.lock().make("key", kty, bits);
        vault.lock().keys.get_mut("key").unwrap()[0].enabled = enabled;
        assert_eq!(refusal(&key(&vault, false)).await, format!("configuration: cloudbkeyvault: {text}"));
    }
}

#[tokio::test]
async fn key_version_stays_fixed_for_existing_signers() {
    let vault = Vault::start();
    let actor = key(&vault, true);
    let taken = actor.find_key(true).await.unwrap();
    let signer = actor.signer(taken.clone());
    vault.lock().make("key", "RSA-HSM", 2048);
    signs(&signer, usual(KIND), b"message").await;
    // A new use of the name gets the new version; earlier users keep theirs.
    let other = actor.find_key(false).await.unwrap();
    assert!(other.public != *signer.public());
    actor.test_sign(Default::default()).await.unwrap();
    for signer in [&signer, &actor.signer(other)] {
        signs(signer, usual(KIND), b"message").await;
    }
    let again = key(&vault, true).signer(taken.clone());
    signs(&again, usual(KIND), b"message").await;
    // If only the public key is known, the name determines the key.
    let unknown = key(&vault, true).signer(taken.public.clone().into());
    let refused = async |signer: &Arc<dyn RemoteSigner>| {
        let error = signer.sign(usual(KIND), input(&**signer, usual(KIND), b"message")).await.unwrap_err();
        (error.kind(), error.text().to_owned())
    };
    let changed = (Kind::BadGateway, "managed key changed in backend".to_owned());
    assert_eq!(refused(&unknown).await, changed);
    // The old version is deleted: first the store's own error, then the error of the changed key.
    vault.lock().keys.get_mut("key").unwrap().remove(0);
    assert_eq!(refused(&again).await.0, Kind::BadGateway);
    assert_eq!(refused(&again).await, changed);
}

#[tokio::test]
async fn disabled_key_is_rejected_until_it_is_enabled() {
    let vault = Vault::start();
    let actor = key(&vault, true);
    let signer = actor.signer(actor.find_key(true).await.unwrap());
    let enable = |enabled| vault.lock().keys.get_mut("key").unwrap()[0].enabled = enabled;
    enable(false);
    for _ in 0..2 {
        assert_error(sign(&signer, usual(KIND)).await, Kind::BadGateway, "cloudbkeyvault: the key is disabled");
    }
    enable(true);
    signs(&signer, usual(KIND), b"message").await;
}

#[tokio::test]
async fn busy_key_store_is_retried_a_limited_number_of_times() {
    let vault = Vault::start();
    let actor = key(&vault, true);
    let signer = actor.signer(actor.find_key(true).await.unwrap());
    let busy = || Told(429, json!({}), Some(("Retry-After", "0".to_owned())));
    vault.lock().instead.extend([busy(), Told::new(503, json!({}))]);
    signs(&signer, usual(KIND), b"message").await;
    vault.lock().instead.extend((0..4).map(|_| busy()));
    let text = "cloudbkeyvault: the key store: answered with status 429";
    assert_error(sign(&signer, usual(KIND)).await, Kind::Unavailable, text);
    assert!(vault.lock().instead.is_empty(), "four times");
}

#[tokio::test]
async fn invalid_responses_are_rejected() {
    let vault = Vault::start();
    let actor = key(&vault, true);
    let signer = actor.signer(actor.find_key(true).await.unwrap());
    let sent_on = Told(302, json!({}), Some(("Location", format!("{}/elsewhere", vault.url))));
    for (told, text) in [
        (
            Told::new(200, json!({"value": "x".repeat(1 << 20)})),
            "cloudbkeyvault: the key store: its response is larger than 1 MiB",
        ),
        (Told::new(200, json!({"other": 1})), "cloudbkeyvault: the key store: its response has an unexpected form"),
        (
            Told::new(200, json!({"value": "no base64!"})),
            "cloudbkeyvault: the key store: its response has an unexpected form",
        ),
        (Told::new(200, json!({"value": "AAAA"})), "the backend of the managed key returned a wrong signature"),
        (Told::new(400, json!("canary")), "cloudbkeyvault: the key store refused the request (status 400)"),
        (sent_on, "cloudbkeyvault: the key store refused the request (status 302)"),
    ] {
        vault.lock().instead.push_back(told);
        assert_error(sign(&signer, usual(KIND)).await, Kind::BadGateway, text);
    }
    assert!(!vault.lock().asked.iter().any(|path| path == "/elsewhere"));
}
