//! Algorithms and key sources.

use serde_json::{Value, json};
use signet::x509::pem;

use super::Bed;
use crate::directory::TokenKey;
use crate::support::{App, tests_on, with};

tests_on!(
    bare: Bed::bare(App::builder()) =>
        every_algorithm_verifies_with_fetched_and_configured_keys,
        configured_keys_are_public_keys_or_certificates;
    configured: Bed::start() =>
        only_the_algorithms_of_the_configuration_are_accepted,
        key_use_and_algorithm_members_are_respected,
        a_token_that_names_no_key_is_tried_with_the_first_32;
);

const ALL: [&str; 10] = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"];

fn key_for(algorithm: &'static str) -> TokenKey {
    match &algorithm[..2] {
        "RS" | "PS" => TokenKey { algorithm, ..TokenKey::rsa(algorithm, 1) },
        _ => TokenKey::new(algorithm, algorithm),
    }
}

async fn every_algorithm_verifies_with_fetched_and_configured_keys(bed: &Bed) {
    let keys = ALL.map(key_for);
    for key in &keys {
        bed.issuer.publish(key);
    }
    let set = format!("{}/keys", bed.issuer.url);
    let pems: Vec<String> = keys.iter().map(TokenKey::pem).collect();
    bed.configure(json!({"jwks_url": set, "jwt_supported_algs": ALL})).await;
    bed.role("ci", json!({"bound_audiences": "signet"})).await;
    let claims = bed.issuer.claims(json!({"aud": "signet"}));
    for source in [json!({}), json!({"jwt_validation_pubkeys": pems})] {
        if source != json!({}) {
            bed.configure(source).await;
        }
        for key in &keys {
            let token = key.token(&claims);
            let answer = bed.log_in("ci", &token).await;
            assert_eq!(answer.status, 200, "{}: {}", key.algorithm, answer.text);
            // Another claim with the same signature.
            let other = key.token(&bed.issuer.claims(json!({"aud": "signet", "sub": "admin"})));
            let (signed, _) = other.rsplit_once('.').unwrap();
            let forged = format!("{signed}.{}", token.rsplit_once('.').unwrap().1);
            bed.refuses("ci", &forged, "the token's signature is wrong").await;
        }
    }
    assert_eq!(bed.app.client.get("auth/jwt/config").await.body["data"]["jwks_url"], json!(""));
}

async fn only_the_algorithms_of_the_configuration_are_accepted(bed: &Bed) {
    let keys = ALL.map(key_for);
    for key in &keys {
        bed.issuer.publish(key);
    }
    let claims = bed.issuer.claims(json!({"aud": "signet"}));
    let accepted = async || {
        let mut accepted = Vec::new();
        for key in &keys {
            if bed.log_in("ci", &key.token(&claims)).await.status == 200 {
                accepted.push(key.algorithm);
            }
        }
        accepted
    };
    assert_eq!(accepted().await, ["RS256"], "where nothing is said");
    bed.configure(json!({"jwt_supported_algs": "ES384,PS512"})).await;
    assert_eq!(accepted().await, ["PS512", "ES384"]);
    bed.configure(json!({"jwt_supported_algs": ""})).await;
    assert_eq!(accepted().await, ["RS256"]);
    for wrong in ["HS256", "none", "rs256", "ES256K", "RSA-OAEP"] {
        let answer = bed.app.client.post("auth/jwt/config", json!({"jwt_supported_algs": [wrong]})).await;
        answer.assert_error_begins(400, "invalid jwt_supported_algs: must be");
    }
}

