//! Secrets of managed keys: PINs, and the credentials of cloud services.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::Walk;
use super::private_key::private_numbers;
use crate::signers::cloud::kms::Kms;
#[cfg(feature = "keys-aws")]
use crate::signers::cloud::ministack::Ministack;
use crate::signers::cloud::vault::{CLIENT, SECRET, TENANT, Vault};
use crate::signers::hsm::{Hsm, PIN};

/// Configures a PKCS #11 key with right and wrong PINs, in every state of the key.
pub(super) async fn in_a_token(walk: &mut Walk, hsm: &Hsm) {
    let path = "sys/managed-keys/pkcs11/hsm";
    for (name, pin) in [("pin", PIN), ("wrong pin", "wrong-pin-of-nobody"), ("long pin", "long-pin-of-nobody")] {
        walk.scanner.add_text(name, pin);
    }
    hsm.token("canary");
    let key = json!({ "library": "hsm", "token_label": "canary", "key_label": "web", "mechanism": "0x1041",
        "pin": "wrong-pin-of-nobody", "allow_generate_key": "true", "curve": "P256" });
    let test = format!("{path}/test/sign");
    assert_eq!(walk.post(path, key).await.status, 200);
    assert_eq!(walk.post(&test, json!({})).await.status, 400);
    for body in [
        json!({ "pin": PIN, "slot": 1 }),
        json!({ "pin": PIN, "library": PIN }),
        json!({ "pin": "long-pin-of-nobody".repeat(1000) }),
        json!({ "pin": [PIN] }),
        json!({ "pin": { "a": PIN } }),
        json!({ "PIN": PIN, "bogus": 1 }),
    ] {
        let answer = walk.post(path, body.clone()).await;
        // The error quotes an unknown library name, here the PIN that the caller sent as the name.
        if body["library"] == PIN {
            walk.outputs.pop();
        }
        assert!(matches!(answer.status, 200 | 400), "{}", answer.text);
    }
    assert_eq!(walk.post(path, json!({ "pin": PIN })).await.status, 200);
    assert_eq!(walk.post(&test, json!({})).await.status, 204);
    let root = walk.root.clone();
    let shown = walk.ask(&root, "GET", path, Value::Null, &[]).await;
    assert_eq!(shown.body["data"]["pin"], "redacted");
    hsm.remove_tokens();
    walk.post(&test, json!({})).await;
    hsm.restore_tokens();
    walk.post("sys/mounts/pki2/tune", json!({ "allowed_managed_keys": "hsm" })).await;
    walk.ask(&root, "DELETE", path, Value::Null, &[]).await;
}

pub(super) struct Services {
    #[cfg(feature = "keys-aws")]
    akms: Ministack,
    bkeyvault: Vault,
    ckms: Kms,
    folder: PathBuf,
}

impl Services {
    pub(super) fn start(folder: &Path) -> Self {
        let folder = folder.join("credentials");
        std::fs::create_dir(&folder).unwrap();
        let ckms = Kms::start();
        ckms.account(&folder.join("signer.json"));
        Self {
            #[cfg(feature = "keys-aws")]
            akms: Ministack::start(),
            bkeyvault: Vault::start(),
            ckms,
            folder,
        }
    }

    pub(super) fn name_to(&self, command: &mut Command) {
        let azure = self.bkeyvault.settings();
        let google = self.ckms.settings();
        command
            .env("SIGNET_AZURE_AUTHORITY_URL", azure.authority_url.unwrap())
            .env("SIGNET_AZURE_VAULT_URL_TEMPLATE", azure.vault_url_template)
            .env("SIGNET_AZURE_IMDS_URL", azure.imds_url)
            .env("SIGNET_GOOGLE_ENDPOINT", google.endpoint)
            .env("SIGNET_GOOGLE_TOKEN_URL", google.token_url)
            .env("SIGNET_GOOGLE_METADATA_URL", google.metadata_url)
            .env("SIGNET_GOOGLE_CREDENTIALS_DIR", &self.folder);
    }

    fn secrets(&self, walk: &mut Walk) {
        for (name, secret) in [
            ("access key", "AKIACANARYACCESSKEY1"),
            ("secret key", "canary-secret-key-of-nobody"),
            ("wrong secret key", "wrong-secret-key-of-nobody"),
            ("client secret", SECRET),
            ("wrong client secret", "wrong-client-secret-of-nobody"),
        ] {
            walk.scanner.add_text(name, secret);
        }
        let file: Value = serde_json::from_slice(&std::fs::read(self.folder.join("signer.json")).unwrap()).unwrap();
        for number in private_numbers(file["private_key"].as_str().unwrap()) {
            walk.scanner.add_bytes("key of the service account", &number);
        }
    }

