//! `cloudakms` with ministack.

use aws_sdk_kms::types::{KeySpec, KeyState, KeyUsageType};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::json;
use signet::error::Kind;
use signet::keys::cloudakms::backend;
use signet::keys::{CloudAkmsConfig, SignerActor};
use signet::outbound::EgressPolicy;
use signet::secret::Secret;
use signet::x509::algorithm::{Curve, KeyKind};

use super::super::contract::{Subject, algorithms, assert_error, holds, sign, signs, usual};
use super::key::Key;
use super::ministack::Ministack;
use super::server::{Told, serve};
use super::{actor, lacks, refusal};

fn config(url: &str, kms_key: &str, kind: KeyKind) -> CloudAkmsConfig {
    let of_kind = match kind {
        KeyKind::Ec(curve) => ("ECDSA", String::new(), format!("P{}", curve.bits())),
        kind => ("RSA", kind.bits().to_string(), String::new()),
    };
    CloudAkmsConfig {
        access_key: Secret::new("test"),
        secret_key: Secret::new("test"),
        key_type: of_kind.0.to_owned(),
        key_bits: of_kind.1,
        curve: of_kind.2,
        kms_key: kms_key.to_owned(),
        endpoint: url.to_owned(),
        region: "us-east-1".to_owned(),
    }
}

fn key(url: &str, kms_key: &str, kind: KeyKind, generate: bool) -> SignerActor {
    actor(backend(config(url, kms_key, kind), EgressPolicy { loopback: true }, generate).unwrap())
}

#[tokio::test]
async fn rsa_and_ec_keys_of_ministack_hold_the_contract() {
    let ministack = Ministack::start();
    let rsa = [2048, 3072, 4096].map(|bits| KeyKind::Rsa { bits });
    let ec = [Curve::P256, Curve::P384, Curve::P521].map(KeyKind::Ec);
    for kind in rsa.into_iter().chain(ec) {
        let alias = format!("alias/{}-{}", kind.name(), kind.bits());
        let fits = |hash: signet::keys::TestHash| match kind {
            KeyKind::Ec(curve) => hash == curve.hash().into(),
            _ => true,
        };
        holds(Subject {
            kind,
            maker: key(&ministack.url, &alias, kind, true),
            user: key(&ministack.url, &alias, kind, false),
            generates: true,
            refuses: algorithms().filter(|other| other.fits(kind) && !other.is_usual_for(kind)).collect(),
            lacks: lacks(|hash, _| !fits(hash)),
        })
        .await;
    }
}

#[tokio::test]
async fn concurrent_key_generation_leaves_one_alias_and_one_key() {
    let ministack = Ministack::start();
    let kind = KeyKind::Ec(Curve::P256);
    let nodes: Vec<_> = (0..5).map(|_| key(&ministack.url, "alias/race", kind, true)).collect();
    let made = join_all(nodes.iter().map(|node| node.find_key(true))).await;
    let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
    assert!(made.iter().all(|key| *key == made[0]));
    let client = ministack.client();
    let aliases = client.list_aliases().send().await.unwrap();
    assert_eq!(aliases.aliases().iter().filter(|alias| alias.alias_name() == Some("alias/race")).count(), 1);
    let mut enabled = 0;
    for key in client.list_keys().send().await.unwrap().keys() {
        let described = client.describe_key().key_id(key.key_id().unwrap()).send().await.unwrap();
        match described.key_metadata().unwrap().key_state() {
            Some(KeyState::Enabled) => enabled += 1,
            state => assert_eq!(state, Some(&KeyState::PendingDeletion)),
        }
    }
    assert_eq!(enabled, 1);
}

#[tokio::test]
async fn unusable_key_is_rejected_with_the_cause() {
    let ministack = Ministack::start();
    let client = ministack.client();
    let make = |usage, spec| {
        let request = client.create_key().key_usage(usage).key_spec(spec);
        async move { request.send().await.unwrap().key_metadata.unwrap().key_id }
    };
    let rsa = KeyKind::Rsa { bits: 2048 };
    let of = |id: &str| key(&ministack.url, id, rsa, false);
    let other = make(KeyUsageType::EncryptDecrypt, KeySpec::Rsa2048).await;
    let text = "configuration: cloudakms: the key usage of the key is ENCRYPT_DECRYPT, but must be SIGN_VERIFY";
    assert_eq!(refusal(&of(&other)).await, text);
    let other = make(KeyUsageType::SignVerify, KeySpec::Rsa3072).await;
    let text = "configuration: cloudakms: the key spec of the key is RSA_3072, but must be RSA_2048";
    assert_eq!(refusal(&of(&other)).await, text);
    let own = make(KeyUsageType::SignVerify, KeySpec::Rsa2048).await;
    let actor = of(&own);
    let signer = actor.signer(actor.find_key(false).await.unwrap());
    signs(&signer, usual(rsa), b"message").await;
    client.disable_key().key_id(&own).send().await.unwrap();
    let text = "cloudakms: the key is disabled (DisabledException)";
    assert_error(sign(&signer, usual(rsa)).await, Kind::BadGateway, text);
    let text = "configuration: cloudakms: the state of the key is Disabled, but must be Enabled";
    assert_eq!(refusal(&actor).await, text);
    client.enable_key().key_id(&own).send().await.unwrap();
    signs(&signer, usual(rsa), b"message").await;
}

