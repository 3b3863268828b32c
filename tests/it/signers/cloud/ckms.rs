//! `cloudckms` with its simulation.

use std::sync::Arc;

use signet::clock::Clock;
use signet::error::Kind;
use signet::keys::cloudckms::backend;
use signet::keys::{CloudCkmsConfig, CloudServices, CloudSettings, GoogleSettings, SignerActor, TestHash, TestSign};
use signet::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};

use super::super::contract::{Subject, algorithms, assert_error, holds, input, signs, usual};
use super::kms::{Fault, Kms};
use super::{actor, lacks, refusal};

fn services(google: GoogleSettings) -> Arc<CloudServices> {
    CloudServices::new(CloudSettings { google, ..CloudSettings::default() }, Clock::system()).unwrap()
}

fn config(algorithm: &str) -> CloudCkmsConfig {
    CloudCkmsConfig {
        crypto_key: "key".to_owned(),
        key_ring: "ring".to_owned(),
        project: "project".to_owned(),
        region: "europe-west3".to_owned(),
        algorithm: algorithm.to_owned(),
        ..CloudCkmsConfig::default()
    }
}

fn key(kms: &Kms, algorithm: &str, generate: bool) -> SignerActor {
    actor(backend(&services(kms.settings()), config(algorithm), generate).unwrap())
}

async fn contract(algorithm: &str, kind: KeyKind, signs: SignatureAlgorithm) {
    let kms = Kms::start();
    let fits = |hash: TestHash, pss: bool| match signs {
        SignatureAlgorithm::RsaPss(own) => pss && hash == own.into(),
        _ => !pss && signs.hash().is_some_and(|own| hash == own.into()),
    };
    holds(Subject {
        kind,
        maker: key(&kms, algorithm, true),
        user: key(&kms, algorithm, false),
        generates: true,
        refuses: algorithms().filter(|other| other.fits(kind) && *other != signs).collect(),
        lacks: lacks(|hash, pss| !fits(hash, pss)),
    })
    .await;
    assert_eq!(kms.lock().keys.len(), 1);
}

#[tokio::test]
async fn ec_keys_meet_the_contract() {
    contract("EC_SIGN_P256_SHA256", KeyKind::Ec(Curve::P256), SignatureAlgorithm::Ecdsa(Hash::Sha256)).await;
    contract("EC_SIGN_P384_SHA384", KeyKind::Ec(Curve::P384), SignatureAlgorithm::Ecdsa(Hash::Sha384)).await;
}

#[tokio::test]
async fn rsa_keys_meet_the_contract_with_their_only_algorithm() {
    let rsa = |bits| KeyKind::Rsa { bits };
    contract("RSA_SIGN_PKCS1_2048_SHA256", rsa(2048), SignatureAlgorithm::RsaPkcs1(Hash::Sha256)).await;
    contract("RSA_SIGN_PSS_3072_SHA256", rsa(3072), SignatureAlgorithm::RsaPss(Hash::Sha256)).await;
    contract("RSA_SIGN_PSS_4096_SHA512", rsa(4096), SignatureAlgorithm::RsaPss(Hash::Sha512)).await;
}

#[tokio::test]
async fn corrupt_or_mismatched_response_is_rejected() {
    let kms = Kms::start();
    let actor = key(&kms, "EC_SIGN_P256_SHA256", true);
    let signer = actor.signer(actor.find_key(true).await.unwrap());
    let algorithm = usual(signer.public().kind());
    for (fault, text) in [
        (Fault::SignatureChecksum, "cloudckms: the key service: its response was corrupted in transit"),
        (Fault::DigestNotVerified, "cloudckms: the key service: its response is not for the digest that was sent"),
        (Fault::AnotherName, "cloudckms: the key service: its response is about another key"),
        (Fault::PemChecksum, "cloudckms: the key service: its response was corrupted in transit"),
    ] {
        kms.lock().fault = Some(fault);
        let error = if fault == Fault::PemChecksum {
            actor.find_key(false).await.unwrap_err()
        } else {
            signer.sign(algorithm, input(&*signer, algorithm, b"message")).await.unwrap_err()
        };
        assert_eq!((error.kind(), error.text()), (Kind::BadGateway, text), "{fault:?}");
        kms.lock().fault = None;
        signs(&signer, algorithm, b"message").await;
    }
}

