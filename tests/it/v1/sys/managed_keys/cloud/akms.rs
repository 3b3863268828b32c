//! `cloudakms` with ministack.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_sdk_kms::types::{KeySpec, KeyState, KeyUsageType};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};

use super::super::{issue, refused, shown, test, test_refused, tested, with, write};
use super::{shown_of_all, with_root};
use crate::signers::cloud::key::Key;
use crate::signers::cloud::ministack::Ministack;
use crate::signers::cloud::server::{Told, serve};
use crate::support::App;

/// An EC key if `bits` is the size of a curve, else an RSA key.
fn key(url: &str, kms_key: &str, bits: u32) -> Value {
    let body = json!({ "access_key": "test", "secret_key": "test-secret", "kms_key": kms_key, "endpoint": url,
        "region": "us-east-1" });
    let kind = match bits {
        256 | 384 | 521 => json!({ "key_type": "ecdsa", "curve": format!("P{bits}") }),
        bits => json!({ "key_type": "RSA", "key_bits": bits.to_string() }),
    };
    with(body, kind)
}

fn generated(url: &str, kms_key: &str, bits: u32) -> Value {
    with(key(url, kms_key, bits), json!({ "allow_generate_key": "true", "any_mount": "true" }))
}

/// The number of enabled
async fn count(stack: &Ministack) -> (usize, usize) {
    let client = stack.client();
    let mut enabled = 0;
    let mut ending = 0;
    for key in client.list_keys().send().await.unwrap().keys() {
        let described = client.describe_key().key_id(key.key_id().unwrap()).send().await.unwrap();
        match described.key_metadata().unwrap().key_state() {
            Some(KeyState::Enabled) => enabled += 1,
            Some(KeyState::PendingDeletion) => ending += 1,
            state => panic!("{state:?}"),
        }
    }
    (enabled, ending)
}

#[actix_web::test]
async fn concurrent_requests_generate_each_key_once_per_alias() {
    let stack = Ministack::start();
    let app = App::start().await;
    for bits in [2048, 3072, 4096, 256, 384, 521] {
        let key = format!("cloudakms/k{bits}");
        write(&app, &key, generated(&stack.url, &format!("alias/k{bits}"), bits)).await;
        // Two configured keys are the same key at the service.
        write(&app, &format!("{key}-too"), generated(&stack.url, &format!("alias/k{bits}"), bits)).await;
        let names = [key.clone(), format!("{key}-too")];
        let race = join_all((0..5).map(|n| test(&app, &names[n % 2], json!({})))).await;
        race.iter().for_each(|answer| assert_eq!(answer.status, 204, "{bits}: {}", answer.text));
        if bits > 521 {
            tested(&app, &key, json!({ "use_pss": true, "hash_algorithm": "sha2-384" })).await;
        } else {
            test_refused(&app, &key, json!({ "use_pss": true }), "configuration: use_pss: only for RSA keys").await;
        }
        let text = "configuration: hash algorithm not supported by cloudakms";
        test_refused(&app, &key, json!({ "hash_algorithm": "sha1" }), text).await;
    }
    let aliases = stack.client().list_aliases().send().await.unwrap();
    let mut names: Vec<_> = aliases.aliases().iter().filter_map(|alias| alias.alias_name()).collect();
    names.retain(|name| name.starts_with("alias/k"));
    names.sort_unstable();
    assert_eq!(names, ["alias/k2048", "alias/k256", "alias/k3072", "alias/k384", "alias/k4096", "alias/k521"]);
    assert_eq!(count(&stack).await, (6, 0), "nobody made a key that is nobody's");
    app.stop().await;
}