#[tokio::test]
async fn moved_alias_does_not_change_the_key_of_existing_signers() {
    let ministack = Ministack::start();
    let kind = KeyKind::Ec(Curve::P256);
    let actor = key(&ministack.url, "alias/moved", kind, true);
    let taken = actor.find_key(true).await.unwrap();
    let signer = actor.signer(taken.clone());
    let client = ministack.client();
    let other = client.create_key().key_usage(KeyUsageType::SignVerify).key_spec(KeySpec::EccNistP256);
    let other = other.send().await.unwrap().key_metadata.unwrap().key_id;
    client.update_alias().alias_name("alias/moved").target_key_id(&other).send().await.unwrap();
    signs(&signer, usual(kind), b"message").await;
    // Neither a test signature, which follows the alias, nor a restart changes that.
    actor.test_sign(Default::default()).await.unwrap();
    signs(&signer, usual(kind), b"message").await;
    let again = key(&ministack.url, "alias/moved", kind, false);
    signs(&again.signer(taken.clone()), usual(kind), b"message").await;
    // If only the public key is known, the alias determines the key.
    let signer = key(&ministack.url, "alias/moved", kind, false).signer(taken.public.into());
    assert_error(sign(&signer, usual(kind)).await, Kind::BadGateway, "managed key changed in backend");
}

#[tokio::test]
async fn service_errors_are_distinguished() {
    let rsa = KeyKind::Rsa { bits: 2048 };
    let cases = [
        (
            Told::new(400, json!({"__type": "AccessDeniedException", "message": "canary-message"})),
            Kind::BadGateway,
            "cloudakms: the credential lacks a permission (AccessDeniedException)",
        ),
        (
            Told::new(500, json!({"__type": "KMSInternalException"})),
            Kind::Unavailable,
            "cloudakms: the service is overloaded or failing",
        ),
        (
            Told::new(200, json!({"KeyMetadata": {"KeyId": "k", "Description": "x".repeat(1 << 20)}})),
            Kind::BadGateway,
            "cloudakms: the response of the service has an unexpected form",
        ),
    ];
    for (told, kind, text) in cases {
        let Told(status, body, _) = told;
        let url = serve(move |_| Told::new(status, body.clone()));
        assert_error(key(&url, "alias/x", rsa, false).find_key(false).await, kind, text);
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = key(&format!("http://{free}"), "alias/x", rsa, false);
    let text = "cloudakms: the key service: cannot be reached, or its TLS certificate is not trusted";
    assert_error(away.find_key(false).await, Kind::Unavailable, text);
}

/// A service with one key, its description `described` and its public key `key`.
fn double(described: serde_json::Value, key: &Key) -> String {
    let public = STANDARD.encode(key.spki());
    serve(move |asked| match asked.header("x-amz-target") {
        "TrentService.DescribeKey" => Told::new(200, json!({ "KeyMetadata": described })),
        "TrentService.GetPublicKey" => Told::new(200, json!({ "KeyId": "k", "PublicKey": public })),
        other => panic!("{other}"),
    })
}

#[tokio::test]
async fn key_description_must_match_the_key() {
    let described = |enabled: bool| {
        json!({ "KeyId": "k", "Arn": "arn:aws:kms:us-east-1:000000000000:key/k", "KeyUsage": "SIGN_VERIFY",
            "KeyState": "Enabled", "Enabled": enabled, "KeySpec": "ECC_NIST_P256" })
    };
    let kind = KeyKind::Ec(Curve::P256);
    let [own, other] = [Curve::P256, Curve::P384].map(|curve| Key::generate(KeyKind::Ec(curve)));
    key(&double(described(true), &own), "alias/x", kind, false).find_key(false).await.unwrap();
    let text = "cloudakms: the type of the public key differs from the key spec of the service";
    let outcome = key(&double(described(true), &other), "alias/x", kind, false).find_key(false).await;
    assert_error(outcome, Kind::BadGateway, text);
    let disabled = key(&double(described(false), &own), "alias/x", kind, false);
    assert_eq!(refusal(&disabled).await, "configuration: cloudakms: the key is disabled");
}