async fn key_use_and_algorithm_members_are_respected(bed: &Bed) {
    let key = TokenKey::rsa("k2", 1);
    let token = key.token(&bed.issuer.claims(json!({"aud": "signet"})));
    let published = |more: Value| {
        let mut public = with(key.public(), more);
        public.as_object_mut().unwrap().retain(|_, member| !member.is_null());
        public
    };
    let keys = [
        (json!({}), 200),
        (json!({"use": null, "kid": null}), 200),
        (json!({"alg": "RS256", "key_ops": ["verify"], "x5c": ["AAAA"]}), 200),
        (json!({"use": "enc"}), 403),
        (json!({"key_ops": ["encrypt"]}), 403),
        (json!({"alg": "PS256"}), 403),
        (json!({"kid": "K2"}), 403),
        (json!({"kid": 2}), 403),
        (json!({"kty": "rsa"}), 403),
        (json!({"e": null}), 403),
        (json!({"e": "AAEAAQ=="}), 403),
        (json!({"e": "AQ"}), 403),
    ];
    for (at, (more, status)) in keys.into_iter().enumerate() {
        bed.issuer.lock().keys = vec![bed.issuer.key.public(), published(more.clone())];
        bed.configure(json!({"default_role": format!("r{at}")})).await;
        assert_eq!(bed.log_in("ci", &token).await.status, status, "{more}");
    }
}

async fn a_token_that_names_no_key_is_tried_with_the_first_32(bed: &Bed) {
    let key = TokenKey::rsa("own", 1);
    let other = TokenKey::rsa("other", 2);
    let claims = bed.issuer.claims(json!({"aud": "signet"}));
    let unnamed = key.token_with(json!({"alg": "RS256"}), &claims);
    for (others, status) in [(31, 200), (32, 403)] {
        let mut keys = vec![other.public(); others];
        keys.push(key.public());
        bed.issuer.lock().keys = keys;
        bed.configure(json!({"default_role": format!("r{others}")})).await;
        assert_eq!(bed.log_in("ci", &unnamed).await.status, status, "{others}");
        assert_eq!(bed.log_in("ci", &key.token(&claims)).await.status, 200, "one that names it");
    }
}

async fn configured_keys_are_public_keys_or_certificates(bed: &Bed) {
    bed.role("ci", json!({"bound_audiences": "signet"})).await;
    let root = json!({"common_name": "Tokens", "key_type": "rsa", "key_bits": 2048});
    let made = bed.app.client.post("pki/root/generate/exported", root).await;
    let data = &made.body["data"];
    let key = signet::keys::PrivateKey::from_pem(data["private_key"].as_str().unwrap()).unwrap();
    let key = TokenKey { kid: "any".to_owned(), algorithm: "RS256", key: key.into() };
    bed.configure(json!({"jwt_validation_pubkeys": data["certificate"]})).await;
    assert_eq!(bed.log_in("ci", &key.token(&bed.issuer.claims(json!({"aud": "signet"})))).await.status, 200);
    for (wrong, rule) in [
        (data["private_key"].clone(), "must be a single PEM block of type PUBLIC KEY or CERTIFICATE"),
        (json!("hunter2"), "invalid PEM block at index 0"),
        (json!(pem::encode("PUBLIC KEY", b"hunter2")), "public key"),
        (
            json!([format!("{}\n{}", key.pem(), key.pem())]),
            "must be a single PEM block of type PUBLIC KEY or CERTIFICATE",
        ),
        (json!(WEAK), "a key must be RSA with 2048 to 8192 bits"),
        (json!(vec![key.pem(); 33]), "more than 32 keys"),
    ] {
        let answer = bed.app.client.post("auth/jwt/config", json!({"jwt_validation_pubkeys": wrong})).await;
        answer.assert_error_begins(400, "jwt_validation_pubkeys: ");
        answer.assert_error_has(400, rule);
        assert!(!answer.text.contains("hunter2") && !answer.text.contains("-----BEGIN"), "{}", answer.text);
    }
}

/// An RSA key of 1024 bits.
const WEAK: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCyMMTxgVlD7fAU3vPUzjLYN8eE
lcM9tM/HUqZwqN2zpoBEIBjvO7k6uCWgMMbe8P+45Rbse63XdsARtFSs1qBGDzQL
7h4+Y9JpjNgWF/WfZy1XYaTRbl+2b1Ow0QfPKcdwnBhUvPIpeIPAKmH1y5YFn7ck
2V7SCLdHE3UfxNXklwIDAQAB
-----END PUBLIC KEY-----
";