#[actix_web::test]
async fn disabled_or_mismatched_key_is_rejected() {
    let stack = Ministack::start();
    let app = App::start().await;
    let client = stack.client();
    let make = |usage, spec| {
        let request = client.create_key().key_usage(usage).key_spec(spec);
        async move { request.send().await.unwrap().key_metadata.unwrap().key_id }
    };
    let id = make(KeyUsageType::EncryptDecrypt, KeySpec::Rsa2048).await;
    write(&app, "cloudakms/web", key(&stack.url, &id, 2048)).await;
    let text = "configuration: cloudakms: the key usage of the key is ENCRYPT_DECRYPT, but must be SIGN_VERIFY";
    test_refused(&app, "cloudakms/web", json!({}), text).await;
    let id = make(KeyUsageType::SignVerify, KeySpec::Rsa3072).await;
    write(&app, "cloudakms/web", json!({ "kms_key": id })).await;
    let text = "configuration: cloudakms: the key spec of the key is RSA_3072, but must be RSA_2048";
    test_refused(&app, "cloudakms/web", json!({}), text).await;
    write(&app, "cloudakms/web", json!({ "key_bits": "3072" })).await;
    tested(&app, "cloudakms/web", json!({})).await;
    client.disable_key().key_id(&id).send().await.unwrap();
    let text = "configuration: cloudakms: the state of the key is Disabled, but must be Enabled";
    test_refused(&app, "cloudakms/web", json!({}), text).await;
    client.enable_key().key_id(&id).send().await.unwrap();
    tested(&app, "cloudakms/web", json!({})).await;
    write(&app, "cloudakms/web", json!({ "kms_key": "alias/absent" })).await;
    let text = "configuration: key does not exist in backend and allow_generate_key is false";
    test_refused(&app, "cloudakms/web", json!({}), text).await;
    app.stop().await;
}

#[derive(Default)]
struct Lagging {
    keys: Vec<(String, Key)>,
    aliases: BTreeMap<String, String>,
    lag: Duration,
    hidden_until: Option<Instant>,
}

impl Lagging {
    fn start(lag: Duration) -> (String, Arc<Mutex<Self>>) {
        let state = Arc::new(Mutex::new(Self { lag, ..Self::default() }));
        let own = Arc::clone(&state);
        let url = serve(move |asked| own.lock().unwrap().answer(asked.header("x-amz-target"), &asked.json()));
        (url, state)
    }

    fn answer(&mut self, target: &str, body: &Value) -> Told {
        let operation = target.trim_start_matches("TrentService.");
        if operation == "CreateKey" {
            let id = format!("key-{}", self.keys.len());
            self.keys.push((id.clone(), Key::generate(KeyKind::Ec(Curve::P256))));
            self.hidden_until = Some(Instant::now() + self.lag);
            return Told::new(200, json!({ "KeyMetadata": { "KeyId": id } }));
        }
        if operation == "CreateAlias" {
            let id = body["TargetKeyId"].as_str().unwrap().to_owned();
            self.aliases.insert(body["AliasName"].as_str().unwrap().to_owned(), id);
            return Told::new(200, json!({}));
        }
        let named = body["KeyId"].as_str().unwrap();
        let named = named.rsplit_once("key/").map_or(named, |(_, id)| id);
        let id = self.aliases.get(named).map_or(named, String::as_str);
        let key = self.keys.iter().find(|(known, _)| known == id);
        let is_hidden = self.hidden_until.is_some_and(|until| Instant::now() < until);
        let Some((id, key)) = key.filter(|_| !is_hidden) else {
            return Told::new(400, json!({ "__type": "NotFoundException" }));
        };
        let arn = format!("arn:aws:kms:us-east-1:000000000000:key/{id}");
        match operation {
            "DescribeKey" => Told::new(
                200,
                json!({ "KeyMetadata": { "KeyId": id, "Arn": arn, "KeyUsage": "SIGN_VERIFY", "KeyState": "Enabled",
                    "Enabled": true, "KeySpec": "ECC_NIST_P256" } }),
            ),
            "GetPublicKey" => Told::new(200, json!({ "KeyId": arn, "PublicKey": STANDARD.encode(key.spki()) })),
            "Sign" => {
                let digest = STANDARD.decode(body["Message"].as_str().unwrap()).unwrap();
                let signature = key.sign(SignatureAlgorithm::Ecdsa(Hash::Sha256), &digest).unwrap();
                Told::new(200, json!({ "KeyId": arn, "Signature": STANDARD.encode(signature) }))
            }
            other => panic!("{other}"),
        }
    }
}

#[actix_web::test]
async fn generated_key_that_is_not_yet_visible_is_generated_once() {
    let (url, state) = Lagging::start(Duration::from_millis(1500));
    let app = App::start().await;
    for alias in ["web", "late"] {
        write(&app, &format!("cloudakms/{alias}"), generated(&url, &format!("alias/{alias}"), 256)).await;
    }
    let race = join_all((0..4).map(|_| test(&app, "cloudakms/web", json!({})))).await;
    race.iter().for_each(|answer| assert_eq!(answer.status, 204, "{}", answer.text));
    assert_eq!(state.lock().unwrap().keys.len(), 1);
    state.lock().unwrap().lag = Duration::from_secs(600);
    let text = "backend: cloudakms: the generated key is not visible yet; retry shortly";
    for _ in 0..3 {
        let late = test(&app, "cloudakms/late", json!({})).await;
        assert_eq!((late.status, late.error(), late.header("retry-after")), (503, text, "1"));
    }
    assert_eq!(state.lock().unwrap().keys.len(), 2);
    state.lock().unwrap().hidden_until = None;
    tested(&app, "cloudakms/late", json!({})).await;
    assert_eq!(state.lock().unwrap().keys.len(), 2);
    app.stop().await;
}