    fn tokens(&self, walk: &mut Walk) {
        let tokens: Vec<_> = self.bkeyvault.lock().tokens.iter().chain(&self.ckms.lock().tokens).cloned().collect();
        assert!(tokens.len() >= 2, "{tokens:?}");
        tokens.iter().for_each(|token| walk.scanner.add_text("access token", token));
    }
}

/// Writes a key with invalid and valid bodies, signs with success and with failure, reads it and tries to delete it.
async fn one(walk: &mut Walk, path: &str, good: Value, secret: &str, wrong: &str, disturb: impl Fn(bool)) {
    let text = good[secret].clone();
    let test = format!("{path}/test/sign");
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    for body in [
        with(secret, json!([text])),
        with(secret, json!({ "a": text })),
        with(secret, json!(text.as_str().unwrap_or_default().repeat(500))),
        with("any_mount", json!("perhaps")),
        with("key_type", json!("of no kind")),
    ] {
        walk.post(path, body).await;
    }
    if !wrong.is_empty() {
        assert_eq!(walk.post(path, with(secret, json!(wrong))).await.status, 200);
        walk.post(&test, json!({})).await;
    }
    assert_eq!(walk.post(path, good).await.status, 200);
    let signed = walk.post(&test, json!({})).await;
    assert_eq!(signed.status, 204, "{path}: {}", signed.text);
    let name = path.rsplit('/').next().unwrap();
    walk.post("sys/mounts/pki2/tune", json!({ "allowed_managed_keys": "hsm,akms,bkeyvault,ckms" })).await;
    let root = json!({ "common_name": "Canary", "issuer_name": name, "managed_key_name": name });
    assert_eq!(walk.post("pki2/issuers/generate/root/kms", root).await.status, 200, "{path}");
    let own = walk.root.clone();
    let shown = walk.ask(&own, "GET", path, Value::Null, &[]).await;
    assert_eq!(shown.status, 200);
    disturb(true);
    let refused = walk.post(&test, json!({})).await;
    assert!(matches!(refused.status, 204 | 400), "{path}: {}", refused.text);
    walk.ask(&own, "GET", &format!("pki2/issuer/{name}/crl"), Value::Null, &[]).await;
    disturb(false);
    walk.ask(&own, "DELETE", path, Value::Null, &[]).await;
}

pub(super) async fn at_services(walk: &mut Walk, services: &Services) {
    services.secrets(walk);
    let any = |body: Value| {
        let mut body = body;
        body["allow_generate_key"] = "true".into();
        body
    };
    #[cfg(feature = "keys-aws")]
    {
        let key = json!({ "access_key": "AKIACANARYACCESSKEY1", "secret_key": "canary-secret-key-of-nobody",
            "key_type": "ECDSA", "curve": "P256", "kms_key": "alias/canary", "endpoint": services.akms.url,
            "region": "us-east-1" });
        let path = "sys/managed-keys/cloudakms/akms";
        one(walk, path, any(key), "secret_key", "wrong-secret-key-of-nobody", |_| {}).await;
    }
    let key = json!({ "tenant_id": TENANT, "client_id": CLIENT, "client_secret": SECRET, "vault_name": "store",
        "key_name": "key", "key_type": "RSA-HSM", "key_bits": "2048" });
    let close = |closed| services.bkeyvault.lock().closed = closed;
    let path = "sys/managed-keys/cloudbkeyvault/bkeyvault";
    one(walk, path, any(key), "client_secret", "wrong-client-secret-of-nobody", close).await;
    let key = json!({ "credentials": services.folder.join("signer.json"), "crypto_key": "key", "key_ring": "ring",
        "project": "project", "region": "europe-west3", "algorithm": "EC_SIGN_P256_SHA256" });
    let disturb = |disturbed| {
        let fault = crate::signers::cloud::kms::Fault::SignatureChecksum;
        services.ckms.lock().fault = Some(fault).filter(|_| disturbed);
    };
    one(walk, "sys/managed-keys/cloudckms/ckms", any(key), "credentials", "", disturb).await;
    services.tokens(walk);
}