#[tokio::test]
async fn test_signature_uses_only_the_algorithm_of_the_key() {
    let kms = Kms::start();
    let actor = key(&kms, "RSA_SIGN_PSS_2048_SHA256", true);
    actor.test_sign(TestSign::default()).await.unwrap();
    for use_pss in [None, Some(true)] {
        actor.test_sign(TestSign { hash: Some(TestHash::Sha256), use_pss }).await.unwrap();
    }
    for test in
        [TestSign { hash: None, use_pss: Some(false) }, TestSign { hash: Some(TestHash::Sha512), use_pss: None }]
    {
        let error = actor.test_sign(test).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        let text = "configuration: algorithm RSA_SIGN_PSS_2048_SHA256 supports only SHA256WithRSAPSS, not ";
        assert!(error.text().starts_with(text), "{error}");
    }
}

#[tokio::test]
async fn key_that_contradicts_the_configuration_is_rejected() {
    let kms = Kms::start();
    kms.lock().make("key", "EC_SIGN_P384_SHA384", 0);
    let other = key(&kms, "EC_SIGN_P256_SHA256", true);
    let text = "the algorithm of the key is \"EC_SIGN_P384_SHA384\", but must be EC_SIGN_P256_SHA256";
    assert_eq!(refusal(&other).await, format!("configuration: cloudckms: {text}"));
    kms.lock().keys.get_mut("key").unwrap().state = "DISABLED".to_owned();
    let text = "configuration: cloudckms: the state of the key is \"DISABLED\", but must be ENABLED";
    assert_eq!(refusal(&key(&kms, "EC_SIGN_P384_SHA384", true)).await, text);
    let version = CloudCkmsConfig { crypto_key_version: "7".to_owned(), ..config("EC_SIGN_P384_SHA384") };
    let actor = actor(backend(&services(kms.settings()), version, false).unwrap());
    assert_eq!(refusal(&actor).await, "configuration: cloudckms: the key has no such crypto_key_version");
}

#[tokio::test]
async fn key_ring_is_not_created_and_pending_key_is_retried() {
    let kms = Kms::start();
    let config = CloudCkmsConfig { key_ring: "absent".to_owned(), ..config("EC_SIGN_P256_SHA256") };
    let absent = actor(backend(&services(kms.settings()), config, true).unwrap());
    assert_eq!(refusal(&absent).await, "configuration: cloudckms: the key_ring does not exist");
    kms.lock().make("key", "EC_SIGN_P256_SHA256", 1);
    let user = key(&kms, "EC_SIGN_P256_SHA256", false);
    assert_error(user.find_key(false).await, Kind::Unavailable, "cloudckms: the key is being generated; retry shortly");
    user.find_key(false).await.unwrap();
}

#[tokio::test]
async fn service_account_file_determines_the_credential() {
    let kms = Kms::start();
    kms.lock().make("key", "EC_SIGN_P256_SHA256", 0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signer.json");
    kms.account(&file);
    let named = CloudCkmsConfig { credentials: file.to_str().unwrap().to_owned(), ..config("EC_SIGN_P256_SHA256") };
    let own = GoogleSettings { credentials_dir: Some(folder.path().to_owned()), ..kms.settings() };
    let signer = actor(backend(&services(own.clone()), named.clone(), false).unwrap());
    signer.test_sign(TestSign::default()).await.unwrap();
    assert_eq!(kms.lock().tokens.iter().collect::<Vec<_>>(), ["account-token-0"]);
    let of_environment = GoogleSettings { credentials: Some(file.clone()), ..kms.settings() };
    let signer = actor(backend(&services(of_environment), config("EC_SIGN_P256_SHA256"), false).unwrap());
    signer.test_sign(TestSign::default()).await.unwrap();
    // The service account now has another key.
    kms.account(&folder.path().join("other.json"));
    let signer = actor(backend(&services(own.clone()), named.clone(), false).unwrap());
    let text = "configuration: cloudckms: the token service refused the service's credential (status 400)";
    assert_eq!(refusal(&signer).await, text);
    std::fs::write(&file, r#"{"type": "authorized_user"}"#).unwrap();
    let signer = actor(backend(&services(own.clone()), named.clone(), false).unwrap());
    let text = "configuration: credentials: must be the JSON file of a service account with an RSA key";
    assert_eq!(refusal(&signer).await, text);
    let outside = CloudCkmsConfig { credentials: "/etc/passwd".to_owned(), ..named };
    let error = backend(&services(own), outside, false).map(drop).unwrap_err();
    assert!(error.text().starts_with("credentials: must be the file that the environment names"), "{error}");
}