#[actix_web::test]
async fn test_signature_uses_the_issuer_key_after_an_alias_move() {
    let (url, state) = Lagging::start(Duration::ZERO);
    let app = App::start().await;
    write(&app, "cloudakms/web", generated(&url, "alias/web", 256)).await;
    with_root(&app).await;
    let other = ("other".to_owned(), Key::generate(KeyKind::Ec(Curve::P256)));
    state.lock().unwrap().keys.push(other);
    state.lock().unwrap().aliases.insert("alias/web".to_owned(), "other".to_owned());
    tested(&app, "cloudakms/web", json!({})).await;
    state.lock().unwrap().keys.remove(0);
    assert_eq!(issue(&app).await.status, 502);
    test(&app, "cloudakms/web", json!({}))
        .await
        .assert_error_begins(400, "configuration: the key that mounts still use");
    app.stop().await;
}

#[actix_web::test]
async fn generated_key_must_be_named_by_an_own_alias() {
    let stack = Ministack::start();
    let app = App::start().await;
    let text = "kms_key must be an alias when allow_generate_key is true";
    for id in ["1234abcd-12ab-34cd-56ef-1234567890ab", "arn:aws:kms:us-east-1:000000000000:key/1", "alias/aws/x"] {
        refused(&app, "cloudakms/web", generated(&stack.url, id, 256), text).await;
    }
    for id in ["1234abcd-12ab-34cd-56ef-1234567890ab", "arn:aws:kms:us-east-1:000000000000:key/1"] {
        write(&app, "cloudakms/web", key(&stack.url, id, 256)).await;
    }
    refused(&app, "cloudakms/web", json!({ "allow_generate_key": "true" }), text).await;
    write(&app, "cloudakms/web", generated(&stack.url, "alias/x", 256)).await;
    tested(&app, "cloudakms/web", json!({})).await;
    app.stop().await;
}

#[actix_web::test]
async fn foreign_endpoint_does_not_get_the_process_credential() {
    let app = App::start().await;
    let body =
        |endpoint: &str| json!({ "kms_key": "alias/x", "key_type": "ecdsa", "curve": "P256", "endpoint": endpoint });
    let text = "endpoint: must be an endpoint of AWS KMS unless access_key is set";
    for endpoint in ["https://kms.example", "https://kms.amazonaws.com.example"] {
        refused(&app, "cloudakms/web", body(endpoint), text).await;
    }
    let text = "endpoint: the host's address is not permitted (loopback, link-local, multicast or metadata service)";
    refused(&app, "cloudakms/web", body("https://169.254.169.254"), text).await;
    // This test server may call the loopback.
    for endpoint in ["https://vpce-0-a.kms.eu-central-1.vpce.amazonaws.com", "http://127.0.0.1:4566"] {
        write(&app, "cloudakms/web", body(endpoint)).await;
    }
    app.stop().await;
}

#[actix_web::test]
async fn secrets_are_redacted_and_kept_by_a_write_of_what_was_read() {
    let stack = Ministack::start();
    let app = App::start().await;
    write(&app, "cloudakms/web", key(&stack.url, "alias/x", 2048)).await;
    let shown = shown(&app.client, "cloudakms/web").await;
    let own = json!({ "access_key": "redacted", "secret_key": "redacted", "key_type": "RSA", "key_bits": "2048",
        "curve": "", "kms_key": "alias/x", "endpoint": stack.url, "region": "us-east-1" });
    assert_eq!(shown, shown_of_all("web", "cloudakms", &shown["UUID"], own));
    // What a read returns can be written back, and keeps the credential.
    write(&app, "cloudakms/web", with(shown, json!({ "allow_generate_key": true }))).await;
    tested(&app, "cloudakms/web", json!({})).await;
    let text = "access_key: \"redacted\" is a placeholder without a stored secret; send the secret";
    refused(&app, "cloudakms/other", with(key(&stack.url, "alias/x", 256), json!({ "access_key": "redacted" })), text)
        .await;
    app.stop().await;
}
